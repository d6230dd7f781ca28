"""A column that has had one value in every row is an intercept, as in statsmodels."""

import copy
import pickle

import numpy as np
import pytest
import statsmodels.api as sm

import olsq

N = 80


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 3))
    X[:, 1] = -2.5
    y = X @ [1.0, 2.0, -0.5] + 1e3 + rng.standard_normal(N)
    return X, y, rng.random(N) + 0.2


def make(**options):
    return olsq.RecursiveLeastSquares(**({"fit_intercept": False} | options))


def same(estimator, theirs):
    found = estimator.summary()
    numbers = found.r_squared, found.adjusted_r_squared, found.f_statistic, found.f_pvalue
    expected = theirs.rsquared, theirs.rsquared_adj, theirs.fvalue, theirs.f_pvalue
    np.testing.assert_allclose(numbers, expected, rtol=1e-7)


def by_rows(X, y):
    est = make()
    for t in range(len(X)):
        est.partial_fit(X[t : t + 1], y[t : t + 1])
    return est


def by_steps(X, y):
    est = make()
    for t in range(len(X)):
        est.step(X[t], y[t])
    return est


def late(X, y):
    """Begun by rows that cannot be learned, and saved then."""
    est = make().partial_fit(np.full((2, 3), np.nan), [1.0, 2.0])
    return olsq.loads(est.to_bytes()).partial_fit(X, y)


WAYS = {
    "at once": lambda X, y: make().fit(X, y),
    "sqrt": lambda X, y: make(method="sqrt").fit(X, y),
    "information": lambda X, y: make(method="information").fit(X, y),
    "row by row": by_rows,
    "steps": by_steps,
    "saved": lambda X, y: olsq.loads(make().fit(X[:9], y[:9]).to_bytes()).partial_fit(X[9:], y[9:]),
    "copied": lambda X, y: copy.copy(make().fit(X, y)),
    "pickled": lambda X, y: pickle.loads(pickle.dumps(make().fit(X, y))),
    "merged": lambda X, y: olsq.merge(make().fit(X[:30], y[:30]), make().fit(X[30:], y[30:])),
    "late": late,
}


@pytest.mark.parametrize("way", WAYS)
def test_r_squared_and_f_are_statsmodels(way):
    X, y, _ = data()
    same(WAYS[way](X, y), sm.OLS(y, X).fit())
    X[30:, 1] = 2.5  # of one size, and no intercept
    same(WAYS[way](X, y), sm.OLS(y, X).fit())


def test_weights_windows_and_skipped_rows():
    X, y, w = data()
    same(make().fit(X, y, w), sm.WLS(y, X, w).fit())
    window = olsq.RollingLeastSquares(window=30, fit_intercept=False).fit(X, y)
    same(window, sm.OLS(y[-30:], X[-30:]).fit())
    theirs = sm.WLS(np.delete(y, [3, 7, 9]), np.delete(X, [3, 7, 9], 0), np.delete(w, [3, 7, 9]))
    X[[3, 7, 9], 1] = [np.nan, 5.0, 6.0]
    y[7], w[9] = np.nan, 0.0
    same(make().fit(X, y, w), theirs.fit())


@pytest.mark.parametrize("mode", ["discounted", "fixed"])
def test_under_forgetting_and_a_ridge_it_is_the_share_of_the_spread_about_the_mean(mode):
    X, y, w = data()
    y -= 1e3
    est = make(forget=0.97, ridge=2.0, ridge_mode=mode).fit(X, y, w)
    weights = w * 0.97 ** np.arange(N)[::-1]
    about = y - (weights @ y) / weights.sum()
    share = 1 - (weights @ (y - X @ est.coef_) ** 2) / (weights @ about**2)
    assert est.summary().r_squared == pytest.approx(share, rel=1e-9)


def test_states_that_cannot_know_it_say_nothing():
    X, y, _ = data()
    plain = 1 - ((y - X @ make().fit(X, y).coef_) ** 2).sum() / (y @ y)
    began = make(prior=(np.zeros(3), np.full(3, 1e12))).fit(X, y)
    assert began.summary().r_squared == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize("forget", [1.0, 0.95])
