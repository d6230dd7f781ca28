"""The time column: dates, dates with a time of day, or numbers, in ascending order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.sources.clocks import check_zone, in_row_order, may_be_repeated, utc_times
from olsq.cli.sources.columns import TableFormat
from olsq.cli.sources.numbers import parse_numbers
from olsq.cli.sources.steps import Steps

NUMBER, DATE, DATETIME = "number", "date", "datetime"
_KINDS = {True: "numbers", False: "dates"}
# Tried in this order on the first chunk; the first that reads all of it serves the whole file.
DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%Y-%m")
# Indistinguishable in a file whose days are all at most 12.
AMBIGUOUS = ("%m/%d/%Y", "%d/%m/%Y")
CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S%.f")
ZONES = ("", "%z", "%#z")
UNITS = {"day": 86_400 * 10**6, "hour": 3600 * 10**6, "minute": 60 * 10**6, "second": 10**6}


class TimeColumn:
    """The format of the time column, and the last time of every group.

    Parameters
    ----------
    name : str
        Of the column.
    table : TableFormat
        How times are written: ``time_format`` in the language of ``strftime`` (None finds out),
        ``time_zone`` of those that name none (None: UTC).

    Attributes
    ----------
    kind : {"number", "date", "datetime"} or None
        None until the first cells were seen.
    lasts : array (groups,)
        The time of each group's last row that has one; rows without labels are one group.
    zone : str or None
        The zone of the table's clock, in which times are shown.
    """

    def __init__(self, name: str, table: TableFormat) -> None:
        self.name, self.pattern, self.zone = name, table.time_format, table.time_zone
        if self.zone is not None:
            check_zone(self.zone)
        self._table = table
        self.kind: str | None = None
        self.lasts = np.empty(0)
        self._kind_before: str | None = None  # of a table that this one follows
        self._zoned: bool | None = None  # whether times so far have a time zone; None for numbers
        self._local = False  # whether this table's are of the clock of ``zone``
        self._steps = Steps()
        # the last times and the steps of rows that the table's must follow without a gap
        self._followed: tuple[NDArray[np.float64], Steps] | None = None
        # the last times of a table before, after which those of this one have to come
        self._learned: NDArray[np.float64] | None = None

    def settle(self, cells: pl.Series) -> None:
        """Determine the times' format from the first cells, unless it is known."""
        if self.kind is not None:
            return
        if cells.dtype.is_numeric():
            self.kind = NUMBER
        elif cells.dtype in (pl.Date, pl.Datetime):
            self.kind = DATE if cells.dtype == pl.Date else DATETIME
        elif self.pattern is not None:
            self.kind = DATETIME if _has_clock(self.pattern) else DATE
        else:
            self._guess_format(cells.drop_nulls())

    def _guess_format(self, cells: pl.Series) -> None:
        if not len(cells):
            raise InputError(f"--time: the column {self.name!r} holds no value in the first rows")
        strange = self._numbers(cells).null_count()
        if not strange:
            self.kind = NUMBER
            return
        day_first = [day for day in AMBIGUOUS if self._reads_all(cells, day, stores=False)]
        for day in (*DATE_FORMATS, *day_first[:1]):
            if self._reads_all(cells, day, stores=True):
                if len(day_first) > 1 and day in AMBIGUOUS:
                    raise InputError(
                        f"--time: {cells[0]!r} in column {self.name!r} may have the day or the "
                        "month first: give --time-format %d/%m/%Y or %m/%d/%Y"
                    )
                return
        if 2 * strange < len(cells):  # numbers, and a cell that is none
            self.kind = NUMBER
            return
        raise InputError(
            f"--time: cannot read {cells[0]!r} in column {self.name!r} as a date: give "
            "--time-format, for example %d.%m.%Y, %m/%d/%y (a year of two digits) or "
            "'%Y-%m-%d %H:%M'"
        )

    def _numbers(self, cells: pl.Series) -> pl.Series:
        if cells.dtype != pl.String:
            return cells.cast(pl.Float64, strict=False)
        return cells.to_frame("cell").select(parse_numbers(pl.col("cell"), self._table)).to_series()

    def _reads_all(self, cells: pl.Series, day: str, *, stores: bool) -> bool:
        """Test whether ``day``, with a clock or not, reads all cells; ``stores`` keeps it."""
        clocks = [f"{gap}{clock}{zone}" for gap in " T" for clock in CLOCKS for zone in ZONES]
        for clock in ("", *clocks):
            pattern = day + clock
            if not _parse_times(cells.head(20), pattern).null_count() and (
                not _parse_times(cells, pattern).null_count()
            ):
                if stores:
                    self.pattern, self.kind = pattern, DATETIME if clock else DATE
                return True
        return False

    def values(self, cells: pl.Series, first_row: int, where: str) -> NDArray[np.float64]:
        """Return times as numbers (dates as microseconds since 1970), missing ones as NaN.

        Those of a local clock are what it shows; :meth:`in_order` makes them UTC.

        Raises
        ------
        InputError
            If a cell is not a time, or has a time zone where earlier ones had none, or the reverse.
        """
        self._check_zone(cells.dtype, where)
        if self.kind == NUMBER:
            times = self._numbers(cells)
        elif cells.dtype == pl.String:
            assert self.pattern is not None
            times = _parse_times(cells, self.pattern).cast(pl.Int64).cast(pl.Float64)
        else:
            times = cells.cast(pl.Datetime("us")).cast(pl.Int64).cast(pl.Float64)
        unread = (cells.is_not_null() & times.is_null()).arg_true()
        if len(unread):
            row = int(unread[0])
            how = "a number" if self.kind == NUMBER else f"a time written as {self.pattern}"
            raise InputError(
                f"--time: row {first_row + row + 1:,} of {where} holds {cells[row]!r} in column "
                f"{self.name!r}, which is not {how}"
            )
        return np.array(times.to_numpy(), np.float64)

    def _check_zone(self, dtype: pl.DataType, where: str) -> None:
        """Raise InputError where only some of the times have a zone; remember whether they have."""
        if self.zone is not None and self.kind != DATETIME:
            what = "numbers" if self.kind == NUMBER else "dates without a time of day"
            raise InputError(
                f"--time-zone: column {self.name!r} holds {what}: leave --time-zone out"
            )
        if self.kind == NUMBER:
            return
        zoned = getattr(dtype, "time_zone", None) is not None
        if dtype == pl.String and self.pattern is not None:
            zoned = "z" in self.pattern
        self._local = self.zone is not None and not zoned
        zoned |= self._local
        if self._zoned is not None and zoned != self._zoned:
            has = "have a time zone, and those of the rows before have none"
            none = "have no time zone, and those of the rows before have one"
            raise InputError(
                f"--time: times in column {self.name!r} of {where} {has if zoned else none}: "
                "write all of them with one or all without, or give --time-zone"
            )
        self._zoned = zoned

    def in_order(
        self,
        new_times: NDArray[np.float64],
        first_row: int,
        where: str,
        groups: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float64]:
        """Return the times, local ones as UTC, and remember the last ones.

        With the numbers of ``groups`` (n,) of the rows, the row above is that of the same group.

        Raises
        ------
        InputError
            If a time lies before the row above it, is one that a clock shows twice or never, or
            (:meth:`follow`) is not the step after the rows that were learned.
        """
        before_numbers, numbers = self._kind_before == NUMBER, self.kind == NUMBER
        if self._kind_before is not None and before_numbers != numbers:
            raise InputError(
                f"--time: column {self.name!r} of {where} holds {_KINDS[numbers]}, and that of the "
                f"table before held {_KINDS[before_numbers]}"
            )
        codes = np.zeros(new_times.size, np.int64) if groups is None else groups
        rows = np.flatnonzero(np.isfinite(new_times) & (codes >= 0))
        rows = rows[np.argsort(codes[rows], kind="stable")]
        codes, times = codes[rows], new_times[rows]
        more = int(codes.max(initial=-1)) + 1 - self.lasts.size
        self.lasts = np.concatenate([self.lasts, np.full(max(more, 0), -np.inf)])
        begins = np.flatnonzero(np.diff(codes, prepend=-1))
        lasts = np.full(times.size, np.nan)
        lasts[begins] = self.lasts[codes[begins]]
        if self._local:
            times = self._to_utc(times, lasts, first_row + rows + 1, where)
        before = np.where(np.isnan(lasts), np.roll(times, 1), lasts)
        of = "" if groups is None else " of its group"
        if self._followed is not None:
            self._check_steps(times, before, codes, first_row + rows + 1, where)
        self._check_ascent(times, before, first_row + rows + 1, where, of)
        if self._learned is not None:
            self._check_later(times, before, codes, first_row + rows + 1, where, of)
        self.lasts[codes] = times  # of several, the last stays
        self._steps.add((times - before)[np.isfinite(before)])
        in_utc = np.full(new_times.size, np.nan)
        in_utc[rows] = times
        return in_utc if self._local else new_times

    def _to_utc(
        self, local: NDArray, lasts: NDArray, numbers: NDArray[np.int64], where: str
    ) -> NDArray[np.float64]:
        """Convert local times, by group, to UTC; ``lasts`` are of the rows above, where known."""
        assert self.zone is not None
        first, last = utc_times(local, self.zone)
        skipped = np.flatnonzero(np.isnan(first))
        if skipped.size:
            row = skipped[np.argmin(numbers[skipped])]
            time = str(np.datetime64(int(local[row]), "us")).replace("T", " ")
            time = time.removesuffix(".000000")
            raise InputError(
                f"--time-zone: row {numbers[row]:,} of {where} holds {time} in column "
                f"{self.name!r}, which the clocks of {self.zone} skip: choose the zone of the times"
            )
        tied = (first == np.where(np.isnan(lasts), np.roll(first, 1), lasts)) & (first == last)
        ties = self._steps.ties_are_usual(int(np.count_nonzero(tied)), local.size)
        return in_row_order(first, last, lasts, ties=ties)

    def _check_ascent(
        self, times: NDArray, before: NDArray, numbers: NDArray[np.int64], where: str, of: str
    ) -> None:
        """Raise InputError for the first row that is earlier than the one above it, or repeats its
        hour.
        """
        wrong = times < before
        if self.kind == DATETIME and not self._zoned:
            tied = np.flatnonzero(times == before)
            repeated = tied[may_be_repeated(times[tied])]
            ties = tied.size - repeated.size
            if not self._steps.ties_are_usual(ties, times.size):
                wrong[repeated] = True
        if not wrong.any():
            return
        rows = np.flatnonzero(wrong)
        first = rows[np.argmin(numbers[rows])]
        now, above = (self.shown(float(array[first])) for array in (times, before))
        row = f"--time: row {numbers[first]:,} of {where} ({now})"
        if times[first] == before[first]:
            raise InputError(
                f"{row} has the time of the one above it{of}, in an hour that clocks show twice "
                "when they are set back: give --time-zone Europe/Berlin, for example, or "
                "--time-zone UTC if no clock was"
            )
        set_back = (
            self.kind == DATETIME
            and not self._zoned
            and before[first] - times[first] < UNITS["hour"]
            and may_be_repeated(times[[first]]).any()
        )
        advice = f"sort the rows by {self.name!r}"
        if set_back:
            advice += ", or give --time-zone if the clocks were set back (Europe/Berlin, say)"
        raise InputError(f"{row} is earlier than the one above it{of} ({above}): {advice}")

    def _check_later(
        self,
        times: NDArray,
        before: NDArray,
        codes: NDArray[np.int64],
        numbers: NDArray[np.int64],
        where: str,
        of: str,
    ) -> None:
        """Raise InputError for the first row that has the time of the last one learned."""
        learned = self._learned
        assert learned is not None
        learned = np.append(learned, np.full(max(self.lasts.size - learned.size, 0), -np.inf))
        tied = np.flatnonzero((times == before) & (before == learned[codes]))
        if tied.size:
            first = tied[np.argmin(numbers[tied])]
            raise InputError(
                f"--time: row {numbers[first]:,} of {where} has the time of the last row that was "
                f"learned{of} ({self.shown(float(times[first]))}): leave out the rows that were "
                "learned"
            )

    def follow(self, saved: dict[str, Any]) -> None:
        """Take only rows that follow those of :meth:`as_dict` step by step."""
        self.continue_from(saved)
        self._followed = self.lasts.copy(), self._steps
        self._steps = Steps()

    def _check_steps(
        self,
        times: NDArray,
        before: NDArray,
        codes: NDArray[np.int64],
        numbers: NDArray[np.int64],
        where: str,
    ) -> None:
        """Raise InputError for the first row that does not follow those that were learned."""
        assert self._followed is not None
        learned, steps = self._followed
        learned = np.append(learned, np.full(max(self.lasts.size - learned.size, 0), -np.inf))
        late = (times <= before) & (before == learned[codes])
        length = np.where(np.isfinite(before), times - before, 0.0)
        wrong = np.flatnonzero(late | ~steps.are_usual(length))
        if not wrong.size:
            return
        first = wrong[np.argmin(numbers[wrong])]
        now, above = (self.shown(float(array[first])) for array in (times, before))
        row = f"--time: row {numbers[first]:,} of {where} ({now})"
        if late[first]:
            raise InputError(
                f"{row} is not later than the last row that was learned ({above}), and with --lags "
                "new rows follow it: leave earlier rows out"
            )
        gap = float(length[first])
        missing = max(round(gap / steps.commonest) - 1, 1)
        raise InputError(
            f"{row} comes {self._length(gap)} after the row before it ({above}), and "
            f"rows were learned in steps of {self._length(steps.commonest)}: "
            f"{missing:,} row{'s'[: missing != 1]} between them "
            f"{'are' if missing != 1 else 'is'} missing, which --lags need: add rows with an empty "
            "target to forecast over them, or leave out --time if this row is the next one"
        )

    def _length(self, length: float) -> str:
        """Format a length of time as text."""
        if self.kind == NUMBER:
            return f"{length:g}"
        for unit, microseconds in UNITS.items():
            if length % microseconds == 0:
                count = int(length) // microseconds
                return f"{count:,} {unit}{'s'[: count != 1]}"
        return str(np.timedelta64(int(length), "us"))

    def dates(
        self, times: NDArray[np.float64], first_row: int, what: str
    ) -> NDArray[np.datetime64]:
        """Convert times (n,) to dates for ``what``, an option with a span of time.

        Raises
        ------
        InputError
            If times are numbers, or one is missing.
        """
        if self.kind == NUMBER:
            raise InputError(
                f"{what} is a span between dates, but column {self.name!r} holds numbers: give a "
                "number of rows, or --time-format if they are dates"
            )
        missing = np.flatnonzero(np.isnan(times))
        if missing.size:
            row = first_row + int(missing[0]) + 1
            raise InputError(
                f"row {row:,} has no time in column {self.name!r}, which {what} needs: fill it in, "
                "or leave the row out"
            )
        return times.astype(np.int64).astype("datetime64[us]")

    def shown(self, time: float) -> str:
        """Format one time as text."""
        if self.kind == NUMBER:
            return f"{time:g}"
        if self.zone is not None:
            return self.series(np.array([time])).dt.strftime("%Y-%m-%d %H:%M:%S%:z")[0]
        moment = np.datetime64(int(time), "us")
        shown = moment.astype("datetime64[D]") if self.kind == DATE else moment
        return str(shown).replace("T", " ").removesuffix(".000000")

    def positions(self, times: NDArray[np.float64]) -> NDArray:
        """Return times as matplotlib takes them; missing ones lie between their neighbours."""
        places = np.flatnonzero(np.isfinite(times))
        if not places.size:
            return np.arange(1, len(times) + 1)
        times = np.interp(np.arange(len(times)), places, times[places])
        return times if self.kind == NUMBER else times.astype(np.int64).astype("datetime64[us]")

    @property
    def axis_name(self) -> str:
        """Name of the axis of :meth:`positions`, on which a clock cannot go back."""
        return self.name if self.zone is None else f"{self.name} (UTC)"

    def series(self, times: NDArray[np.float64]) -> pl.Series:
        """Return times as a column for output."""
        values = pl.Series(self.name, times, nan_to_null=True)
        if self.kind == NUMBER:
            return values
        moments = values.cast(pl.Int64).cast(pl.Datetime("us"))
        if self.zone is not None:
            return moments.dt.replace_time_zone("UTC").dt.convert_time_zone(self.zone)
        return moments.cast(pl.Date) if self.kind == DATE else moments

    @property
    def dtype(self) -> Any:
        """Type of the column in the output, by the kind of times."""
        moments = pl.Datetime("us", self.zone)
        return {NUMBER: pl.Float64, DATE: pl.Date}.get(self.kind or "", moments)

    def as_dict(self) -> dict[str, Any]:
        """Return format and last times for the checkpoint."""
        lasts = [time if math.isfinite(time) else None for time in self.lasts.tolist()]
        return {
            "kind": self.kind,
            "pattern": self.pattern,
            "lasts": lasts,
            "zoned": self._zoned,
            "steps": self._steps.as_dict(),
        }

    def continue_from(self, saved: dict[str, Any]) -> None:
        """Go on after the last times of :meth:`as_dict`; the format is that of this table."""
        kind, pattern = self.kind, self.pattern
        self.restore(saved)
        self._kind_before, self.kind, self.pattern = self.kind, kind, pattern
        if self._steps.are_counted and not self._steps.ties_are_usual(0, 0):
            self._learned = self.lasts.copy()

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what :meth:`as_dict` saved."""
        self.kind, self.pattern = saved["kind"], saved["pattern"]
        lasts = [-math.inf if time is None else time for time in saved["lasts"]]
        self.lasts = np.array(lasts, np.float64)
        self._zoned = saved.get("zoned")  # files of olsq 0.2 do not say
        self._steps = Steps(saved.get("steps"))


def _has_clock(pattern: str) -> bool:
    return any(code in pattern for code in ("%H", "%I", "%T", "%R", "%s", "%c"))


def _parse_times(cells: pl.Series, pattern: str) -> pl.Series:
    """Parse cells as moments in UTC, null where the pattern does not fit."""
    parsed = _parse_any_year(cells, pattern)
    # The parser takes 24 for a year of the first century.
    early = (parsed.dt.year() < 1000).fill_null(False)
    if early.any():
        years = parsed.dt.year().cast(pl.String).str.zfill(4)
        frame = pl.DataFrame({"cell": cells, "year": years})
        has_year = pl.col("cell").str.contains(pl.col("year"), literal=True)
        parsed = parsed.set(early & ~frame.select(has_year).to_series(), None)
    return parsed


def _parse_any_year(cells: pl.Series, pattern: str) -> pl.Series:
    # A month alone is its first day: the parser wants a day.
    if "%d" not in pattern and "%Y-%m" in pattern and not _has_clock(pattern):
        cells, pattern = cells + "-01", pattern + "-%d"
    if not _has_clock(pattern):
        return cells.str.to_date(pattern, strict=False).cast(pl.Datetime("us"))
    parsed = cells.str.to_datetime(pattern, strict=False, time_unit="us", ambiguous="earliest")
    return parsed.dt.replace_time_zone(None) if "z" in pattern else parsed
