"""Cut a stream of CSV bytes into blocks of whole records, in constant memory.

A line end inside a quoted field does not end a record.  RFC 4180 writes a quotation mark inside a
quoted field as two, so a line end is a record's end exactly if an even number of quotation marks
precedes it; counting them is all that is needed.
"""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from olsq.cli.errors import InputError

READ_BYTES = 4 << 20
# A block holds at most this many bytes (and at least one record), so that very long rows cannot
# exhaust memory.  The cut depends on the file alone, never on how the bytes arrived.
BLOCK_BYTES = 32 << 20
LINE_END, QUOTE = ord("\n"), ord('"')


class RecordReader:
    """Blocks of whole records from a binary stream.

    Parameters
    ----------
    stream : binary file
        Read with ``read1`` where there is one, so that a slow pipe is not waited for needlessly.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._read = getattr(stream, "read1", stream.read)
        self._buffer = bytearray()
        self._start = 0  # first byte of the buffer not yet handed out
        self._ends = np.empty(0, np.int64)  # buffer positions just after each complete record
        self._quotes = 0  # quotation marks in the buffer's scanned part, modulo 2
        self._at_end = False

    def take(self, n_records: int) -> tuple[bytes, int]:
        """Return the next block and its number of records: ``n_records`` unless the input ends.

        Fewer also if the block would exceed ``BLOCK_BYTES``.  (b"", 0) at the end of the input.

        Raises
        ------
        InputError
            If one record is larger than ``BLOCK_BYTES`` or a quotation mark is never closed.
        """
        while len(self._ends) < n_records and not self._at_end:
            if len(self._buffer) - self._start > BLOCK_BYTES + READ_BYTES:
                break
            self._fill()
        within = np.searchsorted(self._ends[:n_records], self._start + BLOCK_BYTES, side="right")
        n = int(within)
        if not n:
            if len(self._ends) or not self._at_end:
                raise InputError(
                    f"a row is longer than {BLOCK_BYTES >> 20} MiB: is a quotation mark left open?"
                )
            return b"", 0
        stop = int(self._ends[n - 1])
        block = bytes(memoryview(self._buffer)[self._start : stop])
        self._start, self._ends = stop, self._ends[n:]
        return block, n

    def take_bytes(self, n_bytes: int) -> bytes:
        """Return the next ``n_bytes`` (fewer at the end of the input), whatever they hold."""
        while len(self._buffer) - self._start < n_bytes and not self._at_end:
            self._fill()
        block = bytes(memoryview(self._buffer)[self._start : self._start + n_bytes])
        self._start += len(block)
        self._ends = self._ends[self._ends > self._start]
        return block

    def exhausted(self) -> bool:
        """Whether nothing is left; may wait for input to find out."""
        while len(self._buffer) == self._start and not self._at_end:
            self._fill()
        return len(self._buffer) == self._start

    def _fill(self) -> None:
        block = self._read(READ_BYTES)
        if self._start:
            del self._buffer[: self._start]
            self._ends = self._ends - self._start
            self._start = 0
        if not block:
            self._finish()
            return
        codes = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(codes == LINE_END)
        quotes = np.flatnonzero(codes == QUOTE)
        if quotes.size or self._quotes:
            before = np.searchsorted(quotes, ends) + self._quotes
            ends = ends[before % 2 == 0]
            self._quotes = (self._quotes + quotes.size) % 2
        self._ends = np.concatenate([self._ends, ends + 1 + len(self._buffer)])
        self._buffer += block

    def _finish(self) -> None:
        """End of input: what follows the last line end is a record too."""
        self._at_end = True
        if self._quotes:
            raise InputError("the input ends inside a quoted field: a quotation mark is left open")
        if len(self._buffer) > (self._ends[-1] if len(self._ends) else self._start):
            self._ends = np.append(self._ends, len(self._buffer))
