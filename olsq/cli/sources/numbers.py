"""Read cells of text as numbers: decimal mark, words for no value."""

from __future__ import annotations

import re

import polars as pl

from olsq.cli.errors import InputError
from olsq.cli.sources.columns import Reading, TableFormat

# Groups of three digits: 1,000 or 1'000'000.50.
THOUSANDS = re.compile(r"[-+]?\d{1,3}([,'\u2019 \u00a0\u202f]\d{3})+(\.\d*)?")


def parse_numbers(text: pl.Expr, table: TableFormat) -> pl.Expr:
    """Return cells of text as float64, null where ``table`` does not write a number like that.

    With a decimal comma a point is no part of a number: 1.299 may be 1299 or a slip.
    """
    if table.decimal == ",":
        text = pl.when(~text.str.contains(".", literal=True)).then(
            text.str.replace(",", ".", literal=True)
        )
    return text.cast(pl.Float64, strict=False)


class NumberReader:
    """Reads columns of text as numbers.

    Parameters
    ----------
    where : str
        What to call the table in messages.
    reading : Reading
        How cells are written.
    separator : str
        What stands between cells, for advice.
    """

    def __init__(self, where: str, reading: Reading, separator: str) -> None:
        self._where, self._reading, self._separator = where, reading, separator
        self._words = reading.words_in_csv
        numbers = pl.Series(self._words).cast(pl.Float64, strict=False)
        self._is_plain = reading.decimal == "." and not numbers.is_finite().fill_null(False).any()

    def read(self, name: str, cells: pl.Series, start: int) -> pl.Series:
        """Return the numbers of a column that ``start`` rows precede, null where there is none.

        Raises
        ------
        InputError
            If a cell is neither a number nor a word for a missing value.
        """
        if not self._is_plain:
            return self._parse(name, cells, start)
        # most cells need no more than this, a third of the time
        numbers = cells.cast(pl.Float64, strict=False)
        if not numbers.null_count():
            return numbers
        rest = numbers.is_null().arg_true()
        return numbers.scatter(rest, self._parse(name, cells.gather(rest), start, rest))

    def _parse(
        self, name: str, cells: pl.Series, start: int, rows: pl.Series | None = None
    ) -> pl.Series:
        """Read the cells of ``rows``, or of all rows."""
        text = cells.str.strip_chars()
        text = text.set(text.is_in(self._words), None)
        numbers = text.to_frame("").select(parse_numbers(pl.col(""), self._reading)).to_series()
        wrong = (text.is_not_null() & numbers.is_null()).arg_true()
        if len(wrong):
            row = int(wrong[0] if rows is None else rows[int(wrong[0])])
            cell = cells[int(wrong[0])]
            raise InputError(
                f"column {name!r} is not numeric: row {start + row + 1:,} of {self._where} holds "
                f"{shorten(cell)!r}{self._suggest_fix(name, cell, start)}"
            )
        return numbers

    def _suggest_fix(self, name: str, cell: str, start: int) -> str:
        decimal_comma = self._reading.decimal == ","
        if decimal_comma and "." in cell:
            return " (a point, where --decimal is a comma: if it marks thousands, write none)"
        if THOUSANDS.fullmatch(cell.strip()):
            return " (write no marks between thousands; if it is a decimal comma, give --decimal ,)"
        if self._separator != "," and cell.count(",") == 1 and not decimal_comma:
            return " (write decimals with a point, or give --decimal ,)"
        if name in (*self._reading.targets, self._reading.weight):
            return f" (--na-values '{cell}' if it says that there is no value)"
        if start:
            return ""
        return " (leave it out with --exclude, or see --features, --categorical, --by)"


def shorten(cell: str, most: int = 40) -> str:
    """Return the beginning of a long cell."""
    return cell if len(cell) <= most else cell[: most - 3] + "..."
