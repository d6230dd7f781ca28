"""Running one-step-ahead errors of many regressions and of baselines computed within each group."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from olsq.cli.fit.checkpoint import pack, unpack
from olsq.cli.fit.scores import Scores

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
        known = np.concatenate([self.past[:, LEARNED], np.zeros(len(groups) + 1)])
        rows = np.argsort(groups, kind="stable")
        codes = groups[rows]
        begins = np.flatnonzero(np.diff(codes, prepend=-2))
        learned = np.cumsum(used[rows])
        before = np.where(begins > 0, learned[begins - 1], 0)
        counts = np.diff(begins, append=len(codes))
        found = np.empty(len(codes), np.int64)
        earlier = known[np.minimum(codes, len(known) - 1)].astype(np.int64)
        found[rows] = earlier + learned - used[rows] - np.repeat(before, counts)
        return np.where(groups >= 0, found, 0)

    def update(
        self, y: NDArray[np.float64], residual: NDArray[np.float64], used: NDArray[np.bool_],
        groups: NDArray[np.int64] | None = None,
    ) -> None:  # fmt: skip
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
        own, counts = codes[begins], np.diff(begins, append=len(codes))
        fresh = self.past[own, LEARNED] == 0
        self.past[own[fresh], FIRST] = y[begins[fresh]]
        place = np.arange(len(codes)) - np.repeat(begins, counts)
        learned = self.past[codes, LEARNED] + place
        # relative to the group's first target, so that a large level costs no digits
        shifted = y - self.past[codes, FIRST]
        total = np.cumsum(shifted) - shifted
        earlier = self.past[codes, SHIFTED] + total - np.repeat(total[begins], counts)
        before = np.concatenate([y[:1], y[:-1]])
        before[begins] = self.past[own, LAST]
        scored = learned >= max(self.burn_in, 1)
        from_mean = (shifted - earlier / np.maximum(learned, 1))[scored]
        from_last = (y - before)[scored]
        self.scored += int(scored.sum())
        self.absolute += float(np.abs(residual[scored]).sum())
        self.square += float(np.square(residual[scored]).sum())
        self.mean_absolute += float(np.abs(from_mean).sum())
        self.mean_square += float(np.square(from_mean).sum())
        self.last_absolute += float(np.abs(from_last).sum())
        self.last_square += float(np.square(from_last).sum())
        if not self.used:
            self.first = float(y[int(np.argmin(rows))])
        self.used += len(y)
        self.smallest = min(self.smallest, float(y.min()))
        self.largest = max(self.largest, float(y.max()))
        self.past[own, LEARNED] += counts
        self.past[own, SHIFTED] += np.add.reduceat(shifted, begins)
        self.past[own, LAST] = y[begins + counts - 1]

    def as_dict(self) -> dict[str, Any]:
        """Return all sums for the checkpoint."""
        own = {key: value for key, value in asdict(self).items() if key != "past"}
        numbers = {key: value if math.isfinite(value) else str(value) for key, value in own.items()}
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
