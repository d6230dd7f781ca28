"""Streams of rows in two checkouts of olsq, in turn: how much faster the one is than the other.

    python -m benchmarks.reports.two_versions OLD NEW [--repeats 11] [--write]

Starts one worker in each folder, which both stay, and asks them in turn for the processor time of
the same case: the least of four runs after a first one.  The median of the ratios counts, since a
busy machine slows both down alike.  ``--write`` keeps ``benchmarks/results/two_versions.json``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULT = Path(__file__).parents[1] / "results" / "two_versions.json"
FORGET: dict[str, Any] = {"forget": 0.999, "ridge": 1e-3}
# What is compared: a name, the case of the old version, the case of the new one.
CASES = [
    *[(f"whole array, d {d}", f"whole {d}", f"whole {d}") for d in (4, 16, 64, 256)],
    *[(f"coefficient_path, d {d}", f"path {d}", f"path {d}") for d in (4, 16, 64, 256)],
    *[(f"the same, statistics=False, d {d}", f"path {d}", f"bare {d}") for d in (16, 64, 256)],
    *[(f"rolling path, statistics=False, d {d}", f"rolling {d}", f"rolling {d}")
      for d in (4, 16, 64)],
    *[(f"information, residuals, d {d}", f"moments {d}", f"moments {d}") for d in (4, 16, 64)],
    *[(f"the same, fixed ridge, d {d}", f"fixed {d}", f"fixed {d}") for d in (4, 16, 64)],
    *[(f"{call} of one row, 3 targets", f"{call} 4", f"{call} 4")
      for call in ("partial_fit", "step", "predict")],
]  # fmt: skip


def make(case: str) -> tuple[int, Callable[[], object]]:
    """Rows of a case, and a function that feeds them."""
    import olsq

    kind, d = case.split()[0], int(case.split()[1])
    rng = np.random.default_rng(0)
    one = kind in ("partial_fit", "step", "predict")
    solving = kind in ("moments", "fixed")
    n = 2000 if one else max((40_000 if solving else 200_000) // d, 20 * d)
    if kind == "rolling":  # 32 windows at least, the filling of the first one included
        n = max(n, 32 * max(100, 4 * d))
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal((d, 3) if one else d)
    y = y + rng.standard_normal(y.shape)
    if kind in ("path", "bare"):
        options = FORGET if kind == "path" else {**FORGET, "statistics": False}
        return n, lambda: olsq.coefficient_path(X, y, **options)
    if kind == "rolling":
        window = max(100, 4 * d)
        return n, lambda: olsq.coefficient_path(X, y, window=window, statistics=False)
    est = olsq.RecursiveLeastSquares(
        **FORGET, fit_intercept=False, method="information" if solving else "covariance",
        ridge_mode="fixed" if kind == "fixed" else "discounted",
    )  # fmt: skip
    if not one:
        return n, lambda: est.fit(X, y)
    est.fit(X, y)
    rows = [(X[t : t + 1], y[t : t + 1]) for t in range(n)]
    call = getattr(est, kind)
    if kind == "step":
        return n, lambda: [call(x[0], target[0]) for x, target in rows]
    if kind == "predict":
        return n, lambda: [call(x) for x, _ in rows]
    return n, lambda: [call(x, target) for x, target in rows]


def work() -> None:
    """Answer each case on standard input with its nanoseconds of processor time a row."""
    made: dict[str, tuple[int, Callable[[], object]]] = {}
    for line in sys.stdin:
        case = line.strip()
        if case not in made:
            made[case] = make(case)
        rows, run = made[case]
        run()
        least = np.inf
        for _ in range(4):
            began = time.process_time()
            run()
            least = min(least, time.process_time() - began)
        print(least / rows * 1e9, flush=True)


def worker(folder: Path) -> subprocess.Popen[str]:
    """A process that imports olsq from a folder."""
    environment = os.environ | {"PYTHONPATH": str(folder)} | dict.fromkeys(
        ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
    )  # fmt: skip
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--worker"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        cwd=folder,
    )  # fmt: skip


def ask(process: subprocess.Popen[str], case: str) -> float:
    """Nanoseconds a row of one case."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(case, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def main() -> None:
    """Command line."""
    if "--worker" in sys.argv:
        return work()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    both = [worker(options.old.resolve()), worker(options.new.resolve())]
    records = []
    for name, *cases in CASES:
        pairs = [
            [ask(process, case) for process, case in zip(both, cases, strict=True)]
            for _ in range(options.repeats)
        ]
        old, new = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"{name:40s} {old:10.0f} ns {new:10.0f} ns   {ratio:6.2f} times", flush=True)
        records.append({"case": name, "old_ns": old, "new_ns": new, "times_faster": ratio})
    for process in both:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    if options.write:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        RESULT.write_text(json.dumps({"date": date, "records": records}, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
