"""The command ``olsq predict`` and its options; the implementation is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from olsq.cli.options import (
    CommentOption,
    DecimalOption,
    EncodingOption,
    MissingWordsOption,
    NaValuesOption,
    SeparatorOption,
    ThousandsOption,
    TimeFormatOption,
    TimeZoneOption,
    parse_values,
)


def predict(
    state: Annotated[
        Path,
        typer.Argument(
            help="State file that olsq fit --state wrote.", show_default=False, metavar="STATE"
        ),
    ],
    data: Annotated[
        str,
        typer.Argument(
            help="New rows: a file of a kind that olsq fit reads, or - for CSV on standard input.",
            show_default=False,
            metavar="DATA",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the predictions (.csv or .parquet).", show_default="CSV on the terminal"
        ),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            help="Add the interval in which an observation lies with this probability: .95, for "
            "example.",
            show_default=False,
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="Column of dates or numbers to write first.", show_default=False, metavar="COL"
        ),
    ] = None,
    separator: SeparatorOption = None,
    decimal: DecimalOption = ".",
    thousands: ThousandsOption = None,
    missing_words: MissingWordsOption = None,
    na_values: NaValuesOption = None,
    encoding: EncodingOption = None,
    comment: CommentOption = None,
    time_format: TimeFormatOption = None,
    time_zone: TimeZoneOption = None,
) -> None:
    """Predict new rows with a saved regression, which stays as it is.

    Columns are found by name; others are ignored. Where a value is missing the prediction is empty.
    With --lags the new rows follow those that were learned; where a target is missing, later rows
    use its prediction instead.
    """
    arguments = locals()
    from olsq.cli.predict.predict import PredictOptions, run_predict

    run_predict(PredictOptions(**parse_values(arguments)), Console(stderr=True))
