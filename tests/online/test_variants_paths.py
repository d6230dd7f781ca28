"""A solution after every row in one compiled loop: that of the rows one by one, and of SciPy."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.linear_model import ElasticNet

import olsq
from olsq.online.variants import active_set, constrained

N, D = 40, 4
BOUNDED = olsq.ConstrainedLeastSquares(bounds="nonnegative", forget=0.95, ridge=0.0)
EQUATION = olsq.ConstrainedLeastSquares(
    equality=(np.ones(D), 1.0), bounds=(-0.5, 1.0), forget=0.95, fit_intercept=False
)
SPARSE = olsq.OnlineElasticNet(0.05, l1_ratio=0.8, forget=0.95)
STANDARD = olsq.OnlineElasticNet(0.1, standardize=True, fit_intercept=False, forget=0.95)
TOTAL = olsq.TotalLeastSquares([1.0, 2.0, 1.0, 1.0], forget=0.95)
WALKED = [BOUNDED, EQUATION, SPARSE, STANDARD, TOTAL]
KINDS = ["white", "units", "collinear", "quiet", "repeated"]


def stream(kind):
    """X (n, d), y, weights (some of them 0) and factors (one of them 0)."""
    rng = np.random.default_rng(KINDS.index(kind))
    X = rng.standard_normal((N, D))
    if kind == "units":
        X *= [1e-5, 1.0, 1e5, 1e2]
    elif kind == "collinear":
        X[:, 1] = X[:, 0] + 1e-6 * X[:, 1]
    elif kind == "quiet":
        X[15:, 2] = 0.0
    elif kind == "repeated":
        X = X[[0, 1, 2, 3, 4] * 8]
    y = X @ (np.array([1.0, -0.5, 0.4, 0.0]) / np.abs(X).max(0)) + 0.2 * rng.standard_normal(N) + 1
    weight, forget = rng.uniform(0.2, 2.0, N), np.full(N, 0.95)
    weight[[5, 20]], forget[28] = 0.0, 0.0
    return X, y, weight, forget


@pytest.mark.full
@pytest.mark.parametrize("estimator", WALKED, ids=repr)
def test_a_path_is_the_rows_one_by_one(estimator):
    for kind in KINDS:
        X, y, weight, forget = stream(kind)
        X[7, 1] = y[9] = np.nan
        est, one = clone(estimator), clone(estimator)
        parts = [
            est.partial_fit_path(X[a:b], y[a:b], weight[a:b], forget=forget[a:b])
            for a, b in ((0, 11), (11, 11), (11, N))
        ]
        coef, intercept, residual = (
            np.concatenate([getattr(p, f) for p in parts])
            for f in ("coef", "intercept", "residual")
        )
        size = np.nanmax(np.abs(X), 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # residuals of NaN
            for t in range(N):
                before = one.predict(X[t : t + 1])[0] if t else 0.0
                one.partial_fit(X[t : t + 1], y[t : t + 1], weight[t : t + 1], forget=forget[t])
                np.testing.assert_allclose(coef[t] * size, one.coef_ * size, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(intercept[t], one.intercept_, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(residual[t], y[t] - before, rtol=1e-7, atol=1e-8)
        assert est.n_samples_seen_ == one.n_samples_seen_
        np.testing.assert_array_equal(est.coef_, one.coef_)
        assert np.isnan(parts[0].stderr).all()


def test_paths_against_fresh_solutions_of_scipy_and_scikit_learn():
    for kind in ("white", "units", "quiet"):
        X, y, weight, _ = stream(kind)
        bounded = clone(BOUNDED).partial_fit_path(X, y, weight)
        sparse = clone(SPARSE).partial_fit_path(X, y, weight)
        net = ElasticNet(0.05, l1_ratio=0.8, tol=1e-13, max_iter=100_000)
        for t in range(8, N, 7):
            zeta = (weight * 0.95 ** (t - np.arange(N)))[: t + 1]
            rows, target = X[: t + 1], y[: t + 1]
            root, mean = np.sqrt(zeta)[:, None], zeta @ rows / zeta.sum()
            A, b = (rows - mean) * root, (target - zeta @ target / zeta.sum()) * root[:, 0]
            length = np.linalg.norm(A, axis=0)
            want = nnls(A / length, b)[0]
            np.testing.assert_allclose(bounded.coef[t] * length, want, rtol=1e-9, atol=1e-9)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # scikit-learn does not get to 1e-13 everywhere
                net.fit(rows, target, zeta)
            np.testing.assert_allclose(sparse.coef[t] * length, net.coef_ * length, atol=1e-7)


def test_targets_that_miss_rows_and_what_has_no_path():
    X, y, weight, _ = stream("white")
    Y = np.column_stack([y, -y, y**2])
    Y[13, 1] = np.nan
    for estimator in (BOUNDED, SPARSE):
        est = clone(estimator).set_params(missing="skip_target")
        path = est.partial_fit_path(X, Y, weight)
        for k in range(3):
            alone = clone(estimator).partial_fit_path(X, Y[:, k], weight)
            np.testing.assert_allclose(path.coef[:, k], alone.coef, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(path.residual[:, k], alone.residual, rtol=1e-9, atol=1e-10)
    with pytest.raises(NotImplementedError, match="has no path"):
        olsq.RobustLeastSquares().partial_fit_path(X, y)


def test_a_path_that_fails_changes_nothing():
    X, y, *_ = stream("white")
    fresh = clone(BOUNDED)
    with pytest.raises(ValueError, match="sample_weight"):
        fresh.partial_fit_path(X, y, -np.ones(N))
    assert not hasattr(fresh, "coef_")
    path = fresh.partial_fit_path(np.full((2, D), np.nan), y[:2])
    assert np.isnan(path.residual).all()
    est = clone(BOUNDED).fit(X[:9], y[:9])
    before = copy.deepcopy(est)
    with pytest.raises(ValueError, match="forget"):
        est.partial_fit_path(X, y, forget=2.0)
    est.partial_fit(X[9:], y[9:])
    np.testing.assert_array_equal(est.coef_, before.partial_fit(X[9:], y[9:]).coef_)
    assert not est.__dict__.get("_recorder")


def test_usual_problems_are_solved_where_rows_are_learned(monkeypatch):
    def refused(*_):
        raise AssertionError("a usual problem left the kernel, or had several minimisers")

    monkeypatch.setattr(active_set, "shortest", refused)
    X, y, weight, _ = stream("white")
    for estimator in WALKED:  # the first search of equations begins in a corner
        est = clone(estimator).partial_fit(X, y, weight)
        assert np.isfinite(est.coef_).all()
        assert np.isfinite(est.partial_fit(-X, y[::-1], weight).coef_).all()
        with monkeypatch.context() as patch:
            patch.setattr(constrained, "solve", refused)
            assert np.isfinite(est.partial_fit_path(X, y[::-1], weight).coef).all()
