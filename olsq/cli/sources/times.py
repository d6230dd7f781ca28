"""The time column: dates, dates with a time of day, or numbers, in ascending order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.cli.errors import InputError

NUMBER, DATE, DATETIME = "number", "date", "datetime"
_KINDS = {True: "numbers", False: "dates"}
# Tried in this order on the first chunk; the first that reads all of it serves the whole file.
DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%Y-%m")
# Indistinguishable in a file whose days are all at most 12.
AMBIGUOUS = ("%m/%d/%Y", "%d/%m/%Y")
CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S%.f")
ZONES = ("", "%z", "%#z")


class TimeColumn:
    """The format of the time column, and the last time of every group.

    Parameters
    ----------
    name : str
        Of the column.
    pattern : str or None
        Its format in the language of ``strftime``; None finds out.

    Attributes
    ----------
    kind : {"number", "date", "datetime"} or None
        None until the first cells were seen.
    lasts : array (groups,)
        The time of each group's last row that has one; rows without labels are one group.
    """

    def __init__(self, name: str, pattern: str | None) -> None:
        self.name, self.pattern = name, pattern
        self.kind: str | None = None
        self.lasts = np.empty(0)
        self._kind_before: str | None = None  # of a table that this one follows
        self._zoned: bool | None = None  # whether times so far have a time zone; None for numbers

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
        if not cells.cast(pl.Float64, strict=False).null_count():
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
        raise InputError(
            f"--time: cannot read {cells[0]!r} in column {self.name!r} as a date: give "
            "--time-format, for example %d.%m.%Y or '%Y-%m-%d %H:%M'"
        )

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

        Raises
        ------
        InputError
            If a cell is not a time, or has a time zone where earlier ones had none, or the reverse.
        """
        self._check_zone(cells.dtype, where)
        if self.kind == NUMBER:
            times = cells.cast(pl.Float64, strict=False)
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
        if self.kind == NUMBER:
            return
        zoned = getattr(dtype, "time_zone", None) is not None
        if dtype == pl.String and self.pattern is not None:
            zoned = any(code in self.pattern for code in ZONES[1:])
        if self._zoned is not None and zoned != self._zoned:
            has = "have a time zone, and those of the rows before have none"
            none = "have no time zone, and those of the rows before have one"
            raise InputError(
                f"--time: times in column {self.name!r} of {where} {has if zoned else none}: "
                "write all of them with one or all without"
            )
        self._zoned = zoned

    def check_order(
        self,
        new_times: NDArray[np.float64],
        first_row: int,
        where: str,
        groups: NDArray[np.int64] | None = None,
    ) -> None:
        """Raise InputError if a time lies before the row above it, and remember the last times.

        With the numbers of ``groups`` (n,) of the rows, the row above is that of the same group.
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
        before = np.concatenate([times[:1], times[:-1]])
        before[begins] = self.lasts[codes[begins]]
        back = np.flatnonzero(times < before)
        if back.size:
            first = back[np.argmin(rows[back])]
            now, above = (self.shown(float(array[first])) for array in (times, before))
            of = "" if groups is None else " of its group"
            raise InputError(
                f"--time: row {first_row + rows[first] + 1:,} of {where} ({now}) is earlier than "
                f"the one above it{of} ({above}): sort the rows by {self.name!r}"
            )
        self.lasts[codes] = times  # of several, the last stays

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
        moment = np.datetime64(int(time), "us")
        return str(moment.astype("datetime64[D]") if self.kind == DATE else moment).replace(
            "T", " "
        )

    def positions(self, times: NDArray[np.float64]) -> NDArray:
        """Return times as matplotlib takes them; missing ones lie between their neighbours."""
        places = np.flatnonzero(np.isfinite(times))
        if not places.size:
            return np.arange(1, len(times) + 1)
        times = np.interp(np.arange(len(times)), places, times[places])
        return times if self.kind == NUMBER else times.astype(np.int64).astype("datetime64[us]")

    def series(self, times: NDArray[np.float64]) -> pl.Series:
        """Return times as a column for output."""
        values = pl.Series(self.name, times, nan_to_null=True)
        if self.kind == NUMBER:
            return values
        moments = values.cast(pl.Int64).cast(pl.Datetime("us"))
        return moments.cast(pl.Date) if self.kind == DATE else moments

    @property
    def dtype(self) -> Any:
        """Type of the column in the output, by the kind of times."""
        return {NUMBER: pl.Float64, DATE: pl.Date}.get(self.kind or "", pl.Datetime("us"))

    def as_dict(self) -> dict[str, Any]:
        """Return format and last times for the checkpoint."""
        lasts = [time if math.isfinite(time) else None for time in self.lasts.tolist()]
        return {"kind": self.kind, "pattern": self.pattern, "lasts": lasts, "zoned": self._zoned}

    def continue_from(self, saved: dict[str, Any]) -> None:
        """Go on after the last times of :meth:`as_dict`; the format is that of this table."""
        kind, pattern = self.kind, self.pattern
        self.restore(saved)
        self._kind_before, self.kind, self.pattern = self.kind, kind, pattern

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what :meth:`as_dict` saved."""
        self.kind, self.pattern = saved["kind"], saved["pattern"]
        lasts = [-math.inf if time is None else time for time in saved["lasts"]]
        self.lasts = np.array(lasts, np.float64)
        self._zoned = saved.get("zoned")  # files of olsq 0.2 do not say


def _has_clock(pattern: str) -> bool:
    return any(code in pattern for code in ("%H", "%I", "%T", "%R", "%s", "%c"))


def _parse_times(cells: pl.Series, pattern: str) -> pl.Series:
    """Parse cells as moments in UTC, null where the pattern does not fit."""
    # A month alone is its first day: the parser wants a day.
    if "%d" not in pattern and "%Y-%m" in pattern and not _has_clock(pattern):
        cells, pattern = cells + "-01", pattern + "-%d"
    if not _has_clock(pattern):
        return cells.str.to_date(pattern, strict=False).cast(pl.Datetime("us"))
    parsed = cells.str.to_datetime(pattern, strict=False, time_unit="us", ambiguous="earliest")
    return parsed.dt.replace_time_zone(None) if "z" in pattern else parsed
