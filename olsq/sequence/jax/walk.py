"""Loop over all tiles of a batch, forwards and, for the gradient, backwards.

A step of the loop slices its tile out of the arrays and writes its outputs into place, so that no
array is copied into another layout. The forward loop can keep what the backward one needs: factors,
solutions, and the moments before each tile.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.problem import Moments
from olsq.sequence.jax.adjoint import TileGradient, tile_gradient, tile_tangent
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.grid import Grid, pad_to_tiles
from olsq.sequence.jax.inputs import Stream
from olsq.sequence.jax.solver import JaxSolver
from olsq.sequence.jax.tiles import (
    Carry,
    Tile,
    TokenSizes,
    final_moments,
    initial_carry,
    open_tile,
    tile_outputs,
)

Nest = Any


class Kept(NamedTuple):
    """Values of the forward loop that the backward loop needs.

    The batch is the leading axis of all.

    For a long sequence, only the moments before each of its blocks; see
    :mod:`~olsq.sequence.jax.blocks`.
    """

    solution: Any  # (B, T', d), T' a whole number of tiles; None: blocks
    factors: tuple[Array, ...]  # (B, chunks, ...): what the solver says
    gram: Array  # (B, tiles, d, d), before each tile
    cross: Array  # (B, tiles, m, d)
    lost: Any  # (B, tiles + 1) bool: a loss reaches this tile, and the end; None: blocks


@partial(compile_once, static_argnames="solver", inline=True)
def _tile_forward(tile: Tile, ridge: Any, carry: Carry, solver: JaxSolver) -> tuple[Any, ...]:
    """Solve one tile: the carry after it, its outputs by token, what the backward pass keeps."""
    chunks, after = open_tile(tile, ridge, carry)
    prepared = solver.prepare(chunks)
    value, sizes, x = tile_outputs(chunks, lambda q: solver.solve(chunks, prepared, q))
    return after, (value, sizes, x), solver.saved(prepared)


def forward(
    stream: Stream, solver: JaxSolver, keep: bool
) -> tuple[Array, Moments[Array], TokenSizes, Any]:
    """Solve a stream: outputs (B, T, m), final moments, sizes (B, T), and :class:`Kept` or None."""
    grid, length = Grid.of(stream, solver.options.chunk), stream.keys.shape[1]
    stream, start = pad_to_tiles(stream, grid, length), initial_carry(stream.state)
    each = grid.n * grid.c

    def step(state: Any, i: Array) -> Any:
        carry, ends, tokens, factors, befores = state
        if grid.groups > 1:
            fresh = i % grid.tiles == 0
            carry = jax.tree.map(lambda s, c: jnp.where(fresh, grid.read(s, i), c), start, carry)
        after, made, saved = _tile_forward(*grid.tile(stream, i), carry, solver)
        tokens = put_all(tokens, jax.tree.map(grid.by_token, drop(made)), i, each)
        ends = jax.tree.map(lambda x, y: grid.write(x, y, i), ends, after)
        if keep:
            factors = put_all(factors, saved, i, grid.n)
            befores = put_all(befores, jax.tree.map(lambda x: x[:, None], carry), i, 1)
        return (after, ends, tokens, factors, befores), None

    def put_all(whole: Nest, parts: Nest, i: Array, each: int) -> Nest:
        return jax.tree.map(lambda x, y: grid.write(x, y, i, each), whole, parts)

    def drop(made: Any) -> Any:
        return made if keep else made[:2]

    first = jax.tree.map(lambda s: grid.read(s, 0), start)
    after, made, saved = jax.eval_shape(
        lambda stream, carry: _tile_forward(*grid.tile(stream, 0), carry, solver), stream, first
    )
    rooms: Any = (
        jax.tree.map(grid.allocate, after),
        jax.tree.map(lambda x: grid.allocate(jax.eval_shape(grid.by_token, x), each), drop(made)),
        jax.tree.map(lambda x: grid.allocate(x, grid.n), saved) if keep else (),
        jax.tree.map(lambda x: grid.allocate(x[:, None], 1), first) if keep else (),
    )
    count = grid.groups * grid.tiles
    (_, ends, tokens, factors, befores), _ = jax.lax.scan(step, (first, *rooms), jnp.arange(count))
    kept = None
    if keep:
        lost = jnp.concatenate([befores.state_lost, ends.state_lost[:, None]], 1)
        kept = Kept(tokens[2], factors, befores.gram, befores.cross, lost)
    value, sizes = jax.tree.map(lambda x: x[:, :length], tokens[:2])
    return value, final_moments(ends), sizes, kept


@partial(compile_once, static_argnames="solver", inline=True)
def _tile_tangent(
    tile: Tile,
    ridge: Any,
    carry: Carry,
    x: Array,
    saved: Nest,
    moved: tuple[Tile, Any, Moments[Array]],
    solver: JaxSolver,
) -> tuple[Array, Moments[Array]]:
    """Compute the tangents of a tile's outputs and of the moments after it."""
    return tile_tangent(tile, ridge, carry, solver, saved, x, *moved)


