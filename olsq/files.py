"""Files that are complete under their name, or not there."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import threading
import time

_LEFT_BEHIND = 3600.0  # seconds after which another writer's temporary file is that of a dead one
_numbers = itertools.count()
_tidied: set[str] = set()


def write_atomically(path: str | os.PathLike[str], *pieces: bytes | memoryview) -> None:
    """Give ``pieces``, one after the other, the name ``path`` once they are on the disk.

    Until then nothing changes; of several writers at once the last to finish wins, whole.  A
    symbolic link stays one, and what it points to is replaced; an old file's permissions (and its
    owner, where that is allowed) are kept.

    Raises
    ------
    OSError
        If the file cannot be written, or the name is that of a device or a directory; what was
        there is untouched then.
    """
    name = os.fspath(path)
    target = os.path.realpath(name)
    old = _regular(name, target)
    folder, base = os.path.split(target)
    temporary = os.path.join(folder, f".{base}.{_unique()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(temporary, flags, 0o666)  # less the umask, as for any new file
    except OSError as error:
        raise type(error)(error.errno, error.strerror, name) from None
    try:
        with open(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            if old is not None:
                _keep_permissions(temporary, old)
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync(folder)
    if target not in _tidied:
        _tidied.add(target)
        _tidy(folder, base)


def _regular(name: str, target: str) -> os.stat_result | None:
    """Status of the file to be replaced, None if there is none; OSError if it is no file."""
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if stat.S_ISLNK(status.st_mode):  # one that leads to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file, and would be replaced by one", name)
    return status


def _unique() -> str:
    return f"{os.getpid()}-{threading.get_ident()}-{next(_numbers)}"


def _keep_permissions(temporary: str, old: os.stat_result) -> None:
    if hasattr(os, "chown"):
        with contextlib.suppress(OSError):  # only the administrator may
            os.chown(temporary, old.st_uid, old.st_gid)
    os.chmod(temporary, stat.S_IMODE(old.st_mode))


def _sync(folder: str) -> None:
    """Force the new name onto the disk, too: it survives a power cut."""
    with contextlib.suppress(OSError):  # not every system can open a directory
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _tidy(folder: str, base: str) -> None:
    """Remove what writers of this file that were killed have left behind."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.startswith(f".{base}.") and entry.name.endswith(".tmp"):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat().st_mtime > _LEFT_BEHIND:
                        os.unlink(entry.path)
