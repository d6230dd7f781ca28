"""Training loop: steps, a log, evaluations and checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from olsq.arrays.checks import check_flag, check_sizes
from olsq.nn import shard, shard_batch
from olsq.train.batches import batches_from, check_batches
from olsq.train.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from olsq.train.log import Log, Record, Recorder, TrainingError
from olsq.train.losses import BatchLoss, check_extra, next_token_loss
from olsq.train.optimiser import averaged, with_average
from olsq.train.step import as_batch, make_step
from olsq.train.tokenizers import Tokenizer

__all__ = ["Trainer", "TrainingError"]

CHECKPOINT, LOG = "checkpoint.safetensors", "log.csv"

Evaluate = Callable[[Any], float | Mapping[str, float]]


class Trainer:
    """Trains any model on any batches with any optimiser, and can stop and resume at any step.

    Parameters
    ----------
    model : Equinox module, or pytree
        Its floating-point arrays are trained, in copies: ``model`` itself stays as it is.
    batches : callable or iterable
        From the step (0, 1, ...) to its batch, such as ``corpus.batches(...)`` and
        :func:`olsq.train.shuffled`; or an iterable of batches, which a resumed run reads again from
        its start.  A batch is a tuple, the arguments of the loss after the model, or one argument;
        the first axis of every array is the batch's.
    optimizer : optax.GradientTransformation
    steps : int
        Updates of the weights.
    loss : callable
        ``loss(model, *batch)``: a scalar or a :class:`BatchLoss`, whose ``extra`` is logged.
        States that go on from batch to batch need a loop of :func:`make_step`.
    callbacks : sequence of callable
        Each is called with every :class:`Record`, in order.
    evaluation : callable, optional
        Function of the model that returns the validation loss, or a dictionary of numbers with
        ``"loss"`` among them.
    evaluate_every : int, optional
        Steps between two evaluations, a twentieth of them if None; the last step has one too.
    learning_rate : callable, optional
        From the step to a rate, which is logged and given to the optimiser's ``update``; an
        optimiser with a schedule of its own needs none.
    accumulate : int
        Parts in which a batch is computed, see :func:`make_step`.
    average : float, optional
        Keep an exponential moving average of the weights, see :func:`with_average`; evaluations
        are then of it.
    key : jax.random.key, optional
        For dropout: the loss is given ``key=``, which depends on the step only.
    mesh : jax.sharding.Mesh, optional
        Devices: each has all weights, and its part of the rows of a batch along the mesh's first
        axis.
    directory : path, optional
        For ``checkpoint.safetensors`` (with the tokenizer) and ``log.csv``; None writes nothing.
    tokenizer : optional
    setup : dict, optional
        What else makes this run what it is, as JSON can hold it; a run goes on only from a
        checkpoint with the same.
    checkpoint_every : float
        Seconds between two checkpoints.
    ahead : int
        Steps that may be under way when a record is made.  With 0 the device waits for Python.

    Attributes
    ----------
    step : int
        Steps begun; those of :attr:`log` are done.
    log : Log

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpy as np, optax
    >>> from olsq.train import Trainer
    >>> def batches(step):
    ...     x = np.random.default_rng(step).normal(size=(8, 2))
    ...     return x, x @ [2.0, -1.0]
    >>> def loss(weights, x, y):
    ...     return jnp.mean((x @ weights - y) ** 2)
    >>> trainer = Trainer(
    ...     jnp.zeros(2), batches=batches, loss=loss, optimizer=optax.sgd(0.1), steps=100
    ... )
    >>> for record in trainer.run():
    ...     pass
    >>> [round(float(w), 3) for w in trainer.model], record.step
    ([2.0, -1.0], 100)
    """

    def __init__(
        self,
        model: Any,
        *,
        batches: Callable[[int], Any] | Iterable[Any],
        optimizer: optax.GradientTransformation,
        steps: int,
        loss: Callable[..., Any] = next_token_loss,
        callbacks: Sequence[Callable[[Record], object]] = (),
        evaluation: Evaluate | None = None,
        evaluate_every: int | None = None,
        learning_rate: Callable[[Any], Any] | None = None,
        accumulate: int = 1,
        average: float | None = None,
        key: jax.Array | None = None,
        mesh: jax.sharding.Mesh | None = None,
        directory: str | os.PathLike[str] | None = None,
        tokenizer: Tokenizer | None = None,
        setup: dict[str, Any] | None = None,
        checkpoint_every: float = 60.0,
        ahead: int = 1,
    ) -> None:
        every = max(steps // 20, 1) if evaluate_every is None else evaluate_every
        check_sizes(steps=steps, accumulate=accumulate, evaluate_every=every)
        check_sizes(0, ahead=ahead)
        check_batches(batches)
        self.batches, self.steps, self.callbacks = batches, steps, tuple(callbacks)
        self.evaluation, self.evaluate_every, self.ahead = evaluation, every, ahead
        self.directory = None if directory is None else Path(directory)
        self.tokenizer, self.setup = tokenizer, {} if setup is None else dict(setup)
        self.checkpoint_every, self._average, self._key = checkpoint_every, average, key
        self._accumulate, self._mesh = accumulate, mesh
        if average is not None:
            optimizer = with_average(optimizer, average)
        # Copies, because a step donates its arguments. Of a definite dtype, because a weakly typed
        # weight (made from a Python number) would make the second step compile again.
        weights, static = eqx.partition(model, eqx.is_inexact_array)
        weights = jax.tree.map(lambda x: jnp.array(x, dtype=x.dtype), weights)
        self._model = self._place(eqx.combine(weights, static))
        self._state = self._place(optimizer.init(eqx.filter(self._model, eqx.is_inexact_array)))
        self._update = make_step(_logged(loss), optimizer, accumulate=accumulate, donate=True)
        self._learning_rate = None if learning_rate is None else jax.jit(learning_rate)
        self.step, self._recorder, self._saved = 0, Recorder(Log()), -1

    @property
    def log(self) -> Log:
        """Records of the steps done."""
        return self._recorder.log

    @property
    def model(self) -> Any:
        """The model as trained so far."""
        return jax.tree.map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, self._model)

    @property
    def averaged(self) -> Any:
        """The model with averaged weights, where there is an average; otherwise :attr:`model`."""
        return self.model if self._average is None else averaged(self._model, self._state)

    @property
    def checkpoint_path(self) -> Path | None:
        """Path of the checkpoint; None without a directory."""
        return None if self.directory is None else self.directory / CHECKPOINT

    def resume(self) -> bool:
        """Resume from the checkpoint in the directory; False if there is none.

        Raises
        ------
        CheckpointError
            If the checkpoint is damaged, foreign or of a run with other options.
        """
        if self.checkpoint_path is None or not self.checkpoint_path.exists():
            return False
        checkpoint = read_checkpoint(self.checkpoint_path)
        checkpoint.check(self.options(), self.setup, getattr(self.batches, "digest", ""))
        weights, static = eqx.partition(self._model, eqx.is_inexact_array)
        weights, state = (
            checkpoint.restore("weights", weights),
            checkpoint.restore("optimiser", self._state),
        )
        self._model, self._state = self._place(eqx.combine(weights, static)), self._place(state)
        self._recorder, self.step = Recorder(checkpoint.log), checkpoint.step
        self._saved = self.step
        return True

    def save(self) -> None:
        """Write the checkpoint, unless there is no directory or nothing new.

        Waits for the steps under way, whose records :meth:`run` has yet to yield.
        """
        self._recorder.finish_steps(0)
        if self.checkpoint_path is None or self._saved == self.step:
            return
        self.checkpoint_path.parent.mkdir(parents=True, exist_ok=True)
        weights = eqx.filter(self._model, eqx.is_inexact_array)
        notes = {
            "step": self.step,
            "config": self.options(),
            "setup": self.setup,
            "data": getattr(self.batches, "digest", ""),
            "tokenizer": None if self.tokenizer is None else self.tokenizer.to_dict(),
        }
        trees = {"weights": weights, "optimiser": self._state}
        write_checkpoint(self.checkpoint_path, trees, notes, self.log)
        self._saved = self.step

    def fit(self, *, resume: bool = False) -> Self:
        """Train to the last step, from the checkpoint in the directory if asked to."""
        if check_flag("resume", resume):
            self.resume()
        for _ in self.run():
            pass
        return self

    def run(self) -> Iterator[Record]:
        """Train to the last step, yielding a record after each; checkpoints as time passes.

        The caller may stop iterating at any record, and call :meth:`save`.  Then up to ``ahead``
        more steps were begun: they are done, logged and saved too.

        Raises
        ------
        CheckpointError
            If the directory holds a checkpoint that this trainer has neither written nor resumed.
        TrainingError
            If a hundred steps in a row were skipped, or there are no more batches.
        OSError
            If a file cannot be written.
        """
        if self._saved < 0 and self.checkpoint_path is not None and self.checkpoint_path.exists():
            raise CheckpointError(
                f"{self.checkpoint_path} exists: resume from it, or choose another directory"
            )
        with self._recorder.writing(None if self.directory is None else self.directory / LOG):
            try:
                yield from self._train()
            finally:
                # even if the caller stopped iterating, so that the log is complete
                self._recorder.finish_steps(0)
        self.save()

    def options(self) -> dict[str, Any]:
        """Return the options that a checkpoint must have been written with, in types that JSON
        supports.
        """
        return {"steps": self.steps, "accumulate": self._accumulate, "average": self._average}

    def score(self) -> dict[str, float]:
        """Evaluate the weights so far, averaged ones if there are; the scores by name."""
        if self.evaluation is None:
            return {}
        result = self.evaluation(self.averaged)
        scores = dict(result) if isinstance(result, Mapping) else {"loss": result}
        return {name: float(value) for name, value in scores.items()}

    def _train(self) -> Iterator[Record]:
        clock, source = time.monotonic(), batches_from(self.batches, self.step)
        while self.step < self.steps:
            due = self._start_step(next(source, None))
            self._recorder.finish_steps(min(self.ahead, 1) if due else self.ahead)
            if time.monotonic() - clock >= self.checkpoint_every:
                self.save()
                clock = time.monotonic()
            yield from self._yield_new_records()
            if due:  # evaluated before another step changes the weights
                self._recorder.finish_steps(0)
                yield from self._yield_new_records()

    def _yield_new_records(self) -> Iterator[Record]:
        for record in self._recorder.new_records():
            for callback in self.callbacks:
                callback(record)
            yield record

    def _start_step(self, batch: Any) -> bool:
        """Start a step without waiting for it; return whether it is to be evaluated."""
        if batch is None:
            raise TrainingError(
                f"there is no batch for step {self.step + 1:,} of {self.steps:,}: give an iterable "
                "without end, or a function of the step"
            )
        batch, options = as_batch(batch), {}
        if self._mesh is not None:
            axis = self._mesh.axis_names[0]
            batch = shard_batch(batch, self._mesh, axis)
        if self._key is not None:
            options["key"] = jax.random.fold_in(self._key, self.step)
        rate: Any = np.nan
        if self._learning_rate is not None:
            rate = options["learning_rate"] = self._learning_rate(np.int32(self.step))
        self._model, self._state, metrics = self._update(
            self._model, self._state, *batch, **options
        )
        self.step += 1
        due = self.evaluation is not None and self.step % self.evaluate_every == 0
        due = due or self.step == self.steps
        self._recorder.note_step(self.step, metrics, rate, self.score if due else None)
        return due

    def _place(self, tree: Any) -> Any:
        """Put the arrays of a pytree on every device of the mesh."""
        return tree if self._mesh is None else shard(tree, self._mesh)


def _logged(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse a loss that returns more than numbers to log, as it is traced."""

    def checked(*arguments: Any, **options: Any) -> Any:
        result = loss(*arguments, **options)
        if isinstance(result, BatchLoss):
            check_extra(result, "a Trainer")
        return result

    return checked
