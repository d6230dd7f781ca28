"""The training loop: a step, a line in the log, now and then an evaluation and a checkpoint."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from olsq.files import write_atomically
from olsq.train.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from olsq.train.config import TrainConfig
from olsq.train.corpus import Corpus
from olsq.train.evaluation import Evaluation, evaluate
from olsq.train.log import Log, Record
from olsq.train.optimiser import initial_state, training_step
from olsq.train.tokenizers import Tokenizer

__all__ = ["Trainer", "TrainingError", "fit"]

CHECKPOINT, LOG = "checkpoint.safetensors", "log.csv"
MOST_SKIPPED = 100  # steps in a row


class TrainingError(RuntimeError):
    """Training cannot go on: no step has a finite loss and gradient any more."""


class Trainer:
    """Trains a model on a corpus, and can stop and go on anywhere.

    Parameters
    ----------
    model : Equinox module
        ``model(tokens)`` maps (B, T) int32 to logits (B, T, vocabulary).  Its floating-point
        arrays are trained, in copies: ``model`` itself stays as it is.
    corpus : Corpus
    config : TrainConfig
    directory : path, optional
        For ``checkpoint.safetensors`` and ``log.csv``; it is made if need be.  None writes nothing.
    tokenizer : optional
        Saved in checkpoints.
    setup : dict, optional
        Options the model was made with, as JSON can hold them; a run goes on only from a
        checkpoint with the same.
    checkpoint_every : float
        Seconds between two checkpoints.

    Attributes
    ----------
    step : int
        Steps done.
    log : Log

    Raises
    ------
    ValueError
        If sequences do not fit into the corpus, or its tokens into the model's vocabulary.

    Examples
    --------
    >>> import equinox as eqx, jax, numpy as np
    >>> from olsq.train import Corpus, TrainConfig, Trainer
    >>> class Bigram(eqx.Module):
    ...     table: jax.Array = eqx.field(default_factory=lambda: jax.numpy.zeros((4, 4)))
    ...     def __call__(self, tokens):
    ...         return self.table[tokens]
    >>> corpus = Corpus.split(np.arange(1000) % 4)
    >>> trainer = Trainer(Bigram(), corpus, TrainConfig(steps=300, batch=4, length=8, lr=0.1))
    >>> losses = [record.loss for record in trainer.run()]
    >>> round(losses[0], 3), losses[-1] < 0.05
    (1.386, True)
    """

    def __init__(
        self,
        model: Any,
        corpus: Corpus,
        config: TrainConfig,
        *,
        directory: str | os.PathLike[str] | None = None,
        tokenizer: Tokenizer | None = None,
        setup: dict[str, Any] | None = None,
        checkpoint_every: float = 60.0,
    ) -> None:
        self.corpus, self.config, self.tokenizer = corpus, config, tokenizer
        self.directory = None if directory is None else Path(directory)
        self.setup = {} if setup is None else dict(setup)
        self.checkpoint_every = checkpoint_every
        corpus.check(config.length)
        corpus.check(config.length, vocabulary_of(model, config.length))
        self._params, self._static = eqx.partition(model, eqx.is_inexact_array)
        # Copies, because a step overwrites what it is given; of a definite type, because a weakly
        # typed weight (made from a Python number) would have the second step compiled again.
        self._params = jax.tree.map(lambda x: jnp.array(x, dtype=x.dtype), self._params)
        self._optimiser = initial_state(config, self._params)
        self._step = training_step(config, self._static)
        self._learning_rate = jax.jit(config.learning_rate)
        self._windows = corpus.windows(config.length, config.evaluate_sequences)
        self.log = Log()
        self._saved = -1

    @property
    def step(self) -> int:
        """Steps done."""
        return len(self.log)

    @property
    def model(self) -> Any:
        """The model as trained so far."""
        return eqx.combine(jax.tree.map(jnp.copy, self._params), self._static)

    @property
    def checkpoint_path(self) -> Path | None:
        """Where the checkpoint is or will be."""
        return None if self.directory is None else self.directory / CHECKPOINT

    def resume(self) -> bool:
        """Go on from the checkpoint in the directory; False if there is none.

        Raises
        ------
        CheckpointError
            If the checkpoint is damaged, foreign or of a run with other options.
        """
        if self.checkpoint_path is None or not self.checkpoint_path.exists():
            return False
        found = read_checkpoint(self.checkpoint_path)
        found.check(self.config.to_dict(), self.setup, self._data_digest())
        params = found.restore("weights", self._params)
        optimiser = found.restore("optimiser", self._optimiser)
        self._params, self._optimiser, self.log = params, optimiser, found.log
        self._saved = self.step
        return True

    def save(self) -> None:
        """Write the checkpoint, unless there is no directory or nothing new."""
        if self.checkpoint_path is None or self._saved == self.step:
            return
        write_checkpoint(
            self.checkpoint_path,
            {"weights": self._params, "optimiser": self._optimiser},
            {
                "step": self.step,
                "config": self.config.to_dict(),
                "setup": self.setup,
                "data": self._data_digest(),
                "tokenizer": None if self.tokenizer is None else self.tokenizer.to_dict(),
            },
            self.log,
        )
        self._saved = self.step

    def run(self) -> Iterator[Record]:
        """Train to the last step, yielding a record after each; checkpoints as time passes.

        The caller may stop iterating at any record, and call :meth:`save`.

        Raises
        ------
        CheckpointError
            If the directory holds a checkpoint that this trainer has neither written nor resumed.
        TrainingError
            If a hundred steps in a row were skipped.
        OSError
            If a file cannot be written.
        """
        if self._saved < 0 and self.checkpoint_path is not None and self.checkpoint_path.exists():
            raise CheckpointError(
                f"{self.checkpoint_path} exists: resume from it, or choose another directory"
            )
        if self.directory is None:
            yield from self._train(None)
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        # Lines written after the checkpoint was are of steps that are done again.
        write_atomically(self.directory / LOG, self.log.as_csv().encode())
        with open(self.directory / LOG, "a", encoding="utf-8", newline="") as file:
            yield from self._train(file)
        self.save()

    def _train(self, file: TextIO | None) -> Iterator[Record]:
        clock = time.monotonic()
        in_a_row = 0
        while self.step < self.config.steps:
            record = self._advance()
            if file is not None:
                file.write(record.as_row())
                file.flush()
            in_a_row = in_a_row + 1 if record.skipped else 0
            if in_a_row == MOST_SKIPPED:
                raise TrainingError(
                    f"{MOST_SKIPPED} steps in a row, the last of them step {self.step}, had a loss "
                    "or gradient that is not finite, so the weights no longer change: start again "
                    "with a smaller learning rate"
                )
            if time.monotonic() - clock >= self.checkpoint_every:
                self.save()
                clock = time.monotonic()
            yield record

    def _advance(self) -> Record:
        """One step, evaluated where one is due, and logged."""
        config, index = self.config, self.step
        tokens = self.corpus.batch(
            seed=config.seed, step=index, batch=config.batch, length=config.length
        )
        rate = self._learning_rate(np.int32(index))
        self._params, self._optimiser, metrics = self._step(
            self._params, self._optimiser, tokens, learning_rate=rate
        )
        loss, norm, skipped = jax.device_get(metrics)
        done = index + 1
        validation = None
        if done % config.evaluation_steps == 0 or done == config.steps:
            validation = self._evaluate(self._windows).loss
        record = Record(done, float(loss), float(norm), float(rate), bool(skipped), validation)
        self.log.append(record)
        return record

    def evaluate(self) -> Evaluation:
        """Losses of the whole validation part."""
        return self._evaluate(self.corpus.windows(self.config.length))

    def _evaluate(self, windows: Any) -> Evaluation:
        size = self.config.batch // self.config.accumulate
        return evaluate(eqx.combine(self._params, self._static), windows, batch=size)

    def _data_digest(self) -> str:
        digest = hashlib.sha256(self.corpus.train.tobytes())
        digest.update(b"|" + self.corpus.validation.tobytes())
        return digest.hexdigest()


def fit(
    model: Any,
    corpus: Corpus,
    config: TrainConfig,
    *,
    resume: bool = False,
    callback: Callable[[Record], object] | None = None,
    **options: Any,
) -> Trainer:
    """Train a model to the last step.

    Parameters
    ----------
    model, corpus, config
        As for :class:`Trainer`.
    resume : bool
        Go on from the checkpoint in the directory, if there is one: to the same weights, bit for
        bit, as without the stop.
    callback : callable, optional
        Called with every :class:`Record`.
    **options
        Others of :class:`Trainer`: ``directory``, ``tokenizer``, ``setup``, ``checkpoint_every``.

    Returns
    -------
    Trainer
        ``model``, ``log`` and ``evaluate()``.

    Raises
    ------
    CheckpointError, TrainingError, ValueError, OSError
        As :meth:`Trainer.resume` and :meth:`Trainer.run`.
    """
    trainer = Trainer(model, corpus, config, **options)
    if resume:
        trainer.resume()
    for record in trainer.run():
        if callback is not None:
            callback(record)
    return trainer


def vocabulary_of(model: Any, length: int) -> int:
    """Number of logits of a model; ValueError if it does not map tokens to logits."""
    tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)
    shape = getattr(eqx.filter_eval_shape(model, tokens), "shape", None)
    if shape is None or len(shape) != 3 or shape[:2] != tokens.shape:
        raise ValueError(
            f"the model must map tokens (batch, time) to logits (batch, time, vocabulary), got "
            f"{shape} from {tokens.shape}"
        )
    return shape[2]
