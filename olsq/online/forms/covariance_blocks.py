"""Numba kernels of the covariance form, eight rows at a time (the chunk-exact recursion).

Eight rows share one pass that multiplies with P and one that changes it.  Both passes, and what
lies between, are unrolled by hand over the rows: no BLAS routine is as fast on so few of them.
No loop over blocks makes views of arrays: each would cost an atomic count of references.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.covariance_kernels import SMALLEST_GATE, trusted
from olsq.online.forms.edges import check_call, check_spread, check_trace, wants_sandwich
from olsq.online.forms.square_root_kernels import absorb_squares, count_row, record_counts

BLOCK = 8  # rows of a block; the loops are unrolled by hand


@kernel(forceinline=True)
def multiply_block(X, t, P, start, p, N):
    """Multiply rows t..t+8 of X by rows start..start+p of P transposed into N (8, p), two at a
    time.
    """
    for j in range(0, p - 1, 2):
        i, upper, lower = j + 1, start + j, start + j + 1
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = 0.0
        for k in range(P.shape[1]):
            a, b = P[upper, k], P[lower, k]
            a0, a1 = a0 + X[t, k] * a, a1 + X[t + 1, k] * a
            a2, a3 = a2 + X[t + 2, k] * a, a3 + X[t + 3, k] * a
            a4, a5 = a4 + X[t + 4, k] * a, a5 + X[t + 5, k] * a
            a6, a7 = a6 + X[t + 6, k] * a, a7 + X[t + 7, k] * a
            b0, b1 = b0 + X[t, k] * b, b1 + X[t + 1, k] * b
            b2, b3 = b2 + X[t + 2, k] * b, b3 + X[t + 3, k] * b
            b4, b5 = b4 + X[t + 4, k] * b, b5 + X[t + 5, k] * b
            b6, b7 = b6 + X[t + 6, k] * b, b7 + X[t + 7, k] * b
        N[0, j], N[1, j], N[2, j], N[3, j] = a0, a1, a2, a3
        N[4, j], N[5, j], N[6, j], N[7, j] = a4, a5, a6, a7
        N[0, i], N[1, i], N[2, i], N[3, i] = b0, b1, b2, b3
        N[4, i], N[5, i], N[6, i], N[7, i] = b4, b5, b6, b7
    if p % 2:
        j, last = p - 1, start + p - 1
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
        for k in range(P.shape[1]):
            a = P[last, k]
            a0, a1 = a0 + X[t, k] * a, a1 + X[t + 1, k] * a
            a2, a3 = a2 + X[t + 2, k] * a, a3 + X[t + 3, k] * a
            a4, a5 = a4 + X[t + 4, k] * a, a5 + X[t + 5, k] * a
            a6, a7 = a6 + X[t + 6, k] * a, a7 + X[t + 7, k] * a
        N[0, j], N[1, j], N[2, j], N[3, j] = a0, a1, a2, a3
        N[4, j], N[5, j], N[6, j], N[7, j] = a4, a5, a6, a7


@kernel(forceinline=True)
def solve_block(U, inverse, scale, N):
    """Solve N = U^-T diag(scale) N for U (8, 8) upper triangular; inverse (8,) of its diagonal."""
    s0, s1, s2, s3 = (
        scale[0] * inverse[0],
        scale[1] * inverse[1],
        scale[2] * inverse[2],
        scale[3] * inverse[3],
    )
    s4, s5, s6, s7 = (
        scale[4] * inverse[4],
        scale[5] * inverse[5],
        scale[6] * inverse[6],
        scale[7] * inverse[7],
    )
    # rows of U^T divided by its diagonal: a_ij = U_ji / U_ii, forward substitution in the loop
    i = inverse[1]
    a10 = U[0, 1] * i
    i = inverse[2]
    a20, a21 = U[0, 2] * i, U[1, 2] * i
    i = inverse[3]
    a30, a31, a32 = U[0, 3] * i, U[1, 3] * i, U[2, 3] * i
    i = inverse[4]
    a40, a41, a42, a43 = U[0, 4] * i, U[1, 4] * i, U[2, 4] * i, U[3, 4] * i
    i = inverse[5]
    a50, a51, a52, a53 = U[0, 5] * i, U[1, 5] * i, U[2, 5] * i, U[3, 5] * i
    a54 = U[4, 5] * i
    i = inverse[6]
    a60, a61, a62, a63 = U[0, 6] * i, U[1, 6] * i, U[2, 6] * i, U[3, 6] * i
    a64, a65 = U[4, 6] * i, U[5, 6] * i
    i = inverse[7]
    a70, a71, a72, a73 = U[0, 7] * i, U[1, 7] * i, U[2, 7] * i, U[3, 7] * i
    a74, a75, a76 = U[4, 7] * i, U[5, 7] * i, U[6, 7] * i
    for j in range(N.shape[1]):
        y0 = s0 * N[0, j]
        y1 = s1 * N[1, j] - a10 * y0
        y2 = s2 * N[2, j] - a20 * y0 - a21 * y1
        y3 = s3 * N[3, j] - a30 * y0 - a31 * y1 - a32 * y2
        y4 = s4 * N[4, j] - a40 * y0 - a41 * y1 - a42 * y2 - a43 * y3
        y5 = s5 * N[5, j] - a50 * y0 - a51 * y1 - a52 * y2 - a53 * y3 - a54 * y4
        y6 = s6 * N[6, j] - a60 * y0 - a61 * y1 - a62 * y2 - a63 * y3 - a64 * y4 - a65 * y5
        y7 = s7 * N[7, j] - a70 * y0 - a71 * y1 - a72 * y2 - a73 * y3 - a74 * y4 - a75 * y5
        N[0, j], N[1, j], N[2, j], N[3, j], N[4, j], N[5, j], N[6, j] = y0, y1, y2, y3, y4, y5, y6
        N[7, j] = y7 - a76 * y6


@kernel(forceinline=True)
def add_rows(theta, target, eps, N, trace, t):
    """Add eps_0 n_0 + ... to one target's theta; write all partial sums to rows t.. of a trace."""
    e0, e1, e2, e3, e4, e5, e6, e7 = (
        eps[0],
        eps[1],
        eps[2],
        eps[3],
        eps[4],
        eps[5],
        eps[6],
        eps[7],
    )
    if trace is None:
        for j in range(N.shape[1]):
            theta[target, j] += (
                (e0 * N[0, j] + e1 * N[1, j])
                + (e2 * N[2, j] + e3 * N[3, j])
                + (e4 * N[4, j] + e5 * N[5, j])
                + (e6 * N[6, j] + e7 * N[7, j])
            )
        return
    coefs = trace[0]
    for j in range(N.shape[1]):
        y0 = theta[target, j] + e0 * N[0, j]
        y1 = y0 + e1 * N[1, j]
        y2 = y1 + e2 * N[2, j]
        y3 = y2 + e3 * N[3, j]
        y4 = y3 + e4 * N[4, j]
        y5 = y4 + e5 * N[5, j]
        y6 = y5 + e6 * N[6, j]
        y7 = y6 + e7 * N[7, j]
        coefs[t, target, j], coefs[t + 1, target, j], coefs[t + 2, target, j] = y0, y1, y2
        coefs[t + 3, target, j], coefs[t + 4, target, j], coefs[t + 5, target, j] = y3, y4, y5
        coefs[t + 6, target, j], coefs[t + 7, target, j] = y6, y7
        theta[target, j] = y7


