"""Tell whoever waits for kernels to be compiled what happens, once."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

PATIENCE = 2.0  # seconds of compilation after which it is said
_log = logging.getLogger("olsq")


class _Waiting(event.Listener):
    """The seconds that this process has spent compiling, counted while Numba compiles a kernel."""

    def __init__(self) -> None:
        self.was_told = False
        self._spent, self._begin, self._depth = 0.0, 0.0, 0
        self._timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        if (name := _kernel_of(event)) is not None:
            self.begin(name)

    def on_end(self, event: Any) -> None:
        if _kernel_of(event) is not None:
            self.end()

    def begin(self, name: str) -> None:
        """Begin to compile a kernel, which may need others."""
        self._depth += 1
        if self._depth > 1 or self.was_told:
            return
        self._begin = time.monotonic()
        # What a single kernel takes is not known before: the message comes while it is compiled.
        self._timer = threading.Timer(max(PATIENCE - self._spent, 0.0), self.tell, (name,))
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """End what :meth:`begin` began."""
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent += time.monotonic() - self._begin

    def tell(self, name: str) -> None:
        """Say it: on a terminal, or else to the logger."""
        if self.was_told:
            return
        self.was_told = True
        text = (
            f"olsq compiles its kernels ({name} and what it needs), which happens once: they are "
            "kept on disk. `olsq compile` does it beforehand."
        )
        if sys.stderr is not None and sys.stderr.isatty():
            print(text, file=sys.stderr, flush=True)
        else:
            _log.info(text)


def _kernel_of(happening: Any) -> str | None:
    """Return the name of the kernel of this package that an event is about, or None."""
    function: Any = getattr((happening.data or {}).get("dispatcher"), "py_func", None)
    module = getattr(function, "__module__", None) or ""
    if module.partition(".")[0] != __name__.partition(".")[0]:
        return None
    return f"{module.rpartition('.')[2]}.{function.__name__}"


_waiting = _Waiting()
event.register("numba:compile", _waiting)


def say_nothing() -> None:
    """Tell nobody in this process: who compiles beforehand knows."""
    _waiting.was_told = True


@contextmanager
def waiting(name: str) -> Iterator[None]:
    """Count what happens within as compilation of a kernel."""
    _waiting.begin(name)
    try:
        yield
    finally:
        _waiting.end()
