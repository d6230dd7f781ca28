"""Merging where the ridge that both estimators began with is all that some directions know.

Rational arithmetic judges what few rows determine; the estimator that learned both streams, ranks
and what later rows make of the state.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sklearn

import olsq
from olsq.online.forms.merging import without_ridge
from olsq.reference import rational

METHODS = ("covariance", "sqrt", "information")
# What the first piece has forgotten, from a reset to what rounding cannot hide.
FACTORS = (0.0, 1e-60, 1e-30, 1e-16, 1e-12, 1e-8, 1e-3)
PIECES = ((1, 1), (1, 3), (2, 1), (3, 2), (2, 9), (9, 2), (4, 4))
COLUMNS = {
    "any": lambda X: X,
    "proportional": lambda X: np.column_stack([X[:, 0], 2 * X[:, 0], X[:, 2:]]),
    "zero": lambda X: np.where(np.arange(X.shape[1]) == 1, 0.0, X),
    "dummies": lambda X: np.eye(X.shape[1])[np.argmax(X, 1)],
    "far apart": lambda X: X * 10.0 ** np.arange(0, 3 * X.shape[1], 3),
}


def stream(n, d, columns="any", dtype=np.float64):
    rng = np.random.default_rng(n)
    X = COLUMNS[columns](rng.standard_normal((n, d)))
    return X.astype(dtype), rng.standard_normal(n).astype(dtype)


def both_ways(make, X, y, factors, cut, n):
    """The estimator of rows 0..n, and the one merged of two pieces."""
    one = make().partial_fit(X[:n], y[:n], forget=factors[:n])
    pieces = [make().partial_fit(X[s], y[s], forget=factors[s])
              for s in (slice(0, cut), slice(cut, n))]  # fmt: skip
    return one, olsq.merge(*pieces)


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ridge", [1.0, 1e-3, 1e3])
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("method", METHODS)
def test_pieces_of_few_rows_give_what_one_stream_gives(method, factor, ridge, intercept):
    X, y = stream(40, 3)

    def make():
        return olsq.RecursiveLeastSquares(method=method, ridge=ridge, fit_intercept=intercept)

    penalty = np.full(3 + intercept, ridge)
    penalty[: int(intercept)] = 0.0
    A = np.column_stack([np.ones(40), X]) if intercept else X
    for cut, more in PIECES:
        n = cut + more
        for place in (0, cut - 1, cut, n - 1):
            factors = np.ones(40)
            factors[place] = factor
            one, merged = both_ways(make, X, y, factors, cut, n)
            known = not 0 < factor < 1e-20  # what is fainter is held, or let go
            if known:
                np.testing.assert_array_equal(merged.determined_, one.determined_)
            exact = rational.solve(A[:n], y[:n], factors, np.ones(n), penalty)
            if exact is not None and known and method != "information":
                np.testing.assert_allclose(merged.coef_, exact[0][int(intercept) :], atol=1e-8)
            for est in (one, merged):
                est.partial_fit(X[n:], y[n:])
            np.testing.assert_allclose(merged.coef_, one.coef_, rtol=0, atol=1e-9)
            np.testing.assert_allclose(merged.sigma2_, one.sigma2_, rtol=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("method", METHODS)
def test_a_first_piece_without_its_ridge_leaves_no_ridge(method, columns, dtype):
    """Where second's rows and what is left of first do not determine the columns either."""
    X, y = stream(60, 4, columns, dtype)
    for ridge in (1.0, 1e-4):
        for cut, reset in ((20, 10), (2, 1), (30, 0)):
            factors = np.full(60, 0.98)
            factors[reset] = 0.0
            one, merged = both_ways(
                lambda: olsq.RecursiveLeastSquares(method=method, ridge=ridge),  # noqa: B023
                X, y, factors, cut, 50,
            )  # fmt: skip
            np.testing.assert_array_equal(merged.determined_, one.determined_)
            tolerance = 1e-7 if dtype == np.float64 and method != "information" else 1e-5
            for last in (50, 60):
                got, want = merged.predict(X[:last]), one.predict(X[:last])
                np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)
                for est in (one, merged):
                    est.partial_fit(X[50:], y[50:])


