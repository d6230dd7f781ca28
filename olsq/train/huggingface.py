"""Tokenizers in the file format of Hugging Face's library ``tokenizers``, read by that library."""

from __future__ import annotations

import json
import os
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["HuggingFaceTokenizer"]

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # how sentencepiece writes a byte that has no token


class HuggingFaceTokenizer:
    """A tokenizer of Hugging Face: ``tokenizer.json``, or what is in it.

    Parameters
    ----------
    content : str
        The JSON text; :meth:`from_file` reads it.

    Attributes
    ----------
    vocab_size : int
        The largest token and one more.

    Raises
    ------
    ImportError
        If the library is not installed (extra ``tokenizers``).
    ValueError
        If the text is no tokenizer.

    Notes
    -----
    No special tokens are added.  Whether decoding gives back the text is the tokenizer's affair:
    many normalise it first.
    """

    def __init__(self, content: str) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ImportError(
                "a tokenizer.json needs the library tokenizers: "
                'pip install ".[tokenizers]" in a checkout of olsq',
                name=error.name,
            ) from error
        try:
            self._tokenizer = Tokenizer.from_str(content)
        except Exception as error:  # the library raises no other class
            raise ValueError(f"not a tokenizer of the library tokenizers: {error}") from None
        self._json = content
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        if not self.vocab_size:
            raise ValueError("the tokenizer must have tokens, got one without: train it first")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> HuggingFaceTokenizer:
        """Read a ``tokenizer.json``; FileNotFoundError if there is none."""
        return cls(Path(path).read_text(encoding="utf-8"))

    @property
    def name(self) -> str:
        """``huggingface:`` and the number of tokens."""
        return f"huggingface:{self.vocab_size}"

    def encode(self, text: str | bytes) -> NDArray[np.int32]:
        """Tokenise ``text`` (n,); bytes that are not UTF-8 become U+FFFD."""
        content = text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text
        encoding = self._tokenizer.encode(content, add_special_tokens=False)
        return np.array(encoding.ids, np.int32)

    def decode(self, tokens: ArrayLike) -> str:
        """Return the text of ``tokens``, special tokens included."""
        ids = np.asarray(tokens, np.int64)
        if ids.ndim != 1:
            raise ValueError(f"tokens must be one sequence, got shape {ids.shape}")
        if ids.size and not (ids.min() >= 0 and ids.max() < self.vocab_size):
            raise ValueError(
                f"tokens must lie between 0 and {self.vocab_size - 1}, got {ids.min()} to "
                f"{ids.max()}"
            )
        return self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)

    def decode_bytes(self, tokens: ArrayLike) -> bytes:
        """Join the bytes of each token, for showing text while it is drawn.

        Handles byte-level, sentencepiece and WordPiece tokenizers; whatever else a decoder would do
        across tokens is left out.
        """
        return b"".join(self._piece(int(token)) for token in np.asarray(tokens).ravel())

    def to_dict(self) -> dict[str, Any]:
        """Return what :func:`tokenizer_from_dict` needs, in types that JSON supports."""
        return {"kind": "huggingface", "json": self._json}

    @cached_property
    def _decoder(self) -> str:
        """The decoder's description, as text to search."""
        return json.dumps(json.loads(self._json).get("decoder"))

    def _piece(self, token: int) -> bytes:
        text = self._tokenizer.id_to_token(token)
        if text is None:  # a number that the vocabulary leaves out
            return b""
        if "ByteLevel" in self._decoder:
            if all(letter in _BYTE_OF for letter in text):
                return bytes(_BYTE_OF[letter] for letter in text)
            return text.encode()
        if byte := _BYTE.fullmatch(text):
            return bytes([int(byte.group(1), 16)])
        if "WordPiece" in self._decoder:
            return (text[2:] if text.startswith("##") else " " + text).encode()
        return text.replace("▁", " ").encode()


def _bytes_by_letter() -> dict[str, int]:
    """Map each letter of a byte-level token to its byte, as GPT-2 writes bytes as letters.

    Bytes that print in Latin-1 are themselves; the others follow from U+0100 on, in order.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(0x100 + place): byte for place, byte in enumerate(moved)
    }


_BYTE_OF = _bytes_by_letter()
