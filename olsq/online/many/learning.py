"""Learn the rows of one call in all filters of a bank at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.counting import learn_logs
from olsq.online.forms.factor import stack
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.statistics import Turns
from olsq.online.many.in_line import BankRows, InLine
from olsq.online.many.parallel import in_pieces, share, uninterrupted
from olsq.online.many.state import BankState, Kind
from olsq.online.paths.collector import PathCollector
from olsq.online.paths.goodness import GroupRows, constant_rows
from olsq.online.rows.inputs import with_ones

PARALLEL_FROM = 1e5  # multiplications that pay for a thread
FEW = 32  # filters whose states are copied to be put back after an error
PIECE_ENTRIES = 131072  # regressors learned at a time: they and their trace stay in the cache


def learn(
    state: BankState, kind: Kind, rows: BankRows, path: PathCollector | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Learn all rows; return the a-priori residuals (N, m), NaN in skipped rows, and how many first
    rows of each member (b,) have had a column that never varied.

    An error or an interrupt leaves the state as it was, or after all rows.
    """
    residual, counts = np.empty(rows.Y.shape), np.zeros(rows.members.size, np.int64)
    if rows.usable.size:
        residual[~rows.usable] = np.nan
    if rows.members.size > FEW:  # a copy would cost as much as the rows
        uninterrupted(lambda: _learn_in_line(state, kind, rows, residual, counts, path))
        return residual, counts
    before = state.take(rows.members)
    try:
        _learn_in_line(state, kind, rows, residual, counts, path)
    except BaseException:
        state.put(rows.members, before)
        raise
    return residual, counts


def _follow_constants(state: BankState, rows: BankRows, counts: NDArray[np.int64]) -> None:
    """Update the values of columns that have not varied, and count the rows up to the last."""
    values = state.values[rows.members]
    if not values.any():  # as soon as two rows of all members have differed
        return
    weights = np.where(rows.usable, rows.weights, 0.0) if rows.usable.size else rows.weights
    groups = GroupRows(rows.order, rows.begins, rows.ends)
    counts[:] = constant_rows(groups, weights, rows.X, values)
    state.values[rows.members] = values


def _learn_in_line(
    state: BankState,
    kind: Kind,
    rows: BankRows,
    residual: NDArray,
    counts: NDArray[np.int64],
    path: PathCollector | None,
) -> None:
    """Learn on several threads."""
    _follow_constants(state, rows, counts)
    in_line = rows.in_line

    def learn_members(begin: int, end: int) -> None:
        _learn(state, kind, rows, in_line.of(begin, end), residual, path)

    if in_line.sequence.size:
        work = (in_line.bounds[1:] - in_line.bounds[:-1]) * state.n_coefs**2
        in_pieces(learn_members, share(work, PARALLEL_FROM))


def _learn(
    state: BankState,
    kind: Kind,
    rows: BankRows,
    in_line: InLine,
    residual: NDArray,
    path: PathCollector | None,
) -> None:
    """Learn rows in line, one piece after another."""
    for turns, numbers in in_line.pieces(max(64, PIECE_ENTRIES // state.n_coefs)):
        piece = Piece.of(state, kind, rows, numbers, path)
        learn_piece(state, kind, turns, piece)
        piece.write(state, kind, turns, residual, path)


class Piece(NamedTuple):
    """Rows as kernels take them, with the arrays (N, m) and the trace that they fill."""

    numbers: slice | NDArray[np.int64]
    rows: Rows
    residual: NDArray[np.float64]
    trace: Trace | None

    @classmethod
    def of(
        cls,
        state: BankState,
        kind: Kind,
        rows: BankRows,
        numbers: slice | NDArray[np.int64],
        path: PathCollector | None,
    ) -> Piece:
        """Select rows by their numbers; kernels compute in float64."""
        X, Y = rows.X[numbers], np.ascontiguousarray(rows.Y[numbers], np.float64)
        X = with_ones(X, kind.intercept)
        selected = Rows.of(X, Y, rows.gates[numbers], rows.weights[numbers])
        n, m = Y.shape
        trace = None if path is None else Trace.empty(n, m, X.shape[1], **path.wants)
        return cls(numbers, selected, np.empty((n, m)), trace)

    def write(
        self,
        state: BankState,
        kind: Kind,
        turns: Turns,
        residual: NDArray,
        path: PathCollector | None,
    ) -> None:
        """Write residuals and estimates of the learned rows to the arrays of all rows."""
        residual[self.numbers] = self.residual
        if path is not None:
            assert self.trace is not None
            path.add(self.trace, self.numbers, state.ridge, kind.discounted, self.rows, turns)


def learn_piece(state: BankState, kind: Kind, turns: Turns, piece: Piece) -> None:
    """Learn the rows of a piece."""
    members, begins, ends = turns
    turn = members, begins.copy(), ends
    if piece.trace is None:
        stack.learn(state.stack(kind), turn, piece.rows, piece.residual)
    else:
        stack.learn_path(state.stack(kind), turn, piece.rows, piece.residual, piece.trace)
    if state.logs[members].any() or (piece.rows.weights != 1).any():
        learn_logs(state.logs, turns, piece.rows.gates, piece.rows.weights)
