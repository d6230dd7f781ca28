"""Softmax attention with time in pieces, one per device: pieces of keys travel around a ring.

With P pieces, queries of piece i need the keys of pieces 0..i. In step s, piece i receives the
arrays of piece i - s around the ring. If i >= s these are earlier in time, and the queries of piece
i read their keys and values. Otherwise they are later in time: their *queries* read the keys of
piece i, and the result is sent back. So P/2 + 1 steps do all pairs, every device has the same work,
and scores are computed only to be masked for half of each piece's own tokens, and in one step if P
is even.

The result of rows for some keys is packed, (..., V + 1): the mean of the values and the log of the
sum of exponentials; two of these merge into one. Logs of gates are summed from a key to its query:
to the end of the key's piece, over the pieces between, and from the start of the query's.

Derivatives are those of sums with the final log-sum-exp held: sums are linear, so that nothing a
step received or made has to be kept for the backward pass, which sends it again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from olsq.attention.recurrences.window import map_blocks
from olsq.sequence.jax.gates import lost_tokens, squarable
from olsq.sequence.jax.pieces import (
    cumulate,
    cut_into_pieces,
    join_pieces,
    pieces_of,
    rotate_pieces,
    running_sum,
)

ROWS = 512  # queries scored at once
Streams = dict[str, Any]  # arrays (P N, L, ...) by name


class Past(NamedTuple):
    """Tokens in a cache, which precede those of the call."""

    k: Array  # (N, M, K)
    v: Array  # (N, M, V)
    present: Array  # (N, M) bool
    after: Array | None  # (N, M) logs of the gates after each, with gates


def ring_attention(
    q: Array,
    k: Array,
    v: Array,
    reset: Array | None,
    logs: Array | None,
    scale: float | None,
    past: Past | None,
) -> Array:
    """Attend from queries (N, T, K) to keys (N, T, K) and values (N, T, V), causally: (N, T, V).

    ``reset`` (N, T) marks tokens that read nothing before them, ``logs`` (N, T) are those of the
    gates; None for none. A row that reads a non-finite token, or is one, is NaN.
    """
    pieces = pieces_of(q.shape[1])
    room, floats, orders, output_lost = cut_streams(q, k, v, reset, logs, past)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out = join_pieces(attend_pieces(pieces, room, scale, floats, orders)[..., :-1], pieces)
    return jnp.where(output_lost[..., None], jnp.nan, out)


def cut_streams(
    q: Array, k: Array, v: Array, reset: Array | None, logs: Array | None, past: Past | None
) -> tuple[int, Streams, Streams, Array]:
    """Clean the arrays of :func:`ring_attention` and cut them into pieces.

    Returns the pieces of the cache (0 without one), the arrays to differentiate, the others, and
    which outputs (N, T) are lost.
    """
    pieces = pieces_of(q.shape[1])
    lost, query_finite = ~(squarable(k) & squarable(v)), squarable(q)
    state_lost = jnp.zeros(q.shape[:1], bool)
    q, k, v = (
        jnp.where(ok[..., None], x, 0) for ok, x in ((query_finite, q), (~lost, k), (~lost, v))
    )
    order = jnp.zeros(lost.shape, jnp.int32) if reset is None else running_sum(reset)
    floats: Streams = {"q": q, "k": k, "v": v, "logs": logs}
    floats = jax.tree.map(lambda x: cut_into_pieces(x, pieces), floats)
    orders: Streams = {"order": cut_into_pieces(order, pieces)}
    room = 0
    if past is not None:
        cache_finite = squarable(past.k) & squarable(past.v)
        state_lost = (~cache_finite & past.present).any(1)
        room = pieces if past.present.shape[1] % pieces == 0 else 1
        held = {
            n: jnp.where(cache_finite[..., None], x, 0) for n, x in (("k", past.k), ("v", past.v))
        }
        held = jax.tree.map(lambda x: cut_into_pieces(x, room), {**held, "after": past.after})
        floats["past"], orders["past"] = held, cut_into_pieces(jnp.where(past.present, 0, -1), room)
    return room, floats, orders, lost_tokens(lost, reset, state_lost) | ~query_finite


def log_decays(older: Array, logs: Array, first: Array) -> Array:
    """Sum the logs of the gates (N, C, S) between S tokens and C rows; row r is token first + r.

    ``older`` (N, S) are those after each token and before the rows, ``logs`` (N, C) those of the
    rows.
    """
    size = logs.shape[1]
    older = jnp.pad(older, ((0, 0), (0, size)))  # the last block may reach beyond
    fade = older[:, None] + jnp.cumsum(logs, 1)[..., None]
    # Between two rows of the block, the logs from the one to the other are summed.
    inside = jnp.cumsum(jnp.tril(logs[..., None] * jnp.ones_like(logs[:, None]), -1), 1)
    return jax.lax.dynamic_update_slice_in_dim(fade, inside, first, 2)[..., :-size]


def sum_after(logs: Array) -> Array:
    """Sum logs (N, L) over the tokens after each token, adding from the end."""
    sums = jnp.flip(cumulate(jnp.add, jnp.flip(logs, 1), 1, jnp.cumsum), 1)
    return jnp.pad(sums[:, 1:], ((0, 0), (0, 1)))[:, : logs.shape[1]]


def sum_after_in_pieces(logs: Array) -> Array:
    """Sum logs as :func:`sum_after` for (N, T), whether time is in pieces or not."""
    pieces = pieces_of(logs.shape[1])
    if pieces == 1:
        return sum_after(logs)
    cut, by_piece = cut_into_pieces(logs, pieces), np.arange(pieces)
    return join_pieces(sum_after(cut) + _over_pieces(by_piece > by_piece[:, None], cut), pieces)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def attend_pieces(pieces: int, room: int, scale: float, floats: Streams, orders: Streams) -> Array:
    """Attend from the rows of all pieces; packed means and log-sum-exps."""
    merged = None
    for meeting in piece_pairs(pieces, room):
        for part in meeting(_read, scale, floats, orders, None):
            merged = part if merged is None else _merge(merged, part)
    assert merged is not None
    return merged


@attend_pieces.defjvp
def _attend_jvp(pieces: int, room: int, scale: float, primals: Any, tangents: Any) -> Any:
    """Differentiate the sums, with the log-sum-exp held, and from these the mean and the
    log-sum-exp.
    """
    floats, orders = primals
    out = attend_pieces(pieces, room, scale, floats, orders)

    def sums(floats: Streams) -> Array:
        total = jnp.zeros_like(out)
        for meeting in piece_pairs(pieces, room):
            again = jax.checkpoint(functools.partial(meeting, _sums, scale))
            total = sum(again(floats, orders, out[..., -1]), total)
        return total

    slope = jax.jvp(sums, (floats,), (tangents[0],))[1]
    total_slope = slope[..., -1:]
    return out, jnp.concatenate([slope[..., :-1] - out[..., :-1] * total_slope, total_slope], -1)


def _read(scores: Array, v: Array, _: Any) -> Array:
    """Reduce rows with scores (N, C, S) to packed means and log-sum-exps."""
    most = jax.lax.stop_gradient(scores.max(-1, keepdims=True))
    share = jnp.exp(scores - jnp.where(jnp.isfinite(most), most, 0))
    total = share.sum(-1, keepdims=True)
    mean = jnp.einsum("nts,nsv->ntv", share, v) / jnp.where(total > 0, total, 1)
    return jnp.concatenate([mean, most + jnp.log(jnp.where(total > 0, total, 1))], -1)


def _sums(scores: Array, v: Array, log_total: Array) -> Array:
    """Sum values and shares, given the log of the sum of exponentials (N, C)."""
    share = jnp.exp(scores - log_total[..., None])
    return jnp.concatenate([jnp.einsum("nts,nsv->ntv", share, v), share.sum(-1, keepdims=True)], -1)


def _merge(one: Array, other: Array) -> Array:
    """Merge the packed results from two sets of keys into that of their union."""
    logs = one[..., -1:], other[..., -1:]
    most = jax.lax.stop_gradient(jnp.maximum(*logs))
    shares = [jnp.exp(x - jnp.where(jnp.isfinite(most), most, 0)) for x in logs]
    total = shares[0] + shares[1]
    total = jnp.where(total > 0, total, 1)
    mean = (shares[0] * one[..., :-1] + shares[1] * other[..., :-1]) / total
    return jnp.concatenate([mean, most + jnp.log(total)], -1)


def piece_pairs(pieces: int, room: int) -> Iterator[Callable[..., tuple[Array, ...]]]:
    """Yield ``meeting(reduce, scale, floats, whole, log_total)`` for all pairs of pieces: packed
    parts per row.
    """
    for step in range(pieces // 2 + 1):
        yield functools.partial(_attend_between_pieces, pieces, step)
    for step in range(room):
        yield functools.partial(_attend_to_cache, pieces, step, room)


def _attend_between_pieces(
    pieces: int, step: int, reduce: Any, scale: float, floats: Streams, orders: Streams, total: Any
) -> tuple[Array, ...]:
    """Attend between each piece and the one ``step`` before it, whichever of them is later."""
    logs = floats["logs"]
    tokens = {"k": floats["k"], "v": floats["v"], "order": orders["order"]}
    rows = {"q": floats["q"], "order": orders["order"], "total": total}
    n, t = rows["order"].shape
    if step == 0:
        place = jnp.arange(t)
        rows |= {"at": jnp.broadcast_to(place, (n, t)), "logs": logs}

        def inner(block: Streams, visible: Array) -> tuple[Any, Array]:
            at = block["at"]
            visible = visible & (place <= at[..., None])
            if logs is None:
                return None, visible
            first = at[:, 0].max(initial=0)
            return log_decays(
                sum_after(jnp.where(place < first, logs, 0)), block["logs"], first
            ), visible

        return (_score(reduce, scale, rows, tokens, inner),)
    by_piece = np.arange(pieces)
    here = by_piece >= step  # which have the rows; of a pair on opposite sides only one
    there = ~here & (2 * step != pieces)
    if logs is not None:
        rows["fade"] = jnp.cumsum(logs, 1)
        tokens["fade"] = sum_after(logs)
    visitors, offered = rotate_pieces((rows, tokens), pieces, step)
    rows = jax.tree.map(functools.partial(_choose, here), rows, visitors)
    tokens = jax.tree.map(functools.partial(_choose, here), offered, tokens)
    if logs is not None:
        # Gates of the pieces between: those after the keys' and before the rows'.
        late = np.where(here, by_piece, by_piece - step + pieces)[:, None]
        early = np.where(here, by_piece - step, by_piece)[:, None]
        between = (by_piece < late) & (by_piece > early)
        rows["fade"] = rows["fade"] + _over_pieces(between, logs)

    def outer(block: Streams, visible: Array) -> tuple[Any, Array]:
        if logs is None:
            return None, visible
        return block["fade"][..., None] + tokens["fade"][:, None], visible

    part = _score(reduce, scale, rows, tokens, outer)
    nothing = jnp.zeros_like(part).at[..., -1].set(-jnp.inf if total is None else 0)
    mine = _choose(here, part, nothing)
    if not there.any():
        return (mine,)
    return mine, rotate_pieces(_choose(there, part, nothing), pieces, -step)


def _attend_to_cache(
    pieces: int,
    step: int,
    room: int,
    reduce: Any,
    scale: float,
    floats: Streams,
    orders: Streams,
    total: Any,
) -> tuple[Array, ...]:
    """Attend from all rows to the cache, or to one piece of it where it is in pieces too."""
    tokens = {**floats["past"], "order": orders["past"]}
    if room == pieces:
        tokens = rotate_pieces(tokens, pieces, step)
    else:
        tokens = jax.tree.map(lambda x: jnp.tile(x, (pieces, *[1] * (x.ndim - 1))), tokens)
    rows = {"q": floats["q"], "order": orders["order"], "total": total}
    logs = floats["logs"]
    if logs is not None:
        by_piece = np.arange(pieces)
        rows["fade"] = jnp.cumsum(logs, 1) + _over_pieces(by_piece < by_piece[:, None], logs)

    def outer(block: Streams, visible: Array) -> tuple[Any, Array]:
        if logs is None:
            return None, visible
        return block["fade"][..., None] + tokens["after"][:, None], visible

    return (_score(reduce, scale, rows, tokens, outer),)


def _score(reduce: Any, scale: float, rows: Streams, tokens: Streams, fade: Any) -> Array:
    """Apply ``reduce`` to the scores of rows (N, L, ...) with tokens (N, S, ...), in blocks."""

    def block(rows: Streams, _: Any) -> Array:
        visible = rows["order"][..., None] == tokens["order"][:, None]
        scores = jnp.einsum("ntk,nsk->nts", rows["q"], tokens["k"]) * scale
        added, visible = fade(rows, visible)
        scores = scores if added is None else scores + added
        return reduce(jnp.where(visible, scores, -jnp.inf), tokens["v"], rows["total"])

    return map_blocks(block, rows, (), 1, ROWS)


def _choose(pieces: Any, these: Array, those: Array) -> Array:
    """Choose ``these`` (P N, ...) in some pieces (P,), ``those`` in the others."""
    shape = (len(pieces), *[1] * these.ndim)
    x, y = (x.reshape(len(pieces), -1, *x.shape[1:]) for x in (these, those))
    return jnp.where(jnp.asarray(pieces).reshape(shape), x, y).reshape(these.shape)


def _over_pieces(mask: Any, logs: Array) -> Array:
    """Sum logs (P N, L) over the pieces selected by each row of ``mask`` (P, P), (P N, 1)."""
    totals = logs.reshape(len(mask), -1, logs.shape[1]).sum(2)
    return jnp.where(mask[..., None], totals[None], 0).sum(1).reshape(-1, 1)
