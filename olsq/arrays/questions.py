"""Questions about the values of arguments, asked while a program is traced and at each later call.

A function that is compiled as one program sees tracers, which have no values. What it asks about
its arguments (:func:`ask`) is answered from the call that it is traced for, and recorded. Before
the program runs again, the same questions are asked about the new values: errors are raised as at
the first call, and where an answer differs, the program is not the one for this call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Answer = TypeVar("Answer", bound=Hashable)


class Question(NamedTuple):
    """A question about one argument, and what a program was traced for."""

    place: int  # of the argument in the call
    question: Callable[[NDArray[Any]], Hashable]
    answer: Hashable

    def holds(self, values: Sequence[Any]) -> bool:
        """Ask again about the arguments of another call: test whether the answer is the same."""
        return self.question(np.asarray(values[self.place])) == self.answer


class Inquiry:
    """Values of a call while its program is traced; use as a context manager.

    Parameters
    ----------
    values : sequence
        The arguments, None for one that has no values either.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self.questions: list[Question] = []
        self._values = values
        self._arguments: dict[int, tuple[Any, int, Callable[[Any], Any]]] = {}

    def __enter__(self) -> Inquiry:
        self._token: Token = _inquiry.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _inquiry.reset(self._token)

    @contextmanager
    def about(self, tracers: Sequence[Any]) -> Iterator[None]:
        """Answer questions about these tracers, which stand for the arguments, inside."""
        for place, tracer in enumerate(tracers):
            if self._values[place] is not None:
                self._arguments[id(tracer)] = tracer, place, lambda x: x
        try:
            yield
        finally:
            self._arguments.clear()  # tracers must not outlive their trace

    def derive(self, new: Any, old: Any, view: Callable[[Any], Any]) -> None:
        """Take ``new``, which has the values ``view(old)``."""
        known = self._arguments.get(id(old))
        if known is not None:
            _, place, before = known
            self._arguments[id(new)] = new, place, lambda x: view(before(x))

    def ask(self, x: Any, question: Callable[[NDArray[Any]], Answer]) -> Answer | None:
        """Answer from the values that the tracer ``x`` stands for, and record the question."""
        known = self._arguments.get(id(x))
        if known is None:
            return None
        _, place, view = known

        def whole(values: NDArray[Any]) -> Answer:
            return question(view(values))

        answer = whole(np.asarray(self._values[place]))
        self.questions.append(Question(place, whole, answer))
        return answer


_inquiry: ContextVar[Inquiry | None] = ContextVar("the call that is traced", default=None)


def standing_for_arguments(tracers: Sequence[Any]) -> AbstractContextManager[None]:
    """Answer questions about these tracers inside: they stand for the arguments of the call."""
    current = _inquiry.get()
    return nullcontext() if current is None else current.about(tracers)


def is_traced(x: Any) -> bool:
    """Test whether ``x`` is a tracer of JAX, which has no values."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.core.Tracer)


def ask(x: Any, question: Callable[[NDArray[Any]], Answer]) -> Answer | None:
    """Return the answer to a question about the values of ``x``, None where they are not known.

    The question depends on nothing else that differs from call to call of the same shapes. An
    answer that is not None makes a program for itself: errors should be raised by the question.
    """
    if not is_traced(x):
        return question(np.asarray(x))
    current = _inquiry.get()
    return None if current is None else current.ask(x, question)


def known_through(view: Callable[[Any], Any], x: Any) -> Any:
    """Return ``view(x)``, about which questions can be asked as about ``x``.

    ``view`` works on NumPy and JAX arrays alike.
    """
    return known_as(view(x), x, view)


def known_as(new: Any, old: Any, view: Callable[[NDArray[Any]], Any]) -> Any:
    """Return ``new``, about which questions can be asked: its values are ``view(old)``."""
    current = _inquiry.get()
    if current is not None:
        current.derive(new, old, view)
    return new
