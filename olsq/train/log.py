"""What happened at every step, in memory, in checkpoints and as a CSV file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Log", "Record"]

COLUMNS = ("step", "loss", "gradient_norm", "learning_rate", "skipped", "validation_loss")


class Record(NamedTuple):
    """One step.

    Attributes
    ----------
    step : int
        From 1: the number of steps done.
    loss, gradient_norm : float
        Of the step's batch, before the update; the norm before clipping.
    learning_rate : float
    skipped : bool
        The loss or the gradient was not finite, and the weights were left alone.
    validation_loss : float or None
        After the update, where it was computed.
    """

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    skipped: bool
    validation_loss: float | None = None

    def as_row(self) -> str:
        """A line of the CSV file; nine digits hold a float32 exactly."""
        numbers = f"{self.loss:.9g},{self.gradient_norm:.9g},{self.learning_rate:.9g}"
        last = "" if self.validation_loss is None else f"{self.validation_loss:.9g}"
        return f"{self.step},{numbers},{int(self.skipped)},{last}\n"


class Log:
    """Records of all steps so far.

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
        """Number of steps."""
        return len(self.records)

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """One column (n,), NaN where there is no value."""
        values = [getattr(record, column) for record in self.records]
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)

    @property
    def skipped(self) -> int:
        """Number of steps skipped."""
        return sum(record.skipped for record in self.records)

    def append(self, record: Record) -> None:
        """Add the next step."""
        self.records.append(record)

    def as_csv(self) -> str:
        """The whole file, the header first."""
        return header() + "".join(record.as_row() for record in self.records)

    def to_arrays(self) -> dict[str, NDArray[np.float64]]:
        """Every column (n,) by name."""
        return {name: self[name] for name in COLUMNS}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[np.float64]]) -> Log:
        """The log whose ``to_arrays`` returned ``arrays``."""
        log = cls()
        for step, loss, norm, rate, skipped, validation in zip(
            *(arrays[name].tolist() for name in COLUMNS), strict=True
        ):
            evaluated = None if np.isnan(validation) else validation
            log.append(Record(int(step), loss, norm, rate, bool(skipped), evaluated))
        return log


def header() -> str:
    """First line of the CSV file."""
    return ",".join(COLUMNS) + "\n"
