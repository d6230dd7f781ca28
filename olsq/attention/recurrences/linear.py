"""``S_t = gamma_t S_{t-1} + beta_t v_t k_t^T``, read by ``o_t = S_t q_t``: a chunk is two products.

With D[t, i] the product of gates i+1..t (lower triangular) and zeta_t that of gates 0..t::

    O = (Q K^T * D diag(beta)) V + diag(zeta) Q S_0^T
    S = zeta_C S_0 + V^T diag(D[C, :] beta) K
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.chunked import (
    ChunkedRule,
    add_past,
    fade_and_add,
    run_chunks,
    run_linear_pieces,
)
from olsq.attention.recurrences.log_gates import leave_units
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.gates import gate_products, states_before
from olsq.sequence.jax.pieces import cut_into_pieces, multiply_gates, pieces_of
from olsq.sequence.jax.platform import in_full_precision


def gate_tables(gates: Any, weight: Any, size: int, dtype: Any) -> tuple[Array, Any]:
    """Compute D diag(beta) (N or 1, C, C) and zeta (N, C), None where nothing is forgotten."""
    if gates is None:
        table, zeta = jnp.tril(jnp.ones((1, size, size), dtype)), None
    else:
        table, zeta = gate_products(gates, jnp.log(jnp.where(gates == 0, 1, gates)))
    return (table if weight is None else table * weight[:, None, :]), zeta


@partial(compile_once, static_argnames="dtype")
def gated_linear(
    q: Any,
    k: Any,
    v: Any,
    gates: Any,
    weight: Any,
    memory: Array,
    *,
    shift: Any = None,
    valid: Any = None,
    dtype: Any = None,
) -> tuple[Array, Array]:
    """Run a scalar-gated linear recurrence: outputs (N, T, V) and the last memory (N, V, K).

    ``gates`` and ``shift`` are those of :func:`~olsq.attention.recurrences.log_gates.split_gates`.
    Queries, keys and values may be :class:`~olsq.attention.arguments.Heads`; ``valid`` and
    ``dtype`` are then those of :func:`~olsq.attention.recurrences.scan.scan_chunks`.
    """
    pieces = 1 if valid is not None else pieces_of(q.shape[1])
    q, k, v, gates, weight, shifts = (
        None if x is None else cut_into_pieces(x, pieces) for x in (q, k, v, gates, weight, shift)
    )
    streams = {"q": q, "k": k, "v": v, "gates": None if gates is None else (gates, 1.0)}
    streams |= {"weight": weight, "shift": shifts}
    rule = ChunkedRule(_prepare, fade_and_add, add_past, _states)

    def run(memory: Array) -> tuple[Array, Array]:
        return run_chunks(rule, memory, streams, prod(memory.shape[1:]), valid=valid, dtype=dtype)

    def transition() -> Array:
        factor = jnp.ones(q.shape[:1], memory.dtype) if gates is None else multiply_gates(gates)
        return factor[:, None, None]

    out, last = run_linear_pieces(run, transition, memory, pieces)
    return out, leave_units(last, shift)


def _prepare(x: Any, at_once: bool) -> tuple[Any, Any]:
    """Prepare chunks: what they do to the memory, and what they read of their own tokens."""
    table, zeta = gate_tables(x["gates"], x["weight"], x["k"].shape[1], x["k"].dtype)
    # O = (Q K^T * D diag(beta)) V + diag(zeta) Q S_0^T
    # S = zeta_C S_0 + V^T diag(D[C, :] beta) K
    scores = jnp.einsum("ntk,nik->nti", x["q"], x["k"]) * table
    own = jnp.einsum("nti,niv->ntv", scores, x["v"])
    new = jnp.einsum("niv,nik->nvk", x["v"], x["k"] * table[:, -1, :, None])
    return (None if zeta is None else zeta[:, -1, None, None], new), (x["q"], own, zeta)


@in_full_precision
def _states(memory: Array, changes: tuple[Any, Array]) -> tuple[Array, Array]:
    """Compute the memories before all chunks, (N, n, V, K), and the last."""
    factors, add = changes
    factors = jnp.ones(add.shape[:2], add.dtype) if factors is None else factors[..., 0, 0]
    return states_before(factors, add, memory)


def accumulate_gated(
    x: Array, gates: Any, weight: Any, start: Array, shift: Any = None
) -> tuple[Array, Array]:
    """Run ``a_t = c_t a_{t-1} + d_t x_t``: every a_t, (N, T, K), and the last, (N, K)."""
    one = jnp.ones_like(x[..., :1])
    out, last = gated_linear(one, one, x, gates, weight, start[..., None], shift=shift)
    return out, last[..., 0]
