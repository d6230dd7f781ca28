"""Windows whose rows fade: ``window=`` together with ``forget=`` or ``half_life=``."""

from __future__ import annotations

import numpy as np
import pytest

import olsq

N, D = 240, 3
RNG = np.random.default_rng(54)
X = RNG.standard_normal((N, D))
Y = X @ RNG.standard_normal((D, 2)) + 0.3 * RNG.standard_normal((N, 2))
WEIGHTS = RNG.choice([0.0, 0.5, 1.0, 2.0], N)
GATES = RNG.choice([1.0, 0.95, 0.6], N)
GATES[[90, 91, 160]] = 0.0
TIMES = np.cumsum(RNG.choice([0.0, 0.5, 1.0, 3.0], N))
DAYS = np.datetime64("2020-01-01") + (TIMES * 86400).astype("timedelta64[s]")
HOLES = X.copy()
HOLES[RNG.integers(N, size=25), 1] = np.nan
SOME = np.where(RNG.random((N, 2)) < 0.1, np.nan, Y)
Z = X + 1j * RNG.standard_normal((N, D))
FIELDS = ("coef", "intercept", "sigma2", "stderr", "intercept_stderr", "residual")
FIELDS += ("recursive_residual",)


def dense(X, y, weights, ridge):
    """Coefficients, noise variance and standard errors of one weighted ridge regression."""
    root = np.sqrt(weights)[:, None]
    A = np.vstack([root * X, np.sqrt(ridge) * np.eye(X.shape[1])])
    b = np.append(root[:, 0] * y, np.zeros(X.shape[1]))
    theta = np.linalg.lstsq(A, b, rcond=None)[0]
    return theta, np.linalg.inv(A.T @ A), float(weights @ (y - X @ theta) ** 2)


@pytest.mark.full
@pytest.mark.parametrize("ridge", [0.0, 0.7])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gates", ["factor", "half-life", "factors", "half-life in time"])
@pytest.mark.parametrize("window", [20, 30.0, "30D"])
def test_every_row_is_the_dense_fit_of_the_rows_inside(window, gates, weighted, ridge):
    options = {
        "factor": {"forget": 0.9},
        "half-life": {"half_life": 6} if window != 30.0 else {"forget": 2 ** (-1 / 6)},
        "factors": {"forget": GATES},
        "half-life in time": {"half_life": 6.0 if window == 30.0 else "6D"},
    }[gates]
    needs_times = window != 20 or "time" in gates
    times = (TIMES if window == 30.0 else DAYS) if needs_times else None
    weights = WEIGHTS if weighted else np.ones(N)
    path = olsq.coefficient_path(
        X, Y[:, 0], window=window, ridge=ridge, sample_weight=weights if weighted else None,
        times=times, **options,
    )  # fmt: skip
    factors = {"factor": np.full(N, 0.9), "factors": GATES}.get(gates, np.full(N, 2 ** (-1 / 6)))
    if gates == "half-life in time":
        factors = 2 ** (-np.diff(TIMES, prepend=0.0) / 6)
    for t in range(60, N):
        inside = np.arange(t + 1)
        if window == 20:
            inside = inside[weights[: t + 1] > 0][-20:]
        else:
            inside = inside[TIMES[: t + 1] > TIMES[t] - 30]
        left = np.array([factors[i + 1 : t + 1].prod() for i in inside])
        w = left * weights[inside]
        if np.count_nonzero(w) < 12:
            continue
        theta, P, squares = dense(X[inside], Y[inside, 0], w, ridge)
        np.testing.assert_allclose(path.coef[t], theta, rtol=1e-9, atol=1e-9)
        seen = left * (w > 0)
        share = (seen**2).sum() / seen.sum()
        freedom = seen.sum() - share * (D - ridge * np.trace(P))
        sigma2 = squares / freedom if freedom > 0 else np.inf
        np.testing.assert_allclose(path.sigma2[t], sigma2, rtol=1e-8)
        np.testing.assert_allclose(path.stderr[t], np.sqrt(sigma2 * np.diag(P)), rtol=1e-8)


