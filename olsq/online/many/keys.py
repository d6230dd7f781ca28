"""Keys of groups as JSON holds them: text, numbers, dates, lengths of time, tuples of these."""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any

import numpy as np

_PLAIN = (str, int, float, bool)


def written_key(key: Any) -> Any:
    """Convert a key for JSON: a tuple to a list, a date to a dictionary of its kind and value.

    Raises TypeError for keys of other kinds.
    """
    if isinstance(key, tuple):
        return [written_key(part) for part in key]
    if type(key) in _PLAIN:
        return key
    kind = type(key).__name__
    if isinstance(key, (np.datetime64, np.timedelta64)):
        return {
            kind: int(key.astype(np.int64)),
            "unit": np.datetime_data(key.dtype)[0],
            "step": np.datetime_data(key.dtype)[1],
        }
    if type(key) is datetime.timedelta:
        return {kind: [key.days, key.seconds, key.microseconds]}
    if type(key) in (datetime.date, datetime.time):
        return {kind: key.isoformat()}
    if type(key) is datetime.datetime:
        return {kind: key.isoformat(), "zone": getattr(key.tzinfo, "key", None)}
    if kind == "Timestamp":  # pandas'
        return {kind: key.as_unit("ns").value, "zone": None if key.tz is None else str(key.tz)}
    if kind == "Period":
        return {kind: key.ordinal, "freq": key.freqstr}
    raise TypeError(
        "a state file holds keys that are text, numbers, booleans, dates, lengths of time or "
        f"tuples of these, not {kind} {key!r}; use str(label) as the label"
    )


def read_key(key: Any) -> Any:
    """Rebuild the key from what :func:`written_key` returned; ValueError for anything else."""
    if isinstance(key, list):
        return tuple(read_key(part) for part in key)
    if type(key) in _PLAIN:
        return key
    try:
        date = _date(dict(key))
        same = written_key(date) == key
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, StopIteration):
        same = False
    if not same:
        raise ValueError(f"{key!r} cannot be a key")
    return date


def _date(parts: dict[str, Any]) -> Any:
    """Rebuild a date or a length of time."""
    kind, value = next(iter(parts.items()))
    if kind in ("datetime64", "timedelta64"):
        return getattr(np, kind)(value, (parts["unit"], parts["step"]))
    if kind == "timedelta":
        return datetime.timedelta(*value)
    if kind in ("date", "time"):
        return getattr(datetime, kind).fromisoformat(value)
    zone = parts.get("zone")
    if kind == "datetime":
        moment = datetime.datetime.fromisoformat(value)
        return moment if zone is None else moment.astimezone(zoneinfo.ZoneInfo(zone))
    import pandas as pd

    if kind == "Period":
        return pd.Period(ordinal=value, freq=parts["freq"])
    if kind != "Timestamp":
        raise ValueError(kind)
    return pd.Timestamp(value) if zone is None else pd.Timestamp(value, tz="UTC").tz_convert(zone)
