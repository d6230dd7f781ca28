"""Checks of builders' parameters: integers and lags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from olsq.arrays.checks import check_integer, is_integer, shown
from olsq.online.rows.durations import is_duration, parse_duration

# A year of minutes is half of it.  Lags and levels are listed before anything is computed, and a
# state file can ask for any number of them.
MOST = 1_000_000


def as_list(name: str, value: Any, alone: tuple[type, ...]) -> list[Any]:
    """Return a value of one of the types ``alone`` as a list of one, a sequence as a list."""
    if isinstance(value, alone):
        return [value]
    try:
        return list(value)
    except TypeError:
        raise TypeError(
            f"{name} must be one value or a sequence of them, got {shown(value)}"
        ) from None


def bounded_integer(name: str, value: Any, least: int, most: int | None = MOST) -> int:
    """Return an integer from ``least`` to ``most``; ValueError for anything else."""
    check_integer(name, value, least)
    if most is not None and value > most:
        raise ValueError(f"{name} must be an integer <= {most:,}, got {shown(value)}")
    return int(value)


def check_lags(lags: Any, least: int) -> Sequence[int]:
    """Return lags from a number (1 up to it) or a sequence, each at least ``least``, none twice."""
    if is_integer(lags):
        return range(1, bounded_integer("lags", lags, 1) + 1)
    if isinstance(lags, str) or not hasattr(lags, "__iter__"):
        raise ValueError(f"lags must be a number of lags or a sequence of them, got {shown(lags)}")
    values = [bounded_integer("every lag", lag, least) for lag in lags]
    if not values or len(set(values)) < len(values):
        raise ValueError(f"lags must be at least one, and none twice, got {shown(lags)}")
    return values


def list_lengths(lags: Any) -> list[Any]:
    """Return lags in time as a list, none twice; each is checked where it is read."""
    several = hasattr(lags, "__iter__") and not isinstance(lags, str)
    values = list(lags) if several else [lags]
    if not values or len(set(values)) < len(values):
        raise ValueError(f"lags must be at least one, and none twice, got {shown(lags)}")
    return values


_PLAIN = (str, int, float, bool, type(None))


def described(builder: Any) -> dict[str, Any]:
    """Return ``{"builder": class, "parameters": {...}}`` of plain data only."""
    values = builder.get_params(deep=False)
    parameters = {name: plain(value) for name, value in values.items()}
    return {"builder": type(builder).__name__, "parameters": parameters}


def plain(value: Any) -> Any:
    """Convert a parameter's value to data that JSON can hold, or to its repr."""
    if is_duration(value) and not isinstance(value, str):
        return f"{parse_duration(value, 'a length of time').length}ns"
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, _PLAIN):
        return value
    if hasattr(value, "tolist"):  # arrays of NumPy, series and indexes of pandas
        return plain(value.tolist())
    if hasattr(value, "to_list"):  # series of Polars
        return plain(value.to_list())
    if isinstance(value, (list, tuple, range, set, frozenset)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return described(value) if hasattr(value, "_build") else repr(value)
