"""The meaning of the public functions in compiled code, which Numba looks up by their types.

``strict=False`` where the implementations lack the annotations that Numba would compare.  Types are
all that is checked, when the caller is compiled.  What runs raises nothing, except
``init``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from olsq.compiled import calls, functions
from olsq.compiled.state import State
from olsq.compiled.symbols import view
from olsq.kernels import compile_external_kernels


def _check_state(state: Any, name: str, ndims: tuple[int, ...]) -> int:
    """Return the axes of a state's matrix, 3 for n filters; raise TypingError for another type."""
    if not isinstance(state, types.NamedTuple) or state.instance_class is not State:
        raise TypingError(f"{name} must be an olsq.compiled.State, got {state}")
    ndim = state.types[0].ndim
    if ndim not in ndims:
        if ndim == 3:
            raise TypingError(
                f"{name} holds n filters: choose one with olsq.compiled.state_at({name}, i)"
            )
        raise TypingError(f"{name} holds one filter, and n filters are wanted: init(..., n=n)")
    return ndim


def _check_x(x: Any, name: str = "x") -> None:
    fits = isinstance(x, types.Array) and x.ndim == 1 and x.dtype == types.float64
    if not fits:
        raise TypingError(
            f"{name} must be a float64 array of one axis, got {x}; convert it with "
            ".astype(np.float64)"
        )


def _check_number(value: Any, name: str) -> None:
    plain = value.value if isinstance(value, types.Omitted) else value  # a default
    if not isinstance(plain, (types.Float, types.Integer, types.Boolean, int, float)):
        raise TypingError(f"{name} must be a real number, got {value}")


@overload(functions.predict, strict=False)
def _predict(state: Any, x: Any) -> Any:
    _check_state(state, "state", (2,))
    _check_x(x)
    compile_external_kernels()
    if x.layout != "C":
        return lambda state, x: calls.predict(state, np.ascontiguousarray(x))
    return lambda state, x: calls.predict(state, x)


@overload(functions.update)
def _update(state: Any, x: Any, y: Any, forget: Any = 1.0, weight: Any = 1.0) -> Any:
    _check_state(state, "state", (2,))
    _check_x(x)
    for value, name in ((y, "y"), (forget, "forget"), (weight, "weight")):
        _check_number(value, name)
    compile_external_kernels()
    if x.layout != "C":

        def strided(state: Any, x: Any, y: Any, forget: Any = 1.0, weight: Any = 1.0) -> Any:
            row = np.ascontiguousarray(x)
            return calls.update(state, row, 1.0 * y, 1.0 * forget, 1.0 * weight)

        return strided

    def contiguous(state: Any, x: Any, y: Any, forget: Any = 1.0, weight: Any = 1.0) -> Any:
        return calls.update(state, x, 1.0 * y, 1.0 * forget, 1.0 * weight)

    return contiguous


@overload(functions.coef, strict=False)
def _coef(state: Any) -> Any:
    compile_external_kernels()
    if _check_state(state, "state", (2, 3)) == 2:
        return lambda state: calls.coef(state)
    return lambda state: calls.coef_all(state)


@overload(functions.state_at, strict=False)
def _state_at(states: Any, i: Any) -> Any:
    _check_state(states, "states", (3,))
    if not isinstance(i, types.Integer):
        raise TypingError(f"i must be an integer, got {i}")
    return lambda states, i: view(states, i)


@overload(functions.init, inline="always")
def _init(n_features: Any, ridge: Any = 1e-3, n: Any = None) -> Any:
    """Inline ``init`` into the caller.

    It must be inlined down to ``State(...)``, since Numba passes a named tuple to a ``prange`` only
    if it sees it constructed there, or if it is an argument.
    """
    # Numba knows no keyword-only arguments; as keywords they are found.
    if not isinstance(n_features, types.Integer):
        raise TypingError(f"n_features must be an integer, got {n_features}")
    if isinstance(ridge, types.Array):
        _check_x(ridge, "ridge")
        expand = calls.ridge_of_vector
    else:
        _check_number(ridge, "ridge")
        expand = calls.ridge_of_number
    if n is None or isinstance(n, (types.NoneType, types.Omitted)):

        def one(n_features: Any, ridge: Any = 1e-3, n: Any = None) -> Any:
            a, b, c, d, e, f, g = calls.make_one(n_features, expand(n_features, ridge))
            return State(a, b, c, d, e, f, g)

        return one
    if not isinstance(n, types.Integer):
        raise TypingError(f"n must be an integer, got {n}")

    def several(n_features: Any, ridge: Any = 1e-3, n: Any = None) -> Any:
        a, b, c, d, e, f, g = calls.make_several(n, n_features, expand(n_features, ridge))
        return State(a, b, c, d, e, f, g)

    return several
