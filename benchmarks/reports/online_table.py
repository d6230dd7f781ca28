"""Time every method on one machine, in one process, in turn; write the page on speed.

    python -m benchmarks.reports.online_table            # measure all, write results and page
    python -m benchmarks.reports.online_table --quick    # fewer repetitions, print only

The methods take turns and every one is run many times; the fastest run counts, for whatever else
the machine does can only add to it (the median is in the results too). Compilation and the first
run are left out. Each time stands beside the largest relative error of the coefficients
against a dense float64 solve of the same problem.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path

import numpy as np

from ..suites import streams
from ..support import machine
from ..support.peers import available
from ..support.speed_methods import FORGET, METHODS, RIDGE, Method, window_for
from .registry import write_blocks

RESULTS = Path(__file__).parents[1] / "results" / "speed.json"
SIZES = (4, 16, 64, 256)
TARGETS = (1, 10)


def data(d: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Regressors (n, d), about 16 MB of them, and one target (n,) or several (n, m)."""
    stream = streams.conditioned(max(2_000_000 // d, 20 * d), d, cond=10.0)
    if m == 1:
        return stream.X, stream.y
    rng = np.random.default_rng(1)
    coef = rng.standard_normal((d, m))
    return stream.X, stream.X @ coef + stream.noise * rng.standard_normal((len(stream.X), m))


def dense(problem: str, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Coefficients after the last row, by one dense solve: (d,) or (m, d)."""
    n, d = X.shape
    if problem == "rolling":
        rows, weight, ridge = slice(n - window_for(d), None), 1.0, 0.0
    else:
        forget = FORGET if problem == "forget" else 1.0
        rows, weight = slice(None), np.sqrt(forget ** np.arange(n - 1, -1, -1.0))[:, None]
        ridge = 0.0 if problem == "diffuse" else RIDGE * forget**n
    design = np.vstack([weight * X[rows], np.sqrt(ridge) * np.eye(d)])
    target = np.vstack([weight * y.reshape(n, -1)[rows], np.zeros((d, y.size // n))])
    return np.linalg.lstsq(design, target, rcond=None)[0].T.reshape((*y.shape[1:], d))


def rows_for(method: Method, run, X, y, seconds: float) -> int:
    """Rows that take about ``seconds``; compiles and warms up on the way."""
    d = X.shape[1]
    # a rolling window must have filled and moved on for its cost to show
    n = min(32 * window_for(d), len(X)) if method.problem == "rolling" else max(4 * d, 200)
    run(X[:n], y[:n])
    while True:
        started = time.perf_counter()
        run(X[:n], y[:n])
        elapsed = time.perf_counter() - started
        if elapsed > seconds / 4 or n == len(X):
            return int(np.clip(n * seconds / elapsed, n, len(X)))
        # by doublings, for the first rows of a call also pay for the call itself
        n = min(2 * n, len(X))


def measure(d: int, m: int, seconds: float, repetitions: int, budget: float) -> list[dict]:
    """Time every method that handles ``d`` coefficients and ``m`` targets.

    A method that has used up ``budget`` seconds takes no further turns after its third.
    """
    X, y = data(d, m)
    tasks = []
    for method in METHODS:
        if d > method.largest or not available(method.requires):
            continue
        if m > 1 and not method.targets:
            continue
        run = method.make(d)
        n = rows_for(method, run, X, y, seconds)
        tasks.append((method, run, X[:n], y[:n], [], []))
    for _ in range(repetitions):
        for _, run, rows, targets, times, coefs in tasks:
            if len(times) >= 3 and sum(times) > budget:
                continue
            started = time.perf_counter()
            coefs[:] = [run(rows, targets)]
            times.append(time.perf_counter() - started)
    return [
        {
            "method": method.name,
            "group": method.group,
            "d": d,
            "m": m,
            "n": len(rows),
            "repetitions": len(times),
            "ns": min(times) / len(rows) * 1e9,
            "median_ns": statistics.median(times) / len(rows) * 1e9,
            "error": _error(coefs[0], dense(method.problem, rows, targets)),
        }
        for method, _, rows, targets, times, coefs in tasks
    ]


def _error(coef, exact) -> float | None:
    if coef is None:
        return None
    return float(np.max(np.abs(np.asarray(coef) - exact)) / np.max(np.abs(exact)))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repetitions, print only")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args()
    seconds, repetitions, budget = (0.01, 3, 0.5) if options.quick else (0.03, 25, 4.0)
    records = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for d in options.sizes:
            for m in TARGETS:
                fresh = measure(d, m, seconds, repetitions, budget)
                for r in fresh:
                    error = "" if r["error"] is None else f"{r['error']:.0e}"
                    print(f"{r['method']:28s} d={d:<4d} m={m:<3d} {r['ns']:12.1f} ns  {error}")
                records += fresh
    if not options.quick:
        results = {"machine": machine.describe(), "records": records}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        write_blocks("speed", results)


if __name__ == "__main__":
    main()
