"""Running errors of forecasts, of regressions and of baselines without a model, by group."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.cli.fit.checkpoint import pack, unpack
from olsq.cli.sources.grouping import GroupedRows, extend

# Columns of what is known of a group: its rows so far and those learned; then for each target the
# first one, the last one, and the sum of all less the first, so that a large level costs no digits.
ROWS, LEARNED, TARGETS = range(3)


class Known(NamedTuple):
    """Basis of the forecasts of one target, by row (n,): the mean and the last target known.

    ``scored`` marks the rows whose errors count.
    """

    scored: NDArray[np.bool_]
    mean: NDArray[np.float64]
    last: NDArray[np.float64]

    @classmethod
    def of(cls, targets: NDArray, learned: NDArray, scored: NDArray[np.bool_]) -> list[Known]:
        """Return the basis of each of m targets, whose values ``targets`` (n, 3 m) are known."""
        first, last, shifted = np.moveaxis(targets.reshape(len(targets), -1, 3), 2, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = first + shifted / learned[:, None]
        return [cls(scored, mean[:, j], last[:, j]) for j in range(first.shape[1])]


class Baselines:
    """Counts, means and last targets of each group: the forecasts that need no model.

    Attributes
    ----------
    past : array (groups, 2 + 3 m)
        After the last row of each group, in the columns named above.
    """

    def __init__(self, m: int) -> None:
        self.past = np.empty((0, TARGETS + 3 * m))

    def advance(
        self, y: NDArray, used: NDArray[np.bool_], groups: GroupedRows
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what is known before and after each row (n, 2 + 3 m), of a chunk's targets (n, m).

        Nothing is known of the rows of no group.
        """
        n, m = y.shape
        rows, codes, begins = groups
        self.past = extend(self.past, int(codes.max(initial=-1)) + 1, 0.0)
        past, learned, y = self.past[codes[begins]], used[rows], y[rows]
        after, places = np.empty((rows.size, TARGETS + 3 * m)), np.arange(rows.size)
        after[:, ROWS] = 1.0
        after[:, LEARNED] = learned
        after[:, :TARGETS] = groups.sums(after[:, :TARGETS]) + self.past[codes, :TARGETS]
        first, last, shifted = (after[:, TARGETS + k :: 3] for k in range(3))
        fresh = past[:, LEARNED] == 0
        if rows.size:
            starts = np.minimum.reduceat(np.where(learned, places, rows.size), begins)
            fresh &= starts < rows.size
            past[fresh, TARGETS::3] = y[starts[fresh]]
        first[:] = np.repeat(past[:, TARGETS::3], groups.counts, axis=0)
        shifted[:] = groups.sums(np.where(learned[:, None], y - first, 0.0))
        shifted += self.past[codes, TARGETS + 2 :: 3]
        at = np.maximum.accumulate(np.where(learned, places, -1))
        in_chunk = (at >= groups.first_places)[:, None]
        last[:] = np.where(in_chunk, y[np.maximum(at, 0)], self.past[codes, TARGETS + 1 :: 3])
        before = groups.shift(after, past)
        ends = begins + groups.counts - 1
        self.past[codes[ends]] = after[ends]
        if rows.size == n and begins.size == 1:  # all in order
            return before, after
        known_before, known_after = np.zeros((n, after.shape[1])), np.zeros((n, after.shape[1]))
        known_before[rows], known_after[rows] = before, after
        return known_before, known_after

    def as_text(self) -> str:
        """Return what is known of every group for the checkpoint."""
        return pack(self.past)

    def restore(self, notes: dict[str, Any]) -> None:
        """Restore what :meth:`as_text` saved, or what scores of earlier versions hold."""
        if "baselines" in notes:
            self.past = unpack(notes["baselines"]).reshape(-1, self.past.shape[1])
            return
        targets = []
        counts = np.empty((0, 2))
        for scores in notes["scores"]:
            if "past" in scores:
                past = unpack(scores["past"]).reshape(-1, 4)
            else:
                numbers = [float(scores[name]) for name in ("first", "last", "shifted_sum")]
                past = np.array([[scores["used"], *numbers]])
            counts, targets = np.column_stack([past[:, 0], past[:, 0]]), [*targets, past[:, 1:]]
        self.past = np.column_stack([counts, *targets])


@dataclass
class Scores:
    """Sums over the rows so far, all of which go into the checkpoint.

    Rows are scored once as many of their group have been learned as there are coefficients, for
    the model and the baselines alike: the first ones say more about the start than about the model.
    """

    burn_in: int
    rows: int = 0
    used: int = 0
    scored: int = 0
    smallest: float = math.inf
    largest: float = -math.inf
    absolute: float = 0.0
    square: float = 0.0
    mean_absolute: float = 0.0
    mean_square: float = 0.0
    last_absolute: float = 0.0
    last_square: float = 0.0

    def update(
        self,
        y: NDArray[np.float64],
        residual: NDArray[np.float64],
        used: NDArray[np.bool_],
        basis: Known,
    ) -> None:
        """Add the rows of one chunk; ``residual`` are the errors before learning each row."""
        self.rows += len(y)
        if not used.any():
            return
        self.used += int(np.count_nonzero(used))
        self.smallest = min(self.smallest, float(y[used].min()))
        self.largest = max(self.largest, float(y[used].max()))
        scored = used & basis.scored
        self.scored += int(np.count_nonzero(scored))
        for prefix, error in (("", residual), ("mean_", y - basis.mean), ("last_", y - basis.last)):
            for name, sums in (("absolute", np.abs), ("square", np.square)):
                total = getattr(self, prefix + name) + float(sums(error[scored]).sum())
                setattr(self, prefix + name, total)

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
        names = {field.name for field in dataclasses.fields(cls)}
        numbers: dict[str, Any] = {
            key: float(value) if isinstance(value, str) else value
            for key, value in saved.items()
            if key in names
        }
        return cls(**numbers)
