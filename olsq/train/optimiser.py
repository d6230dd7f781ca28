"""One update of the weights: loss, gradient, clipping, AdamW; nothing if a number is not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from olsq.nn.names import path_names
from olsq.train.config import TrainConfig
from olsq.train.evaluation import token_losses

__all__ = ["Metrics", "decay_mask", "initial_state", "make_step"]

Params = Any  # the model with None where there is no weight
Step = Callable[[Params, Any, Any, Any], tuple[Params, Any, "Metrics"]]


class Metrics(NamedTuple):
    """What a step reports: float32 scalars, and whether it was skipped."""

    loss: Array
    gradient_norm: Array  # before clipping
    learning_rate: Array
    skipped: Array


def decay_mask(params: Params) -> Any:
    """Which weights a decoupled weight decay should shrink: the matrices of projections and gates.

    A field named ``weight``, ``head`` or ending in ``_gate`` with two axes or more, outside
    embeddings.  Norm scales, biases, convolution kernels, ridges, learned rates, initial states
    and embeddings, tied ones included, are left alone, however many axes they have: shrinking
    them would move a ridge or the scale of the logits, not regularise.

    Parameters
    ----------
    params : pytree
        Weights, with None where there is none: ``equinox.filter(model, equinox.is_inexact_array)``.
        Arrays of any dtype, or anything else that has ``ndim``.

    Returns
    -------
    pytree of bool
        In the shape of ``params``: what ``optax.adamw`` and ``optax.add_decayed_weights`` take as
        their ``mask``.

    Notes
    -----
    ``olsq.train.fit`` and ``olsq train`` use it.  It goes by the names of the fields, as the
    layers of `olsq.nn` have them: a mixer of your own is decayed where it keeps its matrices in
    `olsq.nn.Linear`, or in fields named as above.

    Examples
    --------
    >>> import equinox as eqx, jax, olsq.nn, optax
    >>> from olsq.train import decay_mask
    >>> model = olsq.nn.LanguageModel(8, dim=8, blocks=1, heads=2, key=jax.random.key(0))
    >>> mask = decay_mask(eqx.filter(model, eqx.is_inexact_array))
    >>> mixer = mask.backbone.blocks[0].mixer
    >>> mask.embedding, mixer.ridge.raw, mixer.convolution.kernel, mixer.output.weight
    (False, False, False, True)
    >>> optimizer = optax.adamw(1e-3, weight_decay=0.1, mask=decay_mask)
    """

    def decide(path: tuple[Any, ...], leaf: Any) -> bool:
        names = [name.lower() for name in path_names(path)]
        last = next((name for name in reversed(names) if not name.isdigit()), "")
        matrix = last in ("weight", "head") or last.endswith("_gate")
        return matrix and leaf.ndim >= 2 and not any("embed" in name for name in names)

    return jax.tree_util.tree_map_with_path(decide, params)


def adamw(config: TrainConfig) -> optax.GradientTransformation:
    """AdamW without its learning rate, which depends on the step and not on updates made."""
    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.eps),
        optax.add_decayed_weights(config.weight_decay, mask=decay_mask),
    )


def initial_state(config: TrainConfig, params: Params) -> Any:
    """The optimiser's state before the first step."""
    return adamw(config).init(params)


def make_step(config: TrainConfig, static: Any) -> Step:
    """The compiled update ``params, state, metrics = step(params, state, index, tokens)``.

    Parameters
    ----------
    config : TrainConfig
    static : pytree
        The model with None where it has weights (``equinox.partition``).

    Returns
    -------
    callable
        ``index`` counts steps from 0; ``tokens`` is (batch, length + 1).  Weights and state given
        to it must not be used again: their memory is.

    Notes
    -----
    If the loss or the norm of the gradient is not finite, weights and state come back unchanged
    and ``skipped`` is True.
    """
    transform = adamw(config)

    def mean_loss(params: Params, tokens: Array) -> Array:
        model = eqx.combine(params, static)
        return token_losses(model(tokens[:, :-1]), tokens[:, 1:]).mean()

    def gradient(params: Params, tokens: Array) -> tuple[Array, Params]:
        if config.accumulate == 1:
            return jax.value_and_grad(mean_loss)(params, tokens)
        parts = tokens.reshape(config.accumulate, -1, tokens.shape[-1])

        def add(total: Any, part: Array) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, jax.value_and_grad(mean_loss)(params, part)), None

        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        total, _ = jax.lax.scan(add, zero, parts)
        return jax.tree.map(lambda x: x / config.accumulate, total)

    def step(params: Params, state: Any, index: Array, tokens: Array) -> Any:
        loss, gradients = gradient(params, tokens)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
        rate = config.learning_rate(index)
        updates, new_state = transform.update(gradients, state, params)
        new_params = jax.tree.map(lambda p, u: p - rate.astype(p.dtype) * u, params, updates)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)

        def keep(new: Array, old: Array) -> Array:
            return jnp.where(finite, new, old)

        params = jax.tree.map(keep, new_params, params)
        state = jax.tree.map(keep, new_state, state)
        return params, state, Metrics(loss, norm, rate, ~finite)

    return jax.jit(step, donate_argnums=(0, 1))
