"""The parameters that a state was made with, and the error if they have changed."""

from __future__ import annotations

import copy
from operator import attrgetter, is_
from typing import Any

import numpy as np

IMMUTABLE = {float, str, int, bool, type(None)}


class MadeWith(dict[str, Any]):
    """Copies of the parameters that must not change while the state lives, by name."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        plain = all(type(value) in IMMUTABLE for value in values.values())
        # One comparison for all of them: it is made for every row of a stream.
        self.all_of = attrgetter(*values) if plain and len(values) > 1 else None
        self.together = tuple(values.values())


def snapshot(estimator: Any) -> MadeWith:
    """Copy the parameters of an estimator whose state is being made."""
    return MadeWith(
        {
            name: copy.deepcopy(value)
            for name, value in estimator.get_params(deep=False).items()
            if name not in estimator.CHANGEABLE
        }
    )


def check(estimator: Any, made_with: MadeWith) -> None:
    """Raise ValueError if a parameter is no longer what the state was made with."""
    if made_with.all_of is not None:
        now = made_with.all_of(estimator)
        if all(map(is_, now, made_with.together)):
            return
    for name, old in made_with.items():
        new = getattr(estimator, name)
        if not (new is old and type(new) in IMMUTABLE) and not _equal(new, old):
            kind = type(estimator).__name__
            raise ValueError(
                f"{name} is {new!r} now, but this {kind} has learned rows with {name}={old!r}, on "
                f"which its state depends: call fit to start anew, make a new {kind}, or set "
                f"{name} back with set_params({name}={old!r})"
            )


def fingerprint(value: Any) -> Any:
    """Convert a parameter to a value whose ``==`` is one answer, also after in-place changes."""
    if isinstance(value, (tuple, list)):
        return tuple(map(fingerprint, value))
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    return value


def is_immutable(value: Any) -> bool:
    """Test whether nothing in a parameter can change in place."""
    if type(value) is tuple:
        return all(map(is_immutable, value))
    return type(value) in IMMUTABLE


def has_fingerprint(value: Any) -> bool:
    """Test whether :func:`fingerprint` notices every change in place."""
    if isinstance(value, (tuple, list)):
        return all(map(has_fingerprint, value))
    plain = type(value) is np.ndarray and value.dtype.kind in "fciub"
    return plain or type(value) in IMMUTABLE


def _equal(new: Any, old: Any) -> bool:
    if isinstance(new, (type, np.dtype)) or isinstance(old, (type, np.dtype)):
        try:
            return np.dtype(new) == np.dtype(old)  # one dtype has several names
        except TypeError:
            return False
    if isinstance(new, (tuple, list, dict)) and type(new) is type(old):
        if len(new) != len(old) or (isinstance(new, dict) and new.keys() != old.keys()):
            return False
        keys = new if isinstance(new, dict) else range(len(new))
        return all(_equal(new[key], old[key]) for key in keys)
    if isinstance(new, str) or isinstance(old, str) or new is None or old is None:
        return type(new) is type(old) and new == old
    try:
        return bool(np.array_equal(np.asarray(new), np.asarray(old)))
    except (TypeError, ValueError):  # no numbers: they cannot be what was accepted
        return False
