"""The commands ``olsq sample`` and ``olsq chat``; what they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

RunArgument = Annotated[
    Path,
    typer.Argument(
        help="Directory of a run: the --out of olsq train.", show_default=False, metavar="RUN"
    ),
]
TemperatureOption = Annotated[
    float,
    typer.Option(
        help="Below 1 the likely becomes likelier; 0 takes the likeliest.",
        rich_help_panel="Sampling",
    ),
]
TopKOption = Annotated[
    int,
    typer.Option(
        help="Sample among this many tokens, the likeliest; 0: all.", rich_help_panel="Sampling"
    ),
]
TopPOption = Annotated[
    float | None,
    typer.Option(
        help="Sample among the fewest tokens that are this probable together.",
        show_default=False,
        rich_help_panel="Sampling",
    ),
]
MinPOption = Annotated[
    float | None,
    typer.Option(
        help="Sample among tokens at least this times as likely as the likeliest.",
        show_default=False,
        rich_help_panel="Sampling",
    ),
]
PenaltyOption = Annotated[
    float | None,
    typer.Option(
        help="Above 1, tokens that were there before become less likely.",
        show_default=False,
        rich_help_panel="Sampling",
    ),
]
SeedOption = Annotated[
    int, typer.Option(help="Of what is drawn: the same gives the same.", rich_help_panel="Sampling")
]


def sample(
    run: RunArgument,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to go on from; several are read together. - is standard input.",
            show_default="standard input, if it is not a terminal",
            metavar="TEXT",
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(help="Tokens of a sample, at most.")] = 300,
    samples: Annotated[int, typer.Option(help="Samples of each prompt.")] = 1,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            help="A sample ends after this text; several may be given.",
            show_default=False,
            metavar="TEXT",
        ),
    ] = None,
    temperature: TemperatureOption = 0.8,
    top_k: TopKOption = 40,
    top_p: TopPOption = None,
    min_p: MinPOption = None,
    repetition_penalty: PenaltyOption = None,
    seed: SeedOption = 0,
) -> None:
    """Continue a text with a model that olsq train has made.

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


def chat(
    run: RunArgument,
    tokens: Annotated[int, typer.Option(help="Tokens of an answer, at most.")] = 300,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            help="An answer ends after this text; several may be given.",
            show_default="the end of the line",
            metavar="TEXT",
        ),
    ] = None,
    temperature: TemperatureOption = 0.8,
    top_k: TopKOption = 40,
    top_p: TopPOption = None,
    min_p: MinPOption = None,
    repetition_penalty: PenaltyOption = None,
    seed: SeedOption = 0,
) -> None:
    """Write line by line with a model that olsq train has made.

    The model reads a line, writes one, and remembers both: its state goes from turn to turn, so
    that nothing is read twice. Ctrl-C ends an answer, Ctrl-D the conversation. Lines may come from
    a pipe.
    """
    from olsq.cli.sample.chat import run_chat
    from olsq.cli.sample.options import SampleOptions

    options = SampleOptions(
        run=run, tokens=tokens, stop=("\n",) if stop is None else tuple(stop),
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        repetition_penalty=repetition_penalty, seed=seed,
    )  # fmt: skip
    run_chat(options, Console(stderr=True))
