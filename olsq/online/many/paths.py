"""Convert the rows that a bank's kernels write to a coefficient path."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.counting import COUNT, DECAY, WEIGHT
from olsq.online.forms.rows import clip_to
from olsq.online.forms.statistics import FitArrays
from olsq.online.many.in_line import BankRows
from olsq.online.many.state import BankState, Kind
from olsq.online.paths.collector import PathCollector, PathPart
from olsq.online.paths.goodness import (
    GroupRows,
    RowsInside,
    SumsOfSquares,
    squares_before,
)


def untouched(state: BankState) -> NDArray[np.bool_]:
    """Mask (n,) of the filters that have learned and forgotten nothing."""
    tally = state.tally
    return (tally[:, DECAY] == 1) & (tally[:, COUNT] == 0) & (tally[:, WEIGHT] == 0)


def open_path(
    state: BankState,
    kind: Kind,
    rows: BankRows,
    noise: NDArray | None,
    samples: NDArray[np.int64] | None = None,
) -> PathCollector:
    """Start a path for these rows before they are learned; ``noise`` as of ``PathCollector``.

    Skipped rows at the start of a filter's own read what it has known before the call.
    ``samples`` (n,) are those behind each filter's estimate, if its tally does not count them.
    """
    (n, m), sandwich = rows.Y.shape, state.spread.size > 0
    dtype = np.dtype("float64" if kind.is_complex else kind.precision)
    path = PathCollector((n, m, state.n_coefs), dtype, sandwich, noise)
    if not rows.usable.size:
        return path
    sequence, lengths = rows.sequence, rows.ends - rows.begins
    learned = np.cumsum(rows.usable[sequence])  # in this call so far, less those of filters before
    before = np.repeat(np.append(0, learned)[np.cumsum(lengths) - lengths], lengths)
    member_of_row = np.repeat(np.arange(rows.members.size), lengths)
    leading = np.flatnonzero(learned == before)
    if leading.size:
        asked, place = np.unique(member_of_row[leading], return_inverse=True)
        filters = rows.members[asked]
        estimates, statistics = state.estimates(filters, kind), ()
        if noise is not None:
            sigma2, stderr, fit = state.statistics(filters, kind, estimates, noise)
            fit = FitArrays(fit.squares[place], fit.degrees[place])
            statistics = sigma2[place], stderr[place], fit
        count = estimates.counts[place, COUNT] if samples is None else samples[filters][place]
        path.begin(sequence[leading], estimates.coef[place], count, *statistics)
    return path


def replace_second_residuals(
    rows: BankRows, before: NDArray, path: PathCollector, residual: NDArray
) -> None:
    """Do as the function of ``calls.learning`` with the rows of each filter.

    ``path`` is finished; ``before`` (b, m, k) are the members' coefficients before these rows.
    """
    pairs = (rows.ends - rows.begins) // 2
    begin = (np.cumsum(pairs) - pairs)[pairs > 0]
    second = rows.sequence[1::2]  # of every pair, one filter's after the other's
    theta = path.coef[np.roll(second, 1)]
    theta[begin] = before[pairs > 0]
    residuals = rows.Y[second] - np.einsum("nmk,nk->nm", theta, rows.X[second])
    learned = rows.usable[second] if rows.usable.size else slice(None)
    residual[second[learned]] = residuals[learned]


def finished(
    path: PathCollector,
    rows: BankRows,
    residual: NDArray,
    before: Callable[[], NDArray[np.float64]],
    constant: NDArray[np.int64],
    kind: Kind,
) -> PathPart:
    """Finish the path of rows that were learned with these a-priori residuals (N, m).

    ``before`` is of :func:`squares_learned`, and ``constant`` (b,) counts the first rows of the
    members in which a column had one value.
    """
    groups = GroupRows(rows.order, rows.begins, rows.ends)
    path.finish(0, groups)
    statistics = None
    if path.noise is not None:
        usable = rows.usable if rows.usable.size else None
        weights, gates = rows.weights.copy(), rows.gates.copy()
        if usable is not None:
            weights[~usable] = 0.0

        def inside() -> RowsInside:
            return RowsInside.of_groups(groups, usable, gates, weights)

        Y, first_rows = np.array(rows.Y, np.float64), None if kind.intercept else constant
        sums = SumsOfSquares(inside, Y, before, first_rows, kind.intercept)
        statistics = partial(path.row_statistics, sums)
    return PathPart(path, clip_to(residual, path.coef.dtype), statistics)


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
            squares[place] = squares_before(form, *how, np.nan_to_num(earlier.values[i]))
        return squares

    return compute
