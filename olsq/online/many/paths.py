"""Convert the rows that a bank's kernels write to a coefficient path."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.counting import COUNT, DECAY, WEIGHT
from olsq.online.forms.rows import clip_to, read_only
from olsq.online.forms.statistics import FitArrays
from olsq.online.many.in_line import BankPath, BankRows
from olsq.online.many.state import BankState, Kind
from olsq.online.paths.goodness import (
    GroupRows,
    RowsInside,
    SumsOfSquares,
    constant_rows,
    row_statistics,
    squares_before,
)
from olsq.online.paths.goodness_kernels import fill_own_residuals
from olsq.online.paths.path import CoefficientPath, RowStatistics


def untouched(state: BankState) -> NDArray[np.bool_]:
    """Mask (n,) of the filters that have learned and forgotten nothing."""
    tally = state.tally
    return (tally[:, DECAY] == 1) & (tally[:, COUNT] == 0) & (tally[:, WEIGHT] == 0)


def open_path(state: BankState, kind: Kind, rows: BankRows, noise: NDArray | None) -> BankPath:
    """Start a path for these rows before they are learned; ``noise`` as for ``BankPath.empty``.

    Skipped rows at the start of a filter's own read what it has known since earlier calls.
    """
    N, m = rows.Y.shape
    path = BankPath.empty(N, m, state.n_coefs, noise)
    if not rows.usable.size:
        return path
    last = _last_usable(rows)
    member_of_row = np.repeat(np.arange(rows.members.size), rows.ends - rows.begins)
    learned_before = ~untouched(state)[rows.members]
    leading = np.flatnonzero((last < 0) & learned_before[member_of_row])
    if not leading.size:
        return path
    asked, place = np.unique(member_of_row[leading], return_inverse=True)
    filters = rows.members[asked]
    estimates = state.estimates(filters, kind)
    skipped_rows = rows.sequence[leading]
    path.coef[skipped_rows] = estimates.coef[place]
    if noise is not None:
        sigma2, stderr, fit = state.statistics(filters, kind, estimates, noise)
        for array, part in zip(path.estimates[1:], (sigma2, stderr, *fit), strict=True):
            array[skipped_rows] = part[place]
    return path


def carry(path: BankPath, rows: BankRows) -> None:
    """Give skipped rows the estimate of their filter's row before them in this call."""
    if not rows.usable.size:
        return
    last, sequence = _last_usable(rows), rows.sequence
    carried = np.flatnonzero(~rows.usable[sequence] & (last >= 0))
    for array in path.estimates:
        array[sequence[carried]] = array[sequence[last[carried]]]


def replace_second_residuals(
    rows: BankRows, before: NDArray, path: BankPath, residual: NDArray
) -> None:
    """Do as the function of ``calls.learning`` with the rows of each filter.

    ``path`` has been carried; ``before`` (b, m, k) are the members' coefficients before these rows.
    """
    pairs = (rows.ends - rows.begins) // 2
    begin = (np.cumsum(pairs) - pairs)[pairs > 0]
    second = rows.sequence[1::2]  # of every pair, one filter's after the other's
    theta = path.coef[np.roll(second, 1)]
    theta[begin] = before[pairs > 0]
    residuals = rows.Y[second] - np.einsum("nmk,nk->nm", theta, rows.X[second])
    learned = rows.usable[second] if rows.usable.size else slice(None)
    residual[second[learned]] = residuals[learned]


def _last_usable(rows: BankRows) -> NDArray[np.int64]:
    """Return, for every entry of the sequence, its filter's last usable one up to it, or -1."""
    counts = rows.ends - rows.begins
    usable = rows.usable[rows.sequence]
    last = np.maximum.accumulate(np.where(usable, np.arange(usable.size), -1))
    begin = np.repeat(np.cumsum(counts) - counts, counts)
    return np.where(last >= begin, last, -1)


def path_of(
    path: BankPath,
    residual: NDArray,
    *,
    intercept: bool,
    dtype: np.dtype,
    one_target: bool,
    statistics: Callable[[], RowStatistics] | None,
) -> CoefficientPath:
    """Convert to the path that users receive, in ``dtype``; NaN where coefficients are.

    ``statistics`` computes those of every row, see :func:`statistics_of_rows`.
    """
    single = dtype != np.float64
    coef = clip_to(path.coef, dtype) if single else path.coef
    sigma2, stderr = path.sigma2, path.stderr
    if not path.has_statistics:
        sigma2, stderr = (np.broadcast_to(np.nan, a.shape) for a in (path.recursive, path.coef))
    others = clip_to(residual, dtype) if single else residual, path.recursive, sigma2
    without = 0.0 if intercept else np.where(np.isnan(path.coef[:, :, 0]), np.nan, 0.0)
    result = CoefficientPath.of_columns((coef, stderr), intercept, *others, without=without)
    if statistics is not None:
        result = result.with_statistics(statistics)
    return result.each(lambda array: array[:, 0]) if one_target else result


def statistics_of_rows(
    path: BankPath,
    rows: BankRows,
    before: Callable[[], NDArray[np.float64]],
    learned_before: NDArray[np.bool_],
    kind: Kind,
    noise: NDArray[np.float64] | None,
    window: int | None = None,
) -> Callable[[], RowStatistics] | None:
    """Return what computes the statistics of every row of a path that has been carried.

    ``before`` is of :func:`squares_learned`, and ``learned_before`` (b,) masks the members that had
    learned something.  None where there are none.
    """
    if noise is None:
        return None
    dtype = np.dtype(kind.precision)
    usable = rows.usable if rows.usable.size else None
    X, Y = (read_only(np.ascontiguousarray(a, np.float64)) for a in (rows.X, rows.Y))
    residual = np.empty(Y.shape)
    fill_own_residuals(read_only(path.coef), X, Y, residual)
    weights, gates = rows.weights.copy(), rows.gates.copy()
    if usable is not None:
        residual[~usable] = np.nan
        weights[~usable] = 0.0
    groups = GroupRows(rows.order, rows.begins, rows.ends)

    def inside() -> RowsInside:
        every_row = RowsInside.of_groups(groups, usable, gates, weights)
        return every_row if window is None else every_row.last(window, positions=False)

    constant = None
    if not kind.intercept:  # of rows before this call a bank does not keep the columns' values
        values = np.where(learned_before[:, None], 0.0, np.full(X.shape[1], np.nan))
        constant = constant_rows(groups, weights, X, values)
    sums = SumsOfSquares(
        inside, np.array(Y), before, constant, kind.intercept, windowed=window is not None
    )
    fit = FitArrays(path.squares, path.degrees)
    return lambda: row_statistics(clip_to(residual, dtype), fit, sums, noise)


def squares_learned(
    state: BankState, kind: Kind, members: NDArray[np.int64]
) -> Callable[[], NDArray[np.float64]]:
    """Return what computes what ``fill_sums_of_squares`` asks of the members (b, m, 3), as they are
    now.
    """
    learned_before = ~untouched(state)[members]
    earlier = state.take(members[learned_before])

    def compute() -> NDArray[np.float64]:
        squares = np.zeros((members.size, state.loss.shape[1], 3))
        for i, place in enumerate(np.flatnonzero(learned_before)):
            form = earlier.switch(i, kind).form
            how = earlier.ridge[i], kind.discounted, kind.intercept
            squares[place] = squares_before(form, *how)
        return squares

    return compute
