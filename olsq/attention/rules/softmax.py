"""Softmax attention over all tokens, with a cache as its state."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_number
from olsq.attention.arguments import Layout, check_segments, check_streams
from olsq.attention.caches import attend, capacity_of, check_room, unfold, write_cache
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.ring import Past, ring_attention
from olsq.attention.recurrences.triangle import triangle_attention
from olsq.attention.recurrences.window import map_blocks
from olsq.attention.states import fold_state
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.pieces import pieces_of, running_sum

ROWS = 512  # queries scored at once


class KeyValues(NamedTuple):
    """Cache of :func:`softmax`: room for M tokens, of which ``length`` are taken.

    All streams write to the same place, the first that none of them has taken; where one of them
    was left behind its tokens are not ``present``.

    Attributes
    ----------
    keys : array (B, H, M, K)
    values : array (B, H, M, V)
    present : bool array (B, H, M)
        Tokens of the running segment.
    length : int32 array (B, H)
    """

    keys: Array
    values: Array
    present: Array
    length: Array

    __repr__ = brief_repr

    def grown(self, capacity: int) -> KeyValues:
        """Return the same cache with room for ``capacity`` tokens."""
        room = capacity - jnp.shape(self.present)[2]
        if room < 0:
            raise ValueError(f"capacity must be at least {capacity - room}, got {capacity}")
        keys, values = (
            jnp.pad(x, ((0, 0), (0, 0), (0, room), (0, 0))) for x in (self.keys, self.values)
        )
        present = jnp.pad(self.present, ((0, 0), (0, 0), (0, room)))
        return KeyValues(keys, values, present, self.length)


class Appended(NamedTuple):
    """A cache (N, M, ...) that contains the tokens of a call too."""

    keys: Array
    values: Array
    present: Array
    orders: Array  # (N, M), numbers of segments, from 0 for those before the call
    order: Array  # (N, T), the same of the call's tokens
    taken: Array  # (), the place of the call's first token
    past: Past | None  # what the cache held before; None if there was none


def append_tokens(
    k: Array,
    v: Array,
    start: Array | None,
    state: KeyValues | None,
    capacity: int | None,
    layout: Layout,
) -> tuple[Appended, KeyValues]:
    """Append keys and values (N, T, dim) to a cache; also return the cache to keep, folded.

    ``start`` (N, T) marks first tokens of segments.

    Raises
    ------
    TypeError
        If the state is no cache.
    ValueError
        If it is full.
    """
    if state is not None and not isinstance(state, KeyValues):
        raise TypeError(f"state must be a KeyValues, as returned, got {type(state).__name__}")
    n, t = k.shape[:2]
    room = capacity_of(state, capacity, t)
    shape = (layout.batch, layout.heads, room)
    zero = KeyValues(
        jnp.zeros((*shape, k.shape[-1]), layout.working),
        jnp.zeros((*shape, v.shape[-1]), layout.working),
        jnp.zeros(shape, bool),
        jnp.zeros(shape[:2], jnp.int32),
    )
    cache: KeyValues = fold_state(state, zero, layout)
    check_room(state, t, room)
    taken = cache.length.max(initial=0)
    order = jnp.zeros((n, t), jnp.int32) if start is None else running_sum(start)
    held = tuple(cache[:3]) if state is not None else (None, None, None)
    now = k, v, jnp.ones((n, t), bool)
    keys, values, present = (write_cache(*x, taken, room) for x in zip(held, now, strict=True))
    orders = write_cache(jnp.zeros((n, room), order.dtype), order, taken, room)
    last = order[:, -1:] if t else jnp.zeros((n, 1), order.dtype)
    length = jnp.broadcast_to(taken + t, (n,)).astype(cache.length.dtype)
    kept = KeyValues(keys, values, present & (orders == last), length)
    past = None if state is None else Past(*cache[:3], None)
    return Appended(keys, values, present, orders, order, taken, past), kept


@sequence_rule
def softmax(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    scale: float | None = None,
    capacity: int | None = None,
    state: KeyValues | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, KeyValues]:
    """Causal softmax attention.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries, keys, values.
    scale : float, optional
        Of the scores; ``K**-0.5`` if None.
    capacity : int, optional
        Tokens that the returned cache has room for; the stream's length if None.  A ``state`` keeps
        the room that it has.
    state : KeyValues, optional
        As returned for the tokens before; an empty past if None.  The cache must have room for T
        more (see :meth:`KeyValues.grown`).
    segment_ids : int array (B, T), optional
        {segment_ids}

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
    O(T (T + P) (K + V)), P tokens in the state.  From an empty state, scores above the diagonal are
    not made, and memory is O(T) per stream; after one, O(512 M).

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
    if scale is not None:
        scale = check_number("scale", scale)
    q, k, v, layout = check_streams(q, k, v, state)
    start = check_segments(segment_ids, layout)
    t = q.shape[1]
    held, kept = append_tokens(k, v, start, state, capacity, layout)
    keys, values, present, orders, order, taken, past = held
    sample_lost = ~(squarable(keys) & squarable(values)) & present
    clean_k, clean_v = (jnp.where(sample_lost[..., None], 0, x) for x in (keys, values))

    if pieces_of(t) > 1:
        out = ring_attention(q, k, v, start, None, scale, past)
    elif state is None and not (isinstance(t, int) and t <= 1):
        out = triangle_attention(q, k, v, start, scale)
    else:
        readable = clean_k, clean_v, present, orders, sample_lost
        out = _read(q, order, readable, taken, scale)
    out = jnp.where(taken + t > present.shape[1], jnp.nan, out)
    return unfold(out, kept, layout)


softmax_step = one_token(softmax, example="x, x, x, capacity=2", gives=1.0)


@compile_once
def _read(q: Array, order: Array, held: tuple[Array, ...], taken: Array, scale: Any) -> Array:
    """Attend from queries (N, T, K) to a cache (N, M, ...) whose place ``taken`` holds the first of
    them.
    """
    k, v, present, orders, sample_lost = held
    place = jnp.arange(present.shape[1], dtype=taken.dtype)

    def rows(x: tuple[Array, Array, Array], _: Any) -> Array:
        q, order, at = x
        visible = present[:, None] & (place <= taken + at[:, :, None])
        visible = visible & (orders[:, None] == order[..., None])
        return attend(q, k, v, visible, sample_lost, scale)

    at = jnp.broadcast_to(jnp.arange(q.shape[1], dtype=taken.dtype), q.shape[:2])
    return map_blocks(rows, (q, order, at), (), 1, ROWS)
