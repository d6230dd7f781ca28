"""Ways of forgetting: against a dense oracle, other libraries, and what each promises."""

from __future__ import annotations

import copy
import pickle
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import olsq
from olsq import forgetting as F
from olsq.reference import forgetting as oracle

N, D, K = 120, 3, 4  # rows, regressors, coefficients with the intercept
FACTORS, LEVEL = np.array([1.0, 0.9, 0.95, 0.99]), np.array([1.0, 2.0, 3.0, 0.5])
WALK = np.array([0.01, 0.0, 0.2, 0.03])
_half = np.random.default_rng(7).standard_normal((K, 2))
MATRIX = 0.01 * _half @ _half.T  # of rank 2

CASES = {  # the strategy, and the rule of the oracle
    "per coefficient": (F.PerCoefficient(FACTORS), lambda: oracle.per_coefficient(FACTORS)),
    "directional": (F.Directional(0.9), lambda: oracle.directional(0.9)),
    "directional, filtered": (
        F.Directional(0.9, smallest=1.2), lambda: oracle.directional(0.9, 1.2)
    ),
    "resetting": (
        F.ExponentialResetting(0.9, information=LEVEL), lambda: oracle.resetting(0.9, LEVEL, True)
    ),
    "resetting, all": (
        F.ExponentialResetting(0.9, information=LEVEL, cyclic=False),
        lambda: oracle.resetting(0.9, LEVEL, False),
    ),
    "bounded trace": (F.BoundedTrace(0.9, trace=2e3), lambda: oracle.bounded_trace(0.9, 2e3)),
    "random walk": (F.RandomWalk(WALK), lambda: oracle.random_walk(np.diag(WALK))),
    "random walk, matrix": (F.RandomWalk(MATRIX), lambda: oracle.random_walk(MATRIX)),
    "variable": (F.Variable(40), lambda: oracle.variable(40, 4, None, K, [])),
    "variable, known noise": (
        F.Variable(40, noise_variance=0.02), lambda: oracle.variable(40, 4, 0.02, K, [])
    ),
    "reset": (
        F.ResetOnBreak(0.99, rows_between_false_alarms=100),
        lambda: oracle.reset_on_break(0.99, 4, 100, 1e-4, 3, None, K, []),
    ),
}  # fmt: skip
STREAMS = ["steady", "drift", "jump", "quiet", "outliers", "collinear", "scales", "repeats"]


@cache
def stream(name):
    """X (N, D), Y (N, 2), weights (N,) with some 0."""
    rng = np.random.default_rng(STREAMS.index(name))
    X = rng.standard_normal((N, D))
    coef = np.broadcast_to(rng.standard_normal((2, D)), (N, 2, D)).copy()
    if name == "drift":
        coef += np.cumsum(0.1 * rng.standard_normal((N, 2, D)), 0)
    elif name == "jump":
        coef[N // 2 :] *= -1
    elif name == "quiet":
        X[40:100, 1:] = 0.0
    elif name == "collinear":
        X[:, 2] = X[:, 1] + 1e-4 * rng.standard_normal(N)
    elif name == "repeats":
        X[30:] = X[30 + np.arange(N - 30) % 2]
    Y = np.einsum("nmd,nd->nm", coef, X) + 0.1 * rng.standard_normal((N, 2)) + 1.0
    if name == "outliers":
        Y[rng.random(N) < 0.05] += 30.0
    elif name == "scales":
        X, Y = X * [1e-6, 1.0, 1e6], Y * 1e5
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], N)
    weights[0] = 2.0
    return X, Y, weights


def relative(found, true, spread):
    return float((np.abs(found - true) / (spread + np.abs(true))).max())


@pytest.mark.full
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("case", CASES)
def test_equals_the_dense_recursion(case, name):
    strategy, rule = CASES[case]
    X, Y, weights = stream(name)
    est = olsq.RecursiveLeastSquares(forget=strategy, ridge=1e-3)
    path = est.partial_fit_path(X, Y, weights)
    ridge = np.array([0.0, 1e-3, 1e-3, 1e-3])
    Z, taught = np.column_stack([np.ones(N), X]), weights
    if case == "directional, filtered":
        taught = np.where(weights * (Z**2).sum(1) < 1.2**2, 0.0, weights)
    true = oracle.path(
        Z, Y, rule(), weights=taught, ridge=ridge, dtype=np.longdouble,
        at_any_rank=isinstance(strategy, F.RandomWalk),
    )  # fmt: skip
    variance = np.einsum("nkk->nk", true.inverse)
    condition = np.sqrt(max(np.linalg.cond(P / np.sqrt(np.outer(v, v))) for P, v in zip(
        true.inverse.astype(float), variance.astype(float), strict=True)))  # fmt: skip
    tolerance = 2000 * np.finfo(float).eps * condition
    coef = np.concatenate([path.intercept[..., None], path.coef], -1)
    assert relative(coef, true.coef, np.sqrt(variance)[:, None]) < tolerance
    assert relative(path.residual, true.residual, np.abs(Y).max()) < tolerance
    stderr = np.concatenate([path.intercept_stderr[..., None], path.stderr], -1)
    known = np.isfinite(path.sigma2) & (path.sigma2 > 0)
    ratio = (stderr / np.sqrt(np.where(known, path.sigma2, 1.0))[..., None])[known]
    expected = np.broadcast_to(np.sqrt(variance)[:, None], stderr.shape)[known]
    np.testing.assert_allclose(ratio, expected.astype(float), rtol=10 * tolerance)


