"""Groups that forget by the time since their own last row: each is an estimator of its own."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

import olsq

DAY = np.timedelta64(86400, "s")
START = np.datetime64("2026-01-01T00:00:00")
HALF_LIVES = {"dates": "9D", "numbers": 9.0}


def rows(kind="dates", n=240, m=1, seed=0):
    """Rows of five groups, one of which begins late; missing values, labels and weights of 0."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    y = X @ rng.standard_normal((2, m)) + 3 + 0.1 * rng.standard_normal((n, m))
    by = rng.choice(list("abcd"), n).astype(object)
    by[200::3], by[7::29] = "late", None
    X[3::13, 0], y[5::17] = np.nan, np.nan
    weights = rng.uniform(0.1, 2, n)
    weights[4::11] = 0
    times = np.cumsum(rng.exponential(1.0, n))
    times[120:] += 3000.0  # a night of more than 300 half-lives
    if kind == "dates":
        times = START + (times * 86400e9).astype("m8[ns]")
    return X, y if m > 1 else y[:, 0], weights, by, times


def alone(key, X, y, weights, by, times, **options):
    own = by == key
    est = olsq.RecursiveLeastSquares(**options)
    return est.partial_fit(X[own], y[own], weights[own], times=times[own])


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"method": "sqrt"}, {"cov": "sandwich"}], ids=str)
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("kind", HALF_LIVES)
def test_each_group_is_an_estimator_with_a_half_life_in_time(kind, m, options):
    X, y, weights, by, times = rows(kind, m=m)
    options = options | {"half_life": HALF_LIVES[kind]}
    groups = olsq.GroupedLeastSquares(**options)
    for start in range(0, len(X), 31):  # saved and loaded between calls
        own = slice(start, start + 31)
        groups.partial_fit(X[own], y[own], weights[own], by=by[own], times=times[own])
        groups = olsq.loads(groups.to_bytes())
    for key in groups:
        wanted = alone(key, X, y, weights, by, times, **options)
        found = groups[key]
        for name in ("coef_", "intercept_", "sigma2_", "coef_stderr_"):
            got, want = getattr(found, name), getattr(wanted, name)
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        assert found.n_samples_seen_ == wanted.n_samples_seen_
        later = times[-1:] + (5 * DAY if kind == "dates" else 5.0)  # it goes on from its last row
        for est in (found, wanted):
            est.partial_fit(X[-1:], y[-1:], times=later)
        np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-12, atol=1e-12)
    keys = [key for key in by[-40:] if key is not None]
    x = np.nan_to_num(X[-40:])[[key is not None for key in by[-40:]]]
    lower, upper = groups.predict_interval(x, by=keys)
    for i, key in enumerate(keys):
        found = alone(key, X, y, weights, by, times, **options).predict_interval(x[i : i + 1])
        np.testing.assert_allclose(lower[i], found[0][0], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(upper[i], found[1][0], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", HALF_LIVES)
def test_the_path_continues_block_by_block(kind):
    X, y, weights, by, times = rows(kind)
    options = {"half_life": HALF_LIVES[kind], "ridge": 1e-3, "fit_intercept": True}
    whole = olsq.coefficient_path(X, y, sample_weight=weights, by=by, times=times, **options)
    groups, parts = olsq.GroupedLeastSquares(**options), []
    for own in (slice(0, 50), slice(50, 51), slice(51, None)):
        part = groups.partial_fit_path(X[own], y[own], weights[own], by=by[own], times=times[own])
        parts.append(part)
        np.testing.assert_array_equal(part.to_frame(kind="pandas").index.to_numpy(), times[own])
    parts = zip(*(part.every_array for part in parts), strict=True)
    for part, of_whole in zip(parts, whole.every_array, strict=True):
        np.testing.assert_allclose(np.concatenate(part), of_whole, rtol=1e-9, atol=1e-12)


def test_times_go_up_within_a_group_only():
    X, y, weights, by, times = rows()
    order = np.argsort(np.where(by == None, "", by), kind="stable")  # noqa: E711
    found, wanted = (
        olsq.GroupedLeastSquares(half_life="9D").partial_fit(
            X[i], y[i], weights[i], by=by[i], times=times[i]
        )
        for i in (order, slice(None))
    )
    for key in wanted:
        np.testing.assert_array_equal(found[key].coef_, wanted[key].coef_)


@pytest.mark.parametrize("split", [0, 1, 120, 210, 238])
def test_merging_lets_the_first_forget_what_passes_between(split):
    X, y, weights, by, times = rows()
    both = olsq.GroupedLeastSquares(half_life="9D")
    both.partial_fit(X, y, weights, by=by, times=times)
    parts = [olsq.GroupedLeastSquares(half_life="9D") for _ in range(2)]
    for part, own in zip(parts, (slice(0, split + 1), slice(split + 1, None)), strict=True):
        part.partial_fit(X[own], y[own], weights[own], by=by[own], times=times[own])
    merged = olsq.merge(*parts)
    for key in both:
        np.testing.assert_allclose(merged[key].coef_, both[key].coef_, rtol=1e-9)
        assert merged[key]._timing == both[key]._timing
        np.testing.assert_allclose(merged[key].sigma2_, both[key].sigma2_, rtol=1e-9)
        logs = merged[key]._log_weights, both[key]._log_weights
        np.testing.assert_allclose(*logs, rtol=1e-9, atol=1e-12)
    if split == 210:
        with pytest.raises(ValueError, match=r"cannot merge: group '\w+' of second begins at 2026"):
            olsq.merge(parts[1], parts[0])
    bare = olsq.GroupedLeastSquares().partial_fit([[1.0, 1.0]], [1.0], by=["a"])
    with pytest.raises(ValueError, match="learned rows without times"):
        olsq.merge(parts[0], bare)


def test_a_frame_brings_its_dates_and_copies_keep_them():
    X, y, _, by, times = rows()
    frame = pd.DataFrame(X, columns=["u", "v"], index=pd.DatetimeIndex(times)).assign(by=by)
    target = pd.Series(y, index=frame.index)
    groups = olsq.GroupedLeastSquares(half_life=pd.Timedelta("9D"))
    groups.fit(frame, target, by="by")
    wanted = olsq.GroupedLeastSquares(half_life="9D").fit(X, y, by=by, times=times)
    np.testing.assert_array_equal(groups.coef_, wanted.coef_)
    for other in (copy.copy(groups), pickle.loads(pickle.dumps(groups)), copy.deepcopy(groups)):
        later = frame.index[-10:] + pd.Timedelta("20D")
        other.partial_fit(frame[-10:].set_index(later), target[-10:].to_numpy(), by="by")
        wanted_now = copy.copy(wanted).partial_fit(X[-10:], y[-10:], by=by[-10:], times=later)
        np.testing.assert_array_equal(other.coef_, wanted_now.coef_)
    np.testing.assert_array_equal(groups.coef_, wanted.coef_)
    again = olsq.loads(groups.to_bytes())
    assert again.half_life == f"{9 * 86400 * 10**9}ns"


def test_rows_without_a_label_need_no_time():
    X, y, by = np.ones((3, 1)), [1.0, 2.0, 3.0], ["a", None, "a"]
    for times, half_life in (
        ([0.0, np.nan, 1.0], 1.0),
        (np.array(["2026-01-01", "NaT", "2026-01-02"], "M8[s]"), "1D"),
        (np.array(["2026-01-01", "1999-01-01", "2026-01-02"], "M8[s]"), "1D"),
    ):
        groups = olsq.GroupedLeastSquares(half_life=half_life, ridge=0.0, fit_intercept=False)
        groups.partial_fit(X, y, by=by, times=times)
        np.testing.assert_allclose(groups.coef_, [[3.5 / 1.5]])


def test_no_rows_and_no_labels_change_nothing():
    groups = olsq.GroupedLeastSquares(half_life=2.0, fit_intercept=False)
    groups.partial_fit([[1.0]], [2.0], by=[None], times=[5.0])  # nothing known, and fitted
    assert len(olsq.loads(groups.to_bytes())) == 0
    groups.partial_fit([[1.0]], [2.0], by=["a"], times=[1.0])
    before = groups.coef_
    groups.partial_fit(np.empty((0, 1)), [], by=[], times=[])
    groups.partial_fit([[1.0]], [7.0], by=[None], times=[0.0])
    np.testing.assert_array_equal(groups.coef_, before)


ERRORS = {
    "none": ({}, "half_life='1D' is a length of time, so that every row needs a time"),
    "numbers": ({"times": [1.0, 2.0]}, "times are numbers, but half_life='1D' is a length between"),
    "missing": ({"times": [DAY * 40 + START, np.datetime64("NaT", "s")]}, "got NaT in row 1"),
    "few": ({"times": [START]}, "times must hold one time for each of 2 rows"),
    "back": (
        {"times": [START + 41 * DAY, START + 40 * DAY]},
        "row 1 of group 'a' is at 2026-02-10.*, after one at 2026-02-11",
    ),
    "before the last call": (
        {"times": [START, START + 40 * DAY]}, "row 0 of group 'a' is at 2026-01-01",
    ),
    "forget": (
        {"times": [START + 41 * DAY] * 2, "forget": 0.5}, "forget and half_life='1D', a length",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_the_row_and_leave_the_states(case):
    given, message = ERRORS[case]
    groups = olsq.GroupedLeastSquares(half_life="1D")
    groups.partial_fit([[1.0]], [2.0], by=["a"], times=[START + 20 * DAY])
    before = groups.to_bytes()
    with pytest.raises(ValueError, match=message):
        groups.partial_fit([[1.0], [2.0]], [2.0, 3.0], by=["a", "a"], **given)
    assert groups.to_bytes() == before


def test_rows_without_times_are_not_mixed_with_rows_that_have_them():
    one = ([[1.0]], [2.0])
    groups = olsq.GroupedLeastSquares(half_life=5).partial_fit(*one, by=["a"])
    with pytest.raises(ValueError, match="has learned rows without times"):
        groups.partial_fit(*one, by=["a"], times=[1.0])
    groups = olsq.GroupedLeastSquares(half_life=5).partial_fit(*one, by=["a"], times=[1.0])
    with pytest.raises(ValueError, match="every row needs a time"):
        groups.partial_fit(*one, by=["a"])
    groups.set_params(half_life="5D")
    with pytest.raises(ValueError, match="rows before had numbers"):
        groups.partial_fit(*one, by=["a"], times=[START])
    with pytest.raises(ValueError, match="times are not used with half_life=None"):
        olsq.GroupedLeastSquares().partial_fit(*one, by=["a"], times=[1.0])
    by_time = olsq.GroupedLeastSquares(forget=olsq.forgetting.ByTime(2.0))
    with pytest.raises(TypeError, match="strategies such as ByTime are for"):
        by_time.partial_fit(*one, by=["a"], times=[1.0])
    with pytest.raises(ValueError, match="forget and half_life cannot be combined"):
        olsq.GroupedLeastSquares(forget=0.9, half_life="5D").partial_fit(
            *one, by=["a"], times=[START]
        )


@pytest.mark.parametrize("what", ["kind", "shape", "half-life"])
def test_a_file_with_times_that_cannot_be_is_refused(what):
    from olsq.online.files import format as files

    groups = olsq.GroupedLeastSquares(half_life=2.0)
    groups.partial_fit([[1.0], [2.0]], [2.0, 3.0], by=["a", "a"], times=[1.0, 2.0])
    header, arrays = groups._snapshot(None)
    if what == "kind":
        header["times"] = "weeks"
    elif what == "half-life":
        header["parameters"]["half_life"] = "2 months"
    else:
        arrays["times"] = arrays["times"][:, :3]
    with pytest.raises(ValueError, match=r"times|months"):
        olsq.loads(files.packed(header, arrays))


def test_a_refused_call_with_new_labels_leaves_a_file_that_loads():
    day = np.array(["2026-01-01"], "datetime64[D]")
    groups = olsq.GroupedLeastSquares(half_life="1D").partial_fit(
        [[1.0]], [1.0], by=["a"], times=day
    )
    before = groups.to_bytes()
    with pytest.raises(ValueError, match="sample_weight"):
        groups.partial_fit([[1.0]] * 2, [1.0] * 2, [-1.0, 1.0], by=["b", "c"], times=day.repeat(2))
    assert groups.to_bytes() == before
    assert olsq.loads(before).keys() == ["a"]
