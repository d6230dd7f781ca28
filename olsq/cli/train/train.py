"""``olsq train``: a language model from a text, stopped and resumed anywhere."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console

from olsq.cli.errors import CommandError, InputError, Interrupted
from olsq.cli.interrupts import Interrupts
from olsq.cli.libraries import check_libraries
from olsq.cli.train.options import TrainOptions, option
from olsq.cli.train.report import StepProgress, print_report

if TYPE_CHECKING:
    from olsq.train import Corpus, Trainer
    from olsq.train.tokenizers import Tokenizer

MODEL = "model.safetensors"
# Name on the command line, class of olsq.solvers, and the field a bare number means.
SOLVERS = {
    "chunk-exact": ("ChunkExact", "chunk"),
    "cg": ("ConjugateGradient", "max_steps"),
    "chebyshev": ("Chebyshev", "steps"),
    "neumann": ("Neumann", "terms"),
    "recursive": ("Recursive", "chunk"),
    "dense": ("Dense", "chunk"),
}


def run_train(options: TrainOptions, console: Console, progress_console: Console) -> None:
    """Do what ``olsq train`` was asked; results go to ``console``, progress to the other.

    Raises
    ------
    InputError
        If the options, the text or the checkpoint must be changed.
    Interrupted
        After Ctrl-C or SIGTERM, with a checkpoint.
    CommandError
        If the run failed for another reason, a full disk for example.
    """
    options.check()
    check_libraries("train", "equinox", "optax", "safetensors")
    trainer, content = prepare(options)
    from olsq.train import CheckpointError, TrainingError

    if trainer.step:
        progress_console.print(f"going on after step {trainer.step:,}")
    elif options.resume:
        progress_console.print(f"{trainer.checkpoint_path} does not exist yet: from step 1")
    progress = StepProgress(progress_console, trainer)
    try:
        with Interrupts() as interrupts, progress:
            for record in trainer.run():
                progress.update(record)
                if interrupts.signum is not None:
                    _stop(options, trainer, interrupts.signum)
        # From here on everything can be made again from the checkpoint.
        _finish(options, trainer, content, progress.speed, console, progress_console)
    except CheckpointError as error:
        raise InputError(str(error)) from None
    except TrainingError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.strerror}: {error.filename or 'writing failed'}") from None


def prepare(options: TrainOptions) -> tuple[Trainer, bytes]:
    """The trainer, brought to where its checkpoint is, and the text; nothing is written."""
    from olsq.train import CheckpointError, CheckpointMismatch, Corpus, Trainer, make_tokenizer

    config = options.config()
    content = options.read()
    solver = None if options.solver is None else make_solver(options.solver)
    try:
        tokenizer = make_tokenizer(options.tokenizer, content)
    except ValueError as error:
        raise InputError(f"--tokenizer: {error}") from None
    try:
        corpus = Corpus.split(tokenizer.encode(content), options.validation)
        corpus.check(config.length)
        model = _make_model(options, tokenizer.vocab_size, solver)
        trainer = Trainer(
            model, corpus, config, directory=options.out, tokenizer=tokenizer,
            setup=options.setup(solver), checkpoint_every=options.checkpoint_every,
        )  # fmt: skip
    except ValueError as error:
        raise InputError(str(error)) from None
    if not options.resume and (options.out / "checkpoint.safetensors").exists():
        raise InputError(
            f"{options.out} holds a checkpoint: add --resume to go on from it, or choose another "
            "directory"
        )
    if options.resume:
        try:
            trainer.resume()
        except CheckpointMismatch as error:
            raise InputError(_explain(error.differences)) from None
        except CheckpointError as error:
            raise InputError(str(error)) from None
        except OSError as error:
            raise InputError(f"cannot read {trainer.checkpoint_path}: {error.strerror}") from None
    return trainer, content


def make_solver(spec: str) -> Any:
    """The solver that ``cg:30`` or ``cg:max_steps=30,tol=1e-4`` means."""
    import dataclasses

    from olsq import solvers

    name, _, rest = spec.partition(":")
    if name not in SOLVERS:
        raise InputError(f"--solver: unknown solver {name!r}; known are {', '.join(SOLVERS)}")
    kind, main = SOLVERS[name]
    solver: Any = solvers.SOLVERS[kind]
    known = [field.name for field in dataclasses.fields(solver)]
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        key, value = (key.strip(), value.strip()) if equals else (main, key.strip())
        if key not in known:
            raise InputError(f"--solver: {name} has no {key!r}; it has {', '.join(known)}")
        given[key] = _value(value)
    try:
        return solver(**given)
    except (TypeError, ValueError) as error:
        raise InputError(f"--solver {spec}: {error}") from None


def _value(text: str) -> Any:
    """``text`` as the whole number, number or word that it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _make_model(options: TrainOptions, vocab_size: int, solver: Any) -> Any:
    import jax

    from olsq.nn import MIXERS, LanguageModel

    if unknown := [name for name in options.mixers if name not in MIXERS]:
        raise InputError(f"--mixer: unknown mixer {unknown[0]!r}; known are {', '.join(MIXERS)}")
    if solver is not None and not any(MIXERS[n].solves() for n in options.mixers):
        able = [name for name, kind in MIXERS.items() if kind.solves()]
        raise InputError(f"--solver is for {', '.join(able)}; {options.mixer} solves nothing")
    dtype: Any = options.dtype  # one of those that the model takes: it was checked
    return LanguageModel(
        vocab_size, dim=options.dim, blocks=options.blocks, heads=options.heads,
        key_size=options.key_size, mixer=options.mixers, solver=solver, dtype=dtype,
        key=jax.random.key(options.seed),
    )  # fmt: skip


