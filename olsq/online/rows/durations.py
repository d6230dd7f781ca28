"""Lengths of time: windows and half-lives that do not count rows, and what passes between rows.

The times of a stream are dates, held as whole nanoseconds so that differences are exact, or
numbers in a unit of the user's own, held as float64.  Lengths of time since an origin (timedelta64)
are held as the dates that long after the Unix epoch, on a clock of their own.
"""

from __future__ import annotations

import datetime
import math
import re
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import as_float, is_number, shown

DATES, NUMBERS = "dates", "numbers"
SMALLEST_GATE = float(np.finfo(np.float64).tiny)  # a gate of 0 would be a reset
ELAPSED = "elapsed"  # the clock of times since an origin, in the place of a time zone
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
    "w": 7 * 86400 * 10**9,
}
_WORDS = {"sec": "s", "second": "s", "minute": "min", "hour": "h", "day": "d", "week": "w"}
_NO_FIXED_LENGTH = {"me", "ms", "mo", "month", "q", "qe", "qs", "quarter", "y", "ye", "ys", "a"}
_NO_FIXED_LENGTH |= {"year", "b", "bd"}  # pandas' "MS" is the start of a month
_PART = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-zµ]+)\s*")
LARGEST = np.iinfo(np.int64).max


class Duration(NamedTuple):
    """A positive length of time: nanoseconds between dates, or a number between numbers."""

    kind: str  # DATES or NUMBERS
    length: int | float

    def expired(self, now: NDArray) -> NDArray:
        """Return the latest times (n,) outside of windows of this length that end at ``now`` (n,).

        Numbers are compared to four roundings: with times 0.1 apart a window of 0.3 holds three
        rows, whichever way 0.4 - 0.3 and 0.1 were rounded.
        """
        if self.kind == DATES:  # may reach back beyond the first of all nanoseconds
            earliest = np.iinfo(np.int64).min
            return np.where(now < earliest + self.length, earliest, now - self.length)
        outside = now - self.length + 4 * np.spacing(np.maximum(np.abs(now), self.length))
        return np.minimum(outside, np.nextafter(now, -np.inf))  # a row is in its own window


def is_duration(value: Any) -> bool:
    """Test whether a parameter is written as a length of time between dates."""
    return isinstance(value, (str, datetime.timedelta, np.timedelta64))


def is_window_of_time(window: Any) -> bool:
    """Test whether a window is a length of time: 9 is a number of rows, 9.0 one of time."""
    return is_duration(window) or isinstance(window, (float, np.floating))


