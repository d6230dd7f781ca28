"""Run ``olsq train``: train a language model on a text, stopped and resumed anywhere."""

from __future__ import annotations

import contextlib
import shlex
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console

from olsq.cli.errors import CommandError, InputError, Interrupted, check_libraries, option_name
from olsq.cli.interrupts import Interrupts
from olsq.cli.paths import locked_paths
from olsq.cli.train.build import make_mesh, make_model, make_solver, read_data
from olsq.cli.train.options import CONFIG, TrainOptions, write_config
from olsq.cli.train.report import StepProgress, print_report
from olsq.files import write_atomically

if TYPE_CHECKING:
    from olsq.train import Corpus, CorpusTrainer
    from olsq.train.tokenizers import Tokenizer

MODEL = "model.safetensors"


def run_train(options: TrainOptions, console: Console, progress_console: Console) -> None:
    """Run ``olsq train``; results are printed on ``console``, progress on the other.

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
    options.check_files()
    creates = not options.out.exists()
    options.out.mkdir(exist_ok=True)
    try:
        with locked_paths(options.out):
            _train_locked(options, console, progress_console)
    finally:
        if creates:  # a run that was refused leaves no empty folder
            with contextlib.suppress(OSError):
                options.out.rmdir()


def _train_locked(options: TrainOptions, console: Console, progress_console: Console) -> None:
    """Train, while no other run can write into the folder."""
    with progress_console.status("reading and tokenising"):
        trainer, bytes_per_token = prepare(options)
    from olsq.train import CheckpointError, TrainingError

    if trainer.step:
        progress_console.print(f"going on after step {trainer.step:,}")
    elif options.resume:
        progress_console.print(f"{trainer.checkpoint_path} does not exist yet: from step 1")
    progress = StepProgress(progress_console, trainer)
    try:
        write_atomically(options.out / CONFIG, write_config(options).encode())
        with Interrupts() as interrupts, progress:
            for record in trainer.run():
                progress.update(record)
                if interrupts.signum is not None:
                    _stop(options, trainer, interrupts.signum)
        # From here on everything can be made again from the checkpoint.
        _finish(options, trainer, bytes_per_token, progress.speed, console, progress_console)
    except CheckpointError as error:
        raise InputError(str(error)) from None
    except TrainingError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.strerror}: {error.filename or 'writing failed'}") from None


def prepare(options: TrainOptions) -> tuple[CorpusTrainer, float]:
    """Build the trainer at its checkpoint; return it and the bytes per token, and write nothing."""
    if not options.resume and (options.out / "checkpoint.safetensors").exists():
        raise InputError(
            f"{options.out} holds a checkpoint: add --resume to go on from it, or choose another "
            "directory"
        )
    from olsq.train import CheckpointError, CheckpointMismatch, CorpusTrainer

    config = options.config()
    solver = None if options.solver is None else make_solver(options.solver)
    mesh = make_mesh(options)
    try:
        data = read_data(options)
        data.corpus.check(config.length)
        model = make_model(options, data.tokenizer.vocab_size, solver)
        trainer = CorpusTrainer(
            model,
            data.corpus,
            config,
            directory=options.out,
            tokenizer=data.tokenizer,
            setup=options.setup(solver),
            checkpoint_every=options.checkpoint_every,
            mesh=mesh,
        )
    except ValueError as error:
        raise InputError(str(error)) from None
    if options.resume:
        try:
            trainer.resume()
        except CheckpointMismatch as error:
            raise InputError(_describe_mismatch(error.differences)) from None
        except CheckpointError as error:
            raise InputError(str(error)) from None
        except OSError as error:
            raise InputError(f"cannot read {trainer.checkpoint_path}: {error.strerror}") from None
    return trainer, data.bytes_per_token


def _describe_mismatch(differences: dict[str, tuple[Any, Any]]) -> str:
    words = []
    for name, (old, new) in differences.items():
        if name == "the text":
            words.append("the text has changed")
        else:
            shown = ["not given" if value is None else value for value in (old, new)]
            words.append(f"{option_name(name)} was {shown[0]} and is {shown[1]}")
    return f"cannot resume: {'; '.join(words)}"


def _stop(options: TrainOptions, trainer: CorpusTrainer, signum: int) -> None:
    trainer.save()
    command = [*sys.argv[1:], *([] if options.resume else ["--resume"])]
    raise Interrupted(
        f"stopped after step {trainer.step:,}; go on with: olsq {shlex.join(command)}", signum
    )


def _finish(
    options: TrainOptions,
    trainer: CorpusTrainer,
    bytes_per_token: float,
    speed: float | None,
    console: Console,
    progress_console: Console,
) -> None:
    """Evaluate the model, write the files, draw a sample, and print the report."""
    import olsq.nn
    from olsq.train import sample_text, write_results

    with progress_console.status("evaluating and sampling"):
        evaluation = trainer.evaluate()
        model = trainer.averaged
        olsq.nn.save(options.out / MODEL, model)
        files = write_results(options.out, trainer.log, evaluation, title=options.describe())
        tokenizer = trainer.tokenizer
        prompt, sample = "", ""
        if options.sample and tokenizer is not None:
            prompt = opening(trainer.corpus, tokenizer)
            sample = sample_text(model, tokenizer, prompt, options.sample, seed=options.seed)
    print_report(
        console,
        trainer,
        evaluation,
        heading=options.describe(),
        parameters=olsq.nn.count_parameters(model),
        bytes_per_token=bytes_per_token,
        speed=speed,
        files=[*files, *(options.out / name for name in (MODEL, "log.csv", CONFIG))],
        prompt=prompt,
        sample=sample,
    )


def opening(corpus: Corpus, tokenizer: Tokenizer, most: int = 200) -> str:
    """Return some words of the validation part to start a sample from, cut after a space."""
    text = tokenizer.decode(corpus.validation[:most])[:most]
    kept = text[: text.rfind(" ") + 1] if " " in text.strip() else text
    return kept or text
