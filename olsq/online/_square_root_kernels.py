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

from olsq.online._jit import kernel
from olsq.online._triangular_kernels import back_substitute, forward_solve, inverse_diagonal

COUNT, COUNT_SQUARED, DECAY = 0, 1, 2
RANK = 3  # a trace's row of counts has the rank as its fourth entry


@kernel()
def rotate(R, z, x, y, root_gate, noise):
    """Scale R, z by root_gate and rotate the row (x, y) into them; x and y are destroyed.

    What remains in y is the row's component orthogonal to the columns (its square is the
    increase of the loss).  An x_j below ``noise[j]`` times the part of the row not yet absorbed
    is rounding error and is dropped: else a collinear stream would regress y on that error.
    """
    d, m = R.shape[0], z.shape[0]
    one = R.dtype.type
    g = one(root_gate)
    root_gate = float(g)  # the same rounded number for pivots and for the rest of their rows
    unabsorbed = 1.0
    for j in range(d):
        xj = float(x[j])
        # Rounding is relative to the row itself, however much of it has been absorbed.
        if abs(xj) <= noise[j] * max(unabsorbed, 0.05):
            x[j] = 0
            if root_gate != 1:
                row = R[j, j:]
                for k in range(row.shape[0]):
                    row[k] *= g
                for target in range(m):
                    z[target, j] *= g
            continue
        pivot = float(R[j, j]) * root_gate
        if pivot == 0:  # the first row to say anything here: it becomes the factor's row, whole
            sign = one(math.copysign(1.0, xj))
            tail, row = x[j:], R[j, j:]
            for k in range(tail.shape[0]):
                row[k] = sign * tail[k]
                tail[k] = 0
            for target in range(m):
                z[target, j] = sign * y[target]
                y[target] = 0
            for i in range(j + 1, d if root_gate != 1 else 0):
                R[i, i:] *= g
                z[:, i] *= g
            return
        length = math.hypot(pivot, xj)
        c64 = pivot / length
        s64 = xj / length
        unabsorbed *= abs(c64)
        # By increments: a cosine near 1 rounded to float32 would shrink R systematically.
        s, tau = one(s64), one(s64 / (1.0 + c64))
        R[j, j] = one(length)
        tail, row = x[j + 1 :], R[j, j + 1 :]
        for k in range(tail.shape[0]):
            old, new = g * row[k], tail[k]
            row[k] = old + s * (new - tau * old)
            tail[k] = new - s * (old + tau * new)
        for target in range(m):
            old, last = g * z[target, j], y[target]
            z[target, j] = old + s * (last - tau * old)
            y[target] = last - s * (old + tau * last)


@kernel()
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


@kernel()
def add_square(columns, k, gate, square):
    """Bring column k's squared length forward by one row."""
    columns[0, k] = gate * columns[0, k] + square
    if square > 0:
        columns[1, k] = columns[0, k]


@kernel()
def count_row(tally, gate, weight):
    """Update the counts of forgotten rows and the product of gates."""
    seen = 1.0 if weight > 0 else 0.0
    tally[COUNT] = gate * tally[COUNT] + seen
    tally[COUNT_SQUARED] = gate * gate * tally[COUNT_SQUARED] + seen
    tally[DECAY] *= gate


@kernel()
def absorb(R, z, columns, tally, loss, row, targets, gate, weight, limits, noise, x, y, theta):
    """Forget, rotate one row in, and hold what would otherwise be lost; returns how many held."""
    d, m = R.shape[0], z.shape[0]
    root_weight = math.sqrt(weight)
    for k in range(d):
        x[k] = root_weight * row[k]
        add_square(columns, k, gate, float(x[k]) * float(x[k]))
        if weight > 0:
            noise[k] *= root_weight
    for target in range(m):
        y[target] = root_weight * targets[target]
    rotate(R, z, x, y, math.sqrt(gate), noise)
    for target in range(m):
        loss[target] = gate * loss[target] + float(y[target]) * float(y[target])
    count_row(tally, gate, weight)
    if gate < 1:
        pin = 4 * noise_level(limits[0], d, tally)
        return keep_determined(R, z, columns, pin, limits[1], theta, x, y, noise)
    return 0


@kernel()
def noise_level(eps, d, tally):
    """Relative rounding error of a rotated regressor.

    d rotations of the row itself, and R's own error: one rounding a row, which add up like a
    random walk over the rows that count.
    """
    return eps * (2 * math.sqrt(d) + 3 * math.sqrt(tally[COUNT]))


@kernel()
def update(R, z, columns, tally, loss, X, Y, gates, weights, start, stop, limits, residual, trace):
    """Absorb rows start..stop; return (first row not absorbed, number of coefficients held).

    ``limits`` = (machine epsilon, floor of a column's information).
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
        if forward_solve(R, x, p, columns, noise_level(limits[0], d, tally), noise) >= 0:
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


@kernel()
def downdate(R, z, loss, p, x, y, targets, root_weight, remaining):
    """Take a row out again (LINPACK's downdate), given ``R^T p = root_weight * row``.

    With ``remaining = 1 - |p|^2`` (0 if the row was all that was known) rotations take
    (p, sqrt(remaining)) to (0, 1); the same rotations take [R; 0] to [R without the row; row].
    x (d,), y (m,) are scratch.
    """
    d, m = R.shape[0], z.shape[0]
    norm = math.sqrt(remaining)
    x[:] = 0
    for target in range(m):
        total = root_weight * targets[target]
        for k in range(d):
            total -= z[target, k] * p[k]
        y[target] = total / norm if norm > 0 else 0.0
        loss[target] = max(loss[target] - y[target] * y[target], 0.0)
    for i in range(d - 1, -1, -1):
        length = math.hypot(norm, p[i])
        if length == 0:
            continue
        c, s = norm / length, p[i] / length
        norm = length
        tail, row = x[i:], R[i, i:]
        for k in range(tail.shape[0]):
            old, new = row[k], tail[k]
            row[k] = c * old - s * new
            tail[k] = s * old + c * new
        for target in range(m):
            old, new = z[target, i], y[target]
            z[target, i] = c * old - s * new
            y[target] = s * old + c * new
