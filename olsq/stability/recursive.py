"""Tests of constant coefficients from recursive residuals: CUSUM, its squares, Harvey-Collier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import shown
from olsq.arrays.reals import real_array
from olsq.online.many.labels import refuse_groups

if TYPE_CHECKING:
    from olsq.online import CoefficientPath

# Slope and height of the Brown-Durbin-Evans lines (their 1975 paper, section 2.3), by level.
CUSUM_LINES = {0.01: 1.143, 0.05: 0.948, 0.10: 0.850}
# Edgerton & Wells (1994), table 1: a / sqrt(n) + b / n + c / n^1.5 approximates Durbin's (1969)
# critical values of the CUSUM of squares, by two-sided level.
SQUARES_LINES = {
    0.20: (1.0729830, -0.6698868, -0.5816458),
    0.10: (1.2238734, -0.6700069, -0.7351697),
    0.05: (1.3581015, -0.6701218, -0.8858694),
    0.02: (1.5174271, -0.6702672, -1.0847745),
    0.01: (1.6276236, -0.6703724, -1.2365861),
}


class Cusum(NamedTuple):
    """CUSUM of recursive residuals with its critical lines.

    Attributes
    ----------
    row : ndarray of int, shape (k,)
        Zero-based rows of the data that have a recursive residual.
    value : ndarray, shape (k,)
        Cumulated standardised recursive residuals divided by their standard deviation.
    bound : ndarray, shape (k,)
        Brown, Durbin and Evans' line; the lower one is its negative.
    level : float
        Probability that constant coefficients ever cross the lines.
    """

    row: NDArray[np.int64]
    value: NDArray[np.float64]
    bound: NDArray[np.float64]
    level: float = 0.05

    __repr__ = brief_repr

    @property
    def first_crossing(self) -> int | None:
        """Row at which the path first leaves the lines, or None."""
        return _first_row(self.row, np.abs(self.value) > self.bound)


class CusumSquares(NamedTuple):
    """CUSUM of squared recursive residuals with its critical lines.

    Attributes
    ----------
    row : ndarray of int, shape (k,)
        Zero-based rows of the data that have a recursive residual.
    value : ndarray, shape (k,)
        Sum of squared recursive residuals so far, as a share of all of them: from 0 to 1.
    lower, upper : ndarray, shape (k,)
        Lines at a constant distance from the expected share.
    level : float
        Probability that constant coefficients and variance ever cross the lines.
    """

    row: NDArray[np.int64]
    value: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    level: float = 0.05

    __repr__ = brief_repr

    @property
    def first_crossing(self) -> int | None:
        """Row at which the path first leaves the lines, or None."""
        return _first_row(self.row, (self.value < self.lower) | (self.value > self.upper))


def _first_row(row: NDArray[np.int64], outside: NDArray[np.bool_]) -> int | None:
    places = np.flatnonzero(outside)
    return int(row[places[0]]) if places.size else None


def cusum_line(place: ArrayLike, n: float, level: float = 0.05) -> NDArray[np.float64]:
    """Return Brown, Durbin and Evans' line at the ``place``-th of n recursive residuals, from 1."""
    return CUSUM_LINES[level] * (np.sqrt(n) + 2.0 * np.asarray(place) / np.sqrt(n))


def tested_rows(
    recursive: NDArray[np.float64], path: CoefficientPath, n_coefs: int
) -> NDArray[np.int64]:
    """Return the rows whose recursive residuals are informative about constancy.

    Excluded are rows skipped as missing (NaN) and the k rows that raised the rank, wherever they
    are: late dummies, ties and constant starts raise it late.  Their residual is exactly 0, but so
    is that of a row that was predicted exactly.  The path's noise variance tells them apart: it is
    the sum of squares over the number of rows less the rank.

    Under a ridge no row raises the rank, and the first ``n_coefs`` are excluded, which reflect the
    ridge more than the data.
    """
    row = np.flatnonzero(np.isfinite(recursive))
    value, sigma2 = recursive[row], path.sigma2[row].astype(float)
    errors = np.column_stack([path.stderr, path.intercept_stderr])[row]
    undetermined = np.isinf(errors).sum(axis=1)
    if row.size and sigma2[0] > 0 and (sigma2 == sigma2[0]).all() and math.isfinite(sigma2[0]):
        # A variance that was given tells no rank: rows of 0 before all is determined raised it.
        before = np.concatenate([[True], undetermined[:-1] > 0])
        return row[(value != 0) | ~before] if undetermined[0] else row[n_coefs:]
    # Only a ridge determines all coefficients with k rows and a degree of freedom left, and only
    # under one has a row an error of its own while there is none (an intercept has no ridge).
    freed = np.flatnonzero(np.isfinite(sigma2))[:1]
    early = freed.size and freed[0] < n_coefs and not undetermined[freed[0]]
    if early or value[np.isinf(sigma2)].any():
        return row[n_coefs:]
    with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 while every row fits exactly
        rank = np.arange(1, row.size + 1) - np.rint(np.cumsum(value**2) / sigma2)
    raised = (value == 0) & (np.diff(rank, prepend=0.0) > 0)
    # Before the first error every row without a degree of freedom raised the rank.  Of the others
    # it is known how many did, and some of them: those that determined a coefficient.
    sizes = np.abs(value)
    errors_at = np.flatnonzero(sizes > 1e-13 * sizes.max(initial=0.0))  # others are rounding
    exact = errors_at[0] if errors_at.size else row.size
    raised[:exact] = np.isinf(sigma2[:exact])
    candidates = np.flatnonzero(np.isfinite(sigma2[:exact]))[1:]
    candidates = candidates[value[candidates] == 0]
    determines = undetermined[candidates] < undetermined[candidates - 1]
    missing = determines.sum() if exact == row.size else int(rank[exact]) - raised[:exact].sum()
    raised[candidates[np.argsort(~determines, kind="stable")][:missing]] = True
    return row[~raised]


