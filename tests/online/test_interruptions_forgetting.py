"""Ways of forgetting on streams that are at rest, exact or rescaled, and then alive.

Beside them what tells noise from a break, and coefficients that walk in time.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

import olsq
from olsq import forgetting as F
from olsq.reference import forgetting as oracle
from olsq.reference import rational
from olsq.testing import INTERRUPTIONS, interruption
from olsq.testing.kinds import SIZES

K = 3  # coefficients
STRATEGIES = {
    "per coefficient": F.PerCoefficient([0.75, 0.8, 0.7]),
    "variable": F.Variable(6),
    "directional": F.Directional(0.4),
    "resetting": F.ExponentialResetting(0.75, information=1e-3),
    "resetting, all": F.ExponentialResetting(0.75, information=1e-3, cyclic=False),
    "bounded trace": F.BoundedTrace(0.75, trace=1e3),
    "reset": F.ResetOnBreak(0.99),
    "reset, keeping nothing": F.ResetOnBreak(keep=1e-14),
    "walk": F.RandomWalk(0.3),
    "walk in time": F.RandomWalk(5.0, per=1.0),
}
CASES = [
    ("silent start", 60), ("constant start", 60), ("noise-free start", 10),
    ("noise-free start", 500), ("gap", 251), ("gap", 100_000), ("bursts", 960),
    ("noise rises", 100), ("noise falls", 100), ("amplitude rises", 20), ("amplitude falls", 20),
    ("amplitude rises", 200), ("amplitude falls", 200), ("column scales", 6),
    ("column scales", 12),
]  # fmt: skip


def test_every_kind_is_there():
    assert {kind for kind, _ in CASES} == set(INTERRUPTIONS)
    assert all(size in SIZES[kind] for kind, size in CASES)


def estimator(strategy, **options):
    return olsq.RecursiveLeastSquares(forget=strategy, **options)


def learn(est, s, start=0, stop=None):
    rows = slice(start, stop)
    timed = isinstance(est.forget, F.RandomWalk) and est.forget.per is not None
    return est.partial_fit(s.X[rows], s.y[rows], **({"times": s.times[rows]} if timed else {}))


def theta(est):
    return np.concatenate([[est.intercept_], est.coef_])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), CASES)
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_state_is_finite_and_can_be_loaded(name, kind, size):
    s = interruption(kind, size, rows=12)
    est, start = estimator(STRATEGIES[name]), 0
    for stop in sorted({*range(1, 16), *range(max(s.alive - 1, 1), len(s.X) + 1)}):
        if start < stop <= len(s.X):
            learn(est, s, start, stop)
            start = stop
            loaded = olsq.loads(est.to_bytes())
            np.testing.assert_array_equal(theta(loaded), theta(est))
            assert np.isfinite(theta(est)).all()
            assert np.isfinite(est.predict(s.X[stop - 1 : stop])).all()
            assert est.sigma2_ >= 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", STRATEGIES)
def test_rows_of_any_unit_leave_states_finite(name, seed):
    """Rows of 10^-100 to 10^100 in turn, without a common coefficient: no digit of it is kept."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((500, 2)) * 10.0 ** rng.integers(-100, 101, (500, 1))
    y, times = rng.standard_normal(500), np.arange(500.0)
    est = estimator(STRATEGIES[name], ridge=0.0)
    for start in range(0, 500, 100):
        rows = slice(start, start + 100)
        est.partial_fit(X[rows], y[rows], **({"times": times[rows]} if "time" in name else {}))
        assert np.isfinite(theta(est)).all()
        np.testing.assert_array_equal(theta(olsq.loads(est.to_bytes())), theta(est))


# Within what factor of the error of a fresh fit that of the whole stream is.  Where it is more than
# 3: noise that has fallen 100 times leaves what 40 rows or fewer have not forgotten, and rows far
# larger than the last ones outweigh them in what forgets by information or not at all.
FACTOR = 3.0
SLOW = {
    ("variable", "noise falls"), ("reset", "noise falls"),
    ("reset, keeping nothing", "noise falls"), ("walk", "noise falls"),
    ("walk in time", "noise falls"),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "kind", "size"),
    [
        (name, kind, size)
        for name in STRATEGIES
        for kind, size in CASES
        if not kind.startswith("amplitude") and (name, kind) not in SLOW
    ],
)
def test_after_ten_k_rows_of_new_life_it_is_as_good_as_fresh(name, kind, size):
    """The root mean square over seeds of the signal's error on the last rows."""
    errors = np.zeros(2)
    for seed in range(4):
        s = interruption(kind, size, rows=10 * K, seed=seed)
        signal = s.X[-10:] @ s.coef + s.intercept
        whole, fresh = (estimator(STRATEGIES[name]) for _ in range(2))
        learn(whole, s)
        learn(fresh, s, s.alive)
        errors += [((e.predict(s.X[-10:]) - signal) ** 2).mean() for e in (whole, fresh)]
    ratio = np.sqrt(errors[0] / errors[1])
    assert ratio < FACTOR, ratio


