"""Windows and half-lives in time: the dense oracle, pandas, all ways of feeding, bad times."""

from __future__ import annotations

import copy
import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import olsq
from olsq.online.rows.durations import parse_duration
from olsq.online.rows.times import read_times
from olsq.reference import regression as oracle
from tests.online import streams
from tests.online.judge import check_optimal, coefficient_error, tolerance
from tests.tiers import examples

DAY = np.timedelta64(1, "D")
RLS, ROLLING = olsq.RecursiveLeastSquares, olsq.RollingLeastSquares


def irregular(n, seed=0):
    """Dates (n,): mostly days, some rows at one time, some gaps of weeks."""
    rng = np.random.default_rng(seed)
    hours = rng.choice([0, 1, 6, 24, 24, 25, 48, 24 * 40], n).astype("timedelta64[h]")
    return (np.datetime64("2020-01-01T00", "ns") + np.cumsum(hours)).astype("datetime64[ns]")


def window_of(times, t, length):
    """Mark the rows up to t that are in (times[t] - length, times[t]]."""
    return np.flatnonzero(times[: t + 1] > times[t] - length)


# -- the dense oracle ---------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
@pytest.mark.parametrize(
    ("days", "ridge", "intercept", "targets"),
    [(1, 0.0, False, 1), (5, 0.0, True, 2), (60, 0.0, True, 1), (60, 0.3, False, 1)],
)
def test_windows_agree_with_the_oracle_after_every_row(regressors, days, ridge, intercept, targets):
    stream = streams.make(regressors, "gates vary", m=targets)
    X, Y, weights = stream.X, stream.y, stream.weights
    times, vector = irregular(len(X)), np.full(X.shape[1], ridge)
    path = olsq.coefficient_path(
        X, Y, sample_weight=weights, ridge=ridge, fit_intercept=intercept, window=f"{days}D",
        times=times,
    )  # fmt: skip
    assert np.isfinite(path.residual).all()
    for t in range(len(X)):
        seen = window_of(times, t, days * DAY)
        if not weights[seen].any():
            assert np.isnan(path.coef[t]).all()
            continue
        check_optimal(
            X[seen], Y[seen], weights[seen], vector, intercept, path.coef[t],
            path.intercept[t], 2.3e-16,
        )  # fmt: skip
        truth, *_, condition = oracle.solve(X[seen], Y[seen], weights[seen], vector, intercept)
        allowed = tolerance("rolling", 2.3e-16, condition, 1.0)
        if allowed < 1e-2:
            error = coefficient_error(path.coef[t], truth, X[seen], Y[seen])
            assert error <= allowed + 1e-9  # the bound that rebuilding keeps


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_times_any_window(data):
    """Numbers as times, gaps, rows together, missing rows, rows of weight 0, pieces of any size."""
    n = data.draw(st.integers(1, 40))
    steps = data.draw(st.lists(st.sampled_from([0, 1, 1, 2, 5, 30]), min_size=n, max_size=n))
    kinds = data.draw(st.lists(st.sampled_from("llllmw"), min_size=n, max_size=n))
    length = float(data.draw(st.sampled_from([1, 3, 10, 1000])))
    targets = data.draw(st.sampled_from([0, 2]))
    ridge, intercept = data.draw(st.sampled_from([0.0, 0.5])), data.draw(st.booleans())
    rng = np.random.default_rng(n)
    times, kinds = np.cumsum(steps).astype(float), np.array(kinds)
    X = np.round(rng.standard_normal((n, 2)), 1)
    Y = X @ np.ones((2, max(targets, 1))) + rng.standard_normal((n, max(targets, 1)))
    weights = np.where(kinds == "w", 0.0, rng.uniform(0.5, 2.0, n))
    usable = kinds != "m"
    given_X = np.where(usable[:, None], X, np.nan)
    y = Y if targets else Y[:, 0]
    if not usable.any():
        return
    est = ROLLING(length, ridge=ridge, fit_intercept=intercept)
    first = int(np.argmax(usable)) + 1
    cuts = data.draw(st.lists(st.integers(first, n), max_size=3).map(sorted))
    paths = [
        est.partial_fit_path(given_X[a:b], y[a:b], weights[a:b], times=times[a:b])
        for a, b in zip([0, *cuts], [*cuts, n], strict=True)
    ]
    coef = np.concatenate([p.coef for p in paths]).reshape(n, -1, 2)
    bias = np.concatenate([p.intercept for p in paths]).reshape(n, -1)
    residual = np.concatenate([p.residual for p in paths]).reshape(n, -1)
    assert (np.isnan(residual) == ~usable[:, None]).all()
    vector = np.full(2, ridge)
    for t in range(n):
        seen = window_of(times, t, length)
        seen = seen[usable[seen]]
        if not weights[seen].any():
            assert np.isnan(coef[t]).all()
            continue
        check_optimal(X[seen], Y[seen], weights[seen], vector, intercept, coef[t], bias[t], 2.3e-16)


