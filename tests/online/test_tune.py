"""Choosing forgetting and ridge: the loss, its gradient, where it is least, and the mixture."""

from __future__ import annotations

import doctest
import io
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import olsq
from olsq import progress
from olsq.tuning.objective import ForecastLoss
from tests.tiers import examples

MODES = ("discounted", "fixed")


def walk(n, q, r=1.0, seed=0):
    """A level that walks, seen with noise: x is 1."""
    rng = np.random.default_rng(seed)
    level = np.cumsum(math.sqrt(q) * rng.standard_normal(n))
    return np.ones((n, 1)), level + math.sqrt(r) * rng.standard_normal(n)


def moving(n=400, d=3, seed=1, missing=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    coef = np.ones(d) + np.cumsum(0.1 * rng.standard_normal((n, d)), axis=0)
    y = (X * coef).sum(axis=1) + 5.0 + 0.5 * rng.standard_normal(n)
    if missing:
        X[7, 0], y[31], y[90:95] = np.nan, np.nan, np.inf
    return X, y


def loop_loss(X, y, w, forget, ridge, mode, intercept, burn_in):
    """The definition, solved by dense float64 systems, one row after another."""
    A = np.column_stack([np.ones(len(X)), X]) if intercept else X
    penalty = np.full(A.shape[1], float(ridge))
    penalty[: int(intercept)] = 0.0
    gram, cross = np.diag(penalty), np.zeros((A.shape[1], y.shape[1]))
    fixed = np.zeros_like(gram)
    if mode == "fixed":
        gram, fixed = np.zeros_like(gram), np.diag(penalty)
    losses, weights = [], []
    for row, target, weight in zip(A, y, w, strict=True):
        theta = np.linalg.lstsq(gram + fixed, cross, rcond=None)[0]
        losses.append(np.sum((target - row @ theta) ** 2) / y.shape[1])
        weights.append(weight)
        gram = forget * gram + weight * np.outer(row, row)
        cross = forget * cross + weight * np.outer(row, target)
    at = np.flatnonzero(np.array(weights) > 0)[burn_in]
    losses, weights = np.array(losses[at:]), np.array(weights[at:])
    return weights @ losses / weights.sum()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("intercept", [False, True])
def test_the_loss_is_its_definition(mode, intercept):
    X, y = moving(60)
    rng = np.random.default_rng(3)
    Y, w = np.column_stack([y, rng.standard_normal(60)]), rng.uniform(0.1, 3.0, 60)
    w[[0, 20]] = 0.0
    for forget, ridge in ((0.9, 0.3), (1.0, 2.0)):
        tuned = olsq.tune(
            X, Y, forget=forget, ridge=ridge, ridge_mode=mode, fit_intercept=intercept,
            sample_weight=w, burn_in=6,
        )  # fmt: skip
        truth = loop_loss(X, Y, w, forget, ridge, mode, intercept, 6)
        assert tuned.loss == pytest.approx(truth, rel=1e-9)
        assert (tuned.forget, tuned.ridge) == (forget, pytest.approx(ridge, rel=1e-15))
        assert tuned.message == "forget was given; ridge was given"


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("d", [1, 3, 30])
def test_the_gradient_equals_finite_differences(mode, intercept, d):
    X, y = moving(150, d)
    rng = np.random.default_rng(0)
    problem = ForecastLoss(
        X, np.column_stack([y, X[:, 0] - y]), rng.uniform(0.5, 2.0, 150),
        shape=rng.uniform(0.5, 2.0, d), ridge_mode=mode, fit_intercept=intercept, burn_in=d + 1,
    )  # fmt: skip
    for forget, ridge in ((0.96, 0.5), (0.999, 1e-3)):
        found = problem.slope(forget, ridge * problem.ridge_scale)
        ridge = ridge * problem.ridge_scale
        assert found.loss == problem.loss(forget, ridge)
        for exact, step, change in (
            (found.forget, 1e-6, lambda h, f=forget, r=ridge: problem.loss(f + h, r)),
            (found.ridge, 1e-4 * ridge, lambda h, f=forget, r=ridge: problem.loss(f, r + h)),
        ):
            # a five-point rule: its own error is of order step^4
            far, near = change(2 * step) - change(-2 * step), change(step) - change(-step)
            numeric = (8 * near - far) / (12 * step)
            floor = 1e-12 * found.loss / step
            assert exact == pytest.approx(numeric, rel=2e-6, abs=30 * floor)


@pytest.mark.parametrize("mode", MODES)
def test_regressors_far_from_zero_cost_the_gradient_no_digits(mode):
    """An intercept takes up any shift, so that the loss and its slopes are the same."""
    X, y = moving(150)
    found = []
    for shift in (0.0, 2.0**14):
        problem = ForecastLoss(
            X + shift, (y + shift)[:, None], np.ones(150), shape=None, ridge_mode=mode,
            fit_intercept=True, burn_in=4,
        )  # fmt: skip
        loss, by_forget, by_ridge = problem.slope(0.96, np.ldexp(0.5, -problem.ridge_unit))
        units = problem.loss_unit, problem.loss_unit - problem.ridge_unit
        found.append([np.ldexp(loss, units[0]), np.ldexp(by_forget, units[0]),
                      np.ldexp(by_ridge, units[1])])  # fmt: skip
    # residuals of the information form carry the shift's squared condition number
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4 if mode == "fixed" else 1e-7)


