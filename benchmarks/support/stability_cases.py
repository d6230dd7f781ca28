"""The cases of the stability table and how one method is judged on one case."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..suites import streams
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
    quiet : (int, int)
        Rows that bring no news but along their common key: the exact solution stays where it was
        in all other directions. Empty where there are none.
    """

    name: str
    make: Callable[[int], streams.Stream]
    n: int
    forget: float
    ridge: float = RIDGE
    dtype: type = np.float64
    seen_from: int = 0
    quiet: tuple[int, int] = (0, 0)


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
            "40,000 zero rows, forget 0.98",
            lambda n: streams.silence(AROUND, SILENT_ROWS, n - SILENT_ROWS - AROUND, D),
            SILENT_ROWS + 2 * AROUND,
            0.98,
            seen_from=SILENT_ROWS + 2 * AROUND,
            quiet=(AROUND, AROUND + SILENT_ROWS),
        ),
        Case(
            "one key 1e6 times, forget 0.99",
            lambda n: streams.one_key(AROUND, KEY_ROWS, n - KEY_ROWS - AROUND, D),
            KEY_ROWS + 2 * AROUND,
            0.99,
            seen_from=KEY_ROWS + 2 * AROUND,
            quiet=(AROUND, AROUND + KEY_ROWS),
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


def judge(case: Case, make: type) -> dict:
    """Run the method that ``make`` builds on ``case``.

    Returns
    -------
    dict
        ``status`` ("ok", "nonfinite" or the name of the exception raised) and ``at``, the row count
        where it was seen; ``lost_at``, the first row count at which the fit error exceeded the
        noise; ``error`` and ``worst``, the last and the largest fit error over noise; ``moved``,
        how far the coefficients went during quiet rows (None: no such rows); ``n``, the rows run;
        ``seconds``.
    """
    stream, points, solutions = _prepared(case)
    record = {"status": "ok", "at": None, "lost_at": None, "error": None, "worst": 0.0}
    record.update(moved=None, n=0)
    drift = Drift(stream, *case.quiet)
    started = time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            for n, coef in _trajectory(case, stream, points, make):
                record["n"] = n
                if not np.all(np.isfinite(coef)):
                    record.update(status="nonfinite", at=n)
                    break
                drift.see(n, coef)
                if n in solutions:
                    error = solutions[n].fit_error(coef) / stream.noise
                    record["error"] = error
                    record["worst"] = max(record["worst"], error)
                    if error > 1 and record["lost_at"] is None:
                        record["lost_at"] = n
        except (ArithmeticError, ValueError, np.linalg.LinAlgError) as failure:
            record.update(status=type(failure).__name__, at=record["n"])
    record["moved"] = drift.largest
    record["seconds"] = round(time.perf_counter() - started, 2)
    return record


class Drift:
    """Largest movement of the coefficients, across the key of the quiet rows, since these began.

    ``largest`` is in units of the length of the true coefficients; None without quiet rows.
    """

    def __init__(self, stream: streams.Stream, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.unit = np.linalg.norm(stream.coef)
        key = stream.X[start]
        length = np.linalg.norm(key)
        self.key = key / length if length > 0 else key
        self.origin: np.ndarray | None = None
        self.largest: float | None = None

    def see(self, n: int, coef: np.ndarray) -> None:
        """Take note of the coefficients after ``n`` rows."""
        if not self.start <= n <= self.stop or self.start == self.stop:
            return
        if self.origin is None:
            self.origin = coef
        moved = coef - self.origin
        moved = np.linalg.norm(moved - self.key * (self.key @ moved)) / self.unit
        self.largest = max(self.largest or 0.0, float(moved))


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
