"""Kernels for one chunk of one stream: every token solved from two Cholesky factors.

With H the moments before the chunk, ``zeta_t`` the product of its gates up to t, a reference
``zeta_r``, ``f_t = zeta_r / zeta_t`` and a ridge L::

    A = zeta_r H + L       W^T W = A^-1        k~_i = sqrt(weight_i f_i) k_i  (v~ likewise)
    Y = K~ W^T             S = I + Y Y^T = C C^T          N = C^-1 Y
    Z = zeta_r G W^T       E = C^-1 (V~ - Y Z^T)

Leading minors of S share C, hence ``P_t = f_t W^T (I - sum_{i<=t} n_i n_i^T) W`` inverts
``H_t + L / f_t`` for every t, and ``G_t P_t q = Z y + sum_{i<=t} e_i (n_i . y)``, y = W q.  A ridge
that is not L / f_t leaves ``gap_t = Lambda_t - L / f_t``: then ``y = W (q - gap_t x_t)``, x_t by
Chebyshev iteration on ``x + P_t gap_t x = P_t q``, whose spectrum the gates bound.

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
from olsq.solvers.thresholds import MOST_CORRECTIONS, correction_error

correction_bound = kernel()(correction_error)


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
def zero_upper_triangle(scores, count):
    """Set the entries above the diagonal to zero: a token sees itself and the past."""
    for i in range(count):
        for j in range(i + 1, count):
            scores[i, j] = scores.dtype.type(0)


@kernel()
def count_corrections(lows, highs, tolerance):
    """Count the Chebyshev steps for ``tolerance``, given the order that reading out with y gains.

    -1: none, not even a first iterate; more than ``MOST_CORRECTIONS``: too many.
    """
    low = high = 1.0
    for i in range(lows.shape[0]):
        low, high = min(low, lows[i]), max(high, highs[i])
    # Reading out with y = W (q - gap x) multiplies the error of x by the gap, at most `gain`.
    gain = max(high - 1, 1 - low)
    if gain <= tolerance:
        return -1
    steps = 0
    while (
        steps <= MOST_CORRECTIONS
        and not min(gain, 1.0) * correction_bound(high / low, steps) <= tolerance
    ):
        steps += 1
    return steps


@kernel()
def spectrum_bounds(ridge, reference, ratio, count):
    """Bound the spectrum of P_t M_t from gates and ridges: (low, high), each (count,)."""
    low, high = np.empty(count), np.empty(count)
    for i in range(count):
        low[i] = high[i] = 1.0
        for j in range(reference.shape[0]):
            if reference[j] > 0:
                own = ridge[i, j] / reference[j] * ratio[i]
                low[i], high[i] = min(low[i], own), max(high[i], own)
    return low, high


@kernel()
def ridge_gaps(ridge, reference, ratio, uniform, like):
    """Compute ``Lambda_t - L / f_t`` (count, d).

    If uniform, its ratio to L, in the first column.
    """
    count, d = ridge.shape
    gap, number = np.empty((count, d), like.dtype), like.dtype.type
    for i in range(count):
        for j in range(d):
            gap[i, j] = number(ridge[i, j] - reference[j] / ratio[i])
        if uniform:
            gap[i, 0] = number(1 - 1 / ratio[i])
    return gap


@kernel()
def apply_whitened_inverse(blas, y, N, ratio, scores, out, count):
    """Compute rows ``f_t (I - sum_{i<=t} n_i n_i^T) y_t``; also leave tril(y N^T) in ``scores``."""
    d = N.shape[1]
    multiply_nt(blas, y, N, scores)
    zero_upper_triangle(scores, count)
    multiply_nn(blas, scores, N, out)
    for i in range(count):
        f = out.dtype.type(ratio[i])
        for j in range(d):
            out[i, j] = f * (y[i, j] - out[i, j])


@kernel()
def ridge_product(blas, W, reference, B):
    """Compute B = W L W^T, the ridge's share of the whitened system; return a bound of its norm."""
    d, number = W.shape[0], W.dtype.type
    scaled = np.empty(W.shape, W.dtype)
    for i in range(d):
        for j in range(d):
            scaled[i, j] = W[i, j] * number(reference[j])
    multiply_nt(blas, scaled, W, B)
    widest, total = 0.0, 0.0
    for i in range(d):
        row = 0.0
        for j in range(d):
            row += abs(float(B[i, j]))
            total += float(B[i, j]) ** 2
        widest = max(widest, row)
    return min(1.0, widest, math.sqrt(total))