@pytest.mark.full
@pytest.mark.parametrize("start", ["silent column", "silent columns", "equal columns", "few rows"])
@pytest.mark.parametrize("case", CASES)
def test_paths_are_the_estimator_where_coefficients_are_undetermined(case, start):
    X, Y, weights = (a.copy() for a in stream("drift"))
    if start == "silent column":
        X[:40, 2] = 0.0
    elif start == "silent columns":
        X[:30, 1], X[:50, 2] = 0.0, 0.0
    elif start == "equal columns":
        X[:, 1] = X[:, 0]
    rows = slice(0, 3 if start == "few rows" else N)
    X, Y, weights = X[rows], Y[rows], weights[rows]
    est = olsq.RecursiveLeastSquares(forget=CASES[case][0]).fit(X, Y, weights)
    again = olsq.RecursiveLeastSquares(forget=CASES[case][0])
    path = again.partial_fit_path(X, Y, weights)
    for found, true in (
        (path.coef[-1], est.coef_),
        (path.sigma2[-1], est.sigma2_),
        (path.stderr[-1], est.coef_stderr_),
        (path.intercept_stderr[-1], est.intercept_stderr_),
        (path.residual, est.residual_),
        (again.coef_stderr_, est.coef_stderr_),
    ):
        np.testing.assert_allclose(found, true, rtol=1e-7, atol=1e-9)
    assert again.n_held_ == est.n_held_


@pytest.mark.parametrize("case", CASES)
def test_blocks_rows_copies_and_files_go_on_with_the_same_bits(case, tmp_path):
    make = olsq.RecursiveLeastSquares(forget=CASES[case][0])
    X, Y, weights = stream("jump")
    whole = clone(make).partial_fit(X, Y, weights)
    est = clone(make)
    for t in range(70):
        est.partial_fit(X[t : t + 1], Y[t : t + 1], weights[t : t + 1])
    est.save(tmp_path / "a.olsq")
    others = [est, olsq.load(tmp_path / "a.olsq"), pickle.loads(pickle.dumps(est)), copy.copy(est)]
    assert others[1].get_params() == make.get_params()
    for other in others:
        other.partial_fit(X[70:], Y[70:], weights[70:])
        np.testing.assert_array_equal(other.coef_, whole.coef_)
        np.testing.assert_array_equal(other.sigma2_, whole.sigma2_)
        assert str(other.forgetting_) == str(whole.forgetting_)


@pytest.mark.parametrize("case", CASES)
def test_single_rows_take_a_short_way_to_the_same_bits(case):
    X, Y, _ = stream("jump")
    X, y = X.copy(), Y[:, 0].copy()
    X[51], y[52] = np.nan, np.inf
    block = olsq.RecursiveLeastSquares(forget=CASES[case][0]).partial_fit(X, y)
    est, alone = clone(block), clone(block)
    for t in range(N):
        predicted = est.predict(X[t : t + 1])[0] if t else 0.0
        prediction, residual = est.step(X[t], y[t])
        assert prediction == pytest.approx(predicted, rel=1e-9, abs=1e-9, nan_ok=True)
        np.testing.assert_array_equal(residual, block.residual_[t])
        assert np.isnan(residual) == (t in (51, 52))
        alone.partial_fit(X[t : t + 1], y[t : t + 1])
    for other in (est, alone):
        np.testing.assert_array_equal(other.coef_, block.coef_)
        assert other.sigma2_ == block.sigma2_
        assert other.n_samples_seen_ == N - 2


