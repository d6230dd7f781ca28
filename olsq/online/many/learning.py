"""Learn the rows of one call in all filters of a bank at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.counting import learn_logs
from olsq.online.forms.factor import snapshots
from olsq.online.forms.factor.snapshots import predict, rows_at_once
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.statistics import Turns
from olsq.online.many import kernels
from olsq.online.many.in_line import BankRows, InLine
from olsq.online.many.parallel import in_pieces, share, uninterrupted
from olsq.online.many.state import BankState, Kind
from olsq.online.paths.collector import PathCollector
from olsq.online.rows.inputs import with_ones

PARALLEL_FROM = 1e5  # multiplications that pay for a thread
FEW = 32  # filters whose states are copied to be put back after an error
PIECE_ENTRIES = 131072  # regressors learned at a time: they and their trace stay in the cache


def learn(
    state: BankState, kind: Kind, rows: BankRows, path: PathCollector | None = None
) -> NDArray[np.float64]:
    """Learn all rows; return the a-priori residuals (N, m), NaN in skipped rows.

    An error or an interrupt leaves the state as it was, or after all rows.
    """
    residual = np.empty(rows.Y.shape)
    if rows.usable.size:
        residual[~rows.usable] = np.nan
    if rows.members.size > FEW:  # a copy would cost as much as the rows
        uninterrupted(lambda: _learn_in_line(state, kind, rows, residual, path))
        return residual
    before = state.take(rows.members)
    try:
        _learn_in_line(state, kind, rows, residual, path)
    except BaseException:
        state.put(rows.members, before)
        raise
    return residual


def _learn_in_line(
    state: BankState, kind: Kind, rows: BankRows, residual: NDArray, path: PathCollector | None
) -> None:
    """Learn on several threads."""
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
    """Learn the rows of a piece; members stop where care is needed, and go on together."""
    arrays, limits, rows = state.in_kernels, kind.limits.square_root, tuple(piece.rows)
    residual, trace = piece.residual, piece.trace

    def with_care(turn: Turns, *after: Any) -> None:
        assert trace is not None
        how = limits, kind.intercept, residual, trace.arrays
        kernels.learn_path_carefully(arrays, turn, rows, *how, after)

    members, position, ends = turns[0], turns[1].copy(), turns[2]
    while members.size:
        turn = members, position, ends
        if trace is None:
            kernels.learn(arrays, turn, rows, limits, residual)
        else:
            kernels.learn_path(arrays, turn, rows, limits, residual, trace.arrays)
        stopped = position < ends
        if not stopped.any():
            break
        turn = members, position, ends = members[stopped], position[stopped], ends[stopped]
        if trace is None:
            _take_carefully(state, kind, turn, piece)
        else:
            take_path_carefully(state, kind, turn, piece.rows, residual, trace, with_care)
    if state.logs[turns[0]].any() or (piece.rows.weights != 1).any():
        learn_logs(state.logs, turns, piece.rows.gates, piece.rows.weights)


def _take_carefully(state: BankState, kind: Kind, turns: Turns, piece: Piece) -> None:
    """Learn rows of members while their states are not sound, and move their positions on."""
    members, position, ends = turns
    arrays, rows, done = state.in_kernels, tuple(piece.rows), np.empty(members.size, np.bool_)
    settings = kind.limits.square_root, kind.intercept
    kernels.learn_carefully(arrays, turns, rows, *settings, piece.residual, done)
    if done.all():
        return
    left, (X, Y, _, _) = ~done, piece.rows
    at, theta = position[left], state.theta(members[left], kind)
    piece.residual[at] = Y[at] - predict(theta, X[at])
    kernels.take_known(arrays, (members[left], at, ends[left]), rows, *settings, piece.residual)
    position[left] = at


def take_path_carefully(
    state: BankState,
    kind: Kind,
    turns: Turns,
    rows: Rows,
    residual: NDArray[np.float64],
    trace: Trace,
    absorb: Callable[[Turns, Any, NDArray[np.bool_]], None],
) -> None:
    """Do :func:`_take_carefully` for rows of a path, which a kernel absorbs.

    ``absorb(turns, snapshots, known)`` does, as :func:`.kernels.learn_path_carefully`.
    """
    members, position, ends = turns
    b, m, k = members.size, state.n_targets, state.n_coefs
    states = snapshots.Snapshots.empty(b * rows_at_once(k, b), m, k, state.spread.size > 0)
    left, lacking = np.arange(b), np.zeros(b, np.bool_)
    while left.size:
        states.at.fill(-1)
        begins, at = position[left], position[left]
        absorb((members[left], at, ends[left]), tuple(states), lacking)
        snapshots.read(states, trace, state.form(members[0], kind))
        position[left] = at
        was_read = ((at > begins) & np.isin(at - 1, states.at))[lacking]  # as in snapshots.take
        left, at, lacking = left[lacking], at[lacking], lacking[lacking]
        before = trace.coef[at - 1]
        before[~was_read] = state.theta(members[left[~was_read]], kind)
        residual[at] = rows.Y[at] - predict(before, rows.X[at])
