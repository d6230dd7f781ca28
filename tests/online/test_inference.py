"""Intervals, tests, draws and summaries: against dense algebra, statsmodels and simulation."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import t as student_t

import olsq
from olsq.online.forms.student import t_quantile
from tests.online import streams

METHODS = ["covariance", "sqrt", "information"]


def dense_leverage(stream, points, ridge):
    """``x . P x`` by the singular values of all rows at once; inf outside of what they span."""
    after = np.append(np.cumprod(stream.gates[:0:-1])[::-1], 1.0)
    rows = np.insert(stream.X, 0, 1.0, axis=1) * np.sqrt(stream.weights * after)[:, None]
    pull = np.sqrt(np.prod(stream.gates) * np.r_[0.0, np.full(stream.X.shape[1], ridge)])
    rows = np.vstack([rows, np.diag(pull)])
    length = np.linalg.norm(rows, axis=0)
    length[length == 0] = 1.0
    _, values, space = np.linalg.svd(rows / length, full_matrices=False)
    space, values = space[values > 1e-11 * values[0]], values[values > 1e-11 * values[0]]
    points = np.insert(points, 0, 1.0, axis=1) / length
    inside = points @ space.T
    known = np.linalg.norm(points - inside @ space, axis=1) < 1e-9 * np.linalg.norm(points, axis=1)
    return np.where(known, ((inside / values) ** 2).sum(1), np.inf), values[0] / values[-1]


@pytest.mark.full
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("forgetting", streams.FORGETTING)
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
@pytest.mark.parametrize("method", METHODS)
def test_leverage_is_that_of_all_rows_at_once(method, regressors, forgetting, ridge):
    stream = streams.make(regressors, forgetting)
    est = olsq.RecursiveLeastSquares(method=method, ridge=ridge)
    est.partial_fit(stream.X, stream.y[:, 0], stream.weights, forget=stream.gates)
    rng = np.random.default_rng(1)
    scale = np.abs(stream.X).max(axis=0)
    points = np.vstack([stream.X[-3:], rng.standard_normal((4, 3)) * scale, np.zeros((1, 3))])
    truth, condition = dense_leverage(stream, points, ridge)
    found = est.leverage(points)
    if method == "information" and condition > 1e6:  # whose square is beyond the moments' digits
        truth = np.where(np.isinf(found), np.inf, truth)
    np.testing.assert_array_equal(np.isinf(found), np.isinf(truth))
    squared = 2 if method == "information" else 1
    allowed = 1e3 * np.finfo(float).eps * max(condition, 10.0) ** squared
    if method == "covariance":  # P itself is that inaccurate, within its bounds
        allowed = max(allowed, 1e-9)
    known = np.isfinite(truth)
    np.testing.assert_allclose(found[known], truth[known], rtol=max(allowed, 1e-11))


def data(seed=0, n=60):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) * [1, 10, 0.1] + [5, 0, 1]
    return X, X @ [1.0, 2.0, 3.0] + 4 + rng.standard_normal(n), rng.uniform(0.1, 3, n)


@pytest.mark.full
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_everything_is_that_of_statsmodels(method, weighted):
    X, y, w = data()
    w = w if weighted else np.ones(len(y))
    theirs = sm.WLS(y, sm.add_constant(X), weights=w).fit()
    est = olsq.RecursiveLeastSquares(ridge=0.0, method=method)
    est.fit(X, y, w if weighted else None)
    ours = est.summary()
    lower, upper = theirs.conf_int().T
    pairs = {
        "coef": (ours.coef, theirs.params), "stderr": (ours.stderr, theirs.bse),
        "t": (ours.t, theirs.tvalues), "pvalue": (ours.pvalue, theirs.pvalues),
        "lower": (ours.lower, lower), "upper": (ours.upper, upper),
        "r_squared": (ours.r_squared, theirs.rsquared),
        "adjusted": (ours.adjusted_r_squared, theirs.rsquared_adj),
        "F": (ours.f_statistic, theirs.fvalue), "likelihood": (ours.log_likelihood, theirs.llf),
        "aic": (ours.aic, theirs.aic), "bic": (ours.bic, theirs.bic),
        "freedom": (ours.freedom, theirs.df_resid),
        "covariance": (est.cov_params(), theirs.cov_params()),
    }  # fmt: skip
    if not weighted:
        pairs["condition"] = ours.condition, theirs.condition_number
    for name, (a, b) in pairs.items():
        np.testing.assert_allclose(a, b, rtol=1e-10, err_msg=name)
    np.testing.assert_allclose(ours.f_pvalue, theirs.f_pvalue, rtol=1e-8)

    new = np.random.default_rng(1).standard_normal((5, 3))
    theirs_there = theirs.get_prediction(sm.add_constant(new, has_constant="add"))
    for kind in ("mean", "observation"):
        bounds = theirs_there.conf_int(alpha=0.1, obs=kind == "observation").T
        for a, b in zip(est.predict_interval(new, 0.9, kind), bounds, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)
    mean, std = est.predict(new, return_std=True)
    np.testing.assert_array_equal(mean, est.predict(new))
    np.testing.assert_allclose(std, theirs_there.se_obs, rtol=1e-10)

    test, truth = est.t_test("x0 - x1 = 2, x2 = 1"), theirs.t_test("x1 - x2 = 2, x3 = 1")
    np.testing.assert_allclose(test.statistic, truth.tvalue, rtol=1e-10)
    np.testing.assert_allclose(test.pvalue, truth.pvalue, rtol=1e-10)
    np.testing.assert_allclose(np.add(test.upper, [2, 1]), truth.conf_int()[:, 1], rtol=1e-10)
    R = np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 1.0]])
    test, truth = est.wald_test(R, [2, 1]), theirs.wald_test((np.insert(R, 0, 0, 1), [2, 1]))
    assert test.statistic == pytest.approx(float(np.squeeze(truth.statistic)), rel=1e-10)
    assert test.pvalue == pytest.approx(float(np.squeeze(truth.pvalue)), rel=1e-8)


@pytest.mark.parametrize("kind", ["HC0", "HC1", "HC2", "HC3", "hac"])
@pytest.mark.parametrize("weighted", [False, True])
def test_robust_covariances_are_those_of_statsmodels(kind, weighted):
    X, y, w = data()
    y = y + np.cumsum(X[:, 0])  # correlated noise
    lags = {"lags": 4} if kind == "hac" else {}
    more = {"cov_kwds": {"maxlags": 4}} if kind == "hac" else {}
    w = w if weighted else np.ones(len(y))
    whole = sm.WLS(y, sm.add_constant(X), weights=w).fit(
        cov_type=kind.replace("hac", "HAC"), **more
    )
    for method in METHODS:
        est = olsq.RecursiveLeastSquares(ridge=0.0, method=method).fit(X, y, w)
        found = est.cov_params(kind, data=(X, y, w), **lags)
        np.testing.assert_allclose(found, whole.cov_params(), rtol=1e-9)
    rows = slice(-25, None)
    last = sm.WLS(y[rows], sm.add_constant(X[rows]), weights=w[rows])
    est = olsq.RollingLeastSquares(25, ridge=0.0).fit(X, np.column_stack([y, -3 * y]), w)
    found = est.cov_params(kind, **lags)
    truth = last.fit(cov_type=kind.replace("hac", "HAC"), **more).cov_params()
    np.testing.assert_allclose(found[0], truth, rtol=1e-8)
    np.testing.assert_allclose(found[1], 9 * truth, rtol=1e-8)


def test_forgetting_weighs_the_rows_of_a_robust_covariance():
    X, y, _ = data()
    X[3, 1] = np.nan  # a row that is skipped, and forgets nothing
    est = olsq.RecursiveLeastSquares(ridge=0.0, forget=0.9).fit(X, y)
    used = np.arange(60) != 3
    after = 0.9 ** np.arange(58, -1, -1.0)
    weighted = sm.WLS(y[used], sm.add_constant(X[used]), weights=after).fit(cov_type="HC0")
    found = est.cov_params("HC0", data=(X, y))
    np.testing.assert_allclose(found, weighted.cov_params(), rtol=1e-9)


def test_a_window_is_a_regression_on_its_rows():
    X, y, w = data()
    est = olsq.RollingLeastSquares(25, ridge=0.0).fit(X, y, w)
    theirs = sm.WLS(y[-25:], sm.add_constant(X[-25:]), weights=w[-25:]).fit()
    ours = est.summary()
    np.testing.assert_allclose(ours.stderr, theirs.bse, rtol=1e-9)
    np.testing.assert_allclose(ours.log_likelihood, theirs.llf, rtol=1e-9)
    np.testing.assert_allclose(ours.r_squared, theirs.rsquared, rtol=1e-9)
    assert ours.n_samples == 60


@pytest.mark.full
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["mean", "observation"])
@pytest.mark.parametrize(
    ("forget", "cov"), [(1.0, "posterior"), (0.95, "sandwich"), (1.0, "sandwich")]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_coverage(forget, cov, kind, weighted, dtype):
    """A 90 % interval covers in 90 % of 4,000 streams, within four standard errors.

    Where noise has variance sigma2 / w the weights are that; where it is the same for all rows
    they are whatever they are, which sandwich errors are for.
    """
    runs, n, d = 4000, 80, 2
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d)).astype(dtype)
    x = np.array([[0.5, -1.0]], dtype)
    w = rng.uniform(0.3, 3.0, n) if weighted else np.ones(n)
    noise = rng.standard_normal((runs, n)) * (1 / np.sqrt(w) if cov == "posterior" else 1.0)
    truth = x[0] @ np.array([1.0, 2.0]) + 3
    y = (X @ [1.0, 2.0] + 3 + noise).astype(dtype)
    est = olsq.RecursiveLeastSquares(ridge=0.0, forget=forget, cov=cov)
    est.fit(X, y.T, w)
    lower, upper = est.predict_interval(x, 0.9, kind)
    target = truth + (rng.standard_normal(runs) if kind == "observation" else 0.0)
    share = np.mean((lower[0] <= target) & (target <= upper[0]))
    allowed = 4 * np.sqrt(0.9 * 0.1 / runs)
    if cov == "sandwich" and weighted:
        allowed += 0.005  # degrees of freedom do not know of the weights
    assert abs(share - 0.9) < allowed, share


@pytest.mark.parametrize("cov", ["posterior", "sandwich"])
@pytest.mark.parametrize("method", METHODS)
def test_draws_have_mean_and_covariance(method, cov):
    X, y, _ = data()
    X = X - X.mean(axis=0)
    est = olsq.RecursiveLeastSquares(method=method, forget=0.97, cov=cov).fit(X, y)
    coef, intercept = est.sample_coef(7, size=100_000, return_intercept=True)
    draws = np.column_stack([intercept, coef])
    covariance = est.cov_params()
    scale = np.sqrt(np.diagonal(covariance))
    found = np.cov(draws.T) / np.outer(scale, scale)
    assert np.abs(found - covariance / np.outer(scale, scale)).max() < 0.02
    mean = (draws.mean(axis=0) - np.r_[est.intercept_, est.coef_]) / scale
    assert np.abs(mean).max() < 0.02
    same = est.sample_coef(np.random.default_rng(7), size=100_000)
    np.testing.assert_array_equal(coef, same)
    known = est.sample_coef(7, size=100_000, sigma2=4 * est.sigma2_)
    np.testing.assert_allclose(known - est.coef_, 2 * (coef - est.coef_), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_undetermined_has_no_error(method):
    X, y, _ = data(n=2)
    est = olsq.RecursiveLeastSquares(ridge=0.0, method=method).fit(X, y)
    new = np.vstack([X.mean(axis=0), np.zeros(3)])  # between the rows, and elsewhere
    np.testing.assert_allclose(est.leverage(new), [0.5, np.inf], rtol=1e-9)
    lower, upper = est.predict_interval(new)
    assert np.isneginf(lower).all()
    assert np.isposinf(upper).all()
    assert np.isposinf(np.diagonal(est.cov_params())).all()
    test = est.t_test(np.eye(3))
    assert np.isinf(test.stderr).all()
    assert (test.pvalue == 1).all()
    with pytest.raises(ValueError, match="do not determine restriction 0"):
        est.wald_test(np.eye(3))
    with pytest.raises(ValueError, match="do not determine all coefficients"):
        est.sample_coef(0, sigma2=1.0)
    assert len(est.summary().undetermined) == 4
    one = olsq.RecursiveLeastSquares(ridge=0.0, method=method, fit_intercept=False)
    with pytest.raises(ValueError, match="give sigma2="):
        one.fit([[1.0]], [1.0]).sample_coef()


def test_a_coefficient_that_was_lost_has_no_interval():
    X, y, _ = data()
    X[5:, 1] = 0.0
    est = olsq.RecursiveLeastSquares(forget=0.5, ridge=0.0)
    for _ in range(8):
        est.partial_fit(X, y)
        X[:5, 1] = 0.0
    assert est.determined_.tolist() == [True, False, True]
    with_it, without = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    leverage = est.leverage([with_it, without])
    assert np.isinf(leverage[0])
    assert np.isfinite(leverage[1])
    (line,) = est.summary().undetermined
    assert line.startswith("x1: undetermined")
    gone = 8 * len(X) - 5  # rows since the last in which it was not 0
    (rows,) = re.findall(r"at least (\d+) rows ago", line)
    assert 100 < int(rows) <= gone  # "at least": no less than 1e-60 is said to be left

    halved = olsq.RecursiveLeastSquares(half_life=1.0, ridge=0.0)
    X[:5, 1] = 1.0
    for _ in range(8):
        halved.partial_fit(X, y)
        X[:5, 1] = 0.0
    assert halved.summary().undetermined == [line]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("n", [1, 2, 12])
def test_nothing_is_known_of_however_little_of_a_column_never_seen(n, intercept):
    X = np.random.default_rng(0).standard_normal((n, 3)) * [1.0, 1.0, 0.0]
    steps = np.outer([0.0, 1e-9, 1e-12, 1e-300], [0.0, 0.0, 1.0])
    models = [olsq.RollingLeastSquares(20, fit_intercept=intercept)]
    for method in ("covariance", "sqrt", "information"):
        models.append(olsq.RecursiveLeastSquares(method=method, fit_intercept=intercept))
    for est in models:
        leverage = est.fit(X, X @ [1.0, 2.0, 3.0]).leverage(X[0] + steps)
        assert np.isfinite(leverage).tolist() == [True, False, False, False]


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e-9])
def test_a_perfect_fit_without_degrees_of_freedom_has_bounds(ridge):
    est = olsq.RecursiveLeastSquares(ridge=ridge).fit([[1.0, 2.0, 3.0]], [0.0])
    for kind in ("mean", "observation"):
        lower, upper = est.predict_interval([[5.0, 0.0, 0.0], [0.0, 0.0, 0.0]], kind=kind)
        assert not np.isnan([lower, upper]).any()
        assert (lower <= upper).all()
    found = est.summary()
    assert not np.isnan([found.lower, found.upper]).any()
    assert not np.isnan(est.t_test(np.eye(3))[:6]).any()


@pytest.mark.parametrize("method", METHODS)
def test_targets_that_missed_different_rows(method):
    X, y, w = data()
    Y = np.column_stack([y, y**2])
    Y[::7, 1] = np.nan
    est = olsq.RecursiveLeastSquares(missing="skip_target", method=method).fit(X, Y, w)
    new = X[:4]
    lower, _ = est.predict_interval(new)
    for j in range(2):
        rows = np.isfinite(Y[:, j])
        alone = olsq.RecursiveLeastSquares(method=method).fit(X[rows], Y[rows, j], w[rows])
        np.testing.assert_allclose(lower[:, j], alone.predict_interval(new)[0], rtol=1e-12)
        np.testing.assert_allclose(est.leverage(new)[:, j], alone.leverage(new), rtol=1e-12)
        np.testing.assert_allclose(est.cov_params()[j], alone.cov_params(), rtol=1e-12)
        ours, theirs = est.summary().fits[j], alone.summary().fits[0]
        assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, rel=1e-12)
        assert est.wald_test(np.eye(3)).statistic[j] == pytest.approx(
            alone.wald_test(np.eye(3)).statistic, rel=1e-9
        )
    assert str(est.summary()).count("\ntarget ") == 2


@pytest.mark.full
def test_likelihood_is_the_same_however_rows_come(tmp_path):
    """The sum of the weights' logarithms is forgotten, saved and merged like the rest."""
    X, y, w = data()
    gates = np.random.default_rng(2).uniform(0.8, 1.0, 60)
    make = lambda: olsq.RecursiveLeastSquares(forget=0.9)  # noqa: E731
    truth = make().partial_fit(X, y, w, forget=gates).summary().log_likelihood
    parts = make()
    for t in range(60):
        parts.partial_fit(X[t : t + 1], y[t : t + 1], w[t : t + 1], forget=gates[t])
    parts.save(tmp_path / "s.olsq")
    second = make().partial_fit(X[20:], y[20:], w[20:], forget=gates[20:])
    first = make().partial_fit(X[:20], y[:20], w[:20], forget=gates[:20])
    for est in (parts, olsq.load(tmp_path / "s.olsq"), olsq.merge(first, second)):
        assert est.summary().log_likelihood == pytest.approx(truth, rel=1e-10)
    # Rows of weight 1 that come after, by the short way of one row and at once.
    for t in range(5):
        parts.partial_fit(X[t : t + 1], y[t : t + 1])
    whole = make().partial_fit(
        np.vstack([X, X[:5]]), np.r_[y, y[:5]], np.r_[w, np.ones(5)], forget=np.r_[gates, [0.9] * 5]
    )
    assert parts.summary().log_likelihood == pytest.approx(
        whole.summary().log_likelihood, rel=1e-10
    )


