"""Softmax attention, over everything or over a sliding window, with caches as states."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.arguments import (
    Layout,
    check_heads,
    check_segments,
    fold_heads,
    fold_state,
    layout_of,
)
from olsq.attention.recurrences.window import check_window, inside, over_windows
from olsq.attention.steps import step_of
from olsq.sequence.jax.inputs import concrete
from olsq.sequence.jax.tiles import finite

ROWS = 512  # queries scored at once


class KeyValues(NamedTuple):
    """Cache of :func:`softmax`: room for M tokens, of which ``length`` are taken.

    Attributes
    ----------
    keys : array (B, H, M, K)
    values : array (B, H, M, V)
    present : bool array (B, H, M)
        Tokens of the running segment.
    length : int32 array (B, H)
    """

    keys: Any
    values: Any
    present: Any
    length: Any

    def grown(self, capacity: int) -> KeyValues:
        """The same cache with room for ``capacity`` tokens."""
        room = capacity - jnp.shape(self.present)[2]
        if room < 0:
            raise ValueError(f"capacity must be at least {capacity - room}, got {capacity}")
        keys, values = (
            jnp.pad(x, ((0, 0), (0, 0), (0, room), (0, 0))) for x in (self.keys, self.values)
        )
        present = jnp.pad(self.present, ((0, 0), (0, 0), (0, room)))
        return KeyValues(keys, values, present, self.length)


class RecentTokens(NamedTuple):
    """Cache of :func:`sliding_window`: the last ``window - 1`` tokens.

    Attributes
    ----------
    keys : array (B, H, window - 1, K)
    values : array (B, H, window - 1, V)
    present : bool array (B, H, window - 1)
        Tokens of the running segment.
    """

    keys: Any
    values: Any
    present: Any


def softmax(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    capacity: int | None = None,
    state: KeyValues | None = None,
    segment_ids: Any = None,
) -> tuple[Array, KeyValues]:
    """Causal softmax attention.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
    scale : float, optional
        Of the scores; ``K**-0.5`` if None.
    capacity : int, optional
        Tokens that the returned cache has room for; the stream's length if None.
    state : KeyValues, optional
        Cache of what came before; must have room for T more (see :meth:`KeyValues.grown`).
    segment_ids : int array (B, T), optional
        Sequences packed into one row: non-decreasing; nothing passes from one to the next.

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token to the end of its segment, never
        before.
    state : KeyValues

    Raises
    ------
    ValueError
        If shapes or segment ids do not fit, or the cache is full.  Where its length is traced, a
        full cache gives NaN.

    Notes
    -----
    O(T M (K + V)); memory O(512 M) a stream.

    References
    ----------
    Vaswani et al., "Attention Is All You Need" (2017), eq. 1.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.arange(3.0)[None, :, None, None]
    >>> o, state = olsq.attention.softmax(0 * x, x, x)
    >>> o[0, :, 0, 0]
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    if state is not None and not isinstance(state, KeyValues):
        raise TypeError(f"state must be a KeyValues, as returned, got {type(state).__name__}")
    q, k, v, start, layout = _read(q, k, v, segment_ids, state)
    n, t = q.shape[:2]
    room = t if state is None else jnp.shape(state.present)[2]
    if state is None and capacity is not None:
        if capacity < t:
            raise ValueError(f"capacity must be at least the length {t}, got {capacity}")
        room = capacity
    shape = (layout.batch, layout.heads, room)
    zero = KeyValues(
        jnp.zeros((*shape, k.shape[-1]), layout.working),
        jnp.zeros((*shape, v.shape[-1]), layout.working),
        jnp.zeros(shape, bool),
        jnp.zeros(shape[:2], jnp.int32),
    )
    cache: KeyValues = fold_state(state, zero, layout)
    taken = cache.length.max(initial=0)
    seen = concrete(taken)
    if seen is not None and int(seen) + t > room:
        raise ValueError(
            f"state is full: it has room for {room} tokens, holds {int(seen)} and is to take {t} "
            "more; give state.grown(capacity)"
        )
    order = jnp.zeros((n, t), jnp.int32) if start is None else jnp.cumsum(start, 1)

    def put(old: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), taken, 1)

    keys, values = put(cache.keys, k), put(cache.values, v)
    present = put(cache.present, jnp.ones((n, t), bool))
    orders = put(jnp.zeros((n, room), order.dtype), order)
    bad = ~(finite(keys) & finite(values)) & present
    clean_k, clean_v = (jnp.where(bad[..., None], 0, x) for x in (keys, values))

    def rows(x: tuple[Array, Array, Array]) -> Array:
        q, order, at = x
        visible = present[:, None] & (jnp.arange(room, dtype=taken.dtype) <= taken + at[:, :, None])
        visible = visible & (orders[:, None] == order[..., None])
        return _attend(q, clean_k, clean_v, visible, bad, scale)

    at = jnp.broadcast_to(jnp.arange(t, dtype=taken.dtype), (n, t))
    out = over_windows(lambda x, _: rows(x), (q, order, at), (), 1, ROWS)
    out = jnp.where(taken + t > room, jnp.nan, out)
    last = order[:, -1:] if t else jnp.zeros((n, 1), order.dtype)
    kept = KeyValues(keys, values, present & (orders == last), cache.length + t)
    return _close(out, kept, layout)


