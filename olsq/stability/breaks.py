"""Tests for structural breaks: Chow's test at a known row, and the largest F along the path.

The residual sum of squares of the rows up to t is the sum of squared recursive residuals up to t
(Brown, Durbin & Evans 1975, lemma 2).  So one path forwards and one backwards give the sums of both
parts for every place of a break, in O(n d^2) for all of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import is_integer, shown
from olsq.stability.ols_residuals import check_data


class ChowTest(NamedTuple):
    """Result of Chow's test of a break before a row.

    Attributes
    ----------
    statistic : float
        F: how much the two parts' own coefficients lower the sum of squares, per degree of
        freedom, over the noise variance.
    p_value : float
        Exact for normal errors of one variance.
    df : (int, int)
        Degrees of freedom of F.
    row : int
        First row of the second part.
    """

    statistic: float
    p_value: float
    df: tuple[int, int]
    row: int


class BreakTest(NamedTuple):
    """Result of the test of a break at an unknown row, with its estimated row.

    Attributes
    ----------
    statistic : float
        The largest of ``value``: :func:`chow_test`'s F at ``row``.
    p_value : float
        Asymptotic, within a tenth of itself below 0.1, and an upper bound of 1 above.
    row : int
        First row after the break, where ``value`` is largest and the two parts' sum of squares
        least: the least-squares estimate of the break date.
    rows : ndarray of int, shape (k,)
        Rows that were tried.
    value : ndarray, shape (k,)
        Chow's F of a break at each, ``((RSS - RSS_1 - RSS_2) / d) / ((RSS_1 + RSS_2) / (n - 2 d))``
        with d coefficients.  Andrews' statistic, and that of R's strucchange and Stata, is d times
        as large.
    rss : ndarray, shape (k,)
        ``RSS_1 + RSS_2``.
    """

    statistic: float
    p_value: float
    row: int
    rows: NDArray[np.int64]
    value: NDArray[np.float64]
    rss: NDArray[np.float64]

    __repr__ = brief_repr


def chow_test(X: ArrayLike, y: ArrayLike, row: int, *, fit_intercept: bool = False) -> ChowTest:
    """Test whether the coefficients before a row equal those from it on.

    Parameters
    ----------
    X : array (n, d)
    y : array (n,)
    row : int
        First row of the second part, counted from 0.
    fit_intercept : bool, default False

    Returns
    -------
    ChowTest

    Raises
    ------
    ValueError
        If a part is empty, or no degrees of freedom are left.

    Notes
    -----
    Rows with a missing value are left out.  Degrees of freedom are those of the ranks: a column
    that is constant in one part loses one.  The row must not have been chosen by looking at y:
    :func:`break_test` is for that.

    References
    ----------
    Chow, "Tests of equality between sets of coefficients in two linear regressions", Econometrica
    28 (1960) 591-605.

    Examples
    --------
    >>> from olsq.datasets import nile
    >>> from olsq.stability import chow_test
    >>> data = nile()
    >>> test = chow_test([[1.0]] * 100, data["volume"], row=28)    # 1899, the dam at Aswan
    >>> round(test.statistic, 2), test.df
    (75.93, (1, 98))
    """
    data = check_data(X, y, fit_intercept)
    if not is_integer(row):
        raise ValueError(f"row must be an integer, got {shown(row)}")
    place = int(np.searchsorted(data.row, row))
    n = len(data.y)
    if not 0 < place < n:
        raise ValueError(
            f"row must have complete rows before it and from it on, got {row}; the complete rows "
            f"go from {data.row[0]} to {data.row[-1]}"
        )
    (pooled, rank), (one, first), (two, second) = (
        data.fit_rows(0, n),
        data.fit_rows(0, place),
        data.fit_rows(place, n),
    )
    more, left = first + second - rank, n - first - second
    if more < 1 or left < 1:
        raise ValueError(
            f"row={row} leaves {left} degrees of freedom for the noise and {more} for the break: "
            "the parts have too few rows, or no coefficient in common"
        )
    from scipy.stats import f

    both = one + two
    gain = max(pooled - both, 0.0) / more
    # F = ((RSS - RSS_1 - RSS_2) / q) / ((RSS_1 + RSS_2) / (n - r_1 - r_2))
    statistic = gain / (both / left) if both > 0 else (math.inf if gain > 0 else 0.0)
    return ChowTest(statistic, float(f.sf(statistic, more, left)), (more, left), int(row))


def break_test(
    X: ArrayLike, y: ArrayLike, *, trim: float = 0.15, fit_intercept: bool = False
) -> BreakTest:
    """Test for one break at an unknown row, by the largest F along the path, and estimate it.

    Parameters
    ----------
    X : array (n, d)
    y : array (n,)
    trim : float, default 0.15
        Share of the rows at each end where no break is looked for.
    fit_intercept : bool, default False

    Returns
    -------
    BreakTest

    Raises
    ------
    ValueError
        If ``trim`` is not between 0 and 1/2, the parts have fewer rows than twice the
        coefficients, or the coefficients are not determined by the first rows and by the last.

    Notes
    -----
    O(n d^2) time: one path forwards and one backwards.  Rows with a missing value are left out.
    The p-value is DeLong's approximation of the tail of a Bessel process, as Estrella gives it:
    0.051 at Andrews' 5 % value for d = 1 and trim = 0.15.  It holds for stationary regressors and
    uncorrelated errors.

    References
    ----------
    Andrews, "Tests for parameter instability and structural change with unknown change point",
    Econometrica 61 (1993) 821-856, and the corrected table, 71 (2003) 395-397.  Bai, "Least squares
    estimation of a shift in linear processes", J. Time Series Anal. 15 (1994) 453-472.  DeLong,
    "Crossing probabilities for a square root boundary by a Bessel process", Comm. Statist. A 10
    (1981) 2197-2213.  Estrella, "Critical values and p values of Bessel process distributions",
    Econometric Theory 19 (2003) 1128-1143.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.datasets import nile
    >>> from olsq.stability import break_test
    >>> data = nile()
    >>> found = break_test(np.ones((100, 1)), data["volume"])
    >>> round(found.statistic, 2), int(data["year"][found.row - 1])    # the last year before
    (75.93, 1898)
    """
    data = check_data(X, y, fit_intercept)
    n = len(data.y)
    if not (isinstance(trim, (int, float, np.floating)) and 0 < trim < 0.5):
        raise ValueError(f"trim must lie between 0 and 1/2, got {shown(trim)}")
    rank = data.fit_rows(0, n)[1]
    least = math.floor(trim * n + 1e-9)
    if least < max(rank + 1, 2):
        raise ValueError(
            f"trim={trim} leaves {least} of {n} rows at an end, for {rank} coefficients: give more "
            "rows or a larger trim"
        )
    ends = data.fit_rows(0, least)[1], data.fit_rows(n - least, n)[1]
    if min(ends) < rank:
        raise ValueError(
            f"X has rank {rank}, but {min(ends)} in the first or last {least} rows: a coefficient "
            "is not determined there. Leave its column out, or give a larger trim"
        )
    before = data.sums(data.X, data.y)
    after = data.sums(data.X[::-1], data.y[::-1])[::-1]
    places = np.arange(least, n - least + 1)  # rows in the first part
    rss = before[places - 1] + after[places]
    # F = ((RSS - RSS_1 - RSS_2) / d) / ((RSS_1 + RSS_2) / (n - 2 d))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.maximum(before[-1] - rss, 0.0) / rank / (rss / (n - 2 * rank))
    value = np.where(rss > 0, value, np.where(before[-1] > 0, np.inf, 0.0))
    best = int(np.argmin(rss))
    ratio = (n - least) / least
    p_value = _tail_probability(rank * float(value[best]), rank, ratio * ratio)
    rows = data.row[places]
    return BreakTest(float(value[best]), p_value, int(rows[best]), rows, value, rss)


def _tail_probability(c: float, k: int, ratio: float) -> float:
    """Approximate P(sup of k-dimensional squared Bessel bridges over a range of this ratio > c)."""
    if not c > k:  # the approximation holds in the tail only
        return 1.0
    if math.isinf(c):
        return 0.0
    log_density = 0.5 * k * math.log(c / 2) - 0.5 * c - math.lgamma(0.5 * k)
    return min(1.0, math.exp(log_density) * ((1 - k / c) * math.log(ratio) + 2 / c))
