"""One update of the weights: loss, gradient, optimiser; nothing if a number is not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

__all__ = ["Metrics", "make_step"]


class Metrics(NamedTuple):
    """What a step reports.

    Attributes
    ----------
    loss : scalar
        Of the weights before the step.
    gradient_norm : scalar
        As the optimiser is given it, before any clipping.
    skipped : bool
        Whether the loss or the norm was not finite, so that nothing was changed.
    """

    loss: Array
    gradient_norm: Array
    skipped: Array


def make_step(
    loss: Callable[..., Any],
    optimizer: optax.GradientTransformation,
    *,
    accumulate: int = 1,
    donate: bool = False,
) -> Callable[..., tuple[Any, Any, Metrics]]:
    """The compiled update ``model, state, metrics = step(model, state, *batch)``.

    Parameters
    ----------
    loss : callable
        ``loss(model, *batch)``, a scalar.
    optimizer : optax.GradientTransformation
        Its state starts as ``optimizer.init(equinox.filter(model, equinox.is_inexact_array))``.
    accumulate : int
        Parts in which a batch is computed one after the other, to save memory; their losses and
        gradients are averaged.
    donate : bool
        Let a step use the memory of the model and the state it is given, which must not be used
        again.

    Returns
    -------
    callable
        Of a model, a state, arrays whose first axis is the batch's, and keywords for the
        optimiser's ``update``.

    Notes
    -----
    The floating-point arrays of the model are its weights.  If the loss or the norm of the gradient
    is not finite, model and state come back unchanged and ``metrics.skipped`` is True.

    Examples
    --------
    >>> import equinox as eqx, jax, jax.numpy as jnp, olsq.nn, optax
    >>> from olsq.train import decay_mask, make_step, token_loss
    >>> model = olsq.nn.LanguageModel(8, dim=8, blocks=1, heads=2, key=jax.random.key(0))
    >>> optimizer = optax.adamw(1e-2, weight_decay=0.1, mask=decay_mask)
    >>> step = make_step(lambda model, x, y: token_loss(model(x), y), optimizer)
    >>> state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    >>> tokens = jnp.arange(18).reshape(2, 9) % 8
    >>> for _ in range(20):
    ...     model, state, metrics = step(model, state, tokens[:, :-1], tokens[:, 1:])
    >>> bool(metrics.loss < 1.5), bool(metrics.skipped)
    (True, False)
    """
    optimizer = optax.with_extra_args_support(optimizer)

    def gradient(model: Any, batch: Any) -> tuple[Array, Any]:
        value_and_grad = eqx.filter_value_and_grad(loss)
        if accumulate == 1:
            return value_and_grad(model, *batch)
        parts = jax.tree.map(lambda x: x.reshape(accumulate, -1, *x.shape[1:]), batch)

        def add(total: Any, part: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, value_and_grad(model, *part)), None

        weights = eqx.filter(model, eqx.is_inexact_array)
        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, weights))
        total, _ = jax.lax.scan(add, zero, parts)
        return jax.tree.map(lambda x: x / accumulate, total)

    def update(given: Any, model: Any, state: Any) -> tuple[Any, Any, Metrics]:
        batch, options = given
        value, gradients = gradient(model, batch)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
        finite = jnp.isfinite(value) & jnp.isfinite(norm)
        weights, rest = eqx.partition(model, eqx.is_inexact_array)
        updates, new_state = optimizer.update(gradients, state, weights, **options)
        new_weights = jax.tree.map(jnp.add, weights, updates)

        def keep(new: Array, old: Array) -> Array:
            return jnp.where(finite, new, old)

        model = eqx.combine(jax.tree.map(keep, new_weights, weights), rest)
        return model, jax.tree.map(keep, new_state, state), Metrics(value, norm, ~finite)

    compiled = eqx.filter_jit(update, donate="all-except-first" if donate else "none")

    def step(model: Any, state: Any, *batch: Any, **options: Any) -> tuple[Any, Any, Metrics]:
        return compiled((batch, options), model, state)

    return step
