"""Convert Polars' lists of rows, one list per group, to NumPy arrays and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray


class GroupedRows(NamedTuple):
    """The rows of all groups, one group after the other.

    X (n, d) in Fortran order, y (n,), ``lengths`` (groups,) of the groups, and the columns (n,) of
    per-row options by their names.
    """

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    lengths: NDArray[np.int64]
    per_row: dict[str, Any]

    def begins(self) -> NDArray[np.int64]:
        """Return the index of the first row of every group that has rows."""
        filled = self.lengths[self.lengths > 0]
        return np.cumsum(filled) - filled

    def codes(self) -> NDArray[np.int64]:
        """Return the number of every row's group (n,)."""
        return np.repeat(np.arange(self.lengths.size), self.lengths)

    def any_usable(self) -> bool:
        """Test whether any row is finite; most often the first few rows decide."""
        for rows in (slice(0, 64), slice(64, None)):
            finite = np.isfinite(self.y[rows]) & np.isfinite(self.X[rows]).all(axis=1)
            if finite.any():
                return True
        return False


def read_lists(groups: pl.Series, names: tuple[str, ...], columns: tuple[str, ...]) -> GroupedRows:
    """Return the rows of a struct of lists: the target, the regressors, per-row options.

    A regressor or option that is one value per group (a literal, ``pl.col("a").mean()``) is that
    value in every row of it.

    Raises TypeError for columns that hold no numbers, ValueError for those of another length.
    """
    fields = [groups.struct.field(name) for name in groups.struct.fields]
    target, others = fields[0], fields[1:]
    lengths = target.list.len().to_numpy().astype(np.int64)
    y = _to_float64(_concatenate(target, lengths), f"the target {groups.name!r}")
    X = np.empty((len(names), y.size))
    for j, (name, field) in enumerate(zip(names, others, strict=False)):
        what = f"regressor {name!r}"
        X[j] = _to_float64(_spread_over_rows(field, lengths, what), what)
    per_row = {}
    for name, field in zip(columns, others[len(names) :], strict=True):
        flat = _spread_over_rows(field, lengths, name)
        per_row[name] = flat if name == "times" else _to_float64(flat, name)
    return GroupedRows(X.T, y, lengths, per_row)


def _concatenate(lists: pl.Series, lengths: NDArray[np.int64]) -> pl.Series:
    """Concatenate the entries of the lists."""
    if lengths.size and not lengths.all():  # an empty list is exploded into a null
        lists = lists.filter(pl.Series(lengths > 0))
    return lists.explode() if len(lists) else pl.Series(lists.name, [], lists.dtype.inner)  # type: ignore[attr-defined]


def _spread_over_rows(lists: pl.Series, lengths: NDArray[np.int64], what: str) -> pl.Series:
    """Concatenate the entries of the lists; repeat single entries for all rows of their group."""
    if not isinstance(lists.dtype, pl.List):  # Polars 1.31 makes no lists of these
        own, values = np.ones(lengths.size, np.int64), lists
    else:
        own = lists.list.len().to_numpy().astype(np.int64)
        values = _concatenate(lists, own)
    if np.array_equal(own, lengths):
        return values
    if not (own == 1).all():
        g = int(np.argmax(own != lengths))
        raise ValueError(
            f"{what} has {own[g]} rows where the target has {lengths[g]}: all must be of one length"
        )
    return values.gather(np.repeat(np.arange(lengths.size), lengths))


def _to_float64(values: pl.Series, what: str) -> NDArray[np.float64]:
    """Return float64 entries, nulls as NaN; no copy of a Float64 column without nulls."""
    dtype = values.dtype
    if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
        raise TypeError(
            f"{what} must be numeric, got {dtype}: cast it, for instance with .cast(pl.Float64)"
        )
    return values.cast(pl.Float64).to_numpy()


def as_series(name: str, columns: list[NDArray], fields: tuple[str, ...] | None) -> pl.Series:
    """Return one column, or a struct of ``fields``; NaN becomes null."""
    series = [
        _null_where_nan(pl.Series(n, column))
        for n, column in zip(fields or (name,), columns, strict=True)
    ]
    return series[0] if fields is None else pl.DataFrame(series).to_struct(name)


def _null_where_nan(series: pl.Series) -> pl.Series:
    return series.fill_nan(None) if series.is_nan().any() else series


def as_lists(rows: pl.Series, lengths: NDArray[np.int64]) -> pl.Series:
    """Return the rows as one list per group, of these lengths."""
    if lengths.size == 1:
        return rows.implode()
    if lengths.all():
        codes = pl.Series("group", np.repeat(np.arange(lengths.size), lengths)).set_sorted()
        frame = pl.DataFrame({"group": codes, "rows": rows})
        return frame.group_by("group", maintain_order=True).agg("rows")["rows"].alias(rows.name)
    ends = np.cumsum(lengths).tolist()
    pieces = [rows[end - n : end] for n, end in zip(lengths.tolist(), ends, strict=True)]
    return pl.Series(rows.name, pieces, pl.List(rows.dtype))
