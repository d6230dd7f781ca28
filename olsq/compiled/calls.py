"""The functions that compiled code runs: checks of shapes, then a call by symbol."""

from __future__ import annotations

import math

import numpy as np

from olsq.compiled import kernels
from olsq.compiled.state import N_COUNTS, N_TOTALS, State
from olsq.compiled.symbols import addresses, coef_at, predict_at, update_at, view
from olsq.kernels import kernel


@kernel()
def update(state, x, y, forget, weight):
    """Absorb one row x (d,), C-contiguous; return NaN and change nothing if its shape is wrong."""
    d, factor, pivots, columns, _, totals, counts, scratch, row = addresses(state, x)
    if d < 0:
        return math.nan
    return update_at(factor, pivots, columns, totals, counts, scratch, row, d, y, forget, weight)


@kernel()
def predict(state, x):
    """Predict one row x (d,), C-contiguous; return NaN if its shape is wrong."""
    d, factor, pivots, _, _, totals, _, _, row = addresses(state, x)
    if d < 0:
        return math.nan
    return predict_at(factor, pivots, totals, row, d)


# From Python the arrays come one by one: Numba takes 10 microseconds to look at a named tuple.
@kernel()
def update_arrays(factor, pivots, columns, ridge, totals, counts, scratch, x, y, forget, weight):
    """Absorb one row as :func:`update` does, for a state passed as its arrays."""
    state = State(factor, pivots, columns, ridge, totals, counts, scratch)
    return update(state, x, y, forget, weight)


@kernel()
def predict_arrays(factor, pivots, columns, ridge, totals, counts, scratch, x):
    """Predict one row as :func:`predict` does, for a state passed as its arrays."""
    return predict(State(factor, pivots, columns, ridge, totals, counts, scratch), x)


@kernel()
def coef(state):
    """Return the coefficients (d,) as a new array."""
    theta = np.zeros(state.pivots.shape[0])
    d, factor, pivots, _, _, totals, _, _, out = addresses(state, theta)
    if d > 0:
        coef_at(factor, pivots, totals, out, d)
    return theta


@kernel()
def coef_all(states):
    """Return the coefficients (n, d) of n filters."""
    n, d = states.pivots.shape
    theta = np.empty((n, d))
    for i in range(n):
        theta[i] = coef(view(states, i))
    return theta


@kernel(makes_arrays=True)
def state_at(states, i):
    """Return filter i of n as a view."""
    return view(states, i)


@kernel()
def ridge_of_number(d, ridge):
    """Return the ridge (d,) that one number stands for, after checking it."""
    if d < 1:
        raise ValueError("n_features must be at least 1")
    return check_ridge(np.full(d, 1.0 * ridge))


@kernel()
def ridge_of_vector(d, ridge):
    """Return a copy of the ridge (d,) after checking it."""
    if d < 1:
        raise ValueError("n_features must be at least 1")
    if ridge.shape[0] != d:
        raise ValueError("ridge must be a number or one number per feature")
    return check_ridge(ridge.copy())


@kernel(forceinline=True, makes_arrays=True)
def check_ridge(ridge):
    """Raise ValueError for a negative ridge, or one whose square overflows; return it."""
    for value in ridge:
        if not 0.0 <= value <= kernels.SETTLED:
            raise ValueError("ridge must be finite, >= 0 and at most 1e304")
    return ridge


@kernel()
def make_one(d, ridge):
    """Make the state of one filter before any row."""
    state = State(
        np.empty((d, d + 1)),
        np.empty(d),
        np.empty((2, d)),
        ridge.copy(),
        np.empty(N_TOTALS),
        np.empty(N_COUNTS, np.int64),
        np.empty(d + 2),
    )
    factor, pivots, columns, _, totals, counts, _ = state
    kernels.start((factor, pivots, columns, totals, counts), ridge)
    return state


@kernel()
def make_several(n, d, ridge):
    """Make the state of n filters before any row."""
    if n < 1:
        raise ValueError("n must be at least 1")
    states = State(
        np.empty((n, d, d + 1)),
        np.empty((n, d)),
        np.empty((n, 2, d)),
        np.empty((n, d)),
        np.empty((n, N_TOTALS)),
        np.empty((n, N_COUNTS), np.int64),
        np.empty((n, d + 2)),
    )
    for i in range(n):
        factor, pivots, columns, own_ridge, totals, counts, _ = view(states, i)
        for j in range(d):
            own_ridge[j] = ridge[j]
        kernels.start((factor, pivots, columns, totals, counts), ridge)
    return states
