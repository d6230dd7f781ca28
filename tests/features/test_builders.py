"""Feature builders: what they are, that they never look ahead, and that cuts do not matter."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import olsq
from olsq.features import ARX, FIR, NARX, Fourier, Lags, OneHot, RandomFourier, Trend, Union
from olsq.features.base import number_repeats
from tests.tiers import examples

T = 23
DAYS = np.datetime64("2024-02-27") + np.arange(T)


def stream(seed=0):
    """A frame of everything: numbers with gaps, text, stamps; and a target with gaps."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "price": rng.standard_normal(T),
            "count": rng.integers(0, 5, T),
            "sky": rng.choice(["sun", "rain", "snow", "fog"], T),
            "day": DAYS,
            "hour": np.cumsum(rng.uniform(0, 3, T)),
        }
    )
    frame.loc[4, "price"], frame.loc[9, "sky"] = np.nan, None
    y = rng.standard_normal(T)
    y[11] = np.nan
    return frame, y


def loop_lags(values, lag):
    out = np.full(len(values), np.nan)
    out[lag:] = values[: len(values) - lag]
    return out


BUILDERS = {
    "lags of y": Lags(3),
    "chosen lags of y": Lags([1, 7, 2]),
    "lags of columns": Lags([0, 2], of=["price", "count"]),
    "lag 0 alone": Lags([0], of="price"),
    "fir": FIR(4, of="price"),
    "fir, delayed": FIR(2, delay=3, of=["hour", "price"]),
    "arx": ARX(2, 2, of="price"),
    "arx, at once": ARX(1, 1, delay=0, of=["price", "hour"]),
    "narx": NARX(1, 2, of="price", degree=3),
    "seasons of rows": Fourier([7, 14, 5.5], [3, 3, 2]),
    "seasons of stamps": Fourier(["7D", "365.25D"], [2, 1], of="day"),
    "seasons of numbers": Fourier(24.0, 3, of="hour"),
    "trend of rows": Trend(3, scale=10),
    "trend of stamps": Trend(2, scale="30D", origin="2024-01-01", of="day"),
    "trend of numbers": Trend(1, scale=24.0, origin=5, of="hour"),
    "levels": OneHot(["sky", "count"], max_levels=3, unseen="other"),
    "given levels": OneHot("sky", levels=["rain", "sun"], drop="first"),
    "union": Union(
        [Lags(2), FIR(2, of="price"), Fourier(7), OneHot("sky", max_levels=2), Trend()],
        passthrough=["hour", "price"],
    ),
}  # fmt: skip
NAMES = list(BUILDERS)


def made(name):
    """Make a builder that has seen no row."""
    builder = BUILDERS[name]
    return type(builder)(**builder.get_params())


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
@given(cuts=st.lists(st.integers(0, T), max_size=8), files=st.booleans())
@example(cuts=[0, 7, 7, T], files=True)
@settings(max_examples=examples(12), deadline=None)
def test_any_cut_gives_the_same_features(name, cuts, files, tmp_path_factory):
    """Also one row a call, blocks of no rows anywhere, and by way of a file at every cut."""
    X, y = stream()
    whole = made(name).partial_transform(X, y)
    builder = made(name)
    edges = sorted([0, T, *cuts])
    parts = []
    for first, last in itertools.pairwise(edges):
        own = X[first:last], y[first:last]
        if first and files:
            path = tmp_path_factory.mktemp("builder") / "history.olsq"
            builder.save(path)
            builder = olsq.load(path)
        if first:
            np.testing.assert_array_equal(builder.peek(*own), builder.peek(*own))
            seen = builder.peek(*own)
            parts.append(builder.partial_transform(*own))
            np.testing.assert_array_equal(seen, parts[-1])
        else:
            parts.append(builder.partial_transform(*own))
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(made(name).fit_transform(X, y), whole)
    one_by_one = made(name)
    rows = [one_by_one.partial_transform(X[t : t + 1], y[t : t + 1]) for t in range(T)]
    np.testing.assert_array_equal(np.concatenate(rows), whole)


