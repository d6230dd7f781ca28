"""Log of every step, in memory, checkpoints and a CSV file, and the recorder that writes it late.

The recorder reads numbers from the device when they are there, so that nothing waits for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from numpy.typing import NDArray

from olsq.files import AppendedFile
from olsq.train.step import Metrics

__all__ = ["Log", "Record", "Recorder", "TrainingError"]

COLUMNS = ("step", "loss", "gradient_norm", "learning_rate", "skipped", "validation_loss")
MOST_SKIPPED = 100  # steps in a row


class Record(NamedTuple):
    """Record of one step.

    Attributes
    ----------
    step : int
        From 1: the number of steps done.
    loss, gradient_norm : float
        Of the step's batch, before the update; the norm before clipping.
    learning_rate : float
        NaN where only the optimiser knows it.
    skipped : bool
        The loss or the gradient was not finite, and the weights were left alone.
    validation_loss : float or None
        After the update, where it was computed.
    scores : mapping of str to float
        What the loss (``BatchLoss.extra``) and the evaluation report besides.
    """

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    skipped: bool
    validation_loss: float | None = None
    scores: Mapping[str, float] = {}

    def numbers(self) -> dict[str, float]:
        """Return every number of the record by name, except the step, for loggers.

        Examples
        --------
        >>> from olsq.train import Record
        >>> Record(7, 2.5, 0.5, float("nan"), False, None, {"nll": 2.25}).numbers()
        {'loss': 2.5, 'gradient_norm': 0.5, 'skipped': 0.0, 'nll': 2.25}
        """
        numbers = {name: getattr(self, name) for name in COLUMNS[1:]} | dict(self.scores)
        if np.isnan(self.learning_rate):
            del numbers["learning_rate"]
        return {name: float(value) for name, value in numbers.items() if value is not None}

    def as_row(self, scores: tuple[str, ...] = ()) -> str:
        """Format a line of the CSV file, with columns for ``scores``.

        Nine digits resolve a float32.
        """
        rate = "" if np.isnan(self.learning_rate) else f"{self.learning_rate:.9g}"
        cells = [str(self.step), f"{self.loss:.9g}", f"{self.gradient_norm:.9g}", rate]
        last = [self.validation_loss, *(self.scores.get(name) for name in scores)]
        cells += [str(int(self.skipped)), *("" if x is None else f"{x:.9g}" for x in last)]
        return ",".join(cells) + "\n"


class Log:
    """Log of all steps so far.

    Examples
    --------
    >>> from olsq.train import Log, Record
    >>> log = Log()
    >>> log.append(Record(1, 5.5, 1.25, 1e-3, False))
    >>> log.append(Record(2, 5.0, 1.0, 1e-3, False, 5.25))
    >>> log["validation_loss"].tolist(), log.skipped
    ([nan, 5.25], 0)
    >>> print(log.as_csv(), end="")
    step,loss,gradient_norm,learning_rate,skipped,validation_loss
    1,5.5,1.25,0.001,0,
    2,5,1,0.001,0,5.25
    """

    def __init__(self) -> None:
        self.records: list[Record] = []

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.records)

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """Return one column (n,), also of a score, NaN where there is no value."""
        if column in COLUMNS:
            values = [getattr(record, column) for record in self.records]
        elif column in self.scores:
            values = [record.scores.get(column) for record in self.records]
        else:
            columns = ", ".join((*COLUMNS, *self.scores))
            raise KeyError(f"the log has no column {column!r}; it has {columns}")
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of all scores, sorted."""
        return tuple(sorted({name for record in self.records for name in record.scores}))

    @property
    def skipped(self) -> int:
        """Number of steps skipped."""
        return sum(record.skipped for record in self.records)

    def append(self, record: Record) -> None:
        """Add the next step."""
        self.records.append(record)

    def as_csv(self) -> str:
        """Return the whole file as text, starting with the header."""
        names = self.scores
        return header(names) + "".join(record.as_row(names) for record in self.records)

    def to_arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return every column (n,) by name."""
        return {name: self[name] for name in (*COLUMNS, *self.scores)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.float64]]) -> Log:
        """Rebuild the log from the arrays made by ``to_arrays``."""
        log = cls()
        names = [name for name in arrays if name not in COLUMNS]
        score_rows = zip(*(arrays[name].tolist() for name in names), strict=True) if names else None
        for step, loss, norm, rate, skipped, validation in zip(
            *(arrays[name].tolist() for name in COLUMNS), strict=True
        ):
            evaluated = None if np.isnan(validation) else validation
            row = zip(names, next(score_rows), strict=True) if score_rows else ()
            scores = {name: value for name, value in row if not np.isnan(value)}
            log.append(Record(int(step), loss, norm, rate, bool(skipped), evaluated, scores))
        return log


class LogFile:
    """``log.csv`` of a run: starts as the log so far, and gets a line for every record.

    Use as a context manager; without a path it writes nothing.
    """

    def __init__(self, path: Path | None, log: Log) -> None:
        self._path, self._log = path, log
        self._file: AppendedFile | None = None
        self._scores: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        # Lines written after the checkpoint belong to steps that are run again.
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def write(self, record: Record) -> None:
        """Write the line of the log's last record."""
        if self._file is None:
            return
        if set(record.scores) - set(self._scores):  # a new column: the file is rewritten
            self._file.close()
            self._start()
            return
        self._file.append(record.as_row(self._scores).encode())

    def _start(self) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._scores = self._log.scores
        self._file = AppendedFile(self._path, self._log.as_csv().encode())


def header(scores: tuple[str, ...] = ()) -> str:
    """Return the first line of the CSV file."""
    return ",".join((*COLUMNS, *scores)) + "\n"


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
        self,
        step: int,
        metrics: Metrics,
        rate: Any,
        evaluate: Callable[[], Mapping[str, float]] | None,
    ) -> None:
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
        begun.step,
        float(loss),
        float(norm),
        float(begun.rate),
        bool(skipped),
        validation,
        {**{name: float(value) for name, value in extra.items()}, **evaluated},
    )
