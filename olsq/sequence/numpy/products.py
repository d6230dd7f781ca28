"""Kernels of the iterations: products with every token's system, and each step's vector updates.

A product is three BLAS calls per stream with one pass over the scores between them; a step's vector
updates are one pass too. Both release the GIL.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import multiply_nn, multiply_nt


@kernel()
def multiply_systems(blas, x, keys, moments, scores, y):
    """Compute y = ((x K^T) * D) K + zeta (x H) + ridge x for every stream (B, C, d); scores (C, C).

    ``moments`` = D (B or 1, C, C), zeta (B, C), H (B, d, d), ridge (B, 1 or C, d), or (B, 0, d)
    where there is none, and whether any gate is not 1.
    """
    decay, zeta, gram, ridge, gated = moments
    streams, count, d = x.shape
    for b in range(streams):
        D = decay[b if decay.shape[0] > 1 else 0]
        multiply_nt(blas, x[b], keys[b], scores)
        for t in range(count):
            for s in range(count):
                scores[t, s] *= D[t, s]
        multiply_nn(blas, x[b], gram[b], y[b])
        for t in range(count):
            if gated:
                for j in range(d):
                    y[b, t, j] *= zeta[b, t]
            if ridge.shape[1] > 0:
                row = t if ridge.shape[1] > 1 else 0
                for j in range(d):
                    y[b, t, j] += ridge[b, row, j] * x[b, t, j]
        multiply_nn(blas, scores, keys[b], y[b], 1.0, 1.0)


@kernel()
def advance(iterate, product, limits, active, steps):
    """Take the first half of a conjugate-gradient step at every ``active`` token.

    ``iterate`` = x, r, p and r.z (B, C); ``limits`` (B, C) are those of |r|^2.  A step that would
    overflow is not taken and ends its token.  Returns whether any token is still active.
    """
    x, r, p, rz = iterate
    streams, count, d = x.shape
    number, go_on = x.dtype.type, False
    for b in range(streams):
        for t in range(count):
            if not active[b, t]:
                continue
            curvature = left = length = number(0)
            for j in range(d):
                curvature += p[b, t, j] * product[b, t, j]
            # alpha = r.z / p.Mp;  x += alpha p;  r -= alpha Mp
            alpha = rz[b, t] / curvature if curvature > 0 else number(0)
            for j in range(d):
                new = r[b, t, j] - alpha * product[b, t, j]
                left += new * new
                new = x[b, t, j] + alpha * p[b, t, j]
                length += new * new
            steps[b, t] += 1
            active[b, t] = math.isfinite(left) and math.isfinite(length)
            if not active[b, t]:
                continue
            for j in range(d):
                x[b, t, j] += alpha * p[b, t, j]
                r[b, t, j] -= alpha * product[b, t, j]
            active[b, t] = left > limits[b, t]
            go_on = go_on or active[b, t]
    return go_on


@kernel()
def turn(iterate, z, active):
    """Take the second half: the next direction p from the preconditioned residual z."""
    _, r, p, rz = iterate
    streams, count, d = p.shape
    number = p.dtype.type
    for b in range(streams):
        for t in range(count):
            if not active[b, t]:
                continue
            # p = z + (r'.z' / r.z) p
            new = number(0)
            for j in range(d):
                new += r[b, t, j] * z[b, t, j]
            ratio = new / rz[b, t] if rz[b, t] > 0 else number(0)
            for j in range(d):
                p[b, t, j] = z[b, t, j] + ratio * p[b, t, j]
            rz[b, t] = new


@kernel()
def chebyshev_step(x, change, r, product, low, high, rho):
    """Take one Chebyshev step at every token; low, high, rho (B, C)."""
    streams, count, d = x.shape
    number = x.dtype.type
    for b in range(streams):
        for t in range(count):
            middle, half = (high[b, t] + low[b, t]) / 2, (high[b, t] - low[b, t]) / 2
            # change <- rho' rho change + 2 rho' / half r,  rho' = half / (2 middle - half rho)
            factor = 1 / (2 * middle - half * rho[b, t])
            old, new = number(half * factor * rho[b, t]), number(2 * factor)
            rho[b, t] = half * factor
            for j in range(d):
                r[b, t, j] -= product[b, t, j]
                change[b, t, j] = old * change[b, t, j] + new * r[b, t, j]
                x[b, t, j] += change[b, t, j]


@kernel()
def neumann_step(x, q, product, scale):
    """Take one Neumann step ``x <- x + scale (q - M x)`` at every token; scale (B, C)."""
    streams, count, d = x.shape
    for b in range(streams):
        for t in range(count):
            for j in range(d):
                x[b, t, j] += scale[b, t] * (q[b, t, j] - product[b, t, j])


@kernel()
def apply_factors(blas, x, inverse, rows, scale, scores, y):
    """Compute y = f (x R - tril(x N^T) N) for every stream, applying the chunk's inverses.

    The scores are (C, C).
    """
    streams, count, d = x.shape
    for b in range(streams):
        multiply_nt(blas, x[b], rows[b], scores)
        for t in range(count):
            for s in range(t + 1, count):
                scores[t, s] = scores.dtype.type(0)
        multiply_nn(blas, x[b], inverse[b], y[b])
        # y_t = f_t (R x_t - sum_{i<=t} n_i (n_i . x_t))
        multiply_nn(blas, scores, rows[b], y[b], -1.0, 1.0)
        for t in range(count):
            for j in range(d):
                y[b, t, j] *= scale[b, t]


@kernel()
def residual_norms(b, product, x, norms):
    """Compute ``|b - M x|`` and ``|x|`` of every token in float64: norms (B, C, 2)."""
    streams, count, d = x.shape
    for s in range(streams):
        for t in range(count):
            left = length = 0.0
            for j in range(d):
                r = float(b[s, t, j] - product[s, t, j])
                left += r * r
                length += float(x[s, t, j]) ** 2
            norms[s, t, 0], norms[s, t, 1] = math.sqrt(left), math.sqrt(length)


@kernel()
def row_norms(x):
    """Compute ``|x|`` of every row (B, T, d) in float64: (B, T)."""
    streams, count, d = x.shape
    norms = np.empty((streams, count))
    for s in range(streams):
        for t in range(count):
            total = 0.0
            for j in range(d):
                total += float(x[s, t, j]) ** 2
            norms[s, t] = math.sqrt(total)
    return norms
