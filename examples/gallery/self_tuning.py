"""Control an unknown plant for a million steps, each input chosen by the last estimate.

    python examples/gallery/self_tuning.py [--steps 1000000] [--figure self_tuning.png]

A self-tuning regulator (Åström and Wittenmark 1973) estimates ``y' = a y + b u + noise`` while it
runs and chooses the input that should bring the output to a target, so that no row is known before
the row before it is learned.  The gain b drifts and jumps.  The whole loop is compiled, with the
filter in it; the same loop through ``est.step`` gives the same numbers and takes dozens of times as
long.
"""

from __future__ import annotations

import time

import figures
import numba
import numpy as np

import olsq
from olsq import compiled

NOISE, FORGET, LEAST = 0.1, 0.995, 0.05


def plant(steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The plant's gain, its noise, a probing signal and the target, each (steps,)."""
    rng = np.random.default_rng(0)
    t = np.arange(steps) / steps
    gain = 0.6 + 0.2 * np.sin(8 * t) + 0.5 * (t > 0.6)
    target = np.where(np.arange(steps) // 200 % 2 == 0, 1.0, -1.0)
    return gain, NOISE * rng.standard_normal(steps), 0.1 * rng.standard_normal(steps), target


# [use]
@numba.njit
def run(gain, noise, probe, target):
    state = compiled.init(2, ridge=1e-3)
    found, outputs = np.empty((len(gain), 2)), np.empty(len(gain))
    (a, b), x, y = (0.0, 0.0), np.zeros(2), 0.0
    for t in range(len(gain)):
        x[0] = y
        x[1] = (target[t] - a * y) / max(b, LEAST) + probe[t]
        y = 0.9 * y + gain[t] * x[1] + noise[t]
        compiled.update(state, x, y, FORGET, 1.0)
        a, b = found[t] = compiled.coef(state)
        outputs[t] = y
    return found, outputs
    # [end]


def run_in_python(gain, noise, probe, target):
    """The same loop with an estimator."""
    est = olsq.RecursiveLeastSquares(forget=FORGET, ridge=1e-3, fit_intercept=False)
    found, outputs = np.empty((len(gain), 2)), np.empty(len(gain))
    (a, b), x, y = (0.0, 0.0), np.zeros(2), 0.0
    for t in range(len(gain)):
        x[0] = y
        x[1] = (target[t] - a * y) / max(b, LEAST) + probe[t]
        y = 0.9 * y + gain[t] * x[1] + noise[t]
        est.step(x, y)
        a, b = found[t] = est.coef_
        outputs[t] = y
    return found, outputs


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments, steps=1_000_000)
    signals = plant(options.steps)
    run(*(signal[:10] for signal in signals))  # compiles
    start = time.perf_counter()
    found, outputs = run(*signals)
    ours = (time.perf_counter() - start) / options.steps
    few = min(options.steps, 5000)
    start = time.perf_counter()
    same, _ = run_in_python(*(signal[:few] for signal in signals))
    theirs = (time.perf_counter() - start) / few
    gain, _, _, target = signals
    missed = np.sqrt(np.mean((outputs - target)[100:] ** 2))
    print(f"a step: {1e9 * ours:.0f} ns compiled, {1e6 * theirs:.1f} µs through est.step")
    print(f"output's distance from its target: {missed:.3f}; noise and probing alone leave .12")
    np.testing.assert_allclose(found[:few], same, atol=1e-8)
    assert missed < 0.2
    assert np.isfinite(found).all()
    assert ours < theirs / 5

    def draw(axes):
        every = max(1, options.steps // 2000)
        t = np.arange(options.steps)[::every]
        axes[0].plot(t, found[::every, 1], color="#2166ac", lw=0.7, label="estimate")
        axes[0].plot(t, gain[::every], color="#d9730d", lw=1.2, label="true gain")
        axes[0].set_title("The plant's gain", loc="left")
        block = 200 * max(1, options.steps // 200 // 200)  # whole periods of the target
        whole = options.steps // block * block
        error = np.sqrt(((outputs - target)[:whole].reshape(-1, block) ** 2).mean(axis=1))
        axes[1].plot(np.arange(len(error)) * block, error, color="#2166ac", lw=0.8)
        axes[1].set_ylim(0, None)
        axes[1].set_title("Distance of the output from its target", loc="left")
        axes[1].set_xlabel("step")

    figures.save(options.figure, draw, rows=2)


if __name__ == "__main__":
    main()
