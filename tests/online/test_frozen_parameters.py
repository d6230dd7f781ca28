"""Parameters that a state was made with: later calls with others are refused, nothing changes."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import olsq

RLS, ROLLING = olsq.RecursiveLeastSquares, olsq.RollingLeastSquares
rng = np.random.default_rng(3)
X = rng.standard_normal((40, 2)) + np.array([1.0, -2.0])
Y = X @ [1.0, -2.0] + 3.0 + 0.1 * rng.standard_normal(40)

# Every constructor parameter is in one of the two tables (a test below says so), with a value
# that a fitted estimator does not have.
FROZEN = {
    RLS: {
        "ridge": [2.0, [1.0, 2.0], np.array([1.0, 2.0]), "much", None, np.inf],
        "ridge_mode": ["fixed", "bogus"],
        "fit_intercept": [False],
        "method": ["sqrt", "information", "covariance", "bogus"],
        "residuals": [False],
        "cov": ["sandwich", "bogus"],
        "prior": [([0.0, 1.0, 0.0], [1.0, 2.0, 3.0]), "bogus"],
    },
    ROLLING: {
        "window": [2, 20, 1000, 2.5, "bogus"],
        "ridge": [2.0, [1.0, 2.0], np.array([1.0, 2.0])],
        "fit_intercept": [False],
        "window_of": ["samples", "positions", "bogus"],
    },
}
FREE = {
    RLS: {"forget": 0.9, "half_life": 5.0, "missing": "raise", "noise_variance": 4.0},
    ROLLING: {
        "forget": 0.9,
        "half_life": 5.0,
        "min_samples": 3,
        "missing": "raise",
        "noise_variance": 4.0,
    },
}
CASES = [
    (kind, name, value)
    for kind, table in FROZEN.items()
    for name, values in table.items()
    for value in values
]


def state(estimator):
    return {k: a.copy() for k, a in estimator._engine.arrays().items()}


def assert_same_state(estimator, before):
    for name, array in estimator._engine.arrays().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


def arrivals(estimator, tmp_path):
    """The estimator, and the ways in which a state moves to another object."""
    estimator.save(tmp_path / "s.olsq")
    return {
        "itself": estimator,
        "loaded": olsq.load(tmp_path / "s.olsq"),
        "copied": copy.deepcopy(estimator),
        "thawed": pickle.loads(pickle.dumps(estimator)),
    }


@pytest.mark.parametrize("kind", [RLS, ROLLING])
def test_every_parameter_is_frozen_or_free(kind):
    assert set(kind().get_params()) == FROZEN[kind].keys() | FREE[kind].keys()


@pytest.mark.parametrize(
    ("kind", "name", "value"), CASES, ids=[f"{k.__name__}-{n}-{v}" for k, n, v in CASES]
)
def test_a_frozen_parameter_is_refused_by_name(kind, name, value, tmp_path):
    for how, est in arrivals(kind().fit(X, Y), tmp_path).items():
        before, predicted, old = state(est), est.predict(X), est.get_params()[name]
        coef, seen = est.coef_, est.n_samples_seen_
        est.set_params(**{name: value})
        for call in (
            lambda e=est: e.partial_fit(X, Y),
            lambda e=est: e.partial_fit(X[:1], Y[:1]),
            lambda e=est: e.partial_fit_path(X, Y),
            lambda e=est: e.save(tmp_path / "other.olsq"),
            lambda e=est: olsq.merge(e, kind().fit(X, Y)),
        ):
            with pytest.raises(ValueError, match=rf"(?s)^{name} .*{kind.__name__}.*fit") as caught:
                call()
            assert repr(old) in str(caught.value), how
            assert repr(value) in str(caught.value), how
        # What was learned can still be read, as it was learned.
        np.testing.assert_array_equal(est.coef_, coef)
        np.testing.assert_array_equal(est.predict(X), predicted)
        assert_same_state(est, before)
        assert est.n_samples_seen_ == seen
        est.set_params(**{name: old}).partial_fit(X, Y)  # set back, it goes on


@pytest.mark.parametrize("kind", [RLS, ROLLING])
def test_fit_takes_new_parameters(kind):
    for name, values in FROZEN[kind].items():
        est = kind().fit(X, Y).set_params(**{name: values[0]})
        fresh = clone(est).fit(X, Y)
        np.testing.assert_array_equal(est.fit(X, Y).coef_, fresh.coef_)
        est.partial_fit(X, Y)
        np.testing.assert_array_equal(est.coef_, fresh.partial_fit(X, Y).coef_)


@pytest.mark.parametrize("kind", [RLS, ROLLING])
def test_missing_by_target_does_not_come_or_go(kind, tmp_path):
    two = np.column_stack([Y, -Y])
    for made, now in (("skip", "skip_target"), ("skip_target", "skip"), ("skip_target", "raise")):
        for how, est in arrivals(kind(missing=made).fit(X, two), tmp_path).items():
            before, coef = state(est), est.coef_
            est.set_params(missing=now)
            for call in (
                lambda e=est: e.partial_fit(X, two),
                lambda e=est: e.partial_fit_path(X, two),
                lambda e=est: e.save(tmp_path / "other.olsq"),
                lambda e=est, made=made: olsq.merge(e, kind(missing=made).fit(X, two)),
            ):
                with pytest.raises(ValueError, match=rf"^missing is '{now}'.*fit"):
                    call()
            assert_same_state(est, before)
            np.testing.assert_array_equal(est.coef_, coef, err_msg=how)
            est.set_params(missing=made).partial_fit(X, two)
            est.set_params(missing=now).fit(X, two).partial_fit(X, two)  # fit starts anew


def test_a_refused_fit_keeps_what_was_frozen():
    est = RLS().fit(X, Y).set_params(fit_intercept=False)
    with pytest.raises(ValueError, match="sample_weight is zero"):
        est.fit(X, Y, np.zeros(40))
    with pytest.raises(ValueError, match="fit_intercept"):
        est.partial_fit(X, Y)


def test_free_parameters_change_between_rows():
    est = RLS().fit(X[:20], Y[:20]).set_params(forget=0.9).partial_fit(X[20:], Y[20:])
    other = RLS().fit(X[:20], Y[:20]).partial_fit(X[20:], Y[20:], forget=0.9)
    np.testing.assert_array_equal(est.coef_, other.coef_)
    est.set_params(forget=1.0, half_life=7.0).partial_fit(X, Y)
    est.set_params(missing="raise")
    with pytest.raises(ValueError, match="NaN"):
        est.partial_fit([[np.nan, 1.0]], [1.0])
    with pytest.raises(ValueError, match="missing must be one of"):
        est.set_params(missing="bogus").partial_fit(X, Y)
    rolling = ROLLING(window=10).fit(X[:2], Y[:2]).set_params(min_samples=3)
    with pytest.raises(ValueError, match="of min_samples=3 rows"):
        _ = rolling.coef_
    with pytest.raises(ValueError, match="must not exceed window"):
        rolling.set_params(min_samples=11).partial_fit(X, Y)


def test_equal_values_are_no_change():
    est = RLS(ridge=[0.5, 0.5], fit_intercept=True).fit(X, Y)
    est.set_params(ridge=np.array([0.5, 0.5]), fit_intercept=1).partial_fit(X, Y)
    est.set_params(ridge=(0.5, 0.5), fit_intercept=np.True_).partial_fit(X, Y)


def test_an_array_changed_in_place_is_noticed():
    ridge = np.array([1.0, 1.0])
    est = RLS(ridge=ridge).fit(X, Y)
    ridge[0] = 5.0
    with pytest.raises(ValueError, match="ridge"):
        est.partial_fit(X, Y)


def test_estimators_from_moments_are_frozen_too():
    start = RLS().fit(X, Y)
    est = RLS.from_moments(start.moments(), **start.get_params()).set_params(fit_intercept=False)
    with pytest.raises(ValueError, match="fit_intercept"):
        est.partial_fit(X, Y)


def test_residuals_follow_the_second_of_two_merged():
    fixed = {"ridge_mode": "fixed", "ridge": 1.0}
    first = RLS(**fixed).fit(X, Y)
    second = RLS(residuals=False, **fixed).fit(X, Y)
    merged = olsq.merge(first, second).partial_fit(X, Y)
    with pytest.raises(AttributeError, match="residuals=False"):
        _ = merged.residual_
    assert olsq.merge(second, first).partial_fit(X, Y).residual_.shape == (40,)
