"""Corrections for a ridge that is not the reference of its chunk, by Chebyshev iteration.

In the notation of :mod:`.chunk`, a chunk's factors invert ``H_t + L / f_t``.  With the gap
``Lambda_t - L / f_t`` to the ridge that is meant, ``M_t x_t = q_t`` becomes
``x + P_t gap_t x = P_t q``, whose spectrum the gates bound.  Everything is whitened by W: rows are
``W q_t``, and ``W gap_t W^T`` takes the place of the gap.

``whitened`` = (N, W, B, f_t, gap, whether one ridge serves all tokens), with ``B = W L W^T``;
``plan`` = (low, high, steps, B): bounds of the spectrum per token, and the number of steps; -1 for
not even a first iterate.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import copy, multiply_nn, multiply_nt
from olsq.solvers.chunk_exact import MOST_CORRECTIONS, correction_error

correction_bound = kernel()(correction_error)
SINGLE_ERROR = 1e-6  # error that a Chebyshev step in float32 leaves, relative to the change of x


@kernel()
def zero_upper_triangle(scores):
    """Set the entries above the diagonal to zero: a token sees itself and the past."""
    for i in range(scores.shape[0]):
        for j in range(i + 1, scores.shape[1]):
            scores[i, j] = scores.dtype.type(0)


@kernel()
def apply_whitened_inverse(blas, y, N, ratio, scores, out):
    """Compute rows ``f_t (I - sum_{i<=t} n_i n_i^T) y_t``; also leave tril(y N^T) in ``scores``."""
    multiply_nt(blas, y, N, scores)
    zero_upper_triangle(scores)
    multiply_nn(blas, scores, N, out)
    for i in range(N.shape[0]):
        f = out.dtype.type(ratio[i])
        for j in range(N.shape[1]):
            out[i, j] = f * (y[i, j] - out[i, j])


@kernel()
def spectrum_bounds(scales):
    """Bound the spectrum of P_t M_t from gates and ridges: (low, high), each (count,)."""
    ratio, ridge, reference, _ = scales
    low, high = np.ones(ratio.shape[0]), np.ones(ratio.shape[0])
    for i in range(ratio.shape[0]):
        for j in range(reference.shape[0]):
            if reference[j] > 0:
                relative = ridge[i, j] / reference[j] * ratio[i]
                low[i], high[i] = min(low[i], relative), max(high[i], relative)
    return low, high


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
def plan_corrections(blas, W, scales, limits):
    """Bound the spectrum of P_t M_t, and count the Chebyshev steps.

    With one ridge for all tokens the norm of B, the largest share of the ridge in the system,
    narrows the bounds.  A given number of corrections keeps them.
    """
    reference, uniform = scales[2], scales[3]
    tolerance, corrections = limits[0], limits[3]
    B = np.empty(W.shape, W.dtype)
    low, high = spectrum_bounds(scales)
    steps = count_corrections(low, high, tolerance)
    if steps < 0:
        return low, high, steps, B
    share = ridge_product(blas, W, reference, B) if uniform else 1.0
    if corrections >= 0:
        return low, high, corrections, B
    for i in range(low.shape[0]):
        low[i], high[i] = 1 + share * (low[i] - 1), 1 + share * (high[i] - 1)
    return low, high, count_corrections(low, high, tolerance), B


@kernel()
def count_early_corrections(plan, tolerance):
    """Count the steps of a plan before those that change x by only about 1e-8 of itself."""
    low, high, steps, _ = plan
    return min(steps, max(count_corrections(low, high, tolerance / SINGLE_ERROR), 0))


@kernel()
def ridge_gaps(scales, like):
    """Compute ``Lambda_t - L / f_t`` (count, d).

    If uniform, its ratio to L, in the first column.
    """
    ratio, ridge, reference, uniform = scales
    gap, number = np.empty(ridge.shape, like.dtype), like.dtype.type
    for i in range(ridge.shape[0]):
        for j in range(ridge.shape[1]):
            gap[i, j] = number(ridge[i, j] - reference[j] / ratio[i])
        if uniform:
            gap[i, 0] = number(1 - 1 / ratio[i])
    return gap


@kernel()
def apply_ridge_gap(blas, x, whitened, scratch, out):
    """Compute rows ``W gap_t W^T x_t``; with one ridge for all tokens, a multiple of ``B x_t``."""
    _, W, B, _, gap, uniform = whitened
    count, d = x.shape
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
def take_corrections(blas, iterate, whitened, plan, steps, scores):
    """Take Chebyshev steps on ``x + P_t gap_t x = P_t q``; ``iterate`` = x, its last change, the
    residual before that, and rho (count,).
    """
    x, change, residual, rho = iterate
    N, _, _, ratio, _, _ = whitened
    low, high = plan[0], plan[1]
    number, (count, d) = x.dtype.type, x.shape
    shape, kind = x.shape, x.dtype
    product, scratch, inner = np.empty(shape, kind), np.empty(shape, kind), np.empty(shape, kind)
    for _ in range(steps):
        apply_ridge_gap(blas, change, whitened, scratch, product)
        apply_whitened_inverse(blas, product, N, ratio, scores, inner)
        # The step of `iterations.chebyshev_step`, in one pass with the sum: a call of it made
        # solves with 16 features take 7 % longer.
        for i in range(count):
            middle, half = (high[i] + low[i]) / 2, (high[i] - low[i]) / 2
            # change <- rho' rho change + 2 rho' / half r,  rho' = half / (2 middle - half rho)
            factor = 1 / (2 * middle - half * rho[i])
            a, b = number(half * factor * rho[i]), number(2 * factor)
            rho[i] = half * factor
            for j in range(d):
                residual[i, j] -= change[i, j] + inner[i, j]
                change[i, j] = a * change[i, j] + b * residual[i, j]
                x[i, j] += change[i, j]


@kernel()
def take_late_corrections(blas, iterate, whitened, plan, steps):
    """Take the late steps in float32, which change x by so little that it holds the change.

    Measured at d 64, 0.37 microseconds per token become 0.2.  N and B have no entry above 1, and
    rows are divided by their largest entry, so that no units overflow.
    """
    if steps <= 0:
        return
    single, (x, change, residual, rho) = np.float32, iterate
    N, W, B, ratio, gap, uniform = whitened
    (count, d), square = x.shape, W.shape
    late, moved = np.zeros((count, d), single), np.empty((count, d), single)
    left, size = np.empty((count, d), single), np.zeros(count)
    for i in range(count):
        for j in range(d):
            size[i] = max(size[i], abs(change[i, j]), abs(residual[i, j]))
        factor = 1 / size[i] if size[i] > 0 else 0.0
        for j in range(d):
            moved[i, j], left[i, j] = single(change[i, j] * factor), single(residual[i, j] * factor)
    B = copy(B, np.empty(square, single))
    narrow = copy(N, np.empty((count, d), single)), B, B, ratio, gap, uniform
    scores = np.empty((count, count), single)
    take_corrections(blas, (late, moved, left, rho), narrow, plan, steps, scores)
    for i in range(count):
        for j in range(d):
            x[i, j] += size[i] * late[i, j]


@kernel()
def solve_whitened(blas, y, whitened, plan, late, plain, scores, inner):
    """Solve ``M_t x_t = q_t`` from rows ``y_t = W q_t``: inner with ``x_t = W^T inner_t``.

    Rows y become ``W (q_t - gap_t x_t)``, and ``scores`` tril(y N^T), whose read-out gains an order
    of accuracy.  ``plain`` leaves out this gain.  ``late`` steps more are taken in float32; None
    leaves them out, in the compiled code too.
    """
    N, _, _, ratio, _, _ = whitened
    low, high, steps, _ = plan
    shape, kind, number = y.shape, y.dtype, y.dtype.type
    apply_whitened_inverse(blas, y, N, ratio, scores, inner)
    if steps < 0:
        return
    x, change = np.empty(shape, kind), np.empty(shape, kind)
    residual, rho = inner, np.empty(shape[0])
    for i in range(shape[0]):
        middle = (high[i] + low[i]) / 2
        rho[i] = (high[i] - low[i]) / 2 / middle
        for j in range(shape[1]):
            x[i, j] = change[i, j] = residual[i, j] / number(middle)
    iterate = x, change, residual, rho
    take_corrections(blas, iterate, whitened, plan, steps, scores)
    if late is not None:
        take_late_corrections(blas, iterate, whitened, plan, late)
    if plain:
        copy(x, inner)
        return
    apply_ridge_gap(blas, x, whitened, residual, change)
    for i in range(shape[0]):
        for j in range(shape[1]):
            y[i, j] -= change[i, j]
    apply_whitened_inverse(blas, y, N, ratio, scores, inner)
