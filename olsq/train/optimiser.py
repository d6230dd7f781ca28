"""Optimiser of :func:`olsq.train.fit`: clipping, AdamW, weights that decay, and their average."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from olsq.nn.kinds import KINDS, ParameterKind, parameter_kinds

if TYPE_CHECKING:
    from olsq.train.config import TrainConfig


__all__ = ["AverageState", "adamw", "averaged", "decay_mask", "with_average"]

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
    ``olsq.train.fit`` uses it.  A mixer of your own is decayed where it keeps its matrices in
    ``olsq.nn.Linear`` or ``equinox.nn.Linear``, or declares them:
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
        raise ValueError(f"kinds must be some of {', '.join(KINDS)}, got {sorted(unknown)[0]!r}")
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
    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> Any:
        rate = extra_args["learning_rate"]
        return jax.tree.map(lambda u: -rate.astype(u.dtype) * u, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


class AverageState(NamedTuple):
    """State of an optimiser made by :func:`with_average`.

    Attributes
    ----------
    inner : pytree
        Of the optimiser inside.
    total : pytree
        In the shape of the weights, float32 or better: ``sum decay^age (1 - decay) weights``.
    share : scalar
        ``1 - decay^updates``, what the sum is of an average.
    """

    inner: Any
    total: Any
    share: Array


def with_average(
    optimizer: optax.GradientTransformation, decay: float
) -> optax.GradientTransformationExtraArgs:
    """Make an optimiser that also keeps an exponential moving average of the weights.

    Parameters
    ----------
    optimizer : optax.GradientTransformation
    decay : float
        In (0, 1): 0.999 averages over the last thousand updates or so.

    Returns
    -------
    optax.GradientTransformationExtraArgs
        The same updates; its state is an :class:`AverageState`, from which :func:`averaged` makes
        a model.

    Raises
    ------
    ValueError
        If ``decay`` does not lie in (0, 1).

    Notes
    -----
    The average is of the weights after each update, not of those they started from, whatever the
    number of updates: after the first it is these weights.  Steps that are skipped do not count.
    Costs one more copy of the weights.

    Examples
    --------
    >>> import jax.numpy as jnp, optax
    >>> from olsq.train import averaged, with_average
    >>> optimizer = with_average(optax.sgd(1.0), 0.5)
    >>> weights = jnp.array([4.0])
    >>> state = optimizer.init(weights)
    >>> for _ in range(2):  # to 3, then to 2
    ...     updates, state = optimizer.update(jnp.array([1.0]), state, weights)
    ...     weights = optax.apply_updates(weights, updates)
    >>> round(float(averaged(weights, state)[0]), 3)  # (2 * 2 + 3) / 3
    2.333
    """
    if not 0 < decay < 1:
        raise ValueError(f"decay must lie between 0 and 1, got {decay!r}")
    inner = optax.with_extra_args_support(optimizer)

    def init(params: Any) -> AverageState:
        total = jax.tree.map(lambda x: jnp.zeros_like(x, dtype=_averaging_dtype(x)), params)
        return AverageState(inner.init(params), total, jnp.zeros(()))

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple[Any, Any]:
        if params is None:
            raise ValueError(
                "params must be the weights for with_average, got None: call "
                "optimizer.update(gradients, state, weights)"
            )
        updates, after = inner.update(updates, state.inner, params, **extra_args)
        total = jax.tree.map(
            lambda t, x: decay * t + (1 - decay) * x.astype(t.dtype),
            state.total,
            optax.apply_updates(params, updates),
        )
        return updates, AverageState(after, total, decay * state.share + (1 - decay))

    return optax.GradientTransformationExtraArgs(init, update)


def averaged(model: Any, state: Any) -> Any:
    """Return the model with the averaged weights.

    Parameters
    ----------
    model : pytree
        As trained so far, or its weights.
    state : AverageState
        Of the optimiser that :func:`with_average` made.

    Returns
    -------
    pytree
        In the dtypes of the model; the model itself before the first update.

    Raises
    ------
    TypeError
        If the state is of another optimiser.
    """
    if not isinstance(state, AverageState):
        raise TypeError(
            f"state must be that of an optimiser made by with_average, got {type(state).__name__}"
        )
    weights, static = eqx.partition(model, eqx.is_inexact_array)
    begun = state.share > 0
    # share = 1 - decay^steps corrects the bias of the zero start
    share = jnp.where(begun, state.share, 1)
    mean = jax.tree.map(
        lambda t, x: jnp.where(begun, (t / share).astype(x.dtype), x), state.total, weights
    )
    return eqx.combine(mean, static)


def _averaging_dtype(x: Any) -> Any:
    """Return the dtype in which a weight is averaged: at least float32."""
    return jnp.promote_types(x.dtype, jnp.float32)
