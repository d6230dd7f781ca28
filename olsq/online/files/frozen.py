"""Parameters that a state was made with, or that were checked: have they changed since?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from operator import attrgetter, is_
from typing import Any, NamedTuple, Self

import numpy as np

from olsq.forgetting.base import Forgetting
from olsq.online.rows.complex_rows import unpacked
from olsq.online.rows.durations import any_duration, is_window_of_time
from olsq.problem import Moments

IMMUTABLE = {float, str, int, bool, type(None)}


class Unchanged(NamedTuple):
    """Parameters of an estimator that were checked for a state, to be compared with those of later
    calls.

    They are compared by identity, and what may change in place by content: a call of one row would
    notice any other way.
    """

    state: Any  # an object that is another one for another state
    parameters: Callable[[Any], tuple[Any, ...]]
    values: tuple[Any, ...]
    changing: tuple[tuple[Any, Any], ...]  # those that may change in place, and their content

    @classmethod
    def of(cls, estimator: Any, state: Any, read_anew: Any = None) -> Self:
        """Remember the parameters, except one value that every call reads anew.

        They never compare as unchanged if a change in place could go unnoticed.
        """
        parameters = attrgetter(*estimator._parameter_names())
        values = parameters(estimator)
        changing = [v for v in values if not (v is read_anew or _is_immutable(v))]
        if not all(map(_has_fingerprint, changing)):
            never = object()
            return cls(state, parameters, (never,), ((never, None),))
        return cls(state, parameters, values, tuple((v, fingerprint(v)) for v in changing))

    def holds(self, estimator: Any, state: Any) -> bool:
        """Test whether parameters and state are the same now."""
        return (
            state is self.state
            and all(map(is_, self.parameters(estimator), self.values))
            and (not self.changing or all(fingerprint(now) == old for now, old in self.changing))
        )


def snapshot(estimator: Any) -> dict[str, Any]:
    """Copy the parameters that must not change while the state lives that is being made."""
    return {
        name: copy.deepcopy(value)
        for name, value in estimator.get_params(deep=False).items()
        if name not in estimator.CHANGEABLE
    }


def check(estimator: Any, made_with: dict[str, Any]) -> None:
    """Raise ValueError if a parameter is no longer what the state was made with."""
    for name, old in made_with.items():
        new = getattr(estimator, name)
        if not (new is old and type(new) in IMMUTABLE) and not equal(name, new, old):
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


def _is_immutable(value: Any) -> bool:
    """Test whether nothing in a parameter can change in place."""
    if type(value) is tuple:
        return all(map(_is_immutable, value))
    return type(value) in IMMUTABLE or isinstance(value, Forgetting)


def _has_fingerprint(value: Any) -> bool:
    """Test whether :func:`fingerprint` notices every change in place."""
    if isinstance(value, (tuple, list)):
        return all(map(_has_fingerprint, value))
    plain = type(value) is np.ndarray and value.dtype.kind in "fciub"
    return plain or type(value) in IMMUTABLE


def equal(name: str, new: Any, old: Any) -> bool:
    """Test whether two values of a parameter mean the same, however they are written.

    "60h" and "2.5D" are one window, and a ridge of 2.0 is one of [2.0, 2.0]; a window of 9 rows is
    not one of 9.0, a length of time.
    """
    if name == "window" and is_window_of_time(new) and is_window_of_time(old):
        return any_duration(new, name) == any_duration(old, name)
    if name == "window" and is_window_of_time(new) != is_window_of_time(old):
        return False
    if name == "ridge":  # a number, (d,), or (n, d) of a bank
        new, old = np.asarray(new), np.asarray(old)
        try:
            return bool(np.all(new == old))
        except ValueError:
            return False
    return _equal(new, old)


def _equal(new: Any, old: Any) -> bool:
    new, old = _as_in_files(new), _as_in_files(old)
    if isinstance(new, (type, np.dtype)) or isinstance(old, (type, np.dtype)):
        try:
            return np.dtype(new) == np.dtype(old)  # one dtype has several names
        except TypeError:
            return False
    if isinstance(new, (list, dict)) and type(new) is type(old):
        if len(new) != len(old) or (isinstance(new, dict) and new.keys() != old.keys()):
            return False
        keys = new if isinstance(new, dict) else range(len(new))
        return all(_equal(new[key], old[key]) for key in keys)
    if isinstance(new, str) or isinstance(old, str) or new is None or old is None:
        return type(new) is type(old) and new == old
    try:
        new, old = np.asarray(new), np.asarray(old)
        if 0 in (new.ndim, old.ndim):  # a number, and one for each target or coefficient
            return bool(np.all(new == old))
        return bool(np.array_equal(new, old))
    except (TypeError, ValueError):  # no numbers: they cannot be what was accepted
        return False


def _as_in_files(value: Any) -> Any:
    """Convert a parameter to the kind that a loaded state has: lists, and moments by name."""
    if isinstance(value, Moments):
        return value._asdict()
    return list(value) if isinstance(value, tuple) else unpacked(value)
