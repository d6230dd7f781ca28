"""Truncated Neumann series for every token of a chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.iterations import neumann_step
from olsq.sequence.numpy.solver import Chunk, NumpySolver, system_product, system_trace
from olsq.solvers import Neumann


@dataclass(frozen=True)
class NumpyNeumann(NumpySolver):
    """NumPy form of :class:`olsq.Neumann`."""

    options: Neumann

    def prepare(self, chunk: Chunk) -> Any:
        """Bound the norm of every token's system from above by its trace, (B, n, C, 1)."""
        bound = system_trace(chunk)
        return bound if chunk.ridge is None else bound + chunk.ridge.max(-1, keepdims=True)

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Sum the first terms of the series for every token; also return their number."""
        scale = 1 / prepared
        x, scale = scale * b, np.ascontiguousarray(scale[..., 0])
        # x <- x + (b - M x) / c with c >= |M|, which converges for every positive definite M
        for _ in range(self.options.terms - 1):
            neumann_step(x, b, system_product(chunk, x), scale)
        return x, np.full(b.shape[:-1], self.options.terms, np.int32)
