"""Rows of a chunk by group: running sums, and the row before, within each group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class GroupedRows(NamedTuple):
    """The rows of a chunk that belong to a group, those of a group next to each other.

    ``rows`` (r,) are their places in the chunk, in order within a group; ``codes`` (r,) the numbers
    of their groups; ``begins`` (g,) where each group begins among them.
    """

    rows: NDArray[np.int64]
    codes: NDArray[np.int64]
    begins: NDArray[np.int64]

    @classmethod
    def of(
        cls, codes: NDArray[np.int64] | None, n: int, mask: NDArray[np.bool_] | None = None
    ) -> GroupedRows:
        """Sort n rows by the numbers of their groups (-1: of none); without any all are one."""
        if codes is None and mask is None:
            return cls(np.arange(n), np.zeros(n, np.int64), np.zeros(min(n, 1), np.int64))
        if codes is None:
            codes = np.zeros(n, np.int64)
        rows = np.flatnonzero(codes >= 0 if mask is None else mask & (codes >= 0))
        rows = rows[np.argsort(codes[rows], kind="stable")]
        return cls(rows, codes[rows], np.flatnonzero(np.diff(codes[rows], prepend=-1)))

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows (g,) of each group."""
        return np.diff(self.begins, append=len(self.rows))

    @property
    def first_places(self) -> NDArray[np.int64]:
        """The place (r,) at which the group of each row begins."""
        return np.repeat(self.begins, self.counts)

    def by_code(self) -> dict[int, NDArray[np.int64]]:
        """Return the rows of each group."""
        parts = np.split(self.rows, self.begins[1:])
        return dict(zip(self.codes[self.begins].tolist(), parts, strict=bool(len(self.begins))))

    def sums(self, values: NDArray) -> NDArray:
        """Return running sums of values (r, ...), from the beginning of each group."""
        total = np.cumsum(values, axis=0)
        if len(self.begins) == 1:
            return total
        return total - (total - values)[self.first_places]

    def shift(self, values: NDArray, firsts: NDArray) -> NDArray:
        """Return the values (r, ...) of the row before; ``firsts`` (g, ...) before the first."""
        before = np.concatenate([values[:1], values[:-1]])
        before[self.begins] = firsts
        return before


def extend(values: NDArray[np.float64], groups: int, fill: float) -> NDArray[np.float64]:
    """Return values of each group with ``fill`` for groups that are new."""
    more = max(groups - len(values), 0)
    return np.concatenate([values, np.full((more, *values.shape[1:]), fill)])
