"""Learn the rows of a stack of streams: of the filters of a bank, or of one estimator.

Kernels take the rows of every member up to one that needs what they do not compute, coefficients of
minimum norm; those are made here, for all members together, and the kernels go on.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.factor import members as kernels
from olsq.online.forms.factor import snapshots
from olsq.online.forms.factor.careful import WAITING
from olsq.online.forms.factor.snapshots import Snapshots, predict, rows_at_once
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.statistics import Turns

if TYPE_CHECKING:
    from olsq.online.forms.factor.form import FactorForm


class Stack(NamedTuple):
    """States of streams, streams first, and how they are read.

    ``arrays`` are those of :mod:`.members`.  ``theta(members)`` returns the coefficients (b, m, k)
    of some streams; ``like()`` is a form that has what they share.
    """

    arrays: tuple[Any, ...]
    limits: tuple[float, float, float]
    intercept: bool
    theta: Callable[[NDArray[np.int64]], NDArray[np.float64]]
    like: Callable[[], FactorForm]


# Of one stream NumPy's calls cost more than a row: these are the cheap ones.
FIRST, NOBODY = np.zeros(1, np.int64), np.zeros(0, np.int64)


class KeptStack:
    """A stack of one, kept for as long as its stream has the same arrays; no part of copies."""

    __slots__ = "_arrays", "_stack"

    def __init__(self) -> None:
        self._arrays: tuple[Any, ...] = ()
        self._stack: Stack | None = None

    def of(self, arrays: tuple[Any, ...], make: Callable[[], Stack]) -> Stack:
        """Return ``make()``, made anew if one of the arrays is another than before."""
        if self._stack is None or not all(map(is_, arrays, self._arrays)):
            self._arrays, self._stack = arrays, make()
        return self._stack

    def __deepcopy__(self, memo: Any) -> KeptStack:
        return KeptStack()

    def __reduce__(self) -> tuple[type[KeptStack], tuple[()]]:
        return KeptStack, ()


def alone(start: int, stop: int) -> Turns:
    """Return the turns of a stack of one."""
    return FIRST, np.arange(start, start + 1), np.arange(stop, stop + 1)


def with_rows_left(turns: Turns) -> Turns:
    """Return the turns of the members that have rows left: the same arrays, if all have some."""
    members, position, ends = turns
    if members.size == 1:
        return turns if position[0] < ends[0] else (NOBODY, NOBODY, NOBODY)
    stopped = position < ends
    return turns if stopped.all() else (members[stopped], position[stopped], ends[stopped])


def learn(stack: Stack, turns: Turns, rows: Rows, residual: NDArray[np.float64]) -> None:
    """Learn the rows of all members; members stop where care is needed, and go on together."""
    plain = tuple(rows)
    while turns[0].size:
        kernels.learn(stack.arrays, turns, plain, stack.limits, residual)
        turns = with_rows_left(turns)
        if turns[0].size:
            take_carefully(stack, turns, rows, residual)
            turns = with_rows_left(turns)


def learn_path(
    stack: Stack, turns: Turns, rows: Rows, residual: NDArray[np.float64], trace: Trace
) -> None:
    """Do :func:`learn`, and write the states after the rows to a trace."""
    arrays, plain, out = stack.arrays, tuple(rows), (residual, tuple(trace))

    def with_care(turn: Turns, *after: Any) -> None:
        how = stack.limits, stack.intercept, *out
        kernels.learn_path_carefully(arrays, turn, plain, *how, after)

    while turns[0].size:
        kernels.learn_path(arrays, turns, plain, stack.limits, *out)
        turns = with_rows_left(turns)
        if turns[0].size:
            take_path_carefully(stack, turns, rows, residual, trace, with_care)
            turns = with_rows_left(turns)


def take_carefully(
    stack: Stack, turns: Turns, rows: Rows, residual: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Learn rows of members while their states are not sound, and move their positions on.

    Returns the shares (b,) of the last rows in their recursive residuals.
    """
    (members, position, ends), plain = turns, tuple(rows)
    shares, how = np.empty(members.size), (stack.limits, stack.intercept, residual)
    kernels.learn_carefully(stack.arrays, turns, plain, *how, shares)
    left = shares == WAITING
    if not left.any():
        return shares
    shares[left] = 0.0  # their directions are new
    at = position[left]
    residual[at] = rows.Y[at] - predict(stack.theta(members[left]), rows.X[at])
    kernels.take_known(stack.arrays, (members[left], at, ends[left]), plain, *how)
    position[left] = at
    return shares


def take_path_carefully(
    stack: Stack,
    turns: Turns,
    rows: Rows,
    residual: NDArray[np.float64],
    trace: Trace,
    absorb: Callable[[Turns, Any, NDArray[np.bool_]], None],
) -> None:
    """Do :func:`take_carefully` for rows of a path, which a kernel absorbs.

    ``absorb(turns, snapshots, known)`` does, as :func:`.members.learn_path_carefully`.
    """
    members, position, ends = turns
    like, b = stack.like(), members.size
    m, k = like.loss.shape[-1], like.D.shape[-1]
    states = Snapshots.empty(b * rows_at_once(k, b), m, k, like.spread.size > 0)
    left, lacking = np.arange(b), np.zeros(b, np.bool_)
    while left.size:
        states.at.fill(-1)
        begins, at = position[left], position[left]
        absorb((members[left], at, ends[left]), tuple(states), lacking)
        snapshots.read(states, trace, like)
        position[left] = at
        # Read from the state, as in a call that begins here: by the basis bits may differ.
        was_read = ((at > begins) & np.isin(at - 1, states.at))[lacking]
        left, at, lacking = left[lacking], at[lacking], lacking[lacking]
        before = trace.coef[at - 1]
        if not was_read.all():
            before[~was_read] = stack.theta(members[left[~was_read]])
        residual[at] = rows.Y[at] - predict(before, rows.X[at])
