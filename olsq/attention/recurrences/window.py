"""Sliding windows: every block of queries with the keys that any of them can see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.scan import chunk_size


def over_windows(
    block: Callable[[Any, Any], Array], rows: Any, tokens: Any, window: int, chunk: int
) -> Array:
    """``block(rows, tokens)`` on blocks of C rows: outputs (N, T, ...).

    ``rows`` (N, T, ...) are what belongs to a query; ``tokens`` (N, window - 1 + T, ...) begin
    ``window - 1`` before the first query, so that row r of a block may see its tokens r to
    r + window - 1, of C + window - 1.  One block at a time, and again in the backward pass.
    """
    first = jax.tree.leaves(rows)[0]
    n, length = first.shape[:2]
    size = chunk_size(length, chunk)
    count = max(1, -(-length // size))

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


def inside(size: int, window: int) -> Array:
    """Which of C + window - 1 tokens each of C rows sees, (C, C + window - 1)."""
    row, token = jnp.arange(size)[:, None], jnp.arange(size + window - 1)
    return (token >= row) & (token < row + window)
