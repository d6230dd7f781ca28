"""Forgetting attention: softmax over everything, with forget gates on the scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_forget, check_number
from olsq.attention.arguments import Layout, check_segments, check_streams, per_token
from olsq.attention.caches import attend, capacity_of, check_room, unfold, write_cache
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.ring import Past, log_decays, ring_attention, sum_after_in_pieces
from olsq.attention.recurrences.window import map_blocks
from olsq.attention.states import fold_state
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.pieces import pieces_of, running_sum

ROWS = 512  # queries scored at once


class ForgettingKeyValues(NamedTuple):
    """Cache of :func:`forgetting`: room for M tokens, of which ``length`` are taken.

    All streams write to the same place, as in the cache of :func:`softmax`.

    Attributes
    ----------
    keys : array (B, H, M, K)
    values : array (B, H, M, V)
    log_decay : array (B, H, M)
        Sum of the logs of the gates after each token.
    present : bool array (B, H, M)
        Tokens of the running segment, since the last gate of 0.
    length : int32 array (B, H)
    """

    keys: Array
    values: Array
    log_decay: Array
    present: Array
    length: Array

    __repr__ = brief_repr

    def grown(self, capacity: int) -> ForgettingKeyValues:
        """Return the same cache with room for ``capacity`` tokens."""
        room = capacity - jnp.shape(self.present)[2]
        if room < 0:
            raise ValueError(f"capacity must be at least {capacity - room}, got {capacity}")

        def pad(x: Array) -> Array:
            return jnp.pad(x, [(0, 0), (0, 0), (0, room)] + [(0, 0)] * (jnp.ndim(x) - 3))

        keys, values, log_decay, present = map(pad, self[:4])
        return ForgettingKeyValues(keys, values, log_decay, present, self.length)


@sequence_rule
def forgetting(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    scale: float | None = None,
    capacity: int | None = None,
    state: ForgettingKeyValues | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, ForgettingKeyValues]:
    """Forgetting attention (FoX): causal softmax whose scores fade with the gates in between.

    ``o_t = sum_i softmax_i(scale q_t . k_i + log(gamma_{i+1} ... gamma_t)) v_i``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries, keys, values.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.
    scale : float, optional
        Of the scores; ``K**-0.5`` if None.
    capacity : int, optional
        Tokens that the returned cache has room for; the stream's length if None.  A ``state`` keeps
        the room that it has.
    state : ForgettingKeyValues, optional
        As returned for the tokens before; an empty past if None.  The cache must have room for T
        more (see :meth:`ForgettingKeyValues.grown`).
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on until a gate of 0, never before.
    state : ForgettingKeyValues

    Raises
    ------
    ValueError
        If shapes, gates or segment ids do not fit, or the cache is full.  Where its length is
        traced, a full cache gives NaN.

    Notes
    -----
    O(T M (K + V)); memory O(512 M) per stream.  Logs of gates are only ever added up, between a key
    and its query, never subtracted: the sum's error is relative to itself, however long the stream.
    The derivative by a gate that is exactly 0 is taken to be 0.

    References
    ----------
    Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate" (2025), arXiv
    2503.02130, section 3.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.arange(3.0)[None, :, None, None]
    >>> o, state = olsq.attention.forgetting(0 * x, x, x, forget=0.5)
    >>> [round(float(y), 3) for y in o[0, :, 0, 0]]
    [0.0, 0.667, 1.429]
    """
    if state is not None and not isinstance(state, ForgettingKeyValues):
        raise TypeError(
            f"state must be a ForgettingKeyValues, as returned, got {type(state).__name__}"
        )
    if scale is not None:
        scale = check_number("scale", scale)
    q, k, v, layout = check_streams(q, k, v, state)
    logs, unknown, reset = _check_logs(forget, log_forget, layout)
    start = check_segments(segment_ids, layout)
    reset = reset if start is None else reset | start
    logs = jnp.where(reset, 0, logs)
    n, t = q.shape[:2]
    room = capacity_of(state, capacity, t)
    shape = (layout.batch, layout.heads, room)
    zero = ForgettingKeyValues(
        jnp.zeros((*shape, k.shape[-1]), layout.working),
        jnp.zeros((*shape, v.shape[-1]), layout.working),
        jnp.zeros(shape, layout.working),
        jnp.zeros(shape, bool),
        jnp.zeros(shape[:2], jnp.int32),
    )
    cache: ForgettingKeyValues = fold_state(state, zero, layout)
    check_room(state, t, room)
    taken = cache.length.max(initial=0)
    order = running_sum(reset)
    k = jnp.where(unknown[..., None], jnp.nan, k)
    held = (cache.keys, cache.values, cache.present) if state is not None else (None, None, None)
    now = k, v, jnp.ones((n, t), bool)
    keys, values, present = (write_cache(*x, taken, room) for x in zip(held, now, strict=True))
    orders = write_cache(jnp.zeros((n, room), order.dtype), order, taken, room)
    sample_lost = ~(squarable(keys) & squarable(values)) & present
    clean_k, clean_v = (jnp.where(sample_lost[..., None], 0, x) for x in (keys, values))
    cached = jnp.where(cache.present, cache.log_decay, 0)
    gates = logs, None if state is None else cached, taken
    if pieces_of(t) > 1:
        past = None if state is None else Past(*cache[:2], cache.present, cached)
        out = ring_attention(q, k, v, reset, logs, scale, past)
    else:
        kept = clean_k, clean_v, present, orders, sample_lost
        out = _read(q, order, kept, gates, scale)
    out = jnp.where(taken + t > room, jnp.nan, out)
    last = order[:, -1:] if t else jnp.zeros((n, 1), order.dtype)
    stays = present & (orders == last)
    decay = jnp.where(stays, _log_decay_until(jnp.full((), t, taken.dtype), gates, room), 0)
    length = jnp.broadcast_to(taken + t, (n,)).astype(cache.length.dtype)
    return unfold(out, ForgettingKeyValues(keys, values, decay, stays, length), layout)


forgetting_step = one_token(
    forgetting, "forget", "log_forget", example="x, x, x, forget=0.5, capacity=2", gives=1.0
)


def _check_logs(forget: Any, log_forget: Any, layout: Layout) -> tuple[Array, Array, Array]:
    """Check gates; return their logs, which are unknown, and which are 0, each (N, T).

    A log is 0 where the gate is unknown or 0.
    """
    check_forget(forget, log_forget)
    if log_forget is not None:
        logs = per_token("log_forget", log_forget, layout)
        unknown, reset = jnp.isnan(logs), jnp.isneginf(logs)
        # Masks may use the smallest finite number, and a sum of two of those is infinite.
        logs = jnp.maximum(logs, jnp.finfo(logs.dtype).min * 2.0**-30)
        return jnp.where(unknown | reset, 0, logs), unknown, reset
    gates = per_token("forget", 1.0 if forget is None else forget, layout)
    unknown, reset = jnp.isnan(gates), gates == 0
    return jnp.log(jnp.where(unknown | reset, 1, gates)), unknown, reset


def _log_decay_until(stop: Array, gates: tuple[Array, Array | None, Array], room: int) -> Array:
    """Sum the logs of the gates after each token (N, M) and before token ``stop``.

    ``gates`` are the tokens' own logs (N, T), those after each token of the cache before them (N,
    M), and the number of these.
    """
    logs, cached, taken = gates
    counted = jnp.where(jnp.arange(logs.shape[1], dtype=taken.dtype) < stop, logs, 0)
    older = None if cached is None else cached + counted.sum(1, keepdims=True)
    return write_cache(older, sum_after_in_pieces(counted), taken, room)


@compile_once
def _read(q: Array, order: Array, held: tuple[Array, ...], gates: Any, scale: Any) -> Array:
    """Attend from queries (N, T, K) to a cache (N, M, ...) that contains their own tokens."""
    k, v, present, orders, sample_lost = held
    logs, _, taken = gates
    place = jnp.arange(present.shape[1], dtype=taken.dtype)

    def rows(x: tuple[Array, ...], _: Any) -> Array:
        q, order, at, logs = x
        visible = present[:, None] & (place <= taken + at[:, :, None])
        visible = visible & (orders[:, None] == order[..., None])
        first = at[:, 0].max(initial=0)
        fade = log_decays(_log_decay_until(first, gates, place.shape[0]), logs, taken + first)
        return attend(q, k, v, visible, sample_lost, scale, fade)

    at = jnp.broadcast_to(jnp.arange(q.shape[1], dtype=taken.dtype), q.shape[:2])
    return map_blocks(rows, (q, order, at, logs), (), 1, ROWS)
