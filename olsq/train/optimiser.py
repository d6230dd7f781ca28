"""The optimiser of :func:`olsq.train.fit`: clipping, AdamW, and which weights decay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import optax
from jax import Array

from olsq.nn.names import path_names
from olsq.train.config import TrainConfig
from olsq.train.losses import token_loss
from olsq.train.step import Metrics, make_step

__all__ = ["adamw", "decay_mask", "initial_state", "training_step"]

Params = Any  # the model with None where there is no weight


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
    >>> mask.embedding, mixer.ridge.raw, mixer.convolution.kernel, mixer.output_proj.weight
    (False, False, False, True)
    >>> optimizer = optax.adamw(1e-3, weight_decay=0.1, mask=decay_mask)
    """

    def decide(path: tuple[Any, ...], leaf: Any) -> bool:
        names = [name.lower() for name in path_names(path)]
        last = next((name for name in reversed(names) if not name.isdigit()), "")
        matrix = last in ("weight", "head") or last.endswith("_gate")
        return matrix and leaf.ndim >= 2 and not any("embed" in name for name in names)

    return jax.tree_util.tree_map_with_path(decide, params)


def adamw(config: TrainConfig) -> optax.GradientTransformationExtraArgs:
    """AdamW whose ``learning_rate`` is given with each update: it depends on the step, skipped or
    not, and the optimiser's state counts updates made."""
    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.eps),
        optax.add_decayed_weights(config.weight_decay, mask=decay_mask),
        _scale_by_given_rate(),
    )


def _scale_by_given_rate() -> optax.GradientTransformationExtraArgs:
    def update(updates: Any, state: Any, params: Any = None, **given: Any) -> Any:
        rate = given["learning_rate"]
        return jax.tree.map(lambda u: -rate.astype(u.dtype) * u, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def initial_state(config: TrainConfig, params: Params) -> Any:
    """The optimiser's state before the first step."""
    return adamw(config).init(params)


def training_step(config: TrainConfig, static: Any) -> Callable[..., tuple[Params, Any, Metrics]]:
    """The compiled update ``params, state, metrics = step(params, state, tokens, learning_rate=)``.

    Parameters
    ----------
    config : TrainConfig
    static : pytree
        The model with None where it has weights (``equinox.partition``).

    Returns
    -------
    callable
        ``tokens`` is (batch, length + 1).  Weights and state given to it must not be used again:
        their memory is.
    """

    def loss(params: Params, tokens: Array) -> Array:
        model = eqx.combine(params, static)
        return token_loss(model(tokens[:, :-1]), tokens[:, 1:])

    return make_step(loss, adamw(config), accumulate=config.accumulate, donate=True)
