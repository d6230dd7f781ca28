"""Evaluation of a model: loss, perplexity, and both by position in the sequence."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr
from olsq.train.losses import token_losses

__all__ = ["Evaluation", "PositionBins", "evaluate"]


class PositionBins(NamedTuple):
    """Losses averaged over ranges of positions.

    Attributes
    ----------
    first, last : int array (k,)
        Range of the position of the predicted token, from 1, both ends included.
    loss : array (k,)
        Mean loss, nats per token.
    error : array (k,)
        Standard error of the mean over sequences; NaN for one sequence.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    loss: NDArray[np.float64]
    error: NDArray[np.float64]

    __repr__ = brief_repr


class Evaluation(NamedTuple):
    """Losses of every predicted token, in nats.

    Attributes
    ----------
    losses : float32 array (n, T)
        n sequences, T positions; position t has seen t + 1 tokens.
    """

    losses: NDArray[np.float32]

    __repr__ = brief_repr

    @property
    def loss(self) -> float:
        """Mean loss."""
        return float(self.losses.mean(dtype=np.float64))

    @property
    def perplexity(self) -> float:
        """``exp(loss)``."""
        return float(np.exp(self.loss))

    @property
    def by_position(self) -> NDArray[np.float64]:
        """Mean loss (T,) of each position."""
        return self.losses.mean(0, dtype=np.float64)

    def binned(self, bins: int = 24) -> PositionBins:
        """Average losses over at most ``bins`` ranges of positions, wider to the right."""
        t = self.losses.shape[1]
        edges = np.unique(np.round(np.geomspace(1, t + 1, bins + 1)).astype(np.int64))
        pairs = list(itertools.pairwise(edges))
        means = np.stack(
            [self.losses[:, a - 1 : b - 1].mean(1, dtype=np.float64) for a, b in pairs], 1
        )
        n = len(means)
        error = means.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.full(len(pairs), np.nan)
        return PositionBins(edges[:-1], edges[1:] - 1, means.mean(0), error)


@partial(eqx.filter_jit, donate="none")
def _losses(model: Any, windows: Array) -> Array:
    return token_losses(model(windows[:, :-1]), windows[:, 1:]).astype(jnp.float32)


def evaluate(model: Any, windows: ArrayLike, *, batch: int = 16) -> Evaluation:
    """Compute the loss of every token of ``windows`` except the first of each.

    Parameters
    ----------
    model : callable
        From tokens (B, T) to logits (B, T, vocabulary); an Equinox module is compiled once.
    windows : int array (n, T + 1)
        Sequences, ``corpus.windows(length)`` for example.
    batch : int
        Sequences computed at a time.

    Returns
    -------
    Evaluation
        ``loss``, ``perplexity``, ``by_position`` and ``binned()``.

    Raises
    ------
    ValueError
        If there is no sequence, or nothing in it to predict.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np
    >>> from olsq.train import evaluate
    >>> knows_nothing = lambda tokens: jnp.zeros((*tokens.shape, 8))
    >>> round(evaluate(knows_nothing, np.zeros((3, 5), int)).perplexity, 3)
    8.0
    """
    array = np.asarray(windows, dtype=np.int32)
    if array.ndim != 2 or len(array) < 1 or array.shape[1] < 2:
        raise ValueError(f"windows must be (n, T + 1) with n, T >= 1, got shape {array.shape}")
    batch = min(batch, len(array))
    rows = -(-len(array) // batch) * batch
    padded = array[np.arange(rows) % len(array)]  # the last batch is filled up: one shape
    parts = [
        np.asarray(_losses(model, jnp.asarray(padded[i : i + batch])))
        for i in range(0, rows, batch)
    ]
    return Evaluation(np.concatenate(parts)[: len(array)])
