"""Times of rows as users give them.  Time that passes between rows is in ``durations``."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.masked import fill_masked
from olsq.arrays.reals import real_array, without_dictionary
from olsq.online.rows.dates import NO_DATE, NO_LENGTH, nanoseconds
from olsq.online.rows.durations import DATES, ELAPSED, NUMBERS, Duration
from olsq.online.rows.frames import Labels, dates_of_index, level_of, row_index, wrapped

Clock = bool | str | None  # whether dates have a time zone, ELAPSED, or None for numbers


class Timing(NamedTuple):
    """The times of a stream so far; ``last`` is that of its last row, learned or not.

    ``zoned`` says whether its dates have a time zone, or is ELAPSED; None for numbers and in files
    that do not say it.
    """

    kind: str
    first: int | float
    last: int | float
    zoned: Clock = None

    @property
    def dtype(self) -> type[Any]:
        return np.int64 if self.kind == DATES else np.float64


class Times(NamedTuple):
    """Times (n,) of rows: int64 nanoseconds (UTC where they have a time zone) or float64."""

    kind: str  # DATES or NUMBERS
    values: NDArray
    zone: str | None = None  # name of the dates' time zone, or ELAPSED

    @property
    def zoned(self) -> Clock:
        """True if dates have a time zone, ELAPSED for times since an origin; None for numbers."""
        if self.kind == NUMBERS or self.zone == ELAPSED:
            return None if self.kind == NUMBERS else ELAPSED
        return self.zone is not None


def read_times(times: Any, n_rows: int | None = None) -> Times:
    """Return the times of rows, which must be in order.

    Raises TypeError or ValueError, naming the first bad row, for what is neither dates nor numbers,
    missing times, and times that go back.
    """
    read = read_times_in_any_order(times, n_rows)
    _refuse_going_back(read.values, times)
    return read


def _refuse_going_back(values: NDArray, times: Any) -> None:
    """Raise ValueError if the ``values`` (n,) of the times given are not in order."""
    back = values[1:] < values[:-1]
    if back.any():
        t, array = int(np.argmax(back)) + 1, for_display(*times_and_zone(times))[0]
        raise ValueError(
            f"times must not go back, but row {t} is at {array[t]}, after {array[t - 1]}: sort the "
            "rows by time first"
        )


def read_times_in_any_order(
    times: Any, n_rows: int | None = None, needed: NDArray[np.bool_] | None = None
) -> Times:
    """Return times as :func:`read_times` does, for rows that need not be in order.

    Times may be missing where ``needed`` (n,) is False.
    """
    array, zone = times_and_zone(times)
    check_times_shape(array, n_rows)
    if array.dtype.kind == "M":
        missing, kind = np.isnat(array), DATES
    else:
        array = _float_times(array)
        missing, kind = ~np.isfinite(array), NUMBERS
    bad = missing if needed is None else missing & needed
    if bad.any():
        t = int(np.argmax(bad))
        raise ValueError(f"times must not be missing, got {array[t]} in row {t}: leave it out")
    if missing.any():
        array = np.where(missing, np.zeros(1, array.dtype), array)
    return Times(kind, nanoseconds(array) if kind == DATES else array, zone)


def check_times_shape(times: NDArray, n_rows: int | None) -> None:
    """Raise ValueError unless there is one time for each row."""
    if times.ndim != 1 or (n_rows is not None and times.shape[0] != n_rows):
        rows = "one time for each row" if n_rows is None else f"one time for each of {n_rows} rows"
        raise ValueError(f"times must hold {rows}, got an array of shape {times.shape}")


def as_values(times: NDArray) -> NDArray:
    """Convert dates to int64 nanoseconds and numbers to float64, in any order."""
    return nanoseconds(times) if times.dtype.kind == "M" else _float_times(times)


def _float_times(times: NDArray) -> NDArray[np.float64]:
    """Convert numbers to float64; ValueError for integers that it does not hold exactly."""
    numbers = real_array(times, "times").astype(np.float64)
    if times.dtype.kind in "iu" and (np.abs(numbers) > 2.0**53).any():
        with np.errstate(invalid="ignore"):
            changed = numbers.astype(times.dtype) != times
        if changed.any():
            t = int(np.argmax(changed))
            raise ValueError(
                f"times are whole numbers beyond 2^53, which are rounded as float64, got "
                f"{times[t]} in row {t}: give dates, times.view('datetime64[ns]') for nanoseconds "
                "since 1970, or subtract the first time"
            )
    return numbers


def times_and_zone(times: Any) -> tuple[NDArray, str | None]:
    """Return times as an array of datetime64, in UTC if zoned, or of whatever else they are, and
    the name of their time zone if they have one.

    Lengths of time since an origin become dates that long after the Unix epoch, of the zone
    ELAPSED.  Raises ValueError where some times have a time zone and others have none.
    """
    if type(times) is Times:
        return as_array(times.kind, times.values), times.zone
    if type(times) is np.ndarray and times.dtype.kind in "Mfiu":
        return times, None
    times = without_dictionary(fill_masked(times))
    index = dates_of_index(times)
    if index is not None and index.dtype.kind == "M":
        tz = getattr(times, "tz", None)
        return index, None if tz is None else _zone_name(tz)
    part, zone = wrapped(times), None
    if hasattr(times, "columns"):
        raise TypeError("times must be one column: a series, an array or an index, not a frame")
    if part is not None and (zone := getattr(part.dtype, "time_zone", None)) is not None:
        part = part.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    array = np.asarray(times) if part is None else part.to_numpy()
    if array.dtype.kind == "O" and any(map(_is_length, array.flat)):
        array = np.array([_length(t) for t in array.flat]).reshape(array.shape)
    if array.dtype.kind == "O" and any(map(_is_date, array.flat)):
        zone = _zone_of_dates(array)
        array = np.array([_date(t) for t in array.flat]).reshape(array.shape)
    text = array.flat[:1] if array.dtype.kind in "SUT" else []
    if array.dtype.kind == "O":
        text = [t for t in array.flat if isinstance(t, (str, bytes))]
    if len(text):
        raise ValueError(
            f"times must be dates or numbers, got text such as {str(text[0])!r}: convert it, for "
            "instance with pandas.to_datetime or np.array(times, 'datetime64[s]')"
        )
    if array.dtype.kind == "m":
        return _after_epoch(array), ELAPSED
    return array, zone


def _after_epoch(lengths: NDArray) -> NDArray:
    """Convert lengths of time to the dates that long after the Unix epoch."""
    if np.datetime_data(lengths.dtype)[0] in ("Y", "M", "generic"):
        raise ValueError(
            "times that are lengths of time must have a unit between weeks and nanoseconds, got "
            f"{lengths.dtype}: months and years have no fixed length"
        )
    return lengths.view(lengths.dtype.str.replace("m8", "M8"))


def _is_length(value: Any) -> bool:
    return isinstance(value, (datetime.timedelta, np.timedelta64))


def _length(value: Any) -> np.timedelta64:
    """Convert a length of time of any kind to timedelta64, to its last digit."""
    if value is None or value != value:  # NaT
        return NO_LENGTH
    if not _is_length(value):
        raise ValueError("times must be all dates, all lengths of time or all numbers, got a mix")
    exact = getattr(value, "to_timedelta64", None)  # pandas', which has nanoseconds
    return np.timedelta64(value) if exact is None else exact()


def _zone_name(tz: Any) -> str:
    """Return the name of a time zone; UTC for zones without one, as a fixed offset."""
    return str(getattr(tz, "key", None) or getattr(tz, "zone", None) or "UTC")


def _zone_of_dates(dates: NDArray) -> str | None:
    """Return the name of the time zone of dates; ValueError where some have one and others not."""
    zone, first = None, None
    for i, date in enumerate(dates.flat):
        if date is None or date != date:  # NaT
            continue
        tz = getattr(date, "tzinfo", None)
        if first is None:
            first, zone = i, None if tz is None else _zone_name(tz)
        elif (tz is None) != (zone is None):
            has, none = (first, i) if tz is None else (i, first)
            raise ValueError(
                f"times must all have a time zone or all have none, but row {has} has one and row "
                f"{none} has none: {SAME_CLOCK}"
            )
    return zone


SAME_CLOCK = (
    "give all of them one, as pandas' tz_localize does, or take it off with tz_convert(None)"
)


def same_clock(before: Clock, now: Clock, refusal: str = "") -> Clock:
    """Return whether the dates of a stream have a time zone, from its rows before and those now.

    None where neither knows.  Raises ValueError where only one of the two has, or only one holds
    lengths of time since an origin: what passed between them is not known.
    """
    if before is None or now is None:
        return now if before is None else before
    if before != now and ELAPSED in (before, now):
        lengths = "lengths of time since an origin"
        kinds = ("dates", lengths) if before == ELAPSED else (lengths, "dates")
        raise ValueError(
            f"{'cannot merge: ' if refusal else ''}times are {kinds[0]}, and those of the rows "
            f"before are {kinds[1]}: add the date of the origin to the lengths of time, or "
            "subtract it from the dates"
        )
    if before != now:
        if refusal:
            raise ValueError(f"{refusal}: {SAME_CLOCK}")
        has = "have a time zone, and those of the rows before this call have none"
        none = "have no time zone, and those of the rows before this call have one"
        raise ValueError(f"times {has if now else none}: {SAME_CLOCK}")
    return now


def with_times(labels: Labels, times: Any, *, in_order: bool = True) -> Labels:
    """Return the labels with the times given beside the data, if there are any."""
    if times is None:
        return labels
    array, zone = times_and_zone(times)
    if in_order and array.dtype.kind in "iu":  # shown as they are
        check_times_shape(array, None)
        _refuse_going_back(array, times)
    elif in_order:
        array = as_array(*read_times(times)[:2])
    array, zone = for_display(array, zone)
    return labels._replace(times=array, time_zone=zone, time_name=name_of(times))


def named_times(times: Any, X: Any, y: Any) -> Any:
    """Return the times of a call; where they are a name, the level of X's or y's index (pandas)."""
    if not isinstance(times, str):
        return times
    for data in (X, y):
        level = level_of(data, times)
        if level is not None:
            return level
    raise ValueError(
        f"times={times!r} is not a level of the index of X or y: give a time for each row, or the "
        "name of a level"
    )


def _is_date(value: Any) -> bool:
    return isinstance(value, (datetime.date, np.datetime64))


def _date(value: Any) -> np.datetime64:
    """Convert a date of any kind to datetime64, to its last digit; in UTC where it has a zone."""
    if value is None or value != value:  # NaT
        return NO_DATE
    if not _is_date(value):
        raise ValueError("times must be all dates, all lengths of time or all numbers, got a mix")
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    exact = getattr(value, "to_datetime64", None)  # pandas', which has nanoseconds
    return np.datetime64(value) if exact is None else exact()


def as_array(kind: str, values: NDArray) -> NDArray:
    """Convert times for display, to datetime64[ns] or float64."""
    return values.astype("datetime64[ns]") if kind == DATES else values


def for_display(times: NDArray, zone: str | None) -> tuple[NDArray, str | None]:
    """Return times and their zone as results show them: lengths of time as such."""
    if zone != ELAPSED:
        return times, zone
    return times - np.datetime64(0, "s"), None


def time_shown(kind: str, value: int | float, clock: Clock = None) -> Any:
    """Return one time as messages show it."""
    if kind != DATES:
        return value
    return (np.timedelta64 if clock == ELAPSED else np.datetime64)(int(value), "ns")


def name_of(times: Any) -> str:
    """Return the name of a series or an index of times; "time" for others."""
    name = getattr(times, "name", None)
    return str(name) if isinstance(name, str) and name else "time"


def of_frames(X: Any, y: Any) -> Any:
    """Return X's index, or else y's, if it is one of dates or lengths of time; else None."""
    for data in (X, y):
        index = row_index(data)
        if index is not None and dates_of_index(index) is not None:
            return index
    return None


def times_of_call(
    times: Any,
    X: Any,
    y: Any,
    n_rows: int,
    duration: Duration,
    before: Timing | None,
    parameter: str,
    *,
    countable: bool = True,
) -> tuple[NDArray, Timing | None]:
    """Return times (n,) of the rows of a call, and the stream's timing after them.

    ``countable`` says whether the parameter may count rows instead.

    Raises ValueError where there are none, or they do not fit ``parameter`` (the one that is a
    length of time) or the rows before.
    """
    times = times_or_index(times, X, y, duration, parameter, countable=countable)
    read = read_times(times, n_rows)
    kind, values = read.kind, read.values
    if n_rows == 0:
        return np.empty(0, np.int64 if duration.kind == DATES else np.float64), before
    check_kind(kind, duration, parameter)
    if before is not None:
        check_same_kind(before.kind, duration, parameter)
    first = values[0].item()
    zoned = read.zoned if before is None else same_clock(before.zoned, read.zoned)
    if before is not None and first < before.last:
        raise ValueError(
            f"times must not go back, but row 0 is at {time_shown(kind, first, zoned)}, and the "
            f"last row before this call was at {time_shown(kind, before.last, zoned)}"
        )
    begin = first if before is None else before.first
    return values, Timing(kind, begin, values[-1].item(), zoned)


def times_or_index(
    times: Any, X: Any, y: Any, duration: Duration, parameter: str, *, countable: bool = True
) -> Any:
    """Return the times of a call, or the dates of X's or y's index; ValueError without either."""
    if times is None and duration.kind == DATES:
        times = of_frames(X, y)
    if times is None:
        other = " (or a whole number)" if countable else ""
        other = " (or X or y with an index of dates)" if duration.kind == DATES else other
        raise ValueError(
            f"{parameter} is a length of time, so that every row needs a time: give times={other}"
        )
    return times


def check_same_kind(before: str, duration: Duration, parameter: str) -> None:
    """Raise ValueError if the times of rows ``before`` are not of a length of time's kind."""
    if before != duration.kind:
        raise ValueError(
            f"{parameter} goes with times that are {duration.kind}, but rows before had {before}: "
            "call fit to start anew"
        )


def check_kind(kind: str, duration: Duration, parameter: str) -> None:
    """Raise ValueError if times of this kind do not go with a length of time."""
    if kind != duration.kind:
        what = {DATES: "dates", NUMBERS: "numbers"}
        use = "text such as '90D' or a timedelta" if kind == DATES else "a float, in their unit"
        raise ValueError(
            f"times are {what[kind]}, but {parameter} is a length between {what[duration.kind]}: "
            f"with {what[kind]} {parameter.partition('=')[0]} is {use}"
        )
