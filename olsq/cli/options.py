"""Options that several commands share, by their panel of ``--help``, and the parsing of values."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from olsq.cli.errors import InputError
from olsq.online.rows.durations import parse_duration

text_option = partial(typer.Option, rich_help_panel="Text")
model_option = partial(typer.Option, rich_help_panel="Model")
training_option = partial(typer.Option, rich_help_panel="Training")
sampling_option = partial(typer.Option, rich_help_panel="Sampling")
results_option = partial(typer.Option, rich_help_panel="Results")
stopping_option = partial(typer.Option, rich_help_panel="Stopping and resuming")
reading_option = partial(typer.Option, rich_help_panel="Reading")

CheckpointEveryOption = Annotated[float, stopping_option(help="Seconds between two checkpoints.")]


# A name in quotation marks, as in CSV, or one without; what follows an equals sign are levels.
QUOTED = r'"(?:[^"]|"")*"'
WITH_LEVELS = re.compile(rf"\s*({QUOTED}|[^=]*?)\s*=(.*)", re.DOTALL)
TIME_UNIT = re.compile(r"(\d+\.?\d*|\.\d+)\s*(ns|us|ms|s|sec|m|min|h|H|d|D|w|W|M|Q|y|Y)\w*")

SeparatorOption = Annotated[
    str | None,
    reading_option(
        help="Character between CSV cells.",
        show_default="the most frequent of , ; tab | in the header",
    ),
]
DecimalOption = Annotated[str, reading_option(help="Decimal mark of CSV numbers: . or a comma.")]
ThousandsOption = Annotated[
    str | None,
    reading_option(
        help="Mark between the thousands of CSV numbers: . or ' for example.", show_default="none"
    ),
]
NaValuesOption = Annotated[
    list[str] | None,
    reading_option(
        help="More spellings of a missing value, separated by commas: '-,?,-999'. Numbers "
        "are compared as numbers.",
        show_default=False,
    ),
]
MissingWordsOption = Annotated[
    list[str] | None,
    reading_option(
        help="Words that are a missing value, separated by commas, instead of CSV's: '' for none.",
        show_default="NA, N/A, null, None, NaN, ... of CSV, none of Parquet",
    ),
]
EncodingOption = Annotated[
    str | None,
    reading_option(help="Encoding of CSV: latin-1, cp1252, utf-16, ...", show_default="utf-8"),
]
CommentOption = Annotated[
    str | None,
    reading_option(
        help="Lines of CSV that begin with this are skipped, and not counted as rows.",
        show_default=False,
    ),
]
TimeFormatOption = Annotated[
    str | None,
    reading_option(
        help="Format of --time: '%d.%m.%Y %H:%M', for example.",
        show_default="determined from the first rows",
    ),
]
TimeZoneOption = Annotated[
    str | None,
    reading_option(
        help="Zone of the clock of --time: Europe/Berlin, for example. Clocks that are set back "
        "show an hour twice.",
        show_default="UTC, or that of the times",
    ),
]


def split_names(parts: list[str] | None) -> tuple[str, ...]:
    """Split names at commas, of one option or several; as in CSV, "a,b" is one name."""
    cells = csv.reader(parts or (), skipinitialspace=True)
    return tuple(name.strip() for row in cells for name in row if name.strip())


def unquoted(text: str | None) -> str | None:
    """Return a name that may be written in quotation marks, as in CSV; "a,b" is a,b."""
    if text is None or not re.fullmatch(rf"\s*{QUOTED}\s*", text):
        return text
    return text.strip()[1:-1].replace('""', '"')


def quoted(name: str) -> str:
    """Return a name as :func:`split_levels` reads it back."""
    if any(mark in name for mark in ',="\r\n') or name != name.strip():
        return '"' + name.replace('"', '""') + '"'
    return name


def split_names_if_any(parts: list[str] | None) -> tuple[str, ...] | None:
    """Split names as :func:`split_names` does; None where the option is left out."""
    return None if parts is None else split_names(parts)


def split_levels(parts: list[str] | None) -> dict[str, tuple[str, ...] | None]:
    """Parse categorical columns and their levels, None where the data decide them.

    Raises
    ------
    InputError
        If a column is named twice, or its levels are empty or twice the same.
    """
    from olsq.cli.sources.categories import level_of  # which imports Polars

    categorical: dict[str, tuple[str, ...] | None] = {}
    for part in parts or ():
        # Levels may hold commas: after a column with levels the next column is its own option.
        with_levels = WITH_LEVELS.fullmatch(part) if "=" in re.sub(QUOTED, "", part) else None
        names = [with_levels[1]] if with_levels else split_names([part])
        for text in names:
            name, levels = unquoted(text) if with_levels else text, None
            if not name:
                raise InputError(f"--categorical {part!r} names no column")
            if with_levels:
                levels = tuple(level.strip() for level in with_levels[2].split("|"))
                distinct = set(map(level_of, levels))
                if not all(levels) or len(distinct) < len(levels) or levels == ("*",):
                    raise InputError(
                        f"--categorical {part!r}: levels must differ and not be empty, as in "
                        f"'{quoted(name)}=a|b|*'"
                    )
            if name in categorical:
                raise InputError(f"--categorical names {name!r} twice")
            categorical[name] = levels
    return categorical


def number_of_rows(
    option: str, text: str | None, kind: type[int] | type[float]
) -> float | str | None:
    """Return the number in ``text``, or a span of time such as 30D as it is written.

    InputError says what is wrong with anything else.
    """
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        if TIME_UNIT.fullmatch(text.strip()):
            try:
                parse_duration(text, option)
            except ValueError as error:
                raise InputError(str(error)) from None
            return text
        what = "a whole number of rows" if kind is int else "a number of rows"
        message = f"{option} must be {what}, or a span of time such as 30D, got {text!r}"
        raise InputError(message) from None


# How the text of an option becomes its value, where it does not do so by its type alone.
PARSERS: dict[str, Callable[[Any], Any]] = {
    "target": split_names,
    "features": split_names_if_any,
    "exclude": split_names,
    "categorical": split_levels,
    "columns": split_names_if_any,
    "weight": unquoted,
    "by": unquoted,
    "time": unquoted,
    "na_values": split_names,
    "missing_words": split_names_if_any,
    "half_life": partial(number_of_rows, "--half-life", kind=float),
    "window": partial(number_of_rows, "--window", kind=int),
    "horizon": partial(number_of_rows, "--horizon", kind=int),
}


def parse_values(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a command as values of its options; InputError for wrong ones."""
    return {n: PARSERS[n](value) if n in PARSERS else value for n, value in arguments.items()}
