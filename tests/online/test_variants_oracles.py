"""Robust, total and kernel least squares against dense float64 algebra of the same problem."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student_t

import olsq

N, D = 60, 3


def gates_product(forget, n):
    """Compute the weight that is left of each row after the last."""
    return forget ** np.arange(n - 1, -1, -1.0)


def hard_regressors(kind, n=N, d=D, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if kind == "mixed units":
        return X * [1e-5, 1.0, 1e5]
    if kind == "ill conditioned":
        X[:, 2] = X[:, 0] + 1e-6 * X[:, 2]
    if kind == "quiet":
        X[20:45, 1] = 0.0
    if kind == "repeats":
        return np.repeat(X, 4, axis=0)[:n]
    return X


KINDS = ["white", "mixed units", "ill conditioned", "quiet", "repeats"]


# -- robust -----------------------------------------------------------------------------------


def robust_by_hand(X, y, w, *, forget, ridge, kind, parameter, window):
    """A row at a time, with dense solves: the weights, and the last coefficients."""
    n, k = X.shape
    H, g = np.diag([0.0] + [ridge] * (k - 1)), np.zeros(k)
    quartile = 0.6744897501960817 if kind == "huber" else student_t(parameter).ppf(0.75)
    recent, passed, total, count = [], np.ones(n), 0.0, 0.0
    for t, x in enumerate(X):
        known = np.linalg.matrix_rank(H) == k
        if known:
            length = np.sqrt(np.diag(H))
            C = H / np.outer(length, length)
            leverage = (x / length) @ np.linalg.solve(C, x / length) / forget
            leverage *= max(w[t], total / count if count else 0.0)
            theta = np.linalg.solve(C, g / length) / length
            standard = (y[t] - x @ theta) / np.sqrt(1 + leverage)
            if len(recent) >= 8:
                u = abs(standard) / (np.median(np.abs(recent[-window:])) / quartile)
                if kind == "huber":
                    passed[t] = min(1.0, parameter / u) if u > 0 else 1.0
                else:
                    passed[t] = (parameter + 1) / (parameter + u**2)
            if w[t] > 0 and not (leverage > 1 and passed[t] >= 0.5):
                recent.append(standard)
        total, count = forget * total + w[t] * passed[t], forget * count + (w[t] > 0)
        H = forget * H + w[t] * passed[t] * np.outer(x, x)
        g = forget * g + w[t] * passed[t] * y[t] * x
    return passed, np.linalg.solve(H, g)


@pytest.mark.parametrize("kind", ["white", "quiet", "repeats"])
@pytest.mark.parametrize(("loss", "parameter"), [("huber", 1.345), ("student", 3.0)])
def test_robust_is_the_weighted_problem_with_the_weights_of_its_own_past(kind, loss, parameter):
    rng = np.random.default_rng(3)
    X, w = hard_regressors(kind, n=120), rng.uniform(0.2, 2, 120)
    y = X @ [1.0, -2.0, 0.5] + 4 + 0.1 * rng.standard_normal(120)
    y[30::7] += 30 * rng.standard_normal(len(y[30::7]))
    w[50] = 0.0
    est = olsq.RobustLeastSquares(
        loss=loss, threshold=1.345, dof=3.0, forget=0.97, ridge=0.1, scale_window=20, warm_up=0
    )
    rows = np.column_stack([np.ones(120), X])
    options = {"forget": 0.97, "ridge": 0.1, "kind": loss, "parameter": parameter, "window": 20}
    passed, theta = robust_by_hand(rows, y, w, **options)
    est.fit(X[:70], y[:70], w[:70])
    np.testing.assert_allclose(est.weights_, passed[:70], rtol=1e-6)
    est.partial_fit(X[70:], y[70:], w[70:])
    np.testing.assert_allclose(est.weights_, passed[70:], rtol=1e-6)
    np.testing.assert_allclose(np.append(est.intercept_, est.coef_), theta, rtol=1e-8)
    assert passed.min() < 0.2  # outliers there were


@pytest.mark.parametrize("kind", ["mixed units", "ill conditioned"])
def test_robust_is_exact_given_its_weights_where_moments_would_not_be(kind):
    rng = np.random.default_rng(4)
    X = hard_regressors(kind)
    y = X @ [1.0, 2.0, 3.0] + rng.standard_normal(N)
    est = olsq.RobustLeastSquares(ridge=0.0, forget=0.98, warm_up=0).fit(X, y)
    assert est.weights_.min() < 1
    root = np.sqrt(est.weights_ * gates_product(0.98, N))
    A = np.column_stack([np.ones(N), X]) * root[:, None]
    length = np.linalg.norm(A, axis=0)
    theta = np.linalg.lstsq(A / length, y * root, rcond=None)[0] / length
    np.testing.assert_allclose(est.coef_, theta[1:], rtol=1e-7)


def test_robust_stands_outliers_that_move_least_squares():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((1500, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(1500)
    bad = rng.random(1500) < 0.1
    y[bad] += 20 + 10 * rng.standard_normal(bad.sum())
    plain = olsq.RecursiveLeastSquares().fit(X, y)
    for loss, error in (("huber", 0.1), ("student", 0.03)):
        est = olsq.RobustLeastSquares(loss=loss).fit(X, y)
        assert np.abs(est.coef_ - [1, -2, 0.5]).max() < error
        assert abs(est.intercept_) < 5 * error < abs(plain.intercept_)
        assert np.median(est.weights_[bad]) < 0.02 + 0.02 * (loss == "huber")
    assert est.scale_ == pytest.approx(0.1, rel=0.5)


@pytest.mark.parametrize("loss", ["huber", "student"])
@pytest.mark.parametrize("weight", [1e-8, 1e-3, 1e8])
def test_robust_stands_outliers_whatever_the_unit_of_the_weights(loss, weight):
    rng = np.random.default_rng(11)
    X = rng.standard_normal((1500, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(1500)
    bad = rng.random(1500) < 0.1
    y[bad] += 20 + 10 * rng.standard_normal(bad.sum())
    unit = olsq.RobustLeastSquares(loss=loss, ridge=1e-3).fit(X, y)
    est = olsq.RobustLeastSquares(loss=loss, ridge=1e-3 * weight)
    est.fit(X, y, np.full(1500, weight))
    np.testing.assert_allclose(est.coef_, unit.coef_, rtol=1e-10)
    assert np.abs(est.coef_ - [1, -2, 0.5]).max() < 0.1


@pytest.mark.parametrize("loss", ["huber", "student"])
def test_the_first_rows_are_weighted_together(loss):
    """The weights are a fixed point: they are those of the residuals that they lead to."""
    rng = np.random.default_rng(15)
    X, w = hard_regressors("white", n=32), rng.uniform(0.3, 1.5, 32)
    y = X @ [1.0, -2.0, 0.5] + 4 + 0.1 * rng.standard_normal(32)
    y[:6] += 20.0
    est = olsq.RobustLeastSquares(loss=loss, forget=0.98, ridge=0.01)
    est.fit(X[:10], y[:10], w[:10]).partial_fit(X[10:], y[10:], w[10:])  # 32 = 3 * 4 + 20
    zeta, A = w * gates_product(0.98, 32), np.column_stack([np.ones(32), X])
    theta = np.append(est.intercept_, est.coef_)
    residual = (y - A @ theta) * np.sqrt(32 / (32 - 4))
    quartile = 0.6744897501960817 if loss == "huber" else student_t(4).ppf(0.75)
    u = residual / np.median(np.abs(residual)) * quartile
    assert est.scale_ == pytest.approx(np.median(np.abs(residual)) / quartile)
    u *= np.sqrt((32 - 4) / 32)  # the scale is raised, the residual is not
    passed = np.minimum(1, 1.345 / np.abs(u)) if loss == "huber" else 5 / (4 + u**2)
    H = A.T @ ((zeta * passed)[:, None] * A) + 0.01 * 0.98**32 * np.diag([0, 1, 1, 1])
    np.testing.assert_allclose(theta, np.linalg.solve(H, A.T @ (zeta * passed * y)), rtol=1e-7)
    assert np.abs(theta - [4, 1, -2, 0.5]).max() < 0.3


def test_a_perfect_fit_is_no_outlier_and_a_jump_is_learned():
    X = np.random.default_rng(6).standard_normal((300, 2))
    y = np.where(np.arange(300) < 150, 1.0, -1.0) * X[:, 0]
    est = olsq.RobustLeastSquares(forget=0.9, scale_window=20, ridge=1e-6).fit(X, y)
    np.testing.assert_allclose(est.coef_, [-1, 0], atol=1e-3)
    flat = olsq.RobustLeastSquares().fit(np.zeros((40, 2)), np.zeros(40))
    np.testing.assert_array_equal(flat.weights_, 1)


def test_several_targets_have_one_weight_a_row():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((200, 2))
    Y = X @ rng.standard_normal((2, 2)) + 0.1 * rng.standard_normal((200, 2))
    Y[100, 1] += 100
    Y[3, 0] -= 100  # among the first rows, which are weighted together
    est = olsq.RobustLeastSquares(loss="student").fit(X, Y)
    assert max(est.weights_[[3, 100]]) < 1e-3
    assert est.scale_.shape == (2,)
    root = np.sqrt(est.weights_)[:, None]
    same = olsq.RecursiveLeastSquares(method="sqrt").fit(X, Y, est.weights_)
    np.testing.assert_allclose(est.coef_, same.coef_, rtol=1e-12)
    assert root.max() <= np.sqrt(1 + 2 / 4)


# -- total ------------------------------------------------------------------------------------


def tls(X, Y, zeta, ratio, intercept):
    """By the SVD of all rows; exact columns (ratio 0) are projected out first."""
    root = np.sqrt(zeta)[:, None]
    A, B = X * root, Y * root
    exact = np.column_stack([root] * intercept + [A[:, ratio == 0]])
    rest = A[:, ratio > 0] / ratio[ratio > 0]
    P = np.linalg.qr(exact)[0] if exact.shape[1] else np.zeros((len(X), 0))
    M = np.column_stack([rest, B])
    M = M - P @ (P.T @ M)
    p = rest.shape[1]
    V = np.linalg.svd(M)[2].T[:, p:]
    theta = np.zeros((X.shape[1] + intercept, Y.shape[1]))
    where = intercept + np.flatnonzero(ratio > 0)
    theta[where] = (-V[:p] @ np.linalg.inv(V[p:])) / ratio[ratio > 0][:, None]
    others = [*range(intercept), *(intercept + np.flatnonzero(ratio == 0))]
    if others:
        fitted = rest @ (theta[where] * ratio[ratio > 0][:, None])
        theta[others] = np.linalg.lstsq(exact, B - fitted, rcond=None)[0]
    return theta.T


@pytest.mark.parametrize("kind", ["white", "ill conditioned", "quiet", "repeats"])
@pytest.mark.parametrize("intercept", [0, 1])
def test_total_is_the_svd_of_all_rows(kind, intercept):
    rng = np.random.default_rng(8)
    X = hard_regressors(kind)
    noise = 1e-8 if kind == "ill conditioned" else 0.1
    Y = X @ rng.standard_normal((D, 2)) + intercept + noise * rng.standard_normal((N, 2))
    w = rng.uniform(0.1, 2, N)
    for ratio in (np.ones(D), np.array([0.5, 0.0, 2.0]), np.zeros(D)):
        est = olsq.TotalLeastSquares(ratio, forget=0.97, fit_intercept=bool(intercept))
        est.fit(X[:40], Y[:40], w[:40]).partial_fit(X[40:], Y[40:], w[40:])
        want = tls(X, Y, w * gates_product(0.97, N), ratio, intercept)
        rtol = 1e-5 if kind == "ill conditioned" else 1e-8
        np.testing.assert_allclose(est.coef_, want[:, intercept:], rtol=rtol, atol=rtol)
    plain = olsq.RecursiveLeastSquares(ridge=0, forget=0.97, fit_intercept=bool(intercept))
    np.testing.assert_allclose(est.coef_, plain.fit(X, Y, w).coef_, rtol=1e-5)  # all exact


def test_total_loses_no_digits_to_squaring():
    """Columns that differ by 1e-9 of their size, and no noise: the truth to what X says of it."""
    rng = np.random.default_rng(9)
    X = rng.standard_normal((200, 2))
    X[:, 1] = X[:, 0] + 1e-9 * X[:, 1]
    est = olsq.TotalLeastSquares(fit_intercept=False).fit(X, X @ [1.0, 2.0])
    np.testing.assert_allclose(est.coef_, [1, 2], rtol=1e-5)
    A = np.column_stack([X, X @ [1.0, 2.0]])
    v = np.linalg.eigh(A.T @ A)[1][:, 0]
    assert np.abs(-v[:2] / v[2] - [1, 2]).max() > 1e-2  # from moments


def total_problems():
    """Random X (n, d), Y (n, m): plain, noisy, few rows, and those that barely have a solution."""
    for seed in range(240):
        rng = np.random.default_rng(seed)
        d, m = rng.integers(1, 5), rng.integers(1, 4)
        kind = ("noisy", "quiet", "few rows", "nearly none")[seed % 4]
        n = d + (0 if kind == "few rows" else m + rng.integers(0, 20))
        X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, m))
        if kind == "quiet":
            Y = X @ rng.standard_normal((d, m)) + 0.1 * Y
        if kind == "nearly none":  # the weakest direction of X and the targets: almost orthogonal
            U, values, Vt = np.linalg.svd(X, full_matrices=False)
            values[-1] = 0.1
            X = (U * values) @ Vt
            along = 10.0 ** rng.uniform(-9, 0) * rng.standard_normal((1, m))
            Y += U[:, -1:] @ (along - U[:, -1:].T @ Y)
        yield kind, X, Y


def test_total_has_every_unique_solution():
    """Unique if and only if the last right singular vectors are and their last block is regular."""
    counts, harder = dict.fromkeys(("noisy", "quiet", "few rows", "nearly none"), 0), 0
    for kind, X, Y in total_problems():
        d, m = X.shape[1], Y.shape[1]
        values, Vt = np.linalg.svd(np.hstack([X, Y]))[1:]
        values, V = np.append(values, np.zeros(m))[: d + m], Vt.T[:, d:]
        part = np.linalg.svd(V[d:], compute_uv=False)[-1]
        gap = (values[d - 1] - values[d]) / values[0] * part
        harder += bool(np.linalg.svd(X, compute_uv=False)[-1] <= values[d])
        est = olsq.TotalLeastSquares(fit_intercept=False, nongeneric="raise").fit(X, Y)
        if gap < 1e-11:  # the problems' own rounding errors: either answer is right
            continue
        want = -np.linalg.solve(V[d:].T, V[:d].T)
        size = np.linalg.norm(want) + 1
        assert np.linalg.norm(est.coef_ - want) <= 200 * np.finfo(float).eps / gap * size, kind
        assert est.gap_ == pytest.approx(gap, rel=1e-6 + 1e-13 / gap)
        path = olsq.TotalLeastSquares(fit_intercept=False).partial_fit_path(X, Y).coef[-1]
        np.testing.assert_allclose(path, est.coef_, rtol=1e-12 / gap)
        counts[kind] += 1
    assert min(counts.values()) >= 50  # of 60 each
    assert harder >= 40  # where X alone does not have the gap that is sufficient


def test_total_says_why_there_is_no_solution():
    """Several targets that have nothing to do with the weakest column: more rows do not help."""
    rng = np.random.default_rng(16)
    Q = np.linalg.qr(rng.standard_normal((200, 4)))[0]
    X, Y = Q[:, :2] * [2.0, 0.1], Q[:, 2:] * [1.0, 0.5]
    est = olsq.TotalLeastSquares(fit_intercept=False).fit(X, Y)
    assert np.isnan(est.coef_).all()
    assert est.gap_ < 1e-13
    est.set_params(nongeneric="raise")
    with pytest.raises(olsq.NotGenericError, match="more rows of this kind will not"):
        _ = est.coef_
    est.set_params(noise_ratio=[1.0, 0.0])  # the weak column is exact: that is a solution
    np.testing.assert_allclose(est.coef_, 0.0, atol=1e-12)
    twice = np.repeat(X[:, :1], 2, axis=1)
    for est, reason in (
        (olsq.TotalLeastSquares([0.0, 0.0], nongeneric="raise"), "the exact columns .* depend"),
        (olsq.TotalLeastSquares(nongeneric="raise"), "has no solution here"),
    ):
        with pytest.raises(olsq.NotGenericError, match=reason):
            _ = est.fit(twice, Y).coef_


@pytest.mark.parametrize("case", ["few rows", "constant column", "no part in y", "nothing"])
def test_total_refuses_what_is_not_generic(case):
    X, y = np.random.default_rng(10).standard_normal((30, 2)), np.zeros(30)
    y = X @ [1.0, 1.0] + 1
    if case == "few rows":
        X, y = X[:2], y[:2]
    elif case == "constant column":
        X[:, 1] = 3.0
    elif case == "no part in y":  # Golub & Van Loan 2013, 6.3.1: y is orthogonal to the weak column
        X, y = np.vstack([np.diag([2.0, 0.1]), [[0, 0]]]), np.array([0.0, 0.0, 1.0])
    else:
        X = np.zeros((30, 2))
    est = olsq.TotalLeastSquares(fit_intercept=case != "no part in y").fit(X, y)
    assert np.isnan(est.coef_).all()
    assert np.isnan(est.predict(X)).all()
    est.set_params(nongeneric="raise")
    alone = case in ("constant column", "no part in y")  # the weakest direction, of X alone
    reason = "has no solution here" if alone else "do not determine"
    with pytest.raises(olsq.NotGenericError, match=reason):
        _ = est.coef_
    more = np.random.default_rng(11).standard_normal((50, 2))
    est.partial_fit(100 * more, 100 * (more @ [1.0, 2.0]))
    assert np.isfinite(est.coef_).all()  # the state was never spoilt


# -- kernels ----------------------------------------------------------------------------------


def rbf(A, B, gamma):
    return np.exp(-gamma * ((A[:, None] - B[None]) ** 2).sum(-1))


def aldkrls(X, y, zeta, *, gamma, threshold, budget, left):
    """Engel, Mannor & Meir's problem, dense: the dictionary, A (n, b), and dual coefficients."""
    points, parts = [], []
    for i, x in enumerate(X):
        if points:
            D_ = X[points]
            a = np.linalg.solve(rbf(D_, D_, gamma), rbf(D_, x[None], gamma)[:, 0])
            missed = 1 - rbf(D_, x[None], gamma)[:, 0] @ a
        if not points or (missed > threshold and len(points) < budget):
            points.append(i)
            a = np.eye(len(points))[-1]
        parts.append(a)
    A = np.array([np.pad(a, (0, len(points) - len(a))) for a in parts])
    K = rbf(X[points], X[points], gamma)
    F = A @ K
    L = np.linalg.cholesky(K)  # the ridge of each coordinate of an orthonormal basis
    H = F.T @ (zeta[:, None] * F) + L * left @ L.T
    return X[points], np.linalg.solve(H, F.T @ (zeta * y))