def test_rows_with_missing_values_have_no_interval():
    X, y, _ = data()
    est = olsq.RecursiveLeastSquares().fit(X, y)
    new = X[:3].copy()
    new[1, 0] = np.nan
    for found in (*est.predict(new, return_std=True), *est.predict_interval(new)):
        assert np.isnan(found).tolist() == [False, True, False]
    assert np.isnan(est.leverage(new)).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="first in row 1"):
        olsq.RecursiveLeastSquares(missing="raise").fit(X, y).predict_interval(new)


def test_summary_as_text_and_html():
    X, y, _ = data()
    found = olsq.RecursiveLeastSquares(ridge=0.0).fit(X, y).summary()
    text = str(found)
    assert max(map(len, text.splitlines())) <= 78
    assert "Intercept" in text
    assert f"{found.coef[1]:#.6g}" in text
    page = found._repr_html_()
    assert page.count("<table>") == 2
    assert f"{found.coef[1]:#.6g}" in page
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = found.nonsense


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.predict_interval(np.zeros((1, 3)), level=95), "level must be"),
        (lambda e: e.predict_interval(np.zeros((1, 3)), kind="mode"), "kind must be"),
        (lambda e: e.predict_interval(np.zeros((1, 2))), "X has 2 features"),
        (lambda e: e.leverage(np.zeros(3)), "Expected 2D array"),
        (lambda e: e.sample_coef(0, size=-1), "size must be"),
        (lambda e: e.sample_coef(0, sigma2=-1.0), "sigma2 must be finite"),
        (lambda e: e.sample_coef(0, sigma2=[1.0, 2.0]), "sigma2 must be a number"),
        (lambda e: e.t_test(np.eye(2)), "restriction must have 3"),
        (lambda e: e.t_test([0.0, 0.0, 0.0]), "other than 0 in every row"),
        (lambda e: e.t_test("x0 = x9"), "cannot be read as linear"),
        (lambda e: e.t_test([1.0, 0.0, 0.0], [1.0, 2.0]), "value must be"),
        (lambda e: e.wald_test([[1.0, 0, 0], [2.0, 0, 0]]), "depend on each other"),
        (lambda e: e.summary(level=0), "level must be"),
        (lambda e: e.cov_params("HC9"), "kind must be"),
        (lambda e: e.cov_params("hac"), "keeps no rows"),
        (lambda e: e.cov_params("hac", lags=-1), "needs lags"),
        (lambda e: e.cov_params("HC0", lags=2), "lags is for"),
        (lambda e: e.cov_params("HC0"), "keeps no rows"),
        (lambda e: e.cov_params("HC0", data=np.eye(3)[0]), "data must be"),
        (lambda e: e.cov_params(lags=2), "give kind="),
    ],
)
def test_bad_arguments(call, message):
    X, y, _ = data()
    with pytest.raises(ValueError, match=message):
        call(olsq.RecursiveLeastSquares().fit(X, y))


