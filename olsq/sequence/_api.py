"""The JAX function: one regression solved again after every token of a sequence."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from olsq.problem import Moments, Solution, Stats, check_choice
from olsq.sequence._chunks import Chunks, read_out, system_product
from olsq.sequence._factor import FACTOR
from olsq.sequence._inputs import Stream, check
from olsq.sequence._shards import join, split
from olsq.sequence._tiles import Carry, Tile, begin, enter, finish, finite, fold, group_count
from olsq.sequence.chunk_exact import ChunkExact

_FACTORS = jax.checkpoint_policies.save_only_these_names(FACTOR)


def kept(primitive: Any, *avals: Any, **params: Any) -> Any:
    """What a backward pass keeps of a tile: factors and solutions; it makes the rest again."""
    return primitive.name == "custom_linear_solve" or _FACTORS(primitive, *avals, **params)


class Solver(Protocol):
    """What a solver is: a frozen description with a factorisation and a solve."""

    modes: tuple[str, ...]

    @property
    def chunk(self) -> int: ...
    def prepare(self, chunks: Chunks) -> Any: ...
    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]: ...
    def unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]: ...


def online_lstsq(
    keys: Any,
    values: Any,
    queries: Any,
    *,
    forget: Any = None,
    log_forget: Any = None,
    weight: Any = None,
    ridge: Any = None,
    ridge_mode: Literal["fixed", "discounted"] = "fixed",
    state: Moments | None = None,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
) -> Solution:
    """The JAX side of :func:`olsq.online_lstsq`, which documents it, for NumPy arrays too.

    Every array is converted: float64 needs ``jax_enable_x64``, and ``Solution`` holds JAX arrays.
    """
    check_choice(adjoint, "adjoint", ("implicit", "unrolled"))
    chosen: Any = ChunkExact() if solver is None else solver
    stream, batch, dtype = check(
        keys, values, queries, forget, log_forget, weight, ridge, ridge_mode, state
    )
    steady = getattr(chosen, "modes_without_forgetting", chosen.modes)
    if ridge_mode not in (chosen.modes if stream.forget is not None else steady):
        raise ValueError(
            f"solver {type(chosen).__name__} does not solve ridge_mode={ridge_mode!r} here, "
            f"only {', '.join(map(repr, chosen.modes))} if anything is forgotten; "
            "use ChunkExact (the default)"
        )
    length, m = stream.values.shape[1:]
    if 0 in (length, *batch):
        value = jnp.zeros((*batch, length, m), dtype)
        stats = Stats(jnp.zeros((*batch, length), jnp.int32), jnp.zeros((*batch, length)))
        final = stream.state
    else:
        value, final, stats = _run(stream, chosen, adjoint)
        value = value.reshape(*batch, length, m).astype(dtype)
        stats = Stats(*(s.reshape(*batch, length) for s in stats))
    final = Moments(*(s.reshape(*batch, *s.shape[1:]) for s in final))
    return Solution(value, final, stats)


@partial(jax.jit, static_argnames=("solver", "adjoint"))
def _run(stream: Stream, solver: Solver, adjoint: str) -> tuple[Array, Moments, Stats]:
    """The whole computation on a flat batch: (B, T, m), final moments, stats (B, T)."""
    b, length, _ = stream.values.shape
    shards = getattr(solver, "shards", 1)
    if shards > 1:
        pieces, last = split(stream, solver.chunk, shards)
        value, _, stats = _walk(pieces, solver, adjoint)
        return join(value, b, length), last, Stats(*(join(s, b, length) for s in stats))
    groups = group_count(stream, solver.chunk)
    if groups == 1:
        return _walk(stream, solver, adjoint)
    parts = jax.tree.map(lambda x: x.reshape(groups, b // groups, *x.shape[1:]), stream)
    out = jax.lax.map(lambda part: _walk(part, solver, adjoint), parts)
    return jax.tree.map(lambda x: x.reshape(b, *x.shape[2:]), out)


def _walk(stream: Stream, solver: Solver, adjoint: str) -> tuple[Array, Moments, Stats]:
    """All tiles of ``stream``, one after another in time."""
    b, length, _ = stream.values.shape
    tiles, ridge = fold(stream, solver.chunk)

    def step(carry: Carry, tile: Tile) -> tuple[Carry, tuple[Array, Stats]]:
        chunks, carry = enter(tile, ridge, carry)
        return carry, _solve_tile(chunks, solver, adjoint)

    remade = jax.checkpoint(step, policy=kept, prevent_cse=False)
    carry, (value, stats) = jax.lax.scan(remade, begin(stream.state), tiles)

    def flat(x: Array) -> Array:
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(b, -1, *x.shape[4:])[:, :length]

    return flat(value), finish(carry), Stats(*map(flat, stats))


def _solve_tile(chunks: Chunks, solver: Solver, adjoint: str) -> tuple[Array, Stats]:
    """Outputs (B, n, C, m) of a tile, NaN where the query or the past is not finite; and stats."""
    asked = finite(chunks.queries)[..., None]
    queries = jnp.where(asked, chunks.queries, 0)
    solution, steps = solve_systems(chunks, queries, solver, adjoint)
    value = jnp.where(asked & ~chunks.lost[..., None], read_out(chunks, solution), jnp.nan)

    parts = jax.lax.stop_gradient((chunks, queries, solution))
    left = jnp.linalg.norm(parts[1] - system_product(parts[0], parts[2]), axis=-1)
    size = jnp.linalg.norm(parts[1], axis=-1)
    return value, Stats(steps, jnp.where(size > 0, left / jnp.where(size > 0, size, 1), 0))


def solve_systems(
    chunks: Chunks, queries: Array, solver: Solver, adjoint: str
) -> tuple[Array, Array]:
    """``q*_t = (H_t + Lambda_t)^{-1} q_t`` with the derivative rule asked for.

    Implicit: from ``M q* = q``, ``dq* = M^{-1} (dq - dM q*)``, and in reverse ``e* = M^{-1} g``
    gives ``dq = e*`` and ``dM = -e* q*^T``: one more solve with the same factors, then the
    derivative of the product ``M x``, which is two gated linear attentions.  It is linear and can
    be transposed and differentiated again, so JVP, VJP and higher orders all follow.
    """
    if adjoint == "unrolled":
        return solver.unrolled(chunks, solver.prepare(chunks), queries)
    kept = jax.lax.stop_gradient(chunks)
    prepared = solver.prepare(kept)
    transposed = getattr(solver, "solve_transposed", None)
    if transposed is None:
        return jax.lax.custom_linear_solve(
            lambda x: system_product(chunks, x),
            queries,
            lambda _, b: solver.solve(kept, prepared, b),
            symmetric=True,
            has_aux=True,
        )
    return jax.lax.custom_linear_solve(
        lambda x: system_product(chunks, x),
        queries,
        lambda _, b: solver.solve(kept, prepared, b),
        lambda _, b: transposed(kept, prepared, b),
        has_aux=True,
    )
