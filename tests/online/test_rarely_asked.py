"""Public members that no other test asks, each against an oracle of its own."""

import warnings

import numpy as np
import pytest
import sklearn

import olsq

RNG = np.random.default_rng(5)
X = RNG.standard_normal((60, 3)) + 2.0
Y = X @ [1.0, -1.0, 0.5] + 0.1 * RNG.standard_normal(60)


def test_a_bank_that_fits_forgets_what_it_knew():
    rows = RNG.standard_normal((4, 9, 3))
    y = RNG.standard_normal((4, 9))
    used, fresh = olsq.FilterBank(4, forget=0.9), olsq.FilterBank(4, forget=0.9)
    used.partial_fit(10 * rows[:, ::-1], y)
    np.testing.assert_array_equal(used.fit(rows, y).coef_, fresh.partial_fit(rows, y).coef_)
    np.testing.assert_array_equal(used.n_samples_seen_, fresh.n_samples_seen_)
    with pytest.raises(ValueError, match="shape"):
        used.fit(rows[:, :, :2], y[:3])
    np.testing.assert_array_equal(used.coef_, fresh.coef_)  # a refused call changes nothing


@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-7])
def test_draws_have_the_covariance_of_the_coefficients(method, fit_intercept, scale):
    """Exactly: the draws are linear in standard normal numbers, whose matrix is read off."""
    units = np.array([1.0, 1.0, scale])
    est = olsq.RecursiveLeastSquares(
        ridge=1e-3 * units**2, method=method, fit_intercept=fit_intercept
    ).fit(X * units, Y)
    form = est._engine.form
    k = 3 + fit_intercept
    root = form.unwhitened(np.eye(k))
    found = root.T @ root * est.sigma2_
    size = np.sqrt(np.diag(est.cov_params()))
    size = np.outer(size, size)
    np.testing.assert_allclose(found / size, est.cov_params() / size, atol=1e-9)
    draws = est.sample_coef(0, size=4000) / units
    np.testing.assert_allclose(draws.std(0), est.coef_stderr_ / units, rtol=0.06)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_gap_of_total_least_squares_is_that_of_singular_values(fit_intercept):
    est = olsq.TotalLeastSquares(fit_intercept=fit_intercept).fit(X, Y)
    A, b = (X - X.mean(0), Y - Y.mean()) if fit_intercept else (X, Y)
    both = np.linalg.svd(np.column_stack([A, b]), compute_uv=False)
    alone = np.linalg.svd(A, compute_uv=False)
    assert est.gap_ == pytest.approx((alone[-1] - both[-1]) / both[0], rel=1e-9)


def test_the_half_life_of_a_tuned_factor():
    assert olsq.tune(X, Y, forget=0.5).half_life == pytest.approx(1.0)
    assert olsq.tune(X, Y, forget=1.0).half_life == np.inf


def test_every_request_for_metadata_is_kept():
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = (
            olsq.RecursiveLeastSquares()
            .set_partial_fit_request(times=True, forget="gates")
            .set_predict_request(return_std=True)
        )
        requests = est.get_metadata_routing()
    assert requests.partial_fit.requests == {
        "sample_weight": None,
        "times": True,
        "forget": "gates",
    }
    assert requests.predict.requests == {"return_std": True}
