"""Rolling windows against the dense oracle, on ordinary and breaking streams, and for long."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.online.windows.arrays import DEPARTED
from olsq.reference import regression as oracle
from tests.online import streams
from tests.online.judge import check_optimal, coefficient_error, tolerance


@pytest.mark.full
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("window", "ridge", "intercept", "targets"),
    [
        (1, 0.0, False, 1),
        (3, 0.0, True, 1),
        (12, 0.0, True, 2),
        (12, 0.3, False, 1),
        (30, 0.3, True, 1),
    ],
)
def test_agrees_with_oracle_after_every_sample(
    regressors, dtype, window, ridge, intercept, targets
):
    stream = streams.make(regressors, "gates vary", m=targets)
    X, Y = stream.X.astype(dtype), stream.y.astype(dtype)
    est = olsq.RollingLeastSquares(window, ridge=ridge, fit_intercept=intercept)
    path = est.partial_fit_path(X, Y, stream.weights)
    assert path.coef.dtype == dtype
    assert all(np.isfinite(a).all() for a in (path.coef, path.intercept, path.residual))
    X, Y = X.astype(float), Y.astype(float)
    ones, vector = np.ones(X.shape[0]), np.full(X.shape[1], ridge)
    truth = oracle.coefficient_path(
        X, Y, gates=ones, weights=stream.weights, ridge=vector, window=window,
        fit_intercept=intercept,
    )  # fmt: skip
    eps = float(np.finfo(dtype).eps)
    for t in range(X.shape[0]):
        seen = slice(max(0, t + 1 - window), t + 1)
        check_optimal(
            X[seen], Y[seen], stream.weights[seen], vector, intercept,
            path.coef[t].astype(float), path.intercept[t].astype(float), eps,
        )  # fmt: skip
        # Rows in float32 are known to its rounding: what they say below it is taken for noise.
        known = 4 * truth.condition[t] * eps if dtype == np.float32 else 0.0
        allowed = tolerance("rolling", 2.3e-16, truth.condition[t], 1.0) + 4 * eps + known
        if allowed < 1e-2:
            error = coefficient_error(path.coef[t], truth.coef[t], X[seen], Y[seen])
            assert error <= allowed + 1e-9  # the bound that rebuilding keeps


@pytest.mark.parametrize("ridge", [1e-40, 1e-25, 1e-16])
@pytest.mark.parametrize("unit", [1.0, 1e50])
def test_a_ridge_below_rounding_says_what_a_fit_of_the_same_rows_says(unit, ridge):
    """Two columns differ by rounding only: rows that leave must not make 1e16 of it."""
    rng = np.random.default_rng(5)
    x, n, window = unit * rng.standard_normal(60), 60, 9
    X, y = np.column_stack([x, 3.0 * x]), unit * rng.standard_normal(60)
    weights = rng.choice([1.0, 2.0, 1e-6], size=n)
    path = olsq.RollingLeastSquares(window, ridge=ridge).partial_fit_path(X, y, weights)
    for t in range(window, n):
        seen = slice(t + 1 - window, t + 1)
        anew = olsq.RecursiveLeastSquares(ridge=ridge, method="sqrt")
        anew.fit(X[seen], y[seen], sample_weight=weights[seen])
        largest = np.abs(anew.coef_).max()
        assert largest < 1e8
        # rounding decides how they share what both columns explain, but not on what that is
        size = largest * np.abs(X[seen]).max()
        fitted = X[seen] @ path.coef[t] + path.intercept[t]
        np.testing.assert_allclose(fitted, anew.predict(X[seen]), rtol=0, atol=1e-9 * size)
        if ridge < 1e-20:
            np.testing.assert_allclose(path.coef[t], anew.coef_, rtol=0, atol=1e-9 * largest)
        wrong = path.residual[t] - (y[t] - X[t] @ path.coef[t - 1] - path.intercept[t - 1])
        assert abs(wrong) <= 1e-9 * (np.abs(y).max() + np.abs(X[t] * path.coef[t - 1]).max())


@pytest.mark.parametrize("regressors", streams.REGRESSORS)
def test_ways_of_feeding_agree(regressors, tmp_path):
    stream = streams.make(regressors, "gates 1")
    X, y = stream.X, stream.y[:, 0]

    def feed(est, start, stop, size):
        for i in range(start, stop, size):
            est.partial_fit(X[i : min(i + size, stop)], y[i : min(i + size, stop)])
        return est

    def fresh():
        return olsq.RollingLeastSquares(window=16, ridge=0.1)

    whole = feed(fresh(), 0, 48, 48)
    half = feed(fresh(), 0, 20, 20)
    half.save(tmp_path / "r.olsq")
    others = [
        feed(fresh(), 0, 48, 1),
        feed(fresh(), 0, 48, 5),
        feed(olsq.load(tmp_path / "r.olsq"), 20, 48, 28),
        olsq.merge(feed(fresh(), 0, 20, 20), feed(fresh(), 20, 48, 28)),
        olsq.merge(feed(fresh(), 0, 40, 40), feed(fresh(), 40, 48, 8)),
    ]
    for est in others:
        assert est.n_samples_seen_ == 48
        assert coefficient_error(est.coef_[None], whole.coef_[None], X, y[:, None]) < 1e-7
        check_optimal(
            X[-16:], y[-16:, None], np.ones(16), np.full(3, 0.1), True, est.coef_[None],
            np.array([est.intercept_]), 2.3e-16,
        )  # fmt: skip


def test_min_samples():
    X = np.random.default_rng(0).standard_normal((10, 2))
    y = X @ [1.0, 2.0]
    est = olsq.RollingLeastSquares(window=6, min_samples=4, ridge=0).partial_fit(X[:3], y[:3])
    with pytest.raises(ValueError, match="3 of min_samples=4"):
        est.predict(X)
    path = est.partial_fit_path(X[3:], y[3:])
    assert np.isfinite(path.coef).all()
    whole = olsq.coefficient_path(X, y, window=6, min_samples=4)
    assert np.isnan(whole.coef[:3]).all()
    assert np.isfinite(whole.coef[3:]).all()
    np.testing.assert_allclose(whole.coef[-1], est.coef_)


@pytest.mark.parametrize("missing", ["skip", "skip_target"])
@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_min_samples_without_a_window_are_those_of_a_window_of_all_rows(
    missing, targets, by, weighted
):
    rng = np.random.default_rng(targets)
    n = 60
    X = rng.standard_normal((n, 2))
    Y = X @ rng.standard_normal((2, targets)) + rng.standard_normal((n, targets))
    Y[[3, 9]], X[5, 1] = np.nan, np.nan
    Y[7:20:3, -1] = np.nan
    options = {"min_samples": 5, "fit_intercept": True, "missing": missing}
    if weighted:
        options["sample_weight"] = rng.choice([0.0, 1.0, 2.0], n)
    if by:
        options["by"] = [None if i % 7 == 0 else i % 3 for i in range(n)]
    y = Y if targets > 1 else Y[:, 0]
    for horizon in (1, 4):
        window = olsq.coefficient_path(X, y, window=n, horizon=horizon, **options)
        path = olsq.coefficient_path(X, y, horizon=horizon, **options)
        assert np.isnan(path.coef[:4]).all()
        names = {*path._fields} - {"recursive_residual"}
        for name in (*names, "in_sample_residual", "r_squared", "n_rows", "pvalues"):
            found, right = getattr(path, name), getattr(window, name)
            np.testing.assert_allclose(found, right, rtol=1e-7, atol=1e-9, err_msg=name)
    bare = olsq.coefficient_path(X, y, statistics=False, **options)
    np.testing.assert_allclose(bare.coef, path.coef, rtol=1e-12, atol=1e-13)
    assert np.isnan(bare.stderr).all()


def test_a_passing_outlier_leaves_no_trace():
    """A row 1e10 times the others costs ten digits while it is in the window, none after."""
    rng = np.random.default_rng(0)
    X, noise = rng.standard_normal((600, 3)), rng.standard_normal(600)
    y = X @ [1.0, 2.0, 3.0] + noise
    X[100] *= 1e10
    y[300] = 1e13
    path = olsq.coefficient_path(X, y, window=50)
    for t in (160, 299, 360, 599):
        truth = np.linalg.lstsq(X[t - 49 : t + 1], y[t - 49 : t + 1], rcond=None)[0]
        np.testing.assert_allclose(path.coef[t], truth, rtol=1e-8)


@pytest.mark.parametrize("kappa", [1.0, 1e3])
def test_never_drifts(kappa):
    """A million samples; benchmarks/reports/stability.py has the ten million."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000_000, 3)) @ np.diag([1.0, 1.0, 1 / kappa]) @ np.ones((3, 3))
    X = X + rng.standard_normal((1_000_000, 3)) / kappa
    y = X @ [1.0, 2.0, 3.0] + rng.standard_normal(1_000_000)
    est = olsq.RollingLeastSquares(window=200, ridge=0, fit_intercept=False)
    for start in range(0, 1_000_000, 250_000):
        part = slice(start, start + 250_000)
        est.partial_fit(X[part], y[part])
        last = slice(start + 249_800, start + 250_000)
        truth = np.linalg.lstsq(X[last], y[last], rcond=None)[0]
        np.testing.assert_allclose(est.coef_, truth, rtol=1e-8)