@pytest.mark.parametrize("name", NAMES)
def test_no_feature_sees_the_future(name):
    X, y = stream()
    whole = made(name).partial_transform(X, y)
    for t in (0, 5, 15):
        later, target = stream(seed=1)
        later.iloc[: t + 1], target[:t] = X.iloc[: t + 1], y[:t]  # y of row t is another
        changed = made(name).partial_transform(later, target)
        np.testing.assert_array_equal(whole[: t + 1], changed[: t + 1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["polars", "arrow"])
def test_every_frame_gives_the_same(name, kind, tmp_path):
    X, y = stream()
    whole = made(name).partial_transform(X, y)
    table = pl.from_pandas(X) if kind == "polars" else pa.Table.from_pandas(X)
    builder = made(name)
    np.testing.assert_array_equal(builder.partial_transform(table[:9], y[:9]), whole[:9])
    builder.save(tmp_path / "b.olsq", metadata={"rows": 9})
    loaded = olsq.load(tmp_path / "b.olsq")
    assert loaded.metadata_ == {"rows": 9}
    np.testing.assert_array_equal(loaded.partial_transform(table[9:], y[9:]), whole[9:])
    assert list(loaded.get_feature_names_out()) == list(builder.get_feature_names_out())
    assert repr(loaded) == repr(made(name)).replace("(1, 7", "[1, 7")


@pytest.mark.parametrize("name", NAMES)
def test_names_are_as_many_as_features_and_all_different(name):
    X, y = stream()
    builder = made(name)
    features = builder.partial_transform(X, y)
    names = builder.get_feature_names_out()
    assert features.shape == (T, len(names))
    assert features.dtype == np.float64
    assert len(set(names)) == len(names)


def test_lags_are_earlier_rows():
    X, y = stream()
    lags = Lags([1, 7, 2]).partial_transform(X, y)
    for k, lag in enumerate((1, 7, 2)):
        np.testing.assert_array_equal(lags[:, k], loop_lags(y, lag))
    built = ARX(2, 2, of=["hour", "price"]).fit(X, y)
    features = built.transform(X, y)
    expected = [loop_lags(y, 1), loop_lags(y, 2)]
    for column in ("hour", "price"):
        expected += [loop_lags(X[column].to_numpy(), lag) for lag in (1, 2)]
    np.testing.assert_array_equal(features, np.stack(expected, axis=1))
    assert built.get_feature_names_out().tolist() == [
        "y_lag1", "y_lag2", "hour_lag1", "hour_lag2", "price_lag1", "price_lag2",
    ]  # fmt: skip


def test_lags_of_several_targets():
    Y = np.arange(12.0).reshape(6, 2)
    lags = Lags(2)
    np.testing.assert_array_equal(
        lags.partial_transform(None, Y)[3], [Y[2, 0], Y[1, 0], Y[2, 1], Y[1, 1]]
    )
    assert lags.get_feature_names_out().tolist() == ["y0_lag1", "y0_lag2", "y1_lag1", "y1_lag2"]
    np.testing.assert_array_equal(lags.peek(None), [[Y[5, 0], Y[4, 0], Y[5, 1], Y[4, 1]]])
    with pytest.raises(ValueError, match="y must have 2 columns"):
        lags.partial_transform(None, Y[:, 0])


def test_monomials_are_those_of_scikit_learn():
    from sklearn.preprocessing import PolynomialFeatures

    X, y = stream()
    narx = NARX(2, 2, of="hour", degree=3)
    features = narx.partial_transform(X, y)
    lagged = ARX(2, 2, of="hour").partial_transform(X, y)
    usable = np.isfinite(lagged).all(axis=1)
    theirs = PolynomialFeatures(3, include_bias=False)
    np.testing.assert_allclose(features[usable], theirs.fit_transform(lagged[usable]), rtol=1e-14)
    names = theirs.get_feature_names_out(["y_lag1", "y_lag2", "hour_lag1", "hour_lag2"])
    assert [n.replace("*", " ") for n in narx.get_feature_names_out()] == names.tolist()
    assert np.isnan(features[0]).all()
    with pytest.raises(ValueError, match="monomials up to degree 9"):
        NARX(5, 5, degree=9).partial_transform(X[["hour"]], y)


def test_an_autoregression_is_identified():
    rng = np.random.default_rng(0)
    u, y = rng.standard_normal(3000), np.zeros(3000)
    for t in range(2, 3000):
        y[t] = 1.5 * y[t - 1] - 0.7 * y[t - 2] + u[t - 1] + 0.5 * u[t - 2]
        y[t] += 0.1 * rng.standard_normal()
    arx, est = ARX(2, 2), olsq.RecursiveLeastSquares(ridge=0.0)
    for part in np.array_split(np.arange(3000), 7):
        est.partial_fit(arx.partial_transform(u[part, None], y[part]), y[part])
    assert est.n_samples_seen_ == 2998
    np.testing.assert_allclose(est.coef_, [1.5, -0.7, 1.0, 0.5], atol=0.01)


def test_seasons_are_sines_of_the_row():
    features = Fourier([7, 5.5], [3, 2]).partial_transform(np.zeros((50, 1)))
    t = np.arange(50)
    expected = []
    for period, order in ((7, 3), (5.5, 2)):
        for k in range(1, order + 1):
            expected += [f(2 * np.pi * k * t / period) for f in (np.sin, np.cos)]
    np.testing.assert_allclose(features, np.stack(expected, axis=1), atol=1e-12)


def test_a_frequency_is_there_once():
    season = Fourier([7, 14, 28], [1, 3, 4])
    season.fit(np.zeros((3, 1)))
    assert [n for n in season.get_feature_names_out() if n[0] == "s"] == [
        "sin1/7", "sin1/14", "sin3/14", "sin1/28", "sin3/28",
    ]  # fmt: skip
    half = Fourier(4, 2)
    assert half.fit_transform(np.zeros((9, 1))).shape == (9, 3)
    assert np.linalg.matrix_rank(half.transform(np.zeros((9, 1)))) == 3


def test_a_late_row_is_as_exact_as_the_first(tmp_path):
    season = Fourier(7, 3).fit(np.zeros((1, 1)))
    first = season.transform(np.zeros((7, 1)))
    season._state["rows"] = 7 * 10**15
    np.testing.assert_array_equal(season.peek(np.zeros((7, 1))), first)
    stamps = pd.DataFrame(
        {"t": np.array(["1700-01-01", "2024-03-01T06:00", "2250-12-31"], "M8[ns]")}
    )
    found = Fourier("24h", of="t").fit_transform(stamps)
    np.testing.assert_array_equal(found, [[0, 1], [1, np.cos(np.pi / 2)], [0, 1]])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_stamps_of_every_kind(unit):
    days = pd.Series(DAYS.astype(f"datetime64[{unit}]"))
    zoned = days.dt.tz_localize("America/New_York")
    expected = np.sin(2 * np.pi * (DAYS.astype(int) % 7) / 7)
    objects = [d.date() for d in days]
    columns = (days, zoned, pl.Series(DAYS), pl.Series(objects), np.array(objects, dtype=object))
    for column in columns:
        X = pl.DataFrame({"t": column}) if isinstance(column, pl.Series) else {"t": column}
        X = pd.DataFrame(X) if isinstance(X, dict) else X
        found = Fourier("1W", of="t").fit_transform(X)
        np.testing.assert_allclose(found[:, 0], expected, atol=1e-12)
    array = DAYS.astype(f"datetime64[{unit}]")[:, None]
    np.testing.assert_allclose(Fourier("7D", of=0).fit_transform(array)[:, 0], expected, atol=1e-12)
    gap = pd.DataFrame({"t": [DAYS[0], pd.NaT]})
    assert np.isnan(Fourier("7D", of="t").fit_transform(gap)[1]).all()
    assert np.isnan(Trend(scale="7D", of="t").fit_transform(gap)[1]).all()


HOURS = pd.date_range("2024-03-30 12:00", periods=60, freq="h", tz="Europe/Berlin")  # to summer
ZONED = {
    "pandas": pd.DataFrame({"t": HOURS}),
    "pandas objects": pd.DataFrame({"t": pd.Series(list(HOURS), dtype=object)}),
    "Polars": pl.DataFrame({"t": pl.Series(HOURS)}),
    "Arrow": pl.DataFrame({"t": pl.Series(HOURS)}).to_arrow(),
    "Python": pd.DataFrame({"t": pd.Series([h.to_pydatetime() for h in HOURS], dtype=object)}),
}


@pytest.mark.parametrize("kind", ZONED)
def test_seasons_go_by_the_clocks_of_a_zone_and_trends_by_the_time_that_passes(kind):
    season, trend = Fourier("24h", of="t"), Trend(scale="1D", origin=HOURS[0].isoformat(), of="t")
    noon = np.flatnonzero(HOURS.hour == 12)
    np.testing.assert_allclose(season.fit_transform(ZONED[kind])[noon], [[0, -1]] * 3, atol=1e-12)
    np.testing.assert_allclose(trend.fit_transform(ZONED[kind])[:, 0], np.arange(60) / 24)


def test_stamps_with_and_without_a_zone_do_not_mix():
    mixed = pd.DataFrame({"t": pd.Series([HOURS[0], HOURS[1].tz_localize(None)], dtype=object)})
    for builder in (Fourier("24h", of="t"), Trend(scale="1D", of="t")):
        with pytest.raises(ValueError, match="must all have a time zone, or none"):
            builder.fit(mixed)


@pytest.mark.parametrize("kind", ZONED)
@pytest.mark.parametrize("builder", [Fourier("24h", of="t"), Trend(scale="1D", of="t")])
def test_stamps_do_not_lose_or_gain_a_zone_between_calls(builder, kind, tmp_path):
    zoned, naive = ZONED[kind], pd.DataFrame({"t": HOURS.tz_localize(None)})
    missing = pd.DataFrame({"t": pd.Series([None, None], dtype=object)})
    for first, second in ((zoned, naive), (naive, zoned)):
        builder.fit(first).partial_transform(missing)
        builder.save(tmp_path / "builder.olsq")
        for seen in (builder, olsq.load(tmp_path / "builder.olsq")):
            state = dict(seen._state)
            for call in (seen.partial_transform, seen.transform, seen.peek):
                with pytest.raises(ValueError, match="time zone, and those of the rows before"):
                    call(second)
            assert seen._state == state
            seen.transform(first)


def test_trends_are_powers_of_scaled_time():
    u = np.arange(30.0) / 10 - 0.5
    features = Trend(3, scale=10, origin=5).partial_transform(np.zeros((30, 2)))
    np.testing.assert_allclose(features, np.stack([u, u**2, u**3], axis=1), rtol=1e-14)
    stamps = pd.DataFrame({"t": pd.to_datetime(["2024-01-01", "2024-01-11"])})
    features = Trend(1, scale="10D", origin="2024-01-01", of="t").fit_transform(stamps)
    np.testing.assert_array_equal(features, [[0.0], [1.0]])


def test_levels_come_as_they_come_and_stay():
    sky = [["a"], ["b"], [None], ["c"], ["a"]]
    one = OneHot(max_levels=2)
    first = one.partial_transform(sky)
    np.testing.assert_array_equal(first, [[1, 0], [0, 1], [np.nan] * 2, [0, 0], [1, 0]])
    # transform learns nothing; a fresh level has no column
    new = OneHot(max_levels=3).fit([["a"]])
    np.testing.assert_array_equal(new.transform([["b"], ["a"]]), [[0, 0, 0], [1, 0, 0]])
    assert new.get_feature_names_out().tolist() == ["x0=a", "x0=?1", "x0=?2"]
    np.testing.assert_array_equal(new.peek([["b"]]), [[0, 1, 0]])
    assert new.get_feature_names_out().tolist()[1] == "x0=?1"
    new.partial_transform([["b"]])
    assert new.get_feature_names_out().tolist() == ["x0=a", "x0=b", "x0=?2"]


@pytest.mark.parametrize(
    "values", [[1, 2, 1], [1.5, np.nan, 2.0], [True, False, True], ["a", "b", "ä"], [1, "a", True]]
)
def test_levels_of_every_type_survive_files(values, tmp_path):
    X = np.array(values, dtype=object)[:, None]
    one = OneHot(unseen="other")
    first = one.partial_transform(X)
    one.save(tmp_path / "levels.olsq")
    loaded = olsq.load(tmp_path / "levels.olsq")
    np.testing.assert_array_equal(loaded.transform(X), first)
    assert list(loaded.get_feature_names_out()) == list(one.get_feature_names_out())
    assert [type(v) for v in loaded._state["levels"][0]] == [
        type(v) for v in one._state["levels"][0]
    ]


def test_indicators_are_those_of_pandas():
    X, _ = stream()
    own = OneHot("sky", levels=["fog", "rain", "snow", "sun"]).fit(X)
    theirs = pd.get_dummies(X["sky"]).to_numpy(float).copy()
    theirs[X["sky"].isna()] = np.nan
    np.testing.assert_array_equal(own.transform(X), theirs)


def test_peek_forecasts_the_next_row():
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.standard_normal(100))
    lags, est = Lags(2), olsq.RecursiveLeastSquares()
    errors = []
    for t in range(100):
        if t > 5:
            errors.append(y[t] - est.predict(lags.peek(None))[0])
        features = lags.partial_transform(None, y[[t]])
        if t > 1:  # an estimator begins with a row that it can learn
            est.partial_fit(features, y[[t]])
    path = olsq.coefficient_path(
        np.stack([loop_lags(y, 1), loop_lags(y, 2)], 1), y, fit_intercept=True
    )
    np.testing.assert_allclose(errors, path.residual[6:], rtol=1e-9, atol=1e-12)
    # two rows ahead: y of the first is not known, and the second row says so
    arx = ARX(1, 1).fit(np.ones((4, 1)), np.arange(4.0))
    np.testing.assert_array_equal(arx.peek([[1.0], [1.0]]), [[3.0, 1.0], [np.nan, 1.0]])


