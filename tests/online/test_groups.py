"""``by=``: what the same regression on each group's own rows gives, in the order of the rows."""

from __future__ import annotations

import copy
import datetime
import decimal
import doctest
import pickle
import re
import zoneinfo
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import olsq
from olsq.online.many.labels import read_key
from tests.tiers import examples

from . import streams


def mixed(regressors="white", m=1, seed=3):
    """Rows of five groups in random order, all ways of forgetting among them, some rows missing."""
    made = [streams.make(regressors, f, m=m, seed=i) for i, f in enumerate(streams.FORGETTING)]
    X, y, gates, weights = (np.concatenate(parts) for parts in zip(*made, strict=True))
    labels = np.repeat(np.arange(len(made)), streams.N)
    order = np.random.default_rng(seed).permutation(labels.size)
    X, y = X[order].copy(), y[order].copy()
    X[5:200:17, 1] = np.nan
    y[3:200:23] = np.inf
    return X, y if m > 1 else y[:, 0], gates[order], weights[order], labels[order]


def apart(X, y, labels, **options):
    """The path of each group alone, put where its rows are."""
    whole = None
    for label in dict.fromkeys(labels.tolist()):
        rows = labels == label
        own = {k: v[rows] if np.ndim(v) == 1 else v for k, v in options.items()}
        path = olsq.coefficient_path(X[rows], y[rows], **own)
        if whole is None:
            whole = [np.full((len(labels), *a.shape[1:]), np.nan, a.dtype) for a in path]
        for array, part in zip(whole, path, strict=True):
            array[rows] = part
    return olsq.CoefficientPath(*whole)


def same(found, wanted, X, y, inflation=0.0):
    size = np.nan_to_num(np.abs(X)).max(0)
    scale = np.abs(y[np.isfinite(y)]).max()
    allowed = np.full(len(X), 1e-8) + 64 * np.finfo(float).eps * inflation
    for name, a, b in zip(found._fields, found, wanted, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b), err_msg=name)
        if name in ("coef", "residual", "recursive_residual", "intercept"):
            error = np.abs(a - b) * (size if name == "coef" else 1.0)
            worst = np.nan_to_num(error).reshape(len(X), -1).max(1)
            assert (worst <= allowed * scale).all(), name
        else:
            close = np.where(np.isfinite(b), b, 0.0)
            error = np.abs(np.where(np.isfinite(a), a, 0.0) - close).reshape(len(X), -1)
            limit = 1e-15 * scale + (1e-5 + allowed)[:, None] * np.abs(close).reshape(len(X), -1)
            if "stderr" in name:  # P S P cancels most of P where a direction was hardly seen
                noise = np.nan_to_num(wanted.sigma2.reshape(len(X), -1), posinf=0.0).max(1)
                limit += 1e-7 * np.sqrt(noise * inflation).reshape(-1, 1) / min(size.min(), 1.0)
            assert (error <= limit).all(), name


OPTIONS = {
    "plain": {},
    "intercept": {"fit_intercept": True, "ridge": 1e-3},
    "sandwich": {"cov": "sandwich", "fit_intercept": True, "ridge": 1e-9},
    "sqrt": {"method": "sqrt"},
}


@pytest.mark.full
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
def test_each_group_is_a_path_of_its_own(regressors, options):
    X, y, gates, weights, labels = mixed(regressors)
    given = {"forget": gates, "sample_weight": weights, **OPTIONS[options]}
    wanted = apart(X, y, labels, **given)
    inflation = np.zeros(len(X))
    for label in np.unique(labels):
        rows = labels == label
        own = {k: v[rows] if np.ndim(v) == 1 else v for k, v in given.items()}
        inflation[rows] = streams.worst_inflation(X[rows], y[rows], **own)
    same(olsq.coefficient_path(X, y, by=labels, **given), wanted, X, y, inflation)


OTHERS = {
    "half_life": {"half_life": 10.0},
    "window": {"window": 9, "min_samples": 4},
    "positions": {"window": 9, "window_of": "positions", "fit_intercept": True},
    "information": {"method": "information", "ridge": 0.1},
    "fixed": {"ridge_mode": "fixed", "forget": 0.9, "ridge": 0.1},
}


@pytest.mark.parametrize("options", OTHERS)
def test_other_options(options):
    X, y, _, _, labels = mixed("ar1", m=2)
    given = OTHERS[options]
    same(olsq.coefficient_path(X, y, by=labels, **given), apart(X, y, labels, **given), X, y)


TIMED = {
    "half_life": {"half_life": "20D"},
    "window": {"window": "15D"},
    "number": {"half_life": 9.5},
}


