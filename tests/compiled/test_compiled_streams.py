"""Compiled filters against the estimator and the dense oracle, on every kind of stream."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

import olsq
from olsq import compiled
from olsq.reference import regression as oracle
from olsq.testing import INTERRUPTIONS, KINDS, interruption, regressions
from olsq.testing.kinds import SIZES
from tests.compiled.loops import learn
from tests.online import streams
from tests.online.judge import check_optimal, coefficient_error, tolerance
from tests.tiers import examples

EPS = float(np.finfo(np.float64).eps)
FINITE = [kind for kind in KINDS if kind not in ("non-finite", "dtype mixes")]


def estimator(**parameters):
    return olsq.RecursiveLeastSquares(fit_intercept=False, missing="skip", **parameters)


def check(X, y, gates, weights, ridge, *, against=True):
    """Coefficients after every row are optimal, and the estimator's where digits are left."""
    state = compiled.init(X.shape[1], ridge=ridge)
    coef, prediction, residual = learn(state, X, y, gates, weights)
    assert np.isfinite(coef).all()
    assert np.isfinite(residual).all()
    np.testing.assert_allclose(residual, y - prediction, rtol=0, atol=1e-9 * np.abs(y).max())
    path = estimator(ridge=ridge).partial_fit_path(X, y, weights, forget=gates)
    truth = oracle.coefficient_path(
        X, y[:, None], gates=gates, weights=weights,
        ridge=np.broadcast_to(np.asarray(ridge, float), X.shape[1]), ridge_mode="discounted",
        fit_intercept=False,
    )  # fmt: skip
    for t in range(len(X)):
        own, decay = oracle.row_weights(gates, weights, t, None), np.prod(gates[: t + 1])
        penalty = np.broadcast_to(np.asarray(ridge, float), X.shape[1]) * decay
        check_optimal(
            X[: t + 1], y[: t + 1, None], own, penalty, False, coef[None, t], np.zeros(1), 1e-14
        )
        allowed = tolerance("covariance", EPS, truth.condition[t], 1.0)
        if allowed < 1e-3:
            for other in (truth.coef[t], path.coef[None, t]):
                error = coefficient_error(coef[None, t], other, X[: t + 1], y[: t + 1])
                assert error <= allowed
    assert state.counts[1] == np.count_nonzero(weights)


@pytest.mark.full
@pytest.mark.parametrize(
    ("regressors", "forgetting"), [*itertools.product(streams.REGRESSORS, streams.FORGETTING)]
)
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_every_stream_that_breaks_solvers(regressors, forgetting, ridge):
    stream = streams.make(regressors, forgetting)
    check(stream.X, stream.y[:, 0], stream.gates, stream.weights, ridge)


@pytest.mark.full
@given(data=regressions(FINITE, length=(1, 12), features=(1, 3), targets=1))
def test_drawn_streams(data):
    check(data.X, data.y[:, 0].copy(), data.forget, data.sample_weight, data.ridge)


@pytest.mark.parametrize(
    ("kind", "size"), [(kind, size) for kind in INTERRUPTIONS for size in SIZES[kind]]
)
def test_interruptions_leave_what_they_leave_of_the_estimator(kind, size):
    s = interruption(kind, size, intercept=0.0)
    state = compiled.init(s.X.shape[1], ridge=1e-3)
    ones = np.ones(len(s.y))
    coef, _, residual = learn(state, s.X, s.y, s.forget, ones)
    est = estimator(ridge=1e-3)
    path = est.partial_fit_path(s.X, s.y, forget=s.forget)
    # The same operations on the same numbers except for the order of sums, in each column's units.
    scale = np.maximum(np.abs(path.coef), np.abs(s.coef))
    assert (np.abs(coef - path.coef) <= 1e-7 * scale).all()
    known = np.arange(len(s.y)) >= s.alive + 5
    size_of_y = np.maximum.accumulate(np.abs(s.y))
    assert (np.abs(residual - path.residual)[known] <= 1e-7 * size_of_y[known]).all()
    back = compiled.to_estimator(state)
    assert (back.n_samples_seen_, back.n_held_) == (est.n_samples_seen_, est.n_held_)


