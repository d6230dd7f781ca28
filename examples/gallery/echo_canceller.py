"""Cancel the echo of a loudspeaker in a room whose door opens half-way.

    python examples/gallery/echo_canceller.py [--figure echo.png]

The microphone hears the far end's speech through 128 taps of a room, and noise 40 dB below.  The
measure is the echo return loss enhancement (ITU-T G.168), how far the echo is below what it was,
for recursive least squares and for the normalised LMS filter that is used where that costs too
much.  Speech is imitated by noise of its spectrum and loudness: correlated, with pauses.
"""

from __future__ import annotations

import time

import figures
import numpy as np
from scipy.signal import lfilter

import olsq

RATE, TAPS, SECONDS = 8000, 128, 4


def room(rng: np.random.Generator) -> np.ndarray:
    """An impulse response: a direct path, then reflections that decay by 60 dB in 30 ms."""
    decay = 10 ** (-3 * np.arange(TAPS) / (0.03 * RATE))
    response = rng.standard_normal(TAPS) * decay * (np.arange(TAPS) > 10)
    response[10] = 2.0
    return response / np.linalg.norm(response)


def speech(rng: np.random.Generator, n: int) -> np.ndarray:
    sound = lfilter([1.0], [1.0, -1.3, 0.6], rng.standard_normal(n))
    syllables = np.clip(np.sin(2 * np.pi * 3 * np.arange(n) / RATE) + 0.7, 0, None)
    return sound * syllables


def normalised_lms(X: np.ndarray, d: np.ndarray, step: float = 0.5) -> np.ndarray:
    w, residual = np.zeros(X.shape[1]), np.empty(len(d))
    for t, x in enumerate(X):
        residual[t] = d[t] - w @ x
        w += step * residual[t] / (x @ x + 1e-3) * x
    return residual


def enhancement(echo: np.ndarray, left: np.ndarray, block: int = RATE // 4) -> np.ndarray:
    """Decibels, by quarter of a second."""
    power = [np.add.reduceat(a**2, np.arange(0, len(a), block)) for a in (echo, left)]
    return 10 * np.log10(power[0] / np.maximum(power[1], 1e-300))


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    rng = np.random.default_rng(0)
    n = RATE * SECONDS
    far = speech(rng, n)
    before, after = room(rng), room(rng)
    echo = np.where(np.arange(n) < n // 2, lfilter(before, 1, far), lfilter(after, 1, far))
    microphone = echo + 0.01 * echo.std() * rng.standard_normal(n)
    padded = np.concatenate([np.zeros(TAPS - 1), far])
    X = np.lib.stride_tricks.sliding_window_view(padded, TAPS)[:, ::-1]  # newest sample first
    est = olsq.RecursiveLeastSquares(half_life=1000, ridge=1e-4, fit_intercept=False)
    start = time.perf_counter()
    for block in range(0, n, 80):  # 10 ms, as it comes in
        est.partial_fit(X[block : block + 80], microphone[block : block + 80])
        sent = est.residual_  # what goes back: no echo
        if block == 0:
            left = np.empty(n)
        left[block : block + 80] = sent
    seconds = time.perf_counter() - start
    plain = normalised_lms(np.ascontiguousarray(X), microphone)
    ours, theirs = (enhancement(echo, e - (microphone - echo)) for e in (left, plain))
    print(f"{SECONDS} s of sound in {seconds:.1f} s with {TAPS} taps")
    for name, at in (("after one second", 4), ("just after the door opens", 8), ("at the end", -1)):
        print(f"{name:>26}: {ours[at]:5.1f} dB, normalised LMS {theirs[at]:5.1f} dB")
    assert ours[4] > 35
    assert ours[-1] > 35 > theirs[-1]

    def draw(axes):
        times = (np.arange(len(ours)) + 0.5) / 4
        axes.plot(times, ours, label="recursive\nleast squares")
        axes.plot(times, theirs, label="normalised\nLMS")
        axes.axvline(SECONDS / 2, color="0.6", lw=0.8)
        axes.annotate("the door opens", (SECONDS / 2 + 0.04, 55))
        axes.set(xlabel="seconds", ylabel="echo return loss enhancement, dB", ylim=(0, None))

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
