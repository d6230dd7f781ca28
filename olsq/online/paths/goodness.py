"""Goodness of fit after every row of a path: R-squared, rows, degrees of freedom.

What a row's estimate rests on is a list of rows, each with its weight, of which the sum of squares
of the targets is computed here; the residuals' is in the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.counting import WEIGHT
from olsq.online.forms.form import Form
from olsq.online.forms.rows import read_only
from olsq.online.forms.statistics import (
    COEFFICIENTS,
    ROWS,
    FitArrays,
    objective_of,
    squares_about_mean,
)
from olsq.online.paths.arrays import RowStatistics
from olsq.online.paths.goodness_kernels import (
    fill_constant_rows,
    fill_sums_of_squares,
)


class GroupRows(NamedTuple):
    """Rows by group: those of group i are ``order[begins[i]:ends[i]]``, oldest first."""

    order: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of_one(cls, n: int) -> Self:
        """Make one group of n rows."""
        return cls(np.arange(n), np.zeros(1, np.int64), np.array([n]))

    @property
    def groups(self) -> NDArray[np.int64]:
        """The group of every row, in the order of the groups."""
        return np.repeat(np.arange(self.begins.size), self.ends - self.begins)


class RowsInside(NamedTuple):
    """The rows behind every estimate: at position p those at ``oldest[p]..p`` of ``order``.

    Groups follow one another, as ``fill_sums_of_squares`` documents.  Rows that are not learned are
    in the order too, with weight 0 and gate 1.
    """

    order: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    oldest: NDArray[np.int64]
    gates: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of_groups(
        cls, rows: GroupRows, usable: NDArray[np.bool_] | None, gates: NDArray, weights: NDArray
    ) -> Self:
        """Take all rows of each group so far, with those before this call."""
        order, begins, ends = rows
        if usable is not None:
            gates, weights = np.where(usable, gates, 1.0), np.where(usable, weights, 0.0)
        oldest = np.repeat(begins - 1, ends - begins)
        places = begins[:0] if not begins.size else sequence(begins, ends)
        forgets_all = gates[order[places]] == 0
        if forgets_all.any():  # nothing older is left, whatever it was
            oldest = np.maximum(oldest, np.maximum.accumulate(np.where(forgets_all, places, -1)))
        every_oldest = np.zeros(order.size, np.int64)
        every_oldest[places] = oldest
        return cls(order, begins, ends, every_oldest, gates, weights)

    def last(self, window: int, positions: bool) -> Self:
        """Return only the last rows: so many that were learned, or ``positions``."""
        places = sequence(self.begins, self.ends)
        counted = places
        if not positions:
            counted = places[self.weights[self.order[places]] > 0]
        number = np.searchsorted(counted, places, side="right") - window
        oldest = np.where(number < 0, 0, counted[np.maximum(number, 0)] if counted.size else 0)
        return self.no_older(places, oldest)

    def no_older(self, places: NDArray[np.int64], oldest: NDArray[np.int64]) -> Self:
        """Return the rows without those before ``oldest``, by place."""
        begins = np.repeat(self.begins, self.ends - self.begins)
        every_oldest = self.oldest.copy()
        every_oldest[places] = np.maximum(np.maximum(every_oldest[places], oldest), begins)
        return self._replace(oldest=every_oldest)


class SumsOfSquares(NamedTuple):
    """Computation of the targets' sums of squares, run when they are first read.

    ``before`` (g, m, 3) as in the kernel; ``constant_rows`` (g,) is the number of a group's first
    rows in which a column has had one value, None with an intercept.  Rows from ``skip`` on are the
    call's.  The arrays are copies: nothing may depend on what the user does with his.  Few bytes
    per row, as most paths are never asked.
    """

    inside: Callable[[], RowsInside]
    Y: NDArray[np.float64]
    before: Callable[[], NDArray[np.float64]]
    constant_rows: NDArray[np.int64] | None
    intercept: bool
    skip: int = 0
    is_complex: bool = False  # a row here is two of the state, a target two columns
    windowed: bool = False

    def rows_inside(self) -> NDArray[np.float64]:
        """Count the rows (n,) of positive weight in the window at every row, faded or not."""
        rows = self.inside()
        learned = np.concatenate([[0], np.cumsum(rows.weights[rows.order] > 0)])
        counts = np.full(len(self.Y), np.nan)
        counts[rows.order] = learned[1:] - learned[rows.oldest]
        return counts[self.skip :]

    def compute(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the sums (n, m) by row, and whether they are about the mean (n,)."""
        rows = self.inside()
        size, (N, m) = rows.order.size, self.Y.shape
        centred = np.full(size, self.intercept)
        lengths = rows.ends - rows.begins
        if self.constant_rows is not None:
            places = sequence(rows.begins, rows.ends)
            centred[places] = places < np.repeat(rows.begins + self.constant_rows, lengths)
        longest = int(lengths.max(initial=0))
        out = np.zeros((size, m))
        fill_sums_of_squares(
            _in_kernels(rows.order, self.Y, rows.gates, rows.weights),
            read_only(rows.begins),
            read_only(rows.ends),
            rows.oldest,
            self.before(),
            centred,
            np.empty((longest + 1, 3)),
            out,
        )
        total, about_mean = np.full((N, m), np.nan), np.zeros(N, np.bool_)
        total[rows.order], about_mean[rows.order] = out, centred
        return total[self.skip :], about_mean[self.skip :]


