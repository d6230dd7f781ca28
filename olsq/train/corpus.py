"""Batches of a text: which tokens a step sees depends on the seed and the step, on nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Corpus"]


@dataclass(frozen=True)
class Corpus:
    """Tokens to train on and, from the end of the text, tokens to validate on.

    Attributes
    ----------
    train, validation : int32 array (n,), (m,)

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.train import Corpus
    >>> corpus = Corpus.split(np.arange(1000), validation=0.1)
    >>> len(corpus.train), len(corpus.validation)
    (900, 100)
    >>> corpus.batch(seed=0, step=7, batch=2, length=4).shape
    (2, 5)
    >>> corpus.windows(length=30)[:, 0].tolist()
    [900, 930, 960]
    """

    train: NDArray[np.int32]
    validation: NDArray[np.int32]

    @classmethod
    def split(cls, tokens: ArrayLike, validation: float = 0.1) -> Corpus:
        """Cut the last ``validation`` of ``tokens`` (n,) off.

        Raises
        ------
        ValueError
            If there are no tokens, or the fraction does not lie in (0, 1).
        """
        array = np.asarray(tokens)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(
                f"tokens must be one sequence of whole numbers, got {array.dtype} {array.shape}"
            )
        if not array.size:
            raise ValueError("there are no tokens: the text is empty")
        if not 0 < validation < 1:
            raise ValueError(f"validation must lie between 0 and 1, got {validation!r}")
        cut = array.size - max(round(validation * array.size), 1)
        array = array.astype(np.int32)
        return cls(array[:cut], array[cut:])

    @property
    def size(self) -> int:
        """Number of tokens in both parts."""
        return len(self.train) + len(self.validation)

    def check(self, length: int, vocab_size: int | None = None) -> None:
        """Raise ValueError if a sequence does not fit, or a token is not in the vocabulary."""
        for name, tokens in (("training", self.train), ("validation", self.validation)):
            if len(tokens) <= length:
                raise ValueError(
                    f"the {name} part has {len(tokens):,} tokens: too few for sequences of "
                    f"{length} and the token after; use more text or a smaller length"
                )
            if vocab_size is not None and not (tokens.min() >= 0 and tokens.max() < vocab_size):
                raise ValueError(
                    f"the {name} part has tokens from {tokens.min()} to {tokens.max()}, "
                    f"the model knows 0 to {vocab_size - 1}"
                )

    def batch(self, *, seed: int, step: int, batch: int, length: int) -> NDArray[np.int32]:
        """Training sequences of one step (batch, length + 1), each from a uniform start."""
        rng = np.random.default_rng((seed, step))
        starts = rng.integers(0, len(self.train) - length, batch)
        return self.train[starts[:, None] + np.arange(length + 1)]

    def windows(self, length: int, most: int | None = None) -> NDArray[np.int32]:
        """Validation sequences (n, length + 1) side by side: each token is predicted once.

        ``most`` of them, evenly spread, if there are more.
        """
        n = (len(self.validation) - 1) // length
        chosen = np.arange(n)
        if most is not None and n > most:
            chosen = np.arange(most) * n // most
        return self.validation[chosen[:, None] * length + np.arange(length + 1)]
