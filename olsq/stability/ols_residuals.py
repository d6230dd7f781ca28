"""CUSUM test of constant coefficients from the residuals of the regression on all rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_flag, check_integer
from olsq.online import RecursiveLeastSquares, coefficient_path
from olsq.online.rows.frames import check_same_index
from olsq.online.rows.inputs import check_X, check_y


class OLSCusum(NamedTuple):
    """CUSUM of the residuals at the final coefficients.

    Attributes
    ----------
    statistic : float
        The largest ``abs(value)``.
    p_value : float
        Asymptotic: of a Brownian bridge.
    row : ndarray of int, shape (k,)
    value : ndarray, shape (k,)
        Cumulated residuals over their standard deviation times the square root of k.
    """

    statistic: float
    p_value: float
    row: NDArray[np.int64]
    value: NDArray[np.float64]

    __repr__ = brief_repr


def ols_cusum(
    X: ArrayLike, y: ArrayLike, *, fit_intercept: bool = False, ddof: int | None = None
) -> OLSCusum:
    """Test for constant coefficients by the cumulated residuals of the regression on all rows.

    Parameters
    ----------
    X : array (n, d)
    y : array (n,)
    fit_intercept : bool, default False
    ddof : int, optional
        What is taken off the number of rows in the noise variance; default: the coefficients.

    Returns
    -------
    OLSCusum

    Raises
    ------
    ValueError
        If there are no more rows than ``ddof``, or it is no integer >= 0.

    References
    ----------
    Ploberger & Kramer, "The CUSUM test with OLS residuals", Econometrica 60 (1992) 271-285.

    Examples
    --------
    >>> from olsq.datasets import nile
    >>> from olsq.stability import ols_cusum
    >>> test = ols_cusum([[1.0]] * 100, nile()["volume"])
    >>> round(test.statistic, 3), test.p_value < 1e-6
    (2.952, True)
    """
    check_integer("ddof", ddof, 0, optional=True)
    data = check_data(X, y, fit_intercept)
    est, residual = data.fit()
    n, taken = len(residual), est.rank_ if ddof is None else int(ddof)
    if n <= taken:
        raise ValueError(
            f"X and y must have more complete rows than the {taken} degrees of freedom taken "
            f"(ddof), got {n}: give more rows"
        )
    from scipy.stats import kstwobign

    # B_t = sum_{i<=t} e_i / (sigma sqrt(n)), a Brownian bridge if the coefficients are constant
    scale = math.sqrt(n * float(residual @ residual) / (n - taken))
    value = np.cumsum(residual) / (scale if scale > 0 else 1.0)
    statistic = float(np.abs(value).max())
    return OLSCusum(statistic, float(kstwobign.sf(statistic)), data.row, value)


class Data(NamedTuple):
    """Complete rows of a regression, with their positions."""

    X: NDArray
    y: NDArray
    row: NDArray[np.int64]
    fit_intercept: bool

    def fit_rows(self, first: int, last: int) -> tuple[float, int]:
        """Return the residual sum of squares and the rank of some rows."""
        rows = slice(first, last)
        est = self.estimator()
        est.partial_fit(self.X[rows], self.y[rows])
        return float(self.sums(self.X[rows], self.y[rows])[-1]), est.rank_

    def fit(self) -> tuple[RecursiveLeastSquares, NDArray[np.float64]]:
        """Fit all rows; return the estimator and the residuals (n,)."""
        est = self.estimator().fit(self.X, self.y)
        return est, self.y - est.predict(self.X)

    def estimator(self) -> RecursiveLeastSquares:
        """Return a least-squares estimator without a ridge."""
        return RecursiveLeastSquares(fit_intercept=self.fit_intercept)

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
        raise ValueError(
            f"X and y must have a complete row, but each of the {len(rows)} has a value that is "
            "not finite"
        )
    return Data(
        rows[complete],
        target[complete],
        np.flatnonzero(complete),
        check_flag("fit_intercept", fit_intercept),
    )