@pytest.mark.parametrize("sizes", [(1.0, 1.0, 1.0), (1e4, 1.0, 1e-4)])
def test_rows_without_the_ridge_keep_what_is_faint_after_a_gap(sizes):
    """Rows 1e-20 of the newest are told apart from a ridge that is as faint."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((5, 3)) * sizes, rng.standard_normal(5)
    ridge = 0.5 * np.square(sizes)
    form = olsq.RecursiveLeastSquares(method="sqrt", ridge=ridge, fit_intercept=False)
    form = form.partial_fit(X, y, forget=[1, 1, 1, 1e-20, 1])._engine.engine.form
    rows, targets, _ = without_ridge(form, form.tally[2] * ridge)
    assert rows.shape == (3, 3)
    weights = np.array([1e-20, 1e-20, 1e-20, 1, 1])
    want = rational.solve(X, y, np.ones(5), weights, np.zeros(3))
    got = rational.solve(rows, targets[:, 0], np.ones(3), np.ones(3), np.zeros(3))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_complex_pieces_of_few_rows(method):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((30, 3)) + 1j * rng.standard_normal((30, 3))
    y = rng.standard_normal(30) + 1j * rng.standard_normal(30)
    factors = np.where(np.arange(30) == 1, 0.0, 1.0)
    one, merged = both_ways(
        lambda: olsq.RecursiveLeastSquares(method=method, ridge=1.0), X, y, factors, 2, 3
    )
    np.testing.assert_array_equal(merged.determined_, one.determined_)
    for est in (one, merged):
        est.partial_fit(X[3:], y[3:])
    np.testing.assert_allclose(merged.coef_, one.coef_, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["covariance", "sqrt"])
def test_filters_of_few_rows(method):
    rng = np.random.default_rng(6)
    X, y = rng.standard_normal((2, 20, 3)), rng.standard_normal((2, 20))
    make = lambda: olsq.FilterBank(2, method=method, ridge=1.0)  # noqa: E731
    one = make().partial_fit(X[:, :2], y[:, :2], forget=[[1, 0], [0, 1]])
    merged = olsq.merge(
        make().partial_fit(X[:, :1], y[:, :1], forget=[[1], [0]]),
        make().partial_fit(X[:, 1:2], y[:, 1:2], forget=[[0], [1]]),
    )
    for bank in (one, merged):
        bank.partial_fit(X[:, 2:], y[:, 2:])
    np.testing.assert_allclose(merged.coef_, one.coef_, rtol=0, atol=1e-12)


RIDGES = (0.0, 1e-4, 1.0)


def dense(X, y, weights, ridge, intercept):
    """Predictions of the rows by one factorisation of them all, and how well known they are."""
    A = np.column_stack([np.ones(len(X)), X]) if intercept else X
    penalty = np.sqrt(ridge) * np.eye(A.shape[1])[intercept:]
    rows = np.vstack([np.sqrt(weights)[:, None] * A, penalty])
    size = np.linalg.norm(rows, axis=0)
    size[size == 0] = 1.0
    targets = np.concatenate([np.sqrt(weights) * y, np.zeros(len(rows) - len(y))])
    coef, _, rank, values = np.linalg.lstsq(rows / size, targets, rcond=1e-12)
    return A @ (coef / size), values[rank - 1] / values[0] if rank else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("columns", [name for name in COLUMNS if name != "far apart"])
@pytest.mark.parametrize("method", METHODS)
def test_streams_cut_saved_and_merged_anywhere_give_the_dense_solution(method, columns):
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, d, intercept = int(rng.integers(2, 60)), int(rng.integers(3, 6)), int(rng.integers(2))
        X, y = COLUMNS[columns](rng.standard_normal((n, d))), rng.standard_normal(n)
        weights = rng.random(n) * (rng.random(n) < 0.9)
        gates = np.where(rng.random(n) < 0.02, 0.0, (1.0, 0.95, 0.5)[seed % 3])
        ridge = RIDGES[int(rng.integers(3))]
        est = olsq.RecursiveLeastSquares(ridge=ridge, method=method, fit_intercept=bool(intercept))
        fresh, cuts = est, np.unique([0, n, *rng.integers(0, n + 1, 3)])
        for part in (slice(a, b) for a, b in itertools.pairwise(cuts)):
            rows = (X[part], y[part], weights[part])
            if part.start and rng.integers(3) == 0:
                piece = sklearn.base.clone(fresh).partial_fit(*rows, forget=gates[part])
                est = olsq.merge(est, piece)
            else:
                est = est.partial_fit(*rows, forget=gates[part])
            if rng.integers(3) == 0:
                est = olsq.loads(est.to_bytes())
        own = weights * np.append(np.cumprod(gates[:0:-1])[::-1], 1.0)
        seen = own > 1e-10
        want, known = dense(X, y, own, ridge * gates.prod(), intercept)
        # Half the digits of moments are lost at 1e-5; what the ridge outweighs is in its rounding.
        if known > (1e-5 if method == "information" else 1e-8):
            np.testing.assert_allclose(est.predict(X)[seen], want[seen], rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("first", [2.0, [2.0, 2.0], (2, 2), np.full(2, 2.0)], ids=str)
def test_a_ridge_is_the_same_however_it_is_written(first):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
    kinds = {
        "recursive": (lambda ridge: olsq.RecursiveLeastSquares(ridge=ridge), {}),
        "rolling": (lambda ridge: olsq.RollingLeastSquares(9, ridge=ridge), {}),
        "groups": (lambda ridge: olsq.GroupedLeastSquares(ridge=ridge), {"by": ["a"] * 20}),
        "windows": (lambda r: olsq.GroupedRollingLeastSquares(9, ridge=r), {"by": ["a"] * 20}),
    }
    for make, by in kinds.values():
        for ridges in ((first, 2.0), (2.0, first), (first, [2.0, 2.0])):
            a, b = (make(r).fit(X[s], y[s], **by) for r, s in zip(ridges, HALVES, strict=True))
            one = make(2.0).fit(X[:20], y[:20], **by).partial_fit(X[20:], y[20:], **by)
            np.testing.assert_allclose(olsq.merge(a, b).coef_, one.coef_, rtol=1e-10)
            a.set_params(ridge=ridges[1]).partial_fit(X[20:], y[20:], **by)
        with pytest.raises(ValueError, match="ridge differs"):
            olsq.merge(a, make([2.0, 3.0]).fit(X[:20], y[:20], **by))
    banks = [olsq.FilterBank(3, ridge=ridge) for ridge in (first, np.full((3, 2), 2.0))]
    for bank, rows in zip(banks, HALVES, strict=True):
        bank.partial_fit(np.stack([X[rows]] * 3), np.stack([y[rows]] * 3))
    olsq.merge(*banks)


HALVES = slice(0, 20), slice(20, 40)
