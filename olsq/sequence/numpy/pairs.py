"""Kernels that solve two systems a token for the gradient, by the chunks of the forward pass.

With ``M_t x_t = q_t`` and an upstream gradient ``g_t`` the gradient needs x_t and
``e_t = M_t^{-1} G_t^T g_t``.  The right side looks back only, like the query, so that one sweep
forwards solves both with the same factors (:mod:`.chunk`), and keeps none of them.  In the notation
of that module::

    G_t^T g_t = (tril(g V~^T) K~ + zeta_r g G)_t / f_t

Samples are finite here, and everything is float64.  ``pairs`` = upstream gradients (T, m), x and e.
"""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import multiply_nn, multiply_nt
from olsq.sequence.numpy.chunk import factor_chunk, true_residual
from olsq.sequence.numpy.corrections import (
    count_early_corrections,
    plan_corrections,
    ridge_gaps,
    solve_whitened,
    zero_upper_triangle,
)
from olsq.solvers.thresholds import MOST_CORRECTIONS


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
    """Solve both systems of the tokens of a chunk, as :func:`.chunk.solve_chunk` solves one.

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