@kernel()
def apply_ridge_gap(blas, x, W, B, gap, uniform, scratch, out, count):
    """Compute rows ``W gap_t W^T x_t``; with one ridge for all tokens, a multiple of ``B x_t``."""
    d = W.shape[0]
    if uniform:
        multiply_nn(blas, x, B, out)
        for i in range(count):
            for j in range(d):
                out[i, j] *= gap[i, 0]
        return
    multiply_nn(blas, x, W, scratch)
    for i in range(count):
        for j in range(d):
            scratch[i, j] *= gap[i, j]
    multiply_nt(blas, scratch, W, out)


@kernel()
def start_corrections(low, high, rest, x, change, rho):
    """Set the first iterate ``x = P q / middle`` from ``rest`` = P q, with its change and rho."""
    number = x.dtype.type
    for i in range(x.shape[0]):
        middle = (high[i] + low[i]) / 2
        rho[i] = (high[i] - low[i]) / 2 / middle
        for j in range(x.shape[1]):
            x[i, j] = rest[i, j] / number(middle)
            change[i, j] = x[i, j]


@kernel()
def take_corrections(
    blas, x, change, rest, rho, N, W, B, ratio, gap, uniform, low, high, steps, scores
):
    """Take Chebyshev steps on ``x + P_t gap_t x = P_t q``; ``rest`` is the residual of the last."""
    number, (count, d) = x.dtype.type, x.shape
    shape, kind = x.shape, x.dtype
    product, scratch, inner = np.empty(shape, kind), np.empty(shape, kind), np.empty(shape, kind)
    for _ in range(steps):
        apply_ridge_gap(blas, change, W, B, gap, uniform, scratch, product, count)
        apply_whitened_inverse(blas, product, N, ratio, scores, inner, count)
        for i in range(count):
            middle, half = (high[i] + low[i]) / 2, (high[i] - low[i]) / 2
            # change <- rho' rho change + 2 rho' / half r,  rho' = half / (2 middle - half rho)
            factor = 1 / (2 * middle - half * rho[i])
            a, b = number(half * factor * rho[i]), number(2 * factor)
            rho[i] = half * factor
            for j in range(d):
                rest[i, j] -= change[i, j] + inner[i, j]
                change[i, j] = a * change[i, j] + b * rest[i, j]
                x[i, j] += change[i, j]


@kernel()
def correct_for_ridge_gap(blas, y, N, W, B, ratio, gap, uniform, low, high, steps, scores, count):
    """Turn rows ``W q_t`` into ``W (q_t - gap_t x_t)``, with x from ``steps`` Chebyshev steps."""
    d = N.shape[1]
    shape, kind = (count, d), y.dtype
    x, change, product = np.empty(shape, kind), np.empty(shape, kind), np.empty(shape, kind)
    rest, scratch, rho = np.empty(shape, kind), np.empty(shape, kind), np.empty(count)
    apply_whitened_inverse(blas, y, N, ratio, scores, rest, count)
    start_corrections(low, high, rest, x, change, rho)
    take_corrections(
        blas, x, change, rest, rho, N, W, B, ratio, gap, uniform, low, high, steps, scores
    )
    apply_ridge_gap(blas, x, W, B, gap, uniform, scratch, product, count)
    for i in range(count):
        for j in range(d):
            y[i, j] -= product[i, j]


@kernel()
def plan_corrections(blas, W, ridge, reference, ratio, uniform, tolerance, B, count):
    """Bound the spectrum of P_t M_t, and count the Chebyshev steps: (low, high, steps).

    With one ridge for all tokens, ``B`` becomes ``W L W^T`` where there are steps at all, and its
    norm, the largest share of the ridge in the system, narrows the bounds.
    """
    low, high = spectrum_bounds(ridge, reference, ratio, count)
    steps = count_corrections(low, high, tolerance)
    if steps >= 0:
        share = ridge_product(blas, W, reference, B) if uniform else 1.0
        for i in range(count):
            low[i], high[i] = 1 + share * (low[i] - 1), 1 + share * (high[i] - 1)
        steps = count_corrections(low, high, tolerance)
    return low, high, steps


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
    blas, chunk, first, count, rows, A, W, Z, ratio, ridge, reference, uniform, limits, value,
    norms,
):  # fmt: skip
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
