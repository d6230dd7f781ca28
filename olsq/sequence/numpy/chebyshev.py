"""Chebyshev iteration for every token of a chunk, from bounds on the spectrum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.iterations import chebyshev
from olsq.sequence.numpy.solver import Chunk, NumpySolver, system_product, system_trace
from olsq.solvers import Chebyshev


@dataclass(frozen=True)
class NumpyChebyshev(NumpySolver):
    """NumPy form of :class:`olsq.Chebyshev`."""

    options: Chebyshev

    def prepare(self, chunk: Chunk) -> Any:
        """Bound the spectrum of every token's system from below and above, (B, C, 1) or (B, 1, 1)
        each.
        """
        assert chunk.ridge is not None
        # H_t is positive semidefinite: min(Lambda) <= spectrum <= trace(H_t) + max(Lambda).
        low = chunk.ridge.min(-1, keepdims=True)
        top = chunk.ridge.max(-1, keepdims=True)
        ratio = self.options.eigenvalue_ratio
        high = top + (system_trace(chunk) if ratio is None else ratio * top)
        return low, high

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token; also return the steps of each."""
        low, high = prepared
        x = chebyshev(lambda x: system_product(chunk, x), b, low, high, self.options.steps)
        return x, np.full(b.shape[:-1], self.options.steps, np.int32)
