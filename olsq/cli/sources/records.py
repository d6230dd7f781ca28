"""Cut a stream of CSV bytes into blocks of whole records, in constant memory.

A line end inside a quoted field does not end a record.  RFC 4180 writes a quotation mark inside a
quoted field as two, so a line end is a record's end exactly if an even number of quotation marks
precedes it; counting them is all that is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.cli.errors import InputError

# Large enough that what a call of the parser costs is small beside what it parses (measured: reads
# of 8 MiB take the same processor time and 30 MB more memory).
READ_BYTES = 4 << 20
# A block holds at most this many bytes (and at least one record), so that very long rows cannot
# exhaust memory.  The cut depends on the file alone, never on how the bytes arrived.
BLOCK_BYTES = 32 << 20
LINE_END, QUOTE = ord("\n"), ord('"')
NO_ENDS = np.empty(0, np.int64)


class RecordReader:
    """Cuts a binary stream into blocks of whole records.

    Parameters
    ----------
    stream : binary file
        Read with ``readinto1`` where there is one: a slow pipe is not waited for needlessly.
    """

    def __init__(self, stream: Any) -> None:
        self._read_into = getattr(stream, "readinto1", None) or stream.readinto
        self._buffer = bytearray(2 * READ_BYTES)
        self._start = 0  # first byte of the buffer not yet handed out
        self._stop = 0  # end of what the buffer holds
        self._ends = NO_ENDS  # buffer positions just after each complete record
        self._quotes = 0  # quotation marks in the buffer's scanned part, modulo 2
        self._at_end = False

    def take(self, n_records: int, most_chunks: int = 1) -> tuple[memoryview, NDArray[np.int64]]:
        """Return the next block and where in it its records end.

        A block is ``n_records`` records, or as many times that (up to ``most_chunks``) as need no
        waiting; fewer where the input ends or the first ``n_records`` exceed ``BLOCK_BYTES``.  An
        empty one is the end of the input.  The block is overwritten by the next call.

        Raises
        ------
        InputError
            If one record is larger than ``BLOCK_BYTES`` or a quotation mark is never closed.
        """
        while len(self._ends) < n_records and not self._at_end:
            if self._stop - self._start > BLOCK_BYTES + READ_BYTES:
                break
            self._fill()
        ends = self._ends[: n_records * most_chunks]
        n = int(np.searchsorted(ends, self._start + BLOCK_BYTES, side="right"))
        if n > n_records:
            # The last chunk may be short only if the input is known to end there.
            n -= n % n_records
        if not n:
            if len(self._ends) or not self._at_end:
                raise InputError(
                    f"a row is longer than {BLOCK_BYTES >> 20} MiB: is a quotation mark left open?"
                )
            return memoryview(b""), NO_ENDS
        ends = ends[:n] - self._start
        return self._take_block(int(ends[-1])), ends

    def take_bytes(self, n_bytes: int) -> memoryview:
        """Return the next ``n_bytes`` (fewer at the end of the input), whatever they contain."""
        while self._stop - self._start < n_bytes and not self._at_end:
            self._fill()
        return self._take_block(min(n_bytes, self._stop - self._start))

    def _take_block(self, n_bytes: int) -> memoryview:
        block = memoryview(self._buffer)[self._start : self._start + n_bytes]
        self._start += n_bytes
        self._ends = self._ends[np.searchsorted(self._ends, self._start, side="right") :]
        return block

    def exhausted(self) -> bool:
        """Test whether nothing is left; may wait for input to find out."""
        while self._stop == self._start and not self._at_end:
            self._fill()
        return self._stop == self._start

    def _fill(self) -> None:
        self._make_room()
        start = self._stop
        n = self._read_into(memoryview(self._buffer)[start : start + READ_BYTES])
        if not n:
            self._finish()
            return
        self._stop += n
        codes = np.frombuffer(self._buffer, np.uint8, n, start)
        ends = np.flatnonzero(codes == LINE_END)
        # Most files have no quotation mark, and a search finds that out sooner than a comparison.
        if self._quotes or self._buffer.find(QUOTE, start, self._stop) >= 0:
            quotes = np.flatnonzero(codes == QUOTE)
            before = np.searchsorted(quotes, ends) + self._quotes
            ends = ends[before % 2 == 0]
            self._quotes = (self._quotes + quotes.size) % 2
        ends += 1 + start
        self._ends = np.concatenate([self._ends, ends]) if self._ends.size else ends

    def _make_room(self) -> None:
        """Move or enlarge the buffer so that it has space for one more read."""
        if len(self._buffer) - self._stop >= READ_BYTES:
            return
        left = self._stop - self._start
        old = memoryview(self._buffer)[self._start : self._stop]
        # Blocks handed out are views of the buffer: only the rest of it may move.
        if left + READ_BYTES > len(self._buffer):
            self._buffer = bytearray(left + 2 * READ_BYTES)
        memoryview(self._buffer)[:left] = old
        self._ends = self._ends - self._start
        self._start, self._stop = 0, left

    def _finish(self) -> None:
        """End the input: what follows the last line end is a record too."""
        self._at_end = True
        if self._quotes:
            raise InputError("the input ends inside a quoted field: a quotation mark is left open")
        if self._stop > (self._ends[-1] if len(self._ends) else self._start):
            self._ends = np.append(self._ends, self._stop)
