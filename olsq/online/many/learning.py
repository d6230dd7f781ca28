"""Learn the rows of one call in all filters of a bank at once, or one row of one filter.

Learning a row is a microsecond of arithmetic; the general way spends a hundred on checks of
parameters that came out the same for the row before, and on grouping rows by filter.  For one row
those checks are made once, for as long as the parameters and the state are the same objects; what
the row itself can get wrong is checked in the kernel.  A row that is unusual in any way is left to
the general way, unchanged.  Which way a row goes depends on the row, the parameters and the state
alone, so that a state that was saved and loaded goes on with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter, is_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.files import frozen
from olsq.online.files.frozen import IMMUTABLE
from olsq.online.forms import singular_path
from olsq.online.forms.covariance_kernels import COVARIANCE, SQUARE_ROOT
from olsq.online.forms.rows import Rows, Trace, with_ones
from olsq.online.forms.square_root_kernels import COUNT
from olsq.online.forms.start_kernels import TAKEN, UNTRACED
from olsq.online.forms.statistics import FitArrays
from olsq.online.many import decision_kernels, kernels
from olsq.online.many.parallel import in_pieces, share, uninterrupted
from olsq.online.many.state import BankState, Kind
from olsq.online.rows import complex_rows
from olsq.problem import LARGEST

PARALLEL_FROM = 1e5  # multiplications that pay for a thread
FEW = 32  # filters whose states are copied to be put back after an error
WIDENED = 4096  # filters of a float32 state that are float64 at a time
PIECE_ENTRIES = 131072  # regressors learned at a time: they and their trace stay in the cache

Turns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]  # members, begins, ends


class BankRows(NamedTuple):
    """Checked rows X (N, d), Y (N, m), and the assignment of rows to filters.

    ``members[i]``, no filter twice, gets ``order[begins[i]:ends[i]]``; gates and weights
    (N,); ``usable`` (N,), or (0,) where all are.
    """

    members: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    order: NDArray[np.int64]
    X: NDArray
    Y: NDArray
    gates: NDArray[np.float64]
    weights: NDArray[np.float64]
    usable: NDArray[np.bool_]

    def as_pairs(self, intercept: bool) -> BankRows:
        """Embed complex rows as pairs of real ones, each filter's in its order."""
        X = complex_rows.with_ones(self.X, intercept)
        return BankRows(
            self.members,
            2 * self.begins,
            2 * self.ends,
            (2 * self.order[:, None] + np.arange(2)).reshape(-1),
            complex_rows.embed_rows(X),
            complex_rows.embed_targets(self.Y),
            complex_rows.embed_gates(self.gates),
            np.repeat(self.weights, 2),
            np.repeat(self.usable, 2),
        )

    @property
    def sequence(self) -> NDArray[np.int64]:
        """The rows in the order in which they are learned, one filter's after the other's."""
        if self.begins.size and (self.begins[1:] == self.ends[:-1]).all():
            return self.order[self.begins[0] : self.ends[-1]]
        ranges = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return np.concatenate([self.order[:0], *(self.order[a:b] for a, b in ranges)])

    @property
    def in_line(self) -> InLine:
        """The usable rows as they are learned."""
        sequence, counts = self.sequence, self.ends - self.begins
        if self.usable.size:
            usable = self.usable[sequence]
            member = np.repeat(np.arange(counts.size), counts)
            counts = np.bincount(member[usable], minlength=counts.size)
            sequence = sequence[usable]
        bounds = np.zeros(counts.size + 1, np.int64)
        counts.cumsum(out=bounds[1:])
        return InLine(self.members, sequence, bounds)


