"""Caches of rules that keep every token: their capacity and where new tokens are written."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import NDArray

from olsq.arrays.checks import check_integer
from olsq.arrays.questions import ask
from olsq.attention.arguments import Layout
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.pieces import cut_into_pieces, join_pieces, pieces_of, rotate_pieces


def capacity_of(state: Any, capacity: int | None, t: int) -> int:
    """Return the number of tokens a cache has space for; ``capacity`` counts without a state."""
    if state is not None:
        return jnp.shape(state.present)[2]
    if capacity is None:
        return t
    if isinstance(t, int):  # and no symbol
        check_integer("capacity", capacity, 0, bits=31)
    try:
        is_short = capacity < t
    except Exception:  # JAX's, whose name moved from version to version
        if isinstance(t, int):
            raise
        raise ValueError(
            f"capacity={capacity} and a time axis of unknown length {t}: give jax.export a "
            f"constraint, symbolic_shape(..., constraints=['{t} <= {capacity}']), or leave "
            "capacity out"
        ) from None
    if is_short:
        raise ValueError(f"capacity must be at least the length {t}, got {capacity}")
    return capacity


def check_room(state: Any, t: int, room: int) -> None:
    """Raise if t more tokens do not fit a cache, empty if None, after those of the longest stream.

    Under ``jax.jit`` the length is not known, and tokens that do not fit read NaN.
    """

    def check(lengths: NDArray[Any]) -> None:
        longest = int(lengths.max(initial=0))
        if longest + t > room:
            raise ValueError(
                f"state is full: it has room for {room} tokens and holds {longest}; {t} "
                "more do not fit: pass state.grown(capacity)"
            )

    if state is not None:
        ask(state.length, check)


def write_cache(old: Array | None, new: Array, taken: Array, room: int) -> Array:
    """Write ``new`` tokens (N, T, ...) into a cache (N, room, ...) from place ``taken`` on.

    A cache of ``None`` is empty.

    Where time is in pieces, the room is too, and new tokens go around the ring to their places.
    """
    pieces = pieces_of(new.shape[1])
    if old is None:
        spare = [(0, 0), (0, room - new.shape[1])] + [(0, 0)] * (new.ndim - 2)
        return jnp.pad(new, spare)
    new = new.astype(old.dtype)
    if pieces == 1 or room % pieces:
        return jax.lax.dynamic_update_slice_in_dim(old, new, taken, 1)
    old, new = cut_into_pieces(old, pieces), cut_into_pieces(new, pieces)
    by_piece = jnp.arange(pieces)
    for step in range(pieces):
        # The index of the visiting token for each place, (P, room / P).
        begin = taken + (by_piece - step) % pieces * new.shape[1]
        index = jnp.arange(room).reshape(pieces, -1) - begin[:, None]
        here = (index >= 0) & (index < new.shape[1])
        index, here = (
            jnp.repeat(x, old.shape[0] // pieces, 0).reshape(*old.shape[:2], *[1] * (old.ndim - 2))
            for x in (index, here)
        )
        moved = jnp.take_along_axis(rotate_pieces(new, pieces, step), index, 1, mode="clip")
        old = jnp.where(here, moved, old)
    return join_pieces(old, pieces)


def attend(
    q: Array, k: Array, v: Array, visible: Array, sample_lost: Array, scale: Any, fade: Any = None
) -> Array:
    """Attend from rows of streams (N, C, K) to keys (N, S, K).

    A row that sees a non-finite key is NaN.

    ``fade`` (N, C, S) is added to the scores, if given.
    """
    output_lost = (visible & sample_lost[:, None]).any(-1) | ~squarable(q)
    q = jnp.where(squarable(q)[..., None], q, 0)
    # A row that sees nothing is padding of the last block.
    visible = visible | ~visible.any(-1, keepdims=True)
    # jax.nn.dot_product_attention needs K = V and rounds its scores to float32.
    scores = jnp.einsum("ntk,nsk->nts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if fade is None else scores + fade
    share = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    out = jnp.einsum("nts,nsv->ntv", share, v)
    return jnp.where(output_lost[..., None], jnp.nan, out)


def unfold(out: Array, state: Any, layout: Layout) -> tuple[Array, Any]:
    """Reshape outputs to (B, T, H, V) and the cache to (B, H, ...)."""
    b, h = layout.batch, layout.heads
    value = jnp.moveaxis(out.reshape(b, h, *out.shape[1:]), 1, 2)
    return value.astype(layout.dtype), type(state)(*(x.reshape(b, h, *x.shape[1:]) for x in state))
