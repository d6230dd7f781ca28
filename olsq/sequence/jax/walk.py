"""All tiles of a batch in one loop, forwards and, for the gradient, backwards.

A step of the loop reads its tile from the arrays as they are and writes its outputs where they
belong, so nothing is laid out anew, before or after.  The forward loop can keep what the backward
one needs: factors, solutions, and the moments before each tile.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.problem import Moments
from olsq.sequence.jax.adjoint import TileGradient, tile_gradient
from olsq.sequence.jax.inputs import Stream
from olsq.sequence.jax.solver import JaxSolver
from olsq.sequence.jax.tiles import (
    Carry,
    Tile,
    TokenSizes,
    final_moments,
    group_count,
    initial_carry,
    open_tile,
    tile_outputs,
    tile_shape,
)

Nest = Any


class Kept(NamedTuple):
    """What the backward loop needs of the forward one; the batch is the leading axis of all."""

    solution: Array  # (B, T', d), T' a whole number of tiles
    factors: tuple[Array, ...]  # (B, chunks, ...): what the solver says
    gram: Array  # (B, tiles, d, d), before each tile
    cross: Array  # (B, tiles, m, d)
    lost: Array  # (B, tiles + 1) bool: a loss reaches this tile, and the end


class Grid(NamedTuple):
    """How a batch is cut: groups of streams, and tiles of ``n`` chunks of ``c`` tokens."""

    groups: int
    streams: Any  # of a group
    tiles: int  # of a stream
    n: int
    c: int

    @classmethod
    def of(cls, stream: Stream, chunk: int) -> Grid:
        """The cut of ``stream``."""
        groups, (b, length, d) = group_count(stream, chunk), stream.keys.shape
        streams = b if groups == 1 else b // groups
        return cls(groups, streams, *tile_shape(streams, length, d, chunk))

    @property
    def length(self) -> int:
        """Tokens of a stream with those that pad it."""
        return self.tiles * self.n * self.c

    def place(self, i: Array) -> tuple[Array | int, Array]:
        """Where step i is: its first stream, and the number of its tile."""
        if self.groups == 1:
            return 0, i
        return i // self.tiles * self.streams, i % self.tiles

    def take(self, x: Any, i: Any, each: int | None = None) -> Any:
        """From x (B, tiles * each, ...) what belongs to step i, (streams, each, ...).

        Without ``each``, from x (B, ...) what belongs to the streams of step i.
        """
        first, tile = self.place(i)
        if each is None:
            return x if self.groups == 1 else jax.lax.dynamic_slice_in_dim(x, first, self.streams)
        at = (first, tile * each, *[0] * (x.ndim - 2))
        return jax.lax.dynamic_slice(x, at, (self.streams, each, *x.shape[2:]))

    def put(self, x: Array, part: Array, i: Any, each: int | None = None) -> Array:
        """x with what :meth:`take` takes of it replaced by ``part``."""
        first, tile = self.place(i)
        if each is None:
            if self.groups == 1:
                return part
            return jax.lax.dynamic_update_slice_in_dim(x, part, first, 0)
        return jax.lax.dynamic_update_slice(x, part, (first, tile * each, *[0] * (x.ndim - 2)))

    def room(self, part: Any, each: int | None = None) -> Array:
        """Zeros for the ``part`` of every step."""
        b = self.streams if self.groups == 1 else self.groups * self.streams
        rest = part.shape[1:] if each is None else (self.tiles * each, *part.shape[2:])
        return jnp.zeros((b, *rest), part.dtype)

    def by_chunk(self, x: Any) -> Any:
        """(streams, n c, ...) to (streams, n, c, ...)."""
        return None if x is None else x.reshape(x.shape[0], self.n, self.c, *x.shape[2:])

    def by_token(self, x: Array) -> Array:
        """The reverse of :meth:`by_chunk`."""
        return x.reshape(x.shape[0], self.n * self.c, *x.shape[3:])

    def tile(self, stream: Stream, i: Any) -> tuple[Tile, Any]:
        """The tile of step i, and the ridge that its tokens share."""
        each = self.n * self.c

        def cut(x: Any) -> Any:
            return None if x is None else self.by_chunk(self.take(x, i, each))

        ridge, shared = stream.ridge, None
        if ridge is not None and ridge.shape[1] == 1:
            ridge, shared = None, self.take(ridge, i)[:, :, None]
        return Tile(
            cut(stream.keys),
            cut(stream.values),
            cut(stream.queries),
            cut(stream.forget),
            cut(stream.log_forget),
            cut(stream.weight),
            cut(ridge),
        ), shared


def padded(stream: Stream, grid: Grid) -> Stream:
    """``stream`` with absent tokens up to a whole number of tiles."""
    length = stream.keys.shape[1]

    def pad(x: Any, fill: float = 0.0) -> Any:
        if x is None or x.shape[1] != length or grid.length == length:
            return x
        spare = [(0, 0), (0, grid.length - length)] + [(0, 0)] * (x.ndim - 2)
        return jnp.pad(x, spare, constant_values=fill)

    return stream._replace(
        keys=pad(stream.keys),
        values=pad(stream.values),
        queries=pad(stream.queries),
        forget=pad(stream.forget, 1.0),
        log_forget=pad(stream.log_forget),
        weight=pad(stream.weight),
        ridge=pad(stream.ridge, 1.0),
    )


@partial(jax.jit, static_argnames="solver", inline=True)
def _tile_forward(tile: Tile, ridge: Any, carry: Carry, solver: JaxSolver) -> tuple[Any, ...]:
    """The carry after a tile, its outputs by token, and what the backward pass keeps of it."""
    chunks, after = open_tile(tile, ridge, carry)
    prepared = solver.prepare(chunks)
    value, sizes, x = tile_outputs(chunks, lambda q: solver.solve(chunks, prepared, q))
    return after, (value, sizes, x), solver.saved(prepared)


def forward(
    stream: Stream, solver: JaxSolver, keep: bool
) -> tuple[Array, Moments[Array], TokenSizes, Any]:
    """Outputs (B, T, m), final moments, sizes (B, T), and :class:`Kept` or None."""
    grid, length = Grid.of(stream, solver.options.chunk), stream.keys.shape[1]
    stream, start = padded(stream, grid), initial_carry(stream.state)
    each = grid.n * grid.c

    def step(state: Any, i: Array) -> Any:
        carry, ends, tokens, factors, befores = state
        if grid.groups > 1:
            fresh = i % grid.tiles == 0
            carry = jax.tree.map(lambda s, c: jnp.where(fresh, grid.take(s, i), c), start, carry)
        after, made, saved = _tile_forward(*grid.tile(stream, i), carry, solver)
        tokens = put_all(tokens, jax.tree.map(grid.by_token, drop(made)), i, each)
        ends = jax.tree.map(lambda x, y: grid.put(x, y, i), ends, after)
        if keep:
            factors = put_all(factors, saved, i, grid.n)
            befores = put_all(befores, jax.tree.map(lambda x: x[:, None], carry), i, 1)
        return (after, ends, tokens, factors, befores), None

    def put_all(whole: Nest, parts: Nest, i: Array, each: int) -> Nest:
        return jax.tree.map(lambda x, y: grid.put(x, y, i, each), whole, parts)

    def drop(made: Any) -> Any:
        return made if keep else made[:2]

    first = jax.tree.map(lambda s: grid.take(s, 0), start)
    after, made, saved = jax.eval_shape(
        lambda stream, carry: _tile_forward(*grid.tile(stream, 0), carry, solver), stream, first
    )
    rooms = (
        jax.tree.map(grid.room, after),
        jax.tree.map(lambda x: grid.room(jax.eval_shape(grid.by_token, x), each), drop(made)),
        jax.tree.map(lambda x: grid.room(x, grid.n), saved) if keep else (),
        jax.tree.map(lambda x: grid.room(x[:, None], 1), first) if keep else (),
    )
    count = grid.groups * grid.tiles
    (_, ends, tokens, factors, befores), _ = jax.lax.scan(step, (first, *rooms), jnp.arange(count))
    kept = None
    if keep:
        lost = jnp.concatenate([befores.state_lost, ends.state_lost[:, None]], 1)
        kept = Kept(tokens[2], factors, befores.gram, befores.cross, lost)
    value, sizes = jax.tree.map(lambda x: x[:, :length], tokens[:2])
    return value, final_moments(ends), sizes, kept


class Cotangents(NamedTuple):
    """Of everything that a stream can be differentiated by; None where it has none."""

    keys: Array
    values: Array
    queries: Array
    forget: Any
    weight: Any
    ridge: Any
    gram: Array
    cross: Array


@partial(jax.jit, static_argnames="solver", inline=True)
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
    """The gradient of a tile whose outputs have the cotangent ``do``."""
    chunks, after = open_tile(tile, ridge, carry)
    prepared = solver.restored(chunks, saved)
    end = Moments(after.gram, after.cross)
    return tile_gradient(tile, chunks, end, solver, prepared, x, do, d_end)


def backward(
    stream: Stream, solver: JaxSolver, kept: Kept, d_value: Array, d_moments: Moments[Array]
) -> Cotangents:
    """Cotangents of a stream from those of its outputs (B, T, m) and of its final moments."""
    grid, length = Grid.of(stream, solver.options.chunk), stream.keys.shape[1]
    each, count = grid.n * grid.c, grid.groups * grid.tiles
    given, stream = stream, padded(stream, grid)
    d_value = jnp.pad(d_value, [(0, 0), (0, grid.length - length), (0, 0)])
    d_last = Moments(*(jnp.where(kept.lost[:, -1, None, None], 0, d) for d in d_moments))
    shared = given.ridge is not None and given.ridge.shape[1] == 1

    def step(state: Any, i: Array) -> Any:
        d_end, d_shared, tokens, starts = state
        if grid.groups > 1:
            fresh = i % grid.tiles == grid.tiles - 1
            d_end = jax.tree.map(lambda s, c: jnp.where(fresh, grid.take(s, i), c), d_last, d_end)
            d_shared = jax.tree.map(lambda c: jnp.where(fresh, 0, c), d_shared)
        tile, ridge = grid.tile(stream, i)
        gram, cross, lost = (
            grid.take(s, i, 1)[:, 0] for s in (kept.gram, kept.cross, kept.lost)
        )
        x, do = (grid.by_chunk(grid.take(a, i, each)) for a in (kept.solution, d_value))
        saved = jax.tree.map(lambda x: grid.take(x, i, grid.n), kept.factors)
        made = _tile_backward(tile, ridge, Carry(gram, cross, lost), x, saved, do, d_end, solver)
        d_end = Moments(made.gram, made.cross)
        if shared:
            d_shared = d_shared + made.ridge.sum((1, 2))[:, None]
        parts = by_token(made)
        tokens = jax.tree.map(lambda x, y: grid.put(x, y, i, each), tokens, parts)
        starts = jax.tree.map(lambda x, y: grid.put(x, y, i), starts, (d_end, d_shared))
        return (d_end, d_shared, tokens, starts), None

    def by_token(made: TileGradient) -> dict[str, Array]:
        names = ("keys", "values", "queries", "forget", "weight", "ridge")
        wanted = {n: getattr(made, n) for n in names if getattr(given, n) is not None}
        if shared:
            del wanted["ridge"]
        return {n: grid.by_token(x) for n, x in wanted.items()}

    rooms = {
        n: jnp.zeros_like(getattr(stream, n))
        for n in ("keys", "values", "queries", "forget", "weight", "ridge")
        if getattr(given, n) is not None and not (n == "ridge" and shared)
    }
    d_end = jax.tree.map(lambda s: grid.take(s, 0), d_last)
    d_shared = jnp.zeros_like(grid.take(given.ridge, 0)) if shared else ()
    starts = (d_last, jnp.zeros_like(given.ridge) if shared else ())
    (_, _, tokens, (d_start, d_ridge)), _ = jax.lax.scan(
        step, (d_end, d_shared, rooms, starts), jnp.arange(count), reverse=True
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
