"""Windows with regressors that are 0 throughout for a while: of coefficient 0, not made anew."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import olsq
from olsq.online.windows.arrays import DEPARTED


def stream(seed):
    """Rows whose columns are now and then 0 for long, options, and the first row of each window."""
    rng = np.random.default_rng(seed)
    n, d, m = int(rng.integers(60, 160)), int(rng.integers(2, 6)), int(rng.integers(1, 3))
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, m))
    for _ in range(int(rng.integers(1, 4))):
        start = int(rng.integers(-20, n - 20))
        X[max(start, 0) : start + int(rng.integers(20, 90)), rng.integers(0, d)] = 0.0
    if rng.random() < 0.3:
        X[:, 0] = 0.0  # throughout
    window = int(rng.integers(d + 4, 30))
    given = {"fit_intercept": bool(rng.integers(2)), "ridge": float(rng.choice([0.0, 0.3]))}
    weights = rng.choice([1.0, 0.5, 2.0], n) if rng.random() < 0.5 else None
    times, begins = None, np.maximum(np.arange(n) + 1 - window, 0)
    if rng.random() < 0.4:
        times = np.cumsum(rng.choice([0.5, 1.0, 2.0], n))
        begins = np.searchsorted(times, times - window + 1e-9, side="right")
        given["window"] = float(window)
    else:
        given["window"] = window
    return X, Y, weights, times, begins, given


@pytest.mark.full
@pytest.mark.parametrize("seed", range(25))
def test_windows_are_those_of_their_rows(seed):
    X, Y, weights, times, begins, given = stream(seed)
    n, d = X.shape
    first, w = int(given["fit_intercept"]), np.ones(n) if weights is None else weights
    path = olsq.coefficient_path(X, Y, sample_weight=weights, times=times, **given)
    coef = np.concatenate([path.intercept[..., None][..., :first], path.coef], axis=-1)
    stderr = np.concatenate([path.intercept_stderr[..., None][..., :first], path.stderr], axis=-1)
    Z = np.column_stack([np.ones((n, first)), X])
    penalty = np.diag([0.0] * first + [given["ridge"]] * d)
    for t in range(d + 8, n, 3):
        rows = slice(begins[t], t + 1)
        H, G = Z[rows].T * w[rows] @ Z[rows] + penalty, Z[rows].T * w[rows] @ Y[rows]
        some = H.any(axis=0)
        if np.linalg.cond(H[np.ix_(some, some)]) > 1e6:
            continue  # too few rows: of minimum norm, which other tests hold
        true = np.zeros((d + first, Y.shape[1]))
        true[some] = np.linalg.solve(H[np.ix_(some, some)], G[some])
        np.testing.assert_allclose(coef[t], true.T, rtol=1e-8, atol=1e-9)
        spread = np.full(d + first, np.inf)
        spread[some] = np.diagonal(np.linalg.inv(H[np.ix_(some, some)]))
        if np.isfinite(path.sigma2[t]).all():
            expected = np.sqrt(path.sigma2[t][:, None] * spread)
            np.testing.assert_allclose(stderr[t], expected, rtol=1e-7)

    est, cuts = olsq.RollingLeastSquares(**given), [0, 1, 30, 31, 58, n]
    for start, stop in pairwise(cuts):
        rows = slice(start, stop)
        of_rows = {"times": None if times is None else times[rows]}
        part = None if weights is None else weights[rows]
        est.partial_fit(X[rows], Y[rows], part, **of_rows)
        np.testing.assert_allclose(est.residual_, path.residual[rows], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(est.coef_, path.coef[-1], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(est.coef_stderr_, path.stderr[-1], rtol=1e-6)


@pytest.mark.parametrize("window", [30, 30.0])
def test_a_silent_column_does_not_make_windows_anew(window):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 4)), rng.standard_normal(300)
    X[100:, 2] = 0.0
    est, made, departed = olsq.RollingLeastSquares(window), 0, 0
    for t in range(300):
        est.step(X[t], y[t], time=float(t) if isinstance(window, float) else None)
        now = est._engine.engine.counts[DEPARTED]
        made, departed = made + (now < departed), now
    assert made < 10
