"""Sliding windows: each block of queries with the keys that any of them can see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.scan import chunk_size
from olsq.sequence.jax.pieces import (
    chunk_count,
    cut_into_pieces,
    join_pieces,
    pieces_of,
    prepend_window,
)


def map_windows(
    block: Callable[[Any, Any], Array],
    rows: Any,
    before: Any,
    tokens: Any,
    window: int,
    chunk: int,
) -> Array:
    """Apply ``block(rows, tokens)`` to blocks of C rows: outputs (N, T, ...).

    ``rows`` (N, T, ...) are the arrays of the queries. A block sees ``tokens`` (N, T, ...) preceded
    by ``before``, (N, window - 1, ...): row r may see tokens r to r + window - 1 of C + window - 1.
    One block at a time, recomputed in the backward pass. Where time is in pieces, a piece receives
    the window before it.
    """
    pieces = pieces_of(jax.tree.leaves(rows)[0].shape[1])
    if pieces == 1:
        tokens = jax.tree.map(lambda x, y: jnp.concatenate([x, y], 1), before, tokens)
        return map_blocks(block, rows, tokens, window, chunk)
    tokens = jax.tree.map(lambda x, y: prepend_window(y, x, pieces), before, tokens)
    rows = jax.tree.map(lambda x: cut_into_pieces(x, pieces), rows)
    return join_pieces(map_blocks(block, rows, tokens, window, chunk), pieces)


def map_blocks(
    block: Callable[[Any, Any], Array], rows: Any, tokens: Any, window: int, chunk: int
) -> Array:
    """Run :func:`map_windows` on whole streams, ``tokens`` (N, window - 1 + T, ...)."""
    first = jax.tree.leaves(rows)[0]
    n, length = first.shape[:2]
    size = chunk_size(length, chunk)
    count = chunk_count(length, size)

    def pad(x: Array) -> Array:
        return jnp.pad(x, [(0, 0), (0, count * size - length)] + [(0, 0)] * (x.ndim - 2))

    rows, tokens = jax.tree.map(pad, (rows, tokens))

    def one(start: Array) -> Array:
        def cut(x: Array, width: int) -> Array:
            return jax.lax.dynamic_slice_in_dim(x, start, width, 1)

        return block(
            jax.tree.map(lambda x: cut(x, size), rows),
            jax.tree.map(lambda x: cut(x, size + window - 1), tokens),
        )

    out = jax.lax.map(jax.checkpoint(one, prevent_cse=False), size * jnp.arange(count))
    return jnp.moveaxis(out, 0, 1).reshape(n, count * size, *out.shape[3:])[:, :length]


def window_mask(size: int, window: int) -> Array:
    """Return the mask (C, C + window - 1) of the tokens that each of C rows sees."""
    row, token = jnp.arange(size)[:, None], jnp.arange(size + window - 1)
    return (token >= row) & (token < row + window)
