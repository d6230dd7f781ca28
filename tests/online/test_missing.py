"""Missing values: in time (what a window's places are), by target, and rows of weight 0."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.regression.rolling import RollingOLS

import olsq
import olsq.polars
from olsq.online.calls import learning
from olsq.online.files import frozen
from olsq.reference import regression as oracle
from tests.online import streams
from tests.online.judge import check_optimal
from tests.tiers import examples

RLS, ROLLING = olsq.RecursiveLeastSquares, olsq.RollingLeastSquares
WINDOW = 12


def gappy(n=90, d=2, m=1, seed=0, share=0.15):
    """X (n, d), Y (n, m) with NaN here and there, and a gap longer than a window."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 3.0
    Y = X @ rng.standard_normal((d, m)) + rng.standard_normal((n, m))
    X[1:][rng.random((n - 1, d)) < share / d] = np.nan
    Y[1:][rng.random((n - 1, m)) < share] = np.nan
    Y[40:56] = np.nan
    return X, Y


# -- windows in time ------------------------------------------------------------------------------


@pytest.mark.parametrize("min_samples", [5, 8])
def test_positions_are_statsmodels_windows(min_samples):
    X, Y = gappy()
    y = Y[:, 0]
    theirs = RollingOLS(
        pd.Series(y), np.column_stack([np.ones(len(y)), X]), window=WINDOW, min_nobs=min_samples,
        missing="drop",
    ).fit()  # fmt: skip
    path = olsq.coefficient_path(
        X, y, window=WINDOW, window_of="positions", min_samples=min_samples, fit_intercept=True
    )
    want = np.asarray(theirs.params)
    known = np.isfinite(path.coef[:, 0])
    known[: WINDOW - 1] = False  # statsmodels waits for a whole window
    assert known.sum() > 30
    np.testing.assert_allclose(path.intercept[known], want[known, 0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(path.coef[known], want[known, 1:], rtol=1e-7, atol=1e-9)
    count = (np.isfinite(X).all(1) & np.isfinite(y)).astype(float)
    inside = np.convolve(count, np.ones(WINDOW))[: len(y)]
    np.testing.assert_array_equal(np.isfinite(path.coef[:, 0]), inside >= min_samples)
    several = known & (inside > 3)
    bse = np.asarray(theirs.bse)[several]
    np.testing.assert_allclose(path.stderr[several], bse[:, 1:], rtol=1e-6)


def test_positions_are_pandas_windows():
    x = gappy(d=1, seed=1)[1][:, 0]
    y = pd.Series(np.where(np.arange(90) % 11 == 3, np.nan, np.arange(90.0) % 7))
    both = pd.Series(x).notna() & y.notna()
    masked, target = pd.Series(x).where(both), y.where(both)
    windows = {"window": WINDOW, "min_periods": 4}
    slope = masked.rolling(**windows).cov(target) / masked.rolling(**windows).var()
    options = {"window": WINDOW, "min_samples": 4, "window_of": "positions"}
    path = olsq.coefficient_path(pd.DataFrame({"x": x}), y, fit_intercept=True, **options)
    np.testing.assert_allclose(path.coef[:, 0], slope, rtol=1e-7)
    mean = olsq.coefficient_path(np.ones((90, 1)), y, **options)
    np.testing.assert_allclose(mean.coef[:, 0], y.rolling(**windows).mean(), rtol=1e-9)


@pytest.mark.full
def test_windows_count_samples_for_data_of_every_kind(tmp_path):
    """Frames of pandas, Polars and Arrow, lists, groups, the streams' pieces, Polars' own door."""
    X, Y = gappy(seed=2)
    y = Y[:, 0]
    by_name = {
        name: ROLLING(WINDOW, window_of=name, ridge=1e-3).fit(X, y)
        for name in ("samples", "positions")
    }
    assert not np.allclose(by_name["samples"].coef_, by_name["positions"].coef_)
    wanted = by_name["samples"].coef_
    days = pd.date_range("2024-01-01", periods=len(X))
    pandas = pd.DataFrame(X, columns=["a", "b"], index=days)
    polars = pl.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    kinds = {
        "arrays": (X, y),
        "frame and array": (pandas, y),
        "array and series": (X, pd.Series(y, days)),
        "pandas": (pandas, pd.Series(y, days)),
        "Polars": (polars, pl.Series("y", y)),
        "Arrow": (polars.to_arrow(), y),
        "lists": (X.tolist(), y.tolist()),
    }
    options = {"window": WINDOW, "ridge": 1e-3, "fit_intercept": True}
    for kind, (rows, target) in kinds.items():
        np.testing.assert_array_equal(ROLLING(WINDOW, ridge=1e-3).fit(rows, target).coef_, wanted)
        path = olsq.coefficient_path(rows, target, **options)
        np.testing.assert_allclose(path.coef[-1], wanted, rtol=1e-9, err_msg=kind)
        path = olsq.coefficient_path(rows, target, by=["g"] * len(y), **options)
        np.testing.assert_allclose(path.coef[-1], wanted, rtol=1e-9, err_msg=kind)
    expression = pl.col("y").olsq.rolling("a", "b", output="coef", **options)
    found = polars.with_columns(y=pl.Series(y, nan_to_null=True)).select(expression.struct.unnest())
    np.testing.assert_allclose(found.select("a", "b").row(-1), wanted, rtol=1e-9)


def test_windows_of_earlier_versions_go_on_as_they_began(tmp_path):
    """Up to 0.2.0 the default was positions where the first rows had an index; a file says so."""
    X, Y = gappy(seed=2)
    y = Y[:, 0]
    old = ROLLING(WINDOW, window_of="positions").fit(X[:50], y[:50])
    old.window_of = None
    old._origin = old._origin._replace(in_time=True, made_with=frozen.snapshot(old))
    old.save(tmp_path / "s.olsq")
    wanted = ROLLING(WINDOW, window_of="positions").fit(X, y).coef_
    for est in (olsq.load(tmp_path / "s.olsq"), pickle.loads(pickle.dumps(old))):
        np.testing.assert_allclose(est.partial_fit(X[50:], y[50:]).coef_, wanted, rtol=1e-9)
    with pytest.raises(ValueError, match="window_of differs"):
        olsq.merge(ROLLING(WINDOW).fit(X, y), old)


def test_a_window_in_time_without_times_asks_for_them():
    X, Y = gappy(seed=2)
    for more in ({}, {"by": ["a", "b"] * (len(X) // 2)}):
        for data in (X, pd.DataFrame(X)):
            with pytest.raises(ValueError, match="every row needs a time: give times="):
                olsq.coefficient_path(data, Y[:, 0], window="10D", **more)
            with pytest.raises(ValueError, match="leave window_of out"):
                olsq.coefficient_path(data, Y[:, 0], window="10D", window_of="samples", **more)


def test_what_windows_may_count():
    X, Y = gappy(seed=2)
    y = Y[:, 0]
    with pytest.raises(ValueError, match="window_of must be one of"):
        ROLLING(window_of="rows").fit(X, y)
    with pytest.raises(ValueError, match="window_of needs window"):
        olsq.coefficient_path(X, y, window_of="samples")


@pytest.mark.full
@pytest.mark.parametrize("window_of", ["samples", "positions"])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("targets", [1, 2])
def test_every_window_is_the_best_for_its_rows(window_of, ridge, targets):
    """Against the oracle, with rows of weight 0 and missing ones; fed whole, in parts, merged."""
    X, Y = gappy(d=3, m=targets, seed=3)
    weights = np.random.default_rng(5).choice([0.0, 0.5, 2.0], len(X), p=[0.2, 0.4, 0.4])
    given_ = {"ridge": ridge, "window_of": window_of, "fit_intercept": True}
    path = olsq.coefficient_path(X, Y, sample_weight=weights, window=WINDOW, **given_)
    usable = np.isfinite(X).all(1) & np.isfinite(Y).all(1)
    sample = usable & (weights > 0)
    np.testing.assert_array_equal(np.isnan(path.residual[:, 0]), ~usable)
    np.testing.assert_array_equal(np.isnan(path.recursive_residual[:, 0]), ~usable)

    def fed(start, stop, size):
        est = ROLLING(WINDOW, **given_)
        for i in range(start, stop, size):
            part = slice(i, min(i + size, stop))
            est.partial_fit(X[part], Y[part], weights[part])
        return est

    for t in range(len(X)):
        seen = sample[: t + 1]
        inside = np.flatnonzero(seen)[-WINDOW:]
        if window_of == "positions":
            inside = np.flatnonzero(seen)[np.flatnonzero(seen) > t - WINDOW]
        if not inside.size:
            assert np.isnan(path.coef[t]).all()
            assert np.isnan(path.stderr[t]).all()
            continue
        check_optimal(
            X[inside], Y[inside], weights[inside], np.full(3, ridge), True, path.coef[t],
            path.intercept[t], 1e-14,
        )  # fmt: skip
    for est in (fed(0, 90, 90), fed(0, 90, 1), fed(0, 90, 7),
                olsq.merge(fed(0, 33, 33), fed(33, 90, 90))):  # fmt: skip
        np.testing.assert_allclose(est.coef_, path.coef[-1], rtol=1e-7)
        assert est.n_samples_seen_ == sample.sum()
    last = slice(len(X) - 1, len(X))
    before = fed(0, 89, 89)
    residual = before.partial_fit_path(X[last], Y[last], weights[last]).residual
    np.testing.assert_allclose(residual, path.residual[last], rtol=1e-7)


def test_an_empty_window_has_no_estimate():
    X, y = np.ones((4, 1)), np.arange(4.0)
    est = ROLLING(3, window_of="positions").fit(X, y)
    est.partial_fit(np.full((3, 1), np.nan), y[:3])
    with pytest.raises(ValueError, match="0 of min_samples=1"):
        _ = est.coef_
    est.partial_fit(X, y)
    np.testing.assert_allclose(est.predict([[1.0]]), [2.0], atol=2e-3)


@pytest.mark.parametrize("make", [
    lambda: RLS(), lambda: RLS(method="information"), lambda: ROLLING(20),
    lambda: ROLLING(20, min_samples=5),
])  # fmt: skip
def test_rows_of_weight_0_are_no_samples(make):
    stream = streams.make("white", "gates 1")
    X, y = stream.X, stream.y[:, 0]
    weights = (np.arange(48) % 3 > 0).astype(float)
    est = make().fit(X, y, weights)
    without = make().fit(X[weights > 0], y[weights > 0])
    assert est.n_samples_seen_ == 32 == without.n_samples_seen_
    np.testing.assert_allclose(est.coef_, without.coef_, rtol=1e-9)
    np.testing.assert_allclose(est.sigma2_, without.sigma2_, rtol=1e-9)
    np.testing.assert_allclose(est.coef_stderr_, without.coef_stderr_, rtol=1e-9)
    assert np.isfinite(est.residual_).all()
    path = make().partial_fit_path(X, y, weights)
    np.testing.assert_allclose(path.residual, est.residual_, rtol=1e-9)


# -- several targets --------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda **k: RLS(forget=0.97, **k), lambda **k: RLS(forget=0.97, method="sqrt", ridge=0, **k),
    lambda **k: RLS(method="information", ridge_mode="fixed", forget=0.97, **k),
    lambda **k: RLS(forget=0.97, cov="sandwich", **k), lambda **k: ROLLING(15, **k),
    lambda **k: ROLLING(15, window_of="positions", min_samples=3, **k),
])  # fmt: skip
def test_each_target_is_learned_as_if_it_were_alone(make, tmp_path):
    X, Y = gappy(d=2, m=4, seed=7)
    Y[:, 3] = Y[:, 0] ** 2  # misses what target 0 misses
    Y[40:56, 1] = 1.0
    weights = np.random.default_rng(8).uniform(0.5, 2.0, len(X))

    def fed(est, Y, *edges):
        for start, stop in pairwise(edges):
            est.partial_fit(X[start:stop], Y[start:stop], weights[start:stop])
        return est

    every = make(missing="skip_target")
    path = every.partial_fit_path(X, Y, weights)
    fed(make(missing="skip_target"), Y, 0, 5, 30).save(tmp_path / "s.olsq")
    ways = [
        every, fed(make(missing="skip_target"), Y, 0, 1, 2, 41, 50, 90),
        fed(olsq.load(tmp_path / "s.olsq"), Y, 30, 90),
        olsq.merge(fed(make(missing="skip_target"), Y, 0, 35),
                   fed(make(missing="skip_target"), Y, 35, 90)),
    ]  # fmt: skip
    fresh = np.random.default_rng(9).standard_normal((3, 2))
    for k in range(4):
        alone = make(missing="skip")
        want = alone.partial_fit_path(X, Y[:, k], weights)
        for a, b in zip(path.every_array, want.every_array, strict=True):
            np.testing.assert_allclose(a[:, k], b, rtol=1e-9, atol=1e-12)
        for est in ways:
            np.testing.assert_allclose(est.coef_[k], alone.coef_, rtol=1e-7)
            np.testing.assert_allclose(est.intercept_[k], alone.intercept_, rtol=1e-7)
            np.testing.assert_allclose(est.sigma2_[k], alone.sigma2_, rtol=1e-6)
            np.testing.assert_allclose(est.coef_stderr_[k], alone.coef_stderr_, rtol=1e-6)
            np.testing.assert_allclose(est.predict(fresh)[:, k], alone.predict(fresh), rtol=1e-7)
            assert est.rank_[k] == alone.rank_
            assert est.determined_[k].tolist() == alone.determined_.tolist()
    assert len(every._engine.groups) == 3  # 0 and 3 share a factor
    with pytest.raises(ValueError, match="different moments"):
        every.moments()
    if isinstance(every, RLS):
        with pytest.raises(ValueError, match="one of the two only"):
            olsq.merge(every, make(missing="skip").fit(X, Y, weights))


def test_one_factor_until_targets_miss_different_rows():
    X, Y = gappy(d=2, m=3)
    Y[np.isnan(Y).any(1)] = np.nan
    est = RLS(missing="skip_target").fit(X, Y)
    assert len(est._engine.groups) == 1
    together = RLS(missing="skip").fit(X, Y)
    np.testing.assert_array_equal(est.coef_, together.coef_)
    np.testing.assert_array_equal(est.moments().gram, together.moments().gram)
    one = RLS(missing="skip_target").fit(X, Y[:, 0])
    np.testing.assert_allclose(one.coef_, together.coef_[0], rtol=1e-12)
    assert one.rank_ == 3
    with pytest.raises(ValueError, match="no row is left"):
        RLS(missing="skip_target").fit(X, np.full((90, 2), np.nan))


@settings(max_examples=examples(25))
@given(
    n=st.integers(1, 12), m=st.integers(1, 3), seed=st.integers(0, 2**32 - 1),
    cut=st.integers(0, 12), gate=st.sampled_from([1.0, 0.7, 0.0]),
)  # fmt: skip
def test_any_pattern(n, m, seed, cut, gate):
    rng = np.random.default_rng(seed)
    X, Y = rng.integers(-2, 3, (n, 2)).astype(float), rng.integers(-5, 6, (n, m)).astype(float)
    Y[rng.random((n, m)) < 0.4] = np.nan
    gates = np.where(rng.random(n) < 0.2, gate, 1.0)
    est = RLS(missing="skip_target", ridge=0.1, method="sqrt")
    for part in (slice(0, min(cut, n)), slice(min(cut, n), n)):
        if hasattr(est, "_engine") or np.isfinite(Y[part]).any():
            est.partial_fit(X[part], Y[part], forget=gates[part])
    if not hasattr(est, "_engine"):
        return
    started = 0 if np.isfinite(Y[: min(cut, n)]).any() else min(cut, n)
    for k in range(m):
        rows = np.flatnonzero(np.isfinite(Y[:, k]))
        rows = rows[rows >= started]
        if not rows.size:
            continue
        w = oracle.row_weights(gates[rows], np.ones(rows.size), rows.size - 1, None)
        ridge = np.full(2, 0.1 * np.prod(gates[rows]))
        check_optimal(
            X[rows], Y[rows, k : k + 1], w, ridge, True, est.coef_[k : k + 1],
            est.intercept_[k : k + 1], 1e-13,
        )  # fmt: skip


def test_an_interrupt_between_two_factors_leaves_no_half_of_an_update(monkeypatch):
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((30, 3)), rng.standard_normal((30, 2))
    Y[::3, 0] = np.nan
    est = olsq.RecursiveLeastSquares(missing="skip_target").fit(X[:20], Y[:20])
    before = est.coef_.copy()
    feed, calls = learning._feed, []

    def interrupted(*arguments):
        feed(*arguments)
        calls.append(1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learning, "_feed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            est.partial_fit(X[20:21], Y[20:21])
    assert calls == [1]  # after the first of two
    np.testing.assert_array_equal(est.coef_, before)
    est.partial_fit(X[20:], Y[20:])
    whole = olsq.RecursiveLeastSquares(missing="skip_target").fit(X, Y)
    np.testing.assert_allclose(est.coef_, whole.coef_, rtol=1e-10)


def test_targets_that_miss_different_rows_are_pointed_to_skip_target():
    """Of 200 targets with a hole in every hundredth row, 13 % of the rows are whole."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((300, 3)), rng.standard_normal((300, 200))
    Y[rng.random(Y.shape) < 0.01] = np.nan
    with pytest.warns(UserWarning, match="missing='skip_target' learns each target"):
        olsq.coefficient_path(X, Y, window=20)
    apart = olsq.coefficient_path(X, Y, window=20, missing="skip_target")  # without a warning
    assert np.isfinite(apart.coef[-1]).all()
    Y[rng.random(Y.shape) < 0.05] = np.nan
    with pytest.raises(ValueError, match=r"no row is left .* missing='skip_target' learns each"):
        olsq.RecursiveLeastSquares().fit(X, Y)


# -- missing weights ------------------------------------------------------------------------------


def weighted_rows():
    """Rows with weights, of which some are missing; and X that lacks the same rows instead."""
    rng = np.random.default_rng(12)
    X, w = rng.standard_normal((60, 2)), rng.uniform(0.5, 2.0, 60)
    y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(60)
    lost = np.arange(60) % 9 == 4
    return X, y, np.where(lost, np.nan, w), np.where(lost[:, None], np.nan, X), w


@pytest.mark.parametrize(
    "est",
    [
        *(RLS(method=method, forget=0.95) for method in ("covariance", "sqrt", "information")),
        RLS(missing="skip_target"),
        RLS(forget=olsq.forgetting.Variable(20.0)),
        ROLLING(window=WINDOW),
        ROLLING(window=WINDOW, window_of="positions"),
        olsq.RobustLeastSquares(warm_up=10),
        olsq.ConstrainedLeastSquares(bounds="nonnegative"),
        olsq.OnlineElasticNet(0.1),
        olsq.TotalLeastSquares(),
        olsq.KernelLeastSquares(),
    ],
    ids=repr,
)
def test_a_missing_weight_is_a_missing_value(est):
    X, y, lacking, without, w = weighted_rows()
    strategy = isinstance(getattr(est, "forget", None), olsq.forgetting.Forgetting)
    one, other = pickle.loads(pickle.dumps(est)), pickle.loads(pickle.dumps(est))
    one.fit(X[:30], y[:30], lacking[:30]).partial_fit(X[30:], y[30:], lacking[30:])
    other.fit(without[:30], y[:30], w[:30]).partial_fit(without[30:], y[30:], w[30:])
    name = "dual_coef_" if isinstance(est, olsq.KernelLeastSquares) else "coef_"
    np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.n_samples_seen_ == other.n_samples_seen_ == 60 - 7
    assert one.score(X, y, lacking) == other.score(without, y, w)
    if isinstance(est, RLS) and not strategy:
        data = (X, y, lacking), (without, y, w)
        found = [e.cov_params("HC1", data=d) for e, d in zip((one, other), data, strict=True)]
        np.testing.assert_array_equal(*found)
    if est.missing == "skip":
        with pytest.raises(ValueError, match=r"sample_weight contains NaN.*first in row 4"):
            one.set_params(missing="raise").partial_fit(X, y, lacking)
        assert one.n_samples_seen_ == 53
    with pytest.raises(ValueError, match="sample_weight must be finite and >= 0"):
        other.partial_fit(X, y, np.where(np.isnan(lacking), np.inf, w))


@pytest.mark.full
def test_a_missing_weight_is_a_missing_value_for_many_filters():
    X, y, lacking, without, w = weighted_rows()
    labels = np.arange(60) % 3
    found = []
    for rows, weights in ((X, lacking), (without, w)):
        bank = olsq.FilterBank(3).partial_fit(rows, y, weights, which=labels)
        groups = olsq.GroupedLeastSquares().fit(rows, y, weights, by=labels)
        paths = [
            olsq.coefficient_path(rows, y, sample_weight=weights, **options).coef[-3:]
            for options in ({}, {"by": labels}, {"window": 9}, {"window": 9, "by": labels})
        ]
        tuned = olsq.tune(rows, y, sample_weight=weights)
        frame = pl.DataFrame(
            {"a": rows[:, 0], "b": rows[:, 1], "y": y, "w": weights, "g": labels}
        ).with_columns(pl.col("w").fill_nan(None))
        expressions = [
            getattr(pl.col("y").olsq, kind)("a", "b", sample_weight="w", output="coef", **options)
            for kind, options in (
                ("ols", {}), ("recursive", {}), ("rolling", {"window": 9}), ("expanding", {}),
            )
            if hasattr(pl.col("y").olsq, kind)
        ]  # fmt: skip
        for e in expressions:
            column = frame.select(c=e.over("g"))["c"].struct.unnest()
            paths.append(column.tail(3).to_numpy())
        found.append([bank.coef_, groups.coef_, *paths, tuned.half_life, tuned.ridge])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("cuts", [[10], [5, 12], list(range(1, 30))], ids=str)
def test_a_column_may_be_an_intercept_for_one_target_alone(cuts, tmp_path):
    """A column that is 1 wherever a target is known: its R-squared is about the mean."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.repeat([3.0, 1.0], [10, 20]), rng.standard_normal(30)])
    Y = 5.0 + rng.standard_normal((30, 2))
    Y[:10, 0] = Y[15, 1] = np.nan
    given: dict = {"missing": "skip_target", "fit_intercept": False}
    true = [olsq.coefficient_path(X, y).r_squared for y in Y.T]
    assert true[0][-1] < 0.2  # about zero it is 0.97

    spans = list(pairwise([0, *cuts, 30]))
    for make, groups in (
        (lambda: RLS(**given), lambda: None),
        (lambda: ROLLING(100, **given), lambda: olsq.GroupedRollingLeastSquares(100, **given)),
    ):
        est, by_key, found, merged = make(), groups(), [], None
        for start, stop in spans:
            rows = slice(start, stop)
            found.append(est.partial_fit_path(X[rows], Y[rows]).r_squared)
            est.save(tmp_path / "a.olsq")
            est = olsq.load(tmp_path / "a.olsq")
            piece = make().partial_fit(X[rows], Y[rows])
            merged = piece if merged is None else olsq.merge(merged, piece)
            if by_key is not None:
                by_key.partial_fit(X[rows], Y[rows], by=np.zeros(stop - start))
        np.testing.assert_allclose(np.concatenate(found), np.transpose(true), rtol=1e-9)
        for one in (est, merged, by_key and by_key[0.0]):
            fits = [] if one is None else one.summary().fits
            for fit, path in zip(fits, true, strict=False):
                assert fit.r_squared == pytest.approx(path[-1])


@pytest.mark.parametrize("missing", ["skip", "skip_target"])
@pytest.mark.parametrize("by", [False, True])
def test_paths_without_a_window_read_nan_below_min_samples(missing, by):
    rng = np.random.default_rng(5)
    X, Y, w = rng.standard_normal((60, 2)), rng.standard_normal((60, 2)), np.ones(60)
    X[3], Y[5:20, 1], w[::7] = np.nan, np.nan, 0.0
    options = {"sample_weight": w, "missing": missing} | ({"by": np.arange(60) % 2} if by else {})
    whole = olsq.coefficient_path(X, Y, **options)
    path = olsq.coefficient_path(X, Y, min_samples=8, **options)
    there = np.isfinite(Y) & (np.arange(60) != 3)[:, None]
    there = there if missing == "skip_target" else there & there.all(axis=1)[:, None]
    count, learned = np.zeros((60, 2)), there & (w > 0)[:, None]
    for rows in (slice(0, None, 2), slice(1, None, 2)) if by else (slice(None),):
        count[rows] = np.cumsum(learned[rows], axis=0)
    few = count < 8
    assert few.any()
    for name in ("coef", "sigma2", "stderr", "r_squared", "n_rows"):
        wanted = getattr(whole, name).copy()
        wanted[few] = np.nan
        np.testing.assert_array_equal(getattr(path, name), wanted, err_msg=name)
    np.testing.assert_array_equal(path.residual, whole.residual)
