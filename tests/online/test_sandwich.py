"""Standard errors under forgetting and weights: exact by the definition, and their coverage."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import olsq
from tests.online import streams

#          method         ridge_mode
METHODS = [("covariance", "discounted"), ("sqrt", "discounted"), ("information", "discounted"),
           ("information", "fixed")]  # fmt: skip


def estimator(method, ridge_mode, ridge=0.2, intercept=True, **parameters):
    return olsq.RecursiveLeastSquares(
        method=method, ridge_mode=ridge_mode, ridge=ridge, fit_intercept=intercept, cov="sandwich",
        **parameters,
    )  # fmt: skip


def by_definition(X, y, gates, weights, ridge, ridge_mode, intercept):
    """sigma2 and standard errors (intercept first) of the last row, from all rows at once.

    The estimate is a linear map of y, ``theta = M y``; for noise of variance sigma2 its variance
    is ``sigma2 M M^T``, and the weighted squares of the residuals ``(I - X M) y`` have the
    expectation ``sigma2 tr((I - X M)^T W (I - X M))``.
    """
    if intercept:
        X = np.insert(X, 0, 1.0, axis=1)
        ridge = np.r_[0.0, ridge]
    w = weights * np.append(np.cumprod(gates[:0:-1])[::-1], 1.0)
    shrink = np.prod(gates) if ridge_mode == "discounted" else 1.0
    M = np.linalg.solve((X.T * w) @ X + shrink * np.diag(ridge), X.T * w)
    rest = np.eye(len(y)) - X @ M
    sigma2 = w @ (rest @ y) ** 2 / np.trace((rest.T * w) @ rest)
    return sigma2, np.sqrt(sigma2 * (M**2).sum(1))


@pytest.mark.full
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "forgetting", ["gates 1", "gates .95", "gates vary", "resets", "weights 0"]
)
@pytest.mark.parametrize(("method", "ridge_mode"), METHODS)
def test_is_the_variance_of_the_estimate(method, ridge_mode, forgetting, intercept, tmp_path):
    """However the rows come: at once, with a path, in parts, saved and resumed, merged."""
    stream = streams.make("ar1", forgetting)
    X, y, gates, weights = stream.X, stream.y[:, 0], stream.gates, stream.weights

    def fed(est, *edges):
        for start, stop in pairwise(edges):
            part = slice(start, stop)
            est.partial_fit(X[part], y[part], weights[part], forget=gates[part])
        return est

    def fresh():
        return estimator(method, ridge_mode, 0.2, intercept)

    path = fresh().partial_fit_path(X, y, weights, forget=gates)
    fed(fresh(), 0, 30).save(tmp_path / "state.olsq")
    found = {
        "at once": fed(fresh(), 0, 48),
        "in parts": fed(fresh(), 0, 1, 2, 20, 31, 48),
        "resumed": fed(olsq.load(tmp_path / "state.olsq"), 30, 48),
        "merged": olsq.merge(fed(fresh(), 0, 25), fed(fresh(), 25, 48)),
    }
    for t in (15, 35, 40, 47):
        seen = slice(0, t + 1)
        sigma2, stderr = by_definition(
            X[seen], y[seen], gates[seen], weights[seen], np.full(3, 0.2), ridge_mode, intercept
        )
        np.testing.assert_allclose(path.sigma2[t], sigma2, rtol=1e-9)
        np.testing.assert_allclose(path.stderr[t], stderr[int(intercept) :], rtol=1e-9)
        if intercept:
            np.testing.assert_allclose(path.intercept_stderr[t], stderr[0], rtol=1e-9)
    for name, est in found.items():
        np.testing.assert_allclose(est.sigma2_, sigma2, rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(
            est.coef_stderr_, stderr[int(intercept) :], rtol=1e-9, err_msg=name
        )


@pytest.mark.parametrize(("method", "ridge_mode"), METHODS[:3])
def test_without_forgetting_or_weights_both_are_ordinary_least_squares(method, ridge_mode):
    X, y = np.random.default_rng(0).standard_normal((50, 3)), np.arange(50.0)
    one = estimator(method, ridge_mode, 0.0).fit(X, y)
    two = olsq.RecursiveLeastSquares(method=method, ridge=0.0).fit(X, y)
    np.testing.assert_allclose(one.sigma2_, two.sigma2_, rtol=1e-10)
    np.testing.assert_allclose(one.coef_stderr_, two.coef_stderr_, rtol=1e-10)
    np.testing.assert_allclose(one.intercept_stderr_, two.intercept_stderr_, rtol=1e-10)


@pytest.mark.parametrize(("method", "ridge_mode"), METHODS[:3])
def test_undetermined_coefficients_have_no_error(method, ridge_mode):
    X = streams.make("collinear", "gates .95").X
    X = np.column_stack([X, np.random.default_rng(3).standard_normal(len(X))])
    y = X[:, 3] + 0.1 * np.random.default_rng(4).standard_normal(len(X))
    est = estimator(method, ridge_mode, 0.0, forget=0.95)
    path = est.partial_fit_path(X, y)
    assert np.isinf(path.stderr[-1, :3]).all()
    kept = [0, 1, 3]  # what is determined is what any regression without the dependent column says
    gates, ones = np.full(len(y), 0.95), np.ones(len(y))
    sigma2, stderr = by_definition(X[:, kept], y, gates, ones, np.zeros(3), "discounted", True)
    np.testing.assert_allclose(path.sigma2[-1], sigma2, rtol=1e-8)
    np.testing.assert_allclose(est.coef_stderr_[3], stderr[3], rtol=1e-8)
    np.testing.assert_allclose(path.stderr[-1, 3], stderr[3], rtol=1e-8)


@pytest.mark.full
@pytest.mark.parametrize("forget", [1.0, 0.99, 0.95])
@pytest.mark.parametrize("weighted", [False, True])
def test_coverage(forget, weighted):
    """300 streams of 4 coefficients; benchmarks/reports/coverage.py has the 2,000 of each kind.

    A band that covers 95 % of the time covers a count that is binomial if coefficients of one
    stream are taken for independent, which the white regressors here make them nearly.  Between
    the two bands there are seven standard deviations under forgetting.
    """
    rng = np.random.default_rng([4, int(100 * forget), weighted])
    streams_, n, d = 300, 250, 3
    covered = {"sandwich": 0, "posterior": 0}
    X = rng.standard_normal((streams_, n, d))
    truth = rng.standard_normal((streams_, d))
    y = np.einsum("snd,sd->sn", X, truth) + 2.0 + rng.standard_normal((streams_, n))
    weights = rng.uniform(0.2, 3.0, (streams_, n)) if weighted else np.ones((streams_, n))
    for cov in covered:
        for s in range(streams_):
            est = olsq.RecursiveLeastSquares(forget=forget, ridge=0.0, cov=cov)
            est.fit(X[s], y[s], weights[s])
            covered[cov] += int(np.sum(np.abs(est.coef_ - truth[s]) < 1.96 * est.coef_stderr_))
            covered[cov] += int(abs(est.intercept_ - 2.0) < 1.96 * est.intercept_stderr_)
    share = {cov: count / (streams_ * (d + 1)) for cov, count in covered.items()}
    deviation = np.sqrt(0.95 * 0.05 / (streams_ * (d + 1)))
    assert abs(share["sandwich"] - 0.95) < 3.3 * deviation, share
    if forget < 1:
        assert share["posterior"] > 0.95 + 4 * deviation, share


def test_what_is_not_offered_says_why():
    X, y = np.eye(4), np.arange(4.0)
    for cov in ("hac", "HAC", "newey-west"):
        with pytest.raises(ValueError, match=r"Newey-West weighs the residuals of all rows"):
            olsq.RecursiveLeastSquares(cov=cov).fit(X, y)
    with pytest.raises(ValueError, match="cov must be one of 'posterior', 'sandwich'"):
        olsq.RecursiveLeastSquares(cov="robust").fit(X, y)
    with pytest.raises(ValueError, match="is for forgetting"):
        olsq.coefficient_path(X, y, window=3, cov="sandwich")
    one = olsq.RecursiveLeastSquares(cov="sandwich").fit(X, y)
    with pytest.raises(ValueError, match="cov differs"):
        olsq.merge(one, olsq.RecursiveLeastSquares().fit(X, y))


@pytest.mark.parametrize("size", [100.0, 1e4])
def test_fewer_rows_than_coefficients_leave_no_degrees_of_freedom(size):
    """What the ridge's second order leaves of them is rounding error, and says so everywhere."""
    rng = np.random.default_rng(0)
    X, y = size * rng.standard_normal((2, 2)), rng.standard_normal(2)
    for weights in (np.ones(2), np.array([1.0, 2.0])):
        for method, ridge_mode in METHODS:
            est = estimator(method, ridge_mode, 0.5).fit(X, y, weights)
            assert np.isposinf([est.sigma2_, *est.coef_stderr_]).all()
        path = olsq.coefficient_path(
            X, y, sample_weight=weights, ridge=0.5, cov="sandwich", fit_intercept=True
        )
        assert np.isposinf([path.sigma2[-1], *path.stderr[-1]]).all()
