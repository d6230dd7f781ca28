"""Labels of groups, of whatever kind: as numbers, and as keys that JSON holds."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import without_dictionary
from olsq.online.rows.frames import Labels, level_of, wrapped
from olsq.online.rows.labels import QUICK, column_and_mask, none_where, plain_label, same_label

MISSING = -1  # the number of a missing label
JSON_KEYS = (str, int, float, bool)


def taken_out(X: Any, by: Any) -> tuple[Any, Any]:
    """Return X and the labels; a column of a frame that ``by`` names is removed from X.

    A level of X's index (pandas) may have that name instead, which stays.  Raises TypeError for the
    name of a column where X is no frame, ValueError if there is none.
    """
    if not isinstance(by, str):
        return X, by
    frame = wrapped(X)
    level = level_of(X, by)
    if level is not None and by not in getattr(frame, "columns", ()):
        return X, level
    if frame is None or not hasattr(frame, "columns"):
        raise TypeError(
            f"by={by!r} names a column, but X is not a data frame: give a label for each row"
        )
    if by not in frame.columns:
        names = ", ".join(map(str, frame.columns))
        raise ValueError(f"by={by!r} is not a column of X, which has {names}")
    return frame.drop(by).to_native(), frame[by].to_native()


def with_groups(labels: Labels, by: Any, name: str | None = None) -> Labels:
    """Return the labels of a path by group with those of its rows, None where one is missing.

    Their column is called ``name``, or what the series of the labels is called.
    """
    values = label_array(by)
    column = name or getattr(by, "name", None)
    named = {"group_name": column} if isinstance(column, str) and column else {}
    return labels._replace(groups=values, **named)


def group_rows(by: Any, n_rows: int) -> dict[Any, NDArray[np.int64]]:
    """Return the rows of every label, in order; labels in order of appearance."""
    codes, keys = encode(by, n_rows, {})
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(keys) + 1))
    return {key: order[ends[i] : ends[i + 1]] for i, key in enumerate(keys)}


def rows_of_groups(path: Any) -> dict[Any, NDArray[np.int64]]:
    """Return the rows of every group of a path; nothing if it was made without ``by=``."""
    groups = getattr(getattr(path, "labels", None), "groups", None)
    return {} if groups is None else group_rows(groups, len(groups))


def refuse_groups(path: Any) -> None:
    """Raise ValueError for a path of several groups, whose rows are no single series."""
    groups = rows_of_groups(path)
    if len(groups) > 1:
        raise ValueError(
            f"path has {len(groups)} groups, whose rows are no single series: choose one with "
            f"path.of_group({next(iter(groups))!r})"
        )


def encode(by: Any, n_rows: int, numbered: dict[Any, int]) -> tuple[NDArray[np.int64], list[Any]]:
    """Encode the group (n,) of every row, MISSING without a label, and list the new labels.

    ``numbered`` has the numbers of labels seen before; new ones are numbered on from there in order
    of appearance.  NaN, None, NaT and pandas' NA are missing.  Labels come out as Python's own
    objects (int, str, float, bool, tuple) where they have one.  A date or a length of time is one
    label, whether it is Python's, NumPy's or pandas'; it comes out as it came first.

    Raises ValueError for labels that are not one per row, TypeError for one that cannot be a key.
    """
    values, missing = _labels(by)
    if values.shape != (n_rows,):
        raise ValueError(
            f"by must have one label for each of the {n_rows} rows, got an array of shape "
            f"{values.shape}"
        )
    labelled = np.flatnonzero(~missing)
    codes = np.full(n_rows, MISSING)
    integers = values.dtype.kind in "iu" and labelled.size == n_rows
    if integers and (values[1:] >= values[:-1]).all():  # in groups already: nothing to sort
        first = np.concatenate([labelled[:1], 1 + np.flatnonzero(values[1:] != values[:-1])])
        local = np.repeat(np.arange(first.size), np.diff(first, append=values.size))
        distinct = _plain_labels(values[first])
    elif values.dtype == object:
        local, distinct = _by_hash(values[labelled])
    else:
        unique, first, local = np.unique(values[labelled], return_index=True, return_inverse=True)
        order = np.argsort(first)  # of appearance, not of size
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        local, distinct = rank[local.ravel()], _plain_labels(unique[order])
    fresh: list[Any] = []
    known: dict[Any, int] | None = None
    numbers: Any = [numbered.get(key) for key in distinct]
    for i in [i for i, number in enumerate(numbers) if number is None]:
        key, number = distinct[i], None
        if type(key) not in QUICK:
            if known is None:
                known = {same_label(other): n for other, n in numbered.items()}
            number = known.get(same_label(key))
        if number is None:
            number = len(numbered) + len(fresh)
            fresh.append(key)
        numbers[i] = number
    codes[labelled] = np.array(numbers, np.int64)[local]
    return codes, fresh


def _plain_labels(values: NDArray) -> list[Any]:
    """Do :func:`plain_label` for labels of one dtype, those of an array."""
    return values.tolist() if values.dtype.kind in "iubfSU" else list(values)


def label_array(by: Any) -> NDArray:
    """Return the labels as an array, None (NaN, NaT) where one is missing."""
    values, missing = _labels(by)
    return values if values.dtype.kind in "fmM" else none_where(values, missing)


def _labels(by: Any) -> tuple[NDArray, NDArray[np.bool_]]:
    """Return the labels as an array, and the mask of the missing ones."""
    if isinstance(by, np.ma.MaskedArray):
        values, missing = _labels(by.data)
        return values, missing | np.ma.getmaskarray(by)
    if hasattr(by, "to_pylist"):
        by = without_dictionary(by)
    column = column_and_mask(by)
    if column is not None:
        return column
    if hasattr(by, "to_pylist"):
        by = _from_arrow(by)
    elif hasattr(by, "to_numpy"):
        by = by.to_numpy()
    elif isinstance(by, (list, tuple)):
        by = _from_list(list(by))
    values = np.asarray(by)
    if values.dtype.kind == "f":
        return values, np.isnan(values)
    if values.dtype.kind in "mM":
        return values, np.isnat(values)
    if values.dtype.kind in "iubSU":
        return values, np.zeros(values.shape, np.bool_)
    if values.dtype != object:
        raise TypeError(f"by must hold labels, got dtype {values.dtype}")
    if values.ndim != 1:
        return values, np.zeros(values.shape, np.bool_)  # refused by its shape
    if set(map(type, values)) <= QUICK:
        return values, np.fromiter((label is None for label in values), np.bool_, values.size)
    return values, np.fromiter(map(_is_missing, values), np.bool_, values.size)


def _from_arrow(labels: Any) -> NDArray:
    """Convert an Arrow array to NumPy's; nulls come out as None or NaN."""
    # Arrays, unlike chunked ones, copy only when asked to.
    chunked = hasattr(labels, "combine_chunks")
    return labels.to_numpy() if chunked else labels.to_numpy(zero_copy_only=False)


