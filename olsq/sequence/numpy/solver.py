"""Interface of a solver's NumPy form."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    def block_length(self, d: int) -> int:
        """Return the tokens of a block of the gradient: those of a chunk."""
        return self.options.chunk

    def solve_pairs(
        self,
        streams: Streams,
        moments: tuple[NDArray, NDArray],
        pairs: tuple[NDArray, NDArray, NDArray],
        before: tuple[NDArray, NDArray],
    ) -> None:
        """Solve both systems of every token of finite float64 streams, for the gradient.

        With ``pairs`` = upstream gradients g, x and e, all (B, T, ...), fills ``M_t x_t = q_t`` and
        ``M_t e_t = G_t^T g_t``; fills ``before`` = (grams, crosses), (B, blocks, ...), with the
        moments before every block; updates ``moments`` in place.
        """
        (upstream, x, e), (grams, crosses) = pairs, before
        for part, chunk in iterate_chunks(streams, self.options.chunk, *moments):
            block = part.start // self.options.chunk
            grams[:, block], crosses[:, block] = chunk.gram, chunk.cross
            with np.errstate(all="ignore"):
                prepared = self.prepare(chunk)
                x[:, part] = self.solve(chunk, prepared, chunk.queries)[0]
                right = read_back(chunk, upstream[:, part])
                e[:, part] = self.solve_transposed(chunk, prepared, right)[0]
