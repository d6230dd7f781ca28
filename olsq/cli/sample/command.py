"""The command ``olsq sample``; its implementation is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from olsq.cli.options import sampling_option
from olsq.cli.sample.options import SampleOptions


def sample(
    run: Annotated[
        Path,
        typer.Argument(
            help="Directory of a run: the --out of olsq train.", show_default=False, metavar="RUN"
        ),
    ],
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to continue; may be given several times. - reads standard input.",
            show_default="standard input, if it is not a terminal",
            metavar="TEXT",
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option(help="Maximum number of tokens of a sample.")
    ] = SampleOptions.tokens,
    samples: Annotated[int, typer.Option(help="Samples of each prompt.")] = SampleOptions.samples,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            help="End a sample after this text; may be given several times.",
            show_default=False,
            metavar="TEXT",
        ),
    ] = None,
    temperature: Annotated[
        float,
        sampling_option(
            help="Divides the logits: below 1 favours likely tokens, 0 takes the likeliest."
        ),
    ] = SampleOptions.temperature,
    top_k: Annotated[
        int, sampling_option(help="Sample among this many of the likeliest tokens; 0: all.")
    ] = SampleOptions.top_k,
    top_p: Annotated[
        float | None,
        sampling_option(
            help="Sample among the fewest tokens whose probabilities add up to this.",
            show_default=False,
        ),
    ] = None,
    min_p: Annotated[
        float | None,
        sampling_option(
            help="Sample among tokens at least this many times as likely as the likeliest.",
            show_default=False,
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        sampling_option(
            help="Above 1, tokens that already occurred become less likely.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, sampling_option(help="Seed of the random draws.")] = SampleOptions.seed,
) -> None:
    """Continue a text with a model trained by olsq train.

    One sample appears as it is drawn; several are printed one after the other.
    """
    from olsq.cli.sample.options import SampleOptions
    from olsq.cli.sample.sample import run_sample

    options = SampleOptions(
        run=run, prompt=tuple(prompt or ()), tokens=tokens, samples=samples,
        stop=tuple(stop or ()), temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        repetition_penalty=repetition_penalty, seed=seed,
    )  # fmt: skip
    run_sample(options, Console(stderr=True))
