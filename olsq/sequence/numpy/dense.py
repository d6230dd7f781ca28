"""A dense factorisation for every token of a chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.chunks import Chunk
from olsq.sequence.numpy.factor import inverse_factors
from olsq.sequence.numpy.solver import NumpySolver
from olsq.solvers import Dense


@dataclass(frozen=True)
class NumpyDense(NumpySolver):
    """:class:`olsq.Dense` in NumPy."""

    options: Dense

    def prepare(self, chunk: Chunk) -> Any:
        """The inverse factors X of every system, ``X M X^T = 1``, (B, C, d, d); NaN without."""
        (b, c, d), dtype = chunk.keys.shape, chunk.keys.dtype
        outer = chunk.keys[..., :, None] * chunk.keys[..., None, :]
        own = (chunk.decay @ outer.reshape(b, c, d * d)).reshape(b, c, d, d)
        system = own + chunk.zeta[..., None, None] * chunk.gram[:, None]
        if chunk.ridge is not None:
            system += chunk.ridge[..., None] * np.eye(d, dtype=dtype)
        return inverse_factors(system)

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token."""
        half = prepared @ b[..., None]
        x = (np.swapaxes(prepared, -1, -2) @ half)[..., 0]
        x = np.where((b == 0).all(-1, keepdims=True), 0, x)  # even of a singular system
        return x, np.zeros(b.shape[:-1], np.int32)