@pytest.mark.parametrize(
    ("strategy", "plain"),
    [
        (F.Exponential(0.95), {"forget": 0.95}),
        (F.Stabilised(0.95), {"forget": 0.95}),
        (F.ByTime("2h"), {"half_life": "2h"}),
    ],
)
def test_factors_by_name_are_the_factors(strategy, plain, tmp_path):
    X, Y, weights = stream("steady")
    times = {}
    if "half_life" in plain:
        times = {"times": pd.date_range("2024", periods=N, freq="1h").to_numpy()}
    one, other = (olsq.RecursiveLeastSquares(**p) for p in ({"forget": strategy}, plain))
    for est in (one, other):
        est.fit(X[:50], Y[:50, 0], weights[:50], **{k: v[:50] for k, v in times.items()})
    one.save(tmp_path / "a.olsq")
    one = olsq.load(tmp_path / "a.olsq")
    for est in (one, other):
        for t in range(50, N):
            est.partial_fit(X[t : t + 1], Y[t : t + 1, 0], **{k: v[[t]] for k, v in times.items()})
    np.testing.assert_array_equal(one.coef_, other.coef_)
    ends = [olsq.RecursiveLeastSquares(forget=strategy, ridge=1e-3) for _ in range(2)]
    for est, part in zip(ends, (slice(0, 60), slice(60, N)), strict=True):
        est.fit(X[part], Y[part, 0], **{k: v[part] for k, v in times.items()})
    path = olsq.coefficient_path(
        X, Y[:, 0], forget=strategy, ridge=1e-3, fit_intercept=True, **times
    )
    np.testing.assert_allclose(olsq.merge(*ends).coef_, path.coef[-1], rtol=1e-9)


def test_special_cases_are_ordinary_regressions():
    X, Y, _ = stream("drift")

    def coef(strategy, **parameters):
        est = olsq.RecursiveLeastSquares(forget=strategy, ridge=1e-3, **parameters)
        return est.fit(X, Y).coef_

    plain, faded = coef(1.0), coef(0.9)
    never = [
        F.RandomWalk(0.0), F.Directional(1.0), F.ExponentialResetting(1.0), F.Directional(0.9, 1e9),
        F.BoundedTrace(0.9, trace=1e-9), F.ResetOnBreak(rows_between_false_alarms=1e250),
    ]  # fmt: skip
    for strategy in never:
        expected = np.zeros_like(plain) if strategy == F.Directional(0.9, 1e9) else plain
        np.testing.assert_allclose(coef(strategy), expected, rtol=1e-9)
    faded_too = [
        F.PerCoefficient([0.9] * K), F.BoundedTrace(0.9, trace=1e9),
        F.Variable(10, shortest=10, longest=10, noise_variance=1.0),
    ]  # fmt: skip
    for strategy in faded_too[:2]:
        np.testing.assert_allclose(coef(strategy), faded, rtol=1e-9)
    # Nothing is forgotten while the errors cannot be judged: after that the start is far away.
    np.testing.assert_allclose(coef(faded_too[2]), faded, rtol=1e-3)
    one = X[:, :1], Y[:, 0]  # a single direction: directional forgetting is exponential
    a, b = (
        olsq.RecursiveLeastSquares(forget=f, ridge=1e-3, fit_intercept=False).fit(*one).coef_
        for f in (F.Directional(0.9), 0.9)
    )
    np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("name", ["drift", "jump", "quiet"])
