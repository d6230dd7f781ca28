"""The command ``olsq predict``, whose implementation is imported when it runs."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console

from olsq.cli.options import parse_values, takes
from olsq.cli.predict.options import PredictOptions


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
