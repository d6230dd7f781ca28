"""Types of built-in operations in kernels, found once.

For every ``a + b`` Numba tries its declarations of ``+`` one after the other, those of strings,
lists and dates too, while it infers types and again while it generates code: a sixth of the time
of a first call.  Here the answer for a function and argument types is kept.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba.core import types
from numba.core.typing.context import Context
from numba.extending import models, register_model


class KnownFunction(types.Function):
    """A built-in function that remembers its results for argument types.

    Functions that Numba has in Python are asked anew: their code depends on the caller's options.
    """

    def __init__(self, templates: Any) -> None:
        super().__init__(templates)
        self._known: dict[Any, Any] = {}

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        key = tuple(args), tuple(kws.items() if kws else ())
        if (known := self._known.get(key)) is not None:
            return known
        signature = super().get_call_type(context, args, kws)
        if signature is not None and self.get_impl_key(signature) == self.typing_key:
            self._known[key] = signature
        return signature


register_model(KnownFunction)(models.OpaqueModel)


class KnowingContext(Context):
    """A typing context of Numba whose built-in functions are known ones; it shares all state."""

    def __init__(self, context: Any) -> None:
        self.__dict__ = context.__dict__
        self._known_functions: dict[Any, KnownFunction] = {}

    def resolve_value_type(self, val: Any) -> Any:
        kind = super().resolve_value_type(val)
        if type(kind) is not types.Function:
            return kind
        return self._known_functions.setdefault(kind, KnownFunction(kind.templates))


@cache
def knowing(context: Any) -> KnowingContext:
    """Return the knowing context of a typing context."""
    return KnowingContext(context)