# By its definition BoundedTrace forgets nothing while the trace is infinite, with a ridge near it.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "bounded trace"])
@pytest.mark.parametrize("kind", ["silent start", "constant start"])
def test_a_long_start_that_determines_little_is_forgotten(name, kind):
    """Also without a ridge: fitted at once, along a path and row by row."""
    errors, limit = np.zeros(2), 10.0 if name == "variable" else FACTOR
    for seed in range(8):
        s = interruption(kind, 1000, rows=10 * K, seed=seed)
        signal = s.X[-10:] @ s.coef + s.intercept
        whole, fresh = (estimator(STRATEGIES[name]) for _ in range(2))
        learn(whole, s)
        learn(fresh, s, s.alive)
        errors += [((e.predict(s.X[-10:]) - signal) ** 2).mean() for e in (whole, fresh)]
    assert np.sqrt(errors[0] / errors[1]) < limit
    rows, timed = estimator(STRATEGIES[name]), "time" in name
    path = rows.partial_fit_path(s.X, s.y, **({"times": s.times} if timed else {}))
    np.testing.assert_allclose(theta(rows), theta(whole), rtol=1e-6)
    np.testing.assert_allclose(path.coef[-1], whole.coef_, rtol=1e-6)
    single = estimator(STRATEGIES[name])
    for t in range(len(s.X)):
        learn(single, s, t, t + 1)
    np.testing.assert_allclose(theta(single), theta(whole), rtol=1e-6)
    if "factor" in whole.forgetting_:
        assert single.forgetting_ == pytest.approx(whole.forgetting_, rel=1e-6)


@pytest.mark.parametrize("power", [-200, -30, 7, 40, 200])
@pytest.mark.parametrize("kind", ["bursts", "silent start", "noise-free start", "noise rises"])
@pytest.mark.parametrize("name", ["per coefficient", "variable", "reset", "walk"])
def test_a_power_of_two_in_a_column_is_exactly_one_in_its_coefficient(name, kind, power):
    s = interruption(kind, 100, rows=30)
    scales = np.array([1.0, 2.0**power])
    strategy = other_strategy = STRATEGIES[name]
    if name == "walk":  # whose drift has the coefficients' units
        strategy = F.RandomWalk([1e-2, 1e-2, 1e-2])
        other_strategy = F.RandomWalk([1e-2, 1e-2, 1e-2 * 2.0 ** (-2 * power)])
    one, other = estimator(strategy, ridge=0.0), estimator(other_strategy, ridge=0.0)
    learn(one, s)
    learn(other, s._replace(X=s.X * scales))
    np.testing.assert_array_equal(other.coef_ * scales, one.coef_)
    np.testing.assert_array_equal(other.intercept_, one.intercept_)


# -- noise or a break? -----------------------------------------------------------------------------


def regression(d, n, deviation, seed=0, flip=None):
    """X, y with noise of ``deviation`` (n,); the coefficients change sign at row ``flip``."""
    rng = np.random.default_rng(seed)
    X, coef = rng.standard_normal((n, d)), rng.uniform(0.5, 2.0, d)
    sign = np.where(np.arange(n) < (n if flip is None else flip), 1.0, -1.0)
    return X, sign * (X @ coef) + deviation * rng.standard_normal(n), coef


