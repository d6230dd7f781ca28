"""Truncated Neumann series on every token at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence._chunks import Chunks, system_product, system_trace


@dataclass(frozen=True)
class Neumann:
    """The first ``terms`` terms of ``M^{-1} = 1/c sum_j (I - M/c)^j`` with c the trace of M.

    Parameters
    ----------
    terms : int
        Terms of the series; 1 is ``q / c``, gated linear attention up to a scale.
    chunk : int
        Tokens per chunk of the matrix products.

    Notes
    -----
    Solves both problems, slowly: the error falls by ``1 - lambda_min / c`` per term.  It is what
    a stack of linear attention layers can compute (the thesis, section 3.7.2.3), which is why it
    is here; as a solver every other one is better.

    Examples
    --------
    >>> import olsq
    >>> olsq.Neumann(terms=10).terms
    10
    """

    terms: int = 30
    chunk: int = 64

    modes = ("fixed", "discounted")

    def __post_init__(self) -> None:
        if self.terms < 1 or self.chunk < 1:
            raise ValueError("terms and chunk must be at least 1")

    def prepare(self, chunks: Chunks) -> Any:
        """An upper bound of the norm of every token's system: its trace, (B, n, C, 1)."""
        bound = system_trace(chunks)
        if chunks.ridge is not None:
            bound = bound + jnp.max(chunks.ridge, -1, keepdims=True)
        return bound

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Partial sum of the series for every token; also the terms."""
        scale = 1 / prepared

        def step(x: Array, _: None) -> tuple[Array, None]:
            return x + scale * (b - system_product(chunks, x)), None

        x = jax.lax.scan(step, scale * b, None, length=self.terms - 1)[0]
        return x, jnp.full(b.shape[:-1], self.terms, jnp.int32)

    def unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """The same terms, differentiated through (the bound c included)."""
        return self.solve(chunks, prepared, b)
