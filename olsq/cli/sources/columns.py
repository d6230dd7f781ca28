"""Choose the columns of a table that are used, and describe how cells are written."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.options import (
    listed,
    model_option,
    reading_option,
    split_names,
    split_names_if_any,
    unquoted,
)
from olsq.cli.sources.streams import check_encoding

# Cells of CSV that mean "no value", besides the empty one.
MISSING_WORDS = (
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "<NA>",
    "null",
    "NULL",
    "None",
    "NaN",
    "nan",
    "NAN",
)
# What pandas and R call the index column when they write a frame.
INDEX_NAME = re.compile(r"\s*|Unnamed: \d+(_level_\d+)?")


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """The time column and the format of CSV cells; the names are those of the options."""

    time: str | None = model_option(
        None,
        "Column of dates or numbers in ascending order, the first of --out; not a regressor.",
        parse=unquoted,
        metavar="COL",
    )
    separator: str | None = reading_option(
        None,
        "Character between CSV cells.",
        show_default="the most frequent of , ; tab | in the header",
    )
    decimal: str = reading_option(".", "Decimal mark of CSV numbers: . or a comma.")
    missing_words: tuple[str, ...] | None = reading_option(
        None,
        "Words that are a missing value, separated by commas, instead of CSV's: '' for none.",
        show_default="NA, N/A, null, None, NaN, ... of CSV, none of Parquet",
        parse=split_names_if_any,
        several=True,
    )
    na_values: tuple[str, ...] = reading_option(
        (),
        "More spellings of a missing value, separated by commas: '-,?,-999'. Numbers are compared "
        "as numbers.",
        parse=split_names,
        several=True,
        compared=listed,
    )
    encoding: str | None = reading_option(
        None, "Encoding of CSV: latin-1, cp1252, utf-16, ...", show_default="utf-8"
    )
    time_format: str | None = reading_option(
        None,
        "Format of --time: '%d.%m.%Y %H:%M', for example.",
        show_default="determined from the first rows",
    )
    time_zone: str | None = reading_option(
        None,
        "Zone of the clock of --time: Europe/Berlin, for example. Clocks that are set back show an "
        "hour twice.",
        show_default="UTC, or that of the times",
    )

    def format_options(self) -> dict[str, Any]:
        """Return these options alone, to pass them on."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(TableFormat)}

    def check_format(self) -> None:
        """Raise InputError, naming the option, if no table can be written in such a way."""
        if self.time_format is not None and self.time is None:
            raise InputError("--time-format needs --time, the column it is the format of")
        if self.time_zone is not None and self.time is None:
            raise InputError("--time-zone needs --time, the column whose zone it is")
        separator = self.separator
        if separator is not None and (len(separator.encode()) != 1 or separator in '"\r\n'):
            raise InputError(f"--separator must be one character of ASCII, got {separator!r}")
        if self.decimal not in (".", ","):
            raise InputError(f"--decimal must be . or , got {self.decimal!r}")
        if self.decimal == self.separator == ",":
            raise InputError(
                "--decimal , needs another --separator than the comma: ';' for example"
            )
        check_encoding(self.encoding)


@dataclass(frozen=True, kw_only=True)
class Reading(TableFormat):
    """Columns to read from a table, and how its cells are written; names are those of the options.

    ``targets_required`` is False where a table without them serves too (prediction).
    """

    targets: tuple[str, ...]
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    weight: str | None = None
    by: str | None = None
    categorical: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    chunk_rows: int | None = None
    targets_required: bool = True

    @property
    def words_in_csv(self) -> list[str]:
        """Cells of CSV that mean "no value"."""
        words = MISSING_WORDS if self.missing_words is None else self.missing_words
        return ["", *words, *self.na_values]

    @property
    def words_in_text(self) -> list[str]:
        """Cells that mean "no value" where a file stores types, and NA may be Namibia."""
        return ["", *(self.missing_words or ()), *self.na_values]

    @property
    def missing_numbers(self) -> list[float]:
        """The words of ``na_values`` that are numbers, which match cells of that value."""
        numbers = []
        for word in self.na_values:
            try:
                numbers.append(float(word.replace(self.decimal, ".")))
            except ValueError:
                continue
        return [number for number in numbers if np.isfinite(number)]