@pytest.mark.parametrize("before", [0.0, 1e-9, 0.01, 0.05])
@pytest.mark.parametrize("d", [2, 16])
def test_noise_that_rises_is_no_break(d, before):
    n = 2500
    X, y, coef = regression(d, n, np.where(np.arange(n) < 500, before, 0.1))
    est = estimator(F.ResetOnBreak(), fit_intercept=False).fit(X, y)
    assert est.forgetting_["breaks"] == 0
    assert est.forgetting_["noise_variance"] == pytest.approx(0.01, rel=0.2)
    plain = estimator(1.0, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(est.coef_, plain.coef_, atol=1e-6)  # nothing was thrown away
    path = estimator(F.ResetOnBreak(), fit_intercept=False).partial_fit_path(X, y)
    worse = np.linalg.norm(path.coef[500:] - coef, axis=1) > 0.1
    assert worse.sum() <= 3 * d + 20  # during the one trial


@pytest.mark.parametrize("before", [0.0, 0.01])
def test_variable_forgetting_follows_noise_that_rises(before):
    n, d = 2500, 3
    X, y, coef = regression(d, n, np.where(np.arange(n) < 500, before, 1.0))
    strategy = F.Variable(200)
    path = estimator(strategy, fit_intercept=False).partial_fit_path(X, y)
    error = np.sqrt(((path.coef[600:] - coef) ** 2).sum(1).mean())
    steady = np.sqrt(d / (2 * 200))  # of a window of 200 rows
    assert error < 1.3 * steady


def test_an_echo_canceller_survives_digital_silence():
    rng = np.random.default_rng(1)
    signal = rng.standard_normal(3000)
    signal[:500] = 0.0
    echo = rng.standard_normal(8)
    X = np.column_stack([np.concatenate([np.zeros(i), signal[: 3000 - i]]) for i in range(8)])
    y = X @ echo + 1e-3 * rng.standard_normal(3000)
    y[:500] = 0.0
    for strategy, limit in ((F.ResetOnBreak(), 1e-4), (F.Variable(200), 5e-4)):
        est = estimator(strategy, fit_intercept=False).fit(X, y)
        assert np.abs(est.coef_ - echo).max() < limit
        assert est.forgetting_.get("breaks", 0) == 0


@pytest.mark.parametrize("deviation", [0.0, 1e-6, 0.1])
@pytest.mark.parametrize("start", ["none", "silent", "exact"])
@pytest.mark.parametrize("given", [False, True])
def test_a_break_is_one_with_and_without_noise(given, start, deviation):
    X, y, coef = regression(3, 1500, deviation, flip=1000)
    if start == "silent":
        X[:300], y[:300] = 0.0, 0.0
    elif start == "exact":
        y[:300] = X[:300] @ coef
    noise = max(deviation, 1e-9) ** 2 if given else None
    # A share of what came before biases the coefficients by millions of such deviations.
    strategy = F.ResetOnBreak(noise_variance=noise, keep=1e-14 if given else 1e-4)
    est = estimator(strategy, fit_intercept=False, ridge=0.0).partial_fit(X[:1010], y[:1010])
    assert est.forgetting_["breaks"] == 1  # at once
    est.partial_fit(X[1010:], y[1010:])
    assert est.forgetting_["breaks"] == 1
    np.testing.assert_allclose(est.coef_, -coef, atol=max(0.3 * deviation, 1e-2))


def test_a_trial_goes_on_in_files_and_copies():
    X, y, _ = regression(4, 1400, np.where(np.arange(1400) < 1000, 0.01, 0.1))
    whole = estimator(F.ResetOnBreak()).partial_fit(X, y)
    est, trials = estimator(F.ResetOnBreak()).partial_fit(X[:1000], y[:1000]), 0
    for t in range(1000, 1100):
        est.partial_fit(X[t : t + 1], y[t : t + 1])
        trials += est.forgetting_["breaks"]
        est = [olsq.loads(est.to_bytes()), pickle.loads(pickle.dumps(est)), copy.copy(est)][t % 3]
    est.partial_fit(X[1100:], y[1100:])
    assert 10 < trials < 100
    assert est.to_bytes() == whole.to_bytes() or theta(est).tolist() == theta(whole).tolist()
    assert est.forgetting_ == whole.forgetting_


# -- scales ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 4, 16])
def test_directional_forgetting_has_a_window_of_d_directions(d):
    X = np.random.default_rng(d).standard_normal((8000, d))
    strategy = F.Directional(0.95)
    assert strategy.window_for(d) == pytest.approx(d / 0.05)
    est = estimator(strategy, fit_intercept=False)
    information = []
    for t in range(0, 8000, 200):
        est.partial_fit(X[t : t + 200], X[t : t + 200, 0])
        information.append(np.trace(est.moments().gram) / d)
    assert np.mean(information[10:]) == pytest.approx(est.forgetting_["window"], rel=0.2)


@pytest.mark.parametrize("name", ["directional", "per coefficient", "variable", "reset"])
@pytest.mark.parametrize("power", [-500, -450, 400])
def test_rows_of_any_size_give_the_same_coefficients(name, power):
    s = interruption("noise rises", 100, rows=60)
    one, other = (estimator(STRATEGIES[name], fit_intercept=False, ridge=0.0) for _ in range(2))
    if name == "per coefficient":
        one, other = (
            estimator(F.PerCoefficient([0.9, 0.8]), fit_intercept=False, ridge=0.0)
            for _ in range(2)
        )
    learn(one, s)
    learn(other, s._replace(X=s.X * 2.0**power, y=s.y * 2.0**power))
    np.testing.assert_allclose(other.coef_, one.coef_, rtol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("decades", [0, 3, 6, 9, 12, 16])
@pytest.mark.parametrize("scaled", [True, False])
def test_the_walk_is_the_exact_kalman_filter(scaled, decades):
    """With a drift in each column's units, and with one that is absolute for both."""
    scales = np.array([1.0, 10.0**decades])
    X = np.random.default_rng(0).standard_normal((30, 2)) * scales
    y = X @ (1 / scales)
    drift = 1e-4 / scales**2 if scaled else np.full(2, 1e-4)
    means, variances = rational.kalman(X, y, np.diag(drift), np.full(2, 1e-3))
    path = olsq.coefficient_path(X, y, forget=F.RandomWalk(drift), ridge=1e-3)
    error = np.abs(path.coef - means)
    assert (error <= 2e-14 * np.sqrt(variances) + 2e-15 * np.abs(means)).all()
    if scaled:
        assert (error <= 1e-14 * np.abs(means).max(0)).all()


@pytest.mark.parametrize("decades", [10, 100, 200])
@pytest.mark.parametrize("factors", [(0.9, 1.0), (1.0, 0.9), (0.95, 0.9)])
def test_a_vector_factor_loses_no_digits_where_rows_shrink(factors, decades):
    X = np.random.default_rng(3).standard_normal((1000, 2))
    X *= 10.0 ** -np.linspace(0, decades, 1000)[:, None]
    path = olsq.coefficient_path(X, X @ [1.0, 2.0], forget=F.PerCoefficient(factors))
    np.testing.assert_allclose(path.coef[10:], np.broadcast_to([1.0, 2.0], (990, 2)), rtol=2e-13)


# -- coefficients that walk in time ----------------------------------------------------------------

DRIFT = np.array([0.01, 0.0, 0.2])


def irregular(n=60):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, 2))
    times = np.cumsum(rng.choice([0.0, 0.25, 1.0, 1.0, 2.5, 40.0], n))
    return X, 1 + X @ [1.0, 2.0] + 0.1 * rng.standard_normal(n), times


