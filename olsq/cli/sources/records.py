"""Cut a stream of CSV bytes into blocks of whole records, and parse these into numbers.

A line end inside a quoted field does not end a record.  RFC 4180 writes a quotation mark inside a
quoted field as two, so a line end is a record's end exactly if an even number of quotation marks
precedes it; counting them is all that is needed.

Three parsers, from the quickest to the most forgiving; a file moves to the next one when a block
does not parse, and stays there:

1. numbers and empty cells only, for which Polars needs a third less time than with
2. the words that stand for a missing value;
3. text that is stripped of blanks and then converted, chunk by chunk, which finds the first cell
   that is no number.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.sources.columns import Chunk, Columns, Reading
from olsq.cli.sources.numbers import THOUSANDS, parse_numbers
from olsq.cli.sources.table import TableBuilder

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


Block = bytes | memoryview


class CellParser:
    """Parses blocks of whole records of one CSV file.

    Parameters
    ----------
    name : str
        What to call the file in messages.
    header : sequence of str
        All column names.
    columns : Columns
        Those that are used.
    separator : str
        One character.
    table : TableBuilder
        What turns columns of cells into arrays.
    reading : Reading
        How cells are written.
    """

    def __init__(
        self,
        name: str,
        header: Sequence[str],
        columns: Columns,
        separator: str,
        table: TableBuilder,
        reading: Reading,
    ) -> None:
        self.name, self.header, self.columns = name, list(header), columns
        self.separator, self._table = separator, table
        self._words = reading.words_in_csv
        self._reading = reading
        self._decimal_comma = reading.decimal == ","
        # Columns are renamed c0, c1, ... so that odd or repeated names cannot confuse the parser.
        self._head = separator.join(f"c{j}" for j in range(len(header))).encode() + b"\n"
        places = {name: j for j, name in enumerate(self.header)}
        self._keys = {name: f"c{places[name]}" for name in columns.all}
        text = table.text
        self._numeric = [key for name, key in self._keys.items() if name not in text]
        self._with_words = False  # whether words for missing values were met
        self._by_text = reading.thousands is not None  # whether cells need the third parser

    def check(self, block: Block, ends: NDArray[np.int64], start: int) -> None:
        """Check the cells of the records that end at ``ends`` and follow ``start`` rows.

        The parser looks at the columns that are used, and would not notice either fault.

        Raises
        ------
        InputError
            If a record that is not blank has more or fewer cells than the header, or a cell that
            is used is not UTF-8.
        """
        counts = _count_cells(bytes(block), ends, self.separator, len(self.header))
        for row in np.flatnonzero(counts != len(self.header)).tolist():
            n_cells, begin = int(counts[row]), int(ends[row - 1]) if row else 0
            if n_cells > 1 or bytes(block[begin : int(ends[row])]).strip():
                raise InputError(
                    f"row {start + row + 1} of {self.name} has {n_cells} "
                    f"cell{'s'[: n_cells != 1]}, the header has {len(self.header)}"
                )
        self._check_text(bytes(block), ends, start)

    def _check_text(self, block: bytes, ends: NDArray[np.int64], start: int) -> None:
        if block.isascii() or _is_utf8(block):
            return
        frame = self._read_text(block, len(ends), start)
        doubtful = frame.select(pl.any_horizontal(pl.all().str.contains("\ufffd").fill_null(False)))
        places = {int(key[1:]) for key in self._keys.values()}
        for row in doubtful.to_series().arg_true():
            record = block[int(ends[row - 1]) if row else 0 : int(ends[row])]
            cells = _split_record(record.decode(errors="surrogateescape"), self.separator)
            for place, cell in enumerate(cells):
                text = cell.encode(errors="surrogateescape")
                if place in places and not _is_utf8(text):
                    raise InputError(
                        f"column {self.header[place]!r} is not UTF-8 text: row {start + row + 1} "
                        f"of {self.name} holds {text[:40]!r}: give --encoding (cp1252 reads "
                        f"{_shorten(text.decode('cp1252', 'replace'))!r}; latin-1, cp850 and "
                        "mac-roman are others to try)"
                    )

    def parse_quickly(self, block: Block, n: int, start: int) -> Chunk | None:
        """Parse ``n`` records that follow ``start`` rows; None where that needs more care."""
        if self._decimal_comma and b"." in bytes(block):
            return None  # the parser would take a point for a decimal mark too
        while not self._by_text:
            try:
                return self._make_chunk(self._read_frame(block, self._numeric), n, start)
            except (pl.exceptions.PolarsError, ValueError):
                self._by_text = self._with_words
                self._with_words = True
        return None

    def parse_carefully(self, block: Block, n: int, start: int) -> Chunk:
        """Parse ``n`` records that follow ``start`` rows.

        Raises
        ------
        InputError
            If a used cell is not a number or a record is not well formed.
        """
        text = self._read_text(block, n, start)
        stripped = text.select(pl.all().str.strip_chars())
        words = stripped.select(
            pl.when(pl.all().is_in(self._words)).then(None).otherwise(pl.all()).name.keep()
        )
        written = words.select(self._numeric)
        numbers = words.with_columns(
            written.select(parse_numbers(pl.all(), self._reading).name.keep())
        )
        wrong = {key: words[key].is_not_null() & numbers[key].is_null() for key in self._numeric}
        if any(column.any() for column in wrong.values()):
            # The first row with such a cell, and the first such cell in it.
            rows = {key: int(column.arg_true()[0]) for key, column in wrong.items() if column.any()}
            key = min(rows, key=lambda key: rows[key])
            row, cell = rows[key], text[key][rows[key]]
            raise InputError(
                f"column {self.header[int(key[1:])]!r} is not numeric: row "
                f"{start + row + 1} of {self.name} holds {_shorten(cell)!r}"
                f"{self._suggest_fix(cell, start)}"
            )
        try:
            return self._make_chunk(numbers, n, start)
        except ValueError:
            raise InputError(self._describe_fault(b"", n, start)) from None

    def text(self, block: Block, n: int, start: int) -> dict[str, pl.Series]:
        """Return the cells of ``n`` records as they are written, by name of the column."""
        frame = self._read_text(block, n, start)
        return {name: frame[key] for name, key in self._keys.items()}

    def _read_text(self, block: Block, n: int, start: int) -> pl.DataFrame:
        try:
            return self._read_frame(block, [])
        except pl.exceptions.PolarsError:
            raise InputError(self._describe_fault(block, n, start)) from None

    def _read_frame(self, block: Block, numeric: Sequence[str]) -> pl.DataFrame:
        types = dict.fromkeys(self._keys.values(), pl.String) | dict.fromkeys(numeric, pl.Float64)
        return pl.read_csv(
            b"".join((self._head, block)),
            columns=list(types),
            separator=self.separator,
            schema_overrides=types,
            null_values=self._words if self._with_words and numeric else None,
            infer_schema=False,
            encoding="utf8-lossy",  # text columns that are not used may hold anything
            decimal_comma=self._decimal_comma,
        )

    def _make_chunk(self, frame: pl.DataFrame, n: int, start: int) -> Chunk:
        if frame.height != n:
            raise ValueError(f"{frame.height} rows in {n} records")
        return self._table.chunk(start, {name: frame[key] for name, key in self._keys.items()})

    def _describe_fault(self, block: Block, n: int, start: int) -> str:
        """Describe the fault of a block of ``n`` records that the parser refuses."""
        lines = bytes(block).decode("utf-8", "replace").splitlines(keepends=True)
        for row, cells in enumerate(csv.reader(lines, delimiter=self.separator), start=1):
            if len(cells) > len(self.header):
                return (
                    f"row {start + row} of {self.name} has {len(cells)} cells, "
                    f"the header has {len(self.header)}"
                )
        return (
            f"rows {start + 1} to {start + n} of {self.name} are not well-formed CSV "
            "(a stray quotation mark?)"
        )

    def _suggest_fix(self, cell: str, start: int) -> str:
        if self._decimal_comma and "." in cell:
            return (
                " (a point, where --decimal is a comma: if it marks thousands, give --thousands .)"
            )
        if THOUSANDS.fullmatch(cell.strip()) and self._reading.thousands is None:
            return (
                " (name the mark of the thousands with --thousands; if it is a decimal comma, give "
                "--decimal ,)"
            )
        if self.separator != "," and cell.count(",") == 1 and not self._decimal_comma:
            return " (write decimals with a point, or give --decimal ,)"
        if start:
            return ""
        return " (leave it out with --exclude, or see --features, --categorical, --by)"


def _count_cells(
    block: bytes, ends: NDArray[np.int64], separator: str, expected: int
) -> NDArray[np.int64]:
    """Return the number of cells of each record; a separator in a quoted cell does not end it."""
    codes = np.frombuffer(block, np.uint8)
    marks = np.flatnonzero(codes == ord(separator))
    if QUOTE not in block:
        if marks.size == ends.size * (expected - 1) > 0:  # a tenth of the time of a search
            first, last = marks[:: expected - 1], marks[expected - 2 :: expected - 1]
            if (first[1:] >= ends[:-1]).all() and (last < ends).all():
                return np.full(ends.size, expected)
        return np.diff(np.searchsorted(marks, ends), prepend=0) + 1
    quotes = np.flatnonzero(codes == QUOTE)
    marks = marks[np.searchsorted(quotes, marks) % 2 == 0]
    counts = np.diff(np.searchsorted(marks, ends), prepend=0) + 1
    # A quotation mark inside a cell is a letter, be the number of them even or odd.
    opening = quotes[::2]
    before = codes[opening - 1]
    stray = opening[(opening > 0) & (before != ord(separator)) & (before != LINE_END)]
    # In a quoted cell two of them are one, the second of which is not stray.
    stray = stray[codes[stray - 1] != QUOTE]
    for row in np.unique(np.searchsorted(ends, stray, side="right")):
        record = bytes(block[int(ends[row - 1]) if row else 0 : int(ends[row])])
        counts[row] = len(_split_record(record.decode(errors="replace"), separator))
    return counts


def _split_record(record: str, separator: str) -> list[str]:
    return next(csv.reader(record.splitlines(keepends=True), delimiter=separator), [])


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shorten(cell: str, most: int = 40) -> str:
    return cell if len(cell) <= most else cell[: most - 3] + "..."
