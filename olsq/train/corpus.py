"""Batches of a text: the tokens of a step depend only on the seed and the step."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_sizes
from olsq.train.batches import Batches
from olsq.train.token_files import TokenFiles

if TYPE_CHECKING:
    from olsq.train.tokenizers import Tokenizer

__all__ = ["Corpus"]


@dataclass(frozen=True)
class Corpus:
    """Tokens to train on and, from the end of the text, tokens to validate on.

    Attributes
    ----------
    train, validation : int array (n,), (m,)
        Read-only.  They may be memory-mapped files or :class:`TokenFiles`, and are then read a
        batch at a time.

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

    train: NDArray[Any] | TokenFiles
    validation: NDArray[Any] | TokenFiles

    __repr__ = brief_repr

    def __post_init__(self) -> None:
        # Read-only views: their digest is computed once, and must stay theirs.
        for name in ("train", "validation"):
            tokens = _tokens(getattr(self, name))
            if not isinstance(tokens, TokenFiles):
                tokens = tokens.view()
                tokens.flags.writeable = False
            object.__setattr__(self, name, tokens)

    @classmethod
    def split(cls, tokens: ArrayLike | TokenFiles, validation: float = 0.1) -> Corpus:
        """Split ``tokens`` (n,), taking the last ``validation`` for validation.

        Raises
        ------
        ValueError
            If there are no tokens, or the fraction does not lie in (0, 1).
        """
        array = _tokens(tokens)
        if not array.size:
            raise ValueError("there are no tokens: the text is empty")
        cut = training_size(array.size, validation)
        if isinstance(array, TokenFiles):
            return cls(array.part(0, cut), array.part(cut, array.size))
        return cls(array[:cut], array[cut:])

    @classmethod
    def from_text(cls, text: str | bytes, tokenizer: Tokenizer, validation: float = 0.1) -> Corpus:
        """Tokenise a text after cutting off its last ``validation`` for validation.

        No token of the training part contains anything of the validation part, and
        :func:`training_part` returns the text that a tokenizer may learn from.
        """
        content = text.encode("utf-8") if isinstance(text, str) else text
        first = training_part(content, validation)
        return cls(tokenizer.encode(first), tokenizer.encode(content[len(first) :]))

    @property
    def size(self) -> int:
        """Number of tokens in both parts."""
        return len(self.train) + len(self.validation)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the tokens, as int32 whatever their dtype; computed once."""
        digest = hashlib.sha256()
        for mark, tokens in ((b"", self.train), (b"|", self.validation)):
            digest.update(mark)
            if isinstance(tokens, TokenFiles):
                digest.update(tokens.digest.encode())
                continue
            for start in range(0, len(tokens), 1 << 22):  # a file need not fit into memory
                piece = tokens[start : start + (1 << 22)].astype(np.int32)
                digest.update(piece.data)
        return digest.hexdigest()

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
        """Return the sequences of one step (batch, length + 1), each from a uniform start."""
        check_sizes(0, bits=63, seed=seed, step=step)
        check_sizes(batch=batch, length=length)
        rng = np.random.default_rng((seed, step))
        starts = rng.integers(0, len(self.train) - length, batch)
        return self.train[starts[:, None] + np.arange(length + 1)].astype(np.int32, copy=False)

    def batches(self, *, batch: int, length: int, seed: int = 0) -> Batches:
        """Return :meth:`batch` of every step, for :class:`olsq.train.Trainer`.

        Raises
        ------
        ValueError
            If a sequence does not fit.
        """
        check_sizes(0, bits=63, seed=seed)
        check_sizes(batch=batch, length=length)
        self.check(length)
        options = {"batch": batch, "length": length, "seed": seed}
        return Batches(lambda step: self.batch(step=step, **options), self.digest)

    def windows(self, length: int, most: int | None = None) -> NDArray[np.int32]:
        """Return validation sequences (n, length + 1) side by side: each token is predicted once.

        If there are more than ``most``, that many of them, evenly spread.
        """
        check_sizes(length=length)
        if most is not None:
            check_sizes(most=most)
        n = (len(self.validation) - 1) // length
        numbers = np.arange(n)
        if most is not None and n > most:
            numbers = np.arange(most) * n // most
        places = numbers[:, None] * length + np.arange(length + 1)
        return self.validation[places].astype(np.int32, copy=False)


def training_size(size: int, validation: float) -> int:
    """Count the tokens or bytes of ``size`` before the validation part, which has at least one."""
    if not 0 < validation < 1:
        raise ValueError(f"validation must lie between 0 and 1, got {validation!r}")
    return size - max(round(validation * size), 1)


def training_part(content: bytes, validation: float) -> bytes:
    """Return a text without its last ``validation``, cut between two characters."""
    cut = training_size(len(content), validation)
    for shorter in range(min(cut, 4)):  # a character of UTF-8 has at most four bytes
        if content[cut - shorter] & 0xC0 != 0x80:
            return content[: cut - shorter]
    return content[:cut]


def _tokens(tokens: Any) -> Any:
    """Check and convert one sequence of whole numbers; int32 unless it is in files."""
    if isinstance(tokens, TokenFiles):
        return tokens
    array = np.asanyarray(tokens)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"tokens must be one sequence of whole numbers, got {array.dtype} {array.shape}"
        )
    return array if isinstance(array, np.memmap) else array.astype(np.int32, copy=False)
