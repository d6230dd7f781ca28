"""Learn the rows of one call in all filters of a bank at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms import singular_path
from olsq.online.forms.covariance_kernels import COVARIANCE, SQUARE_ROOT
from olsq.online.forms.factor.form import as_root
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.square_root_kernels import COUNT, RANK
from olsq.online.forms.start_kernels import TAKEN, UNTRACED
from olsq.online.forms.statistics import FitArrays, Turns, statistics
from olsq.online.many import kernels
from olsq.online.many.in_line import BankPath, BankRows, InLine
from olsq.online.many.parallel import in_pieces, share, uninterrupted
from olsq.online.many.state import BankState, Kind
from olsq.online.rows.inputs import with_ones

PARALLEL_FROM = 1e5  # multiplications that pay for a thread
FEW = 32  # filters whose states are copied to be put back after an error
WIDENED = 4096  # filters of a float32 state that are float64 at a time
PIECE_ENTRIES = 131072  # regressors learned at a time: they and their trace stay in the cache


def learn(
    state: BankState, kind: Kind, rows: BankRows, path: BankPath | None = None
) -> NDArray[np.float64]:
    """Learn all rows; return the a-priori residuals (N, m), NaN in skipped rows.

    An error or an interrupt leaves the state as it was, or after all rows.
    """
    residual = np.empty(rows.Y.shape)
    if rows.usable.size:
        residual[~rows.usable] = np.nan
    if rows.members.size > FEW:  # a copy would cost as much as the rows
        uninterrupted(lambda: _learn_stored(state, kind, rows, residual, path))
        return residual
    before = state.take(rows.members)
    try:
        _learn_stored(state, kind, rows, residual, path)
    except BaseException:
        state.put(rows.members, before)
        raise
    return residual


def _learn_stored(
    state: BankState, kind: Kind, rows: BankRows, residual: NDArray, path: BankPath | None
) -> None:
    """Learn on several threads, for states stored in either precision."""
    in_line = rows.in_line

    def learn_members(begin: int, end: int) -> None:
        if state.matrix.dtype == np.float64:
            _learn(state, kind, rows, in_line.of(begin, end), residual, path)
            return
        for start in range(begin, end, WIDENED):
            some = in_line.of(start, min(start + WIDENED, end))
            part = state.widened(some.members)
            numbered = some._replace(members=np.arange(some.members.size))
            _learn(part, kind, rows, numbered, residual, path)
            state.put(some.members, part.narrowed(state.matrix.dtype))

    if in_line.sequence.size:
        work = (in_line.bounds[1:] - in_line.bounds[:-1]) * state.matrix.shape[1] ** 2
        in_pieces(learn_members, share(work, PARALLEL_FROM))


def _learn(
    state: BankState,
    kind: Kind,
    rows: BankRows,
    in_line: InLine,
    residual: NDArray,
    path: BankPath | None,
) -> None:
    """Learn rows in line, one piece after another."""
    for turns, numbers in in_line.pieces(max(64, PIECE_ENTRIES // state.matrix.shape[1])):
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
        path: BankPath | None,
    ) -> Piece:
        """Select rows by their numbers; kernels compute in float64."""
        X, Y = rows.X[numbers], np.ascontiguousarray(rows.Y[numbers], np.float64)
        X = with_ones(X, kind.intercept)
        selected = Rows.of(X, Y, rows.gates[numbers], rows.weights[numbers])
        n, m = Y.shape
        trace = None
        if path is not None:
            sandwich = state.spread.shape[1] > 0
            trace = Trace.empty(n, m, X.shape[1], sandwich, path.has_statistics)
        return cls(numbers, selected, np.empty((n, m)), trace)

    @property
    def trace_arrays(self) -> tuple[NDArray, ...] | None:
        """The trace as kernels take it."""
        return None if self.trace is None else tuple(self.trace)

    def write(
        self,
        state: BankState,
        kind: Kind,
        turns: Turns,
        residual: NDArray,
        path: BankPath | None,
    ) -> None:
        """Write residuals and estimates of the learned rows to the arrays of all rows."""
        numbers, trace = self.numbers, self.trace
        residual[numbers] = self.residual
        if path is None or trace is None:
            return
        path.coef[numbers], path.recursive[numbers] = trace.coef, trace.recursive
        if path.has_statistics:
            sigma2 = path.sigma2[numbers].copy()  # as it was made: inf, or the known variance
            stderr, fit = np.empty(trace.coef.shape), FitArrays.empty(*trace.loss.shape)
            statistics(trace, state.ridge, kind.discounted, sigma2, stderr, fit, turns)
            for array, part in zip(path.estimates[1:], (sigma2, stderr, *fit), strict=True):
                array[numbers] = part


def learn_piece(state: BankState, kind: Kind, turns: Turns, piece: Piece) -> None:
    """Learn the rows of a piece; members stop where dense algebra is needed, and go on together."""
    arrays, settings, rows = state.in_kernels, kind.settings, tuple(piece.rows)
    residual, trace, k = piece.residual, piece.trace_arrays, state.matrix.shape[1]
    robust = piece.trace is not None and len(piece.trace.sandwich) > 0
    scratch = np.empty(k), np.empty((k, k) if robust else (0, 0))
    members, position, ends = turns[0], turns[1].copy(), turns[2]
    if (ends - position).max(initial=0) > 1:
        _learn_starts(state, kind, (members, position, ends), piece)
    while members.size:
        kernels.learn(arrays, (members, position, ends), rows, settings, residual, trace, scratch)
        stopped = position < ends
        if not stopped.any():
            break
        members, position, ends = members[stopped], position[stopped], ends[stopped]
        leaving = state.forms[members] == COVARIANCE
        if leaving.any():  # what does that compiles for seconds
            kernels.leave_each(arrays, members[leaving])
        if not leaving.all():
            position[~leaving] = _take_alone(
                state, kind, (members[~leaving], position[~leaving], ends[~leaving]), piece
            )
    if state.logs[turns[0]].any() or (piece.rows.weights != 1).any():
        kernels.learn_logs(state.logs, turns, piece.rows.gates, piece.rows.weights)


def _learn_starts(state: BankState, kind: Kind, turns: Turns, piece: Piece) -> None:
    """Learn the first rows of members that know nothing yet, and move their positions on.

    While coefficients are undetermined those of minimum norm come from a basis of the rows, which
    is kept for this piece only: a member that is still undetermined in the next one goes on by the
    dense algebra of :func:`_take_alone`.
    """
    members, position, ends = turns
    at = np.flatnonzero(
        (state.forms[members] == SQUARE_ROOT)
        & (state.tally[members, COUNT] == 0)
        & (ends - position > 1)
    )
    at = at[~state.matrix[members[at]].any(axis=(1, 2))]
    s = state.matrix.shape[1] - int(kind.intercept)
    bases = np.zeros((at.size, s, s))
    while at.size:
        starting = members[at], position[at], ends[at]
        outcomes = np.empty(at.size, np.int64)
        kernels.learn_starts(
            state.in_kernels,
            starting,
            tuple(piece.rows),
            kind.settings,
            piece.residual,
            piece.trace_arrays,
            bases,
            outcomes,
        )
        position[at] = starting[1]
        if piece.trace is not None and (untraced := outcomes > TAKEN).any():
            state.write(piece.trace, starting[1][untraced] - 1, starting[0][untraced], kind)
        at, bases = at[outcomes == UNTRACED], bases[outcomes == UNTRACED]


def _take_alone(state: BankState, kind: Kind, turns: Turns, piece: Piece) -> NDArray[np.int64]:
    """Absorb rows of filters in square-root form whose treatment needs coefficients: one of each,
    or more on a path.  Return where each goes on.
    """
    arrays, rows, trace = state.in_kernels, tuple(piece.rows), piece.trace
    (filters, begins, ends), theta = turns, state.theta(turns[0], kind)
    if trace is None:
        kernels.take_alone(arrays, (filters, begins), rows, theta, kind.settings, piece.residual)
        return begins + 1
    b, m, k = theta.shape
    each = singular_path.rows_at_once(k, b)
    snapshots = singular_path.Snapshots.empty(b * each, m, k, len(trace.sandwich) > 0)
    position = begins.copy()
    like: Any = as_root(state.switch(filters[0], kind).form)
    kernels.take_undetermined(
        arrays, (filters, position, ends), rows, kind.settings, tuple(trace), tuple(snapshots)
    )
    counts = position - begins
    firsts = np.cumsum(counts) - counts  # of every filter among the rows absorbed
    step = np.arange(counts.sum()) - np.repeat(firsts, counts)
    places, at = np.repeat(np.arange(b) * each, counts) + step, np.repeat(begins, counts) + step
    full = trace.counts[position - 1, RANK] == k  # as read of the states themselves
    undetermined = ~np.isin(at, position[full] - 1)
    singular_path.read(snapshots, places[undetermined], trace, at[undetermined], like)
    state.write(trace, position[full] - 1, filters[full], kind)
    before = trace.coef[at - 1]
    before[firsts] = theta
    singular_path.write_residuals(before, piece.rows, at, piece.residual, trace)
    return position
