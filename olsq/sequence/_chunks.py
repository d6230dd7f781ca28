"""Cut a stream into chunks: gates, boundary moments, and products with the moments.

Everything a solver multiplies by is here, once.  With C tokens a chunk and n chunks, arrays are
(B, n, C, ...); every product is one large batched matrix product over B and n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from olsq.problem import Moments
from olsq.sequence._inputs import Stream


class Chunks(NamedTuple):
    """A stream cut into chunks, with the moments before each of them."""

    keys: jax.Array  # (B, n, C, d)
    values: jax.Array  # (B, n, C, m)
    queries: jax.Array  # (B, n, C, d)
    decay: jax.Array  # (C, C) or (B, n, C, C): weight_i * product of gates i+1..t, 0 for i > t
    zeta: Any  # (B, n, C): product of the chunk's gates up to t; None: all 1
    logs: Any  # (B, n, C): log gates, 0 at a gate that is 0; None: all 1
    gates: Any  # (B, n, C); None: all 1
    weight: Any  # (B, n, C); None: all 1
    ridge: Any  # (B, 1, 1, d) or (B, n, C, d); None: inside gram
    gram: jax.Array  # (B, n, d, d), before the chunk
    cross: jax.Array  # (B, n, m, d), before the chunk
    lost: jax.Array  # (B, n, C) bool: a non-finite sample reaches this token


@jax.custom_jvp
def decays(gates: jax.Array, logs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Products of gates within a chunk: D[t, i] = gates i+1..t (C, C) and zeta_t = gates 0..t.

    ``logs`` holds the logs of the gates (anything at a gate that is 0) and carries no gradient.
    The derivative is written in products, not in quotients or logs, so that it is right at a gate
    that is exactly 0: ``dD = D diag(dgate) D_shifted`` with ``D_shifted[s, i] = D[s - 1, i]``.
    """
    c = gates.shape[-1]
    logs = jnp.where(gates == 0, 0, logs)
    segment = jnp.cumsum(gates == 0, axis=-1)
    zeta = jnp.where(segment == 0, jnp.exp(jnp.cumsum(logs, axis=-1)), 0)
    # Blocks of at most 8 from sums of logs, then doubled with products: sums of many strong
    # logs would cancel.
    size = c
    while size > 8 and size % 2 == 0:
        size //= 2
    sums = jnp.cumsum(logs.reshape(*logs.shape[:-1], c // size, size), axis=-1)
    segment = jnp.cumsum((gates == 0).reshape(sums.shape), axis=-1)
    inside = jnp.tril(jnp.ones((size, size), bool)) & (
        segment[..., :, None] == segment[..., None, :]
    )
    table = jnp.where(
        inside, jnp.exp(jnp.where(inside, sums[..., :, None] - sums[..., None, :], 0)), 0
    )
    start = jnp.where(segment == 0, jnp.exp(sums), 0)
    while size < c:
        first, second = table[..., 0::2, :, :], table[..., 1::2, :, :]
        low = start[..., 1::2, :, None] * first[..., -1:, :]
        table = jnp.concatenate(
            [
                jnp.concatenate([first, jnp.zeros_like(first)], -1),
                jnp.concatenate([low, second], -1),
            ],
            -2,
        )
        start = jnp.concatenate(
            [start[..., 0::2, :], start[..., 0::2, -1:] * start[..., 1::2, :]], -1
        )
        size *= 2
    return table[..., 0, :, :], zeta


@decays.defjvp
def _decays_jvp(primals, tangents):
    table, zeta = decays(*primals)
    gates_dot = tangents[0]
    shifted = jnp.concatenate([jnp.zeros_like(table[..., :1, :]), table[..., :-1, :]], -2)
    before = jnp.concatenate([jnp.ones_like(zeta[..., :1]), zeta[..., :-1]], -1)
    table_dot = table @ (gates_dot[..., :, None] * shifted)
    zeta_dot = jnp.einsum("...ts,...s->...t", table, gates_dot * before)
    return (table, zeta), (table_dot, zeta_dot)


@jax.custom_jvp
def carry(factor: jax.Array, add: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """State before each chunk, (..., n, p, q), and after the last: s <- factor s + add.

    ``factor`` (..., n), ``add`` (..., n, p, q), ``start`` (..., p, q).  A factor of 0 forgets even
    a non-finite state.  The tangent of the recurrence is the same recurrence, which is how its
    memory stays one state per chunk.
    """

    def step(state, inputs):
        f, a = inputs
        f = f[..., None, None]
        return jnp.where(f == 0, 0, f * state) + a, state

    last, before = jax.lax.scan(
        step, start, (jnp.moveaxis(factor, -1, 0), jnp.moveaxis(add, -3, 0))
    )
    return jnp.moveaxis(before, 0, -3), last


@carry.defjvp
def _carry_jvp(primals, tangents):
    factor, add, start = primals
    factor_dot, add_dot, start_dot = tangents
    before, last = carry(factor, add, start)
    add_dot = add_dot + factor_dot[..., None, None] * before
    return (before, last), carry(jax.lax.stop_gradient(factor), add_dot, start_dot)


def carry_sharded(
    factor: jax.Array, add: jax.Array, start: jax.Array, shards: int
) -> tuple[jax.Array, jax.Array]:
    """:func:`carry` over ``shards`` equal pieces at once, joined by their totals only.

    Merging is associative, so each piece is summarised by its own end state and its product of
    factors; only those ``shards`` summaries, O(d^2) each, cross between devices.
    """
    b, n = factor.shape
    p, q = start.shape[1:]
    split = factor.reshape(b, shards, n // shards)
    pieces = add.reshape(b, shards, n // shards, p, q)
    local, totals = carry(split, pieces, jnp.zeros((b, shards, p, q), add.dtype))
    before, last = carry(jnp.prod(split, -1), totals, start)
    ones = jnp.ones_like(split[..., :1])
    reach = jnp.cumprod(jnp.concatenate([ones, split[..., :-1]], -1), -1)[..., None, None]
    shifted = jnp.where(reach == 0, 0, reach * before[:, :, None])
    return (local + shifted).reshape(b, n, p, q), last


def chunk_length(length: int, chunk: int) -> int:
    """Tokens per chunk: ``chunk``, or for a shorter stream its length rounded up to 8."""
    return min(chunk, -(-length // 8) * 8)


def cut(stream: Stream, chunk: int, shards: int = 1) -> tuple[Chunks, Moments]:
    """Pad ``stream`` to whole chunks and carry the moments over them; also the final moments."""
    b, length, _ = stream.keys.shape
    c = chunk_length(length, chunk)
    n = -(-length // (c * shards)) * shards

    def fold(x: Any, fill: float = 0.0) -> Any:
        if x is None:
            return None
        pad = [(0, 0), (0, n * c - length)] + [(0, 0)] * (x.ndim - 2)
        return jnp.pad(x, pad, constant_values=fill).reshape(b, n, c, *x.shape[2:])

    keys, values, queries = fold(stream.keys), fold(stream.values), fold(stream.queries)
    gates, logs = fold(stream.forget, 1.0), fold(stream.log_forget)
    weight = fold(stream.weight)
    ridge = stream.ridge
    if ridge is not None:
        ridge = ridge[:, :, None] if ridge.shape[1] == 1 else fold(ridge, 1.0)
    keys, values, gates, logs, weight, bad = clean(keys, values, gates, logs, weight)

    dtype = keys.dtype
    if gates is None:
        table, zeta, factor = jnp.tril(jnp.ones((c, c), dtype)), None, jnp.ones((b, n), dtype)
    else:
        table, zeta = decays(gates, logs)
        factor = zeta[..., -1]
    if weight is not None:
        table = table * weight[..., None, :]
    tail = jnp.broadcast_to(table[..., -1, :], keys.shape[:3])[..., None] * keys
    sums = [jnp.einsum("bnci,bncj->bnij", left, tail) for left in (keys, values)]
    start_lost = ~(
        jnp.isfinite(stream.state.gram).all((1, 2)) & jnp.isfinite(stream.state.cross).all((1, 2))
    )
    state = [jnp.where(start_lost[:, None, None], 0, s) for s in stream.state]
    if shards > 1:
        (gram, last_gram), (cross, last_cross) = (
            carry_sharded(factor, add, start, shards)
            for add, start in zip(sums, state, strict=True)
        )
    else:
        (gram, last_gram), (cross, last_cross) = (
            carry(factor, add, start) for add, start in zip(sums, state, strict=True)
        )
    lost, last_lost = spoilt(bad, None if gates is None else gates == 0, factor, start_lost, shards)
    last_gram, last_cross = (
        jnp.where(last_lost[:, None, None], jnp.nan, s) for s in (last_gram, last_cross)
    )
    chunks = Chunks(
        keys, values, queries, table, zeta, logs, gates, weight, ridge, gram, cross, lost
    )
    return chunks, Moments(last_gram, last_cross)


def clean(keys, values, gates, logs, weight):
    """Replace non-finite samples by absent ones; ``bad`` says where, unless their weight is 0.

    A mask that multiplies would leak them: 0 * nan is nan, at EARLIER tokens of the chunk.
    """
    fine = jnp.isfinite(keys).all(-1) & jnp.isfinite(values).all(-1)
    keys, values = (jnp.where(fine[..., None], x, 0) for x in (keys, values))
    bad = ~fine
    if weight is not None:
        bad = (bad & (weight != 0)) | ~jnp.isfinite(weight)
        weight = jnp.where(jnp.isfinite(weight), weight, 0)
    if gates is not None:
        bad = bad | jnp.isnan(gates)
        gates, logs = jnp.where(jnp.isnan(gates), 1, gates), jnp.where(jnp.isnan(gates), 0, logs)
    return keys, values, gates, logs, weight, bad


def spoilt(bad, resets, factor, start, shards):
    """Which tokens a non-finite sample (or initial state) reaches; a reset ends its reach."""
    order = jnp.arange(1, bad.shape[-1] + 1)
    latest_bad = jax.lax.cummax(jnp.where(bad, order, 0), axis=2)
    latest_reset = 0 if resets is None else jax.lax.cummax(jnp.where(resets, order, 0), axis=2)
    inside = (latest_bad >= latest_reset) & (latest_bad > 0)
    passes = jax.lax.stop_gradient((factor != 0).astype(factor.dtype))
    add = inside[..., -1].astype(passes.dtype)[..., None, None]
    start = start.astype(passes.dtype)[:, None, None]
    run = carry_sharded(passes, add, start, shards) if shards > 1 else carry(passes, add, start)
    before, last = run
    reached = (before[..., 0] > 0) & (jnp.asarray(latest_reset) == 0)
    return inside | reached, last[:, 0, 0] > 0


def moment_product(x, left, right, decay, boundary, zeta):
    """(sum_i decay_ti left_i right_i^T + zeta_t boundary) x_t for every t of every chunk."""
    scores = jnp.einsum("bnti,bnsi->bnts", x, right) * decay
    far = jnp.einsum("bnti,bnji->bntj", x, boundary)
    return scores @ left + (far if zeta is None else zeta[..., None] * far)


def system_product(chunks: Chunks, x: jax.Array) -> jax.Array:
    """(H_t + Lambda_t) x_t for every token: the matrix that all solvers invert."""
    y = moment_product(x, chunks.keys, chunks.keys, chunks.decay, chunks.gram, chunks.zeta)
    return y if chunks.ridge is None else y + chunks.ridge * x


def read_out(chunks: Chunks, x: jax.Array) -> jax.Array:
    """o_t = G_t x_t for every token: gated linear attention with queries x."""
    return moment_product(x, chunks.values, chunks.keys, chunks.decay, chunks.cross, chunks.zeta)


def system_diagonal(chunks: Chunks) -> jax.Array:
    """diag(H_t + Lambda_t), (B, n, C, d)."""
    own = chunks.decay @ (chunks.keys**2)
    far = jnp.diagonal(chunks.gram, axis1=-2, axis2=-1)[:, :, None]
    y = own + (far if chunks.zeta is None else chunks.zeta[..., None] * far)
    return y if chunks.ridge is None else y + chunks.ridge


def system_trace(chunks: Chunks) -> jax.Array:
    """trace(H_t), (B, n, C, 1): an upper bound of its norm that costs one small product."""
    own = chunks.decay @ (chunks.keys**2).sum(-1, keepdims=True)
    far = jnp.trace(chunks.gram, axis1=-2, axis2=-1)[:, :, None, None]
    return own + (far if chunks.zeta is None else chunks.zeta[..., None] * far)