def test_carry_continues_after_fit():
    X, _ = stream()
    whole = Lags(3, of=["price", "hour"]).fit_transform(X)
    after = Lags(3, of=["price", "hour"], carry=True).fit(X[:10])
    for _ in range(2):  # and changes nothing
        np.testing.assert_array_equal(after.transform(X[10:]), whole[10:])
    fresh = Lags(3, of=["price", "hour"]).fit(X[:10]).transform(X[10:])
    assert np.isnan(fresh[0]).all()
    np.testing.assert_array_equal(Fourier(7, carry=True).fit(X[:10]).transform(X[10:]),
                                  Fourier(7).fit_transform(X)[10:])  # fmt: skip


def test_rows_that_were_missing_are_missing_later():
    y = np.array([1.0, np.nan, 3.0, 4.0])
    np.testing.assert_array_equal(
        Lags(2).fit_transform(None, y), [[np.nan] * 2, [1, np.nan], [np.nan, 1], [3, np.nan]]
    )


def test_float32_comes_out_as_the_same_numbers():
    X = np.float32([[0.1], [0.2], [0.3]])
    assert FIR(2).fit_transform(X)[2].tolist() == [float(X[2, 0]), float(X[1, 0])]


@pytest.mark.parametrize("builder", [Trend(scale="365D", of=0), Fourier("7D", of=0)])
@pytest.mark.parametrize("unit", ["s", "D"])
def test_dates_that_nanoseconds_cannot_hold_are_refused(builder, unit):
    for stamp in ("9999-12-31", "1500-01-01"):
        dates = np.array([["2021-01-01"], [stamp]], f"datetime64[{unit}]")
        with pytest.raises(ValueError, match=f"between the years 1678 and 2262.*{stamp}"):
            builder.fit_transform(dates)