@pytest.mark.parametrize("matrix", [False, True])
def test_walks_in_time_are_the_dense_kalman_filter(matrix):
    X, y, times = irregular()
    root = np.random.default_rng(7).standard_normal((3, 2))
    drift = root @ root.T if matrix else np.diag(DRIFT)
    strategy = F.RandomWalk(drift if matrix else DRIFT, per=2.0)
    ridge = np.array([0.0, 1e-3, 1e-3])
    elapsed = np.diff(times, prepend=times[0]) / 2.0
    Z, ones = np.column_stack([np.ones(len(X)), X]), np.ones(len(X))
    seen = [0]  # the rule sees rows from the second on: the first determines the intercept
    rule = oracle.random_walk(drift, elapsed[1:])
    true = oracle.path(Z, y[:, None], rule, weights=ones, ridge=ridge, dtype=np.longdouble)
    path = estimator(strategy, ridge=1e-3).partial_fit_path(X, y, times=times)
    coef = np.column_stack([path.intercept, path.coef])
    spread = np.sqrt(np.einsum("nkk->nk", true.inverse).astype(float))
    assert (np.abs(coef - true.coef[:, 0]) <= 1e-11 * spread + 1e-13).all()
    assert seen == [0]


def test_a_walk_of_unit_steps_is_the_walk_by_rows():
    X, y, _ = irregular()
    by_rows = estimator(F.RandomWalk(DRIFT)).partial_fit(X[:1], y[:1])
    in_time = estimator(F.RandomWalk(DRIFT, per=3.0)).partial_fit(X[:1], y[:1], times=[0.0])
    by_rows.partial_fit(X[1:], y[1:])
    in_time.partial_fit(X[1:], y[1:], times=3.0 * np.arange(1, len(X)))
    np.testing.assert_array_equal(theta(in_time), theta(by_rows))


