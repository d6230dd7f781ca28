"""Loops over all tiles of a batch: outputs and their cotangents.

:func:`walk` is the one loop. A step reads its tile in place and writes its results into place, so
that no array is copied into another layout; its derivatives are written by hand
(:mod:`~olsq.sequence.jax.adjoint`). Where JAX has to differentiate the loop, it is ``stacked``:
tiles are scanned over as one more axis, because the transpose of reading in place would add up
arrays of all tokens at every tile. That is so of unrolled steps, of forward mode, of derivatives of
the second order and more, and of whatever is inside ``shard_map``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxpr_as_fun

from olsq.problem import Moments
from olsq.sequence.jax.adjoint import Cotangents, tile_gradient
from olsq.sequence.jax.control import custom_linear_solve, scan, vary_together
from olsq.sequence.jax.factor import save_factors
from olsq.sequence.jax.inputs import Stream
from olsq.sequence.jax.solver import Chunks, JaxSolver, system_product
from olsq.sequence.jax.tiles import (
    Carry,
    Grid,
    TokenSizes,
    final_moments,
    finite_queries,
    initial_carry,
    open_tile,
    pad_tokens,
    tile_outputs,
)

# Tokens up to which solutions and factors, three numbers for each number of a key, are kept for the
# derivative. Of longer sequences only the moments before each tile are, and the derivative solves
# each tile again.
LONG = 2**16


class Parts(NamedTuple):
    """Nests of arrays by what they have one entry of: those of a batch, or those of a tile."""

    tokens: Any = ()  # (B, T', ...), T' a whole number of tiles; of a tile (streams, n, c, ...)
    chunks: Any = ()  # (B, chunks, ...); of a tile (streams, n, ...)
    tiles: Any = ()  # (B, tiles, ...); of a tile (streams, ...)
    streams: Any = ()  # (B, ...); of a tile (streams, ...)


def walk(
    step: Callable[[Any, Parts], tuple[Any, Parts]],
    grid: Grid,
    start: Any,
    parts: Parts,
    *,
    reverse: bool = False,
    stacked: bool = False,
) -> tuple[Any, Parts]:
    """Run ``step`` over all tiles of a batch, in time order or in reverse.

    A step maps a carry and the parts of a tile to the next carry and the tile's results. Each
    stream begins with its entry of ``start`` (B, ...). Returns the carries (B, ...) at the end, and
    all results. Loops that are ``stacked`` can be differentiated.
    """
    count = grid.groups * grid.tiles
    one, batch = grid.streams, grid.streams if grid.groups == 1 else grid.groups * grid.streams
    leading = Parts((one, grid.n, grid.c), (one, grid.n), (one,), None)  # axes of a tile's arrays

    def over(function: Callable[..., Any], *nests: Parts) -> Parts:
        pairs = zip(leading, *nests, strict=True)
        return Parts(*(jax.tree.map(partial(function, axes), *trees) for axes, *trees in pairs))

    def place(i: Any, axes: Any, x: Array) -> tuple[Any, ...]:
        """Return the index at which the part of step i begins in x."""
        first, tile = (0, i) if grid.groups == 1 else (i // grid.tiles * one, i % grid.tiles)
        at = (first,) if axes is None else (first, tile * math.prod(axes[1:]))
        return (*at, *[0] * (x.ndim - len(at)))

    def read(i: Any, axes: Any, x: Array) -> Array:
        if axes is None:
            if grid.groups == 1:
                return x
            return jax.lax.dynamic_slice(x, place(i, axes, x), (one, *x.shape[1:]))
        sizes = (one, math.prod(axes[1:]), *x.shape[2:])
        part = jax.lax.dynamic_slice(x, place(i, axes, x), sizes)
        return part.reshape(*axes, *x.shape[2:])

    def write(i: Any, axes: Any, x: Array, part: Array) -> Array:
        if axes is not None:
            part = part.reshape(one, math.prod(axes[1:]), *x.shape[2:])
        return jax.lax.dynamic_update_slice(x, part, place(i, axes, x))

    def allocate(axes: Any, part: Any) -> Array:
        tail = part.shape[len(axes) :]
        return jnp.zeros((batch, grid.tiles * math.prod(axes[1:]), *tail), part.dtype)

    def stack(axes: Any, x: Array) -> Array:
        # Steps cut the streams of a tile apart: XLA copies arrays that have an axis of length 1.
        x = x.reshape(grid.groups, one, grid.tiles, math.prod(axes[1:]), *x.shape[2:])
        return jnp.moveaxis(x, 2, 1).reshape(count, math.prod(axes), *x.shape[4:])

    def unstack(axes: Any, x: Array) -> Array:
        tail = x.shape[1 + len(axes) :]
        x = jnp.moveaxis(x.reshape(grid.groups, grid.tiles, *axes, *tail), 2, 1)
        return x.reshape(batch, grid.tiles * math.prod(axes[1:]), *tail)

    def run(state: Any, at: tuple[Array, Parts]) -> tuple[Any, Any]:
        (carry, ends, rooms), (i, part) = state, at
        if grid.groups > 1:
            fresh = i % grid.tiles == (grid.tiles - 1 if reverse else 0)
            begun = jax.tree.map(partial(read, i, None), start)
            carry = jax.tree.map(partial(jnp.where, fresh), begun, carry)
        if stacked:
            part = over(lambda axes, x: x.reshape(*axes, *x.shape[1:]), part)
            shared = jax.tree.map(partial(read, i, None), parts.streams)
            part = part._replace(streams=shared)
        else:
            part = over(partial(read, i), parts)
        carry, results = step(carry, part)
        if grid.groups > 1:
            ends = jax.tree.map(partial(write, i, None), ends, carry)
        if stacked:
            return (carry, ends, rooms), results
        return (carry, ends, over(partial(write, i), rooms, results)), ()

    first = jax.tree.map(partial(read, 0, None), start)
    tiles, rooms = Parts(), Parts()
    if stacked:
        tiles = over(stack, parts._replace(streams=()))
    else:
        part = over(partial(read, 0), parts)
        traced, shapes = jax.make_jaxpr(step, return_shape=True)(first, part)
        rooms = over(allocate, shapes[1])
        step = _repeat(traced, jax.tree.structure(shapes))
    state = (first, () if grid.groups == 1 else start, rooms)
    over_tiles = jnp.arange(count), tiles
    (carry, ends, rooms), results = scan(run, state, over_tiles, reverse=reverse)
    return carry if grid.groups == 1 else ends, over(unstack, results) if stacked else rooms


def _repeat(traced: Any, structure: Any) -> Callable[..., Any]:
    """Return a function of nests that was traced as a function of arrays, so as not to trace it
    again.
    """
    flat = jaxpr_as_fun(traced)
    return lambda *nests: jax.tree.unflatten(structure, flat(*jax.tree.leaves(nests)))


def samples(stream: Stream, chunk: int) -> tuple[Grid, Carry, Parts]:
    """Return what :func:`walk` takes to run over the samples of a stream, from its moments on."""
    grid = Grid.of(stream, chunk)
    tile, ridge = pad_tokens(stream, grid.length - stream.keys.shape[1])
    return grid, initial_carry(stream.state), Parts(tile, streams=ridge)


class Kept(NamedTuple):
    """Values of the forward loop that derivatives need, the batch as the leading axis of all."""

    solution: Any  # (B, T', d), T' a whole number of tiles; None: to be solved again
    factors: tuple[Array, ...]  # (B, chunks, ...): what the solver says
    gram: Array  # (B, tiles, d, d), before each tile
    cross: Array  # (B, tiles, m, d)
    lost: Array  # (B, tiles + 1) bool: a loss reaches this tile, and the end

    def carries(self) -> Carry:
        """Return the carries before all tiles."""
        return Carry(self.gram, self.cross, self.lost[:, :-1])

    def without_lost(self, at: int, moved: Any) -> Moments[Array]:
        """Zero tangents of moments that are lost: at 0 before the first tile, at -1 at the end."""
        lost = self.lost[:, at, None, None]
        return Moments(*(jnp.where(lost, 0, d) for d in moved))


def forward(stream: Stream, solver: JaxSolver) -> tuple[Array, Moments[Array], TokenSizes, Kept]:
    """Solve a stream: outputs (B, T, m), final moments, sizes (B, T), and what derivatives need."""
    length = stream.keys.shape[1]

    def step(carry: Carry, part: Parts) -> tuple[Carry, Parts]:
        chunks, after = open_tile(part.tokens, part.streams, carry)
        prepared, queries = solver.prepare(chunks), finite_queries(chunks)
        x, steps = solver.solve(chunks, prepared, queries)
        results = tile_outputs(chunks, queries, x, steps)
        if not isinstance(length, int) or length > LONG:
            return after, Parts((*results, None), (), carry)
        return after, Parts((*results, x), solver.saved(prepared), carry)

    ends, parts = walk(step, *samples(stream, solver.options.chunk))
    before, (*outputs, solution) = parts.tiles, parts.tokens
    lost = jnp.concatenate([before.state_lost, ends.state_lost[:, None]], 1)
    kept = Kept(solution, parts.chunks, before.gram, before.cross, lost)
    value, sizes = jax.tree.map(lambda x: x[:, :length], outputs)
    return value, final_moments(ends), sizes, kept


def solve_by_jax(
    stream: Stream, solver: JaxSolver, unrolls: bool
) -> tuple[Array, Moments[Array], TokenSizes]:
    """Solve a stream by functions that JAX differentiates, in any mode and to any order."""
    length = stream.keys.shape[1]

    def step(carry: Carry, part: Parts) -> tuple[Carry, Parts]:
        chunks, after = open_tile(part.tokens, part.streams, carry)
        queries = finite_queries(chunks)
        x, steps = solve_systems(chunks, queries, solver, unrolls)
        return after, Parts(tile_outputs(chunks, queries, x, steps))

    step = jax.checkpoint(step, policy=save_factors, prevent_cse=False)
    ends, parts = walk(step, *samples(stream, solver.options.chunk), stacked=True)
    value, sizes = jax.tree.map(lambda x: x[:, :length], parts.tokens)
    return value, final_moments(ends), sizes


def solve_systems(
    chunks: Chunks, queries: Array, solver: JaxSolver, unrolls: bool
) -> tuple[Array, Array]:
    """Solve ``q*_t = (H_t + Lambda_t)^{-1} q_t`` with implicit or unrolled derivatives.

    Implicit: from ``M q* = q``, ``dq* = M^{-1} (dq - dM q*)``, and in reverse ``e* = M^{-1} g``
    gives ``dq = e*`` and ``dM = -e* q*^T``: one more solve with the same factors, then the
    derivative of the product ``M x``, which is two gated linear attentions.  It is linear and can
    be transposed and differentiated again, so JVP, VJP and higher orders all follow.
    """
    chunks, queries = vary_together((chunks, queries))
    if unrolls:
        return solver.solve_unrolled(chunks, solver.prepare(chunks), queries)
    constant = jax.lax.stop_gradient(chunks)
    prepared = solver.prepare(constant)
    product = partial(system_product, chunks)

    def solve(_: Any, b: Array) -> tuple[Array, Array]:
        return solver.solve(constant, prepared, b)

    # Systems are symmetric: a solver without a solve of its own for the transpose reuses its solve.
    if type(solver).solve_transposed is JaxSolver.solve_transposed:
        return custom_linear_solve(product, queries, solve, symmetric=True, has_aux=True)

    def transposed(_: Any, b: Array) -> tuple[Array, Array]:
        return solver.solve_transposed(constant, prepared, b)

    return custom_linear_solve(product, queries, solve, transposed, has_aux=True)


def moments_after(stream: Stream, chunk: int) -> Carry:
    """Compute the moments after the last token of each stream, and which of them were lost."""

    def step(carry: Carry, part: Parts) -> tuple[Carry, Parts]:
        return open_tile(part.tokens, part.streams, carry)[1], Parts()

    return walk(step, *samples(stream, chunk), stacked=True)[0]


def backward(
    stream: Stream, solver: JaxSolver, kept: Kept, d_value: Array, d_moments: Moments[Array]
) -> Cotangents:
    """Compute a stream's cotangents from those of its outputs (B, T, m) and final moments."""
    grid = Grid.of(stream, solver.options.chunk, kept.gram.shape[1])
    length = stream.keys.shape[1]
    tile, ridge = pad_tokens(stream, grid.length - length)
    d_value = jnp.pad(d_value, [(0, 0), (0, grid.length - length), (0, 0)])

    def step(state: Any, part: Parts) -> tuple[Any, Parts]:
        (tile, x, do), (d_end, d_ridge) = part.tokens, state
        gradient = tile_gradient(
            tile, part.streams, part.tiles, (x, part.chunks), do, d_end, solver
        )
        if part.streams is not None:
            d_ridge = d_ridge + gradient.ridge.sum((1, 2))[:, None]
        token_ridge = None if tile.ridge is None else gradient.ridge
        by_token = *gradient[:5], token_ridge
        return (Moments(gradient.gram, gradient.cross), d_ridge), Parts(by_token)

    parts = Parts((tile, kept.solution, d_value), kept.factors, kept.carries(), ridge)
    d_ridge = None if ridge is None else jnp.zeros_like(ridge[:, :, 0])
    start = kept.without_lost(-1, d_moments), d_ridge
    (d_start, d_ridge), results = walk(step, grid, start, parts, reverse=True)
    *by_token, token_ridge = jax.tree.map(lambda x: x[:, :length], results.tokens)
    d_ridge = d_ridge if token_ridge is None else token_ridge
    return Cotangents._make((*by_token, d_ridge, *kept.without_lost(0, d_start)))
