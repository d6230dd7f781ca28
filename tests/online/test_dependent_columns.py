"""Columns that depend on others: no rounding error may pass for a direction of its own."""

from __future__ import annotations

import numpy as np
import pytest

import olsq

pytestmark = pytest.mark.sparse

COLUMNS = {
    "dummies and intercept": (lambda X: np.eye(X.shape[1])[X.argmax(1)], True),
    "a sum of two others": (lambda X: np.column_stack([X[:, :2], 2 * X[:, 0] - X[:, 1]]), False),
}


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
