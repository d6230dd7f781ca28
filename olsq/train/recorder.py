"""Recorder of steps, which reads their numbers from the device late, so that nothing waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax

from olsq.train.log import Log, LogFile, Record
from olsq.train.step import Metrics

__all__ = ["Recorder", "TrainingError"]

MOST_SKIPPED = 100  # steps in a row


class TrainingError(RuntimeError):
    """Training cannot continue: no step has a finite loss any more, or the data have ended."""


class StepUnderWay(NamedTuple):
    """A step under way, and how to evaluate it if that is due."""

    step: int
    metrics: Metrics
    rate: Any
    evaluate: Callable[[], Mapping[str, float]] | None


class Recorder:
    """Makes the records of steps, in order, for the log, its file and the caller.

    Parameters
    ----------
    log : Log
        Of the steps before.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._begun: deque[StepUnderWay] = deque()
        self._ready: deque[Record] = deque()
        self._file = LogFile(None, log)
        self._skipped_in_a_row = 0

    @contextmanager
    def writing(self, path: Path | None) -> Iterator[None]:
        """Write records to a file, which begins with the log so far, within the context."""
        with LogFile(path, self.log) as self._file:
            yield

    def note_step(
        self, step: int, metrics: Metrics, rate: Any,
        evaluate: Callable[[], Mapping[str, float]] | None,
    ) -> None:  # fmt: skip
        """Note a step, and start copying its numbers to the host.

        A step that is evaluated must be settled before the next one is begun: the evaluation is of
        the weights as they are then.
        """
        for number in jax.tree.leaves(metrics):
            number.copy_to_host_async()
        self._begun.append(StepUnderWay(step, metrics, rate, evaluate))

    def finish_steps(self, most: int) -> None:
        """Wait for steps until at most ``most`` are under way, and make their records.

        Raises
        ------
        TrainingError
            If a hundred steps in a row were skipped.
        """
        while len(self._begun) > most:
            record = _record(self._begun.popleft())
            self.log.append(record)
            self._file.write(record)
            self._ready.append(record)
            self._skipped_in_a_row = self._skipped_in_a_row + 1 if record.skipped else 0
            if self._skipped_in_a_row == MOST_SKIPPED:
                raise TrainingError(
                    f"{MOST_SKIPPED} steps in a row, the last of them step {record.step}, had a "
                    "loss or gradient that is not finite, so the weights no longer change: start "
                    "again with a smaller learning rate; if none was finite, look at the batches: "
                    "a target outside the vocabulary has a loss of NaN"
                )

    def new_records(self) -> Iterator[Record]:
        """Yield the records that the caller has not had."""
        while self._ready:
            yield self._ready.popleft()


def _record(begun: StepUnderWay) -> Record:
    """Make the record of a step, once its numbers have arrived."""
    loss, norm, skipped, extra = jax.device_get(begun.metrics)
    evaluated = {} if begun.evaluate is None else dict(begun.evaluate())
    validation = evaluated.pop("loss", None)
    return Record(
        begun.step, float(loss), float(norm), float(begun.rate), bool(skipped), validation,
        {**{name: float(value) for name, value in extra.items()}, **evaluated},
    )  # fmt: skip
