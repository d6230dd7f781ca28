"""Read the labels of frames and series, and build results of the same kind.

Arithmetic is done on arrays; here is what is left of a frame beside them, and the way back.
narwhals, which knows pandas, Polars and Arrow under one interface, is imported only when something
comes in that is no array and no list.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import refuse_repeated_names

_PLAIN = (np.ndarray, np.generic, list, tuple, int, float, type(None))
LARGEST = np.iinfo(np.int64).max
KINDS = ("pandas", "polars", "pyarrow")
WITH_NULLS = KINDS[1:]  # libraries that know nulls beside NaN, and have no index


class Labels(NamedTuple):
    """Labels of a frame: its library, its index, and its names.

    Attributes
    ----------
    kind : str or None
        The library that holds the frame: "pandas", "polars", "pyarrow", or another one that
        narwhals calls a backend; None for arrays.
    index : index or None
        Labels of the rows, where the library has such (pandas).
    features : tuple of str or None
        Names of the columns of X, as text.
    targets : tuple of str or None
        Names of the targets; one of them for a series that has a name.
    times : array (n,) or None
        Times of the rows that were given beside the data.
    time_name : str
        Name of their column.
    time_zone : str or None
        Name of their time zone; ``times`` are in UTC where they have one.
    intercept : bool
        Whether there is one to show.
    groups : array (n,) or None
        The label of every row in a path by group.
    group_name : str
        Name of their column.
    forecast_from : array (n,) or None
        Of forecasts of a horizon, the row whose coefficients predict each row; -1 for none.
    """

    kind: str | None = None
    index: Any = None
    features: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    times: NDArray | None = None
    time_name: str = "time"
    time_zone: str | None = None
    intercept: bool = False
    groups: NDArray | None = None
    group_name: str = "group"
    forecast_from: NDArray[np.int64] | None = None

    def take(self, rows: NDArray[np.int64]) -> Labels:
        """Return the labels of some rows, without those of groups."""
        return self._replace(
            index=None if self.index is None else self.index[rows],
            times=None if self.times is None else self.times[rows],
            groups=None,
            forecast_from=None
            if self.forecast_from is None
            else np.searchsorted(rows, self.forecast_from[rows], side="right") - 1,
        )

    @classmethod
    def of(cls, X: Any, y: Any = None) -> Labels:
        """Read the labels of regressors and targets; the kind and the index are X's, else y's.

        Raises ValueError if both have an index and the two differ.
        """
        if isinstance(X, _PLAIN) and isinstance(y, _PLAIN):
            return cls()
        frame, target = wrapped(X), wrapped(y, "y")
        kinds = [part.implementation.value for part in (frame, target) if part is not None]
        check_same_index(X=X, y=y)
        index, other = row_index(X), row_index(y)
        return cls(
            kinds[0] if kinds else None,
            other if index is None else index,
            _names(frame),
            _names(target),
        )

    def dates(self) -> NDArray | None:
        """Return times (n,) of the rows: those given, else an index of dates, else None."""
        if self.times is not None:
            return self.times
        return None if self.index is None else dates_of_index(self.index)


def wrapped(data: Any, name: str = "X") -> Any:
    """Return a narwhals frame or series around ``data``; None for arrays and unknown objects.

    Raises ValueError, with the argument's name, for columns of one name.
    """
    if isinstance(data, _PLAIN):
        return None
    refuse_repeated_names(data, name)
    import narwhals.stable.v2 as nw

    native: Any = nw.from_native(data, pass_through=True, eager_only=True, allow_series=True)
    return native if isinstance(native, (nw.DataFrame, nw.Series)) else None


def row_index(data: Any) -> Any:
    """Return the index of a frame or series where its rows have one (pandas), else None."""
    index = getattr(data, "index", None)
    return None if callable(index) or not hasattr(index, "equals") else index


def level_of(data: Any, name: str) -> Any:
    """Return the level of the index (pandas) of ``data`` that has this name; None without one."""
    index = None if isinstance(data, _PLAIN) else row_index(data)
    if index is None or name not in index.names:
        return None
    place = index.names.index(name)
    if hasattr(index, "levels") and index.levels[place].dtype.kind in "iu":
        nullable = index.levels[place].dtype.name.replace("i", "I").replace("u", "U")
        index = index.set_levels(index.levels[place].astype(nullable), level=place)
    return index.get_level_values(place)


def check_same_index(**data: Any) -> None:
    """Raise ValueError if two of the named arguments have indices (pandas) with other labels.

    Rows are used in the order in which they are given, so labels that differ mean that rows which
    do not belong together would be learned as one.  Arguments of different lengths are left to the
    check of the lengths.
    """
    first_name, first = "", None
    for name, rows in data.items():
        index = None if isinstance(rows, _PLAIN) else row_index(rows)
        if index is None:
            continue
        if first is None:
            first_name, first = name, index
        elif index is not first and len(index) == len(first) and not index.equals(first):
            raise ValueError(_different_rows(first_name, first, name, index))


def _different_rows(first_name: str, first: Any, name: str, index: Any) -> str:
    """Describe where the indices of two arguments, of one length, first differ and what to do."""
    pairs = enumerate(zip(first, index, strict=True))
    where = next((f" (row {t}: {a!s} and {b!s})" for t, (a, b) in pairs if a != b), "")
    return (
        f"{first_name} and {name} have different indexes{where}, and rows are taken in the order "
        f"they come in: align them first, as in {first_name}, {name} = {first_name}.align({name}, "
        "join='inner', axis=0), or pass arrays, as from .to_numpy(), to go by position"
    )


def dates_of_index(index: Any) -> NDArray | None:
    """Return an index of dates or periods as datetime64 (n,), in UTC if zoned; one of lengths of
    time as timedelta64; else None.
    """
    index = with_numpy_dates(index)
    kind = type(index).__name__
    if kind == "TimedeltaIndex":
        return index.to_numpy()
    if kind == "PeriodIndex":
        index, kind = index.to_timestamp(), "DatetimeIndex"
    if kind != "DatetimeIndex":
        return None
    return (index if index.tz is None else index.tz_convert(None)).to_numpy()


def with_numpy_dates(index: Any) -> Any:
    """Return an index of Arrow's dates or lengths of time as one of NumPy's; others as they are."""
    if type(index).__name__ != "Index" or not hasattr(index.dtype, "pyarrow_dtype"):
        return index
    import pandas as pd

    name = str(index.dtype)
    if name.startswith("duration"):
        return pd.TimedeltaIndex(index.to_numpy())
    if not name.startswith(("timestamp", "date")):
        return index
    if getattr(index.dtype.pyarrow_dtype, "tz", None) is not None:
        return pd.DatetimeIndex(index.astype(f"datetime64[ns, {index.dtype.pyarrow_dtype.tz}]"))
    return pd.DatetimeIndex(index.astype("datetime64[ns]"))


def column_names(data: Any, name: str = "X") -> tuple[str, ...] | None:
    """Return names of a frame's columns, or of a series, as text; None for arrays."""
    return _names(wrapped(data, name))


