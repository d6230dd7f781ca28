"""Lags in time: the value that there was so long before, by hand, over gaps and clock changes."""

from __future__ import annotations

import datetime
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import olsq
from olsq.features import ARX, FIR, NARX, Grouped, Lags, Union

HOUR = pd.Timedelta("1h")
ZONES = [None, "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]
DAYS = {"1D": 1, "7D": 7, "1W": 7}


def hours(seed, zone, n=500):
    """A series by hours over a change of the clocks, with holes."""
    rng = np.random.default_rng(seed)
    start = ["2024-03-01", "2024-10-20", "2024-03-25"][seed % 3]
    index = pd.date_range(start, periods=n, freq="h", tz="UTC")
    index = index.tz_localize(None) if zone is None else index.tz_convert(zone)
    kept = rng.random(n) > 0.1
    for hole in rng.integers(0, n, 3):
        kept[hole : hole + rng.integers(2, 60)] = False
    return pd.Series(rng.standard_normal(kept.sum()), index=index[kept])


def by_hand(series, lag, tolerance=None):
    """The value at every time less a lag, one by one."""
    slack = 0 if tolerance is None else pd.Timedelta(tolerance).value
    index = series.index.tz_localize(None) if lag in DAYS else series.index
    axis, values = index.as_unit("ns").asi8, series.to_numpy()
    back = pd.Timedelta(days=DAYS[lag]) if lag in DAYS else pd.Timedelta(lag)
    out = np.full(len(axis), np.nan)
    for t, now in enumerate(axis):
        behind = now - back.value - axis
        fits = np.flatnonzero((behind >= 0) & (behind <= slack))
        if fits.size:
            out[t] = values[max(fits, key=lambda i: (-behind[i], i))]
    return out


@pytest.mark.full
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("seed", range(3))
def test_lags_are_the_values_of_that_time_in_any_cut(seed, zone):
    series, rng = hours(seed, zone), np.random.default_rng(seed)
    lags = ["1h", "24h", "1D", "7D", "90min"]
    tolerance = [None, "40min", "3h"][seed % 3]
    whole = Lags(lags, tolerance=tolerance).fit_transform(None, series)
    for j, lag in enumerate(lags):
        np.testing.assert_array_equal(whole[:, j], by_hand(series, lag, tolerance))
    builder, parts = Lags(lags, tolerance=tolerance), []
    edges = np.unique([0, *rng.integers(0, len(series), 12), len(series)])
    for first, last in itertools.pairwise(edges):
        block = series.iloc[first:last]
        if first:
            own = builder.peek(None, times=block.index)[0]
            np.testing.assert_array_equal(own, whole[first])
            builder = olsq.loads(builder.to_bytes())
        parts.append(builder.partial_transform(None, block))
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_day_is_one_of_the_calendar_and_24_hours_are_not():
    index = pd.date_range("2024-03-30 11:00", periods=60, freq="h", tz="Europe/Berlin")
    day, long = Lags(["1D", "24h"]).fit_transform(None, pd.Series(np.arange(60.0), index)).T
    noon = index.get_loc(pd.Timestamp("2024-03-31 12:00", tz="Europe/Berlin"))
    assert (day[noon], long[noon]) == (1, 0)
    assert np.isnan(day[index.get_loc(pd.Timestamp("2024-04-01 02:00", tz="Europe/Berlin"))])
    rows = Lags(24).fit_transform(None, np.arange(60.0))
    np.testing.assert_array_equal(rows[:, -1], long)  # by rows, where none is missing


def test_a_hole_does_not_move_a_lag():
    index = pd.date_range("2024-01-01", periods=200, freq="h")
    kept = np.r_[0:100, 130:200]
    series = pd.Series(kept.astype(float), index[kept])
    found = Lags("24h").fit_transform(None, series)[:, 0]
    expected = np.where(np.isin(kept - 24, kept), kept - 24.0, np.nan)
    np.testing.assert_array_equal(found, expected)


def frames(series):
    """The same rows as frames of each library, with the names of the time and of the value."""
    data = {"t": series.index, "x": series.to_numpy()}
    frame = pd.DataFrame(data)
    yield frame
    yield pl.from_pandas(frame)
    yield pa.Table.from_pandas(frame, preserve_index=False)
    plain = frame.assign(t=pd.Series(list(series.index.to_pydatetime()), dtype=object))
    yield plain


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_are_a_column_an_index_or_given(zone):
    series = hours(1, zone, 300)
    expected = np.column_stack([by_hand(series, lag) for lag in ("24h", "1D")])
    options = {"lags": ["24h", "1D"], "of": "x"}
    for frame in frames(series):
        np.testing.assert_array_equal(Lags(**options, times="t").fit_transform(frame), expected)
        both = Lags(options["lags"], of="X", times=0).fit_transform(frame)
        np.testing.assert_array_equal(both, expected)
    indexed = pd.DataFrame({"x": series})
    np.testing.assert_array_equal(Lags(**options).fit_transform(indexed), expected)
    for unit in ("ns", "s"):
        of_arrow = pd.Series(series.index).astype(pd.ArrowDtype(pa.timestamp(unit, zone)))
        named = indexed.set_axis(pd.Index(of_arrow))
        np.testing.assert_array_equal(Lags(**options).fit_transform(named), expected)
        for times in (of_arrow, named.index):
            found = Lags(**options).partial_transform(indexed, times=times)
            np.testing.assert_array_equal(found, expected)
    given = Lags(**options).fit_transform(indexed.reset_index(drop=True), times=series.index)
    np.testing.assert_array_equal(given, expected)
    array = Lags(options["lags"], of=0).fit_transform(indexed.to_numpy(), times=list(series.index))
    np.testing.assert_array_equal(array, expected)


def test_builders_of_orders_count_steps():
    series = hours(0, None, 300)
    x, y = series.to_numpy(), np.arange(len(series), dtype=float)
    X = pd.DataFrame({"x": x}, index=series.index)
    lagged = {k: by_hand(series, f"{k}h") for k in (1, 2, 3)}
    of_y = by_hand(pd.Series(y, series.index), "1h")
    found = FIR(3, delay=1, step="1h").fit_transform(X)
    np.testing.assert_array_equal(found, np.column_stack(list(lagged.values())))
    found = FIR(2, step="1h").fit_transform(X)
    np.testing.assert_array_equal(found, np.column_stack([x, lagged[1]]))
    found = ARX(1, 2, step="1h").fit_transform(X, y)
    np.testing.assert_array_equal(found, np.column_stack([of_y, lagged[1], lagged[2]]))
    products = NARX(1, 1, step="1h").fit_transform(X, y)
    np.testing.assert_array_equal(products[:, 3], of_y * lagged[1])
    union = Union([Lags("2h", of="x"), FIR(2)]).fit_transform(X)
    np.testing.assert_array_equal(union[:, 0], lagged[2])
    np.testing.assert_array_equal(union[1:, 2], x[:-1])  # rows, beside it


def test_lags_in_time_of_each_group():
    series = [hours(seed, "Europe/Berlin", 200) for seed in range(3)]
    panel = pd.concat(
        [pd.DataFrame({"g": g, "t": s.index, "x": s.to_numpy()}) for g, s in enumerate(series)]
    ).sort_values("t", kind="stable")
    expected = np.full(len(panel), np.nan)
    for g, one in enumerate(series):
        expected[panel["g"].to_numpy() == g] = by_hand(one, "1D")
    grouped = Grouped(Lags("1D", of="x", times="t"), by="g")
    parts = [grouped.partial_transform(panel[i : i + 50]) for i in range(0, len(panel), 50)]
    np.testing.assert_array_equal(np.concatenate(parts)[:, 0], expected)
    given = Grouped(Lags("1D", of="x"), by="g").fit_transform(panel[["g", "x"]], times=panel["t"])
    np.testing.assert_array_equal(given[:, 0], expected)


def test_numbers_are_times_too_and_missing_times_have_no_lags():
    t = np.arange(40) / 10
    t[7] = np.nan
    X = np.column_stack([t, np.arange(40.0)])
    found = Lags([0.1, 0.3], of=1, times=0).fit_transform(X)
    wanted = np.full((40, 2), np.nan)
    for row, lag in itertools.product(range(40), (1, 3)):
        if row >= lag and 7 not in (row, row - lag):
            wanted[row, lag // 2] = row - lag
    np.testing.assert_array_equal(found, wanted)
    dates = pd.to_datetime(["2024-01-01", None, "2024-01-02", "2024-01-02", "2024-01-03"])
    found = Lags("1D").fit_transform(None, np.arange(5.0), times=dates)[:, 0]
    np.testing.assert_array_equal(found, [np.nan, np.nan, 0, 0, 3])  # the last of two at once


@pytest.mark.parametrize(
    ("builder", "times", "message"),
    [
        (Lags("1h"), None, "no times were given"),
        (Lags("1h"), ["2/2020", "10/2020"], "got text such as"),
        (Lags("1h"), [1.0, 2.0], "times are numbers"),
        (Lags("1h"), pd.to_datetime(["2024-01-02", "2024-01-01"]), "must not go back"),
        (Lags("1h"), pd.to_datetime(["2024-01-02"]), "one time for each of 2 rows"),
        (Lags(["1h", 2]), [1.0, 2.0], "times are numbers"),
        (Lags("1M"), [1.0, 2.0], "months, quarters, years"),
        (Lags(["1h", "1h"]), [1.0, 2.0], "none twice"),
        (Lags(2), [1.0, 2.0], "nothing looks back in time"),
        (Lags(2, tolerance="1h"), None, "lags count rows"),
        (ARX(1, 0, times=0), None, "give step='1h'"),
        (ARX(1, 0, step=-1.0), None, "step must be a positive number"),
    ],
)
def test_what_is_no_lag_in_time_is_refused(builder, times, message):
    with pytest.raises(ValueError, match=message):
        builder.fit_transform(None, [1.0, 2.0], times=times)


def test_a_stream_keeps_its_clock_and_order():
    series = hours(0, "UTC", 300)
    lags = Lags("1h").fit(None, series[:30])
    for wrong in (series[10:20], series[30:].tz_localize(None)):
        with pytest.raises(ValueError, match="times"):
            lags.partial_transform(None, wrong)
    np.testing.assert_array_equal(
        lags.partial_transform(None, series[30:]), Lags("1h").fit_transform(None, series)[30:]
    )
    saved = Lags([datetime.timedelta(hours=1), np.timedelta64(2, "h")]).fit(None, series)
    loaded = olsq.loads(saved.to_bytes())
    later = [series.index[-1] + HOUR]
    np.testing.assert_array_equal(loaded.peek(None, times=later), saved.peek(None, times=later))