def test_random_walk_is_the_kalman_filter_of_filterpy(name):
    from filterpy.kalman import KalmanFilter

    X, Y, _ = stream(name)
    start = np.diag([10.0, 20.0, 30.0])
    for drift in (0.05, WALK[1:], MATRIX[1:, 1:]):
        Q = drift * np.eye(D) if np.ndim(drift) < 2 else drift
        theirs = KalmanFilter(dim_x=D, dim_z=1)
        theirs.x, theirs.P, theirs.Q = np.ones((D, 1)), start.copy(), Q
        theirs.R[:] = 1.0
        ours = olsq.RecursiveLeastSquares(
            forget=F.RandomWalk(drift), prior=(np.ones(D), start), fit_intercept=False
        )
        for x, y in zip(X, Y[:, 0], strict=True):
            prediction, _ = ours.step(x, y)
            theirs.predict()
            assert prediction == pytest.approx((x @ theirs.x).item(), rel=1e-10, abs=1e-10)
            theirs.update(y, H=x[None])
        np.testing.assert_allclose(ours.coef_, theirs.x[:, 0], rtol=1e-10)
        P = np.linalg.inv(ours.moments().gram)
        np.testing.assert_allclose(P, theirs.P, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(ours.leverage(X[:5]), [x @ (theirs.P + Q) @ x for x in X[:5]])


def test_exponential_is_the_filter_of_padasip():
    from padasip.filters import FilterRLS

    X, Y, _ = stream("drift")
    theirs = FilterRLS(D, mu=0.95, eps=0.1, w="zeros")
    errors = theirs.run(Y[:, 0], X)[1]
    path = olsq.coefficient_path(X, Y[:, 0], forget=F.Exponential(0.95), ridge=0.1)
    np.testing.assert_allclose(path.coef[-1], theirs.w, rtol=1e-9)
    np.testing.assert_allclose(path.residual, errors, rtol=1e-8, atol=1e-9)


ONES = np.ones((3000, 1))


@pytest.mark.parametrize(
    "strategy",
    [
        F.Exponential(0.98), F.Stabilised(0.98), F.PerCoefficient([0.98]), F.Directional(0.98),
        F.BoundedTrace(0.5, trace=0.02 / 0.98), F.BoundedTrace(0.98, trace=1e3),
        F.RandomWalk(0.01), F.ExponentialResetting(0.98, information=1e-9),
    ],
)  # fmt: skip
def test_the_steady_state_window_is_the_stated_one(strategy):
    """The present row's share in a mean is the inverse of the window."""
    est = olsq.RecursiveLeastSquares(forget=strategy, fit_intercept=False)
    est.fit(ONES, ONES[:, 0])
    shifted = est.partial_fit(ONES[:1], [2.0])  # from 1 by the share
    window = 50.0 if isinstance(strategy, F.BoundedTrace) else strategy.window
    assert 1 / (shifted.coef_[0] - 1.0) == pytest.approx(window, rel=1e-3)


@pytest.mark.full
def test_windows_of_the_error_driven():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(4000)
    est = olsq.RecursiveLeastSquares(forget=F.Variable(50), fit_intercept=False)
    mean = 1 - np.mean([est.partial_fit(ONES[:1], [v]).forgetting_["factor"] for v in y][1000:])
    assert F.Variable(50).window == 50
    assert 1 / mean == pytest.approx(50, rel=0.1)  # clipping at a tenth of it shortens no mean
    assert F.ResetOnBreak(0.99).window == 100
    assert F.BoundedTrace(0.99, trace=1.0).window == 100
    assert F.ResetOnBreak().window == F.ByTime("1D").window == np.inf


def test_quiet_stretches_lose_nothing_that_is_bounded():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20_000, 3))
    X[300:, 1:] = 0.0
    y = X @ [1.0, -2.0, 3.0] + 0.01 * rng.standard_normal(len(X))
    quiet = {"fit_intercept": False, "ridge": 1.0}

    def gram(strategy, rows=20_000):
        est = olsq.RecursiveLeastSquares(forget=strategy, **quiet).fit(X[:rows], y[:rows])
        np.testing.assert_allclose(est.coef_, [1.0, -2.0, 3.0], atol=0.1)
        return est, est.moments().gram

    _, before = gram(F.Directional(0.9), 1000)
    est, after = gram(F.Directional(0.9))
    np.testing.assert_allclose(after[1:, 1:], before[1:, 1:], rtol=1e-9)  # for ever, as it was
    assert est.n_held_ == 0
    assert est.determined_.all()
    _, kept = gram(F.ExponentialResetting(0.9, information=2.0))
    assert (np.linalg.eigvalsh(kept) >= 2.0 * 0.9**2 * (1 - 1e-9)).all()
    est, bounded = gram(F.BoundedTrace(0.9, trace=5.0))
    assert np.linalg.inv(bounded).trace() <= 5.0 * (1 + 1e-9)
    _, walked = gram(F.RandomWalk([0.0, 0.0, 0.01]))
    assert np.linalg.inv(walked)[2, 2] == pytest.approx(0.01 * 19_700, rel=0.01)
    est, _ = gram(F.PerCoefficient([0.9, 0.9, 1.0]))
    assert est.n_held_ > 0
    assert list(est.determined_) == [True, False, True]
    assert gram(F.Stabilised(0.9))[0].n_held_ > 0


def test_breaks_are_found_and_false_alarms_rare():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((20_000, 2))
    noise = rng.standard_normal(len(X))
    for given in (1.0, None):
        strategy = F.ResetOnBreak(rows_between_false_alarms=500, noise_variance=given)
        est = olsq.RecursiveLeastSquares(forget=strategy).fit(X, noise)
        assert est.forgetting_["breaks"] <= len(X) / 500
        if given is None:
            assert est.forgetting_["noise_variance"] == pytest.approx(1.0, rel=0.15)
    y = noise[:2000].copy()
    y[1000:] += X[1000:2000] @ [4.0, -4.0]
    est = olsq.RecursiveLeastSquares(forget=F.ResetOnBreak()).fit(X[:1000], y[:1000])
    assert est.forgetting_["breaks"] == 0
    est.partial_fit(X[1000:1010], y[1000:1010])
    assert est.forgetting_["breaks"] == 1
    est.partial_fit(X[1010:2000], y[1010:])
    assert est.forgetting_["breaks"] == 1
    np.testing.assert_allclose(est.coef_, [4.0, -4.0], atol=0.15)


def test_variable_forgetting_shortens_after_a_break_and_follows_the_noise():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((6000, 2))
    y = 0.1 * rng.standard_normal(6000)
    y[1000:] += X[1000:] @ [1.0, -1.0]
    y[3000:] += rng.standard_normal(3000)  # noise of ten times the deviation, for good
    est = olsq.RecursiveLeastSquares(forget=F.Variable(200))
    factors = [
        est.partial_fit(X[t : t + 1], y[t : t + 1]).forgetting_["factor"] for t in range(1300)
    ]
    assert min(factors[500:1000]) > 0.9
    assert min(factors[1000:1010]) == 0.95  # shortest: 20
    assert np.mean(factors[1150:]) > 0.99
    est.partial_fit(X[1300:], y[1300:])
    assert 0.3 < est.forgetting_["noise_variance"] < 1.1  # 3000 rows later, from .01


