"""One fit for each group of rows: moments where they keep the digits, rows one by one elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.online.many import fit_kernels
from olsq.online.many.group_fits import fit_groups, predict_groups

PLAIN = {
    "ridge": 0.0, "fit_intercept": True, "missing": "skip", "cov": "posterior",
    "noise_variance": None,
}  # fmt: skip


def groups(lengths, d, *, offset=0.0, collinear=0.0, seed=0):
    """Rows of all groups: X (n, d) around an offset, the last column near the first, and y."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 3, d) + offset
    if collinear:
        X[:, -1] = X[:, 0] + collinear * rng.standard_normal(n)
    return X, X @ rng.standard_normal(d) + rng.standard_normal(n), np.array(lengths)


def dense(X, y, options, weights):
    """Coefficients, standard errors, the condition and column norms of the weighted design."""
    n, d = X.shape
    first = int(options["fit_intercept"])
    design = np.column_stack([np.ones((n, first)), X]) * np.sqrt(weights)[:, None]
    ridge = np.r_[np.zeros(first), np.full(d, options["ridge"])]
    whole = np.vstack([design, np.diag(np.sqrt(ridge))])
    target = np.r_[np.sqrt(weights) * y, np.zeros(first + d)]
    scale = np.linalg.norm(whole, axis=0)
    U, s, Vt = np.linalg.svd(whole / scale, full_matrices=False)
    coef = Vt.T @ (U.T @ target / s) / scale
    variance = np.sum((Vt.T / s) ** 2, axis=1) / scale**2
    freedom = np.count_nonzero(weights) - (first + d - ridge @ variance)
    squares = np.sum((np.sqrt(weights) * y - design @ coef) ** 2)
    return coef, np.sqrt(squares / freedom * variance), s[0] / s[-1], scale


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"ridge": 0.3}])
@pytest.mark.parametrize(
    ("offset", "collinear"), [(0, 0), (1000, 0), (0, 1e-3), (0, 1e-5), (10, 1e-7)]
)
def test_fits_are_those_of_a_dense_solve(offset, collinear, options, weighted):
    options = PLAIN | options
    X, y, lengths = groups([40, 7, 600, 25], 3, offset=offset, collinear=collinear)
    weights = np.random.default_rng(1).uniform(0, 2, y.size) if weighted else None
    found = fit_groups(np.asfortranarray(X), y, lengths, weights, options)
    for g, end in enumerate(np.cumsum(lengths)):
        rows = slice(end - lengths[g], end)
        own = np.ones(lengths[g]) if weights is None else weights[rows]
        coef, stderr, condition, scale = dense(X[rows], y[rows], options, own)
        # In units of the target; residuals count with the square of the condition (Wedin).
        bound = 1e-14 * condition * (1 + condition * 1e-2)
        assert np.abs((found.coef[g] - coef) * scale).max() <= bound * np.linalg.norm(y[rows])
        np.testing.assert_allclose(found.stderr[g], stderr, rtol=max(1e-9, 100 * bound))


@pytest.mark.full
def test_which_groups_moments_determine():
    """Far from collinear they do, and a refinement keeps more digits than they have."""
    rng = np.random.default_rng(0)
    n = 200
    for collinear, want in ((1.0, True), (1e-3, True), (1e-5, False)):
        X = rng.standard_normal((2, n))
        X[1] = X[0] + collinear * X[1]
        y = X[0] - X[1]  # exact: what moments lose is all there is to see
        coef, variance, squares = np.empty((1, 2)), np.empty((1, 2)), np.empty(1)
        solved = np.zeros(1, bool)
        fit_kernels.fit_groups(
            X, y, np.empty(0), np.array([0]), np.array([n]), np.zeros(2), False, 0, 1, coef,
            variance, squares, solved,
        )  # fmt: skip
        assert solved[0] == want
        if want:
            assert np.abs(coef - [1, -1]).max() < 1e-13 / collinear


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100])
def test_units_do_not_matter(scale):
    X, y, lengths = groups([30, 30], 2)
    found = fit_groups(np.asfortranarray(X * scale), y, lengths, None, PLAIN)
    want = fit_groups(np.asfortranarray(X), y, lengths, None, PLAIN)
    np.testing.assert_allclose(found.coef[:, 1:] * scale, want.coef[:, 1:], rtol=1e-9)


def test_missing_rows_and_groups_without_any():
    X, y, lengths = groups([20, 0, 20, 5, 20], 2)
    y[3] = np.nan
    X[41:45, 1] = np.inf
    y[40] = np.nan  # the fourth group has no complete row
    found = fit_groups(np.asfortranarray(X), y, lengths, None, PLAIN)
    assert np.isnan(found.coef[[1, 3]]).all()
    assert np.isnan(found.stderr[[1, 3]]).all()
    keep = np.delete(np.arange(20), 3)
    est = olsq.RecursiveLeastSquares(ridge=0.0).fit(X[keep], y[keep])
    np.testing.assert_allclose(found.coef[0, 1:], est.coef_, rtol=1e-10)
    np.testing.assert_allclose(found.stderr[0, 0], est.intercept_stderr_, rtol=1e-10)
    with pytest.raises(ValueError, match="contains NaN"):
        fit_groups(X, y, lengths, None, PLAIN | {"missing": "raise"})
    with pytest.raises(ValueError, match="overflow"):
        fit_groups(X * 1e200, y, lengths, None, PLAIN)


def test_sandwich_errors_are_the_estimator_s():
    X, y, lengths = groups([50, 60], 2)
    weights = np.random.default_rng(2).uniform(0.1, 3, y.size)
    found = fit_groups(X, y, lengths, weights, PLAIN | {"cov": "sandwich"})
    est = olsq.RecursiveLeastSquares(ridge=0.0, cov="sandwich").fit(X[:50], y[:50], weights[:50])
    np.testing.assert_allclose(found.stderr[0, 1:], est.coef_stderr_, rtol=1e-9)


def test_rows_are_predicted_by_their_own_group():
    X, _, lengths = groups([3, 0, 4], 2)
    X[1, 0] = np.nan
    coef = np.array([[1.0, 2.0, 3.0], [np.nan] * 3, [-1.0, 0.5, 0.0]])
    found = predict_groups(X, lengths, coef, True)
    own = np.repeat(coef, lengths, axis=0)
    np.testing.assert_allclose(found, own[:, 0] + np.sum(own[:, 1:] * X, axis=1))


@pytest.mark.full
def test_kernels_refuse_shapes_that_do_not_fit():
    X, y, lengths = groups([10, 10], 2)
    ends = np.cumsum(lengths)
    coef, variance = np.empty((2, 2)), np.empty((2, 2))
    rest = coef, variance, np.empty(2), np.zeros(2, bool)
    with pytest.raises(ValueError, match="rows, weights and ridge"):
        fit_kernels.fit_groups(
            X.T, y[:-1], np.empty(0), ends - 10, ends, np.zeros(2), False, 0, 2, *rest
        )
    with pytest.raises(ValueError, match="results do not fit"):
        fit_kernels.fit_groups(
            X.T, y, np.empty(0), ends - 10, ends, np.zeros(2), False, 0, 3, *rest
        )
    with pytest.raises(ValueError, match="outside of the rows"):
        fit_kernels.predict_groups(X.T, ends, ends + 10, coef, False, 0, 2, np.empty(20))
