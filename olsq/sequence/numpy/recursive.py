"""Recursive least squares: one rank-one update per token, in time order.

The factor of the covariance is carried, as in :mod:`olsq.sequence.jax.recursive`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.sequence.numpy.factor import inverse_factors
from olsq.sequence.numpy.solver import Chunk, NumpySolver
from olsq.solvers import Recursive


@dataclass(frozen=True)
class NumpyRecursive(NumpySolver):
    """NumPy form of :class:`olsq.Recursive`; the factor is recomputed before every chunk."""

    options: Recursive

    def prepare(self, chunk: Chunk) -> Any:
        """Compute the factor S of the covariance S S^T before the chunk, (B, d, d)."""
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
        return np.swapaxes(inverse_factors(system), -1, -2)

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve ``x_t = R_t b_t`` with ``R <- (R - (w / s) R k k^T R) / gate`` of its factor S."""
        x = np.empty_like(b)
        walk_tokens(
            prepared.copy("C"),
            np.ascontiguousarray(chunk.keys),
            chunk.gates,
            chunk.weight,
            np.ascontiguousarray(b),
            x,
        )
        return x, np.zeros(b.shape[:-1], np.int32)


@kernel()
def walk_tokens(factors, keys, gates, weight, b, x):
    """Solve for every token in time order, updating ``factors`` (B, d, d) in place."""
    streams, count, d = keys.shape
    number = keys.dtype.type
    f, u, inner = np.empty(d, keys.dtype), np.empty(d, keys.dtype), np.empty(d, keys.dtype)
    for s in range(streams):
        S = factors[s]
        for t in range(count):
            f[:] = number(0)
            for i in range(d):
                for j in range(d):
                    f[j] += S[i, j] * keys[s, t, i]
            leverage = number(0)
            for i in range(d):
                u[i], inner[i] = number(0), number(0)
                for j in range(d):
                    u[i] += S[i, j] * f[j]
                leverage += f[i] * f[i]
            gate, w = number(gates[s, t]), number(weight[s, t])
            # f = S^T k,  s = gate + w f.f,  S <- (S - w S f f^T / (s + sqrt(gate s))) / sqrt(gate)
            innovation = gate + w * leverage
            root = number(math.sqrt(gate))
            scale = number(0)
            if innovation > 0:
                scale = w / (innovation + root * number(math.sqrt(innovation)))
            for i in range(d):
                for j in range(d):
                    S[i, j] = (S[i, j] - scale * u[i] * f[j]) / root
                    inner[j] += S[i, j] * b[s, t, i]
            # x = S (S^T b)
            for i in range(d):
                total = number(0)
                for j in range(d):
                    total += S[i, j] * inner[j]
                x[s, t, i] = total