@pytest.mark.parametrize("cut", [9, 10, 12])
def test_paths_in_pieces_know_it_where_a_piece_begins_with_missing_rows(cut, forget):
    X, y, _ = data()
    y[9:12] = np.nan
    whole = make(forget=forget).partial_fit_path(X, y)
    est = make(forget=forget)
    pieces = [est.partial_fit_path(X[:cut], y[:cut]), est.partial_fit_path(X[cut:], y[cut:])]
    for name in ("r_squared", "adj_r_squared"):
        together = np.concatenate([getattr(piece, name) for piece in pieces])
        np.testing.assert_allclose(together, getattr(whole, name), rtol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.01, 3.0])
@pytest.mark.parametrize("weight", [1.0, 1e-6, 7e5])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("intercept", [False, True])
def test_targets_that_agree_have_no_share_of_a_spread(intercept, rows, weight, ridge):
    """After one row, or rows of one target, the squares about the mean are rounding errors."""
    X, y, _ = data()
    y[:rows], y[rows : rows + 2] = 3.24, np.nan
    weights = np.full(len(y), weight)
    options = {"ridge": ridge * weight, "forget": 0.95, "fit_intercept": intercept}
    X = X[:, [0, 2]] if intercept else X
    whole = make(**options).partial_fit_path(X, y, weights)
    est = make(**options).partial_fit(X[:rows], y[:rows], weights[:rows])
    found = est.partial_fit_path(X[rows:], y[rows:], weights[rows:]).r_squared
    assert np.isnan(found[:2]).all()
    np.testing.assert_allclose(found[3:], whole.r_squared[rows + 3 :], rtol=1e-8)


# -- a spread that is rounding error is 0 ------------------------------------------------------


def cut(X, y, w, share):
    h = int(len(y) * share)
    return (X[:h], y[:h], w[:h]), (X[h:], y[h:], w[h:])


NETS = {
    "fit": lambda net, *rows: net.fit(*rows).coef_,
    "path": lambda net, *rows: net.partial_fit_path(*rows).coef[-1],
    "saved": lambda net, *rows: (
        olsq.loads(net.fit(*cut(*rows, 0.5)[0]).to_bytes()).partial_fit(*cut(*rows, 0.5)[1]).coef_
    ),
    "merged": lambda net, *rows: (
        olsq.merge(*(copy.copy(net).fit(*part) for part in cut(*rows, 0.4))).coef_
    ),
}


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:the duality gap")
@pytest.mark.parametrize("way", NETS)
@pytest.mark.parametrize("seed", range(24))
def test_an_elastic_net_is_what_it_is_without_columns_that_do_not_vary(way, seed):
    rng = np.random.default_rng(seed)
    n, d, q = rng.integers([20, 1, 1], [150, 5, 3])
    x = rng.normal(5 * rng.standard_normal(), 1.0, (n, d))
    y = x @ rng.standard_normal(d) + 1 + rng.standard_normal(n)
    constants = np.tile(rng.standard_normal(q) * 10.0 ** rng.integers(-8, 9, q), (n, 1))
    if seed % 2:  # by a rounding
        constants = np.where(rng.random((n, q)) < 0.5, constants, np.nextafter(constants, np.inf))
    order = rng.permutation(d + q)
    options = {
        "alpha": [0.0, 0.01, 0.1][seed % 3],
        "l1_ratio": [0.0, 0.5, 1.0][rng.integers(3)],
        "standardize": seed % 4 < 2 or seed % 3 == 0,
        "forget": [1.0, 0.95][rng.integers(2)],
    }
    weights = rng.random(n) + 0.2 if rng.integers(2) else np.ones(n)

    def coefficients(X):
        return NETS[way](olsq.OnlineElasticNet(**options), X, y, weights)

    found = coefficients(np.hstack([x, constants])[:, order])[np.argsort(order)]
    tolerance = 1e-4 if seed % 5 == 0 else 1e-8
    np.testing.assert_allclose(found[:d], coefficients(x), rtol=tolerance, atol=tolerance)
    assert not found[d:].any()


