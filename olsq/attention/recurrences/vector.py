"""Memories with a gate for each key dimension, or for each value dimension, without dividing.

``S_t = S_{t-1} diag(a_t) + v_t k_t^T``: scores ``sum_k q_t[k] D_k[t, i] k_i[k]`` are made block by
block: those between the two halves of a block factor at the seam, into gates up to it (on the key)
and from it (on the query).  Both are products of gates, at most 1, so nothing overflows however
fast is forgotten, a gate may be exactly 0, and derivatives are those of products.  Quotients of
products from the start of a chunk, the usual form, overflow float32 at gates below 1e-1.

``S_t = diag(a_t) S_{t-1} + v_t k_t^T``: a score ``q_t . k_i`` is one number for all value
dimensions, and the gates between two tokens are factors inside the sum:
``o_t = sum_i (q_t . k_i) D[t, i] * v_i``, D[t, i] the products of gates i+1..t.  They factor at the
seam too, into gates up to it (on the value) and from it (on the sum).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.chunked import (
    CHUNK,
    ChunkedRule,
    add_past,
    fade_and_add,
    run_chunks,
    run_linear_pieces,
    states_between,
)
from olsq.attention.recurrences.log_gates import leave_units, shifts_before
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.pieces import cut_into_pieces, multiply_gates, pieces_of

SMALLEST = 8  # blocks up to this length are scored pair by pair
TOGETHER = 2  # the same where all chunks of a tile are scored at once, for a smaller array of pairs


@partial(compile_once, static_argnames="before")
def vector_gated(
    q: Array,
    k: Array,
    v: Array,
    gates: Array,
    memory: Array,
    *,
    shift: Any = None,
    before: bool = False,
) -> tuple[Array, Array]:
    """Run ``S_t = S_{t-1} diag(a_t) + v_t k_t^T``: outputs (N, T, V), last memory (N, V, K).

    Gates are (N, T, K), and with ``shift`` those of
    :func:`~olsq.attention.recurrences.log_gates.split_gates`. ``before``: token t reads the memory
    before it is updated, ``o_t = S_{t-1} q_t``.
    """
    if shift is not None:
        q = q * jnp.exp(shifts_before(shift) if before else shift)
        k = k * jnp.exp(-shift)
    pieces = pieces_of(q.shape[1])
    q, k, v, gates = (cut_into_pieces(x, pieces) for x in (q, k, v, gates))
    rule = ChunkedRule(
        partial(_prepare_keys, before=before), fade_and_add, add_past, states_between
    )
    out, last = _run_gated(
        rule, q, k, v, gates, memory, lambda: multiply_gates(gates)[:, None], pieces
    )
    return out, leave_units(last, shift)


def _run_gated(
    rule: ChunkedRule,
    q: Array,
    k: Array,
    v: Array,
    gates: Array,
    memory: Array,
    transition: Callable[[], Array],
    pieces: int,
) -> tuple[Array, Array]:
    """Run a rule on streams in pieces of time: outputs and the last memory."""
    streams = {"q": q, "k": k, "v": v, "gates": (gates, 1.0)}
    widest = widest_array(*memory.shape[1:])

    def run(memory: Array) -> tuple[Array, Array]:
        return run_chunks(rule, memory, streams, widest)

    return run_linear_pieces(run, transition, memory, pieces)


def _prepare_keys(x: Any, at_once: bool, before: bool) -> tuple[Any, Any]:
    """Prepare chunks of a memory with a gate for each key dimension."""
    [[scores]], [reach], kept = scores_and_reach([(x["q"], before)], [x["k"]], x["gates"], at_once)
    total = x["gates"][:, 0] * kept[:, 0]  # the first gate, and all after the first key
    new = jnp.einsum("niv,nik->nvk", x["v"], x["k"] * kept)
    own = jnp.einsum("nti,niv->ntv", scores, x["v"])
    return (total[:, None, :], new), (x["q"] * reach, own, None)


def scores_and_reach(
    readers: Sequence[tuple[Array, bool]], keys: Sequence[Array], gates: Array, at_once: bool
) -> tuple[list[list[Array]], list[Array], Array]:
    """Compute scores (N, C, C) of every reader with every key, and the gates between them.

    A reader is a pair: vectors (N, C, K), and whether they read the memory from before their token,
    or from after it. Also returned: for each reader, the gates from the start to what it reads, (N,
    C, K); and those after each key, (N, C, K).
    """
    n, c, width = gates.shape
    size = smallest_block(c, at_once)
    blocks = (n, c // size, size, width)
    table, upto = block_products(gates.reshape(blocks))
    scores, reads = [], []
    for q, before in readers:
        first = 0 if before else 1
        pairs, read = (jnp.stack(x[first : first + size], 2) for x in (table, upto))
        ahead = q.reshape(blocks)[:, :, :, None] * pairs
        scores.append([(ahead * k.reshape(blocks)[:, :, None]).sum(-1) for k in keys])
        reads.append(read)
    after = table[size]  # product of gates i+1 .. end
    total = upto[size]
    while size < c:
        half = (n, c // (2 * size), 2, size, width)
        left, right = total[:, 0::2, None], total[:, 1::2, None]
        first = [k.reshape(half)[:, :, 0] * after[:, 0::2] for k in keys]
        for i, (q, _) in enumerate(readers):
            second = q.reshape(half)[:, :, 1] * reads[i][:, 1::2]
            scores[i] = [_joined(s, second, k) for s, k in zip(scores[i], first, strict=True)]
            reads[i] = jnp.concatenate([reads[i][:, 0::2], reads[i][:, 1::2] * left], 2)
        after = jnp.concatenate([after[:, 0::2] * right, after[:, 1::2]], 2)
        total = total[:, 0::2] * total[:, 1::2]
        size *= 2
    return [[s[:, 0] for s in line] for line in scores], [r[:, 0] for r in reads], after[:, 0]


def block_products(gates: Array) -> tuple[list[Array], list[Array]]:
    """Multiply the gates of blocks (N, b, s, K) before each token t = 0 .. s: gates i+1 .. t-1, (N,
    b, s, K), 0 unless i < t, and gates 0 .. t-1, (N, b, K).
    """
    size = gates.shape[2]
    table, upto = [jnp.zeros_like(gates)], [jnp.ones_like(gates[:, :, 0])]
    for t in range(size):
        itself = jnp.zeros((size, 1), gates.dtype).at[t].set(1)
        table.append(table[-1] * gates[:, :, t, None] + itself)
        upto.append(upto[-1] * gates[:, :, t])
    return table, upto


def widest_array(values: int, keys: int) -> int:
    """Return how many numbers the largest array of a chunk has: a memory, or all pairs."""
    return max(values * keys, TOGETHER * CHUNK * max(values, keys))


def smallest_block(size: int, at_once: bool) -> int:
    """Halve the length of a chunk down to blocks that are scored pair by pair."""
    while size > (TOGETHER if at_once else SMALLEST) and size % 2 == 0:
        size //= 2
    return size


def _joined(scores: Array, q: Array, k: Array) -> Array:
    """Join the scores of two halves into a block's, with the corner that factors at the seam."""
    corner = jnp.einsum("nbtk,nbik->nbti", q, k)
    upper = jnp.concatenate([scores[:, 0::2], jnp.zeros_like(corner)], -1)
    return jnp.concatenate([upper, jnp.concatenate([corner, scores[:, 1::2]], -1)], 2)


