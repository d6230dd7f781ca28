"""Exponential moving average of the weights, kept by the optimiser."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

__all__ = ["AverageState", "averaged", "with_average"]


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
        In (0, 1): .999 averages over the last thousand updates or so.

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

    def update(updates: Any, state: Any, params: Any = None, **given: Any) -> tuple[Any, Any]:
        if params is None:
            raise ValueError("with_average needs the weights: optimizer.update(grads, state, w)")
        updates, after = inner.update(updates, state.inner, params, **given)
        total = jax.tree.map(
            lambda t, x: decay * t + (1 - decay) * x.astype(t.dtype),
            state.total, optax.apply_updates(params, updates),
        )  # fmt: skip
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
    weights, rest = eqx.partition(model, eqx.is_inexact_array)
    begun = state.share > 0
    # share = 1 - decay^steps corrects the bias of the zero start
    share = jnp.where(begun, state.share, 1)
    mean = jax.tree.map(
        lambda t, x: jnp.where(begun, (t / share).astype(x.dtype), x), state.total, weights
    )
    return eqx.combine(mean, rest)


def _averaging_dtype(x: Any) -> Any:
    """Return the dtype in which a weight is averaged: at least float32."""
    return jnp.promote_types(x.dtype, jnp.float32)
