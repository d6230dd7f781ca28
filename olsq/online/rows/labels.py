"""Labels of rows without a loss: integers beyond 2^53, and dates of several libraries."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.rows.frames import wrapped

QUICK = {str, int, bool, type(None)}  # hashable, equal to themselves, Python's own


def column_and_mask(column: Any) -> tuple[NDArray, NDArray[np.bool_]] | None:
    """Return the values (n,) of a column whose library knows missing entries, and their mask.

    For integers and categories that are integers, any one where missing: converting such a column
    makes it float64, which rounds integers beyond 2^53.  None for columns of other kinds.
    """
    if isinstance(column, (np.ndarray, list, tuple)):
        return None
    if hasattr(column, "isna") and not hasattr(column, "iloc"):  # pandas' index or array
        import pandas as pd

        column = pd.Series(column)
    elif hasattr(column, "to_pylist") and not hasattr(column, "combine_chunks"):
        import pyarrow as pa

        column = pa.chunked_array([column])  # pyright: ignore[reportArgumentType]
    part: Any = wrapped(column)
    if part is None:
        return None
    if part.dtype.is_integer():
        filled = part.fill_null(0)
        wide = str(part.dtype).endswith("128")  # of Polars, which NumPy has not
        values = np.array(filled.to_list(), object) if wide else filled.to_numpy()
        return values, part.is_null().to_numpy()
    categories: Any = getattr(getattr(column, "dtype", None), "categories", None)  # of pandas
    if getattr(getattr(categories, "dtype", None), "kind", "") not in ("i", "u"):
        return None
    codes = column.cat.codes.to_numpy()
    return categories.to_numpy()[codes], codes < 0


def none_where(values: NDArray, missing: NDArray[np.bool_]) -> NDArray:
    """Return ``values`` (n,) with None where they are missing."""
    if not missing.any():
        return values
    values = values.astype(object)
    values[missing] = None
    return values


def same_label(label: Any) -> Any:
    """Return what labels that are the same have in common, whichever library they are of.

    datetime64 for days and dates without a time zone, timedelta64 for lengths of time.
    """
    if type(label) in QUICK:
        return label
    if isinstance(label, tuple):
        return tuple(map(same_label, label))
    if isinstance(label, datetime.timedelta):
        exact = getattr(label, "to_timedelta64", None)  # pandas', which has nanoseconds
        return np.timedelta64(label) if exact is None else exact()
    if isinstance(label, datetime.date) and getattr(label, "tzinfo", None) is None:
        exact = getattr(label, "to_datetime64", None)
        return np.datetime64(label) if exact is None else exact()
    period: Any = label
    if type(label).__name__ == "Period" and period.freqstr == "D":  # pandas'
        return period.to_timestamp().to_datetime64()
    return plain_label(label)


def plain_label(label: Any) -> Any:
    """Convert a NumPy number or text to Python's; leave dates as they are."""
    if isinstance(label, np.generic) and label.dtype.kind in "iubfSU":
        return label.item()
    return label
