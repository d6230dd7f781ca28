"""River's TrumpApproval (1001 days, six pollsters' features): predict, then learn.

River documents a mean absolute error of .586 for its Bayesian regression without forgetting. That
is a ridge of 1 on the raw features without an intercept; the same ridge, forgotten with the data,
gives .297 at ``forget=0.9``.
"""

from __future__ import annotations

import numpy as np
import pytest
from river import datasets

import olsq

SETTINGS = {"ridge": 1.0, "ridge_mode": "discounted", "fit_intercept": False}


@pytest.fixture(scope="module")
def approval():
    rows = list(datasets.TrumpApproval())
    X = np.array([list(features.values()) for features, _ in rows], dtype=float)
    return X, np.array([target for _, target in rows], dtype=float)


@pytest.mark.parametrize("method", ["auto", "covariance", "sqrt"])
@pytest.mark.parametrize(("forget", "expected"), [(1.0, 0.58639), (0.9, 0.29705)])
def test_mean_absolute_error(approval, forget, expected, method):
    X, y = approval
    est = olsq.RecursiveLeastSquares(forget=forget, method=method, **SETTINGS)
    est.partial_fit(X, y)
    assert np.mean(np.abs(est.residual_)) == pytest.approx(expected, abs=2e-5)


def test_predictions_equal_rivers(approval):
    from river.linear_model import BayesianLinearRegression

    X, y = approval
    river = BayesianLinearRegression()
    est = olsq.RecursiveLeastSquares(forget=1.0, **SETTINGS)
    theirs, ours = [], []
    for row, target in zip(X[:300], y[:300], strict=True):
        features = dict(enumerate(row.tolist()))
        river.learn_one(features, target)
        est.partial_fit(row[None], [target])
        theirs.append(river.predict_one(features))
        ours.append(est.predict(row[None])[0])
    # River multiplies an explicit inverse of condition number 1e14 with the moments.
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-6)