@pytest.mark.parametrize("ridge_mode", ["discounted", "fixed"])
@pytest.mark.parametrize("intercept", [False, True])
def test_half_lives_agree_with_weighted_least_squares(ridge_mode, intercept):
    rng = np.random.default_rng(0)
    n, times, half_life = 120, irregular(120), 30 * DAY
    X, weights = rng.standard_normal((n, 2)), rng.uniform(0.5, 2.0, n)
    Y = X @ rng.standard_normal((2, 2)) + rng.standard_normal((n, 2))
    path = olsq.coefficient_path(
        X, Y, sample_weight=weights, ridge=0.5, ridge_mode=ridge_mode, fit_intercept=intercept,
        half_life="30D", times=times,
    )  # fmt: skip
    for t in range(n):
        left = 2.0 ** -((times[t] - times[: t + 1]) / half_life)
        ridge = 0.5 * (left[0] if ridge_mode == "discounted" else 1.0)
        coef, bias, *_ = oracle.solve(
            X[: t + 1], Y[: t + 1], weights[: t + 1] * left, np.full(2, ridge), intercept
        )
        np.testing.assert_allclose(path.coef[t], coef, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(path.intercept[t], bias, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
def test_skipped_rows_let_time_pass(method):
    """A stream with missing rows is the stream without them, target by target."""
    rng = np.random.default_rng(1)
    n, times = 60, irregular(60, 1)
    X, Y = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
    Y[rng.random((n, 2)) < 0.3] = np.nan
    Y[:3, 1] = np.nan
    X[7] = np.nan
    est = RLS(half_life="5D", ridge=0.1, method=method, missing="skip_target")
    for a, b in ((0, 10), (10, 11), (11, 60)):
        est.partial_fit(X[a:b], Y[a:b], times=times[a:b])
    for k in range(2):
        there = np.isfinite(Y[:, k]) & np.isfinite(X[:, 0])
        alone = RLS(half_life="5D", ridge=0.1, method=method)
        alone.fit(X[there], Y[there, k], times=times[there])
        np.testing.assert_allclose(est.coef_[k], alone.coef_, rtol=1e-9)


@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
def test_a_gap_of_any_length_is_no_reset(method):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = X @ [1.0, 2.0]
    days = np.r_[np.arange(39), 10**5].astype("timedelta64[D]") + np.datetime64("1900-01-01")
    est = RLS(half_life="1h", ridge=0.0, method=method, fit_intercept=False)
    est.fit(X, y, times=days)
    assert np.isfinite(est.coef_).all()
    if method != "information":  # which has nothing to hold coefficients with
        np.testing.assert_allclose(est.coef_, [1.0, 2.0], rtol=1e-9)
    est.partial_fit(X, y, times=days[-1:].repeat(40))
    np.testing.assert_allclose(est.coef_, [1.0, 2.0], rtol=1e-9)


# -- pandas and statsmodels -----------------------------------------------------------------------


def test_slopes_are_those_of_pandas_rolling_time_windows():
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {"x": rng.standard_normal(n).cumsum(), "y": rng.standard_normal(n)}, index=irregular(n)
    )
    path = olsq.coefficient_path(frame[["x"]], frame["y"], window="90D", fit_intercept=True)
    rolling = frame.rolling("90D")
    covariance = rolling.cov()
    slope = covariance.xs("y", level=1)["x"].to_numpy() / rolling["x"].var().to_numpy()
    known = rolling["x"].count().to_numpy() > 2
    np.testing.assert_allclose(path.coef[known, 0], slope[known], rtol=1e-8)
    path = olsq.coefficient_path(frame[["x"]] * 0 + 1, frame["y"], window="36h", min_samples=2)
    want = frame["y"].rolling("36h", min_periods=2).mean()
    np.testing.assert_allclose(path.coef[:, 0], want, rtol=1e-9, atol=1e-12)


def test_means_are_those_of_pandas_ewm_with_times():
    rng = np.random.default_rng(0)
    times, y = irregular(300), rng.standard_normal(300)
    want = pd.Series(y).ewm(halflife="3D", times=times).mean()
    got = olsq.coefficient_path(np.ones((300, 1)), y, half_life="3D", times=times).coef[:, 0]
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def test_a_window_of_evenly_spaced_days_is_one_of_rows():
    from statsmodels.regression.rolling import RollingOLS

    rng = np.random.default_rng(0)
    days = pd.date_range("2020", periods=200)
    frame = pd.DataFrame(rng.standard_normal((200, 2)), columns=["a", "b"], index=days)
    y = frame["a"] + pd.Series(rng.standard_normal(200), days)
    frame.iloc[50:60] = np.nan
    path = olsq.coefficient_path(frame, y, window="30D", min_samples=5)
    rows = olsq.coefficient_path(frame, y, window=30, window_of="positions", min_samples=5)
    for one, other in zip(path, rows, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-12)
    frame.iloc[50:60] = 0.5
    path = olsq.coefficient_path(frame, y, window="30D")
    truth = RollingOLS(y, frame, window=30).fit()
    np.testing.assert_allclose(path.coef[29:], truth.params.to_numpy()[29:], rtol=1e-8)
    np.testing.assert_allclose(path.stderr[29:], truth.bse.to_numpy()[29:], rtol=1e-7)


# -- streams, files, merging --------------------------------------------------------------------


def make(kind, **more):
    if kind == "window":
        return ROLLING(window="20D", ridge=0.1, **more)
    return RLS(half_life="20D", ridge=0.1, **more)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["window", "half_life"])
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
def test_ways_of_feeding_agree(kind, regressors, tmp_path):
    stream = streams.make(regressors, "gates 1")
    X, y, times = stream.X, stream.y[:, 0], irregular(len(stream.X), 3)
    n = len(X)

    def feed(est, start, stop, size):
        for i in range(start, stop, size):
            part = slice(i, min(i + size, stop))
            est.partial_fit(X[part], y[part], times=times[part])
        return est

    whole = make(kind).fit(X, y, times=times)
    half = feed(make(kind), 0, 20, 1)
    half.save(tmp_path / "s.olsq")
    loaded = olsq.load(tmp_path / "s.olsq")
    for est in (
        feed(make(kind), 0, n, 1),
        feed(make(kind), 0, n, 5),
        feed(copy.deepcopy(half), 20, n, 7),
        olsq.merge(feed(make(kind), 0, 20, 20), feed(make(kind), 20, n, n)),
        olsq.merge(feed(make(kind), 0, n - 2, n), feed(make(kind), n - 2, n, 1)),
    ):
        assert est.n_samples_seen_ == n
        assert coefficient_error(est.coef_[None], whole.coef_[None], X, y[:, None]) < 1e-7
    feed(half, 20, n, 7)
    feed(loaded, 20, n, 7)
    np.testing.assert_array_equal(loaded.coef_, half.coef_)  # bit for bit
    np.testing.assert_array_equal(loaded.coef_stderr_, half.coef_stderr_)
    half.save(tmp_path / "a.olsq")
    loaded.save(tmp_path / "b.olsq")
    assert (tmp_path / "a.olsq").read_bytes() == (tmp_path / "b.olsq").read_bytes()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_ring_grows_and_forgets(dtype):
    """A burst of rows, a gap that empties the window, and a burst again."""
    rng = np.random.default_rng(0)
    seconds = np.r_[np.linspace(0, 50, 700), 10_000.0, np.linspace(20_000, 20_010, 300)]
    X = rng.standard_normal((1001, 3)).astype(dtype)
    y = (X @ [1.0, 2.0, 3.0]).astype(dtype) + rng.standard_normal(1001).astype(dtype)
    est = ROLLING(window=20.0, ridge=0.0, fit_intercept=False)
    path = est.partial_fit_path(X, y, times=seconds)
    engine = est._engine.engine
    assert engine.place[0] == 300
    assert engine.ring_w.size == 512  # the first burst holds 280
    for t in (0, 5, 300, 699, 700, 701, 705, 1000):
        seen = window_of(seconds, t, 20.0)
        truth = np.linalg.lstsq(X[seen].astype(float), y[seen].astype(float), rcond=None)[0]
        tol = 1e-8 if dtype == "float64" else 1e-4
        np.testing.assert_allclose(path.coef[t], truth, rtol=tol, atol=tol)


