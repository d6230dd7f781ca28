"""``S_t = S_{t-1} * A_t + v_t k_t^T``: a factor for each entry of the memory, token by token.

The factors have no structure that a chunk could turn into matrix products, so the work is that of
the recurrence.  They are made inside the scan: all of them at once would be T memories.  (Measured
on CPU, an associative scan inside chunks takes four times as long, forward and backward.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.scan import walk
from olsq.sequence.jax.control import scan


def elementwise(
    q: Array,
    k: Array,
    v: Array,
    factors: Callable[[dict[str, Array]], Array],
    streams: dict[str, Array],
    memory: Array,
    *,
    start: Array | None = None,
) -> tuple[Array, Array]:
    """Outputs (N, T, V) and the last memory (N, V, K) of ``o_t = S_t q_t``.

    ``factors`` makes A_t^T, (N, K, V) or what broadcasts to it, from the t-th slices of
    ``streams``: arrays (N, T, ...) by name, to which "k" and "v" are added.  It must give 1
    where all of them are 0, which is what pads the last chunk.  ``start`` (N, T) names the tokens
    before which everything is forgotten.
    """

    def token(memory: Array, x: Any) -> tuple[Array, Array]:
        held = factors(x)
        if start is not None:
            held = jnp.where(x["start"][:, None, None], 0, held)
        memory = held * memory + x["k"][:, :, None] * x["v"][:, None, :]
        return memory, (memory * x["q"][:, :, None]).sum(1)

    def step(memory: Array, x: Any) -> tuple[Array, Array]:
        rows = {name: jnp.moveaxis(s, 1, 0) for name, s in x.items() if s is not None}
        memory, out = scan(jax.checkpoint(token, prevent_cse=False), memory, rows)
        return memory, jnp.moveaxis(out, 0, 1)

    # Keys before values: the read then adds rows, which vectorises, instead of within them.
    streams = {**streams, "q": q, "k": k, "v": v}
    padded = {**streams, "start": None if start is None else (start, False)}
    out, memory = walk(step, jnp.swapaxes(memory, 1, 2), padded)
    return out, jnp.swapaxes(memory, 1, 2)


def diagonal(
    factors: Array, add: Array, hidden: Array, *, start: Array | None = None
) -> tuple[Array, Array]:
    """``h_t = a_t h_{t-1} + b_t``, a and b (N, T, V): all h (N, T, V), and the last (N, V)."""

    def token(hidden: Array, x: Any) -> tuple[Array, Array]:
        hidden = x["factors"] * hidden + x["add"]
        return hidden, hidden

    def step(hidden: Array, x: Any) -> tuple[Array, Array]:
        rows = {name: jnp.moveaxis(s, 1, 0) for name, s in x.items()}
        hidden, out = scan(token, hidden, rows)
        return hidden, jnp.moveaxis(out, 0, 1)

    if start is not None:
        factors = jnp.where(start[..., None], 0, factors)
    return walk(step, hidden, {"factors": (factors, 1.0), "add": add})
