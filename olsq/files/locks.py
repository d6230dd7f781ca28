"""Advisory locks on open files, which keep a second run from writing the same files.

The lock is on an open file, ``.o.csv.olsq-lock`` beside ``o.csv``, so that it goes with its
process, however that ends.  The file itself means nothing: one that a killed process has left is
locked and removed by the next run.  It holds the process and the time, for the message.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator

from olsq.files.names import Path, stem

# Links are never followed where a file is opened by a name that another may have made.
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_FOLLOW

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 40  # a lock bars reading there, so it lies beyond what a lock file holds

    def try_lock(descriptor: int) -> bool:
        """Lock an open file without waiting; False if another process or thread holds it."""
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        try:
            os.lseek(descriptor, _FAR, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, place, os.SEEK_SET)
        return True

else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Lock an open file without waiting; False if another process or thread holds it.

        Raises
        ------
        OSError
            If the file system has no locks.
        """
        # Not lockf: its locks go with the first close of any descriptor of the file.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


ENDING = "olsq-lock"
_MAGIC = "olsq lock"


def lock_if_possible(descriptor: int) -> bool:
    """Lock an open file without waiting; True also where the file system has no locks."""
    try:
        return try_lock(descriptor)
    except OSError:
        return True


def is_named(descriptor: int, name: str) -> bool:
    """Test whether ``name`` still refers to the open file: another process may have removed it."""
    try:
        there = os.stat(name, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))


_WINDOWS = os.name == "nt"


class InUseError(Exception):
    """Another run is writing the file."""


def lock_path(path: Path) -> str:
    """Return the name of the lock of a file, or of a folder, in which it then lies."""
    target = os.path.realpath(path)
    if os.path.isdir(target):
        return os.path.join(target, f".{ENDING}")
    folder, base = os.path.split(target)
    return os.path.join(folder, f".{stem(base)}.{ENDING}")


@contextlib.contextmanager
def locked(*paths: Path) -> Iterator[None]:
    """Lock files, and folders, that are to be written; readers are not kept out.

    Parameters
    ----------
    *paths : path
        Files, which need not be there, and folders.  Of links, what they point to is locked.

    Raises
    ------
    InUseError
        If another process, or thread, has one of them locked.
    OSError
        If a lock cannot be made, because its folder cannot be written for example; its
        ``filename`` is that of the file to be locked.

    Notes
    -----
    Where the file system has no locks this locks nothing.  Whether a lock bars processes on
    other hosts is up to the file system, too: NFS does from version 4 on, many others do not.
    """
    # In one order, so that of two runs with the same files one gets all of them.
    lock_paths = sorted({lock_path(path): os.fspath(path) for path in paths}.items())
    with contextlib.ExitStack() as stack:
        for place, shown in lock_paths:
            try:
                stack.enter_context(_lock(place, shown))
            except OSError as error:
                raise OSError(error.errno, error.strerror, shown) from None
        yield


@contextlib.contextmanager
def _lock(place: str, shown: str) -> Iterator[None]:
    descriptor = _open_locked(place, shown)
    try:
        _write_owner(descriptor)
        yield
    finally:
        # Removed while still locked: who has opened the same file meanwhile finds, once he has its
        # lock, that it is no longer the one of this name.
        if not _WINDOWS:
            _remove_lock_file(place, descriptor)
        os.close(descriptor)
        if _WINDOWS:
            with contextlib.suppress(OSError):  # fails if another process has it open
                os.unlink(place)


def _open_locked(place: str, shown: str) -> int:
    while True:
        descriptor = _open_lock_file(place)
        try:
            _check_is_lock(descriptor, place)
            try:
                free = try_lock(descriptor)
            except OSError:  # a file system without locks
                return descriptor
            if not free:
                raise InUseError(f"another run is writing {shown}{_describe_owner(descriptor)}")
            if is_named(descriptor, place):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # of a run that was just ending


def _open_lock_file(place: str) -> int:
    try:
        return os.open(place, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o666)
    except PermissionError:  # left by another user: it can be locked, if not written
        return os.open(place, os.O_RDONLY | NO_FOLLOW)


def _check_is_lock(descriptor: int, place: str) -> None:
    """Raise FileExistsError if the file is neither empty nor written by :func:`_write_owner`."""
    status = os.fstat(descriptor)
    ours = stat.S_ISREG(status.st_mode) and status.st_nlink <= 1
    if not ours or (status.st_size and not _read_content(descriptor).startswith(_MAGIC)):
        raise FileExistsError(errno.EEXIST, f"{place} is in the way, and no lock of olsq", place)


def _read_content(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 1000).decode("utf-8", "replace")


def _write_owner(descriptor: int) -> None:
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    text = f"{_MAGIC}\n{os.getpid()}\n{now}\n{socket.gethostname()}\n"
    with contextlib.suppress(OSError):  # another user's, or the disk is full: the lock holds
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, text.encode())


def _describe_owner(descriptor: int) -> str:
    """Return " (process 12, since 10:30)" as read from the lock file, or "" if it does not say."""
    try:
        magic, pid, since, host = _read_content(descriptor).splitlines()[:4]
        began = datetime.datetime.fromisoformat(since).astimezone()
    except (ValueError, OSError):  # not yet written
        return ""
    if magic != _MAGIC or not pid.isdigit():
        return ""
    today = began.date() == datetime.date.today()
    place = "" if host == socket.gethostname() else f" on {host}"
    return f" (process {pid}{place}, since {began:{'%H:%M' if today else '%Y-%m-%d %H:%M'}})"


def _remove_lock_file(place: str, descriptor: int) -> None:
    with contextlib.suppress(OSError):
        if is_named(descriptor, place):
            os.unlink(place)
