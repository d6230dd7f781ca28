"""Compare an estimator with its twin, which was saved and loaded before every call.

What a call does may depend on the state that a file holds, on the parameters and on its arguments,
not on what was called before: the twin has the same state and no caches.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl

import olsq
from olsq.features import FeatureBuilder
from olsq.online.conventions import Estimator
from olsq.online.files.format import MAGIC
from olsq.river import RecursiveLeastSquares as RiverLeastSquares
from tests.online import state_kinds

OLD_VALUE = re.compile(
    r"with [a-z_]+=.*, which its state .*|with [a-z_]+=.*, on which .*", re.DOTALL
)


class Outcome(NamedTuple):
    """What a call did."""

    result: Any  # comparable
    error: str | None
    warned: tuple[str, ...]
    replacement: Any = None  # an estimator that goes on in the place of the one called

    @property
    def comparable(self) -> tuple[Any, ...]:
        return self[:3]


class Rounded:
    """Numbers that are equal to rounding; of a state, those of its data."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers.copy()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rounded) or self.numbers.shape != other.numbers.shape:
            return False
        size = np.abs(self.numbers[np.isfinite(self.numbers)]).max(initial=1e-6)
        return np.allclose(self.numbers, other.numbers, 1e-6, 1e-7 * size, equal_nan=True)

    def __repr__(self) -> str:
        return repr(self.numbers)


def rounded(value: Any) -> Any:
    """Convert what :func:`comparable` or :func:`state` returned to what is compared to rounding."""
    if isinstance(value, tuple) and len(value) == 3 and value[0] in ("<f8", "<f4"):
        return Rounded(np.frombuffer(value[2], value[0]))
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "float64":
        return Rounded(np.frombuffer(value[1], np.float64))
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "float":
        return Rounded(np.frombuffer(value[1], np.float64))
    if isinstance(value, bytes) and value.startswith(MAGIC):
        header, data = state_kinds.take_apart(value)
        kept = [array for array in header.pop("arrays") if array["name"] != "solution"]
        numbers = np.frombuffer(data, np.float64)[: kept[-1]["offset"] // 8]
        return header, kept, Rounded(np.nan_to_num(numbers))
    if isinstance(value, (tuple, list)):
        return [rounded(part) for part in value]
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return value


# -- parameters and states -------------------------------------------------------------------------


def parameters(subject: Any) -> dict[str, Any]:
    """Return copies of the parameters."""
    if isinstance(subject, olsq.DelayedTargets):
        return parameters(subject.estimator)
    if isinstance(subject, RiverLeastSquares):
        return parameters(subject.estimator)
    return copy.deepcopy(subject.get_params())


def set_parameters(subject: Any, values: dict[str, Any]) -> None:
    """Set parameters to copies of the values."""
    inner = getattr(subject, "estimator", subject)
    inner.set_params(**copy.deepcopy(values))


def state(subject: Any, made_with: dict[str, Any]) -> Any:
    """Return the state as bytes; None before the first sample.  The subject itself is not read."""
    if isinstance(subject, olsq.DelayedTargets):
        waiting = [comparable(list(row)) for row in subject._waiting]
        return state(subject.estimator, made_with), waiting, subject._latest
    if isinstance(subject, RiverLeastSquares):
        return state(subject.estimator, made_with), subject.features
    twin = copy.deepcopy(subject)
    if not is_fitted(twin):
        return None
    twin.set_params(**copy.deepcopy(made_with))
    return twin.to_bytes()


def is_fitted(subject: Any) -> bool:
    """Test whether there is a state to save."""
    if isinstance(subject, olsq.FilterBank):
        return "_state" in subject.__dict__
    return subject.__sklearn_is_fitted__()


def state_now(subject: Any, made_with: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the state, and the parameters to save it with: the present ones where they may be."""
    now = parameters(subject)
    changeable = getattr(subject, "CHANGEABLE", frozenset()) & made_with.keys()
    for values in (now, now | {name: made_with[name] for name in changeable}):
        try:
            return state(subject, values), values
        except (ValueError, TypeError):
            pass
    return state(subject, made_with), made_with


def reborn(subject: Any, saved: Any, made_with: dict[str, Any]) -> Any:
    """Return a twin of this state that was saved and loaded, with the subject's parameters."""
    if isinstance(subject, (olsq.DelayedTargets, RiverLeastSquares)):
        twin = pickle.loads(pickle.dumps(subject))
        twin.estimator = reborn(subject.estimator, saved[0], made_with)
        return twin
    twin = type(subject)(**copy.deepcopy(made_with)) if saved is None else olsq.loads(saved)
    twin.set_params(**copy.deepcopy(subject.get_params()))
    for name in ("_sklearn_output_config", "_output"):
        if name in subject.__dict__:
            setattr(twin, name, subject.__dict__[name])
    return twin


# -- outcomes --------------------------------------------------------------------------------------


def comparable(value: Any, subject: Any = None) -> Any:
    """Convert a result to one that ``==`` compares bit for bit."""
    if value is subject and value is not None:
        return "itself"
    if isinstance(value, np.ma.MaskedArray):
        return "masked", comparable(value.data), comparable(value.mask)
    if isinstance(value, np.ndarray):
        numbers = [repr(x) for x in value.ravel()] if value.dtype == object else value.tobytes()
        return value.dtype.str, value.shape, numbers
    if isinstance(value, (np.generic, float, complex)):
        return type(value).__name__, np.asarray(value).tobytes()
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [comparable(part, subject) for part in value]
    if isinstance(value, dict):
        return {key: comparable(part, subject) for key, part in value.items()}
    if isinstance(value, (pd.DataFrame, pd.Series)):
        names = value.columns if isinstance(value, pd.DataFrame) else [value.name]
        return comparable(value.to_numpy()), list(value.index), list(names)
    if isinstance(value, (pl.DataFrame, pl.Series)):
        return comparable(value.to_numpy()), getattr(value, "columns", None)
    if isinstance(value, (Estimator, FeatureBuilder, olsq.DelayedTargets, RiverLeastSquares)):
        return type(value).__name__, content(value), str(parameters(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = vars(value) if hasattr(value, "__dict__") else dataclasses.asdict(value)
        return type(value).__name__, comparable(parts, subject)
    return type(value).__name__, repr(value)


def content(estimator: Any) -> Any:
    """Return an estimator's state, or why it has none now."""
    try:
        return state(estimator, parameters(estimator))
    except (ValueError, TypeError) as error:
        return str(error)


def scribble(value: Any) -> None:
    """Overwrite an array that the caller has: the estimator must not have kept it."""
    if isinstance(value, (tuple, list)):
        for part in value:
            scribble(part)
    elif isinstance(value, dict):
        for part in value.values():
            scribble(part)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "fciu" and value.flags.writeable:
        value[...] = 77


def outcome(call: Any, subject: Any) -> Outcome:
    """Call a subject; then overwrite the arguments and the result."""
    arguments = copy.deepcopy(call.arguments)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error" if call.strict else "always")
        error, result = None, None
        try:
            result = call.run(subject, *arguments)
        except Exception as raised:
            # What a state was made with is shown, and arrays are lists once they were saved.
            error = f"{type(raised).__name__}: {OLD_VALUE.sub('', str(raised))}"
    warned = tuple(f"{w.category.__name__}: {w.message}" for w in caught)
    seen = type(result).__name__ if call.moves else comparable(result, subject)
    told = Outcome(seen, error, warned, result if call.moves else None)
    scribble(arguments)
    if not call.moves and call.owned:
        scribble(result)
    return told