def test_one_row_has_no_slope():
    problem = ForecastLoss(
        np.ones((1, 1)), np.ones((1, 1)), np.ones(1), shape=None, ridge_mode="fixed",
        fit_intercept=False, burn_in=0,
    )  # fmt: skip
    # 1 was scaled to 1/2, whose square is the loss of a prediction of 0
    assert problem.slope(0.9, 1.0) == (0.25, 0.0, 0.0)


@pytest.mark.full
@pytest.mark.parametrize("q", [0.01, 0.1, 1.0])
def test_a_walking_level_is_forgotten_as_its_closed_form_says(q):
    n = 6000
    X, y = walk(n, q)
    # In steady state e has variance 2 r / (1 + g) + q / (1 - g^2): least at
    best = 1 + q / 2 - math.sqrt(q + q * q / 4)
    tuned = olsq.tune(X, y, fit_intercept=False)
    # g is the moving-average coefficient of an IMA(1, 1), estimated to sqrt((1 - g^2) / n)
    assert abs(tuned.forget - best) < 4 * math.sqrt((1 - best**2) / n)
    assert tuned.at_bound in ((), ("ridge",))
    expected = 2 / (1 + best) + q / (1 - best**2)
    assert tuned.loss == pytest.approx(expected, rel=5 * math.sqrt(2 / n))
    curve = tuned.curve
    inside = (curve.forget > 0.3) & (curve.forget < 0.97)
    theory = 2 / (1 + curve.forget) + q / (1 - curve.forget.clip(max=0.999) ** 2)
    np.testing.assert_allclose(curve.loss[inside], theory[inside], rtol=0.2)


def test_the_least_loss_is_that_of_a_dense_grid():
    X, y = moving(500, missing=True)
    for mode in MODES:
        tuned = olsq.tune(X, y, ridge_mode=mode)
        scores = {}
        for forget in 1 - np.geomspace(0.005, 0.25, 60):
            for ridge in np.geomspace(1e-6, 1e3, 12):
                est = olsq.RecursiveLeastSquares(forget=forget, ridge=ridge, ridge_mode=mode)
                errors = est.partial_fit(X, y).residual_
                errors = errors[np.isfinite(errors)][4:]
                scores[forget, ridge] = np.mean(errors**2)
        best = min(scores, key=scores.__getitem__)
        assert tuned.loss <= scores[best] * (1 + 1e-9)
        assert tuned.loss >= scores[best] * 0.985
        assert abs(math.log((1 - tuned.forget) / (1 - best[0]))) < 0.15
        assert tuned.message == "the loss is least inside both ranges"
        assert tuned.loss == tuned.curve.loss.min() == tuned.ridge_curve.loss.min()
        assert tuned.loss <= tuned.path.loss.min() * (1 + 1e-8)
        assert (np.diff(tuned.curve.forget) > 0).all()


def test_the_estimator_has_the_loss_that_was_found():
    X, y = moving()
    for mode in MODES:
        tuned = olsq.tune(X, y, ridge_mode=mode)
        est = olsq.RecursiveLeastSquares(forget=tuned.forget, ridge=tuned.ridge, ridge_mode=mode)
        errors = est.fit(X, y).residual_[4:]
        assert np.mean(errors**2) == pytest.approx(tuned.loss, rel=1e-12)
        half = olsq.RecursiveLeastSquares(
            half_life=tuned.half_life, ridge=tuned.ridge, ridge_mode=mode
        )
        assert np.mean(half.fit(X, y).residual_[4:] ** 2) == pytest.approx(tuned.loss, rel=1e-12)


