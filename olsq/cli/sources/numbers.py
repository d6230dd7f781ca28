"""Parse numbers as a table writes them: its decimal mark, and the mark between thousands."""

from __future__ import annotations

import re

import polars as pl

from olsq.cli.sources.columns import TableFormat

# Groups of three digits: 1,000 or 1'000'000.50.
THOUSANDS = re.compile(r"[-+]?\d{1,3}([,'\u2019 \u00a0\u202f]\d{3})+(\.\d*)?")


def parse_numbers(text: pl.Expr, table: TableFormat) -> pl.Expr:
    """Return cells of text as float64, null where ``table`` does not write a number like that.

    With a decimal comma a point is no part of a number: 1.299 may be 1299 or a slip.
    """
    mark = table.thousands
    if mark is not None:
        end = rf"({re.escape(table.decimal)}[0-9]*)?([eE][-+]?[0-9]+)?"
        grouped = text.str.contains(rf"^[-+]?[0-9]{{1,3}}({re.escape(mark)}[0-9]{{3}})+{end}$")
        text = pl.when(grouped).then(text.str.replace_all(mark, "", literal=True)).otherwise(text)
    if table.decimal == ",":
        text = pl.when(~text.str.contains(".", literal=True)).then(
            text.str.replace(",", ".", literal=True)
        )
    return text.cast(pl.Float64, strict=False)
