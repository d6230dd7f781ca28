"""Recursive least squares: one Sherman-Morrison update per token, in time order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.sequence.numpy.chunks import Chunk
from olsq.sequence.numpy.factor import inverse_factors
from olsq.sequence.numpy.solver import NumpySolver
from olsq.solvers import Recursive


@dataclass(frozen=True)
class NumpyRecursive(NumpySolver):
    """NumPy form of :class:`olsq.Recursive`; the covariance is recomputed before every chunk."""

    options: Recursive

    def prepare(self, chunk: Chunk) -> Any:
        """Compute the covariance before the chunk, (B, d, d)."""
        system = chunk.gram
        if chunk.ridge is not None:
            if chunk.ridge.shape[1] != 1:
                raise ValueError(
                    "solver Recursive needs one ridge for all tokens, got one per token; use "
                    "ChunkExact (the default), Dense or ConjugateGradient"
                )
            system = system + chunk.ridge[:, 0, :, None] * np.eye(
                system.shape[-1], dtype=system.dtype
            )
        half = inverse_factors(system)
        return np.swapaxes(half, -1, -2) @ half

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve ``x_t = R_t b_t`` with ``R <- (R - h h^T) / gate``, ``h = R k sqrt(w / s)``."""
        x = np.empty_like(b)
        walk_tokens(
            prepared.copy(), np.ascontiguousarray(chunk.keys), chunk.gates, chunk.weight,
            np.ascontiguousarray(b), x,
        )  # fmt: skip
        return x, np.zeros(b.shape[:-1], np.int32)


@kernel()
def walk_tokens(covariance, keys, gates, weight, b, x):
    """Solve for every token in time order, updating ``covariance`` (B, d, d) in place."""
    streams, count, d = keys.shape
    number = keys.dtype.type
    u = np.empty(d, keys.dtype)
    for s in range(streams):
        R = covariance[s]
        for t in range(count):
            leverage = number(0)
            for i in range(d):
                total = number(0)
                for j in range(d):
                    total += R[i, j] * keys[s, t, j]
                u[i] = total
                leverage += total * keys[s, t, i]
            gate, w = number(gates[s, t]), number(weight[s, t])
            # u = R k,  s = gate + w k.u,  R <- (R - (w / s) u u^T) / gate,  x = R b
            innovation = gate + w * leverage
            scale = w / innovation if innovation > 0 else number(0)
            for i in range(d):
                total = number(0)
                for j in range(d):
                    R[i, j] = (R[i, j] - scale * u[i] * u[j]) / gate
                    total += R[i, j] * b[s, t, j]
                x[s, t, i] = total
