"""Cross-entropy of tokens: per token, averaged, and of a model on a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.typing import ArrayLike

from olsq.arrays.checks import concrete, refuse

__all__ = ["IGNORE", "BatchLoss", "next_token_loss", "token_loss", "token_losses"]

IGNORE = -100  # a target without a loss; as in torch and olsq.tasks
# Marks the number of targets in the trace of a loss that returns a bare mean, for accumulation.
COUNT = "olsq.train: targets that count"


class BatchLoss(NamedTuple):
    """A mean loss with its weight, which a loss may return instead of a number.

    Attributes
    ----------
    mean : scalar
        What is minimised.
    weight : scalar, optional
        The number that the mean is over, for example of targets.  Where a batch is computed in
        parts, its loss and gradient are the means over its parts with these weights: those of the
        whole batch, however unequally the parts are masked.  None: what :func:`token_loss` counted
        in ``mean``; where it did not, parts weigh alike.
    extra : mapping of str to scalar
        Other numbers, averaged over parts in the same way: :attr:`Metrics.extra` has them, and a
        :class:`Trainer` logs them by these names.  In a loop of :func:`make_step` without
        ``accumulate`` any pytree may be among them and comes back as it is: the state in which the
        next batch goes on, for example.

    Examples
    --------
    A loss that also reports its accuracy:

    >>> from olsq.train import BatchLoss, token_loss
    >>> def loss(model, tokens, targets):
    ...     logits = model(tokens)
    ...     right = (logits.argmax(-1) == targets).mean()
    ...     return BatchLoss(token_loss(logits, targets), extra={"accuracy": right})
    """

    mean: Any
    weight: Any = None
    extra: Mapping[str, Any] = {}


def check_extra(loss: BatchLoss, caller: str) -> None:
    """Raise TypeError unless everything in ``extra`` is one number, which ``caller`` needs."""
    for name, value in loss.extra.items():
        if not jax.tree_util.all_leaves([value]) or jnp.shape(value) != ():
            raise TypeError(
                f"{caller} takes numbers in BatchLoss.extra, got extra[{name!r}] of type "
                f"{type(value).__name__} {jax.tree.map(jnp.shape, value)}: a loop of "
                "olsq.train.make_step without accumulate= returns it in metrics.extra, such as a "
                "state for the next batch"
            )


def token_losses(logits: ArrayLike, targets: ArrayLike) -> Array:
    """Compute the negative log-likelihood of every target.

    Parameters
    ----------
    logits : array (..., vocabulary)
    targets : int array (...)

    Returns
    -------
    array (...)
        In nats; float32, or float64 for float64 logits.

    Raises
    ------
    ValueError
        If a target is outside the vocabulary.  Where targets are traced, as in a jitted step, its
        loss is NaN instead.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.train import token_losses
    >>> token_losses(jnp.log(jnp.array([[0.75, 0.25]])), jnp.array([1])).round(4)
    Array([1.3863], dtype=float32)
    """
    _check(targets, None, np.shape(logits)[-1])
    return _losses(logits, targets)[0]


def token_loss(
    logits: ArrayLike,
    targets: ArrayLike,
    *,
    ignore: int | None = None,
    mask: ArrayLike | None = None,
    z_loss: float = 0.0,
) -> Array:
    """Average the negative log-likelihood over the targets that count.

    Parameters
    ----------
    logits : array (..., vocabulary)
    targets : int array (...)
    ignore : int, optional
        A target that asks for nothing, such as ``olsq.train.IGNORE``; all others count alike.
    mask : bool or float array (...), optional
        What each target counts, 0 or False for nothing.
    z_loss : float
        Times the mean of ``log(Z)^2``, added: Z is what the exponentials of the logits sum to, and
        near 1 logits neither drift nor overflow in bfloat16.

    Returns
    -------
    scalar
        In nats; 0 where no target is asked for.  A step that computes a batch in parts
        (``accumulate=``) weighs them by the targets that count in each.

    Raises
    ------
    ValueError
        If a target that counts is outside the vocabulary: -1 is not the last token.  Where targets
        are traced, as in a jitted step, the loss is NaN instead, and a :class:`Trainer` does not
        take the step.

    References
    ----------
    Chowdhery et al., "PaLM" (2022), section 5: ``z_loss=1e-4``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.train import token_loss
    >>> logits = jnp.log(jnp.array([[0.75, 0.25], [0.5, 0.5], [0.5, 0.5]]))
    >>> token_loss(logits, jnp.array([1, -1, -1]), ignore=-1).round(4)
    Array(1.3863, dtype=float32)
    >>> token_loss(logits, jnp.array([1, 0, 0]), mask=jnp.array([1, 0, 0])).round(4)
    Array(1.3863, dtype=float32)
    """
    return _batch_loss(logits, targets, ignore, mask, z_loss).mean


def next_token_loss(
    model: Any,
    tokens: ArrayLike,
    targets: ArrayLike | None = None,
    segment_ids: ArrayLike | None = None,
    *,
    mask: ArrayLike | None = None,
    z_loss: float = 0.0,
    key: Array | None = None,
) -> BatchLoss:
    """Compute the loss of a language model on a batch, which :class:`Trainer` minimises by default.

    Parameters
    ----------
    model : callable
        From tokens (B, T) to logits (B, T, vocabulary); ``segment_ids=`` and ``key=`` are given
        where they are.
    tokens : int array (B, T), or (B, T + 1) without targets
        Then each is to be predicted from those before.
    targets : int array (B, T), optional
        ``olsq.train.IGNORE``, -100, asks for nothing.
    segment_ids : int array (B, T), optional
        Documents packed into a row, as :func:`olsq.train.pack` returns them.
    mask : bool or float array (B, T), optional
        What each target counts.
    z_loss : float
        See :func:`token_loss`.
    key : jax.random.key, optional
        For dropout.

    Returns
    -------
    BatchLoss
        Its weight is the number of targets; ``extra`` has ``"nll"``, the loss without the z-loss,
        if there is one.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.train import next_token_loss
    >>> found = next_token_loss(lambda x: jnp.zeros((*x.shape, 8)), jnp.zeros((2, 5), int))
    >>> round(float(jnp.exp(found.mean)), 3), int(found.weight)
    (8.0, 8)
    """
    tokens = jnp.asarray(tokens)
    if targets is None:
        tokens, targets = tokens[:, :-1], tokens[:, 1:]
    options: dict[str, Any] = {} if segment_ids is None else {"segment_ids": segment_ids}
    if key is not None:
        options["key"] = key
    return _batch_loss(model(tokens, **options), targets, IGNORE, mask, z_loss)


def _losses(logits: ArrayLike, targets: ArrayLike) -> tuple[Array, Array]:
    """Compute the losses and ``log Z`` of every position."""
    logits = jnp.asarray(logits)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    targets = jnp.asarray(targets)
    # A negative index would count from the end. One that is too large is filled with NaN.
    inside = jnp.where(targets < 0, logits.shape[-1], targets)
    target_logits = jnp.take_along_axis(logits, inside[..., None], -1, mode="fill")[..., 0]
    log_z = jax.nn.logsumexp(logits, -1)
    # -log softmax(logits)[target]
    return log_z - target_logits, log_z


def _batch_loss(
    logits: ArrayLike,
    targets: ArrayLike,
    ignore: int | None,
    mask: ArrayLike | None,
    z_loss: float,
) -> BatchLoss:
    targets = jnp.asarray(targets)
    counts = None
    if ignore is not None:
        counts = targets != ignore
        targets = jnp.where(counts, targets, 0)
    if mask is not None:
        mask = jnp.asarray(mask)
        counts = mask if counts is None else jnp.where(counts, mask, 0)
    _check(targets, counts, np.shape(logits)[-1])
    losses, log_z = _losses(logits, targets)
    wide = None if counts is None else counts.astype(losses.dtype)
    total = jnp.asarray(losses.size, losses.dtype)
    if wide is not None:
        total = checkpoint_name(wide.sum(), COUNT)

    def average(x: Array) -> Array:
        if wide is None:
            return x.mean()
        # A position of weight 0 may hold NaN: it is masked, not multiplied by 0.
        return jnp.where(wide != 0, x * wide, 0).sum() / jnp.where(total > 0, total, 1)

    nll = average(losses)
    if not z_loss:
        return BatchLoss(nll, total)
    return BatchLoss(nll + z_loss * average(log_z * log_z), total, {"nll": nll})


def _check(targets: ArrayLike, counts: Array | None, vocabulary: int) -> None:
    """Raise unless the targets that are concrete and count are tokens."""
    values, counted = concrete(targets), None if counts is None else concrete(counts)
    if values is None or (counts is not None and counted is None):
        return
    checked = values if counted is None else np.where(counted != 0, values, 0)
    rule = f"lie in [0, {vocabulary}), or be the number that is ignored"
    refuse("targets", checked, lambda t: (t < 0) | (t >= vocabulary), rule)
