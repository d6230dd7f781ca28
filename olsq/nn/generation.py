"""Sampling from a language model, one token at a time on states of constant size."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from olsq.nn.parts import check_tokens


def generate(
    model: Any,
    tokens: ArrayLike,
    steps: int,
    *,
    key: Array | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Array:
    """Sample a continuation of each prompt.

    Parameters
    ----------
    model : LanguageModel
    tokens : int array (B, T)
        Prompts, T >= 1.
    steps : int
        Tokens to sample.
    key : jax.random.key
        Needed unless the temperature is 0.
    temperature : float
        Of the softmax over logits; 0 takes the most likely token.
    top_k : int, optional
        Sample among the k most likely tokens only.
    top_p : float, optional
        Sample among the fewest tokens that have at least this probability together, in (0, 1].

    Returns
    -------
    int32 array (B, steps)

    Raises
    ------
    ValueError
        If an option is out of range, or a key is missing.

    Notes
    -----
    Compiled once per shape and options.  The memory is that of one token: the states of all
    mixers have a constant size (that of softmax attention, T + steps tokens).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, olsq.nn
    >>> model = olsq.nn.LanguageModel(16, dim=16, blocks=1, heads=1, key=jax.random.key(0))
    >>> olsq.nn.generate(model, jnp.array([[3, 1]]), 5, temperature=0).shape
    (1, 5)
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if not temperature >= 0:
        raise ValueError(f"temperature must be >= 0 (0 takes the likeliest), got {temperature}")
    if temperature > 0 and key is None:
        raise ValueError("key is needed to sample, unless temperature=0")
    if top_k is not None and not 1 <= top_k <= model.vocab_size:
        raise ValueError(f"top_k must lie in [1, {model.vocab_size}], got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1], got {top_p}")
    tokens = check_tokens(tokens, model.vocab_size)  # here, where they can still be seen
    logits, state = _prefill(model, tokens, tokens.shape[1] + steps)
    key = jax.random.key(0) if key is None else key
    return _continue(model, logits, state, key, temperature, steps, temperature == 0, top_k, top_p)


@eqx.filter_jit
def _prefill(model: Any, tokens: Array, capacity: int) -> tuple[Array, Any]:
    return model.prefill(tokens, capacity=capacity)


@eqx.filter_jit
def _continue(
    model: Any, logits: Array, state: Any, key: Array, temperature: Any, steps: int,
    greedy: bool, top_k: int | None, top_p: float | None,
) -> Array:  # fmt: skip
    def draw(logits: Array, key: Array) -> Array:
        if greedy:
            return jnp.argmax(logits, -1).astype(jnp.int32)
        kept = truncate(logits / temperature, top_k, top_p)
        return jax.random.categorical(key, kept).astype(jnp.int32)

    def body(carry: tuple[Array, Any], key: Array) -> tuple[tuple[Array, Any], Array]:
        token, state = carry
        logits, state = model.step(token, state)
        following = draw(logits, key)
        return (following, state), following

    first, *rest = jax.random.split(key, steps)
    token = draw(logits, first)
    if not rest:
        return token[:, None]
    _, tokens = jax.lax.scan(body, (token, state), jnp.stack(rest))
    return jnp.concatenate([token[:, None], tokens.T], 1)


def truncate(logits: Array, top_k: int | None, top_p: float | None) -> Array:
    """Logits (B, V) with -inf where a token is not among the likeliest."""
    if top_k is not None:
        least = jax.lax.top_k(logits, top_k)[0][:, -1:]
        logits = jnp.where(logits < least, -jnp.inf, logits)
    if top_p is not None and top_p < 1:  # rounding would leave out tokens at 1
        order = jnp.argsort(-logits, -1)
        sorted_p = jax.nn.softmax(jnp.take_along_axis(logits, order, -1), -1)
        before = jnp.cumsum(sorted_p, -1) - sorted_p
        dropped = jnp.take_along_axis(before >= top_p, jnp.argsort(order, -1), -1)
        logits = jnp.where(dropped, -jnp.inf, logits)
    return logits
