"""Kernels that solve two systems a token for the gradient, by the chunks of the forward pass.

With ``M_t x_t = q_t`` and an upstream gradient ``g_t`` the gradient needs x_t and
``e_t = M_t^{-1} G_t^T g_t``.  The right side looks back only, like the query, so that one sweep
forwards solves both with the same factors (:mod:`.chunk`), and keeps none of them.  In the notation
of that module::

    G_t^T g_t = (tril(g V~^T) K~ + zeta_r g G)_t / f_t

Samples are finite here, and everything is float64.
"""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import (
    copy,
    inverse_factor,
    multiply_nn,
    multiply_nt,
    scale,
    whiten,
)
from olsq.sequence.numpy.chunk import scaled_rows, true_residual, zero_rows
from olsq.sequence.numpy.corrections import (
    SINGLE_ERROR,
    apply_whitened_inverse,
    correct_for_ridge_gap,
    correct_in_two_precisions,
    count_corrections,
    plan_corrections,
    ridge_gaps,
    zero_upper_triangle,
)
from olsq.sequence.numpy.stream import (
    FEWEST,
    LIMITS_DOUBLE,
    SHORT,
    absorb_chunk,
    compute_chunk_scales,
    find_chunk_end,
)
from olsq.sequence.numpy.tokens import count_keys_in_range, solve_refined
from olsq.solvers.thresholds import MOST_CORRECTIONS


@kernel()
def has_cotangent(upstream, first, count):
    """Test whether any of ``count`` upstream gradients from ``first`` on is not 0."""
    for t in range(first, first + count):
        for j in range(upstream.shape[1]):
            if upstream[t, j] != 0:
                return True
    return False


@kernel()
def fill_right_sides(blas, X, V, upstream, first, count, cross, ratio, scores, out):
    """Fill out with rows ``G_t^T g_t`` from K~, the first rows of X, and V~."""
    g = upstream[first : first + count]
    multiply_nt(blas, g, V, scores)
    zero_upper_triangle(scores, count)
    multiply_nn(blas, scores, X[:count], out)
    multiply_nn(blas, g, cross, out, ratio[0], 1.0)  # ratio[0]: cross has the first gate applied
    for i in range(count):
        for j in range(out.shape[1]):
            out[i, j] /= ratio[i]


@kernel()
def solve_chunk_pair(
    blas, chunk, upstream, first, count, sound, A, W, cross, parts, uniform, most_backward, x, e
):
    """Solve both systems of the tokens of a chunk, as :func:`.chunk.solve_chunk` solves one.

    Returns how many tokens from the first are good.
    """
    ratio, ridge, reference = parts
    d, m = W.shape[0], cross.shape[0]
    X, Y = np.empty((2 * count, d)), np.empty((2 * count, d))
    V, N = np.empty((count, m)), np.empty((count, d))
    S, inverse = np.empty((count, count)), np.empty((count, count))
    scaled_rows(chunk, first, count, sound, ratio, X, V)
    # Y = X W^T, S = I + Y Y^T of the keys, N = L^-1 Y, see `solve_chunk`
    multiply_nt(blas, X, W, Y)
    multiply_nt(blas, Y, Y, S)
    for i in range(sound):
        S[i, i] += 1.0
        if not S[i, i] <= LIMITS_DOUBLE[1]:
            sound = i
            break
    # Lost rows become those of an identity, as in `solve_chunk`.
    for i in range(sound, count):
        for j in range(count):
            S[i, j] = S[j, i] = 0.0
        S[i, i] = 1.0
    zero_rows(X, sound, count)
    zero_rows(Y, sound, count)
    zero_rows(V, sound, count)
    if sound == 0 or not inverse_factor(blas, S, inverse, count, 0.0):
        return 0
    multiply_nn(blas, inverse, Y, N)
    B = np.empty((d, d))
    low, high, steps = plan_corrections(
        blas, W, ridge, reference, ratio, uniform, LIMITS_DOUBLE[0], B, count
    )
    if steps > MOST_CORRECTIONS:
        return 0
    gap = ridge_gaps(ridge, reference, ratio, uniform, X)
    early = max(count_corrections(low, high, LIMITS_DOUBLE[0] / SINGLE_ERROR), 0)
    late = steps - early if uniform else 0
    narrow = np.empty((count, d), np.float32), np.empty((d, d), np.float32)
    narrow_scores = np.empty((count, count), np.float32)
    if late > 0:
        copy(N, narrow[0])
        copy(B, narrow[1])
    b, y = X[count:], Y[count:]
    inner, solution = np.empty((count, d)), np.empty((count, d))
    norms, backward = np.empty((count, 2)), np.empty(count)
    for side in range(2):
        if side == 1:
            fill_right_sides(blas, X, V, upstream, first, count, cross, ratio, S, b)
            multiply_nt(blas, b, W, y)
        if late > 0:
            correct_in_two_precisions(
                blas, y, (N, W, B), narrow, ratio, gap, low, high, (early, late), S, narrow_scores
            )
        elif steps >= 0:
            correct_for_ridge_gap(blas, y, N, W, B, ratio, gap, uniform, low, high, steps, S, count)
        apply_whitened_inverse(blas, y, N, ratio, S, inner, count)
        multiply_nn(blas, inner, W, solution)
        true_residual(blas, X, solution, A, ridge, reference, ratio, S, count, norms, backward)
        into = x if side == 0 else e
        for i in range(sound):
            if not backward[i] <= most_backward:
                sound = i
                break
            for j in range(d):
                into[first + i, j] = solution[i, j]
    return sound


