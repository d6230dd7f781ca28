"""Rows of many streams in line, one stream's after the other's, and the paths that they leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.call import embedded
from olsq.online.forms.statistics import Turns
from olsq.online.rows import complex_rows, inputs


class BankRows(NamedTuple):
    """Checked rows X (N, d), Y (N, m), and the assignment of rows to filters.

    ``members[i]``, no filter twice, gets ``order[begins[i]:ends[i]]``; gates and weights
    (N,); ``usable`` (N,), or (0,) where all are.
    """

    members: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    order: NDArray[np.int64]
    X: NDArray
    Y: NDArray
    gates: NDArray[np.float64]
    weights: NDArray[np.float64]
    usable: NDArray[np.bool_]

    def as_pairs(self, intercept: bool) -> BankRows:
        """Embed complex rows as pairs of real ones, each filter's in its order."""
        X = inputs.with_ones(self.X, intercept, np.complex128)
        return BankRows(
            self.members,
            2 * self.begins,
            2 * self.ends,
            (2 * self.order[:, None] + np.arange(2)).reshape(-1),
            embedded(X),
            complex_rows.embed_targets(self.Y),
            complex_rows.embed_gates(self.gates),
            np.repeat(self.weights, 2),
            np.repeat(self.usable, 2),
        )

    @property
    def sequence(self) -> NDArray[np.int64]:
        """The rows in the order in which they are learned, one filter's after the other's."""
        if self.begins.size and (self.begins[1:] == self.ends[:-1]).all():
            return self.order[self.begins[0] : self.ends[-1]]
        ranges = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return np.concatenate([self.order[:0], *(self.order[a:b] for a, b in ranges)])

    @property
    def in_line(self) -> InLine:
        """The usable rows as they are learned."""
        sequence, counts = self.sequence, self.ends - self.begins
        if self.usable.size:
            usable = self.usable[sequence]
            member = np.repeat(np.arange(counts.size), counts)
            counts = np.bincount(member[usable], minlength=counts.size)
            sequence = sequence[usable]
        bounds = np.zeros(counts.size + 1, np.int64)
        counts.cumsum(out=bounds[1:])
        return InLine(self.members, sequence, bounds)


class InLine(NamedTuple):
    """Rows to learn, those of ``members[i]`` being ``sequence[bounds[i]:bounds[i + 1]]``."""

    members: NDArray[np.int64]
    sequence: NDArray[np.int64]
    bounds: NDArray[np.int64]

    def of(self, begin: int, end: int) -> InLine:
        """Select the rows of some of the members."""
        return self._replace(members=self.members[begin:end], bounds=self.bounds[begin : end + 1])

    def pieces(self, size: int) -> Iterator[tuple[Turns, slice | NDArray[np.int64]]]:
        """Cut into pieces of about ``size`` rows; yield their members with the places of their rows
        in the piece, and the numbers of the rows.

        A piece ends with a member's last row, unless that member alone has more.
        """
        bounds = self.bounds
        start, last = int(bounds[0]), int(bounds[-1])
        if 0 < last - start <= size:  # as below, in a third of the time
            begins = bounds[:-1] - start
            yield (self.members, begins, bounds[1:] - start), _as_slice(self.sequence[start:last])
            return
        while start < last:
            stop = int(bounds[np.searchsorted(bounds, start + size, "right") - 1])
            if stop <= start:
                stop = min(start + size, last)
            first = np.searchsorted(bounds, start, "right") - 1
            behind = np.searchsorted(bounds, stop, "left")
            places = np.clip(bounds[first : behind + 1] - start, 0, stop - start)
            turns = self.members[first:behind], places[:-1].copy(), places[1:]
            yield turns, _as_slice(self.sequence[start:stop])
            start = stop


def _as_slice(numbers: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return the slice that selects these numbers, where they rise by one."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first == numbers.size - 1 and (numbers[1:] > numbers[:-1]).all():
        return slice(first, last + 1)
    return numbers
