"""Limits on threads: one for BLAS, and for olsq's own pools as many as the process has cores.

A BLAS cuts a product into pieces, one per thread, and its idle threads wait actively for the next
one.  The products of a stream are thin: the pieces take microseconds, so a second thread saves no
time (measured up to 600 coefficients); while another program is running, it has no core, the first
thread waits for it, and all of them spin, which takes several times the processor time.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, ContextDecorator, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import threadpoolctl

CGROUP = Path("/sys/fs/cgroup")


class _Limit:
    """Counter of those inside a context with one thread, and the setting before the first."""

    def __init__(self) -> None:
        self._start_anew()
        if hasattr(os, "register_at_fork"):  # a child lacks the threads that would have left
            os.register_at_fork(after_in_child=self._leave_all)

    def _start_anew(self) -> None:
        # Reentrant: what is collected while it is held may leave
        self._lock, self._inside, self._before = threading.RLock(), 0, list[tuple[Any, int]]()

    def _leave_all(self) -> None:
        self._restore()
        self._start_anew()

    def _restore(self) -> None:
        while self._before:
            library, threads = self._before[-1]
            # threadpoolctl lets one thread of Python set them; the one that did may be another.
            release = getattr(library, "clear_controlling_thread", lambda **_: None)
            if library.get_num_threads() == 1:  # nobody has set another number meanwhile
                release(force=True)
                library.set_num_threads(threads)
            release()
            self._before.pop()  # last: after Ctrl-C before it the next to leave sets it again

    def enter(self, one: _OneThread) -> None:
        """Set one thread, if this is the first inside."""
        with self._lock:
            self._inside, one.entered = self._inside + 1, one.entered + 1
            if self._inside == 1:
                for library in _libraries():
                    threads = library.get_num_threads()
                    if threads is not None and threads > 1:
                        self._before.append((library, threads))
                        library.set_num_threads(1)

    def leave(self, one: _OneThread) -> None:
        """Set what was set before, if this is the last inside; once for each that entered."""
        with self._lock:
            if one.entered:
                self._inside, one.entered = max(self._inside - 1, 0), one.entered - 1
                if self._inside == 0:
                    self._restore()


class _OneThread(ContextDecorator):
    """A context, or decorator, in which BLAS has one thread.

    The limit holds for the whole process, as the libraries know no other; what was set before is
    set again when the last of the threads that are inside leaves.  A context that Ctrl-C keeps from
    leaving leaves when it is collected.
    """

    entered = 0  # times that it was entered and not left

    def _recreate_cm(self) -> _OneThread:
        return _OneThread()  # one for each call of a decorated function

    def __enter__(self) -> None:
        _limit.enter(self)

    def __exit__(self, *error: object) -> None:
        _limit.leave(self)

    def __del__(self) -> None:
        while self.entered:
            _limit.leave(self)


_limit = _Limit()
one_blas_thread = _OneThread()  # as a decorator
_AS_IT_IS = nullcontext()
# Below these no library takes a second thread, and five microseconds would be felt.
FEW_ENTRIES, FEW_COLUMNS = 4096, 32


def threads_for(rows: int, columns: int) -> AbstractContextManager[None]:
    """Return the context for work on this many rows of a state with this many columns."""
    if rows * columns < FEW_ENTRIES and columns < FEW_COLUMNS:
        return _AS_IT_IS
    return _OneThread()


@cache
def _libraries() -> list[Any]:
    """Return the BLAS libraries of this process: NumPy's, and SciPy's, which kernels call."""
    import scipy.linalg  # noqa: F401  (loads the library, so that it is found)

    return threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers


def cores() -> int:
    """Count the cores that this process may use: by its affinity, and its container's quota."""
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS or Windows
        usable = os.cpu_count() or 1
    return max(1, min(usable, _quota()))


@cache
def _quota() -> int:
    """Return how many whole cores the control group's quota pays for, if it has one."""
    try:
        share, period = (CGROUP / "cpu.max").read_text().split()  # version 2: "max" or microseconds
    except (OSError, ValueError):
        try:
            share = (CGROUP / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (CGROUP / "cpu" / "cpu.cfs_period_us").read_text()
        except OSError:
            return os.cpu_count() or 1
    try:
        paid = float(share) / float(period)
    except (ValueError, ZeroDivisionError):  # "max"
        paid = -1.0
    return max(1, int(paid)) if paid > 0 else os.cpu_count() or 1
