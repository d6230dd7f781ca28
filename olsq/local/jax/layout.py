"""Assign blocks of keys to every block of queries, in steps of one shape.

Queries and keys are cut into blocks.  A step solves the queries of a few blocks against a list of
tiles, each a block of keys for one of the step's blocks of queries.  Three layouts:

* "pairs": causal.  A step takes the i-th block of queries and the i-th from the end: together they
  see as many blocks of keys whichever i, so no tile above the diagonal is computed;
* "band": causal with a short window.  One block of queries and the few blocks that reach into it;
* "all": every query meets all keys; a causal one is masked.

Queries may begin at a later key than the first, ``offset``: the keys before it are of an earlier
call.  Only :func:`visible` and the columns of a band know of it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.pieces import chunk_count

ROWS = 128  # tokens of a block, at most


class Layout(NamedTuple):
    """Sizes and number of blocks and steps; all static."""

    kind: str
    query_size: int
    key_size: int
    query_blocks: int
    key_blocks: int
    steps: int
    rows: int  # blocks of queries in a step
    tiles: int  # blocks of keys in a step
    causal: bool
    window: int | None
    offset: int = 0  # the key that the first query is at, unless it is known at run time only
    first: int = 0  # of a band: the first column of its tiles, from the block of queries on


class Step(NamedTuple):
    """The blocks of queries and the tiles of one step."""

    blocks: Array  # (rows,), which blocks of queries
    row: Array  # (tiles,), which of them a tile belongs to
    column: Array  # (tiles,), the tile's block of keys
    live: Array  # (tiles,), False where there is no such block


def plan_layout(queries: int, keys: int, window: int | None, causal: bool) -> Layout:
    """Cut ``queries`` and ``keys`` into blocks."""
    if not causal:
        (q_blocks, q_size), (k_blocks, k_size) = _cut(queries), _cut(keys)
        return Layout("all", q_size, k_size, q_blocks, k_blocks, q_blocks, 1, k_blocks, False, None)
    pairs = chunk_count(queries, 2 * ROWS)
    is_known = isinstance(queries, int)  # else a symbol of jax.export
    size = -(-queries // (16 * pairs)) * 8 if is_known else ROWS
    blocks = 2 * pairs
    if window is not None:
        band = -(-(window - 1) // size) + 1
        if not is_known or 2 * band < blocks + 1:
            return Layout(
                "band", size, size, blocks, blocks, blocks, 1, band, True, window, first=1 - band
            )
    return Layout("pairs", size, size, blocks, blocks, pairs, 2, blocks + 1, True, window)


def plan_layout_after(queries: int, keys: int, window: int | None, offset: int = 0) -> Layout:
    """Cut ``queries`` that begin at key ``offset`` into blocks, causally.

    Without a window the offset may be known at run time only: every query meets all keys.
    """
    (q_blocks, q_size), (k_blocks, k_size) = _cut(queries), _cut(keys)
    if window is not None and q_blocks > 1:
        # Block i sees the keys from offset + i size - (window - 1) to offset + (i + 1) size - 1.
        first, last = (offset - window + 1) // q_size, -(-offset // q_size)
        band, blocks = last - first + 1, q_blocks + last
        if band < blocks:
            return Layout(
                "band",
                q_size,
                q_size,
                q_blocks,
                blocks,
                q_blocks,
                1,
                band,
                True,
                window,
                offset,
                first,
            )
    return Layout(
        "all", q_size, k_size, q_blocks, k_blocks, q_blocks, 1, k_blocks, True, window, offset
    )


def _cut(length: int) -> tuple[int, int]:
    """Return the number and size of blocks for ``length`` rows; one token, decoded, is one row."""
    count = chunk_count(length, ROWS)
    if not isinstance(length, int):  # a symbol of jax.export
        return count, ROWS
    return count, 1 if length == 1 else max(8, -(-length // (8 * count)) * 8)


def step_blocks(layout: Layout, i: Array) -> Step:
    """Return the blocks and tiles of step ``i``."""
    tile = jnp.arange(layout.tiles)
    if layout.kind == "pairs":
        blocks = jnp.stack([i, layout.query_blocks - 1 - i])
        late = tile > i  # tiles 0..i are of the first block, the others of the second
        column = jnp.where(late, tile - i - 1, tile)
        return Step(blocks, late.astype(jnp.int32), column, tile >= 0)
    blocks, row = i[None], jnp.zeros_like(tile)
    if layout.kind == "all":
        return Step(blocks, row, tile, tile >= 0)
    column = i + layout.first + tile
    return Step(blocks, row, jnp.maximum(column, 0), column >= 0)


def visible(layout: Layout, step: Step, offset: Array | None = None) -> Array | None:
    """Mark the keys of a tile that its queries see by their places, (tiles, query_size, key_size).

    ``offset``, where it is known at run time only, is the key that the first query is at.
    """
    if not layout.causal:
        return None
    query = step.blocks[step.row][:, None] * layout.query_size + jnp.arange(layout.query_size)
    key = step.column[:, None] * layout.key_size + jnp.arange(layout.key_size)
    query = query + jnp.asarray(layout.offset if offset is None else offset, query.dtype)
    gap = query[..., None] - key[:, None]
    reached = (gap >= 0) & step.live[:, None, None]
    return reached if layout.window is None else reached & (gap < layout.window)


def merge_blocks(out: Array, layout: Layout, length: int) -> Array:
    """Put the outputs of all steps (steps, rows, query_size, ...) into order of time, (length,
    ...).
    """
    if layout.kind == "pairs":
        out = jnp.stack([out[:, 0], out[::-1, 1]])
    return out.reshape(layout.query_blocks * layout.query_size, *out.shape[3:])[:length]
