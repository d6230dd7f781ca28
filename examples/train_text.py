"""Train a language model on a text, with any mixer and solver of olsq.nn in the same backbone.

    pip install ".[nn]"
    python examples/train_text.py                              # two novels that ship with olsq
    python examples/train_text.py book.txt --out book --steps 5000 --lr 2e-3

Ctrl-C saves a checkpoint, and the same command with --resume goes on to the same bits.  Every run
writes its options to config.toml in --out, from which --config repeats it.  docs/training.md
describes the options; examples/sample_text.py continues texts with the model.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shlex
import signal
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

import olsq.nn
from olsq import solvers
from olsq.datasets import austen
from olsq.files import InUseError, locked, write_atomically
from olsq.nn.presets import PRESETS
from olsq.train import (
    CheckpointError,
    CheckpointMismatch,
    Corpus,
    CorpusTrainer,
    TrainConfig,
    TrainingError,
    make_tokenizer,
    open_tokens,
    sample_text,
    write_results,
)
from olsq.train.corpus import training_part
from olsq.train.token_files import is_token_folder

# Name on the command line, class of olsq.solvers, and the field that a bare number means.
SOLVERS = {
    "chunk-exact": ("ChunkExact", "chunk"),
    "cg": ("ConjugateGradient", "max_steps"),
    "chebyshev": ("Chebyshev", "steps"),
    "neumann": ("Neumann", "terms"),
    "recursive": ("Recursive", "chunk"),
    "dense": ("Dense", "chunk"),
}
# What makes the model and its tokens; a resumed run must have the same.
SETUP = ("mixer", "dim", "blocks", "heads", "key_size", "dtype", "tokenizer", "validation")
TRAINING = [f.name for f in dataclasses.fields(TrainConfig)]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: {message}\n")


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def make_parser() -> Parser:
    """Declare the options."""
    parser = Parser(
        "train_text.py", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    add = parser.add_argument
    add("text", nargs="?", type=Path, help="a text, or tokens of olsq.train.write_tokens")
    add("--tokenizer", default="bytes", help="bytes, bpe:N, or a tokenizer.json of Hugging Face")
    add("--validation", type=float, default=0.1, help="share of the text that is held out")
    add("--length", type=int, default=256, help="tokens in a sequence")
    add("--mixer", default="mesa", help="mesa, gla, ...; several take turns: hawk,mesa")
    add("--solver", help="chunk-exact, cg:30, cg:max_steps=30,tol=1e-4, chebyshev:20, ...")
    add("--mixer-option", action="append", default=[], help="mesa.ridge_floor=0.1; repeatable")
    add("--preset", choices=PRESETS, help="--dim, --blocks, --heads and --key-size by name")
    add("--dim", type=count, default=128, help="width of the residual stream")
    add("--blocks", type=count, default=4)
    add("--heads", type=count, default=4, help="heads of a mixer")
    add("--key-size", type=count, help="width of a head's keys and values; default dim / heads")
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of activations")
    add("--dropout", type=float, default=0.0)
    add("--remat", choices=("none", "dots", "full"), default="none", help="what is recomputed")
    add("--batch", type=int, default=16, help="sequences in a step")
    add("--accumulate", type=count, default=1, help="parts in which a batch is computed")
    add("--devices", type=count, default=1, help="devices that share the rows of a batch")
    add("--steps", type=int, default=1000, help="updates of the weights")
    add("--lr", type=float, default=1e-3, help="peak learning rate; it ends at a tenth of it")
    add("--warmup", type=int, help="steps in which the rate rises; default steps / 10")
    add("--weight-decay", type=float, default=0.1, help="of AdamW, on matrices only")
    add("--clip", type=float, default=1.0, help="largest norm of a gradient")
    add("--z-loss", type=float, default=0.0, help="factor of the mean of log(Z)^2 in the loss")
    add("--average", type=float, help="keep a moving average of the weights: 0.999")
    add("--seed", type=int, default=0, help="of the initial weights and the order of the data")
    add("--out", type=Path, default=Path("olsq-run"), help="directory for everything written")
    add("--evaluate-every", type=int, help="steps between two validation losses")
    add("--sample", type=int, default=300, help="tokens of the sample at the end; 0: none")
    add("--config", type=Path, help="options in a TOML file, before those of the command line")
    add("--resume", action="store_true", help="go on from the checkpoint in --out")
    add("--checkpoint-every", type=float, default=60.0, help="seconds between two checkpoints")
    return parser


PARSER = make_parser()


def read_options(arguments: list[str]) -> argparse.Namespace:
    """Return the options: defaults, the preset of the file, the file, --preset, the others."""
    typed = PARSER.parse_args(arguments)
    text, written = (None, []) if typed.config is None else read_config(typed.config)
    presets = PARSER.parse_args(written).preset, typed.preset
    words = [*sizes_of(presets[0]), *written, *sizes_of(presets[1]), *arguments]
    options = PARSER.parse_args(words)
    options.text = typed.text or text
    if options.batch % (options.accumulate * options.devices):
        PARSER.error("--batch must be a multiple of --accumulate times --devices")
    return options


def sizes_of(preset: str | None) -> list[str]:
    """Return the options that a preset stands for."""
    sizes = {} if preset is None else PRESETS[preset]
    return [f"--{name.replace('_', '-')}={value}" for name, value in sizes.items()]


def read_config(path: Path) -> tuple[Path | None, list[str]]:
    """Read a TOML file: the text that it names, and its other options as command-line words."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        PARSER.error(f"cannot read {path}: {error}")
    text = values.pop("text", None)
    tables = values.pop("mixer_options", {})
    words = [
        f"--mixer-option={mixer}.{name}={json.dumps(value)}"
        for mixer, table in tables.items()
        for name, value in table.items()
    ]
    for name, value in values.items():
        each = value if isinstance(value, list) else [value]
        words += [f"--{name.replace('_', '-')}={one}" for one in each]
    return None if text is None else Path(text), words


