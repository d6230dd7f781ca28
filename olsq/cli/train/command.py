"""The command ``olsq train`` and its options; the implementation is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def train(
    context: typer.Context,
    text: Annotated[
        Path | None,
        typer.Argument(
            help="A text file, bytes of any encoding; or a folder of tokens that "
            "olsq.train.write_tokens wrote.",
            show_default="two novels by Jane Austen that ship with olsq",
            metavar="TEXT",
        ),
    ] = None,
    tokenizer: Annotated[
        str,
        typer.Option(
            help="bytes; bpe:N: N tokens, byte pairs merged by their frequency in the training "
            "part; or a tokenizer.json of Hugging Face (needs the library tokenizers).",
            rich_help_panel="Text",
        ),
    ] = "bytes",
    validation: Annotated[
        float,
        typer.Option(
            help="Share of the text, at its end, held out from training.", rich_help_panel="Text"
        ),
    ] = 0.1,
    length: Annotated[
        int, typer.Option(help="Tokens in a sequence.", rich_help_panel="Text")
    ] = 256,
    mixer: Annotated[
        str,
        typer.Option(
            help="mesa, gla, softmax, ...; several, separated by commas, take turns: hawk,mesa.",
            rich_help_panel="Model",
        ),
    ] = "mesa",
    solver: Annotated[
        str | None,
        typer.Option(
            help="Solver of mixers that solve a regression: chunk-exact, cg:30, "
            "cg:max_steps=30,tol=1e-4, chebyshev:20, neumann:8, recursive, dense.",
            show_default="the mixer's own",
            rich_help_panel="Model",
        ),
    ] = None,
    mixer_option: Annotated[
        list[str] | None,
        typer.Option(
            help="An option of a mixer: mesa.ridge_floor=0.1. May be given several times.",
            metavar="MIXER.NAME=VALUE",
            rich_help_panel="Model",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="1m, 5m, 140m, 440m or 940m: --dim, --blocks, --heads and --key-size by name.",
            rich_help_panel="Model",
        ),
    ] = None,
    dim: Annotated[
        int, typer.Option(help="Width of the residual stream.", rich_help_panel="Model")
    ] = 128,
    blocks: Annotated[int, typer.Option(help="Number of blocks.", rich_help_panel="Model")] = 4,
    heads: Annotated[int, typer.Option(help="Heads of a mixer.", rich_help_panel="Model")] = 4,
    key_size: Annotated[
        int | None,
        typer.Option(
            help="Width of a head's keys and values.",
            show_default="dim / heads",
            rich_help_panel="Model",
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="float32 or bfloat16: activations. Weights and solves are float32.",
            rich_help_panel="Model",
        ),
    ] = "float32",
    dropout: Annotated[
        float,
        typer.Option(
            help="Rate at which embeddings and what blocks add are dropped, in training only.",
            rich_help_panel="Model",
        ),
    ] = 0.0,
    remat: Annotated[
        str,
        typer.Option(
            help="none, dots or full: what the backward pass recomputes to save memory.",
            rich_help_panel="Model",
        ),
    ] = "none",
    batch: Annotated[
        int, typer.Option(help="Sequences in a step.", rich_help_panel="Training")
    ] = 16,
    accumulate: Annotated[
        int,
        typer.Option(
            help="Parts in which a batch is computed, to save memory.", rich_help_panel="Training"
        ),
    ] = 1,
    devices: Annotated[
        int,
        typer.Option(help="Devices that share the rows of a batch.", rich_help_panel="Training"),
    ] = 1,
    steps: Annotated[
        int, typer.Option(help="Updates of the weights.", rich_help_panel="Training")
    ] = 1000,
    lr: Annotated[
        float,
        typer.Option(
            help="Peak learning rate; it ends at a tenth of it.", rich_help_panel="Training"
        ),
    ] = 1e-3,
    warmup: Annotated[
        int | None,
        typer.Option(
            help="Steps in which the learning rate rises.",
            show_default="steps / 10, at most 2000",
            rich_help_panel="Training",
        ),
    ] = None,
    weight_decay: Annotated[
        float,
        typer.Option(help="Weight decay of AdamW, on matrices only.", rich_help_panel="Training"),
    ] = 0.1,
    clip: Annotated[
        float, typer.Option(help="Largest norm of a gradient.", rich_help_panel="Training")
    ] = 1.0,
    z_loss: Annotated[
        float,
        typer.Option(
            help="Factor of the mean of log(Z)^2, added to the loss; 1e-4 keeps logits from "
            "drifting.",
            rich_help_panel="Training",
        ),
    ] = 0.0,
    average: Annotated[
        float | None,
        typer.Option(
            help="Evaluate and save an exponential moving average of the weights: .999.",
            show_default="the weights themselves",
            rich_help_panel="Training",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the initial weights and the order of the data.",
            rich_help_panel="Training",
        ),
    ] = 0,
    out: Annotated[
        Path,
        typer.Option(
            help="Directory for the checkpoint, the log, the figures and the model.",
            rich_help_panel="Results",
        ),
    ] = Path("olsq-run"),
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            help="Steps between two validation losses.",
            show_default="steps / 20",
            rich_help_panel="Results",
        ),
    ] = None,
    sample: Annotated[
        int,
        typer.Option(help="Tokens of the sample at the end; 0: none.", rich_help_panel="Results"),
    ] = 300,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Options from a TOML file, such as the config.toml of another run; those given on "
            "the command line come first.",
            rich_help_panel="Results",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Resume from the checkpoint in --out; the weights are those of a run without a "
            "stop.",
            rich_help_panel="Stopping and resuming",
        ),
    ] = False,
    checkpoint_every: Annotated[
        float,
        typer.Option(
            help="Seconds between two checkpoints.", rich_help_panel="Stopping and resuming"
        ),
    ] = 60.0,
) -> None:
    """Train a language model on a text, with any mixer of olsq.nn in the same backbone.

    Ctrl-C saves a checkpoint; the same command with --resume continues. Every run writes its
    options to config.toml in --out, from which --config repeats it.
    """
    from olsq.cli.train.config import gather
    from olsq.cli.train.train import run_train

    given = {
        name: value
        for name, value in context.params.items()
        if getattr(context.get_parameter_source(name), "name", "") != "DEFAULT"
    }
    run_train(gather(given), Console(), Console(stderr=True))
