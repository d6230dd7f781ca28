"""``S_t = S_{t-1} * A_t + v_t k_t^T``: a factor for each entry of the memory, token by token.

The factors have no structure that a chunk could turn into matrix products, so the work is that of
the recurrence.  They are made inside the scan: all of them at once would be T memories.  (Measured
on CPU, an associative scan inside chunks takes four times as long, forward and backward.)  An
accelerator starts kernels for every token, and so runs many spans of time side by side, twice: for
what each does to the memory before it, and from that memory.

Writes and reads of a token are written as matrix products. These save nothing by themselves, but
their derivatives are then products with the memories too. Derivatives of broadcasts are sums over
one axis, which took longer on a CPU than the rest of a token's backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.chunked import CHUNK, compose, run_linear_pieces
from olsq.attention.recurrences.scan import scan_tokens
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.pieces import (
    cut_into_pieces,
    join_pieces,
    multiply_gates,
    pieces_of,
    scan_pieces,
)
from olsq.sequence.jax.platform import Target, by_platform
from olsq.sequence.jax.tiles import WIDEST

FEWEST = 4  # spans that are worth passing through twice

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

    def along(token: Any, carry: Any, streams: dict[str, Any], chunk: Any = None) -> Any:
        begun = None if streams["start"] is None else (streams["start"], False)
        again = jax.checkpoint(token, prevent_cse=False)
        return scan_tokens(again, carry, {**streams, "start": begun}, chunk=chunk)

    # Keys before values: the read then adds rows, which vectorises, instead of within them.
    memory = jnp.swapaxes(memory, 1, 2)
    inputs: dict[str, Any] = {**streams, "q": q, "k": k, "v": v, "start": start}
    length, pieces = q.shape[1], pieces_of(q.shape[1])

    def side_by_side(spans: int, chunk: int | None = None) -> tuple[Array, Array]:
        """Run ``spans`` of equal length; ``chunk`` tokens are computed again together."""

        # By vmap: ``parameters`` may belong to each of the N streams.
        def by_span(x: Any) -> Array:
            return x.reshape(spans, -1, *x.shape[1:])

        def cut(x: Array) -> Array:
            spare = [(0, 0), (0, -length % spans)] + [(0, 0)] * (x.ndim - 2)
            return by_span(cut_into_pieces(jnp.pad(x, spare) if -length % spans else x, spans))

        cuts = jax.tree.map(cut, inputs)
        zero = jnp.zeros((spans, *memory.shape), memory.dtype)
        first = (zero, jnp.ones_like(zero))
        ends = jax.vmap(lambda carry, x: along(summary, carry, x, chunk)[1])(first, cuts)
        add, factor = (x.reshape(-1, *x.shape[2:]) for x in ends)
        before, last = scan_pieces(factor, add, memory)
        out = jax.vmap(lambda carry, x: along(token, carry, x, chunk)[0])(by_span(before), cuts)
        return join_pieces(out.reshape(-1, *out.shape[2:]), spans)[:, :length], last

    def choose(target: Target) -> int:
        if target.cpu or not isinstance(length, int) or not isinstance(memory.shape[0], int):
            return 1
        # the state of a span is a memory and its factors
        spans = min(length // CHUNK, target.tile_bytes // (2 * WIDEST * max(1, memory.size)))
        return spans if spans >= FEWEST else 1

    def run(spans: int) -> tuple[Array, Array]:
        if spans == 1:
            return along(token, memory, inputs)
        # The backward pass keeps the states of a chunk, and those before every chunk: the fewest.
        return side_by_side(spans, max(8, math.isqrt(length // spans) // 8 * 8))

    out, memory = by_platform(choose, run) if pieces == 1 else side_by_side(pieces)
    return out, jnp.swapaxes(memory, 1, 2)


@compile_once
def diagonal(
    factors: Array, add: Array, hidden: Array, *, start: Array | None = None
) -> tuple[Array, Array]:
    """Run ``h_t = a_t h_{t-1} + b_t``, a and b (N, T, V): all h (N, T, V), and the last (N, V)."""

    def token(hidden: Array, x: Any) -> tuple[Array, Array]:
        hidden = x["factors"] * hidden + x["add"]
        return hidden, hidden

    def choose(target: Target) -> bool:
        return not target.cpu and isinstance(length, int) and length > 1

    def run(hidden: Array, at_once: bool) -> tuple[Array, Array]:
        if not at_once:
            return scan_tokens(token, hidden, {"factors": (factors, 1.0), "add": add})
        products, sums = jax.lax.associative_scan(compose, (factors, add), axis=1)
        out = products * hidden[:, None] + sums
        return out, out[:, -1]

    if start is not None:
        factors = jnp.where(start[..., None], 0, factors)
    pieces = pieces_of(add.shape[1])
    factors, add = cut_into_pieces(factors, pieces), cut_into_pieces(add, pieces)
    length = add.shape[1]

    def on_platform(hidden: Array) -> tuple[Array, Array]:
        return by_platform(choose, partial(run, hidden))

    return run_linear_pieces(on_platform, lambda: multiply_gates(factors), hidden, pieces)
