"""What softmax attention over everything and over a window share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.arguments import (
    Layout,
    check_heads,
    check_segments,
    fold_heads,
    layout_of,
)
from olsq.sequence.jax.tiles import finite


def check_streams(q: Any, k: Any, v: Any, segment_ids: Any, state: Any) -> tuple[Any, ...]:
    """Checked q, k, v (N, T, dim), first tokens of segments, and the layout."""
    given, b, t, h = check_heads(q=q, k=k, v=v)
    if given["q"].shape[-1] != given["k"].shape[-1]:
        raise ValueError(
            f"q must have the width of k, got q {given['q'].shape} and k {given['k'].shape}"
        )
    layout = layout_of(tuple(given.values()), state, b, t, h)
    folded = (fold_heads(x.astype(layout.working)) for x in given.values())
    return *folded, check_segments(segment_ids, layout), layout


def attend(q: Array, k: Array, v: Array, visible: Array, bad: Array, scale: Any) -> Array:
    """Rows of streams (N, C, K) against keys (N, S, K); a row that sees a bad key is NaN."""
    spoilt = (visible & bad[:, None]).any(-1) | ~finite(q)
    q = jnp.where(finite(q)[..., None], q, 0)
    # A row that sees nothing only pads the last block.
    visible = visible | ~visible.any(-1, keepdims=True)
    # jax.nn.dot_product_attention wants K = V and rounds its scores to float32.
    scores = jnp.einsum("ntk,nsk->nts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    share = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    out = jnp.einsum("nts,nsv->ntv", share, v)
    return jnp.where(spoilt[..., None], jnp.nan, out)


def unfold(out: Array, state: Any, layout: Layout) -> tuple[Array, Any]:
    """Outputs (B, T, H, V) and the cache (B, H, ...)."""
    b, h = layout.batch, layout.heads
    value = jnp.moveaxis(out.reshape(b, h, *out.shape[1:]), 1, 2)
    return value.astype(layout.dtype), type(state)(*(x.reshape(b, h, *x.shape[1:]) for x in state))
