"""Does a rolling regression drift? Update and downdate for ten million rows, three streams.

Called by ``stability.py``; judged like everything there, against an extended-precision solve of
the window's rows alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
from numba import njit

from ..suites import streams
from ..support import peers
from ..support.reference import checkpoints, solve_at

WINDOW, D = 250, 8
ROWS = 10_000_000
BURST = slice(100_000, 100_050)


def _burst(n: int) -> streams.Stream:
    """White noise with fifty rows a hundred million times as large, long before the end."""
    stream = streams.conditioned(n, D)
    stream.X[BURST] *= 1e8
    stream.y[BURST] = stream.X[BURST] @ stream.coef
    return stream


# name: (stream of n rows, rows)
STREAMS: dict[str, tuple[Callable[[int], streams.Stream], int]] = {
    "white noise": (lambda n: streams.conditioned(n, D), ROWS),
    "condition 1e4": (lambda n: streams.conditioned(n, D, 1e4), 100_000),
    "white noise after a burst of 1e8": (_burst, ROWS),
}


@njit(cache=True)
def _running_moments(X, y, gram, cross, start, stop, window):  # pragma: no cover - compiled
    """Add the new row's products, subtract the old one's: what running sums do."""
    d = X.shape[1]
    for t in range(start, stop):
        for i in range(d):
            cross[i] += X[t, i] * y[t]
            for j in range(d):
                gram[i, j] += X[t, i] * X[t, j]
        if t >= window:
            old = t - window
            for i in range(d):
                cross[i] -= X[old, i] * y[old]
                for j in range(d):
                    gram[i, j] -= X[old, i] * X[old, j]


def running_moments(stream: streams.Stream, points: list[int]):
    """Coefficients from running sums of products, at each of ``points``."""
    gram, cross, previous = np.zeros((D, D)), np.zeros(D), 0
    for n in points:
        _running_moments(stream.X, stream.y, gram, cross, previous, n, WINDOW)
        previous = n
        yield n, np.linalg.solve(gram, cross)


def polars_rolling(stream: streams.Stream, points: list[int]):
    """Coefficients of polars-ols' rolling regression, at each of ``points``."""
    import polars as pl
    import polars_ols  # noqa: F401  (registers the namespace)

    frame = peers.PolarsOLS(D, 1.0, 1.0).frame(stream.X, stream.y)
    names = [f"x{i}" for i in range(D)]
    rolling = pl.col("y").least_squares.rolling_ols(*names, window_size=WINDOW, mode="coefficients")
    path = frame.select(rolling).unnest("coefficients").to_numpy()
    yield from ((n, path[n - 1]) for n in points)


def olsq_rolling(stream: streams.Stream, points: list[int]):
    """Coefficients of ``olsq.RollingLeastSquares``, at each of ``points``."""
    import olsq

    est, previous = olsq.RollingLeastSquares(window=WINDOW, ridge=0.0, fit_intercept=False), 0
    for n in points:
        est.partial_fit(stream.X[previous:n], stream.y[previous:n])
        previous = n
        yield n, est.coef_


# name: (function, rows; polars-ols keeps the whole path, so it is asked for fewer)
METHODS = {
    "running sums": ("textbook", running_moments, ROWS),
    "polars-ols rolling": ("polars-ols", polars_rolling, 1_000_000),
    "olsq rolling": ("olsq", olsq_rolling, ROWS),
}


def judge(name: str, method: str) -> dict:
    """Run one method on one stream; keys as in :func:`stability_cases.judge`."""
    _, run, most = METHODS[method]
    make, rows = STREAMS[name]
    rows = min(rows, most)
    stream = make(rows)
    points = [n for n in checkpoints(rows, dense=1000, until=10_000) if n >= 2 * WINDOW]
    record = {"status": "ok", "at": None, "lost_at": None, "error": None, "worst": 0.0}
    record.update(moved=None, n=rows)
    started = time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            for n, coef in run(stream, points):
                if not np.all(np.isfinite(coef)):
                    record.update(status="nonfinite", at=n)
                    break
                window = slice(n - WINDOW, n)
                (exact,) = solve_at(stream.X[window], stream.y[window], [WINDOW], 1.0, 0.0)
                record["error"] = exact.fit_error(coef) / stream.noise
                record["worst"] = max(record["worst"], record["error"])
                if record["error"] > 1 and record["lost_at"] is None:
                    record["lost_at"] = n
        except np.linalg.LinAlgError as failure:
            record.update(status=type(failure).__name__, at=n)
    record["seconds"] = round(time.perf_counter() - started, 2)
    return record
