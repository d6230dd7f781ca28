"""Options of the commands, by the panel of ``--help`` in which they are listed."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

text_option = partial(typer.Option, rich_help_panel="Text")
model_option = partial(typer.Option, rich_help_panel="Model")
training_option = partial(typer.Option, rich_help_panel="Training")
sampling_option = partial(typer.Option, rich_help_panel="Sampling")
results_option = partial(typer.Option, rich_help_panel="Results")
stopping_option = partial(typer.Option, rich_help_panel="Stopping and resuming")
reading_option = partial(typer.Option, rich_help_panel="Reading")

CheckpointEveryOption = Annotated[float, stopping_option(help="Seconds between two checkpoints.")]