@pytest.mark.parametrize("mode", ["fixed", "discounted"])
@pytest.mark.parametrize("budget", [50, 6])
def test_kernel_is_the_problem_of_the_paper(budget, mode):
    rng = np.random.default_rng(12)
    X = rng.uniform(-2, 2, (150, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(150)
    w = rng.uniform(0.5, 2, 150)
    est = olsq.KernelLeastSquares(
        gamma=0.5, threshold=0.1, budget=budget, forget=0.98, ridge=0.3, ridge_mode=mode
    )
    est.fit(X[:5], y[:5], w[:5]).partial_fit(X[5:90], y[5:90], w[5:90])
    est.partial_fit(X[90:], y[90:], w[90:])
    zeta = w * gates_product(0.98, 150)
    left = est._engine.engine.left if mode == "fixed" else 0.98**150
    assert mode == "discounted" or ((left >= 0.5) & (left <= 1.0)).all()
    options = {"gamma": 0.5, "threshold": 0.1, "budget": budget, "left": 0.3 * left}
    points, dual = aldkrls(X, y, zeta, **options)
    np.testing.assert_array_equal(est.dictionary_, points)
    assert 6 <= len(points) <= budget
    want = rbf(X, points, 0.5) @ dual
    np.testing.assert_allclose(est.predict(X), want, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(rbf(X, points, 0.5) @ est.dual_coef_, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [("rbf", {"gamma": 0.7}), ("laplacian", {"gamma": 0.4}), ("linear", {}),
     ("polynomial", {"gamma": 0.5, "degree": 2, "coef0": 1.0})],
)  # fmt: skip
def test_kernel_is_kernel_ridge_where_every_point_joins(kernel, options):
    from sklearn.kernel_ridge import KernelRidge

    rng = np.random.default_rng(13)
    X, Y = rng.standard_normal((25, 3)), rng.standard_normal((25, 2))
    est = olsq.KernelLeastSquares(kernel, threshold=1e-10, ridge=0.5, **options).fit(X, Y)
    theirs = KernelRidge(kernel=kernel, alpha=0.5, **options).fit(X, Y)
    Z = rng.standard_normal((10, 3))
    np.testing.assert_allclose(est.predict(Z), theirs.predict(Z), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("threshold", [1e-12, 1e-15, 1e-300])
def test_kernel_takes_no_rounding_for_a_new_point(threshold):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((60, 1)), rng.standard_normal((50, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    kernel = [np.exp(-0.7 * (A - X.T) ** 2) for A in (X, Z)]
    truth = kernel[1] @ np.linalg.solve(kernel[0] + 0.5 * np.eye(60), y)
    est = olsq.KernelLeastSquares(gamma=0.7, threshold=threshold, ridge=0.5).fit(X, y)
    np.testing.assert_allclose(est.predict(Z), truth, atol=1e-6)


def test_kernel_residuals_come_before_the_row_and_the_cut_does_not_matter():
    rng = np.random.default_rng(14)
    X, y = rng.standard_normal((80, 2)), rng.standard_normal(80)
    whole = olsq.KernelLeastSquares(gamma=1.0, threshold=0.2, fit_intercept=True).fit(X, y)
    est = olsq.KernelLeastSquares(gamma=1.0, threshold=0.2, fit_intercept=True)
    residual = [est.step(x, t)[1] for x, t in zip(X, y, strict=True)]
    np.testing.assert_allclose(residual, whole.residual_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(est.predict(X), whole.predict(X), rtol=1e-9, atol=1e-9)
    before = len(est.dictionary_)
    est.partial_fit(X, y, np.zeros(80))  # rows of weight 0 teach nothing
    np.testing.assert_allclose(est.predict(X), whole.predict(X), rtol=1e-9, atol=1e-9)
    assert len(est.dictionary_) == before
