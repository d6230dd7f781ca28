"""Scan a stream chunk by chunk: matrix products inside a chunk, a scan between chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.arguments import Heads, fold_heads, repeat_heads
from olsq.sequence.jax.control import scan
from olsq.sequence.jax.pieces import chunk_count
from olsq.sequence.jax.platform import Target, by_platform, chunk_length

Carry = TypeVar("Carry")


def scan_chunks(
    step: Callable[[Carry, Any], tuple[Carry, Any]],
    carry: Carry,
    streams: dict[str, Any],
    *,
    chunk: int | None = None,
    valid: Array | None = None,
    dtype: Any = None,
) -> tuple[Any, Carry]:
    """Scan ``step(carry, pieces)`` over chunks of streams (N, T, ...); outputs (N, T, ...).

    A stream may be None, or a pair (array, padding value); the default padding is 0, and gates are
    padded with 1, so that a padded token changes nothing. Where some streams are :class:`Heads`,
    outputs are (B, T, H, ...) of ``dtype``, and NaN unless they are ``valid`` (N, T). A step may
    return a pair of its outputs and a mask of its tokens, and so does the scan. ``chunk``
    defaults to :func:`chunk_length` of the platform that the program is lowered for. The backward
    pass keeps the carries and recomputes the rest of a chunk.
    """
    length = jax.tree.leaves((streams, valid))[0].shape[1]

    def choose(target: Target) -> int:
        return chunk_size(length, chunk_length(on=target))

    def run(size: int) -> tuple[Any, Carry]:
        if valid is not None:
            return _walk_heads(step, carry, streams, valid, dtype, size)
        return _walk_chunks(step, carry, streams, size)

    return by_platform(choose, run) if chunk is None else run(chunk_size(length, chunk))


def scan_tokens(
    token: Callable[[Carry, Any], tuple[Carry, Array]],
    carry: Carry,
    streams: dict[str, Any],
    *,
    chunk: int | None = None,
) -> tuple[Array, Carry]:
    """Scan ``token(carry, rows)`` over the tokens of streams (N, T, ...), of which a row is (N,
    ...), in the chunks of :func:`scan_chunks`; outputs (N, T, ...).
    """

    def step(carry: Carry, x: Any) -> tuple[Carry, Array]:
        rows = {name: jnp.moveaxis(s, 1, 0) for name, s in x.items() if s is not None}
        carry, out = scan(token, carry, rows)
        return carry, jnp.moveaxis(out, 0, 1)

    return scan_chunks(step, carry, streams, chunk=chunk)


def _walk_chunks(
    step: Callable[[Carry, Any], tuple[Carry, Any]],
    carry: Carry,
    streams: dict[str, Any],
    chunk: int,
) -> tuple[Any, Carry]:
    """Run :func:`scan_chunks` on streams that are folded."""
    arrays = {name: s if isinstance(s, tuple) else (s, 0.0) for name, s in streams.items()}
    length = next(a.shape[1] for a, _ in arrays.values() if a is not None)
    pieces = {name: _cut(a, fill, chunk) for name, (a, fill) in arrays.items()}
    again = jax.checkpoint(step, prevent_cse=False)
    carry, out = scan(again, carry, pieces)
    return jax.tree.map(lambda x: _join(x)[:, :length], out), carry


def _walk_heads(
    step: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    streams: dict[str, Any],
    valid: Array,
    dtype: Any,
    chunk: int,
) -> tuple[Any, Any]:
    """Run :func:`scan_chunks` on streams some of which are :class:`Heads`."""
    unfolded = {name: s for name, s in streams.items() if isinstance(s, Heads)}
    batch, length = next(iter(unfolded.values())).array.shape[:2]
    heads = max(s.array.shape[2] for s in unfolded.values())
    working = jax.tree.leaves(carry)[0].dtype
    # Chunks of one row are (C, H, dim): XLA copies arrays whose axis of length 1 is elsewhere.
    alone = isinstance(batch, int) and batch == 1
    pairs = {
        name: s if isinstance(s, tuple) else (s, 0.0)
        for name, s in streams.items()
        if name not in unfolded
    }
    pieces = {
        "folded": {name: _cut(a, fill, chunk) for name, (a, fill) in pairs.items()},
        "unfolded": {name: _cut(s.array, 0, chunk, alone) for name, s in unfolded.items()},
        "kept": {name: _cut(s.kept, False, chunk) for name, s in unfolded.items()},
        "valid": _cut(valid, False, chunk),
    }

    def folded(x: Array) -> Array:
        x = repeat_heads(x, heads, axis=-2)  # of one chunk, not of the stream
        return jnp.moveaxis(x, 1, 0) if alone else fold_heads(x)

    def one(carry: Any, x: Any) -> tuple[Any, Any]:
        clean = {
            name: jnp.where(x["kept"][name][..., None], folded(a).astype(working), 0)
            for name, a in x["unfolded"].items()
        }
        carry, out = step(carry, x["folded"] | clean)
        out, *marks = out if isinstance(out, tuple) else (out,)
        out = jnp.where(x["valid"][..., None], out, jnp.nan)
        out = out if alone else out.reshape(batch, heads, *out.shape[1:])
        return carry, (jnp.moveaxis(out, -3, -2).astype(dtype), *marks)

    carry, (out, *marks) = scan(jax.checkpoint(one, prevent_cse=False), carry, pieces)
    out = out.reshape(1, out.shape[0] * out.shape[1], *out.shape[2:]) if alone else _join(out)
    out, *marks = (x[:, :length] for x in (out, *map(_join, marks)))
    return (out, *marks) if marks else out, carry


def _cut(x: Any, fill: float, chunk: int, alone: bool = False) -> Any:
    """Cut (N, T, ...) into chunks (count, N, C, ...), padding the last one; None stays None.

    ``alone``: there is one row, and its chunks are (count, C, ...).
    """
    if x is None:
        return None
    length = x.shape[1]
    size = chunk_size(length, chunk)
    count = chunk_count(length, size)
    pad = [(0, 0), (0, count * size - length)] + [(0, 0)] * (x.ndim - 2)
    x = jnp.pad(x, pad, constant_values=fill)
    if alone:
        return x.reshape(count, size, *x.shape[2:])
    return jnp.moveaxis(x.reshape(x.shape[0], count, size, *x.shape[2:]), 1, 0)


def _join(x: Array) -> Array:
    """Undo :func:`_cut`, keeping the padding."""
    x = jnp.moveaxis(x, 0, 1)
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])


def chunk_size(length: int, chunk: int) -> int:
    """Return the length of a chunk: a short stream is one chunk, rounded up to a multiple of 8 from
    8 on; ``chunk`` where the length is a symbol of ``jax.export``.
    """
    if not isinstance(length, int):
        return chunk
    return max(1, length) if length < 8 else min(chunk, -(-length // 8) * 8)
