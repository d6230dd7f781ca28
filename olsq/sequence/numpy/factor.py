"""Chunk factorisation as in :mod:`olsq.sequence.jax.factor`, which derives it, in half form.

``R = X^T X``, ``Y = K~ X^T``, ``S = 1 + Y Y^T = C C^T``, ``N = C^{-1} Y X``: definite in any
arithmetic, so that one form serves mild chunks and hard ones.
"""

from __future__ import annotations

import math
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
from olsq.sequence.numpy.chunks import Chunk
from olsq.sequence.numpy.products import apply_factors

SINGULAR = 0.02  # relative error of S or P beyond which a leverage is capped


class Factor(NamedTuple):
    """P_t of every token: R (B, d, d), N (B, C, d), f (B, C, 1) or None if f is 1, growth (B,)."""

    inverse: NDArray
    rows: NDArray
    scale: NDArray | None
    growth: NDArray  # largest 1 + k~ R k~, how much R - sum n n^T may cancel


@kernel()
def factor_all(blas, systems, inverses, sound):
    """Run ``inverse_factor`` on every matrix (n, d, d), and mark the definite in ``sound``."""
    for i in range(systems.shape[0]):
        sound[i] = inverse_factor(blas, systems[i], inverses[i], systems.shape[1], 0.0)


@kernel()
def factor_chunks(blas, keys, half, cap, inverse, rows, growth):
    """Compute R (B, d, d) and N (B, C, d) from ``X`` = half and scaled keys; raise ``growth`` (B,).

    A leverage above ``cap`` enters as ``cap``; N is NaN where S has no factor.
    """
    streams, count, d = keys.shape
    kind, number = keys.dtype, keys.dtype.type
    Y, S = np.empty((count, d), kind), np.empty((count, count), kind)
    C, back = np.empty((count, count), kind), np.empty((count, d), kind)
    for b in range(streams):
        multiply_tn(blas, half[b], half[b], inverse[b])  # R = X^T X
        multiply_nt(blas, keys[b], half[b], Y)  # Y = K~ X^T
        for t in range(count):
            leverage = number(0)
            for j in range(d):
                leverage += Y[t, j] * Y[t, j]
            growth[b] = max(growth[b], 1 + float(leverage))
            if leverage > cap:
                shrunk = number(math.sqrt(cap / leverage))
                for j in range(d):
                    Y[t, j] *= shrunk
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


def guarded_inverse_factors(
    systems: NDArray, definite: NDArray | bool = True
) -> tuple[NDArray, NDArray]:
    """Compute :func:`inverse_factors`, of ``A + 4 d eps diag(A)`` where A is singular to rounding.

    The dtype cannot tell such an A from that neighbour. Also returns a mask (...) of these
    matrices. ``definite`` (...) says which matrices are positive definite in exact arithmetic; the
    others, and those that contain a NaN, stay NaN.
    """
    inverses = inverse_factors(systems)
    lost = np.logical_and(np.isnan(inverses).any((-2, -1)), definite)
    if lost.any():
        d, info = systems.shape[-1], np.finfo(systems.dtype)
        diagonal = np.diagonal(systems[lost], axis1=-2, axis2=-1) + info.tiny
        shift = 4 * d * float(info.eps) * diagonal[..., None] * np.eye(d, dtype=systems.dtype)
        inverses[lost] = inverse_factors(systems[lost] + shift)
    return inverses, lost


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
    half, lost = guarded_inverse_factors(system)
    growth = np.where(lost, np.inf, 0.0)
    inverse, rows = np.empty_like(half), np.empty_like(chunk.keys)
    if d > 0:
        factor_chunks(addresses(), keys, half, SINGULAR / (c * eps), inverse, rows, growth)
    return Factor(inverse, rows, scale, growth)


def apply_inverses(factor: Factor, x: NDArray) -> NDArray:
    """Compute P_t x_t for every token: causal linear attention with keys = values = n."""
    b, c, _ = x.shape
    y, scores = np.empty_like(x), np.empty((c, c), x.dtype)
    scale = np.ones((b, c), x.dtype) if factor.scale is None else factor.scale[..., 0]
    apply_factors(
        addresses(), x, factor.inverse, factor.rows, scale, factor.scale is not None, scores, y
    )
    return y
