"""Columns that depend on others: no rounding error may pass for a direction of its own."""

from __future__ import annotations

import numpy as np
import pytest

import olsq

COLUMNS = {
    "dummies and intercept": (lambda X: np.eye(X.shape[1])[X.argmax(1)], True),
    "a sum of two others": (lambda X: np.column_stack([X[:, :2], 2 * X[:, 0] - X[:, 1]]), False),
}


@pytest.mark.slow
@pytest.mark.parametrize("forget", [0.5, 0.95])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("method", ["covariance", "sqrt"])
def test_rounding_is_no_direction(method, columns, forget):
    """Coefficients of minimum norm stay small where old rows are faint, new ones nearly parallel.

    A false direction shows as coefficients of 1e14.
    """
    make, intercept = COLUMNS[columns]
    for seed in range(400):
        rng = np.random.default_rng(seed)
        X, y = make(rng.standard_normal((50, 3 + seed % 2))), rng.standard_normal(50)
        gates = np.where(rng.random(50) < 0.05, 0.0, forget)
        path = olsq.coefficient_path(
            X, y, sample_weight=rng.random(50), forget=gates, ridge=0.0, method=method,
            fit_intercept=intercept,
        )  # fmt: skip
        assert np.abs(path.coef).max() < 1e7, seed


@pytest.mark.parametrize("n_targets", [0, 2])
def test_windows_read_together_are_those_of_single_rows(n_targets):
    """A path of a window whose columns depend on each other, beside rows learned one at a time."""
    rng = np.random.default_rng(n_targets)
    n = 70
    X = np.column_stack([np.eye(3)[rng.integers(0, 3, n)], rng.standard_normal(n)])
    y = rng.standard_normal((n, n_targets) if n_targets else n)
    path = olsq.coefficient_path(X, y, window=15, fit_intercept=True)
    single = olsq.RollingLeastSquares(window=15)
    for t in range(n):
        if t > 0:
            error = y[t] - single.predict(X[t : t + 1])[0]
            np.testing.assert_allclose(path.residual[t], error, rtol=1e-9, atol=1e-11)
            # 0 where the row points in a new direction, whose leverage is infinite
            share = 1 / np.sqrt(1 + single.leverage(X[t : t + 1])[0])
            np.testing.assert_allclose(
                path.recursive_residual[t], share * error, rtol=1e-9, atol=1e-11
            )
        single.partial_fit(X[t : t + 1], y[t : t + 1])
        np.testing.assert_allclose(path.coef[t], single.coef_, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(path.sigma2[t], single.sigma2_, rtol=1e-9)
        np.testing.assert_allclose(path.stderr[t], single.coef_stderr_, rtol=1e-9)