def test_a_factor_is_made_anew_before_large_rows_that_left_show():
    """Each leaves roundings of its own size; kept as it is, the factor would be off by 1e-6."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 3))
    X[:, 2] = X[:, 1] + 1e-5 * X[:, 2]  # the square-root form
    X[60::40] *= 1e3
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal(1500)
    coef = olsq.coefficient_path(X, y, window=20, ridge=0.0).coef
    for t in range(20, 1500):
        inside = X[t - 19 : t + 1]
        want = inside @ np.linalg.lstsq(inside, y[t - 19 : t + 1], rcond=None)[0]
        assert np.linalg.norm(inside @ coef[t] - want) < 2e-9 * np.linalg.norm(want)


@pytest.mark.parametrize("nearly_collinear", [False, True])
def test_the_squares_of_columns_are_the_windows(nearly_collinear):
    """They decide when the factor is made anew: wrong ones make it late, or needlessly often."""
    rng = np.random.default_rng(0)
    X, weights = rng.standard_normal((6000, 2)), rng.uniform(0.5, 2.0, 6000)
    if nearly_collinear:
        X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    X[:1000] *= 30.0  # large rows that leave
    est, made, departed = olsq.RollingLeastSquares(50, ridge=0.0, fit_intercept=False), 0, 0
    for t in range(6000):
        est.step(X[t], X[t, 0], sample_weight=weights[t])
        now = est._engine.engine.counts[DEPARTED]
        made, departed = made + (now < departed), now
        if t % 500 == 499:
            inside = slice(t - 49, t + 1)
            want = weights[inside] @ X[inside] ** 2
            np.testing.assert_allclose(est._engine.form.columns[0], want, rtol=1e-9)
            assert est._engine.form.tally[0] == 50
    assert made < 30  # one in some hundred rows


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_a_target_without_rows_in_the_window_leaves_the_others_alone(seed):
    """It reads NaN; the others read as by themselves, in the estimator, by group and in paths."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((40, 2)), rng.standard_normal((40, 3))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    Y[25:35, 1] = np.nan
    options = {"window": 6, "window_of": "positions", "missing": "skip_target", "min_samples": 2}
    est = olsq.RollingLeastSquares(**options)
    groups = olsq.GroupedRollingLeastSquares(**options)
    alone = [olsq.RollingLeastSquares(**options) for _ in range(3)]
    path = olsq.coefficient_path(X, Y, fit_intercept=True, **options)
    names = "coef_", "intercept_", "sigma2_", "coef_stderr_", "intercept_stderr_"
    lost = 0
    for t, (x, y) in enumerate(zip(X, Y, strict=True)):
        prediction, residual = est.step(x, y)
        groups.partial_fit(x[None], y[None], by=["a"])
        for j, one in enumerate(alone):
            before, error = one.step(x, y[j])
            np.testing.assert_allclose([prediction[j], residual[j]], [before, error], 1e-9, 1e-12)
        known = np.array([one._has_estimate() for one in alone])
        if not known.any():
            continue
        lost += not known.all()
        for name in names:
            want = [getattr(one, name) if one._has_estimate() else np.nan for one in alone]
            for found in (getattr(est, name), getattr(groups, name)[0]):
                assert np.isnan(found[~known]).all()
                np.testing.assert_allclose(
                    found[known], [v for v, k in zip(want, known, strict=True) if k], 1e-9, 1e-12
                )
        np.testing.assert_allclose(est.coef_, path.coef[t], 1e-9, 1e-12)
        assert (est.rank_[~known] == 0).all()
        assert not est.determined_[~known].any()
        assert np.isnan(est.predict(X[:2])[:, ~known]).all()
        lower, upper = est.predict_interval(X[:2])
        assert np.isnan(lower[:, ~known]).all()
        assert (lower[:, known] <= upper[:, known]).all()
        est.cov_params()
        est.summary()
    assert lost
