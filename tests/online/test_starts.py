"""Starts without ridge: coefficients of minimum norm, computed from the rows."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

import olsq
from olsq.online.forms.factor import form as factor_form
from olsq.online.forms.factor import stack

KINDS = ["plain", "units", "mean", "walk", "repeats", "dummies", "multiple"]


def stream(kind, n, d, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    if kind == "units":
        X *= 10.0 ** rng.integers(-6, 7, d)
    if kind == "mean":
        X += 100
    if kind == "walk":
        X = np.cumsum(X, axis=0)
    if kind == "repeats":
        X[2::3] = X[1 : n - 1 : 3][: len(X[2::3])]
    if kind == "dummies":
        X = np.eye(d)[rng.integers(0, d, n)]
        X[:, -1] = 0
    if kind == "multiple":
        X[:, 1] = 1e8 * X[:, 0]
    return X, y


def solve_exactly(A, b):
    rows = [[*a, c] for a, c in zip(A, b, strict=True)]
    for i in range(len(rows)):
        at = next(k for k in range(i, len(rows)) if rows[k][i] != 0)
        rows[i], rows[at] = rows[at], rows[i]
        for k in range(len(rows)):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [u - factor * v for u, v in zip(rows[k], rows[i], strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def shortest_exactly(X, y, intercept):
    """Compute the solution of minimum norm of independent rows in rationals."""
    X, y = [[Fraction(float(v)) for v in row] for row in X], [Fraction(float(v)) for v in y]
    A, b = X, y
    if intercept:
        A = [[u - v for u, v in zip(row, X[0], strict=True)] for row in X[1:]]
        b = [v - y[0] for v in y[1:]]

    def dot(u, v):
        return sum(p * q for p, q in zip(u, v, strict=True))

    weights = solve_exactly([[dot(u, v) for v in A] for u in A], b)
    coef = [
        sum((w * row[j] for w, row in zip(weights, A, strict=True)), Fraction(0))
        for j in range(len(X[0]))
    ]
    constant = y[0] - dot(X[0], coef) if intercept else Fraction(0)
    return np.array([float(c) for c in coef]), float(constant)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["plain", "units", "mean", "walk"])
def test_the_first_rows_give_the_shortest_coefficients(kind, intercept):
    for seed in range(6):
        d = 2 + seed
        n = 1 + (3 * seed) % d
        X, y = stream(kind, n, d, seed)
        coef, constant = shortest_exactly(X, y, intercept)
        path = olsq.coefficient_path(X, y, fit_intercept=intercept)
        length = np.abs(X).max(axis=0)
        size = max(np.abs(coef * length).max(), abs(constant))
        np.testing.assert_allclose(path.coef[-1] * length, coef * length, atol=1e-11 * size)
        np.testing.assert_allclose(path.intercept[-1], constant, atol=1e-11 * size)


@pytest.mark.full
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_starts_agree_with_the_general_way(kind, intercept):
    """Rows one by one and paths, beside the minimum norm from the factor alone, which reads."""
    for seed in range(4):
        d = 3 + 2 * seed
        X, y = stream(kind, 2 * d, d, seed)
        options = {"ridge": 0.0, "fit_intercept": intercept, "forget": 0.9}
        path = olsq.RecursiveLeastSquares(**options).partial_fit_path(X, y)
        whole, single = (olsq.RecursiveLeastSquares(**options) for _ in range(2))
        whole.partial_fit(X, y)
        length = np.where(X.any(axis=0), np.abs(X).max(axis=0), 1.0)
        size = 1e-8 * np.abs(path.coef * length).max()
        for t in range(len(X)):
            predicted = single.predict(X[t : t + 1])[0] if t else 0.0
            _, residual = single.step(X[t], y[t])
            assert residual == pytest.approx(y[t] - predicted, rel=1e-8, abs=1e-8)
            assert residual == pytest.approx(path.residual[t], rel=1e-8, abs=1e-8)
            np.testing.assert_allclose(
                path.coef[t] * length, single.coef_ * length, rtol=1e-8, atol=size
            )
            np.testing.assert_array_equal(np.isinf(path.stderr[t]), np.isinf(single.coef_stderr_))
        np.testing.assert_allclose(whole.residual_, path.residual, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("cov", ["posterior", "sandwich"])
@pytest.mark.parametrize("kind", KINDS)
def test_moments_start_as_the_square_root_does(kind, cov):
    X, y = stream(kind, 14, 6, 2)
    for ridge_mode in ("discounted", "fixed"):
        options = {"ridge_mode": ridge_mode, "cov": cov, "fit_intercept": True}
        root = olsq.RecursiveLeastSquares(method="sqrt", cov=cov, fit_intercept=True)
        moments = olsq.RecursiveLeastSquares(method="information", **options)
        expected, path = (est.partial_fit_path(X[:5], y[:5]) for est in (root, moments))
        for name in ("coef", "residual", "recursive_residual", "stderr"):
            a, b = getattr(path, name), getattr(expected, name)
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(path.coef).max())
        size = 1e-12 * max(1.0, np.abs(X).max()) ** 2
        np.testing.assert_allclose(moments.moments().gram, root.moments().gram, atol=size)
        halves = [olsq.RecursiveLeastSquares(method="information", **options) for _ in range(2)]
        merged = olsq.merge(halves[0].fit(X[:3], y[:3]), halves[1].fit(X[3:5], y[3:5]))
        np.testing.assert_allclose(merged.predict(X[:5]), root.predict(X[:5]), rtol=1e-5)


def test_ordinary_starts_do_not_solve_for_all_coefficients(monkeypatch):
    """What costs d^3 a row is left to the rows that need it."""

    def refuse(*_):
        raise AssertionError("a solution of minimum norm from the factor alone")

    monkeypatch.setattr(factor_form, "solution", refuse)
    X, y = stream("plain", 60, 20, 0)
    for options in (
        {}, {"method": "sqrt"}, {"method": "information"}, {"ridge_mode": "fixed", "forget": 0.9},
    ):  # fmt: skip
        est = olsq.RecursiveLeastSquares(ridge=0.0, **options)
        for start in range(0, 60, 3):
            est.partial_fit(X[start : start + 3], y[start : start + 3])
        for t in range(60):
            est.step(X[t], y[t])


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_that_is_saved_goes_on_with_the_same_bits(kind, tmp_path):
    X, y = stream(kind, 12, 6, 1)
    for make in (
        olsq.RecursiveLeastSquares,
        partial(olsq.RecursiveLeastSquares, method="information"),
        partial(olsq.RollingLeastSquares, 8),
    ):
        est = make(ridge=0.0).fit(X[:3], y[:3])
        est.save(tmp_path / "start.olsq")
        other = olsq.load(tmp_path / "start.olsq")
        for t in range(3, 12):
            assert other.step(X[t], y[t]) == est.step(X[t], y[t])
            np.testing.assert_array_equal(other.coef_, est.coef_)


@pytest.mark.parametrize("window", [None, 30])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "early", "centred"])
def test_paths_of_first_rows_are_what_estimators_say(kind, intercept, window):
    X, y = stream(kind, 24, 10, 11)
    if kind == "early":  # its first coefficients are determined long before the others
        X[:12, 3:] = X[0, 3:]
    if kind == "centred":  # an intercept is, before any slope
        X[1:12] = np.where(np.arange(11)[:, None] % 2, X[0], -X[0])
    options = {"fit_intercept": intercept, "noise_variance": 1.0}
    if window:
        options["window"] = window
    path = olsq.coefficient_path(X, y, **options)
    est = (olsq.RollingLeastSquares if window else olsq.RecursiveLeastSquares)(**options)
    for t in range(len(X)):
        est.partial_fit(X[t : t + 1], y[t : t + 1])
        size = np.abs(est.coef_).max() + 1e-12
        assert_allclose(path.coef[t], est.coef_, rtol=1e-8, atol=1e-11 * size, err_msg=f"row {t}")
        assert_allclose(path.intercept[t], est.intercept_, rtol=1e-8, atol=1e-9, err_msg=f"{t}")
        assert_allclose(path.stderr[t], est.coef_stderr_, rtol=1e-6, err_msg=f"row {t}")
        if intercept:
            got, expected = path.intercept_stderr[t], est.intercept_stderr_
            assert_allclose(got, expected, rtol=1e-6, err_msg=f"row {t}")


@pytest.mark.parametrize("intercept", [True, False])
def test_first_rows_of_many_coefficients_are_what_estimators_say(intercept):
    """Of so many the directions of the rows are carried along, also over rows without a new one."""
    X, y = stream("plain", 140, 130, 3)
    X[20], X[60:62], y[20] = X[4], X[7], y[4]
    options = {"fit_intercept": intercept, "noise_variance": 1.0}
    path, est = olsq.coefficient_path(X, y, **options), olsq.RecursiveLeastSquares(**options)
    for t in range(len(X)):
        est.partial_fit(X[t : t + 1], y[t : t + 1])
        if t % 20 in (0, 1, 2) or t > 125:
            atol = 1e-10 * np.abs(est.coef_).max()
            assert_allclose(path.coef[t], est.coef_, rtol=1e-8, atol=atol, err_msg=f"row {t}")
            assert_allclose(path.stderr[t], est.coef_stderr_, rtol=1e-6, err_msg=f"row {t}")


WIDE = 60  # coefficients, from 48 on a path carries its variances along


def wide_rows(kind, n, seed=5):
    r = np.random.default_rng(seed)
    X = r.standard_normal((n, WIDE))
    if kind == "units":
        X *= 10 ** r.uniform(-4, 4, WIDE)
    elif kind == "correlated":
        X = X @ (np.eye(WIDE) + 0.5 * np.triu(np.ones((WIDE, WIDE)), 1))
    elif kind == "nearly dependent":
        X[:, 5] = X[:, 3] * (1 + 1e-5 * r.standard_normal(n))
        X[10:20] = X[10]
    elif kind == "falls silent":  # until wind-up protection holds its coefficient
        X[80:, 7] = 0.0
    elif kind == "a huge row":
        X[70] *= 1e5
    return X, X[:, :9].sum(1) + r.standard_normal(n)


@pytest.mark.parametrize(
    "kind", ["white", "units", "correlated", "nearly dependent", "falls silent", "a huge row"]
)
@pytest.mark.parametrize("ridge", [1e-3, 1e-8])
def test_variances_carried_along_a_path_are_those_of_the_state(kind, ridge):
    X, y = wide_rows(kind, 150)
    forget = 0.7 if kind == "falls silent" else 0.99
    options = {"method": "sqrt", "ridge": ridge, "forget": forget, "fit_intercept": False}
    path = olsq.RecursiveLeastSquares(**options).partial_fit_path(X, y)
    est = olsq.RecursiveLeastSquares(**options)
    # Of fewer rows than coefficients the ridge leaves ridge / (ridge + x'x) of the squared targets:
    # the noise variance has lost so many digits, in another order on another processor.
    lost = WIDE * np.finfo(float).eps * (1 + (X**2).sum(1) / ridge).max()
    early = min(max(lost, 1e-9), 1e-7)
    for t in range(len(X)):
        est.partial_fit(X[t : t + 1], y[t : t + 1])
        if t % 7 == 0 or 60 < t < 80:
            rtol = early if t < WIDE else 1e-9
            assert_allclose(path.stderr[t], est.coef_stderr_, rtol=rtol, err_msg=f"row {t}")


GROUP_OPTIONS = {
    "ordinary": {},
    "no intercept": {"fit_intercept": False},
    "forgetting": {"forget": 0.9},
    "sandwich": {"cov": "sandwich"},
    "known noise": {"noise_variance": 2.0},
    "sqrt": {"method": "sqrt"},
}


@pytest.mark.full
@pytest.mark.parametrize("options", GROUP_OPTIONS.values(), ids=GROUP_OPTIONS)
@pytest.mark.parametrize("kind", [*KINDS, "gaps"])
def test_groups_start_as_estimators_do(kind, options):
    lengths = [3, 9, 1, 14, 40]
    codes = np.repeat(np.arange(len(lengths)), lengths)
    X, y = stream(kind, len(codes), 5, 4)
    if kind == "gaps":
        y[1::3] = np.nan
    weights = np.random.default_rng(1).exponential(size=len(y))
    weights[::7] = 0.0
    path_of = partial(olsq.coefficient_path, **({"fit_intercept": True} | options))
    path = path_of(X, y, sample_weight=weights, by=codes)
    groups = olsq.GroupedLeastSquares(**options).fit(X, y, weights, by=codes)
    for code in np.unique(codes):
        rows = codes == code
        own = path_of(X[rows], y[rows], sample_weight=weights[rows])
        for name in ("coef", "intercept", "residual", "stderr", "sigma2", "recursive_residual"):
            got, expected = getattr(path, name)[rows], getattr(own, name)
            size = np.abs(expected[np.isfinite(expected)]).max(initial=1e-3)
            assert_allclose(got, expected, rtol=1e-9, atol=1e-12 * size, err_msg=f"{name} {code}")
        assert_allclose(groups.residual_[rows], own.residual, rtol=1e-9, atol=1e-9)


def test_the_first_rows_of_groups_need_no_dense_algebra(monkeypatch):
    codes = np.repeat(np.arange(4), 12)
    X, y = stream("plain", len(codes), 5, 4)
    monkeypatch.setattr(stack, "predict", None)  # by the dense algebra's coefficients
    olsq.GroupedLeastSquares().fit(X, y, by=codes)


@pytest.mark.parametrize("silent", [[0], [0, 2], [0, 3, 4, 9], [5]])
@pytest.mark.parametrize("kind", KINDS)
def test_paths_predict_after_silent_rows_as_estimators_do(kind, silent):
    X, y = stream(kind, 40, 3, 7)
    if kind == "plain":
        X[:, 1] = X[:, 0]  # never determined: left to the general way after a while
    weights = np.ones(len(y))
    weights[silent] = 0.0
    path = olsq.coefficient_path(X, y + 5, sample_weight=weights, fit_intercept=True, method="sqrt")
    est = olsq.RecursiveLeastSquares(method="sqrt").fit(X, y + 5, weights)
    assert_allclose(path.residual, est.residual_, rtol=1e-7, atol=1e-9)
