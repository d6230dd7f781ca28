"""Hand-written gradient of a tile: one more solve with the same factors, then matrix products.

With ``M_t x_t = q_t`` and ``o_t = G_t x_t``, a cotangent ``do`` of the outputs gives::

    ge_t = G_t^T do_t        e_t = M_t^{-1} ge_t        dq = e
    dG_t = do_t x_t^T        dM_t = -e_t x_t^T          dLambda = -e * x

M and G are sums over samples, ``sum_i D_ti k_i k_i^T`` and ``sum_i D_ti v_i k_i^T``, and the
moments before the chunk.  With ``S = x K^T``, ``E = e K^T`` and ``U = do V^T``, all (C, C)::

    dK = ((U - E) D)^T x - (S D)^T e        dV = (S D)^T do        dD = S (U - E)

Gates are in D, in zeta and in the products over whole chunks.  Where they are mild, the gradient by
the log of a gate is a sum over pairs (t, i) that it lies between, which is a sum over all t from
there on less one over all i from there on.  Where they are not, that would cancel, and a gate may
be 0: there it is :func:`~olsq.sequence.jax.gates.gate_gradient`'s sum of products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from olsq.problem import Moments
from olsq.sequence.jax.control import cond, max_over_vmap
from olsq.sequence.jax.gates import chunk_products, gate_gradient, gate_products
from olsq.sequence.jax.solver import Chunks, JaxSolver
from olsq.sequence.jax.tiles import (
    Carry,
    Tile,
    finite_queries,
    open_tile,
    usable_queries,
    usable_samples,
)
from olsq.solvers.chunk_exact import MILD_LOG_SCALE


class Cotangents(NamedTuple):
    """Cotangents of the arrays of a tile or a stream, each in the shape of its array."""

    keys: Array
    values: Array
    queries: Array
    gates: Any  # None where nothing is forgotten
    weight: Any  # None without weights
    ridge: Any  # (B, n, C, d) of a tile, for every token; of a stream None without a ridge
    gram: Array  # (B, d, d), of the moments before it
    cross: Array  # (B, m, d)


def multiply_rows(a: Array, b: Array) -> Array:
    """Compute ``a b^T`` for every chunk."""
    return jnp.einsum("bnti,bnsi->bnts", a, b)


def multiply_columns(a: Array, b: Array) -> Array:
    """Compute ``a^T b`` for every chunk."""
    return jnp.einsum("bnti,bntj->bnij", a, b)


def dot(a: Array, b: Array) -> Array:
    """Compute inner products over the last axis."""
    return (a * b).sum(-1)


def _recall(solver: JaxSolver, chunks: Chunks, kept: Any) -> tuple[Any, Array]:
    """Return the solver's factors and solutions of a tile, from those ``kept`` or by solving again.

    ``kept`` are the solutions, None if they were not, and what the solver saved.
    """
    x, saved = kept
    if x is not None:
        return solver.restored(chunks, saved), x
    prepared = solver.prepare(chunks)
    return prepared, solver.solve(chunks, prepared, finite_queries(chunks))[0]


def tile_gradient(
    tile: Tile,
    ridge: Any,
    carry: Carry,
    kept: Any,
    do: Array,
    d_end: Moments[Array],
    solver: JaxSolver,
) -> Cotangents:
    """Compute the cotangents of ``tile`` from those of its outputs and of the moments after it.

    ``kept`` as for :func:`_recall`. Costs one solve and 14 to 15 products of a chunk.
    """
    chunks, end = open_tile(tile, ridge, carry)
    prepared, x = _recall(solver, chunks, kept)
    keys, values, decay, zeta = chunks.keys, chunks.values, chunks.decay, chunks.zeta
    query_finite = usable_queries(tile)[..., None]
    do = jnp.where(query_finite & ~chunks.output_lost[..., None], do, 0)

    def from_start(y: Array) -> Array:
        return y if zeta is None else zeta[..., None] * y

    # U = do V^T; e_t = M_t^{-1} G_t^T do_t with the factors of the forward solve
    outer = multiply_rows(do, values)
    far = do @ chunks.cross
    e = solver.solve_transposed(chunks, prepared, (outer * decay) @ keys + from_start(far))[0]
    scores = multiply_rows(x, keys)
    change = outer - multiply_rows(e, keys)
    decayed = scores * decay
    # dK = ((U - E) D)^T x - (S D)^T e;  dV = (S D)^T do
    d_keys = multiply_columns(change * decay, x) - multiply_columns(decayed, e)
    d_values = multiply_columns(decayed, do)
    # Moments before each chunk, plus what later chunks pass back through the gates between:
    # dH = -sum_t zeta_t e_t x_t^T,  dG = sum_t zeta_t do_t x_t^T
    inside = -multiply_columns(from_start(e), x), multiply_columns(from_start(do), x)

    b, n = keys.shape[:2]
    factor = jnp.ones((b, n), keys.dtype) if zeta is None else zeta[..., -1]
    through, from_first = chunk_products(factor)
    after = [jnp.concatenate([o[:, 1:], d[:, None]], 1) for o, d in zip(inside, d_end, strict=True)]
    d_gram, d_cross = (jnp.einsum("bts,btpq->bspq", through, a) for a in after)
    before = [
        o[:, 0] + jnp.einsum("bt,btpq->bpq", from_first, a)
        for o, a in zip(inside, after, strict=True)
    ]
    tail = jnp.broadcast_to(decay[..., -1, :], keys.shape[:-1])
    # Through the moments after the chunk, whose decay weights are the last row of D:
    # dk = D (dH + dH^T) k + D dG^T v,  dv = D dG k
    by_gram, by_cross = keys @ (d_gram + jnp.swapaxes(d_gram, -1, -2)), values @ d_cross
    d_keys = d_keys + tail[..., None] * (by_gram + by_cross)
    d_values = d_values + jnp.einsum("bnti,bnji->bntj", tail[..., None] * keys, d_cross)
    d_tail = dot(keys, by_gram / 2 + by_cross)

    fine = usable_samples(tile)
    d_gates = d_weight = None
    if tile.weight is not None or tile.gates is not None:
        d_zeta = dot(far, x) - dot(e, jnp.einsum("bnti,bnji->bntj", x, chunks.gram))
        states = [
            jnp.concatenate([s[:, 1:], last[:, None]], 1)
            for s, last in zip((chunks.gram, chunks.cross), end[:2], strict=True)
        ]
        d_gates, d_weight = _gradient_of_gates(
            tile, chunks, change * scores, d_tail, d_zeta, after, states, (through, from_first)
        )
    return Cotangents(
        jnp.where(fine[..., None], d_keys, 0),
        jnp.where(fine[..., None], d_values, 0),
        jnp.where(query_finite, e, 0),
        d_gates,
        d_weight,
        -e * x,
        *before,
    )


def _gradient_of_gates(
    tile: Tile,
    chunks: Chunks,
    d_decay: Array,
    d_tail: Array,
    d_zeta: Array,
    after: list[Array],
    states: list[Array],
    between: tuple[Array, Array],
) -> tuple[Any, Any]:
    """Compute the cotangents (B, n, C) of gates and weights; None where there are none.

    ``d_decay`` (B, n, C, C) and ``d_tail`` (B, n, C) are those of D and, through the moments after
    the chunk, of its last row; ``d_zeta`` (B, n, C) those of zeta; ``after`` those of the moments
    after each chunk, whose values are ``states``; ``between`` are the products of gates over whole
    chunks.
    """
    keys, c = chunks.keys, chunks.keys.shape[2]
    plain = chunks.decay
    if chunks.weight is not None:
        plain = jnp.tril(jnp.ones((c, c), keys.dtype))
        if chunks.gates is not None:
            plain = gate_products(chunks.gates, chunks.logs)[0]
    d_weight = None
    if chunks.weight is not None:
        d_weight = (d_decay * plain).sum(-2) + plain[..., -1, :] * d_tail
        d_weight = jnp.where(jnp.isfinite(tile.weight), d_weight, 0)
    if chunks.gates is None:
        return None, d_weight

    # gamma_j d/dgamma_j is the sum over the pairs (t, i) with i < j <= t: a difference of two
    # cumulative sums, taken from the end.
    def mild() -> Array:
        pairs = d_decay * chunks.decay
        sample = pairs.sum(-2)
        far = chunks.decay[..., -1, :] * d_tail
        sums = far.sum(-1)
        chunk = sum((a * s).sum((-2, -1)) for a, s in zip(after, states, strict=True)) - sums
        chunk = jnp.cumsum(chunk[:, ::-1], 1)[:, ::-1]
        token = pairs.sum(-1) + chunks.zeta * d_zeta - sample - far
        token = token.at[..., -1].add(sums + chunk)
        return jnp.cumsum(token[..., ::-1], -1)[..., ::-1] / chunks.gates

    def harsh() -> Array:
        d_table = d_decay.at[..., -1, :].add(d_tail)
        if chunks.weight is not None:
            d_table = d_table * chunks.weight[..., None, :]
        tailed = chunks.decay[..., -1, :, None] * keys
        adds = multiply_columns(keys, tailed), multiply_columns(chunks.values, tailed)
        starts = [chunks.gram[:, 0], chunks.cross[:, 0]]
        through, other = (
            jnp.einsum("btpq,bspq->bts", a, s) for a, s in zip(after, adds, strict=True)
        )
        spent, d_start = (
            jnp.einsum("btpq,bpq->bt", a, s) for a, s in zip(after, starts, strict=True)
        )
        d_factor = gate_gradient(*between, through + other, spent + d_start)
        return gate_gradient(plain, chunks.zeta, d_table, d_zeta.at[..., -1].add(d_factor))

    # `mild` divides by the gates and subtracts cumulative sums: wrong at a gate of 0, and it
    # cancels where a chunk forgets much.
    steep = (chunks.gates == 0) | (jnp.abs(chunks.logs).sum(-1, keepdims=True) > 2 * MILD_LOG_SCALE)
    d_gates = cond(max_over_vmap(steep.any()), harsh, mild)
    return jnp.where(jnp.isnan(tile.gates), 0, d_gates), d_weight
