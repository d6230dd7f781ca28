"""Equalise a radio channel with QPSK symbols: symbol errors and the optimum.

    python examples/gallery/equaliser.py [--figure equaliser.png]

A complex channel of five taps smears each symbol over its neighbours.  A complex filter of 15 taps
learns to undo that from 200 known symbols, then goes on with the symbols that it decides itself.
The optimum is the linear equaliser of least mean squared error (Wiener), computed from the channel
and the noise, which the filter does not know.
"""

from __future__ import annotations

import figures
import numpy as np

import olsq

TAPS, DELAY, TRAINING, SYMBOLS = 15, 9, 200, 20_000
CHANNEL = np.array([0.1 - 0.1j, 0.35 + 0.2j, 0.8, 0.3 - 0.35j, 0.1 + 0.15j])


def decide(z: np.ndarray) -> np.ndarray:
    """The nearest of the four symbols."""
    return (np.where(np.real(z) > 0, 1, -1) + 1j * np.where(np.imag(z) > 0, 1, -1)) / np.sqrt(2)


def wiener(noise: float) -> np.ndarray:
    """Equaliser of least mean squared error: ``E[conj(x) x^T] w = E[conj(x) s]``."""
    H = np.zeros((TAPS, TAPS + len(CHANNEL) - 1), complex)
    for i in range(TAPS):
        H[i, i : i + len(CHANNEL)] = CHANNEL
    return np.linalg.solve(H.conj() @ H.T + noise * np.eye(TAPS), H.conj()[:, DELAY])


def run(decibels: float, rng: np.random.Generator) -> tuple[float, float, np.ndarray]:
    """Symbol error rates, learned and optimal, after training; equalised symbols."""
    noise = np.sum(np.abs(CHANNEL) ** 2) * 10 ** (-decibels / 10)
    symbols = decide(rng.standard_normal(SYMBOLS) + 1j * rng.standard_normal(SYMBOLS))
    e = rng.standard_normal((2, SYMBOLS)) * np.sqrt(noise / 2)
    received = np.convolve(symbols, CHANNEL)[:SYMBOLS] + e[0] + 1j * e[1]
    X = np.lib.stride_tricks.sliding_window_view(received, TAPS)[:, ::-1]  # newest first
    sent = symbols[TAPS - 1 - DELAY : SYMBOLS - DELAY]
    # [use]
    est = olsq.RecursiveLeastSquares(forget=0.999, ridge=1e-2, fit_intercept=False)
    est.fit(X[:TRAINING], sent[:TRAINING])
    z = np.empty(len(X), complex)
    for start in range(TRAINING, len(X), 20):
        block = slice(start, start + 20)
        z[block] = est.predict(X[block])
        est.partial_fit(X[block], decide(z[block]))
    # [end]
    errors = decide(z[TRAINING:]) != sent[TRAINING:]
    best = decide(X[TRAINING:] @ wiener(noise)) != sent[TRAINING:]
    return errors.mean(), best.mean(), z[-2000:]


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    levels = np.arange(4, 21, 4)
    rates = np.array([run(db, np.random.default_rng(db))[:2] for db in levels])
    for db, (ours, best) in zip(levels, rates, strict=True):
        print(f"{db:3d} dB: symbol error rate {ours:.2e}, optimum {best:.2e}")
    assert (rates[1:, 0] < 1.15 * rates[1:, 1] + 5e-4).all()

    def draw(axes):
        axes.semilogy(levels, rates[:, 1] + 1e-9, "o-", label="optimum, channel known")
        axes.semilogy(levels, rates[:, 0] + 1e-9, "x--", label="recursive least squares")
        axes.set(xlabel="signal to noise, dB", ylabel="symbol error rate", ylim=(1e-3, 1))

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
