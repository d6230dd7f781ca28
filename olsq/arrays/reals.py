"""Convert real numbers of any container to a float array, and refuse everything else.

NumPy would turn NaT into -9e18, "1.5" into 1.5, and drop an imaginary part or a mask.  Here text,
dates and complex numbers are refused by the argument's name, and what is missing (a masked entry,
``None``, pandas' ``NA``, a null of Arrow or Polars) becomes NaN.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import shown
from olsq.arrays.masked import fill_masked

_KEPT = (np.dtype(np.float64), np.dtype(np.float32))
_DATES = (np.datetime64, np.timedelta64, datetime.date, datetime.time, datetime.timedelta)


def real_array(values: Any, name: str) -> NDArray:
    """Convert ``values`` to float32 (if it is that) or float64, with missing entries as NaN.

    Parameters
    ----------
    values : array, masked array, sequence, frame or series (pandas, Polars, Arrow), or number
    name : str
        The argument's name, for the error.

    Raises
    ------
    ValueError
        For text, dates, complex numbers, records, ragged sequences.
    TypeError
        For sparse matrices and objects that are no numbers.
    """
    if type(values) is float or (type(values) is np.ndarray and values.dtype in _KEPT):
        return np.asarray(values)
    if isinstance(values, np.ma.MaskedArray):
        return _from_array(fill_masked(values), name)
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise TypeError(
            f"Sparse data was passed for {name}, but dense data is required. "
            "Use '.toarray()' to convert to a dense numpy array."
        )
    if isinstance(values, (list, tuple)):
        values = fill_masked(values)
    return _from_array(_to_numpy(values, name), name)


def refuse_repeated_names(data: Any, name: str) -> None:
    """Raise ValueError if two columns of a frame have one name."""
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        return  # lazy, whose names take a computation: refused as such
    names = getattr(data, "column_names", getattr(data, "columns", None))  # Arrow's; the others'
    if names is None or callable(names) or getattr(names, "is_unique", False):
        return
    met: set[Any] = set()
    for column in names:
        if column in met:
            raise ValueError(
                f"{name} must have one column of each name, got two named {column!r}: rename or "
                "drop one of them"
            )
        met.add(column)


def _never() -> bool:

    return False


def _to_numpy(values: Any, name: str) -> NDArray:
    """Convert ``values`` to one NumPy array, of whatever dtype."""
    to_numpy = getattr(values, "to_numpy", None)
    refuse_repeated_names(values, name)
    if callable(getattr(values, "collect", None)) and hasattr(values, "collect_schema"):
        raise TypeError(f"{name} must be data, got a {type(values).__name__}: collect() it first")
    try:
        if type(values).__module__.partition(".")[0] == "pyarrow":
            return _from_arrow(values, name)
        if to_numpy is None:
            return np.asarray(values)
        columns = getattr(values, "dtypes", getattr(values, "dtype", None))
        dtypes: list[Any] = list(columns) if hasattr(columns, "__iter__") else [columns]  # type: ignore
        dense = [getattr(dtype, "subtype", dtype) for dtype in dtypes]  # of pandas' sparse columns
        # pandas dtypes have a kind, those of Polars do not
        kinds = {getattr(dtype, "kind", "") for dtype in dtypes}
        if kinds & {"m", "M"} or any(getattr(t, "is_temporal", _never)() for t in dtypes):
            raise _dates_error(name)
        if kinds <= set("biuf") and not all(isinstance(dtype, np.dtype) for dtype in dtypes):
            single = all(dtype.itemsize == 4 and dtype.kind == "f" for dtype in dense)
            # float32 stays float32 only where every column is; pandas' nullable dtypes need
            # na_value, for np.asarray would make objects of them
            return to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan)
        return np.asarray(to_numpy())
    except (TypeError, ValueError) as error:
        if str(error).startswith(name):
            raise
        raise ValueError(f"{name} must be numeric, one rectangular array: {error}") from None


def without_dictionary(column: Any) -> Any:
    """Return an Arrow column of a dictionary as one of its values; anything else as it is.

    Arrow converts a null of a dictionary to the dictionary's last value.
    """
    kind: Any = getattr(column, "type", None)
    return column.cast(kind.value_type) if hasattr(kind, "index_type") else column


def _from_arrow(values: Any, name: str) -> NDArray:
    """Convert an Arrow table, batch or array; nulls become NaN, or None among objects."""
    table = hasattr(values, "column_names")
    columns = [
        np.asarray(without_dictionary(column)) for column in (values.columns if table else [values])
    ]
    if any(column.dtype.kind in "mM" for column in columns):
        raise _dates_error(name)
    if not table:
        return columns[0]
    return np.column_stack(columns) if columns else np.empty((values.num_rows, 0))


def _from_array(array: NDArray, name: str) -> NDArray:
    kind = array.dtype.kind
    if array.dtype in _KEPT:
        return array
    if kind in "biuf" or (kind == "V" and np.can_cast(array.dtype, np.float64)):  # V: bfloat16
        with np.errstate(over="ignore"):  # a long double that is too large is infinite
            return array.astype(np.float64)
    if kind == "O":
        return np.array([real_number(v, name) for v in array.flat]).reshape(array.shape)
    if kind == "c":
        raise _complex_error(name)
    if kind in "mM":
        raise _dates_error(name)
    if kind in "SUT":
        raise _text_error(name, array.flat[0] if array.size else "")
    raise ValueError(f"{name} must be numeric, got an array of dtype {array.dtype}")


def real_number(value: Any, name: str) -> float:
    """Convert one entry, such as of an object array, to a float, a missing one to NaN."""
    if type(value) is float:
        return value
    if value is None or value is np.ma.masked or type(value).__name__ == "NAType":
        return np.nan
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (str, bytes, bytearray)):
        raise _text_error(name, value)
    if isinstance(value, (complex, np.complexfloating)):
        raise _complex_error(name)
    if isinstance(value, _DATES):
        raise _dates_error(name)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name} must be numeric: {error}") from None


def _text_error(name: str, value: Any) -> ValueError:
    return ValueError(
        f"{name} must be numeric, got text such as {shown(value)}: convert it first, "
        "for instance with astype(float)"
    )


def _complex_error(name: str) -> ValueError:
    return ValueError(
        f"{name} must be real. Complex data not supported: pass the real and imaginary parts as "
        "separate columns"
    )


def _dates_error(name: str) -> ValueError:
    return ValueError(
        f"{name} must be numeric, got dates or durations: turn them into numbers first, for "
        "instance (t - t0) / np.timedelta64(1, 'D')"
    )