class InLine(NamedTuple):
    """Rows to learn, those of ``members[i]`` being ``sequence[bounds[i]:bounds[i + 1]]``."""

    members: NDArray[np.int64]
    sequence: NDArray[np.int64]
    bounds: NDArray[np.int64]

    def of(self, begin: int, end: int) -> InLine:
        """Select the rows of some of the members."""
        return self._replace(members=self.members[begin:end], bounds=self.bounds[begin : end + 1])

    def pieces(self, size: int) -> Iterator[tuple[Turns, slice | NDArray[np.int64]]]:
        """Cut into pieces of about ``size`` rows; yield their members with the places of their rows
        in the piece, and the numbers of the rows.

        A piece ends with a member's last row, unless that member alone has more.
        """
        bounds = self.bounds
        start, last = int(bounds[0]), int(bounds[-1])
        if 0 < last - start <= size:  # as below, in a third of the time
            begins = bounds[:-1] - start
            yield (self.members, begins, bounds[1:] - start), _as_slice(self.sequence[start:last])
            return
        while start < last:
            stop = int(bounds[np.searchsorted(bounds, start + size, "right") - 1])
            if stop <= start:
                stop = min(start + size, last)
            first = np.searchsorted(bounds, start, "right") - 1
            behind = np.searchsorted(bounds, stop, "left")
            places = np.clip(bounds[first : behind + 1] - start, 0, stop - start)
            turns = self.members[first:behind], places[:-1].copy(), places[1:]
            yield turns, _as_slice(self.sequence[start:stop])
            start = stop


