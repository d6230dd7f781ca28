"""JAX side of :func:`olsq.online_lstsq`, also with time in pieces, one per device.

Pieces exchange only moments of whole pieces.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array, lax
from numpy.typing import ArrayLike

from olsq.arrays.checks import check_choice, concrete
from olsq.problem import Moments, Sizes, Solution, Stats, error_bounds
from olsq.sequence.jax.autodiff import solve_in_groups
from olsq.sequence.jax.control import in_shard_map, scan
from olsq.sequence.jax.gates import lost_tokens, states_before
from olsq.sequence.jax.grid import Grid
from olsq.sequence.jax.inputs import Stream, check
from olsq.sequence.jax.pieces import pieces_of
from olsq.sequence.jax.platform import (
    Target,
    by_platform,
    given_target,
    in_full_precision,
    tuned_for,
)
from olsq.sequence.jax.primitive import solve_by_primitive
from olsq.sequence.jax.solver import JaxSolver
from olsq.sequence.jax.tiles import (
    Carry,
    TokenSizes,
    chunk_length,
    cut_into_tiles,
    final_moments,
    initial_carry,
    open_tile,
)
from olsq.solvers import ChunkExact, Solver


def online_lstsq(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    ridge: ArrayLike | None = None,
    ridge_mode: Literal["fixed", "discounted"] = "fixed",
    state: Moments | None = None,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
) -> Solution[Array]:
    """Run :func:`olsq.online_lstsq`, which documents it, in JAX, for NumPy arrays too.

    Every array is converted: float64 needs ``jax_enable_x64``, and ``Solution`` holds JAX arrays.
    """
    check_choice(adjoint, "adjoint", ("implicit", "unrolled"))
    stream, batch, dtype = check(
        keys, values, queries, forget, log_forget, weight, ridge, ridge_mode, state
    )
    chosen = ChunkExact() if solver is None else solver
    chosen.check_ridge_mode(ridge_mode, forgets=stream.forget is not None)
    sized = chosen.sized(chunk_length(stream.keys.shape[2]))
    sized.review(*(None if g is None else concrete(g) for g in (stream.log_forget, stream.forget)))
    unrolls = adjoint == "unrolled" and chosen.truncates
    if unrolls:
        chosen.check_unrolled()
    length, m = stream.values.shape[1:]
    if 0 in (length, *batch):
        value, empty = jnp.zeros((*batch, length, m), dtype), jnp.zeros((*batch, length))
        stats = Stats(jnp.zeros((*batch, length), jnp.int32), empty, empty, empty)
        final = stream.state
    else:
        shards = max(chosen.shards, pieces_of(length))
        value, final, sizes = solve_stream(stream, chosen, unrolls, shards, given_target())
        stats = certify(stream, value, sizes, dtype)
        value = value.reshape(*batch, length, m).astype(dtype)
        stats = Stats(*(s.reshape(*batch, length) for s in stats))
    final = Moments(*(s.reshape(*batch, *s.shape[1:]) for s in final))
    return Solution(value, final, stats)


@partial(jax.jit, static_argnames=("solver", "unrolls", "shards", "on"))
@in_full_precision
def solve_stream(
    stream: Stream, solver: Solver, unrolls: bool, shards: int = 1, on: Target | None = None
) -> tuple[Array, Moments[Array], TokenSizes]:
    """Solve a flat batch: outputs (B, T, m), final moments, sizes (B, T).

    A solver without a chunk length gets that of the platform that the program is lowered for, or of
    the target ``on``.
    """
    stream = mask_unsolvable(stream)  # of whole streams: pieces do not know of resets before them

    def choose(target: Target) -> tuple[JaxSolver, Grid]:
        form = solver.sized(chunk_length(stream.keys.shape[2], target)).jax()
        with tuned_for(target):
            return form, Grid.of(stream, form.options.chunk)

    def run(choice: tuple[JaxSolver, Grid]) -> Any:
        return _solve_stream(stream, choice[0], unrolls, shards)

    with tuned_for(on):
        return by_platform(choose, run)


def mask_unsolvable(stream: Stream) -> Stream:
    """Replace queries without a unique answer by NaN.

    In the discounted problem a gate of 0 forgets the ridge too: until d samples have come, counting
    its own, the system is singular. (A given state may be singular as well; that is not checked
    here.)
    """
    if stream.ridge is not None or stream.forget is None:
        return stream
    counts = jnp.ones_like(stream.forget) if stream.weight is None else stream.weight > 0
    total = jnp.cumsum(counts.astype(jnp.int32), axis=1)
    before = jnp.where(stream.forget == 0, total - counts.astype(jnp.int32), -1)
    start = jax.lax.cummax(before, axis=1)
    # fewer than d samples since the last reset
    few = (start >= 0) & (total - start < stream.keys.shape[-1])
    return stream._replace(queries=jnp.where(few[..., None], jnp.nan, stream.queries))


def _solve_stream(
    stream: Stream, solver: JaxSolver, unrolls: bool, shards: int
) -> tuple[Array, Moments[Array], TokenSizes]:
    """Run :func:`solve_stream` with a solver whose chunks have a length."""
    b, length, _ = stream.values.shape
    if shards > 1:
        pieces, last = split_time(stream, solver.options.chunk, shards)
        value, _, sizes = solve_all(pieces, solver, unrolls)
        return (
            join_shards(value, b, length),
            last,
            TokenSizes(*(join_shards(s, b, length) for s in sizes)),
        )
    return solve_all(stream, solver, unrolls)


def solve_all(
    stream: Stream, solver: JaxSolver, unrolls: bool
) -> tuple[Array, Moments[Array], TokenSizes]:
    """Solve a flat batch as :func:`solve_stream`, without splitting time into pieces."""
    if unrolls or in_shard_map():
        return solve_in_groups(stream, solver, unrolls)
    return solve_by_primitive(stream, solver)


@partial(jax.jit, static_argnames="dtype")
@in_full_precision
def certify(stream: Stream, value: Array, sizes: TokenSizes, dtype: Any) -> Stats[Array]:
    """Compute residuals and error bounds (B, T) of a flat batch whose outputs have ``dtype``."""
    stream, value, sizes = jax.lax.stop_gradient((stream, value, sizes))
    query, known = sizes.query, jnp.isfinite(value).all(-1)
    ridge = jnp.zeros((), query.dtype) if stream.ridge is None else stream.ridge.max(-1)
    size = jnp.linalg.norm(value, axis=-1)
    parts = Sizes(query, sizes.solution, sizes.left, sizes.trace, ridge, sizes.cross, size)
    floor, eps = least_eigenvalue(stream), float(jnp.finfo(query.dtype).eps)
    out_eps = float(jnp.finfo(dtype).eps)
    bounds = error_bounds(parts, floor, query.shape[1], eps, out_eps if out_eps > eps else 0.0)
    bounds = (jnp.where(known & (floor > 0) & ~jnp.isnan(x), x, jnp.inf) for x in bounds)
    residual = jnp.where(query > 0, sizes.left / jnp.where(query > 0, query, 1), 0)
    return Stats(sizes.steps, residual, *bounds)


def least_eigenvalue(stream: Stream) -> Array:
    """Bound the eigenvalues of every token's system from below, (B, T) or (B, 1), by its ridge."""
    if stream.ridge is not None:
        return stream.ridge.min(-1)
    assert stream.floor is not None
    if stream.forget is None or stream.log_forget is None:
        return stream.floor[:, None]
    left = jnp.exp(jnp.cumsum(jnp.nan_to_num(stream.log_forget), axis=1))
    reset = jnp.cumsum(stream.forget == 0, axis=1) > 0
    return jnp.where(reset, 0, left) * stream.floor[:, None]


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
    tiles, ridge = cut_into_tiles(pieces, chunk)

    def walk(carry: Carry, tile: Any) -> tuple[Carry, None]:
        return open_tile(tile, ridge, carry)[1], None

    totals = scan(walk, initial_carry(empty), tiles)[0]

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
