"""Chunk factorisation as in :mod:`olsq.sequence.jax.factor`, which derives it, in half form.

``R = X^T X``, ``Y = K~ X^T``, ``S = 1 + Y Y^T = C C^T``, ``N = C^{-1} Y X``: definite in any
arithmetic, so that one form serves mild chunks and hard ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import (
    addresses,
    inverse_factor,
    multiply_nn,
    multiply_nt,
    multiply_tn,
)
from olsq.sequence.numpy.chunk import SINGULAR, cap_leverages
from olsq.sequence.numpy.solver import Chunk
from olsq.solvers.chunk_exact import MAX_LOG_SCALE, MILD_LOG_SCALE


class Factor(NamedTuple):
    """P_t of every token: R (B, d, d), N (B, C, d), and f (B, C, 1) or None if f is 1."""

    inverse: NDArray
    rows: NDArray
    scale: NDArray | None


@kernel()
def factor_all(blas, systems, inverses, sound):
    """Run ``inverse_factor`` on every matrix (n, d, d), and mark the definite in ``sound``."""
    for i in range(systems.shape[0]):
        sound[i] = inverse_factor(blas, systems[i], inverses[i], systems.shape[1], 0.0)


@kernel()
def factor_chunks(blas, keys, half, cap, inverse, rows):
    """Compute R (B, d, d) and N (B, C, d) from ``X`` = half and scaled keys.

    A leverage above ``cap`` enters as ``cap``; N is NaN where S has no factor.
    """
    streams, count, d = keys.shape
    kind, number = keys.dtype, keys.dtype.type
    Y, S = np.empty((count, d), kind), np.empty((count, count), kind)
    C, back = np.empty((count, count), kind), np.empty((count, d), kind)
    for b in range(streams):
        multiply_tn(blas, half[b], half[b], inverse[b])  # R = X^T X
        multiply_nt(blas, keys[b], half[b], Y)  # Y = K~ X^T
        cap_leverages(Y, count, cap)
        multiply_nt(blas, Y, Y, S)  # S = 1 + Y Y^T = C C^T
        for t in range(count):
            S[t, t] += number(1)
        sound = inverse_factor(blas, S, C, count, 0.0)
        multiply_nn(blas, Y, half[b], back)
        multiply_nn(blas, C, back, rows[b])  # N = C^-1 Y X
        if not sound:
            for t in range(count):
                for j in range(d):
                    rows[b, t, j] = np.nan


def inverse_factors(systems: NDArray) -> NDArray:
    """Compute X, lower triangular, with ``X A X^T = 1`` for positive definite (..., d, d), else
    NaN.
    """
    d = systems.shape[-1]
    flat = np.array(systems, order="C").reshape(-1, d, d)
    inverses, sound = np.empty_like(flat), np.empty(len(flat), np.bool_)
    if d > 0:
        factor_all(addresses(), flat, inverses, sound)
        inverses[~(sound & np.isfinite(inverses).all((1, 2)))] = np.nan
    return inverses.reshape(systems.shape)


def guarded_inverse_factors(systems: NDArray, definite: NDArray | bool = True) -> NDArray:
    """Compute :func:`inverse_factors`, of ``A + 4 d eps diag(A)`` where A is singular to rounding.

    The dtype cannot tell such an A from that neighbour. ``definite`` (...) says which matrices are
    positive definite in exact arithmetic; the others, and those that contain a NaN, stay NaN.
    """
    inverses = inverse_factors(systems)
    lost = np.logical_and(np.isnan(inverses).any((-2, -1)), definite)
    if lost.any():
        d, info = systems.shape[-1], np.finfo(systems.dtype)
        diagonal = np.diagonal(systems[lost], axis1=-2, axis2=-1) + info.tiny
        shift = 4 * d * float(info.eps) * diagonal[..., None] * np.eye(d, dtype=systems.dtype)
        inverses[lost] = inverse_factors(systems[lost] + shift)
    return inverses


def reference_ridge(chunk: Chunk) -> NDArray | None:
    """Return one ridge per chunk, (B, 1, d): the geometric mean over its tokens."""
    if chunk.ridge is None or chunk.ridge.shape[1] == 1:
        return chunk.ridge
    tiny = np.finfo(chunk.ridge.dtype).tiny
    return np.exp(np.log(np.maximum(chunk.ridge, tiny)).mean(1, keepdims=True))


def factorise(
    chunk: Chunk, centre: NDArray | None, ridge: NDArray | None, limit: float = np.inf
) -> Factor:
    """Factorise every chunk at the reference ``zeta_r = exp(centre)``, centre (B,).

    Keys are scaled up by at most ``sqrt(limit)``; tokens beyond that are not covered.  A leverage
    above a cap enters with the cap; a system singular to rounding gets ``4 d eps`` of its diagonal.
    """
    keys, system, scale = chunk.keys, chunk.gram.copy(), None
    (_, c, d), dtype = keys.shape, keys.dtype
    eps = float(np.finfo(dtype).eps)
    if chunk.logs is not None and centre is not None:
        system *= np.exp(centre)[:, None, None].astype(dtype)
        gap = centre[:, None] - chunk.logs
        scale = np.exp(gap)[..., None].astype(dtype)
        # k~_i = sqrt(weight_i zeta_r / zeta_i) k_i
        keys = keys * np.exp(np.minimum(gap, np.log(limit)) / 2)[..., None].astype(dtype)
    keys = keys * np.sqrt(chunk.weight)[..., None].astype(dtype)
    if ridge is not None:
        system += ridge * np.eye(d, dtype=dtype)
    half = guarded_inverse_factors(system)
    inverse, rows = np.empty_like(half), np.empty_like(chunk.keys)
    if d > 0:
        factor_chunks(addresses(), keys, half, SINGULAR / (c * eps), inverse, rows)
    return Factor(inverse, rows, scale)


def apply_inverses(factor: Factor, x: NDArray) -> NDArray:
    """Compute P_t x_t for every token: causal linear attention with keys = values = n."""
    b, c, _ = x.shape
    y, scores = np.empty_like(x), np.empty((c, c), x.dtype)
    scale = np.ones((b, c), x.dtype) if factor.scale is None else factor.scale[..., 0]
    apply_factors(addresses(), x, factor.inverse, factor.rows, scale, scores, y)
    return y


def chunk_preconditioner(chunk: Chunk) -> Callable[[NDArray], NDArray]:
    """Factorise every chunk; return ``r -> P_t r_t``, or a multiple of r where nothing covers it.

    One reference, and a second where the gates forget most.  The multiple has the units of an
    inverse: it is also the first iterate.
    """
    sums, ridge = chunk.logs, reference_ridge(chunk)
    if sums is None:
        only = factorise(chunk, None, ridge)
        return lambda r: apply_inverses(only, r)
    b, c = sums.shape
    split = np.full(b, c)
    if ((sums[:, 0] - sums[:, -1]) / 2 > MILD_LOG_SCALE).any():
        # The first token after the smallest gate; `append` keeps the last position from being
        # chosen.
        split = np.argmin(np.diff(sums, axis=1, append=np.inf), 1) + 1
    every, limit = np.arange(b), math.exp(2 * MAX_LOG_SCALE)
    first = factorise(chunk, (sums[:, 0] + sums[every, split - 1]) / 2, ridge, limit)
    if (split == c).all():
        return lambda r: apply_inverses(first, r)
    start = sums[every, np.minimum(split, c - 1)]
    second = factorise(chunk, (start + sums[:, -1]) / 2, ridge, limit)
    after = (np.arange(c) >= split[:, None])[..., None]
    scale = np.where(after, np.asarray(second.scale), np.asarray(first.scale))
    within_scale = np.abs(np.log(scale)) <= MAX_LOG_SCALE
    unit = np.diagonal(first.inverse, axis1=1, axis2=2).min(-1)[:, None, None]
    unit = np.where(np.isfinite(unit), unit, 1)  # a lost stream has no finite inverse

    def inner(r: NDArray) -> NDArray:
        y = np.where(after, apply_inverses(second, r), apply_inverses(first, r))
        return np.where(within_scale, y, unit * r)

    return inner


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