@pytest.mark.parametrize("options", TIMED)
def test_lengths_of_time_are_those_of_each_group(options):
    X, y, _, _, labels = mixed("white")
    times = np.cumsum(np.random.default_rng(1).uniform(0.2, 2, len(X)))
    if options != "number":
        times = np.datetime64("2020-01-01") + (times * 86400).astype("m8[s]")
    frame = pd.DataFrame(X, columns=list("abc"), index=pd.DatetimeIndex(times)) if (
        options != "number") else X  # fmt: skip
    given = TIMED[options] | ({} if options != "number" else {"times": times})
    wanted = apart(X, y, labels, times=times, **TIMED[options])
    found = olsq.coefficient_path(frame, y, by=labels, **given)
    same(found, wanted, X, y)
    order = np.argsort(labels, kind="stable")  # times go up within each group only
    again = olsq.coefficient_path(
        X[order], y[order], by=labels[order], times=times[order], **TIMED[options]
    )
    same(again, olsq.CoefficientPath(*(a[order] for a in wanted)), X[order], y[order])


@pytest.mark.parametrize("target", [[1.0, 3.0, 2.0, 5.0], [1.0, np.nan, 2.0, 5.0]])
def test_a_half_life_in_time_with_rows_without_a_label(target):
    X, times, by = np.ones((4, 1)), [0.0, 1.0, 1.0, 3.0], [None, "a", "b", "a"]
    options = {"half_life": 2.0, "times": times}
    path = olsq.coefficient_path(X, target, by=by, **options)
    options["times"] = [1.0, 3.0]
    alone = olsq.coefficient_path(X[1::2], target[1::2], **options)
    np.testing.assert_allclose(path.coef[[1, 3]], alone.coef)
    np.testing.assert_allclose(path.coef[[0, 2], 0], [np.nan, 2.0])


def test_a_frame_keeps_its_names_and_dates():
    X, y, _, _, labels = mixed("white")
    days = pd.date_range("2024-01-01", periods=len(X))
    frame = pd.DataFrame(X, columns=["beta", "gamma", "delta"], index=days)
    by = pd.Series(labels, index=days)
    path = olsq.coefficient_path(frame, pd.Series(y, index=days), by=by, fit_intercept=True)
    table = path.to_frame()
    assert list(table)[:5] == ["group", "intercept", "beta", "gamma", "delta"]
    assert (table.index == days).all()
    wanted = apart(X, y, labels, fit_intercept=True)
    np.testing.assert_allclose(table["beta"], wanted.coef[:, 0], atol=1e-8)


@pytest.mark.parametrize("options", [{"window": 3}, {"window": 3.0, "times": range(6)}, {}])
def test_a_group_without_a_weight_does_not_stop_the_others(options):
    """A missing weight is a missing value, also where each group has an estimator of its own."""
    weights = [1.0, 1.0, 1.0, np.nan, np.nan, np.nan]
    X, y, by = np.ones((6, 1)), [1.0, 3.0, 2.0, 4.0, 5.0, 6.0], list("aaabbb")
    path = olsq.coefficient_path(X, y, by=by, sample_weight=weights, **options)
    np.testing.assert_allclose(path.coef[:3, 0], [1.0, 2.0, 2.0])
    assert np.isnan(path.residual[3:]).all()


def test_groups_that_are_determined_as_another_begins_with_weight_0():
    """Members of a bank are read together while some of them still miss coefficients."""
    X, y, weights = np.arange(4.0)[:, None], np.array([1.0, 2.0, 4.0, 5.0]), np.ones(4)
    weights[1] = 0.0
    options = {"ridge": 1.0, "fit_intercept": True}
    path = olsq.coefficient_path(X, y, by=list("abab"), sample_weight=weights, **options)
    for rows in (slice(0, 4, 2), slice(1, 4, 2)):
        alone = olsq.coefficient_path(X[rows], y[rows], sample_weight=weights[rows], **options)
        np.testing.assert_allclose(path.coef[rows], alone.coef, rtol=1e-12)
        np.testing.assert_allclose(path.stderr[rows], alone.stderr)


def test_targets_that_miss_rows_of_their_own():
    X, y, _, _, labels = mixed("white", m=2)
    y[::7, 0] = np.nan
    given = {"missing": "skip_target", "forget": 0.95}
    same(olsq.coefficient_path(X, y, by=labels, **given), apart(X, y, labels, **given), X, y)


def test_a_group_that_begins_with_a_missing_row_has_no_estimate_yet():
    X, by = np.ones((5, 1)), np.array(["a", "b", "b", "a", "b"])
    y = np.array([1.0, np.nan, 4.0, np.nan, np.nan])
    path = olsq.coefficient_path(X, y, by=by)
    np.testing.assert_allclose(path.coef[:, 0], [1, 0, 4, 1, 4])
    assert np.isinf(path.stderr).all()
    np.testing.assert_array_equal(np.isnan(path.residual), np.isnan(y))