@pytest.mark.full
@pytest.mark.parametrize("collinear", [False, True])
def test_never_drifts(collinear):
    rng = np.random.default_rng(0)
    n = 60_000
    X = rng.standard_normal((n, 3))
    if collinear:
        X[:, 2] = X[:, 0] + 1e-6 * X[:, 2]
    y = X @ [1.0, 2.0, 3.0] + rng.standard_normal(n)
    X[1000] *= 1e8  # passes through, and leaves no trace
    times = np.cumsum(rng.exponential(1.0, n))
    est = ROLLING(window=100.0, ridge=0.0, fit_intercept=False)
    for start in range(0, n, 6000):
        part = slice(start, start + 6000)
        est.partial_fit(X[part], y[part], times=times[part])
        seen = window_of(times, start + 5999, 100.0)
        truth = np.linalg.lstsq(X[seen], y[seen], rcond=None)[0]
        np.testing.assert_allclose(X[seen] @ est.coef_, X[seen] @ truth, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(est.coef_, truth, rtol=1e-4 if collinear else 1e-8)


def test_an_empty_window_has_no_estimate():
    X, y = np.ones((3, 1)), np.ones(3)
    est = ROLLING(window=5.0, min_samples=2, ridge=0.0, fit_intercept=False)
    est.fit(X, y, times=[0, 1, 2])
    np.testing.assert_allclose(est.coef_, [1.0])
    est.partial_fit([[np.nan]], [1.0], times=[100])
    with pytest.raises(ValueError, match="0 of min_samples=2"):
        est.predict(X)
    est.partial_fit(X, 2 * y, times=[100, 101, 102])
    np.testing.assert_allclose(est.coef_, [2.0])


def test_merging_refuses_times_that_do_not_fit():
    X, y = np.ones((3, 1)), np.ones(3)
    early, late = irregular(6)[:3], irregular(6)[3:] + DAY
    for kind in ("window", "half_life"):
        a, b = make(kind).fit(X, y, times=early), make(kind).fit(X, y, times=late)
        with pytest.raises(ValueError, match=r"second begins at .*before first ends"):
            olsq.merge(b, a)
        assert olsq.merge(a, b)._timing.last == b._timing.last
    same = ROLLING(window=pd.Timedelta("480h"), ridge=0.1).fit(X, y, times=late)
    olsq.merge(make("window").fit(X, y, times=early), same)
    with pytest.raises(ValueError, match="without times"):
        olsq.merge(RLS(ridge=0.1).fit(X, y), make("half_life").fit(X, y, times=late))


# -- what times may be ------------------------------------------------------------------------

DATES = [datetime.datetime(2020, 1, d) for d in (1, 1, 3, 9)]
SAME = {
    "list of datetimes": DATES,
    "list of dates": [d.date() for d in DATES],
    "with a zone": [d.replace(tzinfo=datetime.UTC) for d in DATES],
    "NumPy days": np.array(DATES, "datetime64[D]"),
    "pandas series": pd.Series(DATES),
    "pandas objects": pd.Series(DATES, dtype=object),
    "pandas index": pd.DatetimeIndex(DATES, tz="UTC"),
    "pandas zone": pd.Series(DATES).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
    "polars": pl.Series(DATES),
    "polars dates": pl.Series([d.date() for d in DATES]),
    "polars zone": pl.Series(DATES).dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"),
    "arrow": pa.chunked_array([DATES]),
    "arrow zone": pa.chunked_array([pa.array(DATES, pa.timestamp("us", tz="Asia/Tokyo"))]),
}


@pytest.mark.parametrize("kind", SAME)
def test_dates_of_every_kind(kind):
    found = read_times(SAME[kind])
    assert found.kind == "dates"
    assert found.zoned == (kind == "pandas index" or "zone" in kind)
    np.testing.assert_array_equal(found.values, np.array(DATES, "datetime64[ns]").astype(np.int64))


def test_dates_keep_their_nanoseconds():
    stamps = pd.to_datetime(["2020-01-01T00:00:00.000000001", "2020-01-01T00:00:00.000000003"])
    want = stamps.to_numpy().astype("datetime64[ns]").astype(np.int64)
    for times in (stamps, list(stamps), list(stamps.tz_localize("UTC")), list(stamps.to_numpy())):
        np.testing.assert_array_equal(read_times(times)[1], want)


@pytest.mark.parametrize("kind", ["window", "half_life"])
def test_steps_have_a_time(kind):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 2)), rng.standard_normal(30)
    times = irregular(30)
    stepped, whole = make(kind), make(kind).partial_fit_path(X, y, times=times)
    for t in range(30):
        _, residual = stepped.step(X[t], y[t], time=pd.Timestamp(times[t]) if t % 2 else times[t])
        assert residual == pytest.approx(whole.residual[t], rel=1e-9)
    with pytest.raises(ValueError, match="times must not go back"):
        stepped.step(X[0], y[0], time=times[0])
    with pytest.raises(ValueError, match="times are not used"):
        RLS().fit(X, y).step(X[0], y[0], time=times[0])


