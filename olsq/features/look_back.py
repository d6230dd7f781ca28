"""Lags in time: the times of rows, and the row that there was a length of time before each."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import real_array
from olsq.features.times import missing, stamps
from olsq.online.rows.durations import DATES, NUMBERS, Duration, any_duration, is_duration
from olsq.online.rows.frames import with_numpy_dates

NO_ROW = -1
_DAYS = re.compile(r"(\s*[\d.]+\s*(d|days?|w|weeks?)\s*)+", re.IGNORECASE)
_LONGEST_CHANGE = 86400 * 10**9  # of a zone's clocks


class Shift(NamedTuple):
    """A length of time to look back; ``by_clock``: days, to the same time on the zone's clocks."""

    duration: Duration
    by_clock: bool = False

    @classmethod
    def read(cls, value: Any, name: str) -> Self:
        """Read a length of time; TypeError or ValueError for anything else."""
        by_clock = isinstance(value, str) and _DAYS.fullmatch(value) is not None
        return cls(any_duration(value, name), by_clock)

    def times(self, count: int) -> Shift:
        """Return this length a number of times."""
        return self._replace(duration=self.duration._replace(length=count * self.duration.length))


class RowTimes(NamedTuple):
    """Times (n,) of rows and what the clocks of their zone show: int64 nanoseconds or float64."""

    values: NDArray[Any]
    clock: NDArray[Any]
    zoned: bool | None  # None: none of them says it, or they are numbers

    @property
    def kind(self) -> str:
        return DATES if self.values.dtype.kind == "i" else NUMBERS

    @property
    def known(self) -> NDArray[np.bool_]:
        """Mask the rows whose time is not missing."""
        return ~missing(self.values, self.kind == DATES)

    def take(self, rows: Any) -> RowTimes:
        """Return the times of some rows."""
        return RowTimes(self.values[rows], self.clock[rows], self.zoned)

    def after(self, earlier: RowTimes | None) -> RowTimes:
        """Return the times of earlier rows and these; ValueError where they go back."""
        joined = self
        if earlier is not None and len(earlier.values):
            if earlier.kind != self.kind:
                raise ValueError(f"times must be {earlier.kind} as in earlier calls")
            values = np.concatenate([earlier.values, self.values])
            clock = np.concatenate([earlier.clock, self.clock])
            joined = RowTimes(values, clock, self.zoned)
        known = joined.values[joined.known]
        if (known[1:] < known[:-1]).any():
            raise ValueError("times must not go back: sort the rows by time first")
        return joined

    def rows_before(self, first: int, shift: Shift, tolerance: Duration | None) -> NDArray[np.intp]:
        """Find for every row from ``first`` on the row that there was ``shift`` before it, or the
        last one at most ``tolerance`` before that; ``NO_ROW`` where there is none.
        """
        axis, known = (self.clock if shift.by_clock else self.values), np.flatnonzero(self.known)
        # Clocks are put back, so that what they show is not in order.
        order = known[np.argsort(axis[known], kind="stable")]
        now = axis[first:]
        wanted, slack = shift.duration.expired(now), 0 if tolerance is None else tolerance.length
        if self.kind == NUMBERS:
            slack += 8 * np.spacing(np.maximum(np.abs(now), shift.duration.length))
        place = np.searchsorted(axis[order], wanted, side="right") - 1
        found = (place >= 0) & self.known[first:]
        place[~found] = 0
        rows = order[place] if order.size else np.full(len(now), NO_ROW)
        found &= wanted - axis[rows] <= slack
        return np.where(found, rows, NO_ROW)

    def oldest_needed(self, longest: int | float) -> int:
        """Return the first row that a later row may look back to, by at most ``longest``."""
        known = np.flatnonzero(self.known)
        if not known.size:
            return len(self.values)
        margin = _LONGEST_CHANGE if self.kind == DATES else 0
        # One more is kept at the edge, where numbers round.
        before = self.values[known] < float(self.values[known[-1]]) - float(longest + margin)
        return int(known[max(int(before.sum()) - 1, 0)])


def read_row_times(times: Any) -> RowTimes:
    """Read times of rows: dates or numbers, which may be missing.

    Raises ValueError for text and for what is more than one column.
    """
    times = with_numpy_dates(times)
    if type(times).__name__ == "PeriodIndex":
        times = times.to_timestamp()
    if hasattr(times, "to_series") and hasattr(times, "tz"):
        times = times.to_series()
    if not hasattr(times, "dtype") and not hasattr(times, "type"):
        times = np.asarray(times)
    if getattr(times, "ndim", 1) != 1:
        raise ValueError("times must be one column: one time for each row")
    found = stamps(times, local=False)
    if found is not None:
        local = stamps(times, local=True)
        assert local is not None
        return RowTimes(found[0], local[0], found[1])
    values = np.asarray(times)
    if values.dtype.kind in "USTO" and any(isinstance(v, (str, bytes)) for v in values.flat):
        raise ValueError(
            f"times must be dates or numbers, got text such as {values.flat[0]!r}: convert it, for "
            "instance with pandas.to_datetime"
        )
    numbers = np.asarray(real_array(times, "times"), np.float64)
    return RowTimes(numbers, numbers, None)


def is_dates_index(index: Any) -> bool:
    """Test whether the index of a frame or series holds dates."""
    return type(index).__name__ in ("DatetimeIndex", "PeriodIndex")


def check_tolerance(tolerance: Any) -> Duration | None:
    """Return how far before a time its row may be, None for not at all."""
    return None if tolerance is None else any_duration(tolerance, "tolerance")


def reads_times(lags: Any) -> bool:
    """Test whether lags are lengths of time between dates."""
    if is_duration(lags):
        return not (isinstance(lags, str) and lags.isdecimal())
    if isinstance(lags, range) or not hasattr(lags, "__iter__") or callable(lags):
        return False
    several: Any = lags
    return any(map(is_duration, several))
