"""Lossless tokenizers: bytes, or byte pairs merged."""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.train.huggingface import HuggingFaceTokenizer

__all__ = ["BytePairTokenizer", "ByteTokenizer", "make_tokenizer", "tokenizer_from_dict"]

# A word with the space before it, a number, punctuation, white space.  Merges stay inside a word,
# and a word ends after 32 bytes, so that a file of one endless word costs no more than another.
# Bytes from 128 on are parts of letters in UTF-8.
_WORDS = re.compile(
    rb" ?[A-Za-z\x80-\xff]{1,32}| ?[0-9]{1,32}| ?[^\sA-Za-z0-9\x80-\xff]{1,32}"
    rb"|\s{1,32}(?!\S)|\s{1,32}"
)


class ByteTokenizer:
    """Every byte of the UTF-8 text is a token: 256 of them, nothing to learn, nothing unknown.

    Attributes
    ----------
    vocab_size : int
        256.

    Examples
    --------
    >>> from olsq.train import ByteTokenizer
    >>> tokens = ByteTokenizer().encode("naïve")
    >>> tokens.tolist(), ByteTokenizer().decode(tokens)
    ([110, 97, 195, 175, 118, 101], 'naïve')
    """

    name = "bytes"
    vocab_size = 256

    def encode(self, text: str | bytes) -> NDArray[np.int32]:
        """Tokenise ``text`` (n,); bytes need not be UTF-8."""
        return np.frombuffer(_as_bytes(text), np.uint8).astype(np.int32)

    def decode_bytes(self, tokens: ArrayLike) -> bytes:
        """Return the bytes of ``tokens`` (n,): the inverse of ``encode``."""
        return _checked(tokens, self.vocab_size).astype(np.uint8).tobytes()

    def decode(self, tokens: ArrayLike) -> str:
        """Return the text of ``tokens``; bytes that are not UTF-8 show as U+FFFD."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")

    def to_dict(self) -> dict[str, Any]:
        """Return what :func:`tokenizer_from_dict` needs, in types that JSON supports."""
        return {"kind": "bytes"}


class BytePairTokenizer:
    """Byte pairs merged, the most frequent first: fewer and longer tokens for the same text.

    Parameters
    ----------
    merges : sequence of pairs of int
        The i-th joins two tokens into token 256 + i; tokens below 256 are bytes.
        :meth:`train` finds them.

    Attributes
    ----------
    vocab_size : int
        256 + the number of merges.

    Notes
    -----
    Encoding then decoding gives the same bytes for any input.  On one core, 1.4 MB of
    English take about 1 s to train on (1024 tokens) and 0.3 s to encode.  Source: R. Sennrich,
    B. Haddow and A. Birch, "Neural machine translation of rare words with subword units" (2016);
    on bytes, with words split beforehand, as in GPT-2.

    Examples
    --------
    >>> from olsq.train import BytePairTokenizer
    >>> tokenizer = BytePairTokenizer.train("low lower lowest " * 9, 259)
    >>> [tokenizer.decode([token]) for token in tokenizer.encode("low lower")]
    ['low', ' low', 'e', 'r']
    """

    def __init__(self, merges: Sequence[tuple[int, int]]) -> None:
        self.merges = [(int(a), int(b)) for a, b in merges]
        pieces = [bytes([byte]) for byte in range(256)]
        for a, b in self.merges:
            if not (0 <= a < len(pieces) and 0 <= b < len(pieces)):
                raise ValueError(f"merge ({a}, {b}) joins a token that does not exist yet")
            pieces.append(pieces[a] + pieces[b])
        self._pieces = pieces
        self._rank = {pair: rank for rank, pair in enumerate(self.merges)}
        self._known: dict[bytes, tuple[int, ...]] = {}

    @classmethod
    def train(cls, text: str | bytes, vocab_size: int) -> BytePairTokenizer:
        """Learn ``vocab_size - 256`` merges from ``text``, fewer if no pair occurs twice.

        Raises
        ------
        ValueError
            If ``vocab_size`` is not more than 256.
        """
        if vocab_size <= 256:
            raise ValueError(f"vocab_size must be more than 256, the bytes, got {vocab_size}")
        counted = Counter(_WORDS.findall(_as_bytes(text)))
        return cls(_learn_merges(counted, vocab_size - 256))

    @property
    def name(self) -> str:
        """``bpe:`` and the number of tokens."""
        return f"bpe:{self.vocab_size}"

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self._pieces)

    def encode(self, text: str | bytes) -> NDArray[np.int32]:
        """Tokenise ``text`` (n,); bytes need not be UTF-8."""
        words = _WORDS.findall(_as_bytes(text))
        encoded = self._known
        for word in set(words) - encoded.keys():
            encoded[word] = self._encode_word(word)
        return np.fromiter(chain.from_iterable(map(encoded.__getitem__, words)), np.int32)

    def _encode_word(self, word: bytes) -> tuple[int, ...]:
        tokens = list(word)
        while len(tokens) > 1:
            pairs = pairwise(tokens)
            best = min(pairs, key=lambda pair: self._rank.get(pair, len(self._rank)))
            if best not in self._rank:
                break
            tokens = _merge(tokens, best, 256 + self._rank[best])
        return tuple(tokens)

    def decode_bytes(self, tokens: ArrayLike) -> bytes:
        """Return the bytes of ``tokens`` (n,): the inverse of ``encode``."""
        return b"".join(map(self._pieces.__getitem__, _checked(tokens, self.vocab_size).tolist()))

    def decode(self, tokens: ArrayLike) -> str:
        """Return the text of ``tokens``; bytes that are not UTF-8 show as U+FFFD."""
        return self.decode_bytes(tokens).decode("utf-8", errors="replace")

    def to_dict(self) -> dict[str, Any]:
        """Return what :func:`tokenizer_from_dict` needs, in types that JSON supports."""
        return {"kind": "bpe", "merges": [list(pair) for pair in self.merges]}


Tokenizer = ByteTokenizer | BytePairTokenizer | HuggingFaceTokenizer


def make_tokenizer(spec: str, text: str | bytes) -> Tokenizer:
    """Make the tokenizer that ``spec`` names.

    Parameters
    ----------
    spec : str
        ``bytes``; ``bpe:1024``, trained on ``text``; or the path of a ``tokenizer.json`` of
        Hugging Face, read with their library ``tokenizers``.
    text : str or bytes
        To learn from: give the training part only.

    Raises
    ------
    ValueError
        If ``spec`` is none of these, or the file is no tokenizer.
    FileNotFoundError
        If there is no such file.
    ImportError
        If the library ``tokenizers`` is needed and not installed.
    """
    kind, colon, size = spec.partition(":")
    if spec == "bytes":
        return ByteTokenizer()
    if spec.endswith(".json"):
        return HuggingFaceTokenizer.from_file(spec)
    if kind != "bpe" or not colon or not size.isdecimal() or int(size) <= 256:
        raise ValueError(
            "the tokenizer must be bytes, or bpe:N with more than 256 tokens, or the path of a "
            f"tokenizer.json, got {spec!r}"
        )
    return BytePairTokenizer.train(text, int(size))


def tokenizer_from_dict(saved: dict[str, Any]) -> Tokenizer:
    """Rebuild the tokenizer from the dictionary made by its ``to_dict``."""
    if saved["kind"] == "bytes":
        return ByteTokenizer()
    if saved["kind"] == "bpe":
        return BytePairTokenizer([(a, b) for a, b in saved["merges"]])
    if saved["kind"] == "huggingface":
        return HuggingFaceTokenizer(saved["json"])
    raise ValueError(f"unknown kind of tokenizer: {saved['kind']!r}")


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8") if isinstance(text, str) else text


def _checked(tokens: ArrayLike, vocab_size: int) -> NDArray[np.int64]:
    array = np.asarray(tokens, dtype=np.int64)
    if array.ndim != 1:
        raise ValueError(f"tokens must be one sequence, got shape {array.shape}")
    if array.size and not (array.min() >= 0 and array.max() < vocab_size):
        raise ValueError(
            f"tokens must lie between 0 and {vocab_size - 1}, got {array.min()} to {array.max()}"
        )
    return array


def _merge(tokens: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """Replace every ``pair`` in ``tokens``, from the left, by ``new``."""
    merged, i = [], 0
    while i < len(tokens):
        if tokens[i] == pair[0] and i + 1 < len(tokens) and tokens[i + 1] == pair[1]:
            merged.append(new)
            i += 2
        else:
            merged.append(tokens[i])
            i += 1
    return merged


def _learn_merges(counted: Counter[bytes], most: int) -> list[tuple[int, int]]:
    """Learn the ``most`` merges.

    Ties go to the smaller pair, so that the order of words does not matter.
    """
    words = [(list(word), count) for word, count in counted.items()]
    counts: Counter[tuple[int, int]] = Counter()
    places: defaultdict[tuple[int, int], set[int]] = defaultdict(set)  # words with the pair
    for index, (tokens, count) in enumerate(words):
        for pair in pairwise(tokens):
            counts[pair] += count
            places[pair].add(index)
    # A changed count adds a new heap entry; the old entry stays, and is recognised by its outdated
    # count.
    heap = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(heap)
    merges: list[tuple[int, int]] = []
    while heap and len(merges) < most:
        negative, pair = heapq.heappop(heap)
        if counts[pair] != -negative:
            continue
        if -negative < 2:
            break
        new = 256 + len(merges)
        merges.append(pair)
        changed = set()
        for index in places.pop(pair):
            tokens, count = words[index]
            merged = _merge(tokens, pair, new)
            for old in pairwise(tokens):
                counts[old] -= count
                changed.add(old)
            for fresh in pairwise(merged):
                counts[fresh] += count
                places[fresh].add(index)
                changed.add(fresh)
            words[index] = (merged, count)
        for touched in changed:
            if counts[touched] > 0:
                heapq.heappush(heap, (-counts[touched], touched))
    return merges