def _as_slice(numbers: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return the slice that selects these numbers, where they rise by one."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first == numbers.size - 1 and (numbers[1:] > numbers[:-1]).all():
        return slice(first, last + 1)
    return numbers


class BankPath(NamedTuple):
    """Every row's estimate: coef and stderr (N, m, k), sigma2 and recursive (N, m); squares (N, m)
    and degrees (N, 3) as in :class:`FitArrays`.

    Without statistics sigma2, stderr, squares and degrees have no rows.
    """

    coef: NDArray[np.float64]
    sigma2: NDArray[np.float64]
    stderr: NDArray[np.float64]
    squares: NDArray[np.float64]
    degrees: NDArray[np.float64]
    recursive: NDArray[np.float64]

    @classmethod
    def empty(cls, n: int, m: int, k: int, noise: NDArray | None) -> BankPath:
        """Return the values that rows keep which come before a group's first usable one.

        ``noise`` (m,) are the known noise variances, inf where they are to be estimated; None
        leaves statistics out.
        """
        rows = 0 if noise is None else n
        sigma2 = np.empty((0, m)) if noise is None else np.tile(noise, (n, 1))
        return cls(
            np.zeros((n, m, k)),
            sigma2,
            np.full((rows, m, k), np.inf),
            np.zeros((rows, m)),
            np.zeros((rows, 3)),
            np.full((n, m), np.nan),
        )

    @property
    def estimates(self) -> tuple[NDArray, ...]:
        """The arrays that skipped rows have from the row before them."""
        return tuple(self[:5]) if self.has_statistics else (self.coef,)

    @property
    def has_statistics(self) -> bool:
        return len(self.sigma2) == len(self.coef)


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
        X = with_ones(X) if kind.intercept else np.ascontiguousarray(X, np.float64)
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
            kernels.fill_statistics_of_members(
                tuple(trace), turns, state.ridge, kind.discounted, sigma2, stderr, fit.arrays
            )
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
            _write_estimates(state, kind, starting[0][untraced], starting[1][untraced] - 1, piece)
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
    kernels.take_undetermined(
        arrays, (filters, position, ends), rows, kind.settings, tuple(trace), tuple(snapshots)
    )
    counts = position - begins
    firsts = np.cumsum(counts) - counts  # of every filter among the rows absorbed
    step = np.arange(counts.sum()) - np.repeat(firsts, counts)
    places, at = np.repeat(np.arange(b) * each, counts) + step, np.repeat(begins, counts) + step
    limits = kind.limits.square_root
    singular_path.read(snapshots, places, trace, at, limits, kind.intercept)
    before = trace.coef[at - 1]
    before[firsts] = theta
    singular_path.write_residuals(before, piece.rows, at, piece.residual, trace)
    return position


def _write_estimates(
    state: BankState, kind: Kind, filters: NDArray, place: NDArray, piece: Piece
) -> None:
    """Write the estimates of some filters as they are now to their places in a piece's trace."""
    trace = piece.trace
    assert trace is not None
    trace.loss[place] = state.loss[filters]
    if not len(trace.variance):
        trace.coef[place] = state.theta(filters, kind)
        return
    estimates = state.estimates(filters, kind)
    trace.coef[place], trace.variance[place] = estimates.theta, estimates.variance
    if len(trace.sandwich):
        trace.sandwich[place] = estimates.sandwich
    trace.counts[place] = estimates.counts(state.tally[filters])


DOUBLE = np.dtype(np.float64)
SETTLED = LARGEST[DOUBLE] ** 2  # squares that cannot overflow
INTEGERS = (int, np.int64)  # of one filter: no bool is among them
NUMBERS = (float, np.float64)


class ShortWay(NamedTuple):
    """Conditions under which rows of a bank take the fast path, with its state now."""

    state: BankState
    parameters: Callable[[Any], tuple[Any, ...]]
    values: tuple[Any, ...]
    shape: tuple[int, ...]  # of a row that may go this way
    target: tuple[int, ...]  # and of its y
    gates: NDArray[np.float64]  # (n,) or (1,): the array that is the parameter, read anew each time
    intercept: bool
    arrays: tuple[NDArray, ...]
    limits: Any


def learn_one_row(bank: Any, x: Any, y: Any, which: Any) -> tuple[NDArray, NDArray] | None:
    """Learn a row x (d,), y a number or (m,); return the prediction before and the residual (m,).

    None, with nothing changed, if the row has to go the general way.  Raises as ``partial_fit``
    does if a parameter is no longer what the state was made with.
    """
    if not (type(which) in INTEGERS and type(x) is np.ndarray and x.dtype is DOUBLE):
        return None
    way = bank.__dict__.get("_short_way")
    if (
        way is None
        or way.state is not bank._state
        or not all(map(is_, way.parameters(bank), way.values))
    ):
        if "_state" not in bank.__dict__:
            return None
        way = bank._short_way = _found(bank)
    n = way.state.forms.shape[0]
    if x.shape != way.shape or not x.flags.carray or not -n <= which < n:
        return None
    if type(y) in NUMBERS and not way.target:
        y = np.array((y,))
    elif not (
        type(y) is np.ndarray and y.dtype is DOUBLE and y.shape == way.target and y.flags.carray
    ):
        return None
    y = y.reshape(-1)
    prediction, residual = np.empty(y.shape), np.empty(y.shape)
    settings = way.intercept, SETTLED, way.limits
    if not decision_kernels.learn_one(
        way.arrays, which % n, x, y, way.gates, settings, prediction, residual
    ):
        return None
    prediction, residual = prediction.reshape(way.target), residual.reshape(way.target)
    bank._residual = residual
    return prediction, residual


def _found(bank: Any) -> ShortWay:
    frozen.check(bank, bank._made_with)
    bank._check_parameters()
    parameters = attrgetter(*bank._parameter_names())
    state: BankState = bank._state
    values, shape = parameters(bank), (-1,)  # the shape of no array
    gates = np.atleast_1d(bank._forget(None))
    # Arrays may change in place: factors are read anew in every call, others are compared there.
    factors = bank.forget if type(bank.forget) is np.ndarray and bank.half_life is None else None
    fits = factors is None or (
        factors.shape == gates.shape and factors.dtype is DOUBLE and factors.flags.carray
    )
    if (
        fits
        and all(type(value) in IMMUTABLE or value is factors for value in values)
        and not bank._kind.is_complex
        and state.matrix.dtype == DOUBLE
        and bank._dtype == DOUBLE
        and not state.spread.size
    ):
        shape, gates = (bank.n_features_in_,), gates if factors is None else factors
    names = ("forms", "matrix", "coefs", "columns", "tally", "loss", "clock", "seen", "logs")
    target = (bank._n_targets,) if bank._n_targets else ()
    return ShortWay(
        state,
        parameters,
        values,
        shape,
        target,
        gates,
        bank._kind.intercept,
        tuple(getattr(state, name) for name in names),
        bank._kind.limits.covariance,
    )