@pytest.mark.full
def test_constant_coefficients_are_not_forgotten():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((3000, 3))
    y = X @ [1.0, -2.0, 0.5] + 1.0 + rng.standard_normal(3000)
    tuned = olsq.tune(X, y)
    assert tuned.forget > 0.997
    assert tuned.loss == pytest.approx(1.0, abs=0.1)


def test_without_noise_nothing_is_forgotten_or_penalised():
    X, _ = moving(200)
    tuned = olsq.tune(X, X @ [1.0, 2.0, 3.0] + 4.0)
    assert (tuned.forget, tuned.ridge, tuned.at_bound) == (1.0, 0.0, ("forget", "ridge"))
    assert "zero to rounding" in tuned.message
    assert tuned.half_life == math.inf


@pytest.mark.parametrize("value", [0.0, 3.5, -1e120])
def test_constant_targets(value):
    X, _ = moving(80)
    tuned = olsq.tune(X, np.full(80, value))
    assert (tuned.forget, tuned.ridge) == (1.0, 0.0)
    assert tuned.loss <= 1e-25 * max(value * value, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("power", [-440, -3, 5, 440])
def test_units_change_nothing_but_the_ridge(mode, power):
    X, y = moving(150)
    one = olsq.tune(X, y, ridge_mode=mode)
    c = 2.0**power
    for there, x_power, y_power in (
        (olsq.tune(X * c, y, ridge_mode=mode), power, 0),
        (olsq.tune(X, y * c, ridge_mode=mode), 0, power),
    ):
        assert there.forget == one.forget
        assert there.ridge == np.ldexp(one.ridge, 2 * x_power)
        assert there.loss == np.ldexp(one.loss, 2 * y_power)
        np.testing.assert_array_equal(there.curve.loss, np.ldexp(one.curve.loss, 2 * y_power))
    heavy = olsq.tune(X, y, ridge_mode=mode, sample_weight=np.full(150, c))
    assert (heavy.forget, heavy.loss) == (one.forget, one.loss)
    assert heavy.ridge == np.ldexp(one.ridge, power)


def test_shapes_of_penalties_make_columns_units_irrelevant():
    X, y = moving(200)
    units = np.array([1.0, 1024.0, 2.0**-30])
    tuned = [
        olsq.tune(A, y, ridge_mode="fixed", ridge_shape=np.mean(A**2, axis=0))
        for A in (X, X * units)
    ]
    assert tuned[0].forget == pytest.approx(tuned[1].forget, rel=1e-6)
    np.testing.assert_allclose(tuned[1].ridge, tuned[0].ridge * units**2, rtol=1e-5)
    assert tuned[0].ridge.shape == (3,)
    est = olsq.RecursiveLeastSquares(forget=tuned[0].forget, ridge=tuned[0].ridge,
                                     ridge_mode="fixed").fit(X, y)  # fmt: skip
    assert np.mean(est.residual_[4:] ** 2) == pytest.approx(tuned[0].loss, rel=1e-12)
    # a feature without a penalty
    free = olsq.tune(X, y, ridge_mode="fixed", ridge_shape=[0.0, 1.0, 1.0])
    assert free.ridge[0] == 0


def test_missing_rows_are_left_out():
    X, y = moving(300, missing=True)
    complete = np.isfinite(X).all(axis=1) & np.isfinite(y)
    one, other = olsq.tune(X, y), olsq.tune(X[complete], y[complete])
    assert one[:3] == other[:3]
    with pytest.raises(ValueError, match="first in row 7"):
        olsq.tune(X, y, missing="raise")


def test_several_targets_share_one_choice():
    X, y = moving(300)
    Y = np.column_stack([y, 2 * y, np.full(300, np.nan)])[:, :2]
    one, two = olsq.tune(X, y), olsq.tune(X, Y)
    assert two.forget == pytest.approx(one.forget, rel=1e-6)
    assert two.loss == pytest.approx(2.5 * one.loss, rel=1e-9)


def test_bounds_are_kept_and_named():
    X, y = moving(300)
    free = olsq.tune(X, y, ridge_mode="fixed")
    low = olsq.tune(X, y, half_life_bounds=(50, 80), ridge_mode="fixed")
    assert low.half_life == pytest.approx(50)
    assert low.at_bound == ("forget",)
    assert "half_life is at an end of its range" in low.message
    assert low.loss > free.loss
    assert (low.curve.forget >= 2 ** (-1 / 49.999)).all()
    high = olsq.tune(X, y, ridge_bounds=(1e3, math.inf), ridge_mode="fixed")
    assert high.ridge == pytest.approx(1e3)
    assert "ridge is at an end of its range" in high.message
    assert (high.ridge_curve.ridge >= 999.999).all()
    held = olsq.tune(X, y, ridge=free.ridge, ridge_mode="fixed")
    assert held.forget == pytest.approx(free.forget, rel=1e-5)
    assert "ridge was given" in held.message
    held = olsq.tune(X, y, forget=free.forget, ridge_mode="fixed")
    assert held.ridge == pytest.approx(free.ridge, rel=1e-3)
    point = olsq.tune(X, y, half_life_bounds=(20, 20), ridge_bounds=(2, 2))
    assert (point.half_life, point.ridge) == (pytest.approx(20), pytest.approx(2))


@pytest.mark.full
@pytest.mark.parametrize("n", [5, 6, 9])
@pytest.mark.parametrize("mode", MODES)
def test_few_rows(n, mode):
    X, y = moving(n)
    tuned = olsq.tune(X, y, ridge_mode=mode)
    assert 0 <= tuned.forget <= 1
    assert np.isfinite([tuned.ridge, tuned.loss]).all()
    truth = loop_loss(X, y[:, None], np.ones(n), tuned.forget, tuned.ridge, mode, True, 4)
    if tuned.ridge > 1e-6:
        assert tuned.loss == pytest.approx(truth, rel=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
def test_hard_streams_end_somewhere_sensible(mode):
    rng = np.random.default_rng(2)
    x = rng.standard_normal(200)
    y = x + 0.1 * rng.standard_normal(200)
    for X in (
        np.column_stack([x, x]),  # collinear
        np.column_stack([x, np.zeros(200)]),
        np.column_stack([x, 1e-8 * rng.standard_normal(200)]),
        np.where(np.arange(200)[:, None] < 150, x[:, None], 0.0),  # ends
        np.repeat(x[:20], 10)[:, None],
    ):
        tuned = olsq.tune(X, y, ridge_mode=mode)
        assert np.isfinite([tuned.forget, tuned.ridge, tuned.loss]).all()
        assert tuned.loss <= tuned.path.loss.min() * (1 + 1e-6) + 1e-300


def test_no_place_on_the_curves_is_lower():
    """On streams whose columns differ in size by decades the loss has several valleys."""
    rng = np.random.default_rng(4)
    d = int(rng.integers(1, 5))
    X = rng.standard_normal((300, d)) * 10.0 ** rng.integers(-6, 6, d)
    X[rng.random(300) < 0.3] = 0
    moves = rng.choice([0, 0.1]) * rng.standard_normal((300, d))
    y = (X * (1 + np.cumsum(moves, axis=0))).sum(axis=1) + rng.standard_normal(300)
    tuned = olsq.tune(X, y, fit_intercept=False)
    for curve in (tuned.curve, tuned.ridge_curve, tuned.path):
        assert tuned.loss <= curve.loss.min() * (1 + 2e-6)


def test_bad_arguments_are_named():
    X, y = moving(30)
    for options, match in (
        ({"method": "newton"}, "method must be one of"),
        ({"forget": 1.5}, r"forget must lie in \[0, 1\]"),
        ({"forget": [0.9, 0.99]}, "forget must be one number"),
        ({"ridge": -1.0}, "ridge must be finite and >= 0"),
        ({"ridge_mode": "none"}, "ridge_mode must be one of"),
        ({"half_life_bounds": (10, 5)}, "half_life_bounds must be"),
        ({"half_life_bounds": (0, 5)}, "half_life_bounds must be"),
        ({"half_life_bounds": 5}, "half_life_bounds must be two numbers"),
        ({"ridge_bounds": (-1, 5)}, "ridge_bounds must be"),
        ({"ridge_bounds": (0, 0)}, "ridge_bounds must be"),
        ({"burn_in": -1}, "burn_in must be an integer"),
        ({"burn_in": 30}, "no row is left to score"),
        ({"starts": 0}, "starts must be"),
        ({"ridge_shape": [1.0, 2.0]}, "ridge_shape must be a number or one number per feature"),
        ({"ridge_shape": -1.0}, "ridge_shape must be finite and >= 0"),
        ({"ridge_shape": [0.0, 0.0, 0.0]}, "ridge_shape must be positive for some feature"),
        ({"sample_weight": -np.ones(30)}, "sample_weight must"),
        ({"missing": "skip_target"}, "missing must be one of"),
        ({"method": "mixture", "y_range": (3, 1)}, "y_range must be finite"),
        ({"method": "mixture", "y_range": 5}, r"y_range must be \(low, high\)"),
        ({"method": "mixture", "rule": "vote"}, "rule must be one of"),
    ):
        with pytest.raises((ValueError, TypeError), match=match):
            olsq.tune(X, y, **options)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        olsq.tune(X, y[:-1])
    with pytest.raises(ValueError, match="no row is left to score"):
        olsq.tune(X[:4], y[:4])


# -- the mixture ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["aggregating", "average"])
@given(data=st.data())
@settings(max_examples=examples(25), deadline=None)
def test_the_regret_is_within_its_bound(rule, data):
    """On any stream: also adversarial ones, weights, predictions outside the interval."""
    n = data.draw(st.integers(3, 40))
    values = st.sampled_from([-1.0, 1.0, 0.0, 0.3, -5.0, 1e-9, 100.0])
    X = np.array(data.draw(st.lists(values, min_size=n, max_size=n)))[:, None]
    y = np.array(data.draw(st.lists(values, min_size=n, max_size=n)))
    w = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.25, 4.0, 1e-9]), min_size=n,
                                    max_size=n)))  # fmt: skip
    if not w.any():
        w[0] = 1.0
    span = data.draw(st.sampled_from([None, (-1.0, 1.0), (0.0, 0.0)]))
    mixed = olsq.tune(
        X, y, method="mixture", fit_intercept=False, sample_weight=w, burn_in=0, rule=rule,
        y_range=span, forget=[0.0, 0.5, 0.9, 1.0], ridge=[1e-3, 1.0],
    ).mixture  # fmt: skip
    assert mixed.regret <= mixed.regret_bound * (1 + 1e-9) + 1e-12
    assert ((mixed.prediction >= mixed.y_range[0]) & (mixed.prediction <= mixed.y_range[1])).all()
    np.testing.assert_allclose(mixed.weights.sum(axis=1), 1.0, rtol=1e-12)
    low, high = mixed.y_range
    clipped = np.clip(y, low, high)
    assert mixed.loss == pytest.approx(w @ (clipped - mixed.prediction) ** 2, rel=1e-9, abs=1e-12)
    R, W, K = high - low, w.max(), len(mixed.forget)
    factor = {"aggregating": 0.5, "average": 2.0}[rule]
    assert mixed.regret_bound == pytest.approx(factor * R * R * W * math.log(K), rel=1e-12)


