"""The command-line application: its commands, and errors as one line and an exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import olsq
from olsq.cli.errors import CommandError, InputError, printable
from olsq.cli.fit.options import FitOptions
from olsq.cli.options import parse_values, takes, typed_fields
from olsq.cli.predict.options import PredictOptions


def compile_(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            help="streams, windows, variants, banks, sequences, compiled, polars.",
            show_default=False,
            metavar="PARTS",
        ),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every part whose libraries are installed.")
    ] = False,
) -> None:
    """Compile what first calls would, and keep it on disk.

    For images of containers and systems that cannot be written later; set NUMBA_CACHE_DIR for a
    folder of your choice. Name the parts that you use, or take --all.
    """
    from olsq.compiling import compile_kernels
    from olsq.progress import make_progress

    if bool(parts) == all_:
        raise InputError(
            "name parts or take --all, not both" if all_ else "name the parts to compile, or --all"
        )
    console = Console(stderr=True)
    with make_progress(console) as bar:
        task = bar.add_task("compiling", total=1)

        def show(name: str, done: int, steps: int) -> None:
            bar.update(task, description=name or "compiled", completed=done, total=steps)

        try:
            compiled = compile_kernels(*parts or (), progress=show)
        except (ValueError, ImportError) as error:
            raise InputError(str(error)) from None
    print(f"{compiled.files} files of compiled code in {compiled.folder}")


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
    """Run the command line and return its exit code; errors are one line on standard error."""
    code = _run(arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would flush again when it exits, and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return code
        if not code:
            return _fail(f"cannot write to standard output: {error.strerror}", 1)
    return code


def _run(arguments: list[str]) -> int:
    """Run the command line and return its exit code, before standard output is flushed."""
    try:
        result = app(arguments, standalone_mode=False, prog_name="olsq")
    except SystemExit as error:
        # Typer exits with 1 where the reader of our output (head, say) has gone: not an error.
        if isinstance(error.__context__, BrokenPipeError):
            return 0
        raise
    except CommandError as error:
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped", 130)
    except BrokenPipeError:
        return 0
    except OSError as error:
        return _fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 1)
    except MemoryError as error:
        reason = str(error) or "an array could not be made"
        advice = "take fewer columns or groups, or a shorter --window"
        return _fail(f"there is not enough memory: {reason}; {advice}", 1)
    except Exception as error:
        # Typer's own errors (an unknown option, a value that is not a number) know their message;
        # anything else is a defect and keeps its traceback.
        if not hasattr(error, "format_message"):
            raise
        message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
        return _fail(message, getattr(error, "exit_code", 2))
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int) -> int:
    # What a file holds (the names of its columns, say) must not move the terminal's cursor.
    text = printable(" ".join(message.split()))
    print(f"olsq: {text}", file=sys.stderr)
    return code


def _print_version(requested: bool) -> None:
    if requested:
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
@takes(FitOptions)
def fit(context: typer.Context, **arguments: Any) -> None:
    """Fit a regression to a table in one pass, in constant memory.

    Every row is predicted before it is learned, so the errors printed at the end are honest
    errors of forecasts, one row ahead or --horizon. Rows are numbered from 1, the header not
    counted.
    """
    from olsq.cli.fit.fit import run_fit

    options = FitOptions.from_arguments(arguments, typed_fields(FitOptions, context))
    run_fit(options, Console(), Console(stderr=True))


@app.command(epilog=EXIT_CODES)
@takes(PredictOptions)
def predict(context: typer.Context, **arguments: Any) -> None:
    """Predict new rows with a saved regression, which stays as it is.

    Columns are found by name; others are ignored. Where a value is missing the prediction is empty.
    With --lags the new rows follow those that were learned; where a target is missing, later rows
    use its prediction instead.
    """
    from olsq.cli.predict.predict import run_predict

    options = PredictOptions(**parse_values(PredictOptions, arguments))
    run_predict(options, Console(stderr=True))


app.command("compile", epilog=EXIT_CODES)(compile_)
