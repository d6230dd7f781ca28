"""Advisory locks on open files, which the system drops when the process ends, however it ends."""

from __future__ import annotations

import os
import sys

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