def _explain(differences: dict[str, tuple[Any, Any]]) -> str:
    words = []
    for name, (old, new) in differences.items():
        if name == "the text":
            words.append("the text has changed")
        else:
            shown = ["not given" if value is None else value for value in (old, new)]
            words.append(f"{option(name)} was {shown[0]} and is {shown[1]}")
    return f"cannot resume: {'; '.join(words)}"


def _stop(options: TrainOptions, trainer: Trainer, signum: int) -> None:
    trainer.save()
    command = [*sys.argv[1:], *([] if options.resume else ["--resume"])]
    raise Interrupted(
        f"stopped after step {trainer.step:,}; go on with: olsq {shlex.join(command)}", signum
    )


def _finish(
    options: TrainOptions, trainer: Trainer, content: bytes, speed: float | None,
    console: Console, progress_console: Console,
) -> None:  # fmt: skip
    """Evaluate, write the files, sample, and print the report."""
    import olsq.nn
    from olsq.train import sample_text, write_results

    with progress_console.status("evaluating and sampling"):
        evaluation = trainer.evaluate()
        model = trainer.model
        olsq.nn.save(options.out / MODEL, model)
        files = write_results(options.out, trainer.log, evaluation, title=options.describe())
        tokenizer = trainer.tokenizer
        prompt, sample = "", ""
        if options.sample and tokenizer is not None:
            prompt = opening(trainer.corpus, tokenizer)
            sample = sample_text(model, tokenizer, prompt, options.sample, seed=options.seed)
    print_report(
        console, trainer, evaluation,
        heading=options.describe(), parameters=olsq.nn.count_parameters(model),
        bytes_per_token=len(content) / trainer.corpus.size,
        speed=speed, files=[*files, options.out / MODEL, options.out / "log.csv"],
        prompt=prompt, sample=sample,
    )  # fmt: skip


def opening(corpus: Corpus, tokenizer: Tokenizer, most: int = 200) -> str:
    """Some words of the validation part to start a sample from, cut after a space."""
    text = tokenizer.decode(corpus.validation[:most])[:most]
    kept = text[: text.rfind(" ") + 1] if " " in text.strip() else text
    return kept or text
