"""Chebyshev iteration on every token at once, from bounds on the spectrum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.sequence._chunks import Chunks, system_product, system_trace
from olsq.sequence._iterate import chebyshev


@dataclass(frozen=True)
class Chebyshev:
    """A fixed number of Chebyshev steps; no inner products, no stopping test.

    Parameters
    ----------
    steps : int
        Steps after the first iterate ``q / middle``.
    chunk : int
        Tokens per chunk of the matrix products.
    reach : float, optional
        Largest eigenvalue of H_t in units of the token's largest ridge, where it is known: for a
        ridge of ``ratio`` times a norm of H_t it is ``1 / ratio``.  Too small a number diverges.
        None bounds it by the trace of H_t.

    Notes
    -----
    Solves ``ridge_mode="fixed"`` only: its lower bound of the spectrum is the smallest ridge,
    which the discounted problem forgets.  The upper bound is that of H_t plus the largest ridge.
    Error at most ``2 rho^(steps+1)``, ``rho = (sqrt(k)-1)/(sqrt(k)+1)``, k the ratio of the
    bounds: good where the ridge grows with H, as in Gated KalmaNet; otherwise
    :class:`ChunkExact` needs 1 to 3 such steps where this needs sqrt(k).

    References
    ----------
    Golub and Varga, "Chebyshev semi-iterative methods" (1961); Gated KalmaNet, arXiv 2511.21016.

    Examples
    --------
    >>> import olsq
    >>> olsq.Chebyshev(steps=40).steps
    40
    """

    steps: int = 30
    chunk: int = 64
    reach: float | None = None

    modes = ("fixed",)

    def __post_init__(self) -> None:
        if self.steps < 0 or self.chunk < 1:
            raise ValueError("steps must be at least 0 and chunk at least 1")
        if self.reach is not None and not self.reach > 0:
            raise ValueError(f"reach must be > 0 or None, got {self.reach}")

    def prepare(self, chunks: Chunks) -> Any:
        """Bounds of the spectrum of every token's system, (B, n, C, 1) each."""
        low = chunks.ridge.min(-1, keepdims=True)
        top = chunks.ridge.max(-1, keepdims=True)
        high = top + (system_trace(chunks) if self.reach is None else self.reach * top)
        return jnp.broadcast_to(low, high.shape), high

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token; also the steps of each."""
        low, high = prepared
        x = chebyshev(lambda x: system_product(chunks, x), b, low, high, self.steps)
        return x, jnp.full(b.shape[:-1], self.steps, jnp.int32)

    def unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """The same steps, differentiated through."""
        return self.solve(chunks, prepared, b)
