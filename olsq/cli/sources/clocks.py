"""Local clocks: convert their times to UTC, and find hours that a clock set back shows twice."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.cli.errors import InputError

# One zone for each rule by which clocks are, or were in this century, set back.
ZONES_THAT_SET_BACK = (
    *("Atlantic/Azores", "Europe/London", "Europe/Berlin", "Europe/Helsinki", "Europe/Moscow"),
    *("America/New_York", "America/Havana", "America/Mexico_City", "America/Sao_Paulo"),
    *("America/Santiago", "America/Asuncion", "Africa/Cairo", "Africa/Casablanca"),
    *("Asia/Jerusalem", "Asia/Beirut", "Asia/Amman", "Asia/Damascus", "Asia/Tehran"),
    *("Australia/Sydney", "Australia/Lord_Howe", "Pacific/Auckland"),
)
Times = NDArray[np.float64]  # microseconds


def check_zone(zone: str) -> None:
    """Raise InputError if there is no such time zone."""
    try:
        if not zone:
            raise pl.exceptions.ComputeError
        utc_times(np.zeros(1), zone)
    except pl.exceptions.PolarsError:
        raise InputError(
            f"--time-zone {zone!r} is not known: Europe/Berlin, America/New_York and UTC are, for "
            "example"
        ) from None


def utc_times(local: Times, zone: str) -> tuple[Times, Times]:
    """Return the first and the last moments at which clocks of ``zone`` show ``local`` times (n,).

    NaN where the clocks skip a time.
    """
    moments = pl.Series(local.astype(np.int64)).cast(pl.Datetime("us"))
    first = moments.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    last = moments.dt.replace_time_zone(zone, ambiguous="latest", non_existent="null")
    return _microseconds(first), _microseconds(last)


def _microseconds(moments: pl.Series) -> Times:
    return moments.cast(pl.Int64).cast(pl.Float64).to_numpy()


def may_be_repeated(local: Times) -> NDArray[np.bool_]:
    """Return which of the times (n,) the clocks of some zone show twice."""
    repeated = np.zeros(local.size, np.bool_)
    for zone in ZONES_THAT_SET_BACK if local.size else ():
        first, last = utc_times(local, zone)
        repeated |= first < last
    return repeated


def in_row_order(first: Times, last: Times, above: Times, *, ties: bool) -> Times:
    """Choose moments (n,) between ``first`` and ``last``, so that rows are in order.

    ``above`` (n,) is the time of the row above where that is another table's or chunk's, else NaN.
    Where the row above has the same time, the clocks were set back between the two, unless there
    are ``ties``, rows of one time.
    """
    chosen = first.copy()
    for row in np.flatnonzero(first < last):
        before = chosen[row - 1] if np.isnan(above[row]) else above[row]
        if first[row] < before or (first[row] == before and not ties):
            chosen[row] = last[row]
    return chosen
