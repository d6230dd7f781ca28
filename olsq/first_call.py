"""Tell who waits for code to be compiled what happens: once for each function that is called."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 2.0  # seconds of compilation for one function, after which it is said
_log = logging.getLogger("olsq")
_PACKAGE = __name__.partition(".")[0]
_COMPILING = {"first_call", "kernels", "kernel_cache", "kernel_typing", "whole_kernels"}

KERNELS = (
    "olsq: {door} waits until {name} and the kernels it needs are compiled, which happens once: "
    "they are kept on disk. `olsq compile --all` compiles kernels ahead."
)
PROGRAM = (
    "olsq: {door} waits until JAX has compiled {name} for these shapes, once per process. JAX "
    "keeps programs on disk if its option jax_compilation_cache_dir names a folder."
)


class _Waiting:
    """Seconds that this process has spent compiling for each of its functions."""

    def __init__(self) -> None:
        self.is_silent = False
        self._lock = threading.Lock()
        self._spent: dict[str, float] = {}
        self._told: set[str] = set()
        self._running = threading.local()

    def begin(self, name: str, text: str = KERNELS) -> None:
        """Begin to compile a kernel or program, which may need others."""
        running = self._running
        running.depth = getattr(running, "depth", 0) + 1
        running.timer = None if running.depth == 1 else running.timer
        if running.depth > 1 or self.is_silent:
            return
        running.door, running.begin = _called_function(name), time.monotonic()
        if running.door in self._told:
            return
        # How long one takes is not known before: the message comes while it is compiled.
        patience = max(PATIENCE - self._spent.get(running.door, 0.0), 0.0)
        running.timer = threading.Timer(patience, self._tell, (running.door, name, text))
        running.timer.daemon = True
        running.timer.start()

    def end(self) -> None:
        """End what :meth:`begin` began."""
        running = self._running
        running.depth -= 1
        if running.depth == 0 and running.timer is not None:
            running.timer.cancel()
            seconds = time.monotonic() - running.begin
            self._spent[running.door] = self._spent.get(running.door, 0.0) + seconds

    def _tell(self, door: str, name: str, text: str) -> None:
        """Say it: to the logger of a program that shows its messages, or else on standard error."""
        with self._lock:
            if self.is_silent or door in self._told:
                return
            self._told.add(door)
        line = text.format(door=door, name=name)
        if _log.hasHandlers() and _log.isEnabledFor(logging.INFO):
            _log.info(line.removeprefix("olsq: "))
        elif sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)


def _called_function(name: str) -> str:
    """Return the name of the function of this package that its user called, else ``name``."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        package, _, module = (frame.f_globals.get("__name__") or "").partition(".")
        called = frame.f_code.co_qualname
        if package == _PACKAGE and module not in _COMPILING and "<" not in called:
            owner = frame.f_locals.get("self")
            name = called if owner is None else f"{type(owner).__name__}.{frame.f_code.co_name}"
            if frame.f_code.co_name.startswith("_") and owner is not None:  # an attribute is read
                name = type(owner).__name__
            name = "the command" if module.startswith("cli") else name
        frame = frame.f_back
    return name


_waiting = _Waiting()


def say_nothing() -> None:
    """Tell nobody in this process: who compiles beforehand knows."""
    _waiting.is_silent = True


@contextmanager
def waiting(name: str, text: str = KERNELS) -> Iterator[None]:
    """Count what happens within as compilation of a kernel, or of a program with another text."""
    _waiting.begin(name, text)
    try:
        yield
    finally:
        _waiting.end()


begin, end = _waiting.begin, _waiting.end