def write_config(options: argparse.Namespace) -> str:
    """Write the options as TOML, with paths that are valid from any directory."""
    lines = ["# Make the run again with: train_text.py --config config.toml"]
    for name, value in vars(options).items():
        if isinstance(value, Path) or (name == "tokenizer" and value.endswith(".json")):
            value = str(Path(value).absolute())
        if name not in ("config", "resume", "preset") and value not in (None, []):
            lines.append(f"{name} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def mixer_options(texts: list[str]) -> dict[str, dict[str, Any]]:
    """Return ``mesa.ridge_floor=0.1`` and others as options by mixer; values are TOML or text."""
    options: dict[str, dict[str, Any]] = {}
    for text in texts:
        place, _, value = text.partition("=")
        mixer, _, name = place.strip().partition(".")
        if not (mixer and name and value.strip()):
            PARSER.error(f"--mixer-option must look like mesa.ridge_floor=0.1, got {text!r}")
        options.setdefault(mixer, {})[name] = toml_or_text(value.strip())
    return options


def toml_or_text(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def make_solver(text: str) -> Any:
    """Make the solver that ``cg:30`` or ``cg:max_steps=30,tol=1e-4`` describes."""
    name, _, settings = text.partition(":")
    if name not in SOLVERS:
        PARSER.error(f"--solver: unknown solver {name!r}; known are {', '.join(SOLVERS)}")
    kind, main_field = SOLVERS[name]
    pairs = [part.rpartition("=") for part in settings.split(",") if part]
    fields = {key.strip() or main_field: toml_or_text(value.strip()) for key, _, value in pairs}
    try:
        return solvers.SOLVERS[kind](**fields)
    except (TypeError, ValueError) as error:
        PARSER.error(f"--solver {text}: {error}")


def read_data(options: argparse.Namespace) -> tuple[Corpus, Any, float]:
    """Return the corpus, its tokenizer, and the bytes of validation text per token."""
    if options.text is not None and is_token_folder(options.text):
        tokens = open_tokens(options.text)
        if tokens.tokenizer is None or options.tokenizer not in ("bytes", tokens.tokenizer.name):
            PARSER.error(f"--tokenizer {options.tokenizer} is not that of {options.text}")
        corpus = Corpus.split(tokens, options.validation)
        return corpus, tokens.tokenizer, tokens.bytes_per_token
    content = austen().encode() if options.text is None else options.text.read_bytes()
    first = training_part(content, options.validation)
    tokenizer = make_tokenizer(options.tokenizer, first)  # merges are learned on this part only
    corpus = Corpus.from_text(content, tokenizer, options.validation)
    return corpus, tokenizer, (len(content) - len(first)) / max(len(corpus.validation), 1)


def make_trainer(options: argparse.Namespace) -> tuple[CorpusTrainer, float]:
    """Return the trainer before its first step and the bytes per token; nothing is written."""
    solver = None if options.solver is None else make_solver(options.solver)
    mixers = [name.strip() for name in options.mixer.split(",")]
    known = {name: kind for name, kind in olsq.nn.MIXERS.items() if name in mixers}
    if solver is not None and len(known) and not any(kind.solves() for kind in known.values()):
        PARSER.error(f"--solver: {options.mixer} does not solve a regression")
    of_mixers, mesh = mixer_options(options.mixer_option), None
    if options.devices > 1:
        devices = jax.devices()[: options.devices]
        if len(devices) < options.devices:
            PARSER.error(f"--devices is {options.devices}, but JAX has {len(devices)}")
        mesh = jax.sharding.Mesh(np.array(devices), ("data",))
    config = {name: getattr(options, name) for name in TRAINING if hasattr(options, name)}
    setup = {name: getattr(options, name) for name in SETUP} | {"mixer": ",".join(mixers)}
    setup |= {"dropout": options.dropout} if options.dropout else {}
    setup |= {"mixer_options": of_mixers} if of_mixers else {}
    corpus, tokenizer, bytes_per_token = read_data(options)
    model = olsq.nn.LanguageModel(
        tokenizer.vocab_size, dim=options.dim, blocks=options.blocks, heads=options.heads,
        key_size=options.key_size, mixer=mixers, solver=solver, mixer_options=of_mixers,
        dropout=options.dropout, dtype=options.dtype, remat=options.remat,
        key=jax.random.key(options.seed),
    )  # fmt: skip
    trainer = CorpusTrainer(
        model, corpus, TrainConfig(**config), directory=options.out, tokenizer=tokenizer,
        setup={**setup, "solver": None if solver is None else repr(solver)},
        checkpoint_every=options.checkpoint_every, mesh=mesh,
    )  # fmt: skip
    return trainer, bytes_per_token


def resume(options: argparse.Namespace, trainer: CorpusTrainer) -> None:
    """Move the trainer to the checkpoint in --out."""
    try:
        trainer.resume()
    except CheckpointMismatch as error:
        changes = [
            "the text has changed" if name == "the text"
            else f"--{name.replace('_', '-')} was {old} and is {new}"
            for name, (old, new) in error.differences.items()
        ]  # fmt: skip
        PARSER.error(f"cannot resume: {'; '.join(changes)}")
    print(f"going on after step {trainer.step:,}", file=sys.stderr)


@contextmanager
def noted_signals() -> Any:
    """Yield a list that takes Ctrl-C and SIGTERM; the second one raises KeyboardInterrupt."""
    received: list[int] = []

    def note(signum: int, frame: Any) -> None:
        received.append(signum)
        if len(received) > 1:
            raise KeyboardInterrupt

    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def show(trainer: CorpusTrainer, record: Any, begun: tuple[float, int]) -> None:
    """Print a line for a step that was skipped or evaluated."""
    if record.skipped:
        print(f"step {record.step:,} skipped: not finite", file=sys.stderr)
    if record.validation_loss is not None:
        tokens = (record.step - begun[1]) * trainer.config.batch * trainer.config.length
        print(
            f"step {record.step:,}/{trainer.steps:,}  training {record.loss:.3f}  validation "
            f"{record.validation_loss:.3f}  {tokens / (time.perf_counter() - begun[0]):,.0f} "
            "tokens/s",
            file=sys.stderr,
        )


def train(options: argparse.Namespace, trainer: CorpusTrainer) -> int:
    """Train to the last step and return 0, or 128 + the signal that stopped the run."""
    write_atomically(options.out / "config.toml", write_config(options).encode())
    begun = time.perf_counter(), trainer.step
    with noted_signals() as received:
        for record in trainer.run():
            show(trainer, record, begun)
            if received:
                trainer.save()
                command = shlex.join([*sys.argv, *([] if options.resume else ["--resume"])])
                print(
                    f"stopped after step {trainer.step:,}; go on with: python {command}",
                    file=sys.stderr,
                )
                return 128 + received[0]
    return 0


def report(options: argparse.Namespace, trainer: CorpusTrainer, bytes_per_token: float) -> None:
    """Evaluate and save the model, and print the scores, the files and a sample."""
    evaluation, model = trainer.evaluate(), trainer.averaged
    solver = "" if options.solver is None else f", {options.solver}"
    title = f"{options.mixer}{solver}, {options.blocks} blocks of {options.dim}"
    olsq.nn.save(options.out / "model.safetensors", model)
    files = write_results(options.out, trainer.log, evaluation, title=title)
    bins = evaluation.binned()
    print(f"{title}, {olsq.nn.count_parameters(model):,} parameters")
    print(f"loss, nats per token     {evaluation.loss:.4f}")
    print(f"perplexity               {evaluation.perplexity:.3f}")
    print(f"  at positions {bins.first[-1]:,} to {bins.last[-1]:,}: {math.exp(bins.loss[-1]):.3f}")
    print(f"bits per byte            {evaluation.loss / bytes_per_token / math.log(2):.3f}")
    print(*files, *(options.out / n for n in ("model.safetensors", "log.csv")), sep="\n")
    if options.sample:
        prompt = trainer.tokenizer.decode(trainer.corpus.validation[:200])[:200]
        prompt = prompt[: prompt.rfind(" ") + 1] or prompt
        text = sample_text(model, trainer.tokenizer, prompt, options.sample, seed=options.seed)
        shown = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in prompt + text)
        print(f"\nSample (its beginning is from the validation part)\n\n{shown}")


def main(arguments: list[str] | None = None) -> int:
    """Run the script and return its exit code; what cannot be used is one line and code 2."""
    options = read_options(sys.argv[1:] if arguments is None else arguments)
    if not options.resume and (options.out / "checkpoint.safetensors").exists():
        PARSER.error(f"{options.out} holds a checkpoint: add --resume, or choose another --out")
    try:
        trainer, bytes_per_token = make_trainer(options)
        options.out.mkdir(exist_ok=True)
        with locked(options.out):
            if options.resume:
                resume(options, trainer)
            if code := train(options, trainer):
                return code
            report(options, trainer, bytes_per_token)
    except (ValueError, TypeError, ImportError, OSError, CheckpointError, InUseError) as error:
        PARSER.error(str(error))
    except TrainingError as error:
        PARSER.exit(1, f"{PARSER.prog}: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
