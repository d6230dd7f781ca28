"""Copy a stream's state, so that an interrupted call leaves the original whole."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import numpy as np

State = TypeVar("State")

_PLAIN = frozenset({float, int, bool, str, bytes, type(None)})


def copied(state: State) -> State:
    """Copy an object that holds arrays as ``copy.deepcopy`` does, in a tenth of the time.

    Made for every call of several rows.  Arrays keep their order in memory; what is neither an
    array, nor plain, nor an object of such attributes is left to ``copy.deepcopy``.
    """
    return _copied(state, {})


def _copied(state: Any, made: dict[int, Any]) -> Any:
    """Copy recursively; ``made`` holds copies by identity, for one object under two names."""
    kind = type(state)
    if kind in _PLAIN or (isinstance(state, tuple) and all(type(x) in _PLAIN for x in state)):
        return state
    if id(state) in made:
        return made[id(state)]
    if isinstance(state, np.ndarray) and kind is np.ndarray and state.dtype != object:
        twin: Any = state.copy("K")
    elif _of_attributes(kind, state):
        twin = made[id(state)] = object.__new__(kind)
        twin.__dict__.update({name: _copied(x, made) for name, x in vars(state).items()})
    else:
        return copy.deepcopy(state, made)
    made[id(state)] = twin
    return twin


def _of_attributes(kind: type, state: Any) -> bool:
    """Test whether copying an object's attributes copies it: ours, without ``__deepcopy__``."""
    own = kind.__module__.startswith("olsq.online.")
    return own and hasattr(state, "__dict__") and not hasattr(kind, "__deepcopy__")