def _names(part: Any) -> tuple[str, ...] | None:
    """Return names of a frame's columns, or of a series, as text."""
    if part is None:
        return None
    native = part.to_native()
    columns = getattr(native, "column_names", getattr(native, "columns", None))  # Arrow's; others'
    if columns is not None:
        return tuple(str(name) for name in columns)
    return None if part.name in (None, "") else (str(part.name),)


def names_or_numbers(names: Iterable[Any] | None, n_features: int) -> list[str]:
    """Return the names of features as text; x0, x1, ... where they have none."""
    return [f"x{j}" for j in range(n_features)] if names is None else [str(n) for n in names]


def series(values: NDArray, name: str | None, labels: Labels) -> Any:
    """Build a series of ``values`` (n,) of the kind and with the index of ``labels``."""
    import narwhals.stable.v2 as nw

    kind: Any = labels.kind
    column = nw.new_series(name or "", np.ascontiguousarray(values), backend=kind)
    has_nulls = kind in WITH_NULLS and column.dtype.is_float()
    native = (column.fill_nan(None) if has_nulls else column).to_native()
    if labels.index is not None:
        native.index, native.name = labels.index, name
    return native


def frame(columns: Mapping[Any, NDArray], labels: Labels, kind: str | None = None) -> Any:
    """Build a frame of arrays (n,) by name, with the index of ``labels`` where that kind has one.

    Parameters
    ----------
    columns : mapping of str, or of (target, name), to array
        Pairs become two levels of columns in pandas and ``"target:name"`` elsewhere.
    labels : Labels
        Its kind is used, its index kept, its times put first (as the index where there is none,
        else as a column), and then its groups.
    kind : {"pandas", "polars", "pyarrow"}, optional
        Instead of the kind of ``labels``; without either pandas, or Polars, as installed.

    Raises
    ------
    ImportError
        If there is no library to make a frame with.
    ValueError
        If a column would be there twice.
    """
    import narwhals.stable.v2 as nw

    backend: Any = kind or labels.kind or installed_kind()
    has_rows = backend not in WITH_NULLS
    pairs = [key if isinstance(key, tuple) else ("", key) for key in columns]
    flat = [f"{target}:{name}" if target else name for target, name in pairs]
    arrays: list[Any] = [np.ascontiguousarray(values) for values in columns.values()]
    if labels.groups is not None:
        name = labels.group_name if labels.group_name not in flat else "group"
        pairs, flat = [(name, ""), *pairs], [name, *flat]
        arrays.insert(0, _label_column(labels.groups, has_rows))
    if labels.times is not None and not (has_rows and labels.index is None):
        pairs, flat = [(labels.time_name, ""), *pairs], [labels.time_name, *flat]
        arrays.insert(0, labels.times)
    refuse_twice(flat)
    table = dict(zip(flat, arrays, strict=True))
    table_frame = nw.from_dict(table, backend=backend)
    if labels.time_zone is not None and flat[0] == labels.time_name:
        times = nw.col(labels.time_name).dt.replace_time_zone("UTC")
        table_frame = table_frame.with_columns(times.dt.convert_time_zone(labels.time_zone))
    native: Any = _nan_to_null(table_frame, backend).to_native()
    if has_rows:
        if labels.index is not None:
            native.index = labels.index
        elif labels.times is not None:
            native = native.set_index(_time_index(labels)).rename_axis(index=labels.time_name)
        if any(isinstance(key, tuple) for key in columns):
            import pandas as pd

            native.columns = pd.MultiIndex.from_tuples(pairs, names=("target", None))
    return native