@pytest.mark.full
def test_sigma2_and_intervals_of_the_random_walk_are_the_models():
    rng = np.random.default_rng(8)
    n, q, sigma = 1500, 0.02, 0.5
    X = rng.standard_normal((n, 2))
    coef = np.cumsum(sigma * np.sqrt(q) * rng.standard_normal((n, 2)), 0)
    y = (X * coef).sum(1) + sigma * rng.standard_normal(n)
    est = olsq.RecursiveLeastSquares(forget=F.RandomWalk(q), fit_intercept=False).fit(
        X[:50], y[:50]
    )
    inside = []
    for x, target in zip(X[50:], y[50:], strict=True):
        low, high = est.predict_interval(x[None])
        inside.append(low[0] <= target <= high[0])
        est.partial_fit(x[None], [target])
    assert est.sigma2_ == pytest.approx(sigma**2, rel=0.1)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("case", ["directional", "bounded trace"])
def test_missing_rows_and_targets_never_poison(case):
    X, Y, _ = stream("drift")
    X, Y = X.copy(), Y.copy()
    X[[10, 50], [0, 2]] = np.nan, np.inf
    Y[30] = np.nan
    whole = np.isfinite(X).all(1) & np.isfinite(Y).all(1)
    strategy = CASES[case][0]
    a = olsq.RecursiveLeastSquares(forget=strategy).fit(X, Y)
    b = olsq.RecursiveLeastSquares(forget=strategy).fit(X[whole], Y[whole])
    np.testing.assert_array_equal(a.coef_, b.coef_)
    Y[60:70, 1] = np.nan
    both = olsq.RecursiveLeastSquares(forget=strategy, missing="skip_target").fit(X, Y)
    for target in range(2):
        ok = np.isfinite(X).all(1) & np.isfinite(Y[:, target])
        alone = olsq.RecursiveLeastSquares(forget=strategy).fit(X[ok], Y[ok, target])
        np.testing.assert_allclose(both.coef_[target], alone.coef_, rtol=1e-9)