def test_float32_data():
    X, y, _, _, labels = mixed("white")
    X, y = X.astype(np.float32), y.astype(np.float32)
    found = olsq.coefficient_path(X, y, by=labels, forget=0.95)
    wanted = apart(X, y, labels, forget=0.95)
    assert found.coef.dtype == found.residual.dtype == np.float32
    np.testing.assert_allclose(found.coef, wanted.coef, atol=1e-4)


@pytest.mark.full
@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from(["a", "b", None, "c"]), min_size=1, max_size=30),
       st.integers(0, 99))  # fmt: skip
def test_any_order_of_labels(labels, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.integers(-2, 3, (len(labels), 2)).astype(float), rng.standard_normal(len(labels))
    if all(label is None for label in labels):
        with pytest.raises(ValueError, match="no label"):
            olsq.coefficient_path(X, y, by=labels)
        return
    found = olsq.coefficient_path(X, y, by=labels, fit_intercept=True)
    labels = np.array([label or "" for label in labels])
    for label in np.unique(labels):
        rows = labels == label
        if label == "":
            assert all(np.isnan(array[rows]).all() for array in found)
            continue
        wanted = olsq.coefficient_path(X[rows], y[rows], fit_intercept=True)
        np.testing.assert_allclose(found.coef[rows], wanted.coef, atol=1e-9)
        np.testing.assert_array_equal(np.isinf(found.stderr[rows]), np.isinf(wanted.stderr))


NUMBERS = np.array([3, 1, 1, 3, 7, 1, 3, 7])
TEXT = np.array(list("caacgacg"))
DAYS = np.array(["2020-01-03", "2020-01-01", "2020-01-07"], "M8[D]")
KINDS = {
    "ints": NUMBERS,
    "list": NUMBERS.tolist(),
    "floats": NUMBERS.astype(float),
    "text": TEXT,
    "objects": TEXT.astype(object),
    "booleans and text": [{3: True, 1: "1", 7: 7}[i] for i in NUMBERS],
    "tuples": [(int(i), "x") for i in NUMBERS],
    "days": DAYS[np.searchsorted([1, 3, 7], NUMBERS)],
    "pandas": pd.Series(TEXT, index=range(8, 16)),
    "categorical": pd.Categorical(TEXT),
    "categorical series": pd.Series(pd.Categorical(NUMBERS)),
    "nullable": pd.Series(NUMBERS, dtype="Int64"),
    "polars": pl.Series(TEXT),
    "polars categorical": pl.Series(TEXT, dtype=pl.Categorical),
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_any_kind(kind):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((8, 1)), rng.standard_normal(8)
    wanted = olsq.coefficient_path(X, y, by=NUMBERS)
    np.testing.assert_array_equal(olsq.coefficient_path(X, y, by=KINDS[kind]).coef, wanted.coef)
    groups = olsq.GroupedLeastSquares().partial_fit(X, y, by=KINDS[kind])
    assert len(groups.keys()) == 3
    assert groups.n_samples_seen_.tolist() == [3, 3, 2]  # in order of appearance


MISSING = {
    "floats": np.array([1.0, np.nan, 1.0]),
    "none": ["a", None, "a"],
    "days": np.array(["2020-01-01", "NaT", "2020-01-01"], "M8[D]"),
    "pandas": pd.Series(["a", pd.NA, "a"], dtype="string"),
    "categorical": pd.Categorical(["a", None, "a"]),
    "masked": np.ma.array([1, 5, 1], mask=[0, 1, 0]),
}


@pytest.mark.parametrize("kind", MISSING)
def test_rows_without_a_label(kind):
    X, y, by = np.ones((3, 1)), np.array([1.0, 9.0, 3.0]), MISSING[kind]
    path = olsq.coefficient_path(X, y, by=by)
    np.testing.assert_allclose(path.coef[:, 0], [1, np.nan, 2], atol=1e-12)
    assert np.isnan(path.residual[1])
    with pytest.raises(ValueError, match="no label in row 1"):
        olsq.coefficient_path(X, y, by=by, missing="raise")
    groups = olsq.GroupedLeastSquares(ridge=0.0, fit_intercept=False).partial_fit(X, y, by=by)
    np.testing.assert_allclose(groups.residual_, [1, np.nan, 2])
    np.testing.assert_allclose(groups.predict(X, by=by), [2, np.nan, 2])
    groups.set_params(missing="raise")
    for call in (lambda: groups.partial_fit(X, y, by=by), lambda: groups.predict(X, by=by)):
        with pytest.raises(ValueError, match="no label"):
            call()
    assert groups.n_samples_seen_.tolist() == [2]


def test_bad_labels_are_refused():
    X, y = np.ones((3, 1)), np.ones(3)
    for call in (lambda by: olsq.coefficient_path(X, y, by=by),
                 lambda by: olsq.GroupedLeastSquares().partial_fit(X, y, by=by)):  # fmt: skip
        with pytest.raises(ValueError, match="by must have one label for each of the 3 rows"):
            call([1, 2])
        with pytest.raises(ValueError, match="by must have one label"):
            call(np.ones((3, 2)))
        with pytest.raises(TypeError, match="keys of a dict"):
            call([{}, [], "a"])
        with pytest.raises(TypeError, match="labels"):
            call(np.ones(3, complex))
    with pytest.raises(ValueError, match="forget must be a number"):
        olsq.coefficient_path(X, y, by=[1, 1, 2], forget=np.ones(2))
    with pytest.raises(ValueError, match="same for all groups"):
        olsq.GroupedLeastSquares(forget=np.ones(2)).partial_fit(X, y, by=[1, 1, 2])


# -- regressions by key ---------------------------------------------------------------------------


def fed(X, y, labels, parts, **options):
    groups = olsq.GroupedLeastSquares(**options)
    for rows in np.array_split(np.arange(len(X)), parts):
        groups.partial_fit(X[rows], y[rows], by=labels[rows])
    return groups


@pytest.mark.full
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
def test_groups_grow_and_each_is_an_estimator(regressors):
    X, y, _, _, labels = mixed(regressors)
    labels = np.array([f"group {i}" for i in labels])
    groups = fed(X, y, labels, 31, forget=0.97)
    assert groups.groups_ == list(dict.fromkeys(labels.tolist())) == list(groups)
    assert "group 0" in groups
    assert "group 9" not in groups
    scale = np.abs(y[np.isfinite(y)]).max()
    for i, key in enumerate(groups.keys()):
        rows = labels == key
        est = olsq.RecursiveLeastSquares(forget=0.97).fit(X[rows], y[rows])
        size = np.nan_to_num(np.abs(X)).max(0)
        form = est._engine.engine.form
        inflation = (form.inverse_diagonal() * form.columns[0]).max()
        inflation = inflation if np.isfinite(inflation) else 0.0
        allowed = 1e-9 + 64 * np.finfo(float).eps * inflation
        for coef in (groups.coef_[i], groups[key].coef_):
            assert (np.abs(coef - est.coef_) * size).max() <= allowed * scale
        assert groups.n_samples_seen_[i] == est.n_samples_seen_
        assert groups.rank_[i] == est.rank_
        np.testing.assert_allclose(groups.coef_stderr_[i], est.coef_stderr_, rtol=1e-5)
        np.testing.assert_allclose(
            groups.predict(X[rows], by=labels[rows]), est.predict(X[rows]), atol=1e-8 * scale
        )
    with pytest.raises(KeyError):
        groups["group 9"]


def test_unseen_groups_have_no_prediction():
    X, y = np.ones((4, 1)), np.ones(4)
    groups = olsq.GroupedLeastSquares().partial_fit(X, y, by=list("aabb"))
    assert np.isnan(groups.predict(X[:2], by=["a", "z"])).tolist() == [False, True]
    with pytest.raises(ValueError, match="'z', a new label"):
        groups.set_params(missing="raise").predict(X[:2], by=["a", "z"])
    with pytest.raises(ValueError, match="not fitted"):
        olsq.GroupedLeastSquares().predict(X, by=y)


@pytest.mark.parametrize("m", [1, 2])
def test_saved_copied_and_pickled_groups_go_on_bit_for_bit(m, tmp_path):
    X, y, _, _, labels = mixed("collinear", m=m)
    labels = [(int(i), str(i)) for i in labels]
    groups = olsq.GroupedLeastSquares(forget=0.9, ridge=0.0)
    groups.partial_fit(X[:100], y[:100], by=labels[:100])
    groups.save(tmp_path / "groups.olsq", metadata={"day": 1})
    loaded = olsq.load(tmp_path / "groups.olsq")
    assert loaded.metadata_ == {"day": 1}
    assert loaded.get_params() == groups.get_params()
    others = [loaded, copy.copy(groups), pickle.loads(pickle.dumps(groups))]
    for each in (groups, *others):
        each.partial_fit(X[100:], y[100:], by=labels[100:])
    for other in others:
        assert other.keys() == groups.keys()
        np.testing.assert_array_equal(other.coef_, groups.coef_)
        np.testing.assert_array_equal(other.residual_, groups.residual_)
        np.testing.assert_array_equal(other.coef_stderr_, groups.coef_stderr_)


def test_keys_that_a_file_cannot_hold(tmp_path):
    decimals = [decimal.Decimal(1)] * 3
    groups = olsq.GroupedLeastSquares().partial_fit(np.ones((3, 1)), np.ones(3), by=decimals)
    with pytest.raises(TypeError, match=r"str\(label\)"):
        groups.save(tmp_path / "groups.olsq")
    assert not (tmp_path / "groups.olsq").exists()


STAMPS = pd.DatetimeIndex(["2024-03-30 01:02:03.000000004", "2024-10-27 02:30"])
DATES = {
    "NumPy days": np.array(["2024-01-01", "NaT", "2024-01-02"], "datetime64[D]")[::2],
    "NumPy quarters": np.array([7, 8], "datetime64[3M]"),
    "NumPy lengths": np.array([1, 2], "timedelta64[h]"),
    "stamps": STAMPS,
    "stamps of a zone": list(STAMPS.tz_localize("UTC").tz_convert("Europe/Berlin")),
    "periods": pd.period_range("2024-01", periods=2, freq="M"),
    "dates": [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)],
    "moments": [datetime.datetime(2024, 1, d, 1, 2, 3, 4) for d in (1, 2)],
    "moments of a zone": [
        datetime.datetime(2024, 10, 27, hour, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
        for hour in (1, 9)
    ],
    "moments of an offset": [datetime.datetime(2024, 1, d, tzinfo=datetime.UTC) for d in (1, 2)],
    "lengths": [datetime.timedelta(1, 2, 3), datetime.timedelta(2)],
    "clock times": [datetime.time(9), datetime.time(17, 30)],
    "in tuples": [("a", datetime.date(2024, 1, 1)), ("b", np.datetime64("2024-01-01"))],
    "Polars": pl.Series([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]),
}


@pytest.mark.parametrize("kind", DATES)
def test_groups_labelled_by_dates_are_saved(kind):
    by, X, y = DATES[kind], np.ones((2, 1)), np.array([1.0, 2.0])
    groups = olsq.GroupedLeastSquares(ridge=0.0).partial_fit(X, y, by=by)
    loaded = olsq.loads(groups.to_bytes())
    assert loaded.keys() == groups.keys()
    assert list(map(type, loaded.keys())) == list(map(type, groups.keys()))
    assert list(map(str, loaded.keys())) == list(map(str, groups.keys()))
    loaded.partial_fit(X, y, by=by)
    assert loaded.n_samples_seen_.tolist() == [2, 2]
    assert loaded.to_bytes() == groups.partial_fit(X, y, by=by).to_bytes()


@pytest.mark.parametrize(
    "key",
    [None, {}, {"date": 1}, {"date": "x"}, {"datetime64": "1", "unit": "D", "step": 1},
     {"datetime64": 1, "unit": "x", "step": 1}, {"timedelta": [1]}, {"Timestamp": "x"},
     {"Period": "x", "freq": "M"}, {"datetime": "2024-01-01", "zone": "no/where"}, {"e": "1"}],
)  # fmt: skip
def test_what_no_key_was_written_as_is_refused(key):
    with pytest.raises(ValueError, match="cannot be a key"):
        read_key(key)


def test_merging_is_by_key():
    X, y, _, _, labels = mixed("ar1")
    early = np.arange(len(X)) < 150
    first = fed(
        X[early & (labels != 0)], y[early & (labels != 0)], labels[early & (labels != 0)], 2
    )
    late = ~early & (labels != 1)
    second = fed(X[late], y[late], labels[late], 3)
    both = olsq.merge(first, second)
    rows = (early & (labels != 0)) | late
    whole = fed(X[rows], y[rows], labels[rows], 1)
    assert set(both.keys()) == set(whole.keys())
    for key in whole:
        np.testing.assert_allclose(both[key].coef_, whole[key].coef_, atol=1e-9)
        assert both[key].n_samples_seen_ == whole[key].n_samples_seen_
    both.partial_fit(X, y, by=labels)
    with pytest.raises(ValueError, match="ridge differs"):
        olsq.merge(first, fed(X, y, labels, 1, ridge=3.0))


def test_a_refused_call_leaves_every_group_alone():
    X, y = np.ones((2, 1)), np.ones(2)
    groups = olsq.GroupedLeastSquares().partial_fit(X, y, by=["a", "b"])
    before = groups.coef_
    for bad in (lambda: groups.partial_fit(X * 1e200, y, by=["a", "c"]),
                lambda: groups.partial_fit(np.ones((2, 2)), y, by=["a", "c"]),
                lambda: groups.partial_fit(X, y, [1.0, -1.0], by=["a", "c"]),
                lambda: groups.set_params(ridge=9.0).partial_fit(X, y, by=["a", "c"])):  # fmt: skip
        with pytest.raises(ValueError):
            bad()
        assert groups.keys() == ["a", "b"]
        np.testing.assert_array_equal(groups.coef_, before)
    groups.set_params(ridge=1e-3).fit(X, y, by=["z", "z"])
    assert groups.keys() == ["z"]


@pytest.mark.full
def test_the_page_runs_and_shows_what_comes_out():
    page = (Path(__file__).parents[2] / "docs" / "many-regressions.md").read_text()
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    name = "many-regressions.md"
    test = doctest.DocTestParser().get_doctest(blocks, {}, name, f"docs/{name}", 0)
    results = doctest.DocTestRunner().run(test)
    assert results.attempted > 10
    assert not results.failed


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_labels_may_be_a_column_of_the_frame(kind):
    rng = np.random.default_rng(0)
    X, shop = rng.standard_normal((60, 2)), rng.choice(["north", "south"], 60)
    y = X @ [1.0, -2.0] + rng.standard_normal(60)
    frame = kind({"a": X[:, 0], "shop": shop, "b": X[:, 1]})
    path = olsq.coefficient_path(frame, y, by="shop", ridge=0.1)
    truth = olsq.coefficient_path(X, y, by=shop, ridge=0.1)
    np.testing.assert_array_equal(path.coef, truth.coef)
    assert path.labels.features == ("a", "b")
    groups = olsq.GroupedLeastSquares().partial_fit(frame, y, by="shop")
    np.testing.assert_array_equal(
        groups.coef_, olsq.GroupedLeastSquares().partial_fit(X, y, by=shop).coef_
    )
    np.testing.assert_array_equal(groups.predict(frame, by="shop"), groups.predict(X, by=shop))
    with pytest.raises(ValueError, match="by='city' is not a column of X, which has a, shop, b"):
        olsq.coefficient_path(frame, y, by="city")
    with pytest.raises(TypeError, match="by='shop' names a column, but X is not a data frame"):
        olsq.coefficient_path(X, y, by="shop")


@pytest.mark.parametrize("options", [{}, {"cov": "sandwich"}])
def test_a_path_over_blocks_is_the_path_in_one_go(options):
    m = 2 if "cov" in options else 1
    X, y, gates, weights, labels = mixed("tokens", m=m)
    labels = np.where(labels == 4, None, labels.astype(object))  # rows without a label
    X[40:52] = np.nan  # a block of them, in which groups read what they knew before
    given = {"ridge": 1e-2, "fit_intercept": True, **options}
    wanted = olsq.coefficient_path(X, y, by=labels, forget=gates, sample_weight=weights, **given)
    groups, parts = olsq.GroupedLeastSquares(**given), []
    for rows in np.split(np.arange(len(X)), [1, 7, 40, 52, 53, 130]):
        before = len(groups)
        parts.append(
            groups.partial_fit_path(
                X[rows], y[rows], weights[rows], by=labels[rows], forget=gates[rows]
            )
        )
        assert len(groups) >= before
    found = olsq.CoefficientPath(*(np.concatenate(a) for a in zip(*parts, strict=True)))
    same(found, wanted, X, y)


def test_a_path_of_groups_keeps_names():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "g": ["x", "y", "x"]})
    groups = olsq.GroupedLeastSquares(ridge=0.0, fit_intercept=True)
    table = groups.partial_fit_path(frame, pd.Series([2.0, 4.0, 6.0]), by="g").to_frame()
    assert list(table)[:3] == ["g", "intercept", "a"]
    assert table["a"].iloc[-1] == pytest.approx(2.0)
    y = pd.Series([2.0, 4.0, 6.0], index=[2, 1, 0])
    with pytest.raises(ValueError, match="different indexes"):
        groups.partial_fit_path(frame, y, by="g")
    assert groups.n_samples_seen_.tolist() == [2, 1]


