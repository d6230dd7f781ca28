"""A lock per object, for estimators that several threads share."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from olsq.threads import threads_for


class Locked:
    """An object whose state is changed and read under a lock, which copies do not share."""

    def _locked(self) -> threading.RLock:  # type: ignore[reportInvalidTypeForm]
        """Return the lock to hold while the state is changed or read."""
        lock = self.__dict__.get("_lock")
        # setdefault is atomic, so that two threads get one lock; it is no parameter, so not made
        # in __init__.
        return lock if lock is not None else self.__dict__.setdefault("_lock", threading.RLock())

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Hold the lock, and for a large state one BLAS thread, while it is read."""
        with self._locked(), threads_for(1, self._columns()):
            yield

    def _columns(self) -> int:
        """Return how many columns the state's matrices have, about."""
        return getattr(self, "n_features_in_", 0)


def locked(method: Callable[..., Any]) -> Any:
    """Decorate a method so that no other thread changes or reads the state meanwhile."""

    @functools.wraps(method)
    def alone(self: Locked, *args: Any, **kwargs: Any) -> Any:
        with self._locked():
            return method(self, *args, **kwargs)

    return alone
