"""``S_t = S_{t-1} * A_t + v_t k_t^T``: a factor for each entry of the memory, token by token.

The factors have no structure that a chunk could turn into matrix products, so the work is that of
the recurrence.  They are made inside the scan: all of them at once would be T memories.  (Measured
on CPU, an associative scan inside chunks takes four times as long, forward and backward.)

Writes and reads of a token are written as matrix products. These save nothing by themselves, but
their derivatives are then products with the memories too. Derivatives of broadcasts are sums over
one axis, which took longer on a CPU than the rest of a token's backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.scan import scan_chunks
from olsq.sequence.jax.control import compile_once, scan
from olsq.sequence.jax.pieces import (
    cut_into_pieces,
    join_pieces,
    multiply_gates,
    pieces_of,
    scan_pieces,
)

product = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)  # as exact as a sum


@partial(compile_once, static_argnames="factors")
def elementwise(
    q: Array,
    k: Array,
    v: Array,
    factors: Callable[[dict[str, Array], Any], Array],
    streams: dict[str, Array],
    memory: Array,
    *,
    parameters: Any = None,
    start: Array | None = None,
) -> tuple[Array, Array]:
    """Run ``S_t = S_{t-1} * A_t + v_t k_t^T``, ``o_t = S_t q_t``: outputs and the last memory.

    Outputs are (N, T, V), the memory (N, V, K). ``factors`` computes A_t^T, (N, K, V) or what
    broadcasts to it, from the t-th slices of ``streams``, arrays (N, T, ...) by name, to which "k"
    and "v" are added, and from ``parameters``, which are the same at every token. It must give 1
    where all streams are 0, as in the padding of the last chunk, and must be a function of a
    module: one that is made in the call is compiled in every call. ``start`` (N, T) marks the
    tokens before which everything is forgotten.
    """

    def held(x: Any) -> Array:
        decay = factors(x, parameters)
        return decay if start is None else jnp.where(x["start"][:, None, None], 0, decay)

    def written(x: Any) -> Array:
        return product("nk,nv->nkv", x["k"], x["v"])

    def token(memory: Array, x: Any) -> tuple[Array, Array]:
        # S = S * A + v k^T, stored as S^T (K, V)
        memory = held(x) * memory + written(x)
        return memory, product("nkv,nk->nv", memory, x["q"])

    def summary(carry: Any, x: Any) -> tuple[Any, Array]:
        decay = held(x)
        memory = decay * carry[0] + written(x)
        return (memory, decay * carry[1]), x["q"][:, 0]

    def along(token: Any, carry: Any, streams: dict[str, Any]) -> tuple[Array, Any]:
        def step(carry: Any, x: Any) -> tuple[Any, Array]:
            rows = {name: jnp.moveaxis(s, 1, 0) for name, s in x.items() if s is not None}
            carry, out = scan(jax.checkpoint(token, prevent_cse=False), carry, rows)
            return carry, jnp.moveaxis(out, 0, 1)

        begun = streams["start"]
        return scan_chunks(
            step, carry, {**streams, "start": None if begun is None else (begun, False)}
        )

    # Keys before values: the read then adds rows, which vectorises, instead of within them.
    memory = jnp.swapaxes(memory, 1, 2)
    inputs: dict[str, Any] = {**streams, "q": q, "k": k, "v": v, "start": start}
    pieces = pieces_of(q.shape[1])
    if pieces == 1:
        out, memory = along(token, memory, inputs)
    else:
        # By vmap: ``parameters`` may belong to each of the N streams.
        def by_piece(x: Any) -> Array:
            return x.reshape(pieces, -1, *x.shape[1:])

        inputs = jax.tree.map(lambda x: by_piece(cut_into_pieces(x, pieces)), inputs)
        zero = jnp.zeros((pieces, *memory.shape), memory.dtype)
        first = (zero, jnp.ones_like(zero))
        ends = jax.vmap(lambda carry, x: along(summary, carry, x)[1])(first, inputs)
        add, factor = (x.reshape(-1, *x.shape[2:]) for x in ends)
        before, memory = scan_pieces(factor, add, memory)
        out = jax.vmap(lambda carry, x: along(token, carry, x)[0])(by_piece(before), inputs)
        out = join_pieces(out.reshape(-1, *out.shape[2:]), pieces)
    return out, jnp.swapaxes(memory, 1, 2)


@compile_once
def diagonal(
    factors: Array, add: Array, hidden: Array, *, start: Array | None = None
) -> tuple[Array, Array]:
    """Run ``h_t = a_t h_{t-1} + b_t``, a and b (N, T, V): all h (N, T, V), and the last (N, V)."""

    def token(hidden: Array, x: Any) -> tuple[Array, Array]:
        hidden = x["factors"] * hidden + x["add"]
        return hidden, hidden

    def step(hidden: Array, x: Any) -> tuple[Array, Array]:
        rows = {name: jnp.moveaxis(s, 1, 0) for name, s in x.items()}
        hidden, out = scan(token, hidden, rows)
        return hidden, jnp.moveaxis(out, 0, 1)

    if start is not None:
        factors = jnp.where(start[..., None], 0, factors)
    pieces = pieces_of(add.shape[1])
    if pieces == 1:
        return scan_chunks(step, hidden, {"factors": (factors, 1.0), "add": add})
    streams = {
        "factors": (cut_into_pieces(factors, pieces), 1.0),
        "add": cut_into_pieces(add, pieces),
    }
    zero = jnp.zeros((pieces * hidden.shape[0], *hidden.shape[1:]), hidden.dtype)
    before, last = scan_pieces(
        multiply_gates(streams["factors"][0]), scan_chunks(step, zero, streams)[1], hidden
    )
    return join_pieces(scan_chunks(step, before, streams)[0], pieces), last