UNBOUNDED = {
    "factor": ({"forget": 0.9}, {"window": N}),
    "factors and resets": ({"forget": GATES}, {"window": N}),
    "weights": ({"forget": 0.9, "sample_weight": WEIGHTS}, {"window": N}),
    "fixed ridge": ({"forget": GATES, "ridge": 2.0, "ridge_mode": "fixed"}, {"window": N}),
    "half-life in time": ({"half_life": "5D", "times": DAYS}, {"window": N}),
    "both in time": ({"half_life": "5D", "times": DAYS}, {"window": "999D"}),
    "numbers": ({"half_life": 5.0, "times": TIMES}, {"window": 1e6}),
}


@pytest.mark.full
@pytest.mark.parametrize("rows", ["complete", "holes", "targets apart", "complex", "float32"])
@pytest.mark.parametrize("case", UNBOUNDED)
def test_a_window_that_holds_every_row_is_forgetting(case, rows):
    """In everything: errors, noise and residuals count what forgetting counts."""
    options, window = UNBOUNDED[case]
    data = {"complete": (X, Y), "holes": (HOLES, Y), "targets apart": (HOLES, SOME)}.get(rows)
    data = data or {"complex": (Z, Z @ [1, 2j, 1 - 1j] + Y[:, 0])}.get(rows, (X, Y))
    if rows == "float32":
        data = tuple(a.astype(np.float32) for a in data)
    options = options | {"fit_intercept": True}
    options |= {"missing": "skip_target"} if rows == "targets apart" else {}
    want = olsq.coefficient_path(*data, **options)
    found = olsq.coefficient_path(*data, **options, **window)
    rtol = 1e-4 if rows == "float32" else 1e-8
    for name in FIELDS:
        a, b = getattr(found, name), getattr(want, name)
        # Where nothing is left over, what is left is rounding errors.
        fits = np.isclose(a, b, rtol=rtol, atol=rtol, equal_nan=True) | (np.abs(b) < 1e-9)
        assert fits.all(), (name, np.argwhere(~fits)[:5])


