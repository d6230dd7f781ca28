"""Learn the rows of one call in all filters of a bank at once, or one row of one filter.

Learning a row is a microsecond of arithmetic; the general way spends a hundred on checks of
parameters that came out the same for the row before, and on grouping rows by filter.  For one row
those checks are made once, for as long as the parameters and the state are the same objects; what
the row itself can get wrong is checked in the kernel.  A row that is unusual in any way is left to
the general way, unchanged.  Which way a row goes depends on the row, the parameters and the state
alone, so that a state that was saved and loaded goes on with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, is_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.files import frozen
from olsq.online.files.frozen import IMMUTABLE
from olsq.online.forms.covariance_kernels import COVARIANCE, SQUARE_ROOT
from olsq.online.forms.rows import Trace, read_only
from olsq.online.forms.square_root_kernels import COUNT
from olsq.online.forms.start_kernels import UNTRACED
from olsq.online.many import batch_kernels, decision_kernels, kernels, path_kernels
from olsq.online.many.parallel import in_pieces, share, uninterrupted
from olsq.online.many.state import BankState, Kind
from olsq.online.rows import complex_rows
from olsq.problem import LARGEST

PARALLEL_FROM = 1e5  # multiplications that pay for a thread
FEW = 32  # filters whose states are copied to be put back after an error
WIDENED = 4096  # filters of a float32 state that are float64 at a time


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
    def data(self) -> tuple[NDArray, ...]:
        return self.order, self.X, self.Y, self.gates, self.weights, self.usable


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
    # Kernels compute in float64: compiled for one kind of rows, and there is no other to mistake.
    rows = rows._replace(
        X=read_only(np.ascontiguousarray(rows.X, np.float64)),
        Y=read_only(np.ascontiguousarray(rows.Y, np.float64)),
        gates=read_only(rows.gates),
        weights=read_only(rows.weights),
        usable=read_only(rows.usable),
    )
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
    """Learn as :func:`_learn` does, for states stored in either precision."""
    if state.matrix.dtype == np.float64:
        _learn(state, kind, rows, residual, path)
    else:
        _learn_narrow(state, kind, rows, residual, path)
    if state.logs.any() or (rows.weights != 1).any():
        kernels.learn_logs(state.logs, rows.members, rows.begins, rows.ends, rows.data)


def _learn_narrow(
    state: BankState, kind: Kind, rows: BankRows, residual: NDArray, path: BankPath | None
) -> None:
    """Learn as :func:`_learn` does, for float32 states, one part of the filters after another."""
    for start in range(0, rows.members.size, WIDENED):
        piece = slice(start, start + WIDENED)
        filters = rows.members[piece]
        part = state.widened(filters)
        rows_of_part = rows._replace(
            members=np.arange(filters.size), begins=rows.begins[piece], ends=rows.ends[piece]
        )
        _learn(part, kind, rows_of_part, residual, path)
        state.put(filters, part.narrowed(state.matrix.dtype))


def _learn(
    state: BankState, kind: Kind, rows: BankRows, residual: NDArray, path: BankPath | None
) -> None:
    arrays, settings, data = state.in_kernels, kind.settings, rows.data
    members, position, ends = rows.members, rows.begins.copy(), rows.ends
    kernels.check(arrays, (members, position, ends), data, residual, kind.intercept)
    k = state.matrix.shape[1]
    robust = state.spread.shape[1] > 0
    if robust and path is None:  # the rows alone decide these squares: apart, in one go
        arrays = (*arrays[:-1], np.empty((len(state), 0, 0)))

    def run(kernel: Any, path: BankPath | None = None) -> None:
        """Run the kernel on the rows left, then keep only the filters that stopped before a row."""
        nonlocal members, position, ends
        arguments = arrays, (members, position, ends), data, settings
        if not members.size:
            return
        bounds = share((ends - position) * k**2, PARALLEL_FROM)

        def learn_piece(begin: int, end: int) -> None:
            traces = () if path is None else (_traces(state, path),)
            kernel(*arguments, begin, end, residual, *traces)

        in_pieces(learn_piece, bounds)
        stopped = position < ends
        members, position, ends = members[stopped], position[stopped], ends[stopped]

    if (ends - position).max(initial=0) > 1:
        _learn_starts(state, arrays, kind, rows, position, residual, path)
        members, position, ends = (a[position < ends] for a in (members, position, ends))
    while members.size:
        if path is None:
            run(kernels.learn)
            _leave(arrays, members[state.forms[members] == COVARIANCE])
            run(kernels.learn_square_root)
            alone = state.forms[members] == SQUARE_ROOT
        else:
            run(path_kernels.learn_path, path)
            alone = state.forms[members] == SQUARE_ROOT
            _leave(arrays, members[~alone])
        if alone.any():
            stopped_rows = members[alone], position[alone]
            _take_alone(state, arrays, kind, rows, *stopped_rows, residual, path)
            position[alone] += 1
    if robust and path is None:
        kernels.learn_squares(
            state.spread, rows.members, rows.begins, rows.ends, data, kind.intercept
        )


def _leave(arrays: Any, filters: NDArray) -> None:
    """Convert some filters to square-root form; what does that compiles for seconds."""
    if filters.size:
        kernels.leave_each(arrays, filters)


def _traces(state: BankState, path: BankPath | None) -> tuple[Any, Any]:
    """Return a path and the trace of a buffer's rows, as kernels take them; both may be None."""
    if path is None:
        return None, None
    m, k = state.coefs.shape[1:]
    statistics, sandwich = len(path.stderr) > 0, state.spread.shape[1] > 0
    block = Trace.empty(kernels.rows_in_buffer(k), m, k, sandwich, statistics)
    return (*path, state.ridge), block.arrays


