"""Times of the rows of groups, each of which forgets by the time since its own last row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.many.labels import MISSING
from olsq.online.rows.durations import DATES, Duration, gates_after, time_between
from olsq.online.rows.times import (
    Clock,
    Timing,
    check_kind,
    check_same_kind,
    read_times_in_any_order,
    same_clock,
    time_shown,
)

FIRST, LAST, FIRST_LEARNED, LAST_LEARNED = range(4)
NO_DATE = np.iinfo(np.int64).min  # NumPy's NaT


class Clocks(NamedTuple):
    """Times of the first and last rows of each group.

    ``values`` (groups, 4) holds the times of a group's first and last row, and of the first and
    last one that was learned: int64 nanoseconds for dates, where NO_DATE stands for no such row, or
    float64 for numbers, where NaN does.  ``zoned`` is that of :class:`Timing`.
    """

    kind: str
    values: NDArray
    zoned: Clock = None

    @classmethod
    def start(cls, kind: str, n: int, zoned: Clock = None) -> Clocks:
        """Make clocks of n groups without rows."""
        empty = NO_DATE if kind == DATES else np.nan
        return cls(kind, np.full((n, 4), empty, np.int64 if kind == DATES else np.float64), zoned)

    def grown(self, n: int) -> Clocks:
        """Copy the clocks for n groups, of which the new ones have no rows."""
        more = Clocks.start(self.kind, n - len(self.values)).values
        return self._replace(values=np.concatenate([self.values, more]))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Mask of the entries (groups, 4) that are times."""
        return self.values != NO_DATE if self.kind == DATES else ~np.isnan(self.values)

    def timing(self, group: int) -> Timing | None:
        """Return a group's timing as an estimator has it; None before the group's first row."""
        if not self.known[group, FIRST]:
            return None
        first, last = self.values[group, :FIRST_LEARNED].tolist()
        return Timing(self.kind, first, last, self.zoned)

    def span(self, group: int) -> NDArray:
        """Return the times of the first and last row learned by a group, or an empty array."""
        learned = self.values[group, FIRST_LEARNED:]
        return learned.copy() if self.known[group, FIRST_LEARNED] else learned[:0].copy()

    def followed_by(self, later: Clocks) -> Clocks:
        """Return the clocks of the same groups after the rows of both, these rows first."""
        values = later.values.copy()
        for first in (FIRST, FIRST_LEARNED):
            begun, ended = self.known[:, first], later.known[:, first]
            values[begun, first] = self.values[begun, first]
            values[~ended, first + 1] = self.values[~ended, first + 1]
        return self._replace(values=values)

    def set_group(self, group: int, timing: Timing | None, span: NDArray | None) -> None:
        """Set a group's times to those of an estimator."""
        if timing is not None:
            self.values[group, :FIRST_LEARNED] = timing.first, timing.last
        if span is not None and span.size:
            self.values[group, FIRST_LEARNED:] = span


class TimedRows:
    """The rows of one call with their groups and times; ``after`` has the clocks once learned.

    ``codes`` (n,) are the groups, ``times`` (n,) values of the clocks' kind, and ``half_life`` is
    in their unit, infinite where nothing is forgotten by the time.
    """

    def __init__(
        self, clocks: Clocks, codes: NDArray[np.int64], times: NDArray, half_life: float
    ) -> None:
        self.after = clocks
        self.times = times
        self._before = clocks
        self._half_life = half_life
        # A stable sort keeps each group's rows in the order in which they came.
        self._order = np.argsort(codes, kind="stable")
        self._codes, self._times = codes[self._order], times[self._order]

    def check_order(self, keys: list[Any], rows: NDArray[np.int64]) -> None:
        """Raise ValueError if times go back within a group.

        ``keys`` are the labels of the groups and ``rows`` (n,) the numbers of the rows for the
        message.
        """
        previous = previous_times(self._times, self._codes, self._before.values[:, LAST])
        back = self._times < previous
        if back.any():
            t = int(np.argmax(back))
            now, before = (
                time_shown(self._before.kind, a[t], self._before.zoned)
                for a in (self._times, previous)
            )
            raise ValueError(
                f"times must not go back within a group, but row {rows[self._order[t]]} of group "
                f"{keys[self._codes[t]]!r} is at {now}, after one at {before}: sort the rows by "
                "time first"
            )

    def gates(self, usable: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        """Compute forgetting factors (n,) since the row that the same group learned before.

        Rows that are not ``usable`` (n,) have 1.  Sets ``after``.
        """
        learned = slice(None) if usable is None else usable[self._order]
        codes, times = self._codes[learned], self._times[learned]
        gates = np.ones(self._order.size)
        gates[self._order[learned]] = gates_of_groups(
            times, codes, self._before.values[:, LAST_LEARNED], self._half_life
        )
        values, present = self._before.values.copy(), self._before.known
        kinds = [(FIRST, self._codes, self._times)]
        if self._half_life < np.inf:  # else no row counts from the last one that was learned
            kinds.append((FIRST_LEARNED, codes, times))
        for first, group_of_row, at in kinds:
            groups, begins = np.unique(group_of_row, return_index=True)
            fresh = ~present[groups, first]
            values[groups[fresh], first] = at[begins[fresh]]
            ends = np.append(begins[1:], group_of_row.size)[: groups.size] - 1
            values[groups, first + 1] = at[ends]
        self.after = self._before._replace(values=values)
        return gates


def time_rows(
    clocks: Clocks | None,
    times: Any,
    codes: NDArray[np.int64],
    keys: list[Any],
    n: int,
    duration: Duration,
    parameter: str,
    half_life: float,
) -> TimedRows:
    """Check the times of labelled rows; return them with the clocks of n groups.

    ``parameter`` is the one that is a ``duration``, for messages.
    """
    rows = np.flatnonzero(codes != MISSING)
    read = read_times_in_any_order(times, codes.size, codes != MISSING)
    values, zoned = read.values, None
    if codes.size:
        check_kind(read.kind, duration, parameter)
        zoned = read.zoned
    else:  # an empty list has no kind
        values = values.astype(Clocks.start(duration.kind, 0).values.dtype)
    clocks = clocks or Clocks.start(duration.kind, 0)
    check_same_kind(clocks.kind, duration, parameter)
    clocks = clocks._replace(zoned=same_clock(clocks.zoned, zoned))
    timed = TimedRows(clocks.grown(n), codes[rows], values[rows], half_life)
    timed.check_order(keys, rows)
    return timed


def previous_times(times: NDArray, groups: NDArray[np.int64], last: NDArray) -> NDArray:
    """Return the time (n,) before each one in its group, for rows sorted by group.

    A group's first row has that of ``last`` (groups,), or its own where ``last`` holds none.
    """
    previous = np.concatenate([times[:1], times[:-1]])
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    before = last[groups[begins]]
    present = before != NO_DATE if times.dtype.kind == "i" else ~np.isnan(before)
    previous[begins] = np.where(present, before, times[begins])
    return previous


def gates_of_groups(
    times: NDArray, groups: NDArray[np.int64], last: NDArray, half_life: float
) -> NDArray[np.float64]:
    """Compute the forgetting factors (n,) of rows by the time since the last one of their group.

    Arguments are those of :func:`previous_times`.
    """
    elapsed = time_between(previous_times(times, groups, last), times)
    return gates_after(elapsed, half_life)
