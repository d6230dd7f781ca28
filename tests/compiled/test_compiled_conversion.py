"""Estimators to compiled states and back; bad input from Python."""

import copy

import numpy as np
import pytest

import olsq
from olsq import compiled
from olsq.reference import rational

N, D = 120, 3
RLS = olsq.RecursiveLeastSquares
rng = np.random.default_rng(0)
X = rng.standard_normal((N, D))
Y = X @ [1.0, 2.0, 3.0] + rng.standard_normal(N)
WEIGHTS, GATES = rng.uniform(0, 2, N), rng.uniform(0.9, 1, N)
WEIGHTS[5], GATES[80] = 0, 0
X[30:50, 1], X[70], Y[71] = 0, np.nan, np.inf
METHODS = ("covariance", "sqrt", "information")


def learned(est, start=0, stop=N):
    rows = slice(start, stop)
    return est.partial_fit(X[rows], Y[rows], WEIGHTS[rows], forget=GATES[rows])


def check_same(one, two):
    for name in ("coef_", "coef_stderr_", "sigma2_", "cov_params"):
        a, b = (getattr(est, name) for est in (one, two))
        a, b = (np.asarray(v() if callable(v) else v) for v in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert one.n_samples_seen_ == two.n_samples_seen_
    assert one.n_held_ == two.n_held_
    np.testing.assert_allclose(one._log_weight_sums(), two._log_weight_sums())


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("back", METHODS)
@pytest.mark.parametrize("ridge", [0.0, 1e-3, np.array([0.0, 1.0, 2.0])])
@pytest.mark.parametrize("cut", [40, 100])
def test_there_and_back_at_any_row(method, back, ridge, cut, tmp_path):
    whole = learned(RLS(fit_intercept=False, ridge=ridge, method=method))
    est = learned(RLS(fit_intercept=False, ridge=ridge, method=method), 0, cut)
    before = copy.deepcopy(est)
    state = compiled.from_estimator(est)
    np.testing.assert_allclose(compiled.coef(state), est.coef_, rtol=1e-9)
    for t in range(cut, N - 10):
        compiled.update(state, X[t], Y[t], GATES[t], WEIGHTS[t])
    check_same(before, est)  # it is a copy
    other = compiled.to_estimator(state, method=back)
    assert other.fit_intercept is False
    learned(other, N - 10)
    check_same(whole, other)
    other.save(tmp_path / "state.olsq")
    check_same(olsq.load(tmp_path / "state.olsq"), other)
    assert compiled.coef(state).tolist() != other.coef_.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_without_a_row_in_between_nothing_is_lost(method):
    est = learned(RLS(fit_intercept=False, method=method))
    state = compiled.from_estimator(est)
    again = compiled.from_estimator(compiled.to_estimator(state))
    for one, two in zip(state[:-1], again[:-1], strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_prior_and_moments_are_where_a_state_begins():
    prior = np.ones(D), np.eye(D)
    start = RLS(fit_intercept=False, prior=prior)
    state = compiled.from_estimator(start)
    np.testing.assert_allclose(compiled.coef(state), np.ones(D))
    for t in range(N):
        compiled.update(state, X[t], Y[t], GATES[t], WEIGHTS[t])
    check_same(learned(start), compiled.to_estimator(state, prior=prior))
    est = learned(RLS(fit_intercept=False))
    begun = RLS.from_moments(est.moments(), fit_intercept=False, ridge_mode="discounted")
    state = compiled.from_estimator(begun)
    np.testing.assert_allclose(compiled.coef(state), est.coef_, rtol=1e-9)
    assert np.isinf(compiled.to_estimator(state).sigma2_)


def test_a_merged_estimator_goes_on():
    kwargs = {"fit_intercept": False, "forget": 0.9}
    one, two = RLS(**kwargs).fit(X[:40], Y[:40]), RLS(**kwargs).fit(X[40:70], Y[40:70])
    state = compiled.from_estimator(two)
    merged = olsq.merge(one, compiled.to_estimator(state, forget=0.9))
    whole = RLS(**kwargs).fit(X[:70], Y[:70])
    np.testing.assert_allclose(merged.coef_, whole.coef_, rtol=1e-10)


FITTED = {"fit_intercept": False}


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (
            lambda: olsq.RollingLeastSquares(window=9).fit(X[:9], Y[:9]), TypeError,
            "RecursiveLeastSquares",
        ),
        (lambda: "est", TypeError, "got str"),
        (lambda: RLS(**FITTED), ValueError, "not fitted yet"),
        (lambda: RLS().fit(X, Y), ValueError, "fit_intercept=True.*regressor of ones"),
        (lambda: RLS(**FITTED).fit(X[:9], X[:9]), ValueError, "3 targets.*one estimator for each"),
        (lambda: RLS(**FITTED, ridge_mode="fixed").fit(X, Y), ValueError, "ridge_mode='fixed'"),
        (lambda: RLS(**FITTED, cov="sandwich").fit(X, Y), ValueError, "cov='sandwich'"),
        (
            lambda: RLS(**FITTED).fit(X[:9].astype("f4"), Y[:9].astype("f4")), ValueError,
            "float32 rows",
        ),
        (
            lambda: RLS(**FITTED, forget=olsq.forgetting.Directional(0.9)).fit(X, Y), ValueError,
            "strategy",
        ),
        (
            lambda: RLS(**FITTED, half_life="3h").fit(
                X[:9], Y[:9], times=np.arange(9).astype("M8[h]")
            ), ValueError, "half_life='3h', a length of time",
        ),
    ],
)  # fmt: skip
def test_estimators_that_have_no_compiled_state(make, error, match):
    est = make()
    with pytest.raises(error, match=match):
        compiled.from_estimator(est)


