"""Gaps so close together that no rows between them determine every coefficient.

Then old and new rows decide together, though they weigh 1e-12 of each other.  Rational arithmetic
judges.  Where two columns are proportional, the coefficients of minimum norm are proportional too,
and the oracle fits their common factor.
"""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.online.estimators.growing import with_features
from olsq.reference import rational

METHODS = ("covariance", "sqrt", "information")
FACTORS = {
    "one": [1, 1, 1e-12, 1, 0.5],
    "faint": [1, 1, 1, 1e-6, 1],
    "two": [1, 1e-12, 1, 1e-9, 1],
    "two in a row": [1, 1, 0.5, 1e-12, 1e-12],
    "many": [1, 1e-6, 1e-6, 1e-6, 1],
    "at once": [1e-12, 1e-12, 0.5, 1, 1],
    "below rounding": [1, 1, 1e-30, 1, 1],
    "after a reset": [1, 1, 0, 1e-12, 1, 1e-6, 1],
}
WAYS = ("whole", "rows", "files", "pieces")


def stream(factors: list[float], proportional: bool):
    rng = np.random.default_rng(len(factors))
    X, y = rng.standard_normal((len(factors), 3)), rng.standard_normal(len(factors))
    if proportional:
        X[:, 1] = 2 * X[:, 0]
    return X, y, np.array(factors, float)


def exact(X, y, factors, proportional, ridge=0.0):
    """Coefficients with a fixed ridge: rows that come last."""
    Z = np.column_stack([5 * X[:, 0], X[:, 2]]) if proportional else X
    d = Z.shape[1]
    rows = np.sqrt(ridge) * np.eye(d)[: d if ridge else 0]
    Z, y = np.vstack([Z, rows]), np.concatenate([y, np.zeros(len(rows))])
    factors = np.concatenate([factors, np.ones(len(rows))])
    found = rational.solve(Z, y, factors, np.ones(len(y)), np.zeros(d))
    assert found is not None
    theta = found[0]
    return np.array([theta[0], 2 * theta[0], theta[1]]) if proportional else theta


def learn(make, way, X, y, factors):
    n = len(y)
    if way == "whole":
        return make().partial_fit(X, y, forget=factors)
    if way == "pieces":
        parts = [make().partial_fit(X[s], y[s], forget=factors[s])
                 for s in (slice(0, 2), slice(2, n))]  # fmt: skip
        return olsq.merge(*parts)
    est = make()
    for t in range(n):
        est.partial_fit(X[t : t + 1], y[t : t + 1], forget=factors[t : t + 1])
        est = olsq.loads(est.to_bytes()) if way == "files" else est
    return est


@pytest.mark.full
@pytest.mark.parametrize("proportional", [False, True], ids=["", "proportional"])
@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", METHODS)
def test_old_and_new_rows_decide_together(method, way, name, proportional):
    X, y, factors = stream(FACTORS[name], proportional)
    est = learn(
        lambda: olsq.RecursiveLeastSquares(method=method, ridge=0.0, fit_intercept=False),
        way, X, y, factors,
    )  # fmt: skip
    want = exact(X, y, factors, proportional)
    np.testing.assert_allclose(est.coef_, want, rtol=0, atol=1e-9 * np.abs(want).max())


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("residuals", [True, False])
def test_every_target_of_moments_has_its_own_past(residuals, name):
    """Targets that miss different rows, with a row that only one has seen."""
    X, y, factors = stream(FACTORS[name], False)
    Y = np.column_stack([y, y[::-1], np.where(np.arange(len(y)) == len(y) - 2, np.nan, y)])
    est = olsq.RecursiveLeastSquares(
        method="information", ridge=0.0, fit_intercept=False, missing="skip_target",
        residuals=residuals,
    )  # fmt: skip
    for t in range(len(y)):
        est.partial_fit(X[t : t + 1], Y[t : t + 1], forget=factors[t : t + 1])
    for k in range(2):
        want = exact(X, Y[:, k], factors, False)
        np.testing.assert_allclose(est.coef_[k], want, rtol=0, atol=1e-9 * np.abs(want).max())
    alone = olsq.RecursiveLeastSquares(
        method="sqrt", ridge=0.0, fit_intercept=False, missing="skip_target"
    )
    alone.partial_fit(X, Y[:, 2:], forget=factors)
    size = np.abs(alone.coef_).max()
    np.testing.assert_allclose(est.coef_[2:], alone.coef_, rtol=0, atol=1e-9 * size)


