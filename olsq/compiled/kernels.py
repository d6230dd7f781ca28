"""Numba kernels of one filter, a row a call: the kernels of the forms, put together.

``FormSwitch`` does the same for the estimators, in Python where dense algebra is needed.  Compiled
code cannot go there, so the two steps that it does in NumPy are kernels here: leaving the
covariance form, and reading coefficients.

The usual row is inlined into the caller's loop.  Everything rare is a call left standing, compiled
once for all callers, since its dense algebra takes seconds to compile.

Nothing here raises: an exception inside the user's ``prange`` would end the other iterations of
its thread without a word.  A row that cannot be learned leaves the state as it was, and its
residual is NaN.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.compiled.state import (
    CLOCK,
    FORM,
    HELD,
    LOG_WEIGHTS,
    LOSS,
    N_COUNTS,
    N_TOTALS,
    SEEN,
    SWITCHES,
)
from olsq.kernel import kernel
from olsq.online.forms import covariance_kernels, square_root_kernels
from olsq.online.forms.limits import limits_for
from olsq.online.forms.minimum_norm_kernels import minimum_norm
from olsq.online.forms.triangular_kernels import back_substitute
from olsq.online.many.batch_kernels import take_alone
from olsq.online.many.kernels import (
    COVARIANCE,
    IN_FORM,
    LONGEST_WAIT,
    SQUARE_ROOT,
    TO_RETRY,
    WAIT,
    try_covariance,
)
from olsq.problem import LARGEST

LIMITS = limits_for(np.float64)
COVARIANCE_LIMITS, SQUARE_ROOT_LIMITS = LIMITS.covariance, LIMITS.square_root
GREATEST = LARGEST[np.dtype(np.float64)]  # entries beyond it have squares that overflow
SETTLED = GREATEST * GREATEST
EPS = float(np.finfo(np.float64).eps)
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
    return update_rare(state, y, forget, weight)


@kernel(forceinline=True)
def count_learned(totals, counts, forget, weight):
    """Bring the number of rows learned and the sum of the log weights forward by one row."""
    counts[SEEN] += 1 if weight > 0 else 0
    if weight != 1.0 or totals[LOG_WEIGHTS] != 0.0:
        own = math.log(weight) if weight > 0 else 0.0
        totals[LOG_WEIGHTS] = forget * totals[LOG_WEIGHTS] + own


@kernel(forceinline=True)
def is_learnable(x, y, forget, weight):
    """Whether a row is finite, with squares that cannot overflow, and its factors are valid."""
    largest = abs(y)
    fine = largest <= GREATEST
    for k in range(x.shape[0]):
        size = abs(x[k])
        fine = fine and size <= GREATEST
        largest = max(largest, size)
    if not (fine and 0.0 <= forget <= 1.0 and 0.0 <= weight < math.inf):
        return False
    return math.sqrt(weight) * max(largest, 1.0) <= GREATEST


@kernel()
def update_rare(state, y, forget, weight):
    """Absorb the row in ``scratch`` that the covariance form must not take, or skip it.

    As ``FormSwitch.update`` does for one row: leave the covariance form, learn in square-root
    form, and try to return when the clock says so.
    """
    matrix, coefs, columns, _, totals, counts, scratch = state
    d = matrix.shape[0]
    x = scratch[d : 2 * d]
    if not is_learnable(x, y, forget, weight):
        return math.nan
    tally, loss = totals[:LOSS], totals[LOSS : LOSS + 1]
    X, Y, error = x.copy().reshape(1, d), np.full((1, 1), y), np.empty((1, 1))
    if counts[FORM] == COVARIANCE:
        if covariance_kernels.absorb_row(
            matrix, coefs, columns, tally, loss, x, Y[0], forget, weight, COVARIANCE_LIMITS,
            scratch[:d], error[0],
        ):  # fmt: skip
            counts[ROWS_IN_FORM] += 1
            count_learned(totals, counts, forget, weight)
            return error[0, 0]
        leave_covariance(matrix, coefs, counts)
    gates, weights = np.full(1, forget), np.full(1, weight)
    trace = (
        np.empty((0, 1, d)), np.empty((0, d)), np.empty((0, 1)), np.empty((0, 6)),
        np.empty((0, 1)), np.empty((0, d)),
    )  # fmt: skip
    done, held = square_root_kernels.update(
        matrix, coefs, columns, tally, loss, np.empty((0, 0)), X, Y, gates, weights, 0, 1,
        SQUARE_ROOT_LIMITS, error, trace,
    )  # fmt: skip
    counts[HELD] += held
    if done == 0:  # a reset or a new direction, whose residual needs coefficients
        first = np.zeros(1, np.int64)
        bank = (
            counts[FORM : FORM + 1], matrix.reshape(1, d, d), coefs.reshape(1, 1, d),
            columns.reshape(1, 2, d), tally.reshape(1, 4), loss.reshape(1, 1),
            counts[HELD : HELD + 1], counts[CLOCK:].reshape(1, 3), np.zeros(1, np.int64),
            np.empty((1, 0, 0)),
        )  # fmt: skip
        rows = first, X, Y, gates, weights, np.empty(0, np.bool_)
        settings = COVARIANCE_LIMITS, SQUARE_ROOT_LIMITS, True, False, True
        theta = coefficients(state).reshape(1, 1, d)
        take_alone(bank, first, first, rows, theta, settings, error, np.empty((0, 1)))
    count_learned(totals, counts, forget, weight)
    if counts[SWITCHES] != 0:
        counts[RETRY] -= 1
        if counts[RETRY] == 0:
            try_covariance(counts, FORM, matrix, coefs, columns, counts[CLOCK:], COVARIANCE_LIMITS)
    return error[0, 0]


@kernel()
def leave_covariance(matrix, coefs, counts):
    """Bring P and theta to R and z, and set the clock: ``FormSwitch._leave_covariance`` in place.

    ``square_root_of`` in ``forms/covariance.py`` has the reasons for the spectral decomposition.
    """
    d = matrix.shape[0]
    scale, scaled = np.empty(d), np.empty((d, d))
    for i in range(d):
        scale[i] = math.sqrt(matrix[i, i])
    for i in range(d):
        for k in range(d):
            scaled[i, k] = matrix[i, k] / (scale[i] * scale[k])
    values, vectors = np.linalg.eigh(scaled)
    rows = np.empty((d, d))
    for i in range(d):
        root = math.sqrt(max(values[i], values[d - 1] * EPS))
        for k in range(d):
            rows[i, k] = vectors[k, i] / root / scale[k]
    _, R = np.linalg.qr(rows)
    for i in range(d):
        sign = -1.0 if R[i, i] < 0 else 1.0
        for k in range(d):
            matrix[i, k] = sign * R[i, k] if k >= i else 0.0
    theta = coefs[0].copy()
    for i in range(d):
        total = 0.0
        for k in range(i, d):
            total += matrix[i, k] * theta[k]
        coefs[0, i] = total
    counts[FORM] = SQUARE_ROOT
    waited = counts[WAITS]
    longer = min(2 * waited, LONGEST_WAIT)
    wait = longer if counts[ROWS_IN_FORM] < waited else max(16, 2 * d)
    counts[RETRY] = counts[WAITS] = wait
    counts[ROWS_IN_FORM] = 0


@kernel()
def coefficients(state):
    """The coefficients (d,), of minimum norm where they are undetermined."""
    matrix, coefs, _, _, totals, counts, _ = state
    d = matrix.shape[0]
    theta = np.zeros((1, 1, d))
    if not fits_together(state):
        return theta[0, 0]
    known = np.empty(d, np.bool_)
    full = True
    for j in range(d):
        known[j] = matrix[j, j] != 0
        full = full and known[j]
    if counts[FORM] == COVARIANCE:
        theta[0] = coefs
    elif full:
        back_substitute(matrix, coefs, theta[0])
    else:
        noise = np.full(1, square_root_kernels.noise_level(SQUARE_ROOT_LIMITS, d, totals[:LOSS]))
        minimum_norm(
            matrix.copy().reshape(1, d, d), coefs.copy().reshape(1, 1, d), known, noise, 0, theta
        )
    return theta[0, 0]


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
