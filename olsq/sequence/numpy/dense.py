"""A dense factorisation for every token of a chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.factor import guarded_inverse_factors
from olsq.sequence.numpy.solver import Chunk, NumpySolver
from olsq.solvers import Dense


@dataclass(frozen=True)
class NumpyDense(NumpySolver):
    """NumPy form of :class:`olsq.Dense`."""

    options: Dense

    def prepare(self, chunk: Chunk) -> Any:
        """Compute scales D (B, C, d) and factors X (B, C, d, d) with ``X D M D X^T = 1``.

        D holds powers of two that bring the diagonal of ``D M D`` to between 1/2 and 2. They cause
        no rounding, and the inverse of a system whose units differ by 1e20 stays within the dtype.
        A system whose condition number is beyond the dtype is solved with ``4 d eps`` of its
        diagonal added. Without a ridge it need not be definite, and its factor is then NaN.
        """
        (b, c, d), dtype = chunk.keys.shape, chunk.keys.dtype
        outer = chunk.keys[..., :, None] * chunk.keys[..., None, :]
        near = (chunk.decay @ outer.reshape(b, c, d * d)).reshape(b, c, d, d)
        system = near + chunk.zeta[..., None, None] * chunk.gram[:, None]
        definite: Any = True
        if chunk.ridge is not None:
            system += chunk.ridge[..., None] * np.eye(d, dtype=dtype)
            definite = (chunk.ridge > 0).all(-1)
        _, exponent = np.frexp(np.diagonal(system, axis1=-2, axis2=-1))
        scale = np.ldexp(np.ones_like(chunk.keys), -(exponent // 2))
        system = scale[..., :, None] * system * scale[..., None, :]
        return scale, guarded_inverse_factors(system, definite)

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token."""
        scale, inverse = prepared
        half = inverse @ (scale * b)[..., None]
        x = scale * (np.swapaxes(inverse, -1, -2) @ half)[..., 0]
        x = np.where((b == 0).all(-1, keepdims=True), 0, x)  # even of a singular system
        return x, np.zeros(b.shape[:-1], np.int32)
