"""A log file that grows by whole lines."""

from __future__ import annotations

import errno
import os
from types import TracebackType
from typing import Self

from olsq.files.draft import write_atomically
from olsq.files.locks import NO_FOLLOW


class AppendedFile:
    """A file that appears with its first lines, atomically, and then grows by whole lines.

    Use as a context manager.

    Parameters
    ----------
    path : path
    start : bytes
        What an old file of that name is replaced by.

    Raises
    ------
    OSError
        If the file cannot be written; it never ends in half of what was to be appended then.
    """

    def __init__(self, path: str | os.PathLike[str], start: bytes) -> None:
        self._path = os.fspath(path)
        write_atomically(path, start)
        self._descriptor = os.open(os.path.realpath(path), os.O_WRONLY | os.O_APPEND | NO_FOLLOW)

    def append(self, data: bytes) -> None:
        """Append ``data``, all of it or nothing."""
        try:
            length = os.fstat(self._descriptor).st_size
            # One call, so that a process killed here leaves no half of a line.
            if os.write(self._descriptor, data) < len(data):  # the disk became full in the middle
                os.ftruncate(self._descriptor, length)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from None

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
