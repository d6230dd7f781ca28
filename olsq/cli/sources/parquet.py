"""Read Parquet files in chunks of a fixed number of rows; report Polars' errors in one line."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl

from olsq.cli.errors import InputError
from olsq.cli.sources.columns import Reading, choose_columns
from olsq.cli.sources.source import Source, default_chunk_rows
from olsq.cli.sources.table import TableBuilder

PARQUET_MAGIC = b"PAR1"
CHUNKS_PER_READ = 8


class ParquetSource(Source):
    """A Parquet file whose used columns are numbers.

    Parameters
    ----------
    path : Path
        The file.
    reading : Reading
        Columns and how to read them; how text is written does not matter here.

    Raises
    ------
    InputError
        If the file is damaged, a column is missing or is not numeric.
    """

    def __init__(self, path: Path, reading: Reading) -> None:
        super().__init__(path, reading.chunk_rows)
        with reading_parquet(str(path)):
            scan = pl.scan_parquet(path)
            schema = scan.collect_schema()
            self._total = int(scan.select(pl.len()).collect().item())
        self.header = list(schema.names())
        self.columns = choose_columns(self.header, reading)
        self.table = TableBuilder(self.name, self.columns, reading, reading.words_in_text)
        text = self.table.text
        for name in self.columns.all:
            dtype = schema[name]
            if not (dtype.is_numeric() or dtype == pl.Boolean or name in text):
                raise InputError(
                    f"column {name!r} is not numeric: {path} stores it as {dtype} "
                    "(leave it out with --exclude, or see --features, --categorical, --by)"
                )
        self.chunk_rows = self.chunk_rows or default_chunk_rows(len(self.columns.all))
        self._scan = scan.select(
            pl.col(name) if name in text else pl.col(name).cast(pl.Float64)
            for name in self.columns.all
        )
        if self.table.time is not None and schema[self.table.time.name] != pl.String:
            self.table.time.settle(pl.Series(dtype=schema[self.table.time.name]))

    def fraction(self) -> float | None:
        """Return the share of the rows read."""
        return self.rows / self._total if self._total else None

    def read_cells(self, start: int) -> Generator[pl.DataFrame, None, None]:
        """Yield the cells of the columns that are used, in pieces, after ``start`` rows."""
        length = CHUNKS_PER_READ * self.chunk_rows
        for at in range(start, self._total, length):
            with reading_parquet(self.name):
                frame = self._scan.slice(at, length).collect()
            yield frame

    def close(self) -> None:
        """Do nothing, since no file is open between two reads."""


# A panic is not a subclass of Exception.
ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


@contextlib.contextmanager
def reading_parquet(name: str) -> Iterator[None]:
    """Raise InputError with the file's name for errors of a damaged Parquet file."""
    try:
        with _without_panics():
            yield
    except (*ERRORS, OSError) as error:
        raise InputError(
            f"{name} is a damaged Parquet file: {_first_line(error)} "
            "(write it again from its source)"
        ) from None


@contextlib.contextmanager
def writing_parquet(name: str) -> Iterator[None]:
    """Raise the system's OSError, with the name, for what Polars raises on a full disk."""
    try:
        with _without_panics():
            yield
    except ERRORS as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise OSError(
                None, f"Parquet could not be written ({_first_line(error)})", name
            ) from None
        code = int(number[1])
        raise OSError(code, os.strerror(code), name) from None


def _open_unnamed_file() -> BinaryIO:
    """Open a file without a name, in memory where the system can make one."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("olsq"), "w+b")
    return cast(BinaryIO, tempfile.TemporaryFile())


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def _without_panics() -> Iterator[None]:
    """Hold back what is written to standard error, and drop it if Polars fails.

    Rust prints a report of every panic, with a stack trace, to the descriptor itself.
    """
    with contextlib.ExitStack() as opened:
        try:
            held = opened.enter_context(_open_unnamed_file())
            kept = os.dup(2)
        except OSError:  # there is no standard error, or no room for a temporary file
            kept = None
        if kept is None:
            yield
            return
        failed = False
        sys.stderr.flush()
        os.dup2(held.fileno(), 2)
        try:
            yield
        except ERRORS:
            failed = True
            raise
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            if not failed:
                held.seek(0)
                with contextlib.suppress(OSError):
                    os.write(2, held.read())
