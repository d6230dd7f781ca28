"""A known noise variance: standard errors, intervals and tests by dense algebra and statsmodels."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import olsq

NOISE = 0.25
QUANTILE = 1.959963984540054  # of the normal distribution, at 95 %


def rows(n=60, d=3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, X @ [1.0, -2.0, 0.5] + 3.0 + 0.5 * rng.standard_normal(n), rng.uniform(0.5, 2, n)


def covariance(X, w, sandwich=False):
    X = np.column_stack([np.ones(len(X)), X])
    P = np.linalg.inv(X.T @ (w[:, None] * X))
    return NOISE * (P @ (X.T @ (w[:, None] ** 2 * X)) @ P if sandwich else P)


KINDS = {
    "plain": {},
    "sqrt": {"method": "sqrt"},
    "information": {"method": "information"},
    "sandwich": {"cov": "sandwich"},
    "skip_target": {"missing": "skip_target"},
}


@pytest.mark.parametrize("name", KINDS)
def test_errors_intervals_and_tests_are_those_of_the_normal_distribution(name):
    X, y, w = rows()
    est = olsq.RecursiveLeastSquares(noise_variance=NOISE, **KINDS[name]).fit(X, y, w)
    wanted = covariance(X, w, name == "sandwich")
    np.testing.assert_allclose(est.cov_params(), wanted, rtol=1e-9, atol=1e-16)
    stderr = np.sqrt(np.diag(wanted))
    np.testing.assert_allclose([est.intercept_stderr_, *est.coef_stderr_], stderr)
    assert est.sigma2_ == NOISE
    at = np.column_stack([np.ones(2), X[:2]])
    spread = np.sqrt(NOISE + np.einsum("ij,jk,ik->i", at, wanted, at))
    mean, std = est.predict(X[:2], return_std=True)
    np.testing.assert_allclose(std, spread)
    np.testing.assert_allclose(est.predict_interval(X[:2])[1] - mean, QUANTILE * spread)
    theta = np.array([est.intercept_, *est.coef_])
    test = est.t_test([0.0, 1.0, 0.0, 0.0])
    assert test.freedom == np.inf
    np.testing.assert_allclose(test.upper - test.effect, QUANTILE * stderr[1])
    chi_squared = theta[1:] @ np.linalg.solve(wanted[1:, 1:], theta[1:])
    np.testing.assert_allclose(est.wald_test(np.eye(4)[1:]).statistic * 3, chi_squared)
    draws = est.sample_coef(0, size=4000, return_intercept=True)[1]
    assert 0.95 < draws.std() / stderr[0] < 1.05
    path = olsq.RecursiveLeastSquares(noise_variance=NOISE, **KINDS[name])
    path = path.partial_fit_path(X, y, w)
    np.testing.assert_allclose(path.stderr[-1], stderr[1:])
    assert (path.sigma2 == NOISE).all()
    assert np.isinf(path.stderr[0]).any()  # one row determines one direction of four
    assert np.isfinite(path.stderr[3:]).all()  # no degree of freedom is needed
    for again in (olsq.loads(est.to_bytes()), pickle.loads(pickle.dumps(est))):
        np.testing.assert_array_equal(again.cov_params(), est.cov_params())
    est.noise_variance = 4 * NOISE  # no state depends on it
    np.testing.assert_allclose(est.coef_stderr_, 2 * stderr[1:])


def test_statsmodels_of_a_fixed_scale():
    sm = pytest.importorskip("statsmodels.api")
    X, y, _ = rows()
    theirs = sm.OLS(y, sm.add_constant(X)).fit(cov_type="fixed scale", cov_kwds={"scale": NOISE})
    found = olsq.RecursiveLeastSquares(noise_variance=NOISE).fit(X, y).summary()
    np.testing.assert_allclose(found.stderr, theirs.bse, rtol=1e-10)
    np.testing.assert_allclose(found.t, theirs.tvalues, rtol=1e-10)
    np.testing.assert_allclose(found.pvalue, theirs.pvalues, rtol=1e-8)
    np.testing.assert_allclose(np.stack([found.lower, found.upper], 1), theirs.conf_int())
    assert found.adjusted_r_squared == pytest.approx(theirs.rsquared_adj)
    residual = ((y - theirs.fittedvalues) ** 2).sum()
    likelihood = -0.5 * (60 * np.log(2 * np.pi * NOISE) + residual / NOISE)
    assert found.log_likelihood == pytest.approx(likelihood)
    total = ((y - y.mean()) ** 2).sum()
    assert found.f_statistic == pytest.approx((total - residual) / 3 / NOISE)
    assert "P>|z|" in str(found)
    assert "Known noise std." in str(found)


def test_kalman_filter_of_statsmodels():
    """A random walk of known start, drift and noise: means, covariances and forecasts' variances.

    statsmodels' filter starts from the predicted state of the first row, ``C + Q``.
    """
    mlemodel = pytest.importorskip("statsmodels.tsa.statespace.mlemodel")
    x = np.arange(12) % 5 / 2.0 - 1
    y = np.array([1.0, 3, 2, 5, 4, 6, 3, 7, 8, 6, 9, 10]) / 2
    X = np.column_stack([np.ones(12), x])
    mean, C, Q = np.array([1.0, 0]), np.array([[2.0, 0.5], [0.5, 1]]), np.diag([0.25, 0.0625])
    model = mlemodel.MLEModel(y, k_states=2, k_posdef=2)
    model["design"], model["transition"], model["selection"] = X.T[None], np.eye(2), np.eye(2)
    model["state_cov"], model["obs_cov", 0, 0] = Q, 0.5
    model.ssm.initialize_known(mean, C + Q)
    theirs = model.ssm.filter()
    est = olsq.RecursiveLeastSquares(
        forget=olsq.forgetting.RandomWalk(Q / 0.5), prior=(mean, C / 0.5), fit_intercept=False,
        noise_variance=0.5,
    )  # fmt: skip
    for t in range(12):
        _, std = est.predict(X[t : t + 1], return_std=True)
        assert std[0] ** 2 == pytest.approx(theirs.forecasts_error_cov[0, 0, t], rel=1e-12)
        est.partial_fit(X[t : t + 1], y[t : t + 1])
        np.testing.assert_allclose(est.coef_, theirs.filtered_state[:, t], rtol=1e-11)
        wanted = theirs.filtered_state_cov[:, :, t]
        np.testing.assert_allclose(est.cov_params(), wanted, rtol=1e-11, atol=1e-15)


BY_GROUP = {
    "expanding": {},
    "window": {"window": 8},
    "weights": {"window": 8, "weighted": True},
    "half-life": {"half_life": 10, "cov": "sandwich"},
    "skip_target": {"missing": "skip_target"},
    "bare": {"window": 8, "statistics": False},
}


@pytest.mark.parametrize("name", BY_GROUP)
def test_paths_by_group(name):
    X, y, w = rows()
    y[[0, 5]] = np.nan
    by = np.arange(60) % 2
    options = {"noise_variance": NOISE, "fit_intercept": True} | BY_GROUP[name]
    weighted = options.pop("weighted", False)
    path = olsq.coefficient_path(X, y, by=by, sample_weight=w if weighted else None, **options)
    for group in (0, 1):
        own = by == group
        alone = olsq.coefficient_path(
            X[own], y[own], sample_weight=w[own] if weighted else None, **options
        )
        np.testing.assert_allclose(path.stderr[own], alone.stderr, rtol=1e-9)
        np.testing.assert_array_equal(path.sigma2[own], alone.sigma2)
        if name != "bare":
            assert (alone.sigma2[1:] == NOISE).all()  # NaN in a window without a row


def test_banks_groups_windows_and_targets():
    X, y, _ = rows()
    by, both = np.arange(60) % 2, np.column_stack([y, 2 * y])
    alone = olsq.RecursiveLeastSquares(noise_variance=NOISE).fit(X, y)
    bank = olsq.FilterBank(2, noise_variance=[NOISE, 4 * NOISE])
    bank.partial_fit(np.stack([X, X]), np.stack([both, both]))
    np.testing.assert_allclose(bank.coef_stderr_[1, 0], alone.coef_stderr_)
    np.testing.assert_allclose(bank.coef_stderr_[1, 1], 2 * alone.coef_stderr_)
    np.testing.assert_allclose(bank[0].cov_params()[0], alone.cov_params())
    window = olsq.RollingLeastSquares(20, noise_variance=NOISE).fit(X, y)
    np.testing.assert_allclose(window.cov_params(), covariance(X[-20:], np.ones(20)))
    for kind, other in (
        (olsq.GroupedLeastSquares, olsq.RecursiveLeastSquares),
        (olsq.GroupedRollingLeastSquares, olsq.RollingLeastSquares),
    ):
        groups = kind(noise_variance=NOISE).partial_fit(X, y, by=by)
        alone = other(noise_variance=NOISE).fit(X[1::2], y[1::2])
        for noise in (NOISE, 4 * NOISE, None):
            groups.noise_variance = alone.noise_variance = noise
            np.testing.assert_allclose(groups.coef_stderr_[1], alone.coef_stderr_)
            given = groups.predict_interval(X[:3], by=[1, 1, 1])
            np.testing.assert_allclose(given, alone.predict_interval(X[:3]))
            again = olsq.loads(groups.to_bytes())
            assert again.noise_variance == noise
            np.testing.assert_array_equal(again.coef_stderr_, groups.coef_stderr_)


def test_complex_noise_has_both_parts():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 2)) + 1j * rng.standard_normal((40, 2))
    y = X @ [1.0, 2j] + rng.standard_normal(40)
    wanted = np.sqrt(NOISE * np.diag(np.linalg.inv(X.conj().T @ X)).real)
    options = {"noise_variance": NOISE, "fit_intercept": False}
    est = olsq.RecursiveLeastSquares(**options)
    path = est.partial_fit_path(X, y)
    bank = olsq.FilterBank(1, **options).partial_fit(X[None], y[None])
    for found in (est.coef_stderr_, path.stderr[-1], bank.coef_stderr_[0]):
        np.testing.assert_allclose(found, wanted)
    assert est.sigma2_ == bank.sigma2_[0] == path.sigma2[0] == NOISE


X, Y, _ = rows(8)
LEARN = {
    "estimator": lambda noise: olsq.RecursiveLeastSquares(noise_variance=noise).fit(X, Y),
    "window": lambda noise: olsq.RollingLeastSquares(5, noise_variance=noise).fit(X, Y),
    "bank": lambda noise: olsq.FilterBank(1, noise_variance=noise).partial_fit(X[None], Y[None]),
    "groups": lambda noise: olsq.GroupedLeastSquares(noise_variance=noise).partial_fit(
        X, Y, by=[1] * 8
    ),
    "rolling groups": lambda noise: olsq.GroupedRollingLeastSquares(
        5, noise_variance=noise
    ).partial_fit(X, Y, by=[1] * 8),
    "path": lambda noise: olsq.coefficient_path(X, Y, noise_variance=noise),
    "windows": lambda noise: olsq.coefficient_path(
        X, Y, noise_variance=noise, window=5, by=X[:, 0]
    ),
}


@pytest.mark.parametrize("door", LEARN)
@pytest.mark.parametrize("noise", [0, -1.0, np.nan, np.inf, [1.0, 2.0], [], "known"])
def test_what_is_no_variance_is_refused_by_name(door, noise):
    with pytest.raises((ValueError, TypeError), match="noise_variance"):
        LEARN[door](noise)


def test_a_changed_parameter_that_is_no_variance_leaves_the_state():
    est = olsq.RecursiveLeastSquares().fit(X, Y)
    before = est.coef_
    est.noise_variance = -1.0
    with pytest.raises(ValueError, match="noise_variance must be"):
        est.partial_fit(X, Y)
    np.testing.assert_array_equal(est.coef_, before)


def test_rows_before_the_first_usable_one_know_the_noise_too():
    """The ridge alone decides then, in a stream, by group and by target."""
    X, y = np.ones((4, 2)), np.array([np.nan, 1.0, 2.0, 3.0])
    options = {"ridge": 0.1, "noise_variance": 2.0}
    alone = olsq.coefficient_path(X, y, **options)
    by = olsq.coefficient_path(X, y, by=[0, 0, 0, 0], **options)
    Y = np.column_stack([y, y[::-1]])
    apart = olsq.coefficient_path(X, Y, missing="skip_target", **options)
    for stderr in (alone.stderr[0], by.stderr[0], apart.stderr[0, 0]):
        np.testing.assert_allclose(stderr, np.sqrt(2.0 / 0.1))
    unknown = olsq.coefficient_path(X, y, ridge=0.1)
    assert np.isinf(unknown.stderr[0]).all()
