"""The command ``olsq sample`` and its options, checked before a model is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from olsq.cli.errors import InputError, option_name
from olsq.cli.options import sampling_option


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Options of ``olsq sample`` under their names on the command line."""

    run: Path
    tokens: int = 300
    temperature: float = 0.8
    top_k: int = 40
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop: tuple[str, ...] = ()
    seed: int = 0
    prompt: tuple[str, ...] = ()
    samples: int = 1

    def check(self) -> None:
        """Raise InputError, naming the option, for a value that cannot be used."""
        for name, least in (("tokens", 1), ("samples", 1), ("seed", 0), ("top_k", 0)):
            if (value := getattr(self, name)) < least:
                raise InputError(f"{option_name(name)} must be at least {least}, got {value}")
        if not 0 <= self.temperature < math.inf:
            raise InputError(
                f"--temperature must be >= 0 and finite (0 takes the likeliest), got "
                f"{self.temperature:g}"
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"--top-p must lie in (0, 1], got {self.top_p:g}")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise InputError(f"--min-p must lie in [0, 1], got {self.min_p:g}")
        penalty = self.repetition_penalty
        if penalty is not None and not 0 < penalty < math.inf:
            raise InputError(
                f"--repetition-penalty must be a positive number (1: none), got {penalty:g}"
            )
        if "" in self.stop:
            raise InputError("--stop must hold at least one character")
        if not self.run.is_dir():
            raise InputError(f"{self.run} is not a directory: give the --out of olsq train")

    def sampling(self, vocab_size: int) -> dict[str, Any]:
        """Return the options of :func:`olsq.nn.generate`."""
        return {
            "temperature": self.temperature,
            "top_k": min(self.top_k, vocab_size) or None,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
        }


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
    from olsq.cli.sample.sample import run_sample

    options = SampleOptions(
        run=run,
        prompt=tuple(prompt or ()),
        tokens=tokens,
        samples=samples,
        stop=tuple(stop or ()),
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    run_sample(options, Console(stderr=True))