def _learn_starts(
    state: BankState,
    arrays: Any,
    kind: Kind,
    rows: BankRows,
    position: NDArray[np.int64],
    residual: NDArray,
    path: BankPath | None,
) -> None:
    """Learn the first rows of members that know nothing yet, and move their ``position`` on.

    While coefficients are undetermined those of minimum norm come from a basis of the rows, which
    is kept for this call only: a member that is still undetermined in the next one goes on by the
    dense algebra of :func:`_take_alone`.
    """
    at = np.flatnonzero(
        (state.forms[rows.members] == SQUARE_ROOT)
        & (state.tally[rows.members, COUNT] == 0)
        & (rows.ends - position > 1)
    )
    at = at[~state.matrix[rows.members[at]].any(axis=(1, 2))]
    k = state.matrix.shape[1]
    bases = np.zeros((at.size, k - int(kind.intercept), k - int(kind.intercept)))
    while at.size:
        turns = (
            rows.members[at],
            position[at],
            rows.ends[at],
            bases,
            np.empty((at.size, 2), np.int64),
        )
        arguments = arrays, turns, rows.data, kind.settings
        in_pieces(
            lambda begin, end, arguments=arguments: path_kernels.learn_starts(
                *arguments, begin, end, residual, _traces(state, path)
            ),
            share((turns[2] - turns[1]) * k**2, PARALLEL_FROM),
        )
        position[at] = turns[1]
        done, numbers = turns[4].T
        if path is not None and (unwritten := numbers >= 0).any():
            filters = turns[0][unwritten]
            _write_estimates(state, kind, filters, numbers[unwritten], path)
        goes_on = done == UNTRACED
        at, bases = at[goes_on], bases[goes_on]


def _take_alone(
    state: BankState,
    arrays: Any,
    kind: Kind,
    rows: BankRows,
    filters: NDArray[np.int64],
    position: NDArray[np.int64],
    residual: NDArray,
    path: BankPath | None,
) -> None:
    """Absorb one row in each of some filters in square-root form whose treatment needs
    coefficients.
    """
    settings, numbers = kind.settings, rows.order[position]
    recursive = path.recursive if path is not None else np.empty((0, residual.shape[1]))
    theta = state.theta(filters, kind)
    batch_kernels.take_alone(
        arrays, filters, numbers, rows.data, theta, settings, residual, recursive
    )
    if path is not None:
        _write_estimates(state, kind, filters, numbers, path)
    if kind.method == "covariance":
        kernels.try_all(arrays, filters, kind.limits.covariance)


def _write_estimates(
    state: BankState, kind: Kind, filters: NDArray, numbers: NDArray, path: BankPath
) -> None:
    """Write the estimates of some filters as they are now to the rows of these numbers."""
    if not path.has_statistics:
        path.coef[numbers] = state.theta(filters, kind)
        return
    estimates = state.estimates(filters, kind)
    path.coef[numbers] = estimates.theta
    noise = path.sigma2[numbers]  # as it was made: inf, or the known variance
    sigma2, stderr, fit = state.statistics(filters, kind, estimates, noise)
    for array, part in zip(path.estimates[1:], (sigma2, stderr, *fit), strict=True):
        array[numbers] = part


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