def test_a_trend_spans_all_dates():
    dates = np.array([["1700-01-01"], ["NaT"], ["2250-01-01"]], "datetime64[D]")
    found = Trend(scale="1D", origin="2200-01-01", of=0).fit_transform(dates)[:, 0]
    days = (dates[[0, 2], 0] - np.datetime64("2200-01-01")).astype(np.float64)
    np.testing.assert_allclose(found[[0, 2]], days, rtol=1e-14)
    assert np.isnan(found[1])


@pytest.mark.parametrize(
    ("builder", "loaded"),
    [
        (OneHot(levels=pd.Series(["u", "v"]).unique()), {"levels": ["u", "v"]}),
        (OneHot(levels=pd.Index(["u", "v"])), {"levels": ["u", "v"]}),
        (OneHot(levels=pl.Series(["u", "v"])), {"levels": ["u", "v"]}),
        (Lags({1, 2}, of="X"), {"lags": [1, 2]}),
        (FIR(of=pd.Index(["s"])), {"of": ["s"]}),
    ],
)
def test_parameters_of_other_libraries_are_saved_as_lists(builder, loaded):
    number = isinstance(builder, (Lags, FIR))
    frame = pd.DataFrame({"s": [1.0, 2.0, 3.0] if number else ["u", "v", "u"]})
    again = olsq.loads(builder.fit(frame).to_bytes())
    assert {name: getattr(again, name) for name in loaded} == loaded
    again.fit(frame)


