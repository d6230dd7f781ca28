"""Frames of other libraries as pandas', for formulaic, and back; whole numbers stay exact."""

from __future__ import annotations

from typing import Any

import numpy as np


def to_pandas(data: Any) -> tuple[Any, str, Any]:
    """Convert a frame to pandas'; return it, the library of the original, and its index."""
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        table = data.reset_index(drop=True)
        for place, dtype in enumerate(table.dtypes):
            if dtype.kind in "iu":
                table.isetitem(place, as_exact(table.iloc[:, place]))
        return table, "pandas", data.index
    import narwhals as nw

    frame = nw.from_native(data, eager_only=True)
    kind = "polars" if type(data).__module__.startswith("polars") else "pandas"
    columns: dict[str, Any] = {}
    for name in frame.columns:
        values = frame[name].to_list()
        if frame[name].dtype.is_integer() and is_large(values):
            values = pd.Series(values, dtype=exact_dtype(values))
        elif not values:
            values = np.empty(0, np.float64 if frame[name].dtype.is_numeric() else object)
        columns[name] = values
    return pd.DataFrame(columns), kind, None


def to_caller(frame: Any, kind: str, index: Any, series: bool = False) -> Any:
    """Convert a pandas frame to the caller's library; return a single target as a series."""
    if kind == "polars":
        import polars as pl

        converted = pl.DataFrame({name: frame[name].to_numpy() for name in frame.columns})
        return converted.to_series() if series and converted.width == 1 else converted
    frame = frame.set_axis(index, axis=0) if index is not None else frame.reset_index(drop=True)
    return frame.iloc[:, 0] if series and frame.shape[1] == 1 else frame


def missing_like(column: Any) -> Any:
    """Return a column of missing values with the dtype of ``column`` where it has them."""
    if column.dtype.kind in "biu":
        return column.astype(np.float64) * np.nan
    return column.where(np.zeros(len(column), bool))


def as_exact(column: Any, above: Any = None) -> Any:
    """Return whole numbers that float64 cannot hold as pandas' nullable ones, which may be missing.

    Those of float64, ``above`` them, are converted to the dtype of the ``column``.
    """
    if column.dtype.kind not in "iu":
        return column if above is None else above
    numbers = column.dropna().tolist()
    if not is_large(numbers):
        return column if above is None else above
    if above is None:
        return column.astype(exact_dtype(numbers))
    return above.astype(exact_dtype(numbers)) if above.dtype.kind == "f" else above


def exact_dtype(numbers: list[Any]) -> str:
    """Return pandas' dtype for whole numbers; unsigned ones it compares as float64."""
    return "UInt64" if max(n for n in numbers if n is not None) >= 2**63 else "Int64"


def is_large(numbers: list[Any]) -> bool:
    """Test whether float64 cannot hold all whole numbers as large as these, or None."""
    numbers = [number for number in numbers if number is not None]
    return bool(numbers) and max(-min(numbers), max(numbers)) > 2**53
