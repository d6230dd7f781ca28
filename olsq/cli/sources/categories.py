"""Columns of labels: levels of categorical columns, and the groups that rows belong to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.options import quoted

MOST_LEVELS = 200  # of a column taken from the data; more are probably numbers or identifiers
REST = "*"  # in a list of levels: whatever is not in it
OTHER = "other"

TRUTH_VALUES = ("true", "True", "TRUE", "false", "False", "FALSE")
# As tools write numbers.  007 is a code, which is not the number 7.
NUMBER = re.compile(r"-?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?")


def level_of(label: str) -> str | Decimal:
    """Return the value that a label spells: a number, or else its text, of truth values in lower
    case.

    Labels of equal value are one level: 1 and 1.0, true and True.
    """
    if label in TRUTH_VALUES:
        return label.lower()
    # Not a float: two identifiers of 17 digits differ.
    return Decimal(label) if NUMBER.fullmatch(label) else label


class LabelReader:
    """Reads cells as labels: text without blanks around it, null where there is no value.

    Parameters
    ----------
    missing : iterable of str
        Words for a missing value.
    decimal : str
        Decimal mark of the numbers in text.
    """

    def __init__(self, missing: Iterable[str], decimal: str = ".") -> None:
        self._missing, self._decimal = list(missing), decimal
        # the numbers spelled with a comma and with a point so far, by column
        self._spelled: dict[str, tuple[set[Any], set[Any]]] = {}

    def read(self, cells: pl.Series) -> pl.Series:
        """Return the labels of a column of numbers, truth values or text."""
        if cells.dtype.is_float():
            cells = cells.fill_nan(None)
        labels = cells.cast(pl.String).str.strip_chars()
        labels = labels.set(labels.is_in(self._missing).fill_null(False), None)
        if self._decimal == "," and cells.dtype == pl.String:
            labels = self._read_commas(labels)
        return labels

    def _read_commas(self, labels: pl.Series) -> pl.Series:
        """Return labels that are numbers with a decimal comma with a point.

        Raises
        ------
        InputError
            If the column also holds the same label with a point, which is no number there.
        """
        commas, points = self._spelled.setdefault(labels.name, (set(), set()))
        with_point = {}
        for label in labels.drop_nulls().unique().to_list():
            number = label.replace(",", ".", 1)
            if number.count(".") == 1 and NUMBER.fullmatch(number):
                with_point[label] = number
                (commas if "," in label else points).add(level_of(number))
        # Levels that are listed have no name here: a state's are numbers with a point.
        if (both := commas & points) and labels.name:
            label = min(map(str, both))
            raise InputError(
                f"column {labels.name!r} holds the labels {label.replace('.', ',')} and {label}, "
                "which --decimal , cannot tell apart: write all of them with a comma"
            )
        return labels.replace(with_point)


class Categories:
    """The categorical columns of a table and their levels.

    Parameters
    ----------
    wanted : dict
        Levels by column; None takes those of the first chunk.
    labels : LabelReader
        How cells are read.
    """

    def __init__(self, levels_of: dict[str, tuple[str, ...] | None], labels: LabelReader) -> None:
        self.names = list(levels_of)
        self._labels = labels
        self.levels: dict[str, list[str]] = {}
        self.open: dict[str, bool] = {}  # whether a level that is not listed is OTHER
        self._unknown: dict[str, str] = {}  # the first label that no level has, by column
        self._known: set[str] = set()  # the columns of which a level was met
        for name, levels in levels_of.items():
            if levels is not None:
                listed = [level for level in levels if level != REST]
                self.levels[name], self.open[name] = self._read(name, listed), REST in levels

    def _read(self, name: str, levels: list[str]) -> list[str]:
        """Return levels as their cells are read; InputError if that is no value."""
        labels = self._labels.read(pl.Series(levels, dtype=pl.String))
        if labels.null_count():
            word = levels[int(labels.is_null().arg_true()[0])]
            raise InputError(
                f"{word!r} is a level of {name!r} and a word for a missing value: choose these "
                "with --missing-words"
            )
        return labels.to_list()

    @property
    def has_all_levels(self) -> bool:
        """True if the levels of all columns are known."""
        return len(self.levels) == len(self.names)

    @property
    def strangers(self) -> list[str]:
        """The columns that have held labels so far, and none of their levels."""
        return [name for name in self._unknown if name not in self._known]

    def check_known(self, where: str, *, listed: bool) -> None:
        """Raise InputError if a column of the table ``where`` held not one of its levels.

        ``listed`` says whether they are the command's, and not those of a state.
        """
        for name in self.strangers:
            shown = self.levels[name][:8]
            raise InputError(
                f"column {name!r} of {where} holds not one of the levels {', '.join(shown)}"
                f"{', ...' * (len(shown) < len(self.levels[name]))}, but "
                f"{self._unknown[name]!r} for example: write its levels in the same way"
                f"{', or list them with --categorical' * listed}"
            )

    def settle(self, name: str, cells: pl.Series) -> None:
        """Take the levels from ``cells``, in alphabetical order, unless they are known."""
        if name in self.levels:
            return
        labels = sorted(self._labels.read(cells).drop_nulls().unique().to_list())
        levels = list({level_of(label): label for label in reversed(labels)}.values())[::-1]
        if len(levels) > MOST_LEVELS:
            raise InputError(
                f"--categorical {name}: the first {len(cells):,} rows hold {len(levels):,} levels; "
                "list the ones that matter: "
                f"--categorical '{quoted(name)}={levels[0]}|{levels[1]}|{REST}'"
            )
        if not levels:
            raise InputError(
                f"--categorical {name}: the first {len(cells):,} rows hold no value; list the "
                f"levels: --categorical '{quoted(name)}=a|b|{REST}'"
            )
        self.levels[name], self.open[name] = levels, True

    def codes(self, name: str, cells: pl.Series, first_row: int, where: str) -> NDArray[np.float64]:
        """Return the number of every cell's level; OTHER's is the last plus one, a missing value is
        NaN.
        """
        levels = self.levels[name]
        numbers: dict[Any, int] = {level_of(level): code for code, level in enumerate(levels)}
        # Files of earlier versions may hold two spellings of one value, each with its own number.
        numbers |= {level: code for code, level in enumerate(levels)}
        labels = self._labels.read(cells)
        spelled = labels.drop_nulls().unique(maintain_order=True).to_list()
        code = [numbers.get(label, numbers.get(level_of(label), len(levels))) for label in spelled]
        unknown = [
            label for label, number in zip(spelled, code, strict=True) if number == len(levels)
        ]
        if len(unknown) < len(spelled):
            self._known.add(name)
        if unknown:
            if not self.open[name]:
                row = int((labels == unknown[0]).fill_null(False).arg_true()[0])
                raise InputError(
                    f"column {name!r}: row {first_row + row + 1:,} of {where} holds "
                    f"{unknown[0]!r}, which is not among its levels {', '.join(levels)} "
                    f"(add it, or {REST} for all others)"
                )
            self._unknown.setdefault(name, unknown[0])
        return np.array(
            labels.replace_strict(spelled, code, return_dtype=pl.Float64).to_numpy(), np.float64
        )

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
        for name, levels in self.levels.items():
            self._read(name, levels)
        self._known = set(self.names)  # a state is not saved before

    def begin_table(self) -> None:
        """Forget which levels were met: a new table must hold some of them too."""
        self._known, self._unknown = set(), {}


class GroupColumn:
    """Numbers labels in the order in which they appear in the table.

    Labels are text, also those of a column of numbers, and those of equal value are one group, so
    that one table's are found again in another's.

    Parameters
    ----------
    name : str
        Of the column.
    reader : LabelReader
        How cells are read.
    """

    def __init__(self, name: str, reader: LabelReader) -> None:
        self.name = name
        self._reader = reader
        self.restore({"labels": []})

    def codes(self, cells: pl.Series) -> NDArray[np.int64]:
        """Return the number (n,) of every cell's label, -1 where it is missing."""
        labels = self._reader.read(cells).to_list()
        for label in dict.fromkeys(labels):
            if label not in self._numbers:
                self._numbers[label] = self._add(label)
        return np.fromiter(map(self._numbers.__getitem__, labels), np.int64, len(labels))

    def _add(self, label: str) -> int:
        """Return the number of a label's value, a new one if it has none."""
        number = self._groups.setdefault(level_of(label), len(self.labels))
        if number == len(self.labels):
            self.labels.append(label)
        return number

    def of(self, codes: NDArray) -> NDArray[np.object_]:
        """Return the labels (n,) of some numbers, None for -1."""
        if len(self._array) != len(self.labels) + 1:
            self._array = np.array([*self.labels, None], object)
        return self._array[codes.astype(np.int64)]

    def series(self, codes: NDArray) -> pl.Series:
        """Return labels as a column for output."""
        return pl.Series(self.name, self.of(codes).tolist(), dtype=pl.String)

    def as_dict(self) -> dict[str, Any]:
        """Return all labels for the checkpoint."""
        return {"labels": list(self.labels)}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the labels saved by :meth:`as_dict`."""
        self.labels: list[str] = list(saved["labels"])  # in order of their numbers
        self._groups = {level_of(label): i for i, label in enumerate(self.labels)}
        self._numbers: dict[str | None, int] = {None: -1}  # of every spelling that was met
        self._numbers |= {label: i for i, label in enumerate(self.labels)}
        self._array = np.empty(0, object)