def cusum(path: CoefficientPath, *, level: float = 0.05) -> Cusum:
    """Test for constant coefficients by the CUSUM (Brown, Durbin and Evans, 1975).

    Parameters
    ----------
    path : CoefficientPath
        Path of one target from the start of a stream, with ``forget=1``, no window, unit weights
        and a ridge that is 0 or negligible: the lines hold for that case.
    level : {0.01, 0.05, 0.10}
        Probability that constant coefficients ever cross the lines.

    Returns
    -------
    Cusum
        Rows, values and line.  Rows skipped as missing, and the k rows that determined the
        coefficients, have no recursive residual and are left out: the first k, or later ones where
        a regressor is constant or tied at first.

    Raises
    ------
    ValueError
        If the path has several targets or groups, fewer than two rows have a recursive residual,
        or there are no lines for the level.

    Notes
    -----
    The standard deviation is that of the recursive residuals with one degree of freedom removed,
    as in statsmodels and Stata; R's strucchange divides by the square root of their number, too.
    At 10 % the lines are Brown, Durbin and Evans' 0.850, where statsmodels has 0.950.

    References
    ----------
    R. L. Brown, J. Durbin and J. M. Evans, "Techniques for testing the constancy of regression
    relationships over time", J. R. Statist. Soc. B 37 (1975) 149-192.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq.stability import cusum
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> y = X @ [1.0, 2.0] + rng.standard_normal(200) + 3.0 * (np.arange(200) >= 100)
    >>> path = olsq.coefficient_path(X, y, fit_intercept=True)
    >>> 100 < cusum(path).first_crossing < 150
    True
    """
    row, kept = _tested(path, "CUSUM")
    line = cusum_line(np.arange(1, row.size + 1), row.size, _level(level, CUSUM_LINES))
    return Cusum(row, np.cumsum(kept) / kept.std(ddof=1), line, level)


def cusum_squares(path: CoefficientPath, *, level: float = 0.05) -> CusumSquares:
    """Test for constant coefficients and a constant variance by the CUSUM of squares.

    Parameters
    ----------
    path : CoefficientPath
        As for :func:`cusum`.
    level : {0.01, 0.02, 0.05, 0.10, 0.20}
        Probability that constant coefficients and variance ever cross the lines.

    Returns
    -------
    CusumSquares

    Raises
    ------
    ValueError
        As :func:`cusum`; if fewer than five rows have a recursive residual.

    Notes
    -----
    Critical values are Edgerton & Wells' approximation of Durbin's (1969), as in statsmodels.

    References
    ----------
    Brown, Durbin & Evans (1975), section 2.4.  Durbin, "Tests for serial correlation in regression
    analysis based on the periodogram of least-squares residuals", Biometrika 56 (1969) 1-15.
    Edgerton & Wells, "Critical values for the cusumsq statistic in medium and large sized
    samples", Oxford Bull. Econ. Stat. 56 (1994) 355-365.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq.stability import cusum_squares
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.standard_normal(300) * np.where(np.arange(300) < 150, 1.0, 3.0)
    >>> result = cusum_squares(olsq.coefficient_path(np.ones((300, 1)), noise))
    >>> bool((result.value < result.lower).any())
    True
    """
    row, kept = _tested(path, "CUSUM of squares")
    n, total = row.size, float(kept @ kept)
    if n < 5:
        raise ValueError(
            f"path must have five rows with a recursive residual for the lines, got {n}: give more "
            "rows"
        )
    a, b, c = SQUARES_LINES[_level(level, SQUARES_LINES)]
    half = 0.5 * n - 1
    # the table's n is half the number of residuals, less one
    width = a / np.sqrt(half) + b / half + c / half**1.5
    share = np.arange(1, n + 1) / n
    return CusumSquares(row, np.cumsum(kept**2) / total, share - width, share + width, level)


