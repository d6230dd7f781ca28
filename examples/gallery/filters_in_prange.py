"""Simulate 1,000 drifting sensors, each with its own filter, in a loop on all cores.

    python examples/gallery/filters_in_prange.py [--filters 1000] [--steps 2000] [--figure bank.png]

Each sensor's response to four known signals drifts; its filter follows.  Every filter has a
forgetting factor of its own, since the sensors drift at speeds that differ.  The loop over sensors
is a ``numba.prange`` of the user's, and each iteration simulates its sensor and learns in one go:
no array of rows is ever made.  `FilterBank` would need one.
"""

# ruff: noqa: NPY002  (in a prange every thread has this generator for itself)

from __future__ import annotations

import time

import figures
import numba
import numpy as np

from olsq import compiled

SIGNALS, NOISE = 4, 0.5


# [use]
@numba.njit(parallel=True)
def follow(states, drift, forget, steps):
    n = drift.shape[0]
    error = np.zeros(n)
    for i in numba.prange(n):
        np.random.seed(i)
        state = compiled.state_at(states, i)
        truth, x = np.random.standard_normal(SIGNALS), np.empty(SIGNALS)
        for t in range(steps):
            y = NOISE * np.random.standard_normal()
            for k in range(SIGNALS):
                truth[k] += drift[i] * np.random.standard_normal()
                x[k] = np.random.standard_normal()
                y += truth[k] * x[k]
            compiled.update(state, x, y, forget[i], 1.0)
            if t >= steps // 2:
                error[i] += np.sum((compiled.coef(state) - truth) ** 2)
    return np.sqrt(error / (steps - steps // 2) / SIGNALS)
    # [end]


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments, filters=1000, steps=2000)
    n, steps = options.filters, options.steps
    drift = np.logspace(-3.5, -1, n)
    # A random walk is followed best with a memory of about noise / drift rows.
    own = np.clip(1 - drift / NOISE, 0.5, 0.9999)
    follow(compiled.init(SIGNALS, n=2), drift[:2], own[:2], 2)  # compiles
    start = time.perf_counter()
    errors = follow(compiled.init(SIGNALS, n=n), drift, own, steps)
    seconds = time.perf_counter() - start
    fixed = {
        factor: follow(compiled.init(SIGNALS, n=n), drift, np.full(n, factor), steps)
        for factor in (0.9, 0.99, 0.999)
    }
    print(f"{n * steps / seconds:.2g} rows a second on {numba.get_num_threads()} threads")
    print(f"geometric mean of the errors, a factor each: {np.exp(np.log(errors).mean()):.3f}")
    for factor, found in fixed.items():
        print(f"geometric mean, every factor {factor}: {np.exp(np.log(found).mean()):.3f}")
        assert np.log(errors).mean() < np.log(found).mean()
    assert np.isfinite(errors).all()

    def draw(axes):
        for factor, color in zip(fixed, ("#b35806", "#999999", "#542788"), strict=True):
            axes.loglog(drift, fixed[factor], color=color, lw=0.6, label=f"all {factor}")
        axes.loglog(drift, errors, color="#2166ac", lw=1.0, label="own factor")
        axes.set_xlabel("drift of the sensor a step")
        axes.set_title("Error of the coefficients", loc="left")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
