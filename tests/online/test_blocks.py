"""Rows are taken in blocks in several places: none is lost, doubled or moved at an edge."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.online.calls import call
from olsq.reference import regression as oracle

EDGES = [1, 63, 64, 65, 127, 128, 129, 200]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n", EDGES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: olsq.RecursiveLeastSquares(method="covariance", fit_intercept=False, ridge=1e-3),
        lambda: olsq.RecursiveLeastSquares(
            method="sqrt", fit_intercept=False, ridge=1e-3, cov="sandwich"
        ),
        lambda: olsq.RecursiveLeastSquares(ridge_mode="fixed", fit_intercept=False, ridge=1e-3),
        lambda: olsq.RecursiveLeastSquares(
            ridge_mode="fixed", fit_intercept=False, ridge=1e-3, residuals=False
        ),
        lambda: olsq.RollingLeastSquares(window=70, fit_intercept=False, ridge=1e-3),
        lambda: olsq.RollingLeastSquares(
            window=70, fit_intercept=False, ridge=1e-3, window_of="positions"
        ),
    ],
)
def test_every_row_is_learned_once(make, n, missing, monkeypatch):
    monkeypatch.setattr(call, "BLOCK_ENTRIES", 128)  # 64 rows
    rng = np.random.default_rng(n)
    X, y = rng.integers(-8, 9, (n, 2)).astype(float), rng.integers(-8, 9, n).astype(float)
    usable = np.ones(n, bool)
    if missing:
        usable = rng.random(n) < 0.9
        usable[0] = True
        y[~usable] = np.nan
    est = make().partial_fit(X[:1], y[:1]).partial_fit(X[1:], y[1:])
    kept = np.flatnonzero(usable)
    if isinstance(est, olsq.RollingLeastSquares):
        kept = kept[kept >= n - 70] if est.window_of == "positions" else kept[-70:]
    fixed = getattr(est, "ridge_mode", "discounted") == "fixed"
    gram = est.moments().gram - (0.0 if fixed else 1e-3) * np.eye(2)  # the ridge
    np.testing.assert_allclose(gram, X[kept].T @ X[kept], rtol=0, atol=1e-7)
    np.testing.assert_allclose(est.moments().cross[0], y[kept] @ X[kept], rtol=0, atol=1e-7)
    assert est.n_samples_seen_ == usable.sum()
    whole = make().partial_fit_path(X, y)
    np.testing.assert_allclose(whole.coef[-1], est.coef_, rtol=1e-7)
    # A-priori errors, from the coefficients after the row before.
    before = np.vstack([np.zeros(2), whole.coef[:-1]])
    np.testing.assert_allclose(whole.residual, y - (X * before).sum(1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [39, 40, 41, 43, 48, 63])
@pytest.mark.parametrize("forget", [1.0, 0.97])
def test_paths_of_wide_models(n, forget):
    rng = np.random.default_rng(n)
    d = 26
    X, weights = rng.standard_normal((n, d)), rng.uniform(0.5, 2.0, n)
    Y = X @ rng.standard_normal((d, 2)) + rng.standard_normal((n, 2))
    est = olsq.RecursiveLeastSquares(forget=forget, ridge=0.5, fit_intercept=False)
    path = est.partial_fit_path(X, Y, weights)
    gates, ridge = np.full(n, forget), np.full(d, 0.5)
    truth = oracle.coefficient_path(X, Y, gates=gates, weights=weights, ridge=ridge)
    np.testing.assert_allclose(path.coef, truth.coef, rtol=0, atol=1e-9)
    np.testing.assert_allclose(path.residual, truth.residual, rtol=0, atol=1e-8)
    np.testing.assert_allclose(est.coef_, truth.coef[-1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(est._engine.form.loss, truth.loss[-1], rtol=1e-8)


WITHOUT_ROWS = {
    "recursive": lambda: olsq.RecursiveLeastSquares(),
    "fixed ridge": lambda: olsq.RecursiveLeastSquares(ridge_mode="fixed", ridge=1.0),
    "by target": lambda: olsq.RecursiveLeastSquares(missing="skip_target"),
    "time": lambda: olsq.RecursiveLeastSquares(half_life="3D"),
    "rolling": lambda: olsq.RollingLeastSquares(4),
    "rolling time": lambda: olsq.RollingLeastSquares("4D"),
    "total": lambda: olsq.TotalLeastSquares(),
    "elastic net": lambda: olsq.OnlineElasticNet(alpha=0.1),
}


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (kind, dtype)
        for kind, make in WITHOUT_ROWS.items()
        for dtype in ("float64", "complex128", "float32")
        if dtype != "complex128" or make().TAKES_COMPLEX
    ],
)
def test_a_block_of_no_rows_changes_nothing(kind, dtype):
    rng, make = np.random.default_rng(0), WITHOUT_ROWS[kind]
    X, y = (rng.standard_normal(size).astype(dtype) for size in ((12, 2), (12, 2)))
    if dtype == "complex128":
        X, y = X + 1j * X[::-1], y - 1j * y[::-1]
    days = np.datetime64("2024-01-01") + np.arange(12)

    def learn(est, start, stop, path=False):
        times = {"times": days[start:stop]} if "time" in kind else {}
        learn_rows = est.partial_fit_path if path else est.partial_fit
        return learn_rows(X[start:stop], y[start:stop], **times)

    one = learn(learn(make(), 0, 6), 6, 12)
    begun = olsq.loads(learn(make(), 0, 0).to_bytes())
    midway = learn(learn(learn(make(), 0, 6), 0, 0), 6, 12)
    for est in (learn(learn(begun, 0, 6), 6, 12), midway):
        np.testing.assert_array_equal(est.coef_, one.coef_)
        np.testing.assert_array_equal(est.intercept_, one.intercept_)
        assert est.n_samples_seen_ == 12
    for est in (make(), one):
        path = learn(est, 0, 0, path=True)
        assert path.coef.shape == path.stderr.shape == (0, 2, 2)
        assert path.coef.dtype == dtype
        assert path.residual.shape == path.sigma2.shape == (0, 2)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("times", [False, True])
@pytest.mark.parametrize("kind", ["recursive", "rolling"])
def test_a_block_of_no_rows_changes_no_group(kind, times, first):
    rng = np.random.default_rng(1)
    X, y, by = rng.standard_normal((12, 2)), rng.standard_normal(12), np.arange(12) % 3
    make = {
        ("recursive", False): olsq.GroupedLeastSquares,
        ("recursive", True): lambda: olsq.GroupedLeastSquares(half_life=5.0),
        ("rolling", False): lambda: olsq.GroupedRollingLeastSquares(3),
        ("rolling", True): lambda: olsq.GroupedRollingLeastSquares(5.0),
    }[kind, times]

    def learn(groups, start, stop):
        rows = slice(start, stop)
        more = {"times": np.arange(12.0)[rows]} if times else {}
        return groups.partial_fit(X[rows], y[rows], by=by[rows], **more)

    one = learn(learn(make(), 0, 6), 6, 12)
    parts = [(0, 0), (0, 6), (6, 12)] if first else [(0, 6), (0, 0), (6, 12)]
    groups = make()
    for part in parts:
        groups = olsq.loads(learn(groups, *part).to_bytes())
        assert groups.predict(X[:0], by=[]).shape == (0,)
    np.testing.assert_array_equal(groups.coef_, one.coef_)
    np.testing.assert_array_equal(groups.n_samples_seen_, one.n_samples_seen_)
    assert groups.keys() == one.keys()


def test_fit_and_paths_of_no_rows_are_refused():
    X, y = np.empty((0, 2)), np.empty(0)
    for learn in (
        lambda: olsq.RecursiveLeastSquares().fit(X, y),
        lambda: olsq.RollingLeastSquares(3).fit(X, y),
        lambda: olsq.GroupedLeastSquares().fit(X, y, by=[]),
        lambda: olsq.GroupedRollingLeastSquares(3).fit(X, y, by=[]),
        lambda: olsq.coefficient_path(X, y),
    ):
        with pytest.raises(ValueError, match=r"0 sample\(s\)"):
            learn()
