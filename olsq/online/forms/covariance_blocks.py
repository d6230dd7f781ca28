"""Numba kernels that multiply P with eight rows of a window, solve for them, and change P.

Eight rows share one pass that multiplies with P and one that changes it.  Both passes, and what
lies between, are unrolled by hand over the rows: no BLAS routine is as fast on so few of them.
No loop over blocks makes views of arrays: each would cost an atomic count of references.
"""

from __future__ import annotations

from olsq.kernels import kernel

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
