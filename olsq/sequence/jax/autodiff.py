"""Solve all tiles of a batch by functions that JAX differentiates, in any mode and to any order.

Unrolled steps are differentiated so, derivatives of the second order and more, and whatever is
inside ``shard_map``; :mod:`~olsq.sequence.jax.primitive` has a loop and a gradient of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.problem import Moments
from olsq.sequence.jax.chunks import Chunks, system_product
from olsq.sequence.jax.control import custom_linear_solve, scan, vary_together
from olsq.sequence.jax.factor import FACTOR
from olsq.sequence.jax.inputs import Stream
from olsq.sequence.jax.solver import JaxSolver
from olsq.sequence.jax.tiles import (
    Carry,
    Tile,
    TokenSizes,
    cut_into_tiles,
    final_moments,
    group_count,
    initial_carry,
    open_tile,
    tile_outputs,
)

_FACTORS = jax.checkpoint_policies.save_only_these_names(FACTOR)


def save_factors(primitive: Any, *avals: Any, **params: Any) -> Any:
    """Choose what a backward pass keeps of a tile: factors and solutions.

    The rest is recomputed.
    """
    return primitive.name == "custom_linear_solve" or _FACTORS(primitive, *avals, **params)


def solve_in_groups(
    stream: Stream, solver: JaxSolver, unrolls: bool
) -> tuple[Array, Moments[Array], TokenSizes]:
    """Solve as many streams at a time as fit a cache: outputs (B, T, m), final moments, sizes (B,
    T).
    """
    b, groups = stream.keys.shape[0], group_count(stream, solver.options.chunk)
    if groups == 1:
        return solve_tiles(stream, solver, unrolls)
    parts = jax.tree.map(lambda x: x.reshape(groups, b // groups, *x.shape[1:]), stream)
    out = jax.lax.map(lambda part: solve_tiles(part, solver, unrolls), parts)
    return jax.tree.map(lambda x: x.reshape(b, *x.shape[2:]), out)


def solve_tiles(
    stream: Stream, solver: JaxSolver, unrolls: bool
) -> tuple[Array, Moments[Array], TokenSizes]:
    """Solve all tiles of ``stream``, one after another in time."""
    b, length, _ = stream.values.shape
    tiles, ridge = cut_into_tiles(stream, solver.options.chunk)

    def step(carry: Carry, tile: Tile) -> tuple[Carry, tuple[Array, TokenSizes]]:
        chunks, carry = open_tile(tile, ridge, carry)
        solve = partial(solve_systems, chunks, solver=solver, unrolls=unrolls)
        return carry, tile_outputs(chunks, solve)[:2]

    checkpointed_step = jax.checkpoint(step, policy=save_factors, prevent_cse=False)
    carry, (value, sizes) = scan(checkpointed_step, initial_carry(stream.state), tiles)

    def flat(x: Array) -> Array:
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(b, -1, *x.shape[4:])[:, :length]

    return flat(value), final_moments(carry), TokenSizes(*map(flat, sizes))


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
