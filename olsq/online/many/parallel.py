"""Run kernels on all cores, a piece of a range in each thread.

Threads of Python's own, not Numba's: kernels release the GIL, a thread costs microseconds, several
banks may learn at once, and a process that was forked starts threads of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.threads import cores

_pool: ThreadPoolExecutor | None = None


def share(work: NDArray, least: float) -> list[int]:
    """Cut entries into pieces of equal work, at least ``least`` each; return the bounds.

    ``work`` (n,) is the work of every entry.
    """
    total = float(work.sum())
    pieces = int(max(1, min(total // least, cores(), work.size))) if total >= 2 * least else 1
    if pieces == 1:  # a bandit's decision, for which the sums below take as long as the work
        return [0, work.size]
    done = np.cumsum(work)
    inner = np.searchsorted(done, total * np.arange(1, pieces) / pieces)
    return [0, *inner.tolist(), done.size]


def _threads() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max(cores() - 1, 1), thread_name_prefix="olsq")
    return _pool


def _forget() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_forget)


def in_pieces(work: Callable[[int, int], None], bounds: Sequence[int]) -> None:
    """Run ``work(begin, end)`` for each pair of neighbours in ``bounds``, at the same time.

    Returns or raises when all have ended, also after Ctrl-C: nothing runs on behind the caller.
    """
    if len(bounds) == 2:
        work(bounds[0], bounds[1])
        return
    pieces = list(pairwise(bounds))
    others = [_threads().submit(work, begin, end) for begin, end in pieces[1:]]
    try:
        work(*pieces[0])
    finally:
        _until(lambda: wait(others))
    for future in others:
        future.result()


def uninterrupted(work: Callable[[], Any]) -> Any:
    """Run ``work()`` to its end; raise a Ctrl-C that came meanwhile after it.

    Python delivers an interrupt to the main thread only, so another one does the work.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="olsq")
    thread.start()
    _until(thread.join)
    return done.result()


def _until(blocked: Callable[[], Any]) -> None:
    """Wait until ``blocked`` returns, and only then raise an interrupt that came meanwhile."""
    interrupt = None
    while True:
        try:
            blocked()
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
