"""The options of ``olsq fit``: name, default, help, and what a state keeps of them."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from olsq.cli.options import (
    FACTOR,
    NO_ROW,
    NOT_NEGATIVE,
    ONE_ROW,
    POSITIVE,
    PROBABILITY,
    argument,
    listed,
    model_option,
    number_of_rows,
    option,
    reading_option,
    results_option,
    split_levels,
    split_names,
    split_names_if_any,
    stopping_option,
    unquoted,
)
from olsq.cli.sources.columns import TableFormat

# What --columns chooses from, in the order of the file, and what is written without it.
GROUPS = ("prediction", "interval", "residual", "coef", "stderr", "sigma", "statistics")
DEFAULT_GROUPS = ("prediction", "residual", "coef")
FORMATS = (".csv", ".parquet")
FIGURES = (".png", ".pdf", ".svg", ".jpg", ".webp")


@dataclass(frozen=True, kw_only=True)
class Declared(TableFormat):
    """The options as they are declared: the command, resuming and ``--continue`` follow these."""

    data: str = argument(
        "A .csv (also .gz, .bz2, .xz, .zst) or .parquet file of any size, or - for CSV on standard "
        "input.",
        metavar="DATA",
    )
    targets: tuple[str, ...] = option(
        (),
        "Column to predict; several, separated by commas or given one by one, share the "
        "regressors. Put a name that contains a comma into quotation marks: '\"a,b\"'.",
        argument="target",
        parse=split_names,
        several=True,
        metavar="COL",
    )
    features: tuple[str, ...] | None = model_option(
        None,
        "Regressors, separated by commas (may be given several times).",
        parse=split_names_if_any,
        several=True,
        show_default="all other columns",
        metavar="COL",
    )
    exclude: tuple[str, ...] = model_option(
        (),
        "Columns to leave out of the regressors (instead of --features).",
        parse=split_names,
        several=True,
        metavar="COL",
        compared=listed,
    )
    categorical: dict[str, tuple[str, ...] | None] = model_option(
        dict,
        "Regressors that contain names instead of numbers, separated by commas: each level becomes "
        "a 0/1 column. COL takes the levels of the first rows and 'other' for later ones; "
        "'COL=a|b|*' lists the levels, with * for all others.",
        parse=split_levels,
        several=True,
        metavar="COL",
        restored=split_levels,
    )
    by: str | None = model_option(
        None,
        "Fit one regression per label in this column, which is not a regressor itself.",
        parse=unquoted,
        metavar="COL",
    )
    lags: int = model_option(
        0,
        "The targets of the last N rows (with --by, of their group) are regressors too: COL_lag1, "
        "COL_lag2, ...",
        show_default=False,
        metavar="N",
        compared=lambda lags: lags or None,
        rule=NO_ROW,
    )
    weight: str | None = model_option(None, "Column of row weights.", parse=unquoted, metavar="COL")
    forget: float | None = model_option(
        None,
        "Forgetting factor in [0, 1]: every later row multiplies a row's weight by it.",
        show_default="1, nothing is forgotten",
        same=(None, 1.0),
        rule=FACTOR,
    )
    half_life: float | str | None = model_option(  # rows, or a span of time
        None,
        "Number of rows, or span of --time (30D, 12h), after which a weight has halved (instead of "
        "--forget).",
        parse=partial(number_of_rows, "--half-life", kind=float),
        metavar="ROWS|SPAN",
        rule=POSITIVE,
    )
    window: float | str | None = model_option(
        None,
        "Use only this many last rows (with --by, of the group), or those of the last span of "
        "--time (90D); with --forget or --half-life these rows fade.",
        parse=partial(number_of_rows, "--window", kind=int),
        metavar="ROWS|SPAN",
        rule=ONE_ROW,
    )
    window_of: str | None = model_option(
        None,
        "What --window N counts: samples, the rows that can be learned, or positions, also those "
        "with a missing value.",
        show_default="samples",
        same=(None, "samples"),
        choices=("samples", "positions"),
    )
    min_samples: int | None = model_option(
        None,
        "Leave the coefficients of a row empty in --out until so many rows count (with --by, of "
        "the group; in the --window).",
        show_default="1",
        metavar="N",
        rule=ONE_ROW,
    )
    horizon: float | str | None = model_option(
        None,
        "After so many rows (with --by, of the group), or so long (24h), the target of a row is "
        "known: it is predicted from those known by then, and so are the errors and intervals.",
        parse=partial(number_of_rows, "--horizon", kind=int),
        show_default="1, the next row",
        metavar="ROWS|SPAN",
        compared=lambda horizon: None if horizon == 1 else horizon,
        same=(None, 1),
        rule=ONE_ROW,
    )
    ridge: float | None = model_option(  # 0, or in a resumed run that of the state
        None,
        "Penalty on squared coefficients, in units of the regressors squared; 0 is ordinary least "
        "squares.",
        show_default="0, or in a resumed run the state's",
        compared=lambda ridge: ridge or 0.0,
        rule=NOT_NEGATIVE,
    )
    ridge_mode: str = model_option(
        "discounted",
        "discounted: the ridge is forgotten with the data; fixed: it stays.",
        choices=("discounted", "fixed"),
    )
    intercept: bool = model_option(
        True,
        "Leave out the intercept.",
        "--no-intercept",
        argument="no_intercept",
        parse=operator.not_,
        text=bool,
        compared=operator.not_,
        restored=operator.not_,
    )
    noise_variance: float | None = model_option(
        None,
        "Variance of the noise, where it is known: for stderr and interval of --columns.",
        show_default="estimated",
        rule=POSITIVE,
    )
    cov: str | None = model_option(
        None,
        "What standard errors mean: nonrobust or sandwich; with --window nonrobust, HC0 to HC3, or "
        "HAC.",
        show_default="nonrobust, or sandwich with forgetting or weights",
    )
    maxlags: int | None = model_option(
        None,
        "Rows over which the noise is correlated (--cov HAC).",
        show_default="4 (n / 100)^(2/9) of n rows",
        metavar="N",
        rule=NO_ROW,
    )
    method: str = model_option(
        "auto",
        "Form of the state: auto, covariance, sqrt or information.",
        choices=("auto", "covariance", "sqrt", "information"),
    )
    missing: str = model_option(
        "skip", "Rows with an empty cell, NA or NaN: skip or raise.", choices=("skip", "raise")
    )
    out: Path | None = results_option(
        None,
        "File for the prediction, residual and coefficients of every row (.csv or .parquet).",
        compared=lambda out: None if out is None else out.suffix,
        each_run=True,
        endings=FORMATS,
    )
    columns: tuple[str, ...] = results_option(
        DEFAULT_GROUPS,
        "Contents of --out: any of prediction, interval (lower, upper: for the row's target, "
        "before it was learned), residual, coef, stderr (of the coefficients), sigma (of the "
        "noise), statistics.",
        parse=lambda parts: DEFAULT_GROUPS if parts is None else split_names(parts),
        several=True,
        show_default=",".join(DEFAULT_GROUPS),
        metavar="WHAT",
        each_run=True,
    )
    statistics: bool = results_option(
        False,
        "Add to --out the R-squared, adjusted R-squared, number of rows and in-sample residual of "
        "every row's estimate, and t, p and confidence interval of its coefficients (--columns "
        "statistics).",
        "--statistics",
        compared=None,
    )
    level: float = results_option(
        0.95,
        "Probability that a target lies in its interval (--columns interval), and a coefficient in "
        "its own (--statistics).",
        each_run=True,
        rule=PROBABILITY,
    )
    plot: Path | None = results_option(
        None,
        "File for the figure of coefficients, errors and CUSUM (.png, .pdf or .svg); one for every "
        "target.",
        compared=lambda plot: plot is not None,
        each_run=True,
        endings=FIGURES,
    )
    state: Path | None = stopping_option(
        None, "Keep a checkpoint in this file, so that the run can be resumed.", compared=None
    )
    resume: bool = stopping_option(
        False,
        "Resume from --state; the results are those of a run without a stop, to the byte.",
        "--resume",
        compared=None,
    )
    continued: bool = stopping_option(
        False,
        "Learn DATA as rows that follow those of --state: a new table, whose columns and options "
        "are the state's.",
        "--continue",
        compared=None,
    )
    checkpoint_every: float = stopping_option(
        5.0, "Seconds between two checkpoints.", compared=None, rule=NOT_NEGATIVE
    )
    chunk_rows: int | None = reading_option(
        None,
        "Rows that are learned at a time.",
        compared=None,
        show_default="64 to 16384, by the number of columns; up to 262144 of many groups",
        rule=ONE_ROW,
    )
