"""Take Ctrl-C and SIGTERM between two chunks, so that a checkpoint never holds half a chunk."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from olsq.cli.sources.columns import Chunk
    from olsq.cli.sources.source import Source

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Remembers the first signal; a second one, or one during a wait, raises at once.

    Use as a context manager.  ``signum`` is the signal received, or None.  Outside the main thread
    Python does not deliver signals, and this does nothing.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._waiting = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for signum in SIGNALS:
                self._previous[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        again = self.signum is not None
        self.signum = signum
        if again or self._waiting:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark a section (reading input) that may block and may be interrupted anywhere."""
        self._waiting = True
        try:
            if self.signum is not None:
                raise KeyboardInterrupt
            yield
        finally:
            self._waiting = False

    def read_chunks(
        self, source: Source, stop: Callable[[Interrupts], NoReturn]
    ) -> Iterator[Chunk]:
        """Yield the chunks of ``source``; after a signal call ``stop``, never within a chunk."""
        chunks = source.chunks()
        while True:
            try:
                with self.waiting():
                    chunk = next(chunks, None)
            except KeyboardInterrupt:
                stop(self)
            if chunk is None:
                return
            yield chunk
            if self.signum is not None:
                stop(self)
