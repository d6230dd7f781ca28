"""Report errors of Polars about Parquet files, and panics of its Rust code, in one line."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, cast

import polars as pl

from olsq.cli.errors import InputError

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
