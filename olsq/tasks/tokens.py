"""Result of the tasks over a vocabulary, and its scoring."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr

__all__ = ["IGNORE", "Tokens", "token_accuracy"]

IGNORE = -100  # torch's ignore_index, so that a loss written for it needs no change


class Tokens(NamedTuple):
    """A batch of n sequences of T tokens, numbered from 0.

    Attributes
    ----------
    inputs : array (n, T), int64
        Tokens to read.
    targets : array (n, T), int64
        The right answer at each position; ``IGNORE`` (-100) where none is asked for.

    Examples
    --------
    >>> from olsq.tasks.mad import in_context_recall
    >>> data = in_context_recall(4, 0, length=32)
    >>> data.inputs.shape, data.targets.shape
    ((4, 31), (4, 31))
    """

    inputs: NDArray
    targets: NDArray

    __repr__ = brief_repr


def token_accuracy(predictions: ArrayLike, targets: ArrayLike, *, average: str = "micro") -> float:
    """Return the share of right answers where the target is not ``IGNORE``.

    Parameters
    ----------
    predictions : array (n, T)
        Predicted tokens.
    targets : array (n, T)
        Right answers.
    average : {"micro", "macro"}
        Over positions, or first over the positions with the same target, then over targets.

    Returns
    -------
    float
        In [0, 1]; NaN if nothing is asked for.

    Raises
    ------
    ValueError
        If the shapes differ or ``average`` is not one of the two.

    Notes
    -----
    The published MAD numbers are ``"macro"``, the default of torchmetrics'
    ``MulticlassAccuracy``.  As there, a token predicted where an answer is asked for but never a
    target itself is one more class, of accuracy 0.

    Examples
    --------
    >>> from olsq.tasks.tokens import IGNORE, token_accuracy
    >>> token_accuracy([[1, 2, 1, 1]], [[1, IGNORE, 1, 0]])
    0.6666666666666666
    >>> token_accuracy([[1, 2, 1, 1]], [[1, IGNORE, 1, 0]], average="macro")
    0.5
    """
    predictions, targets = np.asarray(predictions), np.asarray(targets)
    if predictions.shape != targets.shape:
        raise ValueError(
            f"predictions {predictions.shape} and targets {targets.shape} must have the same shape"
        )
    if average not in ("micro", "macro"):
        raise ValueError(f'average must be "micro" or "macro", got {average!r}')
    asked = targets != IGNORE
    predictions, targets = predictions[asked], targets[asked]
    right = predictions == targets
    if not right.size:
        return float("nan")
    if average == "micro":
        return float(right.mean())
    classes, index = np.unique(np.concatenate([targets, predictions]), return_inverse=True)
    index = index[: len(targets)]
    count = np.bincount(index, minlength=len(classes))
    hits = np.bincount(index, weights=right, minlength=len(classes))
    return float((hits / np.maximum(count, 1)).mean())
