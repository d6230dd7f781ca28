"""Chebyshev iteration for all tokens at once, from bounds on the spectrum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.iterations import chebyshev
from olsq.sequence.jax.solver import Chunks, JaxSolver, system_product, system_trace
from olsq.solvers import Chebyshev


@dataclass(frozen=True)
class JaxChebyshev(JaxSolver):
    """JAX form of :class:`olsq.Chebyshev`."""

    options: Chebyshev

    def prepare(self, chunks: Chunks) -> Any:
        """Bound the spectrum of every token's system from below and above, (B, n, C, 1) each."""
        # H_t is positive semidefinite: min(Lambda) <= spectrum <= trace(H_t) + max(Lambda).
        low = chunks.ridge.min(-1, keepdims=True)
        top = chunks.ridge.max(-1, keepdims=True)
        high = top + (
            system_trace(chunks)
            if self.options.eigenvalue_ratio is None
            else self.options.eigenvalue_ratio * top
        )
        return jnp.broadcast_to(low, high.shape), high

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token; also return the steps of each."""
        low, high = prepared
        x = chebyshev(lambda x: system_product(chunks, x), b, low, high, self.options.steps)
        return x, jnp.full(b.shape[:-1], self.options.steps, jnp.int32)