@kernel()
def solve_token_pairs(blas, chunk, upstream, gates, first, count, ridge, gram, cross, work, x, e):
    """Solve both systems of tokens one by one, as :func:`.tokens.solve_tokens` solves one."""
    keys, values, queries, weights = chunk
    d, m = keys.shape[1], values.shape[1]
    system, W, scratch, spare = work
    b, r, inner = np.empty(d), np.empty(d), np.empty(d)
    for t in range(first, first + count):
        gate, weight = gates[t] if t > first else 1.0, weights[t]
        for i in range(d):
            scaled = weight * keys[t, i]
            for j in range(d):
                gram[i, j] = gate * gram[i, j] + scaled * keys[t, j]
            for j in range(m):
                cross[j, i] = gate * cross[j, i] + scaled * values[t, j]
        if not has_cotangent(upstream, t, 1):
            continue
        copy(gram, system)
        own = t - first if ridge.shape[0] > 1 else 0
        for j in range(d):
            system[j, j] += ridge[own, j]
        rank = whiten(blas, system, W, scratch, spare)
        solve_refined(system, W, rank, queries[t], x[t], r, inner)
        for i in range(d):
            b[i] = 0.0
        for j in range(m):
            for i in range(d):
                b[i] += cross[j, i] * upstream[t, j]
        solve_refined(system, W, rank, b, e[t], r, inner)


@kernel()
def solve_next_pairs(blas, chunk, upstream, gates, ridge, spread, most, first, moments, work, x, e):
    """Solve the next chunk from ``first`` on, of at most ``most`` tokens; return its end."""
    gram, cross = moments
    system, W, scratch, spare = work
    d = gram.shape[0]
    end, uniform = find_chunk_end(chunk, gates, ridge, spread, first, most)
    count, done = end - first, np.int64(0)
    parts = compute_chunk_scales(chunk, gates, ridge, first, count, uniform)
    ratio, own, reference = parts
    if not has_cotangent(upstream, first, count):
        absorb_chunk(blas, chunk, first, count, ratio, gram, cross)
        return end
    if count >= FEWEST or count == most or end == gates.shape[0]:
        for i in range(d):
            for j in range(d):
                system[i, j] = ratio[0] * gram[i, j]
            system[i, i] += reference[i]
        rank = whiten(blas, system, W, scratch, spare)
        sound = count if rank == d else np.int64(0)
        if 0 <= rank < d:
            sound = count_keys_in_range(W, system, chunk[0], chunk[3], first, count)
        if sound > 0:
            done = solve_chunk_pair(
                blas,
                chunk,
                upstream,
                first,
                count,
                sound,
                system,
                W,
                cross,
                parts,
                uniform,
                LIMITS_DOUBLE[2] if rank == d else np.inf,
                x,
                e,
            )
        if done > 0:
            absorb_chunk(blas, chunk, first, done, ratio, gram, cross)
    left = min(count - done, SHORT)
    if left > 0:
        if done > 0:
            scale(gram, gates[first + done])
            scale(cross, gates[first + done])
        solve_token_pairs(
            blas,
            chunk,
            upstream,
            gates,
            first + done,
            left,
            own[done:] if ridge.shape[0] > 1 else ridge,
            gram,
            cross,
            work,
            x,
            e,
        )
    return first + done + left


@kernel()
def solve_stream_pairs(blas, chunk, upstream, gates, ridge, spread, most, grams, crosses, x, e):
    """Fill x and e (T, d) of one stream: 0 where the upstream gradient (T, m) is 0.

    ``grams`` (n, d, d) and ``crosses`` (n, m, d) hold the moments before the first token
    and become those before every block of ``most`` tokens; no chunk crosses into the next block.
    """
    d, m, length = grams.shape[1], crosses.shape[1], gates.shape[0]
    work = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    gram, cross = np.empty((d, d)), np.empty((m, d))
    copy(grams[0], gram)
    copy(crosses[0], cross)
    t = np.int64(0)
    while t < length:
        if t % most == 0:
            copy(gram, grams[t // most])
            copy(cross, crosses[t // most])
        if gates[t] < 1:
            scale(gram, gates[t])
            scale(cross, gates[t])
        t = solve_next_pairs(
            blas,
            chunk,
            upstream,
            gates,
            ridge,
            spread,
            most - t % most,
            t,
            (gram, cross),
            work,
            x,
            e,
        )
    for t in range(length):
        if not has_cotangent(upstream, t, 1):
            for j in range(d):
                x[t, j] = e[t, j] = 0.0
