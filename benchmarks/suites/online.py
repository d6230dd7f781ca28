"""asv benchmarks of the online solvers: time, peak memory against an empty baseline, and error.

``asv run`` keeps the history; ``benchmarks.reports.online_table`` compares with other libraries.
"""

from __future__ import annotations

import numpy as np

import olsq

from ..reports.online_table import data, dense
from ..support import streams
from ..support.speed_methods import FORGET, RIDGE, window_for

SIZES = [4, 16, 64, 256]
METHODS = ["covariance", "sqrt", "information"]
TARGETS = [1, 10]


def _rows(d: int, m: int = 1) -> tuple[np.ndarray, np.ndarray]:
    X, y = data(d, m)
    n = max(4 * d, 200_000 // d)
    return X[:n], y[:n]


class WholeArray:
    """``partial_fit`` of many rows at once."""

    params = (SIZES, TARGETS, METHODS)
    param_names = ("d", "m", "method")

    def setup(self, d: int, m: int, method: str) -> None:
        self.X, self.y = _rows(d, m)
        self.time_fit(d, m, method)

    def time_fit(self, d: int, m: int, method: str) -> None:
        self.est = olsq.RecursiveLeastSquares(
            forget=FORGET, ridge=RIDGE, fit_intercept=False, method=method
        ).partial_fit(self.X, self.y)
        self.coef = self.est.coef_

    def track_error(self, d: int, m: int, method: str) -> float:
        exact = dense("forget", self.X, self.y)
        return float(np.max(np.abs(self.coef - exact)) / np.max(np.abs(exact)))

    track_error.unit = "largest relative error of the coefficients"


class OneRow:
    """``partial_fit`` and ``predict`` of a single row: what Python costs."""

    params = (SIZES, METHODS)
    param_names = ("d", "method")

    def setup(self, d: int, method: str) -> None:
        X, y = _rows(d)
        self.est = olsq.RecursiveLeastSquares(forget=FORGET, ridge=RIDGE, method=method)
        self.est.partial_fit(X, y)
        self.x, self.y = X[:1], y[:1]

    def time_partial_fit(self, d: int, method: str) -> None:
        self.est.partial_fit(self.x, self.y)

    def time_predict(self, d: int, method: str) -> None:
        self.est.predict(self.x)


class Path:
    """Coefficients after every row, exponential and rolling."""

    params = (SIZES, TARGETS, ["forget", "rolling"])
    param_names = ("d", "m", "kind")

    def setup(self, d: int, m: int, kind: str) -> None:
        self.X, self.y = _rows(d, m)
        self.options = {"window": window_for(d)} if kind == "rolling" else {"forget": FORGET}
        self.options["ridge"] = 0.0 if kind == "rolling" else RIDGE
        self.time_path(d, m, kind)

    def time_path(self, d: int, m: int, kind: str) -> None:
        self.path = olsq.coefficient_path(self.X, self.y, **self.options)

    def peakmem_path(self, d: int, m: int, kind: str) -> None:
        olsq.coefficient_path(self.X, self.y, **self.options)

    def peakmem_baseline(self, d: int, m: int, kind: str) -> None:
        """Everything but the second path: subtract it."""

    def track_error(self, d: int, m: int, kind: str) -> float:
        exact = dense(kind, self.X, self.y)
        return float(np.max(np.abs(self.path.coef[-1] - exact)) / np.max(np.abs(exact)))


class Rolling:
    """``RollingLeastSquares`` fed a whole array."""

    params = (SIZES,)
    param_names = ("d",)

    def setup(self, d: int) -> None:
        self.X, self.y = _rows(d)
        self.time_fit(d)

    def time_fit(self, d: int) -> None:
        olsq.RollingLeastSquares(window=window_for(d), fit_intercept=False).partial_fit(
            self.X, self.y
        )


class LongStreams:
    """Error after a long ill-conditioned stream, in units of the noise."""

    params = ([1e2, 1e4, 1e6], METHODS)
    param_names = ("condition", "method")

    def track_fit_error(self, condition: float, method: str) -> float:
        from ..support.reference import solve_at

        stream = streams.conditioned(100_000, 8, condition)
        est = olsq.RecursiveLeastSquares(
            forget=0.99, ridge=RIDGE, fit_intercept=False, method=method
        ).partial_fit(stream.X, stream.y)
        (exact,) = solve_at(stream.X, stream.y, [100_000], 0.99, RIDGE)
        return exact.fit_error(est.coef_) / stream.noise