def test_a_group_without_a_usable_row_has_no_estimate_in_any_form():
    X = np.array([[1.0], [2.0], [np.nan], [np.nan]])
    for cov in ("posterior", "sandwich"):
        path = olsq.coefficient_path(X, [1.0, 3.0, 1.0, 1.0], by=[1, 1, 2, 2], cov=cov, ridge=1.0)
        np.testing.assert_allclose(path.coef[:, 0], [0.5, 7 / 6, 0.0, 0.0])
        assert np.isinf(path.stderr[2:]).all()


@pytest.mark.parametrize("options", [{}, {"cov": "sandwich", "forget": 0.9}, {"ridge": 0.0}])
def test_intervals_are_those_of_each_group(options):
    X, y, _, _, labels = mixed("white", m=2)
    labels = labels[:90]
    X, y = X[:90].copy(), y[:90]
    X[labels == 5] = X[labels == 5][:1]  # one direction: the others are not determined
    groups = olsq.GroupedLeastSquares(**options).partial_fit(X, y, by=labels)
    with np.errstate(invalid="ignore"):
        asked = np.where(labels[:, None] == 5, X * [[1.0, 1.0, 1.0]], X + 0.5)
    for kind in ("observation", "mean"):
        lower, upper = groups.predict_interval(asked, 0.9, kind, by=labels)
        for label in range(6):
            rows = labels == label
            est = groups[label]
            for found, wanted in zip(
                (lower, upper), est.predict_interval(asked[rows], 0.9, kind), strict=True
            ):
                np.testing.assert_array_equal(np.isnan(found[rows]), np.isnan(wanted))
                np.testing.assert_allclose(found[rows], wanted, rtol=1e-7, atol=1e-9)
    lower, upper = groups.predict_interval(asked[:2], by=["new", None])
    assert np.isnan([lower, upper]).all()


