"""Numba kernels of one filter, one row per call, composed of the kernels of the forms.

``FormSwitch`` does the same for the estimators, and solves singular factors in NumPy.  Compiled
code cannot go there: :func:`solve_factor` is a kernel here.

Nothing raises: an exception inside the user's ``prange`` would end the other iterations of its
thread without a word.  A row that cannot be learned leaves the state as it was, and its residual is
NaN.  Shapes are checked by the callers, in :mod:`olsq.compiled.symbols`.
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
    SEEN,
    SWITCHES,
)
from olsq.kernels import kernel
from olsq.online.forms import covariance_kernels
from olsq.online.forms.covariance_kernels import (
    COVARIANCE,
    IN_FORM,
    SQUARE_ROOT,
    TO_RETRY,
    WAIT,
    predicted,
)
from olsq.online.forms.limits import limits_for
from olsq.online.forms.minimum_norm import minimum_norm
from olsq.online.forms.square_root_kernels import DECAY, absorb, absorb_alone, noise_level
from olsq.online.forms.triangular_kernels import back_substitute, forward_solve
from olsq.problem import LARGEST

LIMITS = limits_for(np.float64)
COVARIANCE_LIMITS, SQUARE_ROOT_LIMITS = LIMITS.covariance, LIMITS.square_root
GREATEST = LARGEST[np.dtype(np.float64)]  # entries beyond it have squares that overflow
SETTLED = GREATEST * GREATEST
RETRY = CLOCK + TO_RETRY  # where ``counts`` has the entries of the clock
WAITS = CLOCK + WAIT
ROWS_IN_FORM = CLOCK + IN_FORM


@kernel(forceinline=True)
def start(state, ridge):
    """Fill a state with its values before any row, as ``FormSwitch.start`` does."""
    matrix, coefs, columns, totals, counts = state
    d = matrix.shape[0]
    positive = True
    for i in range(d):
        coefs[0, i] = 0.0
        columns[0, i] = columns[1, i] = ridge[i]
        positive = positive and ridge[i] > 0
        for k in range(d):
            matrix[i, k] = 0.0
        matrix[i, i] = 1.0 / ridge[i]
    totals[:] = 0.0
    totals[DECAY] = 1.0
    counts[:] = 0
    # A ridge too small to invert starts in the square-root form, as no ridge does.
    covariance = positive and covariance_kernels.trusted(matrix, columns, COVARIANCE_LIMITS)
    if not covariance:
        for i in range(d):
            matrix[i, i] = math.sqrt(ridge[i])
    counts[FORM] = COVARIANCE if covariance else SQUARE_ROOT
    counts[SWITCHES] = 1
    counts[RETRY] = counts[WAITS] = 1 if positive else covariance_kernels.rows_to_determine(d)


@kernel(forceinline=True, makes_arrays=True)
def form_of(state):
    """Return the arrays of a state as the forms' kernels take them."""
    matrix, coefs, columns, totals, _ = state
    return matrix, coefs, columns, totals[:LOSS], totals[LOSS : LOSS + 1]


@kernel(forceinline=True, makes_arrays=True)
def learn_row(state, scratch, x, y, forget, weight):
    """Absorb the row x (d,), y; return its a-priori residual, NaN where it cannot be learned.

    ``state`` = (matrix, coefs, columns, totals, counts).
    """
    _, _, _, totals, counts = state
    d = x.shape[0]
    squares = y * y
    for k in range(d):
        squares += x[k] * x[k]
    # one test for the usual row, without branches: anything else takes the slow path below
    usual = (
        (weight * (1.0 + squares) <= SETTLED)
        & (squares <= SETTLED)
        & (forget <= 1.0)
        & (weight >= 0.0)
        & (counts[FORM] == COVARIANCE)
    )
    if usual:
        target, error = scratch[d : d + 1], scratch[d + 1 :]
        target[0] = y
        innovation = covariance_kernels.absorb_row(
            form_of(state), x, target, forget, weight, COVARIANCE_LIMITS, scratch[:d], error
        )
        if innovation > 0:
            counts[ROWS_IN_FORM] += 1
            count_learned(totals, counts, forget, weight)
            return error[0]
    return learn_rare_row(state, x, y, forget, weight)


