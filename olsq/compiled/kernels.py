"""Numba kernels of one filter, a row a call: the kernels of the forms, put together.

``FormSwitch`` does the same for the estimators.  The usual row is inlined into the caller's loop;
whatever is rare is a call of :mod:`olsq.compiled.rare`.

Nothing here raises: an exception inside the user's ``prange`` would end the other iterations of
its thread without a word.  A row that cannot be learned leaves the state as it was, and its
residual is NaN.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.compiled import rare
from olsq.compiled.rare import COVARIANCE_LIMITS, GREATEST, count_learned
from olsq.compiled.state import CLOCK, FORM, LOSS, N_COUNTS, N_TOTALS, SWITCHES
from olsq.kernel import kernel
from olsq.online.forms import covariance_kernels, square_root_kernels
from olsq.online.many.kernels import COVARIANCE, IN_FORM, SQUARE_ROOT, TO_RETRY, WAIT

SETTLED = GREATEST * GREATEST
RETRY = CLOCK + TO_RETRY  # where ``counts`` has the entries of the clock
WAITS = CLOCK + WAIT
ROWS_IN_FORM = CLOCK + IN_FORM


@kernel(forceinline=True)
def fits_together(state):
    """Whether the arrays of a state have the shapes that its kernels index."""
    matrix, coefs, columns, ridge, totals, counts, scratch = state
    d = matrix.shape[0]
    return (
        (matrix.shape[1] == d) & (coefs.shape[0] == 1) & (coefs.shape[1] == d)
        & (columns.shape[0] == 2) & (columns.shape[1] == d) & (ridge.shape[0] == d)
        & (totals.shape[0] == N_TOTALS) & (counts.shape[0] == N_COUNTS)
        & (scratch.shape[0] == 2 * d + 2)
    )  # fmt: skip


@kernel(forceinline=True)
def start(state, ridge):
    """Fill a state with that before any row, as ``FormSwitch.start`` does."""
    matrix, coefs, columns, own_ridge, totals, counts, scratch = state
    d = matrix.shape[0]
    positive = True
    for i in range(d):
        coefs[0, i] = 0.0
        own_ridge[i] = columns[0, i] = columns[1, i] = ridge[i]
        positive = positive and ridge[i] > 0
        for k in range(d):
            matrix[i, k] = 0.0
        matrix[i, i] = 1.0 / ridge[i]
    totals[:] = 0.0
    totals[square_root_kernels.DECAY] = 1.0
    counts[:] = 0
    scratch[:] = 0.0
    # A ridge too small to invert starts in the square-root form, as no ridge does.
    covariance = positive and covariance_kernels.trusted(matrix, columns, COVARIANCE_LIMITS)
    if not covariance:
        for i in range(d):
            matrix[i, i] = math.sqrt(ridge[i])
    counts[FORM] = COVARIANCE if covariance else SQUARE_ROOT
    counts[SWITCHES] = 1
    counts[RETRY] = counts[WAITS] = 1 if positive else d + max(8, d // 8)


@kernel(forceinline=True)
def update_row(state, x, y, forget, weight):
    """Absorb the row x (d,), y; return its a-priori residual, NaN where it cannot be learned."""
    matrix, coefs, columns, _, totals, counts, scratch = state
    d = matrix.shape[0]
    if not fits_together(state) or x.shape[0] != d:
        return math.nan
    # A copy in the state's own memory: one layout to compile the rest for, whatever x is.
    u, row = scratch[:d], scratch[d : 2 * d]
    squares = y * y
    for k in range(d):
        row[k] = x[k]
        squares += x[k] * x[k]
    usual = (
        (weight * (1.0 + squares) <= SETTLED) & (squares <= SETTLED) & (forget <= 1.0)
        & (weight >= 0.0) & (counts[FORM] == COVARIANCE)
    )  # fmt: skip
    if usual:
        target, error = scratch[2 * d : 2 * d + 1], scratch[2 * d + 1 :]
        target[0] = y
        if covariance_kernels.absorb_row(
            matrix, coefs, columns, totals[:LOSS], totals[LOSS : LOSS + 1], row, target, forget,
            weight, COVARIANCE_LIMITS, u, error,
        ):  # fmt: skip
            counts[ROWS_IN_FORM] += 1
            count_learned(totals, counts, forget, weight)
            return error[0]
    return rare.update(
        matrix.ctypes, coefs.ctypes, columns.ctypes, totals.ctypes, counts.ctypes, row.ctypes, d, y,
        forget, weight,
    )  # fmt: skip


@kernel(forceinline=True)
def coefficients(state):
    """The coefficients (d,), of minimum norm where they are undetermined; a new array."""
    matrix, coefs, _, _, totals, counts, _ = state
    d = matrix.shape[0]
    theta = np.zeros(d)
    if not fits_together(state):
        return theta
    if counts[FORM] == COVARIANCE:
        for k in range(d):
            theta[k] = coefs[0, k]
    else:
        rare.solve(matrix.ctypes, coefs.ctypes, totals.ctypes, d, theta.ctypes)
    return theta


@kernel(forceinline=True)
def predict_row(state, x):
    """The prediction for x (d,); NaN where x has a missing value or another length."""
    matrix, coefs, _, _, _, counts, _ = state
    d = matrix.shape[0]
    if not fits_together(state) or x.shape[0] != d:
        return math.nan
    total = 0.0
    if counts[FORM] == COVARIANCE:
        for k in range(d):
            total += coefs[0, k] * x[k]
    else:
        theta = coefficients(state)
        for k in range(d):
            total += theta[k] * x[k]
    if not abs(total) < math.inf:
        for k in range(d):
            if not abs(x[k]) < math.inf:
                return math.nan
    return total