MEAN, VARIANCES = np.array([3.0, 1.0, -1.0, 2.0]), np.array([np.inf, 0.5, 2.0, 1.0])


def priors():
    X = np.random.default_rng(5).standard_normal((9, 4))
    return {
        "pair": (MEAN, VARIANCES),
        "two targets": (np.stack([MEAN, -MEAN]), np.diag(1 + np.arange(4.0))),
        "moments": olsq.Moments(X.T @ X, (X.T @ X @ MEAN)[None]),
    }


@pytest.mark.parametrize("kind", ["pair", "two targets", "moments"])
def test_a_prior_is_that_of_each_group(kind, tmp_path):
    prior = priors()[kind]
    X, y, gates, _, labels = mixed("collinear", m=2 if kind == "two targets" else 1)
    options = {"prior": prior, "method": "sqrt" if kind == "moments" else "auto"}
    groups = olsq.GroupedLeastSquares(**options)
    asked = np.array([[0.5, 1.0, 2.0]])
    before = groups.predict(asked, by=["any"])
    one = olsq.RecursiveLeastSquares(**options)
    np.testing.assert_allclose(before, one.predict(asked), rtol=1e-12)
    for rows in np.split(np.arange(len(X)), [5, 6, 100]):
        groups.partial_fit(X[rows], y[rows], by=labels[rows], forget=gates[rows])
        if rows[0] == 6:
            groups.save(tmp_path / "g.olsq")
            groups = olsq.load(tmp_path / "g.olsq")
    scale = np.abs(y[np.isfinite(y)]).max()
    for i, label in enumerate(groups.keys()):
        rows = labels == label
        est = olsq.RecursiveLeastSquares(**options)
        est.partial_fit(X[rows], y[rows], forget=gates[rows])
        # What rows leave to a prior that has faded to 1e-16 is lost to rounding.
        form = est._engine.engine.form
        faded = (form.D / form.columns[0])[form.D > 0].min()
        allowed = (1e-8 + 16 * np.finfo(float).eps / faded) * scale
        np.testing.assert_allclose(groups.coef_[i], est.coef_, atol=allowed)
        np.testing.assert_allclose(groups.sigma2_[i], est.sigma2_, rtol=1e-6)
        np.testing.assert_allclose(groups[label].coef_, est.coef_, atol=allowed)
    # A group that was never seen is where the others began.
    np.testing.assert_allclose(groups.predict(asked, by=["new"]), before, rtol=1e-12)
    assert np.isnan(groups.predict(asked, by=[None])).all()
    lower, upper = groups.predict_interval(asked, by=["new"])
    assert np.isneginf(lower).all()
    assert np.isposinf(upper).all()
    with pytest.raises(ValueError, match="began from a prior"):
        olsq.merge(groups, groups)


