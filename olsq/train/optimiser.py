"""Optimiser of :func:`olsq.train.fit`: clipping, AdamW, and the weights that decay."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import jax
import optax

from olsq.nn.kinds import KINDS, ParameterKind, parameter_kinds

if TYPE_CHECKING:
    from olsq.train.config import TrainConfig

__all__ = ["adamw", "decay_mask"]

Params = Any  # the model with None where there is no weight


def decay_mask(params: Params, kinds: Collection[ParameterKind] = ("matrix",)) -> Any:
    """Mask the weights that decoupled weight decay should shrink: matrices of projections and
    gates.

    Chosen by the kinds that the layers declare, :func:`olsq.nn.parameter_kinds`, not by the names
    of fields. Norm scales, biases, convolution kernels, ridges, learned rates, initial states and
    embeddings, tied ones included, are left alone, however many axes they have: shrinking them
    would move a ridge or the scale of the logits, not regularise.

    Parameters
    ----------
    params : pytree
        Weights, with None where there is none: ``equinox.filter(model, equinox.is_inexact_array)``.
        Arrays of any dtype, or anything else that has ``ndim``.
    kinds : collection of str
        Kinds that decay, others than matrices with ``functools.partial(decay_mask, kinds=...)``.

    Returns
    -------
    pytree of bool
        In the shape of ``params``: what ``optax.adamw`` and ``optax.add_decayed_weights`` take as
        their ``mask``.

    Raises
    ------
    ValueError
        If a kind is unknown.

    Notes
    -----
    ``olsq.train.fit`` and ``olsq train`` use it.  A mixer of your own is decayed where it keeps its
    matrices in ``olsq.nn.Linear`` or ``equinox.nn.Linear``, or declares them:
    ``weight: jax.Array = equinox.field(metadata=olsq.nn.kind("matrix"))``.

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
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"kinds must be of {', '.join(KINDS)}, got {sorted(unknown)[0]!r}")
    return jax.tree.map(lambda kind: kind in kinds, parameter_kinds(params))


def adamw(config: TrainConfig) -> optax.GradientTransformationExtraArgs:
    """Make AdamW that receives ``learning_rate`` with each update.

    The rate depends on the step, skipped or not, while the optimiser's state counts only the
    updates made.
    """
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
