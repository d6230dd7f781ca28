"""Numba kernels of the square-root form: R upper triangular, ``R^T R`` the information matrix.

Each row is rotated into R with d Givens rotations (QRD-RLS; Golub & Van Loan 6.5, Haykin ch. 15).
``z`` (m, d) holds the rotated targets, so that ``R theta_l = z_l``.  A zero pivot R_jj means
that nothing is known yet about coefficient j given the ones before it; such a row of R is zero.

``columns`` (2, d) holds the squared lengths of R's columns (the diagonal of the information) and
their values when the column last saw a nonzero regressor; ``tally`` = [forgotten count of rows, the
same with squared weights, product of all gates]; ``loss`` (m,) the minimised objective.
Kernels trust their arguments; they are checked at the public edge.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

# No "nnan"/"ninf": a test for finiteness must mean what it says.
FAST = {"reassoc", "contract", "nsz", "arcp"}
COUNT, COUNT_SQUARED, DECAY = 0, 1, 2
RANK = 3  # a trace's row of counts has the rank as its fourth entry


@njit(cache=True, fastmath=FAST, nogil=True)
def forward_solve(R, x, p, columns, tolerance, noise):
    """Solve ``R^T p = x`` in place (x is destroyed), skipping zero pivots.

    ``noise`` (d,) receives the size under which what is left of x_j, once the directions before j
    are taken out, is rounding error: ``tolerance (|x_j| + |p_<j| |R_:j|)``.  Returns the first
    zero pivot whose x_j is above that (the row points in a direction never seen before), or -1.
    """
    d = R.shape[0]
    size = 0.0
    new = -1
    for j in range(d):
        noise[j] = tolerance * (noise[j] + math.sqrt(size * columns[0, j]))
        pivot = R[j, j]
        if pivot == 0:
            p[j] = 0
            if new < 0 and abs(x[j]) > noise[j]:
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
def rotate(R, z, x, y, root_gate, noise):
    """Scale R, z by root_gate and rotate the row (x, y) into them; x and y are destroyed.

    What remains in y is the row's component orthogonal to the columns (its square is the
    increase of the loss).  An x_j below ``noise[j]`` times the part of the row not yet absorbed
    is rounding error and is dropped: else a collinear stream would regress y on that error.
    """
    d, m = R.shape[0], z.shape[0]
    one = R.dtype.type
    unabsorbed = 1.0
    for j in range(d):
        xj = float(x[j])
        if abs(xj) <= noise[j] * unabsorbed:
            x[j] = 0
            if root_gate != 1:
                scale = one(root_gate)
                row = R[j, j:]
                for k in range(row.shape[0]):
                    row[k] *= scale
                for target in range(m):
                    z[target, j] *= scale
            continue
        pivot = float(R[j, j]) * root_gate
        length = math.hypot(pivot, xj)
        c64 = pivot / length
        s64 = xj / length
        unabsorbed *= c64
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
def keep_determined(R, z, columns, pin, floor, theta, x, y, noise):
    """Hold coefficients that forgetting is about to lose (stabilised forgetting).

    Where R_jj has shrunk to ``pin`` times its column's length, or the column itself to ``floor``
    of its squared length at the last excitation, the observation "coefficient j has its present
    value" is added with just enough weight to double that level.  Its residual is zero, so no
    coefficient moves.  Returns how many were held.
    """
    d, m = R.shape[0], z.shape[0]
    count = 0
    for j in range(d):
        level = math.sqrt(max(pin * pin * columns[0, j], floor * columns[1, j]))
        if R[j, j] == 0 or abs(R[j, j]) >= level:
            continue
        back_substitute(R, z, theta)
        x[:] = 0
        x[j] = 2 * level
        for target in range(m):
            y[target] = x[j] * theta[target, j]
        columns[0, j] += float(x[j]) * float(x[j])
        noise[:] = 0
        rotate(R, z, x, y, 1.0, noise)
        count += 1
    return count


@njit(cache=True, fastmath=FAST, nogil=True)
def add_square(columns, k, gate, square):
    """Bring column k's squared length forward by one row."""
    columns[0, k] = gate * columns[0, k] + square
    if square > 0:
        columns[1, k] = columns[0, k]


