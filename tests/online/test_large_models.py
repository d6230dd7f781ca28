"""Models of many coefficients: right, and in the memory of few states."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import olsq
from olsq.online.forms import lapack as factors

RLS = olsq.RecursiveLeastSquares


@pytest.mark.parametrize("d", [31, 32, 33, 65])
def test_wide_models_agree_with_a_dense_solve(d):
    rng = np.random.default_rng(d)
    n = 3 * d + 140
    X, y = rng.standard_normal((n, d)), rng.standard_normal((n, 2))
    est = RLS(forget=0.999, ridge=0.1, fit_intercept=False)
    errors = []
    for start in range(0, n, 140):
        est.partial_fit(X[start : start + 140], y[start : start + 140])
        errors.append(est.residual_)
    left = 0.999 ** np.arange(n - 1, -1, -1)
    for t in (1, d, n - 1):  # before row t
        weight = left[:t] / left[t - 1]
        gram = (weight[:, None] * X[:t]).T @ X[:t] + 0.1 * 0.999**t * np.eye(d)
        theta = np.linalg.solve(gram, (weight[:, None] * X[:t]).T @ y[:t])
        np.testing.assert_allclose(np.concatenate(errors)[t], y[t] - X[t] @ theta, atol=1e-10)


def test_a_singular_factor_and_a_pause():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    X[:, 3] = X[:, 0] + X[:, 1]
    y = rng.standard_normal(60)
    est = RLS(method="sqrt", ridge=0.0, fit_intercept=False).partial_fit(X, y)
    assert est.rank_ == 3
    np.testing.assert_allclose(est.coef_, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-12)
    gates = np.ones(60)
    gates[30] = 2.0**-1000  # a pause of 1,000 half-lives
    est = RLS(method="sqrt", ridge=1.0, fit_intercept=False)
    est.partial_fit(X[:, :3], y, forget=gates)
    alone = np.linalg.lstsq(X[30:, :3], y[30:], rcond=None)[0]
    np.testing.assert_allclose(est.coef_, alone, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sqrt", "covariance", "information"])
def test_a_call_needs_two_states(method):
    d = 800
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((64, d)), rng.standard_normal(64)
    prior = np.zeros(d), np.full(d, 1e-3)
    est = RLS(method=method, prior=prior, fit_intercept=False, residuals=False)
    est.partial_fit(X, y)
    tracemalloc.start()
    est.partial_fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 1.4 * 8 * d**2  # and the state itself, which was there before


@pytest.mark.parametrize("d", [1, 7, 40])
def test_many_targets_are_solved_together(d):
    rng = np.random.default_rng(d)
    R, G = np.triu(rng.standard_normal((d, d))) + 3 * np.eye(d), rng.standard_normal((12, d))
    for m in (1, 12):
        theta = factors.solve_triangle(R, G[:m])
        np.testing.assert_allclose(theta, np.linalg.solve(R, G[:m].T).T, atol=1e-12)
        assert theta.flags.c_contiguous


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sqrt", "covariance", "information"])
def test_files_and_merging_need_few_states(method, tmp_path):
    d, path = 800, tmp_path / "state.olsq"
    X = np.random.default_rng(0).standard_normal((64, d))

    def fitted():
        est = RLS(method=method, ridge=4.0 * d, fit_intercept=False, residuals=False)
        return est.partial_fit(X, X[:, 0])

    est, other = fitted(), fitted()
    small = RLS(method=method).partial_fit(X[:, :2], X[:, 0])
    olsq.merge(small, olsq.loads(small.to_bytes()))  # imports and compiles
    # Beside the estimators that are there: a copy that later rows do not change; the file and the
    # state; copies of both, the result, and room for the factors of an inverse, or for what is left
    # of second's root without its ridge: the factor of its share, the rows and their errors.
    for work, states in (
        (lambda: est.save(path), 1.2), (lambda: olsq.load(path), 2.2),
        (lambda: olsq.merge(est, other), 5.2),
    ):  # fmt: skip
        tracemalloc.start()
        work()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= states * 8 * d**2
    np.testing.assert_array_equal(olsq.load(path).coef_, est.coef_)


def test_a_window_that_fills_learns_its_first_rows_as_a_stream_does():
    """Their directions are carried from row to row: anew for each they cost O(d^4) together."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((70, 130)), rng.standard_normal(70)
    window, stream = olsq.RollingLeastSquares(300).fit(X, y), olsq.RecursiveLeastSquares().fit(X, y)
    np.testing.assert_array_equal(window.residual_, stream.residual_)
    np.testing.assert_array_equal(window.coef_, stream.coef_)
