"""One lock for each object that several threads may use."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any


class Locked:
    """An object whose state is changed and read under a lock, which stays behind in copies."""

    def _locked(self) -> threading.RLock:  # type: ignore[reportInvalidTypeForm]
        """Held while the state is changed or read: one object may serve several threads."""
        lock = self.__dict__.get("_lock")
        # setdefault is atomic, so that two threads get one lock; it is no parameter, so not made
        # in __init__.
        return lock if lock is not None else self.__dict__.setdefault("_lock", threading.RLock())


def locked(method: Callable[..., Any]) -> Any:
    """Decorator: a method during which no other thread changes or reads the state."""

    @functools.wraps(method)
    def alone(self: Locked, *args: Any, **kwargs: Any) -> Any:
        with self._locked():
            return method(self, *args, **kwargs)

    return alone