@pytest.mark.parametrize("kind", ["HC0", "HC3"])
@pytest.mark.parametrize("half_life", [None, 5.0])
def test_robust_covariances_of_targets_that_miss_other_rows_are_those_of_each_alone(
    kind, half_life
):
    rng = np.random.default_rng(1)
    X, Y, times = rng.standard_normal((30, 2)), rng.standard_normal((30, 2)), np.arange(30.0)
    Y[rng.random((30, 2)) < 0.3] = np.nan
    Y[-4:, 1] = np.nan
    options = {"ridge": 0.0, "missing": "skip_target"}
    options |= {"forget": 0.9} if half_life is None else {"half_life": half_life}
    given = {} if half_life is None else {"times": times}
    data = () if half_life is None else (None, times)
    both = olsq.RecursiveLeastSquares(**options).fit(X, Y, **given)
    found = both.cov_params(kind, data=(X, Y, *data))
    for j in range(2):
        alone = olsq.RecursiveLeastSquares(**options).fit(X, Y[:, j], **given)
        want = alone.cov_params(kind, data=(X, Y[:, j], *data))
        np.testing.assert_allclose(found[j], want, rtol=1e-9)
        # The sandwich of the weighted problem, solved densely.
        seen = ~np.isnan(Y[:, j])
        A, y, t = np.column_stack([np.ones(30), X])[seen], Y[seen, j], times[seen]
        age = np.arange(len(y))[::-1] if half_life is None else t[-1] - t
        w = 0.9**age if half_life is None else 0.5 ** (age / half_life)
        P = np.linalg.inv(A.T @ (w[:, None] * A))
        u = (w * (y - A @ (P @ A.T @ (w * y))))[:, None] * A
        if kind == "HC3":
            u /= (1 - w * np.einsum("ij,jk,ik->i", A, P, A))[:, None]
        np.testing.assert_allclose(want, P @ u.T @ u @ P, rtol=1e-8)