@pytest.mark.parametrize(
    ("parameters", "error", "match"),
    [
        ({"fit_intercept": True}, ValueError, "fit_intercept=True"),
        ({"ridge_mode": "fixed"}, ValueError, "ridge_mode='fixed'"),
        ({"cov": "sandwich"}, ValueError, "cov='sandwich'"),
        ({"forget": olsq.forgetting.Directional(0.9)}, ValueError, "strategy"),
        ({"forget": 1.5}, ValueError, "forget must lie"),
        ({"half_life": "30D"}, ValueError, "a length of time"),
        ({"ridge": 7.0}, ValueError, "this state started from ridge=1.0"),
        ({"prior": (np.ones(D), np.eye(D))}, ValueError, "started from a ridge"),
        ({"method": "qr"}, ValueError, "method must be one of"),
        ({"window": 9}, TypeError, "window"),
    ],
)
def test_parameters_that_no_compiled_state_is_of(parameters, error, match):
    with pytest.raises(error, match=match):
        compiled.to_estimator(compiled.init(D, ridge=1.0), **parameters)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda s: compiled.update(s, np.ones(2), 1.0), ValueError, r"x must have shape \(3,\)"),
        (lambda s: compiled.update(s, np.ones((1, 3)), 1.0), ValueError, r"got shape \(1, 3\)"),
        (lambda s: compiled.update(s, np.ones(3) * 1j, 1.0), ValueError, "[cC]omplex"),
        (lambda s: compiled.update(s, np.ones(3), "a"), ValueError, "y must be numeric"),
        (lambda s: compiled.update(s, np.ones(3), [1.0]), ValueError, "y must be a number"),
        (lambda s: compiled.update(s, np.ones(3), 1.0, 1.5), ValueError, "forget must lie"),
        (lambda s: compiled.update(s, np.ones(3), 1.0, np.nan), ValueError, "forget must lie"),
        (lambda s: compiled.update(s, np.ones(3), 1.0, 1.0, -1.0), ValueError, "^weight must be"),
        (lambda s: compiled.update(s, np.ones(3), 1e200), ValueError, "overflow"),
        (lambda s: compiled.update(s, np.ones(3), 1.0, 1.0, 1e308), ValueError, "overflow"),
        (lambda s: compiled.update(tuple(s), np.ones(3), 1.0), TypeError, "must be an olsq.comp"),
        (lambda s: compiled.predict(s, np.ones(4)), ValueError, "x must have shape"),
        (lambda s: compiled.coef(None), TypeError, "compiled.init"),
        (lambda s: compiled.predict(None, np.ones(3)), TypeError, "compiled.init"),
        (lambda s: compiled.state_at(s, 0), ValueError, "holds one filter"),
        (lambda s: compiled.state_at(compiled.init(3, n=2), 2), IndexError, "0 to 1"),
        (lambda s: compiled.state_at(compiled.init(3, n=2), 0.5), TypeError, "an integer"),
        (lambda s: compiled.predict(compiled.init(3, n=2), np.ones(3)), ValueError, "choose one"),
        (lambda s: compiled.init(0), ValueError, "n_features must be at least 1"),
        (lambda s: compiled.init(2.0), TypeError, "n_features must be an integer"),
        (lambda s: compiled.init(2, n=0), ValueError, "n must be at least 1"),
        (lambda s: compiled.init(2, ridge=-1.0), ValueError, "ridge must be finite"),
        (lambda s: compiled.init(2, ridge=np.ones(3)), ValueError, "one number per feature"),
        (lambda s: compiled.init(2, ridge=1e305), ValueError, "ridge must be at most"),
        (
            lambda s: compiled.coef(s._replace(pivots=s.pivots.astype("f4"))), TypeError,
            "state.pivots must be a C-contiguous, writable array of float64",
        ),
    ],
)  # fmt: skip
def test_bad_input_from_python_changes_nothing(call, error, match):
    state = compiled.init(D, ridge=1.0)
    compiled.update(state, np.ones(D), 1.0)
    before = [array.copy() for array in state]
    with pytest.raises(error, match=match):
        call(state)
    for array, old in zip(state[:-1], before, strict=False):
        np.testing.assert_array_equal(array, old)


