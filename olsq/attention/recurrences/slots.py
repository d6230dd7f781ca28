"""``S_t = diag(a_t) S_{t-1} + v_t k_t^T``: a gate for each row of the memory, without dividing.

Rows are value dimensions here, where :mod:`vector`'s gates are of key dimensions. A score
``q_t . k_i`` is then one number for all rows, and the gates between two tokens are factors inside
the sum: ``o_t = sum_i (q_t . k_i) D[t, i] * v_i``, D[t, i] the products of gates i+1..t. Between
the halves of a block those factor at the seam, into gates up to it (on the value) and from it (on
the sum). Both are products of gates, at most 1, so nothing overflows and a gate may be 0.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.scan import scan_chunks
from olsq.attention.recurrences.vector import SMALLEST
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.pieces import (
    cut_into_pieces,
    join_pieces,
    multiply_gates,
    pieces_of,
    scan_pieces,
)


@compile_once
def row_gated(q: Array, k: Array, v: Array, gates: Array, memory: Array) -> tuple[Array, Array]:
    """Run ``S_t = diag(a_t) S_{t-1} + v_t k_t^T``: outputs ``S_t q_t`` (N, T, V), last memory (N,
    V, K); gates (N, T, V).
    """
    pieces = pieces_of(q.shape[1])
    if pieces == 1:
        return _row_gated(q, k, v, gates, memory)
    q, k, v, gates = (cut_into_pieces(x, pieces) for x in (q, k, v, gates))
    zero = jnp.zeros((pieces * memory.shape[0], *memory.shape[1:]), memory.dtype)
    add = _row_gated(q, k, v, gates, zero)[1]
    before, last = scan_pieces(multiply_gates(gates)[..., None], add, memory)
    return join_pieces(_row_gated(q, k, v, gates, before)[0], pieces), last


def _row_gated(q: Array, k: Array, v: Array, gates: Array, memory: Array) -> tuple[Array, Array]:
    """Run :func:`row_gated` on a whole stream, not in pieces."""

    def step(memory: Array, x: Any) -> tuple[Array, Array]:
        out, upto, after = _inside(x["q"], x["k"], x["v"], x["gates"])
        out = out + upto * jnp.einsum("ntk,nvk->ntv", x["q"], memory)
        new = jnp.einsum("niv,nik->nvk", x["v"] * after, x["k"])
        return memory * upto[:, -1, :, None] + new, out

    return scan_chunks(step, memory, {"q": q, "k": k, "v": v, "gates": (gates, 1.0)})


def _inside(q: Array, k: Array, v: Array, gates: Array) -> tuple[Array, Array, Array]:
    """Compute a chunk's reads of its own tokens (N, C, ...), and the gates up to and after each
    token.
    """
    n, c, width = gates.shape
    size = c
    while size > SMALLEST and size % 2 == 0:
        size //= 2

    def blocks(x: Array, *shape: int) -> Array:
        return x.reshape(n, c // math.prod(shape), *shape, x.shape[-1])

    a = blocks(gates, size)
    upto = [a[:, :, 0]]  # product of gates 0 .. t
    table = [jnp.zeros_like(a).at[:, :, 0].set(1)]  # of gates i+1 .. t, 0 unless i <= t
    for t in range(1, size):
        itself = jnp.zeros((size, 1), gates.dtype).at[t].set(1)
        table.append(table[-1] * a[:, :, t, None] + itself)
        upto.append(upto[-1] * a[:, :, t])
    pairs, reach, after = jnp.stack(table, 2), jnp.stack(upto, 2), table[-1]
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
