"""Times of rows from a column of numbers or time stamps, their phases, and builders of them."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import as_float, is_number
from olsq.features.base import FeatureBuilder, State
from olsq.features.files import check_columns, check_count, check_keys
from olsq.features.table import Table
from olsq.online.rows.dates import NO_DATE, nanoseconds
from olsq.online.rows.durations import parse_duration
from olsq.online.rows.times import same_clock


def duration(text: Any, name: str) -> int:
    """Return the nanoseconds of a duration such as "7D", "24h" or "365.25D"."""
    if not isinstance(text, str):
        raise ValueError(f"{name} of time stamps must be text such as '7D' or '24h', got {text!r}")
    return int(parse_duration(text, name).length)


def stamps(column: Any, *, local: bool) -> tuple[NDArray[np.int64], bool | None] | None:
    """Return a column of time stamps as nanoseconds since 1970, NaT as the least integer, and
    whether they have a time zone (None: all are missing); None for anything else.

    Stamps with a time zone count from 1970 on the clocks of their zone if ``local``, else in UTC.
    """
    values, zoned = _without_zone(column, local), _has_zone(column)
    if not isinstance(values, np.ndarray):
        # Arrow's to_numpy refuses to copy
        direct = hasattr(values, "type") or not hasattr(values, "to_numpy")
        values = np.asarray(values if direct else values.to_numpy())
    if values.dtype.kind == "O" and values.size:
        if not all(isinstance(v, (datetime.date, np.datetime64)) or v is None for v in values):
            return None
        values, zoned = _dates(values, local)
    if values.dtype.kind != "M":
        return None
    return nanoseconds(values, "time stamps"), zoned


def _has_zone(values: Any) -> bool:
    """Test whether the type of a column of pandas, Polars or Arrow says a time zone."""
    kinds = getattr(values, "dtype", None), getattr(values, "type", None)
    return any(getattr(kind, a, None) is not None for kind in kinds for a in ("tz", "time_zone"))


def _without_zone(values: Any, local: bool) -> Any:
    """Return a column of pandas, Polars or Arrow with its time zone taken off its time stamps."""
    dtype = getattr(values, "dtype", None)
    if getattr(dtype, "tz", None) is not None:  # pandas
        return (values if local else values.dt.tz_convert("UTC")).dt.tz_localize(None)
    if getattr(dtype, "time_zone", None) is not None:  # Polars
        return (values if local else values.dt.convert_time_zone("UTC")).dt.replace_time_zone(None)
    if local and getattr(getattr(values, "type", None), "tz", None) is not None:  # Arrow
        import pyarrow.compute as pc

        return pc.call_function("local_timestamp", [values])
    return values


def _dates(dates: NDArray, local: bool) -> tuple[NDArray[np.datetime64], bool | None]:
    """Convert Python's dates to datetime64; also return whether they have a zone (None: no dates).

    Raises ValueError where some have a zone and others have none.
    """
    there = np.array([v is not None and v == v for v in dates], bool)  # NaT is not itself
    zoned = [getattr(v, "tzinfo", None) is not None for v in dates[there]]
    if any(zoned) and not all(zoned):
        raise ValueError("time stamps must all have a time zone, or none of them: got some of each")
    if any(zoned):
        dates = dates.copy()
        dates[there] = [clock_time(v, local) for v in dates[there]]
    # pandas' have nanoseconds
    plain = [
        getattr(v, "to_datetime64", lambda v=v: v)() if is_there else NO_DATE
        for v, is_there in zip(dates, there, strict=True)
    ]
    return np.array(plain, "datetime64"), any(zoned) if zoned else None


def clock_time(moment: datetime.datetime, local: bool) -> datetime.datetime:
    """Return a moment without its time zone: what the zone's clocks show if ``local``, else UTC."""
    return (moment if local else moment.astimezone(datetime.UTC)).replace(tzinfo=None)


def missing(times: NDArray[Any], are_stamps: bool) -> NDArray[np.bool_]:
    """Mark the times that are missing."""
    return times == np.iinfo(np.int64).min if are_stamps else ~np.isfinite(times)


def phases(times: NDArray[Any], are_stamps: bool, period: Any) -> NDArray[np.float64]:
    """Compute ``(t mod period) / period`` in [0, 1), without rounding t; NaN where t is missing."""
    gone = missing(times, are_stamps)
    if are_stamps:
        length = duration(period, "period")
        # in integers, so that nanoseconds since 1970 (1e18) lose nothing
        out = np.mod(times, length) / length
    else:
        with np.errstate(invalid="ignore"):
            out = np.mod(times, float(period)) / float(period)  # fmod is exact
    out[gone] = np.nan
    return out


def check_period(period: Any) -> None:
    """Raise ValueError unless ``period`` is a positive number or a duration."""
    if isinstance(period, str):
        duration(period, "period")
        return
    if not (is_number(period) and 0 < as_float(period) < math.inf):
        raise ValueError(f"period must be a positive number or a duration as '7D', got {period!r}")


class TimedBuilder(FeatureBuilder):
    """Features of the time in the column ``of``, or of the row's number where it is None."""

    of: Any
    _local = False  # whether stamps with a time zone are read as the zone's clocks show them

    @property
    def _in_durations(self) -> bool:
        """True if parameters are lengths of time, which are for time stamps."""
        raise NotImplementedError

    def _open(self, table: Table) -> State:
        columns = [] if self.of is None else table.find(self.of, self)
        if len(columns) > 1:
            raise ValueError(f"of={self.of!r} must be one column, which holds the time")
        return {"columns": columns, "rows": 0}

    def _restart(self, state: State, table: Table) -> State:
        return self._open(table) | {k: v for k, v in state.items() if k == "zoned"}

    def _read_times(self, state: State, table: Table) -> tuple[NDArray[Any], bool, State]:
        """Return times (n,) of the rows, True where they are nanoseconds of time stamps, and the
        state after them.

        Raises ValueError where they have a time zone and those before had none, or the reverse.
        """
        after = {**state, "rows": state["rows"] + table.n}
        if not state["columns"]:
            return state["rows"] + np.arange(table.n), False, after
        column = state["columns"][0]
        stamped = stamps(table.column(column), local=self._local)
        if stamped is None and not table.n:  # a column without entries may have any type
            return np.empty(0, np.int64), self._in_durations, after
        if stamped is None:
            return table.numbers([column])[:, 0], False, after
        zoned = same_clock(state.get("zoned"), stamped[1])
        return stamped[0], True, after if zoned is None else {**after, "zoned": zoned}

    def _check_state(self, state: State, width: int, targets: int) -> None:
        # Rows of numbers, and files of earlier versions, say nothing about zones.
        check_keys(state, {"columns", "rows", "zoned"} & {"columns", "rows", *state})
        if not isinstance(state.get("zoned", False), bool):
            raise ValueError(f"zoned cannot be {state['zoned']!r}")
        check_columns(state["columns"], width)
        check_count("rows", state["rows"])
        if len(state["columns"]) != (self.of is not None):
            raise ValueError("columns are not the one of the time")
