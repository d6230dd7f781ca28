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

With an upstream gradient ``g_t`` the gradient needs x_t and ``e_t = M_t^{-1} G_t^T g_t``.  The
right side looks back only, like the query, so that :func:`solve_chunk_pairs` solves both with the
same factors, and keeps none of them.  There samples are finite, and everything is float64::

    G_t^T g_t = (tril(g V~^T) K~ + zeta_r g G)_t / f_t

Kernels take the same tuples everywhere.  ``stream`` = keys (T, d), values (T, m), queries (T, d),
weights (T,), gates (T,) and ridge (1 or T, d); ``span`` = (first, count, sound): tokens ``first``
to ``first + count``, of which the first ``sound`` can be solved here; ``scales`` = ``f_t``
(count,), ridges (count, d), their reference L (d,), and whether L is the ridge of every token;
``limits`` = (tolerance of corrections, largest pivot of S, largest backward error, number of
corrections or -1); ``pairs`` = upstream gradients (T, m), x and e.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import inverse_factor, multiply_nn, multiply_nt, multiply_tn
from olsq.sequence.numpy.corrections import (
    count_early_corrections,
    plan_corrections,
    ridge_gaps,
    solve_whitened,
    zero_upper_triangle,
)
from olsq.solvers.chunk_exact import MOST_CORRECTIONS

SINGULAR = 0.02  # relative error of S or P beyond which a leverage is capped


@kernel()
def absorb_chunk(blas, samples, first, count, gram, cross):
    """Advance moments over a chunk, in float64: ``H <- zeta H + sum_i D_i weight_i k_i k_i^T``.

    ``samples`` = keys, values, weights, gates.  The first gate is already applied.
    """
    keys, values, weights, gates = samples
    d, m = keys.shape[1], values.shape[1]
    K, V, decay = np.empty((count, d)), np.empty((count, m)), 1.0
    for i in range(count - 1, -1, -1):
        t = first + i
        # D_i, the product of the gates after i: by multiplication, so that a gate of 0 is exact
        root = math.sqrt(weights[t] * decay) if weights[t] > 0 else 0.0
        for j in range(d):
            K[i, j] = root * float(keys[t, j]) if root else 0.0
        for j in range(m):
            V[i, j] = root * float(values[t, j]) if root else 0.0
        decay *= gates[t] if i > 0 else 1.0
    multiply_tn(blas, K, K, gram, 1.0, decay)
    multiply_tn(blas, V, K, cross, 1.0, decay)


@kernel()
def fill_scaled_rows(stream, span, ratio, X, V):
    """Fill X with [K~; queries] above one another and V with V~: samples times sqrt(weight f)."""
    keys, values, queries, weights, _, _ = stream
    first, count, sound = span
    number = X.dtype.type
    for i in range(count):
        t = first + i
        root = number(math.sqrt(weights[t] * ratio[i]))
        absent = weights[t] == 0 or i >= sound
        for j in range(X.shape[1]):
            X[i, j] = number(0) if absent else root * number(keys[t, j])
            X[count + i, j] = number(queries[t, j])
        for j in range(V.shape[1]):
            V[i, j] = number(0) if absent else root * number(values[t, j])


@kernel()
def zero_rows(A, first, count):
    """Set rows first..count to zero."""
    for i in range(first, count):
        for j in range(A.shape[1]):
            A[i, j] = A.dtype.type(0)


@kernel()
def count_finite_rows(A, count):
    """Count the finite rows before the first one that is not, up to ``count``; zero the rest."""
    for i in range(count):
        for j in range(A.shape[1]):
            if not math.isfinite(A[i, j]):
                zero_rows(A, i, A.shape[0])
                return i
    return count


@kernel()
def cap_leverages(Y, count, cap):
    """Shrink the first rows of Y to a squared norm of ``cap`` at most."""
    number = Y.dtype.type
    for i in range(count):
        leverage = number(0)
        for j in range(Y.shape[1]):
            leverage += Y[i, j] * Y[i, j]
        if leverage > cap:
            shrunk = number(math.sqrt(cap / leverage))
            for j in range(Y.shape[1]):
                Y[i, j] *= shrunk


