"""Interface of a solver's JAX form."""

from __future__ import annotations

from typing import Any

from jax import Array

from olsq.sequence.jax.chunks import Chunks


class JaxSolver:
    """A solver in JAX: one factorisation, shared by solves for every token of a tile of chunks.

    Hashable, because it is a static argument of compiled functions: a frozen dataclass whose one
    field is its description.
    """

    options: Any
    """The description, an :class:`olsq.solvers.Solver`."""

    def prepare(self, chunks: Chunks) -> Any:
        """Compute what several solves can share, such as a factorisation.

        Nothing here is differentiated.
        """
        raise NotImplementedError

    def like_prepared(self, chunks: Chunks) -> Any:
        """Return arrays of the shapes that :meth:`prepare` returns; by default, its results.

        Only shapes are used: where those are known, nothing has to be traced for them.
        """
        return self.prepare(chunks)

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token (B, n, C, d).

        Also returns the steps of each.
        """
        raise NotImplementedError

    def solve_transposed(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve the same systems, which are symmetric, for the implicit gradient."""
        return self.solve(chunks, prepared, b)

    def saved(self, prepared: Any) -> tuple[Array, ...]:
        """Select what a backward pass keeps of ``prepared``: arrays (B, n, ...)."""
        return ()

    def restored(self, chunks: Chunks, saved: tuple[Array, ...]) -> Any:
        """Rebuild ``prepared`` from what was kept of it; by default, compute it again."""
        return self.prepare(chunks)

    def solve_unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve with the same steps, written so that they can be differentiated."""
        return self.solve(chunks, prepared, b)
