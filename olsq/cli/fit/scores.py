"""Running errors of forecasts, by group or not, of regressions and of model-free baselines."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from olsq.cli.fit.checkpoint import pack, unpack
from olsq.cli.fit.horizon import Known


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
        self,
        y: NDArray[np.float64],
        residual: NDArray[np.float64],
        used: NDArray[np.bool_],
        groups: NDArray[np.int64] | None = None,
        basis: Known | None = None,
    ) -> None:
        """Add the rows of one chunk; ``residual`` are the errors before learning each row.

        ``groups`` are of no matter here.  ``basis`` is what forecasts of a horizon rest on, by
        default all rows before.
        """
        self.rows += len(y)
        if not used.any():
            return
        if not used.all():
            y, residual = y[used], residual[used]
        if not self.used:
            self.first = self.last = float(y[0])
        learned = self.used + np.arange(len(y))
        shifted = y - self.first
        earlier = self.shifted_sum + np.cumsum(shifted) - shifted
        from_mean = shifted - earlier / np.maximum(learned, 1)
        from_last = y - np.concatenate([[self.last], y[:-1]])
        if basis is None:
            first = max(self.burn_in - self.used, 1 - self.used, 0)  # not scored before
            self._add(residual[first:], from_mean[first:], from_last[first:])
        else:
            self._add_known(y, residual, basis, used)
        self.used += len(y)
        self.last = float(y[-1])
        self.shifted_sum += float(shifted.sum())
        self.smallest = min(self.smallest, float(y.min()))
        self.largest = max(self.largest, float(y.max()))

    def _add(self, residual: NDArray, from_mean: NDArray, from_last: NDArray) -> None:
        """Add the errors of the rows that are scored."""
        self.scored += len(residual)
        self.absolute += float(np.abs(residual).sum())
        self.square += float(np.square(residual).sum())
        self.mean_absolute += float(np.abs(from_mean).sum())
        self.mean_square += float(np.square(from_mean).sum())
        self.last_absolute += float(np.abs(from_last).sum())
        self.last_square += float(np.square(from_last).sum())

    def _add_known(self, y: NDArray, residual: NDArray, basis: Known, rows: NDArray) -> None:
        """Add the errors of forecasts of ``rows`` of a chunk, whose targets are y."""
        scored, mean, last = basis.scored[rows], basis.mean[rows], basis.last[rows]
        self._add(residual[scored], (y - mean)[scored], (y - last)[scored])

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


# Columns of ``past``.
LEARNED, FIRST, LAST, SHIFTED = range(4)


@dataclass
class GroupScores(Scores):
    """Sums over the rows of all groups; a group's rows are scored after its own first ones.

    ``past`` (groups, 4) has each group's rows learned, its first and last target, and the sum of
    its targets less the first.
    """

    past: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 4)))

    def learned_before(
        self, used: NDArray[np.bool_], groups: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Count the rows of its group that were learned before each row (n,) of a chunk.

        To be asked before :meth:`update` of the chunk; 0 for rows without a label.
        """
        assert groups is not None
        learned_rows = np.concatenate([self.past[:, LEARNED], np.zeros(len(groups) + 1)])
        rows = np.argsort(groups, kind="stable")
        codes = groups[rows]
        begins = np.flatnonzero(np.diff(codes, prepend=-2))
        learned = np.cumsum(used[rows])
        before = np.where(begins > 0, learned[begins - 1], 0)
        counts = np.diff(begins, append=len(codes))
        counts_before = np.empty(len(codes), np.int64)
        earlier = learned_rows[np.minimum(codes, len(learned_rows) - 1)].astype(np.int64)
        counts_before[rows] = earlier + learned - used[rows] - np.repeat(before, counts)
        return np.where(groups >= 0, counts_before, 0)

    def update(
        self,
        y: NDArray[np.float64],
        residual: NDArray[np.float64],
        used: NDArray[np.bool_],
        groups: NDArray[np.int64] | None = None,
        basis: Known | None = None,
    ) -> None:
        """Count the rows of one chunk; ``groups`` (n,) are the numbers of their labels."""
        assert groups is not None
        self.rows += len(y)
        rows = np.flatnonzero(used)
        rows = rows[np.argsort(groups[rows], kind="stable")]
        if not rows.size:
            return
        y, residual, codes = y[rows], residual[rows], groups[rows]
        more = int(codes.max()) + 1 - len(self.past)
        if more > 0:
            self.past = np.concatenate([self.past, np.tile([0.0, 0.0, math.nan, 0.0], (more, 1))])
        begins = np.flatnonzero(np.diff(codes, prepend=-1))
        present, counts = codes[begins], np.diff(begins, append=len(codes))
        fresh = self.past[present, LEARNED] == 0
        self.past[present[fresh], FIRST] = y[begins[fresh]]
        place = np.arange(len(codes)) - np.repeat(begins, counts)
        learned = self.past[codes, LEARNED] + place
        # relative to the group's first target, so that a large level costs no digits
        shifted = y - self.past[codes, FIRST]
        total = np.cumsum(shifted) - shifted
        earlier = self.past[codes, SHIFTED] + total - np.repeat(total[begins], counts)
        before = np.concatenate([y[:1], y[:-1]])
        before[begins] = self.past[present, LAST]
        scored = learned >= max(self.burn_in, 1)
        from_mean = (shifted - earlier / np.maximum(learned, 1))[scored]
        from_last = (y - before)[scored]
        if basis is None:
            self._add(residual[scored], from_mean, from_last)
        else:
            self._add_known(y, residual, basis, rows)
        if not self.used:
            self.first = float(y[int(np.argmin(rows))])
        self.used += len(y)
        self.smallest = min(self.smallest, float(y.min()))
        self.largest = max(self.largest, float(y.max()))
        self.past[present, LEARNED] += counts
        self.past[present, SHIFTED] += np.add.reduceat(shifted, begins)
        self.past[present, LAST] = y[begins + counts - 1]

    def as_dict(self) -> dict[str, Any]:
        """Return all sums for the checkpoint."""
        fields = {key: value for key, value in asdict(self).items() if key != "past"}
        numbers = {
            key: value if math.isfinite(value) else str(value) for key, value in fields.items()
        }
        return numbers | {"past": pack(self.past)}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """Rebuild the scores from the dictionary made by :meth:`as_dict`."""
        numbers: dict[str, Any] = {
            key: float(value) if isinstance(value, str) else value
            for key, value in saved.items()
            if key != "past"
        }
        return cls(**numbers, past=unpack(saved["past"]).reshape(-1, 4))