def _from_list(labels: list[Any]) -> NDArray:
    """Convert a list to an array with its entries as they are."""
    kinds = set(map(type, labels))
    if len(kinds) == 1 and kinds <= {int, float, str, bool}:
        array = np.asarray(labels)
        if array.dtype.kind != "f" or kinds == {float}:  # floats of integers on both sides of int64
            return array
    values = np.empty(len(labels), object)
    values[:] = labels
    return values


def _is_missing(label: Any) -> bool:
    if label is None or label is np.ma.masked:
        return True
    try:
        return bool(label != label)
    except (TypeError, ValueError):  # pandas' NA is neither true nor false
        return type(label).__name__ == "NAType"


def _by_hash(values: NDArray) -> tuple[NDArray[np.int64], list[Any]]:
    numbers: dict[Any, int] = {}
    if set(map(type, values)) <= QUICK:  # most labels of a table: no look at each of them
        numbers = {label: i for i, label in enumerate(dict.fromkeys(values))}
        return np.fromiter(map(numbers.__getitem__, values), np.int64, values.size), list(numbers)
    local, distinct = np.empty(values.size, np.int64), []
    for i, label in enumerate(values):
        try:
            local[i] = numbers.setdefault(same_label(label), len(numbers))
        except TypeError:
            raise TypeError(
                f"by must hold labels that can be keys of a dict, got {type(label).__name__} "
                f"{label!r}"
            ) from None
        if local[i] == len(distinct):
            distinct.append(plain_label(label))
    return local, distinct


def keys_of_both(first: Collection[Any], second: Collection[Any]) -> dict[Any, Any]:
    """Return first's keys and those that second has beside them, by their :func:`same_label`."""
    keys = {same_label(key): key for key in first}
    for key in second:
        keys.setdefault(same_label(key), key)
    return keys


def known_key(key: Any, known: Collection[Any]) -> Any:
    """Return the key of ``known`` that is the same label; KeyError if there is none."""
    if key in known:
        return key
    label = same_label(key)
    same = {same_label(other): other for other in known}
    if label not in same:
        raise KeyError(key)
    return same[label]


# -- in files --------------------------------------------------------------------------------------


def written_key(key: Any) -> Any:
    """Convert a key for JSON: a tuple to a list, a date to a dictionary of its kind and value.

    Raises TypeError for keys of other kinds.
    """
    if isinstance(key, tuple):
        return [written_key(part) for part in key]
    if type(key) in JSON_KEYS:
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
    if type(key) in JSON_KEYS:
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