def tangent(
    stream: Stream, solver: JaxSolver, kept: Kept, moved: Stream
) -> tuple[Array, Moments[Array]]:
    """Compute tangents of outputs and final moments from those of the stream.

    A tangent of None is zero.
    """
    grid, length = Grid.of(stream, solver.options.chunk), stream.keys.shape[1]
    each, count = grid.n * grid.c, grid.groups * grid.tiles
    stream, moved = pad_to_tiles(stream, grid, length), pad_to_tiles(moved, grid, length, 0.0)
    lost = kept.lost[:, 0, None, None]
    start = Moments(
        *(
            jnp.zeros_like(s) if d is None else jnp.where(lost, 0, d)
            for s, d in zip(stream.state, moved.state, strict=True)
        )
    )

    def step(state: Any, i: Array) -> Any:
        before, value, ends = state
        if grid.groups > 1:
            fresh = i % grid.tiles == 0
            before = jax.tree.map(lambda s, c: jnp.where(fresh, grid.read(s, i), c), start, before)
        gram, cross, lost = (grid.read(s, i, 1)[:, 0] for s in (kept.gram, kept.cross, kept.lost))
        x = grid.by_chunk(grid.read(kept.solution, i, each))
        saved = jax.tree.map(lambda x: grid.read(x, i, grid.n), kept.factors)
        d_tile, d_ridge = grid.tile(moved, i)
        tile, ridge = grid.tile(stream, i)
        made, after = _tile_tangent(
            tile, ridge, Carry(gram, cross, lost), x, saved, (d_tile, d_ridge, before), solver
        )
        value = grid.write(value, grid.by_token(made), i, each)
        return (after, value, jax.tree.map(lambda e, a: grid.write(e, a, i), ends, after)), None

    first = jax.tree.map(lambda s: grid.read(s, 0), start)
    (_, value, ends), _ = jax.lax.scan(
        step, (first, jnp.zeros_like(stream.values), start), jnp.arange(count)
    )
    lost = kept.lost[:, -1, None, None]
    return value[:, :length], Moments(*(jnp.where(lost, 0, d) for d in ends))


class Cotangents(NamedTuple):
    """Cotangents of every differentiable part of a stream; None where it has none."""

    keys: Array
    values: Array
    queries: Array
    forget: Any
    weight: Any
    ridge: Any
    gram: Array
    cross: Array


@partial(compile_once, static_argnames="solver", inline=True)
def _tile_backward(
    tile: Tile,
    ridge: Any,
    carry: Carry,
    x: Array,
    saved: Nest,
    do: Array,
    d_end: Moments[Array],
    solver: JaxSolver,
) -> TileGradient:
    """Compute the gradient of a tile whose outputs have the cotangent ``do``."""
    chunks, after = open_tile(tile, ridge, carry)
    prepared = solver.restored(chunks, saved)
    end = Moments(after.gram, after.cross)
    return tile_gradient(tile, chunks, end, solver, prepared, x, do, d_end)


def backward(
    stream: Stream, solver: JaxSolver, kept: Kept, d_value: Array, d_moments: Moments[Array]
) -> Cotangents:
    """Compute a stream's cotangents from those of its outputs (B, T, m) and final moments."""
    grid, length = Grid.of(stream, solver.options.chunk), stream.keys.shape[1]
    each, count = grid.n * grid.c, grid.groups * grid.tiles
    ridge, stream = stream.ridge, pad_to_tiles(stream, grid, length)
    d_value = jnp.pad(d_value, [(0, 0), (0, grid.length - length), (0, 0)])
    d_last = Moments(*(jnp.where(kept.lost[:, -1, None, None], 0, d) for d in d_moments))
    shared = ridge is not None and ridge.shape[1] == 1
    d_ridge = jnp.zeros_like(ridge) if ridge is not None and shared else ()

    def step(state: Any, i: Array) -> Any:
        d_end, d_shared, tokens, starts = state
        if grid.groups > 1:
            fresh = i % grid.tiles == grid.tiles - 1
            d_end = jax.tree.map(lambda s, c: jnp.where(fresh, grid.read(s, i), c), d_last, d_end)
            d_shared = jax.tree.map(lambda c: jnp.where(fresh, 0, c), d_shared)
        tile, ridge = grid.tile(stream, i)
        gram, cross, lost = (grid.read(s, i, 1)[:, 0] for s in (kept.gram, kept.cross, kept.lost))
        x, do = (grid.by_chunk(grid.read(a, i, each)) for a in (kept.solution, d_value))
        saved = jax.tree.map(lambda x: grid.read(x, i, grid.n), kept.factors)
        made = _tile_backward(tile, ridge, Carry(gram, cross, lost), x, saved, do, d_end, solver)
        d_end = Moments(made.gram, made.cross)
        if shared:
            d_shared = d_shared + made.ridge.sum((1, 2))[:, None]
        parts = {n: grid.by_token(getattr(made, n)) for n in tokens}
        tokens = jax.tree.map(lambda x, y: grid.write(x, y, i, each), tokens, parts)
        starts = jax.tree.map(lambda x, y: grid.write(x, y, i), starts, (d_end, d_shared))
        return (d_end, d_shared, tokens, starts), None

    names = ["keys", "values", "queries", "forget", "weight", *([] if shared else ["ridge"])]
    rooms = {n: getattr(stream, n) for n in names}
    rooms = {n: jnp.zeros_like(x) for n, x in rooms.items() if x is not None}
    d_end = jax.tree.map(lambda s: grid.read(s, 0), d_last)
    d_shared = jax.tree.map(lambda x: grid.read(x, 0), d_ridge)
    state: Any = (d_end, d_shared, rooms, (d_last, d_ridge))
    (_, _, tokens, (d_start, d_ridge)), _ = jax.lax.scan(
        step, state, jnp.arange(count), reverse=True
    )
    tokens = {n: x[:, :length] for n, x in tokens.items()}
    lost = kept.lost[:, 0, None, None]
    return Cotangents(
        tokens["keys"],
        tokens["values"],
        tokens["queries"],
        tokens.get("forget"),
        tokens.get("weight"),
        d_ridge if shared else tokens.get("ridge"),
        *(jnp.where(lost, 0, d) for d in d_start),
    )
