"""Results print in a few lines, whatever arrays they hold."""

import numpy as np
import pytest

import olsq
from olsq import attention, stability
from olsq.arrays.brief import brief_repr

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 8))
y = X @ np.arange(8.0) + RNG.standard_normal(300)


def results():
    estimator = olsq.RecursiveLeastSquares(cov="sandwich").fit(X, y)
    path = olsq.coefficient_path(X, y)
    solution = olsq.online_lstsq(X, X, X, ridge=1.0)
    yield from (path, estimator.moments(), estimator.t_test(np.eye(8)), solution, *solution[1:])
    yield olsq.online_lstsq_vjp(X, X, X, X, ridge=1.0)
    yield from (stability.break_test(X, y), stability.ols_cusum(X, y), stability.cusum(path))
    yield from (stability.nyblom(X, y), olsq.time_varying(X, y, drift=0.1))
    yield from (olsq.local_lstsq(X, X, X, ridge=1.0), olsq.compiled.init(100))
    yield attention.delta(*np.ones((3, 1, 64, 2, 16), np.float32))[1]
    yield from (olsq.datasets.us_macro(), olsq.datasets.nile(), olsq.tune(X, y))


@pytest.mark.full
def test_a_result_prints_in_ten_lines():
    for result in results():
        text = repr(result)
        assert len(text.splitlines()) <= 10, text
        assert len(text) < 1000, text
        assert text.startswith(type(result).__name__)


def test_small_arrays_are_shown():
    moments = olsq.Moments(np.eye(2), np.ones((1, 2)))
    assert brief_repr(moments) == "Moments(gram=(2, 2) float64, cross=(1, 2) float64)"
    test = olsq.RecursiveLeastSquares().fit(X, y).t_test(np.eye(8)[:2])
    assert "array([" in repr(test)


def test_every_state_of_a_rule_prints_briefly():
    classes = [getattr(attention, name) for name in attention.__all__]
    states = [c for c in classes if isinstance(c, type) and issubclass(c, tuple)]
    assert len(states) > 10
    assert all(state.__repr__ is brief_repr for state in states)


def test_long_parameters_are_shown_by_their_shape():
    ridge = np.ones(1000)
    estimator = olsq.RecursiveLeastSquares(ridge=ridge, prior=(np.zeros(90), np.eye(90)))
    text = repr(estimator)
    assert text == "RecursiveLeastSquares(ridge=(1000,) float64, prior=tuple of 2)"
    short = repr(olsq.RecursiveLeastSquares(ridge=[1.0, 2.0], forget=0.9))
    assert short == "RecursiveLeastSquares(forget=0.9, ridge=[1.0, 2.0])"