@pytest.mark.parametrize("value", [0.1, 1.0, 2.5])
def test_an_elastic_net_of_standardised_regressors_and_a_constant(value):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.normal(3.0, 1.0, 100)
        y = 2 * x + 1 + rng.standard_normal(100)
        X = np.column_stack([x, np.full(100, value)])
        # scikit-learn's ElasticNet of x / x.std(), by its closed form for one regressor
        spread, slope = x.std(), np.cov(x, y, bias=True)[0, 1] / x.var()
        expected = (slope * spread - 0.05) / (1 + 0.05) / spread
        est = olsq.OnlineElasticNet(alpha=0.1, standardize=True)
        np.testing.assert_allclose(est.fit(X, y).coef_, [expected, 0.0], rtol=1e-10)
        plain = olsq.OnlineElasticNet(alpha=0.0).fit(X, y).coef_
        np.testing.assert_allclose(plain, [slope, 0.0], rtol=1e-10)


SHARES = {
    **{
        f"{method}, {forget}": lambda X, y, key, method=method, forget=forget: (
            olsq.RecursiveLeastSquares(method=method, forget=forget).fit(X, y).summary().r_squared
        )
        for method in ("covariance", "sqrt", "information")
        for forget in (1.0, 0.95)
    },
    **{
        f"{method}, a column of 1": lambda X, y, key, method=method: (
            make(method=method).fit(np.c_[X, np.ones(len(y))], y).summary().r_squared
        )
        for method in ("covariance", "sqrt", "information")
    },
    "window": lambda X, y, key: olsq.RollingLeastSquares(window=30).fit(X, y).summary().r_squared,
    "path": lambda X, y, key: olsq.RecursiveLeastSquares().partial_fit_path(X, y).r_squared,
    "window's path": lambda X, y, key: (
        olsq.coefficient_path(X, y, fit_intercept=True, window=30).r_squared
    ),
    "window's path by key": lambda X, y, key: (
        olsq.coefficient_path(X, y, fit_intercept=True, window=15, by=key).r_squared
    ),
    "pooled": lambda X, y, key: olsq.GroupedLeastSquares().fit(X, y, by=key).pooled().r_squared,
    "within": lambda X, y, key: olsq.GroupedLeastSquares().fit(X, y, by=key).within().r_squared,
    "Fama-MacBeth": lambda X, y, key: olsq.fama_macbeth(X, y, by=key).r_squared,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("door", SHARES)
def test_targets_that_differ_by_roundings_have_no_share_of_a_spread(door, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 600))
    key = np.arange(n) // 20
    X = rng.normal(3 * rng.standard_normal(), 1.0, (n, 3))
    y = np.full(n, rng.standard_normal() * 10.0 ** rng.integers(-3, 7))
    assert np.isnan(SHARES[door](X, y, key)).all()
    if door in ("within", "Fama-MacBeth"):  # which compare with each group's own mean
        assert np.isnan(SHARES[door](X, rng.standard_normal(key[-1] + 1)[key], key))
    y *= 1 + 1e-9 * rng.standard_normal(n)  # no rounding error
    if "information" not in door and door != "covariance, a column of 1":
        assert np.isfinite(SHARES[door](X, y, key)).any()


def test_dates_whose_targets_agree_are_no_part_of_the_mean_share():
    rng = np.random.default_rng(0)
    X, dates = rng.standard_normal((200, 2)), np.arange(200) // 20
    y = np.where(dates < 5, X[:, 0] + rng.standard_normal(200), 0.1)
    half = olsq.fama_macbeth(X[:100], y[:100], by=dates[:100])
    assert olsq.fama_macbeth(X, y, by=dates).r_squared == pytest.approx(half.r_squared, rel=1e-12)
