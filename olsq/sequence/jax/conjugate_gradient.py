"""Conjugate gradient for all tokens at once: the solver of the Mesa layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.chunk_exact import JaxChunkExact, preconditioner
from olsq.sequence.jax.iterations import conjugate_gradient, divide
from olsq.sequence.jax.solver import Chunks, JaxSolver, system_diagonal, system_product
from olsq.solvers import ChunkExact, ConjugateGradient


@dataclass(frozen=True)
class JaxConjugateGradient(JaxSolver):
    """JAX form of :class:`olsq.ConjugateGradient`."""

    options: ConjugateGradient

    def prepare(self, chunks: Chunks) -> Any:
        """Compute the preconditioner's factors, or each system's diagonal for the first iterate."""
        if self.options.preconditioner == "chunk":
            return self._factors.prepare(chunks)
        return system_diagonal(chunks) if self.options.start == "jacobi" else None

    @property
    def _factors(self) -> JaxChunkExact:
        """Return the chunk-exact solver whose factors are the preconditioner."""
        return JaxChunkExact(ChunkExact(chunk=self.options.chunk))

    def saved(self, prepared: Any) -> Any:
        """Return the preconditioner's factorisations."""
        return self._factors.saved(prepared) if self.options.preconditioner == "chunk" else ()

    def restored(self, chunks: Chunks, saved: Any) -> Any:
        """Rebuild the result of :meth:`prepare` without the factorisations."""
        if self.options.preconditioner == "chunk":
            return self._factors.restored(chunks, saved)
        return self.prepare(chunks)

    def solve(self, chunks: Chunks, prepared: Any, b: Array, unroll: bool = False):
        """Solve (H_t + Lambda_t) x_t = b_t for every token; also return the steps of each."""
        options = self.options
        stop = {"tol": options.tol, "max_steps": options.max_steps, "unroll": unroll}

        start = inner = None
        if options.preconditioner is None:
            start = divide(b, prepared) if options.start == "jacobi" else b
        else:
            # from 0, not from P b: a P that is far too large there would cost the start's digits
            inner = preconditioner(chunks, prepared)
            if options.max_steps == 0:
                return inner(b), jnp.zeros(b.shape[:-1], jnp.int32)
        product = partial(system_product, chunks)
        return conjugate_gradient(product, b, start=start, precondition=inner, **stop)[:2]

    def solve_unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Run exactly ``max_steps`` masked steps, which reverse mode can differentiate."""
        return self.solve(chunks, prepared, b, unroll=True)
