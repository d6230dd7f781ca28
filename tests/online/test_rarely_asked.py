"""Public members that no other test asks, each against an oracle of its own."""

import datetime
import warnings

import numpy as np
import pandas as pd
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
def test_the_gap_of_total_least_squares_is_its_inverse_condition(fit_intercept):
    est = olsq.TotalLeastSquares(fit_intercept=fit_intercept).fit(X, Y)
    A, b = (X - X.mean(0), Y - Y.mean()) if fit_intercept else (X, Y)
    values, Vt = np.linalg.svd(np.column_stack([A, b]))[1:]
    gap = (values[-2] - values[-1]) / values[0] * abs(Vt[-1, -1])
    assert est.gap_ == pytest.approx(gap, rel=1e-9)


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


def test_a_length_of_time_may_be_python_s_or_pandas():
    day = datetime.timedelta(days=1, microseconds=3)
    assert olsq.forgetting.ByTime(day).half_life == f"{(86_400 * 10**6 + 3) * 1000}ns"
    finer = pd.Timedelta(day) + pd.Timedelta(7, "ns")
    assert olsq.forgetting.ByTime(finer).half_life == f"{(86_400 * 10**6 + 3) * 1000 + 7}ns"
    times = np.datetime64("2026-01-01") + np.arange(60) * np.timedelta64(9, "h")
    fits = [
        olsq.RecursiveLeastSquares(forget=olsq.forgetting.ByTime(length)).fit(X, Y, times=times)
        for length in (datetime.timedelta(hours=9), "9h", np.timedelta64(9, "h"))
    ]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.coef_, fits[0].coef_)
    want = olsq.RecursiveLeastSquares(forget=0.5).fit(X, Y).coef_
    np.testing.assert_allclose(fits[0].coef_, want, rtol=1e-9)


def test_moments_go_on_with_a_factor_for_each_row():
    start = olsq.RecursiveLeastSquares(forget=0.9).fit(X[:50], Y[:50])
    given = {"ridge_mode": "discounted", "fit_intercept": True}
    gates = np.linspace(0.5, 1, 10)
    est = olsq.RecursiveLeastSquares.from_moments(start.moments(), forget=gates, **given)
    est.partial_fit(X[50:], Y[50:])
    whole = olsq.RecursiveLeastSquares(forget=np.r_[np.full(50, 0.9), gates]).fit(X, Y)
    np.testing.assert_allclose(est.coef_, whole.coef_, rtol=1e-8)
    with pytest.raises(ValueError, match="forget"):
        olsq.RecursiveLeastSquares.from_moments(start.moments(), forget=1.5, **given)


def test_a_bank_grows_before_its_first_row():
    rows, y = RNG.standard_normal((5, 8, 3)), RNG.standard_normal((5, 8))
    bank = olsq.FilterBank(3, forget=0.9).grow(2)
    assert bank.n == 5
    want = olsq.FilterBank(5, forget=0.9).partial_fit(rows, y)
    np.testing.assert_array_equal(bank.partial_fit(rows, y).coef_, want.coef_)
    with pytest.raises(ValueError, match="more"):
        bank.grow(-1)
    assert bank.n == 5


def test_what_the_last_call_left_is_not_in_files(tmp_path):
    bank = olsq.FilterBank(2).partial_fit(RNG.standard_normal((2, 8, 3)), np.ones((2, 8)))
    assert bank.residual_.shape == (2, 8)
    bank.save(tmp_path / "bank.olsq")
    assert olsq.load(tmp_path / "bank.olsq").residual_.shape == (0,)
    est = olsq.RobustLeastSquares().fit(X, Y)
    assert est.weights_.shape == (60,)
    est.save(tmp_path / "robust.olsq")
    again = olsq.load(tmp_path / "robust.olsq")
    with pytest.raises(AttributeError, match="weights_ are not kept in files: learn a row first"):
        again.weights_  # noqa: B018
    assert again.partial_fit(X[:1], Y[:1]).weights_.shape == (1,)


def test_choices_not_made_leave_what_was_chosen():
    frame, target = pd.DataFrame(X, columns=list("abc")), pd.Series(Y, name="y")
    est = olsq.RecursiveLeastSquares().set_output(predict="input").set_output().fit(frame, target)
    assert isinstance(est.predict(frame), pd.Series)
    before = est.get_params()
    with pytest.raises(ValueError, match=r"Invalid parameter 'rigde' for estimator Recursive"):
        est.set_params(rigde=2.0)
    assert est.get_params() == before
    lags = olsq.features.Lags(2)
    with pytest.raises(ValueError, match=r"Invalid parameter 'lag' for estimator Lags"):
        lags.set_params(lag=3)
    assert lags.lags == 2


def test_a_path_is_drawn_over_the_times_of_its_rows():
    times = np.sort(RNG.uniform(0, 9, 60))
    path = olsq.coefficient_path(X, Y, forget=0.9, times=pd.Series(times, name="hours"))
    axes = path.plot(names=["a", "b", "c"]).axes
    assert axes[-1].get_xlabel() == "hours"
    np.testing.assert_array_equal(axes[0].lines[0].get_xdata(), times)


@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
def test_regressors_below_the_normal_numbers_say_nothing(method):
    """Their inverse is infinite: a coefficient of them would be, or NaN."""
    est = olsq.RecursiveLeastSquares(method=method, ridge=0.0, fit_intercept=False)
    est.fit(np.array([[1e-310, 0.0, 1e-320]]), np.ones(1))
    np.testing.assert_array_equal(est.coef_, np.zeros(3))
    est.partial_fit(np.array([[1e-310, 1.0, 2.0]]), np.ones(1))
    # The shortest solution has 2e-311 in front, which is 0 or itself.
    np.testing.assert_allclose(est.coef_, [0.0, 0.2, 0.4], atol=1e-300)