def test_periods_begin_when_they_begin():
    months = pd.period_range("2020-01", periods=3, freq="M")
    want = np.array(["2020-01-01", "2020-02-01", "2020-03-01"], "datetime64[ns]")
    np.testing.assert_array_equal(read_times(months)[1], want.astype(np.int64))


BAD_TIMES = {
    "back": (DATES[::-1], "times must not go back, but row 1 is at 2020-01-03"),
    "NaT": (np.array(["2020", "NaT", "2021", "2022"], "datetime64[s]"), "got NaT in row 1"),
    "None": ([*DATES[:3], None], "got NaT in row 3"),
    "text": (["2020"] * 4, "got text such as '2020': convert it, for instance with pandas.to_dat"),
    "text as objects": (np.array(["2020-01-02"] * 4, object), "instance with pandas.to_datetime"),
    "a series of text": (pd.Series(["2020-01-02"] * 4), "instance with pandas.to_datetime"),
    "text and numbers": (pd.Series([1.0, "2020-01-02", 3, 4]), "got text such as '2020-01-02'"),
    "categories of text": (pd.Series(["2020", "2021"] * 2, dtype="category"), "to_datetime"),
    "too few": (DATES[:3], "one time for each of 4 rows"),
    "a matrix": (np.zeros((4, 2)), "one time for each of 4 rows"),
    "a frame": (pd.DataFrame({"t": DATES}), "must be one column"),
    "numbers": ([1, 2, 3, 4], "times are numbers, but"),
    "mixed": ([1, 2, 3, DATES[0]], "all dates, all lengths of time or all numbers"),
    "dates and lengths": ([*DATES[:3], datetime.timedelta(1)], "or all numbers, got a mix"),
    "some zoned": (
        [*DATES[:2], *(d.replace(tzinfo=datetime.UTC) for d in DATES[2:])],
        "all have none, but row 2 has one and row 0 has none",
    ),
    "some zoned, with NaT": (
        pd.Series([pd.NaT, pd.Timestamp(DATES[1], tz="UTC"), *DATES[2:]], dtype=object),
        "row 1 has one and row 2 has none",
    ),
    "zoned after others": (pd.DatetimeIndex(DATES, tz="UTC"), "times have a time zone"),
    "months": (np.arange(4).astype("m8[M]"), "no fixed length"),
    "lengths after dates": (np.arange(4).astype("m8[s]"), "add the date of the origin"),
    "long ago": (np.array(["1000", "2020", "2021", "2022"], "datetime64[s]"), "1678 and 2262"),
    "nothing": (None, "every row needs a time"),
}


