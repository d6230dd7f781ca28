"""The CUSUM test of constant coefficients, from a coefficient path and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from olsq.online import CoefficientPath

# Slope and height of the Brown-Durbin-Evans lines at the 5 % level (their 1975 paper, section 2.3).
CUSUM_5_PERCENT = 0.948


class Cusum(NamedTuple):
    """The CUSUM of recursive residuals and its 5 % lines.

    Attributes
    ----------
    row : ndarray of int, shape (k,)
        Zero-based rows of the data that have a recursive residual.
    value : ndarray, shape (k,)
        Cumulated standardised recursive residuals divided by their standard deviation.
    bound : ndarray, shape (k,)
        Brown, Durbin and Evans' 5 % line; the lower one is its negative.
    """

    row: NDArray[np.int64]
    value: NDArray[np.float64]
    bound: NDArray[np.float64]

    @property
    def first_crossing(self) -> int | None:
        """Row at which the path first leaves the lines, or None."""
        outside = np.flatnonzero(np.abs(self.value) > self.bound)
        return int(self.row[outside[0]]) if outside.size else None


def standardised(residual: ArrayLike, posterior: ArrayLike) -> NDArray[np.float64]:
    """Recursive residuals from the errors before and after each row was learned.

    The a-priori error of row t is ``e``; after learning the row it is ``e / (1 + h)`` with
    ``h = x P x``.  The recursive residual ``e / sqrt(1 + h)`` is therefore the geometric mean of
    the two, and no covariance is needed.  Their product cannot be negative except by rounding.
    """
    before, after = np.asarray(residual, float), np.asarray(posterior, float)
    return np.copysign(np.sqrt(np.maximum(before * after, 0.0)), before)


def cusum_bound(n: int) -> NDArray[np.float64]:
    """Brown, Durbin and Evans' 5 % line at each of ``n`` recursive residuals."""
    return CUSUM_5_PERCENT * (np.sqrt(n) + 2.0 * np.arange(1, n + 1) / np.sqrt(n))


def cusum(path: CoefficientPath, X: ArrayLike, y: ArrayLike) -> Cusum:
    """CUSUM test of constant coefficients (Brown, Durbin and Evans, 1975).

    Parameters
    ----------
    path : CoefficientPath
        Path of one target over the rows of ``X``, from the start of the stream, with ``forget=1``,
        unit weights and a ridge that is negligible: the 5 % lines hold for that case.
    X : array_like, shape (n, d)
        The regressors the path was computed from.
    y : array_like, shape (n,)
        The target.

    Returns
    -------
    Cusum
        Rows, values and 5 % line.  Rows skipped as missing, and the first rows (as many as there
        are coefficients, which they determine), have no recursive residual and are left out.

    Raises
    ------
    ValueError
        If the lengths differ or fewer than two rows have a recursive residual.

    Notes
    -----
    The standard deviation is that of the recursive residuals with one degree of freedom removed,
    as in statsmodels and Stata.

    References
    ----------
    R. L. Brown, J. Durbin and J. M. Evans, "Techniques for testing the constancy of regression
    relationships over time", J. R. Statist. Soc. B 37 (1975) 149-192.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq.plot import cusum
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> y = X @ [1.0, 2.0] + rng.standard_normal(200) + 3.0 * (np.arange(200) >= 100)
    >>> path = olsq.coefficient_path(X, y, fit_intercept=True)
    >>> 100 < cusum(path, X, y).first_crossing < 150
    True
    """
    X, y = np.asarray(X, float), np.asarray(y, float)
    if not len(X) == len(y) == len(path.residual):
        raise ValueError(
            f"path, X and y differ in length: {len(path.residual)}, {len(X)}, {len(y)}"
        )
    posterior = y - np.einsum("nd,nd->n", X, path.coef) - path.intercept
    residual = standardised(path.residual, posterior)
    # As many rows as there are coefficients are fitted exactly and test nothing.
    n_coefs = X.shape[1] + bool(np.any(path.intercept))
    row = np.flatnonzero(np.isfinite(residual))[n_coefs:]
    if row.size < 2:
        raise ValueError("fewer than two rows have a recursive residual: nothing to cumulate")
    kept = residual[row]
    return Cusum(row, np.cumsum(kept) / kept.std(ddof=1), cusum_bound(row.size))
