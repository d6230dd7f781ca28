"""The options of ``olsq fit``: name, default, help, and what a state keeps of them."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from olsq.cli.options import (
    FACTOR,
    MODEL,
    NO_ROW,
    NOT_NEGATIVE,
    ONE_ROW,
    POSITIVE,
    PROBABILITY,
    READING,
    RESULTS,
    STOPPING,
    argument,
    listed,
    number_of_rows,
    option,
    split_levels,
    split_names,
    split_names_if_any,
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
    features: tuple[str, ...] | None = option(
        None,
        "Regressors, separated by commas (may be given several times).",
        panel=MODEL,
        parse=split_names_if_any,
        several=True,
        show_default="all other columns",
        metavar="COL",
    )
    exclude: tuple[str, ...] = option(
        (),
        "Columns to leave out of the regressors (instead of --features).",
        panel=MODEL,
        parse=split_names,
        several=True,
        metavar="COL",
        compared=listed,
    )
    categorical: dict[str, tuple[str, ...] | None] = option(
        dict,
        "Regressors that contain names instead of numbers, separated by commas: each level becomes "
        "a 0/1 column. COL takes the levels of the first rows and 'other' for later ones; "
        "'COL=a|b|*' lists the levels, with * for all others.",
        panel=MODEL,
        parse=split_levels,
        several=True,
        metavar="COL",
        restored=split_levels,
    )
    by: str | None = option(
        None,
        "Fit one regression per label in this column, which is not a regressor itself.",
        panel=MODEL,
        parse=unquoted,
        metavar="COL",
    )
    lags: int = option(
        0,
        "The targets of the last N rows (with --by, of their group) are regressors too: COL_lag1, "
        "COL_lag2, ...",
        panel=MODEL,
        show_default=False,
        metavar="N",
        compared=lambda lags: lags or None,
        rule=NO_ROW,
    )
    weight: str | None = option(
        None, "Column of row weights.", panel=MODEL, parse=unquoted, metavar="COL"
    )
    forget: float | None = option(
        None,
        "Forgetting factor in [0, 1]: every later row multiplies a row's weight by it.",
        panel=MODEL,
        show_default="1, nothing is forgotten",
        same=(None, 1.0),
        rule=FACTOR,
    )
    half_life: float | str | None = option(  # rows, or a span of time
        None,
        "Number of rows, or span of --time (30D, 12h), after which a weight has halved (instead of "
        "--forget).",
        panel=MODEL,
        parse=partial(number_of_rows, "--half-life", kind=float),
        metavar="ROWS|SPAN",
        rule=POSITIVE,
    )
    window: float | str | None = option(
        None,
        "Use only this many last rows (with --by, of the group), or those of the last span of "
        "--time (90D); with --forget or --half-life these rows fade.",
        panel=MODEL,
        parse=partial(number_of_rows, "--window", kind=int),
        metavar="ROWS|SPAN",
        rule=ONE_ROW,
    )
    window_of: str | None = option(
        None,
        "What --window N counts: samples, the rows that can be learned, or positions, also those "
        "with a missing value.",
        panel=MODEL,
        show_default="samples",
        same=(None, "samples"),
        choices=("samples", "positions"),
    )
    min_samples: int | None = option(
        None,
        "Leave the coefficients of a row empty in --out until so many rows count (with --by, of "
        "the group; in the --window).",
        panel=MODEL,
        show_default="1",
        metavar="N",
        rule=ONE_ROW,
    )
    horizon: float | str | None = option(
        None,
        "After so many rows (with --by, of the group), or so long (24h), the target of a row is "
        "known: it is predicted from those known by then, and so are the errors and intervals.",
        panel=MODEL,
        parse=partial(number_of_rows, "--horizon", kind=int),
        show_default="1, the next row",
        metavar="ROWS|SPAN",
        compared=lambda horizon: None if horizon == 1 else horizon,
        same=(None, 1),
        rule=ONE_ROW,
    )
    ridge: float | None = option(  # 0, or in a resumed run that of the state
        None,
        "Penalty on squared coefficients, in units of the regressors squared; 0 is ordinary least "
        "squares.",
        panel=MODEL,
        show_default="0, or in a resumed run the state's",
        compared=lambda ridge: ridge or 0.0,
        rule=NOT_NEGATIVE,
    )
    ridge_mode: str = option(
        "discounted",
        "discounted: the ridge is forgotten with the data; fixed: it stays.",
        panel=MODEL,
        choices=("discounted", "fixed"),
    )
    intercept: bool = option(
        True,
        "Leave out the intercept.",
        "--no-intercept",
        argument="no_intercept",
        panel=MODEL,
        parse=operator.not_,
        text=bool,
        compared=operator.not_,
        restored=operator.not_,
    )
    noise_variance: float | None = option(
        None,
        "Variance of the noise, where it is known: for stderr and interval of --columns.",
        panel=MODEL,
        show_default="estimated",
        rule=POSITIVE,
    )
    cov: str | None = option(
        None,
        "What standard errors mean: nonrobust or sandwich; with --window nonrobust, HC0 to HC3, or "
        "HAC.",
        panel=MODEL,
        show_default="nonrobust, or sandwich with forgetting or weights",
    )
    maxlags: int | None = option(
        None,
        "Rows over which the noise is correlated (--cov HAC).",
        panel=MODEL,
        show_default="4 (n / 100)^(2/9) of n rows",
        metavar="N",
        rule=NO_ROW,
    )
    method: str = option(
        "auto",
        "Form of the state: auto, covariance, sqrt or information.",
        panel=MODEL,
        choices=("auto", "covariance", "sqrt", "information"),
    )
    missing: str = option(
        "skip",
        "Rows with an empty cell, NA or NaN: skip or raise.",
        panel=MODEL,
        choices=("skip", "raise"),
    )
    out: Path | None = option(
        None,
        "File for the prediction, residual and coefficients of every row (.csv or .parquet).",
        panel=RESULTS,
        compared=lambda out: None if out is None else out.suffix,
        each_run=True,
        endings=FORMATS,
    )
    columns: tuple[str, ...] = option(
        DEFAULT_GROUPS,
        "Contents of --out: any of prediction, interval (lower, upper: for the row's target, "
        "before it was learned), residual, coef, stderr (of the coefficients), sigma (of the "
        "noise), statistics.",
        panel=RESULTS,
        parse=lambda parts: DEFAULT_GROUPS if parts is None else split_names(parts),
        several=True,
        show_default=",".join(DEFAULT_GROUPS),
        metavar="WHAT",
        each_run=True,
    )
    statistics: bool = option(
        False,
        "Add to --out the R-squared, adjusted R-squared, number of rows and in-sample residual of "
        "every row's estimate, and t, p and confidence interval of its coefficients (--columns "
        "statistics).",
        "--statistics",
        panel=RESULTS,
        compared=None,
    )
    level: float = option(
        0.95,
        "Probability that a target lies in its interval (--columns interval), and a coefficient in "
        "its own (--statistics).",
        panel=RESULTS,
        each_run=True,
        rule=PROBABILITY,
    )
    plot: Path | None = option(
        None,
        "File for the figure of coefficients, errors and CUSUM (.png, .pdf or .svg); one for every "
        "target.",
        panel=RESULTS,
        compared=lambda plot: plot is not None,
        each_run=True,
        endings=FIGURES,
    )
    state: Path | None = option(
        None,
        "Keep a checkpoint in this file, so that the run can be resumed.",
        panel=STOPPING,
        compared=None,
    )
    resume: bool = option(
        False,
        "Resume from --state; the results are those of a run without a stop, to the byte.",
        "--resume",
        panel=STOPPING,
        compared=None,
    )
    continued: bool = option(
        False,
        "Learn DATA as rows that follow those of --state: a new table, whose columns and options "
        "are the state's.",
        "--continue",
        panel=STOPPING,
        compared=None,
    )
    checkpoint_every: float = option(
        5.0,
        "Seconds between two checkpoints.",
        panel=STOPPING,
        compared=None,
        rule=NOT_NEGATIVE,
    )
    chunk_rows: int | None = option(
        None,
        "Rows that are learned at a time.",
        panel=READING,
        compared=None,
        show_default="64 to 16384, by the number of columns; up to 262144 of many groups",
        rule=ONE_ROW,
    )
