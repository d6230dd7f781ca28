"""Processor time of every front door beside busy cores, against one thread on quiet ones.

    python -m benchmarks.reports.busy [--only path] [--before]

A library that splits thin work over threads waits for a core that another program has, and spins
meanwhile: ten times the processor time for the same numbers.  Each call is timed by processor time,
first with one BLAS thread and quiet cores, then as it comes with one busy loop per core beside it
(loops that end by themselves).  Minimum of several calls; the ratio should be 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import threadpoolctl

import olsq

from ..support import machine

RESULTS = Path(__file__).parents[1] / "results" / "busy.json"
LOOP = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"
CALLS = 7


def data(rows: int, columns: int, targets: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([rows, columns])
    shape = (rows, targets) if targets else rows
    return rng.standard_normal((rows, columns)), rng.standard_normal(shape)


def fit(columns: int, rows: int, **parameters) -> Callable[[], object]:
    X, y = data(rows, columns)
    return lambda: olsq.RecursiveLeastSquares(**parameters).fit(X, y)


def predict(columns: int, rows: int, calls: int) -> Callable[[], object]:
    X, y = data(4 * columns, columns)
    model = olsq.RecursiveLeastSquares(ridge=1e-3).fit(X, y)
    new = data(rows, columns)[0]
    return lambda: [model.predict(new, return_std=True) for _ in range(calls)]


def path(columns: int, rows: int, **parameters) -> Callable[[], object]:
    X, y = data(rows, columns)
    return lambda: olsq.coefficient_path(X, y, **parameters)


def of(estimator: str, columns: int, rows: int, targets: int = 0, **parameters):
    X, y = data(rows, columns, targets)
    return lambda: getattr(olsq, estimator)(**parameters).fit(X, y)


def bank() -> Callable[[], object]:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((100, 200, 8)), rng.standard_normal((100, 200))
    return lambda: olsq.FilterBank(100, forget=0.99).fit(X, y)


def groups() -> Callable[[], object]:
    X, y = data(20_000, 8)
    keys = np.arange(20_000) % 200
    return lambda: olsq.GroupedLeastSquares().fit(X, y, by=keys)


def sequence(function: str, **parameters) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    K, V, Q = (rng.standard_normal((512, 32)) for _ in range(3))
    return lambda: getattr(olsq, function)(K, V, Q, **parameters)


def calls_of(columns: int, rows: int) -> Callable[[], object]:
    X, y = data(100 * rows, columns)

    def learn() -> None:
        model = olsq.RecursiveLeastSquares()
        for start in range(0, len(X), rows):
            model.partial_fit(X[start : start + rows], y[start : start + rows])

    return learn


def lstsq(columns: int, rows: int) -> Callable[[], object]:
    X, y = data(rows, columns)
    return lambda: np.linalg.lstsq(X, y, rcond=None)


def statsmodels_ols(columns: int, rows: int) -> Callable[[], object]:
    import statsmodels.api

    X, y = data(rows, columns)
    return lambda: statsmodels.api.OLS(y, X).fit().bse


def statsmodels_rolling(columns: int, rows: int) -> Callable[[], object]:
    from statsmodels.regression.rolling import RollingOLS

    X, y = data(rows, columns)
    return lambda: RollingOLS(y, X, window=60).fit()


DOORS: dict[str, Callable[[], Callable[[], object]]] = {
    "`fit`, d = 4": lambda: fit(4, 100_000),
    "`fit`, d = 16": lambda: fit(16, 40_000),
    "`fit`, d = 64": lambda: fit(64, 8_000),
    "`fit`, d = 256": lambda: fit(256, 2_000),
    "`fit`, d = 600": lambda: fit(600, 1_500),
    "`fit`, square-root form, d = 64": lambda: fit(64, 3_000, method="sqrt"),
    "`fit`, information form, d = 64": lambda: fit(64, 8_000, method="information"),
    "`fit`, one forget factor, d = 16": lambda: fit(16, 20_000, forget=0.99),
    "`partial_fit`, 100 rows a call, d = 16": lambda: calls_of(16, 100),
    "`partial_fit`, 100 rows a call, d = 256": lambda: calls_of(256, 100),
    "`predict(return_std=True)`, d = 16": lambda: predict(16, 20_000, 1),
    "`predict(return_std=True)`, 100 rows a call, d = 256": lambda: predict(256, 100, 50),
    "`coefficient_path`, d = 16": lambda: path(16, 20_000),
    "`coefficient_path`, window of 60, d = 16": lambda: path(16, 20_000, window=60),
    "`coefficient_path`, d = 128": lambda: path(128, 2_000),
    "`RollingLeastSquares`, d = 16": lambda: of("RollingLeastSquares", 16, 20_000, window=60),
    "`RobustLeastSquares`, d = 16": lambda: of("RobustLeastSquares", 16, 20_000),
    "`ConstrainedLeastSquares`, d = 16": lambda: of(
        "ConstrainedLeastSquares", 16, 2_000, bounds=(0, None)
    ),
    "`KernelLeastSquares`, 100 points": lambda: of("KernelLeastSquares", 4, 500, budget=100),
    "`FilterBank`, 100 filters, d = 8": bank,
    "`GroupedLeastSquares`, 200 groups, d = 8": groups,
    "`online_lstsq`, 512 tokens, d = 32": lambda: sequence("online_lstsq", ridge=1.0),
    "`local_lstsq`, 512 tokens, d = 32": lambda: sequence("local_lstsq", ridge=1.0),
    "NumPy's `lstsq`, d = 64": lambda: lstsq(64, 8_000),
    "statsmodels' `OLS`, d = 64": lambda: statsmodels_ols(64, 8_000),
    "statsmodels' `RollingOLS`, d = 16": lambda: statsmodels_rolling(16, 5_000),
}


@contextmanager
def busy_cores(seconds: float):
    """One loop per core that ends by itself, whatever becomes of this process."""
    loops = [
        subprocess.Popen([sys.executable, "-c", LOOP.format(seconds)])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        time.sleep(0.3)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def least(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """Shortest of several calls; those of a millisecond need many beside busy cores."""
    times: list[float] = []
    while sum(times) < 2.0 and (len(times) < CALLS or sum(times) < 0.3):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def measure(name: str) -> dict[str, float]:
    """Milliseconds of one call, as :func:`table` names them."""
    call = DOORS[name]()
    call()  # compile
    with threadpoolctl.threadpool_limits(1):
        call()
        one = least(call, time.process_time)
    call()
    time.sleep(0.2)  # until threads that spin after a call have gone to sleep
    quiet = least(call, time.perf_counter)
    with busy_cores(60.0):
        call()
        busy = least(call, time.process_time)
    return {"one": 1e3 * one, "quiet": 1e3 * quiet, "busy": 1e3 * busy}


def table(results: dict) -> str:
    """The Markdown table of all calls."""
    lines = ["| | quiet cores, ms | busy cores, ms | ratio |", "|---|---|---|---|"]
    for name, r in results["doors"].items():
        name = name.replace("rows a call", "rows per call")
        lines.append(f"| {name} | {r['one']:.3g} | {r['busy']:.3g} | {r['busy'] / r['one']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure every door, store and show."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="rows whose name contains this; nothing is stored")
    parser.add_argument("--before", action="store_true", help="store as those of an older version")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    doors = {}
    for name in DOORS:
        if arguments.only is None or arguments.only in name:
            doors[name] = r = measure(name)
            print(f"{name:55s} " + "  ".join(f"{k} {v:7.1f}" for k, v in r.items()), flush=True)
    if arguments.only is not None:
        return
    if arguments.before:
        results["before"] = doors
    else:
        results |= {"machine": machine.describe(), "doors": doors}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if "doors" in results:
        print(table(results))


if __name__ == "__main__":
    main()
