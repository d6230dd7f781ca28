"""Numba kernels of one filter, one row per call, composed of the factor's kernels.

``FactorForm`` does the same for the estimators, and reads singular factors in NumPy.  Compiled code
cannot go there: :func:`solve_singular` is a kernel here.

Nothing raises: an exception inside the user's ``prange`` would end the other iterations of its
thread without a word.  A row that cannot be learned leaves the state as it was, and its residual is
NaN.  Shapes are checked by the callers, in :mod:`olsq.compiled.symbols`.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.compiled.state import HELD, LOG_WEIGHTS, LOSS, SEEN
from olsq.kernels import kernel
from olsq.online.forms.counting import DECAY, count_row, noise_level
from olsq.online.forms.factor.careful import take_carefully
from olsq.online.forms.factor.counters import count_squares, row_is_sound
from olsq.online.forms.factor.kernels import absorb_row
from olsq.online.forms.factor.path import is_determined
from olsq.online.forms.factor.solving import solve
from olsq.online.forms.limits import limits_for
from olsq.online.forms.minimum_norm import minimum_norm
from olsq.problem import LARGEST

LIMITS = limits_for(np.float64).square_root
GREATEST = LARGEST[np.dtype(np.float64)]  # entries beyond it have squares that overflow
SETTLED = GREATEST * GREATEST


@kernel(forceinline=True)
def start(state, ridge):
    """Fill a state with its values before any row."""
    factor, pivots, columns, totals, counts = state
    for i in range(pivots.shape[0]):
        pivots[i] = columns[0, i] = columns[1, i] = ridge[i]
        for k in range(factor.shape[1]):
            factor[i, k] = 0.0
        factor[i, i] = 1.0
    totals[:] = 0.0
    totals[DECAY] = 1.0
    counts[:] = 0


@kernel(forceinline=True, makes_arrays=True)
def form_of(state):
    """Return the arrays of a state as the factor's kernels take them."""
    factor, pivots, columns, totals, _ = state
    return factor, pivots, columns, totals[:LOSS], totals[LOSS : LOSS + 1]


@kernel(forceinline=True, makes_arrays=True)
def learn_row(state, scratch, x, y, forget, weight):
    """Absorb the row x (d,), y; return its a-priori residual, NaN where it cannot be learned.

    ``state`` = (factor, pivots, columns, totals, counts).
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
    )
    if usual:
        F, D, columns, tally, loss = form_of(state)
        if row_is_sound(D, columns, x, forget, weight, LIMITS, tally):
            w, error = scratch[: d + 1], scratch[d + 1 :]
            for k in range(d):
                w[k] = x[k]
            w[d] = y
            count_squares(columns, w[:d], forget, weight)  # x may be of another dtype
            absorb_row(F, D, loss, w, forget, weight, error)
            count_row(tally, forget, weight)
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


@kernel(makes_arrays=True)
def learn_rare_row(state, x, y, forget, weight):
    """Absorb a row that needs care, or skip it."""
    _, _, _, totals, counts = state
    if not is_learnable(x, y, forget, weight):
        return math.nan
    d, form, error = x.shape[0], form_of(state), np.empty((1, 1))
    row = np.empty((1, d))
    for k in range(d):
        row[0, k] = x[k]
    rows = row, np.full((1, 1), y), np.full(1, forget), np.full(1, weight)
    start = 0, np.empty((d, d + 1)), np.full(2, -1)
    _, held = take_carefully(form, rows, 0, LIMITS, start, False, error)
    if held < 0:
        theta = np.empty(d)
        read_coefficients(form[0], form[1], totals, theta)
        error[0, 0] = y
        for k in range(d):
            error[0, 0] -= theta[k] * x[k]
        _, held = take_carefully(form, rows, 0, LIMITS, start, True, error)
    counts[HELD] += held
    count_learned(totals, counts, forget, weight)
    return error[0, 0]


@kernel(makes_arrays=True)
def solve_singular(F, D, noise, theta):
    """Solve ``U theta = T`` (d,) with minimum norm where pivots are zero."""
    d = D.shape[0]
    R, z = np.empty((1, d, d)), np.empty((1, 1, d))
    known = np.empty(d, np.bool_)
    for i in range(d):
        root, known[i] = math.sqrt(D[i]), D[i] > 0
        z[0, 0, i] = root * F[i, d]
        for k in range(d):
            R[0, i, k] = root * F[i, k]
    minimum_norm(R, z, known, np.full(1, noise), 0, theta.reshape(1, 1, d))


@kernel(forceinline=True, makes_arrays=True)
def read_coefficients(F, D, totals, theta):
    """Write the coefficients into theta (d,), of minimum norm where they are undetermined."""
    if is_determined(D):
        solve(F, D, theta.reshape(1, theta.shape[0]))
    else:
        solve_singular(F, D, noise_level(LIMITS, D.shape[0], totals[:LOSS]), theta)


@kernel(forceinline=True, makes_arrays=True)
def predict_row(F, D, totals, x):
    """Return the prediction for x (d,); NaN where x has a missing value."""
    d = D.shape[0]
    theta, total = np.empty(d), 0.0
    read_coefficients(F, D, totals, theta)
    for k in range(d):
        total += theta[k] * x[k]
    # only a total that is not finite needs a look at every entry of x
    if not abs(total) < math.inf:
        for k in range(d):
            if not abs(x[k]) < math.inf:
                return math.nan
    return total
