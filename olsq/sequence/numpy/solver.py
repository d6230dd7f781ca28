"""What the NumPy form of a solver is."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from olsq.sequence.numpy.chunks import Chunk


class NumpySolver:
    """One factorisation shared by solves, for every token of a chunk of streams.

    The same methods as :class:`olsq.sequence.jax.solver.JaxSolver`, on one chunk at a time.
    """

    options: Any
    """The description, an :class:`olsq.solvers.Solver`."""

    def prepare(self, chunk: Chunk) -> Any:
        """Whatever one factorisation can share between solves."""
        raise NotImplementedError

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token (B, C, d); also the steps of each."""
        raise NotImplementedError

    def solve_transposed(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """The same systems, which are symmetric, for the implicit gradient."""
        return self.solve(chunk, prepared, b)