def test_the_bound_is_nearly_reached():
    """Two experts that disagree by the whole interval, and coin tosses: no slack to spare."""
    n = 400
    rng = np.random.default_rng(0)
    regrets = []
    for _ in range(20):
        experts = np.stack([np.zeros(n), np.ones(n)], axis=1)
        target = rng.integers(0, 2, n).astype(float)
        made, shares = np.empty(n), np.empty((n, 2))
        from olsq.tuning.mixture import aggregate

        aggregate(experts, target, np.ones(n), 0.0, 1.0, 2.0, False, made, shares)
        losses = ((experts - target[:, None]) ** 2).sum(axis=0)
        regrets.append(((made - target) ** 2).sum() - losses.min())
        assert regrets[-1] <= math.log(2) / 2 * (1 + 1e-12)
    # Vovk's constant is the best there is: one row that decides between the two takes most of it.
    made, shares = np.empty(9), np.empty((9, 2))
    experts, target = np.stack([np.zeros(9), np.ones(9)], axis=1), np.ones(9)
    aggregate(experts, target, np.ones(9), 0.0, 1.0, 2.0, False, made, shares)
    assert 0.25 < ((made - target) ** 2).sum() <= math.log(2) / 2


def test_a_mixture_predicts_from_the_past_alone():
    X, y = moving(200)
    options = {"method": "mixture", "y_range": (-50, 50), "forget": [0.8, 0.95, 1.0],
               "ridge": [0.1, 10.0], "burn_in": 0}  # fmt: skip
    whole = olsq.tune(X, y, **options).mixture
    half = olsq.tune(X[:90], y[:90], **options).mixture
    np.testing.assert_array_equal(whole.weights[:90], half.weights)
    np.testing.assert_allclose(whole.prediction[:90], half.prediction, rtol=1e-12)
    changed = y.copy()
    changed[120] += 10.0
    other = olsq.tune(X, changed, **options).mixture
    np.testing.assert_array_equal(whole.prediction[:121], other.prediction[:121])
    assert (whole.prediction[121:] != other.prediction[121:]).any()


