"""Columns of labels: levels of categorical columns, and the groups that rows belong to."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.cli.errors import InputError

MOST_LEVELS = 200  # of a column taken from the data; more are probably numbers or identifiers
REST = "*"  # in a list of levels: whatever is not in it
OTHER = "other"


class Categories:
    """The categorical columns of a table and their levels.

    Parameters
    ----------
    wanted : dict
        Levels by column; None takes those of the first chunk.
    missing : list of str
        Cells without a value.
    """

    def __init__(self, wanted: dict[str, tuple[str, ...] | None], missing: list[str]) -> None:
        self.names = list(wanted)
        self._missing = missing
        self.levels: dict[str, list[str]] = {}
        self.open: dict[str, bool] = {}  # whether a level that is not listed is OTHER
        for name, levels in wanted.items():
            if levels is not None:
                self.levels[name] = [level for level in levels if level != REST]
                self.open[name] = REST in levels

    @property
    def settled(self) -> bool:
        """True if the levels of all columns are known."""
        return len(self.levels) == len(self.names)

    def settle(self, name: str, cells: pl.Series) -> None:
        """Take the levels from ``cells``, in alphabetical order, unless they are known."""
        if name in self.levels:
            return
        found = sorted(self._strip_cells(cells).drop_nulls().unique().to_list())
        if len(found) > MOST_LEVELS:
            raise InputError(
                f"--categorical {name}: the first {len(cells):,} rows hold {len(found):,} levels; "
                f"list the ones that matter: --categorical '{name}={found[0]}|{found[1]}|{REST}'"
            )
        if not found:
            raise InputError(
                f"--categorical {name}: the first {len(cells):,} rows hold no value; list the "
                f"levels: --categorical '{name}=a|b|{REST}'"
            )
        self.levels[name], self.open[name] = found, True

    def codes(self, name: str, cells: pl.Series, first_row: int, where: str) -> NDArray[np.float64]:
        """Return the number of every cell's level; OTHER's is the last plus one, a missing value is
        NaN.
        """
        levels = self.levels[name]
        text = self._strip_cells(cells)
        code = text.replace_strict(
            levels, range(len(levels)), default=len(levels), return_dtype=pl.Float64
        )
        code = (
            code.to_frame("code")
            .select(pl.when(text.is_null()).then(None).otherwise(pl.col("code")))
            .to_series()
        )
        if not self.open[name]:
            unknown = (code == len(levels)).fill_null(False).arg_true()
            if len(unknown):
                row = int(unknown[0])
                raise InputError(
                    f"column {name!r}: row {first_row + row + 1:,} of {where} holds "
                    f"{text[row]!r}, which is not among its levels {', '.join(levels)} "
                    f"(add it, or {REST} for all others)"
                )
        return np.array(code.to_numpy(), np.float64)

    def _strip_cells(self, cells: pl.Series) -> pl.Series:
        text = cells.cast(pl.String).str.strip_chars()
        return text.set(text.is_in(self._missing).fill_null(False), None)

    def dummies(self, name: str, *, intercept: bool) -> list[tuple[int, str]]:
        """Return (code, name) of the 0/1 regressors; with an intercept the first level has none."""
        levels = [*self.levels[name], *([OTHER] if self.open[name] else [])]
        named = [(code, f"{name}={level}") for code, level in enumerate(levels)]
        return named[int(intercept) :]

    def as_dict(self) -> dict[str, Any]:
        """Return all levels for the checkpoint."""
        return {"levels": self.levels, "open": self.open}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the levels saved by :meth:`as_dict`."""
        self.levels, self.open = dict(saved["levels"]), dict(saved["open"])


class GroupColumn:
    """Numbers labels in the order in which they appear in the table.

    Labels are text, also those of a column of numbers, so that one table's are found again in
    another's.

    Parameters
    ----------
    name : str
        Of the column.
    missing : list of str
        Cells without a value.
    """

    def __init__(self, name: str, missing: list[str]) -> None:
        self.name = name
        self._missing = [*missing, "NaN"]
        self._numbers: dict[str | None, int] = {None: -1}
        self._labels = np.empty(0, object)

    def codes(self, cells: pl.Series) -> NDArray[np.int64]:
        """Return the number (n,) of every cell's label, -1 where it is missing."""
        text = cells.cast(pl.String).str.strip_chars()
        labels = text.set(text.is_in(self._missing).fill_null(False), None).to_list()
        for label in dict.fromkeys(labels):
            self._numbers.setdefault(label, len(self._numbers) - 1)
        return np.fromiter(map(self._numbers.__getitem__, labels), np.int64, len(labels))

    @property
    def labels(self) -> list[str]:
        """All labels so far, in order of their numbers."""
        return [label for label in self._numbers if label is not None]

    def of(self, codes: NDArray) -> NDArray[np.object_]:
        """Return the labels (n,) of some numbers, None for -1."""
        if len(self._labels) != len(self._numbers):
            self._labels = np.array([*self.labels, None], object)
        return self._labels[codes.astype(np.int64)]

    def series(self, codes: NDArray) -> pl.Series:
        """Return labels as a column for output."""
        return pl.Series(self.name, self.of(codes).tolist(), dtype=pl.String)

    def as_dict(self) -> dict[str, Any]:
        """Return all labels for the checkpoint."""
        return {"labels": self.labels}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the labels saved by :meth:`as_dict`."""
        self._numbers = {None: -1} | {label: i for i, label in enumerate(saved["labels"])}