@pytest.mark.parametrize("kind", ["window", "half_life"])
@pytest.mark.parametrize("case", BAD_TIMES)
def test_bad_times_are_refused_and_change_nothing(kind, case):
    times, match = BAD_TIMES[case]
    X, y = np.ones((4, 1)), np.ones(4)
    est = make(kind).fit(X, y, times=np.array(DATES, "datetime64[D]") - 100 * DAY)
    before = est._timing, est.coef_, est.n_samples_seen_
    with pytest.raises((TypeError, ValueError), match=match):
        est.partial_fit(X, y, times=times)
    assert (est._timing, est.coef_, est.n_samples_seen_) == before
    if case not in ("zoned after others", "lengths after dates"):
        with pytest.raises((TypeError, ValueError), match=match):
            make(kind).fit(X, y, times=times)


GROUPED = olsq.GroupedLeastSquares
CLOCKS = {
    "half_life": (lambda: RLS(half_life="2D"), {}),
    "window": (lambda: ROLLING(window="30D"), {}),
    "drift": (lambda: RLS(forget=olsq.forgetting.RandomWalk(0.1, per="1D")), {}),
    "robust": (lambda: olsq.RobustLeastSquares(half_life="2D"), {}),
    "groups": (lambda: GROUPED(half_life="2D"), {"by": [0, 1, 0, 1]}),
}


LENGTHS = pd.to_timedelta([0, 2, 5, 9], unit="D").rename("since")
HELD_AS = {
    "index": lambda lengths: lengths,
    "array": lambda lengths: lengths.to_numpy(),
    "series": lambda lengths: lengths.to_series(),
    "Python": lambda lengths: list(lengths.to_pytimedelta()),
    "NumPy": list,
    "Polars": lambda lengths: pl.Series(lengths.as_unit("ms").to_numpy()),
    "Arrow": lambda lengths: pa.array(lengths.to_numpy()),
}


@pytest.mark.parametrize("kind", CLOCKS)
def test_lengths_of_time_since_an_origin_are_times(kind):
    """They go as the dates that long after any day: whole, in pieces, by rows and from files."""
    make_one, by = CLOCKS[kind]
    X, y = np.arange(4.0)[:, None], np.array([1.0, 3, 2, 5])
    dates = pd.Timestamp("2024-01-01") + LENGTHS
    wanted = make_one().partial_fit(X, y, times=dates, **by)
    for held in HELD_AS.values():
        found = make_one().partial_fit(X, y, times=held(LENGTHS), **by)
        np.testing.assert_array_equal(found.coef_, wanted.coef_)
    frame = pd.DataFrame(X, index=LENGTHS)
    found = make_one().partial_fit(frame, y, **by)
    np.testing.assert_array_equal(found.coef_, wanted.coef_)
    halves = [{k: v[part] for k, v in by.items()} for part in (slice(2), slice(2, None))]
    pieces = make_one().partial_fit(X[:2], y[:2], times=LENGTHS[:2], **halves[0])
    for est in (pieces, olsq.loads(pieces.to_bytes())):
        est.partial_fit(X[2:], y[2:], times=LENGTHS[2:], **halves[1])
        np.testing.assert_allclose(est.coef_, wanted.coef_, rtol=1e-9)
        assert olsq.loads(est.to_bytes()).to_bytes() == est.to_bytes()
        with pytest.raises(ValueError, match="add the date of the origin"):
            est.partial_fit(X, y, times=dates + 30 * DAY, **by)
    if not by:
        single = make_one()
        for x, target, time in zip(X, y, LENGTHS, strict=True):
            single.step(x, target, time=time)
        np.testing.assert_allclose(single.coef_, wanted.coef_, rtol=1e-9)
        with pytest.raises(ValueError, match="row 0 is at 0 nanoseconds, and the last row"):
            single.step(X[0], y[0], time=datetime.timedelta(0))
    if kind in ("half_life", "window"):
        late = make_one().partial_fit(X, y, times=dates + 90 * DAY)
        with pytest.raises(ValueError, match="cannot merge: times are dates"):
            olsq.merge(make_one().partial_fit(X, y, times=LENGTHS), late)


@pytest.mark.parametrize("by", [None, [0, 0, 1, 1]])
def test_paths_show_lengths_of_time_as_such(by):
    X, y = pd.DataFrame({"a": np.arange(4.0)}), np.array([1.0, 3, 2, 5])
    wanted = olsq.coefficient_path(X, y, half_life="2D", times=DATES[0] + LENGTHS, by=by)
    path = olsq.coefficient_path(X, y, half_life="2D", times=LENGTHS, by=by)
    np.testing.assert_array_equal(path.coef, wanted.coef)
    assert (path.to_frame()["since"].to_numpy() == LENGTHS.to_numpy()).all()
    arrays = olsq.coefficient_path(X.to_numpy(), y, half_life="2D", times=LENGTHS, by=by)
    assert arrays.to_frame().index.equals(LENGTHS)
    labels = [axis.get_xlabel() for axis in path.plot().axes]
    assert by or labels == ["since (days)"]


