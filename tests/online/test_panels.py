"""Panel regressions from the states of groups: dense problems, states that travelled, bad input.

Golden numbers of linearmodels and fixest are in ``tests/golden/test_panels.py``.
"""

from __future__ import annotations

import doctest
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import olsq


def panel(seed=0, *, groups=15, most=14, d=3, m=1, offset=0.0, spread=0.0):
    """Rows of an unbalanced panel in random order: X, Y, weights, groups."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), rng.integers(1, most, groups))
    n = group.size
    X = rng.standard_normal((n, d)) + spread * rng.standard_normal((groups, d))[group] + offset
    Y = X @ rng.standard_normal((d, m)) + rng.standard_normal((n, m))
    Y += rng.standard_normal((groups, 1))[group]
    order = rng.permutation(n)
    return X[order], Y[order], rng.uniform(0.1, 3.0, n), group[order]


def centred(values, weights, labels):
    """Values (n, k) about the weighted means of their groups."""
    out = values.copy()
    for label in np.unique(labels):
        rows = labels == label
        out[rows] -= weights[rows] @ values[rows] / weights[rows].sum()
    return out


def dense(X, Y, weights, group, within, cov):
    """Slopes (m, d) and their covariances (m, d, d), of the rows about their means, by QR."""
    labels = group if within else np.zeros_like(group)
    root = np.sqrt(weights)[:, None]
    A, B = root * centred(X, weights, labels), root * centred(Y, weights, labels)
    Q, R = np.linalg.qr(A)
    slopes = np.linalg.solve(R, Q.T @ B)
    residual, P = B - A @ slopes, np.linalg.inv(R) @ np.linalg.inv(R).T
    n, d = X.shape
    keys = np.unique(group)
    if cov == "nonrobust":
        freedom = n - d - (keys.size if within else 1)
        return slopes.T, np.array([r @ r / freedom * P for r in residual.T])
    factor = keys.size / (keys.size - 1) * (n - 1) / (n - d - (not within))
    found = []
    for r in residual.T:
        U = np.array([A[group == key].T @ r[group == key] for key in keys])
        found.append(factor * P @ (U.T @ U) @ P)
    return slopes.T, np.array(found)


@pytest.mark.full
@pytest.mark.parametrize("cov", ["nonrobust", "cluster"])
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize(
    ("options", "rows", "tolerance"),
    [
        ({}, {}, 1e-12),
        ({"method": "sqrt"}, {"m": 2}, 1e-12),
        ({}, {"d": 1, "most": 3}, 1e-12),
        ({}, {"offset": 1e4, "spread": 1e3}, 1e-9),
        ({"method": "sqrt"}, {"spread": 1e6}, 1e-8),
        ({"cov": "sandwich"}, {"groups": 5000, "most": 4, "m": 2}, 1e-10),
    ],
)
def test_panels_are_dense_regressions(options, rows, tolerance, within, cov):
    X, Y, weights, group = panel(**rows)
    groups = olsq.GroupedLeastSquares(**options).fit(X, Y, weights, by=group)
    fit = (groups.within if within else groups.pooled)(cov=cov)
    slopes, V = dense(X, Y, weights, group, within, cov)
    scale = np.sqrt(np.diagonal(V, axis1=1, axis2=2))
    assert np.abs((fit.coef - slopes) / scale).max() < tolerance
    found = fit.cov_params[:, -X.shape[1] :, -X.shape[1] :]
    assert np.abs((found - V) / scale[:, :, None] / scale[:, None]).max() < tolerance
    np.testing.assert_allclose(fit.stderr, scale, rtol=max(tolerance, 1e-11))
    assert fit.n_rows == len(X)


def test_a_regression_without_intercept_is_pooled_about_zero():
    X, Y, weights, group = panel()
    groups = olsq.GroupedLeastSquares(fit_intercept=False).fit(X, Y[:, 0], weights, by=group)
    fit, alone = groups.pooled(), olsq.RecursiveLeastSquares(fit_intercept=False)
    wanted = alone.fit(X, Y[:, 0], weights).summary()
    np.testing.assert_allclose(fit.coef, wanted.coef, rtol=1e-12)
    np.testing.assert_allclose(fit.stderr, wanted.stderr, rtol=1e-12)
    np.testing.assert_allclose(fit.r_squared, wanted.r_squared, rtol=1e-12)
    assert fit.intercept == fit.intercept_stderr == 0.0


def test_pooled_is_one_regression_of_all_rows():
    X, Y, weights, group = panel()
    wanted = olsq.RecursiveLeastSquares().fit(X, Y[:, 0], weights).summary(level=0.9)
    fit = olsq.GroupedLeastSquares().fit(X, Y[:, 0], weights, by=group).pooled()
    found = fit.summary(level=0.9)
    for name in ("coef", "stderr", "t", "pvalue", "lower", "upper", "freedom", "r_squared"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-10)
    np.testing.assert_array_equal(found.pvalue[1:], fit.pvalues)
    np.testing.assert_array_equal(found.t[1:], fit.tvalues)
    np.testing.assert_array_equal(np.array([found.lower, found.upper])[:, 1:], fit.conf_int(0.9))


def travelled(how, X, y, group, tmp_path):
    """Groups that learned the rows in one of several ways."""
    half = np.arange(len(X)) % 2 == 0
    parts = [olsq.GroupedLeastSquares().fit(X[h], y[h], by=group[h]) for h in (half, ~half)]
    if how == "merged":
        return olsq.merge(*parts)
    parts[0].partial_fit(X[~half], y[~half], by=group[~half])
    if how == "saved":
        parts[0].save(tmp_path / "groups.olsq")
        return olsq.load(tmp_path / "groups.olsq")
    if how == "distributed":
        dask = pytest.importorskip("dask.array")
        rows = [dask.from_array(a, chunks=30) for a in (X, y, group)]
        return olsq.distributed.fit(*rows[:2], by=rows[2], ridge=0.0)
    return parts[0]


@pytest.mark.parametrize("how", ["resumed", "merged", "saved", "distributed"])
def test_states_that_travelled_answer_the_same(how, tmp_path):
    X, Y, _, group = panel()
    wanted = olsq.GroupedLeastSquares().fit(X, Y[:, 0], by=group)
    groups = travelled(how, X, Y[:, 0], group, tmp_path)
    for kind in ("pooled", "within"):
        one, other = (getattr(g, kind)("cluster") for g in (groups, wanted))
        np.testing.assert_allclose(one.coef, other.coef, rtol=1e-11)
        np.testing.assert_allclose(one.cov_params, other.cov_params, rtol=1e-9, atol=1e-13)
        assert (one.n_rows, one.n_groups) == (other.n_rows, other.n_groups)


def test_rows_that_are_missing_or_of_weight_zero_do_not_count():
    X, Y, _, group = panel()
    keep = np.random.default_rng(1).random(len(X)) < 0.7
    keep[group == 4] = False
    wanted = olsq.GroupedLeastSquares().fit(X[keep], Y[keep, 0], by=group[keep])
    holes = np.where(keep, Y[:, 0], np.nan)
    for y, weights in ((holes, None), (Y[:, 0], keep.astype(float))):
        fit = olsq.GroupedLeastSquares().fit(X, y, weights, by=group).within("cluster")
        other = wanted.within("cluster")
        np.testing.assert_allclose(fit.cov_params, other.cov_params, rtol=1e-12)
        assert (fit.n_rows, fit.n_groups) == (other.n_rows, other.n_groups) == (keep.sum(), 14)
        assert np.isnan(fit.effects[fit.groups.index(4)])
        assert np.isfinite(fit.effects).sum() == 14


@pytest.mark.parametrize("value", [3.3, 1e7 + 0.1])
def test_regressors_without_variation_in_groups_are_undetermined_within(value):
    X, Y, _, group = panel(d=2, groups=40)
    whole = np.column_stack([X[:, 0], value * (1 + group % 5) / 7, X[:, 1]])
    alone = olsq.GroupedLeastSquares().fit(X, Y[:, 0], by=group)
    groups = olsq.GroupedLeastSquares().fit(whole, Y[:, 0], by=group)
    for cov in ("nonrobust", "cluster"):
        fit, wanted = groups.within(cov), alone.within(cov)
        np.testing.assert_allclose(fit.coef[[0, 2]], wanted.coef, rtol=1e-7)
        np.testing.assert_allclose(fit.stderr[[0, 2]], wanted.stderr, rtol=1e-6)
        assert (fit.coef[1], fit.stderr[1], fit.freedom) == (0.0, np.inf, wanted.freedom)
        assert np.isnan(fit.pvalues[1])
        assert "x1: undetermined; it is constant in every group." in str(fit)
    assert np.isfinite(groups.pooled("cluster").stderr).all()


def test_groups_of_one_row_say_nothing_about_slopes():
    X, Y, _, group = panel()
    fit = olsq.GroupedLeastSquares().fit(X, Y[:, 0], by=np.arange(len(X))).within()
    np.testing.assert_array_equal(fit.stderr, np.inf)
    np.testing.assert_array_equal(fit.coef, 0.0)
    assert fit.freedom == 0.0
    assert np.isnan(fit.r_squared)
    both = np.concatenate([X, X[:5]]), np.concatenate([Y[:, 0], Y[:5, 0]])
    labels = np.concatenate([group, 100 + np.arange(5)])
    fit = olsq.GroupedLeastSquares().fit(*both, by=labels).within()
    wanted = olsq.GroupedLeastSquares().fit(X, Y[:, 0], by=group).within()
    np.testing.assert_allclose(fit.cov_params, wanted.cov_params, rtol=1e-12)


def test_a_known_noise_variance_is_used():
    X, Y, _, group = panel()
    groups = olsq.GroupedLeastSquares(noise_variance=4.0).fit(X, Y[:, 0], by=group)
    fit = groups.within()
    assert (fit.sigma2, fit.freedom) == (4.0, np.inf)
    plain = olsq.GroupedLeastSquares().fit(X, Y[:, 0], by=group).within()
    np.testing.assert_allclose(fit.cov_params / 4.0, plain.cov_params / plain.sigma2, rtol=1e-12)


def test_results_are_values():
    X, Y, _, group = panel(m=2)
    fit = olsq.GroupedLeastSquares().fit(X, Y, by=group).within("cluster")
    again = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(again.cov_params, fit.cov_params)
    assert "target 1" in str(fit.summary())
    assert "<table>" in fit._repr_html_()
    with pytest.raises(AttributeError, match="see fits, one for each target"):
        _ = fit.summary().coef
    with pytest.raises(ValueError, match="level"):
        fit.conf_int(1.5)


LEARNED = {
    "ridge": ({"ridge": 1.0}, {}, "learn the rows with ridge=0.0"),
    "prior": ({"prior": (np.zeros(4), np.eye(4))}, {}, "learn the rows with prior=None"),
    "forgetting": ({"forget": 0.9}, {}, "learn the rows with forget=1"),
    "gates": ({}, {"forget": 0.5}, "learn the rows with forget=1"),
    "half-life": ({"half_life": 5.0}, {}, "no half_life"),
}


@pytest.mark.parametrize("kind", ["pooled", "within"])
@pytest.mark.parametrize("learned", LEARNED)
def test_states_that_do_not_hold_the_moments_are_refused(learned, kind):
    options, of_rows, message = LEARNED[learned]
    X, Y, _, group = panel()
    groups = olsq.GroupedLeastSquares(**options).partial_fit(X, Y[:, 0], by=group, **of_rows)
    with pytest.raises(ValueError, match=f"^{kind} needs groups .*{message}"):
        getattr(groups, kind)()


ASKED = [
    ({"cov": "HC1"}, "groups keep no rows.*learn the rows with by= that key"),
    ({"cov": {"CRV1": "year"}}, "groups keep no rows.*learn the rows with by= that key"),
    ({"cov": "clustered"}, "use 'cluster'"),
    ({"cov": "iid"}, "use 'nonrobust'"),
    ({"effects": "twoway"}, r"effects must be 'group', got 'twoway'.*column of 0 and 1"),
    ({"effects": ["group", "year"]}, "effects must be 'group'"),
]


@pytest.mark.parametrize(("options", "message"), ASKED)
def test_what_groups_cannot_know_is_refused_by_name(options, message):
    X, Y, _, group = panel()
    with pytest.raises(ValueError, match=message):
        olsq.GroupedLeastSquares().fit(X, Y[:, 0], by=group).within(**options)


def test_panels_that_are_none_are_refused():
    X, Y, _, group = panel()
    with pytest.raises(ValueError, match="not fitted"):
        olsq.GroupedLeastSquares().pooled()
    one = olsq.GroupedLeastSquares().fit(X, Y[:, 0], by=np.zeros(len(X)))
    with pytest.raises(ValueError, match=r"at least two groups with rows, got 1: use cov='nonro"):
        one.within("cluster")
    np.testing.assert_allclose(one.within().coef, one.pooled().coef, rtol=1e-11)
    bare = olsq.GroupedLeastSquares(fit_intercept=False).fit(X, Y[:, 0], by=group)
    with pytest.raises(ValueError, match="learn the rows with fit_intercept=True"):
        bare.within()


# -- Fama-MacBeth ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lags", [0, 2])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_fama_macbeth_averages_regressions_of_dates(fit_intercept, lags):
    X, Y, weights, _ = panel(groups=30, m=2)
    n = len(X)
    year = np.random.default_rng(2).permutation(np.arange(n) % 9)
    year[:2] = 50  # too few rows
    fit = olsq.fama_macbeth(X, Y, weights, by=year, lags=lags, fit_intercept=fit_intercept)
    root = np.sqrt(weights)[:, None]
    A = np.column_stack([np.ones(n), X])[:, int(not fit_intercept) :] * root
    each = [np.linalg.lstsq(A[year == t], (Y * root)[year == t])[0].T for t in range(9)]
    each = np.array(each)  # (9, m, k)
    e = each - each.mean(axis=0)
    S = np.einsum("tmi,tmj->mij", e, e)
    for lag in range(1, lags + 1):
        cross = np.einsum("tmi,tmj->mij", e[lag:], e[:-lag])
        S += (1 - lag / (lags + 1)) * (cross + np.swapaxes(cross, 1, 2))
    np.testing.assert_allclose(fit.cov_params, S / (9 * 8), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(fit.coef, each.mean(axis=0)[:, int(fit_intercept) :], rtol=1e-11)
    np.testing.assert_allclose(fit.group_coef, each[:, :, int(fit_intercept) :], rtol=1e-9)
    assert fit.groups == list(range(9))
    assert (fit.n_groups, fit.n_rows, fit.freedom) == (9, n - 2, 8.0)
    assert "1 of 10 dates do not determine the coefficients and are left out." in str(fit)
    assert np.all((fit.r_squared > 0) & (fit.r_squared < 1))


MACBETH = [
    ({"lags": 9}, "lags must be below the number of dates .* 9, got 9"),
    ({"lags": -1}, "lags must be a whole number of dates, 0 or more, got -1"),
    ({"lags": 1.5}, "lags must be a whole number"),
    ({"lags": True}, "lags must be a whole number"),
    ({"by": "rows"}, "no date in by has rows enough"),
    ({"by": "mixed", "lags": 1}, "needs dates in their order"),
]


@pytest.mark.parametrize(("options", "message"), MACBETH)
def test_dates_that_do_not_serve_are_refused(options, message):
    X, Y, _, _ = panel(groups=30)
    year = np.arange(len(X)) % 9
    mixed = ["a" if t < 4 else int(t) for t in year]
    by = {"rows": np.arange(len(X)), "mixed": mixed}.get(options.get("by"), year)
    with pytest.raises(ValueError, match=message):
        olsq.fama_macbeth(X, Y[:, 0], **options | {"by": by})


def test_one_date_has_no_errors():
    X, Y, _, _ = panel(groups=30)
    fit = olsq.fama_macbeth(X, Y[:, 0], by=np.zeros(len(X)))
    np.testing.assert_allclose(fit.coef, olsq.RecursiveLeastSquares().fit(X, Y[:, 0]).coef_)
    np.testing.assert_array_equal(fit.stderr, np.inf)


def test_the_page_runs_and_shows_what_comes_out():
    page = (Path(__file__).parents[2] / "docs" / "panels.md").read_text()
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "panels.md", "docs/panels.md", 0)
    results = doctest.DocTestRunner().run(test)
    assert results.attempted > 10
    assert not results.failed


def test_fama_macbeth_takes_no_text_for_dates_in_order():
    """Text sorts "10/2020" before "2/2020", and each pair of neighbours is another one then."""
    X, Y, _, _ = panel(3, groups=12, most=40)
    months = np.arange(len(X)) % 12
    y = Y[:, 0] + months
    text = np.array([f"{month + 1}/2020" for month in months])
    dates = np.datetime64("2020-01") + months
    pairs = list(zip(text, months, strict=True))
    for labels in (text, text.astype(object), text.astype("S"), pairs):
        with pytest.raises(ValueError, match=re.escape("pandas.to_datetime")):
            olsq.fama_macbeth(X, y, by=labels, lags=2)
    without = olsq.fama_macbeth(X, y, by=text)
    assert without.groups == [f"{month}/2020" for month in range(1, 13)]  # as they appear
    by_date = olsq.fama_macbeth(X, y, by=dates)
    np.testing.assert_array_equal(without.group_coef, by_date.group_coef)
    np.testing.assert_allclose(without.stderr, by_date.stderr, rtol=1e-13)
    numbers = olsq.fama_macbeth(X, y, by=months, lags=2)
    same = olsq.fama_macbeth(X, y, by=dates, lags=2)
    np.testing.assert_array_equal(same.stderr, numbers.stderr)
