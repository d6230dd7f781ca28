"""Local regressions on the caches of softmax attention: what local_linear and parallax share."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import check_integer, check_number
from olsq.attention.arguments import Layout
from olsq.attention.caches import unfold
from olsq.attention.recurrences.ring_local import ring_local
from olsq.attention.rules.sliding_window import RecentTokens, keep_recent
from olsq.attention.rules.softmax import KeyValues, append_tokens
from olsq.local.jax.inputs import Streams
from olsq.local.jax.solve import solve_after
from olsq.sequence.jax.pieces import cut_into_pieces, join_pieces, pieces_of, prepend_window


def attend_locally(
    q: Array,
    k: Array,
    v: Array,
    layout: Layout,
    *,
    ridge: Array | None = None,
    direction: Array | None = None,
    start: Array | None,
    scale: Any,
    window: int | None,
    capacity: int | None,
    state: KeyValues | RecentTokens | None,
) -> tuple[Array, Any]:
    """Compute outputs (B, T, H, V) and the cache (B, H, ...) of local regressions.

    With ``ridge`` (N, T) every query solves for its slopes; with ``direction`` x (N, T, K) it reads
    ``vbar + C x``.  ``start`` (N, T) marks first tokens of segments.
    """
    if scale is not None:
        scale = check_number("scale", scale)
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    options = {"ridge": ridge, "direction": direction}
    if window is None:
        out, kept = _attend_to_all(q, k, v, layout, start, scale, capacity, state, options)
    else:
        check_integer("window", window, 1, bits=31)
        out, kept = _attend_to_window(q, k, v, layout, start, scale, window, state, options)
    return unfold(out, kept, layout)


def _attend_to_all(
    q: Array,
    k: Array,
    v: Array,
    layout: Layout,
    start: Array | None,
    scale: Any,
    capacity: int | None,
    state: Any,
    options: dict[str, Array | None],
) -> tuple[Array, KeyValues]:
    """Attend to every token so far, with a cache that grows."""
    held, kept = append_tokens(k, v, start, state, capacity, layout)
    t = q.shape[1]
    order = None if start is None else held.order
    if pieces_of(t) > 1:
        out = ring_local(q, k, v, start, scale, held.past, **options)
    elif state is None:  # the keys are this call's: none above the diagonal is scored
        out = solve_after(_streams(q, k, v, scale, order=order, **options), window=None)
    else:
        streams = _streams(
            q,
            held.keys,
            held.values,
            scale,
            present=held.present,
            order=order,
            key_order=None if start is None else held.orders,
            offset=held.taken,
            **options,
        )
        out = solve_after(streams, window=None)
    return jnp.where(held.taken + t > held.present.shape[1], jnp.nan, out), kept


def _attend_to_window(
    q: Array,
    k: Array,
    v: Array,
    layout: Layout,
    start: Array | None,
    scale: Any,
    window: int,
    state: Any,
    options: dict[str, Array | None],
) -> tuple[Array, RecentTokens]:
    """Attend to the last ``window`` tokens, with a cache of one fewer."""
    before = window - 1
    past, order, kept = keep_recent(k, v, start, state, before, layout)
    n, t = q.shape[:2]
    pieces = pieces_of(t)
    if state is None and pieces == 1 and not (isinstance(t, int) and t <= 1):
        order = None if start is None else order
        streams = _streams(q, k, v, scale, order=order, **options)
        return solve_after(streams, window=window), kept
    older = (*past, jnp.zeros((n, before), order.dtype))
    tokens = k, v, jnp.ones((n, t), bool), order
    keys, values, present, key_order = (
        prepend_window(x, y, pieces) if pieces > 1 else jnp.concatenate([y, x], 1)
        for x, y in zip(tokens, older, strict=True)
    )
    rows: dict[str, Any] = {"q": q, "order": order, **options}
    rows = {n: None if x is None else cut_into_pieces(x, pieces) for n, x in rows.items()}
    streams = _streams(
        rows.pop("q"), keys, values, scale, present=present, key_order=key_order, **rows
    )
    return join_pieces(solve_after(streams, window=window, offset=before), pieces), kept


def _streams(
    q: Array,
    k: Array,
    v: Array,
    scale: Any,
    *,
    ridge: Array | None,
    direction: Array | None,
    order: Array | None,
    key_order: Array | None = None,
    present: Array | None = None,
    offset: Array | None = None,
) -> Streams:
    """Build the problem of one call, as :mod:`olsq.local.jax` takes it."""
    row = q.shape[:2]
    weight = None if present is None else jnp.where(present, 0, -jnp.inf).astype(k.dtype)
    ridge = jnp.ones(row, q.dtype) if ridge is None else ridge
    scales = jnp.broadcast_to(jnp.asarray(scale, q.dtype), row)
    return Streams(
        k, v, q, ridge, scales, weight, None, order, direction, key_order=key_order, offset=offset
    )
