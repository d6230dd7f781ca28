"""Constraints and the elastic net: against SciPy, scikit-learn, and the optimality conditions."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from scipy import linalg
from scipy.optimize import linprog, lsq_linear, minimize, nnls
from sklearn.linear_model import ElasticNet, Lasso

import olsq
from olsq.online.variants.active_set import Constraints, solve
from olsq.online.variants.support_kernels import settle

N, D = 60, 5


def stream(kind, seed=0):
    """X (n, d), y, weights after forgetting 0.97 (and sample weights)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    if kind == "mixed units":
        X *= [1e-4, 1.0, 1e4, 10.0, 0.1]
    elif kind == "ill conditioned":
        X[:, 1] = X[:, 0] + 1e-5 * X[:, 1]
    elif kind == "quiet":
        X[25:, 2] = 0.0
    elif kind == "few rows":
        X = X[:8]
    truth = np.array([1.0, -0.5, 0.3, -2.0, 0.0]) / np.abs(X).max(0)
    y = X @ truth + 0.3 * rng.standard_normal(len(X))
    w = rng.uniform(0.2, 2, len(X))
    return X, y, w, w * 0.97 ** np.arange(len(X) - 1, -1, -1.0)


KINDS = ["white", "mixed units", "ill conditioned", "quiet", "few rows"]


def centred(X, y, zeta):
    """Rows times the root of their weights, without what an intercept fits."""
    root = np.sqrt(zeta)
    A, b = (X - zeta @ X / zeta.sum()) * root[:, None], (y - zeta @ y / zeta.sum()) * root
    return A, b


# -- constraints --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_against_scipy(kind):
    X, y, w, zeta = stream(kind)
    est = olsq.ConstrainedLeastSquares(bounds="nonnegative", forget=0.97, ridge=0.0)
    for part in np.array_split(np.arange(len(X)), 4):
        est.partial_fit(X[part], y[part], w[part])
        _ = est.coef_  # the next solution starts here
    A, b = centred(X, y, zeta)
    length = np.linalg.norm(A, axis=0)
    want = nnls(A / length, b)[0] / length
    np.testing.assert_allclose(est.coef_ * length, want * length, rtol=1e-8, atol=1e-8)
    assert (est.coef_ >= 0).all()
    assert (est.active_ == np.where(want == 0, -1, 0)).all()
    intercept = zeta @ (y - X @ want) / zeta.sum()
    assert est.intercept_ == pytest.approx(intercept, abs=1e-7)
    box = (np.array([-np.inf, -0.2, 0.0, -1.0, 0.05]) / length, np.full(D, 0.4) / length)
    est.set_params(bounds=box)  # the same state
    want = lsq_linear(A / length, b, (box[0] * length, box[1] * length), method="bvls", tol=1e-15).x
    np.testing.assert_allclose(est.coef_ * length, want, rtol=1e-7, atol=1e-8)


def kkt(R, z, limits, x):
    """Measure how far x is from feasible, and its gradient from the multipliers' cone (NNLS)."""
    off = np.abs(limits.A @ x - limits.b).max(initial=0.0)
    inside = ((x >= limits.lower) & (x <= limits.upper)).all()
    eye = np.eye(x.size)
    cone = np.hstack(
        [limits.A.T, -limits.A.T, eye[:, x == limits.lower], -eye[:, x == limits.upper]]
    )
    gradient = R.T @ (R @ x - z)
    return off, inside, nnls(cone, gradient)[1] if cone.size else np.linalg.norm(gradient)


def test_none_is_a_side_without_bounds(tmp_path):
    rng = np.random.default_rng(6)
    X = rng.standard_normal((50, 3))
    y = X @ [0.7, -0.5, 0.2] + 0.1 * rng.standard_normal(50)
    for bounds, same in (
        ((0, None), "nonnegative"),
        ([None, np.zeros(3)], (-np.inf, 0)),
        ((None, None), None),
    ):
        est = olsq.ConstrainedLeastSquares(bounds=bounds).fit(X, y)
        other = olsq.ConstrainedLeastSquares(bounds=same).fit(X, y)
        np.testing.assert_array_equal(est.coef_, other.coef_)
        est.save(tmp_path / "state.olsq")
        np.testing.assert_array_equal(olsq.load(tmp_path / "state.olsq").coef_, other.coef_)


