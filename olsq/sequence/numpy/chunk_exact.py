"""Chunk-exact least squares: the default solver, in kernels of whole streams (:mod:`.stream`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.blas import addresses
from olsq.sequence.numpy.chunks import Streams
from olsq.sequence.numpy.solver import NumpySolver
from olsq.sequence.numpy.stream import solve_pairs, solve_streams
from olsq.solvers import ChunkExact

LOG_SPREAD = 1.4  # |log| of the gates' product within a chunk, fixed ridge: f stays within 2
LOG_SPREAD_DISCOUNTED = 3.0  # no corrections needed: only the keys' weights must stay comparable


def chunk_length(d: int) -> int:
    """Return the largest chunk length: a longer one shares a factor of size d among more tokens."""
    return 16 if d <= 8 else 32 if d <= 32 else 64


@dataclass(frozen=True)
class NumpyChunkExact(NumpySolver):
    """NumPy form of :class:`olsq.ChunkExact`.

    Kernels choose chunks and precision as they go.  Where gates are harsh they factorise every
    token's own system, so that ``max_steps`` has nothing to limit.  Given ``corrections`` are taken
    in chunks of ``chunk`` tokens whatever the gates are, as in JAX.
    """

    options: ChunkExact

    wide = True
    pieces = 8

    def solve_streams(
        self,
        streams: Streams,
        moments: tuple[NDArray, NDArray],
        outputs: tuple[NDArray, NDArray, NDArray],
    ) -> None:
        """Solve every token of finite streams."""
        corrections, chunk = self.options.corrections, self._chunk
        if corrections is None or streams.ridge is None:  # else there is nothing to correct
            most = min(chunk, chunk_length(streams.keys.shape[2]))
            options = self._kernel_options(streams, most)
        else:
            options = np.inf, chunk, 0.0, corrections
        solve_streams(addresses(), streams.arrays(), options, moments, outputs)

    def block_length(self, d: int) -> int:
        """Return the tokens of a block of the gradient, and the most of its chunks.

        Shorter than :func:`chunk_length`, since the corrections of two solutions cost less in short
        chunks.  Measured, microseconds a token with chunks of 32 and 64: 12.2 and 16.4 at d 64,
        45.4 and 47.8 at d 128.
        """
        return min(self._chunk, 16 if d <= 8 else 32 if d <= 128 else 64)

    def solve_pairs(
        self,
        streams: Streams,
        moments: tuple[NDArray, NDArray],
        pairs: tuple[NDArray, NDArray, NDArray],
        before: tuple[NDArray, NDArray],
    ) -> None:
        """Solve both systems of every token to ``tol``, whatever ``corrections`` are given."""
        options = self._kernel_options(streams, self.block_length(streams.keys.shape[2]))
        solve_pairs(addresses(), streams.arrays(), options, moments, pairs, before)

    @property
    def _chunk(self) -> int:
        """Return the chunk length of the description, which is sized."""
        assert self.options.chunk is not None
        return self.options.chunk

    def _kernel_options(self, streams: Streams, most: int) -> tuple[float, int, float, int]:
        """Return the kernels' options: spread, most tokens, tolerance, and no corrections."""
        spread = LOG_SPREAD_DISCOUNTED if streams.ridge is None else LOG_SPREAD
        tol = 0.0 if self.options.tol is None else float(self.options.tol)
        return spread, most, tol, -1
