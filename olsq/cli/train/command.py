"""The command ``olsq train`` and its options; the implementation is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from olsq.cli.options import (
    CheckpointEveryOption,
    model_option,
    results_option,
    stopping_option,
    text_option,
    training_option,
)
from olsq.cli.train.options import TrainOptions


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
        text_option(
            help="bytes; bpe:N: N tokens, byte pairs merged by their frequency in the training "
            "part; or a tokenizer.json of Hugging Face (needs the library tokenizers)."
        ),
    ] = TrainOptions.tokenizer,
    validation: Annotated[
        float, text_option(help="Share of the text, at its end, held out from training.")
    ] = TrainOptions.validation,
    length: Annotated[int, text_option(help="Tokens in a sequence.")] = TrainOptions.length,
    mixer: Annotated[
        str,
        model_option(
            help="mesa, gla, softmax, ...; several, separated by commas, take turns: hawk,mesa."
        ),
    ] = TrainOptions.mixer,
    solver: Annotated[
        str | None,
        model_option(
            help="Solver of mixers that solve a regression: chunk-exact, cg:30, "
            "cg:max_steps=30,tol=1e-4, chebyshev:20, neumann:8, recursive, dense.",
            show_default="the mixer's own",
        ),
    ] = None,
    mixer_option: Annotated[
        list[str] | None,
        model_option(
            help="An option of a mixer: mesa.ridge_floor=0.1. May be given several times.",
            metavar="MIXER.NAME=VALUE",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        model_option(
            help="1m, 5m, 140m, 440m or 940m: --dim, --blocks, --heads and --key-size by name."
        ),
    ] = None,
    dim: Annotated[int, model_option(help="Width of the residual stream.")] = TrainOptions.dim,
    blocks: Annotated[int, model_option(help="Number of blocks.")] = TrainOptions.blocks,
    heads: Annotated[int, model_option(help="Heads of a mixer.")] = TrainOptions.heads,
    key_size: Annotated[
        int | None,
        model_option(help="Width of a head's keys and values.", show_default="dim / heads"),
    ] = None,
    dtype: Annotated[
        str, model_option(help="float32 or bfloat16: activations. Weights and solves are float32.")
    ] = TrainOptions.dtype,
    dropout: Annotated[
        float,
        model_option(
            help="Rate at which embeddings and what blocks add are dropped, in training only."
        ),
    ] = TrainOptions.dropout,
    remat: Annotated[
        str,
        model_option(help="none, dots or full: what the backward pass recomputes to save memory."),
    ] = TrainOptions.remat,
    batch: Annotated[int, training_option(help="Sequences in a step.")] = TrainOptions.batch,
    accumulate: Annotated[
        int, training_option(help="Parts in which a batch is computed, to save memory.")
    ] = TrainOptions.accumulate,
    devices: Annotated[
        int, training_option(help="Devices that share the rows of a batch.")
    ] = TrainOptions.devices,
    steps: Annotated[int, training_option(help="Updates of the weights.")] = TrainOptions.steps,
    lr: Annotated[
        float, training_option(help="Peak learning rate; it ends at a tenth of it.")
    ] = TrainOptions.lr,
    warmup: Annotated[
        int | None,
        training_option(
            help="Steps in which the learning rate rises.", show_default="steps / 10, at most 2000"
        ),
    ] = None,
    weight_decay: Annotated[
        float, training_option(help="Weight decay of AdamW, on matrices only.")
    ] = TrainOptions.weight_decay,
    clip: Annotated[float, training_option(help="Largest norm of a gradient.")] = TrainOptions.clip,
    z_loss: Annotated[
        float,
        training_option(
            help="Factor of the mean of log(Z)^2, added to the loss; 1e-4 keeps logits from "
            "drifting."
        ),
    ] = TrainOptions.z_loss,
    average: Annotated[
        float | None,
        training_option(
            help="Evaluate and save an exponential moving average of the weights: 0.999.",
            show_default="the weights themselves",
        ),
    ] = None,
    seed: Annotated[
        int, training_option(help="Seed of the initial weights and the order of the data.")
    ] = TrainOptions.seed,
    out: Annotated[
        Path,
        results_option(help="Directory for the checkpoint, the log, the figures and the model."),
    ] = TrainOptions.out,
    evaluate_every: Annotated[
        int | None,
        results_option(help="Steps between two validation losses.", show_default="steps / 20"),
    ] = None,
    sample: Annotated[
        int, results_option(help="Tokens of the sample at the end; 0: none.")
    ] = TrainOptions.sample,
    config: Annotated[
        Path | None,
        results_option(
            help="Options from a TOML file, such as the config.toml of another run; those given on "
            "the command line come first."
        ),
    ] = None,
    resume: Annotated[
        bool,
        stopping_option(
            "--resume",
            help="Resume from the checkpoint in --out; the weights are those of a run without a "
            "stop.",
        ),
    ] = False,
    checkpoint_every: CheckpointEveryOption = TrainOptions.checkpoint_every,
) -> None:
    """Train a language model on a text, with any mixer of olsq.nn in the same backbone.

    Ctrl-C saves a checkpoint; the same command with --resume continues. Every run writes its
    options to config.toml in --out, from which --config repeats it.
    """
    from olsq.cli.train.options import gather
    from olsq.cli.train.train import run_train

    explicit = {
        name: value
        for name, value in context.params.items()
        if getattr(context.get_parameter_source(name), "name", "") != "DEFAULT"
    }
    run_train(gather(explicit), Console(), Console(stderr=True))