def test_rows_that_are_not_finite_are_as_if_they_never_came():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    gates, weights = rng.uniform(0.8, 1, 60), rng.uniform(0, 2, 60)
    X[5, 0], X[6, 2], y[7], X[30], y[31] = np.nan, np.inf, -np.inf, np.nan, np.nan
    bad = np.isin(np.arange(60), [5, 6, 7, 30, 31])
    for ridge in (0.0, 1e-3):
        coef, prediction, residual = learn(compiled.init(3, ridge=ridge), X, y, gates, weights)
        kept = learn(compiled.init(3, ridge=ridge), X[~bad], y[~bad], gates[~bad], weights[~bad])
        np.testing.assert_array_equal(coef[~bad], kept[0])
        np.testing.assert_array_equal(residual[~bad], kept[2])
        np.testing.assert_array_equal(coef[5:8], coef[[4, 4, 4]])
        assert np.isnan(residual[bad]).all()
        assert np.isfinite(coef).all()
        np.testing.assert_array_equal(np.isnan(prediction), np.isin(np.arange(60), [5, 6, 30]))


@pytest.mark.parametrize("d", [1, 3, 30])
def test_a_row_is_written_into_its_state_alone(d):
    margin, arrays, rng = 40, [], np.random.default_rng(0)
    for array in compiled.init(d, ridge=0.1):
        around = np.full(array.size + 2 * margin, 7, array.dtype)
        around[margin:-margin] = array.ravel()
        arrays.append(around)
    state = compiled.State(
        *(
            around[margin:-margin].reshape(array.shape)
            for around, array in zip(arrays, compiled.init(d), strict=True)
        )
    )
    for forget, size in itertools.product((1.0, 0.9, 0.0, 1e-7), (1.0, 0.0, 1e100)):
        compiled.update(state, size * rng.standard_normal(d), 1.0, forget, 0.5)
        compiled.predict(state, np.ones(d))
    for around in arrays:
        assert (around[:margin] == 7).all()
        assert (around[-margin:] == 7).all()


@pytest.mark.parametrize("forget", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("ridge", [1e-8, 1e-3])
def test_a_regressor_that_was_always_0_has_no_coefficient(ridge, forget):
    for seed in range(40):
        rng = np.random.default_rng([seed, 4412])
        X, y = 1e4 * rng.standard_normal((20, 3)), 1e4 * rng.standard_normal(20)
        X[:, 1] = 0.0
        coef, _, _ = learn(compiled.init(3, ridge=ridge), X, y, np.full(20, forget), np.ones(20))
        assert (coef[:, 1] == 0).all()


def test_wind_up_is_held():
    """A regressor that goes silent for 20,000 rows of forgetting, and comes back."""
    rng = np.random.default_rng(1)
    n = 20_100
    X = rng.standard_normal((n, 2))
    X[50:-50, 1] = 0
    y = X @ [1.0, 2.0] + 0.01 * rng.standard_normal(n)
    gates = np.full(n, 0.9)
    state = compiled.init(2)
    coef, _, _ = learn(state, X, y, gates, np.ones(n))
    est = estimator(forget=0.9, ridge=1e-3).partial_fit(X, y)
    np.testing.assert_allclose(coef[-1], est.coef_, rtol=1e-9)
    assert abs(coef[-60] - [1, 2]).max() < 0.1
    assert state.counts[0] == est.n_held_ > 0


@pytest.mark.parametrize("d", [1, 2, 5, 23, 24, 40])
def test_sizes_with_ridge_weights_and_resets(d):
    rng = np.random.default_rng(d)
    n = 3 * d + 40
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    gates, weights = rng.uniform(0.9, 1, n), rng.uniform(0.1, 2, n)
    gates[n // 2], gates[n // 2 + 5], weights[3] = 0, 1e-5, 0
    est = estimator(ridge=1e-3)
    est.partial_fit(X, y, weights, forget=gates)
    coef, _, residual = learn(compiled.init(d), X, y, gates, weights)
    np.testing.assert_allclose(coef[-1], est.coef_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(residual, est.residual_, rtol=0, atol=1e-8)


@settings(max_examples=examples(30))
@given(data=regressions(FINITE, length=(1, 12), features=(1, 3), targets=1))
def test_a_ridge_for_each_coefficient(data):
    ridge = np.arange(data.X.shape[1], dtype=float)
    check(data.X, data.y[:, 0].copy(), data.forget, data.sample_weight, ridge)