@kernel(forceinline=True)
def count_learned(totals, counts, forget, weight):
    """Count one row learned, and update the forgotten sum of the log weights."""
    counts[SEEN] += 1 if weight > 0 else 0
    # with weights of 1 the sum stays 0, and a logarithm per row is saved
    if weight != 1.0 or totals[LOG_WEIGHTS] != 0.0:
        log_weight = math.log(weight) if weight > 0 else 0.0
        totals[LOG_WEIGHTS] = forget * totals[LOG_WEIGHTS] + log_weight


@kernel(forceinline=True)
def is_learnable(x, y, forget, weight):
    """Test whether a row is finite, with squares that cannot overflow and valid factors."""
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
def learn_rare_row(state, x, y, forget, weight):
    """Absorb a row that the covariance form must not take, or skip it.

    As ``FormSwitch.update`` does for one row: leave the covariance form, learn in square-root
    form, return when the clock says so.
    """
    _, _, _, totals, counts = state
    if not is_learnable(x, y, forget, weight):
        return math.nan
    form, clock = form_of(state), counts[CLOCK:]
    target, error = np.full(1, y), np.empty(1)
    if counts[FORM] == COVARIANCE:
        innovation = covariance_kernels.absorb_row(
            form, x, target, forget, weight, COVARIANCE_LIMITS, np.empty(x.shape[0]), error
        )
        if innovation > 0:
            clock[IN_FORM] += 1
            count_learned(totals, counts, forget, weight)
            return error[0]
        covariance_kernels.leave(form, clock)
        counts[FORM] = SQUARE_ROOT
    counts[HELD] += absorb_in_square_root(form, x, target, forget, weight, error)
    count_learned(totals, counts, forget, weight)
    if counts[SWITCHES] != 0 and covariance_kernels.retry(form, clock, 1, COVARIANCE_LIMITS):
        counts[FORM] = COVARIANCE
    return error[0]


@kernel(forceinline=True)
def absorb_in_square_root(form, x, y, forget, weight, error):
    """Absorb one row as ``SquareRootForm`` does, also new directions and resets.

    ``error`` (1,) receives its residual.  Returns how many coefficients were held.
    """
    R, z, columns, tally, _ = form
    d, limits = x.shape[0], SQUARE_ROOT_LIMITS
    p, rest, noise = np.empty(d), x.copy(), np.empty(d)
    for k in range(d):
        noise[k] = abs(x[k])
    level = noise_level(limits, d, tally)
    new = forward_solve(R, rest, p, columns, level, noise)
    error[0] = y[0]
    theta = np.empty((1, d))
    if forget > 0 and new < 0:
        for k in range(d):
            error[0] -= z[0, k] * p[k]
        scratch = noise, rest, np.empty(1), theta
        return absorb(form, x, y, forget, weight, limits, scratch)
    solve_factor(R, z, level, theta)
    for k in range(d):
        error[0] -= theta[0, k] * x[k]
    _, held = absorb_alone(form, np.empty((0, 0)), x, y, forget, weight, limits)
    return held


@kernel(forceinline=True)
def solve_factor(R, z, noise, theta):
    """Solve ``R theta = z`` (1, d), with minimum norm where pivots are zero."""
    d = R.shape[0]
    known, full = np.empty(d, np.bool_), True
    for j in range(d):
        known[j] = R[j, j] != 0
        full = full and known[j]
    if full:
        back_substitute(R, z, theta)
    else:
        minimum_norm(
            R.copy().reshape(1, d, d),
            z.copy().reshape(1, 1, d),
            known,
            np.full(1, noise),
            0,
            theta.reshape(1, 1, d),
        )


@kernel(forceinline=True)
def read_coefficients(matrix, coefs, totals, counts, theta):
    """Write the coefficients into theta (d,), of minimum norm where they are undetermined."""
    d = matrix.shape[0]
    if counts[FORM] == COVARIANCE:
        for k in range(d):
            theta[k] = coefs[0, k]
    else:
        level = noise_level(SQUARE_ROOT_LIMITS, d, totals[:LOSS])
        solve_factor(matrix, coefs, level, theta.reshape(1, d))


@kernel(forceinline=True)
def predict_row(matrix, coefs, totals, counts, x):
    """Return the prediction for x (d,); NaN where x has a missing value."""
    d = matrix.shape[0]
    if counts[FORM] == COVARIANCE:
        total = predicted(coefs[0], x, False)
    else:
        theta = np.empty(d)
        read_coefficients(matrix, coefs, totals, counts, theta)
        total = predicted(theta, x, False)
    # only a total that is not finite needs a look at every entry of x
    if not abs(total) < math.inf:
        for k in range(d):
            if not abs(x[k]) < math.inf:
                return math.nan
    return total
