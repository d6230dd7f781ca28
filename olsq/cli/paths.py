"""Check the files that a command reads and writes for conflicts, and lock them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from olsq.cli.errors import CommandError, InputError
from olsq.files import InUseError, lock_path, locked, same_file

# errors of a disk, which the user does not mend by changing the command
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
Named = tuple[str, Path]  # what the user calls it, and where it is


def check_paths(reads: Sequence[Named], writes: Sequence[Named]) -> None:
    """Check, before anything is read or written, that every file can be written as asked.

    Raises
    ------
    InputError
        If two of the files, or a file and the lock of another, are the same, or one cannot be
        written.
    """
    taken = list(reads)
    for option, path in writes:
        for other, place in taken:
            if same_file(path, place):
                raise InputError(f"{option} and {other} are the same file: {path}")
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise InputError(f"cannot write {path}: there is no directory {path.parent}")
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a directory")
        if path.exists() and not path.is_file():
            raise InputError(f"cannot write {path}: it is not a regular file")
        if not all(os.access(p, os.W_OK) for p in (folder, path) if p.exists()):
            raise InputError(f"cannot write {path}: permission denied")
        taken.append((option, path))
    for option, path in writes:
        for other, place in taken:
            if same_file(lock_path(path), place):
                raise InputError(f"{other} is the lock file of {option}: {place}")


@contextlib.contextmanager
def locked_paths(*paths: Path) -> Iterator[None]:
    """Lock these files and folders against every other run.

    Raises
    ------
    InputError
        If another run is writing one of them, or a lock cannot be made.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(*paths))
        except InUseError as error:
            raise InputError(str(error)) from None
        except OSError as error:
            kind = CommandError if error.errno in FULL else InputError
            raise kind(f"cannot write {error.filename}: {error.strerror}") from None
        yield
