"""Numba kernels: the correction of a block's residuals for a ridge that is not forgotten.

With zeta_t the product of the block's gates up to row t, a fixed ridge Lambda has ``M_t = zeta_t
H_0 + sum_i (zeta_t / zeta_i) w_i x_i x_i^T + Lambda``, while one factor of ``H_0 + c Lambda`` gives
the inverse ``P_t`` of ``M_t - delta_t Lambda`` and coefficients theta_t with it, where ``delta_t =
1 - c zeta_t``.  Those wanted are ``(1 + delta_t P_t Lambda)^-1 theta_t``, and

    x . (1 + delta P Lambda)^-1 theta = x . theta + w . Lambda theta,   w = -delta P (x + Lambda w)

is solved by iteration.  It shrinks what is missing by ``delta |Lambda P|`` a step, which is tiny
wherever the data outweigh the ridge; where it is not, the rows are left to a factor for each.
"""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel

SMALLEST = 16  # coefficients; measured: below, a factorisation for each row is as fast
ROUNDING = 4e-16  # relative change at convergence: two units in the last place


@kernel(forceinline=True)
def whiten(R, A):
    """Solve A = R^-T A for R (d, d) upper triangular and A (d, b), a column per row of a block."""
    d, b = A.shape
    for k in range(d):
        inverse = 1.0 / R[k, k]
        for j in range(b):
            A[k, j] *= inverse
        for i in range(k + 1, d):
            factor = R[k, i]
            for j in range(b):
                A[i, j] -= factor * A[k, j]


@kernel(forceinline=True)
def unwhiten(R, A):
    """Solve A = R^-1 A for R (d, d) upper triangular and A (d, b)."""
    d, b = A.shape
    for k in range(d - 1, -1, -1):
        inverse = 1.0 / R[k, k]
        for j in range(b):
            A[k, j] *= inverse
        for i in range(k):
            factor = R[i, k]
            for j in range(b):
                A[i, j] -= factor * A[k, j]


@kernel(forceinline=True)
def gain_columns(R, L, A):
    """Replace A (d, b) = R^-T K~^T by N^T with ``N = L^-1 K~ (R^T R)^-1``, L (b, b) lower."""
    d, b = A.shape
    B = np.empty((b, d))  # turned, so that the inner loops run along memory
    for i in range(b):
        for k in range(d):
            B[i, k] = A[k, i]
    for i in range(b):
        inverse = 1.0 / L[i, i]
        for k in range(d):
            B[i, k] *= inverse
        for j in range(i + 1, b):
            factor = L[j, i]
            for k in range(d):
                B[j, k] -= factor * B[i, k]
    for k in range(d):
        for i in range(b):
            A[k, i] = B[i, k]
    unwhiten(R, A)


@kernel(forceinline=True)
def products_before(N, Z, T):
    """Compute T[i, t] = column i of N times column t of Z for i < t, both (d, b); 0 elsewhere."""
    d, b = N.shape
    for i in range(b):
        for t in range(b):
            T[i, t] = 0.0
        for k in range(0, d - 3, 4):
            f0, f1, f2, f3 = N[k, i], N[k + 1, i], N[k + 2, i], N[k + 3, i]
            for t in range(b):  # whole rows: a loop of constant length is faster than half of it
                T[i, t] += (f0 * Z[k, t] + f1 * Z[k + 1, t]) + (f2 * Z[k + 2, t] + f3 * Z[k + 3, t])
        for k in range(d - d % 4, d):
            factor = N[k, i]
            for t in range(b):
                T[i, t] += factor * Z[k, t]
        for t in range(i + 1):
            T[i, t] = 0.0


@kernel(forceinline=True)
def subtract_products(N, T, Z):
    """Subtract N T from Z for N (d, b) and T (b, b)."""
    d, b = N.shape
    for k in range(d):
        for i in range(0, b - 3, 4):
            f0, f1, f2, f3 = N[k, i], N[k, i + 1], N[k, i + 2], N[k, i + 3]
            for t in range(b):
                Z[k, t] -= (f0 * T[i, t] + f1 * T[i + 1, t]) + (f2 * T[i + 2, t] + f3 * T[i + 3, t])
        for i in range(b - b % 4, b):
            factor = N[k, i]
            for t in range(b):
                Z[k, t] -= factor * T[i, t]


@kernel(forceinline=True)
def correct_residuals(factors, ridge, c, theta, residual, start):
    """Correct residuals start.. of a block for the fixed ridge; return False where that takes long.

    ``factors`` = (R, L, A, root_w, decay, eps): A (d, b) = R^-T K~^T is destroyed; root_w and decay
    (b,) as in ``moment_blocks``, eps (m, b) the errors that the block's factor gives.  theta (m, d)
    are the coefficients before the block.
    """
    R, L, A, root_w, decay, eps = factors
    d, b = A.shape
    gain_columns(R, L, A)  # now N^T
    U, W, Z, T = np.empty((d, b)), np.zeros((d, b)), np.empty((d, b)), np.empty((b, b))
    delta, inverse_decay = np.empty(b), np.empty(b)
    size, last, change = np.zeros(b), np.empty(b), np.empty(b)
    steps = d // 5  # a step costs about a tenth of a factor at d 64
    for t in range(b):
        before = decay[t - 1] if t > 0 else 1.0
        delta[t], inverse_decay[t] = 1.0 - c * before, 1.0 / before
        change[t] = L[t, t] / root_w[t] * inverse_decay[t]
    for k in range(d):
        for t in range(b):
            U[k, t] = A[k, t] * change[t]  # P_t-1 x_t
            size[t] += ridge[k] * U[k, t] * U[k, t]
            W[k, t] = -delta[t] * U[k, t]
    for t in range(b):
        change[t] = delta[t] * delta[t] * size[t]
    settled = False
    # one step: Z = P_t Lambda W, then W = -delta (U + Z / zeta)
    for step in range(steps):
        for k in range(d):
            for t in range(b):
                Z[k, t] = ridge[k] * W[k, t]
        products_before(A, Z, T)
        whiten(R, Z)
        unwhiten(R, Z)
        subtract_products(A, T, Z)
        for t in range(b):
            last[t], change[t] = change[t], 0.0
        for k in range(d):
            for t in range(b):
                new = -delta[t] * (U[k, t] + inverse_decay[t] * Z[k, t])
                move = new - W[k, t]
                change[t] += ridge[k] * move * move
                W[k, t] = new
        settled = True
        for t in range(b):
            allowed = ROUNDING * ROUNDING * size[t]
            if not change[t] <= allowed:
                settled = False
                # The rate never falls: P Lambda is symmetric in the norm that Lambda gives.
                rate = change[t] / last[t]
                if not change[t] * rate ** (steps - 1 - step) <= allowed:
                    return False
        if settled:
            break
    if not settled:
        return False
    for k in range(d):
        for t in range(b):
            Z[k, t] = ridge[k] * W[k, t]
    products_before(A, Z, T)
    for target in range(theta.shape[0]):
        for t in range(b):
            total = 0.0
            for i in range(t):
                total += eps[target, i] * T[i, t]
            change[t] = total
        for k in range(d):
            for t in range(b):
                change[t] += theta[target, k] * Z[k, t]
        for t in range(b):
            residual[start + t, target] -= change[t]
    return True
