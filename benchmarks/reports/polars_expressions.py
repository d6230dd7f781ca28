"""Regressions inside Polars queries against polars-ols, over all rows and over groups.

    python -m benchmarks.reports.polars_expressions [--rows 200000] [--rounds 5]

Writes ``benchmarks/results/polars_expressions.json`` and the table of docs/measurements/rows.md.
Both sides of a ratio run in turn in one process on one thread; each number is the least processor
time of the rounds.  Nothing is timed before olsq's coefficients agree with dense solves to 1e-9.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from ..support.machine import describe, sentence
from .registry import write_blocks

RESULT = Path(__file__).parents[1] / "results" / "polars_expressions.json"
SHOWN = 8  # regressors; the results have 2 too
GROUPS = 1, 1_000, 10_000
CASES = [
    (method, output)
    for method in ("ols", "expanding", "rls", "rolling")
    for output in ("coef", "prediction", *(["stderr"] if method == "ols" else []))
]
GATE = 1e-9


def least(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Least processor seconds of each call, taken in turn after a first run of each."""
    for call in calls:
        call()
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            best[i] = min(best[i], time.process_time() - start)
    return best


def runs(call: Callable[[], object]) -> bool:
    """Whether a query comes to its end: polars-ols' statistics panic in groups of few rows."""
    from polars.exceptions import ComputeError

    try:
        call()
    except ComputeError:
        return False
    return True


def measure(rows: int, rounds: int) -> list[dict]:
    """Nanoseconds per row, ratios and errors of every case."""
    from ..suites.common import regression
    from ..suites.polars_expressions import LIBRARIES, error, expression, frame_of, query

    found = []
    for d in (2, 8):
        X, y = regression(rows, d)
        errors = {}
        for method in ("ols", "expanding", "rls", "rolling"):
            some = frame_of(X[:20_000], y[:20_000], 1)
            for name in LIBRARIES:
                coef = query(some, expression(name, method, "coef", d), 1)()["found"]
                errors[method, name] = error(coef, X[:20_000], y[:20_000], method)
            if not errors[method, "olsq"] < GATE:
                raise SystemExit(f"{method}, d = {d}: olsq errs by {errors[method, 'olsq']:.1e}")
        for method, output in CASES:
            case: dict = {"method": method, "output": output, "d": d, "groups": {}}
            case["errors"] = [errors[method, name] for name in LIBRARIES]
            for groups in GROUPS:
                frame = frame_of(X, y, groups)
                calls = [query(frame, expression(name, method, output, d), groups)
                         for name in LIBRARIES]  # fmt: skip
                ours, *theirs = least(rounds, *(calls if runs(calls[1]) else calls[:1]))
                ratio = theirs[0] / ours if theirs else None
                case["groups"][str(groups)] = {"ns": 1e9 * ours / rows, "ratio": ratio}
            found.append(case)
            print(method, output, d, case["groups"], flush=True)
    return found


def table(cases: list[dict]) -> str:
    """Rows of the page, for d = 8: nanoseconds of olsq, and polars-ols' time over olsq's."""
    lines = [
        "| | all rows | 1,000 groups | 10,000 groups |",
        "| --- | ---: | ---: | ---: |",
    ]
    for case in cases:
        if case["d"] != SHOWN:
            continue
        cells = [
            f"{n['ns']:.3g} ns, " + ("panics" if n["ratio"] is None else f"{n['ratio']:.2g}x")
            for n in case["groups"].values()
        ]
        label = f"`{case['method']}`, {case['output']}"
        lines.append("| " + " | ".join([label, *cells]) + " |")
    return "\n".join(lines)


def text(found: dict) -> str:
    """The block of the page: the table, and what it was measured on."""
    return f"{table(found['cases'])}\n\n{sentence(found['machine'], 'polars', 'polars-ols')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ |= {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}  # before either is imported
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cases = measure(options.rows, options.rounds)

    stored = {"machine": describe(), "cases": cases}
    RESULT.write_text(json.dumps(stored, indent=1) + "\n")
    write_blocks("polars_expressions", stored)
    print(table(cases))


if __name__ == "__main__":
    main()
