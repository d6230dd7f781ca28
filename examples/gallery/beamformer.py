"""Steer an antenna array: a beam on the signal, a null on each interferer.

    python examples/gallery/beamformer.py [--figure beam.png]

Eight antennas, half a wavelength apart, receive a known pilot from 10 degrees and two interferers
20 dB stronger from -35 and 40 degrees.  Complex weights that predict the pilot are an adaptive
beamformer.  One interferer moves half-way, to -20 degrees, and forgetting follows it.
"""

from __future__ import annotations

import figures
import numpy as np

import olsq

ANTENNAS, SNAPSHOTS = 8, 2000
ANGLES = np.linspace(-90, 90, 721)


def steering(degrees: np.ndarray | float) -> np.ndarray:
    """What a plane wave from that direction is at each antenna, (..., 8)."""
    phase = np.pi * np.sin(np.radians(np.asarray(degrees)))[..., None] * np.arange(ANTENNAS)
    return np.exp(-1j * phase)


def received(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Snapshots (n, 8) and the pilot (n,)."""

    def noise(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)

    pilot = np.exp(0.5j * np.pi * (rng.integers(0, 4, SNAPSHOTS) + 0.5))
    X = pilot[:, None] * steering(10.0) + noise(SNAPSHOTS, ANTENNAS)
    moving = np.where(np.arange(SNAPSHOTS) < SNAPSHOTS // 2, -35.0, -20.0)
    for direction in (np.full(SNAPSHOTS, 40.0), moving):
        X += 10 * noise(SNAPSHOTS, 1) * steering(direction)
    return X, pilot


def gain(weights: np.ndarray, degrees: np.ndarray | float) -> np.ndarray:
    """The beam pattern in decibels."""
    return 20 * np.log10(np.abs(steering(degrees) @ weights) + 1e-9)


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    X, pilot = received(np.random.default_rng(0))
    # [use]
    est = olsq.RecursiveLeastSquares(half_life=150, ridge=1e-2, fit_intercept=False)
    path = est.partial_fit_path(X, pilot)
    before, after = path.coef[SNAPSHOTS // 2 - 1], path.coef[-1]
    # [end]
    for name, weights, null in (("before", before, -35.0), ("after", after, -20.0)):
        beam, *nulls = (float(gain(weights, at)) for at in (10.0, 40.0, null))
        print(f"{name}: signal {beam:5.1f} dB, interferers {nulls[0]:5.1f} and {nulls[1]:5.1f} dB")
        assert beam > -1.5
        assert max(nulls) < -30

    def draw(axes):
        axes.plot(ANGLES, gain(before, ANGLES), label="before the move")
        axes.plot(ANGLES, gain(after, ANGLES), label="after it")
        for at, text in ((10, "signal"), (40, "interferer"), (-35, "first"), (-20, "then")):
            axes.axvline(at, color="0.7", lw=0.8)
            axes.annotate(text, (at, 6), ha="center", fontsize=8)
        axes.set(xlabel="direction, degrees", ylabel="gain, dB", ylim=(-60, 10), xlim=(-90, 90))

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
