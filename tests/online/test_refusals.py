"""Bad input: the error names the argument and nothing has changed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import olsq

RLS = olsq.RecursiveLeastSquares
X, Y = np.random.default_rng(0).standard_normal((9, 2)), np.arange(9.0)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"forget": 1.5}, r"forget must lie in \[0, 1\].*1\.5"),
        ({"forget": -0.1}, "forget must lie"),
        ({"forget": np.nan}, "forget must lie"),
        ({"forget": 0.9, "half_life": 3}, "cannot be combined"),
        ({"half_life": 0}, "half_life must be a positive"),
        ({"half_life": -2.0}, "half_life"),
        ({"half_life": True}, "half_life must be a positive"),
        ({"ridge": -1.0}, "ridge must be finite and >= 0"),
        ({"ridge": np.inf}, "ridge"),
        ({"ridge": [1.0, 2.0, 3.0]}, r"ridge must be a number or one number per feature \(2\)"),
        ({"ridge_mode": "forgotten"}, "ridge_mode must be one of 'discounted', 'fixed'"),
        ({"method": "qr"}, "method must be one of"),
        ({"missing": "drop"}, "missing must be one of"),
        ({"missing": np.array(["skip", "raise"])}, "missing must be one of"),
        ({"forget": np.full(4, 0.9)}, r"forget must be a number or one number per row \(9\)"),
    ],
)
def test_parameters(parameters, match):
    with pytest.raises(ValueError, match=match):
        RLS(**parameters).fit(X, Y)


def test_a_length_of_time_is_no_number():
    days = np.timedelta64(2, "D")  # an np.integer
    for call, match in [
        (lambda: olsq.coefficient_path(X, Y, min_samples=days), "min_samples must be a positive"),
        (lambda: olsq.RobustLeastSquares(warm_up=days).fit(X, Y), "warm_up must be"),
        (lambda: olsq.KernelLeastSquares(budget=days).fit(X, Y), "budget must be"),
        (lambda: olsq.stability.chow_test(X, Y, row=days), "row must be an integer"),
        (lambda: olsq.features.Fourier(days, 1).fit_transform(X), "period must be a positive num"),
        (lambda: olsq.features.Trend(scale=days).fit_transform(X), "scale must be a positive num"),
        (
            lambda: olsq.local_lstsq(X, Y[:, None], X, ridge=1.0, window=days),
            "window must be an integer >= 1",
        ),
    ]:
        with pytest.raises(ValueError, match=match):
            call()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((X[:, :1], Y), ValueError, "X has 1 features"),
        ((X, Y[:5]), ValueError, "inconsistent numbers of samples"),
        ((X, np.stack([Y, Y], 1)), ValueError, r"y must have shape \(n,\)"),
        ((X, None), ValueError, "y is None"),
        ((X[0], Y[:1]), ValueError, "Expected 2D array"),
        ((X, Y, -np.ones(9)), ValueError, "sample_weight must be finite and >= 0"),
        ((X, Y, np.full(9, np.inf)), ValueError, "sample_weight must be finite"),
        ((X, Y, np.ones(3)), ValueError, "sample_weight must be a number or one number per row"),
        ((X * 1e155, Y), ValueError, "X contains a value of magnitude"),
        ((X, Y * 1e155), ValueError, "y contains a value of magnitude"),
        ((X + 1j, Y), ValueError, "Complex"),
        (([["a", "b"]] * 9, Y), ValueError, "X must be numeric"),
    ],
)
@pytest.mark.parametrize("kind", [RLS, olsq.RollingLeastSquares])
def test_arguments_change_nothing(kind, arguments, error, match):
    est = kind().fit(X, Y)
    before = {k: v.copy() for k, v in est._engine.arrays().items()}
    with pytest.raises(error, match=match):
        est.partial_fit(*arguments)
    assert est.n_samples_seen_ == 9
    for name, array in est._engine.arrays().items():
        np.testing.assert_array_equal(array, before[name])


def test_missing_raise_names_the_row():
    bad = X.copy()
    bad[4, 1] = np.nan
    est = RLS(missing="raise").fit(X, Y)
    with pytest.raises(ValueError, match="first in row 4"):
        est.partial_fit(bad, Y)
    with pytest.raises(ValueError, match="first in row 4"):
        est.predict(bad)
    assert est.n_samples_seen_ == 9


def test_missing_skip():
    bad = X.copy()
    bad[4, 1] = np.inf
    est = RLS(forget=0.9).fit(bad, Y)
    np.testing.assert_array_equal(
        est.coef_, RLS(forget=0.9).fit(np.delete(X, 4, 0), np.delete(Y, 4)).coef_
    )
    assert np.flatnonzero(np.isnan(est.residual_)).tolist() == [4]
    assert np.flatnonzero(np.isnan(est.predict(bad))).tolist() == [4]
    assert est.n_samples_seen_ == 8


def test_missing_rows_before_the_first_are_skipped():
    """As if they had never come: a stream may begin with what cannot be learned."""
    nothing = np.full((3, 2), np.nan)
    for est in (RLS(), olsq.RollingLeastSquares(4)):
        est.partial_fit(nothing, np.ones(3)).partial_fit(X[:1], [np.nan])
        assert est.n_samples_seen_ == 0
        prediction, residual = est.step(X[0], np.nan)
        assert prediction == 0
        assert np.isnan(residual)
        assert np.isnan(est.partial_fit_path(nothing, np.ones(3)).residual).all()
        np.testing.assert_array_equal(
            est.partial_fit(X, Y).coef_, type(est)(**est.get_params()).fit(X, Y).coef_
        )


def test_nothing_to_learn_from():
    with pytest.raises(ValueError, match="no row is left"):
        RLS().fit(np.full((3, 2), np.nan), np.ones(3))
    with pytest.raises(ValueError, match="no row is left"):
        RLS().fit(X, Y, np.zeros(9))
    est = RLS().fit(X, Y)
    coef = est.coef_
    est.partial_fit(np.empty((0, 2)), np.empty(0))
    np.testing.assert_array_equal(est.coef_, coef)
    assert est.residual_.shape == (0,)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"window": 0}, "window must be a positive whole number"),
        ({"window": 10**22}, "window must be at most 1,099,511,627,776 rows"),
        ({"window": 2.5}, r"every row needs a time: give times= \(or a whole number\)"),
        ({"window": -2.5}, "window must be a positive number"),
        ({"window": "3 months"}, "months, quarters, years and business days have no fixed length"),
        ({"window": "90D", "window_of": "positions"}, "leave window_of out"),
        ({"window": 5, "min_samples": 6}, "must not exceed window"),
        ({"window": 5, "min_samples": 0}, "min_samples must be a positive"),
    ],
)
def test_rolling_parameters(parameters, match):
    with pytest.raises(ValueError, match=match):
        olsq.RollingLeastSquares(**parameters).fit(X, Y)


def test_integers_beyond_every_float():
    """They raised OverflowError of Python; a half-life so long is one without end."""
    huge = 10**400
    for strategy in ("Exponential", "Variable", "RandomWalk", "Directional"):
        with pytest.raises(ValueError, match="must"):
            getattr(olsq.forgetting, strategy)(huge)
    endless, plain = RLS(half_life=huge).fit(X, Y), RLS().fit(X, Y)
    np.testing.assert_array_equal(endless.coef_, plain.coef_)


def test_path_options():
    with pytest.raises(ValueError, match="cannot be combined"):
        olsq.coefficient_path(X, Y, window=3, forget=0.9, half_life=2)
    for fewest in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="min_samples must be a positive whole number"):
            olsq.coefficient_path(X, Y, min_samples=fewest)
    with pytest.raises(ValueError, match=r"forget must lie in \[0, 1\]"):
        olsq.RollingLeastSquares().partial_fit(X, Y, forget=1.5)


def test_merge_refuses_what_does_not_fit():
    a = RLS().fit(X, Y)
    for other, match in [
        (RLS(ridge=2.0).fit(X, Y), "ridge differs"),
        (RLS(fit_intercept=False).fit(X, Y), "fit_intercept differs"),
        (RLS().fit(X[:, :1], Y), "number of features differs"),
        (RLS().fit(X, np.stack([Y, Y], 1)), "targets' shapes differ"),
        (RLS(method="covariance").fit(X.astype(np.float32), Y), "differs"),
    ]:
        with pytest.raises(ValueError, match=match):
            olsq.merge(a, other)
    with pytest.raises(TypeError, match="two estimators of one kind"):
        olsq.merge(a, olsq.RollingLeastSquares().fit(X, Y))
    with pytest.raises(ValueError, match="not fitted"):
        olsq.merge(a, RLS())


def test_residuals_that_were_not_kept():
    fixed = {"ridge_mode": "fixed", "ridge": 1.0}
    est = RLS(residuals=False, **fixed).fit(X, Y)
    with pytest.raises(AttributeError, match="residuals=False"):
        _ = est.residual_
    np.testing.assert_allclose(est.coef_, RLS(**fixed).fit(X, Y).coef_, rtol=1e-12)


def test_merging_moments_needs_to_be_told_the_forgetting():
    one = olsq.Moments(np.eye(2), np.ones((1, 2)))
    merged = olsq.merge(one, one, forget=0.5)
    np.testing.assert_allclose(merged.gram, 1.5 * np.eye(2))
    with pytest.raises(ValueError, match="forget applies to Moments"):
        olsq.merge(RLS().fit(X, Y), RLS().fit(X, Y), forget=0.5)


def test_numbers_of_numpy_are_shown_as_numbers():
    est, bank = RLS().fit(X, Y), olsq.FilterBank(2)
    calls = [
        (lambda: olsq.RollingLeastSquares(window=np.int64(-3)).fit(X, Y), "rows, got -3$"),
        (lambda: olsq.RollingLeastSquares(window=np.float64(-3)).fit(X, Y), "got -3.0$"),
        (lambda: est.sample_coef(0, size=np.int64(-1)), "got -1$"),
        (lambda: est.predict_interval(X, level=np.float64(2)), "got 2.0$"),
        (lambda: bank.grow(np.int64(0)), "got 0$"),
        (lambda: bank[np.float64(1)], "got 1.0$"),
        (lambda: olsq.features.Lags(np.int64(-2)).fit_transform(X, Y), "got -2$"),
    ]
    for call, match in calls:
        with pytest.raises((ValueError, TypeError), match=match):
            call()


@pytest.mark.parametrize("kind", [olsq.RecursiveLeastSquares, olsq.RobustLeastSquares])
@pytest.mark.parametrize(
    "wrong",
    [{"half_life": 0}, {"forget": 0.9, "half_life": 5}, {"forget": 2.0}, {"forget": "much"}],
    ids=str,
)
def test_factors_of_a_call_do_not_hide_wrong_parameters(wrong, kind):
    """Rows learned beside them could not be saved."""
    X, y = np.eye(5, 2), np.arange(5.0)
    first, later = kind(**wrong), kind().partial_fit(X, y)
    before = later.to_bytes()
    later.set_params(**wrong)
    for est in (first, later):
        for n in (1, 2, 5):
            with pytest.raises(ValueError, match=r"half_life|forget"):
                est.partial_fit(X[:n], y[:n], forget=0.9)
    assert later.set_params(forget=1.0, half_life=None).to_bytes() == before


@pytest.mark.parametrize(
    "make",
    [RLS, olsq.RollingLeastSquares, partial(olsq.FilterBank, 2), olsq.GroupedLeastSquares,
     olsq.RobustLeastSquares, olsq.TotalLeastSquares, partial(olsq.coefficient_path, X, Y)],
)  # fmt: skip
def test_states_have_no_dtype_of_their_own(make):
    with pytest.raises(TypeError, match="state_dtype"):
        make(state_dtype="float32")


@pytest.mark.parametrize(
    "flag", ["False", 2, np.nan, None, np.array([True, False]), np.timedelta64(1, "h")]
)
@pytest.mark.parametrize(
    "call",
    [
        lambda flag: RLS(fit_intercept=flag).fit(X, Y),
        lambda flag: olsq.RollingLeastSquares(fit_intercept=flag).fit(X, Y),
        lambda flag: olsq.FilterBank(9, fit_intercept=flag).partial_fit(X, Y),
        lambda flag: olsq.GroupedLeastSquares(fit_intercept=flag).fit(X, Y, by=Y),
        lambda flag: olsq.GroupedRollingLeastSquares(fit_intercept=flag).fit(X, Y, by=Y),
        lambda flag: olsq.TotalLeastSquares(fit_intercept=flag).fit(X, Y),
        lambda flag: olsq.coefficient_path(X, Y, fit_intercept=flag),
        lambda flag: olsq.time_varying(X, Y, fit_intercept=flag),
        lambda flag: olsq.fama_macbeth(X, Y, by=Y % 2, fit_intercept=flag),
        lambda flag: olsq.tune(X, Y, fit_intercept=flag),
        lambda flag: olsq.stability.nyblom(X, Y, fit_intercept=flag),
        lambda flag: RLS(residuals=flag).fit(X, Y),
        lambda flag: olsq.OnlineElasticNet(standardize=flag).fit(X, Y),
        lambda flag: olsq.forgetting.ExponentialResetting(0.9, cyclic=flag),
        lambda flag: olsq.features.Lags(1, carry=flag).fit_transform(X, Y),
    ],
)
def test_a_flag_is_true_or_false(call, flag):
    with pytest.raises(ValueError, match="must be True or False"):
        call(flag)


def test_sweeps_beyond_integers_are_named():
    with pytest.raises(ValueError, match=r"max_iter must be .* below 2\*\*63"):
        olsq.OnlineElasticNet(max_iter=2**63).fit(X, Y)


@pytest.mark.parametrize("restriction", ["", "x0 - x0", "0 = 1", np.zeros((0, 2)), [0.0, 0.0]])
def test_restrictions_of_no_coefficient_are_refused(restriction):
    est = RLS().fit(X, Y)
    for test in (est.t_test, est.wald_test):
        with pytest.raises(ValueError, match="restriction must "):
            test(restriction)
