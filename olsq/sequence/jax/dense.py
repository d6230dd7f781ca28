"""A dense factorisation for every token: the plain definition, and fast enough for small d."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.chunks import Chunks
from olsq.sequence.jax.solver import JaxSolver
from olsq.sequence.jax.triangular import inverse_cholesky
from olsq.solvers import Dense


@dataclass(frozen=True)
class JaxDense(JaxSolver):
    """:class:`olsq.Dense` in JAX."""

    options: Dense

    def prepare(self, chunks: Chunks) -> Any:
        """Nothing: the factors of a chunk are made and dropped with it."""
        return ()

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token, chunk after chunk."""
        n, d = chunks.keys.shape[1], chunks.keys.shape[-1]

        def one(parts: tuple[Array, ...]) -> Array:
            keys, decay, zeta, gram, ridge, b = parts
            outer = keys[..., :, None] * keys[..., None, :]
            own = jnp.einsum("bts,bsij->btij", decay, outer)
            system = own + zeta[..., None, None] * gram[:, None]
            system = system + ridge[..., None] * jnp.eye(d, dtype=b.dtype)
            inv = inverse_cholesky(system)
            half = jnp.einsum("btij,btj->bti", inv, b)
            x = jnp.einsum("btji,btj->bti", inv, half)
            return jnp.where((b == 0).all(-1, keepdims=True), 0, x)  # even of a singular system

        def chunkwise(x: Array | None, fill: float, tail: tuple[int, ...]) -> Array:
            x = jnp.full((), fill, b.dtype) if x is None else x
            return jnp.moveaxis(jnp.broadcast_to(x, (b.shape[0], n, *tail)), 1, 0)

        c = b.shape[2]
        parts = (
            chunkwise(chunks.keys, 0, (c, d)),
            chunkwise(chunks.decay, 1, (c, c)),
            chunkwise(chunks.zeta, 1, (c,)),
            chunkwise(chunks.gram, 0, (d, d)),
            chunkwise(chunks.ridge, 0, (c, d)),
            jnp.moveaxis(b, 1, 0),
        )
        x = jnp.moveaxis(jax.lax.map(one, parts), 0, 1)
        return x, jnp.zeros(b.shape[:-1], jnp.int32)
