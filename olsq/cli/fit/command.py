"""The command ``olsq fit``, whose implementation is imported when it runs."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console

from olsq.cli.fit.options import FitOptions
from olsq.cli.options import takes, typed_fields


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
