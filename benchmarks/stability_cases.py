"""The cases of the stability table and how one method is judged on one case."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from . import streams
from .peers import PEERS
from .reference import Solution, checkpoints, solve_at

RIDGE = 1e-3
D = 8


@dataclass(frozen=True)
class Case:
    """One stream, one problem, one length.

    Attributes
    ----------
    name : str
        Key of the case in the results.
    make : callable
        ``make(n)`` gives the stream.
    n : int
        Rows.
    forget, ridge : float
        The problem.
    dtype : type
        Data type of the stream.
    seen_from : int
        First row count at which the fit error is judged; finiteness is judged from the start.
    """

    name: str
    make: Callable[[int], streams.Stream]
    n: int
    forget: float
    ridge: float = RIDGE
    dtype: type = np.float64
    seen_from: int = 0


CONDITIONS = (1e2, 1e4, 1e6, 1e8)
FORGETS = (0.95, 0.99, 0.999, 1.0)
KEY_ROWS = 1_000_000
SILENT_ROWS = 40_000
AROUND = 2_000


def _conditioned(cond: float, dtype: type) -> Callable[[int], streams.Stream]:
    return lambda n: streams.conditioned(n, D, cond, dtype)


def table_name(dtype: type, cond: float, forget: float) -> str:
    """Key of a case of the main table."""
    return f"{np.dtype(dtype).name} cond {cond:.0e} forget {forget}"


def main_cases() -> list[Case]:
    """Condition numbers by forgetting factors, 1e6 rows of float64 and 1e5 of float32."""
    return [
        Case(table_name(dtype, cond, forget), _conditioned(cond, dtype), n, forget, dtype=dtype)
        for dtype, n in ((np.float64, 1_000_000), (np.float32, 100_000))
        for forget in FORGETS
        for cond in CONDITIONS
    ]


def special_cases() -> list[Case]:
    """Streams that break solvers in other ways than conditioning."""
    return [
        Case(
            "white noise, float32, forget 0.999",
            _conditioned(1.0, np.float32),
            10_000_000,
            0.999,
            dtype=np.float32,
        ),
        Case(
            "silence",
            lambda n: streams.silence(AROUND, SILENT_ROWS, n - SILENT_ROWS - AROUND, D),
            SILENT_ROWS + 2 * AROUND,
            0.98,
            seen_from=SILENT_ROWS + 2 * AROUND,
        ),
        Case(
            "one key",
            lambda n: streams.one_key(KEY_ROWS, n - KEY_ROWS, D),
            KEY_ROWS + AROUND,
            0.99,
            seen_from=KEY_ROWS + AROUND,
        ),
        Case(
            "one NaN row", lambda n: streams.one_nan(n, D), 2 * AROUND, 0.99, seen_from=2 * AROUND
        ),
        Case(
            "scale 1e-150",
            lambda n: streams.scaled(n, 1e-150, D),
            20_000,
            0.99,
            ridge=RIDGE * 1e-300,
        ),
        Case(
            "scale 1e150", lambda n: streams.scaled(n, 1e150, D), 20_000, 0.99, ridge=RIDGE * 1e300
        ),
    ]


def shortened(case: Case, method: str) -> Case | None:
    """The case as far as ``method`` can be asked to run it; None where it cannot.

    statsmodels keeps every intermediate matrix of the whole sample, hence its shorter stream.
    The other libraries compute in float64 only.
    """
    if method in PEERS and "textbook" not in method and case.dtype is np.float32:
        return None
    if method == "statsmodels":
        if case.forget != 1.0:
            return None
        return replace(case, n=min(case.n, 100_000), ridge=0.0, seen_from=50)
    return case


@lru_cache(maxsize=2)
def _prepared(case: Case) -> tuple[streams.Stream, list[int], dict[int, Solution]]:
    """Stream, row counts to look at, and the exact solutions at those that are judged.

    The reference leaves out rows with a NaN: what a filter that skips them is meant to do.
    """
    stream = case.make(case.n)
    points = checkpoints(case.n)
    judged = [n for n in points if n >= case.seen_from]
    keep = np.isfinite(stream.X).all(axis=1)
    counts = np.cumsum(keep)
    solutions = solve_at(
        stream.X[keep],
        stream.y[keep],
        [int(counts[n - 1]) for n in judged],
        case.forget,
        case.ridge,
    )
    return stream, points, dict(zip(judged, solutions, strict=True))


def judge(case: Case, method: str, make: type) -> dict:
    """Run ``method`` on ``case``.

    Returns
    -------
    dict
        ``status`` ("ok", "lost", "nonfinite" or the name of the exception raised), ``at`` (row
        count where that was first seen), ``error`` (final fit error over noise), ``worst`` (largest
        such error at any judged row count), ``n`` (rows run), ``seconds``.
    """
    stream, points, solutions = _prepared(case)
    record = {"status": "ok", "at": None, "error": None, "worst": 0.0, "n": 0}
    started = time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            trajectory = _trajectory(case, stream, points, make)
            for n, coef in trajectory:
                record["n"] = n
                if not np.all(np.isfinite(coef)):
                    record.update(status="nonfinite", at=n)
                    break
                if n in solutions:
                    error = solutions[n].fit_error(coef) / stream.noise
                    record["error"] = error
                    record["worst"] = max(record["worst"], error)
                    if error > 1 and record["status"] == "ok":
                        record.update(status="lost", at=n)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError) as failure:
            record.update(status=type(failure).__name__, at=record["n"])
    record["seconds"] = round(time.perf_counter() - started, 2)
    return record


def _trajectory(case, stream, points, make):
    """Row counts and coefficients, one pair per checkpoint."""
    model = make(D, case.forget, case.ridge, case.dtype)
    if hasattr(model, "path"):
        path = model.path(stream.X, stream.y)
        yield from ((n, path[n - 1]) for n in points)
        return
    previous = 0
    for n in points:
        model.run(stream.X[previous:n], stream.y[previous:n])
        previous = n
        yield n, np.array(model.coef())
