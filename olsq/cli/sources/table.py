"""Convert columns of cells to the arrays of a chunk: numbers, levels, times, labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.cli.sources.categories import Categories, GroupColumn, LabelReader
from olsq.cli.sources.columns import Chunk, Columns, Reading
from olsq.cli.sources.numbers import NumberReader
from olsq.cli.sources.order import RowOrder
from olsq.cli.sources.times import TimeColumn


class TableBuilder:
    """Builds chunks; keeps the levels of categories and the format of times.

    Parameters
    ----------
    where : str
        What to call the table in messages.
    columns : Columns
        Those that are used.
    reading : Reading
        Which of them are categories, the time or labels of groups.
    missing_words : list of str
        Text that means "no value".
    numbers : NumberReader, optional
        Reads numbers that are text.
    """

    def __init__(
        self,
        where: str,
        columns: Columns,
        reading: Reading,
        missing_words: list[str],
        numbers: NumberReader | None = None,
    ) -> None:
        self.where, self.columns = where, columns
        labels = LabelReader(missing_words, reading.decimal)
        self.categories = Categories(reading.categorical, labels)
        self.time = TimeColumn(columns.time, reading) if columns.time else None
        by_group = columns.by is not None
        self.order = RowOrder(self.time, where, by_group=by_group) if self.time else None
        self.groups = GroupColumn(columns.by, labels) if columns.by else None
        self._missing_numbers = reading.missing_numbers
        self._missing_words, self._numbers = missing_words, numbers

    @property
    def text(self) -> set[str]:
        """Names of the columns that are read as text."""
        time = [self.time.name] if self.time else []
        by = [self.groups.name] if self.groups else []
        return {*self.categories.names, *time, *by}

    @property
    def is_determined(self) -> bool:
        """True if the regressors are known without looking at the data."""
        return self.categories.has_all_levels and (self.time is None or self.time.kind is not None)

    def settle(self, cells: Mapping[str, pl.Series]) -> None:
        """Take levels and the time's format, where not known yet, from the first chunk."""
        for name in self.categories.names:
            self.categories.settle(name, cells[name])
        if self.time is not None:
            self.time.settle(self._read_times(cells))

    def chunk(self, start: int, cells: Mapping[str, pl.Series]) -> Chunk:
        """Build the chunk of ``cells``, which ``start`` rows precede; null becomes NaN."""
        columns = self.columns
        n = len(cells[columns.all[0]])
        X = np.empty((n, len(columns.features)))
        for j, name in enumerate(columns.features):
            if name in self.categories.names:
                X[:, j] = self.categories.codes(name, cells[name], start, self.where)
            else:
                X[:, j] = self._read_numbers(name, cells, start)
        y = np.empty((n, len(columns.targets)))
        for j, name in enumerate(columns.targets):
            y[:, j] = self._read_numbers(name, cells, start)
        weight = (
            None if columns.weight is None else self._read_numbers(columns.weight, cells, start)
        )
        time = None
        if self.time is not None:
            time = self.time.values(self._read_times(cells), start, self.where)
        by = None if self.groups is None else self.groups.codes(cells[self.groups.name])
        return Chunk(start, X, y, weight, time, by)

    def in_order(self, chunk: Chunk) -> Chunk:
        """Return the chunk that follows those before, with the times of a local clock as UTC.

        Raises
        ------
        InputError
            If its times are not in order (:meth:`RowOrder.in_order`).
        """
        if self.order is None or chunk.time is None:
            return chunk
        return chunk._replace(time=self.order.in_order(chunk.time, chunk.start, chunk.by))

    def _read_numbers(
        self, name: str, cells: Mapping[str, pl.Series], start: int
    ) -> NDArray[np.float64]:
        column = cells[name]
        if self._numbers is not None:
            column = self._numbers.read(name, column, start)
        numbers = column.to_numpy()
        if self._missing_numbers:
            numbers = np.where(np.isin(numbers, self._missing_numbers), np.nan, numbers)
        return numbers

    def _read_times(self, cells: Mapping[str, pl.Series]) -> pl.Series:
        assert self.time is not None
        times = cells[self.time.name]
        if times.dtype == pl.String:
            times = times.str.strip_chars()
            times = times.set(times.is_in(self._missing_words).fill_null(False), None)
        return times

    def as_dict(self) -> dict[str, Any]:
        """Return what was learned about the cells, for the checkpoint."""
        time = self.time.as_dict() | self.order.as_dict() if self.time and self.order else None
        groups = None if self.groups is None else self.groups.as_dict()
        return {"categories": self.categories.as_dict(), "time": time, "groups": groups}

    def continue_from(self, saved: dict[str, Any], *, step_by_step: bool = False) -> None:
        """Go on in this table after the one of :meth:`as_dict`, which may write its times
        otherwise; ``step_by_step`` if no time may be left out.
        """
        self.categories.restore(saved["categories"])
        self.categories.begin_table()
        if self.time is not None and self.order is not None and saved["time"] is not None:
            self.time.continue_from(saved["time"])
            (self.order.follow if step_by_step else self.order.continue_from)(saved["time"])
        if self.groups is not None:
            self.groups.restore(saved["groups"])

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what :meth:`as_dict` saved."""
        self.categories.restore(saved["categories"])
        if self.time is not None and self.order is not None:
            self.time.restore(saved["time"])
            self.order.restore(saved["time"])
        if self.groups is not None:
            self.groups.restore(saved["groups"])
