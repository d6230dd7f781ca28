"""The time column: dates, dates with a time of day, or numbers, in ascending order."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.sources.clocks import check_zone
from olsq.cli.sources.columns import TableFormat
from olsq.cli.sources.numbers import parse_numbers

NUMBER, DATE, DATETIME = "number", "date", "datetime"
_KINDS = {True: "numbers", False: "dates"}
# Month and day first cannot be told apart in a file whose days are all at most 12.
DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%Y-%m", "%m/%d/%Y", "%d/%m/%Y")
CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S%.f")
PATTERNS = [
    day + clock
    for day in DATE_FORMATS
    for clock in ("", *(g + c + z for g in " T" for c in CLOCKS for z in ("", "%z", "%#z")))
]
UNITS = {"day": 86_400 * 10**6, "hour": 3600 * 10**6, "minute": 60 * 10**6, "second": 10**6}


class TimeColumn:
    """The format of the time column.

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
    zone : str or None
        The zone of the table's clock, in which times are shown.
    is_zoned : bool or None
        Whether times so far have a time zone; None for numbers.
    is_local : bool
        Whether this table's are of the clock of ``zone``.
    """

    def __init__(self, name: str, table: TableFormat) -> None:
        self.name, self.pattern, self.zone = name, table.time_format, table.time_zone
        if self.zone is not None:
            check_zone(self.zone)
        self._table = table
        self.kind: str | None = None
        self.is_zoned: bool | None = None
        self.is_local = False
        self._kind_before: str | None = None  # of a table that this one follows

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
        """Take the format that reads most of the cells; :meth:`values` names one that it cannot."""
        if not len(cells):
            raise InputError(f"--time: the column {self.name!r} holds no value in the first rows")
        if 2 * self._numbers(cells).null_count() < len(cells):
            self.kind = NUMBER
            return
        head = cells.head(20)
        likely = [p for p in PATTERNS if _parse_times(head, p).null_count() < len(head)]
        unread = {pattern: _parse_times(cells, pattern).null_count() for pattern in likely}
        best = min(likely, key=unread.__getitem__, default="")
        if 2 * unread.get(best, len(cells)) > len(cells):
            raise InputError(
                f"--time: cannot read {cells[0]!r} in column {self.name!r} as a date: give "
                "--time-format, for example %d.%m.%Y, %m/%d/%y (a year of two digits) or "
                "'%Y-%m-%d %H:%M'"
            )
        if "%m/%d" in best and unread.get(best.replace("%m/%d", "%d/%m")) == unread[best]:
            raise InputError(
                f"--time: {cells[0]!r} in column {self.name!r} may have the day or the month "
                "first: give --time-format %d/%m/%Y or %m/%d/%Y"
            )
        self.pattern, self.kind = best, DATETIME if _has_clock(best) else DATE

    def _numbers(self, cells: pl.Series) -> pl.Series:
        if cells.dtype != pl.String:
            return cells.cast(pl.Float64, strict=False)
        return cells.to_frame("cell").select(parse_numbers(pl.col("cell"), self._table)).to_series()

    def values(self, cells: pl.Series, first_row: int, where: str) -> NDArray[np.float64]:
        """Return times as numbers (dates as microseconds since 1970), missing ones as NaN.

        Those of a local clock are what it shows; :meth:`in_order` makes them UTC.

        Raises
        ------
        InputError
            If a cell is not a time, or has a time zone where earlier ones had none, or the reverse.
        """
        self._check_kind(cells.dtype, where)
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

    def _check_kind(self, dtype: pl.DataType, where: str) -> None:
        """Raise InputError where times are of another kind than before, or only some have a zone;
        remember whether they have.
        """
        if self.zone is not None and self.kind != DATETIME:
            what = "numbers" if self.kind == NUMBER else "dates without a time of day"
            raise InputError(
                f"--time-zone: column {self.name!r} holds {what}: leave --time-zone out"
            )
        before_numbers, numbers = self._kind_before == NUMBER, self.kind == NUMBER
        if self._kind_before is not None and before_numbers != numbers:
            raise InputError(
                f"--time: column {self.name!r} of {where} holds {_KINDS[numbers]}, and that of the "
                f"table before held {_KINDS[before_numbers]}"
            )
        if self.kind == NUMBER:
            return
        zoned = getattr(dtype, "time_zone", None) is not None
        if dtype == pl.String and self.pattern is not None:
            zoned = "z" in self.pattern
        self.is_local = self.zone is not None and not zoned
        zoned |= self.is_local
        if self.is_zoned is not None and zoned != self.is_zoned:
            has = "have a time zone, and those of the rows before have none"
            none = "have no time zone, and those of the rows before have one"
            raise InputError(
                f"--time: times in column {self.name!r} of {where} {has if zoned else none}: "
                "write all of them with one or all without, or give --time-zone"
            )
        self.is_zoned = zoned

    def span_text(self, length: float) -> str:
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
            return f"{time:.15g}"
        if self.shown_zone is not None:
            return self.series(np.array([time])).dt.strftime("%Y-%m-%d %H:%M:%S%:z")[0]
        return datetime_text(time)[: 10 if self.kind == DATE else None]

    @property
    def shown_zone(self) -> str | None:
        """The zone that times are written in: that of the clock, or UTC if they have any."""
        return self.zone or ("UTC" if self.is_zoned else None)

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
        return self.name if self.shown_zone is None else f"{self.name} (UTC)"

    def series(self, times: NDArray[np.float64]) -> pl.Series:
        """Return times as a column for output."""
        values = pl.Series(self.name, times, nan_to_null=True)
        if self.kind == NUMBER:
            return values
        moments = values.cast(pl.Int64).cast(pl.Datetime("us"))
        if self.shown_zone is not None:
            return moments.dt.replace_time_zone("UTC").dt.convert_time_zone(self.shown_zone)
        return moments.cast(pl.Date) if self.kind == DATE else moments

    def as_dict(self) -> dict[str, Any]:
        """Return the format for the checkpoint."""
        return {"kind": self.kind, "pattern": self.pattern, "zoned": self.is_zoned}

    def continue_from(self, saved: dict[str, Any]) -> None:
        """Go on with times of the kind of :meth:`as_dict`; the format is that of this table."""
        self._kind_before, self.is_zoned = saved["kind"], saved.get("zoned")

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what :meth:`as_dict` saved; files of olsq 0.2 do not say whether it is zoned."""
        self.kind, self.pattern = saved["kind"], saved["pattern"]
        self.is_zoned = saved.get("zoned")


