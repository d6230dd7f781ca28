"""Walk a stream chunk by chunk: the work inside a chunk is matrix products, the rest is a scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.control import scan

CHUNK = 64

Carry = TypeVar("Carry")


def walk(
    step: Callable[[Carry, Any], tuple[Carry, Array]],
    carry: Carry,
    streams: dict[str, Any],
    *,
    chunk: int = CHUNK,
) -> tuple[Array, Carry]:
    """Scan ``step(carry, pieces)`` over chunks of streams (N, T, ...); outputs (N, T, ...).

    A stream may be None, or a pair (array, what to pad it with); 0 if not said, and 1 for gates
    is what makes a padded token change nothing.  The backward pass keeps the carries and makes
    the rest of a chunk again.
    """
    arrays = {name: s if isinstance(s, tuple) else (s, 0.0) for name, s in streams.items()}
    n, length = next(a.shape[:2] for a, _ in arrays.values() if a is not None)
    size = chunk_size(length, chunk)
    count = max(1, -(-length // size))

    def cut(x: Any, fill: float) -> Any:
        if x is None:
            return None
        pad = [(0, 0), (0, count * size - length)] + [(0, 0)] * (x.ndim - 2)
        x = jnp.pad(x, pad, constant_values=fill)
        return jnp.moveaxis(x.reshape(n, count, size, *x.shape[2:]), 1, 0)

    pieces = {name: cut(*pair) for name, pair in arrays.items()}
    again = jax.checkpoint(step, prevent_cse=False)
    carry, out = scan(again, carry, pieces)

    def join(x: Array) -> Array:
        return jnp.moveaxis(x, 0, 1).reshape(n, count * size, *x.shape[3:])[:, :length]

    return jax.tree.map(join, out), carry


def chunk_size(length: int, chunk: int = CHUNK) -> int:
    """Length of a chunk: of a short stream all of it, rounded up to a multiple of 8 from 8 on."""
    return max(1, length) if length < 8 else min(chunk, -(-length // 8) * 8)