@pytest.mark.parametrize("kind", CLOCKS)
@pytest.mark.parametrize("zoned", [True, False])
def test_a_stream_keeps_to_times_with_a_zone_or_without(kind, zoned):
    """Across calls, files, copies, merges, single rows and frames: half a day is not known."""
    make_one, by = CLOCKS[kind]
    X, y = np.arange(4.0)[:, None], np.ones(4)
    naive = pd.DatetimeIndex(DATES)
    times = naive.tz_localize("Asia/Tokyo") if zoned else naive
    other = (naive if zoned else naive.tz_localize("Asia/Tokyo")) + 30 * DAY
    est = make_one().partial_fit(X, y, times=times, **by)
    for again in (est, copy.copy(est), olsq.loads(est.to_bytes())):
        before = again.to_bytes()
        with pytest.raises(ValueError, match="time zone, and those of the rows before"):
            again.partial_fit(X, y, times=other, **by)
        with pytest.raises(ValueError, match="time zone, and those of the rows before"):
            again.partial_fit(pd.DataFrame(X, index=other), y, **by)
        if not by:
            with pytest.raises(ValueError, match="time zone, and those of the rows before"):
                again.step(X[0], 1.0, time=other[0])
        assert again.to_bytes() == before
    if kind not in ("drift", "robust"):  # which do not merge
        with pytest.raises(ValueError, match="times of one have a time zone, those of the other"):
            olsq.merge(est, make_one().partial_fit(X, y, times=other, **by))
    later = times + 30 * DAY
    est.partial_fit(X, y, times=later.tz_convert("UTC") if zoned else later, **by)


def test_files_that_do_not_say_whether_times_had_a_zone_go_on_with_either():
    X, y = np.ones((4, 1)), np.ones(4)
    est = make("half_life").fit(X, y, times=DATES)
    est._timing = est._timing._replace(zoned=None)  # as in a file of version 0.2
    later = pd.DatetimeIndex(DATES, tz="UTC") + 30 * DAY
    assert olsq.loads(est.to_bytes()).partial_fit(X, y, times=later)._timing.zoned is True


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("by", [None, [0, 1, 0, 1]])
def test_zones_survive_in_frames(kind, by):
    zoned = pd.DatetimeIndex(DATES).tz_localize("Asia/Tokyo").rename("when")
    X = np.arange(4.0)[:, None]
    paths = [olsq.coefficient_path(X, X[:, 0], times=zoned, by=by)]
    paths.append(olsq.coefficient_path(X, X[:, 0], times=pl.Series("when", zoned), by=by))
    if by is None:
        paths.append(ROLLING(window="9D").partial_fit_path(X, X[:, 0], times=zoned))
    for path in paths:
        table = path.to_frame(kind=kind)
        column = table.index if kind == "pandas" else table["when"]
        assert str(read_times(column).zone) == "Asia/Tokyo"
        np.testing.assert_array_equal(read_times(column).values, read_times(zoned).values)


def test_calls_follow_each_other_in_time():
    X, y = np.ones((4, 1)), np.ones(4)
    for kind in ("window", "half_life"):
        est = make(kind).fit(X, y, times=DATES)
        with pytest.raises(ValueError, match=r"row 0 is at 2020-01-01.*was at 2020-01-09"):
            est.partial_fit(X, y, times=DATES)
        est.partial_fit(X[:1], y[:1], times=DATES[-1:])  # at the same time
        with pytest.raises(ValueError, match=r"forget and half_life='20D', a length of time"):
            est.set_params(half_life="20D").partial_fit(X[:1], y[:1], forget=0.5, times=DATES[-1:])
        est.partial_fit(X[:0], y[:0], times=DATES[:0])
        frame = pd.DataFrame(X, index=pd.DatetimeIndex(DATES) + 30 * DAY)
        assert est.partial_fit(frame, y)._timing.last == read_times(frame.index)[1][-1]
    with pytest.raises(ValueError, match="has learned rows without times"):
        RLS(half_life=30.0).fit(X, y).partial_fit(X, y, times=np.arange(4))
    with pytest.raises(ValueError, match=r"half_life=None, which counts rows.*leave times out"):
        RLS().fit(X, y, times=DATES)
    with pytest.raises(ValueError, match=r"window=250, which counts rows.*leave times out"):
        ROLLING().fit(X, y, times=DATES)
    with pytest.raises(ValueError, match="with dates half_life is text such as '90D'"):
        RLS(half_life=30).fit(X, y, times=DATES)


@pytest.mark.full
@pytest.mark.parametrize("start", [0.0, 1.7e9])
@pytest.mark.parametrize("size", [1, 7, 400])
def test_rounded_times_put_as_many_rows_into_each_window(start, size):
    """.4 - .3 is not .1 in floats: a row that is due to leave must not stay for that."""
    times, y = start + 0.1 * np.arange(400), np.arange(400.0)
    est = olsq.RollingLeastSquares(0.3, ridge=0, fit_intercept=False)
    X, means = np.ones((400, 1)), []
    for t in range(0, 400, size):
        part = slice(t, t + size)
        means.append(est.partial_fit_path(X[part], y[part], times=times[part]).coef[:, 0])
    want = [y[max(0, t - 2) : t + 1].mean() for t in range(400)]
    np.testing.assert_allclose(np.concatenate(means), want, rtol=1e-12)


