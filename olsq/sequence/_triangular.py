"""Inverses of many small triangular and positive definite matrices, as matrix products.

XLA's batched triangular solve on a CPU costs as much as thirty conjugate-gradient steps.  Doubling
``[[X1, 0], [-X2 L21 X1, X2]]`` from the diagonal up is products only, of ever larger blocks, for
all blocks of all matrices at once.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

SMALL = 8  # blocks up to this width multiply faster as one fused sum than as a batched product


def inverse_lower(low: Array) -> Array:
    """Inverse of lower-triangular matrices (..., n, n)."""
    n, size = low.shape[-1], 1
    while size < n:
        size *= 2
    if size != n:
        return inverse_lower(_pad(low, size))[..., :n, :n]
    inv = (1 / jnp.diagonal(low, axis1=-2, axis2=-1))[..., None, None]
    size = 1
    while size < n:
        below = jnp.stack(
            [low[..., i + size : i + 2 * size, i : i + size] for i in range(0, n, 2 * size)], -3
        )
        first, second = inv[..., 0::2, :, :], inv[..., 1::2, :, :]
        corner = -_product(second, _product(below, first))
        inv = jnp.concatenate(
            [
                jnp.concatenate([first, jnp.zeros_like(first)], -1),
                jnp.concatenate([corner, second], -1),
            ],
            -2,
        )
        size *= 2
    return inv[..., 0, :, :]


def _product(a: Array, b: Array) -> Array:
    if a.shape[-1] < SMALL:
        return (a[..., :, :, None] * b[..., None, :, :]).sum(-2)
    return a @ b


def inverse_spd(a: Array) -> Array:
    """Inverse of symmetric positive definite matrices (..., n, n); NaN where one is not."""
    inv = inverse_lower(cholesky(a))
    return jnp.einsum("...ki,...kj->...ij", inv, inv)


def cholesky(a: Array) -> Array:
    """Lower Cholesky factor; NaN where a matrix is not positive definite."""
    return jnp.linalg.cholesky(a, symmetrize_input=False)


def _pad(low: Array, size: int) -> Array:
    extra = size - low.shape[-1]
    low = jnp.pad(low, [(0, 0)] * (low.ndim - 2) + [(0, extra), (0, extra)])
    ones = jnp.concatenate([jnp.zeros(size - extra), jnp.ones(extra)]).astype(low.dtype)
    return low + jnp.diag(ones)
