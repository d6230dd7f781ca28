"""A file that is written under a temporary name beside its target."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from olsq.files.locks import CREATE, NO_FOLLOW, is_named, lock_if_possible, try_lock
from olsq.files.names import (
    KEPT,
    TEMPORARY,
    Path,
    is_kept,
    is_temporary,
    status_of_old,
    temporary_name,
)

_WINDOWS = os.name == "nt"  # there, an open file can neither be renamed nor removed
# targets whose folder this process has searched for abandoned drafts
_tidied_targets: set[str] = set()


class Draft:
    """A file under construction, which gets the name ``path`` when it is complete.

    Until :meth:`commit` nothing of that name changes.  A symbolic link stays one, and what it
    points to is replaced; an old file's permissions (and its owner, where that is allowed) are
    kept.  The draft lies beside the file under an unpredictable name, and is locked as long as its
    process lives; what a killed process leaves behind is removed by the next draft for the same
    file, unless it was kept (:meth:`keep`).

    Use as a context manager, which discards what was not committed.

    Parameters
    ----------
    path : path
        Name of the file.

    Attributes
    ----------
    path : str
        As given.
    name : str
        Name of the draft in the folder of the file.
    file : binary file
        Open for reading and writing.

    Raises
    ------
    OSError
        If the draft cannot be made, or ``path`` is that of a device or a directory.  Its
        ``filename``, as that of all errors here, is ``path``.

    Examples
    --------
    >>> import os, tempfile
    >>> from olsq.files import Draft
    >>> path = os.path.join(tempfile.mkdtemp(), "o.csv")
    >>> with Draft(path) as draft:
    ...     draft.write(b"row,prediction\\n")
    ...     print(os.path.exists(path))
    ...     draft.commit()
    False
    >>> os.listdir(os.path.dirname(path))
    ['o.csv']
    """

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        self._target = os.path.realpath(self.path)
        old = status_of_old(self.path, self._target)
        _tidy_once(self._target)
        # What replaces a private file is never more public than that.
        self._place, descriptor = self._create(0o666 if old is None else 0o600)
        self.file = open(descriptor, "r+b")  # noqa: SIM115

    @classmethod
    def adopt(cls, path: Path, name: str) -> Self:
        """Open a kept draft of an earlier run, to read it and go on with it.

        Parameters
        ----------
        path : path
            Name of the file it was kept for.
        name : str
            Its :attr:`name`.

        Raises
        ------
        FileNotFoundError
            If it is gone.
        OSError
            If it is a link or no file, another process has it, or ``name`` is none that
            :meth:`keep` gives.  It is untouched then.
        """
        draft = cls.__new__(cls)
        draft.path, draft._target = os.fspath(path), os.path.realpath(path)
        folder, base = os.path.split(draft._target)
        # Earlier versions gave drafts the name of the file and .part.
        if not is_kept(name) and name != base + KEPT:
            raise OSError(errno.EINVAL, "not the name of a file under construction", name)
        draft._place = os.path.join(folder, name)
        try:
            descriptor = os.open(draft._place, os.O_RDWR | NO_FOLLOW)
        except FileNotFoundError:
            if not is_kept(name):
                raise
            # Killed after a state had got the name to be, and before the draft did.
            draft._place = draft._place.removesuffix(KEPT) + TEMPORARY
            descriptor = os.open(draft._place, os.O_RDWR | NO_FOLLOW)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise OSError(errno.EINVAL, "not a file of one name only", draft._place)
            if not lock_if_possible(descriptor):
                raise OSError(errno.EBUSY, "another process is writing it", draft._place)
        except BaseException:
            os.close(descriptor)
            raise
        draft.file = open(descriptor, "r+b")  # noqa: SIM115
        return draft

    @property
    def name(self) -> str:
        """Name of the draft in the folder of the file."""
        return os.path.basename(self._place)

    def write(self, data: bytes | memoryview) -> None:
        """Append ``data`` to the draft."""
        with self._name_path_in_errors():
            self.file.write(data)

    def sync(self) -> None:
        """Force the data written so far onto the disk."""
        with self._name_path_in_errors():
            self.file.flush()
            os.fsync(self.file.fileno())

    def cut(self, length: int) -> None:
        """Drop everything after the first ``length`` bytes and continue from there."""
        with self._name_path_in_errors():
            self.file.flush()
            self.file.truncate(length)
            self.file.seek(length)

    @property
    def kept_name(self) -> str:
        """Name that :meth:`keep` will give the draft, for :meth:`adopt`."""
        return self.name.removesuffix(TEMPORARY) + KEPT if self._temporary else self.name

    @property
    def _temporary(self) -> bool:
        return self._place.endswith(TEMPORARY)

    def keep(self) -> None:
        """Rename the draft so that it is never tidied away, and a later run can continue it.

        Record :attr:`kept_name` first.  Killed in between, the process leaves a draft that
        :meth:`adopt` still finds; the other way round it would leave one that nobody knows of.
        """
        if self._temporary:
            with self._name_path_in_errors():
                self._move(os.path.join(os.path.dirname(self._place), self.kept_name))

    def commit(self) -> None:
        """Force everything onto the disk and give it the name of the file."""
        with self._name_path_in_errors():
            old = status_of_old(self.path, self._target)
            self.file.flush()
            if old is not None:
                _keep_permissions(self.file.fileno(), self._place, old)
            self.sync()
            self._move(self._target, reopen=False)
            self.file.close()
            _sync_folder(self._target)

    def discard(self) -> None:
        """Remove the draft; does nothing after :meth:`commit`."""
        if self._place != self._target:
            if _WINDOWS:
                self.close()
            with contextlib.suppress(OSError):
                os.unlink(self._place)
        self.close()

    def close(self) -> None:
        """Close the draft and leave it on the disk."""
        # What could not be written (the disk is full) cannot be written now either.
        with contextlib.suppress(OSError):
            self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    def _create(self, mode: int) -> tuple[str, int]:
        with self._name_path_in_errors():
            while True:
                place = temporary_name(self._target)
                descriptor = os.open(place, CREATE, mode)  # less the umask, as for any new file
                # Between the two another process may have taken it for one left behind.
                if lock_if_possible(descriptor) and is_named(descriptor, place):
                    return place, descriptor
                os.close(descriptor)

    def _move(self, place: str, *, reopen: bool = True) -> None:
        if _WINDOWS:
            self.file.close()
        os.replace(self._place, place)
        self._place = place
        if _WINDOWS and reopen:
            self.file = open(place, "r+b")  # noqa: SIM115
            self.file.seek(0, os.SEEK_END)

    @contextlib.contextmanager
    def _name_path_in_errors(self) -> Iterator[None]:
        """Raise errors of the system again with the path that the caller gave."""
        try:
            yield
        except OSError as error:
            if error.errno is None:  # no error of the system, which would lose its message here
                raise
            raise OSError(error.errno, error.strerror, self.path) from None


def _keep_permissions(descriptor: int, place: str, old: os.stat_result) -> None:
    if hasattr(os, "fchown"):
        with contextlib.suppress(OSError):  # only the administrator may
            # the owner before the mode: chown clears the set-user and set-group bits
            os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
    else:
        os.chmod(place, stat.S_IMODE(old.st_mode))


def _sync_folder(target: str) -> None:
    """Force the new name onto the disk, too: it survives a power cut."""
    with contextlib.suppress(OSError):  # not every system can open a directory
        directory = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _tidy_once(target: str) -> None:
    """Remove the drafts of this target that killed processes left, once per process."""
    if target in _tidied_targets:
        return
    _tidied_targets.add(target)
    folder, base = os.path.split(target)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_temporary(entry.name, base):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(entry.path)


def _remove_if_abandoned(place: str) -> None:
    """Remove a temporary file unless its writer is alive and so holds its lock."""
    if _WINDOWS:
        os.unlink(place)  # fails if it is open anywhere
        return
    descriptor = os.open(place, os.O_RDWR | NO_FOLLOW | os.O_NONBLOCK)
    try:
        if try_lock(descriptor) and is_named(descriptor, place):
            os.unlink(place)
    finally:
        os.close(descriptor)


def write_atomically(path: str | os.PathLike[str], *pieces: bytes | memoryview) -> None:
    """Write ``pieces``, one after the other, to ``path``, which changes once all are on the disk.

    Until then nothing changes; of several writers at once the last to finish wins, whole.  Links
    and permissions are kept as by :class:`olsq.files.Draft`.

    Raises
    ------
    OSError
        If the file cannot be written, or the name is that of a device or a directory; what was
        there is untouched then.
    """
    with Draft(path) as draft:
        for piece in pieces:
            draft.write(piece)
        draft.commit()
