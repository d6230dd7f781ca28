"""The chunk factorisation: an inverse for every token of a chunk out of two Cholesky factors.

Before a chunk let H be the moments and ``zeta_t`` the product of the chunk's gates up to t.  With
a reference ``zeta_r`` and a ridge L::

    R = (zeta_r H + L)^{-1}       k~_i = sqrt(weight_i zeta_r / zeta_i) k_i
    S = I + K~ R K~^T = C C^T     N = C^{-1} K~ R
    P_t = f_t (R - sum_{i<=t} n_i n_i^T),   f_t = zeta_r / zeta_t

because the leading minors of S share C.  ``P_t^{-1} = H_t + L / f_t``: the system of token t with
a ridge of ``L / f_t`` in place of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from olsq.sequence._chunks import Chunks
from olsq.sequence._triangular import inverse_cholesky, inverse_spd

FACTOR = "olsq factor"  # names what a backward pass keeps
SINGULAR = 0.02  # part of the digits that a growth may cancel and still count as regular
FLOOR = -80.0  # log of the smallest gate a reference sees; smaller ones only precondition


@jax.custom_batching.custom_vmap
def largest(x: Array) -> Array:
    """x, and under ``vmap`` its largest over the batch: a branch then stays one branch.

    A condition that differs between the elements of a batch makes JAX run both branches.
    """
    return x


@largest.def_vmap
def _largest_of_batch(axis_size: int, in_batched: list[bool], x: Array) -> tuple[Array, bool]:
    return largest(x.max(0)), False


class Factor(NamedTuple):
    """P_t of every token: R (B, n, d, d), N (B, n, C, d), f (B, n, C, 1) or None for 1."""

    inverse: Array
    rows: Array
    scale: Any  # or None
    growth: Array  # (B, n): largest 1 + k~ R k~, how much R - sum n n^T may cancel


def sums_of_logs(chunks: Chunks) -> Array | None:
    """Cumulative log gates within each chunk (B, n, C), a gate of 0 counting as e^FLOOR."""
    if chunks.logs is None:
        return None
    return jnp.cumsum(jnp.where(chunks.gates == 0, FLOOR, jnp.maximum(chunks.logs, FLOOR)), -1)


def reference_ridge(chunks: Chunks) -> Array | None:
    """One ridge per chunk, (B, n or 1, 1, d): the geometric mean over its tokens."""
    if chunks.ridge is None or chunks.ridge.shape[2] == 1:
        return chunks.ridge
    tiny = jnp.finfo(chunks.ridge.dtype).tiny
    return jnp.exp(jnp.log(jnp.maximum(chunks.ridge, tiny)).mean(2, keepdims=True))


def factorise(
    chunks: Chunks,
    sums: Any,
    centre: Any,
    ridge: Any,
    limit: float = jnp.inf,
) -> Factor:
    """Factorise every chunk at the reference ``zeta_r = exp(centre)``, centre (B, n).

    Keys are scaled up by at most ``sqrt(limit)``; tokens beyond that are not covered.
    """
    keys, system = chunks.keys, chunks.gram
    scale = None
    if sums is not None:
        system = jnp.exp(centre)[..., None, None] * system
        gap = centre[..., None] - sums
        scale = jnp.exp(gap)[..., None]
        keys = keys * jnp.exp(jnp.minimum(gap, jnp.log(limit)) / 2)[..., None]
    if chunks.weight is not None:
        keys = keys * jnp.sqrt(chunks.weight)[..., None]
    if ridge is not None:
        system = system + ridge * jnp.eye(keys.shape[-1], dtype=keys.dtype)
    parts = _inverse_and_rows(system, keys)
    if ridge is None or chunks.ridge.shape[2] > 1:  # the system may be singular to rounding
        parts = _guarded(system, keys, *parts)
    inverse, rows, growth = (checkpoint_name(part, FACTOR) for part in parts)
    return Factor(inverse, rows, scale, growth)


def _inverse_and_rows(system: Array, keys: Array) -> tuple[Array, Array, Array]:
    inverse = inverse_spd(system)
    rows = keys @ inverse
    minors = jnp.einsum("bnti,bnsi->bnts", rows, keys) + jnp.eye(keys.shape[2], dtype=keys.dtype)
    growth = jnp.diagonal(minors, axis1=-2, axis2=-1).max(-1)
    return inverse, inverse_cholesky(minors) @ rows, growth


def _guarded(
    system: Array, keys: Array, inverse: Array, rows: Array, growth: Array
) -> tuple[Array, Array, Array]:
    """Factors of chunks whose system is singular to rounding: with a ridge, to precondition with.

    So it is in the discounted problem soon after a gate of 0, and where the ridges of one chunk
    differ by orders of magnitude.  Growth is infinite there.
    """
    eps = jnp.finfo(system.dtype).eps
    singular = ~(growth * eps < SINGULAR)

    def factors() -> tuple[Array, Array]:
        diagonal = jnp.diagonal(system, axis1=-2, axis2=-1) + (keys**2).sum(-2)
        ridge = jnp.sqrt(eps) * jnp.where(diagonal > 0, diagonal, 1)
        eye = jnp.eye(system.shape[-1], dtype=system.dtype)
        other = _inverse_and_rows(system + ridge[..., None] * eye, keys)
        chosen = singular[..., None, None]
        return jnp.where(chosen, other[0], inverse), jnp.where(chosen, other[1], rows)

    inverse, rows = jax.lax.cond(largest(singular.any()), factors, lambda: (inverse, rows))
    return inverse, rows, jnp.where(singular, jnp.inf, growth)


def apply(factor: Factor, x: Array) -> Array:
    """P_t x_t for every token: causal linear attention with keys = values = n."""
    scores = jnp.tril(jnp.einsum("bnti,bnsi->bnts", x, factor.rows))
    y = jnp.einsum("bnti,bnji->bntj", x, factor.inverse) - scores @ factor.rows
    return y if factor.scale is None else factor.scale * y
