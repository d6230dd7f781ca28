"""Interface of a solver's NumPy form."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from olsq.sequence.numpy.chunks import Chunk


class NumpySolver:
    """A solver in NumPy: one factorisation, shared by solves for every token of a chunk of streams.

    The same methods as :class:`olsq.sequence.jax.solver.JaxSolver`, on one chunk at a time.
    """

    options: Any
    """The description, an :class:`olsq.solvers.Solver`."""

    def prepare(self, chunk: Chunk) -> Any:
        """Compute what several solves can share, such as a factorisation."""
        raise NotImplementedError

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token (B, C, d).

        Also returns the steps of each.
        """
        raise NotImplementedError

    def solve_transposed(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve the same systems, which are symmetric, for the implicit gradient."""
        return self.solve(chunk, prepared, b)