def test_a_bank_knows_its_prior_before_the_first_row():
    bank = olsq.FilterBank(3, prior=(MEAN, VARIANCES))
    np.testing.assert_array_equal(bank.coef_, np.tile(MEAN[1:], (3, 1)))
    asked = np.array([1.0, 1.0, 0.0])
    prediction, residual = bank.step(asked, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(prediction, 0.0, atol=1e-6)  # of the intercept nothing is known
    np.testing.assert_allclose(residual, [1.0, 2.0, 3.0], atol=1e-6)
    est = olsq.RecursiveLeastSquares(prior=(MEAN, VARIANCES), method="sqrt")
    est.partial_fit(asked[None], [1.0])
    np.testing.assert_allclose(bank.coef_[0], est.coef_, rtol=1e-6)
    np.testing.assert_allclose(bank.grow(2).coef_[4], MEAN[1:])
    with pytest.raises(ValueError, match="prior is of 4 coefficients and 1 targets; these rows"):
        olsq.FilterBank(3, prior=(MEAN, VARIANCES)).partial_fit(np.ones((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match="cannot be combined"):
        olsq.FilterBank(3, prior=(MEAN, VARIANCES), cov="sandwich").predict(asked)


def named_frame(columns=("a", "b"), n=50):
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((n, 2)), columns=["a", "b"])
    return frame[list(columns)], frame["a"] + 10 * frame["b"], ["k"] * n


@pytest.mark.parametrize("of", [lambda g: g, lambda g: olsq.loads(g.to_bytes()), copy.copy,
                                lambda g: olsq.merge(g, g), lambda g: g["k"]])  # fmt: skip
def test_columns_in_another_order_are_refused_as_an_estimator_refuses_them(of):
    frame, y, by = named_frame()
    other = frame[["b", "a"]]
    groups = of(olsq.GroupedLeastSquares(ridge=1e-8).partial_fit(frame, y, by=by))
    assert list(groups.feature_names_in_) == ["a", "b"]
    given = {"by": by} if isinstance(groups, olsq.GroupedLeastSquares) else {}
    before = groups.to_bytes()
    for call in (
        groups.predict,
        groups.predict_interval,
        lambda X, **by: groups.partial_fit(X, y, **by),
    ):
        with pytest.raises(ValueError, match="same order as they were in fit"):
            call(other, **given)
    assert groups.to_bytes() == before


def test_fit_takes_the_names_of_its_own_frame():
    frame, y, by = named_frame()
    groups = olsq.GroupedLeastSquares().fit(frame, y, by=by)
    assert list(groups.fit(frame[["b", "a"]], y, by=by).feature_names_in_) == ["b", "a"]
    assert not hasattr(groups.fit(frame.to_numpy(), y, by=by), "feature_names_in_")
    with pytest.raises(ValueError, match="cannot merge: feature names differ"):
        olsq.merge(
            *(olsq.GroupedLeastSquares().fit(f, y, by=by) for f in (frame, frame[["b", "a"]]))
        )


def test_a_file_has_the_parameters_that_were_set_since_the_last_call():
    one = np.ones((2, 1))
    groups = olsq.GroupedLeastSquares(ridge=0.0, fit_intercept=False)
    groups.partial_fit(one, [1.0, 2.0], by=["k", "k"]).set_params(forget=0.5, missing="raise")
    alone, loaded = groups["k"], olsq.loads(groups.to_bytes())
    for other in (alone, loaded):
        assert (other.forget, other.missing) == (0.5, "raise")
    for other in (groups, loaded):
        other.partial_fit(one, [5.0, 9.0], by=["k", "k"])
        np.testing.assert_allclose(other.coef_, [[6.125]])
    groups.set_params(forget=1.0, half_life=50)
    loaded = olsq.loads(groups.to_bytes())
    assert loaded.partial_fit(one, [5.0, 9.0], by=["k", "k"]).half_life == 50


def test_a_group_whose_rows_were_all_skipped_predicts_nothing():
    groups = olsq.GroupedLeastSquares().partial_fit([[1.0], [1.0]], [1.0, np.nan], by=["a", "b"])
    assert np.isnan(groups.predict([[1.0], [1.0]], by=["a", "b"])).tolist() == [False, True]
    assert np.isnan(groups.predict_interval([[1.0]], by=["b"])).all()


def test_a_group_without_a_complete_row_has_no_path_beside_others():
    Y = np.array([[1.0, 2.0], [2.0, 3.0], [1.0, np.nan], [np.nan, 1.0]])
    options = {"by": list("aabb"), "window": 3, "sample_weight": np.ones(4)}
    coef = olsq.coefficient_path(np.ones((4, 1)), Y, **options).coef[:, :, 0]
    np.testing.assert_allclose(coef[:2], [[1.0, 2.0], [1.5, 2.5]])
    assert np.isnan(coef[2:]).all()
    coef = olsq.coefficient_path(np.ones((4, 1)), Y, missing="skip_target", **options).coef[:, :, 0]
    np.testing.assert_allclose(coef[3], [1.0, 1.0])


@pytest.mark.parametrize(
    "options",
    [{}, {"ridge_mode": "fixed", "ridge": 0.1}, {"forget": olsq.forgetting.Variable(5.0)}],
    ids=["plain", "fixed ridge", "strategy"],
)
def test_a_group_without_a_usable_row_reads_as_before_its_first(options):
    """Like rows that are skipped before the first one that is learned, whatever the options."""
    X, y, by = np.ones((6, 2)), np.arange(6.0), np.arange(6) % 2
    y[by == 1] = np.nan
    path = olsq.coefficient_path(X, y, by=by, **options)
    y[:2] = np.nan
    late = olsq.coefficient_path(X[by == 0], y[by == 0], **options)
    for name in ("coef", "intercept", "stderr", "sigma2"):
        for row in getattr(path, name)[by == 1]:
            np.testing.assert_array_equal(row, getattr(late, name)[0])
    with pytest.raises(ValueError, match="no row is left"):
        olsq.coefficient_path(X, np.full(6, np.nan), by=by, **options)