def test_numbers_as_times():
    X, y = np.random.default_rng(0).standard_normal((2, 30))
    steps = np.arange(30) / 4
    by_rows = olsq.coefficient_path(X[:, None], y, half_life=8)
    in_time = olsq.coefficient_path(X[:, None], y, half_life=2, times=steps)
    np.testing.assert_allclose(in_time.coef, by_rows.coef, rtol=1e-12)
    by_rows = olsq.coefficient_path(X[:, None], y, window=8)
    in_time = olsq.coefficient_path(X[:, None], y, window=2.0, times=steps)
    np.testing.assert_allclose(in_time.coef, by_rows.coef, rtol=1e-9)
    labels = olsq.coefficient_path(X[:, None], y, window=8, times=steps).labels
    np.testing.assert_array_equal(labels.times, steps)
    with pytest.raises(ValueError, match="one time for each of 30 rows, got an array of shape"):
        olsq.coefficient_path(X[:, None], y, window=8, times=steps[1:])


# -- lengths of time ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "90D",
        "2h",
        "15min",
        "1W",
        "500ms",
        "1D12h",
        "1.5h",
        "2 days",
        "10us",
        "7ns",
        "1h 30min",
        "45s",
        "3 seconds",
    ],
)
def test_lengths_of_time_are_pandas(text):
    want = pd.Timedelta(text)
    assert parse_duration(text, "window").length == want.as_unit("ns").value
    for other in (want, want.to_timedelta64()):
        assert parse_duration(other, "window").length == want.as_unit("ns").value
    assert parse_duration("90d", "window") == parse_duration("90D", "window")
    assert parse_duration(datetime.timedelta(90), "x") == parse_duration("90D", "x")


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("3M", "no fixed length"), ("1Y", "no fixed length"), ("2QE", "no fixed length"),
        ("5B", "no fixed length"), ("3 months", "no fixed length"), ("2MS", "no fixed length"),
        ("2 years", "no fixed length"), (np.timedelta64(3, "M"), "no fixed length"),
        ("5m", "minutes are 'min'"), ("5x", "unknown unit 'x'"), ("D", "such as '90D'"),
        ("", "such as '90D'"), ("-3D", "such as '90D'"), ("1e3D", "unknown unit"),
        ("0D", "between 1 ns and 292 years"), ("200000D", "between 1 ns and 292 years"),
        (datetime.timedelta(-1), "between 1 ns"), (np.timedelta64("NaT", "s"), "between weeks"),
        (pd.NaT, "such as '90D'|between"), ([1], "such as '90D'"),
    ],
)  # fmt: skip
def test_lengths_of_time_that_are_none(value, match):
    with pytest.raises((TypeError, ValueError), match=match):
        parse_duration(value, "window")


def test_what_was_forgotten_in_time_is_in_likelihoods_and_covariances():
    """Sums beside the state, and rows given again, are weighted by the same factors."""
    rng = np.random.default_rng(0)
    n, times, weights = 60, irregular(60), rng.uniform(0.5, 2.0, 60)
    X, Y = rng.standard_normal((n, 2)), rng.standard_normal((n, 2))
    Y[::7, 0] = np.nan

    def fit(part):
        est = RLS(half_life="9D", ridge=0.0, missing="skip_target")
        return est.fit(X[part], Y[part], weights[part], times=times[part])

    whole = fit(slice(n))
    left = 2.0 ** -((times[-1] - times) / (9 * DAY))
    for k in range(2):
        there = np.isfinite(Y[:, k])
        zeta = left[there] / left[there][-1]
        want = (zeta * np.log(weights[there])).sum()
        for est in (whole, olsq.merge(fit(slice(25)), fit(slice(25, n)))):
            assert est._log_weight_sums()[k] == pytest.approx(want, rel=1e-9)
    y = Y[:, 1]
    est = RLS(half_life="9D", ridge=0.0, fit_intercept=False).fit(X, y, weights, times=times)
    w = left * weights
    P = np.linalg.inv(X.T @ (w[:, None] * X))
    pulls = (w * (y - X @ est.coef_))[:, None] * X @ P
    found = est.cov_params("HC0", data=(X, y, weights, times))
    np.testing.assert_allclose(found, pulls.T @ pulls, rtol=1e-9)
    with pytest.raises(ValueError, match="every row needs a time"):
        est.cov_params("HC0", data=(X, y, weights))


