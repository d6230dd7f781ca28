"""The features of a builder for each group of rows: lags of a stock's own past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.features.base import FeatureBuilder, State
from olsq.features.files import check_keys
from olsq.features.formula import Formula
from olsq.features.one_hot import OneHot
from olsq.features.table import Table
from olsq.features.union import Union
from olsq.online.many.labels import MISSING, encode, read_key


class Grouped(FeatureBuilder):
    """The features of a builder within each group of rows: its history is that of the group.

    Parameters
    ----------
    builder : builder
        Its parameters are read and it stays as it is: history and files are of this object.  Any
        but :class:`OneHot`, whose columns are the same for all groups: ``Union([Grouped(...),
        OneHot(...)])``, and :class:`Formula`.
    by : column
        The column of X that holds the labels, by name (of a data frame) or position.  It is no
        source of features; positions in the builder count the columns without it.
    carry : bool, default False
        See :class:`Lags`; the builder's own is not read.

    Notes
    -----
    A label that was never seen begins a history.  Rows whose label is missing (NaN, None) have NaN
    features and are in no history.  Features stay in the order of the rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from olsq.features import Grouped, Lags
    >>> panel = pd.DataFrame({"stock": ["a", "b", "a", "b"], "price": [1.0, 9.0, 2.0, 8.0]})
    >>> lags = Grouped(Lags(1, of="price"), by="stock")
    >>> lags.partial_transform(panel)[:, 0]
    array([nan, nan,  1.,  9.])
    >>> lags.partial_transform(panel)[:, 0]
    array([2., 8., 1., 9.])
    """

    _text = True

    def __init__(self, builder: Any, by: Any, *, carry: bool = False) -> None:
        self.builder = builder
        self.by = by
        self.carry = carry

    @property
    def _timed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.builder._timed

    @property
    def _uses_y(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.builder._uses_y

    def _check_parameters(self) -> None:
        if isinstance(self.builder, Formula):
            raise ValueError(
                "a Formula cannot be in Grouped, as its transforms and levels are learned from all "
                "rows: use Grouped(Lags(...)) for lags within groups, or one Formula for the frame "
                "of each group"
            )
        if not isinstance(self.builder, FeatureBuilder):
            raise ValueError(f"builder must be an object of olsq.features, got {self.builder!r}")
        inside = self.builder.builders if isinstance(self.builder, Union) else [self.builder]
        if any(isinstance(one, OneHot) for one in inside):
            raise ValueError(
                "OneHot has the same columns for all groups, so it cannot be in Grouped: put it "
                "beside, Union([Grouped(...), OneHot(...)])"
            )
        self.builder._check_parameters()

    def _open(self, table: Table) -> State:
        if table.X is None:
            raise ValueError("Grouped requires X, whose column by= holds the labels")
        places = table.find(self.by, self)
        if len(places) != 1:
            raise ValueError(f"by={self.by!r} must be one column, which holds the labels")
        first = self.builder._open(_rows_without(table, places[0], slice(None)))
        return {"column": places[0], "keys": [], "first": first, "parts": []}

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        column, keys, first = state["column"], list(state["keys"]), state["first"]
        parts = list(state["parts"])
        codes, fresh = encode(table.labels(column), table.n, {k: i for i, k in enumerate(keys)})
        keys += fresh
        parts += [first] * len(fresh)
        if not table.n:  # only the number of features is used
            features, _ = self.builder._build(first, _rows_without(table, column, slice(0)), learn)
            return features, state
        order = np.argsort(codes, kind="stable")
        ends = np.flatnonzero(np.diff(codes[order], append=-2)) + 1
        out: NDArray[np.float64] | None = None
        for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            rows = np.ascontiguousarray(order[begin:end])
            code = int(codes[rows[0]])
            # Of rows without a label only the number of features is used.
            part = first if code == MISSING else parts[code]
            features, after = self.builder._build(part, _rows_without(table, column, rows), learn)
            if out is None:
                out = np.full((table.n, features.shape[1]), np.nan)
            if code != MISSING:
                out[rows], parts[code] = features, after
        assert out is not None
        return out, {"column": column, "keys": keys, "first": first, "parts": parts}

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        other_labels = [label for j, label in enumerate(labels) if j != state["column"]]
        return self.builder._names(state["first"], other_labels, targets)

    def _check_state(self, state: State, width: int, targets: int) -> None:
        check_keys(state, {"column", "keys", "first", "parts"})
        column, keys, parts = state["column"], state["keys"], state["parts"]
        if type(column) is not int or not 0 <= column < width:
            raise ValueError(f"column cannot be {column!r}")
        if not isinstance(keys, list):
            raise ValueError("keys cannot be those of groups")
        state["keys"] = keys = [read_key(key) for key in keys]
        if len(set(keys)) < len(keys):
            raise ValueError("keys cannot be those of groups")
        if not isinstance(parts, list) or len(parts) != len(keys):
            raise ValueError("parts are not those of the groups")
        for part in (state["first"], *parts):
            self.builder._check_state(part, width - 1, targets)


class _Taken(Mapping[str, Any]):
    """The columns of a frame at some rows, each taken when it is read."""

    def __init__(self, frame: Any, rows: Any) -> None:
        self._frame, self._rows = frame, rows

    def __getitem__(self, name: str) -> Any:
        column = self._frame[name]
        if isinstance(self._rows, slice):
            return column
        if hasattr(column, "combine_chunks"):  # of Arrow
            return column.take(self._rows)
        return column.iloc[self._rows] if hasattr(column, "iloc") else column[self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame)

    def __len__(self) -> int:
        return len(self._frame)


def _rows_without(table: Table, column: int, rows: Any) -> Table:
    """Return some rows of a table without one column."""
    n = table.n if isinstance(rows, slice) else len(rows)
    y = None if table.y is None else table.y[rows]
    times = None if table.times is None else table.times.take(rows)
    if table.names is not None:
        names = [name for j, name in enumerate(table.names) if j != column]
        return Table(n, _Taken(table.X, rows), len(names), names, y, table.targets, times=times)
    X = np.delete(table.X[rows], column, axis=1)
    return Table(n, X, X.shape[1], None, y, table.targets, times=times)