def _in_kernels(order: NDArray, Y: NDArray, gates: NDArray, weights: NDArray) -> Any:
    return tuple(read_only(np.ascontiguousarray(a)) for a in (order, Y, gates, weights))


def one_number(values: NDArray) -> NDArray:
    """Return a copy of a vector, which takes no memory where all its entries are the same."""
    if values.size and values.min() == values.max():
        return np.broadcast_to(values[0].copy(), values.shape)
    return values.copy()


def constant_rows(
    groups: GroupRows, weights: NDArray[np.float64], X: NDArray, values: NDArray
) -> NDArray[np.int64]:
    """Return what ``fill_constant_rows`` computes of rows X (N, d); those of weight 0 are none."""
    order, begins, ends = groups
    counts = np.empty(begins.size, np.int64)
    rows = _in_kernels(order, np.empty((0, 1)), weights, weights)
    regressors = read_only(np.ascontiguousarray(X, np.float64))
    fill_constant_rows(rows, regressors, read_only(begins), read_only(ends), values, counts)
    return counts


def sequence(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of all groups."""
    lengths = ends - begins
    return np.arange(int(lengths.sum())) + np.repeat(begins - np.cumsum(lengths) + lengths, lengths)


def row_statistics(
    in_sample_residual: NDArray,
    fit: FitArrays,
    sums: SumsOfSquares | None,
    noise: NDArray[np.float64],
) -> RowStatistics:
    """Compute the statistics of n rows.

    ``sums`` is None where coefficients are forgotten, not rows; ``noise`` (m,) are the known noise
    variances, inf where they are estimated.
    """
    if sums is None:
        total, about_mean = np.full(fit.squares.shape, np.nan), np.ones(len(fit.squares), np.bool_)
    else:
        total, about_mean = sums.compute()
    slopes_less = about_mean.astype(np.float64)
    if sums is not None and sums.is_complex:
        # The targets' imaginary parts come after the real ones; an intercept is two real ones.
        m = fit.squares.shape[1]
        total = (total[:, :m] + total[:, m:]).repeat(2, axis=0)
        slopes_less = 2 * slopes_less.repeat(2)
    rows, coefficients = (fit.degrees[:, i : i + 1] for i in (ROWS, COEFFICIENTS))
    freedom = fit.freedom
    with np.errstate(divide="ignore", invalid="ignore"):
        unexplained = np.where(total > 0, fit.squares / total, np.nan)
        slopes = coefficients - slopes_less[:, None]
        adjusted = np.where(freedom > 0, 1 - unexplained * (freedom + slopes) / freedom, np.nan)
    shape = fit.squares.shape
    is_known = np.isfinite(noise) & ~np.isnan(rows)
    if sums is not None and sums.windowed:
        inside = sums.rows_inside()[:, None]
        rows = np.where(
            np.isnan(rows), np.nan, 2 * inside.repeat(2, 0) if sums.is_complex else inside
        )
    return RowStatistics(
        in_sample_residual,
        1 - unexplained,
        adjusted,
        np.broadcast_to(rows, shape).copy(),
        np.where(is_known, np.inf, freedom),
    )


def squares_before(
    form: Form,
    ridge: NDArray[np.float64],
    discounted: bool,
    intercept: bool,
    values: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return weight, mean and sum of squares about it (m, 3) of the targets that a form has
    learned.

    ``values`` (d,) as in ``calls.history``.  Without an intercept the mean is 0: nothing asks
    for it.
    """
    m, weight, how = len(form.loss), float(form.tally[WEIGHT]), (ridge, discounted)
    gram, cross = form.moments(*how)
    squares = np.zeros((m, 3))
    squares[:, 0] = weight
    squares[:, 2] = [objective_of(form, i, *how)[1] for i in range(m)]
    if intercept and gram[0, 0] > 0:
        squares[:, 0], squares[:, 1] = gram[0, 0], cross[:, 0] / gram[0, 0]
    elif values is not None and values.any() and weight > 0:
        column = int(np.flatnonzero(values)[0])
        value = float(values[column])
        squares[:, 1] = cross[:, column] / (value * weight)
        squares[:, 2] = [squares_about_mean(form, i, {column: value}, *how) for i in range(m)]
    return squares


def complex_squares_before(
    form: Form, ridge: NDArray[np.float64], discounted: bool, intercept: bool
) -> NDArray[np.float64]:
    """Return what :func:`squares_before` does of the real parts of complex targets, then of the
    imaginary ones (2m, 3).
    """
    m, weight, how = len(form.loss), float(form.tally[WEIGHT]) / 2, (ridge, discounted)
    _, cross = form.moments(*how)
    parts = np.zeros((2, m, 3))
    parts[:, :, 0] = weight
    columns = (0, ridge.size // 2) if intercept and weight > 0 else ()  # of the intercept
    for part, column in enumerate(columns):
        parts[part, :, 1] = cross[:, column] / weight
    # The sum of both parts is all that is asked for.
    parts[0, :, 2] = [
        squares_about_mean(form, i, dict.fromkeys(columns, 1.0), *how)
        if columns
        else objective_of(form, i, *how)[1]
        for i in range(m)
    ]
    return parts.reshape(2 * m, 3)
