"""The kernels that Python calls, of whole states."""

from __future__ import annotations

import numpy as np

from olsq.compiled import kernels
from olsq.compiled.state import N_COUNTS, N_TOTALS, State
from olsq.kernel import kernel


@kernel(forceinline=True)
def view(states, i):
    """Filter i of n; of no coefficients where there is none."""
    matrix, coefs, columns, ridge, totals, counts, scratch = states
    n = matrix.shape[0]
    at = i + n if i < 0 else i
    inside = (at >= 0) & (at < n)
    # All filters' memory must be there, since indices are not checked.
    inside &= (coefs.shape[0] == n) & (columns.shape[0] == n) & (ridge.shape[0] == n)
    inside &= (totals.shape[0] == n) & (counts.shape[0] == n) & (scratch.shape[0] == n)
    if not inside:
        at = 0
    rows = matrix.shape[1] if inside else 0
    return State(
        matrix[at][:rows], coefs[at], columns[at], ridge[at], totals[at], counts[at], scratch[at]
    )


@kernel()
def ridge_of_number(n_features, ridge):
    """The ridge (d,) that one number means; a checked one."""
    if n_features < 1:
        raise ValueError("n_features must be at least 1")
    return check_ridge(np.full(n_features, float(ridge)))


@kernel()
def ridge_of_vector(n_features, ridge):
    """A copy of the ridge (d,), checked."""
    if n_features < 1:
        raise ValueError("n_features must be at least 1")
    if ridge.shape[0] != n_features:
        raise ValueError("ridge must be a number or one number per feature")
    return check_ridge(ridge.copy())


@kernel(forceinline=True)
def check_ridge(ridge):
    """Raise ValueError for a negative ridge, or one whose square overflows; return it."""
    for value in ridge:
        if not 0.0 <= value <= kernels.SETTLED:
            raise ValueError("ridge must be finite, >= 0 and at most 1e304")
    return ridge


@kernel()
def make_one(d, ridge):
    """A new state of one filter before any row."""
    state = State(
        np.empty((d, d)), np.empty((1, d)), np.empty((2, d)), np.empty(d), np.empty(N_TOTALS),
        np.empty(N_COUNTS, np.int64), np.empty(2 * d + 2),
    )  # fmt: skip
    kernels.start(state, ridge)
    return state


@kernel()
def make_several(n, d, ridge):
    """A new state of n filters before any row."""
    if n < 1:
        raise ValueError("n must be at least 1")
    states = State(
        np.empty((n, d, d)), np.empty((n, 1, d)), np.empty((n, 2, d)), np.empty((n, d)),
        np.empty((n, N_TOTALS)), np.empty((n, N_COUNTS), np.int64), np.empty((n, 2 * d + 2)),
    )  # fmt: skip
    for i in range(n):
        kernels.start(view(states, i), ridge)
    return states


@kernel()
def update(state, x, y, forget, weight):
    """Absorb one row."""
    return kernels.update_row(state, x, y, forget, weight)


@kernel()
def predict(state, x):
    """Predict one row."""
    return kernels.predict_row(state, x)


@kernel()
def coef(state):
    """The coefficients (d,)."""
    return kernels.coefficients(state)


@kernel()
def coef_all(states):
    """The coefficients (n, d) of n filters."""
    n, d = states.matrix.shape[:2]
    theta = np.empty((n, d))
    for i in range(n):
        theta[i] = kernels.coefficients(view(states, i))
    return theta