def test_experts_are_the_estimators():
    X, y = moving(120)
    mixed = olsq.tune(X, y, method="mixture", forget=0.9, ridge=2.0, y_range=(-99, 99)).mixture
    est = olsq.RecursiveLeastSquares(forget=0.9, ridge=2.0).fit(X, y)
    np.testing.assert_allclose(mixed.prediction, y - est.residual_, rtol=1e-10, atol=1e-12)
    assert mixed.regret == pytest.approx(0, abs=1e-9)
    assert mixed.regret_bound == 0
    assert mixed.expert_loss[0] == pytest.approx((est.residual_[4:] ** 2).sum(), rel=1e-10)


def test_a_mixture_predicts_rows_whose_target_is_missing():
    X, y = moving(150)
    y[[0, 40, 149]] = np.nan
    X[60] = np.nan
    options = {"forget": [0.8, 0.97], "ridge": 1.0, "y_range": (-99, 99)}
    mixed = olsq.tune(X, y, method="mixture", **options).mixture
    assert np.flatnonzero(np.isnan(mixed.prediction)).tolist() == [60]
    for row in (40, 149):
        seen = np.arange(150) < row
        predictions = [
            olsq.RecursiveLeastSquares(forget=f, ridge=1.0).fit(X[seen], y[seen]).predict(X[[row]])
            for f in (0.8, 0.97)
        ]
        expected = mixed.weights[row] @ np.concatenate(predictions)
        low, high = min(predictions)[0], max(predictions)[0]
        assert low <= mixed.prediction[row] <= high
        assert mixed.prediction[row] == pytest.approx(expected)
    assert mixed.prediction[0] == 0