def sliding_window(
    q: Any,
    k: Any,
    v: Any,
    *,
    window: int,
    scale: float | None = None,
    state: RecentTokens | None = None,
    segment_ids: Any = None,
) -> tuple[Array, RecentTokens]:
    """Causal softmax attention over the last ``window`` tokens, a token's own included.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
    window : int
    scale : float, optional
        Of the scores; ``K**-0.5`` if None.
    state : RecentTokens, optional
    segment_ids : int array (B, T), optional
        Sequences packed into one row: non-decreasing; nothing passes from one to the next.

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN where a non-finite token is in the window.
    state : RecentTokens

    Raises
    ------
    ValueError
        If shapes, the window or segment ids do not fit.

    Notes
    -----
    O(T window (K + V)), memory O(window^2) a stream.

    References
    ----------
    Beltagy et al., "Longformer" (2020), section 3.1.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.arange(4.0)[None, :, None, None]
    >>> o, state = olsq.attention.sliding_window(0 * x, x, x, window=2)
    >>> o[0, :, 0, 0]
    Array([0. , 0.5, 1.5, 2.5], dtype=float32)
    """
    before = check_window(window) - 1
    q, k, v, start, layout = _read(q, k, v, segment_ids, state)
    n, t = q.shape[:2]
    shape = (layout.batch, layout.heads, before)
    zero = RecentTokens(
        jnp.zeros((*shape, k.shape[-1]), layout.working),
        jnp.zeros((*shape, v.shape[-1]), layout.working),
        jnp.zeros(shape, bool),
    )
    cache: RecentTokens = fold_state(state, zero, layout)
    order = jnp.zeros((n, t), jnp.int32) if start is None else jnp.cumsum(start, 1)
    keys, values = (jnp.concatenate(x, 1) for x in ((cache.keys, k), (cache.values, v)))
    present = jnp.concatenate([cache.present, jnp.ones((n, t), bool)], 1)
    orders = jnp.concatenate([jnp.zeros((n, before), order.dtype), order], 1)
    bad = ~(finite(keys) & finite(values)) & present
    clean = [jnp.where(bad[..., None], 0, x) for x in (keys, values)]

    def block(rows: Any, tokens: Any) -> Array:
        q, order = rows
        keys, values, present, orders, bad = tokens
        visible = present[:, None] & inside(q.shape[1], window)
        visible = visible & (orders[:, None] == order[..., None])
        return _attend(q, keys, values, visible, bad, scale)

    tokens = (*clean, present, orders, bad)
    out = over_windows(block, (q, order), tokens, window, max(64, window))
    last = order[:, -1:] if t else jnp.zeros((n, 1), order.dtype)
    present = present & (orders == last)
    kept = RecentTokens(*(x[:, x.shape[1] - before :] for x in (keys, values, present)))
    return _close(out, kept, layout)


def _read(q: Any, k: Any, v: Any, segment_ids: Any, state: Any) -> tuple[Any, ...]:
    given, b, t, h = check_heads(q=q, k=k, v=v)
    if given["q"].shape[-1] != given["k"].shape[-1]:
        raise ValueError(
            f"q must have the width of k, got q {given['q'].shape} and k {given['k'].shape}"
        )
    layout = layout_of(tuple(given.values()), state, b, t, h)
    folded = (fold_heads(x.astype(layout.working)) for x in given.values())
    return *folded, check_segments(segment_ids, layout), layout


def _attend(q: Array, k: Array, v: Array, visible: Array, bad: Array, scale: Any) -> Array:
    """Rows of streams (N, C, K) against keys (N, S, K); a row that sees a bad key is NaN."""
    spoilt = (visible & bad[:, None]).any(-1) | ~finite(q)
    q = jnp.where(finite(q)[..., None], q, 0)
    # A row that sees nothing only pads the last block.
    visible = visible | ~visible.any(-1, keepdims=True)
    # jax.nn.dot_product_attention wants K = V and rounds its scores to float32.
    scores = jnp.einsum("ntk,nsk->nts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    share = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    out = jnp.einsum("nts,nsv->ntv", share, v)
    return jnp.where(spoilt[..., None], jnp.nan, out)


def _close(out: Array, state: Any, layout: Layout) -> tuple[Array, Any]:
    b, h = layout.batch, layout.heads
    value = jnp.moveaxis(out.reshape(b, h, *out.shape[1:]), 1, 2)
    return value.astype(layout.dtype), type(state)(*(x.reshape(b, h, *x.shape[1:]) for x in state))


softmax_step = step_of(softmax)
sliding_window_step = step_of(sliding_window)
