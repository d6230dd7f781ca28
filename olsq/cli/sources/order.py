"""The order of rows in time: of one table, of each of its groups, and of tables that follow."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.sources.clocks import in_row_order, may_be_repeated, utc_times
from olsq.cli.sources.grouping import GroupedRows, extend
from olsq.cli.sources.steps import Steps
from olsq.cli.sources.times import DATETIME, UNITS, TimeColumn, datetime_text


class _Rows(NamedTuple):
    """Rows with a time, by group: numbers from 1, codes of groups, times and those just before.

    ``before`` is -inf in the first row of a group.
    """

    numbers: NDArray[np.int64]
    codes: NDArray[np.int64]
    times: NDArray[np.float64]
    before: NDArray[np.float64]


class RowOrder:
    """Checks the order of rows in time, and keeps the last time of every group.

    Parameters
    ----------
    column : TimeColumn
        How times are written.
    where : str
        What to call the table in messages.
    by_group : bool
        Whether rows are in order within their group only.

    Attributes
    ----------
    lasts : array (groups,)
        The time of each group's last row that has one; rows without labels are one group.
    """

    def __init__(self, column: TimeColumn, where: str, *, by_group: bool) -> None:
        self._column, self._where = column, where
        self._of_group = " of its group" if by_group else ""
        self.lasts = np.empty(0)
        self._steps = Steps()
        # of a table before: its last times, after which those of this one have to come, and its
        # steps, which must go on without a gap
        self._learned: NDArray[np.float64] | None = None
        self._usual_steps: Steps | None = None

    def in_order(
        self, new_times: NDArray[np.float64], start: int, groups: NDArray[np.int64] | None
    ) -> NDArray[np.float64]:
        """Return the times of the rows after ``start``, local ones as UTC; remember the last ones.

        Raises
        ------
        InputError
            If a time lies before that of the row above (with the numbers of ``groups`` (n,): of
            the same group), is one that a clock shows twice or never, or (:meth:`follow`) is not
            the step after the rows that were learned.
        """
        by_group = GroupedRows.of(groups, new_times.size, np.isfinite(new_times))
        rows, codes, begins = by_group
        times, numbers = new_times[rows], start + rows + 1
        self.lasts = extend(self.lasts, int(codes.max(initial=-1)) + 1, -np.inf)
        firsts = self.lasts[codes[begins]]
        if self._column.is_local:
            lasts = by_group.shift(np.full(times.size, np.nan), firsts)
            times = self._to_utc(times, lasts, numbers)
        found = _Rows(numbers, codes, times, by_group.shift(times, firsts))
        if self._usual_steps is not None:
            self._check_steps(found, self._usual_steps)
        self._check_ascent(found)
        if self._learned is not None:
            tied = (times == found.before) & self._follow_learned(found)
            if tied.any():
                row, now, _ = self._describe(found, _first(found, tied))
                raise InputError(
                    f"{row} has the time of the last row that was learned{self._of_group} ({now}): "
                    "leave out the rows that were learned"
                )
        self.lasts[codes] = times  # of several, the last stays
        self._steps.add((times - found.before)[np.isfinite(found.before)])
        in_utc = np.full(new_times.size, np.nan)
        in_utc[rows] = times
        return in_utc if self._column.is_local else new_times

    def _to_utc(
        self, local: NDArray, lasts: NDArray, numbers: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Convert local times, by group, to UTC; ``lasts`` are of the rows above, where known."""
        zone = str(self._column.zone)
        first, last = utc_times(local, zone)
        skipped = np.flatnonzero(np.isnan(first))
        if skipped.size:
            row = skipped[np.argmin(numbers[skipped])]
            time = datetime_text(float(local[row]))
            raise InputError(
                f"--time-zone: row {numbers[row]:,} of {self._where} holds {time} in column "
                f"{self._column.name!r}, which the clocks of {zone} skip: choose the zone of the "
                "times"
            )
        tied = (first == np.where(np.isnan(lasts), np.roll(first, 1), lasts)) & (first == last)
        ties = self._steps.ties_are_usual(int(np.count_nonzero(tied)), local.size)
        return in_row_order(first, last, lasts, ties=ties)

    def _follow_learned(self, rows: _Rows) -> NDArray[np.bool_]:
        """Mask the rows just after the last one that was learned, of their group."""
        assert self._learned is not None
        return rows.before == extend(self._learned, self.lasts.size, -np.inf)[rows.codes]

    def _describe(self, rows: _Rows, at: int) -> tuple[str, str, str]:
        """Return what to call a row, its time and that of the one above it."""
        now, above = (self._column.shown(float(times[at])) for times in (rows.times, rows.before))
        return f"--time: row {rows.numbers[at]:,} of {self._where}", now, above

    def _check_ascent(self, rows: _Rows) -> None:
        """Raise InputError for the first row that is earlier than the one above it, or repeats its
        hour.
        """
        times, before = rows.times, rows.before
        wrong = times < before
        may_be_set_back = self._column.kind == DATETIME and not self._column.is_zoned
        if may_be_set_back:
            tied = np.flatnonzero(times == before)
            repeated = tied[may_be_repeated(times[tied])]
            if not self._steps.ties_are_usual(tied.size - repeated.size, times.size):
                wrong[repeated] = True
        if not wrong.any():
            return
        at = _first(rows, wrong)
        row, now, above = self._describe(rows, at)
        if times[at] == before[at]:
            raise InputError(
                f"{row} ({now}) has the time of the one above it{self._of_group}, in an hour that "
                "clocks show twice when they are set back: give --time-zone Europe/Berlin, for "
                "example, or --time-zone UTC if no clock was"
            )
        advice = f"sort the rows by {self._column.name!r}"
        near = before[at] - times[at] < UNITS["hour"]
        if may_be_set_back and near and may_be_repeated(times[[at]]).any():
            advice += ", or give --time-zone if the clocks were set back (Europe/Berlin, say)"
        raise InputError(
            f"{row} ({now}) is earlier than the one above it{self._of_group} ({above}): {advice}"
        )

    def _check_steps(self, rows: _Rows, usual: Steps) -> None:
        """Raise InputError for the first row that does not follow those that were learned."""
        late = (rows.times <= rows.before) & self._follow_learned(rows)
        lengths = np.where(np.isfinite(rows.before), rows.times - rows.before, 0.0)
        wrong = late | ~usual.are_usual(lengths)
        if not wrong.any():
            return
        at = _first(rows, wrong)
        row, now, above = self._describe(rows, at)
        if late[at]:
            raise InputError(
                f"{row} ({now}) is not later than the last row that was learned ({above}), and "
                "with --lags new rows follow it: leave earlier rows out"
            )
        gap, step = (self._column.span_text(span) for span in (lengths[at], usual.commonest))
        missing = max(round(lengths[at] / usual.commonest) - 1, 1)
        raise InputError(
            f"{row} ({now}) comes {gap} after the row before it ({above}), and rows were learned "
            f"in steps of {step}: {missing:,} row{'s'[: missing != 1]} between them "
            f"{'are' if missing != 1 else 'is'} missing, which --lags need: add rows with an empty "
            "target to forecast over them, or leave out --time if this row is the next one"
        )

    def follow(self, saved: dict[str, Any]) -> None:
        """Take only rows that follow those of :meth:`as_dict` step by step."""
        self.continue_from(saved)
        self._learned, self._usual_steps, self._steps = self.lasts.copy(), self._steps, Steps()

    def continue_from(self, saved: dict[str, Any]) -> None:
        """Go on after the last times of :meth:`as_dict`, not at them unless ties are usual."""
        self.restore(saved)
        if self._steps.are_counted and not self._steps.ties_are_usual(0, 0):
            self._learned = self.lasts.copy()

    def as_dict(self) -> dict[str, Any]:
        """Return the last times and the steps for the checkpoint."""
        lasts = [time if math.isfinite(time) else None for time in self.lasts.tolist()]
        return {"lasts": lasts, "steps": self._steps.as_dict()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what :meth:`as_dict` saved."""
        lasts = [-math.inf if time is None else time for time in saved["lasts"]]
        self.lasts = np.array(lasts, np.float64)
        self._steps = Steps(saved.get("steps"))  # files of olsq 0.2 have none


def _first(rows: _Rows, wrong: NDArray[np.bool_]) -> int:
    """Return the place of the wrong row that is the first one in the table."""
    places = np.flatnonzero(wrong)
    return int(places[np.argmin(rows.numbers[places])])