@pytest.mark.full
@pytest.mark.parametrize("ridge", [1e-3, 1e-8, 1e-11])
@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("way", WAYS)
def test_a_fixed_ridge_is_beside_all_rows(way, name, ridge):
    X, y, factors = stream(FACTORS[name], False)
    est = learn(
        lambda: olsq.RecursiveLeastSquares(
            method="information", ridge=ridge, ridge_mode="fixed", fit_intercept=False
        ),
        way, X, y, factors,
    )  # fmt: skip
    want = exact(X, y, factors, False, ridge)
    np.testing.assert_allclose(est.coef_, want, rtol=0, atol=1e-9 * np.abs(want).max())


@pytest.mark.parametrize("method", METHODS)
def test_added_features_join_what_is_known_from_before_a_gap(method):
    X, y, factors = stream([1, 1e-12, 1, 1], False)
    X[:3, 2] = 0.0
    est = olsq.RecursiveLeastSquares(method=method, ridge=1e-3, fit_intercept=False)
    est = with_features(est.partial_fit(X[:2, :2], y[:2], forget=factors[:2]), 3)
    for t in (2, 3):
        est.partial_fit(X[t : t + 1], y[t : t + 1], forget=factors[t : t + 1])
        rows = slice(0, t + 1)
        found = rational.solve(X[rows], y[rows], factors[rows], np.ones(t + 1), np.full(3, 1e-3))
        assert found is not None
        np.testing.assert_allclose(est.coef_, found[0], rtol=1e-9)


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("ridge_mode", ["discounted", "fixed"])
def test_errors_are_those_of_the_coefficients_before_each_row(ridge_mode, name):
    X, y, factors = stream(FACTORS[name], False)
    options = {"method": "information", "ridge": 1e-3, "ridge_mode": ridge_mode}
    one, whole = (olsq.RecursiveLeastSquares(fit_intercept=False, **options) for _ in range(2))
    errors = [y[0]]
    one.partial_fit(X[:1], y[:1], forget=factors[:1])
    for t in range(1, len(y)):
        errors.append(y[t] - X[t] @ one.coef_)
        one.partial_fit(X[t : t + 1], y[t : t + 1], forget=factors[t : t + 1])
    whole.partial_fit(X, y, forget=factors)
    np.testing.assert_allclose(whole.residual_, errors, rtol=0, atol=1e-9 * np.abs(errors).max())


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("method", METHODS)
def test_variances_are_those_of_old_and_new_rows(method, name):
    X, y, factors = stream(FACTORS[name], False)
    est = olsq.RecursiveLeastSquares(method=method, ridge=1e-3, fit_intercept=False)
    est.partial_fit(X, y, forget=factors)
    later = np.append(np.cumprod(factors[::-1])[-2::-1], 1.0)  # forgetting after each row
    ridge = np.full(3, 1e-3)
    found = rational.solve(X, y, factors, np.ones(len(y)), ridge)
    assert found is not None
    information = (later[:, None] * X**2).sum(0) + factors.prod() * ridge
    assert est.determined_.all()
    np.testing.assert_allclose(est.leverage(np.eye(3)), found[1] ** 2 / information, rtol=1e-6)
    np.testing.assert_allclose(np.diagonal(est.moments().gram), information, rtol=1e-9)
