"""Truncated Neumann series for all tokens at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.control import scan
from olsq.sequence.jax.solver import Chunks, JaxSolver, system_product, system_trace
from olsq.solvers import Neumann


@dataclass(frozen=True)
class JaxNeumann(JaxSolver):
    """JAX form of :class:`olsq.Neumann`."""

    options: Neumann

    def prepare(self, chunks: Chunks) -> Any:
        """Bound the norm of every token's system from above by its trace, (B, n, C, 1)."""
        bound = system_trace(chunks)
        if chunks.ridge is not None:
            bound = bound + jnp.max(chunks.ridge, -1, keepdims=True)
        return bound

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Sum the first terms of the series for every token; also return their number."""
        scale = 1 / prepared

        # x <- x + (b - M x) / c with c >= |M|, which converges for every positive definite M
        def step(x: Array, _: None) -> tuple[Array, None]:
            return x + scale * (b - system_product(chunks, x)), None

        x = scan(step, scale * b, None, length=self.options.terms - 1)[0]
        return x, jnp.full(b.shape[:-1], self.options.terms, jnp.int32)
