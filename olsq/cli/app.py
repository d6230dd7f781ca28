"""Commands and options of ``olsq``, and how errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import olsq
from olsq.cli.errors import CommandError
from olsq.cli.train.command import train

EXIT_CODES = (
    "Exit codes: 0 done; 1 the run failed (a full disk, say); 2 the options or the data must be "
    "changed; 130 stopped by Ctrl-C; 143 stopped by SIGTERM."
)

app = typer.Typer(
    help="Online least squares: a regression solved again after every row.",
    epilog=EXIT_CODES,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def run(arguments: list[str]) -> int:
    """Run the command line; return its exit code.  Errors are one line on standard error."""
    try:
        result = app(arguments, standalone_mode=False, prog_name="olsq")
    except CommandError as error:
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped", 130)
    except BrokenPipeError:
        # The reader of our output (head, say) has gone: not an error, and nothing more to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 1)
    except Exception as error:
        # Typer's own errors (an unknown option, a value that is not a number) know their message;
        # anything else is a defect and keeps its traceback.
        if not hasattr(error, "format_message"):
            raise
        message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
        return _fail(message, getattr(error, "exit_code", 2))
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int) -> int:
    print(f"olsq: {' '.join(message.split())}", file=sys.stderr)
    return code


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"olsq {olsq.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def olsq_command(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Online least squares: a regression solved again after every row."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command(epilog=EXIT_CODES)
def demo(
    out: Annotated[
        Path, typer.Option(help="Where to save the figure (.png, .pdf or .svg).")
    ] = Path("olsq-demo.png"),
) -> None:
    """Watch two regressions move: US prices and money, and CO2 at Mauna Loa.

    Runs on data that ship with olsq, compares one-step-ahead errors with simple baselines, and
    saves a figure.
    """
    from olsq.cli.demo.demo import run_demo

    run_demo(out, Console())


@app.command(epilog=EXIT_CODES)
def fit(
    data: Annotated[
        str,
        typer.Argument(
            help="A .csv, .csv.gz or .parquet file of any size, or - for CSV on standard input.",
            show_default=False,
            metavar="DATA",
        ),
    ],
    target: Annotated[str, typer.Option(help="Column to predict.", show_default=False)],
    features: Annotated[
        list[str] | None,
        typer.Option(
            help="Regressors, separated by commas (may be given several times). "
            "Default: all other columns.",
            show_default=False,
            rich_help_panel="Model",
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(help="Column of row weights.", show_default=False, rich_help_panel="Model"),
    ] = None,
    forget: Annotated[
        float | None,
        typer.Option(
            help="Forgetting factor in [0, 1]: what a row's weight is multiplied by with every "
            "later row.",
            show_default="1, nothing is forgotten",
            rich_help_panel="Model",
        ),
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option(
            help="Rows after which a weight has halved (instead of --forget).",
            show_default=False,
            rich_help_panel="Model",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            help="Only the last N rows count (instead of --forget).",
            show_default=False,
            rich_help_panel="Model",
        ),
    ] = None,
    ridge: Annotated[
        float,
        typer.Option(
            help="Penalty on squared coefficients; 0 is ordinary least squares.",
            rich_help_panel="Model",
        ),
    ] = 1e-3,
    ridge_mode: Annotated[
        str,
        typer.Option(
            help="discounted: the ridge is forgotten with the data; fixed: it stays.",
            rich_help_panel="Model",
        ),
    ] = "discounted",
    no_intercept: Annotated[
        bool, typer.Option("--no-intercept", help="No intercept.", rich_help_panel="Model")
    ] = False,
    method: Annotated[
        str, typer.Option(help="auto, covariance, sqrt or information.", rich_help_panel="Model")
    ] = "auto",
    missing: Annotated[
        str,
        typer.Option(
            help="skip or raise: rows with an empty cell, NA or NaN.",
            rich_help_panel="Model",
        ),
    ] = "skip",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Prediction, residual and coefficients of every row (.csv or .parquet).",
            show_default=False,
            rich_help_panel="Results",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Figure of coefficients, errors and CUSUM (.png, .pdf or .svg).",
            show_default=False,
            rich_help_panel="Results",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Keep a checkpoint in this file, so that the run can be resumed.",
            show_default=False,
            rich_help_panel="Stopping and resuming",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from --state, to the same bytes as without the stop.",
            rich_help_panel="Stopping and resuming",
        ),
    ] = False,
    checkpoint_every: Annotated[
        float,
        typer.Option(
            help="Seconds between two checkpoints.", rich_help_panel="Stopping and resuming"
        ),
    ] = 5.0,
    chunk_rows: Annotated[
        int | None,
        typer.Option(
            help="Rows learned at a time.",
            show_default="64 to 16384, by the number of columns",
            rich_help_panel="Reading",
        ),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(
            help="Character between CSV cells.",
            show_default="the commonest of , ; tab | in the header",
            rich_help_panel="Reading",
        ),
    ] = None,
) -> None:
    """Fit a regression to a table in one pass, in constant memory.

    Every row is predicted before it is learned, so the errors printed at the end are honest
    one-step-ahead errors. Rows are numbered from 1, the header not counted.
    """
    from olsq.cli.fit.fit import run_fit
    from olsq.cli.fit.options import FitOptions

    names = None
    if features is not None:
        names = tuple(name.strip() for part in features for name in part.split(",") if name.strip())
    options = FitOptions(
        data=data, target=target, features=names, weight=weight, forget=forget,
        half_life=half_life, window=window, ridge=ridge, ridge_mode=ridge_mode,
        intercept=not no_intercept, method=method, missing=missing, out=out, plot=plot,
        state=state, resume=resume, separator=separator, chunk_rows=chunk_rows,
        checkpoint_every=checkpoint_every,
    )  # fmt: skip
    run_fit(options, Console(), Console(stderr=True))


app.command(epilog=EXIT_CODES)(train)
