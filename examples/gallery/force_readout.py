"""Teach a reservoir to oscillate like Mackey and Glass's equation, then let it run on its own.

    python examples/gallery/force_readout.py [--figure force.png]

FORCE learning (Sussillo & Abbott 2009): a random recurrent network's read-out is fed back into it
while recursive least squares corrects the read-out at every step.  The text-book update is four
lines of NumPy that square the condition number; ``est.step`` is one.
"""

from __future__ import annotations

import time

import figures
import numpy as np

import olsq

UNITS, TEACH, RUN = 500, 8000, 1000


def mackey_glass(n: int, delay: int = 17, steps: int = 4, substeps: int = 5) -> np.ndarray:
    """The series, ``steps`` values per unit of time, by Euler's method; mean 0 and deviation 1."""
    per_unit = steps * substeps
    h, lag, settle = 1 / per_unit, delay * per_unit, 500 * per_unit
    x = np.full(lag + settle + n * substeps + 1, 1.2)
    for t in range(lag, x.size - 1):
        x[t + 1] = x[t] + h * (0.2 * x[t - lag] / (1 + x[t - lag] ** 10) - 0.1 * x[t])
    series = x[lag + settle :: substeps][:n]
    return (series - series.mean()) / series.std()


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    rng = np.random.default_rng(0)
    target = mackey_glass(TEACH + RUN)
    J = 1.5 * rng.standard_normal((UNITS, UNITS)) / np.sqrt(UNITS)
    feedback = rng.uniform(-1, 1, UNITS)
    est = olsq.RecursiveLeastSquares(ridge=0.1, fit_intercept=False)
    x, z, out = rng.standard_normal(UNITS), 0.0, np.empty(TEACH + RUN)
    start = time.perf_counter()
    for t in range(TEACH + RUN):
        x += 0.1 * (-x + J @ np.tanh(x) + feedback * z)
        r = np.tanh(x)
        if t < TEACH:
            z, _ = est.step(r, target[t])
        else:
            z = est.predict(r[None])[0]
        out[t] = z
    seconds = time.perf_counter() - start
    taught = np.sqrt(np.mean((out - target)[TEACH - 1000 : TEACH] ** 2))
    alone = [np.sqrt(np.mean((out - target)[TEACH : TEACH + k] ** 2)) for k in (100, 300, 1000)]
    print(f"{UNITS} units, {TEACH} taught steps and {RUN} alone in {seconds:.1f} s")
    print(f"one-step error at the end of teaching: {taught:.4f} of the series' deviation")
    print("error alone over the first 100, 300, 1000 steps:", np.round(alone, 3))
    assert taught < 0.03
    assert alone[0] < 0.1

    def draw(axes):
        steps = np.arange(TEACH - 200, TEACH + 500)
        axes.plot(steps - TEACH, target[steps], color="0.6", lw=3, label="Mackey-Glass")
        axes.plot(steps - TEACH, out[steps], lw=1.2, label="reservoir")
        axes.axvline(0, color="0.3", lw=0.8)
        axes.annotate("on its own from here", (8, 2.1))
        axes.set(xlabel="steps after teaching", ylabel="deviations", ylim=(-3, 2.6))

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