def test_a_state_without_rows_may_begin_in_time():
    X, y, times = np.eye(3)[:, :2] + 1, np.arange(3.0), DATES[:3]
    start = RLS(ridge=0.1).fit(X, y).moments()
    options = {"ridge_mode": "discounted", "fit_intercept": True, "half_life": "3D", "ridge": 0.1}
    est = RLS.from_moments(start, **options)
    est.partial_fit(X, y, times=times)
    moved = np.asarray(DATES[:3], "datetime64[ns]") + 30 * DAY
    later = RLS(half_life="3D", ridge=0.1).fit(X, y, times=moved)
    assert olsq.merge(est, later)._timing.last == later._timing.last
    prior = RLS(half_life="3D", prior=([0.0, 0.0], np.eye(2)), ridge=0.0, fit_intercept=False)
    prior.partial_fit(X, y, times=times)
    left = 2.0 ** -np.array([2 / 3, 2 / 3, 0.0])
    want = np.linalg.solve(
        X.T @ (left[:, None] * X) + left[0] * np.eye(2), X.T @ (left * y)
    )  # the prior is forgotten with the rows
    np.testing.assert_allclose(prior.coef_, want, rtol=1e-9)
    with pytest.raises(ValueError, match="every row needs a time"):
        prior.step(X[0], 1.0)
    lost = RLS(half_life="1h", ridge=0.0, fit_intercept=False)
    hours = np.array(["2020-01-01T00", "2020-01-01T01", "2020-02-01T00"], "M8[h]")
    lost.fit([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]], [1.0, 2.0, 3.0], times=hours)
    assert "half-lives ago" in str(lost.summary())


@pytest.mark.parametrize("half_life", ["30D", "36500D"])
@pytest.mark.parametrize("first", ["1678-01-01", "1700-01-01", "1950-01-01"])
def test_a_gap_of_centuries_forgets_what_it_should(half_life, first):
    """Nanoseconds of more than 292 years are more than int64 holds."""
    times = np.array([first, "2261-01-01", "2261-01-02", "2261-02-02"], "datetime64[D]")
    X, y, options = np.ones((4, 1)), [1.0, 5.0, 6.0, 7.0], {"half_life": half_life, "ridge": 0.0}
    days = (times[-1] - times).astype(np.float64)
    weights = 0.5 ** (days / float(half_life[:-1]))
    want = (weights @ y) / weights.sum()
    path = olsq.coefficient_path(X, y, times=times, **options)
    est = olsq.RecursiveLeastSquares(fit_intercept=False, **options)
    for t in range(4):
        est.partial_fit(X[t : t + 1], y[t : t + 1], times=times[t : t + 1])
    groups = olsq.GroupedLeastSquares(fit_intercept=False, **options)
    groups.partial_fit(X, y, by=["a"] * 4, times=times)
    for coef in (path.coef[-1], est.coef_, groups.coef_[0]):
        np.testing.assert_allclose(coef, [want], rtol=1e-12)


@pytest.mark.full
def test_whole_numbers_are_times_to_their_last_digit():
    """Shown as they are; where float64 would round times that count, they are refused."""
    first = 1_700_000_000_000_000_001
    X, y = np.ones((4, 1)), np.arange(4.0)
    times = first + np.array([0, 1, 2, 10])
    shown = olsq.coefficient_path(X, y, times=times).to_frame(kind="polars")["time"]
    assert shown.to_list() == times.tolist()
    with pytest.raises(ValueError, match=r"row 2 is at 17.*00, after 17.*03"):
        olsq.coefficient_path(X, y, times=[first, first + 2, first - 1, first])
    for call in (
        lambda t: olsq.coefficient_path(X, y, times=t, window=2.0),
        lambda t: olsq.coefficient_path(X, y, times=t, half_life=2.0),
        lambda t: olsq.coefficient_path(X, y, times=t, half_life=2.0, by=[1] * 4),
        lambda t: olsq.coefficient_path(X, y, times=t, horizon=2.0),
        lambda t: olsq.GroupedLeastSquares(half_life=2.0).fit(X, y, by=[1] * 4, times=t),
        lambda t: olsq.GroupedRollingLeastSquares(2.0).fit(X, y, by=[1] * 4, times=t),
        lambda t: olsq.time_varying(
            X, y, drift=1.0, noise=1.0, times=t, per=1.0, fit_intercept=False
        ),
    ):
        for kind in (np.array, list, lambda t: pd.Series(t, dtype="Int64")):
            with pytest.raises(ValueError, match="whole numbers beyond 2\\^53"):
                call(kind(times))
        call(times - first)
        call((times - first) * 2**55)  # which float64 holds
    dates = olsq.coefficient_path(X, y, times=times.view("datetime64[ns]"), window="2ns")
    np.testing.assert_allclose(dates.coef[:, 0], [0.0, 0.5, 1.5, 3.0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [olsq.RecursiveLeastSquares, olsq.RobustLeastSquares])
def test_a_half_life_of_another_kind_of_times_needs_a_new_start(make):
    """Dates are no numbers: all rows before would be forgotten, and the state would not load."""
    days = np.datetime64("2024-01-01", "ns") + np.arange(6) * np.timedelta64(1, "D")
    X = np.random.default_rng(0).standard_normal((6, 2))
    est = make(half_life="9D").partial_fit(X, X[:, 0], times=days)
    before = est.to_bytes()
    est.set_params(half_life=5.0)
    with pytest.raises(ValueError, match="rows before had dates: call fit"):
        est.partial_fit(X[:1], X[:1, 0], times=[1.9e18])
    est.set_params(half_life="9D")
    assert est.to_bytes() == before