BELOW_ONE = {  # intervals whose estimates rest on less than one degree of freedom, and on one
    "prediction": lambda f, X, y: recursive(f).fit(X, y).predict_interval(X[:1]),
    "mean": lambda f, X, y: recursive(f).fit(X, y).predict_interval(X[:1], kind="mean"),
    "summary": lambda f, X, y: bounds_of(recursive(f).fit(X, y).summary()),
    "path": lambda f, X, y: [b[-1] for b in recursive(f).partial_fit_path(X, y).conf_int()],
    "path by key": lambda f, X, y: [
        b[-1] for b in olsq.coefficient_path(X, y, forget=f, by=np.zeros(40, int)).conf_int()
    ],
    "groups": lambda f, X, y: (
        olsq.GroupedLeastSquares(forget=f, fit_intercept=False)
        .fit(X, y, by=np.zeros(40, int))
        .predict_interval(X[:1], by=[0])
    ),
    "bank": lambda f, X, y: one_filter(f, X, y).predict_interval(X[:1]),
}


def recursive(forget):
    return olsq.RecursiveLeastSquares(forget=forget, fit_intercept=False)


def bounds_of(summary):
    return summary.lower, summary.upper


def one_filter(forget, X, y):
    bank = olsq.FilterBank(1, n_features=2, forget=forget, fit_intercept=False)
    for x, target in zip(X, y, strict=True):
        bank.step(x, [target])
    return bank[0]


