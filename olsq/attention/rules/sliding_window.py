"""Softmax attention over a sliding window, with a cache as its state."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_integer, check_number
from olsq.attention.arguments import Layout, check_segments, check_streams
from olsq.attention.caches import attend, unfold
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.window import map_windows, window_mask
from olsq.attention.states import fold_state
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.pieces import last_tokens, running_sum


class RecentTokens(NamedTuple):
    """Cache of :func:`sliding_window`: the last ``window - 1`` tokens.

    Attributes
    ----------
    keys : array (B, H, window - 1, K)
    values : array (B, H, window - 1, V)
    present : bool array (B, H, window - 1)
        Tokens of the running segment.
    """

    keys: Array
    values: Array
    present: Array

    __repr__ = brief_repr


def keep_recent(
    k: Array, v: Array, start: Array | None, state: RecentTokens | None, before: int, layout: Layout
) -> tuple[RecentTokens, Array, RecentTokens]:
    """Return the ``before`` tokens before a call's, and those to keep after it, all folded.

    ``start`` (N, T) marks first tokens of segments; the numbers of the segments, (N, T), come
    between the two.
    """
    n, t = k.shape[:2]
    shape = (layout.batch, layout.heads, before)
    zero = RecentTokens(
        jnp.zeros((*shape, k.shape[-1]), layout.working),
        jnp.zeros((*shape, v.shape[-1]), layout.working),
        jnp.zeros(shape, bool),
    )
    cache: RecentTokens = fold_state(state, zero, layout)
    order = jnp.zeros((n, t), jnp.int32) if start is None else running_sum(start)
    last = order[:, -1:] if t else jnp.zeros((n, 1), order.dtype)
    now = k, v, order == last
    past = cache.keys, cache.values, cache.present & (last == 0)
    return cache, order, RecentTokens(*map(last_tokens, now, past))


@sequence_rule
def sliding_window(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    window: int,
    scale: float | None = None,
    state: RecentTokens | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, RecentTokens]:
    """Causal softmax attention over the last ``window`` tokens, a token's own included.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries, keys, values.
    window : int
        Tokens that a query sees, its own included.
    scale : float, optional
        Of the scores; ``K**-0.5`` if None.
    state : RecentTokens, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

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
    O(T window (K + V)), memory O(window^2) per stream.

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
    check_integer("window", window, 1, bits=31)
    before = window - 1
    if scale is not None:
        scale = check_number("scale", scale)
    q, k, v, layout = check_streams(q, k, v, state)
    start = check_segments(segment_ids, layout)
    n, t = q.shape[:2]
    cache, order, kept = keep_recent(k, v, start, state, before, layout)

    def readable(k: Array, v: Array, present: Array, order: Array) -> tuple[Array, ...]:
        sample_lost = ~(squarable(k) & squarable(v)) & present
        k, v = (jnp.where(sample_lost[..., None], 0, x) for x in (k, v))
        return k, v, present, order, sample_lost

    older = readable(*cache, jnp.zeros((n, before), order.dtype))
    tokens = readable(k, v, jnp.ones((n, t), bool), order)

    out = _read((q, order), older, tokens, scale, window=window)
    return unfold(out, kept, layout)


sliding_window_step = one_token(sliding_window, example="x, x, x, window=2", gives=1.0)


@partial(compile_once, static_argnames="window")
def _read(rows: Any, older: Any, tokens: Any, scale: Any, *, window: int) -> Array:
    """Attend from queries, with the numbers of their sequences, (N, T, ...), to tokens and those
    before.
    """

    def block(rows: Any, tokens: Any) -> Array:
        q, order = rows
        keys, values, present, orders, sample_lost = tokens
        visible = present[:, None] & window_mask(q.shape[1], window)
        visible = visible & (orders[:, None] == order[..., None])
        return attend(q, keys, values, visible, sample_lost, scale)

    return map_windows(block, rows, older, tokens, window, max(64, window))
