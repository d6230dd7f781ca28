"""Kernels that solve tokens one by one, and systems without a unique solution."""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import copy, whiten


@kernel()
def solve_refined(system, W, rank, q, x, r, inner):
    """Solve ``system x = q`` with ``W^T W`` its (pseudo-)inverse; NaN for a rank of -1.

    A regular system's solution is refined once; ``r`` and ``inner`` (d,) are overwritten.
    """
    d = system.shape[0]
    for i in range(d):
        x[i] = 0.0 if rank >= 0 else np.nan
    for _ in range(2 if rank == d else 1):  # the second refines the first
        for i in range(d):
            r[i] = q[i]
            for j in range(d):
                r[i] -= system[i, j] * x[j]
        for i in range(d):
            inner[i] = 0.0
            for j in range(d):
                inner[i] += W[i, j] * r[j]
        for i in range(rank):
            for j in range(d):
                x[j] += W[i, j] * inner[i]


@kernel()
def solve_tokens(blas, chunk, gates, first, count, ridge, gram, cross, work, value, norms):
    """Solve tokens one by one, each from its own moments, where a chunk would lose digits.

    A system without a unique solution (a ridge of 0 or forgotten, and too few samples) gets the one
    of smallest norm. ``gates[first]`` is already applied to the moments.
    """
    keys, values, queries, weights = chunk
    d, m = keys.shape[1], values.shape[1]
    system, W, scratch, spare = work
    q, x, r, inner = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    for t in range(first, first + count):
        gate = gates[t] if t > first else 1.0
        weight, size, length = weights[t], 0.0, 0.0
        for i in range(d):
            scale = weight * float(keys[t, i]) if weight > 0 else 0.0
            for j in range(d):
                gram[i, j] = gate * gram[i, j] + (scale * float(keys[t, j]) if scale else 0.0)
            for j in range(m):
                cross[j, i] = gate * cross[j, i] + (scale * float(values[t, j]) if scale else 0.0)
            q[i] = float(queries[t, i])
            size += q[i] * q[i]
        copy(gram, system)
        own = t - first if ridge.shape[0] > 1 else 0
        for j in range(d):
            system[j, j] += ridge[own, j]
        rank = whiten(blas, system, W, scratch, spare)
        for i in range(d):
            q[i] = q[i] if math.isfinite(size) else 0.0
        solve_refined(system, W, rank, q, x, r, inner)
        left = 0.0
        for i in range(d):
            error = q[i]
            for j in range(d):
                error -= system[i, j] * x[j]
            left += error * error
            length += x[i] * x[i]
        norms[t, 0], norms[t, 1] = math.sqrt(left), math.sqrt(length)
        for k in range(m):
            total = 0.0
            for j in range(d):
                total += cross[k, j] * x[j]
            value[t, k] = value.dtype.type(total)


@kernel()
def count_keys_in_range(W, system, keys, weights, first, count):
    """Count the keys from ``first`` on, up to ``count``, that lie in the range of a singular
    system.

    ``W^T W`` is its pseudo-inverse. Its rank does not grow before the first key outside the range.
    """
    d = W.shape[0]
    inner, mapped = np.empty(d), np.empty(d)
    for t in range(first, first + count):
        if weights[t] == 0:
            continue
        size = left = 0.0
        for i in range(d):
            inner[i] = 0.0
            for j in range(d):
                inner[i] += W[i, j] * float(keys[t, j])
        for j in range(d):
            mapped[j] = 0.0
            for i in range(d):
                mapped[j] += W[i, j] * inner[i]
        for i in range(d):
            error = float(keys[t, i])
            size += error * error
            for j in range(d):
                error -= system[i, j] * mapped[j]
            left += error * error
        # A residual of 1e-7 of the key's norm: above rounding, far below a key with a part outside.
        if not left <= 1e-14 * size:
            return t - first
    return count


@kernel()
def moment_sizes(first, last, arrays, gram, cross, trace, cross_size):
    """Compute per token the trace of H_t and a bound of the norm of G_t, a sum of norms.

    See ``problem``.

    Samples that are not finite are left out: the tokens they reach are NaN anyway.
    """
    keys, values, _, weights, gates, _ = arrays
    for b in range(first, last):
        h = g = 0.0
        for i in range(gram.shape[2]):
            h += gram[b, i, i]
            for j in range(cross.shape[1]):
                g += cross[b, j, i] ** 2
        g = math.sqrt(g)
        for t in range(keys.shape[1]):
            k = v = 0.0
            for i in range(keys.shape[2]):
                k += float(keys[b, t, i]) ** 2
            for j in range(values.shape[2]):
                v += float(values[b, t, j]) ** 2
            sound = weights[b, t] > 0 and math.isfinite(k + v)
            # tr H_t = gate tr H + w |k|^2;  |G_t| <= gate |G| + w |v| |k|
            h = gates[b, t] * h + (weights[b, t] * k if sound else 0.0)
            g = gates[b, t] * g + (weights[b, t] * math.sqrt(k * v) if sound else 0.0)
            trace[b, t], cross_size[b, t] = h, g
