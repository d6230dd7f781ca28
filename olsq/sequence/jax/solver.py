"""Interface of a solver's JAX form: what it gets, what it multiplies by, what it implements.

A tile is some chunks of every stream.  With C tokens per chunk and n chunks, arrays are (B, n, C,
...); every product is one large batched matrix product over B and n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.gates import fade_read


class Chunks(NamedTuple):
    """Consecutive chunks of every stream, with the moments before each of them."""

    keys: Array  # (B, n, C, d)
    values: Array  # (B, n, C, m)
    queries: Array  # (B, n, C, d)
    decay: Array  # (C, C) or (B, n, C, C): weight_i * product of gates i+1..t, 0 for i > t
    zeta: Any  # (B, n, C): product of the chunk's gates up to t; None: all 1
    logs: Any  # (B, n, C): log gates, 0 at a gate that is 0; None: all 1
    gates: Any  # (B, n, C); None: all 1
    weight: Any  # (B, n, C); None: all 1
    ridge: Any  # (B, 1, 1, d) or (B, n, C, d); None: inside gram
    gram: Array  # (B, n, d, d), before the chunk
    cross: Array  # (B, n, m, d), before the chunk
    output_lost: Array  # (B, n, C) bool: a non-finite sample reaches this token


class JaxSolver:
    """A solver in JAX: one factorisation, shared by solves for every token of a tile of chunks.

    Hashable, because it is a static argument of compiled functions: a frozen dataclass whose one
    field is its description.
    """

    options: Any
    """The description, an :class:`olsq.solvers.Solver`."""

    def prepare(self, chunks: Chunks) -> Any:
        """Compute what several solves can share, such as a factorisation.

        Nothing here is differentiated.
        """
        raise NotImplementedError

    def like_prepared(self, chunks: Chunks) -> Any:
        """Return arrays of the shapes that :meth:`prepare` returns; by default, its results.

        Only shapes are used: where those are known, nothing has to be traced for them.
        """
        return self.prepare(chunks)

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token (B, n, C, d).

        Also returns the steps of each.
        """
        raise NotImplementedError

    def solve_transposed(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve the same systems, which are symmetric, for the implicit gradient."""
        return self.solve(chunks, prepared, b)

    def saved(self, prepared: Any) -> tuple[Array, ...]:
        """Select what a backward pass keeps of ``prepared``: arrays (B, n, ...)."""
        return ()

    def restored(self, chunks: Chunks, saved: tuple[Array, ...]) -> Any:
        """Rebuild ``prepared`` from what was kept of it; by default, compute it again."""
        return self.prepare(chunks)

    def solve_unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve with the same steps, written so that they can be differentiated."""
        return self.solve(chunks, prepared, b)


def moment_product(x, left, right, decay, boundary, zeta):
    """Compute (sum_i decay_ti left_i right_i^T + zeta_t boundary) x_t for all t of every chunk."""
    # sum_i D_ti left_i (right_i . x_t): causal attention within the chunk; zeta_t B x_t: the past
    scores = jnp.einsum("bnti,bnsi->bnts", x, right) * decay
    far = jnp.einsum("bnti,bnji->bntj", x, boundary)
    return scores @ left + fade_read(zeta, far)


def system_product(chunks: Chunks, x: Array) -> Array:
    """Compute (H_t + Lambda_t) x_t for every token: the matrix that all solvers invert."""
    y = moment_product(x, chunks.keys, chunks.keys, chunks.decay, chunks.gram, chunks.zeta)
    return y if chunks.ridge is None else y + chunks.ridge * x


def read_out(chunks: Chunks, x: Array) -> Array:
    """Compute o_t = G_t x_t for every token: gated linear attention with queries x."""
    return moment_product(x, chunks.values, chunks.keys, chunks.decay, chunks.cross, chunks.zeta)


def system_diagonal(chunks: Chunks) -> Array:
    """Compute diag(H_t + Lambda_t), (B, n, C, d)."""
    near = chunks.decay @ (chunks.keys**2)
    far = jnp.diagonal(chunks.gram, axis1=-2, axis2=-1)[:, :, None]
    y = near + fade_read(chunks.zeta, far)
    return y if chunks.ridge is None else y + chunks.ridge


def system_trace(chunks: Chunks) -> Array:
    """Compute trace(H_t), (B, n, C, 1): an upper bound of its norm for one small product."""
    near = chunks.decay @ (chunks.keys**2).sum(-1, keepdims=True)
    far = jnp.trace(chunks.gram, axis1=-2, axis2=-1)[:, :, None, None]
    return near + fade_read(chunks.zeta, far)


def cross_norm(chunks: Chunks) -> Array:
    """Bound the norm of G_t from above, (B, n, C), by the sum of the norms of its terms."""
    keys, values = (jnp.linalg.norm(x, axis=-1) for x in (chunks.keys, chunks.values))
    near = (chunks.decay @ (keys * values)[..., None])[..., 0]
    far = jnp.linalg.norm(chunks.cross, axis=(-2, -1))[..., None]
    return near + fade_read(chunks.zeta, far)
