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


def cusum_line(place: ArrayLike, n: float) -> NDArray[np.float64]:
    """Brown, Durbin and Evans' 5 % line at the ``place``-th (from 1) of n recursive residuals."""
    return CUSUM_5_PERCENT * (np.sqrt(n) + 2.0 * np.asarray(place) / np.sqrt(n))


def tested_rows(recursive: NDArray[np.float64], n_coefs: int) -> NDArray[np.int64]:
    """Rows whose recursive residual says something about constancy.

    Not those skipped as missing (NaN), those that determined a coefficient (0), and the first
    ``n_coefs``, which under a small ridge say more about the ridge than about the data.
    """
    row = np.flatnonzero(np.isfinite(recursive))[n_coefs:]
    return row[recursive[row] != 0]


def cusum(path: CoefficientPath) -> Cusum:
    """CUSUM test of constant coefficients (Brown, Durbin and Evans, 1975).

    Parameters
    ----------
    path : CoefficientPath
        Path of one target from the start of a stream, with ``forget=1``, no window, unit weights
        and a ridge that is 0 or negligible: the 5 % lines hold for that case.

    Returns
    -------
    Cusum
        Rows, values and 5 % line.  Rows skipped as missing, and the first rows (as many as there
        are coefficients, which they determine), have no recursive residual and are left out.

    Raises
    ------
    ValueError
        If the path has several targets or fewer than two rows have a recursive residual.

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
    >>> 100 < cusum(path).first_crossing < 150
    True
    """
    recursive = np.asarray(path.recursive_residual, float)
    if recursive.ndim != 1:
        raise ValueError("the CUSUM is of one target; the path has several")
    row = tested_rows(recursive, path.coef.shape[1] + bool(np.any(path.intercept)))
    if row.size < 2:
        raise ValueError("fewer than two rows have a recursive residual: nothing to cumulate")
    kept = recursive[row]
    line = cusum_line(np.arange(1, row.size + 1), row.size)
    return Cusum(row, np.cumsum(kept) / kept.std(ddof=1), line)
