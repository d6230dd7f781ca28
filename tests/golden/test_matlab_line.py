"""MATLAB's documented example "Line Fitting with Online Recursive Least Squares Estimation".

A hydraulic valve, y = k u + b: k goes from 70 to 50 and b from -15 to -13 while the engine warms
up from t = 50 s to 950 s; a sample every 0.1 s; u is 0 before t = 50 s, then steps of 100 s from
0.4 up to 0.6 and back, plus noise; forgetting factor 0.95.  The measured file is not public: this
stream follows the example's description with a seed.  Every estimate is compared
with a dense solution.
"""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq import compiled

FORGET, NOISE = 0.95, 0.1
CHECKED = np.unique(np.r_[500:560, 600:9501:181])  # rows around the engine's start, and along it


def valve():
    """Return times, regressors (u, 1), targets, and the true k and b of every sample."""
    rng = np.random.default_rng(70_50)
    t = np.arange(0, 950.01, 0.1)
    levels = np.array([0.40, 0.45, 0.50, 0.55, 0.60, 0.55, 0.50, 0.45, 0.40])
    step = np.clip(((t - 50) // 100).astype(int), 0, 8)
    u = np.where(t < 50, 0.0, levels[step] + 0.02 * rng.standard_normal(len(t)))
    warm = np.clip((t - 50) / 900, 0, 1)
    k, b = 70 - 20 * warm, -15 + 2 * warm
    y = k * u + b + NOISE * rng.standard_normal(len(t))
    return t, np.column_stack([u, np.ones(len(t))]), y, np.column_stack([k, b])


T, X, Y, TRUTH = valve()


@pytest.fixture(scope="module")
def dense():
    """Weighted minimum-norm fits (rows, 2) of ``CHECKED``; older rows than 1,200 weigh nothing."""
    fits = []
    for end in CHECKED:
        rows = slice(max(0, end - 1200), end + 1)
        weights = np.sqrt(FORGET ** np.arange(len(Y[rows]) - 1.0, -1, -1))
        fits.append(np.linalg.lstsq(X[rows] * weights[:, None], Y[rows] * weights, rcond=1e-13)[0])
    return np.array(fits)


def by_path():
    return olsq.coefficient_path(X, Y, forget=FORGET).coef[CHECKED]


def by_rows(method):
    est = olsq.RecursiveLeastSquares(forget=FORGET, ridge=0.0, fit_intercept=False, method=method)
    coefs = []
    for x, y in zip(X, Y, strict=True):
        est.step(x, y)
        coefs.append(est.coef_.copy())
    return np.array(coefs)[CHECKED]


def by_bank():
    """Learn up to each checked row, since a bank keeps no path."""
    bank = olsq.FilterBank(2, forget=FORGET, ridge=0.0, fit_intercept=False)
    coefs, start = [], 0
    for end in CHECKED + 1:
        bank.partial_fit(np.stack([X[start:end]] * 2), np.stack([Y[start:end]] * 2))
        coefs.append(bank.coef_[1].copy())
        start = end
    return np.array(coefs)


def by_compiled():
    state = compiled.init(2, ridge=0.0)
    coefs = []
    for x, y in zip(X, Y, strict=True):
        compiled.update(state, x, y, FORGET, 1.0)
        coefs.append(compiled.coef(state).copy())
    return np.array(coefs)[CHECKED]


FITS = {
    "path": by_path,
    "covariance": lambda: by_rows("covariance"),
    "sqrt": lambda: by_rows("sqrt"),
    "information": lambda: by_rows("information"),
    "bank": by_bank,
    "compiled": by_compiled,
}


@pytest.mark.full
@pytest.mark.parametrize("door", FITS)
def test_every_estimate_is_the_dense_one(door, dense):
    found = FITS[door]()
    # Around t = 50 s a few rows of u determine k: condition numbers up to 1e4 there.
    np.testing.assert_allclose(found, dense, rtol=1e-9, atol=1e-9)


def test_the_example_s_parameters_are_tracked():
    """Median error of slope and offset over the last steps, as the example's figure shows."""
    path = olsq.coefficient_path(X, Y, forget=FORGET)
    error = np.abs(path.coef - TRUTH)[T > 100]
    assert np.median(error[:, 0]) < 2
    assert np.median(error[:, 1]) < 1
