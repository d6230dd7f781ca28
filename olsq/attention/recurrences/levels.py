"""Memories of a Fenwick tree: the past in blocks of 1, 2, 4, ... tokens, each read with its weight.

Token i, read at token t, is in level ``bits(t xor i)``, the number of binary digits from the
highest in which the positions differ: 0 for t itself, l for a block of 2^(l - 1) tokens. At a later
token t, the contents of level m of an earlier token e are in level ``max(m, bits(t xor e))``. So a
chunk is computed as in :mod:`linear`, with a weight per level and token on its scores, and L
memories before it. That holds wherever a chunk begins in the tree. Levels beyond the last count as
the last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.chunked import ChunkedRule, run_chunks, run_linear_pieces
from olsq.attention.recurrences.linear import gate_tables
from olsq.attention.recurrences.log_gates import leave_units
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.gates import fade_read
from olsq.sequence.jax.pieces import cut_into_pieces, delay, multiply_gates, pieces_of

CHUNK = 64  # tokens; with shorter chunks the memories of all levels would be read more often
TOGETHER = 256  # on an accelerator: a token's scores still cost less than reading all levels


def level_between(a: Array, b: Array, levels: int) -> Array:
    """Return the level of position a, read at b, or of b at a (int32), at most the last."""
    digits = 32 - jax.lax.clz(jnp.bitwise_xor(a, b).astype(jnp.int32))
    return jnp.minimum(digits, levels - 1)


@compile_once
def fenwick(
    q: Array,
    k: Array,
    v: Array,
    gates: Any,
    weights: Array,
    position: Array,
    before: Array,
    memory: Array,
    shift: Any = None,
) -> tuple[Array, Array]:
    """Run the Fenwick tree: outputs (N, T, V) and the memories (N, L, V, K), as read at the last
    token.

    ``weights`` (N, T, L) are those of the levels at each token; ``position`` (N, T) int32 counts
    the tokens of a stream, and may start again where a gate is 0; ``before`` (N,) is the position
    of the last token in ``memory`` (N, L, V, K).
    """
    earlier = delay(position, before[:, None])
    pieces = pieces_of(q.shape[1])
    q, k, v, weights, position, earlier = (
        cut_into_pieces(x, pieces) for x in (q, k, v, weights, position, earlier)
    )
    gates, shifts = (None if x is None else cut_into_pieces(x, pieces) for x in (gates, shift))
    streams = {"q": q, "k": k, "v": v, "gates": None if gates is None else (gates, 1.0)}
    streams |= {"weights": weights, "position": (position, -1), "earlier": earlier, "shift": shifts}
    levels, values, keys = memory.shape[1:]
    rule = ChunkedRule(_prepare, _advance, _read, chunk=TOGETHER, on_cpu=CHUNK)
    widest = max(levels * values * keys, levels * TOGETHER * max(values, keys), TOGETHER**2)

    def transition() -> Array:
        jump = level_between(position[:, -1], earlier[:, 0], levels)
        each = jnp.arange(levels, dtype=jump.dtype)
        moves = (jnp.maximum(each, jump[:, None])[:, None] == each[:, None]).astype(memory.dtype)
        return moves if gates is None else moves * multiply_gates(gates)[:, None, None]

    out, last = run_linear_pieces(
        lambda memory: run_chunks(rule, memory, streams, widest),
        transition,
        memory,
        pieces,
        apply=lambda move, s: jnp.einsum("...lm,...mvk->...lvk", move, s),
        compose=lambda a, b: b @ a,
    )
    return out, leave_units(last, shift)


class Change(NamedTuple):
    """The decay of all memories over a chunk, and what the chunk adds to a level of them."""

    decay: Any  # (N, 1, 1, 1); None: 1
    jump: Array  # (N, 1, 1, 1), the level that takes in all levels below it
    new: Array  # (N, L, V, K)


class Reads(NamedTuple):
    """Arrays from which, with the memories before a chunk, its outputs are computed."""

    queries: Array  # (N, C, K)
    weights: Array  # (N, C, L), of the memories at each token
    own: Array  # (N, C, V), read of the chunk itself
    decay: Any  # (N, C); None: 1


def _prepare(x: Any, at_once: bool) -> tuple[Change, Reads]:
    """Prepare chunks: reads of their own tokens, and where what they have and write belongs."""
    at, weights, start = x["position"], x["weights"], x["earlier"][:, 0]
    levels = weights.shape[-1]
    each = jnp.arange(levels, dtype=at.dtype)
    table, zeta = gate_tables(x["gates"], None, at.shape[1], x["k"].dtype)
    level = level_between(at[:, :, None], at[:, None, :], levels)
    within = jnp.zeros_like(table, shape=level.shape)
    for i in range(levels):
        within = jnp.where(level == i, weights[:, :, i, None], within)
    scores = jnp.einsum("ntk,nik->nti", x["q"], x["k"]) * table * within
    own = jnp.einsum("nti,niv->ntv", scores, x["v"])
    # The contents of level m are now in the higher of m and this one.
    jump = level_between(at, start[:, None], levels)[..., None]
    joined = jnp.where(each == jump, weights, 0).sum(-1, keepdims=True)
    reads = Reads(x["q"], jnp.where(each > jump, weights, joined), own, zeta)

    count = (at >= 0).sum(1)  # padding is at the end
    index = jnp.maximum(count - 1, 0)[:, None]
    end = jnp.where(count > 0, jnp.take_along_axis(at, index, 1)[:, 0], start)
    into = each == level_between(at, end[:, None], levels)[..., None]
    written = jnp.where(into, table[:, -1, :, None], 0)[..., None] * x["k"][:, :, None]
    new = jnp.einsum("niv,nilk->nlvk", x["v"], written)
    decay = None if zeta is None else zeta[:, -1, None, None, None]
    return Change(decay, level_between(end, start, levels)[:, None, None, None], new), reads


def _advance(memory: Array, change: Change) -> tuple[Array, None]:
    """Fade the memories, merge those up to the jump, and add what the chunk writes."""
    kept = memory if change.decay is None else change.decay * memory
    place = jnp.arange(memory.shape[1], dtype=change.jump.dtype)[:, None, None]
    merged = jnp.where(place <= change.jump, kept, 0).sum(1, keepdims=True)
    moved = jnp.where(place > change.jump, kept, jnp.where(place == change.jump, merged, 0))
    return moved + change.new, None


def _read(reads: Reads, memory: Array, _: None) -> Array:
    """Add to a chunk's own reads those of the memories before it, by their levels' weights."""
    past = jnp.einsum("ntk,nmvk->ntmv", reads.queries, memory)
    past = jnp.einsum("ntm,ntmv->ntv", reads.weights, past)
    return reads.own + fade_read(reads.decay, past)
