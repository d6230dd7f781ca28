"""Numba kernels of the square-root form: R upper triangular, ``R^T R`` the information matrix.

Each row is rotated into R with d Givens rotations (QRD-RLS; Golub & Van Loan 6.5, Haykin ch. 15).
``z`` (m, d) holds the rotated targets, so that ``R theta_l = z_l``.  A zero pivot R_jj means
that nothing is known yet about coefficient j given the ones before it; such a row of R is zero.

``tally`` = [sum of forgotten row counts, the same with squared weights, product of all gates,
reference level of the information], ``loss`` (m,) the minimised objective.
Kernels trust their arguments; they are checked at the public edge.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

# No "nnan"/"ninf": a test for finiteness must mean what it says.
FAST = {"reassoc", "contract", "nsz", "arcp"}
COUNT, COUNT_SQUARED, DECAY, REFERENCE = 0, 1, 2, 3
RANK = 3  # in a trace the last entry is the rank instead of the reference


@njit(cache=True, fastmath=FAST, nogil=True)
def forward_solve(R, x, p, colsq, tolerance):
    """Solve ``R^T p = x`` in place (x is destroyed), skipping zero pivots.

    Returns the first zero pivot j whose remaining x_j exceeds rounding level (the row points in
    a direction never seen before), or -1 if x lies in the row space of R.
    """
    d = R.shape[0]
    size = 0.0
    new = -1
    for j in range(d):
        pivot = R[j, j]
        if pivot == 0:
            p[j] = 0
            bound = tolerance * (abs(x[j]) + math.sqrt(size * colsq[j]))
            if new < 0 and abs(x[j]) > bound:
                new = j
            continue
        pj = x[j] / pivot
        p[j] = pj
        size += float(pj) * float(pj)
        tail, row = x[j + 1 :], R[j, j + 1 :]
        for k in range(tail.shape[0]):
            tail[k] -= pj * row[k]
    return new


@njit(cache=True, fastmath=FAST, nogil=True)
def rotate(R, z, x, y, root_gate, skip_below):
    """Scale R, z by root_gate and rotate the row (x, y) into them; x and y are destroyed.

    What remains in y is the row's component orthogonal to the columns (its square is the
    increase of the loss).  At a zero pivot an x_j of at most skip_below[j] is rounding noise.
    """
    d, m = R.shape[0], z.shape[0]
    one = R.dtype.type
    for j in range(d):
        pivot = float(R[j, j]) * root_gate
        xj = float(x[j])
        if xj == 0 or (pivot == 0 and abs(xj) <= skip_below[j]):
            x[j] = 0
            if root_gate != 1:
                scale = one(root_gate)
                for k in range(j, d):
                    R[j, k] *= scale
                for target in range(m):
                    z[target, j] *= scale
            continue
        length = math.hypot(pivot, xj)
        c64 = pivot / length
        s64 = xj / length
        c, s = one(c64), one(s64)
        cg, sg = one(c64 * root_gate), one(s64 * root_gate)
        R[j, j] = one(length)
        tail, row = x[j + 1 :], R[j, j + 1 :]
        for k in range(tail.shape[0]):
            old, new = row[k], tail[k]
            row[k] = cg * old + s * new
            tail[k] = c * new - sg * old
        for target in range(m):
            old = z[target, j]
            z[target, j] = cg * old + s * y[target]
            y[target] = c * y[target] - sg * old


@njit(cache=True, fastmath=FAST, nogil=True)
def back_substitute(R, z, theta):
    """Solve ``R theta_l = z_l`` for every target, with theta_j = 0 at zero pivots."""
    d, m = R.shape[0], z.shape[0]
    for target in range(m):
        for i in range(d - 1, -1, -1):
            pivot = R[i, i]
            if pivot == 0:
                theta[target, i] = 0
                continue
            total = z[target, i]
            row, known = R[i, i + 1 :], theta[target, i + 1 :]
            for k in range(known.shape[0]):
                total -= row[k] * known[k]
            theta[target, i] = total / pivot


@njit(cache=True, fastmath=FAST, nogil=True)
def keep_determined(R, z, colsq, pin, theta, x, y, skip_below):
    """Hold coefficients that forgetting is about to push below rounding level.

    Where R_jj has shrunk to ``pin`` times its column's length, the observation "coefficient j
    has its present value" is added with just enough weight to lift R_jj to twice that level
    (stabilised forgetting).  Its residual is zero, so no coefficient moves.  Returns how many.
    """
    d, m = R.shape[0], z.shape[0]
    count = 0
    for j in range(d):
        level = pin * math.sqrt(colsq[j])
        if R[j, j] == 0 or abs(R[j, j]) >= level:
            continue
        back_substitute(R, z, theta)
        x[:] = 0
        x[j] = 2 * level
        for target in range(m):
            y[target] = x[j] * theta[target, j]
        rotate(R, z, x, y, 1.0, skip_below)
        count += 1
    return count


@njit(cache=True, fastmath=FAST, nogil=True)
def effective_gate(gate, colsq, tally, floor):
    """The gate, or 1 where the whole information would sink below ``floor`` x its reference.

    Only an absence of any excitation gets there; forgetting on would end in underflow.
    A gate of exactly 0 is a reset, and is obeyed.
    """
    if gate == 0 or gate == 1:
        return gate
    largest = colsq.max()
    if largest > 0 and gate * largest < floor * tally[REFERENCE]:
        return 1.0
    return gate


@njit(cache=True, fastmath=FAST, nogil=True)
def count_row(tally, gate, weight):
    """Update the counts of forgotten rows and the product of gates."""
    seen = 1.0 if weight > 0 else 0.0
    tally[COUNT] = gate * tally[COUNT] + seen
    tally[COUNT_SQUARED] = gate * gate * tally[COUNT_SQUARED] + seen
    tally[DECAY] *= gate


@njit(cache=True, fastmath=FAST, nogil=True)
def inverse_diagonal(R, out):
    """Diagonal of ``(R^T R)^-1`` by one triangular inverse; all pivots must be nonzero."""
    d = R.shape[0]
    column = np.empty(d)
    out[:] = 0
    for j in range(d):
        for i in range(j, -1, -1):
            total = 1.0 if i == j else 0.0
            for k in range(i + 1, j + 1):
                total -= R[i, k] * column[k]
            column[i] = total / R[i, i]
            out[i] += column[i] * column[i]


@njit(cache=True, fastmath=FAST, nogil=True)
def absorb(
    R, z, colsq, tally, loss, row, target_row, gate, weight, pin, floor, x, y, theta, skip_below
):
    """Forget, rotate one row in, and hold what would otherwise be lost; returns rows held."""
    d, m = R.shape[0], z.shape[0]
    gate = effective_gate(gate, colsq, tally, floor)
    root_weight = R.dtype.type(math.sqrt(weight))
    excited = False
    for k in range(d):
        x[k] = root_weight * row[k]
        excited = excited or x[k] != 0
        colsq[k] = gate * colsq[k] + float(x[k]) * float(x[k])
    for target in range(m):
        y[target] = root_weight * target_row[target]
    rotate(R, z, x, y, math.sqrt(gate), skip_below)
    for target in range(m):
        loss[target] = gate * loss[target] + float(y[target]) * float(y[target])
    count_row(tally, gate, weight)
    if excited:
        tally[REFERENCE] = colsq.max()
    if gate < 1:
        return keep_determined(R, z, colsq, pin, theta, x, y, skip_below)
    return 0


@njit(cache=True, fastmath=FAST, nogil=True)
def update(R, z, colsq, tally, loss, X, Y, gates, weights, start, stop, limits, residual, trace):
    """Absorb rows start..stop; return (first row not absorbed, number of coefficients held).

    ``limits`` = (tolerance for a new direction, pin level, floor of the information).
    ``residual`` (n, m) receives the a-priori errors ``y - z . R^-T x``.
    ``trace`` is an ``olsq.online.rows.Trace`` as a plain tuple; empty arrays: not wanted.
    Stops before a row whose treatment needs minimum-norm coefficients (a new direction, a reset,
    or a trace while some coefficient is undetermined): the caller takes that row alone.
    """
    d, m = R.shape[0], z.shape[0]
    coefs, diags, losses, counts, recursive = trace
    traced = coefs.shape[0] > 0
    tolerance, pin, floor = limits
    p, x, y = np.empty(d, R.dtype), np.empty(d, R.dtype), np.empty(m, R.dtype)
    theta = np.empty((m, d), R.dtype)
    skip_below = np.zeros(d)
    held = 0
    for t in range(start, stop):
        full = True
        for j in range(d):
            full = full and R[j, j] != 0
        if gates[t] == 0 or (traced and not full):
            return t, held
        x[:] = X[t]
        if forward_solve(R, x, p, colsq, tolerance) >= 0:
            return t, held
        for target in range(m):
            total = Y[t, target]
            for k in range(d):
                total -= z[target, k] * p[k]
            residual[t, target] = total
        if traced:
            leverage = 0.0
            for k in range(d):
                leverage += float(p[k]) * float(p[k])
            spread = weights[t] * gates[t] / (gates[t] + weights[t] * leverage)
            for target in range(m):
                recursive[t, target] = residual[t, target] * math.sqrt(spread)
        # The row lies in the row space: at a zero pivot only rounding noise can be left.
        skip_below[:] = 0.0 if full else math.inf
        held += absorb(
            R, z, colsq, tally, loss, X[t], Y[t], gates[t], weights[t], pin, floor, x, y, theta,
            skip_below,
        )  # fmt: skip
        if traced:
            back_substitute(R, z, theta)
            coefs[t] = theta
            inverse_diagonal(R, diags[t])
            losses[t] = loss
            counts[t] = tally
            counts[t, RANK] = d
    return stop, held
