"""Complex signals: every estimator that takes them, against dense complex128 least squares."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from scipy.stats import t as student

import olsq
from olsq import forgetting as F
from olsq.online.rows import complex_rows
from tests.online import streams
from tests.online.judge import coefficient_error, tolerance

RLS, ROLLING = olsq.RecursiveLeastSquares, olsq.RollingLeastSquares
METHODS = ["covariance", "sqrt", "information"]


def normal(rng, *shape):
    """Circular noise of variance 1."""
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)


def data(n=60, d=3, m=0, seed=0):
    rng = np.random.default_rng(seed)
    X, noise = normal(rng, n, d), normal(rng, n, max(m, 1))
    y = X @ normal(rng, d, max(m, 1)) + (2 - 1j) + 0.3 * noise
    return X, y if m else y[:, 0]


def zeta(gates, weights):
    """Weights of the rows after the last of them."""
    return weights * np.append(np.cumprod(gates[:0:-1])[::-1], 1.0)


def dense(X, Y, w, ridge, intercept):
    """Minimise ``sum w |y - x . theta|^2 + ridge |theta|^2``; theta (k,) or (k, m), condition."""
    A = np.c_[np.ones(len(X)), X] if intercept else X
    penalty = np.broadcast_to(ridge, X.shape[1])
    penalty = np.r_[0.0, penalty] if intercept else penalty
    A = np.vstack([np.sqrt(w)[:, None] * A, np.diag(np.sqrt(penalty))])
    below = np.zeros((len(penalty), *Y.shape[1:]))
    B = np.concatenate([(np.sqrt(w) * Y.T).T, below])
    size = np.linalg.norm(A, axis=0)
    size[size == 0] = 1.0
    values = np.linalg.svd(A / size, compute_uv=False)
    known = values[-1] > 1e-9 * values[0] and len(A) >= A.shape[1]
    theta = np.linalg.lstsq(A / size, B, rcond=1e-12)[0]
    return (theta.T / size).T, values[0] / values[-1] if known else np.inf


def complex_stream(regressors, forgetting, m):
    one, two = (streams.make(regressors, forgetting, m=m, seed=s) for s in (0, 1))
    rng = np.random.default_rng(7)
    X = one.X + 1j * two.X
    y = X @ normal(rng, X.shape[1], m) + 0.5 * np.abs(X).max() * normal(rng, len(X), m)
    return X, y, one.gates, one.weights


#          ridge              intercept  targets
OPTIONS = [(0.0, False, 1), (0.3, True, 2), ([0.1, 0.0, 2.0], True, 1)]
TABLE = [
    (method, mode, *option, *stream)
    for number, ((method, mode), option, stream) in enumerate(
        itertools.product(
            [*((method, "discounted") for method in METHODS), ("information", "fixed")],
            OPTIONS,
            itertools.product(streams.REGRESSORS, streams.FORGETTING),
        )
    )
    if number % 7 == 0 or (stream[0] == "white" and number % 2 == 0)
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("method", "mode", "ridge", "intercept", "m", "regressors", "forgetting"), TABLE
)
def test_agrees_with_dense_complex_least_squares(
    method, mode, ridge, intercept, m, regressors, forgetting
):
    X, y, gates, weights = complex_stream(regressors, forgetting, m)
    est = RLS(ridge=ridge, ridge_mode=mode, fit_intercept=intercept, method=method)
    path = est.partial_fit_path(X, y, weights, forget=gates)
    assert path.coef.dtype == path.residual.dtype == np.complex128
    before = np.zeros((m, 1 + X.shape[1]))
    ones = np.c_[np.ones(len(X)), X]
    for t in range(len(X)):
        # A-priori: what the coefficients before the row make of it, which dense algebra judges.
        size = np.abs(y[t]) + np.abs(ones[t]) @ np.abs(before).T
        loss = np.abs(path.residual[t] - (y[t] - ones[t] @ before.T))
        assert (loss <= 1e-7 * size + 1e-300).all()
        before = np.column_stack([path.intercept[t], path.coef[t]])
        if t % 6 and t < len(X) - 1:
            continue
        decay = np.prod(gates[: t + 1]) if mode == "discounted" else 1.0
        w = zeta(gates[: t + 1], weights[: t + 1])
        A, B = X[: t + 1], y[: t + 1]
        truth, condition = dense(A, B, w, decay * np.asarray(ridge), intercept)
        allowed = tolerance("information" if method != "sqrt" else method, 2.3e-16, condition, 1.0)
        if allowed < 1e-2:
            assert coefficient_error(path.coef[t], truth.T[:, intercept:], A, B) <= allowed
            if intercept:
                assert np.abs(path.intercept[t] - truth[0]).max() <= allowed * np.abs(B).max() * 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("intercept", [False, True])
def test_statistics_are_those_of_complex_ordinary_least_squares(method, intercept):
    X, y = data()
    A = np.c_[np.ones(len(X)), X] if intercept else X
    n, k = A.shape
    theta, (loss,) = np.linalg.lstsq(A, y, rcond=None)[:2]
    P = np.linalg.inv(A.conj().T @ A)
    est = RLS(ridge=0.0, fit_intercept=intercept, method=method).fit(X, y)
    np.testing.assert_allclose(est.coef_, theta[intercept:], rtol=1e-11)
    assert (est.n_samples_seen_, est.rank_, est.determined_.tolist()) == (n, k, [True] * 3)
    np.testing.assert_allclose(est.sigma2_, loss / (n - k), rtol=1e-11)
    V = loss / (n - k) * P
    np.testing.assert_allclose(est.cov_params(), V, atol=1e-11 * np.abs(V).max())
    np.testing.assert_allclose(est.coef_stderr_, np.sqrt(np.diag(V).real)[intercept:], rtol=1e-11)
    h = np.einsum("ni,ij,nj->n", A, P, A.conj()).real
    np.testing.assert_allclose(est.leverage(X), h, rtol=1e-10)
    mean, std = est.predict(X, return_std=True)
    np.testing.assert_allclose(std, np.sqrt(loss / (n - k) * (1 + h)), rtol=1e-10)
    lower, upper = est.predict_interval(X, level=0.9, kind="mean")
    reach = student.ppf(0.95, 2 * (n - k)) * np.sqrt(loss / (n - k) * h / 2)
    np.testing.assert_allclose(upper - mean, reach * (1 + 1j), rtol=1e-9)
    np.testing.assert_allclose(mean - lower, reach * (1 + 1j), rtol=1e-9)
    path = RLS(ridge=0.0, fit_intercept=intercept, method=method).partial_fit_path(X, y)
    for name in ("sigma2", "stderr", "intercept_stderr"):
        want = {"sigma2": "sigma2_", "stderr": "coef_stderr_"}.get(name, "intercept_stderr_")
        np.testing.assert_allclose(getattr(path, name)[-1], getattr(est, want), rtol=1e-12)
    prefix = RLS(ridge=0.0, fit_intercept=intercept, method=method).fit(X[:40], y[:40])
    want = (y[40] - prefix.predict(X[40:41])[0]) / np.sqrt(1 + prefix.leverage(X[40:41])[0])
    np.testing.assert_allclose(path.recursive_residual[40], want, rtol=1e-9)
    ratio = np.sum(np.abs(y - mean) ** 2) / np.sum(np.abs(y - y.mean()) ** 2)
    np.testing.assert_allclose(est.score(X, y), 1 - ratio)


@pytest.mark.full
def test_intervals_cover_both_parts():
    rng = np.random.default_rng(3)
    hits = []
    for _ in range(400):
        X, truth = normal(rng, 9, 2), normal(rng, 2)
        est = RLS(ridge=0.0, fit_intercept=False).fit(X, X @ truth + normal(rng, 9))
        x = normal(rng, 1, 2)
        lower, upper = est.predict_interval(x, level=0.8)
        y = x @ truth + normal(rng, 1)
        for part in (np.real, np.imag):
            hits.append(part(lower) <= part(y) <= part(upper))
    inside = np.mean(hits)
    assert abs(inside - 0.8) < 4 * np.sqrt(0.16 / 800)


@pytest.mark.parametrize("method", METHODS)
def test_sandwich_and_draws(method):
    X, y = data(200)
    est = RLS(forget=0.9, ridge=0.0, fit_intercept=False, method=method, cov="sandwich").fit(X, y)
    w = zeta(np.full(200, 0.9), np.ones(200))
    P = np.linalg.inv(X.conj().T @ (w[:, None] * X))
    spread = P @ (X.conj().T @ (w[:, None] ** 2 * X)) @ P
    found = est.cov_params() / est.sigma2_
    np.testing.assert_allclose(found, spread, atol=1e-10 * abs(spread).max())
    draws = est.sample_coef(0, 20000, sigma2=1.0) - est.coef_
    found = draws.T @ draws.conj() / 20000
    np.testing.assert_allclose(found, spread, atol=0.06 * abs(spread).max())
    assert np.abs(draws.T @ draws).max() / 20000 < 0.06 * abs(spread).max()  # circular


@pytest.mark.parametrize("make", [
    lambda **o: RLS(forget=0.95, **o), lambda **o: ROLLING(12, **o),
    lambda **o: RLS(method="sqrt", forget=0.9, **o), lambda **o: RLS(method="information", **o),
])  # fmt: skip
class TestProperties:
    """Properties of a complex recursion by each method, and of a complex window."""

    def test_phase(self, make):
        X, y = data()
        turned = X * [1, np.exp(0.7j), 1]
        want = make().fit(X, y).coef_ * [1, np.exp(-0.7j), 1]
        np.testing.assert_allclose(make().fit(turned, y).coef_, want, rtol=1e-9)

    def test_conjugation(self, make):
        X, y = data()
        want = make().fit(X, y)
        found = make().fit(X.conj(), y.conj())
        np.testing.assert_allclose(found.coef_.conj(), want.coef_, rtol=1e-9)
        np.testing.assert_allclose(np.conj(found.intercept_), want.intercept_, rtol=1e-9)

    @pytest.mark.parametrize("which", ["X", "y", "both"])
    def test_real_data_as_complex(self, make, which):
        X, y = (part.real.copy() for part in data())
        want = make().fit(X, y)
        est = make().fit(X + 0j if which != "y" else X, y + 0j if which != "X" else y)
        assert est.coef_.dtype == np.complex128
        np.testing.assert_allclose(est.coef_, want.coef_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(est.predict(X), want.predict(X), rtol=1e-9)

    def test_ways_to_feed(self, make):
        X, y = data(m=2)
        once = make().fit(X, y)
        rows, blocks, path = make(), make(), make()
        residuals = []
        for x, target in zip(X, y, strict=True):
            before = rows.predict(x[None])[0] if residuals else np.zeros(2)
            prediction, residual = rows.step(x, target)
            np.testing.assert_allclose(prediction, before)
            np.testing.assert_allclose(prediction + residual, target)
            residuals.append(residual)
        for some in np.array_split(np.arange(len(X)), 7):
            blocks.partial_fit(X[some], y[some])
        found = path.partial_fit_path(X, y)
        for est in (rows, blocks, path):
            np.testing.assert_allclose(est.coef_, once.coef_, rtol=1e-9)
            assert est.n_samples_seen_ == once.n_samples_seen_ == len(X)
            np.testing.assert_allclose(est.sigma2_, once.sigma2_, rtol=1e-9)
        np.testing.assert_allclose(once.residual_, residuals, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(found.residual, residuals, rtol=1e-7, atol=1e-10)

    def test_files_pickles_copies(self, make, tmp_path):
        X, y = data()
        est = make().fit(X[:30], y[:30])
        est.save(tmp_path / "state.olsq")
        others = [
            olsq.load(tmp_path / "state.olsq"), olsq.loads(est.to_bytes()), copy.copy(est),
            pickle.loads(pickle.dumps(est)),
        ]  # fmt: skip
        for other in others:
            np.testing.assert_array_equal(other.residual_, est.residual_)
        est.partial_fit(X[30:], y[30:])
        for other in others:
            other.partial_fit(X[30:], y[30:])
            np.testing.assert_array_equal(other.coef_, est.coef_)
            assert other.to_bytes() == est.to_bytes()
            assert other.cov_params().dtype == np.complex128

    def test_merge(self, make):
        X, y = data()
        both = olsq.merge(make().fit(X[:33], y[:33]), make().fit(X[33:], y[33:]))
        want = make().fit(X, y)
        np.testing.assert_allclose(both.coef_, want.coef_, rtol=1e-9)
        np.testing.assert_allclose(both.sigma2_, want.sigma2_, rtol=1e-9)
        assert both.n_samples_seen_ == len(X)
        both.partial_fit(X[:5], y[:5])
        np.testing.assert_allclose(both.coef_, want.partial_fit(X[:5], y[:5]).coef_, rtol=1e-9)
        with pytest.raises(ValueError, match="one has learned complex rows, the other real ones"):
            olsq.merge(want, make().fit(X.real, y.real))

    @pytest.mark.parametrize("missing", ["skip", "skip_target", "raise"])
    def test_missing_rows(self, make, missing):
        X, y = data(m=2)
        X[3, 1], y[5, 0], y[9, 1] = complex(0, np.nan), complex(np.inf, 1), np.nan
        est = make(missing=missing)
        if missing == "raise":
            with pytest.raises(ValueError, match="first in row 3"):
                est.fit(X, y)
            return
        path = est.partial_fit_path(X, y)
        for j in range(2):
            needed = y if missing == "skip" else y[:, [j]]
            usable = np.isfinite(X).all(1) & np.isfinite(needed).all(1)
            want = make().fit(X[usable], y[usable, j])
            np.testing.assert_allclose(est.coef_[j], want.coef_, rtol=1e-9)
            np.testing.assert_allclose(path.coef[-1, j], want.coef_, rtol=1e-9)
            np.testing.assert_allclose(est.sigma2_[j], want.sigma2_, rtol=1e-9)
            assert np.isnan(path.residual[~usable, j]).all()
            assert np.isfinite(path.residual[usable, j]).all()
        gone = est.predict(np.array([[1, 1j, complex(0, np.nan)]]))
        assert np.isnan(gone.real).all()

    def test_types(self, make):
        X, y = data()
        single = make().fit(X.astype(np.complex64), y.astype(np.complex64))
        assert single.coef_.dtype == single.predict(X[:1]).dtype == np.complex64
        assert single.residual_.dtype == np.complex64
        assert make().fit(X.real.astype(np.float32), y).coef_.dtype == np.complex64
        np.testing.assert_allclose(single.coef_, make().fit(X, y).coef_, rtol=1e-4)
        lists = make().fit(X.tolist(), y.tolist())
        np.testing.assert_array_equal(lists.coef_, make().fit(X, y).coef_)

    def test_a_real_model_refuses(self, make):
        X, y = data()
        est = make().fit(X.real, y.real)
        before = est.to_bytes()
        for call in (
            lambda: est.partial_fit(X, y.real), lambda: est.partial_fit(X.real, y),
            lambda: est.predict(X), lambda: est.step(X[0], 1.0), lambda: est.leverage(X),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=r"^[Xy] must be real\. Complex data not supp"):
                call()
        assert est.to_bytes() == before
        assert est.fit(X, y).coef_.dtype == np.complex128  # starts anew
        assert est.fit(X.real, y.real).coef_.dtype == np.float64

    def test_a_complex_model_stays_complex(self, make):
        X, y = data()
        est = make().fit(X, y).partial_fit(X[:5].real, y[:5].real)
        want = make().fit(np.r_[X, X[:5].real], np.r_[y, y[:5].real])
        np.testing.assert_allclose(est.coef_, want.coef_, rtol=1e-9)
        row = np.ascontiguousarray(X[0].real)
        prediction, residual = est.step(row, 1.0)
        assert isinstance(prediction, complex)
        np.testing.assert_allclose(prediction + residual, 1.0)


@pytest.mark.full
@pytest.mark.parametrize("window_of", ["samples", "positions", "time"])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("d", [2, 17])  # 17: blocks of real rows
def test_windows(window_of, ridge, d):
    X, y = data(90, d)
    y[17] = np.nan
    weights, times = np.linspace(0.5, 2, 90), np.cumsum(np.linspace(0.2, 1.8, 90))
    options = {"window": 30.0} if window_of == "time" else {"window": 25, "window_of": window_of}
    est = ROLLING(**options, ridge=ridge, fit_intercept=False, min_samples=3)
    given = {"times": times} if window_of == "time" else {}
    path = est.partial_fit_path(X, y, weights, **given)
    usable, before = np.isfinite(y), np.zeros(d)
    assert np.isnan(path.coef[:2]).all()
    assert np.isfinite(path.coef[2:]).all()
    for t in range(90):
        rows = np.arange(t + 1)
        if window_of == "time":
            rows = rows[times[rows] > times[t] - 30.0]
        elif window_of == "positions":
            rows = rows[-25:]
        rows = rows[usable[rows]]
        rows = rows[-25:] if window_of == "samples" else rows
        A, w = X[rows], weights[rows]
        truth, condition = dense(A, y[rows], w, ridge, False)
        if condition < 1e3 and t >= 2:
            np.testing.assert_allclose(path.coef[t], truth, rtol=0, atol=1e-9)
            if usable[t] and t > 2 * d:
                # The window before the row, whole: both parts of the oldest are still in it.
                error = y[t] - X[t] @ before
                np.testing.assert_allclose(path.residual[t], error, rtol=0, atol=1e-9)
        before = truth
    np.testing.assert_allclose(est.coef_, truth, rtol=0, atol=1e-9)
    if ridge == 0:
        loss = w @ np.abs(y[rows] - A @ truth) ** 2
        np.testing.assert_allclose(est.sigma2_, loss / (len(rows) - d), rtol=1e-8)


def test_half_life_and_times():
    X, y = data()
    by_rows = RLS(half_life=7).fit(X, y)
    np.testing.assert_allclose(by_rows.coef_, RLS(forget=0.5 ** (1 / 7)).fit(X, y).coef_)
    times = np.cumsum(np.linspace(0.2, 1.8, 60))
    in_time = RLS(half_life=7.0).fit(X[:30], y[:30], times=times[:30])
    in_time.partial_fit(X[30:], y[30:], times=times[30:])
    gates = 0.5 ** (np.diff(times, prepend=times[0]) / 7)
    want = RLS().partial_fit(X, y, forget=gates)
    np.testing.assert_allclose(in_time.coef_, want.coef_, rtol=1e-10)
    assert in_time.step(X[0], y[0], time=times[-1] + 1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("intercept", [False, True])
def test_prior(method, intercept):
    rng = np.random.default_rng(5)
    X, y = data(20)
    k = 3 + intercept
    mean, root = normal(rng, k), normal(rng, k, k)
    C = root @ root.conj().T + 0.1 * np.eye(k)
    make = lambda prior: RLS(fit_intercept=intercept, method=method, prior=prior)  # noqa: E731
    est = make((mean, C)).fit(X, y)
    A = np.c_[np.ones(20), X] if intercept else X
    H = A.conj().T @ A + np.linalg.inv(C)
    truth = np.linalg.solve(H, A.conj().T @ y + np.linalg.inv(C) @ mean)
    np.testing.assert_allclose(est.coef_, truth[intercept:], rtol=1e-9)
    off = truth - mean
    squares = np.sum(np.abs(y - A @ truth) ** 2) + (off.conj() @ np.linalg.inv(C) @ off).real
    np.testing.assert_allclose(est.sigma2_, squares / 20, rtol=1e-9)
    before = make((mean, C))
    np.testing.assert_allclose(before.predict(X), A @ mean, rtol=1e-9)
    h = np.einsum("ni,ij,nj->n", A, C, A.conj()).real
    np.testing.assert_allclose(before.leverage(X), h, rtol=1e-9)
    assert before.step(X[0], y[0])[0] == pytest.approx(A[0] @ mean)
    again = olsq.loads(est.to_bytes())
    np.testing.assert_array_equal(again.partial_fit(X, y).coef_, est.partial_fit(X, y).coef_)
    variances = make((mean.real, np.full(k, 2.0)))  # a real prior of complex coefficients
    whole = make((mean.real + 0j, 2.0 * np.eye(k))).fit(X, y)
    np.testing.assert_allclose(variances.predict(X), A @ mean.real)
    np.testing.assert_allclose(variances.fit(X, y).coef_, whole.coef_, rtol=1e-12)
    unknown = make((np.zeros(k, complex), np.full(k, np.inf))).fit(X, y)
    np.testing.assert_allclose(unknown.coef_, np.linalg.lstsq(A, y)[0][intercept:], rtol=1e-9)


def test_path_function():
    X, y = data()
    path = olsq.coefficient_path(X, y, forget=0.9, ridge=0.1, fit_intercept=True)
    est = RLS(forget=0.9, ridge=0.1)
    want = est.partial_fit_path(X, y)
    for name in path._fields:
        np.testing.assert_array_equal(getattr(path, name), getattr(want, name))
    bare = olsq.coefficient_path(X, y, forget=0.9, ridge=0.1, statistics=False)
    assert np.isnan(bare.sigma2).all()
    assert list(bare.to_frame()) == ["x0", "x1", "x2", "residual", "recursive_residual"]
    rolling = olsq.coefficient_path(X, y, window=20)
    np.testing.assert_allclose(
        rolling.coef[-1], np.linalg.lstsq(X[-20:], y[-20:], rcond=None)[0], rtol=1e-9
    )


STRATEGIES = [F.Directional(0.9), F.RandomWalk(0.1), F.Variable(20.0), F.PerCoefficient([0.9] * 4)]


@pytest.mark.parametrize("forget", STRATEGIES, ids=lambda f: type(f).__name__)
def test_strategies_are_refused(forget):
    X, y = data()
    with pytest.raises(ValueError, match=r"^forget=.* is a strategy for real rows, and X or y"):
        RLS(forget=forget).fit(X, y)


def test_strategies_that_weigh_rows():
    X, y = data()
    want = RLS(forget=0.9).fit(X, y)
    np.testing.assert_array_equal(RLS(forget=F.Exponential(0.9)).fit(X, y).coef_, want.coef_)
    times = np.cumsum(np.linspace(0.2, 1.8, 60))
    est = RLS(forget=F.ByTime(3.0)).fit(X, y, times=times)
    np.testing.assert_allclose(est.coef_, RLS(half_life=3.0).fit(X, y, times=times).coef_)


def test_what_is_for_real_coefficients_is_refused():
    X, y = data()
    est = RLS(fit_intercept=False).fit(X, y)
    calls = {
        "moments": lambda: est.moments(), "t_test": lambda: est.t_test([1, 0, 0]),
        "wald_test": lambda: est.wald_test([1, 0, 0]), "summary": lambda: est.summary(),
        "cov_params": lambda: est.cov_params("HC0", data=(X, y)),
    }  # fmt: skip
    for name, call in calls.items():
        with pytest.raises(TypeError, match=f"{name}.* is for real coefficients"):
            call()
    with pytest.raises(TypeError, match=r"^X is complex, and by= takes real rows"):
        olsq.coefficient_path(X, y, by=np.zeros(len(X)))
    with pytest.raises(ValueError, match=r"plot.*real"):
        olsq.coefficient_path(X, y).plot()
    for make in (
        olsq.RobustLeastSquares, olsq.TotalLeastSquares, olsq.KernelLeastSquares,
        lambda: olsq.ConstrainedLeastSquares(bounds="nonnegative"),
        lambda: olsq.OnlineElasticNet(0.1), olsq.GroupedLeastSquares,
    ):  # fmt: skip
        by = {"by": ["a"] * len(X)} if make is olsq.GroupedLeastSquares else {}
        for args in ((X, y.real), (X.real, y)):
            with pytest.raises((ValueError, TypeError), match="must be real"):
                make().partial_fit(*args, **by)
    with pytest.raises((TypeError, ValueError), match="real"):
        olsq.online_lstsq(X[None], y[None, :, None], X[None], ridge=1.0)


def test_compiled_states_are_refused():
    X, y = data()
    est = RLS(fit_intercept=False).fit(X, y)
    with pytest.raises(TypeError, match="a compiled state is for real coefficients"):
        olsq.compiled.from_estimator(est)


def test_prior_that_is_not_hermitian_is_refused():
    X, y = data()
    for C in (np.diag([1.0, 1.0, 1.0 + 1j]), np.eye(3) + 1j * np.ones((3, 3))):
        with pytest.raises(ValueError, match="prior's covariance must be"):
            RLS(fit_intercept=False, prior=(np.zeros(3), C)).fit(X, y)
    with pytest.raises(TypeError, match=r"prior of complex coefficients must be a pair"):
        RLS(fit_intercept=False, prior=olsq.Moments(np.eye(3), np.ones((1, 3)))).fit(X, y)


def test_combining_keeps_infinite_parts():
    both = complex_rows.joined(np.array([np.inf, 1.0]), np.array([2.0, -np.inf]))
    assert both.real.tolist() == [np.inf, 1.0]
    assert both.imag.tolist() == [2.0, -np.inf]


@pytest.mark.parametrize("window", [9, "3h"])
def test_residuals_in_sample_are_hidden_in_both_parts(window):
    X, y = data(n=20)
    y[4] = np.nan
    times = np.datetime64("2024-01-01", "h") + np.arange(20) * (1 + (np.arange(20) > 10))
    path = olsq.coefficient_path(X, y, window=window, min_samples=2, times=times)
    kept = y - (X * path.coef).sum(1)
    np.testing.assert_allclose(path.in_sample_residual, kept, atol=1e-12)
    assert np.isnan(kept[0])
