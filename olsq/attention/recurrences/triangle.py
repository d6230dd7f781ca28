"""Causal softmax attention of a whole stream, without the scores above the diagonal.

Time is cut into an even number of blocks. A step computes the rows of the i-th block and of the
i-th from the end: together these see the same number of blocks of keys for every i, so that all
steps have one shape, and only half of the scores on the diagonal are computed to be masked. All
blocks of scores of a step are one product. Values have a column of ones appended, whose mean is the
normaliser of the others.

On a CPU a step has one stream where the scores of all would not stay in cache.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.control import compile_once, scan
from olsq.sequence.jax.gates import lost_tokens, squarable
from olsq.sequence.jax.pieces import chunk_count, running_sum
from olsq.sequence.jax.platform import Target, by_platform
from olsq.sequence.jax.tiles import CACHED

ROWS = 128  # tokens of a block, at most


@compile_once
def triangle_attention(
    q: Array, k: Array, v: Array, reset: Array | None, scale: float | None
) -> Array:
    """Attend from queries (N, T, K) to keys (N, T, K) and values (N, T, V), causally: (N, T, V).

    ``reset`` (N, T) marks tokens that read nothing before them, None for none. A row that reads a
    token which is not finite, or is one, is NaN. Memory O(T) per stream, also for the gradient.
    """
    count, length = q.shape[:2]
    if isinstance(count, int) and not count:
        return jnp.zeros(v.shape, v.dtype)
    lost, query_finite = ~(squarable(k) & squarable(v)), squarable(q)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    q = jnp.where(query_finite[..., None], q * factor, 0)
    k, v = (jnp.where(lost[..., None], 0, x) for x in (k, v))
    v = jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
    order = None if reset is None else running_sum(reset)
    pairs = chunk_count(length, 2 * ROWS)
    is_known = isinstance(length, int)  # else a symbol of jax.export
    size = -(-length // (16 * pairs)) * 8 if is_known else ROWS  # of 2 pairs blocks

    def choose(target: Target) -> bool:
        if not target.cpu or jax.device_count() > 1 or not is_known or not isinstance(count, int):
            return False
        return count * (2 * pairs + 1) * size**2 > CACHED

    def run(alone: bool) -> Array:
        return _attend(q, k, v, order, alone, pairs, size)[:, :length]

    out = by_platform(choose, run)
    start = jnp.zeros((count,), bool)
    output_lost = lost_tokens(lost, reset, start) | ~query_finite
    return jnp.where(output_lost[..., None], jnp.nan, out)


def _attend(q: Array, k: Array, v: Array, order: Any, alone: bool, pairs: int, size: int) -> Array:
    """Attend in ``pairs`` steps of two blocks of ``size`` tokens, one stream at a time if
    ``alone``: (N, 2 pairs size, V).
    """
    count, length = q.shape[:2]
    groups = count if alone else 1

    def cut(x: Any) -> Any:
        if x is None:
            return None
        pad = [(0, 0), (0, 2 * pairs * size - length)] + [(0, 0)] * (x.ndim - 2)
        x = jnp.pad(x, pad) if pad[1][1] else x
        return x.reshape(groups, 1 if alone else count, 2 * pairs, size, *x.shape[2:])

    def streams(_: Any, x: Any) -> tuple[Any, Array]:
        x = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), x)  # (blocks, n, size, ...)

        def step(_: Any, i: Array) -> tuple[Any, Array]:
            return None, again(*x, i)

        _, out = scan(step, None, jnp.arange(pairs))
        out = jnp.concatenate([out[:, 0], out[::-1, 1]])  # first blocks, then the last backwards
        return None, jnp.moveaxis(out, 0, 1)

    again = jax.checkpoint(_pair, prevent_cse=False)
    out = scan(streams, None, tuple(map(cut, (q, k, v, order))))[1]
    return out.reshape(count, 2 * pairs * size, v.shape[-1] - 1)  # without the normaliser


def _pair(q: Array, k: Array, v: Array, order: Any, i: Array) -> Array:
    """Attend from the rows of block i and of the i-th block from the end, (2, n, size, V).

    All blocks are given, (2 P, n, size, ...).
    """
    blocks, n, size, _ = q.shape
    tile = jnp.arange(blocks + 1)
    late = tile > i  # tiles 0..i are of the first block, the others of the second
    row = jnp.where(late, blocks - 1 - i, i)
    column = jnp.where(late, tile - i - 1, tile)

    def tiles(x: Array, at: Array) -> Array:
        x = jnp.take(x, at, axis=0, mode="clip")
        return x.reshape(-1, *x.shape[2:])

    visible = (column < row)[:, None, None] | jnp.tril(jnp.ones((size, size), bool))
    visible = jnp.repeat(visible, n, 0)
    if order is not None:
        visible = visible & (tiles(order, row)[..., None] == tiles(order, column)[:, None])
    scores = jnp.einsum("ntk,nsk->nts", tiles(q, row), tiles(k, column))
    scores = jnp.where(visible, scores, -jnp.inf)
    # The largest score of a row, of all tiles of its block; every row sees itself.
    most = jax.lax.stop_gradient(scores).max(-1).reshape(blocks + 1, n, size)
    mine = late == jnp.array([[False], [True]])  # (2, tiles)
    most = jnp.where(mine[:, :, None, None], most, -jnp.inf).max(1)
    most = jnp.where(late[:, None, None], most[1], most[0]).reshape(-1, size, 1)
    read = jnp.einsum("nts,nsv->ntv", jnp.exp(scores - most), tiles(v, column))
    total = mine.astype(read.dtype) @ read.reshape(blocks + 1, -1)
    total = total.reshape(2, n, size, -1)
    return total[..., :-1] / total[..., -1:]
