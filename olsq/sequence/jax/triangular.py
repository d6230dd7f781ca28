"""Inverse Cholesky factors of many small matrices, as matrix products.

Neither LAPACK nor XLA's triangular solve is called. XLA's batched triangular solve on a CPU costs
as much as thirty conjugate-gradient steps. JAX's batched LAPACK Cholesky (0.10) submits its batch
to the thread pool that it runs on and waits there: as many of them at once as there are threads
deadlock, which two independent solves on a two-core machine are enough for. Halving, with products
for everything outside the smallest blocks, is also faster than both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.control import compile_once, cond, max_over_vmap
from olsq.sequence.jax.platform import by_platform

# Blocks up to this width are eliminated row by row, all matrices of a batch at once. With 8 a Mesa
# layer takes as long to run, and a tenth longer to compile.
SMALLEST = 16
# As SMALLEST, where a factorisation is a fallback that seldom runs: a third of the program to
# compile, and up to a third slower.
SMALLEST_OF_FALLBACK = 32
FUSED = 4  # products up to this inner width are faster as one fused sum


def inverse_cholesky(a: Array, smallest: int = SMALLEST) -> Array:
    """Compute X, lower triangular, with ``X a X^T = 1`` for positive definite (..., n, n), else
    NaN.

    With ``a = L L^T``, X is the inverse of L. Blocks up to ``smallest`` are eliminated by rows.
    Which entries of the symmetric ``a`` are read is not defined: a matrix, a tangent or a cotangent
    counts by its symmetric part only.
    """
    return by_platform(lambda target: not target.cpu, partial(_invert_by_halves, a, smallest))


@partial(jax.jit, static_argnames=("smallest", "unroll"))
def _invert_by_halves(a: Array, smallest: int, unroll: bool) -> Array:
    """Compute :func:`inverse_cholesky`; ``unroll`` is that of :func:`_eliminate`."""
    n = a.shape[-1]
    if n <= smallest:
        return _eliminate(a, unroll)
    half = (n // 2 + smallest - 1) // smallest * smallest
    # Block elimination with B = a21 X1^T and X2 the factor of the Schur complement a22 - B B^T:
    # L = [[L1, 0], [B, L2]],  L^{-1} = [[X1, 0], [-X2 B X1, X2]]
    first = _invert_by_halves(a[..., :half, :half], smallest, unroll)
    below = _product(a[..., half:, :half], jnp.swapaxes(first, -1, -2))
    schur = a[..., half:, half:] - _product(below, jnp.swapaxes(below, -1, -2))
    second = _invert_by_halves(schur, smallest, unroll)
    corner = -_product(second, _product(below, first))
    right = jnp.zeros((*a.shape[:-2], half, n - half), a.dtype)
    return jnp.concatenate(
        [jnp.concatenate([first, right], -1), jnp.concatenate([corner, second], -1)], -2
    )


@compile_once
def guarded_inverse_cholesky(a: Array, bounded: Array | bool = True) -> Array:
    """Compute :func:`inverse_cholesky`, of ``a + ridge`` where ``a`` is singular to rounding.

    The ridge, ``4 n eps`` of the diagonal, is below the resolution of a matrix of condition
    ``1 / eps``. ``bounded`` (...) says which matrices are known to be definite; the others read NaN
    if they are not, as do those that contain a NaN.
    """
    inverse, n = inverse_cholesky(a), a.shape[-1]
    failed = ~jnp.isfinite((inverse**2).sum((-2, -1))) & bounded

    def again() -> Array:
        diagonal = jnp.diagonal(a, axis1=-2, axis2=-1)
        ridge = 4 * n * jnp.finfo(a.dtype).eps * diagonal[..., None] * jnp.eye(n, dtype=a.dtype)
        return jnp.where(failed[..., None, None], inverse_cholesky(a + ridge), inverse)

    return cond(max_over_vmap(failed.any()), again, lambda: inverse)


def inverse_from_factor(half: Array) -> Array:
    """Compute ``X^T X``: the inverse of a matrix whose Cholesky factor has the inverse X."""
    return jnp.einsum("...ki,...kj->...ij", half, half)


def _eliminate(a: Array, unroll: bool) -> Array:
    """Compute :func:`inverse_cholesky` by elimination on [a | 1], the batch on the last axis.

    Column j of the remaining ``a`` is no longer needed once row j is eliminated: column j of the
    inverse takes its place. On a CPU one loop over rows compiles in half the time of steps that
    are unrolled, and is no slower. An accelerator would start five kernels a row; unrolled steps
    are half of that, by count.
    """
    n = a.shape[-1]
    rows = jnp.arange(n)

    def step(j: Any, x: Array) -> Array:
        this = (rows == j)[:, None]
        pivot_row = jax.lax.dynamic_index_in_dim(x, j, 0, keepdims=False)
        pivot = jax.lax.dynamic_index_in_dim(pivot_row, j, 0, keepdims=False)
        scale = 1 / jnp.sqrt(pivot)
        row = jnp.where(this, scale, pivot_row * scale)
        column = jax.lax.dynamic_index_in_dim(x, j, 1, keepdims=False) * scale
        column = jnp.where((rows > j)[:, None], column, 0)
        x = jnp.where(this[None], 0, x) - column[:, None] * row
        return jnp.where(this[:, None], row, x)

    x = jnp.moveaxis(a.reshape(-1, n, n), 0, -1)
    x = jax.lax.fori_loop(0, n, step, x, unroll=unroll)
    return jnp.tril(jnp.moveaxis(x, -1, 0)).reshape(a.shape)


def _product(a: Array, b: Array) -> Array:
    """Multiply a b (..., n, n), as one fused sum where that is faster."""
    if a.shape[-1] <= FUSED:
        return (a[..., :, :, None] * b[..., None, :, :]).sum(-2)
    return a @ b