@njit(cache=True, fastmath=FAST, nogil=True)
def count_row(tally, gate, weight):
    """Update the counts of forgotten rows and the product of gates."""
    seen = 1.0 if weight > 0 else 0.0
    tally[COUNT] = gate * tally[COUNT] + seen
    tally[COUNT_SQUARED] = gate * gate * tally[COUNT_SQUARED] + seen
    tally[DECAY] *= gate


@njit(cache=True, fastmath=FAST, nogil=True)
def inverse_diagonal(R, inverse, out):
    """Diagonal of ``(R^T R)^-1``: squared row lengths of the triangular inverse.

    All pivots must be nonzero; ``inverse`` (d, d) is scratch.  Rows are combined whole, from the
    last upwards, so that the inner loops run along memory.
    """
    d = R.shape[0]
    for i in range(d - 1, -1, -1):
        row = inverse[i, i:]
        row[:] = 0
        for k in range(i + 1, d):
            factor = R[i, k]
            below, part = inverse[k, k:], inverse[i, k:]
            for j in range(below.shape[0]):
                part[j] -= factor * below[j]
        scale = 1 / R[i, i]
        row[0] = 1
        total = 0.0
        for j in range(row.shape[0]):
            row[j] *= scale
            total += float(row[j]) * float(row[j])
        out[i] = total


@njit(cache=True, fastmath=FAST, nogil=True)
def absorb(R, z, columns, tally, loss, row, targets, gate, weight, limits, noise, x, y, theta):
    """Forget, rotate one row in, and hold what would otherwise be lost; returns how many held."""
    d, m = R.shape[0], z.shape[0]
    root_weight = math.sqrt(weight)
    for k in range(d):
        x[k] = root_weight * row[k]
        add_square(columns, k, gate, float(x[k]) * float(x[k]))
        noise[k] *= root_weight
    for target in range(m):
        y[target] = root_weight * targets[target]
    rotate(R, z, x, y, math.sqrt(gate), noise)
    for target in range(m):
        loss[target] = gate * loss[target] + float(y[target]) * float(y[target])
    count_row(tally, gate, weight)
    if gate < 1:
        pin = 4 * noise_level(limits[0], tally)
        return keep_determined(R, z, columns, pin, limits[1], theta, x, y, noise)
    return 0


@njit(cache=True, fastmath=FAST, nogil=True)
def noise_level(base, tally):
    """Relative rounding error of R: one rounding a row, adding up like a random walk."""
    return base * math.sqrt(1.0 + tally[COUNT])


@njit(cache=True, fastmath=FAST, nogil=True)
def update(R, z, columns, tally, loss, X, Y, gates, weights, start, stop, limits, residual, trace):
    """Absorb rows start..stop; return (first row not absorbed, number of coefficients held).

    ``limits`` = (rounding error of one row, floor of a column's information).
    ``residual`` (n, m) receives the a-priori errors ``y - z . R^-T x``.
    ``trace`` is an ``olsq.online.rows.Trace`` as a plain tuple; empty arrays: not wanted.
    Stops before a row whose treatment needs minimum-norm coefficients (a new direction, a reset,
    or a trace while some coefficient is undetermined): the caller takes that row alone.
    """
    d, m = R.shape[0], z.shape[0]
    coefs, diags, losses, counts, recursive = trace
    traced = coefs.shape[0] > 0
    p, x, y = np.empty(d, R.dtype), np.empty(d, R.dtype), np.empty(m, R.dtype)
    theta, noise = np.empty((m, d), R.dtype), np.empty(d)
    inverse = np.empty((d, d) if traced else (0, 0), R.dtype)
    held = 0
    for t in range(start, stop):
        full = True
        for j in range(d):
            full = full and R[j, j] != 0
            x[j] = X[t, j]
            noise[j] = abs(x[j])
        if gates[t] == 0 or (traced and not full):
            return t, held
        if forward_solve(R, x, p, columns, noise_level(limits[0], tally), noise) >= 0:
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
        held += absorb(
            R, z, columns, tally, loss, X[t], Y[t], gates[t], weights[t], limits, noise, x, y, theta
        )
        if traced:
            back_substitute(R, z, theta)
            coefs[t] = theta
            inverse_diagonal(R, inverse, diags[t])
            losses[t] = loss
            counts[t, :RANK] = tally
            counts[t, RANK] = d
    return stop, held
