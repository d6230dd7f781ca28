"""Training loop shared by the rules of test-time training."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import refuse
from olsq.attention.arguments import (
    Layout,
    Tokens,
    check_count,
    check_state,
    check_weight,
    per_head,
)
from olsq.attention.lost import drop_unwritten, restore_layout
from olsq.attention.recurrences.ttt import Layers, Learner, Norm, train_stream


def initial_weights(initial: Any, shapes: dict[str, Any], layout: Layout) -> list[Array]:
    """Return the weights to start from, one of each for every stream; 0 where none are given."""
    if initial is None:
        initial = [0.0] * len(shapes)
    elif len(initial) != len(shapes):
        raise ValueError(f"initial must be ({', '.join(shapes)}), got {len(initial)} arrays")
    pairs = zip(initial, shapes.items(), strict=True)
    return [per_head(f"initial {part}", x, layout, *shape) for x, (part, shape) in pairs]


def train(
    tokens: Tokens,
    layout: Layout,
    kind: Any,
    start: list[Array],
    learning_rate: Any,
    norm: tuple[Any, Any, float],
    mini_batch: int,
    query_factor: Any,
    state: Any,
) -> tuple[Array, Any]:
    """Train the network of a TTT rule whose state is the named tuple ``kind``.

    Returns outputs and state.
    """
    values, keys = tokens.v.shape[-1], tokens.k.shape[-1]
    if values != keys:
        raise ValueError(
            f"v must have the width of k, got {values} and {keys}: the network learns v - k"
        )
    check_count("mini_batch", mini_batch)
    if type(state) is kind:
        refuse(
            "state.position", state.position, lambda p: p > mini_batch,
            f"be at most mini_batch = {mini_batch}, as the state's was",
        )  # fmt: skip
    tokens, rates = drop_unwritten(tokens, check_weight("learning_rate", learning_rate, layout))
    rates = jnp.ones(tokens.sample_lost.shape, layout.working) if rates is None else rates
    scale, bias = (per_head(n, x, layout, values)[:, None] for n, x in
                   (("norm_scale", norm[0]), ("norm_bias", norm[1])))  # fmt: skip
    factor = None
    if query_factor is not None:
        factor = per_head("query_factor", query_factor, layout, mini_batch)
    b, h = layout.batch, layout.heads
    whole = [x.reshape(b, h, *x.shape[1:]) for x in start]
    zero = kind(*whole, *whole, jnp.zeros((b, h), jnp.int32))
    opened, state_lost = check_state(state, zero, layout)
    initial = as_layers(start)
    parts = len(start)
    learner = Learner(as_layers(opened[:parts]), as_layers(opened[parts:-1]), opened.position)
    out, learner = train_stream(
        tokens.q, tokens.k, tokens.v, rates, learner, Norm(scale, bias, norm[2]), mini_batch,
        segments=tokens.start, initial=initial, fresh=state is None, factor=factor,
        groups=h,
    )  # fmt: skip
    end = kind(*sum((*learner.now, *learner.start), ()), learner.position)
    return restore_layout(out, end, tokens, state_lost, layout)


def as_layers(parts: Any) -> Layers:
    """Group alternating weights and biases into layers."""
    return tuple(zip(parts[0::2], parts[1::2], strict=True))
