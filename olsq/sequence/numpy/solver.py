"""Interface of a solver's NumPy form."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.problem import Gradients
from olsq.sequence.numpy.adjoint import gradient_of_solutions
from olsq.sequence.numpy.blas import addresses
from olsq.sequence.numpy.chunks import (
    Chunk,
    Streams,
    iterate_chunks,
    read_back,
    read_out,
    system_product,
)
from olsq.sequence.numpy.products import residual_norms


class NumpySolver:
    """A solver in NumPy: one factorisation, shared by solves for every token of a chunk of streams.

    The same methods as :class:`olsq.sequence.jax.solver.JaxSolver`, on one chunk at a time.
    """

    options: Any
    """The description, an :class:`olsq.solvers.Solver`."""

    wide: bool = False
    """Whether it squares keys in float64, whatever the dtype of the streams."""

    pieces: int = 1
    """Pieces of a batch per thread: one is best where Python runs between kernels."""

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

    def solve_streams(
        self,
        streams: Streams,
        moments: tuple[NDArray, NDArray],
        outputs: tuple[NDArray, NDArray, NDArray],
    ) -> None:
        """Solve every token of finite streams, chunk by chunk.

        Fills ``outputs`` = values, steps, and norms (B, T, 2) of residuals and solutions; updates
        ``moments`` = (gram, cross), float64, in place.
        """
        (value, steps, norms), (gram, cross) = outputs, moments
        for part, chunk in iterate_chunks(streams, self.options.chunk, gram, cross):
            with np.errstate(all="ignore"):
                x, steps[:, part] = self.solve(chunk, self.prepare(chunk), chunk.queries)
                value[:, part] = read_out(chunk, x)
                residual_norms(chunk.queries, system_product(chunk, x), x, norms[:, part])

    def differentiate_streams(
        self,
        streams: Streams,
        moments: tuple[NDArray, NDArray],
        upstream: NDArray,
        slopes: Gradients,
    ) -> None:
        """Fill ``slopes``, zeros, with the gradients of finite float64 streams."""
        x, e, before = np.zeros_like(streams.keys), np.zeros_like(streams.keys), []
        for part, chunk in iterate_chunks(streams, self.options.chunk, *moments):
            before.append((chunk.gram, chunk.cross))
            with np.errstate(all="ignore"):
                prepared = self.prepare(chunk)
                x[:, part] = self.solve(chunk, prepared, chunk.queries)[0]
                right = read_back(chunk, upstream[:, part])
                e[:, part] = self.solve_transposed(chunk, prepared, right)[0]
        if before:
            grams, crosses = (np.stack(s, axis=1) for s in zip(*before, strict=True))
            gradient_of_solutions(
                addresses(),
                streams.arrays(),
                self.options.chunk,
                (grams, crosses),
                (upstream, x, e),
                tuple(slopes),
            )
