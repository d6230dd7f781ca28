"""The command ``olsq fit`` and its options; the implementation is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from olsq.cli.options import (
    CheckpointEveryOption,
    CommentOption,
    DecimalOption,
    EncodingOption,
    MissingWordsOption,
    NaValuesOption,
    SeparatorOption,
    ThousandsOption,
    TimeFormatOption,
    TimeZoneOption,
    model_option,
    reading_option,
    results_option,
    stopping_option,
)


def fit(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            help="A .csv (also .gz, .bz2, .xz, .zst) or .parquet file of any size, or - for CSV on "
            "standard input.",
            show_default=False,
            metavar="DATA",
        ),
    ],
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Column to predict; several, separated by commas or given one by one, share the "
            "regressors. Put a name that contains a comma into quotation marks: '\"a,b\"'.",
            show_default=False,
            metavar="COL",
        ),
    ] = None,
    features: Annotated[
        list[str] | None,
        model_option(
            help="Regressors, separated by commas (may be given several times).",
            show_default="all other columns",
            metavar="COL",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        model_option(
            help="Columns to leave out of the regressors (instead of --features).",
            show_default=False,
            metavar="COL",
        ),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        model_option(
            help="Regressors that contain names instead of numbers, separated by commas: each "
            "level becomes a 0/1 column. COL takes the levels of the first rows and 'other' "
            "for later ones; 'COL=a|b|*' lists the levels, with * for all others.",
            show_default=False,
            metavar="COL",
        ),
    ] = None,
    by: Annotated[
        str | None,
        model_option(
            help="Fit one regression per label in this column, which is not a regressor itself.",
            show_default=False,
            metavar="COL",
        ),
    ] = None,
    lags: Annotated[
        int,
        model_option(
            help="The targets of the last N rows (with --by, of their group) are regressors too: "
            "COL_lag1, COL_lag2, ...",
            show_default=False,
            metavar="N",
        ),
    ] = 0,
    time: Annotated[
        str | None,
        model_option(
            help="Column of dates or numbers in ascending order: the axis of --plot and the first "
            "column of --out; not a regressor.",
            show_default=False,
            metavar="COL",
        ),
    ] = None,
    weight: Annotated[
        str | None, model_option(help="Column of row weights.", show_default=False, metavar="COL")
    ] = None,
    forget: Annotated[
        float | None,
        model_option(
            help="Forgetting factor in [0, 1]: every later row multiplies a row's weight by it.",
            show_default="1, nothing is forgotten",
        ),
    ] = None,
    half_life: Annotated[
        str | None,
        model_option(
            help="Number of rows, or span of --time (30D, 12h), after which a weight has halved "
            "(instead of --forget).",
            metavar="ROWS|SPAN",
            show_default=False,
        ),
    ] = None,
    window: Annotated[
        str | None,
        model_option(
            help="Use only this many last rows (with --by, of the group), or those of the last "
            "span of --time (90D); with --forget or --half-life these rows fade.",
            metavar="ROWS|SPAN",
            show_default=False,
        ),
    ] = None,
    window_of: Annotated[
        str | None,
        model_option(
            help="What --window N counts: samples, the rows that can be learned, or positions, "
            "also those with a missing value.",
            show_default="samples",
        ),
    ] = None,
    min_samples: Annotated[
        int | None,
        model_option(
            help="Leave the coefficients of a row empty in --out until so many rows count (with "
            "--by, of the group; in the --window).",
            show_default="1",
            metavar="N",
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        model_option(
            help="After so many rows (with --by, of the group), or so long (24h), the target of a "
            "row is known: it is predicted from those known by then, and so are the errors and "
            "intervals.",
            metavar="ROWS|SPAN",
            show_default="1, the next row",
        ),
    ] = None,
    ridge: Annotated[
        float | None,
        model_option(
            help="Penalty on squared coefficients, in units of the regressors squared; "
            "0 is ordinary least squares.",
            show_default="0, or in a resumed run the state's",
        ),
    ] = None,
    ridge_mode: Annotated[
        str, model_option(help="discounted: the ridge is forgotten with the data; fixed: it stays.")
    ] = "discounted",
    no_intercept: Annotated[
        bool, model_option("--no-intercept", help="Leave out the intercept.")
    ] = False,
    noise_variance: Annotated[
        float | None,
        model_option(
            help="Variance of the noise, where it is known: for stderr and interval of --columns.",
            show_default="estimated",
        ),
    ] = None,
    cov: Annotated[
        str | None,
        model_option(
            help="What standard errors mean: nonrobust or sandwich; with --window nonrobust, HC0 "
            "to HC3, or HAC.",
            show_default="nonrobust, or sandwich with forgetting or weights",
        ),
    ] = None,
    maxlags: Annotated[
        int | None,
        model_option(
            help="Rows over which the noise is correlated (--cov HAC).",
            show_default="4 (n / 100)^(2/9) of n rows",
            metavar="N",
        ),
    ] = None,
    method: Annotated[
        str, model_option(help="Form of the state: auto, covariance, sqrt or information.")
    ] = "auto",
    missing: Annotated[
        str, model_option(help="Rows with an empty cell, NA or NaN: skip or raise.")
    ] = "skip",
    out: Annotated[
        Path | None,
        results_option(
            help="File for the prediction, residual and coefficients of every row (.csv or "
            ".parquet).",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        results_option(
            help="Contents of --out: any of prediction, interval (lower, upper: for the row's "
            "target, before it was learned), residual, coef, stderr (of the coefficients), "
            "sigma (of the noise), statistics.",
            show_default="prediction,residual,coef",
            metavar="WHAT",
        ),
    ] = None,
    statistics: Annotated[
        bool,
        results_option(
            "--statistics",
            help="Add to --out the R-squared, adjusted R-squared, number of rows and in-sample "
            "residual of every row's estimate, and t, p and confidence interval of its "
            "coefficients (--columns statistics).",
        ),
    ] = False,
    level: Annotated[
        float,
        results_option(
            help="Probability that a target lies in its interval (--columns interval), and a "
            "coefficient in its own (--statistics)."
        ),
    ] = 0.95,
    plot: Annotated[
        Path | None,
        results_option(
            help="File for the figure of coefficients, errors and CUSUM (.png, .pdf or .svg); one "
            "for every target.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        stopping_option(
            help="Keep a checkpoint in this file, so that the run can be resumed.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool,
        stopping_option(
            "--resume",
            help="Resume from --state; the results are those of a run without a stop, to the byte.",
        ),
    ] = False,
    continued: Annotated[
        bool,
        stopping_option(
            "--continue",
            help="Learn DATA as rows that follow those of --state: a new table, whose columns and "
            "options are the state's.",
        ),
    ] = False,
    checkpoint_every: CheckpointEveryOption = 5.0,
    chunk_rows: Annotated[
        int | None,
        reading_option(
            help="Rows that are learned at a time.",
            show_default="64 to 16384, by the number of columns",
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
    """Fit a regression to a table in one pass, in constant memory.

    Every row is predicted before it is learned, so the errors printed at the end are honest
    errors of forecasts, one row ahead or --horizon. Rows are numbered from 1, the header not
    counted.
    """
    arguments = {name: value for name, value in locals().items() if name != "context"}
    from olsq.cli.fit.fit import run_fit
    from olsq.cli.fit.options import FitOptions

    sources = {name: context.get_parameter_source(name) for name in context.params}
    # By name, as typer comes with or without a click of its own.
    typed = {n for n, source in sources.items() if source and "DEFAULT" not in source.name}
    options = FitOptions.from_arguments(arguments, frozenset(typed))
    run_fit(options, Console(), Console(stderr=True))
