"""Self-attention as in the constructions: every head has its own P, W_V, W_K, W_Q."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import check_flags, check_number, check_sizes, is_integer, shown
from olsq.icl.weights import AttentionWeights, check_weights, floating, products, shaped


def attention_update(
    tokens: Any,
    weights: AttentionWeights,
    *,
    softmax: bool = False,
    causal: bool = False,
    context: int | None = None,
) -> Array:
    """Compute what a layer adds to every token: ``sum_h P_h V_h K_h^T q_h``.

    Parameters
    ----------
    tokens : array (..., N, D)
    weights : AttentionWeights
    softmax : bool
        ``softmax(K_h^T q_h)``, without a scale, in the place of ``K_h^T q_h``.
    causal : bool
        A token attends to itself and to those before it only.
    context : int, optional
        Keys and values are those of ``tokens[..., :context, :]``: N - 1, or -1, leaves out a
        query in the last place.  Default: all.

    Returns
    -------
    array (..., N, D)

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    Source: J. von Oswald et al., "Transformers learn in-context by gradient descent" (2023), the
    thesis' eq. 2.1; the causal forms are its 3.1 and 3.2, of "Uncovering mesa-optimization
    algorithms in Transformers" (2023).

    O(N^2 (K + V)), or O(N D^2) for a linear layer that is not causal: at the hundred tokens of
    these papers the square is cheaper than a recurrence.
    :func:`olsq.attention.linear` and :func:`olsq.attention.softmax` are the causal ones for long
    sequences; they give the same numbers.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import attention_update, from_products
    >>> weights = from_products(jnp.eye(1), jnp.eye(1))
    >>> attention_update(jnp.array([[1.0], [2.0], [3.0]]), weights, context=-1)[:, 0]
    Array([ 5., 10., 15.], dtype=float32)
    """
    check_flags(softmax=softmax, causal=causal)
    _check_context(context)
    weights = check_weights(weights)
    tokens = shaped("tokens", tokens, ("N", weights.key.shape[-1]))
    return _update(tokens, weights, softmax, causal, context)


def attend(
    tokens: Any,
    weights: AttentionWeights,
    *,
    damping: Any = 1.0,
    softmax: bool = False,
    causal: bool = False,
    context: int | None = None,
) -> Array:
    """Apply a layer to tokens: ``e + damping sum_h P_h V_h K_h^T q_h``.

    Parameters
    ----------
    tokens : array (..., N, D)
    weights : AttentionWeights
    damping : float
        Factor of the update; 1 is the layer itself.
    softmax, causal, context
        As for :func:`attention_update`.

    Returns
    -------
    array (..., N, D)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import attend, from_products
    >>> attend(jnp.ones((2, 1)), from_products(jnp.eye(1), jnp.eye(1)), causal=True)[:, 0]
    Array([2., 3.], dtype=float32)
    """
    check_flags(softmax=softmax, causal=causal)
    _check_context(context)
    weights = check_weights(weights)
    tokens = shaped("tokens", tokens, ("N", weights.key.shape[-1]))
    damping = check_number("damping", damping)
    return _attend(tokens, weights, damping, softmax, causal, context)


def run_layers(
    tokens: Any,
    layers: Sequence[AttentionWeights],
    *,
    softmax: bool = False,
    causal: bool = False,
    context: int | None = None,
    clip: float | None = None,
) -> Array:
    """Apply layers in turn; the tokens before the first and after every layer.

    Parameters
    ----------
    tokens : array (..., N, D)
    layers : sequence of L AttentionWeights
    softmax, causal, context
        As for :func:`attention_update`.
    clip : float, optional
        Limit every token to [-clip, clip] after every layer except the last.  The code of the
        thesis has 1.5 as its default; table 3.1 has no limit.

    Returns
    -------
    array (L + 1, ..., N, D)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import from_products, run_layers
    >>> layer = from_products(jnp.eye(1), jnp.eye(1))
    >>> run_layers(jnp.ones((1, 1)), [layer, layer])[:, 0, 0]
    Array([ 1.,  2., 10.], dtype=float32)
    """
    if clip is not None:
        clip = check_number("clip", clip, least=0)
    trace = [floating(tokens)]
    for number, weights in enumerate(layers, 1):
        after = attend(trace[-1], weights, softmax=softmax, causal=causal, context=context)
        if clip is not None and number < len(layers):
            after = jnp.clip(after, -clip, clip)
        trace.append(after)
    return jnp.stack(trace)


def roll_out(
    tokens: Any,
    weights: AttentionWeights,
    steps: int,
    *,
    damping: Any = 1.0,
    softmax: bool = False,
    causal: bool = False,
    context: int | None = None,
) -> Array:
    """Apply the same layer repeatedly; the tokens before the first and after every application.

    Parameters
    ----------
    tokens : array (..., N, D)
    weights : AttentionWeights
    steps : int
    damping : float
        Factor of every update.  A layer trained for one application diverges when repeated;
        0.75 keeps it, and one-step gradient descent, stable (the thesis' section 2.6.5).
    softmax, causal, context
        As for :func:`attention_update`.

    Returns
    -------
    array (steps + 1, ..., N, D)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import from_products, roll_out
    >>> layer = from_products(jnp.eye(1), jnp.eye(1))
    >>> roll_out(jnp.ones((1, 1)), layer, 2, damping=0.5)[:, 0, 0]
    Array([1.    , 1.5   , 3.1875], dtype=float32)
    """
    check_sizes(0, steps=steps)

    def again(now: Array, _: None) -> tuple[Array, Array]:
        after = attend(
            now, weights, damping=damping, softmax=softmax, causal=causal, context=context
        ).astype(now.dtype)
        return after, after

    start = floating(tokens)
    start = start.astype(jnp.result_type(start, *weights))
    return jnp.concatenate([start[None], jax.lax.scan(again, start, None, length=steps)[1]])


def _check_context(context: Any) -> None:
    if context is not None and not is_integer(context):
        raise ValueError(f"context must be an integer or None, got {shown(context)}")


@partial(jax.jit, static_argnames=("softmax", "causal", "context"))
def _attend(
    tokens: Array,
    weights: AttentionWeights,
    damping: Any,
    softmax: bool,
    causal: bool,
    context: int | None,
) -> Array:
    return tokens + damping * _update(tokens, weights, softmax, causal, context)


@partial(jax.jit, static_argnames=("softmax", "causal", "context"))
def _update(
    tokens: Array, weights: AttentionWeights, softmax: bool, causal: bool, context: int | None
) -> Array:
    context_tokens = tokens[..., :context, :]
    if not (softmax or causal):  # linear and not causal: the second moments of the tokens suffice
        kq, pv = products(weights)
        moments = jnp.einsum("...md,...me->...de", context_tokens, context_tokens)
        model = jnp.einsum("...had,hdb->...ab", jnp.einsum("had,...de->...hae", pv, moments), kq)
        return jnp.einsum("...ab,...nb->...na", model, tokens)
    q = jnp.einsum("hkd,...nd->...hnk", weights.query, tokens)
    k = jnp.einsum("hkd,...md->...hmk", weights.key, context_tokens)
    v = jnp.einsum("hvd,...md->...hmv", weights.value, context_tokens)
    scores = jnp.einsum("...nk,...mk->...nm", q, k)
    visible = jnp.ones(scores.shape[-2:], bool)
    if causal:
        visible = jnp.tril(visible)
    if softmax:
        scores = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    else:
        scores = jnp.where(visible, scores, 0)
    return jnp.einsum("hdv,...hnm,...hmv->...nd", weights.projection, scores, v)
