"""A prior: the conjugate posterior by dense algebra, answers before the first row, refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import olsq

METHODS = ["covariance", "sqrt", "information"]


def data(n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * [1.0, 5.0, 0.2][:d]
    return X, X @ [1.0, -1.0, 2.0][:d] + 3 + 0.3 * rng.standard_normal(n)


def prior_of(k, seed=1):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((k, 2 * k)) * np.geomspace(1, 1e3, k)[:, None]
    return rng.standard_normal(k), A @ A.T


def posterior(X, y, gates, mean, covariance):
    """Mean and sigma2 with the prior forgotten like the rows (Gelman et al. 2013, 14.2)."""
    X = np.insert(X, 0, 1.0, axis=1)
    after = np.append(np.cumprod(gates[:0:-1])[::-1], 1.0)
    first, precision = np.prod(gates), np.linalg.inv(covariance)
    information = (X.T * after) @ X + first * precision
    theta = np.linalg.solve(information, (X.T * after) @ y + first * precision @ mean)
    loss = after @ (y - X @ theta) ** 2 + first * (theta - mean) @ precision @ (theta - mean)
    return theta, loss


@pytest.mark.parametrize("forget", [1.0, 0.9])
@pytest.mark.parametrize("method", METHODS)
def test_is_the_conjugate_posterior(method, forget, tmp_path):
    X, y = data()
    prior = prior_of(4)
    est = olsq.RecursiveLeastSquares(prior=prior, method=method, forget=forget)
    path = est.partial_fit_path(X, y)
    theta, loss = posterior(X, y, np.full(40, forget), *prior)
    np.testing.assert_allclose(est.coef_, theta[1:], rtol=1e-9)
    np.testing.assert_allclose(est.intercept_, theta[0], rtol=1e-9)
    early, _ = posterior(X[:2], y[:2], np.full(2, forget), *prior)
    np.testing.assert_allclose(path.coef[1], early[1:], rtol=1e-7)
    if forget == 1:
        np.testing.assert_allclose(est.sigma2_, loss / 40, rtol=1e-9)
    assert est.n_samples_seen_ == 40
    est.save(tmp_path / "s.olsq")
    loaded = olsq.load(tmp_path / "s.olsq")
    for other in (loaded, pickle.loads(pickle.dumps(est))):
        other.partial_fit(X[:3], y[:3])
    np.testing.assert_array_equal(loaded.coef_, est.partial_fit(X[:3], y[:3]).coef_)


@pytest.mark.parametrize("method", METHODS)
def test_moments_of_other_rows_are_a_prior(method):
    X, y = data()
    other = olsq.RecursiveLeastSquares(ridge=0.0, method="information").fit(X[:15], y[:15])
    est = olsq.RecursiveLeastSquares(prior=other.moments(), method=method).fit(X[15:], y[15:])
    whole = olsq.RecursiveLeastSquares(ridge=0.0).fit(X, y)
    np.testing.assert_allclose(est.coef_, whole.coef_, rtol=1e-9)
    # Two rows say something about two directions of four.
    few = olsq.RecursiveLeastSquares(ridge=0.0, method="information").fit(X[:2], y[:2])
    est = olsq.RecursiveLeastSquares(prior=few.moments(), method=method).fit(X[2:], y[2:])
    np.testing.assert_allclose(est.coef_, whole.coef_, rtol=1e-8)
    np.testing.assert_allclose(est.sigma2_, whole.sigma2_, rtol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_known_of_some(method):
    """An infinite variance is no information: here, ordinary least squares except for one slope."""
    X, y = data()
    prior = [0.0, 0.0, -1.0, 0.0], [np.inf, np.inf, 1e-18, np.inf]
    est = olsq.RecursiveLeastSquares(prior=prior, method=method).fit(X, y)
    rest = olsq.RecursiveLeastSquares(ridge=0.0).fit(X[:, [0, 2]], y + X[:, 1])
    np.testing.assert_allclose(est.coef_, [rest.coef_[0], -1.0, rest.coef_[1]], rtol=1e-6)


def test_answers_before_the_first_row():
    mean, covariance = prior_of(4)
    est = olsq.RecursiveLeastSquares(prior=(mean, covariance))
    new = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    whole = np.insert(new, 0, 1.0, axis=1)
    np.testing.assert_allclose(est.predict(new), whole @ mean, rtol=1e-12)
    np.testing.assert_allclose(est.leverage(new), ((whole @ covariance) * whole).sum(1), rtol=1e-9)
    assert np.isinf(est.predict_interval(new)[1]).all()  # no row says how large the noise is
    draws = est.sample_coef(0, size=50_000, sigma2=1.0)
    scale = np.sqrt(np.diagonal(covariance))[1:]
    assert (
        np.abs(np.cov((draws / scale).T) - covariance[1:, 1:] / np.outer(scale, scale)).max() < 0.03
    )
    prediction, residual = est.step(new[0], 5.0)
    assert prediction == pytest.approx(whole[0] @ mean)
    assert residual == pytest.approx(5 - prediction)
    assert est.n_samples_seen_ == 1
    assert not hasattr(olsq.RecursiveLeastSquares(prior=(mean, covariance)), "coef_")


def test_several_targets():
    X, y = data()
    means, covariance = np.vstack([prior_of(4)[0], np.zeros(4)]), prior_of(4)[1]
    est = olsq.RecursiveLeastSquares(prior=(means, covariance)).fit(X, np.column_stack([y, -y]))
    for j, target in enumerate((y, -y)):
        alone = olsq.RecursiveLeastSquares(prior=(means[j], covariance)).fit(X, target)
        np.testing.assert_allclose(est.coef_[j], alone.coef_, rtol=1e-10)
        np.testing.assert_allclose(est.sigma2_[j], alone.sigma2_, rtol=1e-10)


def test_merging_counts_the_prior_once():
    X, y = data()
    prior = prior_of(4)
    whole = olsq.RecursiveLeastSquares(prior=prior, forget=0.95).fit(X, y)
    first = olsq.RecursiveLeastSquares(prior=prior, forget=0.95).fit(X[:25], y[:25])
    second = olsq.RecursiveLeastSquares(forget=0.95).fit(X[25:], y[25:])
    merged = olsq.merge(first, second)
    np.testing.assert_allclose(merged.coef_, whole.coef_, rtol=1e-9)
    np.testing.assert_allclose(merged.sigma2_, whole.sigma2_, rtol=1e-9)
    np.testing.assert_allclose(
        merged.partial_fit(X, y).coef_, whole.partial_fit(X, y).coef_, rtol=1e-9
    )
    with pytest.raises(ValueError, match="began from a prior"):
        olsq.merge(second, first)


def test_a_prior_is_a_parameter_like_others():
    prior = prior_of(4)
    est = clone(olsq.RecursiveLeastSquares(prior=prior))
    X, y = data()
    est.fit(X, y).partial_fit(X, y)
    est.prior = (prior[0] + 1, prior[1])
    with pytest.raises(ValueError, match="prior is"):
        est.partial_fit(X, y)
    assert "prior=" in repr(est)


@pytest.mark.parametrize(
    ("prior", "error", "message"),
    [
        (3.0, TypeError, "must be a pair"),
        ((np.zeros(4), np.eye(3)), ValueError, "must have shape"),
        ((np.full(4, np.nan), np.eye(4)), ValueError, "mean must be finite"),
        ((np.zeros(4), -np.eye(4)), ValueError, "positive definite"),
        ((np.zeros(4), [1.0, 1.0, 0.0, 1.0]), ValueError, "positive definite"),
        ((np.zeros(4), np.ones((4, 4))), ValueError, "positive definite"),
        ((np.zeros(4), np.triu(np.ones((4, 4)))), ValueError, "symmetric"),
        ((np.zeros(4), np.full((4, 4), np.inf)), ValueError, "symmetric matrix of finite"),
        ((np.zeros(3), np.eye(3)), ValueError, "3 coefficients"),
        ((np.zeros((2, 4)), np.eye(4)), ValueError, "2 targets"),
    ],
)
def test_what_is_no_prior(prior, error, message):
    X, y = data()
    est = olsq.RecursiveLeastSquares(prior=prior)
    with pytest.raises(error, match=message):
        est.fit(X, y)
    assert not hasattr(est, "coef_")


@pytest.mark.parametrize("other", [{"ridge_mode": "fixed"}, {"cov": "sandwich"}])
def test_what_does_not_go_with_it(other):
    X, y = data()
    with pytest.raises(ValueError, match="cannot be combined"):
        olsq.RecursiveLeastSquares(prior=prior_of(4), **other).fit(X, y)


@pytest.mark.parametrize("ridge", [np.inf, np.nan, -1.0, [1.0, 2.0, 3.0]])
@pytest.mark.parametrize("make", [olsq.RecursiveLeastSquares, olsq.GroupedLeastSquares])
def test_a_ridge_that_a_prior_replaces_is_checked_all_the_same(make, ridge):
    """A file with it could not be loaded."""
    est = make(ridge=ridge, prior=(np.zeros(3), np.eye(3)))
    by = {} if make is olsq.RecursiveLeastSquares else {"by": ["a"]}
    with pytest.raises(ValueError, match="ridge must be"):
        est.fit([[1.0, 2.0]], [1.0], **by)


def test_intervals_of_new_groups_are_those_of_an_estimator_before_its_first_row():
    rng = np.random.default_rng(8)
    X, y, new = rng.standard_normal((9, 2)), rng.standard_normal(9), rng.standard_normal((3, 2))
    options = {"fit_intercept": False, "prior": (np.ones(2), np.eye(2)), "noise_variance": 2.0}
    groups = olsq.GroupedLeastSquares(**options)
    for _ in range(2):  # before any group has a row, and beside others
        for kind in ("observation", "mean"):
            want = olsq.RecursiveLeastSquares(**options).predict_interval(new, kind=kind)
            found = groups.predict_interval(new, kind=kind, by=["new"] * 3)
            np.testing.assert_allclose(found, want, rtol=1e-13)
        groups.partial_fit(X, y, by=np.repeat([0, 1, 2], 3))
