"""Long unexciting streams: nothing overflows, nothing moves that nothing excites."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

import olsq
from olsq.online.forms.limits import limits_for
from olsq.reference import wind_up as oracle
from olsq.reference.regression import solve

TRUTH = np.array([1.0, -2.0, 3.0, 0.5])


def first_rows(dtype, n=300, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, 4)).astype(dtype)
    return X, (X @ TRUTH).astype(dtype)


def learned(method, dtype, **parameters):
    est = olsq.RecursiveLeastSquares(forget=GATE, method=method, ridge=1e-3, **parameters)
    return est.fit(*first_rows(dtype))


GATE, AFTER, LONG = 0.98, 4000, 40_000  # nothing is left of the first rows after 1,800
AT = [100, 300, 600, 1000, 1500, 2000, 3000, AFTER - 1]
KEY = [1.0, 0.5, -0.25, 2.0]
EXCITED = pytest.mark.parametrize("stream", ["one key", "one feature"])
FORMS = pytest.mark.parametrize(("method", "intercept", "dtype"), list(itertools.product(
    ["covariance", "sqrt"], [True, False], [np.float64, np.float32])))  # fmt: skip


def unexciting(stream, dtype, noise, n=LONG):
    """Rows that leave most directions without excitation; targets exact up to ``noise``."""
    X = np.zeros((n, 4), dtype)
    if stream == "one key":
        X[:] = KEY
    elif stream == "one feature":
        X[:, 1] = np.random.default_rng(1).standard_normal(n)
    return X, (X @ TRUTH + noise * np.random.default_rng(2).standard_normal(n)).astype(dtype)


@cache
def held_exactly(stream, dtype, intercept, noise):
    """Apply the rule at ``AT`` rows of the stream, without rounding."""
    parts = zip(first_rows(dtype), unexciting(stream, dtype, noise, AFTER), strict=True)
    X, y = (np.concatenate(p) for p in parts)
    ridge = np.full(4, 1e-3)
    if intercept:
        X, ridge = np.insert(X, 0, 1, axis=1), np.insert(ridge, 0, 0)
    limits = limits_for(dtype)
    return oracle.path(
        X, y, gate=GATE, ridge=ridge, eps=limits.eps, floor=limits.floor, coarse=limits.coarse,
        at=[300 + t for t in AT],
    )  # fmt: skip


def followed(est, X, y):
    """Coefficients (intercept first) after every row."""
    path = est.partial_fit_path(X, y)
    coef = path.coef.astype(np.float64)
    return np.insert(coef, 0, path.intercept, axis=1) if est.fit_intercept else coef


@pytest.mark.full
@FORMS
@pytest.mark.parametrize("stream", ["zeros", "one key", "one feature"])
def test_without_noise_nothing_moves(method, intercept, dtype, stream):
    """Each of 40,000 rows rounds; no more than a few hundred roundings are left of them.

    Each time that a coefficient is held rounds its value, the same way in a stream that repeats.
    """
    est = learned(method, dtype, fit_intercept=intercept)
    exact = held_exactly(stream, dtype, intercept, 0.0)
    X, y = unexciting(stream, dtype, 0.0)
    allowed = 400 * float(np.finfo(dtype).eps)
    coef = followed(est, X[:AFTER], y[:AFTER])
    np.testing.assert_allclose(coef[AT], exact.coef, rtol=0, atol=allowed)
    assert abs(est.n_held_ - exact.count[-1]) <= 4  # a hold may come a row sooner or later
    later = followed(est, X[AFTER:], y[AFTER:])
    allowed = max(400, est.n_held_ / 2) * float(np.finfo(dtype).eps)
    np.testing.assert_array_less(np.abs(later - exact.coef[-1]), allowed)
    assert np.isfinite(est.residual_).all()
    assert est.determined_.tolist() == [stream == "one feature" and j == 1 for j in range(4)]
    est.partial_fit(*first_rows(dtype, 400, seed=3))  # and it learns again at once
    np.testing.assert_allclose(est.coef_, TRUTH, rtol=0, atol=100 * float(np.finfo(dtype).eps))
    assert est.determined_.all()


@pytest.mark.slow
@FORMS
@EXCITED
def test_with_noise_what_nothing_excites_is_held(method, intercept, dtype, stream):
    """Against the exact rule, as closely as any algorithm in this dtype could come to it.

    After t rows the unexcited directions have ``gamma^t`` of their information left, so the squared
    condition number is kappa^2 = gamma^-t.  Least squares with a residual of size rho is determined
    to ``eps (kappa + kappa^2 rho)`` (Golub & Van Loan, 5.3.7): a row's leftover off the excited
    direction shrinks like gamma^t and so does the information there, so the row moves those
    coefficients by about ``rho (1 - gamma)`` for ever, but from gamma^t = eps on the leftover is
    rounding error.  What rounding can do by then is a part of the noise, the same part in every
    dtype, and it comes to an end: leftovers below rounding are dropped.
    """
    noise, eps = 0.1, float(np.finfo(dtype).eps)
    est = learned(method, dtype, fit_intercept=intercept)
    coef = followed(est, *unexciting(stream, dtype, noise))
    exact = held_exactly(stream, dtype, intercept, noise)
    bound = eps * (100 + 10 * noise * GATE ** -np.array(AT, float))
    assert (np.abs(coef[AT] - exact.coef).max(1) <= np.minimum(bound, 0.25 * noise)).all()
    # Along the excited direction nothing is lost.
    x = np.array([1.0, *KEY][1 - intercept :])
    if stream == "one feature":
        x = np.eye(4 + intercept)[1 + intercept]
    np.testing.assert_allclose(coef[AT] @ x, exact.coef @ x, rtol=0, atol=100 * eps)
    assert est.n_held_ > 0
    assert est.determined_.tolist() == [stream == "one feature" and j == 1 for j in range(4)]
    est.partial_fit(*first_rows(dtype, 400, seed=3))
    np.testing.assert_allclose(est.coef_, TRUTH, rtol=0, atol=noise * GATE**400 + 100 * eps)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("ridge_mode", ["discounted", "fixed"])
def test_information_form_stays_finite_and_says_what_it_lost(dtype, ridge_mode):
    est = learned("information", dtype, ridge_mode=ridge_mode, residuals=False)
    est.partial_fit(np.zeros((40_000, 4), dtype), np.zeros(40_000, dtype))
    assert np.isfinite(est.coef_).all()
    if ridge_mode == "fixed":  # the ridge pulls to zero what the data no longer hold
        np.testing.assert_allclose(est.coef_, 0, atol=1e-50)
        assert est.determined_.all()
    X, y = first_rows(dtype, 400, seed=3)
    est.partial_fit(X, y)
    # What the first rows knew has been forgotten, but of the zeros the intercept still knows.
    X, y = (np.concatenate([np.zeros((2000, *a.shape[1:])), a]) for a in (X, y))
    ridge = np.full(4, 1e-3 if ridge_mode == "fixed" else 0.0)
    exact = solve(X, y[:, None], GATE ** np.arange(2400.0)[::-1], ridge, True)
    np.testing.assert_allclose(est.coef_, exact[0][0], rtol=0, atol=20 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("forget", [1.0, 0.98])
def test_collinear_for_ever(method, dtype, forget):
    """An exactly dependent column: predictions are right, coefficients stay of normal size."""
    rng = np.random.default_rng(0)
    X = (np.round(rng.standard_normal((20_000, 3)) * 64) / 64).astype(dtype)
    X[:, 2] = X[:, 0] + X[:, 1]
    y = (X @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal(20_000)).astype(dtype)
    est = olsq.RecursiveLeastSquares(
        forget=forget, ridge=0, fit_intercept=False, method=method, residuals=False
    ).fit(X, y)
    assert est.rank_ == 2
    assert not est.determined_.any()
    assert np.isinf(est.coef_stderr_).all()
    weights = forget ** np.arange(20_000.0)[::-1]
    exact, _, _, rank, _ = solve(
        X.astype(float), y[:, None].astype(float), weights, np.zeros(3), False
    )
    assert rank == 2
    # One rounding for each row that counts; they add up like a random walk.
    rounding = 10 * float(np.finfo(dtype).eps) * np.sqrt(weights.sum())
    np.testing.assert_allclose(est.coef_, exact[0], rtol=0, atol=rounding)


@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_magnitudes(method, scale):
    X, y = first_rows(np.float64, 2000)
    est = olsq.RecursiveLeastSquares(forget=0.99, ridge=0, fit_intercept=False, method=method)
    est.fit(X * scale, y * scale)
    np.testing.assert_allclose(est.coef_, TRUTH, rtol=1e-10)
    est.fit(X * scale, y)
    np.testing.assert_allclose(est.coef_ * scale, TRUTH, rtol=1e-10)


@pytest.mark.full
@pytest.mark.parametrize("factor", [1e-2, 1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
def test_hardly_any_memory_never_ends_in_nan(method, factor):
    """One row remembered, twenty coefficients: nothing is determined, and learning can go on."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((12_000, 20)), rng.standard_normal(12_000)
    est = olsq.RecursiveLeastSquares(method=method, fit_intercept=False)
    for start in range(0, 8000, 1000):
        rows = slice(start, start + 1000)
        est.partial_fit(X[rows], y[rows], forget=np.full(1000, factor))
        assert np.isfinite(est.coef_).all()
    assert not est.determined_.any()
    est.partial_fit(X[8000:], y[8000:], forget=np.full(4000, 0.9))
    root = np.sqrt(0.9 ** np.arange(299, -1, -1))
    want = np.linalg.lstsq(root[:, None] * X[-300:], root * y[-300:], rcond=None)[0]
    np.testing.assert_allclose(est.coef_, want, rtol=1e-8)
