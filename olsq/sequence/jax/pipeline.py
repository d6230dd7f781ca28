"""Sequence parallelism for recurrences whose state cannot be merged: devices take turns and pass
the state on.

A piece cannot start before the one before it has finished, but streams are independent: they go
through the pieces in groups, so that while one piece has the second group, the next has the first.
With G groups and P pieces there are G + P - 1 turns. A device has work in G of them; in the others
it repeats earlier work, and the result is dropped. States move on by one device per turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.pieces import cut_into_pieces, join_pieces, pieces_of

Tree = Any


def run_in_turns(
    run: Callable[[Tree, Tree, Tree], tuple[Array, Tree]],
    state: Tree,
    streams: Tree,
    own: Tree,
    groups: int,
) -> tuple[Array, Tree]:
    """Compute ``run(state, streams, own)`` along time: (N, T, V) and the state after the last
    token.

    Arrays of ``streams`` are (N, T, ...); those of ``state`` and of ``own``, the arrays of each
    stream without a time axis, are (N, ...). Stream n is in group n modulo ``groups``, which
    divides N, so that rows that are split over other devices, the major axis of N, stay where they
    are. The backward pass keeps one state per turn and recomputes the rest.
    """
    pieces = pieces_of(jax.tree.leaves(streams)[0].shape[1])
    if pieces == 1:
        return run(state, streams, own)
    place = jnp.arange(pieces)

    def grouped(x: Array) -> Array:
        """Reshape (N, ...) to (G, N / G, ...)."""
        return jnp.moveaxis(x.reshape(-1, groups, *x.shape[1:]), 1, 0)

    def by_piece(x: Array) -> Array:
        """Reshape (P N, ...) to (P, N, ...)."""
        return x.reshape(pieces, -1, *x.shape[1:])

    def folded(x: Array) -> Array:
        return x.reshape(-1, *x.shape[2:])

    streams = jax.tree.map(
        lambda x: jax.vmap(grouped)(by_piece(cut_into_pieces(x, pieces))), streams
    )
    state, own = jax.tree.map(grouped, (state, own))

    def turn(passed: Tree, at: Array) -> tuple[Array, Tree]:
        """Run one turn: outputs (P, N / G, L, V) and states after, from the states passed on."""
        group = jnp.clip(at - place, 0, groups - 1)
        # Outside its turns a piece runs on from a valid state, so that all values are finite.
        handed = (place > 0) & (at >= place)

        def begin(passed: Array, first: Array) -> Array:
            return jnp.where(handed.reshape(-1, *[1] * first.ndim), passed, first)

        begun = jax.tree.map(begin, passed, jax.tree.map(lambda x: x[group[0]], state))
        given = jax.tree.map(lambda x: jax.vmap(lambda x, g: x[g])(x, group), streams)
        belongs = jax.tree.map(lambda x: x[group], own)
        out, after = run(*jax.tree.map(folded, (begun, given, belongs)))
        return jax.tree.map(by_piece, (out, after))

    def put(whole: Array, part: Array, group: Array) -> Array:
        return jax.vmap(lambda x, y, g: x.at[g].set(y, mode="drop"))(whole, part, group)

    def step(carry: Tree, at: Array) -> tuple[Tree, None]:
        passed, found = carry
        now = jax.checkpoint(turn, prevent_cse=False)(passed, at)
        group = at - place
        group = jnp.where((group >= 0) & (group < groups), group, groups)
        found = jax.tree.map(lambda x, y: put(x, y, group), found, now)
        return (jax.tree.map(lambda x: jnp.roll(x, 1, 0), now[1]), found), None

    first = jax.tree.map(lambda x: jnp.broadcast_to(x[0], (pieces, *x.shape[1:])), state)
    shapes = jax.eval_shape(turn, first, jnp.int32(0))
    room = jax.tree.map(
        lambda x: jnp.zeros((pieces, groups, *x.shape[1:]), x.dtype), shapes
    )  # of outputs and of states at the pieces' ends
    found = jax.lax.scan(step, (first, room), jnp.arange(groups + pieces - 1))[0][1]

    def ungrouped(x: Array) -> Array:
        return folded(jnp.moveaxis(x, 0, 1))

    out = jax.vmap(ungrouped)(found[0])
    return join_pieces(folded(out), pieces), jax.tree.map(lambda x: ungrouped(x[-1]), found[1])