@kernel()
def factor_chunk(blas, stream, span, W, ratio, limits):
    """Compute what all tokens of a chunk share: the number of good tokens, X, V~, Y, N, C^-1, and S
    as scratch.

    The first token whose pivot breaks its limit ends the good ones; 0 where S has no factor.
    """
    _, count, sound = span
    d, m, kind, number = W.shape[0], stream[1].shape[1], W.dtype, W.dtype.type
    X, Y, N = (
        np.empty((2 * count, d), kind),
        np.empty((2 * count, d), kind),
        np.empty((count, d), kind),
    )
    V = np.empty((count, m), kind)
    S, inverse = np.empty((count, count), kind), np.empty((count, count), kind)
    fill_scaled_rows(stream, span, ratio, X, V)
    # Y = X W^T with W^T W = P_r, so that y_t . y_i = x_t . P_r x_i: keys above, queries below.
    multiply_nt(blas, X, W, Y)
    if limits[3] >= 0:  # a given number of corrections is taken even across a reset
        cap_leverages(Y, count, SINGULAR / (count * (1.2e-7 if Y.itemsize == 4 else 2.3e-16)))
    # S = I + Y Y^T, whose Cholesky factor is that of every token of the chunk.
    multiply_nt(blas, Y, Y, S)
    for i in range(sound):
        S[i, i] += number(1)
        if not S[i, i] <= limits[1]:
            sound = i
            break
    # Lost rows become those of an identity, so that the factor of the rows before them is
    # unchanged.
    for i in range(sound, count):
        for j in range(count):
            S[i, j] = S[j, i] = number(0)
        S[i, i] = number(1)
    zero_rows(X, sound, count)
    zero_rows(Y, sound, count)
    zero_rows(V, sound, count)
    if sound > 0 and inverse_factor(blas, S, inverse, count, 0.0):
        multiply_nn(blas, inverse, Y, N)  # gains of unit variance
    else:
        sound = 0
    return sound, X, V, Y, N, inverse, S


@kernel()
def true_residual(blas, X, x, A, scales, scores, norms, backward):
    """Compute ``|q - M x|``, ``|x|`` and the normwise backward error of every token on the true
    system; leave tril(x K~^T) in ``scores``.
    """
    ratio, ridge, reference, _ = scales
    count, d = x.shape
    far, near = np.empty((count, d), X.dtype), np.empty((count, d), X.dtype)
    multiply_nn(blas, x, A, far)
    multiply_nt(blas, x, X, scores)
    zero_upper_triangle(scores)
    multiply_nn(blas, scores, X, near)
    trace = 0.0
    for j in range(d):
        trace += A[j, j]
    for i in range(count):
        size = left = length = 0.0
        for j in range(d):
            trace += float(X[i, j]) ** 2
            q, solution = float(X[count + i, j]), float(x[i, j])
            ridge_term = (ridge[i, j] - reference[j] / ratio[i]) * solution
            r = q - (float(far[i, j]) + float(near[i, j])) / ratio[i] - ridge_term
            size, left, length = size + q * q, left + r * r, length + solution * solution
        norms[i, 0], norms[i, 1] = math.sqrt(left), math.sqrt(length)
        backward[i] = math.sqrt(left) / (math.sqrt(size) + trace / ratio[i] * math.sqrt(length))
        if not size > 0:
            backward[i] = 0.0