class Chunk(NamedTuple):
    """Consecutive rows, missing cells as NaN; ``start`` counts the data rows before the first.

    ``X`` (n, d) in C order, categories as the number of their level; ``y`` (n, m); ``weight`` (n,)
    or None; ``time`` (n,) or None, dates as microseconds since 1970; ``by`` (n,) or None, numbers
    of labels.
    """

    start: int
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    weight: NDArray[np.float64] | None
    time: NDArray[np.float64] | None = None
    by: NDArray[np.int64] | None = None

    def arrays(self) -> dict[str, NDArray]:
        """Return the values that there are, by name."""
        return {name: part for name, part in self._asdict().items() if isinstance(part, np.ndarray)}


class Columns(NamedTuple):
    """The columns that a regression uses, by name; ``left_out`` are those without a name."""

    targets: tuple[str, ...]
    features: tuple[str, ...]
    weight: str | None
    time: str | None = None
    left_out: tuple[int, ...] = ()
    by: str | None = None

    @property
    def all(self) -> tuple[str, ...]:
        """Regressors, targets, then weights, time and labels if there are any."""
        roles = [name for name in (self.weight, self.time, self.by) if name is not None]
        return (*self.features, *self.targets, *roles)


def choose_columns(header: list[str], reading: Reading) -> Columns:
    """Check the wanted names against the header; without ``features``, take all other columns.

    Columns without a name ("", or pandas' "Unnamed: 0") are only taken if asked for by it.

    Raises
    ------
    InputError
        If a name is not in the header (near names are suggested), is there twice, is asked for
        twice, or no regressor is left.
    """
    targets, left_out = reading.targets, []
    if not reading.targets_required:
        targets = tuple(name for name in targets if name in header)
    for name in reading.exclude:
        if name not in header:
            raise InputError(
                f"--exclude: no column {name!r} in the data; {_suggest_names(name, header)}"
            )
    features = reading.features
    if features is None:
        excluded = {*reading.targets, reading.weight, reading.time, reading.by, *reading.exclude}
        left_out = [
            place
            for place, name in enumerate(header)
            if name not in excluded and INDEX_NAME.fullmatch(name)
        ]
        unnamed = {header[place] for place in left_out}
        excluded |= unnamed
        features = tuple(name for name in header if name not in excluded)
    columns = Columns(
        targets, tuple(features), reading.weight, reading.time, tuple(left_out), reading.by
    )
    if not columns.all:
        raise InputError(
            f"no column {reading.targets[0]!r} in the data: an empty one says how many rows there "
            "are to predict"
        )
    # A table may have 100,000 columns: each is looked up, never searched for.
    used, there = columns.all, Counter(header)
    absent = [name for name in used if name not in there]
    if absent:
        column = "column" if len(absent) == 1 else "columns"
        raise InputError(
            f"no {column} {', '.join(map(repr, absent))} in the data; "
            f"{_suggest_names(absent[0], header)}"
        )
    uses = Counter(used)
    for name in used:
        if there[name] > 1:
            raise InputError(f"the data have more than one column named {name!r}")
        if uses[name] > 1:
            raise InputError(
                f"column {name!r} is used twice (target, features, weight, time and by differ)"
            )
    for name in reading.categorical:
        if name not in columns.features:
            raise InputError(
                f"--categorical: {name!r} is not a regressor; {_suggest_names(name, [*features])}"
            )
    return columns


def _suggest_names(name: str, header: list[str]) -> str:
    by_lower = {candidate.strip().lower(): candidate for candidate in header}
    near = difflib.get_close_matches(name.strip().lower(), by_lower, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(repr(by_lower[key]) for key in near) + "?"
    shown = ", ".join(map(repr, header[:12])) + (", ..." if len(header) > 12 else "")
    return f"it has {shown}"