def test_every_column_has_a_name_of_its_own():
    frame = pd.DataFrame({"k": pd.Series([1, "1", 1.5], dtype=object)})
    hot = OneHot("k", max_levels=3).fit(frame)
    assert hot.get_feature_names_out().tolist() == ["k=1", "k=1_2", "k=1.5"]
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((5, 2)), columns=["a", "b"])
    both = Union([RandomFourier(2, gamma=1.0), RandomFourier(2, gamma=0.1, seed=1)])
    names = ["randomfourier0", "randomfourier1", "randomfourier0_2", "randomfourier1_2"]
    for library in ("pandas", "polars"):
        made = both.set_output(transform=library).fit_transform(X)
        assert list(made.columns) == names
    assert number_repeats(["a", "a", "a_2", "a"]) == ["a", "a_3", "a_2", "a_4"]


@pytest.mark.parametrize("untyped", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_first_block_without_rows_is_no_block(name, untyped):
    """Also where its columns have no type, as those of a frame that is made of names alone."""
    X, y = stream()
    builder = made(name)
    empty = X[:0].astype(object) if untyped else X[:0]
    first = builder.partial_transform(empty, y[:0])
    assert builder.peek(empty, y[:0]).shape == first.shape
    rest = builder.partial_transform(X, y)
    whole = made(name).partial_transform(X, y)
    np.testing.assert_array_equal(np.concatenate([first, rest]), whole)
