"""A rolling window has the same bits however its rows were cut into calls."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import olsq
from tests.online import streams

OPTIONS = {
    "rows": {"window": 20},
    "no intercept": {"window": 20, "fit_intercept": False},
    "one row": {"window": 1, "fit_intercept": False},
    "two rows": {"window": 2, "fit_intercept": False},
    "ridge": {"window": 20, "ridge": 0.3},
    "places": {"window": 20, "window_of": "positions"},
    "time": {"window": 20.0},
    "fading": {"window": 25, "forget": 0.9},
    "fading ridge": {"window": 25, "forget": 0.9, "ridge": 0.3},
    "fading in time": {"window": 25.0, "half_life": 6.0},
    "skip_target": {"window": 20, "missing": "skip_target"},
}


def learned(kind, X, Y, weights, cuts):
    """Return an estimator that was saved and loaded between calls, and all residuals."""
    times = np.cumsum(np.random.default_rng(0).choice([0.5, 1.0, 1.0, 2.5], len(X)))
    est, residual = olsq.RollingLeastSquares(**OPTIONS[kind]), []
    for start, stop in itertools.pairwise(cuts):
        part = slice(start, stop)
        own = {"times": times[part]} if "time" in kind else {}
        est.partial_fit(X[part], Y[part], None if weights is None else weights[part], **own)
        residual.append(est.residual_)
        if start % 7 == 0:
            est = olsq.loads(est.to_bytes())
    return est, np.concatenate(residual)


@pytest.mark.full
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
@pytest.mark.parametrize("kind", OPTIONS)
def test_any_cut_of_a_stream_gives_the_same_bits(kind, regressors, weighted):
    X, y = (np.concatenate([a] * 2) for a in streams.make(regressors, "gates 1")[:2])
    rng, n = np.random.default_rng(1), len(X)
    Y = np.column_stack([y, rng.standard_normal(n)])
    if kind == "skip_target":
        Y[rng.random(Y.shape) < 0.1] = np.nan
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], n) if weighted else None
    whole, residual = learned(kind, X, Y, weights, [0, n])
    assert np.isfinite(residual[~np.isnan(Y)]).all()
    rows, pieces = np.arange(n + 1).tolist(), [0, 1, 2, 7, 11, 33, n - 30, n - 3, n]
    for cuts in (rows, pieces):
        est, other = learned(kind, X, Y, weights, cuts)
        # Of targets apart, minimum norms are read of one target or of several, by BLAS.
        rounding = 1e-14 if kind == "skip_target" else 0.0
        np.testing.assert_allclose(other, residual, rtol=rounding)
        for name in ("coef_", "intercept_", "sigma2_", "coef_stderr_"):
            np.testing.assert_array_equal(getattr(est, name), getattr(whole, name), err_msg=name)


@pytest.mark.parametrize("d", [15, 16, 33])
def test_residuals_are_those_of_a_dense_solve_of_every_window(d):
    rng, window = np.random.default_rng(d), 4 * d
    X, y = rng.standard_normal((8 * d, d)), rng.standard_normal((8 * d, 2))
    est = olsq.RollingLeastSquares(window, ridge=0.1, fit_intercept=False).partial_fit(X, y)
    for t in range(window + 3, 8 * d, 17):
        A, b = X[t - window : t], y[t - window : t]
        theta = np.linalg.solve(A.T @ A + 0.1 * np.eye(d), A.T @ b)
        np.testing.assert_allclose(est.residual_[t], y[t] - X[t] @ theta, atol=1e-12)
