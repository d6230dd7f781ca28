"""Gates over a run of tokens or chunks: their products, states before each, tokens lost to NaN."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.pieces import running_max

RUN = 16  # pieces whose states one product computes; those of more are joined run by run


def gate_products(gates: Array, logs: Array | None = None) -> tuple[Array, Array]:
    """Compute products of C gates: D[t, i] = gates i+1..t, zeta_t = gates 0..t.

    D (..., C, C) is computed from products only, so that its derivatives of any order are right at
    a gate that is exactly 0, where those of quotients or logs are not. (A custom derivative rule
    would take one line, but JAX 0.10 drops custom rules in forward over reverse mode inside a
    scan.) The value of zeta (..., C) comes from ``logs`` where they are given, which carry no
    gradient and may resolve more than the gates do: its error is the one that accumulates from
    chunk to chunk.
    """
    c = size = gates.shape[-1]
    # Blocks of at most 8 gates are multiplied row by row, then doubled by products of whole tables.
    while size > 8 and size % 2 == 0:
        size //= 2
    blocks = gates.reshape(*gates.shape[:-1], c // size, size)
    unit = jnp.eye(size, dtype=gates.dtype)
    rows = [jnp.broadcast_to(unit[0], blocks.shape)]
    for t in range(1, size):
        rows.append(blocks[..., t, None] * rows[-1] + unit[t])
    table = jnp.stack(rows, -2)
    while size < c:  # blocks (..., C / size, size, size) to blocks twice as wide
        first, second = table[..., 0::2, :, :], table[..., 1::2, :, :]
        # the gates up to t of the second block: its first gate times column 0 of its table
        up_to = gates[..., size :: 2 * size, None] * second[..., :, 0]
        low = up_to[..., :, None] * first[..., -1:, :]
        upper = jnp.concatenate([first, jnp.zeros_like(first)], -1)
        table = jnp.concatenate([upper, jnp.concatenate([low, second], -1)], -2)
        size *= 2
    table = table[..., 0, :, :]
    zeta = gates[..., :1] * table[..., 0]
    if logs is None:
        return table, zeta
    constant = jax.lax.stop_gradient(gates)
    # The value of zeta from the logs, with the derivative of the product.
    sums = jnp.cumsum(jnp.where(constant == 0, 0, logs), axis=-1)
    value = jnp.where(jnp.cumsum(constant == 0, axis=-1) == 0, jnp.exp(sums), 0)
    return table, zeta + jax.lax.stop_gradient(value - zeta)


def chunk_products(factor: Array) -> tuple[Array, Array]:
    """Compute :func:`gate_products` of the products of n whole chunks, (..., n).

    One cumulative product of a masked table: a third of the operations to compile. For the gates of
    a chunk it would take two to three times as long to run; whole chunks are few.
    """
    n = factor.shape[-1]
    later = jnp.tril(jnp.ones((n, n), bool), -1)
    rows = jnp.where(later, factor[..., :, None], 1)
    table = jnp.tril(jax.lax.cumprod(rows, axis=rows.ndim - 2))
    return table, factor[..., :1] * table[..., 0]


def fade_read(zeta: Any, past: Array) -> Array:
    """Multiply what is read of the memory before a chunk, (..., C, V), by the gates since.

    ``zeta`` (..., C), (..., C, 1) or (..., C, V), None for 1.  After a reset nothing of it counts:
    0 times what overflowed would be NaN.
    """
    if zeta is None:
        return past
    zeta = zeta if zeta.ndim == past.ndim else zeta[..., None]
    return zeta * jnp.where((zeta == 0) & ~jnp.isfinite(past), 0, past)


def gate_gradient(table: Array, zeta: Array, d_table: Array, d_zeta: Array) -> Array:
    """Compute the cotangents of the gates (..., C) from those of their products D and zeta.

    A gate j is in ``D[t, i] = D[t, j] g_j D[j - 1, i]`` for i < j <= t and in ``zeta_t = D[t, j]
    g_j zeta_{j - 1}``: products only, so that it is right at a gate of exactly 0.
    """
    later = jnp.einsum("...tj,...ti->...ji", table, d_table)
    before = jnp.pad(table[..., :-1, :], [(0, 0)] * (table.ndim - 2) + [(1, 0), (0, 0)])
    start = jnp.concatenate([jnp.ones_like(zeta[..., :1]), zeta[..., :-1]], -1)
    return (later * before).sum(-1) + start * jnp.einsum("...tj,...t->...j", table, d_zeta)


def states_before(factor: Array, add: Array, start: Array) -> tuple[Array, Array]:
    """Compute the states before each piece, (B, n, p, q), and after the last:
    ``s <- factor s + add``.

    ``factor`` (B, n) is the product of each piece's gates, ``add`` (B, n, p, q) its contribution,
    ``start`` (B, p, q). One product with the table of :func:`chunk_products` does all pieces of a
    run; runs of ``RUN`` pieces are joined the same way, so that n pieces cost n RUN products.
    """
    n = factor.shape[1]
    if n > RUN:
        return _states_before_runs(factor, add, start)
    table, zeta = chunk_products(factor)
    after = jnp.einsum("bts,bspq->btpq", table, add) + zeta[..., None, None] * start[:, None]
    before = jnp.concatenate([start[:, None], after[:, :-1]], 1)
    return before, after[:, -1]


def _states_before_runs(factor: Array, add: Array, start: Array) -> tuple[Array, Array]:
    """Compute :func:`states_before` of more than ``RUN`` pieces, run by run."""
    b, n = factor.shape
    runs, shape = -(-n // RUN), add.shape[2:]
    spare = (0, runs * RUN - n)
    factor = jnp.pad(factor, ((0, 0), spare), constant_values=1)  # nothing forgotten, nothing added
    add = jnp.pad(add, ((0, 0), spare, (0, 0), (0, 0)))
    factor, add = factor.reshape(b * runs, RUN), add.reshape(b * runs, RUN, *shape)
    empty = jnp.zeros((b * runs, *shape), add.dtype)
    # What a run adds to an empty state, then the states before the runs, then those within.
    total = states_before(factor, add, empty)[1].reshape(b, runs, *shape)
    before, last = states_before(factor.prod(-1).reshape(b, runs), total, start)
    within = states_before(factor, add, before.reshape(b * runs, *shape))[0]
    return within.reshape(b, runs * RUN, *shape)[:, :n], last


def largest_square(dtype: Any) -> float:
    """Return the largest squared norm of a vector that counts as finite; sums of 16 still are."""
    return float(jnp.finfo(dtype).max) / 16


def squarable(x: Array) -> Array:
    """Test whether vectors along the last axis are finite and their squares do not overflow.

    The product of two such vectors does not overflow either.  So a token that is masked, or whose
    cotangent is 0, adds 0 to a sum of products: 0 times infinity would be NaN.
    """
    return (x * x).sum(-1) <= largest_square(x.dtype)


def norms_below_overflow(x: Array) -> Array:
    """Compute norms along the last axis in units of the largest that a sum of millions can have.

    Above 1 a vector is too large for sums of its products with numbers near 1; NaN stays NaN.
    """
    unit = float(jnp.finfo(x.dtype).max) * 2.0**-24
    return jnp.sqrt(((x * unit**-0.5) ** 2).sum(-1)) * unit**-0.5


def lost_tokens(sample_lost: Array, reset: Array | None, start: Array) -> Array:
    """Return a mask (B, n) of the tokens that a loss reaches: from a lost sample, or the start, to
    the next reset.
    """
    order = jnp.arange(1, sample_lost.shape[1] + 1)
    latest_lost = running_max(jnp.where(sample_lost, order, 0))
    if reset is None:
        return (latest_lost > 0) | start[:, None]
    latest_reset = running_max(jnp.where(reset, order, 0))
    inside = (latest_lost >= latest_reset) & (latest_lost > 0)
    return inside | (start[:, None] & (latest_reset == 0))
