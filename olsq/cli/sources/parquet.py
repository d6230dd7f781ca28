"""Read Parquet files in chunks of a fixed number of rows, and write them from pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from olsq.cli.errors import InputError
from olsq.cli.sources.columns import Reading, choose_columns
from olsq.cli.sources.source import Source, default_chunk_rows
from olsq.cli.sources.table import TableBuilder

PARQUET_MAGIC = b"PAR1"
# A row group may be larger than memory: 4 million rows took 188 MB with pyarrow's defaults, and
# take 21 MB so, in the same time.
PIECEWISE: dict[str, Any] = {"buffer_size": 1 << 16, "pre_buffer": False}
# What a column of dates, and one of labels, may be besides text and numbers.
DATES = (pl.Date, pl.Datetime)
LABELS = (*DATES, pl.Boolean, pl.Categorical, pl.Enum, pl.Time, pl.Binary)


class ParquetSource(Source):
    """A Parquet file whose used columns are numbers, dates or labels.

    Parameters
    ----------
    path : Path
        The file.
    reading : Reading
        Columns and how to read them; how text is written does not matter here.

    Raises
    ------
    InputError
        If the file is damaged, or a column is missing or is stored as another type.
    """

    def __init__(self, path: Path, reading: Reading) -> None:
        super().__init__(path, reading.chunk_rows)
        with reading_parquet(self.name):
            self._file = pq.ParquetFile(path, **PIECEWISE)
            self.header = list(self._file.schema_arrow.names)
        try:
            self.columns = choose_columns(self.header, reading)
            self.table = TableBuilder(self.name, self.columns, reading, reading.words_in_text)
            self._settle_types()
        except BaseException:
            self.close()
            raise
        self.chunk_rows = self.chunk_rows or default_chunk_rows(len(self.columns.all))

    def _settle_types(self) -> None:
        """Check the types of the columns that are used, and tell the time column its own."""
        names, text, time = list(self.columns.all), self.table.text, self.table.time
        with reading_parquet(self.name):
            empty = self._file.schema_arrow.empty_table().select(names)
            types = cast(pl.DataFrame, pl.from_arrow(empty)).schema
        for name, dtype in types.items():
            if dtype.is_numeric() or (name in text and dtype == pl.String):
                continue
            if time is not None and name == time.name:
                if dtype not in DATES:
                    raise InputError(
                        f"--time: {self.name} stores column {name!r} as {dtype}: dates, numbers "
                        "or text are needed"
                    )
            elif name in text:
                if dtype not in LABELS:
                    raise InputError(
                        f"{self.name} stores column {name!r} as {dtype}, which cannot be labels"
                    )
            elif dtype != pl.Boolean:
                raise InputError(
                    f"column {name!r} is not numeric: {self.name} stores it as {dtype} "
                    "(leave it out with --exclude, or see --features, --categorical, --by)"
                )
        self._casts = [pl.col(name).cast(pl.Float64) for name in names if name not in text]
        self._casts += [pl.col(name).cast(pl.String) for name in text if types[name] == pl.Binary]
        if time is not None and types[time.name] != pl.String:
            time.settle(pl.Series(dtype=types[time.name]))

    def fraction(self) -> float | None:
        """Return the share of the rows read."""
        total = self._file.metadata.num_rows
        return self.rows / total if total else None

    def read_cells(self, start: int) -> Generator[pl.DataFrame, None, None]:
        """Yield the cells of the columns that are used, in pieces, after ``start`` rows."""
        pieces = read_frames(self._file, list(self.columns.all), start, self.chunk_rows)
        with reading_parquet(self.name):
            for frame in pieces:
                yield frame.with_columns(self._casts)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_frames(
    file: pq.ParquetFile, columns: list[str], start: int, rows: int
) -> Iterator[pl.DataFrame]:
    """Yield the rows after the first ``start``, in pieces of at most ``rows``."""
    groups = range(file.metadata.num_row_groups)
    ends = list(accumulate(file.metadata.row_group(group).num_rows for group in groups))
    later = [group for group in groups if ends[group] > start]
    if not later:  # which PyArrow 18 has no batches of
        return
    skipped = start - (ends[later[0] - 1] if later[0] else 0)
    batches = file.iter_batches(rows, row_groups=later, columns=columns, use_threads=False)
    for batch in batches:
        # a name such as a also selects a.b
        frame = cast(pl.DataFrame, pl.from_arrow(batch.select(columns)))
        yield frame[skipped:]
        skipped = max(skipped - frame.height, 0)


@contextlib.contextmanager
def reading_parquet(name: str) -> Iterator[None]:
    """Raise InputError with the file's name for errors of a damaged Parquet file."""
    try:
        yield
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{name} is a damaged Parquet file: {reason} (write it again from its source)"
        ) from None


def write_parquet(path: Path, file: Any, frames: Iterable[pl.DataFrame]) -> None:
    """Write one row group for each frame into ``file``, which errors call ``path``."""
    tables = (frame.to_arrow() for frame in frames)
    try:
        head = next(tables)
        with pq.ParquetWriter(file, head.schema, compression="zstd") as writer:
            for table in chain([head], tables):
                writer.write_table(table)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None
