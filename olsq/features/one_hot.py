"""Indicator columns of levels, in a fixed number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_choice
from olsq.features.base import FeatureBuilder, State
from olsq.features.files import check_columns, check_keys
from olsq.features.parameters import MOST, bounded_integer
from olsq.features.table import Table

Level = str | int | float | bool


class OneHot(FeatureBuilder):
    """One column for every level of a column of text, numbers or booleans: 1 where it is that.

    Parameters
    ----------
    of : column or sequence of columns, optional
        By name or position; default: all of X.
    levels : sequence, or sequence of sequences, optional
        The levels, of one column or of each.  Default: as they come, the first ``max_levels`` of
        each column.
    max_levels : int, default 20
        Without ``levels``: how many a column of X has room for.  All of them are columns from the
        first row on, of zeros until their level comes, as a regression needs whose number of
        coefficients is fixed.
    unseen : {"zeros", "other"}
        How a further level is written: 0 in every column, or 1 in one more column, "other".
    drop : {None, "first"}
        "first" leaves out the first level's column, which is the intercept less the others.
    carry : bool, default False
        See :class:`Lags`; ``transform`` learns no level either way.

    Notes
    -----
    A missing value (NaN, None, NaT) makes the row's columns NaN, and olsq's regressions skip it.
    Levels that compare equal are one (1, 1.0 and True).  A row's features never depend on later
    rows.

    Examples
    --------
    >>> from olsq.features import OneHot
    >>> kind = OneHot(max_levels=2, unseen="other")
    >>> kind.partial_transform([["rain"], ["sun"], ["rain"], ["snow"]])
    array([[1., 0., 0.],
           [0., 1., 0.],
           [1., 0., 0.],
           [0., 0., 1.]])
    >>> kind.get_feature_names_out(["sky"]).tolist()
    ['sky=rain', 'sky=sun', 'sky=other']
    """

    _text = True

    def __init__(
        self,
        of: Any = None,
        *,
        levels: Any = None,
        max_levels: int = 20,
        unseen: str = "zeros",
        drop: str | None = None,
        carry: bool = False,
    ) -> None:
        self.of = of
        self.levels = levels
        self.max_levels = max_levels
        self.unseen = unseen
        self.drop = drop
        self.carry = carry

    def _check_parameters(self) -> None:
        check_choice(self.unseen, "unseen", ("zeros", "other"))
        if self.drop is not None:
            check_choice(self.drop, "drop", ("first",))
        bounded_integer("max_levels", self.max_levels, 1)
        if self.levels is not None and (
            isinstance(self.levels, (str, bytes)) or not hasattr(self.levels, "__iter__")
        ):
            raise ValueError(f"levels must be a sequence, got {self.levels!r}")

    def _given_levels(self, count: int) -> list[list[Level]]:
        """Return ``levels`` as one list for each of ``count`` columns."""
        entries = list(self.levels)
        nested = bool(entries) and all(isinstance(v, (list, tuple, np.ndarray)) for v in entries)
        groups = entries if nested else [entries]
        if len(groups) != count:
            raise ValueError(
                f"levels must be one sequence for each of the {count} columns, got {len(groups)}"
            )
        levels = []
        for group in groups:
            group_levels = [_read_level(v) for v in group]
            if (
                not group_levels
                or None in group_levels
                or len(set(group_levels)) < len(group_levels)
            ):
                raise ValueError(
                    f"levels must be at least one, none missing and none twice, got {group!r}"
                )
            levels.append(group_levels)
        return levels

    def _open(self, table: Table) -> State:
        if table.X is None:
            raise ValueError("OneHot requires X: its features are made of it")
        columns = table.find(self.of, self)
        levels = [[] for _ in columns] if self.levels is None else self._given_levels(len(columns))
        return {"columns": columns, "levels": levels}

    def _restart(self, state: State, table: Table) -> State:
        return state

    def _capacity(self, levels: list[Level]) -> int:
        """Return the number of levels for which a column of X has indicator columns."""
        return len(levels) if self.levels is not None else int(self.max_levels)

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        blocks, learned = [], []
        for column, levels in zip(state["columns"], state["levels"], strict=True):
            values = _read_levels(table.labels(column), table.label(column))
            room, index = self._capacity(levels), {level: i for i, level in enumerate(levels)}
            if learn and len(index) < room:
                # dict.fromkeys: every value once, in order of appearance
                for value in dict.fromkeys(values):
                    if value is not None and value not in index and len(index) < room:
                        index[value] = len(index)
            code = np.array([-1 if v is None else index.get(v, room) for v in values], np.int64)
            block = np.zeros((table.n, room + 1))
            block[np.arange(table.n), code] = (
                1.0  # code -1 sets the last column, overwritten with NaN below
            )
            block[code < 0] = np.nan
            first = 1 if self.drop == "first" else 0
            blocks.append(block[:, first : room + (self.unseen == "other")])
            learned.append(list(index))
        return np.concatenate(blocks, axis=1), {**state, "levels": learned}

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        names = []
        for column, levels in zip(state["columns"], state["levels"], strict=True):
            indicators = [f"{labels[column]}={level}" for level in levels]
            indicators += [
                f"{labels[column]}=?{i}" for i in range(len(levels), self._capacity(levels))
            ]
            indicators = indicators[1 if self.drop == "first" else 0 :]
            names += indicators + [f"{labels[column]}=other"] * (self.unseen == "other")
        return names

    def _check_state(self, state: State, width: int, targets: int) -> None:
        check_keys(state, {"columns", "levels"})
        check_columns(state["columns"], width)
        levels = state["levels"]
        if not isinstance(levels, list) or len(levels) != len(state["columns"]):
            raise ValueError("levels do not belong to the columns")
        if sum(self._capacity(column_levels) for column_levels in levels) > MOST:
            raise ValueError(f"more than {MOST:,} levels cannot be features")
        if self.levels is not None and levels != self._given_levels(len(levels)):
            raise ValueError("levels are not those given")
        for column_levels in levels:
            fits = isinstance(column_levels, list) and len(column_levels) <= self._capacity(
                column_levels
            )
            if (
                not fits
                or None in column_levels
                or [_read_level(v) for v in column_levels] != column_levels
                or len(set(column_levels)) < len(column_levels)
            ):
                raise ValueError(f"levels cannot be {column_levels!r}")


def _read_levels(column: Any, name: str) -> list[Level | None]:
    """Return a column's values as Python objects, missing ones as None."""
    array = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if np.asarray(array).dtype.kind in "mMc":
        raise ValueError(f"{name} must be text, numbers or booleans to be levels, not dates")
    return [_read_level(v, name) for v in np.asarray(array, dtype=object).tolist()]


def _read_level(value: Any, name: str = "levels") -> Level | None:
    """Return one level as a Python object, or None if it is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError(f"{name} contains infinity, which is no level")
        return None if math.isnan(value) else value
    if not isinstance(value, (str, int, bool)):
        raise TypeError(
            f"{name} must hold text, numbers or booleans: argument must be a string or a number, "
            f"got {type(value).__name__}"
        )
    return value
