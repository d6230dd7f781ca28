"""Base class of the inputs: columns, chunks of fixed size, and a position to resume from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from olsq.cli.sources.columns import Chunk, Columns
from olsq.cli.sources.table import TableBuilder

Position = dict[str, Any]
LARGEST_CHUNK = 16_384  # rows
CHUNK_CELLS = 1 << 20  # 8 MiB of float64, which the arrays of a chunk are multiples of


def default_chunk_rows(n_columns: int) -> int:
    """Return the rows of a chunk: about a million cells, 64 to 16384 rows, a power of two."""
    rows = max(CHUNK_CELLS // max(n_columns, 1), 64)
    return min(1 << (rows.bit_length() - 1), LARGEST_CHUNK)


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
        Checksum of everything handed out so far.
    """

    header: list[str]
    columns: Columns
    table: TableBuilder
    chunk_rows: int

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.name = "standard input" if path is None else str(path)
        self.rows = 0
        self.crc = 0
        stat = None if path is None else path.stat()
        self.size = stat.st_size if stat else None
        self.modified = stat.st_mtime_ns if stat else None

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def identity(self) -> dict[str, Any]:
        """Return what a later run compares to detect that the input changed."""
        return {"header": self.header, "size": self.size, "modified": self.modified}

    def position(self) -> Position:
        """Return where the next chunk starts, for :meth:`skip_to` of a later run."""
        raise NotImplementedError

    def skip_to(self, position: Position, *, trusted: bool) -> bool:
        """Move to ``position``; return False if what comes before it has changed."""
        raise NotImplementedError

    def fraction(self) -> float | None:
        """Return the share of the input handed out, None if unknown."""
        raise NotImplementedError

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of rows from the present position on."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the input's file, if one is open."""
        raise NotImplementedError
