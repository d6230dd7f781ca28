"""Rows are taken in blocks in several places: none is lost, doubled or moved at an edge."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.online.calls import call
from olsq.online.forms import information
from olsq.reference import regression as oracle

EDGES = [1, 63, 64, 65, 127, 128, 129, 200]


@pytest.mark.sparse
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n", EDGES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: olsq.RecursiveLeastSquares(method="covariance", fit_intercept=False, ridge=1e-3),
        lambda: olsq.RecursiveLeastSquares(
            method="sqrt", fit_intercept=False, ridge=1e-3, cov="sandwich"
        ),
        lambda: olsq.RecursiveLeastSquares(method="information", fit_intercept=False, ridge=1e-3),
        lambda: olsq.RecursiveLeastSquares(
            method="information", fit_intercept=False, ridge=1e-3, residuals=False
        ),
        lambda: olsq.RollingLeastSquares(window=70, fit_intercept=False, ridge=1e-3),
        lambda: olsq.RollingLeastSquares(
            window=70, fit_intercept=False, ridge=1e-3, window_of="positions"
        ),
    ],
)
def test_every_row_is_learnt_once(make, n, missing, monkeypatch):
    monkeypatch.setattr(call, "BLOCK_ENTRIES", 128)  # 64 rows
    monkeypatch.setattr(information, "_BLOCK", 16)
    rng = np.random.default_rng(n)
    X, y = rng.integers(-8, 9, (n, 2)).astype(float), rng.integers(-8, 9, n).astype(float)
    usable = np.ones(n, bool)
    if missing:
        usable = rng.random(n) < 0.9
        usable[0] = True
        y[~usable] = np.nan
    est = make().partial_fit(X[:1], y[:1]).partial_fit(X[1:], y[1:])
    kept = np.flatnonzero(usable)
    if isinstance(est, olsq.RollingLeastSquares):
        kept = kept[kept >= n - 70] if est.window_of == "positions" else kept[-70:]
    gram = est.moments().gram - 1e-3 * np.eye(2)  # the ridge
    np.testing.assert_allclose(gram, X[kept].T @ X[kept], rtol=0, atol=1e-7)
    np.testing.assert_allclose(est.moments().cross[0], y[kept] @ X[kept], rtol=0, atol=1e-7)
    assert est.n_samples_seen_ == usable.sum()
    whole = make().partial_fit_path(X, y)
    np.testing.assert_allclose(whole.coef[-1], est.coef_, rtol=1e-7)
    # A-priori errors, from the coefficients after the row before.
    before = np.vstack([np.zeros(2), whole.coef[:-1]])
    np.testing.assert_allclose(whole.residual, y - (X * before).sum(1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [39, 40, 41, 43, 48, 63])
@pytest.mark.parametrize("forget", [1.0, 0.97])
def test_blocks_of_eight_rows(n, forget):
    """From 24 coefficients on the covariance form takes eight rows at a time."""
    rng = np.random.default_rng(n)
    d = 26
    X, weights = rng.standard_normal((n, d)), rng.uniform(0.5, 2.0, n)
    Y = X @ rng.standard_normal((d, 2)) + rng.standard_normal((n, 2))
    est = olsq.RecursiveLeastSquares(
        forget=forget, ridge=0.5, fit_intercept=False, method="covariance"
    )
    path = est.partial_fit_path(X, Y, weights)
    assert est._engine.form.name == "covariance"
    gates, ridge = np.full(n, forget), np.full(d, 0.5)
    truth = oracle.coefficient_path(X, Y, gates=gates, weights=weights, ridge=ridge)
    np.testing.assert_allclose(path.coef, truth.coef, rtol=0, atol=1e-9)
    np.testing.assert_allclose(path.residual, truth.residual, rtol=0, atol=1e-8)
    np.testing.assert_allclose(est.coef_, truth.coef[-1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(est._engine.form.loss, truth.loss[-1], rtol=1e-8)