def walk_over_holes(seed):
    """Rows with holes, of no weight where X, y or the weight is missing, and a random walk."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(30, 200)), int(rng.integers(1, 4))
    X, weights = rng.standard_normal((n, d)), rng.choice([0.5, 1.0, 3.0, 0.0], n)
    coef = np.cumsum(0.2 * rng.standard_normal((n, d)), 0)
    y = (X * coef).sum(1) + rng.standard_normal(n)
    if rng.random() < 0.5:  # undetermined for a while
        X[: n // 5, -1] = 0.0
    gap = int(rng.integers(0, n - 10))
    y[gap : gap + int(rng.integers(1, 15))] = np.nan
    X[rng.integers(0, n, 3), rng.integers(0, d, 3)] = np.nan
    weights[rng.integers(0, n, 3)] = np.nan
    y[rng.integers(0, n, 4)] = np.inf
    half = rng.standard_normal((d, d))
    drift = [0.05, np.full(d, 0.01), 0.02 * half @ half.T][int(rng.integers(3))]
    given: dict = {"fit_intercept": False}
    given |= [{}, {"ridge": 0.5}, {"prior": (np.ones(d), np.eye(d))}][int(rng.integers(3))]
    times = np.cumsum(rng.choice([0.0, 1.0, 0.3, 7.0], n)) if rng.random() < 0.5 else None
    given["forget"] = F.RandomWalk(drift, per=None if times is None else 2.0)
    return X, y, weights, times, given


@pytest.mark.full
@pytest.mark.parametrize("seed", range(40))
def test_coefficients_walk_on_in_rows_that_cannot_be_learned(seed, tmp_path):
    """As in rows of weight 0, by every door, with the same bits however the rows are cut."""
    X, y, weights, times, given = walk_over_holes(seed)
    whole = np.isfinite(X).all(1) & np.isfinite(y) & ~np.isnan(weights)
    X0, y0, w0 = (np.where(whole if a.ndim == 1 else whole[:, None], a, 0) for a in (X, y, weights))
    silent = olsq.RecursiveLeastSquares(**given)
    true = silent.partial_fit_path(X0, y0, w0, times=times)
    residual = np.where(whole, true.residual, np.nan)
    fields = ("coef", "stderr", "sigma2")

    path = olsq.RecursiveLeastSquares(**given).partial_fit_path(X, y, weights, times=times)
    for name in fields:
        np.testing.assert_array_equal(getattr(path, name), getattr(true, name))
    np.testing.assert_array_equal(path.residual, residual)

    rng, est, t = np.random.default_rng(seed), olsq.RecursiveLeastSquares(**given), 0
    while t < len(y):  # single rows, blocks, paths of blocks, files
        how, end = int(rng.integers(4)), min(len(y), t + int(rng.integers(1, 40)))
        rows = slice(t, t + 1 if how == 0 else end)
        when = None if times is None else times[rows]
        if how == 0 and np.isfinite(weights[t]):
            time = None if when is None else when[0]
            error = est.step(X[t], y[t], sample_weight=weights[t], time=time)[1]
            np.testing.assert_allclose(error, residual[t], rtol=1e-9, atol=1e-12)
        elif how == 3:
            part = est.partial_fit_path(X[rows], y[rows], weights[rows], times=when)
            np.testing.assert_array_equal(part.coef, true.coef[rows])
            est.save(tmp_path / "a.olsq")
            est = olsq.load(tmp_path / "a.olsq")
        else:
            est.partial_fit(X[rows], y[rows], weights[rows], times=when)
        t = rows.stop
    np.testing.assert_array_equal(est.coef_, silent.coef_)
    np.testing.assert_array_equal(est.coef_stderr_, silent.coef_stderr_)
    np.testing.assert_array_equal(est.leverage(X0), silent.leverage(X0))
    assert est.n_samples_seen_ == silent.n_samples_seen_ == (w0 > 0).sum()

    if "prior" in given:
        return
    options = {"sample_weight": weights, "times": times} | given
    both = np.column_stack([y, np.where(np.isnan(y), 1.0, y)])  # targets that miss different rows
    apart = olsq.coefficient_path(X, both, missing="skip_target", **options)
    for name in fields:
        np.testing.assert_array_equal(getattr(apart, name)[:, 0], getattr(true, name))
    frame = pd.DataFrame(X, columns=list("abc")[: X.shape[1]])
    np.testing.assert_array_equal(olsq.coefficient_path(frame, y, **options).coef, true.coef)

    by, late = np.arange(len(y)) % 3, np.arange(len(y)) % 3 == 1
    if whole[late].any():
        grouped = olsq.coefficient_path(X, y, by=by, **options)
        mine = {"sample_weight": w0[late], "times": None if times is None else times[late]} | given
        alone = olsq.coefficient_path(X0[late], y0[late], **mine)
        np.testing.assert_array_equal(grouped.stderr[late], alone.stderr)


def test_a_gap_is_as_long_for_the_estimator_as_for_time_varying():
    """The numbers are those of the dense recursion, where the gap is 30 steps of the walk."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2))
    y = X @ [1.0, -1.0] + rng.standard_normal(120)
    y[60:90] = np.nan
    for times, per in ((None, None), (np.arange(120.0), 1.0)):
        fit = olsq.time_varying(X, y, drift=0.04, noise=1.0, fit_intercept=False,
                                times=times, per=per)  # fmt: skip
        est = olsq.RecursiveLeastSquares(
            forget=F.RandomWalk(0.04, per=per), fit_intercept=False, noise_variance=1.0
        )
        whole = est.partial_fit_path(X, y, times=times)
        np.testing.assert_allclose(whole.stderr[20:], fit.filtered.stderr[20:], rtol=1e-6)
        rule = oracle.random_walk(np.diag([0.04, 0.04]))
        learned = np.isfinite(y).astype(float)
        options = {"weights": learned, "ridge": np.full(2, 1e-9), "at_any_rank": True}
        true = oracle.path(X, np.nan_to_num(y)[:, None], rule, dtype=np.longdouble, **options)
        np.testing.assert_allclose(whole.coef[20:], true.coef[20:, 0].astype(float), rtol=1e-6)
        # Both go on alike, through rows that are missing as well.
        more, when = np.full(10, np.nan), None if times is None else 120.0 + np.arange(10)
        for model in (est, fit.estimator):
            model.partial_fit(X[:10], more, times=when)
        np.testing.assert_allclose(fit.estimator.coef_stderr_, est.coef_stderr_, rtol=1e-6)
        assert (est.coef_stderr_ > whole.stderr[-1]).all()


@pytest.mark.parametrize("case", CASES)
def test_float32_rows_and_a_diffuse_start(case):
    strategy = CASES[case][0]
    X, Y, _ = stream("steady")
    X, Y = X.astype(np.float32), Y.astype(np.float32)
    est = olsq.RecursiveLeastSquares(forget=strategy).fit(X, Y)
    assert est.coef_.dtype == np.float32
    assert est.predict(X).dtype == np.float32
    wide = olsq.RecursiveLeastSquares(forget=strategy).fit(X.astype(float), Y.astype(float))
    np.testing.assert_allclose(est.coef_, wide.coef_, rtol=2e-3, atol=1e-4)
    # Without a ridge nothing is forgotten before rows determine every coefficient.
    path = olsq.coefficient_path(X, Y, forget=strategy, fit_intercept=True)
    if case != "directional, filtered":
        plain = olsq.coefficient_path(X, Y, fit_intercept=True)
        np.testing.assert_allclose(path.coef[:K], plain.coef[:K], rtol=1e-3, atol=1e-4)
    assert np.isfinite(path.coef).all()