@kernel()
def solve_chunk(blas, stream, span, factors, scales, limits, skip, outputs):
    """Solve the tokens of a chunk in the precision of ``factors`` = (A, W, Z).

    Returns how many from the first are good: the first token that breaks a limit ends them.
    Outputs = (value, steps, norms) before ``skip`` are there already.
    """
    A, W, Z = factors
    ratio, uniform, (value, steps, norms) = scales[0], scales[3], outputs
    first, count, _ = span
    m, kind, number, fixed = value.shape[1], W.dtype, W.dtype.type, limits[3] >= 0
    sound, X, V, Y, N, inverse, S = factor_chunk(blas, stream, span, W, ratio, limits)
    if sound <= skip:
        return skip
    y, out, E = Y[count:], np.empty((count, m), kind), np.empty((count, m), kind)
    if not fixed:
        # E = C^-1 (V~ - Y Z^T): innovations, the values less their prediction, of unit variance
        multiply_nt(blas, Y, Z, V, -1.0, 1.0)
        sound = count_finite_rows(V, sound)
        multiply_nn(blas, inverse, V, E)
        sound = count_finite_rows(E, sound)
        zero_rows(E, sound, count)
    plan = plan_corrections(blas, W, scales, limits)
    corrections = plan[2]
    if corrections > MOST_CORRECTIONS and not fixed:
        return skip
    whitened = N, W, plan[3], ratio, ridge_gaps(scales, X), uniform
    inner, x = np.empty((count, W.shape[0]), kind), np.empty((count, W.shape[0]), kind)
    solve_whitened(blas, y, whitened, plan, None, fixed, S, inner)
    if not fixed:
        # o_t = Z y_t + sum_{i<=t} (n_i . y_t) e_i
        multiply_nt(blas, y, Z, out)
        multiply_nn(blas, S, E, out, 1.0, 1.0)
    token_norms, backward = np.empty((count, 2)), np.empty(count)
    # x_t = W^T inner_t
    multiply_nn(blas, inner, W, x)
    true_residual(blas, X, x, A, scales, S, token_norms, backward)
    if fixed:
        # o_t = G_t x_t = (Z inner_t + sum_{i<=t} (k~_i . x_t) v~_i) / f_t
        multiply_nt(blas, inner, Z, out)
        multiply_nn(blas, S, V, out, 1.0, 1.0)
    for i in range(skip, sound):
        if not backward[i] <= limits[2]:
            return i
        share = number(1 / ratio[i] if fixed else 1)
        for j in range(m):
            value[first + i, j] = share * out[i, j]
        norms[first + i, 0], norms[first + i, 1] = token_norms[i, 0], token_norms[i, 1]
        steps[first + i] = corrections if fixed and corrections >= 0 else corrections + 1
    return sound


@kernel()
def fill_right_sides(blas, g, samples, cross, ratio, scores, out):
    """Fill out with rows ``G_t^T g_t``; ``samples`` = K~ and V~."""
    K, V = samples
    multiply_nt(blas, g, V, scores)
    zero_upper_triangle(scores)
    multiply_nn(blas, scores, K, out)
    multiply_nn(blas, g, cross, out, ratio[0], 1.0)  # ratio[0]: cross has the first gate applied
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] /= ratio[i]


@kernel()
def solve_chunk_pairs(blas, stream, span, scales, cross, work, limits, pairs):
    """Solve both systems of the tokens of a chunk, as :func:`solve_chunk` solves one.

    Returns how many tokens from the first are good.
    """
    (system, W, _, _), (upstream, x, e), ratio = work, pairs, scales[0]
    first, count, _ = span
    sound, X, V, Y, N, _, S = factor_chunk(blas, stream, span, W, ratio, limits)
    if sound == 0:
        return sound
    plan = plan_corrections(blas, W, scales, limits)
    low, high, steps, B = plan
    if steps > MOST_CORRECTIONS:
        return np.int64(0)
    early = count_early_corrections(plan, limits[0]) if scales[3] else steps
    plan, late = (low, high, early, B), steps - early
    whitened = N, W, B, ratio, ridge_gaps(scales, X), scales[3]
    b, y = X[count:], Y[count:]
    inner, solution = np.empty(b.shape), np.empty(b.shape)
    norms, backward = np.empty((count, 2)), np.empty(count)
    for side in range(2):
        if side == 1:
            g = upstream[first : first + count]
            fill_right_sides(blas, g, (X[:count], V), cross, ratio, S, b)
            multiply_nt(blas, b, W, y)
        solve_whitened(blas, y, whitened, plan, late, False, S, inner)
        multiply_nn(blas, inner, W, solution)
        true_residual(blas, X, solution, system, scales, S, norms, backward)
        into = x if side == 0 else e
        for i in range(sound):
            if not backward[i] <= limits[2]:
                sound = i
                break
            for j in range(b.shape[1]):
                into[first + i, j] = solution[i, j]
    return sound
