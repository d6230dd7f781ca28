"""The one factor: the same bits however a stream is cut, digits, rank, steep rows, paths."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import olsq
from olsq.online.forms.factor import members
from olsq.online.forms.factor.careful import WAITING
from olsq.online.forms.factor.form import FactorForm, factor_of
from olsq.online.forms.factor.stack import alone
from olsq.online.forms.limits import DOUBLE, limits_for
from olsq.online.forms.rows import Rows, Trace, read_only

EPS = float(np.finfo(np.float64).eps)
LIMITS = limits_for(DOUBLE).square_root


def state_before(d, m=1, ridge=0.0):
    counts = np.array([0.0, 0.0, 1.0, 0.0])
    return np.eye(d, d + m), np.full(d, ridge), np.full((2, d), ridge), counts, np.zeros(m)


def learn(state, rows, start, stop, errors):
    """Learn rows as an estimator does; False where a row needs dense algebra."""
    rows = tuple(map(read_only, rows))
    counts = np.zeros(1, np.int64), np.zeros(1, np.int64)
    arrays = *(array[None] for array in state), *counts, None
    turns, shares = alone(start, stop), np.zeros(1)
    while turns[1][0] < stop and shares[0] != WAITING:
        members.learn(arrays, turns, rows, LIMITS, errors)
        if turns[1][0] < stop:
            members.learn_carefully(arrays, turns, rows, LIMITS, False, errors, shares)
    return bool(shares[0] != WAITING)


def random_rows(seed):
    """Rows of every kind that decides about a row's way: ranks, resets, weights of 0, huge rows."""
    rng = np.random.default_rng([20261128, seed])
    d, n, m = int(rng.integers(1, 40)), int(rng.integers(1, 120)), int(rng.integers(1, 4))
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, m))
    X[rng.random(X.shape) < 0.1] = 0
    if seed % 5 == 0:
        X[:, -1] = X[:, 0]
    gates = np.ones(n) if seed % 3 == 0 else rng.uniform(0.5, 1, n)
    weights = np.ones(n) if seed % 2 else rng.choice([0, 1, 0.5, 2.0], n)
    if seed % 7 == 0:
        gates[n // 2] = 0
    if seed % 11 == 0:
        X[rng.integers(0, n, 3)] *= 10 ** rng.uniform(1, 9)
    if seed % 13 == 0:  # winding up: coefficients are held
        X[n // 3 :, d // 2] = 0
        gates[n // 3 :] = 0.01
    return X, Y, gates, weights, rng, 0.0 if seed % 4 else 0.1


@pytest.mark.parametrize("first_seed", range(0, 200, 20))
def test_any_cut_of_a_stream_gives_the_same_bits(first_seed):
    compared = 0
    for seed in range(first_seed, first_seed + 20):
        *rows, rng, ridge = random_rows(seed)
        n, m = rows[1].shape
        cuts = [
            np.array([0, n]),
            np.arange(n + 1),
            np.r_[0, np.sort(rng.integers(0, n + 1, 5)), n],
        ]
        found = []
        for edges in cuts:
            state, errors = state_before(rows[0].shape[1], m, ridge), np.empty((n, m))
            if not all(learn(state, rows, i, j, errors) for i, j in pairwise(edges)):
                break
            found.append((*state, errors))
        if len(found) < len(cuts):
            continue
        compared += 1
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                assert_array_equal(a, b, err_msg=f"seed {seed}")
    assert compared >= 15


def rows_of(kind, n=230):
    """Rows of 6 columns, the first constant, for 2 targets."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 5))])
    if kind == "dummies":
        X[:, 1:5] = np.eye(4)[rng.integers(0, 4, n)]
    if kind == "huge rows":
        X[rng.integers(0, n, 4), 1:] *= 1e9
    Y = X @ rng.standard_normal((6, 2)) + rng.standard_normal((n, 2))
    gates = rng.uniform(0.9, 1.0, n)
    gates[100] = 0.0 if kind == "reset" else gates[100]
    weights = rng.choice([0.0, 1.0, 0.5, 3.0], n) if kind == "weights" else np.ones(n)
    return Rows.of(X, Y, gates, weights)


@pytest.mark.parametrize("kind", ["ordinary", "huge rows", "weights", "reset"])
def test_a_form_reads_as_the_rows_do(kind):
    rows = rows_of(kind)
    form, errors = FactorForm.start(np.zeros(6), 2, True), np.empty_like(rows.Y)
    form.absorb(rows, errors, Trace.none(2, 6))
    left = np.append(np.cumprod(rows.gates[::-1])[::-1][1:], 1.0) * rows.weights
    root = np.sqrt(left)[:, None]
    theta = np.linalg.lstsq(root * rows.X, root * rows.Y, rcond=None)[0].T
    assert_allclose(form.coefficients(), theta, rtol=1e-7, atol=1e-9)
    inverse = np.linalg.inv(np.linalg.qr(root * rows.X, mode="r"))
    assert_allclose(form.inverse_diagonal(), (inverse**2).sum(axis=1), rtol=1e-6)
    assert_allclose(form.loss, (left[:, None] * (rows.Y - rows.X @ theta.T) ** 2).sum(0), rtol=1e-7)
    assert (form.rank, form.full_rank) == (6, True)
    F, D = factor_of(form.R, form.z)
    assert_allclose(F, form.F, rtol=1e-14, atol=1e-15)
    assert_allclose(D, form.D, rtol=1e-14)


def solution_in_80_bits(A, b):
    """Solve least squares by Householder reflections in long double."""
    A, b = A.astype(np.longdouble), b.astype(np.longdouble)
    d = A.shape[1]
    for j in range(d):
        v = A[j:, j].copy()
        v[0] += np.copysign(np.sqrt((v * v).sum()), v[0])
        q = 2 / (v * v).sum()
        A[j:, j:] -= np.outer(v, q * (v @ A[j:, j:]))
        b[j:] -= v * (q * (v @ b[j:]))
    theta = np.zeros(d, np.longdouble)
    for j in range(d - 1, -1, -1):
        theta[j] = (b[j] - A[j, j + 1 : d] @ theta[j + 1 :]) / A[j, j]
    return theta.astype(np.float64)


@pytest.mark.parametrize(
    ("condition", "bound"), [(1e2, 5e-14), (1e4, 1e-12), (1e6, 2e-10), (1e8, 2e-8), (1e10, 2e-6)]
)
def test_digits_under_forgetting(condition, bound):
    d, n, forget, ridge = 8, 6000, 0.99, 1e-3
    for seed in range(3):
        rng = np.random.default_rng(seed)
        Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
        X = rng.standard_normal((n, d)) * np.geomspace(1, 1 / condition, d) @ Q
        y = X @ (Q.T @ rng.standard_normal(d)) + 0.1 * rng.standard_normal(n)
        root = np.sqrt(forget ** np.arange(3999, -1, -1.0))
        truth = solution_in_80_bits(X[-4000:] * root[:, None], y[-4000:] * root)
        est = olsq.RecursiveLeastSquares(forget=forget, ridge=ridge, fit_intercept=False).fit(X, y)
        error = X[-500:] @ (est.coef_ - truth)
        assert np.sqrt(np.mean(error**2)) / 0.1 < bound


@pytest.mark.parametrize("forget", [1.0, 0.97])
@pytest.mark.parametrize("kind", ["rows", "entries"])
def test_rows_that_outweigh_what_a_column_knew(kind, forget):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((200, 4))
        y = X @ rng.standard_normal(4) + 0.1 * rng.standard_normal(200)
        if kind == "entries":  # two columns with one huge entry each
            X[rng.integers(0, 200, 2), [0, 2]] *= 10 ** rng.uniform(4, 9, 2)
        else:
            X[rng.integers(0, 200, 5)] *= 10 ** rng.uniform(1, 9, (5, 1))
            y[X[:, 0] > 50] = X[X[:, 0] > 50].sum(1)
        root = np.sqrt(forget ** np.arange(199, -1, -1.0))
        A, length = X * root[:, None], np.linalg.norm(X * root[:, None], axis=0)
        truth = solution_in_80_bits(A / length, y * root)
        est = olsq.RecursiveLeastSquares(forget=forget, fit_intercept=False).fit(X, y)
        # A perturbation of a few eps in each of d columns; measured are 3.8 in all.
        bound = 2 * X.shape[1] * EPS * np.linalg.cond(A / length) * np.linalg.norm(truth)
        assert np.linalg.norm(est.coef_ * length - truth) < bound


def test_units_of_many_sizes_in_one_table():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((100, 5)) * 10.0 ** rng.uniform(-60, 60, 5)
        y = X @ (rng.standard_normal(5) / np.abs(X).max(0)) + 0.01 * rng.standard_normal(100)
        length = np.linalg.norm(X, axis=0)
        est = olsq.RecursiveLeastSquares(fit_intercept=False).fit(X, y)
        truth = np.linalg.lstsq(X / length, y, rcond=None)[0]
        assert_allclose(est.coef_ * length, truth, rtol=0, atol=1e-12)


DEPENDENT = {
    "a column twice": lambda r: (lambda A: np.c_[A, A[:, 0]])(r.standard_normal((120, 3))),
    "dummies": lambda r: np.c_[
        np.ones(120), np.eye(4)[r.integers(0, 4, 120)], r.standard_normal(120)
    ],
    "a sum in the middle": lambda r: (lambda A: np.c_[A[:, :2], A[:, 0] + 3 * A[:, 1], A[:, 2:]])(
        r.standard_normal((120, 4)) * [1, 1e3, 1, 1e-4]
    ),
    "dependent on an ill-conditioned pair": lambda r: (
        lambda A: np.c_[A[:, 0], A[:, 0] + 1e-5 * A[:, 1], A[:, 1:], A[:, 2] * 7 - A[:, 0]]
    )(r.standard_normal((120, 3))),
    "rank 3 of 8": lambda r: r.standard_normal((120, 3)) @ r.standard_normal((3, 8)),
    "integers": lambda r: (lambda A: np.c_[A, A.sum(1), A[:, 0] - A[:, 1]])(
        r.integers(0, 50, (120, 3)).astype(float)
    ),
    "a level of 1e4": lambda r: (lambda A: np.c_[np.ones(120), A + 1e4, A[:, 0] + A[:, 1]])(
        r.standard_normal((120, 2))
    ),
    "units of 1e-30 to 1e30": lambda r: (lambda A: np.c_[A, A[:, 0] * 1e20])(
        r.standard_normal((120, 3)) * [1e-30, 1e30, 1]
    ),
}


@pytest.mark.parametrize("forget", [1.0, 0.97])
@pytest.mark.parametrize("kind", DEPENDENT)
def test_dependent_columns_never_count_as_information(kind, forget):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = DEPENDENT[kind](rng)
        length = np.linalg.norm(X, axis=0)
        y = (X / length) @ rng.standard_normal(X.shape[1]) + 0.01 * rng.standard_normal(len(X))
        est = olsq.RecursiveLeastSquares(forget=forget, fit_intercept=False).fit(X, y)
        assert est._engine.form.rank == np.linalg.matrix_rank(X / length, tol=1e-9)
        root = np.sqrt(forget ** np.arange(len(X) - 1, -1, -1.0))
        least = np.linalg.lstsq(X / length * root[:, None], y * root, rcond=1e-11)[0]
        fitted, tolerance = X / length @ least, 1e-6 if "pair" in kind else 1e-9
        assert_allclose(est.predict(X), fitted, rtol=0, atol=tolerance * np.abs(y).max())


@pytest.mark.parametrize("ridge", [0.0, 1e-8, 0.1])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 13, 20])
def test_paths_have_the_coefficients_and_variances_of_every_state(d, ridge):
    rng = np.random.default_rng(d)
    n = 60 + 6 * d
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, 2))
    weights, forget = rng.uniform(0.5, 2, n), rng.uniform(0.9, 1, n)
    X[n // 2] *= 1e5  # variances shrink by 1e10 in one row
    options = {"ridge": ridge, "fit_intercept": False, "noise_variance": 1.0}
    path = olsq.RecursiveLeastSquares(**options).partial_fit_path(X, Y, weights, forget=forget)
    for t in range(2 * d + 1, n, 5):
        left = np.cumprod(np.r_[1, forget[t:0:-1]])[::-1]
        root = np.sqrt(left * weights[: t + 1])
        prior = np.sqrt(ridge * np.prod(forget[: t + 1])) * np.eye(d)
        A = np.vstack([X[: t + 1] * root[:, None], prior])
        b = np.vstack([Y[: t + 1] * root[:, None], np.zeros((d, 2))])
        inverse = np.linalg.inv(np.linalg.qr(A, mode="r"))
        scale = EPS * np.linalg.cond(A / np.linalg.norm(A, axis=0)) ** 2
        truth = np.linalg.lstsq(A, b, rcond=None)[0].T
        size = max(np.abs(b).max() / np.linalg.norm(A, axis=0).min(), np.abs(truth).max())
        assert_allclose(path.coef[t], truth, rtol=0, atol=1e3 * scale * size)
        assert_allclose(path.stderr[t, 0] ** 2, (inverse**2).sum(1), rtol=1e4 * scale)
