"""Invariants of a state's numbers, checked where a state is loaded.

Kernels trust these: they index by counters and loop on them.  A file may hold anything, so each is
checked before anything runs.  What else the numbers of a state satisfy is not proved: an edited
file can give wrong numbers, but it cannot make a kernel read outside of its arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.schema import NONE_YET, Fields

UNKNOWN = "not negative, or unknown"  # infinite where an estimator began from moments
NOT_NEGATIVE = {"not negative", UNKNOWN, "shares", "tally", "fading"}
MOST_ROWS = 2**53  # a count of rows that float64 holds exactly; none overflows from there


def want(condition: bool, name: str, value: Any) -> None:
    """Raise ValueError with the name and the beginning of the value unless the condition holds."""
    if not condition:
        text = repr(value)
        raise ValueError(f"{name} cannot be {text if len(text) < 100 else text[:100] + '...'}")


def check_counts(header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
    """Raise ValueError for more features or targets than the arrays can have numbers for.

    Every feature and every target has a number of its own at least, so that from here on memory is
    bounded by the size of the file, whatever the header says.
    """
    entries = sum(array.size for array in arrays.values())
    for name, fewest in (("n_features", 1), ("n_targets", 0)):
        count = header.get(name)
        want(type(count) is int and count >= fewest, name, count)
        if isinstance(count, int) and count > entries:
            raise ValueError(f"{name} is {count}, and the arrays hold {entries} numbers")


def check_common(kind: type[Any], header: dict[str, Any], fields: set[str]) -> None:
    """Raise ValueError unless a header has these fields, and what every kind of state has."""
    if missing := sorted(fields - header.keys()):
        raise ValueError(f"{', '.join(missing)} is missing in the header")
    parameters = header["parameters"]
    want(isinstance(parameters, dict), "parameters", parameters)
    want(parameters.keys() <= set(kind._parameter_names()), "parameters", parameters)
    want(header["dtype"] in ("float32", "float64"), "dtype", header["dtype"])
    want(isinstance(header["metadata"], dict), "metadata", header["metadata"])


def check_names(names: Any, count: int, what: str) -> None:
    """Raise ValueError unless ``names`` are so many, or None."""
    named = isinstance(names, list) and all(isinstance(name, str) for name in names)
    want(names is None or (named and len(names) == count), what, names)


def check_fields(arrays: dict[str, NDArray], fields: Fields, sizes: dict[str, int]) -> None:
    """Raise ValueError unless every array is what its field says; ``sizes`` are by name."""
    for name, field in fields.items():
        if name not in arrays:
            if field.optional:
                continue
            raise ValueError(f"array {name!r} is missing")
        array = arrays[name]
        shape = tuple(sizes[n] if isinstance(n, str) else n for n in field.shape)
        if array.dtype != np.dtype(field.dtype) or array.shape != shape:
            raise ValueError(f"array {name!r} is {array.dtype} {array.shape}, which is not {shape}")
        valid = np.isfinite(array)
        if field.invariant == UNKNOWN:
            valid |= array == np.inf
        elif field.invariant == NONE_YET:
            valid |= np.isnan(array)
        if not valid.all():
            raise ValueError(f"array {name!r} holds numbers that are not finite")
    for name in arrays.keys() & fields.keys():
        invariant, array = fields[name].invariant, arrays[name]
        if invariant in NOT_NEGATIVE:
            check_not_negative(name, array)
        elif invariant == "row counts":
            check_row_counts(name, array)
        elif invariant == "place":
            check_place(array, sizes["w"])


def check_not_negative(name: str, array: NDArray) -> None:
    """Raise ValueError if a number is negative."""
    want(not (array < 0).any(), name, "a negative number")


def check_row_counts(name: str, counts: NDArray) -> None:
    """Raise ValueError unless all are counts of rows."""
    want(bool(((counts >= 0) & (counts <= MOST_ROWS)).all()), name, counts.ravel()[:8].tolist())


def check_place(place: NDArray, slots: int) -> None:
    """Raise ValueError unless count and slot lie within a ring of so many slots."""
    count, slot, _ = place
    want(0 <= count <= slots and 0 <= slot < slots, "place", place.tolist())
