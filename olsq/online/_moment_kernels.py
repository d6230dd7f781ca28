"""Numba kernels of the information form: moments, and a Cholesky solve for every row.

The moments are kept in float64 whatever the dtype of the data.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.online._jit import kernel
from olsq.online._square_root_kernels import DECAY, RANK, add_square, count_row
from olsq.online._triangular_kernels import back_substitute, forward_solve, inverse_diagonal


@kernel()
def effective_gate(gate, columns, floor):
    """The gate, or 1 where all columns would sink below ``floor`` x their last excited level.

    Only an absence of any excitation gets there; forgetting on would end in underflow.
    A gate of exactly 0 is a reset, and is obeyed.
    """
    if gate == 0 or gate == 1:
        return gate
    for j in range(columns.shape[1]):
        if gate * columns[0, j] >= floor * columns[1, j]:
            return gate
    return 1.0


@kernel()
def gates_and_counts(columns, tally, X, gates, weights, floor, effective):
    """Fill ``effective`` with the gates after the floor, and bring columns and tally forward."""
    for t in range(X.shape[0]):
        gate = effective_gate(gates[t], columns, floor)
        effective[t] = gate
        for k in range(X.shape[1]):
            add_square(columns, k, gate, weights[t] * float(X[t, k]) ** 2)
        count_row(tally, gate, weights[t])


@kernel()
def factorise(H, ridge, decay, R):
    """Upper Cholesky factor of ``H + decay * ridge`` into R; False if it is singular to rounding.

    A pivot counts as lost when less than 8 d eps of its diagonal entry is left.
    """
    d = H.shape[0]
    for i in range(d):
        for j in range(i):
            R[i, j] = 0.0
        for j in range(i, d):
            R[i, j] = H[i, j]
        R[i, i] += decay * ridge[i]
    for i in range(d):
        diagonal = H[i, i] + decay * ridge[i]
        if not R[i, i] > 8 * d * 2.3e-16 * diagonal:
            return False
        pivot = math.sqrt(R[i, i])
        row = R[i, i:]
        for k in range(row.shape[0]):
            row[k] /= pivot
        for j in range(i + 1, d):
            factor = R[i, j]
            below, above = R[j, j:], R[i, j:]
            for k in range(below.shape[0]):
                below[k] -= factor * above[k]
    return True


@kernel()
def solve(R, G, theta):
    """theta (m, d) with ``R^T R theta_l = g_l``."""
    d, m = R.shape[0], G.shape[0]
    z = G.copy()
    for target in range(m):
        for i in range(d):
            z[target, i] /= R[i, i]
            value = z[target, i]
            rest, row = z[target, i + 1 :], R[i, i + 1 :]
            for k in range(rest.shape[0]):
                rest[k] -= value * row[k]
    back_substitute(R, z, theta)


@kernel()
def update_solving(
    H, G, squares, columns, tally, theta, ridge, discounted, X, Y, gates, weights, start, stop,
    floor, residual, trace,
):  # fmt: skip
    """Absorb rows one at a time with the coefficients solved for after each.

    ``theta`` must hold the coefficients before row ``start``.  Returns (t, solved): if not
    solved, row t - 1 was absorbed but the system is singular: the caller finishes that row.
    """
    d, m = H.shape[0], G.shape[0]
    coefs, diags, losses, counts, recursive = trace
    R, inverse = np.empty((d, d)), np.empty((d, d))
    x, p, noise = np.empty(d), np.empty(d), np.empty(d)
    factored = factorise(H, ridge, tally[DECAY] if discounted else 1.0, R)
    for t in range(start, stop):
        for target in range(m):
            error = float(Y[t, target])
            for k in range(d):
                error -= theta[target, k] * X[t, k]
            residual[t, target] = error
        gate, weight = effective_gate(gates[t], columns, floor), weights[t]
        if coefs.shape[0] > 0:
            leverage = math.inf
            if factored:
                x[:] = X[t]
                noise[:] = 0.0
                forward_solve(R, x, p, columns, 0.0, noise)
                leverage = np.dot(p, p)
            spread = weight * gate / (gate + weight * leverage) if weight * gate > 0 else 0.0
            for target in range(m):
                recursive[t, target] = residual[t, target] * math.sqrt(spread)
        for i in range(d):
            xi = weight * float(X[t, i])
            for k in range(d):
                H[i, k] = gate * H[i, k] + xi * float(X[t, k])
            add_square(columns, i, gate, xi * float(X[t, i]))
        for target in range(m):
            yw = weight * float(Y[t, target])
            past = gate * squares[target] if gate > 0 else 0.0  # which may be unknown: infinite
            squares[target] = past + yw * float(Y[t, target])
            for k in range(d):
                G[target, k] = gate * G[target, k] + yw * float(X[t, k])
        count_row(tally, gate, weight)
        decay = tally[DECAY] if discounted else 1.0
        factored = factorise(H, ridge, decay, R)
        if not factored:
            return t + 1, False
        solve(R, G, theta)
        if coefs.shape[0] > 0:
            coefs[t] = theta
            inverse_diagonal(R, inverse, diags[t])
            counts[t, :RANK] = tally
            counts[t, RANK] = d
            for target in range(m):
                total = squares[target]
                for k in range(d):
                    total -= theta[target, k] * G[target, k]
                losses[t, target] = max(total, 0.0)
    return stop, True
