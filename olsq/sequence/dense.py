"""A dense factorisation for every token: the plain definition, and fast enough for small d."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence._chunks import Chunks
from olsq.sequence._triangular import inverse_cholesky


@dataclass(frozen=True)
class Dense:
    """One Cholesky factorisation of size d per token.

    Parameters
    ----------
    chunk : int
        Tokens whose systems are in memory at once.

    Notes
    -----
    Solves both problems with any gates.  Cost O(d^3) per token; memory O(chunk d^2) per stream,
    because chunks are solved one after another.  Backward error of a Cholesky solve: relative
    error of q* about kappa times the unit roundoff of the dtype.

    Examples
    --------
    >>> import olsq
    >>> olsq.Dense().modes
    ('fixed', 'discounted')
    """

    chunk: int = 32

    modes = ("fixed", "discounted")

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise ValueError("chunk must be at least 1")

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

    def unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """The same, differentiated through the factorisations."""
        return self.solve(chunks, prepared, b)