def test_walks_in_time_go_on_with_the_same_bits():
    X, y, times = irregular()
    strategy = F.RandomWalk(DRIFT, per="90min")
    dates = np.datetime64("2026-01-01", "ns") + (times * 3600e9).astype("timedelta64[ns]")
    path = estimator(strategy, ridge=1e-3).partial_fit_path(X, y, times=dates)
    est = estimator(strategy, ridge=1e-3)
    for t in range(len(X)):
        if t % 2:
            est.step(X[t], y[t], time=dates[t])
        else:
            est.partial_fit(X[t : t + 1], y[t : t + 1], times=dates[t : t + 1])
        est = [olsq.loads(est.to_bytes()), pickle.loads(pickle.dumps(est)), copy.copy(est)][t % 3]
        np.testing.assert_array_equal(est.coef_, path.coef[t])
    frame = pd.DataFrame(X, index=pd.DatetimeIndex(dates))
    again = olsq.coefficient_path(frame, y, forget=strategy, fit_intercept=True, ridge=1e-3)
    np.testing.assert_array_equal(np.asarray(again.coef), path.coef)
    numbers = estimator(F.RandomWalk(DRIFT, per=1.5), ridge=1e-3).fit(X, y, times=times)
    np.testing.assert_allclose(theta(numbers), theta(est), rtol=1e-9)
    assert est.get_params()["forget"] == strategy


def test_a_skipped_row_lets_time_pass():
    X, y, times = irregular(20)
    strategy = F.RandomWalk(DRIFT, per=1.0)
    missing = y.copy()
    missing[[3, 9, 10]] = np.nan
    kept = np.isfinite(missing)
    one = estimator(strategy).fit(X, missing, times=times)
    other = estimator(strategy).fit(X[kept], y[kept], times=times[kept])
    # Two steps of a walk are one step of their time, except for rounding.
    np.testing.assert_allclose(theta(one), theta(other), rtol=1e-14)


def test_a_night_widens_the_errors_of_a_walk():
    X, y, _ = irregular()
    est = estimator(F.RandomWalk(1e-3, per="1h"), fit_intercept=False)
    hours = np.datetime64("2026-01-01T00", "m") + np.arange(60).astype("timedelta64[m]")
    before = est.fit(X, y, times=hours).moments().gram
    est.partial_fit(X[:1] * 0, y[:1] * 0, times=hours[-1:] + np.timedelta64(12, "h"))
    expected = np.linalg.inv(before) + 12e-3 * np.eye(2)
    np.testing.assert_allclose(np.linalg.inv(est.moments().gram), expected, rtol=1e-10)


def test_what_a_walk_in_time_refuses():
    X, y, times = irregular(20)
    in_time = estimator(F.RandomWalk(0.1, per=1.0)).fit(X, y, times=times)
    before = in_time.to_bytes()
    with pytest.raises(ValueError, match=r"row 0 is at .* last row before this call"):
        in_time.partial_fit(X, y, times=times)
    with pytest.raises(ValueError, match=r"row 1 is at .* sort the rows"):
        in_time.partial_fit(X, y, times=times[::-1] + 1e3)
    with pytest.raises(ValueError, match=r"per=1.0 is a length of time, .* give times=$"):
        in_time.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"dates, but per=1.0 is a length between numbers"):
        in_time.partial_fit(X, y, times=np.arange(20).astype("datetime64[s]"))
    assert in_time.to_bytes() == before
    with pytest.raises(ValueError, match=r"times are not used with forget=RandomWalk\(...\)"):
        estimator(F.RandomWalk(0.1)).fit(X, y, times=times)
    with pytest.raises(ValueError, match="months"):
        estimator(F.RandomWalk(0.1, per="1M")).fit(X, y, times=times)
    for bad in (0.0, -1.0, np.nan, np.inf, " ", True):
        with pytest.raises(ValueError, match="per must be"):
            F.RandomWalk(0.1, per=bad)