def test_equations_and_bounds_satisfy_the_optimality_conditions():
    rng = np.random.default_rng(1)
    for trial in range(60):
        d = int(rng.integers(2, 8))
        R = np.triu(rng.standard_normal((d, d)))
        if trial % 3 == 0:
            R[-1] = 0.0  # undetermined
        z, A = rng.standard_normal(d) * 3, rng.standard_normal((int(rng.integers(0, d)), d))
        if trial % 4 == 0:
            A = np.ones((2, d))  # the same equation twice
        inner = rng.uniform(-1, 1, d)
        lower, upper = inner - rng.uniform(0, 1, d), inner + rng.uniform(0, 1, d)
        lower[0], upper[-1] = -np.inf, np.inf
        if trial % 5 == 0:
            lower, inner = np.zeros(d), np.eye(d)[0]  # a corner of the simplex
            A, upper = np.ones((1, d)), np.ones(d)
        limits = Constraints(A, A @ inner, lower, upper)
        x = solve(R, z, limits, limits.feasible())
        off, inside, slope = kkt(R, z, limits, x)
        assert inside
        assert off < 1e-9, trial
        assert slope < 1e-7, trial
        again = solve(R, z, limits, x)
        assert np.linalg.norm(R @ (again - x)) < 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_where_rows_leave_it_undetermined_it_is_the_shortest_minimiser(seed):
    """Against SLSQP on the points with the same fit."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 7))
    R = np.triu(rng.standard_normal((d, d)))
    R[rng.random(d) < 0.5] = 0.0
    A = [np.ones((1, d)), np.ones((2, d)), np.zeros((0, d))][seed % 3]
    inner = np.abs(rng.standard_normal(d))
    inner /= inner.sum()
    limits = Constraints(A, A @ inner, np.zeros(d), np.full(d, [1.0, np.inf][seed % 2]))
    x = solve(R, 3 * rng.standard_normal(d), limits, inner)
    fit = np.vstack([R[R.any(axis=1)], A[:1]])
    theirs = minimize(
        lambda v: v @ v, inner, jac=lambda v: 2 * v, bounds=np.c_[limits.lower, limits.upper],
        constraints={"type": "eq", "fun": lambda v: fit @ (v - x), "jac": lambda v: fit},
        method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert ((x >= limits.lower) & (x <= limits.upper)).all()
    np.testing.assert_allclose(A @ x, limits.b, atol=1e-12)
    if theirs.success:
        assert np.linalg.norm(x) <= np.linalg.norm(theirs.x) + 1e-6


def test_equations_against_a_dense_kkt_system():
    X, y, w, zeta = stream("white")
    C, c = np.random.default_rng(2).standard_normal((2, D)), np.array([1.0, -1.0])
    est = olsq.ConstrainedLeastSquares(equality=(C, c), forget=0.97, ridge=0.5).fit(X, y, w)
    root = np.column_stack([np.ones(N), X])
    H = root.T @ (zeta[:, None] * root) + 0.5 * 0.97**N * np.diag([0, *np.ones(D)])
    wide = np.column_stack([np.zeros(2), C])
    K = np.block([[H, wide.T], [wide, np.zeros((2, 2))]])
    want = np.linalg.solve(K, np.concatenate([root.T @ (zeta * y), c]))
    np.testing.assert_allclose(est.coef_, want[1 : D + 1], rtol=1e-9)
    assert est.intercept_ == pytest.approx(want[0], rel=1e-9)
    np.testing.assert_allclose(C @ est.coef_, c, rtol=1e-13)


def best_of_all_faces(R, z, constraints):
    """The least |R x - z| over the constraints, by trying each variable at each bound and free."""
    d, best = len(z), np.inf
    for at in itertools.product((-1, 0, 1), repeat=d):
        at = np.array(at)
        x = np.where(at < 0, constraints.lower, constraints.upper)
        free = at == 0
        x[free] = 0.0
        if free.any():
            A, b = constraints.A[:, free], constraints.b - constraints.A @ x
            onto, along = np.linalg.pinv(A) @ b, linalg.null_space(A)
            rest = z - R @ x - R[:, free] @ onto
            x[free] = onto + along @ np.linalg.lstsq(R[:, free] @ along, rest, rcond=None)[0]
        inside = (x >= constraints.lower - 1e-9) & (x <= constraints.upper + 1e-9)
        if inside.all() and np.abs(constraints.A @ x - constraints.b).max() < 1e-9:
            best = min(best, np.linalg.norm(R @ x - z))
    return best


@pytest.mark.full
def test_the_search_leaves_a_degenerate_corner():
    """Every variable at a bound, on the equation: freeing what wants to move went in a circle."""
    constraints = Constraints(np.ones((1, 4)), np.ones(1), np.full(4, -0.5), np.ones(4))
    start = np.array([1.0, -0.5, 1.0, -0.5])
    rng = np.random.default_rng(0)
    for _ in range(50):
        R, z = np.triu(rng.standard_normal((4, 4))), rng.standard_normal(4)
        x = solve(R, z, constraints, start)
        assert abs(x.sum() - 1) < 1e-12
        assert np.linalg.norm(R @ x - z) <= best_of_all_faces(R, z, constraints) + 1e-12


def vertex(costs, limits):
    """A corner of the constraints, within 5."""
    bounds = np.column_stack([limits.lower, np.minimum(limits.upper, 5.0)])
    corner = linprog(costs, A_eq=limits.A, b_eq=limits.b, bounds=bounds).x
    return np.clip(corner, limits.lower, limits.upper)


def test_the_answer_does_not_depend_on_where_the_search_begins():
    """Integers make corners, and equations, columns and slopes that depend on each other."""
    rng = np.random.default_rng(3)
    for trial in range(100):
        d = int(rng.integers(3, 9))
        R = np.triu(rng.integers(-1, 2, (d, d)), 1) + np.eye(d)
        R[rng.random(d) < rng.choice([0.0, 0.5])] = 0.0
        z = rng.integers(-2, 3, d) * R.any(axis=1)
        A, inner = rng.integers(-1, 2, (int(rng.integers(1, d)), d)), rng.integers(0, 2, d) - 0.3
        upper = np.where(rng.random(d) < 0.5, 0.7, np.inf)
        limits = Constraints(A.astype(float), A @ inner, np.full(d, -0.3), upper)
        starts = [inner, *(vertex(rng.integers(-2, 3, d), limits) for _ in range(3))]
        answers = np.array([solve(R, z, limits, start) for start in starts])
        x = answers[0]
        np.testing.assert_allclose(answers - x, 0.0, atol=1e-12, err_msg=str(trial))
        pivots = np.diagonal(R) != 0
        same_fit = np.vstack([limits.A, R[pivots]]), np.concatenate([limits.b, R[pivots] @ x])
        shortest = limits._replace(A=same_fit[0], b=same_fit[1])
        for problem in ((R, z, limits), (np.eye(d), np.zeros(d), shortest))[: 2 - pivots.all()]:
            off, inside, slope = kkt(*problem, x)
            assert inside
            assert max(off, slope) < 1e-10, trial


def test_rounding_does_not_lead_into_bounds():
    """Columns that are equal to 1e-9, one of zeros, and targets that make rounding errors large."""
    R = np.diag([2.5, 4.4e-9, 0.52, 0.0])
    R[0, 1], R[0, 2], R[1, 2] = 2.5, -0.25, 0.425
    upper = np.array([np.inf, 1.0, np.inf, 1.0])
    limits = Constraints(np.zeros((0, 4)), np.zeros(0), np.zeros(4), upper)
    rng = np.random.default_rng(0)
    for _ in range(300):
        z = np.append(1e6 * rng.standard_normal(3), 0.0)
        x = solve(R, z, limits, np.array([0.0, 0.0, 0.0, 1.0]))
        np.testing.assert_array_equal(x, solve(R, z, limits, np.zeros(4)))


def test_a_start_far_away_costs_no_digits():
    rng = np.random.default_rng(4)
    for trial in range(40):
        R, z = np.triu(rng.standard_normal((4, 4))), rng.standard_normal(4)
        equations = int(rng.integers(2))
        limits = Constraints(
            np.ones((equations, 4)),
            np.ones(equations),
            np.array([-np.inf, -np.inf, 0, 0]),
            np.full(4, np.inf),
        )
        near, far = np.full(4, 0.25), np.array([0.25 + 1e13, 0.25 - 1e13, 0.25, 0.25])
        want = solve(R, z, limits, near)
        np.testing.assert_array_equal(solve(R, z, limits, far), want, err_msg=str(trial))


def test_constraints_do_not_square_the_condition_number():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((100, 3))
    X[:, 1] = X[:, 0] + 1e-9 * X[:, 1]
    y = X @ [1.0, 2.0, -3.0]
    options = {"ridge": 0.0, "fit_intercept": False}
    est = olsq.ConstrainedLeastSquares(bounds=([0, 0, -5], 5), **options).fit(X, y)
    np.testing.assert_allclose(est.coef_, [1, 2, -3], rtol=1e-5)


def test_each_target_is_its_own_problem_also_where_they_miss_rows():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((50, 3))
    Y = X @ rng.standard_normal((3, 2)) + 0.1 * rng.standard_normal((50, 2))
    Y[20:30, 1] = np.nan
    for kind, options in (
        (olsq.ConstrainedLeastSquares, {"bounds": (-0.3, 0.3)}),
        (olsq.OnlineElasticNet, {"alpha": 0.2}),
    ):
        est = kind(missing="skip_target", **options).fit(X[:10], Y[:10])
        _ = est.coef_
        est.partial_fit(X[10:], Y[10:])
        for k in range(2):
            alone = kind(**options).fit(X, Y[:, k])
            np.testing.assert_allclose(est.coef_[k], alone.coef_, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"bounds": "positive"}, "'nonnegative' or a pair"),
        ({"bounds": (1, 0)}, "lower <= upper"),
        ({"bounds": (0, np.nan)}, "none of them missing"),
        ({"bounds": (0, [1, None, 2])}, "None for a whole side"),
        ({"bounds": ([0, 1], 2)}, r"bounds\[0\] must be a number or of shape \(3,\)"),
        ({"bounds": 3}, "pair"),
        ({"equality": np.ones((2, 3))}, "pair"),
        ({"equality": (np.ones((1, 2)), 1)}, r"shapes \(q, 3\)"),
        ({"equality": (np.ones(3), np.inf)}, "finite"),
        ({"equality": (np.ones(3), 10.0), "bounds": (0, 1)}, "no coefficients satisfy both"),
        ({"equality": ([[1, 0, 0], [1, 0, 0]], [1, 2])}, "no coefficients satisfy both"),
    ],
)
def test_constraints_that_are_none_are_refused_before_a_row_is_learned(options, match):
    X, y = np.eye(3), np.ones(3)
    with pytest.raises(ValueError, match=match):
        olsq.ConstrainedLeastSquares(**options).fit(X, y)
    est = olsq.ConstrainedLeastSquares().fit(X, y)
    before = est.coef_
    with pytest.raises(ValueError, match=match):
        est.set_params(**options).partial_fit(X, y + 1)
    np.testing.assert_array_equal(est.set_params(bounds=None, equality=None).coef_, before)


# -- the elastic net ----------------------------------------------------------------------------


PENALTIES = [(0.05, 0.5, False), (0.3, 1.0, True), (1e-4, 0.9, True)]


def test_elastic_net_against_scikit_learn():
    for kind in KINDS:
        X, y, w, zeta = stream(kind)
        size = np.abs(X).max(0)
        for alpha, l1_ratio, standardize in PENALTIES:
            est = olsq.OnlineElasticNet(
                alpha, l1_ratio=l1_ratio, standardize=standardize, forget=0.97
            )
            for part in np.array_split(np.arange(len(X)), 3):
                est.partial_fit(X[part], y[part], w[part])
                _ = est.coef_
            mean = zeta @ X / zeta.sum()
            unit = np.sqrt(zeta @ (X - mean) ** 2 / zeta.sum()) if standardize else np.ones(D)
            theirs = ElasticNet(alpha=alpha, l1_ratio=l1_ratio, tol=1e-14, max_iter=200_000)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # scikit-learn does not get to 1e-14 everywhere
                theirs.fit(X / unit, y, zeta)
            error = np.abs((est.coef_ - theirs.coef_ / unit) * size).max()
            bias = np.abs(est.predict(X[:1]) - theirs.predict(X[:1] / unit))[0]
            assert est.dual_gap_ < 1e-13
            if kind == "ill conditioned":  # it stops short of the minimum; ours is not above it
                found, best = (
                    zeta @ (y - p) ** 2 / (2 * zeta.sum())
                    + alpha * l1_ratio * np.abs(c).sum()
                    + alpha * (1 - l1_ratio) * (c @ c) / 2
                    for c, p in (
                        (est.coef_ * unit, est.predict(X)),
                        (theirs.coef_, theirs.predict(X / unit)),
                    )
                )
                assert found <= best + 1e-14
            else:
                assert max(error, bias) < 1e-8, (kind, alpha)


def test_the_last_support_is_tried_before_any_sweep():
    X, y, _, _ = stream("white")
    est = olsq.OnlineElasticNet(0.1).fit(X[:50], y[:50])
    assert est.n_iter_ > 0
    est.partial_fit(X[50:51], y[50:51])
    assert est.n_iter_ == 0


def test_elastic_net_does_not_square_the_condition_number():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((100, 2))
    X[:, 1] = X[:, 0] + 1e-8 * X[:, 1]
    y = X @ [1.0, 1e3]
    est = olsq.OnlineElasticNet(1e-30, l1_ratio=1.0, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(est.coef_, [1, 1e3], rtol=1e-4)


def test_elastic_net_of_dependent_columns_and_without_a_penalty():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((40, 4))
    X[:, 3] = X[:, 2] = 0.0
    X[:, 1] = X[:, 0]
    y = X[:, 0] + 0.1 * rng.standard_normal(40)
    lasso = olsq.OnlineElasticNet(0.1, l1_ratio=1.0).fit(X, y)
    theirs = Lasso(0.1, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(lasso.predict(X), theirs.predict(X), atol=1e-8)
    assert lasso.dual_gap_ < 1e-9
    assert olsq.OnlineElasticNet(0.1, standardize=True).fit(X, y).coef_[2] == 0
    plain = olsq.OnlineElasticNet(0.0).fit(X, y)
    want = olsq.RecursiveLeastSquares(ridge=0.0).fit(X, y)
    np.testing.assert_allclose(plain.predict(X), want.predict(X), atol=1e-10)
    ridge = olsq.OnlineElasticNet(0.5, l1_ratio=0.0).fit(X[:, :1], y)
    want = olsq.RecursiveLeastSquares(ridge=0.5 * 40).fit(X[:, :1], y)
    np.testing.assert_allclose(ridge.coef_, want.coef_, rtol=1e-10)


def test_elastic_net_says_when_it_has_not_converged():
    X, y, _, _ = stream("ill conditioned")
    est = olsq.OnlineElasticNet(1e-6, l1_ratio=0.5, max_iter=1).fit(X, y)
    with pytest.warns(RuntimeWarning, match="duality gap is .* max_iter=1"):
        _ = est.coef_
    assert est.dual_gap_ > 1e-10
    X = np.random.default_rng(7).standard_normal((30, 12))
    R, z = np.linalg.qr(X)[1], np.random.default_rng(8).standard_normal(12)
    penalties, x, off = (np.full(12, 0.3), np.full(12, 0.1)), np.zeros(12), np.zeros(12)
    assert settle(R, z, *penalties, x, 1000)[0] < 1e-12
    off[::2] = np.random.default_rng(9).standard_normal(6)
    gap, _ = settle(R, z, *penalties, off, 0)  # the minimum over these signs

    def objective(x):
        penalised = penalties[0] @ np.abs(x) + 0.5 * penalties[1] @ x**2
        return 0.5 * np.sum((R @ x - z) ** 2) + penalised

    assert gap >= objective(off) - objective(x) > 0  # a bound


@pytest.mark.parametrize("seed", range(30))
def test_elastic_net_of_columns_that_depend_on_each_other(seed):
    """The gap is a certificate: a bound on how much lower the objective could be."""
    rng = np.random.default_rng(seed)
    n, d, rank = 40, int(rng.integers(3, 9)), int(rng.integers(1, 3))
    X = rng.standard_normal((n, rank)) @ rng.integers(-2, 3, (rank, d))
    y = X @ rng.standard_normal(d) + 0.1 * rng.standard_normal(n)
    alpha, l1_ratio = [0.3, 1e-3, 0.0][seed % 3], [1.0, 0.5][seed // 3 % 2]
    est = olsq.OnlineElasticNet(alpha, l1_ratio=l1_ratio, standardize=seed % 5 == 0)
    path = est.partial_fit_path(X[:20], y[:20])
    assert np.isfinite(path.coef).all()
    est.partial_fit(X[20:], y[20:])
    assert np.isfinite(est.coef_).all()
    assert est.dual_gap_ < 1e-10 * (y @ y) / n
    whole = olsq.OnlineElasticNet(alpha, l1_ratio=l1_ratio, standardize=seed % 5 == 0).fit(X, y)
    np.testing.assert_allclose(est.predict(X), whole.predict(X), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"alpha": -1.0}, "alpha must be finite and >= 0"),
        ({"l1_ratio": 1.5}, r"l1_ratio must be in \[0, 1\]"),
        ({"tol": np.nan}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be an integer"),
    ],
)
def test_elastic_net_refuses(options, match):
    with pytest.raises(ValueError, match=match):
        olsq.OnlineElasticNet(**options).fit(np.eye(3), np.ones(3))
