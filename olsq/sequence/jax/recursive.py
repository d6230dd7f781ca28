"""Recursive least squares: one rank-one update per token, in time order.

Forward, a factor S of the covariance R = S S^T is carried, by Potter's form of Sherman and
Morrison's update.  What an update leaves of R is a difference: along a key of leverage l it loses
log10(l) digits of R, and half as many of S, and S S^T cannot become indefinite.  Leverages are
large if a column is large compared with the ridge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.control import scan
from olsq.sequence.jax.solver import Chunks, JaxSolver
from olsq.sequence.jax.triangular import inverse_cholesky, inverse_from_factor
from olsq.solvers import Recursive


@dataclass(frozen=True)
class JaxRecursive(JaxSolver):
    """JAX form of :class:`olsq.Recursive`."""

    options: Recursive

    def prepare(self, chunks: Chunks) -> Any:
        """Compute the factor of the covariance before the first token, and the covariance after the
        last for the reverse walk.
        """
        if chunks.ridge is not None and chunks.ridge.shape[2] != 1:
            raise ValueError(
                "solver Recursive needs one ridge for all tokens, got one per token; use "
                "ChunkExact (the default), Dense or ConjugateGradient"
            )
        eye = jnp.eye(chunks.keys.shape[-1], dtype=chunks.keys.dtype)
        ridge = 0 if chunks.ridge is None else chunks.ridge[:, 0] * eye
        last = None
        if self.options.reverse:
            tail = chunks.decay[..., -1, :, None] * chunks.keys
            gram = jnp.einsum("bci,bcj->bij", chunks.keys[:, -1], tail[:, -1])
            far = chunks.gram[:, -1]
            if chunks.zeta is not None:
                far = chunks.zeta[:, -1, -1, None, None] * far
            last = inverse_from_factor(inverse_cholesky(gram + far + ridge))
        return jnp.swapaxes(inverse_cholesky(chunks.gram[:, 0] + ridge), -1, -2), last

    def _flatten_tokens(self, chunks: Chunks, b: Array) -> tuple[Array, ...]:
        """Return keys, gates, weights and b with time first: (T, B, ...)."""
        ones = jnp.ones(b.shape[:-1], b.dtype)
        gates = ones if chunks.gates is None else chunks.gates
        weight = ones if chunks.weight is None else chunks.weight
        return tuple(
            jnp.moveaxis(x.reshape(x.shape[0], -1, *x.shape[3:]), 1, 0)
            for x in (chunks.keys, gates, weight, b)
        )

    def _restore_tokens(self, x: Array, b: Array) -> tuple[Array, Array]:
        """Reshape solutions (T, B, d) to the shape of b, (B, n, C, d); also return steps of 0."""
        return jnp.moveaxis(x, 0, 1).reshape(b.shape), jnp.zeros(b.shape[:-1], jnp.int32)

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve ``x_t = R_t b_t`` with ``R <- (R - (w / s) R k k^T R) / gate`` of its factor S."""

        def step(factor: Array, token: tuple[Array, ...]) -> tuple[Array, Array]:
            key, gate, weight, b = token
            f = jnp.einsum("bji,bj->bi", factor, key)
            s = gate + weight * (f * f).sum(-1)
            # f = S^T k,  s = gate + w f.f,  S <- (S - w S f f^T / (s + sqrt(gate s))) / sqrt(gate)
            root = jnp.sqrt(jnp.where(s > 0, gate * s, 0))
            scale = jnp.where(s > 0, weight / jnp.where(s > 0, s + root, 1), 0)
            u = scale[:, None] * jnp.einsum("bij,bj->bi", factor, f)
            factor = (factor - u[:, :, None] * f[:, None, :]) / jnp.sqrt(gate)[:, None, None]
            inner = jnp.einsum("bji,bj->bi", factor, b)
            return factor, jnp.einsum("bij,bj->bi", factor, inner)

        x = scan(step, prepared[0], self._flatten_tokens(chunks, b))[1]
        return self._restore_tokens(x, b)

    def solve_transposed(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve back in time: ``R_{t-1} = gate (R + u u^T w / (1 - w k.u))``, ``u = R_t k``."""
        if not self.options.reverse:
            return self.solve(chunks, prepared, b)

        def step(cov: Array, token: tuple[Array, ...]) -> tuple[Array, Array]:
            key, gate, weight, b = token
            x = jnp.einsum("bij,bj->bi", cov, b)
            u = jnp.einsum("bij,bj->bi", cov, key)
            # u = R_t k,  R_{t-1} = gate (R_t + w u u^T / (1 - w k.u))
            scale = weight / (1 - weight * (key * u).sum(-1))
            outer = u[:, :, None] * u[:, None, :]
            return gate[:, None, None] * (cov + scale[:, None, None] * outer), x

        x = scan(step, prepared[1], self._flatten_tokens(chunks, b), reverse=True)[1]
        return self._restore_tokens(x, b)
