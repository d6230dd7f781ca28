"""A dense factorisation for every token: the plain definition, fast enough for small d."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.solver import Chunks, JaxSolver
from olsq.sequence.jax.triangular import guarded_inverse_cholesky
from olsq.solvers import Dense


@dataclass(frozen=True)
class JaxDense(JaxSolver):
    """JAX form of :class:`olsq.Dense`."""

    options: Dense

    def prepare(self, chunks: Chunks) -> Any:
        """Return nothing: the factors of a chunk are computed and dropped within :meth:`solve`."""
        return ()

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token, one chunk after another."""
        n, d = chunks.keys.shape[1], chunks.keys.shape[-1]

        def one(parts: tuple[Array, ...]) -> Array:
            keys, decay, zeta, gram, ridge, b = parts
            outer = keys[..., :, None] * keys[..., None, :]
            near = jnp.einsum("bts,bsij->btij", decay, outer)
            system = near + zeta[..., None, None] * gram[:, None]
            system = system + ridge[..., None] * jnp.eye(d, dtype=b.dtype)
            # Powers of two that bring the diagonal to between 1/2 and 2: they round nothing, and
            # the inverse of a system whose units differ by 1e20 stays within the dtype.
            diagonal = jnp.diagonal(system, axis1=-2, axis2=-1)
            scale = jnp.ldexp(jnp.ones_like(diagonal), -(jnp.frexp(diagonal)[1] // 2))
            # Without a ridge a system need not be definite, and its factor is NaN.
            definite = True if chunks.ridge is None else (ridge > 0).all(-1)
            inverse = guarded_inverse_cholesky(
                scale[..., :, None] * system * scale[..., None, :], definite
            )
            half = jnp.einsum("btij,btj->bti", inverse, scale * b)
            x = scale * jnp.einsum("btji,btj->bti", inverse, half)
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
        # One chunk at a time: C systems (d, d) of every chunk at once would not fit in memory.
        x = jnp.moveaxis(jax.lax.map(one, parts), 0, 1)
        return x, jnp.zeros(b.shape[:-1], jnp.int32)