@kernel(forceinline=True)
def variances(P, N, inverse_decay, diags, t):
    """Write the diagonals of ``(P - n_0 n_0^T - ... - n_t n_t^T) / decay_t`` into rows t.. of
    diags.
    """
    i0, i1, i2, i3 = inverse_decay[0], inverse_decay[1], inverse_decay[2], inverse_decay[3]
    i4, i5, i6, i7 = inverse_decay[4], inverse_decay[5], inverse_decay[6], inverse_decay[7]
    for j in range(P.shape[0]):
        y0 = P[j, j] - N[0, j] * N[0, j]
        y1 = y0 - N[1, j] * N[1, j]
        y2 = y1 - N[2, j] * N[2, j]
        y3 = y2 - N[3, j] * N[3, j]
        y4 = y3 - N[4, j] * N[4, j]
        y5 = y4 - N[5, j] * N[5, j]
        y6 = y5 - N[6, j] * N[6, j]
        y7 = y6 - N[7, j] * N[7, j]
        diags[t, j], diags[t + 1, j], diags[t + 2, j] = y0 * i0, y1 * i1, y2 * i2
        diags[t + 3, j], diags[t + 4, j], diags[t + 5, j] = y3 * i3, y4 * i4, y5 * i5
        diags[t + 6, j], diags[t + 7, j] = y6 * i6, y7 * i7


