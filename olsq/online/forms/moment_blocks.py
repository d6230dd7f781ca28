"""Numba kernel of the information form: a-priori residuals with one factor for a block of rows.

Between two factorisations ``M = H + decay Lambda = R^T R`` a block's rows follow the covariance
form's recursion, which the factor gives without an inverse: with ``A = R^-T K~^T`` for the weighted
rows K~ of the block, ``I + A^T A = L L^T`` and the residuals are ``e_t = L_tt eps_t / sqrt(w_t)``,
``eps = L^-1 e~``.  It holds where gates multiply all of M: the ridge
is forgotten with the data, or nothing is.  Elsewhere ``ridge_blocks`` corrects the residuals.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.edges import check_call, check_spread
from olsq.online.forms.moment_kernels import factorise, sinks, solve
from olsq.online.forms.ridge_blocks import SMALLEST, correct_residuals, whiten
from olsq.online.forms.square_root_blocks import SMALLEST_GATE
from olsq.online.forms.square_root_kernels import DECAY, absorb_squares, add_square, count_row


@kernel(forceinline=True)
def gram_factor(A, S, leverage):
    """Factorise ``I + A^T A = L L^T`` into S (b, b), lower; False where a leverage exceeds the
    bound.
    """
    d, b = A.shape
    for i in range(b):
        for j in range(i + 1):
            S[i, j] = 0.0
    for k in range(d):
        for i in range(b):
            factor = A[k, i]
            for j in range(i + 1):
                S[i, j] += factor * A[k, j]
    for i in range(b):
        for j in range(i + 1):
            total = S[i, j]
            for k in range(j):
                total -= S[i, k] * S[j, k]
            if j < i:
                S[i, j] = total / S[j, j]
            elif 0 <= total <= leverage:
                S[i, i] = math.sqrt(1.0 + total)
            else:
                return False
    return True


@kernel(forceinline=True)
def weigh_rows(columns, gates, weights, t, b, floor, root_w, decay):
    """Fill root_w, decay (b,) for rows t..t+b; return whether one factor serves them all."""
    product = 1.0
    for i in range(b):
        gate, weight = gates[t + i], weights[t + i]
        # Gates that the floor on the information would change are left to single rows.
        if gate != 1 and sinks(product * gate, columns, floor):
            return False
        product *= gate
        if not (product > SMALLEST_GATE and weight > 0):
            return False
        decay[i] = product
        root_w[i] = math.sqrt(weight / product)
    return True


@kernel(forceinline=True)
def update_in_blocks(state, penalty, rows, span, block, limits, residual):
    """Absorb rows in blocks of ``block`` with their a-priori residuals, one factor for each.

    Stops before a block that is incomplete, or that single rows have to take: M is singular, a
    leverage is beyond the bound, a fixed ridge outweighs what is forgotten, a weight is 0.
    ``state`` and ``penalty`` as in ``moment_kernels.update_solving``, ``limits`` too with the bound
    on leverages after them.
    """
    form, spread = state
    check_call(form, rows, span, residual)
    H, G, columns, tally, squares = form
    X, Y, gates, weights = rows
    (ridge, discounted), (floor, lost, leverage), (start, stop) = penalty, limits, span
    d, m = H.shape[0], G.shape[0]
    check_spread(spread, d, False)
    if ridge.shape != (d,) or block < 1:
        raise ValueError("ridge does not have a shape that fits the moments, or block is 0")
    whole = discounted or not (ridge > 0).any()
    R, theta = np.empty((d, d)), np.empty((m, d))
    A, S = np.empty((d, block)), np.empty((block, block))
    root_w, decay, eps = np.empty(block), np.empty(block), np.empty((m, block))
    t = start
    while t + block <= stop:
        if not weigh_rows(columns, gates, weights, t, block, floor, root_w, decay):
            return t
        exact = whole or decay[block - 1] == 1
        if not exact and d < SMALLEST:
            return t
        # What a fixed ridge would be before the block if gates multiplied it too: the middle.
        middle = 1.0 if exact else 1.0 / math.sqrt(decay[block - 1])
        if not factorise(H, ridge, tally[DECAY] if discounted else middle, lost, R):
            return t
        for k in range(d):
            for i in range(block):
                A[k, i] = root_w[i] * X[t + i, k]
        whiten(R, A)
        if not gram_factor(A, S, leverage):
            return t
        # e_t = y_t - theta . x_t before the block, then eps = L^-1 e~ for the rows within it
        solve(R, G, theta)
        for target in range(m):
            for i in range(block):
                error = Y[t + i, target]
                for k in range(d):
                    error -= theta[target, k] * X[t + i, k]
                error *= root_w[i]
                for k in range(i):
                    error -= S[i, k] * eps[target, k]
                eps[target, i] = error / S[i, i]
                residual[t + i, target] = error / root_w[i]
        factors = R, S, A, root_w, decay, eps
        if not exact and not correct_residuals(factors, ridge, middle, theta, residual, t):
            return t
        for i in range(t, t + block):
            gate, weight = gates[i], weights[i]
            for k in range(d):
                add_square(columns, k, gate, weight * X[i, k] * X[i, k])
            count_row(tally, gate, weight)
            for target in range(m):
                yw = weight * Y[i, target]
                squares[target] = gate * squares[target] + yw * Y[i, target]
                for k in range(d):
                    G[target, k] = gate * G[target, k] + yw * X[i, k]
        absorb_moments(H, X, root_w, gates, t, block)
        absorb_squares(spread, X, gates, weights, t, t + block)
        t += block
    return t


@kernel(forceinline=True)
def absorb_moments(H, X, root_w, gates, t, block):
    """Update ``H = Z (H + K~^T K~)`` for the rows K~ of a block and the product Z of its gates."""
    d, decay = H.shape[0], 1.0
    for i in range(block):
        decay *= gates[t + i]
    K = np.empty((block, d))
    for i in range(block):
        for k in range(d):
            K[i, k] = root_w[i] * X[t + i, k]
    for i in range(d):  # four rows of K at a time, each entry's sum in one order: H stays symmetric
        for c in range(0, block - 3, 4):
            a0, a1, a2, a3 = K[c, i], K[c + 1, i], K[c + 2, i], K[c + 3, i]
            for k in range(d):
                H[i, k] += (a0 * K[c, k] + a1 * K[c + 1, k]) + (a2 * K[c + 2, k] + a3 * K[c + 3, k])
        for c in range(block - block % 4, block):
            factor = K[c, i]
            for k in range(d):
                H[i, k] += factor * K[c, k]
        for k in range(d):
            H[i, k] *= decay
