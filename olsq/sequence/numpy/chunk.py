"""Kernels for one chunk of one stream: every token solved from two Cholesky factors.

With H the moments before the chunk, ``zeta_t`` the product of its gates up to t, a reference
``zeta_r``, ``f_t = zeta_r / zeta_t`` and a ridge L::

    A = zeta_r H + L       W^T W = A^-1        k~_i = sqrt(weight_i f_i) k_i  (v~ likewise)
    Y = K~ W^T             S = I + Y Y^T = C C^T          N = C^-1 Y
    Z = zeta_r G W^T       E = C^-1 (V~ - Y Z^T)

Leading minors of S share C, hence ``P_t = f_t W^T (I - sum_{i<=t} n_i n_i^T) W`` inverts
``H_t + L / f_t`` for every t, and ``G_t P_t q = Z y + sum_{i<=t} e_i (n_i . y)``, y = W q.  A ridge
that is not L / f_t leaves ``gap_t = Lambda_t - L / f_t``: then ``y = W (q - gap_t x_t)``, with x_t
from :mod:`.corrections`.

No bit of a token's output depends on later samples: every product has the shape of the whole chunk
and computes a token's row by itself, the rows of a factor depend on those above only, and later
tokens enter multiplied by an exact 0, which requires them to be finite. So rows from the first
token that cannot be solved here are set to 0, and the tokens before it are kept as they are.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import inverse_factor, multiply_nn, multiply_nt
from olsq.sequence.numpy.corrections import (
    apply_whitened_inverse,
    correct_for_ridge_gap,
    plan_corrections,
    ridge_gaps,
    zero_upper_triangle,
)
from olsq.solvers.thresholds import MOST_CORRECTIONS


@kernel()
def scaled_rows(chunk, first, count, sound, ratio, X, Y):
    """Fill X with [K~; queries] above one another and Y with V~: samples times sqrt(weight f).

    Samples from ``sound`` on are left out.
    """
    keys, values, queries, weights = chunk
    number = X.dtype.type
    d, m = keys.shape[1], values.shape[1]
    for i in range(count):
        t = first + i
        root = number(math.sqrt(weights[t] * ratio[i]))
        absent, query_finite = weights[t] == 0 or i >= sound, True
        for j in range(d):
            X[i, j] = number(0) if absent else root * number(keys[t, j])
            query_finite = query_finite and math.isfinite(queries[t, j])
        for j in range(d):
            X[count + i, j] = number(queries[t, j]) if query_finite else number(0)
        for j in range(m):
            Y[i, j] = number(0) if absent else root * number(values[t, j])


@kernel()
def zero_rows(A, first, count):
    """Set rows first..count to zero."""
    for i in range(first, count):
        for j in range(A.shape[1]):
            A[i, j] = A.dtype.type(0)


@kernel()
def count_finite_rows(A, count):
    """Count the finite rows before the first one that is not, up to ``count``."""
    for i in range(count):
        for j in range(A.shape[1]):
            if not math.isfinite(A[i, j]):
                return i
    return count


@kernel()
def true_residual(blas, X, x, A, ridge, reference, ratio, scores, count, norms, backward):
    """Compute ``|q - M x|``, ``|x|`` and the normwise backward error of every token on the true
    system.
    """
    d = A.shape[0]
    far, near = np.empty((count, d), X.dtype), np.empty((count, d), X.dtype)
    multiply_nn(blas, x, A, far)
    multiply_nt(blas, x, X, scores)
    zero_upper_triangle(scores, count)
    multiply_nn(blas, scores, X, near)
    trace = 0.0
    for j in range(d):
        trace += A[j, j]
    for i in range(count):
        size = left = length = 0.0
        for j in range(d):
            trace += float(X[i, j]) ** 2
            q, solution = float(X[count + i, j]), float(x[i, j])
            own = (ridge[i, j] - reference[j] / ratio[i]) * solution
            r = q - (float(far[i, j]) + float(near[i, j])) / ratio[i] - own
            size, left, length = size + q * q, left + r * r, length + solution * solution
        norms[i, 0], norms[i, 1] = math.sqrt(left), math.sqrt(length)
        backward[i] = math.sqrt(left) / (math.sqrt(size) + trace / ratio[i] * math.sqrt(length))
        if not size > 0:
            backward[i] = 0.0


@kernel()
def solve_chunk(
    blas,
    chunk,
    first,
    count,
    rows,
    A,
    W,
    Z,
    ratio,
    ridge,
    reference,
    uniform,
    limits,
    value,
    norms,
):
    """Solve the tokens of a chunk in the precision of ``W``.

    Returns how many from the first are good.

    ``rows`` = (skip, sound): samples from ``sound`` on are unknown, outputs before ``skip`` are
    there already. ``Z`` = zeta_r G W^T; ``uniform``: L is the ridge of every token; ``limits`` =
    (tolerance of the corrections, largest pivot, largest backward error): the first token that
    breaks one ends the good ones. Also returns the number of corrections.
    """
    keys, values, _, _ = chunk
    skip, sound = rows
    d, m, number = keys.shape[1], values.shape[1], W.dtype.type
    X, Y = np.empty((2 * count, d), W.dtype), np.empty((2 * count, d), W.dtype)
    V, E = np.empty((count, m), W.dtype), np.empty((count, m), W.dtype)
    S, inverse = np.empty((count, count), W.dtype), np.empty((count, count), W.dtype)
    N = np.empty((count, d), W.dtype)
    scaled_rows(chunk, first, count, sound, ratio, X, V)
    # Y = X W^T with W^T W = P_r, so that y_t . y_i = x_t . P_r x_i: keys above, queries below.
    multiply_nt(blas, X, W, Y)
    # S = I + Y Y^T, whose Cholesky factor is that of every token of the chunk.
    multiply_nt(blas, Y, Y, S)
    # V <- V - Y Z^T: the values less their prediction from the moments before the chunk
    multiply_nt(blas, Y, Z, V, -1.0, 1.0)
    for i in range(sound):
        S[i, i] += number(1)
        if not S[i, i] <= limits[1]:
            sound = i
            break
    sound = min(sound, count_finite_rows(V, sound))
    # Lost rows become those of an identity, so that the factor of the rows before them is
    # unchanged.
    for i in range(sound, count):
        for j in range(count):
            S[i, j] = S[j, i] = number(0)
        S[i, i] = number(1)
    zero_rows(X, sound, count)
    zero_rows(Y, sound, count)
    zero_rows(V, sound, count)
    if sound <= skip or not inverse_factor(blas, S, inverse, count, 0.0):
        return skip, 0
    # S = L L^T: E = L^-1 V are innovations, N = L^-1 Y gains, of unit variance.
    multiply_nn(blas, inverse, V, E)
    multiply_nn(blas, inverse, Y, N)
    sound = min(sound, count_finite_rows(E, sound))
    zero_rows(E, sound, count)

    y = Y[count:]
    B = np.empty(W.shape, W.dtype)
    low, high, steps = plan_corrections(
        blas, W, ridge, reference, ratio, uniform, limits[0], B, count
    )
    if steps > MOST_CORRECTIONS:
        return skip, 0
    if steps >= 0:
        gap = ridge_gaps(ridge, reference, ratio, uniform, X)
        correct_for_ridge_gap(blas, y, N, W, B, ratio, gap, uniform, low, high, steps, S, count)
    inner = np.empty((count, d), W.dtype)
    apply_whitened_inverse(blas, y, N, ratio, S, inner, count)
    # o_t = Z y_t + sum_{i<=t} (n_i . y_t) e_i
    multiply_nt(blas, y, Z, V)
    multiply_nn(blas, S, E, V, 1.0, 1.0)
    x, own, backward = np.empty((count, d), W.dtype), np.empty((count, 2)), np.empty(count)
    # x_t = W^T inner_t
    multiply_nn(blas, inner, W, x)
    true_residual(blas, X, x, A, ridge, reference, ratio, S, count, own, backward)
    for i in range(skip, sound):
        if not backward[i] <= limits[2]:
            return i, steps + 1
        for j in range(m):
            value[first + i, j] = V[i, j]
        norms[first + i] = own[i]
    return sound, steps + 1
