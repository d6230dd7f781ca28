"""Read CSV files, compressed CSV files and pipes: pyarrow finds rows and cells.

Bytes are read here, up to the end of a line, and pyarrow parses a block of them at a time.  (Its
streaming reader reads in a thread, which Ctrl-C does not reach and which the end of the interpreter
kills.)  The cells that are used come as text, which Polars converts, as quick as pyarrow.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Generator
from itertools import chain
from pathlib import Path
from typing import NoReturn, cast

import polars as pl
import pyarrow as pa
import pyarrow.csv

from olsq.cli.errors import InputError
from olsq.cli.options import QUOTED
from olsq.cli.sources.columns import Reading, choose_columns
from olsq.cli.sources.numbers import NumberReader, shorten
from olsq.cli.sources.parquet import PARQUET_MAGIC
from olsq.cli.sources.source import Source, default_chunk_rows
from olsq.cli.sources.streams import LONGEST_LINE, ByteStream, compression_of
from olsq.cli.sources.table import TableBuilder

# Signals are answered by the command, which a handler of pyarrow's would keep waiting.
pa.enable_signal_handlers(False)
BLOCK_BYTES = 1 << 20
LONGEST_ROW = LONGEST_LINE
SEPARATORS = ",;\t|"
# A row added to every block: a quotation mark left open takes it into its cell.
END = "\x04 end of the block, to olsq"
WRONG_ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
OPEN_QUOTE = "the input ends inside a quoted field: a quotation mark is left open"
TOO_LONG = f"a quotation mark is left open, or a row is longer than {LONGEST_ROW >> 20} MiB"


class CsvSource(Source):
    """A CSV file, a compressed one, or standard input (``path`` None).

    Parameters
    ----------
    path : Path or None
        The file; None reads standard input.
    reading : Reading
        Columns and how they are written.  Without a separator, it is the commonest of comma,
        semicolon, tab and bar in the header.

    pipe : Path, optional
        A file without positions (a named pipe), read as standard input is.

    Raises
    ------
    InputError
        If the input is empty, is not CSV, or lacks a column.
    """

    def __init__(self, path: Path | None, reading: Reading, pipe: Path | None = None) -> None:
        super().__init__(path, reading.chunk_rows)
        if pipe is not None:
            self.name = str(pipe)
        self._bytes = ByteStream(path, self.name, reading.encoding, pipe)
        try:
            with self._bytes.report_damage():
                self.separator, self.header = self._read_header(reading)
            self.columns = choose_columns(self.header, reading)
            numbers = NumberReader(self.name, reading, self.separator)
            self.table = TableBuilder(
                self.name, self.columns, reading, reading.words_in_csv, numbers
            )
        except BaseException:
            self.close()
            raise
        self.chunk_rows = self.chunk_rows or default_chunk_rows(len(self.header))
        self._block_bytes = max(BLOCK_BYTES, 8 * sum(map(len, self.header)))

    def _read_header(self, reading: Reading) -> tuple[str, list[str]]:
        """Return the separator and the names of the columns."""
        first = self._bytes.text.readline(LONGEST_LINE)
        if not first:
            raise InputError(f"{self.name} is empty")
        if first.startswith(PARQUET_MAGIC):
            raise InputError(f"{self.name} is Parquet, which is read from a file, not from a pipe")
        if compression := compression_of(first):
            raise InputError(
                f"{self.name} is compressed with {compression}: decompress it before the pipe, or "
                "give the file itself"
            )
        advice = "save it as CSV in UTF-8, or give --encoding: cp1252, latin-1, utf-16, ..."
        try:
            head = first.decode()
        except UnicodeDecodeError:
            head = "\x00"
        if "\x00" in head:
            raise InputError(f"{self.name} is not UTF-8 text ({advice})")
        if not head.strip():
            raise InputError(
                f"the first line of {self.name} is blank, and it must name the columns: remove it"
            )
        if "\r" in head.rstrip("\r\n"):
            raise InputError(f"{self.name} ends its lines with a bare carriage return; use \\n")
        separators = SEPARATORS.replace(",", "") if reading.decimal == "," else SEPARATORS
        # those in quoted names separate nothing
        separator = reading.separator or max(separators, key=re.sub(QUOTED, "", head).count)
        # A line end inside a quoted name does not end the header.
        more = iter(lambda: self._bytes.text.readline(LONGEST_LINE).decode(errors="replace"), "")
        try:
            return separator, next(csv.reader(chain([head], more), delimiter=separator))
        except csv.Error:
            raise InputError(f"the header of {self.name} leaves a quotation mark open") from None

    def fraction(self) -> float | None:
        """Return the share of the file read, None for a pipe."""
        return min(1.0, self._bytes.raw.tell() / self.size) if self.size else None

    def read_cells(self, start: int) -> Generator[pl.DataFrame, None, None]:
        """Yield the cells of the columns that are used, as text, after ``start`` rows."""
        rows, block, ended = 0, b"", False
        while not ended:
            with self._bytes.report_damage():
                lines = self._bytes.read_lines(max(len(block), self._block_bytes))
            ended = not lines
            block += lines
            if len(lines) > LONGEST_ROW and not lines.endswith(b"\n"):
                raise InputError(f"{self.name}: {TOO_LONG}")
            cells = self._parse(block, rows, ended) if block else None
            if cells is not None:
                block, rows = b"", rows + cells.height
                yield cells.tail(max(rows - start, 0))
            elif len(block) > LONGEST_ROW:
                raise InputError(f"{self.name}: {TOO_LONG}")

    def _parse(self, block: bytes, start: int, is_last: bool) -> pl.DataFrame | None:
        """Return the rows of a block; None where it ends inside a row, unless it is the last.

        Raises InputError for rows of another length than the header, and for a row without an end.
        """
        # Columns are renamed c0, c1, ... so that odd or repeated names cannot confuse the parser.
        names = [f"c{j}" for j in range(len(self.header))]
        places = {name: j for j, name in enumerate(self.header)}
        used = [names[places[name]] for name in self.columns.all]
        last_row = self.separator.join([f'"{END}"'] * len(names)).encode()
        data = block + b"\n" * (not block.endswith(b"\n")) + last_row
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(data),
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=len(data) + 1, column_names=names
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.separator, newlines_in_values=True, ignore_empty_lines=False
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(used, pa.binary()), include_columns=used
                ),
            )
        except pa.ArrowInvalid as error:
            message = str(error)
            is_cut = message.endswith(" ...") and b'"' in block  # by pyarrow, in messages
            if not is_last and (END in message or is_cut):
                return None
            self._refuse_row(message, start)
        batch = table.combine_chunks().to_batches()[0]
        if batch.column(0)[-1].as_py() != END.encode():
            if is_last:
                raise InputError(f"{self.name}: {OPEN_QUOTE}")
            return None
        return self._decode(batch.slice(0, batch.num_rows - 1), start)

    def _refuse_row(self, message: str, start: int) -> NoReturn:
        """Raise InputError for a row that pyarrow refuses, of a block after ``start`` rows."""
        wrong = WRONG_ROW.search(message)
        if wrong is None:
            raise InputError(f"{self.name}: {message}") from None
        number, expected, cells = map(int, wrong.groups()[:3])
        lines = ": is it that a quotation mark is left open?" * ("\n" in wrong[4])
        raise InputError(
            f"row {start + number:,} of {self.name} has {cells} cell{'s'[: cells != 1]}, the "
            f"header has {expected}{lines}"
        ) from None

    def _decode(self, batch: pa.RecordBatch, start: int) -> pl.DataFrame:
        """Return the cells as text; InputError where bytes are not UTF-8."""
        try:
            columns = [column.cast(pa.string()) for column in batch.columns]
        except pa.ArrowInvalid:
            self._refuse_bytes(batch, start)
        names = list(self.columns.all)
        return cast(pl.DataFrame, pl.from_arrow(pa.RecordBatch.from_arrays(columns, names)))

    def _refuse_bytes(self, batch: pa.RecordBatch, start: int) -> NoReturn:
        for row in range(batch.num_rows):
            for name, column in zip(self.columns.all, batch.columns, strict=True):
                cell = column[row].as_py()
                if "\ufffd" in cell.decode(errors="replace") and "\ufffd".encode() not in cell:
                    raise InputError(
                        f"column {name!r} is not UTF-8 text: row {start + row + 1:,} of "
                        f"{self.name} holds {cell[:40]!r}: give --encoding (cp1252 reads "
                        f"{shorten(cell.decode('cp1252', 'replace'))!r}; latin-1, cp850 and "
                        "mac-roman are others to try)"
                    )
        raise AssertionError("all cells are UTF-8")

    def close(self) -> None:
        """Close the file, but not standard input."""
        if self._frames is not None:
            self._frames.close()
        self._bytes.close()
