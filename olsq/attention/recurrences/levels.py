"""Memories of a Fenwick tree: the past in blocks of 1, 2, 4, ... tokens, each read with its weight.

Token i, read at token t, is in level ``bits(t xor i)``, the number of binary digits from the
highest in which the positions differ: 0 for t itself, l for a block of 2^(l - 1) tokens. At a later
token t, the contents of level m of an earlier token e are in level ``max(m, bits(t xor e))``. So a
chunk is computed as in :mod:`linear`, with a weight per level and token on its scores, and L
memories before it. That holds wherever a chunk begins in the tree. Levels beyond the last count as
the last.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.linear import gate_tables
from olsq.attention.recurrences.log_gates import in_shifted_units, leave_units
from olsq.attention.recurrences.scan import scan_chunks
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.gates import fade_read
from olsq.sequence.jax.pieces import (
    cut_into_pieces,
    delay,
    join_pieces,
    multiply_gates,
    pieces_of,
    scan_pieces,
)

CHUNK = 64  # tokens; with shorter chunks the memories of all levels would be read more often


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
    if pieces == 1:
        out, last = _fenwick(q, k, v, gates, weights, position, earlier, memory, shift)
        return out, leave_units(last, shift)
    q, k, v, weights, position, earlier = (
        cut_into_pieces(x, pieces) for x in (q, k, v, weights, position, earlier)
    )
    gates, shifts = (None if x is None else cut_into_pieces(x, pieces) for x in (gates, shift))
    zero = jnp.zeros((pieces * memory.shape[0], *memory.shape[1:]), memory.dtype)
    add = _fenwick(q, k, v, gates, weights, position, earlier, zero, shifts)[1]
    levels = memory.shape[1]
    jump = level_between(position[:, -1], earlier[:, 0], levels)
    each = jnp.arange(levels, dtype=jump.dtype)
    moves = (jnp.maximum(each, jump[:, None])[:, None] == each[:, None]).astype(memory.dtype)
    if gates is not None:
        moves = moves * multiply_gates(gates)[:, None, None]
    start, last = scan_pieces(
        moves,
        add,
        memory,
        apply=lambda move, s: jnp.einsum("...lm,...mvk->...lvk", move, s),
        compose=lambda a, b: b @ a,
    )
    out = _fenwick(q, k, v, gates, weights, position, earlier, start, shifts)[0]
    return join_pieces(out, pieces), leave_units(last, shift)


def _fenwick(
    q: Array,
    k: Array,
    v: Array,
    gates: Any,
    weights: Array,
    position: Array,
    earlier: Array,
    memory: Array,
    shift: Any,
) -> tuple[Array, Array]:
    """Run :func:`fenwick` on a whole stream, not in pieces, in the units of the shifts."""
    levels = memory.shape[1]
    each = jnp.arange(levels, dtype=position.dtype)

    @in_shifted_units
    def step(memory: Array, x: Any) -> tuple[Array, Array]:
        at, weights, start = x["position"], x["weights"], x["earlier"][:, 0]
        table, zeta = gate_tables(x["gates"], None, at.shape[1], memory.dtype)
        level = level_between(at[:, :, None], at[:, None, :], levels)
        within = jnp.zeros_like(memory, shape=level.shape)
        for i in range(levels):
            within = jnp.where(level == i, weights[:, :, i, None], within)
        scores = jnp.einsum("ntk,nik->nti", x["q"], x["k"]) * table * within
        out = jnp.einsum("nti,niv->ntv", scores, x["v"])
        # The contents of level m are now in the higher of m and this one.
        jump = level_between(at, start[:, None], levels)[..., None]
        joined = jnp.where(each == jump, weights, 0).sum(-1, keepdims=True)
        past = jnp.einsum("ntk,nmvk->ntmv", x["q"], memory)
        past = jnp.einsum("ntm,ntmv->ntv", jnp.where(each > jump, weights, joined), past)
        out = out + fade_read(zeta, past)

        count = (at >= 0).sum(1)  # padding is at the end
        index = jnp.maximum(count - 1, 0)[:, None]
        end = jnp.where(count > 0, jnp.take_along_axis(at, index, 1)[:, 0], start)
        into = each == level_between(at, end[:, None], levels)[..., None]
        written = jnp.where(into, table[:, -1, :, None], 0)[..., None] * x["k"][:, :, None]
        new = jnp.einsum("niv,nilk->nlvk", x["v"], written)
        kept = memory if zeta is None else zeta[:, -1, None, None, None] * memory
        jump = level_between(end, start, levels)[:, None, None, None]
        place = each[:, None, None]
        merged = jnp.where(place <= jump, kept, 0).sum(1, keepdims=True)
        moved = jnp.where(place > jump, kept, jnp.where(place == jump, merged, 0))
        return moved + new, out

    streams = {"q": q, "k": k, "v": v, "gates": None if gates is None else (gates, 1)}
    streams |= {"weights": weights, "position": (position, -1), "earlier": earlier, "shift": shift}
    return scan_chunks(step, memory, streams, chunk=CHUNK)
