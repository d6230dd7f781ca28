"""Learn one row of one filter of a bank.

Learning a row is a microsecond of arithmetic; the general way spends a hundred on checks of
parameters that came out the same for the row before, and on grouping rows by filter.  For one row
those checks are made once, for as long as the parameters and the state are the same objects; what
the row itself can get wrong is checked in the kernel.  A row that is unusual in any way is left to
the general way, unchanged.  Which way a row goes depends on the row, the parameters and the state
alone, so that a state that was saved and loaded goes on with the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.checked import DOUBLE
from olsq.online.calls.one_row import SETTLED
from olsq.online.files import frozen
from olsq.online.files.frozen import Unchanged
from olsq.online.many import decision_kernels
from olsq.online.many.state import BankState

INTEGERS = (int, np.int64)  # of one filter: no bool is among them
NUMBERS = (float, np.float64)


class ShortWay(NamedTuple):
    """Conditions under which rows of a bank take the fast path, with its state now."""

    state: BankState
    unchanged: Unchanged
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
    way = bank.__dict__.get("_checked_parameters")
    if way is None or not way.unchanged.holds(bank, bank._state):
        if "_state" not in bank.__dict__:
            return None
        way = bank._checked_parameters = _short_way_of(bank)
    n = len(way.state)
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


def _short_way_of(bank: Any) -> ShortWay:
    frozen.check(bank, bank._made_with)
    bank._check_parameters()
    state: BankState = bank._state
    shape: tuple[int, ...] = (-1,)  # the shape of no array
    gates = np.atleast_1d(bank._forget(None))
    factors = bank.forget if type(bank.forget) is np.ndarray and bank.half_life is None else None
    fits = factors is None or (
        factors.shape == gates.shape and factors.dtype is DOUBLE and factors.flags.carray
    )
    unchanged = Unchanged.of(bank, state, read_anew=factors)
    if (
        fits
        and not unchanged.changing  # a bank's arrays are large: their content takes long to compare
        and not bank._kind.is_complex
        and bank._dtype == DOUBLE
        and not state.spread.size
    ):
        shape, gates = (bank.n_features_in_,), gates if factors is None else factors
    names = ("factor", "pivots", "columns", "tally", "loss", "seen", "logs", "values")
    target = (bank._n_targets,) if bank._n_targets else ()
    return ShortWay(
        state,
        unchanged,
        shape,
        target,
        gates,
        bank._kind.intercept,
        tuple(getattr(state, name) for name in names),
        bank._kind.limits.square_root,
    )
