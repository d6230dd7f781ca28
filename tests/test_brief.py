"""Results print in a few lines, whatever arrays they hold."""

import numpy as np

import olsq
from olsq import stability
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
    yield from (olsq.datasets.us_macro(), olsq.datasets.nile(), olsq.tune(X, y))


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
