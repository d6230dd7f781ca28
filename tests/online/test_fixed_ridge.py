"""A ridge that is not forgotten, beside streams that break solvers: rational arithmetic judges."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.reference import rational

KINDS = ["plain", "scales", "collinear", "silent", "dummies", "huge rows", "proportional"]


def stream(kind, seed):
    """Rows of three regressors with an intercept's column, gates, and a ridge for each column."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    n = 14
    X, y = rng.standard_normal((n, 3)), rng.standard_normal(n)
    gates = rng.choice([1.0, 0.9, 0.3, 1e-6], n, p=[0.3, 0.5, 0.15, 0.05])
    ridge = 10.0 ** rng.uniform(-6, 3, 3)
    if kind == "scales":
        scale = 10.0 ** rng.uniform(-6, 6, 3)
        X, ridge = X * scale, ridge * scale**2
    elif kind == "collinear":
        X[:, 1] = X[:, 0] * (1 + 1e-7 * rng.standard_normal(n))
    elif kind == "silent":
        X[4:, 1] = 0.0
    elif kind == "dummies":
        X = np.eye(3)[rng.integers(0, 3, n)]
    elif kind == "huge rows":
        X[rng.integers(0, n, 2)] *= 1e6
    elif kind == "proportional":  # only the ridge tells the first two apart
        X[:, 1] = 2 * X[:, 0]
    if seed % 3 == 0:
        gates[seed % n] = 0.0
    if seed % 2 and kind not in ("silent", "proportional"):
        ridge[rng.integers(3)] = 0.0
    return np.column_stack([np.ones(n), X]), y, gates, np.concatenate([[0.0], ridge])


def exact(X, y, gates, ridge):
    """Coefficients after the rows: the ridge is rows that come last; None where undetermined."""
    known = ridge > 0
    rows = np.vstack([X, np.diag(np.sqrt(ridge))[known]])
    targets = np.concatenate([y, np.zeros(known.sum())])
    factors = np.concatenate([gates, np.ones(known.sum())])
    found = rational.solve(rows, targets, factors, np.ones(len(targets)), np.zeros(X.shape[1]))
    return None if found is None else found[0]


@pytest.mark.full
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_coefficients_and_residuals_are_those_of_rows_and_ridge(kind, intercept):
    compared, first = 0, int(not intercept)
    for seed in range(8):
        X, y, gates, ridge = stream(kind, seed)
        X, ridge = X[:, first:], ridge[first:]
        options = {"ridge": ridge[int(intercept) :], "fit_intercept": intercept}
        est = olsq.RecursiveLeastSquares(ridge_mode="fixed", **options)
        path = est.partial_fit_path(X[:, int(intercept) :], y, forget=gates)
        found = np.column_stack([path.intercept, path.coef]) if intercept else path.coef
        for t in range(len(y)):
            want = exact(X[: t + 1], y[: t + 1], gates[: t + 1], ridge)
            if want is None:
                continue
            compared += 1
            size = max(1.0, np.abs(want * np.abs(X[: t + 1]).max(0)).max())
            error = np.abs((found[t] - want) * np.abs(X[: t + 1]).max(0)).max()
            # Columns that agree to 1e-7 have lost as many digits; huge rows what QR loses.
            allowed = {"collinear": 1e-5, "huge rows": 1e-8}.get(kind, 1e-9)
            assert error <= allowed * size, (seed, t)
            if t + 1 < len(y):
                residual = y[t + 1] - X[t + 1] @ want
                allowed = 1e-5 if kind in ("collinear", "huge rows") else 1e-9
                scale = size + np.abs(want * X[t + 1]).max()
                assert abs(path.residual[t + 1] - residual) <= allowed * scale, (seed, t)
    assert compared > 60


def test_a_ridge_of_some_coefficients_leaves_the_others_of_minimum_norm():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 4)), rng.standard_normal(40)
    X[:, 3] = X[:, 2]
    ridge = np.array([0.7, 0.2, 0.0, 0.0])
    est = olsq.RecursiveLeastSquares(
        ridge=ridge, ridge_mode="fixed", forget=0.9, fit_intercept=False
    ).fit(X, y)
    weight = np.sqrt(0.9 ** np.arange(39, -1, -1))[:, None]
    rows = np.vstack([weight * X, np.diag(np.sqrt(ridge))])
    want = np.linalg.lstsq(rows, np.append(weight[:, 0] * y, np.zeros(4)), rcond=1e-12)[0]
    np.testing.assert_allclose(est.coef_, want, rtol=1e-10)
    assert est.determined_.tolist() == [True, True, False, False]
    assert est.rank_ == 3


@pytest.mark.parametrize("method", ["auto", "covariance", "sqrt", "information"])
def test_every_method_is_one_state(method):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((30, 2)), rng.standard_normal(30)
    for options in ({"forget": 0.9}, {"forget": 0.9, "ridge_mode": "fixed", "ridge": 0.5}):
        one, other = (
            olsq.RecursiveLeastSquares(**options, **more).fit(X, y)
            for more in ({}, {"method": method})
        )
        for name, array in one._engine.arrays().items():
            np.testing.assert_array_equal(array, other._engine.arrays()[name])
        path = olsq.coefficient_path(X, y, **options, method=method, by=np.arange(30) % 2)
        alone = olsq.coefficient_path(X[::2], y[::2], **options)
        np.testing.assert_array_equal(path.coef[::2], alone.coef)


def test_without_residuals_rows_leave_the_same_bits():
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((90, 5)), rng.standard_normal((90, 2))
    X[20:40, 1] = 0.0
    options = {"ridge_mode": "fixed", "ridge": [0.1, 0.0, 2.0, 1.0, 0.5], "forget": 0.8}
    kept = olsq.RecursiveLeastSquares(**options).fit(X, Y)
    bare = olsq.RecursiveLeastSquares(residuals=False, **options)
    for start in range(0, 90, 11):
        bare.partial_fit(X[start : start + 11], Y[start : start + 11])
    for name in ("coef_", "intercept_", "sigma2_", "coef_stderr_", "n_held_"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(bare, name), err_msg=name)


def test_moments_are_those_of_the_rows_and_go_on():
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    options = {"ridge_mode": "fixed", "ridge": 1e6, "forget": 0.9, "fit_intercept": False}
    first = olsq.RecursiveLeastSquares(**options).fit(X[:30], y[:30])
    weight = 0.9 ** np.arange(29, -1, -1)
    gram, cross = first.moments()
    np.testing.assert_allclose(gram, (weight[:, None] * X[:30]).T @ X[:30], rtol=1e-11)
    np.testing.assert_allclose(cross[0], (weight[:, None] * X[:30]).T @ y[:30], rtol=1e-11)
    est = olsq.RecursiveLeastSquares.from_moments(first.moments(), **options)
    est.partial_fit(X[30:], y[30:])
    whole = olsq.RecursiveLeastSquares(**options).fit(X, y)
    np.testing.assert_allclose(est.coef_, whole.coef_, rtol=1e-11)
    np.testing.assert_allclose(
        olsq.merge(first, olsq.RecursiveLeastSquares(**options).fit(X[30:], y[30:])).coef_,
        whole.coef_, rtol=1e-11,
    )  # fmt: skip