def _nan_to_null(table: Any, kind: Any) -> Any:
    """Return a frame of narwhals with nulls for NaN, where the library tells them apart."""
    if kind not in WITH_NULLS:
        return table
    import narwhals.stable.v2 as nw

    floats = [name for name, dtype in table.schema.items() if dtype.is_float()]
    return table.with_columns(nw.col(*floats).fill_nan(None)) if floats else table


def _label_column(groups: NDArray, has_rows: bool) -> Any:
    """Return the labels as a library reads them without changing their type."""
    if groups.dtype != object:
        return groups
    # Text as text: an array of objects is no column of text in Polars.
    values = groups.tolist()
    kinds = set(map(type, values)) - {type(None)}
    if not (has_rows and int in kinds):
        return values
    import pandas as pd

    # pandas makes floats of a list of integers and None.
    least, most = (extreme(v for v in values if type(v) is int) for extreme in (min, max))
    if kinds == {int} and least >= -LARGEST and most <= LARGEST:
        return pd.array(values, dtype="Int64")
    return pd.Series(values, dtype="UInt64" if kinds == {int} and least >= 0 else object)


def _time_index(labels: Labels) -> Any:
    """Return the times as what pandas makes an index of, with their time zone."""
    if labels.time_zone is None:
        return labels.times
    import pandas as pd

    return pd.DatetimeIndex(labels.times, tz="UTC").tz_convert(labels.time_zone)


def refuse_twice(names: Sequence[str]) -> None:
    """Raise ValueError if a name is there twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"the frame would have a column {twice[0]!r} twice: a statistic and a feature, or two "
            "features, have that name. Give other names to the features with names="
        )


def installed_kind() -> str:
    """Return the kind of frame for data given as arrays."""
    for kind in KINDS[:2]:
        if importlib.util.find_spec(kind) is not None:
            return kind
    raise ImportError(
        "to_frame needs pandas, Polars or PyArrow, which are not installed: pip install pandas"
    )