@pytest.mark.full
@pytest.mark.parametrize("door", BELOW_ONE)
def test_intervals_below_one_degree_of_freedom_are_infinite(door):
    """With k = 2: (1 + f) / (1 - f) - 2 degrees of freedom, which is 1 at f = 1/2."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = X[:, 0] + rng.standard_normal(40)
    for forget in (1 / 3 + 1e-9, 1 / 3 + 1e-4, 0.4, 0.499):
        lower, upper = BELOW_ONE[door](forget, X, y)
        assert (np.asarray(lower) == -np.inf).all()
        assert (np.asarray(upper) == np.inf).all()
    assert np.isfinite(BELOW_ONE[door](0.5, X, y)).all()


def test_quantiles_are_those_of_students_t_from_one_degree_of_freedom_on():
    freedom = np.append(np.random.default_rng(0).uniform(-2, 20, 500), [0.0, 1.0, np.inf])
    for level in (0.01, 0.5, 0.95, 0.999):
        expected = np.where(freedom >= 1, student_t.ppf(0.5 + level / 2, freedom), np.inf)
        np.testing.assert_allclose(t_quantile(freedom, level), expected, rtol=1e-9)


@pytest.mark.parametrize("horizon", [2, 7, 24])
def test_intervals_of_forecasts_are_infinite_below_one_degree_of_freedom(horizon):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 2))
    y = X[:, 0] + rng.standard_normal(300)
    path = olsq.coefficient_path(X, y, horizon=horizon)
    found = olsq.score_forecasts(path, y)
    width = found.upper - found.lower
    known = np.flatnonzero(~np.isnan(width))
    assert (width[known[: horizon - 1]] == np.inf).all()
    assert (width[known[horizon:]] < 200).all()


@pytest.mark.parametrize("forget", [1.0, 0.9])
@pytest.mark.parametrize("method", METHODS)
def test_rows_that_were_not_learned_are_refused(method, forget):
    X, y, w = data()
    est = olsq.RecursiveLeastSquares(ridge=0.0, method=method, forget=forget).fit(X, y, w)
    est.cov_params("HC0", data=(X, y, w))
    scale = np.where(np.arange(len(y)) == 50, 3.0, 1.0)
    others = {
        "no weights": (X, y),
        "other weights": (X, y, 2 * w),
        "a row less": (X[1:], y[1:], w[1:]) if forget == 1 else (X[-9:], y[-9:], w[-9:]),
        "a row twice": (np.vstack([X, X[-1:]]), [*y, y[-1]], [*w, w[-1]]),
        "another order": (X, y[::-1], w),
        "other columns": (X[:, ::-1], y, w),
        "another regressor": (X * scale[:, None], y, w),
    }
    for rows in others.values():
        with pytest.raises(ValueError, match="data must be the rows that were learned"):
            est.cov_params("HC0", data=rows)


def test_the_last_rows_that_still_count_are_enough():
    X, y, _ = data()
    X, y = np.tile(X, (5, 1)), np.tile(y, 5)
    est = olsq.RecursiveLeastSquares(forget=0.9).fit(X, y)
    every = est.cov_params("HC0", data=(X, y))
    np.testing.assert_allclose(est.cov_params("HC0", data=(X[-99:], y[-99:])), every, rtol=0.02)


def test_intervals_of_new_rows_have_the_weights_of_these():
    X, y, w = data()
    new, weights = X[:5], np.array([0.25, 1.0, 4.0, 1e-3, 100.0])
    whole = sm.WLS(y, sm.add_constant(X), weights=w).fit()
    theirs = whole.get_prediction(sm.add_constant(new, has_constant="add"), weights=weights)
    truth = theirs.conf_int(obs=True, alpha=0.1)
    by, rows = ["a"] * len(y), {"sample_weight": weights}
    found = [
        olsq.RecursiveLeastSquares(method=method).fit(X, y, w).predict_interval(new, 0.9, **rows)
        for method in METHODS
    ]
    found.append(olsq.RollingLeastSquares(len(y)).fit(X, y, w).predict_interval(new, 0.9, **rows))
    for groups in (olsq.GroupedLeastSquares(), olsq.GroupedRollingLeastSquares(len(y))):
        groups.fit(X, y, w, by=by)
        found.append(groups.predict_interval(new, 0.9, by=["a"] * 5, **rows))
        with pytest.raises(ValueError, match="leave it out with kind='mean'"):
            groups.predict_interval(new, 0.9, "mean", by=["a"] * 5, **rows)
    for bounds in found:
        np.testing.assert_allclose(np.transpose(bounds), truth, rtol=1e-9)
    est = olsq.RecursiveLeastSquares().fit(X, y, w)
    assert est.predict_interval(new[:1], sample_weight=0.0)[1] == np.inf
    for wrong in ([-1.0] * 5, [1.0] * 4):
        with pytest.raises(ValueError, match="sample_weight"):
            est.predict_interval(new, sample_weight=wrong)
    with pytest.raises(ValueError, match="leave it out with kind='mean'"):
        est.predict_interval(new, kind="mean", sample_weight=1.0)


def test_a_step_gives_the_deviation_of_its_prediction():
    X, y, w = data()
    Y = np.column_stack([y, -2 * y])
    for target, mean in ((y, np.zeros(4)), (Y, np.zeros((2, 4)))):
        prior = mean, np.ones(4)
        for make in (
            olsq.RecursiveLeastSquares,
            lambda prior=prior: olsq.RecursiveLeastSquares(prior=prior, noise_variance=2.0),
            lambda: olsq.RollingLeastSquares(7),
        ):
            est, plain = make(), make()
            first = est.step(X[0], target[0], return_std=True)[2]
            plain.step(X[0], target[0])
            assert np.isinf(first).all() == (est.get_params().get("prior") is None)
            for x, value in zip(X[1:20], target[1:20], strict=True):
                std = plain.predict(x[None], return_std=True)[1]
                found = est.step(x, value, return_std=True)
                np.testing.assert_array_equal(found[2], std[0])
                want = plain.step(x, value)
                np.testing.assert_array_equal(found[0], want[0])
                np.testing.assert_array_equal(found[1], want[1])
                assert type(found[2]) is type(found[0])
            variance = np.square(est.predict(x[None], return_std=True)[1][0])
            variance = variance + est.sigma2_ * (1 / w[20] - 1)  # of a row of this weight
            found = est.step(x, value, sample_weight=w[20], return_std=True)[2]
            np.testing.assert_allclose(np.square(found), variance, rtol=1e-9)
    with pytest.raises(TypeError, match="leave return_std out"):
        olsq.TotalLeastSquares().step(X[0], y[0], return_std=True)


BANK_OPTIONS = [
    {},
    {"ridge": 0.5},
    {"ridge": 0.5, "noise_variance": 2.0},
    {"method": "sqrt", "cov": "sandwich"},
    {"prior": (np.zeros(4), np.ones(4)), "noise_variance": 2.0},
]


@pytest.mark.full
@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("targets", [0, 2])
@pytest.mark.parametrize("options", BANK_OPTIONS, ids=repr)
def test_a_step_of_a_bank_gives_the_deviations_of_its_filters(options, targets, is_complex):
    if is_complex and ("cov" in options or "prior" in options):
        return  # not offered, or tested with real numbers
    if targets and "prior" in options:
        options = options | {"prior": (np.zeros((2, 4)), np.ones(4))}
    rng = np.random.default_rng(5)
    shape = (14, 3, targets) if targets else (14, 3)
    X, Y, w = (
        rng.standard_normal((14, 3, 3)),
        rng.standard_normal(shape),
        rng.uniform(1, 2, (14, 3)),
    )
    X[8, 1, 0] = np.nan
    if is_complex:
        X, Y = X + 1j * rng.standard_normal(X.shape), Y + 1j * rng.standard_normal(Y.shape)
    bank = olsq.FilterBank(3, forget=0.9, **options)
    alone = [olsq.RecursiveLeastSquares(forget=0.9, **options) for _ in range(3)]
    plain = olsq.FilterBank(3, forget=0.9, **options)
    for x, y, weight in zip(X, Y, w, strict=True):
        found = bank.step(x, y, sample_weight=weight, return_std=True)
        for ours, theirs in zip(found, plain.step(x, y, sample_weight=weight), strict=False):
            np.testing.assert_array_equal(ours, theirs)
        want = [
            est.step(a, b, sample_weight=c, return_std=True)
            for est, a, b, c in zip(alone, x, y, weight, strict=True)
        ]
        np.testing.assert_allclose(found[2], [part[2] for part in want], rtol=1e-7)
        assert found[2].shape == found[0].shape
    one = bank.step(x[0], y[0], which=0, return_std=True)  # one row of one filter, and of two
    np.testing.assert_allclose(one[2], alone[0].step(x[0], y[0], return_std=True)[2], rtol=1e-7)
    two = bank.step(x[1:], y[1:], which=[1, -1], return_std=True)
    want = [alone[i].step(x[i], y[i], return_std=True)[2] for i in (1, 2)]
    np.testing.assert_allclose(two[2], want, rtol=1e-7)
    before = bank.to_bytes()
    with pytest.raises(ValueError, match="sample_weight"):
        bank.step(x, y, sample_weight=-w[0], return_std=True)
    assert bank.to_bytes() == before


@pytest.mark.parametrize("horizon", [None, 1, 3])
def test_a_step_with_a_late_target_gives_the_deviation_of_its_prediction(horizon):
    X, y, w = data()
    for target in (y, np.column_stack([y, -2 * y])):
        late = olsq.DelayedTargets(olsq.RecursiveLeastSquares(ridge=0.1), horizon)
        plain, known = olsq.RecursiveLeastSquares(ridge=0.1), horizon or 1
        for t in range(12):
            if t >= known:
                plain.step(X[t - known], target[t - known], sample_weight=w[t - known])
            found = late.step(X[t], target[t], sample_weight=w[t], return_std=True)
            want = copy.deepcopy(plain).step(X[t], target[t], sample_weight=w[t], return_std=True)
            np.testing.assert_array_equal(found[2], np.inf if t < known else want[2])
            np.testing.assert_allclose(found[0], want[0], rtol=1e-12)
            assert type(found[2]) is type(found[0])
    total = olsq.DelayedTargets(olsq.TotalLeastSquares())
    with pytest.raises(TypeError, match="leave return_std out"):
        total.step(X[0], y[0], return_std=True)
    assert len(total) == 0


PRIORS = {
    "covariance": ([0.5, 3.0, -1.0], np.array([[0.5, 0.1, 0], [0.1, 0.3, 0.05], [0, 0.05, 2.0]])),
    "variances": ([0.5, 3.0, -1.0], np.array([0.2, 1.5, 0.01])),
    "by target": (np.array([[0.0, 1, 2], [2, 1, 0]]), np.array([0.2, 1.5, 0.1])),
    "nothing known of one": ([0.0, 3.0, -1.0], np.array([np.inf, 0.3, 0.2])),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["HC0", "HC3", "hac"])
@pytest.mark.parametrize("forget", [1.0, 0.95])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prior", PRIORS)
def test_robust_covariances_after_a_prior_are_dense_ones(prior, method, forget, kind):
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((40, 2)), rng.standard_normal((40, 2))
    w = rng.uniform(0.5, 2.0, 40)
    mean, covariance = PRIORS[prior]
    covariance = np.diag(covariance) if covariance.ndim == 1 else covariance
    free = np.isinf(np.diagonal(covariance))
    information = np.where(free, 0.0, np.linalg.inv(np.where(np.isinf(covariance), 1, covariance)))
    est = olsq.RecursiveLeastSquares(
        prior=(np.broadcast_to(mean, (2, 3)), PRIORS[prior][1]), method=method, forget=forget
    ).fit(X, Y, w)
    Z, left = np.insert(X, 0, 1.0, axis=1), w * forget ** np.arange(39, -1, -1.0)
    P = np.linalg.inv(forget**40 * information + Z.T @ (left[:, None] * Z))
    found = est.cov_params(kind, data=(X, Y, w), **({"lags": 3} if kind == "hac" else {}))
    for j, mu in enumerate(np.broadcast_to(mean, (2, 3))):
        theta = P @ (forget**40 * information @ mu + Z.T @ (left * Y[:, j]))
        errors = Y[:, j] - Z @ theta
        if kind == "HC3":
            errors /= 1 - left * np.einsum("ti,ij,tj->t", Z, P, Z)
        u = (left * errors)[:, None] * Z @ P
        meat = u.T @ u
        for lag in range(1, 4 if kind == "hac" else 1):
            cross = u[lag:].T @ u[:-lag]
            meat += (1 - lag / 4) * (cross + cross.T)
        np.testing.assert_allclose(found[j], meat, rtol=1e-8, atol=1e-10 * np.abs(meat).max())
    merged = olsq.merge(
        copy.copy(est),
        olsq.RecursiveLeastSquares(ridge=0.0, method=method, forget=forget).fit(X, Y, w),
    )
    merged.cov_params(kind, data=tuple(np.concatenate([a, a]) for a in (X, Y, w)))
    for other in ((X[1:], Y[1:], w[1:]), (X, Y), (X, Y + 1.0, w), (2 * X, Y, w)):
        with pytest.raises(ValueError, match="data must be the rows that were learned"):
            est.cov_params(kind, data=other)


STRATEGIES = [
    olsq.forgetting.Directional(0.9),
    olsq.forgetting.RandomWalk(0.1),
    olsq.forgetting.PerCoefficient([0.9, 0.95, 0.9, 1.0]),
    olsq.forgetting.BoundedTrace(0.9, trace=10.0),
    olsq.forgetting.Variable(20),
    olsq.forgetting.ResetOnBreak(),
    olsq.forgetting.ExponentialResetting(0.9),
]


@pytest.mark.parametrize("forget", STRATEGIES, ids=lambda f: type(f).__name__)
def test_strategies_without_weights_of_rows_have_no_robust_covariance(forget):
    X, y, _ = data()
    est = olsq.RecursiveLeastSquares(forget=forget).fit(X, y)
    with pytest.raises(ValueError, match=r"leaves no weights of rows.*cov_params\(\) without kind"):
        est.cov_params("HC0", data=(X, y))


def test_strategies_that_weigh_rows_have_the_covariance_of_their_weights():
    X, y, _ = data()
    times, left = np.arange(60.0), 0.9 ** np.arange(59, -1, -1.0)
    wanted = sm.WLS(y, sm.add_constant(X), weights=left).fit(cov_type="HC1").cov_params()
    est = olsq.RecursiveLeastSquares(ridge=0.0, forget=olsq.forgetting.Exponential(0.9)).fit(X, y)
    np.testing.assert_allclose(est.cov_params("HC1", data=(X, y)), wanted, rtol=1e-9)
    half_life = -np.log(2) / np.log(0.9)
    est = olsq.RecursiveLeastSquares(ridge=0.0, forget=olsq.forgetting.ByTime(half_life))
    found = est.fit(X, y, times=times).cov_params("HC1", data=(X, y, None, times))
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


@pytest.mark.parametrize("options", [{}, {"half_life": 9}, {"window_of": "positions"}])
def test_windows_weigh_their_own_rows_and_refuse_others(options):
    X, y, _ = data()
    Y = np.column_stack([y, -3 * y, y])
    Y[40:45, 1], Y[15:, 2] = np.nan, np.nan
    est = olsq.RollingLeastSquares(25, missing="skip_target", min_samples=5, **options).fit(X, Y)
    found = est.cov_params("HC1")
    for j in range(2):
        alone = olsq.RollingLeastSquares(25, min_samples=5, **options).fit(X, Y[:, j])
        np.testing.assert_allclose(found[j], alone.cov_params("HC1"), rtol=1e-12)
    if "window_of" in options:  # no row of the third target is in the window
        assert np.isnan(found[2]).all()
    for rows in (slice(None), slice(-25, None)):
        with pytest.raises(ValueError, match="data must be left out: this RollingLeastSquares"):
            est.cov_params("HC1", data=(X[rows], Y[rows]))


@pytest.mark.parametrize("options", [{}, {"cov": "sandwich"}, {"forget": 0.9}])
@pytest.mark.parametrize("size", [1e200, 1e308])
def test_rows_whose_squares_overflow_have_infinite_intervals(options, size):
    """Without a warning, which the tests take for an error."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 2))
    est = olsq.RecursiveLeastSquares(**options).fit(X, X.sum(1) + rng.standard_normal(50))
    assert est.leverage([[size, 0]]) == np.inf
    np.testing.assert_array_equal(est.predict_interval([[size, 0]]), [[-np.inf], [np.inf]])
