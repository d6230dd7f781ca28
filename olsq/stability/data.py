"""Complete rows of a regression, and residual sums of squares of parts of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online import RecursiveLeastSquares, coefficient_path
from olsq.online.rows.frames import check_same_index
from olsq.online.rows.inputs import check_X, check_y


class Data(NamedTuple):
    """Complete rows of a regression, with their positions."""

    X: NDArray
    y: NDArray
    row: NDArray[np.int64]
    fit_intercept: bool

    def fit_rows(self, first: int, last: int) -> tuple[float, int]:
        """Return the residual sum of squares and the rank of some rows."""
        own = slice(first, last)
        est = self.estimator()
        est.partial_fit(self.X[own], self.y[own])
        return float(self.sums(self.X[own], self.y[own])[-1]), est.rank_

    def estimator(self) -> RecursiveLeastSquares:
        """Return a least-squares estimator without a ridge."""
        return RecursiveLeastSquares(ridge=0.0, fit_intercept=self.fit_intercept)

    def sums(self, X: NDArray, y: NDArray) -> NDArray[np.float64]:
        """Compute the residual sums of squares of the rows up to each row."""
        path = coefficient_path(X, y, fit_intercept=self.fit_intercept)
        return np.cumsum(path.recursive_residual.astype(np.float64) ** 2)


def check_data(X: Any, y: Any, fit_intercept: bool) -> Data:
    """Select the complete rows of one target, as float64."""
    judge = RecursiveLeastSquares()
    rows = check_X(X, judge, None, allow_empty=False).astype(np.float64, copy=False)
    target = check_y(y, judge, len(rows), None).astype(np.float64, copy=False)
    check_same_index(X=X, y=y)
    if target.ndim != 1:
        raise ValueError(f"y must be one target (n,), got shape {target.shape}")
    complete = np.isfinite(rows).all(axis=1) & np.isfinite(target)
    if not complete.any():
        raise ValueError("X and y have no complete row")
    return Data(rows[complete], target[complete], np.flatnonzero(complete), bool(fit_intercept))
