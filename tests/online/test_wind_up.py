"""Long unexciting streams: nothing overflows, nothing moves that nothing excites."""

from __future__ import annotations

import numpy as np
import pytest

import olsq

TRUTH = np.array([1.0, -2.0, 3.0, 0.5])


def first_rows(dtype, n=300, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, 4)).astype(dtype)
    return X, (X @ TRUTH).astype(dtype)


def learnt(method, dtype, **parameters):
    est = olsq.RecursiveLeastSquares(forget=0.98, method=method, **parameters)
    return est.fit(*first_rows(dtype))


@pytest.mark.parametrize("method", ["covariance", "sqrt"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("stream", ["zeros", "one key", "one feature"])
def test_what_nothing_excites_does_not_move(method, dtype, intercept, stream):
    est = learnt(method, dtype, fit_intercept=intercept)
    n = 40_000
    X = np.zeros((n, 4), dtype)
    if stream == "one key":
        X[:] = [1.0, 0.5, -0.25, 2.0]
    elif stream == "one feature":
        X[:, 1] = np.random.default_rng(1).standard_normal(n)
    y = (X @ TRUTH).astype(dtype) + np.random.default_rng(2).normal(0, 0.1, n).astype(dtype)
    if stream == "zeros":
        y[:] = 0
    before = est.coef_
    est.partial_fit(X, y)
    assert np.isfinite(est.coef_).all()
    assert np.isfinite(est.residual_).all()
    moved = est.coef_ - before
    if stream == "one key":  # the key itself is excited; what is orthogonal to it is not
        key = X[0] / np.linalg.norm(X[0])
        moved = moved - (moved @ key) * key
        assert abs(est.predict(X[:1])[0] - X[0] @ TRUTH) < 0.1
    elif stream == "one feature":
        moved[1] = 0
    # Off the excited direction the plain recursion moves a little too, while what the first rows
    # left correlated decouples; rounding must add nothing that grows.
    assert np.abs(moved).max() < (0.1 if dtype == np.float32 else 0.02)
    assert est.n_held_ > 0
    assert est.determined_.tolist() == [stream == "one feature" and j == 1 for j in range(4)]
    est.partial_fit(*first_rows(dtype, 400, seed=3))  # and it learns again at once
    np.testing.assert_allclose(est.coef_, TRUTH, atol=1e-2 if dtype == np.float32 else 1e-3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("ridge_mode", ["discounted", "fixed"])
def test_information_form_stays_finite_and_says_what_it_lost(dtype, ridge_mode):
    est = learnt("information", dtype, ridge_mode=ridge_mode, residuals=False)
    est.partial_fit(np.zeros((40_000, 4), dtype), np.zeros(40_000, dtype))
    assert np.isfinite(est.coef_).all()
    if ridge_mode == "fixed":  # the ridge pulls to zero what the data no longer hold
        np.testing.assert_allclose(est.coef_, 0, atol=1e-6)
        assert est.determined_.all()
    est.partial_fit(*first_rows(dtype, 400, seed=3))
    np.testing.assert_allclose(est.coef_, TRUTH, atol=1e-2)


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
    np.testing.assert_allclose(est.coef_, [1.0, 2.0, 3.0], atol=0.05)  # also the minimum norm


@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_magnitudes(method, scale):
    X, y = first_rows(np.float64, 2000)
    est = olsq.RecursiveLeastSquares(forget=0.99, ridge=0, fit_intercept=False, method=method)
    est.fit(X * scale, y * scale)
    np.testing.assert_allclose(est.coef_, TRUTH, rtol=1e-10)
    est.fit(X * scale, y)
    np.testing.assert_allclose(est.coef_ * scale, TRUTH, rtol=1e-10)


@pytest.mark.parametrize("d", [3, 5, 30, 33])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_covariance_stays_bitwise_symmetric(d, dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, d)).astype(dtype)
    y = X.sum(1) + rng.standard_normal(3000).astype(dtype)
    est = olsq.RecursiveLeastSquares(forget=0.99, method="covariance").fit(X, y)
    P = est._engine.form.P
    assert P.tobytes() == P.T.copy().tobytes()
    one = olsq.RecursiveLeastSquares(forget=0.99, method="covariance")
    for i in range(200):
        one.partial_fit(X[i : i + 1], y[i : i + 1])
    P = one._engine.form.P
    assert P.tobytes() == P.T.copy().tobytes()


def test_leaving_and_returning_to_the_covariance_form():
    """The covariance method changes form where its digits end and comes back where they are."""
    X, y = first_rows(np.float64, 500)
    est = olsq.RecursiveLeastSquares(forget=0.95, ridge=0, method="covariance", fit_intercept=False)
    forms = []
    est.partial_fit(X[:3], y[:3])
    forms.append(est._engine.form.name)  # diffuse start
    est.partial_fit(X[3:200], y[3:200])
    forms.append(est._engine.form.name)
    est.partial_fit(np.tile(X[:1], (800, 1)), np.tile(y[:1], 800))
    forms.append(est._engine.form.name)  # one key for 800 samples: three directions unexcited
    est.partial_fit(*first_rows(np.float64, 1500, seed=5))
    forms.append(est._engine.form.name)
    assert forms == ["sqrt", "covariance", "sqrt", "covariance"]
    np.testing.assert_allclose(est.coef_, TRUTH, rtol=1e-9)
