"""Corrections for a ridge that is not the reference of its chunk, by Chebyshev iteration.

In the notation of :mod:`.chunk`, a chunk's factors invert ``H_t + L / f_t``.  With the gap
``Lambda_t - L / f_t`` to the ridge that is meant, ``M_t x_t = q_t`` becomes
``x + P_t gap_t x = P_t q``, whose spectrum the gates bound.  Everything is whitened by W: rows are
``W q_t``, and ``W gap_t W^T`` takes the place of the gap.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import multiply_nn, multiply_nt
from olsq.solvers.thresholds import MOST_CORRECTIONS, correction_error

correction_bound = kernel()(correction_error)
SINGLE_ERROR = 1e-6  # error that a Chebyshev step in float32 leaves, relative to the change of x


@kernel()
def zero_upper_triangle(scores, count):
    """Set the entries above the diagonal to zero: a token sees itself and the past."""
    for i in range(count):
        for j in range(i + 1, count):
            scores[i, j] = scores.dtype.type(0)


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
def correct_in_two_precisions(
    blas, y, factors, narrow, ratio, gap, low, high, counts, scores, narrow_scores
):
    """Turn rows ``W q_t`` into ``W (q_t - gap_t x_t)``, as :func:`correct_for_ridge_gap`.

    ``factors`` = (N, W, B) in float64, ``narrow`` = (N, B) in float32.  Of the Chebyshev steps,
    ``counts`` = (early, late), the late ones change x by so little that float32 holds the change:
    measured at d 64, 0.37 microseconds a token become 0.2.  N and B have no entry above 1, and rows
    are divided by their largest entry, so that no units overflow.
    """
    N, W, B = factors
    single, (count, d) = np.float32, y.shape
    x, change, rest = np.empty((count, d)), np.empty((count, d)), np.empty((count, d))
    product, rho, size = np.empty((count, d)), np.empty(count), np.empty(count)
    apply_whitened_inverse(blas, y, N, ratio, scores, rest, count)
    start_corrections(low, high, rest, x, change, rho)
    take_corrections(
        blas, x, change, rest, rho, N, W, B, ratio, gap, True, low, high, counts[0], scores
    )
    if counts[1] > 0:
        late, moved = np.zeros((count, d), single), np.empty((count, d), single)
        left = np.empty((count, d), single)
        for i in range(count):
            size[i] = 0.0
            for j in range(d):
                size[i] = max(size[i], abs(change[i, j]), abs(rest[i, j]))
            factor = 1 / size[i] if size[i] > 0 else 0.0
            for j in range(d):
                moved[i, j], left[i, j] = single(change[i, j] * factor), single(rest[i, j] * factor)
        take_corrections(
            blas,
            late,
            moved,
            left,
            rho,
            narrow[0],
            narrow[1],
            narrow[1],
            ratio,
            gap,
            True,
            low,
            high,
            counts[1],
            narrow_scores,
        )
        for i in range(count):
            for j in range(d):
                x[i, j] += size[i] * late[i, j]
    apply_ridge_gap(blas, x, W, B, gap, True, rest, product, count)
    for i in range(count):
        for j in range(d):
            y[i, j] -= product[i, j]