@compile_once
def row_gated(
    q: Array, k: Array, v: Array, gates: Array, memory: Array, shift: Any = None
) -> tuple[Array, Array]:
    """Run ``S_t = diag(a_t) S_{t-1} + v_t k_t^T``: outputs ``S_t q_t`` (N, T, V), last memory (N,
    V, K); gates and shifts (N, T, V).
    """
    if shift is not None:
        scale = jnp.exp(shift)
        out, last = row_gated(q, k, v / scale, gates, memory)
        last = jnp.swapaxes(leave_units(jnp.swapaxes(last, 1, 2), shift), 1, 2)
        return scale * out, last
    pieces = pieces_of(q.shape[1])
    q, k, v, gates = (cut_into_pieces(x, pieces) for x in (q, k, v, gates))
    rule = ChunkedRule(_prepare_values, fade_and_add, add_past, states_between)
    return _run_gated(
        rule, q, k, v, gates, memory, lambda: multiply_gates(gates)[..., None], pieces
    )


def _prepare_values(x: Any, at_once: bool) -> tuple[Any, Any]:
    """Prepare chunks of a memory with a gate for each value dimension."""
    own, upto, after = _inside(x["q"], x["k"], x["v"], x["gates"], at_once)
    new = jnp.einsum("niv,nik->nvk", x["v"] * after, x["k"])
    return (upto[:, -1, :, None], new), (x["q"], own, upto)


def _inside(
    q: Array, k: Array, v: Array, gates: Array, at_once: bool
) -> tuple[Array, Array, Array]:
    """Compute a chunk's reads of its own tokens (N, C, ...), and the gates up to and after each
    token.
    """
    n, c, width = gates.shape
    size = smallest_block(c, at_once)

    def blocks(x: Array, *shape: int) -> Array:
        return x.reshape(n, c // math.prod(shape), *shape, x.shape[-1])

    table, upto = block_products(blocks(gates, size))
    pairs, reach, after = jnp.stack(table[1:], 2), jnp.stack(upto[1:], 2), table[size]
    scores = jnp.einsum("nbtk,nbik->nbti", blocks(q, size), blocks(k, size))
    out = jnp.einsum("nbti,nbtiv,nbiv->nbtv", scores, pairs, blocks(v, size))
    while size < c:
        first, second = (x[:, :, i] for i, x in ((0, blocks(k, 2, size)), (1, blocks(q, 2, size))))
        written = blocks(v, 2, size)[:, :, 0] * after[:, 0::2]
        corner = jnp.einsum("nbtk,nbik->nbti", second, first)
        read = reach[:, 1::2] * jnp.einsum("nbti,nbiv->nbtv", corner, written)
        out = jnp.concatenate([out[:, 0::2], out[:, 1::2] + read], 2)
        left, right = reach[:, 0::2, -1:], reach[:, 1::2, -1:]
        reach = jnp.concatenate([reach[:, 0::2], reach[:, 1::2] * left], 2)
        after = jnp.concatenate([after[:, 0::2] * right, after[:, 1::2]], 2)
        size *= 2
    return out.reshape(n, c, width), reach[:, 0], after[:, 0]
