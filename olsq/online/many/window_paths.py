"""The path of rows that the windows of many groups take."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.call import Call
from olsq.online.forms.rows import clip_to
from olsq.online.many.in_line import BankRows
from olsq.online.many.paths import open_path
from olsq.online.many.window_stack import WindowStack
from olsq.online.paths.collector import PathCollector, PathPart, RobustErrors
from olsq.online.paths.goodness import GroupRows, RowsInside, SumsOfSquares
from olsq.online.rows.inputs import with_ones
from olsq.online.windows.window import RollingWindow


class PathOptions(NamedTuple):
    """Options of a path of windows.

    Estimates of fewer samples than ``fewest`` are NaN.  ``noise`` (m,) are the known variances, inf
    where they are to be estimated, or None without statistics; ``robust`` replaces the standard
    errors, in windows that have just begun.
    """

    fewest: int
    noise: NDArray[np.float64] | None
    robust: RobustErrors | None


class WindowPath(NamedTuple):
    """A path of the rows of one call, and what its statistics need of the rows before it.

    Rows of the windows before the call come first, p of them: their ``members`` (p + n,), targets
    (p + n, m), gates, weights, times if there are any, and whether each can be learned.
    """

    collector: PathCollector
    of_call: GroupRows  # the call's rows by member
    members: NDArray[np.int64]
    Y: NDArray[np.float64]
    gates: NDArray[np.float64]
    weights: NDArray[np.float64]
    times: NDArray | None
    usable: NDArray[np.bool_] | None
    like: RollingWindow  # before any row

    @classmethod
    def open(
        cls,
        stack: WindowStack,
        call: Call,
        members: NDArray[np.int64],
        of_call: GroupRows,
        times: NDArray | None,
        noise: NDArray[np.float64] | None,
    ) -> Self:
        """Start the path of rows before they are learned, each in the window of its member (n,)."""
        order, begins, ends = of_call
        usable = None if stack.advances_on_missing else call.usable
        none = np.empty(0, np.bool_)
        rows = BankRows(
            np.arange(len(stack)),
            begins,
            ends,
            order,
            call.X,
            call.Y,
            call.gates,
            call.weights,
            none if usable is None else usable,
        )
        collector = open_path(stack.state, stack.kind, rows, noise, stack.samples)
        held = stack.rows_of(np.unique(members) if noise is not None else members[:0])
        weights = call.weights
        if call.usable is not None:
            weights = np.where(call.usable, weights, 0.0)
        if usable is not None:
            usable = np.append(np.ones(held.members.size, np.bool_), usable)
        return cls(
            collector,
            of_call,
            np.append(held.members, members),
            np.concatenate([held.Y, call.Y]),
            np.append(np.ones(held.members.size), call.factors),
            np.append(held.weights, weights),
            None if held.times is None or times is None else np.append(held.times, times),
            usable,
            stack.like,
        )

    def finish(
        self,
        residual: NDArray[np.float64],
        constant: NDArray[np.int64] | None,
        options: PathOptions,
        ridge: NDArray[np.float64],
        X: NDArray,
    ) -> PathPart:
        """Finish the path of rows X (n, d), with their a-priori residuals (n, m).

        ``constant`` (members,) are the first rows of the call in which a column has had one value
        since a member's first row; None beside an intercept.
        """
        collector, skip = self.collector, len(self.members) - len(residual)
        collector.finish(options.fewest, self.of_call)
        statistics, intercept, n = None, bool(self.like.form.intercept), self.of_call.begins.size
        if collector.noise is not None:
            if constant is not None:
                constant = constant + np.bincount(self.members[:skip], minlength=n)
            nothing = np.zeros((n, residual.shape[1], 3))
            how = nothing.copy, constant, intercept, skip
            sums = SumsOfSquares(self._inside, self.Y, *how, windowed=True)
            if options.robust is not None:
                regressors = with_ones(np.asarray(X), intercept)
                options.robust.fill(collector, self._inside(), self.Y, regressors, ridge)
            statistics = partial(collector.row_statistics, sums)
        return PathPart(collector, clip_to(residual, collector.coef.dtype), statistics)

    def _inside(self) -> RowsInside:
        """Return the rows inside of each row's window."""
        rows, duration = self.of_call, self.like.duration
        if len(self.members) > len(rows.order):  # with those before the call
            rows = rows_by_member(self.members, rows.begins.size)
        every_row = RowsInside.of_groups(rows, self.usable, self.gates, self.weights)
        if duration is None:
            return every_row.last(self.like.most_rows, self.like.advances_on_missing)
        assert self.times is not None
        order, times = rows.order, self.times[rows.order]
        rank = np.unique(np.append(times, duration.expired(times)), return_inverse=True)[1]
        group = rows.groups * (rank.max(initial=0) + 1)
        came, expired = group + rank[: order.size], group + rank[order.size :]
        oldest = np.searchsorted(came, expired, side="right")
        return every_row.no_older(np.arange(order.size), oldest)


def rows_by_member(members: NDArray[np.int64], n: int) -> GroupRows:
    """Return the rows of each of n members, in order."""
    counts = np.bincount(members, minlength=n)
    ends = np.cumsum(counts)
    return GroupRows(np.argsort(members, kind="stable"), ends - counts, ends)
