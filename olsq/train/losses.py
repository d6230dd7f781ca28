"""The cross-entropy of tokens, of each and on average."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

__all__ = ["token_loss", "token_losses"]


def token_losses(logits: ArrayLike, targets: ArrayLike) -> Array:
    """Negative log-likelihood of every target.

    Parameters
    ----------
    logits : array (..., vocabulary)
    targets : int array (...)

    Returns
    -------
    array (...)
        In nats; float32, or float64 for float64 logits.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.train import token_losses
    >>> token_losses(jnp.log(jnp.array([[0.75, 0.25]])), jnp.array([1])).round(4)
    Array([1.3863], dtype=float32)
    """
    logits = jnp.asarray(logits)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    chosen = jnp.take_along_axis(logits, jnp.asarray(targets)[..., None], -1)[..., 0]
    return jax.nn.logsumexp(logits, -1) - chosen


def token_loss(logits: ArrayLike, targets: ArrayLike, *, ignore: int | None = None) -> Array:
    """Mean negative log-likelihood of the targets that are asked for.

    Parameters
    ----------
    logits : array (..., vocabulary)
    targets : int array (...)
    ignore : int, optional
        A target that asks for nothing, such as ``olsq.tasks.tokens.IGNORE``; all others count
        alike.

    Returns
    -------
    scalar
        In nats; 0 where no target is asked for.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.train import token_loss
    >>> logits = jnp.log(jnp.array([[0.75, 0.25], [0.5, 0.5], [0.5, 0.5]]))
    >>> token_loss(logits, jnp.array([1, -1, -1]), ignore=-1).round(4)
    Array(1.3863, dtype=float32)
    """
    if ignore is None:
        return token_losses(logits, targets).mean()
    targets = jnp.asarray(targets)
    asked = targets != ignore
    losses = token_losses(logits, jnp.where(asked, targets, 0))
    return jnp.where(asked, losses, 0).sum() / jnp.maximum(asked.sum(), 1)
