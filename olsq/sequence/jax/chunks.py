"""A tile of chunks: gates, boundary moments, and products with the moments of every token.

Everything a solver multiplies by is here, once.  With C tokens a chunk and n chunks, arrays are
(B, n, C, ...); every product is one large batched matrix product over B and n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Chunks(NamedTuple):
    """Consecutive chunks of every stream, with the moments before each of them."""

    keys: jax.Array  # (B, n, C, d)
    values: jax.Array  # (B, n, C, m)
    queries: jax.Array  # (B, n, C, d)
    decay: jax.Array  # (C, C) or (B, n, C, C): weight_i * product of gates i+1..t, 0 for i > t
    zeta: Any  # (B, n, C): product of the chunk's gates up to t; None: all 1
    logs: Any  # (B, n, C): log gates, 0 at a gate that is 0; None: all 1
    gates: Any  # (B, n, C); None: all 1
    weight: Any  # (B, n, C); None: all 1
    ridge: Any  # (B, 1, 1, d) or (B, n, C, d); None: inside gram
    gram: jax.Array  # (B, n, d, d), before the chunk
    cross: jax.Array  # (B, n, m, d), before the chunk
    output_lost: jax.Array  # (B, n, C) bool: a non-finite sample reaches this token


def moment_product(x, left, right, decay, boundary, zeta):
    """Compute (sum_i decay_ti left_i right_i^T + zeta_t boundary) x_t for all t of every chunk."""
    # sum_i D_ti left_i (right_i . x_t): causal attention within the chunk; zeta_t B x_t: the past
    scores = jnp.einsum("bnti,bnsi->bnts", x, right) * decay
    far = jnp.einsum("bnti,bnji->bntj", x, boundary)
    return scores @ left + (far if zeta is None else zeta[..., None] * far)


def system_product(chunks: Chunks, x: jax.Array) -> jax.Array:
    """Compute (H_t + Lambda_t) x_t for every token: the matrix that all solvers invert."""
    y = moment_product(x, chunks.keys, chunks.keys, chunks.decay, chunks.gram, chunks.zeta)
    return y if chunks.ridge is None else y + chunks.ridge * x


def read_out(chunks: Chunks, x: jax.Array) -> jax.Array:
    """Compute o_t = G_t x_t for every token: gated linear attention with queries x."""
    return moment_product(x, chunks.values, chunks.keys, chunks.decay, chunks.cross, chunks.zeta)


def system_diagonal(chunks: Chunks) -> jax.Array:
    """Compute diag(H_t + Lambda_t), (B, n, C, d)."""
    near = chunks.decay @ (chunks.keys**2)
    far = jnp.diagonal(chunks.gram, axis1=-2, axis2=-1)[:, :, None]
    y = near + (far if chunks.zeta is None else chunks.zeta[..., None] * far)
    return y if chunks.ridge is None else y + chunks.ridge


def system_trace(chunks: Chunks) -> jax.Array:
    """Compute trace(H_t), (B, n, C, 1): an upper bound of its norm for one small product."""
    near = chunks.decay @ (chunks.keys**2).sum(-1, keepdims=True)
    far = jnp.trace(chunks.gram, axis1=-2, axis2=-1)[:, :, None, None]
    return near + (far if chunks.zeta is None else chunks.zeta[..., None] * far)


def cross_norm(chunks: Chunks) -> jax.Array:
    """Bound the norm of G_t from above, (B, n, C), by the sum of the norms of its terms."""
    keys, values = (jnp.linalg.norm(x, axis=-1) for x in (chunks.keys, chunks.values))
    near = (chunks.decay @ (keys * values)[..., None])[..., 0]
    far = jnp.linalg.norm(chunks.cross, axis=(-2, -1))[..., None]
    return near + (far if chunks.zeta is None else chunks.zeta * far)
