"""Base class of the inputs: columns, chunks of fixed size, and a position to resume from."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from olsq.cli.sources.columns import Chunk, Columns
from olsq.cli.sources.table import TableBuilder

Position = dict[str, Any]
LARGEST_CHUNK = 16_384  # rows
CHUNK_CELLS = 1 << 20  # 8 MiB of float64, which the arrays of a chunk are multiples of
# A call costs each group that has rows in it the work of some 50 rows (150,000 rows of 1,500
# groups in a window: 8.9 s in chunks of 16,384 rows, 4.5 of 65,536 and 3.2 of 150,000).
ROWS_OF_GROUP, LARGEST_OF_GROUPS, CELLS_OF_GROUPS = 128, 1 << 18, 1 << 22


def default_chunk_rows(n_columns: int, groups: int = 1) -> int:
    """Return the rows of a chunk, a power of two.

    They are about a million cells, 64 to 16384 rows; of many groups up to four million cells, so
    that there are 128 rows of each.
    """
    wanted = min(ROWS_OF_GROUP * groups, LARGEST_OF_GROUPS)
    most, cells = LARGEST_CHUNK, CHUNK_CELLS
    if wanted > most:
        most, cells = wanted, CELLS_OF_GROUPS
    rows = min(max(cells // max(n_columns, 1), 64), most)
    return 1 << (rows.bit_length() - 1)


class Source:
    """A table read once, in order, in chunks whose boundaries depend on its rows only.

    Attributes
    ----------
    name : str
        What to call the input in messages.
    header : list of str
        All column names.
    columns : Columns
        The ones that are used.
    table : TableBuilder
        The levels of its categories and how its times are written.
    chunk_rows : int
        Rows of every chunk but the last.
    rows : int
        Data rows handed out so far.
    crc : int
        Checksum of the values handed out so far.
    """

    header: list[str]
    columns: Columns
    table: TableBuilder

    def __init__(self, path: Path | None, chunk_rows: int | None) -> None:
        self.path = path
        self.name = "standard input" if path is None else str(path)
        self.rows = 0
        self.crc = 0
        stat = None if path is None else path.stat()
        self.size = stat.st_size if stat else None
        self.modified = stat.st_mtime_ns if stat else None
        self._chunk_rows_are_default = chunk_rows is None
        self.chunk_rows = chunk_rows or 0  # until the columns are known
        self._frames: Generator[pl.DataFrame, None, None] | None = None
        self._left = pl.DataFrame()  # cells that were read and not handed out

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def identity(self) -> dict[str, Any]:
        """Return what a later run compares to detect that the input changed."""
        return {"header": self.header, "size": self.size, "modified": self.modified}

    def position(self) -> Position:
        """Return where the next chunk starts, for :meth:`skip_to` of a later run."""
        return {"rows": self.rows, "crc": self.crc}

    def skip_to(self, position: Position, *, trusted: bool) -> bool:
        """Move to ``position``; return False if what comes before it has changed.

        A file that is ``trusted`` to be unchanged is not compared.
        """
        if not trusted:
            while self.rows < position["rows"]:
                if self._next_chunk(min(self.chunk_rows, position["rows"] - self.rows)) is None:
                    return False
            if self.crc != position["crc"]:
                return False
        self.rows, self.crc = position["rows"], position["crc"]
        return True

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of rows from the present position on."""
        if self.columns.by is not None and self._chunk_rows_are_default and not self.rows:
            cells = self._next_cells(self.chunk_rows)
            self._left = pl.concat([cells, self._left])
            groups = cells[self.columns.by].n_unique() if cells.height else 0
            self.chunk_rows = default_chunk_rows(len(self.columns.all), groups)
        while (chunk := self._next_chunk(self.chunk_rows)) is not None:
            yield chunk

    def _next_chunk(self, rows: int) -> Chunk | None:
        cells = self._next_cells(rows).to_dict()
        if not len(cells.get(self.columns.all[0], ())):
            return None
        if not self.rows:
            self.table.settle(cells)
        chunk = self.table.chunk(self.rows, cells)
        for array in chunk.arrays().values():
            self.crc = zlib.crc32(array.data, self.crc)
        self.rows += len(chunk.y)
        return chunk

    def _next_cells(self, rows: int) -> pl.DataFrame:
        """Return the next ``rows`` rows of the columns that are used, fewer at the end."""
        self._frames = self._frames or self.read_cells(self.rows)
        frames, n = [self._left], self._left.height
        while n < rows and (frame := next(self._frames, None)) is not None:
            frames.append(frame)
            n += frame.height
        cells = pl.concat([frame for frame in frames if frame.height] or frames[-1:])
        self._left = cells[rows:]
        return cells[:rows]

    def read_cells(self, start: int) -> Generator[pl.DataFrame, None, None]:
        """Yield the cells of the columns that are used, in pieces, after ``start`` rows."""
        raise NotImplementedError

    def fraction(self) -> float | None:
        """Return the share of the input handed out, None if unknown."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the input's file, if one is open."""
        raise NotImplementedError