def datetime_text(time: float) -> str:
    """Format microseconds since 1970 as text."""
    text = str(np.datetime64(int(time), "us")).replace("T", " ")
    return text.removesuffix(".000000")


def _has_clock(pattern: str) -> bool:
    return any(code in pattern for code in ("%H", "%I", "%T", "%R", "%s", "%c"))


def _parse_times(cells: pl.Series, pattern: str) -> pl.Series:
    """Parse cells as moments in UTC, null where the pattern does not fit."""
    parsed = _parse_any_year(cells, pattern)
    # The parser takes 24 for a year of the first century.
    early = (parsed.dt.year() < 1000).fill_null(False)
    if early.any():
        years = parsed.dt.year().cast(pl.String).str.zfill(4)
        frame = pl.DataFrame({"cell": cells, "year": years, "early": early, "parsed": parsed})
        has_year = pl.col("cell").str.contains(pl.col("year"), literal=True)
        plausible = pl.when(~pl.col("early") | has_year).then("parsed")
        parsed = frame.select(plausible.alias(parsed.name)).to_series()
    return parsed


def _parse_any_year(cells: pl.Series, pattern: str) -> pl.Series:
    # A month alone is its first day: the parser wants a day.
    if "%d" not in pattern and "%Y-%m" in pattern and not _has_clock(pattern):
        cells, pattern = cells + "-01", pattern + "-%d"
    if not _has_clock(pattern):
        return cells.str.to_date(pattern, strict=False).cast(pl.Datetime("us"))
    parsed = cells.str.to_datetime(pattern, strict=False, time_unit="us", ambiguous="earliest")
    return parsed.dt.replace_time_zone(None) if "z" in pattern else parsed