def test_groups_are_learned_one_by_one():
    X, Y, _ = stream("drift")
    by = np.arange(N) % 3
    times = np.arange(N) // 3 * 1.0
    for strategy, given in (
        (F.Directional(0.9), {}),
        (F.Exponential(0.9), {}),
        (F.ByTime(3.0), {}),
    ):
        given = {"times": times} if isinstance(strategy, F.ByTime) else given
        path = olsq.coefficient_path(X, Y, forget=strategy, ridge=1e-3, by=by, **given)
        for g in range(3):
            mine = {k: v[by == g] for k, v in given.items()}
            alone = olsq.coefficient_path(
                X[by == g], Y[by == g], forget=strategy, ridge=1e-3, **mine
            )
            np.testing.assert_allclose(path.coef[by == g], alone.coef, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="needs times"):
        olsq.coefficient_path(X, Y, forget=F.ByTime(3.0), by=by)


def test_goes_on_from_moments():
    X, Y, _ = stream("drift")
    first = olsq.RecursiveLeastSquares(forget=1.0).fit(X[:50], Y[:50])
    given = {"ridge_mode": "discounted", "fit_intercept": True}
    est = olsq.RecursiveLeastSquares.from_moments(
        first.moments(), forget=F.RandomWalk(0.0), **given
    )
    est.partial_fit(X[50:], Y[50:])
    np.testing.assert_allclose(est.coef_, first.partial_fit(X[50:], Y[50:]).coef_, rtol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"forget": F.RandomWalk(0.1), "ridge_mode": "fixed"}, "does not combine with ridge_mode="),
        ({"forget": F.Variable(50), "missing": "skip_target"}, "does not combine with missing="),
        ({"forget": F.ResetOnBreak(), "cov": "sandwich"}, "does not combine with cov="),
        ({"forget": F.Exponential(0.9), "half_life": 10}, "cannot be combined"),
        ({"forget": F.ByTime("1D"), "half_life": 10}, "cannot be combined"),
        ({"forget": F.Stabilised(0.9), "ridge_mode": "fixed"}, "returns to zero"),
        ({"forget": F.PerCoefficient([0.9, 0.9])}, "one for each of 4 coefficients"),
        ({"forget": F.RandomWalk(np.eye(3))}, r"drift must be \(4, 4\)"),
        ({"forget": F.ExponentialResetting(0.9, [1.0, 2.0])}, "one for each of 4"),
        ({"forget": F.ByTime(3.0)}, "times"),
    ],
)
def test_what_does_not_combine_is_refused_before_anything_changes(parameters, message):
    X, Y, _ = stream("steady")
    est = olsq.RecursiveLeastSquares(**parameters)
    with pytest.raises(ValueError, match=message):
        est.fit(X, Y)
    assert not est.__sklearn_is_fitted__()


def test_other_doors_refuse_strategies():
    X, Y, _ = stream("steady")
    est = olsq.RecursiveLeastSquares(forget=F.Directional(0.9)).fit(X, Y)
    before = est.coef_
    with pytest.raises(ValueError, match="cannot be combined"):
        est.partial_fit(X, Y, forget=0.5)
    with pytest.raises(ValueError, match="cannot merge: what forget=Directional"):
        olsq.merge(est, est)
    for other in (0.9, F.Directional(0.8), F.Exponential(0.9)):
        est.set_params(forget=other)
        with pytest.raises(ValueError, match="state depends"):
            est.partial_fit(X, Y)
    np.testing.assert_array_equal(est.coef_, before)
    est = olsq.RecursiveLeastSquares(forget=0.9).fit(X, Y)
    est.set_params(forget=F.Exponential(0.8)).partial_fit(X, Y)  # a factor may follow a factor
    with pytest.raises(ValueError, match="state depends"):
        est.set_params(forget=F.RandomWalk(0.1)).partial_fit(X, Y)
    with pytest.raises(ValueError, match="cannot be combined"):
        olsq.coefficient_path(X, Y, forget=F.Exponential(0.9), window=20)
    with pytest.raises(TypeError, match="are for RecursiveLeastSquares"):
        olsq.FilterBank(2, forget=F.Exponential(0.9)).partial_fit(X[:2][:, None], Y[:2, :1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: F.Exponential(0.0), lambda: F.Exponential(1.1), lambda: F.Exponential("0.9"),
        lambda: F.Exponential(np.nan), lambda: F.Exponential([0.9]), lambda: F.ByTime(-1.0),
        lambda: F.ByTime(""), lambda: F.PerCoefficient(0.9), lambda: F.PerCoefficient([0.9, 2.0]),
        lambda: F.PerCoefficient([]), lambda: F.Variable(1.0), lambda: F.Variable(50, shortest=60),
        lambda: F.Variable(50, longest=20), lambda: F.Variable(50, noise_variance=0.0),
        lambda: F.Directional(0.9, -1.0), lambda: F.ExponentialResetting(0.9, 0.0),
        lambda: F.ExponentialResetting(0.9, cyclic="no"), lambda: F.BoundedTrace(0.9, trace=0.0),
        lambda: F.ResetOnBreak(keep=0.0), lambda: F.ResetOnBreak(ratio=1.0),
        lambda: F.ResetOnBreak(outlier=0.5), lambda: F.RandomWalk(-1.0),
        lambda: F.RandomWalk([[1.0, 2.0], [2.0, 1.0]]), lambda: F.RandomWalk([[1.0, 2.0]]),
        lambda: F.RandomWalk(np.inf), lambda: F.RandomWalk([[1.0, 0.5], [0.0, 1.0]]),
    ],
)  # fmt: skip
def test_bad_options_are_refused_when_made(make):
    with pytest.raises(ValueError, match="must"):
        make()


