"""Rows of one call, read from arrays, frames or Arrow tables; features as arrays or frames."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import is_integer
from olsq.arrays.masked import fill_masked
from olsq.arrays.reals import real_array, refuse_repeated_names, without_dictionary
from olsq.features.parameters import as_list
from olsq.online.rows.frames import check_same_index
from olsq.online.rows.inputs import check_lengths, check_size, check_X, count_targets
from olsq.online.rows.labels import column_and_mask, none_where

_MIXED = "OUSTmM"  # kinds of dtypes that are not numbers; their columns are read one by one
KINDS = ("default", "pandas", "polars")


class Table(NamedTuple):
    """The n rows of X and y of one call."""

    n: int
    X: Any  # a frame, or an array (n, width); None without one
    width: int
    names: list[str] | None  # of the columns of a frame
    y: NDArray[np.float64] | None  # (n, m)
    targets: int  # 0: y was one-dimensional, or there is none
    index: Any = None  # of a pandas frame
    times: Any = None  # RowTimes, where a builder looks back in time

    def column(self, column: int) -> Any:
        """Return one column as it is, but Arrow's without a dictionary."""
        if self.names is None:
            return self.X[:, column]
        return without_dictionary(self.X[self.names[column]])

    def raw(self, column: int) -> Any:
        """Return one column as it is, but as an array where it is Arrow's."""
        taken = self.column(column)
        return taken.to_numpy(zero_copy_only=False) if hasattr(taken, "combine_chunks") else taken

    def labels(self, column: int) -> Any:
        """Return one column as labels, integers as such also where some are missing (None)."""
        taken = column_and_mask(self.column(column))
        return self.raw(column) if taken is None else none_where(*taken)

    def numbers(self, columns: list[int]) -> NDArray[np.float64]:
        """Return some columns as float64 (n, k), missing entries as NaN."""
        if self.names is None and self.X.dtype.kind not in _MIXED:
            return np.asarray(self.X[:, columns], np.float64)
        out = np.empty((self.n, len(columns)))
        for place, column in enumerate(columns):
            out[:, place] = real_array(self.raw(column), self.label(column))
        return out

    def label(self, column: int) -> str:
        """Return a column's name for errors and for feature names."""
        return f"x{column}" if self.names is None else self.names[column]

    def find(self, of: Any, builder: object) -> list[int]:
        """Find the indices of the columns that ``of`` names: None or "X" for all, names or
        positions.
        """
        if of is None or (isinstance(of, str) and of == "X" and "X" not in (self.names or [])):
            return list(range(self.width))
        places = []
        for one in as_list("of", of, (str, int, np.integer)):
            if is_integer(one):
                if not 0 <= one < self.width:
                    raise ValueError(f"of={of!r}: X has columns 0 to {self.width - 1}, no {one}")
                places.append(int(one))
            elif self.names is None:
                raise ValueError(
                    f"of={of!r} of {type(builder).__name__} names columns, but X is an array "
                    "without names: give a data frame, or positions"
                )
            elif one not in self.names:
                raise ValueError(f"of={of!r}: X has no column {one!r}; it has {self.names}")
            else:
                places.append(self.names.index(one))
        return places


def frame_names(X: Any) -> list[str] | None:
    """Return column names of a pandas, Polars or Arrow table, or a mapping of arrays; else None."""
    names = getattr(X, "column_names", None)
    if names is None and not isinstance(X, np.ndarray):
        names = getattr(X, "columns", None)
    return None if names is None or callable(names) else [str(name) for name in names]


def read_table(X: Any, y: Any, builder: Any, n_features: int | None, *, text: bool) -> Table:
    """Check X and y as far as every builder needs it, and return their rows.

    ``text`` says whether an array may hold text and objects; frames may, column by column.
    """
    check_same_index(X=X, y=y)
    target, targets = read_y(y)
    if X is None:
        if target is None:
            raise ValueError("X or y must be given: there are no rows otherwise")
        if n_features:
            raise ValueError(f"X is None, but earlier calls gave {n_features} columns")
        return Table(len(target), None, 0, None, target, targets)
    names = frame_names(X)
    if names is not None:
        refuse_repeated_names(X, "X")
        n = int(X.num_rows) if hasattr(X, "num_rows") else len(X)
        check_size((n, len(names)), builder, n_features, allow_empty=True)
        if not hasattr(X, "column_names") and list(X.columns) != names:
            X = X.rename(columns=str)  # pandas' columns that are numbers
        array: Any = X
    else:
        array = X if type(X) is np.ndarray else _array_of(X, text)
        if hasattr(X, "nnz") and hasattr(X, "toarray"):
            real_array(X, "X")  # which refuses sparse data
        if not (text and array.dtype.kind in _MIXED):
            array = check_X(X, builder, n_features, allow_empty=True)
        elif array.ndim != 2:
            check_X(np.zeros(array.shape), builder, n_features, allow_empty=True)
        check_size(array.shape, builder, n_features, allow_empty=True)
        n = len(array)
    if target is not None:
        check_lengths(n, len(target))
    index = getattr(X, "index", None)
    width = len(names) if names is not None else array.shape[1]
    return Table(n, array, width, names, target, targets, None if callable(index) else index)


def read_y(y: Any) -> tuple[NDArray[np.float64] | None, int]:
    """Return y as float64 (n, m), and m, or 0 if y is one-dimensional."""
    if y is None:
        return None, 0
    array = np.asarray(real_array(y, "y"), np.float64)
    targets = count_targets(array)
    return array if targets else array[:, None], targets


def _array_of(X: Any, text: bool) -> NDArray:
    """Convert X; if it may hold ``text``, that is labels, its integers do not become floats."""
    try:
        if text and isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "iu":
            return none_where(np.ma.getdata(X), np.ma.getmaskarray(X))
        array = np.asarray(fill_masked(X))
        mixed = text and isinstance(X, (list, tuple)) and array.dtype.kind == "f"
        return np.array(fill_masked(X), object) if mixed else array
    except ValueError:
        return np.empty(0)  # ragged: check_X says so


def check_kind(kind: str) -> None:
    """Raise ValueError if ``kind`` is not one of the kinds of output."""
    if kind not in KINDS:
        raise ValueError(f"transform must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")


def choose_kind(configured: str | None) -> str:
    """Return the builder's own choice, or scikit-learn's configuration where that is imported."""
    if configured is not None:
        return configured
    sklearn = sys.modules.get("sklearn")
    return "default" if sklearn is None else sklearn.get_config()["transform_output"]


def make_frame(kind: str, features: NDArray, names: NDArray[np.object_], index: Any) -> Any:
    """Build a frame of features; for pandas with the index of the frame that was given."""
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(features, columns=names, index=index)
    import polars as pl

    return pl.DataFrame(features, schema=list(names), orient="row")
