"""Decode tokens to text as they arrive, with letters of several bytes and stop texts."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any


class TextStream:
    """Decodes tokens one by one; a letter is returned when its last byte has arrived.

    Parameters
    ----------
    tokenizer : ByteTokenizer or BytePairTokenizer
    stop : sequence of str
        Texts after the first of which it has ended; nothing that follows is given.

    Attributes
    ----------
    ended : bool

    Examples
    --------
    >>> from olsq.train import ByteTokenizer
    >>> stream = TextStream(ByteTokenizer(), ["."])
    >>> [stream.add(token) for token in "é. a".encode()], stream.ended
    (['', 'é', '.', '', ''], True)
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = [text.encode() for text in stop]
        # a stop may have begun with as many of the last bytes
        self._most = max(map(len, self._stops), default=1) - 1
        self._tail = b""  # the last bytes, with which a stop may have begun
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.ended = False

    def add(self, token: Any) -> str:
        """Return the text that the token completes."""
        if self.ended:
            return ""
        piece = self._tokenizer.decode_bytes([token])
        joined, before = self._tail + piece, len(self._tail)
        places = [joined.find(stop) + len(stop) for stop in self._stops if stop in joined]
        if places:
            self.ended = True
            piece = piece[: max(0, min(places) - before)]
        self._tail = joined[len(joined) - min(self._most, len(joined)) :]
        return self._decoder.decode(piece, final=self.ended)

    def rest(self) -> str:
        """Return a replacement for a letter that was never completed, or nothing."""
        return self._decoder.decode(b"", final=True)
