"""The JAX function: one regression solved again after every token of a sequence."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from olsq.checks import check_choice, concrete
from olsq.problem import Moments, Sizes, Solution, Stats, error_bounds
from olsq.sequence.jax.chunks import Chunks, cross_norm, read_out, system_product, system_trace
from olsq.sequence.jax.control import custom_linear_solve, scan, together
from olsq.sequence.jax.factor import FACTOR
from olsq.sequence.jax.inputs import Stream, check, least_eigenvalue
from olsq.sequence.jax.pieces import pieces_of
from olsq.sequence.jax.precision import in_full_precision
from olsq.sequence.jax.shards import join, split
from olsq.sequence.jax.solver import JaxSolver
from olsq.sequence.jax.tiles import (
    Carry,
    Tile,
    cut_into_tiles,
    final_moments,
    finite,
    group_count,
    initial_carry,
    open_tile,
)
from olsq.solvers import ChunkExact, Solver

_FACTORS = jax.checkpoint_policies.save_only_these_names(FACTOR)


def save_factors(primitive: Any, *avals: Any, **params: Any) -> Any:
    """What a backward pass keeps of a tile: factors and solutions; it makes the rest again."""
    return primitive.name == "custom_linear_solve" or _FACTORS(primitive, *avals, **params)


class TokenSizes(NamedTuple):
    """What a tile says of each of its tokens, (B, n, C) each; see :class:`olsq.problem.Sizes`."""

    steps: Array
    query: Array
    solution: Array
    left: Array
    trace: Array
    cross: Array


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
    """The JAX side of :func:`olsq.online_lstsq`, which documents it, for NumPy arrays too.

    Every array is converted: float64 needs ``jax_enable_x64``, and ``Solution`` holds JAX arrays.
    """
    check_choice(adjoint, "adjoint", ("implicit", "unrolled"))
    chosen = ChunkExact() if solver is None else solver
    stream, batch, dtype = check(
        keys, values, queries, forget, log_forget, weight, ridge, ridge_mode, state
    )
    chosen.check_ridge_mode(ridge_mode, forgets=stream.forget is not None)
    chosen.review(*(None if g is None else concrete(g) for g in (stream.log_forget, stream.forget)))
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
        value, final, sizes = solve_stream(stream, chosen.jax(), unrolls, shards)
        stats = certify(stream, value, sizes, dtype)
        value = value.reshape(*batch, length, m).astype(dtype)
        stats = Stats(*(s.reshape(*batch, length) for s in stats))
    final = Moments(*(s.reshape(*batch, *s.shape[1:]) for s in final))
    return Solution(value, final, stats)


@partial(jax.jit, static_argnames=("solver", "unrolls", "shards"))
@in_full_precision
def solve_stream(
    stream: Stream, solver: JaxSolver, unrolls: bool, shards: int = 1
) -> tuple[Array, Moments[Array], TokenSizes]:
    """The whole computation on a flat batch: (B, T, m), final moments, sizes (B, T)."""
    b, length, _ = stream.values.shape
    if shards > 1:
        pieces, last = split(stream, solver.options.chunk, shards)
        value, _, sizes = solve_tiles(pieces, solver, unrolls)
        return join(value, b, length), last, TokenSizes(*(join(s, b, length) for s in sizes))
    groups = group_count(stream, solver.options.chunk)
    if groups == 1:
        return solve_tiles(stream, solver, unrolls)
    parts = jax.tree.map(lambda x: x.reshape(groups, b // groups, *x.shape[1:]), stream)
    out = jax.lax.map(lambda part: solve_tiles(part, solver, unrolls), parts)
    return jax.tree.map(lambda x: x.reshape(b, *x.shape[2:]), out)


@partial(jax.jit, static_argnames="dtype")
@in_full_precision
def certify(stream: Stream, value: Array, sizes: TokenSizes, dtype: Any) -> Stats[Array]:
    """Residuals and error bounds (B, T) of a flat batch whose outputs are to be of ``dtype``."""
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


def solve_tiles(
    stream: Stream, solver: JaxSolver, unrolls: bool
) -> tuple[Array, Moments[Array], TokenSizes]:
    """All tiles of ``stream``, one after another in time."""
    b, length, _ = stream.values.shape
    tiles, ridge = cut_into_tiles(stream, solver.options.chunk)

    def step(carry: Carry, tile: Tile) -> tuple[Carry, tuple[Array, TokenSizes]]:
        chunks, carry = open_tile(tile, ridge, carry)
        return carry, _solve_tile(chunks, solver, unrolls)

    checkpointed_step = jax.checkpoint(step, policy=save_factors, prevent_cse=False)
    carry, (value, sizes) = scan(checkpointed_step, initial_carry(stream.state), tiles)

    def flat(x: Array) -> Array:
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(b, -1, *x.shape[4:])[:, :length]

    return flat(value), final_moments(carry), TokenSizes(*map(flat, sizes))


def _solve_tile(chunks: Chunks, solver: JaxSolver, unrolls: bool) -> tuple[Array, TokenSizes]:
    """Outputs (B, n, C, m) of a tile, NaN where the query or the past is not finite; and sizes."""
    query_finite = finite(chunks.queries)[..., None]
    queries = jnp.where(query_finite, chunks.queries, 0)
    solution, steps = solve_systems(chunks, queries, solver, unrolls)
    known = query_finite & ~chunks.output_lost[..., None]
    value = jnp.where(known, read_out(chunks, solution), jnp.nan)

    given, q, x = jax.lax.stop_gradient((chunks, queries, solution))
    query, size, left = (jnp.linalg.norm(a, axis=-1) for a in (q, x, q - system_product(given, x)))
    trace = system_trace(given)[..., 0]
    return value, TokenSizes(steps, query, size, left, trace, cross_norm(given))


def solve_systems(
    chunks: Chunks, queries: Array, solver: JaxSolver, unrolls: bool
) -> tuple[Array, Array]:
    """``q*_t = (H_t + Lambda_t)^{-1} q_t`` with the derivative rule asked for.

    Implicit: from ``M q* = q``, ``dq* = M^{-1} (dq - dM q*)``, and in reverse ``e* = M^{-1} g``
    gives ``dq = e*`` and ``dM = -e* q*^T``: one more solve with the same factors, then the
    derivative of the product ``M x``, which is two gated linear attentions.  It is linear and can
    be transposed and differentiated again, so JVP, VJP and higher orders all follow.
    """
    chunks, queries = together((chunks, queries))
    if unrolls:
        return solver.solve_unrolled(chunks, solver.prepare(chunks), queries)
    constant = jax.lax.stop_gradient(chunks)
    prepared = solver.prepare(constant)
    product = partial(system_product, chunks)

    def solve(_: Any, b: Array) -> tuple[Array, Array]:
        return solver.solve(constant, prepared, b)

    if type(solver).solve_transposed is JaxSolver.solve_transposed:
        return custom_linear_solve(product, queries, solve, symmetric=True, has_aux=True)

    def transposed(_: Any, b: Array) -> tuple[Array, Array]:
        return solver.solve_transposed(constant, prepared, b)

    return custom_linear_solve(product, queries, solve, transposed, has_aux=True)