@pytest.mark.parametrize(
    "strategy",
    [*(s for s, _ in CASES.values()), F.Exponential(0.9), F.ByTime(np.timedelta64(3, "h"))],
)
def test_strategies_are_values(strategy):
    again = F.base.from_dict(strategy.to_dict())
    assert again == strategy
    assert hash(again) == hash(strategy)
    shown = repr(strategy)[:80]  # an estimator shows long parameters in part
    assert shown in repr(olsq.RecursiveLeastSquares(forget=strategy))
    assert clone(olsq.RecursiveLeastSquares(forget=strategy)).forget == strategy
    with pytest.raises(AttributeError):
        strategy.factor = 0.5


def test_check_estimator():
    est = olsq.RecursiveLeastSquares(forget=F.Directional(0.98), ridge=1e-3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not inherit from.*", UserWarning)
        results = check_estimator(est, on_skip=None, on_fail=None)
    bad = {r["check_name"] for r in results if r["status"] not in ("passed", "skipped")}
    # A row of weight 2 is not two rows where each row makes forget, whatever the way.
    assert bad == {"check_sample_weight_equivalence_on_dense_data"}


def test_damaged_state_files_are_refused(tmp_path):
    from olsq.online.files import format as files

    X, Y, _ = stream("steady")
    est = olsq.RecursiveLeastSquares(forget=F.Directional(0.9)).fit(X, Y)
    path = tmp_path / "a.olsq"
    est.save(path)
    header, arrays = files.read(path)

    def spoilt(**changes):
        parameters = header["parameters"]
        if "forget" in changes:
            parameters = parameters | {"forget": changes.pop("forget")}
        files.write(path, header | {"parameters": parameters}, arrays | changes)
        with pytest.raises(olsq.StateFileError):
            olsq.load(path)

    spoilt(memory=arrays["memory"][:3])
    spoilt(memory=-arrays["memory"])
    spoilt(variances=np.zeros(5))
    spoilt(forget=0.9)
    spoilt(forget={"forgetting": "Directional", "factor": 0.8})
    spoilt(forget={"forgetting": "Directional", "factor": 7})
    spoilt(forget={"forgetting": "Forgetting"})
    spoilt(forget={"forgetting": "os"})
    spoilt(forget={"forgetting": "Directional", "nonsense": 1})


@pytest.mark.parametrize(
    "options", [{}, {"by": np.zeros(120)}, {"window": 15}], ids=["alone", "by", "window"]
)
@pytest.mark.parametrize("factor", [0.1, 0.3, 0.5, 0.7, "breaks"])
@pytest.mark.parametrize("d", [2, 5])
def test_standard_errors_of_paths_stand_fast_forgetting(d, factor, options):
    """Forgetting enlarges the rounding errors of variances that are carried from row to row."""
    rng = np.random.default_rng(1)
    n, window = 120, options.get("window", 120)
    X = rng.standard_normal((n, d))
    X[40:60] *= 1e-3
    y = X.sum(1) + rng.standard_normal(n)
    gates = np.full(n, 0.9 if factor == "breaks" else factor)
    if factor == "breaks":
        gates[20::7] = 1e-3
    stderr = olsq.coefficient_path(X, y, forget=gates, noise_variance=1.0, **options).stderr
    for t in range(d + 2, n):
        first = max(0, t + 1 - window)
        weights = np.append(np.cumprod(gates[t:first:-1])[::-1], 1.0)
        R = np.linalg.qr(np.sqrt(weights)[:, None] * X[first : t + 1], mode="r")
        if np.linalg.cond(R) < 1e5:  # wind-up protection acts beyond
            errors = np.linalg.norm(np.linalg.inv(R), axis=1)
            np.testing.assert_allclose(stderr[t], errors, rtol=1e-9)
