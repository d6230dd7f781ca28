"""Open an input as CSV or Parquet, by its first bytes."""

from __future__ import annotations

from pathlib import Path

from olsq.cli.errors import InputError
from olsq.cli.sources.columns import Reading
from olsq.cli.sources.csv import CsvSource
from olsq.cli.sources.parquet import PARQUET_MAGIC, ParquetSource
from olsq.cli.sources.source import Source


def open_source(data: str, reading: Reading) -> Source:
    """Open ``data`` (a path, or ``-`` for standard input) as CSV or Parquet by its first bytes.

    Raises
    ------
    InputError
        If the file is missing, unreadable, a directory, empty, or lacks a column.
    """
    if data == "-":
        return CsvSource(None, reading)
    path = Path(data)
    try:
        # Opening a pipe to look at its first bytes would take them from it.
        if not path.is_file() and not path.is_dir() and path.exists():
            return CsvSource(None, reading, pipe=path)
        with path.open("rb") as file:
            magic = file.read(len(PARQUET_MAGIC))
    except FileNotFoundError:
        raise InputError(f"no such file: {data}") from None
    except IsADirectoryError:
        raise InputError(f"{data} is a directory, not a file") from None
    except OSError as error:
        raise InputError(f"cannot read {data}: {error.strerror}") from None
    if magic == PARQUET_MAGIC:
        return ParquetSource(path, reading)
    if path.suffix == ".parquet" and magic:
        raise InputError(f"{data} is not a Parquet file, whatever its name says")
    return CsvSource(path, reading)
