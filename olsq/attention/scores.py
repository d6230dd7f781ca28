"""Masked softmax attention shared by softmax, sliding-window and forgetting attention."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.arguments import Layout
from olsq.sequence.jax.tiles import finite


def attend(
    q: Array, k: Array, v: Array, visible: Array, sample_lost: Array, scale: Any, fade: Any = None
) -> Array:
    """Attend from rows of streams (N, C, K) to keys (N, S, K).

    A row that sees a non-finite key is NaN.

    ``fade`` (N, C, S) is added to the scores, if given.
    """
    output_lost = (visible & sample_lost[:, None]).any(-1) | ~finite(q)
    q = jnp.where(finite(q)[..., None], q, 0)
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
