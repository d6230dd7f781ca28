"""Split time into shards, one per device, that exchange only the moments of whole shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from olsq.problem import Moments
from olsq.sequence.jax.gates import lost_tokens, states_before
from olsq.sequence.jax.inputs import Stream
from olsq.sequence.jax.tiles import Carry, TokenSizes, final_moments, initial_carry
from olsq.sequence.jax.walk import moments_after


def solve_in_shards(
    stream: Stream,
    shards: int,
    chunk: int,
    solve: Callable[[Stream], tuple[Array, Moments[Array], TokenSizes]],
) -> tuple[Array, Moments[Array], TokenSizes]:
    """Solve a flat batch in ``shards`` pieces of time by ``solve``, which gets each as a stream."""
    b, length, _ = stream.values.shape
    pieces, last = split_time(stream, chunk, shards)
    value, _, sizes = solve(pieces)
    value, *sizes = (join_shards(x, b, length) for x in (value, *sizes))
    return value, last, TokenSizes(*sizes)


def split_time(stream: Stream, chunk: int, shards: int) -> tuple[Stream, Moments[Array]]:
    """Split ``stream`` into ``shards`` times as many streams, each with its state.

    Also returns the final moments.

    Merging is associative, so a piece is summarised by its moments from an empty state and the
    product of its gates. Only those summaries, O(d^2) each, are exchanged between devices.
    """
    b, length, _ = stream.keys.shape
    each = -(-length // shards)

    def cut(x: Any, fill: float = 0.0) -> Any:
        """Reshape (B, T, ...) to (shards B, T / shards, ...), with the sharded axis in front."""
        if x is None or x.shape[1] != length:
            return None if x is None else jnp.tile(x, (shards, *[1] * (x.ndim - 1)))
        pad = [(0, 0), (0, shards * each - length)] + [(0, 0)] * (x.ndim - 2)
        x = jnp.pad(x, pad, constant_values=fill).reshape(b, shards, each, *x.shape[2:])
        return jnp.moveaxis(x, 1, 0).reshape(shards * b, each, *x.shape[3:])

    start = initial_carry(stream.state)
    empty = Moments(*(jnp.zeros((shards * b, *s.shape[1:]), s.dtype) for s in start[:2]))
    pieces = Stream(
        keys=cut(stream.keys),
        values=cut(stream.values),
        queries=cut(stream.queries),
        forget=cut(stream.forget, 1.0),
        log_forget=cut(stream.log_forget),
        weight=cut(stream.weight),
        ridge=cut(stream.ridge, 1.0),
        state=empty,
        floor=None,
    )
    totals = moments_after(pieces, chunk)

    def by_stream(x: Array) -> Array:
        """Reshape (shards B, ...) to (B, shards, ...)."""
        return jnp.moveaxis(x.reshape(shards, b, *x.shape[1:]), 0, 1)

    def by_shard(x: Array) -> Array:
        return jnp.moveaxis(x, 1, 0).reshape(shards * b, *x.shape[2:])

    if pieces.forget is None or pieces.log_forget is None:
        factor = jnp.ones((b, shards), stream.keys.dtype)
        reset = jnp.zeros((b, shards), bool)
    else:
        gates = by_stream(pieces.forget)
        unknown = jnp.isnan(gates)
        gates = jnp.where(unknown, 1, gates)
        reset = (gates == 0).any(-1)
        # The value comes from the logs, which resolve more than the gates do.
        logs = jnp.where(unknown, 0, by_stream(pieces.log_forget)).sum(-1)
        rounded = jnp.prod(gates, -1)
        factor = rounded + lax.stop_gradient(jnp.where(reset, 0, jnp.exp(logs)) - rounded)
    piece_lost = lost_tokens(by_stream(totals.state_lost), reset, start.state_lost)
    before, last = [], []
    for add, first in zip(totals[:2], start[:2], strict=True):
        states, end = states_before(factor, by_stream(add), first)
        before.append(states)
        last.append(end)
    lost_before = jnp.concatenate([start.state_lost[:, None], piece_lost[:, :-1]], 1)
    state = Moments(
        *(by_shard(jnp.where(lost_before[..., None, None], jnp.nan, s)) for s in before)
    )
    return pieces._replace(state=state), final_moments(Carry(last[0], last[1], piece_lost[:, -1]))


def join_shards(x: Array, b: int, length: int) -> Array:
    """Reshape (shards B, T / shards, ...) back to (B, T, ...)."""
    x = jnp.moveaxis(x.reshape(-1, b, *x.shape[1:]), 0, 1)
    return x.reshape(b, -1, *x.shape[3:])[:, :length]
