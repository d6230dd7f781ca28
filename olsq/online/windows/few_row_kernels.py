"""Numba kernels of windows of fewer rows than coefficients, without a ridge.

The rows A (w, s), slopes only, are kept as ``A = R^T Q``: Q (w, s) an orthonormal basis of their
space, R upper triangular.  The coefficients of minimum norm, whose residuals are 0, are

    slopes = Q^T b,  b = R^-T (y - c),  the intercept c minimising |b|: no part of the norm

A row that leaves is the first column of R; rotations of the rows of R and Q make what stays
triangular again.  They act on each row of A by itself, so that what a huge row has left behind is
as small as the other rows are.  O(w (w + s)) a row.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.linalg.numpy.rotations import givens
from olsq.online.forms.edges import check_rolling
from olsq.online.forms.square_root_kernels import COUNT, COUNT_SQUARED, DECAY, WEIGHT, record
from olsq.online.forms.start_kernels import DETERMINED
from olsq.online.windows.row_kernels import FILLED, POSITIONS, SLOT, count_leaving, store

# Part of a row that must be outside of the space of the others: what is left of less has lost
# more than a third of its digits.
SMALLEST_PART = 1e-5
FAINTEST_SQUARE = 1e-280  # of a row's length: the squares of its parts must be normal numbers
FREE = DETERMINED**2  # share of a coefficient's direction outside of it, squared
UNMADE = -1  # age of factors that are not those of the rows in the window
REFRESHED_AFTER = 4  # windows of rows: roundings in Q add up, and factors anew cost a quarter


@kernel(forceinline=True)
def project(Q, count, x, p, q):
    """Compute p (count,) and q (s,) with ``x = Q^T p + q``, q orthogonal to Q; return |q| / |x|."""
    s = x.shape[0]
    whole = 0.0
    for k in range(s):
        q[k] = x[k]
        whole += x[k] * x[k]
    for i in range(count):
        p[i] = 0.0
    before = whole
    for _ in range(4):
        for i in range(count):
            row, total = Q[i], 0.0
            for k in range(s):
                total += row[k] * q[k]
            p[i] += total
            for k in range(s):
                q[k] -= total * row[k]
        square = 0.0
        for k in range(s):
            square += q[k] * q[k]
        if square > 0.25 * before:
            break
        before = square
    return math.sqrt(square / whole) if FAINTEST_SQUARE < whole < math.inf else 0.0


@kernel(forceinline=True)
def append(Q, R, count, p, q):
    """Add the row ``Q^T p + q`` as the last one."""
    square = 0.0
    for k in range(q.shape[0]):
        square += q[k] * q[k]
    length = math.sqrt(square)
    for i in range(count):
        R[i, count] = p[i]
    R[count, count] = length
    for k in range(q.shape[0]):
        Q[count, k] = q[k] / length


@kernel(forceinline=True)
def remove_first(Q, R, count, p):
    """Take the first of ``count`` rows out; p (count,) goes on belonging to the rows of Q.

    What was the last row of Q is orthogonal to the rows that stay.
    """
    for k in range(count - 1):
        c, s, pivot = givens(R[k, k + 1], R[k + 1, k + 1])
        R[k, k] = pivot
        for j in range(k + 2, count):
            upper, lower = R[k, j], R[k + 1, j]
            R[k, j - 1] = c * upper + s * lower
            R[k + 1, j] = c * lower - s * upper
        above, below = Q[k], Q[k + 1]
        for j in range(Q.shape[1]):
            upper, lower = above[j], below[j]
            above[j] = c * upper + s * lower
            below[j] = c * lower - s * upper
        p[k], p[k + 1] = c * p[k] + s * p[k + 1], c * p[k + 1] - s * p[k]


@kernel(forceinline=True)
def solve_transposed(R, count, b):
    """Solve ``R^T b = b`` in place."""
    for k in range(count):
        row = R[k]
        b[k] /= row[k]
        factor = b[k]
        for i in range(k + 1, count):
            b[i] -= row[i] * factor


@kernel(forceinline=True)
def solve(R, ring, intercept, b, constants, u):
    """Fill b (m, w) and the intercepts (m,) from the targets in the ring; u = R^-T 1 if wanted."""
    _, ring_Y, _, place = ring
    count, slots = place[FILLED], ring_Y.shape[0]
    first, square = place[SLOT] - count, 0.0
    if intercept:
        for i in range(count):
            u[i] = 1.0
        solve_transposed(R, count, u)
        for i in range(count):
            square += u[i] * u[i]
    for target in range(b.shape[0]):
        for i in range(count):
            b[target, i] = ring_Y[(first + i) % slots, target]
        solve_transposed(R, count, b[target])
        constants[target] = 0.0
        if intercept:
            total = 0.0
            for i in range(count):
                total += u[i] * b[target, i]
            constants[target] = total / square
            for i in range(count):
                b[target, i] -= constants[target] * u[i]


@kernel(forceinline=True)
def factor(Q, R, ring, first, scratch):
    """Factor the rows in the ring; False where one is too close to the space of the others."""
    ring_X, _, ring_w, place = ring
    x, p, q = scratch
    count, slots, s = place[FILLED], ring_X.shape[0], Q.shape[1]
    for i in range(count):
        row = (place[SLOT] - count + i) % slots
        for k in range(s):
            x[k] = ring_X[row, first + k]
        if not (ring_w[row] > 0 and project(Q, i, x, p, q) > SMALLEST_PART):
            return False
        append(Q, R, i, p, q)
    return True


@kernel(forceinline=True)
def nothing_is_determined(Q, count, intercept, u):
    """Test whether every coefficient is free, beyond doubt.

    Slopes are free outside of Q, and with an intercept along ``Q^T u``, which changes all
    predictions by as much as the intercept can make good.
    """
    size = 0.0
    for i in range(count if intercept else 0):
        size += u[i] * u[i]
    for k in range(Q.shape[1]):
        inside, along = 0.0, 0.0
        for i in range(count):
            inside += Q[i, k] * Q[i, k]
        for i in range(count if intercept else 0):
            along += Q[i, k] * u[i]
        if not (1.0 - inside > FREE or along * along > FREE * size):
            return False
    return True


@kernel(forceinline=True)
def record_few(Q, count, ring, solution, trace, t, scratch):
    """Record the coefficients after row t; False where one of them may be determined."""
    _, _, ring_w, place = ring
    b, constants, u = solution
    theta, tally, loss = scratch
    _, diags, _, _, _, _ = trace
    m, d, s = theta.shape[0], theta.shape[1], Q.shape[1]
    first, slots = d - s, ring_w.shape[0]
    if diags.shape[0] > 0:
        if not nothing_is_determined(Q, count, first == 1, u):
            return False
        for k in range(d):
            diags[t, k] = math.inf
    for target in range(m):
        for k in range(s):
            theta[target, first + k] = 0.0
        if first == 1:
            theta[target, 0] = constants[target]
        for i in range(count):
            share = b[target, i]
            for k in range(s):
                theta[target, first + k] += share * Q[i, k]
    tally[WEIGHT] = 0.0
    for i in range(count):
        tally[WEIGHT] += ring_w[(place[SLOT] - 1 - i) % slots]
    tally[COUNT] = tally[COUNT_SQUARED] = count
    record(trace, t, theta, loss, tally, count, 0.0)
    return True


@kernel()
def update(form, factors, window, rows, span, residual, trace):
    """Take the rows of a span into a window whose rows are independent; return the first one left.

    ``window`` and ``rows`` as in ``row_kernels``; the ``form`` is not changed, and has to be made
    anew.  ``factors`` = (Q (w, s), R (w, w), age), age (1,) the number of rows since they were
    made, ``UNMADE`` where they are not those of the rows in the window.  The last row taken is
    without its trace; a row after which a coefficient may be determined is the last.
    """
    check_rolling(form, window, rows, span, residual, trace)
    ring = window[:4]
    ring_X, ring_Y, ring_w, place = ring
    Q, R, age = factors
    (X, Y, weights, leaving), (start, stop) = rows, span
    d, m, slots = X.shape[1], Y.shape[1], ring_X.shape[0]
    most, s = Q.shape
    first, intercept = d - s, s < d
    if not 0 <= first <= 1 or most != min(slots, d - 1) or R.shape != (most, most) or age.size != 1:
        raise ValueError("the shapes of the factors do not fit the window")
    p, q, u, b = np.empty(most), np.empty(s), np.empty(most), np.empty((m, most))
    x, theta, constants = np.empty(s), np.empty((m, d)), np.empty(m)
    tally, loss = np.zeros(4), np.zeros(m)
    tally[DECAY] = 1.0
    for t in range(start, stop):
        count, made = place[FILLED], age[0]
        age[0] = UNMADE  # until the row has been taken
        if not 0 < count <= most:
            return t
        if not 0 <= made < REFRESHED_AFTER * slots:
            if not factor(Q, R, ring, first, (x, p, q)):
                return t
            made = 0
        # The one place that solves: where a call ends must not decide about the last bit.
        solve(R, ring, intercept, b, constants, u)
        if trace is not None:
            scratch, solution = (theta, tally, loss), (b, constants, u)
            if t > start and not record_few(Q, count, ring, solution, trace, t - 1, scratch):
                age[0] = made
                return t
        enters = weights[t] > 0
        out = count_leaving(leaving, t, enters, count, slots)
        if not enters and (out > 0 or place[POSITIONS] != 0):  # moves the window without a sample
            return t
        if count - out + (1 if enters else 0) > most:
            return t
        for k in range(s):
            x[k] = X[t, first + k]
        part = project(Q, count, x, p, q)
        # A row is in the affine hull of the others where it is their sum with shares that sum to 1.
        share, size = 1.0, 1.0
        for i in range(count if intercept else 0):
            share -= p[i] * u[i]
            size += abs(p[i] * u[i])
        if enters and not (
            part > SMALLEST_PART or (intercept and abs(share) > SMALLEST_PART * size)
        ):
            return t
        for target in range(m):
            total = Y[t, target] - constants[target]
            for i in range(count):
                total -= b[target, i] * p[i]
            residual[t, target] = total
            if trace is not None:
                trace[4][t, target] = 0.0
        if enters:
            for _ in range(out):
                remove_first(Q, R, count, p)
                count -= 1
                for k in range(s):
                    q[k] += p[count] * Q[count, k]
            whole, square = 0.0, 0.0
            for k in range(s):
                whole += x[k] * x[k]
                square += q[k] * q[k]
            if out > 0:
                if square > 0.25 * whole:
                    part = math.sqrt(square / whole)
                else:  # what is left of less is not orthogonal enough
                    part = project(Q, count, x, p, q)
            if not part > SMALLEST_PART:
                return t
            append(Q, R, count, p, q)
            store(ring_X, ring_Y, ring_w, place[SLOT], X[t], Y[t], weights[t])
            place[SLOT] = (place[SLOT] + 1) % slots
            place[FILLED] = count + 1
            made += 1
        age[0] = made
    return stop
