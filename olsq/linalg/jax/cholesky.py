"""Updates and downdates of Cholesky factors, as scans over the factor's rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from olsq.linalg.jax.rotations import absorb, inverse_rotation


@jax.jit
def cholesky_update(R: Array, X: Array) -> Array:
    """Compute the factor of ``R^T R + X^T X``: R (b, d, d) upper triangular, X (b, k, d)."""
    return jax.vmap(lambda R, X: jnp.triu(absorb(R, X, R.shape[0])[0]))(jnp.triu(R), X)


@jax.jit
def cholesky_downdate(R: Array, X: Array) -> Array:
    """Compute the factor of ``R^T R - X^T X``, all NaN where that is not positive definite."""
    return jax.vmap(_downdate_one)(jnp.triu(R), X)


def _downdate_one(R: Array, X: Array) -> Array:
    """Downdate one factor, as :func:`olsq.linalg.numpy.cholesky.downdate_rows` does."""

    d = R.shape[0]

    def step(X: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        j, row = inputs
        pivot = jax.lax.dynamic_index_in_dim(row, j, 0, False)
        sign = jnp.where(pivot < 0, -1, 1).astype(row.dtype)
        c, q, r = inverse_rotation(sign * pivot, jax.lax.dynamic_index_in_dim(X, j, 1, False))
        u = (q[:, None] * X).sum(0)
        # row = c row' + u, solved for row'; then X' = X - q (row' + u / (1 + c))
        row = (sign * row - u) / c
        X = X - q[:, None] * (row + u / (1 + c))
        return X, (jnp.where(jnp.arange(d) == j, r, row), c > 0)

    if d == 0:
        return R
    _, (rows, sound) = jax.lax.scan(step, X, (jnp.arange(d), R))
    return jnp.where(sound.all(), jnp.triu(rows), jnp.nan)
