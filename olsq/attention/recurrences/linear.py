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

from olsq.attention.recurrences.chunked import CHUNK
from olsq.attention.recurrences.log_gates import in_shifted_units, leave_units
from olsq.attention.recurrences.scan import chunk_size, scan_chunks
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.gates import fade_read, gate_products, states_before
from olsq.sequence.jax.pieces import (
    cut_into_pieces,
    divide_into_tiles,
    join_pieces,
    multiply_gates,
    pieces_of,
    scan_pieces,
)
from olsq.sequence.jax.platform import Target, by_platform, chunk_length, in_full_precision
from olsq.sequence.jax.tiles import WIDEST


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
    if pieces == 1:
        out, last = _gated_linear(q, k, v, gates, weight, memory, shift, valid, dtype)
        return out, leave_units(last, shift)
    q, k, v = (cut_into_pieces(x, pieces) for x in (q, k, v))
    gates, weight, shifts = (
        None if x is None else cut_into_pieces(x, pieces) for x in (gates, weight, shift)
    )
    zero = jnp.zeros((pieces * memory.shape[0], *memory.shape[1:]), memory.dtype)
    add = _gated_linear(q, k, v, gates, weight, zero, shifts)[1]
    factor = jnp.ones(zero.shape[:1], zero.dtype) if gates is None else multiply_gates(gates)
    before, last = scan_pieces(factor[:, None, None], add, memory)
    out = _gated_linear(q, k, v, gates, weight, before, shifts)[0]
    return join_pieces(out, pieces), leave_units(last, shift)


def _gated_linear(
    q: Any,
    k: Any,
    v: Any,
    gates: Any,
    weight: Any,
    memory: Array,
    shift: Any,
    valid: Any = None,
    dtype: Any = None,
) -> tuple[Array, Array]:
    """Run :func:`gated_linear` on a whole stream, not in pieces, in the units of the shifts.

    On a CPU chunk by chunk, in its cache; on an accelerator tile by tile, all chunks of a tile at
    once.
    """
    length = valid.shape[1] if valid is not None else q.shape[1]
    streams = {"q": q, "k": k, "v": v, "gates": None if gates is None else (gates, 1)}
    streams |= {"weight": weight, "shift": shift}

    def choose(target: Target) -> tuple[Any, int]:
        if target.cpu or not isinstance(length, int) or length <= CHUNK:
            return _chunk, chunk_size(length, chunk_length(on=target))
        numbers = memory.size if isinstance(memory.shape[0], int) else prod(memory.shape[1:])
        count, most = -(-length // CHUNK), max(1, target.tile_bytes // (WIDEST * numbers))
        return _tile, divide_into_tiles(count, most)[1] * CHUNK

    def run(choice: tuple[Any, int]) -> tuple[Array, Array]:
        step, size = choice
        return scan_chunks(step, memory, streams, chunk=size, valid=valid, dtype=dtype)

    return by_platform(choose, run)


@in_shifted_units
def _tile(memory: Array, x: Any) -> tuple[Array, Array]:
    """Run the recurrence on a tile (N, n C, ...): every chunk from the memory before it."""
    length = x["k"].shape[1]
    n = -(-length // CHUNK)

    def cut(a: Any, fill: float = 0.0) -> Any:
        if a is None:
            return None
        pad = [(0, 0), (0, n * CHUNK - length)] + [(0, 0)] * (a.ndim - 2)
        a = jnp.pad(a, pad, constant_values=fill)
        return a.reshape(a.shape[0] * n, CHUNK, *a.shape[2:])

    def by_stream(a: Array) -> Array:
        return a.reshape(-1, n, *a.shape[1:])

    q, k, v, weight = (cut(x[name]) for name in ("q", "k", "v", "weight"))
    table, zeta = gate_tables(cut(x["gates"], 1.0), weight, CHUNK, memory.dtype)
    scores = jnp.einsum("ntk,nik->nti", q, k) * table
    add = jnp.einsum("niv,nik->nvk", v, k * table[:, -1, :, None])
    factor = jnp.ones(k.shape[:1], memory.dtype) if zeta is None else zeta[:, -1]
    before, last = in_full_precision(states_before)(by_stream(factor), by_stream(add), memory)
    past = jnp.einsum("ntk,nvk->ntv", q, before.reshape(add.shape))
    out = jnp.einsum("nti,niv->ntv", scores, v) + fade_read(zeta, past)
    return last, out.reshape(-1, n * CHUNK, out.shape[-1])[:, :length]


@in_shifted_units
def _chunk(memory: Array, x: Any) -> tuple[Array, Array]:
    """Run the recurrence on one chunk (N, C, ...)."""
    table, zeta = gate_tables(x["gates"], x["weight"], x["k"].shape[1], memory.dtype)
    # O = (Q K^T * D diag(beta)) V + diag(zeta) Q S_0^T
    # S = zeta_C S_0 + V^T diag(D[C, :] beta) K
    scores = jnp.einsum("ntk,nik->nti", x["q"], x["k"]) * table
    past = jnp.einsum("ntk,nvk->ntv", x["q"], memory)
    out = jnp.einsum("nti,niv->ntv", scores, x["v"])
    out = out + fade_read(zeta, past)
    written = x["k"] * table[:, -1, :, None]
    kept = memory if zeta is None else zeta[:, -1, None, None] * memory
    return kept + jnp.einsum("niv,nik->nvk", x["v"], written), out


def accumulate_gated(
    x: Array, gates: Any, weight: Any, start: Array, shift: Any = None
) -> tuple[Array, Array]:
    """Run ``a_t = c_t a_{t-1} + d_t x_t``: every a_t, (N, T, K), and the last, (N, K)."""
    one = jnp.ones_like(x[..., :1])
    out, last = gated_linear(one, one, x, gates, weight, start[..., None], shift=shift)
    return out, last[..., 0]