@kernel(forceinline=True)
def subtract_block(P, N, scale, odd):
    """Subtract ``N^T N`` from P and scale, for N (8, d), two rows at a time.

    Every second row of N has the sign ``odd``. Every entry is computed in the same order from the
    same products, so symmetry is kept.
    """
    d = P.shape[0]
    for i in range(0, d - 1, 2):
        a0, a1, a2, a3 = N[0, i], odd * N[1, i], N[2, i], odd * N[3, i]
        a4, a5, a6, a7 = N[4, i], odd * N[5, i], N[6, i], odd * N[7, i]
        b0, b1, b2, b3 = N[0, i + 1], odd * N[1, i + 1], N[2, i + 1], odd * N[3, i + 1]
        b4, b5, b6, b7 = N[4, i + 1], odd * N[5, i + 1], N[6, i + 1], odd * N[7, i + 1]
        for k in range(d):
            m0, m1, m2, m3 = N[0, k], N[1, k], N[2, k], N[3, k]
            m4, m5, m6, m7 = N[4, k], N[5, k], N[6, k], N[7, k]
            sum_a = a0 * m0 + a1 * m1 + a2 * m2 + a3 * m3 + a4 * m4 + a5 * m5 + a6 * m6 + a7 * m7
            sum_b = b0 * m0 + b1 * m1 + b2 * m2 + b3 * m3 + b4 * m4 + b5 * m5 + b6 * m6 + b7 * m7
            P[i, k] = (P[i, k] - sum_a) * scale
            P[i + 1, k] = (P[i + 1, k] - sum_b) * scale
    if d % 2:  # the last row by symmetry from the rows above, its own diagonal computed
        last = d - 1
        for k in range(last):
            P[last, k] = P[k, last]
        total = P[last, last]
        for c in range(BLOCK):
            total -= (1.0 if c % 2 == 0 else odd) * N[c, last] * N[c, last]
        P[last, last] = total * scale


@kernel(forceinline=True)
def weigh_block(gates, weights, t, root_w, decay):
    """Fill root_w, decay (8,) for rows t..t+8; return whether the block's forgetting is mild
    enough.
    """
    product = 1.0
    for i in range(BLOCK):
        product *= gates[t + i]
        if not (product > SMALLEST_GATE and weights[t + i] > 0):
            return False
        decay[i] = product
        root_w[i] = math.sqrt(weights[t + i] / product)
    return True


# w_i = beta_i / zeta_i: weights at the block's start, before its gates
@kernel(forceinline=True)
def factorise_block(S, root_w, largest, U, inverse):
    """Factorise ``U^T U = I + diag(root_w) S diag(root_w)`` (8, 8), with the inverse diagonal (8,).

    S is destroyed; only what is above U's diagonal is written.  False where a row's leverage, a
    pivot less its 1, is beyond ``largest``.
    """
    for i in range(BLOCK):
        for k in range(BLOCK):
            S[i, k] *= root_w[i] * root_w[k]
    for i in range(BLOCK):  # whole rows: a loop of constant length is one instruction
        leverage = S[i, i]
        if not 0 <= leverage <= largest:
            return False
        inverse[i] = 1.0 / math.sqrt(1.0 + leverage)
        for k in range(BLOCK):
            U[i, k] = S[i, k] * inverse[i]
        for j in range(i + 1, BLOCK):
            factor = U[i, j]
            for k in range(BLOCK):
                S[j, k] -= factor * U[i, k]
    return True


