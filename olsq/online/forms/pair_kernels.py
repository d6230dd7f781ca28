"""Numba kernel of the covariance form for complex rows: both real rows of a pair at once.

A complex row is the pair of real rows ``u = [Re x, -Im x]`` and ``v = J u = [Im x, Re x]`` (see
``rows/complex_rows.py``).  The covariance of their coefficients is that of a Hermitian matrix,
``P = [[A, -B], [B, A]]`` with A symmetric and B antisymmetric, so that ``P v = J P u``, both rows
have one leverage h and ``u P v = 0``.  Learning both is therefore one step,

    theta' = theta + gain (e_u P u + e_v P v)       P' = (P - gain (P u u^T P + P v v^T P)) / gamma

with ``gain = w / (gamma + w h)`` and both errors before the pair.  The kernel keeps A and B only:
a quarter of the arithmetic of the two real rows.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.covariance_kernels import SMALLEST_GATE, UNEXCITED
from olsq.online.forms.edges import check_call, check_spread, check_trace, wants_sandwich
from olsq.online.forms.square_root_kernels import absorb_squares, count_row, record

# Largest relative difference from the structure above that is rounding.  Conversions leave 1e-11
# within the form's bounds; between the two rows of a pair it is of order one.
ROUNDING = 1e-8


@kernel()
def embed(parts, rows):
    """Fill rows (2n, 2k) with the pairs ``[Re x, -Im x]``, ``[Im x, Re x]`` of n complex rows,
    given as their parts (n, 2k): real, imaginary, real, ...
    """
    n, k = parts.shape[0], parts.shape[1] // 2
    if parts.shape[1] % 2 or rows.shape != (2 * n, 2 * k):
        raise ValueError("the shapes of rows and their parts do not fit together")
    for t in range(n):
        for j in range(k):
            real, imag = parts[t, 2 * j], parts[t, 2 * j + 1]
            rows[2 * t, j], rows[2 * t, k + j] = real, -imag
            rows[2 * t + 1, j], rows[2 * t + 1, k + j] = imag, real


# The updates of single entries are strict, so that every product is rounded: fused, one of the two
# would not be.  What A then has of an antisymmetric matrix and B of a symmetric one grows with
# every forgetting factor, and nothing makes it smaller.
@kernel(forceinline=True, strict=True)
def updated_real_part(a, hi, hj, gi, gj, inverse_gate):
    """Compute ``(a - (h_i h_j + g_i g_j)) / gamma``, the same for i and j exchanged."""
    return (a - (hi * hj + gi * gj)) * inverse_gate


@kernel(forceinline=True, strict=True)
def updated_imaginary_part(b, hi, hj, gi, gj, inverse_gate):
    """Compute ``(b - (g_i h_j - h_i g_j)) / gamma``, negated where i and j are exchanged."""
    return (b - (gi * hj - hi * gj)) * inverse_gate


@kernel(forceinline=True)
def read_blocks(P, A, B):
    """Fill A, B (k, k) from P (2k, 2k); False where P has another structure than theirs."""
    k = A.shape[0]
    for i in range(k):
        A[i, i] = 0.5 * P[i, i] + 0.5 * P[k + i, k + i]  # halves: a sum of large ones overflows
    for i in range(k):
        for j in range(i + 1):
            allowed = ROUNDING * math.sqrt(A[i, i]) * math.sqrt(A[j, j])
            real, imag = P[i, j] - P[k + i, k + j], P[k + i, j] + P[i, k + j]
            turned = P[k + i, j] + P[k + j, i]
            if not (abs(real) <= allowed and abs(imag) <= allowed and abs(turned) <= allowed):
                return False
            # One triangle and its mirror image, so that rounding breaks neither symmetry.
            A[i, j] = 0.5 * P[i, j] + 0.5 * P[k + i, k + j]
            A[j, i] = A[i, j]
            B[i, j] = 0.5 * P[k + i, j] - 0.5 * P[k + j, i]
            B[j, i] = -B[i, j]
        B[i, i] = 0.0
    return True


@kernel(forceinline=True)
def write_blocks(A, B, P):
    """Write ``[[A, -B], [B, A]]`` into P (2k, 2k)."""
    k = A.shape[0]
    for i in range(k):
        for j in range(k):
            P[i, j] = P[k + i, k + j] = A[i, j]
            P[k + i, j] = B[i, j]
            P[i, k + j] = -B[i, j]


@kernel(forceinline=True)
def trusted_pairs(A, columns, limits):
    """Test what ``covariance_kernels.trusted`` tests, for both parts of every coefficient."""
    k, outside = A.shape[0], 0
    for j in range(k):
        variance = A[j, j]
        one, other = columns[0, j], columns[0, k + j]
        within = (variance > 0) & (variance < limits[2]) & (variance * one < limits[1])
        within &= variance * other < limits[1]
        within &= (one >= UNEXCITED * columns[1, j]) & (other >= UNEXCITED * columns[1, k + j])
        outside += 0 if within else 1
    return outside == 0


@kernel()
def update_pairs(form, spread, rows, span, limits, residual, trace):
    """Absorb the pairs of rows of a span; return the first row not absorbed, and whether P had
    the structure of a pair's covariance.  Nothing is changed where it had not.

    Arguments as in ``covariance_kernels.update``, whose bounds hold; a span is even, and
    an odd last row is left.  Rows 2i and 2i + 1 have one weight, and the second one the gate 1.
    ``residual`` receives the errors before the pair.  The trace of a first row is that of its pair,
    but for the counts.
    """
    check_call(form, rows, span, residual)
    P, theta, columns, tally, loss = form
    X, Y, gates, weights = rows
    start, stop = span
    d, m = P.shape[0], theta.shape[0]
    check_trace(trace, X.shape[0], d, m)
    check_spread(spread, d, False)
    if d % 2 or wants_sandwich(trace):
        raise ValueError("pairs of rows have a shape (n, 2k), and no sandwich in their trace")
    k = d // 2
    A, B = np.empty((k, k)), np.empty((k, k))
    if not read_blocks(P, A, B):
        return start, False
    p, q, h, g = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    t = start
    if t + 2 <= stop:
        for i in range(k):  # P u = [p, q]
            real, imag = 0.0, 0.0
            for j in range(k):
                real += A[i, j] * X[t, j] - B[i, j] * X[t, k + j]
                imag += B[i, j] * X[t, j] + A[i, j] * X[t, k + j]
            p[i], q[i] = real, imag
    while t + 2 <= stop:
        gate, weight = gates[t], weights[t]
        # leverage = u.P u
        leverage = 0.0
        for j in range(k):
            leverage += p[j] * X[t, j] + q[j] * X[t, k + j]
        innovation = gate + weight * leverage
        if gate < SMALLEST_GATE or not (0 <= weight * leverage <= limits[0] * gate):
            break
        if not trusted_pairs(A, columns, limits):
            break
        gain, left = weight / innovation, gate / innovation
        for target in range(m):
            first, second = Y[t, target], Y[t + 1, target]
            for j in range(k):
                first -= theta[target, j] * X[t, j] + theta[target, k + j] * X[t, k + j]
                second += theta[target, j] * X[t, k + j] - theta[target, k + j] * X[t, j]
            residual[t, target], residual[t + 1, target] = first, second
            one, other = gain * first, gain * second
            # theta' = theta + gain (e_u [p, q] + e_v [-q, p])
            for j in range(k):
                theta[target, j] += one * p[j] - other * q[j]
                theta[target, k + j] += one * q[j] + other * p[j]
            loss[target] = gate * loss[target] + weight * (first**2 + second**2) * left
        root_gain, inverse_gate = math.sqrt(gain), 1.0 / gate
        following = min(t + 2, stop - 2)
        for j in range(k):
            h[j], g[j] = root_gain * p[j], root_gain * q[j]
            square = weight * (X[t, j] * X[t, j] + X[t, k + j] * X[t, k + j])
            real, imag = gate * columns[0, j] + square, gate * columns[0, k + j] + square
            columns[0, j], columns[0, k + j] = real, imag
            columns[1, j] = real if square > 0 else columns[1, j]
            columns[1, k + j] = imag if square > 0 else columns[1, k + j]
        # A' = (A - h h^T - g g^T) / gamma, B' = (B - g h^T + h g^T) / gamma, and in the same pass
        # P' u of the next pair
        for i in range(k):
            hi, gi = h[i], g[i]
            real, imag = 0.0, 0.0
            for j in range(k):
                a = updated_real_part(A[i, j], hi, h[j], gi, g[j], inverse_gate)
                b = updated_imaginary_part(B[i, j], hi, h[j], gi, g[j], inverse_gate)
                A[i, j], B[i, j] = a, b
                real += a * X[following, j] - b * X[following, k + j]
                imag += b * X[following, j] + a * X[following, k + j]
            p[i], q[i] = real, imag
        absorb_squares(spread, X, gates, weights, t, t + 2)
        for row in range(t, t + 2):
            count_row(tally, gates[row], weight)
            if trace is not None:
                _, diags, _, _, recursive, _ = trace
                record(trace, row, theta, loss, tally, d, 0.0)
                for j in range(k if diags.shape[0] > 0 else 0):
                    diags[row, j] = diags[row, k + j] = A[j, j]
                for target in range(m):
                    recursive[row, target] = residual[row, target] * math.sqrt(weight * left)
        t += 2
    write_blocks(A, B, P)
    return t, True
