"""Leave non-finite samples out of the products, and mark the outputs that see them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.local.checks import largest_squares, largest_value
from olsq.local.jax.inputs import Streams
from olsq.local.jax.layout import Layout
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.pieces import cumulate


class Cleaned(NamedTuple):
    """Streams with finite numbers only, padded to whole blocks: (B, N', ...) or (B, T', ...)."""

    keys: Array
    values: Array
    squares: Array  # (B, N', 2): |k|^2 and |v|^2, without derivatives
    queries: Array
    ridge: Array
    scale: Array
    log_weight: Array | None  # -inf for keys that are absent or only pad
    log_forget: Array | None
    order: Array | None  # (B, T'), numbers of segments
    key_order: Array | None  # (B, N')
    direction: Array | None


class Largest(NamedTuple):
    """The largest sizes that each query can see, (B, T)."""

    key: Array
    value: Array
    exponent: Array


def clean(streams: Streams, layout: Layout) -> tuple[Cleaned, Array, Largest]:
    """Clean the streams; return them, the mask (B, T) of lost outputs, and the largest sizes seen.

    A key, value or query is lost where it is not finite, or too large to square, a key to cube.  A
    key of log weight -inf is left out instead.  A query is also lost where its ridge, scale or gate
    is not finite.
    """
    k, v, q, ridge, scale, weight, logs, order, direction, key_order, offset = streams
    key_order = order if key_order is None else key_order
    place = _places(q.shape[1], k.shape[1], layout, offset)
    key_square, value_square, query_square = (
        jax.lax.stop_gradient((x * x).sum(-1)) for x in (k, v, q * scale[..., None])
    )
    most_of_key, most = largest_squares(k.dtype)
    usable = (key_square <= most_of_key) & (jnp.abs(v).max(-1) <= largest_value(k.dtype))
    absent: Any = jnp.zeros_like(usable)
    if weight is not None:
        absent = weight == -jnp.inf
        usable = usable & (jnp.isfinite(weight) | absent)
    lost = ~usable & ~absent
    if logs is not None:
        lost = lost | ~jnp.isfinite(logs)  # an unknown gate: what is after it is unknown
        logs = jnp.where(jnp.isfinite(logs), logs, 0)
    left_out = lost | absent
    k, v = (jnp.where(left_out[..., None], 0, x) for x in (k, v))
    key_square = jnp.where(left_out, 0, key_square)
    # a sum of N of them has to stay finite: what overflows gives an infinite bound, no NaN
    cap = jnp.finfo(k.dtype).max / (4 * max(k.shape[1], 1))
    value_square = jnp.where(left_out, 0, jnp.minimum(value_square, cap))
    squares = jnp.stack([jnp.minimum(key_square, cap), value_square], -1)
    query_known = (query_square <= most) & jnp.isfinite(ridge) & jnp.isfinite(scale)
    query_known = query_known & squarable(q)
    if direction is not None:
        query_known = query_known & squarable(direction)
        direction = jnp.where(query_known[..., None], direction, 0)
    q = jnp.where(query_known[..., None], q, 0)
    ridge, scale = jnp.where(query_known, ridge, 1), jnp.where(query_known, scale, 1)
    output_lost = ~query_known | _sees(lost, key_order, layout, place)
    exponent = jnp.zeros_like(key_square)
    if weight is not None:
        weight = jnp.where(left_out, 0, weight)
        exponent = jnp.abs(jax.lax.stop_gradient(weight))
    value_size = jnp.sqrt(jax.lax.stop_gradient((v * v).sum(-1)))
    magnitudes = (jnp.sqrt(key_square), value_size, exponent)
    largest = Largest(*(_largest_seen(x, q.shape[1], layout, place) for x in magnitudes))
    if weight is not None or not layout.causal:
        zero = jnp.zeros_like(key_square) if weight is None else weight
        weight = jnp.where(absent, -jnp.inf, zero)
    key_pad = layout.key_blocks * layout.key_size - k.shape[1]
    query_pad = layout.query_blocks * layout.query_size - q.shape[1]

    def pad(x: Any, extra: int, fill: float = 0.0) -> Any:
        if x is None or not extra:
            return x
        widths = [(0, 0), (0, extra)] + [(0, 0)] * (x.ndim - 2)
        return jnp.pad(x, widths, constant_values=fill)

    cleaned = Cleaned(
        keys=pad(k, key_pad),
        values=pad(v, key_pad),
        squares=pad(squares, key_pad),
        queries=pad(q, query_pad),
        ridge=pad(ridge, query_pad, 1.0),
        scale=pad(scale, query_pad),
        log_weight=pad(weight, key_pad, -jnp.inf),
        log_forget=pad(logs, query_pad),
        order=pad(order, query_pad, -1),
        key_order=pad(key_order, key_pad, -1),
        direction=pad(direction, query_pad),
    )
    return cleaned, output_lost, largest


def _places(queries: int, keys: int, layout: Layout, offset: Any) -> Array | None:
    """Return the key that each query is at, (T,); None where that is its own number."""
    offset = layout.offset if offset is None else offset
    if isinstance(offset, int) and offset == 0 and queries == keys:
        return None
    return jnp.arange(queries, dtype=getattr(offset, "dtype", None)) + offset


def _sees(lost: Array, order: Array | None, layout: Layout, place: Array | None) -> Array:
    """Mark the queries (B, T) that see a lost key; (B, 1) if all see the same keys."""
    if not layout.causal:
        return lost.any(1, keepdims=True)
    key = jnp.arange(lost.shape[1])
    latest = cumulate(jnp.maximum, jnp.where(lost, key, -1), 1, jax.lax.cummax)
    first = jnp.zeros_like(latest)
    if order is not None:
        started = jnp.diff(order, axis=1, prepend=order[:, :1]) > 0
        first = cumulate(jnp.maximum, jnp.where(started, key, 0), 1, jax.lax.cummax)
    if place is not None:
        key, latest, first = place, latest[:, place], first[:, place]
    if layout.window is not None:
        first = jnp.maximum(first, key - (layout.window - 1))
    return (latest >= first) & (latest >= 0)


def _largest_seen(x: Array, length: int, layout: Layout, place: Array | None) -> Array:
    """Bound from above the largest ``x`` (B, N) among the keys that each query sees, (B, T)."""
    if layout.causal:
        most = cumulate(jnp.maximum, x, 1, jax.lax.cummax)
        return most if place is None else most[:, place]
    return jnp.broadcast_to(x.max(1, keepdims=True, initial=0), (x.shape[0], length))
