"""Resolving paths, and naming the temporary files and locks beside them."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat

Path = str | os.PathLike[str]

TEMPORARY = ".tmp"  # of a draft being written, worthless once its process has died
KEPT = ".part"  # of a draft whose name a state records, so that a later run continues it
_LONGEST = 180  # bytes of a name; with what is added it stays below the 255 of most file systems
_KEPT_NAME = re.compile(r"\..+\.[0-9a-f]{16}\.part", re.DOTALL)


def temporary_name(target: str, ending: str = TEMPORARY) -> str:
    """Return an unpredictable name beside ``target``: ``.o.csv.3f0c...tmp`` for ``o.csv``."""
    folder, base = os.path.split(target)
    return os.path.join(folder, f".{stem(base)}.{secrets.token_hex(8)}{ending}")


def is_temporary(name: str, base: str) -> bool:
    """Test whether ``name`` is a temporary name of ``base``, as made by :func:`temporary_name`."""
    start = f".{stem(base)}."
    return name.startswith(start) and bool(re.fullmatch(r"[0-9a-f]{16}\.tmp", name[len(start) :]))


def is_kept(name: str) -> bool:
    """Test whether ``name`` is that of a kept draft, and not a path into another folder."""
    separators = {os.sep, os.altsep or os.sep}
    return bool(_KEPT_NAME.fullmatch(name)) and not separators & set(name)


def stem(base: str) -> str:
    """Return ``base``, or its beginning and a digest where a longer name would be too long."""
    encoded = os.fsencode(base)
    if len(encoded) <= _LONGEST:
        return base
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return f"{encoded[: _LONGEST - 17].decode('utf-8', 'ignore')}-{digest}"


def same_file(one: Path, other: Path) -> bool:
    """Test whether two paths lead to the same file, or would once it exists.

    Links are followed; hard links, and names that the file system takes for the same (in upper and
    lower case, say), are the same file too.
    """
    if os.path.normcase(os.path.realpath(one)) == os.path.normcase(os.path.realpath(other)):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them is not there yet
        return False


def status_of_old(name: str, target: str) -> os.stat_result | None:
    """Return the status of the file to be replaced, None if there is none.

    Raises
    ------
    OSError
        If ``target`` is a directory, a device or a link that leads to itself.
    """
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if stat.S_ISLNK(status.st_mode):  # one that leads to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", name)
    return status