def test_python_takes_what_estimators_take():
    state = compiled.init(2, ridge=1.0)
    compiled.update(state, [1, 2], 3)
    compiled.update(state, np.array([1, 2], np.float32), np.float32(3), np.float64(1), True)
    np.testing.assert_allclose(compiled.predict(state, (1, 2)), 30 / 11)


@pytest.mark.parametrize("factor", [1e-3, 1e-8, 1e-12, 1e-14, 1e-18])
def test_moments_after_a_gap_keep_their_digits_both_ways(factor):
    """Sums of squares have half the digits of a root: it goes on beside them."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        Z, y, gates = rng.standard_normal((12, 4)), rng.standard_normal(12), np.ones(12)
        gates[5] = factor
        state = compiled.init(4, ridge=1e-3)
        for t in range(7):
            compiled.update(state, Z[t], y[t], gates[t])
        moments = RLS(method="information", ridge=1e-3, fit_intercept=False)
        moments.partial_fit(Z[:7], y[:7], forget=gates[:7])
        made = compiled.to_estimator(state, method="information")
        back = compiled.from_estimator(moments)
        for n in (7, 12):
            want = rational.solve(Z[:n], y[:n], gates[:n], np.ones(n), np.full(4, 1e-3))[0]
            scale = np.abs(want).max()
            np.testing.assert_allclose(made.coef_, want, rtol=0, atol=1e-9 * scale)
            np.testing.assert_allclose(compiled.coef(back), want, rtol=0, atol=1e-9 * scale)
            assert made.determined_.all()
            made.partial_fit(Z[n:], y[n:])
            for t in range(n, 12):
                compiled.update(back, Z[t], y[t])