@pytest.mark.full
@pytest.mark.parametrize("d", [2, 40])
@pytest.mark.parametrize("options", [{"half_life": 9}, {"forget": 0.8, "ridge": 0.2}])
def test_rows_one_by_one_are_those_of_one_call(options, d, tmp_path):
    rng = np.random.default_rng(d)
    X = rng.standard_normal((N, d))
    y = X.sum(1) + rng.standard_normal(N)
    options = {"window": 50, **options}
    whole = olsq.RollingLeastSquares(**options).fit(X, y)
    steps, parts = (olsq.RollingLeastSquares(**options) for _ in range(2))
    for t in range(N):
        steps.step(X[t], y[t])
        if t % 9 == 8:
            parts.partial_fit(X[t - 8 : t + 1], y[t - 8 : t + 1])
            parts.save(tmp_path / "window.olsq")
            parts = olsq.load(tmp_path / "window.olsq")
    parts.partial_fit(X[N - N % 9 :], y[N - N % 9 :])
    both = olsq.merge(
        olsq.RollingLeastSquares(**options).fit(X[: N - 30], y[: N - 30]),
        olsq.RollingLeastSquares(**options).fit(X[N - 30 :], y[N - 30 :]),
    )
    for est in (steps, parts, both):
        np.testing.assert_allclose(est.coef_, whole.coef_, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(est.sigma2_, whole.sigma2_, rtol=1e-7)
        assert est.n_samples_seen_ == N


def test_merging_in_time_counts_what_passes_between():
    options = {"window": 40, "half_life": "5D"}
    whole = olsq.RollingLeastSquares(**options).fit(X, Y, times=DAYS)
    first = olsq.RollingLeastSquares(**options).fit(X[:225], Y[:225], times=DAYS[:225])
    second = olsq.RollingLeastSquares(**options).fit(X[225:], Y[225:], times=DAYS[225:])
    both = olsq.merge(first, second)
    np.testing.assert_allclose(both.coef_, whole.coef_, rtol=1e-10)
    rows = olsq.RollingLeastSquares(window=40).fit(X[:50], Y[:50])
    rows.partial_fit(X[50:], Y[50:], forget=GATES[50:])
    second = olsq.RollingLeastSquares(window=40)
    second.partial_fit(X[220:], Y[220:], forget=GATES[220:])
    first = olsq.RollingLeastSquares(window=40).fit(X[:50], Y[:50])
    first.partial_fit(X[50:220], Y[50:220], forget=GATES[50:220])
    both = olsq.merge(first, second)
    np.testing.assert_allclose(both.coef_, rows.coef_, rtol=1e-10)
    # A reset in second's rows leaves none of first's.
    second.partial_fit(X[:1], Y[:1], forget=0.0)
    assert olsq.merge(first, second).sigma2_.tolist() == second.sigma2_.tolist()


def test_min_samples_counts_rows_whatever_they_weigh():
    path = olsq.coefficient_path(X, Y, window=30, min_samples=20, forget=0.5)
    assert np.isnan(path.coef[:19]).all()
    assert np.isfinite(path.coef[19:]).all()
    est = olsq.RollingLeastSquares(30, 20, forget=0.5, fit_intercept=False).fit(X[:20], Y[:20])
    np.testing.assert_allclose(est.coef_, path.coef[19], rtol=1e-9)
    # After a reset the window fills again.
    after = est.partial_fit_path(X[20:50], Y[20:50], forget=np.where(np.arange(30) == 5, 0.0, 1.0))
    assert np.isnan(after.coef[5:24]).all()
    assert np.isfinite(after.coef[24:]).all()


def test_positions_fade_too_and_missing_rows_in_samples_do_not():
    y = Y[:, 0].copy()
    y[100:104] = np.nan
    keep = np.isfinite(y)
    samples = olsq.coefficient_path(X, y, window=30, forget=0.8)
    shut = olsq.coefficient_path(X[keep], y[keep], window=30, forget=0.8)
    np.testing.assert_allclose(samples.coef[keep], shut.coef, rtol=1e-9, atol=1e-12)
    positions = olsq.coefficient_path(X, y, window=30, forget=0.8, window_of="positions")
    inside = np.arange(81, 111)
    weights = np.where(keep[inside], 0.8 ** (110.0 - inside), 0.0)
    theta = dense(X[inside], np.where(keep, y, 0.0)[inside], weights, 0.0)[0]
    np.testing.assert_allclose(positions.coef[110], theta, rtol=1e-9)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_rows_that_take_a_direction_away_say_so(seed, silent):
    """The rank, on which noise variances rest, is that after each row, also of two at once."""
    rng = np.random.default_rng(seed)
    X, w = rng.standard_normal((60, 3)), (rng.random(60) < 0.6).astype(float)
    X[:, 2] *= not silent
    y = X.sum(1) + rng.standard_normal(60)
    options = {"window": 6, "window_of": "positions", "forget": [1.0, 0.9][seed % 2]}
    path = olsq.coefficient_path(X, y, sample_weight=w, **options)
    est = olsq.RollingLeastSquares(fit_intercept=False, **options)
    for t in range(60):
        est.partial_fit(X[t : t + 1], y[t : t + 1], sample_weight=w[t : t + 1])
        if est._has_estimate():
            np.testing.assert_allclose(path.sigma2[t], est.sigma2_, rtol=1e-8)
            np.testing.assert_allclose(path.stderr[t], est.coef_stderr_, rtol=1e-8)


@pytest.mark.parametrize("half_life", [1.0, 0.02])
@pytest.mark.parametrize("window", [500, 2000])
def test_weights_that_underflow(window, half_life):
    """Rows that weigh 2^-1000 of the last one, and a column that only they say something about."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((2600, 2))
    X[200:, 1] = 0.0
    y = X @ [1.0, 2.0]
    est = olsq.RollingLeastSquares(window, half_life=half_life, fit_intercept=False)
    for start in range(0, len(X), 100):
        est.partial_fit(X[start : start + 100], y[start : start + 100])
        assert np.isfinite(est.coef_).all()
        np.testing.assert_allclose(est.coef_[0], 1.0, rtol=1e-9)
        if half_life == 1.0 and start < window:
            np.testing.assert_allclose(est.coef_[1], 2.0, rtol=1e-6)
    np.testing.assert_allclose(est.coef_, [1.0, 0.0], atol=1e-9)


def test_a_long_gap_leaves_the_rows_before_it():
    times = np.append(TIMES, TIMES[-1] + 5000.0)
    A, b = np.vstack([X, X[:1]]), np.append(Y[:, 0], 1e3)
    est = olsq.RollingLeastSquares(1e6, half_life=1.0, fit_intercept=False)
    est.fit(A, b, times=times)
    assert A[-1] @ est.coef_ == pytest.approx(1e3)
    assert est.rank_ == 3


@pytest.mark.parametrize("forget", [1e-200, 1e-300])
def test_tiny_factors(forget):
    gates = np.where(np.arange(N) % 50 == 0, forget, 0.9)
    path = olsq.coefficient_path(X, Y, window=40, forget=gates)
    for t in (49, 99, 199):  # in these windows the row of the tiny factor drowns all before it
        inside = np.arange(t - 39, t + 1)
        weights = 0.9 ** (t - inside.astype(float))
        want = [dense(X[inside], y[inside], weights, 0.0)[0] for y in Y.T]
        np.testing.assert_allclose(path.coef[t], want, rtol=1e-8, atol=1e-10)


REFUSED = {
    "both": ({"forget": 0.9, "half_life": 5}, "forget and half_life cannot be combined"),
    "above 1": ({"forget": 1.1}, r"forget must lie in \[0, 1\]"),
    "negative": ({"half_life": -1}, "half_life must be a positive number"),
    "strategy": ({"forget": olsq.forgetting.Directional(0.9)}, "forget=Directional"),
    "by time": ({"forget": olsq.forgetting.ByTime(3.0), "by": [1] * N}, "forget=ByTime"),
    "kinds": ({"half_life": "3D", "window": 40.0}, "one is a length between dates"),
    "no times": ({"half_life": "3D"}, "half_life='3D' is a length of time, so that every row"),
    "numbers": ({"half_life": "3D", "times": TIMES}, "times are numbers, but half_life='3D'"),
    "length": ({"forget": GATES[:5]}, "forget must be a number or one number per row"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        olsq.coefficient_path(X, Y, **{"window": 20, **options})


def test_a_half_life_in_time_takes_no_factors_of_a_call():
    est = olsq.RollingLeastSquares("20D", half_life="3D").fit(X, Y, times=DAYS)
    before = est.to_bytes()
    with pytest.raises(ValueError, match="forget and half_life='3D', a length of time"):
        est.partial_fit(X, Y, times=DAYS + np.timedelta64(999, "D"), forget=0.9)
    assert est.to_bytes() == before


@pytest.mark.parametrize("kind", ["HC1", "HC3", "hac"])
def test_robust_errors_weigh_rows_as_forgetting_does(kind):
    more = {"lags": 3} if kind == "hac" else {}
    times = {"times": DAYS}
    forgetting = olsq.RecursiveLeastSquares(half_life="9D").fit(X, Y, **times)
    window = olsq.RollingLeastSquares("999D", half_life="9D").fit(X, Y, **times)
    want = forgetting.cov_params(kind, data=(X, Y, None, DAYS), **more)
    np.testing.assert_allclose(window.cov_params(kind, **more), want, rtol=1e-9)
    with pytest.raises(ValueError, match="data must be left out"):  # it has its own rows
        window.cov_params(kind, data=(X, Y, None, DAYS), **more)