class HarveyCollier(NamedTuple):
    """Harvey and Collier's test of linearity.

    Attributes
    ----------
    statistic : float
        Mean of the recursive residuals over its standard error.
    p_value : float
        Two-sided, of Student's t with ``freedom`` degrees of freedom.
    freedom : int
        Number of recursive residuals less one.
    """

    statistic: float
    p_value: float
    freedom: int


def harvey_collier(path: CoefficientPath) -> HarveyCollier:
    """Test whether the recursive residuals have mean 0 (Harvey and Collier, 1977).

    Where the regression is not linear in a regressor by which the rows are sorted, or where a
    coefficient changes once, the one-step-ahead errors have one sign for long.

    Parameters
    ----------
    path : CoefficientPath
        As for :func:`cusum`; for linearity in a regressor, of rows in its order.

    Returns
    -------
    HarveyCollier

    Raises
    ------
    ValueError
        If the path has several targets or groups, or fewer than two rows have a recursive residual.

    Notes
    -----
    statsmodels' ``linear_harvey_collier`` leaves out the first three residuals, whatever the number
    of coefficients is: it agrees where that is three.

    References
    ----------
    A. C. Harvey and P. Collier, "Testing for functional misspecification in regression analysis",
    Journal of Econometrics 6 (1977) 103-119.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq.stability import harvey_collier
    >>> x = np.linspace(0.0, 1.0, 100)
    >>> y = x + x**2 + 0.1 * np.random.default_rng(0).standard_normal(100)
    >>> bent = olsq.coefficient_path(x[:, None], y, fit_intercept=True)
    >>> bool(harvey_collier(bent).p_value < 0.01)
    True
    """
    _, value = _tested(path, "Harvey-Collier test")
    spread = float(value.std(ddof=1))
    mean = float(value.mean())
    statistic = mean * math.sqrt(value.size) / spread if spread > 0 else math.nan
    freedom = value.size - 1
    return HarveyCollier(statistic, float(2 * stdtr(freedom, -abs(statistic))), freedom)


def recursive_residuals(path: CoefficientPath) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rows (k,) with a recursive residual, and the residuals (k,).

    Parameters
    ----------
    path : CoefficientPath
        As for :func:`cusum`.

    Returns
    -------
    row : ndarray of int, shape (k,)
        Rows that were not skipped and did not determine a coefficient: n - k of n rows, k the
        rank of the regressors.  Under a ridge: all rows except the first k.
    value : ndarray, shape (k,)
        ``path.recursive_residual`` there: one-step-ahead errors of one variance, that of the
        noise, and uncorrelated where the coefficients are constant.  Without a ridge their
        squares add up to the residual sum of squares.

    Raises
    ------
    ValueError
        If the path has several targets or groups, or fewer than two rows have one.

    References
    ----------
    Brown, Durbin & Evans (1975), equation 1.

    Examples
    --------
    >>> import olsq
    >>> from olsq.stability import recursive_residuals
    >>> row, value = recursive_residuals(olsq.coefficient_path([[1.0]] * 3, [0.0, 2.0, 4.0]))
    >>> row.tolist(), value.round(6).tolist()
    ([1, 2], [1.414214, 2.44949])
    """
    return _tested(path, "recursive residual")


def _tested(path: CoefficientPath, what: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the tested rows and their recursive residuals; raise if there are fewer than two."""
    refuse_groups(path)
    recursive = real_array(path.recursive_residual, "path.recursive_residual").astype(np.float64)
    if recursive.ndim != 1:
        raise ValueError(
            f"path must have one target for the {what}, got residuals of shape {recursive.shape}: "
            "make one path for each target"
        )
    row = tested_rows(recursive, path, path.coef.shape[1] + bool(np.any(path.intercept)))
    if row.size < 2:
        raise ValueError(
            f"path must have two rows with a recursive residual for the {what}, got {row.size}: "
            "give more rows"
        )
    return row, recursive[row]


def _level(level: float, lines: Mapping[float, object]) -> float:
    if not isinstance(level, (int, float)) or level not in lines:
        raise ValueError(f"level must be one of {sorted(lines)}, got {shown(level)}")
    return level