def test_a_mixture_of_several_targets_is_one_for_each():
    X, y = moving(150)
    Y = np.column_stack([y, -3 * y[::-1]])
    options = {"method": "mixture", "forget": [0.8, 0.97], "ridge": [1.0, 5.0]}
    both = olsq.tune(X, Y, **options)
    for j in range(2):
        own = olsq.tune(X, Y[:, j], **options).mixture
        np.testing.assert_allclose(both.mixture.prediction[:, j], own.prediction, rtol=1e-9)
        np.testing.assert_allclose(both.mixture.weights[:, j], own.weights, rtol=1e-6, atol=1e-12)
        assert both.mixture.regret_bound[j] == pytest.approx(own.regret_bound, rel=1e-12)
    best = int(np.argmin(both.mixture.expert_loss.sum(axis=0)))
    assert both.forget == both.mixture.forget[best]


def test_a_mixture_follows_a_change_of_regime():
    """Constant coefficients, then walking ones: no single factor does as well in both."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((3000, 2))
    coef = np.ones((3000, 2))
    coef[1500:] += np.cumsum(0.3 * rng.standard_normal((1500, 2)), axis=0)
    y = (X * coef).sum(axis=1) + rng.standard_normal(3000)
    mixed = olsq.tune(X, y, method="mixture", fit_intercept=False, ridge=1.0).mixture
    memory = mixed.weights @ mixed.forget
    assert memory[1499] > 0.92
    assert memory[-1] < 0.85
    assert mixed.regret < 0.25 * mixed.regret_bound


@pytest.mark.parametrize("power", [-400, 400])
def test_a_mixture_does_not_depend_on_units(power):
    X, y = moving(100)
    options = {"method": "mixture"}
    one, other = olsq.tune(X, y, **options), olsq.tune(X, np.ldexp(y, power), **options)
    np.testing.assert_array_equal(np.ldexp(one.mixture.prediction, power), other.mixture.prediction)
    np.testing.assert_array_equal(one.mixture.weights, other.mixture.weights)
    assert one.forget == other.forget


def test_targets_outside_the_interval_are_reported():
    X, y = moving(100)
    tuned = olsq.tune(X, y, method="mixture", y_range=(0.0, 1.0))
    assert "lie outside y_range and were clipped" in tuned.message
    assert tuned.mixture.regret <= tuned.mixture.regret_bound


@pytest.mark.full
def test_the_pages_blocks_print_what_it_shows():
    page = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text()
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "tuning.md", "docs/tuning.md", 0)
    assert len(test.examples) > 5
    failed = []
    doctest.DocTestRunner().run(test, out=failed.append)
    assert failed == []


def test_a_result_prints_in_a_few_lines_and_draws_its_curves():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.einsum("nd,nd->n", X, np.cumsum(0.1 * rng.normal(size=X.shape), axis=0))
    tuned = olsq.tune(X, y)
    text = repr(tuned)
    assert len(text.splitlines()) <= 10
    assert f"forget={tuned.forget:.8g}" in text
    assert "at forget=1" in text
    assert "% saved" in text
    assert [len(axis.lines) > 0 for axis in tuned.plot().axes] == [True, True]
    assert len(repr(olsq.tune(X, y, method="mixture")).splitlines()) <= 10


def test_kinds_of_covariance_are_taken_in_any_case():
    X, y = np.eye(3)[[0, 1, 2, 0, 1, 2]], np.arange(6.0)
    est = olsq.RecursiveLeastSquares(fit_intercept=False).fit(X, y)
    for kind, lags in (("HC0", None), ("HC3", None), ("hac", 1)):
        for other in (kind.lower(), kind.upper()):
            np.testing.assert_array_equal(
                est.cov_params(other, lags=lags, data=(X, y)),
                est.cov_params(kind, lags=lags, data=(X, y)),
            )


class Terminal(io.StringIO):
    def isatty(self):
        return True


TUNED = np.random.default_rng(0).standard_normal((200, 1))
KEYS = np.arange(200) % 4
LONG_CALLS = {
    "gradient": (lambda: olsq.tune(TUNED, TUNED[:, 0] + 1), "passes"),
    "mixture": (lambda: olsq.tune(TUNED, TUNED[:, 0] + 1, method="mixture"), "passes"),
    "time_varying": (lambda: olsq.time_varying(TUNED, np.cumsum(TUNED[:, 0])), "passes"),
    "time_varying by key": (
        lambda: olsq.time_varying(TUNED, np.cumsum(TUNED[:, 0]), by=KEYS), "groups",
    ),
    "a path by key": (
        lambda: olsq.coefficient_path(TUNED, TUNED[:, 0], by=KEYS, ridge_mode="fixed"), "groups",
    ),
    "robust errors by key": (
        lambda: olsq.coefficient_path(TUNED, TUNED[:, 0], by=KEYS, window=9, cov="HAC"), "rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("stream", "after", "shows"),
    [
        (Terminal, 0.0, True),
        (Terminal, 1e9, False),
        (io.StringIO, 0.0, True),
        (io.StringIO, 1e9, False),
    ],
)
@pytest.mark.parametrize("call", LONG_CALLS)
def test_a_long_call_shows_its_progress(monkeypatch, capsys, call, stream, after, shows):
    """A bar on a terminal, elsewhere one line and none soon after; nothing on standard output."""
    monkeypatch.setattr(progress, "SHOWN_AFTER", after)
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setenv("TERM", "xterm")
    run, unit = LONG_CALLS[call]
    run()
    shown = sys.stderr.getvalue()
    assert (unit in shown) == shows
    if stream is io.StringIO:
        assert shown.count("\n") == shows
    assert capsys.readouterr().out == ""


def test_calls_within_one_that_shows_its_progress_are_silent(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    with progress.silent_calls():
        LONG_CALLS["gradient"][0]()
    assert capsys.readouterr().err == ""
    LONG_CALLS["gradient"][0]()
    assert "passes" in capsys.readouterr().err
