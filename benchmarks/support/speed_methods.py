"""The methods of the speed table: each as a function that is timed and returns coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit

from . import peers

FORGET = 0.999
RIDGE = 1e-3

Run = Callable[[np.ndarray, np.ndarray], np.ndarray | None]


@dataclass(frozen=True)
class Method:
    """One row of the speed table.

    Attributes
    ----------
    name, group : str
        Label, and which part of the table it belongs to ("whole array", "one row at a time",
        "coefficient path", "rolling window", "bound").
    make : callable
        ``make(d)`` gives ``run(X, y)``, which does the timed work and returns the last
        coefficients, (d,) or (m, d); None where there is nothing to compare.
    problem : str
        "forget" (FORGET and RIDGE), "expanding" (neither) or "rolling" (no ridge): what the
        coefficients are compared with.
    largest : int
        Largest number of coefficients it is asked to run.
    requires : str
        Library, as :func:`peers.available` knows it.
    targets : bool
        Whether it takes several targets at once.
    """

    name: str
    group: str
    make: Callable[[int], Run]
    problem: str = "forget"
    largest: int = 256
    requires: str = "olsq"
    targets: bool = False


def window_for(d: int) -> int:
    """Rows of the rolling window: enough to determine d coefficients well."""
    return max(100, 4 * d)


def _olsq_whole(d: int) -> Run:
    import olsq

    def run(X, y):
        est = olsq.RecursiveLeastSquares(forget=FORGET, ridge=RIDGE, fit_intercept=False)
        return est.partial_fit(X, y).coef_

    return run


def _olsq_rows(d: int) -> Run:
    import olsq

    def run(X, y):
        est = olsq.RecursiveLeastSquares(forget=FORGET, ridge=RIDGE, fit_intercept=False)
        for i in range(len(X)):
            est.partial_fit(X[i : i + 1], y[i : i + 1])
        return est.coef_

    return run


def _olsq_path(d: int) -> Run:
    import olsq

    return lambda X, y: olsq.coefficient_path(X, y, forget=FORGET, ridge=RIDGE).coef[-1]


def _olsq_rolling(d: int) -> Run:
    import olsq

    def run(X, y):
        est = olsq.RollingLeastSquares(window=window_for(d), ridge=0.0, fit_intercept=False)
        return est.partial_fit(X, y).coef_

    return run


def _olsq_rolling_path(d: int) -> Run:
    import olsq

    return lambda X, y: olsq.coefficient_path(X, y, window=window_for(d)).coef[-1]


def _sequential(adapter: type, forget: float = FORGET):
    def make(d: int) -> Run:
        def run(X, y):
            model = adapter(d, forget, RIDGE)
            model.run(X, y)
            return np.array(model.coef())

        return run

    return make


def _last_struct(frame) -> np.ndarray:
    return np.array(list(frame["coefficients"][-1].values()))


def _with_frame(path_of_frame: Callable[[int], Callable]):
    """Time the polars method on a frame that exists already."""

    def make(d: int) -> Run:
        adapter = peers.PolarsOLS(d, FORGET, RIDGE)
        compute, frames = path_of_frame(d), {}

        def run(X, y):
            key = len(X)
            if key not in frames:
                frames[key] = adapter.frame(X, y)
            return _last_struct(compute(frames[key]))

        return run

    return make


def _polars_rolling(d: int):
    def compute(frame):
        import polars as pl
        import polars_ols  # noqa: F401  (registers the namespace)

        return frame.select(
            pl.col("y").least_squares.rolling_ols(
                *[f"x{i}" for i in range(d)], window_size=window_for(d), mode="coefficients"
            )
        )

    return compute


def _recursive_ls(d: int) -> Run:
    adapter = peers.Statsmodels(d, 1.0, 0.0)
    return lambda X, y: adapter.path(X, y)[-1]


def _rolling_ols(params_only: bool):
    def make(d: int) -> Run:
        from statsmodels.regression.rolling import RollingOLS

        def run(X, y):
            fitted = RollingOLS(y, X, window=window_for(d)).fit(params_only=params_only)
            return fitted.params[-1]

        return run

    return make


@njit(cache=True)
def _touch(P, times, factor):  # pragma: no cover - compiled
    """Read and write every entry ``times`` times: what any update of P must at least do."""
    for _ in range(times):
        for i in range(P.size):
            P[i] = P[i] * factor


def _traffic(entries: Callable[[int], int]):
    def make(d: int) -> Run:
        P = np.ones(entries(d))

        def run(X, y):
            _touch(P, len(X), 1.0)

        return run

    return make


METHODS = [
    Method("traffic: read and write P", "bound", _traffic(lambda d: d * d)),
    Method("traffic: one triangle", "bound", _traffic(lambda d: d * (d + 1) // 2)),
    Method("olsq fit", "whole array", _olsq_whole, targets=True),
    Method("Numba loop, textbook", "whole array", _sequential(peers.Textbook), requires="textbook"),
    Method("NumPy loop", "whole array", _sequential(peers.NumpyLoop), requires="textbook"),
    Method("padasip", "whole array", _sequential(peers.Padasip), requires="padasip"),
    Method("river, smoothing", "whole array", _sequential(peers.River), requires="river"),
    Method(
        "river, no forgetting",
        "whole array",
        _sequential(peers.River, 1.0),
        problem="expanding",
        requires="river",
    ),
    Method("filterpy", "whole array", _sequential(peers.Filterpy), requires="filterpy"),
    Method("olsq partial_fit", "one row at a time", _olsq_rows, targets=True),
    Method("olsq coefficient_path", "coefficient path", _olsq_path, targets=True),
    Method(
        "polars-ols rls",
        "coefficient path",
        _with_frame(lambda d: peers.PolarsOLS(d, FORGET, RIDGE).path_of_frame),
        requires="polars-ols",
    ),
    Method(
        "statsmodels RecursiveLS",
        "coefficient path",
        _recursive_ls,
        problem="diffuse",
        largest=64,
        requires="statsmodels",
    ),
    Method("olsq rolling", "rolling window", _olsq_rolling, problem="rolling", targets=True),
    Method(
        "olsq rolling path", "rolling window", _olsq_rolling_path, problem="rolling", targets=True
    ),
    Method(
        "polars-ols rolling",
        "rolling window",
        _with_frame(_polars_rolling),
        problem="rolling",
        requires="polars-ols",
    ),
    Method(
        "RollingOLS, parameters",
        "rolling window",
        _rolling_ols(True),
        problem="rolling",
        largest=64,
        requires="statsmodels",
    ),
    Method(
        "RollingOLS, full",
        "rolling window",
        _rolling_ols(False),
        problem="rolling",
        largest=64,
        requires="statsmodels",
    ),
]