def parse_duration(value: Any, name: str) -> Duration:
    """Parse a length of time between dates from text or a timedelta.

    Text is numbers with units, as pandas has them: "90D", "1.5h", "1D12h", "15min", "2W", "500ms";
    units are W, D, h, min, s, ms, us, ns (capital or small, except "M") and their English names.

    Raises ValueError for what is not positive or has no fixed length, such as months.

    Examples
    --------
    >>> from olsq.online.rows.durations import parse_duration
    >>> parse_duration("2h", "window").length == 7200 * 10**9
    True
    """
    if isinstance(value, str):
        length = _of_text(value, name)
    elif isinstance(value, np.timedelta64):
        length = _of_timedelta64(value, name)
    elif isinstance(value, datetime.timedelta):
        exact = getattr(value, "as_unit", None)  # pandas', which may be finer
        if exact is not None and value.total_seconds() == value.total_seconds():  # no NaT
            length = int(np.timedelta64(exact("ns").to_timedelta64()).astype(np.int64))
        else:
            length = (value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000
    else:
        raise TypeError(f"{name} must be a length of time such as '90D', got {value!r}")
    if not 0 < length <= LARGEST:
        raise ValueError(
            f"{name} must be a length of time between 1 ns and 292 years, got {value!r}"
        )
    return Duration(DATES, length)


def _of_text(text: str, name: str) -> int:
    length, at = 0, 0
    while at < len(text) or at == 0:
        part = _PART.match(text, at)
        if part is None:
            raise ValueError(
                f"{name} must be a length of time such as '90D', '36h', '15min' or '500ms', got "
                f"{text!r}"
            )
        number, unit = part.groups()
        length += round(Fraction(number) * _unit(unit, text, name))
        at = part.end()
    return length


def _unit(unit: str, text: str, name: str) -> int:
    """Return the nanoseconds of a unit."""
    small = unit.lower()
    single = small.removesuffix("s")
    small = _WORDS.get(single, small)
    if unit == "M" or (unit != "ms" and {small, single} & _NO_FIXED_LENGTH):
        raise ValueError(
            f"{name}={text!r}: months, quarters, years and business days have no fixed length; "
            "give days, for instance '30D', '91D' or '365D'"
        )
    if small not in _NANOSECONDS:
        hint = "; minutes are 'min'" if unit == "m" else ""
        raise ValueError(
            f"{name}={text!r}: unknown unit {unit!r}; use W, D, h, min, s, ms, us or ns{hint}"
        )
    return _NANOSECONDS[small]


def _of_timedelta64(value: np.timedelta64, name: str) -> int:
    unit = np.datetime_data(value.dtype)[0]
    if np.isnat(value) or unit in ("generic", "Y", "M"):
        raise ValueError(
            f"{name} must be a length of time with a unit between weeks and nanoseconds, got "
            f"{value!r}: months and years have no fixed length"
        )
    count, step = int(value.astype(np.int64)), np.datetime_data(value.dtype)[1]
    if unit in ("ps", "fs", "as"):
        raise ValueError(f"{name} must be whole nanoseconds, got {value!r}")
    scale = _NANOSECONDS[{"m": "min"}.get(unit, unit.lower())]
    return count * step * scale


def half_life_duration(half_life: Any, timed: bool) -> Duration | None:
    """Return a half-life as a length of time; None if there is none, or it counts rows.

    ``timed`` says whether rows have times: a plain number may be either.
    """
    counts_rows = half_life is None or not (timed or is_duration(half_life))
    return None if counts_rows else any_duration(half_life, "half_life")


def any_duration(value: Any, name: str) -> Duration:
    """Return a length of time between dates or between numbers; ValueError or TypeError if none."""
    return parse_duration(value, name) if is_duration(value) else number_duration(value, name)


def number_duration(value: Any, name: str) -> Duration:
    """Return a length of time between numbers; ValueError unless positive and finite."""
    if not (is_number(value) and 0 < as_float(value) < math.inf):
        raise ValueError(f"{name} must be a positive number, got {shown(value)}")
    return Duration(NUMBERS, float(value))


def half_life_gates(
    times: NDArray, usable: NDArray[np.bool_] | None, span: NDArray, half_life: float
) -> NDArray[np.float64]:
    """Compute forgetting factors ``2^(-elapsed / half_life)`` (n,), see :func:`elapsed_times`."""
    return gates_after(elapsed_times(times, usable, span), half_life)


def gates_after(elapsed: NDArray[np.float64], half_life: float) -> NDArray[np.float64]:
    """Compute the forgetting factors ``2^(-elapsed / half_life)`` (n,).

    A factor is never 0, which would start afresh: what a long gap leaves of a state is tiny, and is
    there.
    """
    with np.errstate(over="ignore"):
        return np.maximum(np.exp2(-elapsed / half_life), SMALLEST_GATE)


def elapsed_times(
    times: NDArray, usable: NDArray[np.bool_] | None, span: NDArray
) -> NDArray[np.float64]:
    """Compute the time (n,) passed at each row since the row learned before it.

    ``span`` = [time of the first row learned, of the last], or empty: then the first row's is 0.
    Rows that are not ``usable`` have 0, and the next one makes up for them.
    """
    elapsed = np.zeros(times.shape[0])
    learned = slice(None) if usable is None else np.flatnonzero(usable)
    learned_times = times[learned]
    if learned_times.size:
        before = np.concatenate([span[1:] if span.size else learned_times[:1], learned_times[:-1]])
        elapsed[learned] = time_between(before, learned_times)
    return elapsed


def time_between(earlier: NDArray, later: NDArray) -> NDArray[np.float64]:
    """Compute ``later - earlier`` (n,), for times that do not go back."""
    passed = later - earlier
    # Over 292 years int64 wraps; read as unsigned the difference of two dates is exact.
    return (passed.view(np.uint64) if passed.dtype.kind == "i" else passed).astype(np.float64)


def span_after(times: NDArray, usable: NDArray[np.bool_] | None, span: NDArray) -> NDArray:
    """Return ``span`` after more rows."""
    learned_times = times if usable is None else times[usable]
    if learned_times.size == 0:
        return span
    return np.array([span[0] if span.size else learned_times[0], learned_times[-1]], times.dtype)
