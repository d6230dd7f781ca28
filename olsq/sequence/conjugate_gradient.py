"""Conjugate gradient on every token at once: the Mesa layer's solver, and its reference here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array

from olsq.sequence._chunks import Chunks, system_diagonal, system_product
from olsq.sequence._iterate import conjugate_gradient, scaled
from olsq.sequence.chunk_exact import ChunkExact, preconditioner


@dataclass(frozen=True)
class ConjugateGradient:
    """Conjugate gradient with a tolerance per token.

    Parameters
    ----------
    max_steps : int
        Most steps of a token; 0 with ``start="query"`` is gated linear attention.
    tol : float
        A token stops at ``|q - M x| <= tol |q|``.
    chunk : int
        Tokens per chunk of the matrix products; does not change the iterates beyond rounding.
    preconditioner : {None, "chunk"}
        "chunk" uses the factors of :class:`ChunkExact`: two to three steps where the gates are
        mild, no better than None where a chunk forgets nearly everything.
    start : {"jacobi", "query"}
        First iterate: ``q / diag(M)``, or q itself as in MesaNet's equation for k = 0 steps.

    Notes
    -----
    Solves both problems.  Each step costs one causal linear attention, 12k multiply-adds per
    token at C = d = 64.  Exact after d steps up to rounding.  30 steps at tol 1e-4 is the
    published setting: its error in float32 is 1e-4 on easy streams and can exceed 0.1 on long
    runs of equal keys.  Implicit gradients solve once more with the same settings and are as
    accurate as the solve; ``adjoint="unrolled"`` differentiates exactly ``max_steps`` steps.

    References
    ----------
    von Oswald et al., "MesaNet: sequence modeling by locally optimal test-time training" (2025),
    appendices B and C.

    Examples
    --------
    >>> import olsq
    >>> olsq.ConjugateGradient(tol=1e-6, preconditioner="chunk").max_steps
    30
    """

    max_steps: int = 30
    tol: float = 1e-4
    chunk: int = 64
    preconditioner: Literal["chunk"] | None = None
    start: Literal["jacobi", "query"] = "jacobi"

    modes = ("fixed", "discounted")

    def __post_init__(self) -> None:
        if self.max_steps < 0 or self.chunk < 1:
            raise ValueError("max_steps must be at least 0 and chunk at least 1")
        if not self.tol >= 0:
            raise ValueError(f"tol must be >= 0, got {self.tol}")
        if self.preconditioner not in (None, "chunk"):
            raise ValueError(f"preconditioner must be None or 'chunk', got {self.preconditioner!r}")
        if self.start not in ("jacobi", "query"):
            raise ValueError(f"start must be 'jacobi' or 'query', got {self.start!r}")

    def prepare(self, chunks: Chunks) -> Any:
        """The preconditioner's factors, or the diagonal of every system for the first iterate."""
        if self.preconditioner == "chunk":
            return ChunkExact(chunk=self.chunk).prepare(chunks)
        return system_diagonal(chunks) if self.start == "jacobi" else None

    def solve(self, chunks: Chunks, prepared: Any, b: Array, unroll: bool = False):
        """Solve (H_t + Lambda_t) x_t = b_t for every token; also the steps of each."""

        inner = preconditioner(chunks, prepared) if self.preconditioner else lambda r: r

        def run(b: Array) -> tuple[Array, Array]:
            if self.preconditioner == "chunk":
                start = inner(b)
            elif self.start == "jacobi":
                start = jnp.where(prepared > 0, b / jnp.where(prepared > 0, prepared, 1), 0)
            else:
                start = b
            if self.max_steps == 0:
                return start, jnp.zeros(b.shape[:-1], jnp.int32)
            return conjugate_gradient(
                lambda x: system_product(chunks, x),
                inner,
                b,
                start,
                tol=self.tol,
                max_steps=self.max_steps,
                unroll=unroll,
            )

        return scaled(b, run)

    def unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Exactly ``max_steps`` masked steps that reverse mode can walk back through."""
        return self.solve(chunks, prepared, b, unroll=True)