@kernel(forceinline=True)
def add_squares(columns, X, gates, weights, t):
    """Update the columns' squared lengths by rows t..t+8."""
    for j in range(X.shape[1]):
        now, excited = columns[0, j], columns[1, j]
        for i in range(BLOCK):
            square = weights[t + i] * X[t + i, j] * X[t + i, j]
            now = gates[t + i] * now + square
            excited = now if square > 0 else excited
        columns[0, j], columns[1, j] = now, excited


@kernel(forceinline=True)
def update_blocked(form, spread, rows, span, limits, residual, trace):
    """Absorb rows as ``covariance_kernels.update`` does, in blocks of eight.

    With w_t = beta_t / zeta_t, ``S = I + K~ P K~^T = L L^T`` and ``N = L^-1 K~ P`` give every
    step of the block at once: ``e_t = L_tt eps_t / sqrt(w_t)`` with ``eps = L^-1 e~``,
    ``theta_t = theta_0 + sum_{i<=t} eps_i n_i``, ``P_t = (P - sum_{i<=t} n_i n_i^T) / zeta_t``.
    Stops before a block that is incomplete or that the form cannot take.
    """
    check_call(form, rows, span, residual)
    P, theta, columns, tally, loss = form
    X, Y, gates, weights = rows
    start, stop = span
    d, m = P.shape[0], theta.shape[0]
    check_trace(trace, X.shape[0], d, m)
    check_spread(spread, d, False)
    if wants_sandwich(trace):
        raise ValueError("blocks of rows do not trace a sandwich: its shape must be (0, d)")
    N, E = np.empty((BLOCK, d)), np.empty((BLOCK, m))
    S, U = np.empty((BLOCK, BLOCK)), np.empty((BLOCK, BLOCK))
    root_w, decay, inverse_decay = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    eps, inverse = np.empty(BLOCK), np.empty(BLOCK)
    t = start
    while t + BLOCK <= stop:
        if not weigh_block(gates, weights, t, root_w, decay):
            return t
        left = decay[BLOCK - 1]  # P may have grown by its inverse at the block's end
        if not trusted(P, columns, (limits[0], limits[1] * left, limits[2] * left)):
            return t
        # N = K~ P, S = K~ P K~^T
        multiply_block(X, t, P, 0, d, N)
        multiply_block(N, 0, X, t, BLOCK, S)
        if not factorise_block(S, root_w, limits[0], U, inverse):
            return t
        # E = K~ theta^T, and N = L^-1 K~ P with L = U^T
        multiply_block(X, t, theta, 0, m, E)
        solve_block(U, inverse, root_w, N)
        add_squares(columns, X, gates, weights, t)
        for i in range(BLOCK):
            inverse_decay[i] = 1.0 / decay[i]
            count_row(tally, gates[t + i], weights[t + i])
            if trace is not None:
                record_counts(trace[3], t + i, tally, d, 0.0)
        for target in range(m):
            for i in range(BLOCK):
                scaled = (Y[t + i, target] - E[i, target]) * root_w[i]
                for k in range(i):
                    scaled -= U[k, i] * eps[k]
                eps[i] = step = scaled * inverse[i]
                residual[t + i, target] = scaled / root_w[i]
                loss[target] = gates[t + i] * loss[target] + decay[i] * step**2
                if trace is not None:
                    trace[2][t + i, target] = loss[target]
                    trace[4][t + i, target] = step * math.sqrt(decay[i])
            add_rows(theta, target, eps, N, trace, t)
        if trace is not None and trace[1].shape[0] > 0:
            variances(P, N, inverse_decay, trace[1], t)
        absorb_squares(spread, X, gates, weights, t, t + BLOCK)
        # P' = (P - N^T N) / zeta
        subtract_block(P, N, inverse_decay[BLOCK - 1], 1.0)
        t += BLOCK
    return t
