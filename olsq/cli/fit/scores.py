"""Running one-step-ahead errors of the regression and of two baselines that need no model."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass
class Scores:
    """Sums over the rows so far, all of which go into the checkpoint.

    Rows are scored once as many have been learned as there are coefficients, for the model and
    the baselines alike: the first ones say more about the start than about the model.
    """

    burn_in: int
    rows: int = 0
    used: int = 0
    scored: int = 0
    first: float = math.nan
    last: float = math.nan
    smallest: float = math.inf
    largest: float = -math.inf
    shifted_sum: float = 0.0  # of y - first, so that a large level costs no digits
    absolute: float = 0.0
    square: float = 0.0
    mean_absolute: float = 0.0
    mean_square: float = 0.0
    last_absolute: float = 0.0
    last_square: float = 0.0

    def learned_before(
        self, used: NDArray[np.bool_], groups: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Count the rows that were learned before each row (n,) of the next chunk."""
        return self.used + np.cumsum(used) - used

    def update(
        self, y: NDArray[np.float64], residual: NDArray[np.float64], used: NDArray[np.bool_],
        groups: NDArray[np.int64] | None = None,
    ) -> None:  # fmt: skip
        """Add the rows of one chunk; ``residual`` are the errors before learning each row.

        ``groups`` are of no matter here.
        """
        self.rows += len(y)
        if not used.all():
            y, residual = y[used], residual[used]
        if not y.size:
            return
        if not self.used:
            self.first = self.last = float(y[0])
        learned = self.used + np.arange(len(y))
        shifted = y - self.first
        earlier = self.shifted_sum + np.cumsum(shifted) - shifted
        from_mean = shifted - earlier / np.maximum(learned, 1)
        from_last = y - np.concatenate([[self.last], y[:-1]])
        first = min(max(self.burn_in - self.used, 1 - self.used, 0), len(y))  # not scored before
        self.scored += len(y) - first
        self.absolute += float(np.abs(residual[first:]).sum())
        self.square += float(np.square(residual[first:]).sum())
        self.mean_absolute += float(np.abs(from_mean[first:]).sum())
        self.mean_square += float(np.square(from_mean[first:]).sum())
        self.last_absolute += float(np.abs(from_last[first:]).sum())
        self.last_square += float(np.square(from_last[first:]).sum())
        self.used += len(y)
        self.last = float(y[-1])
        self.shifted_sum += float(shifted.sum())
        self.smallest = min(self.smallest, float(y.min()))
        self.largest = max(self.largest, float(y.max()))

    def table(self) -> list[tuple[str, float, float]]:
        """Return (method, mean absolute error, root mean square error) rows; none before any is
        scored.
        """
        if not self.scored:
            return []
        sums = [
            ("olsq", self.absolute, self.square),
            ("last value", self.last_absolute, self.last_square),
            ("mean so far", self.mean_absolute, self.mean_square),
        ]
        n = self.scored
        return [(who, absolute / n, math.sqrt(square / n)) for who, absolute, square in sums]

    def as_dict(self) -> dict[str, Any]:
        """Return all sums for the checkpoint; values that JSON has no number for become text."""
        return {
            key: value if math.isfinite(value) else str(value)
            for key, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """Rebuild the scores from the dictionary made by :meth:`as_dict`."""
        numbers: dict[str, Any] = {
            key: float(value) if isinstance(value, str) else value for key, value in saved.items()
        }
        return cls(**numbers)
