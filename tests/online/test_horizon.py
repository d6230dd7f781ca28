"""Forecasts of a horizon: what each prediction knows, its errors, scores and intervals."""

from __future__ import annotations

import doctest
import math
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import olsq
from olsq.forgetting import RandomWalk
from olsq.tuning.objective import ForecastLoss

N = 300


@pytest.fixture(scope="module")
def rows():
    """Regressors, targets with a row missing in each, groups."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 2))
    y = X @ [1.0, 2.0] + rng.standard_normal(N)
    y[40], X[70, 0] = np.nan, np.nan
    return X, y, rng.integers(0, 3, N)


def by_hand(path, X, y, h):
    """The errors of forecasts from the coefficients of h rows before, row by row."""
    found = np.full(N, np.nan)
    for t in np.flatnonzero(np.isfinite(path.residual)):
        known = X[t] @ path.coef[t - h] + path.intercept[t - h] if t >= h else 0.0
        found[t] = y[t] - known
    return found


OPTIONS = [
    {},
    {"fit_intercept": True, "ridge": 0.1, "half_life": 30},
    {"window": 20, "fit_intercept": True},
    {"forget": RandomWalk(0.01), "statistics": False},
    {"cov": "sandwich", "forget": 0.97},
]


@pytest.mark.parametrize("h", [2, 7])
@pytest.mark.parametrize("options", OPTIONS)
def test_a_prediction_has_the_coefficients_of_one_horizon_before(rows, options, h):
    X, y, _ = rows
    plain = olsq.coefficient_path(X, y, **options)
    path = olsq.coefficient_path(X, y, horizon=h, **options)
    np.testing.assert_allclose(path.residual, by_hand(plain, X, y, h), rtol=1e-12, atol=1e-12)
    for name in set(path._fields) - {"residual"}:
        np.testing.assert_array_equal(getattr(path, name), getattr(plain, name))


def test_a_prediction_knows_no_later_row(rows):
    X, y, _ = rows
    residual = olsq.coefficient_path(X, y, horizon=5, half_life=40).residual
    for t in (30, 100, 200):
        known = slice(t - 4)  # rows up to t - 5
        est = olsq.RecursiveLeastSquares(half_life=40, fit_intercept=False).fit(X[known], y[known])
        np.testing.assert_allclose(residual[t], y[t] - est.predict(X[t : t + 1])[0], rtol=1e-10)


def test_one_row_is_what_a_path_has_anyhow(rows):
    X, y, _ = rows
    plain = olsq.coefficient_path(X, y)
    for h in (1, np.int64(1)):
        path = olsq.coefficient_path(X, y, horizon=h)
        np.testing.assert_array_equal(path.residual, plain.residual)


def test_lengths_of_time_count_what_is_known_by_then(rows):
    X, y, _ = rows
    wanted = olsq.coefficient_path(X, y, horizon=5).residual
    days = pd.date_range("2026-01-01", periods=N)
    indexed = olsq.coefficient_path(pd.DataFrame(X, index=days), y, horizon="5D")
    np.testing.assert_array_equal(indexed.residual, wanted)
    numbers = olsq.coefficient_path(X, y, horizon=0.5, times=0.1 * np.arange(N))
    np.testing.assert_array_equal(numbers.residual, wanted)
    uneven = np.cumsum(np.random.default_rng(1).integers(0, 4, N)).astype(float)
    plain = olsq.coefficient_path(X, y)
    path = olsq.coefficient_path(X, y, horizon=3.0, times=uneven)
    for t in (50, 51, 52, 200):
        s = np.flatnonzero(uneven <= uneven[t] - 3.0)[-1]
        np.testing.assert_allclose(path.residual[t], y[t] - X[t] @ plain.coef[s], rtol=1e-12)


def test_groups_have_horizons_of_their_own(rows):
    X, y, group = rows
    path = olsq.coefficient_path(X, y, by=group, horizon=4)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(shop=group)
    named = olsq.coefficient_path(frame, y, by="shop", horizon=4)
    np.testing.assert_array_equal(named.residual, path.residual)
    squares = lags = 0.0
    for key in range(3):
        own = group == key
        alone = olsq.coefficient_path(X[own], y[own], horizon=4)
        np.testing.assert_allclose(path.residual[own], alone.residual, atol=1e-12)
        one, other = (
            olsq.score_forecasts(path.of_group(key), y[own]),
            olsq.score_forecasts(alone, y[own]),
        )
        np.testing.assert_allclose(one.lower, other.lower, rtol=1e-10)
        squares += other.mse * other.n_scored
        lags = other.lags
    together = olsq.score_forecasts(path, y)
    np.testing.assert_allclose(together.mse * together.n_scored, squares, rtol=1e-12)
    assert together.lags == lags == 3


def test_a_group_too_short_to_be_scored_is_left_out(rows):
    X, y, group = rows
    labels = np.where(np.arange(N) < 3, 9, group)
    path = olsq.coefficient_path(X, y, by=labels, horizon=4)
    found = olsq.score_forecasts(path, y)
    assert np.isnan(found.lower[:3]).all()
    assert np.isfinite(found.mse)


def test_targets_have_scores_of_their_own(rows):
    X, y, _ = rows
    Y = np.column_stack([y, 2 * y])
    Y[5, 1] = np.nan
    path = olsq.coefficient_path(X, Y, horizon=3, missing="skip_target")
    found = olsq.score_forecasts(path, Y)
    for j in range(2):
        alone = olsq.score_forecasts(olsq.coefficient_path(X, Y[:, j], horizon=3), Y[:, j])
        for name, value in alone._asdict().items():
            several = getattr(found, name)
            own = several if name == "lags" else np.asarray(several)[..., j]
            np.testing.assert_allclose(own, value, rtol=1e-9, err_msg=name)


def test_scores_are_means_with_errors_of_overlapping_horizons(rows):
    X, y, _ = rows
    h = 6
    found = olsq.score_forecasts(olsq.coefficient_path(X, y, horizon=h), y)
    scored = np.isfinite(found.residual) & (np.arange(N) >= 3 * h - 1)  # two horizons known
    squares = found.residual[scored] ** 2
    np.testing.assert_allclose(found.mse, squares.mean(), rtol=1e-12)
    np.testing.assert_allclose(found.rmse**2, found.mse)
    np.testing.assert_allclose(found.bias, found.residual[scored].mean())
    assert found.n_scored == scored.sum()
    deviation = np.where(scored, found.residual**2 - found.mse, 0.0)
    total = deviation @ deviation
    for lag in range(1, h):
        total += 2 * (1 - lag / h) * (deviation[lag:] @ deviation[:-lag])
    np.testing.assert_allclose(found.mse_stderr, np.sqrt(total) / squares.size, rtol=1e-10)
    some = np.isfinite(found.lower)
    # known one horizon after the first, infinite below one degree of freedom, two missing
    assert some.sum() == N - (4 * h - 1) - (h - 1) - 2
    assert np.isinf(found.lower).sum() == h - 1
    middle = (found.lower[some] + found.upper[some]) / 2
    np.testing.assert_allclose(middle, found.prediction[some], rtol=1e-9, atol=1e-12)


def test_intervals_know_only_errors_of_their_time(rows):
    X, y, _ = rows
    first = olsq.score_forecasts(olsq.coefficient_path(X, y, horizon=6), y, half_life=50)
    changed = y.copy()
    changed[200] += 100.0
    second = olsq.score_forecasts(
        olsq.coefficient_path(X, changed, horizon=6), changed, half_life=50
    )
    np.testing.assert_array_equal(first.lower[:200], second.lower[:200])
    np.testing.assert_allclose(first.lower[200:206], second.lower[200:206], rtol=1e-12)
    assert abs(first.lower[206] - second.lower[206]) > 1.0


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_cover_where_coefficients_walk(level):
    rng = np.random.default_rng(3)
    n, h = 20_000, 24
    x = rng.standard_normal((n, 1))
    y = x[:, 0] * np.cumsum(0.05 * rng.standard_normal(n)) + rng.standard_normal(n)
    found = olsq.score_forecasts(
        olsq.coefficient_path(x, y, horizon=h, half_life=40), y, level=level
    )
    assert abs(found.coverage - level) < 4 * found.coverage_stderr + 0.01
    one = olsq.score_forecasts(olsq.coefficient_path(x, y, half_life=40), y, level=level)
    assert found.mse > one.mse + 3 * found.mse_stderr


BAD = [0, -1, True, 1.5, "x", "0D", None, N, 10**20, "400D", [1], np.nan]


@pytest.mark.parametrize("horizon", BAD)
def test_horizons_that_are_none_are_refused(rows, horizon):
    X, y, group = rows
    for by in (None, group):
        with pytest.raises(ValueError, match="horizon"):
            olsq.coefficient_path(X, y, horizon=horizon, by=by)


def test_scores_that_cannot_be_given_are_refused(rows):
    X, y, _ = rows
    path = olsq.coefficient_path(X, y, horizon=5)
    for options, message in (
        ({"burn_in": -1}, "burn_in must be a whole number"),
        ({"burn_in": 1000}, "rest on 1000 rows"),
        ({"lags": 1.5}, "lags must be a whole number"),
        ({"level": 2}, "level"),
        ({"half_life": -1.0}, "half_life"),
    ):
        with pytest.raises(ValueError, match=message):
            olsq.score_forecasts(path, y, **options)
    with pytest.raises(ValueError, match=r"y must be the target of the path, \(300,\), got"):
        olsq.score_forecasts(path, y[1:])
    far = olsq.coefficient_path(X, y, horizon=N - 1)
    with pytest.raises(ValueError, match="no row is left to score"):
        olsq.score_forecasts(far, y)
    wave = olsq.coefficient_path(X * 1j, y, horizon=5)
    np.testing.assert_allclose(wave.residual[:5], y[:5])
    with pytest.raises(ValueError, match="score_forecasts is for real rows"):
        olsq.score_forecasts(wave, y)


# -- tuning ----------------------------------------------------------------------------------------


@pytest.mark.full
def test_tuning_scores_forecasts_of_the_horizon(rows):
    X, y, _ = rows
    tuned = olsq.tune(X, y, horizon=4)
    options = {"forget": tuned.forget, "ridge": tuned.ridge, "fit_intercept": True}
    path = olsq.coefficient_path(X, y, horizon=4, **options)
    found = olsq.score_forecasts(path, y)  # of the same rows: twelve known, three horizons
    np.testing.assert_allclose(tuned.loss, found.mse, rtol=1e-10)
    assert (tuned.curve.loss >= tuned.loss * (1 - 1e-9)).all()


@pytest.mark.parametrize("mode", ["discounted", "fixed"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_gradient_of_a_horizon_equals_finite_differences(rows, fit_intercept, mode):
    X, y, _ = rows
    complete = np.isfinite(X).all(axis=1) & np.isfinite(y)
    X, y = np.where(complete[:, None], X, 0.0) + complete[:, None], np.where(complete, y, 0.0)
    problem = ForecastLoss(
        X,
        y[:, None],
        np.where(complete, 1.0 + np.arange(N) % 2, 0.0),
        shape=None,
        ridge_mode=mode,
        fit_intercept=fit_intercept,
        burn_in=3,
        horizon=4,
        complete=complete,
    )
    forget, ridge = 0.96, 0.5 * problem.ridge_scale
    found = problem.slope(forget, ridge)
    for exact, step, loss in (
        (found.forget, 1e-6, lambda change: problem.loss(forget + change, ridge)),
        (found.ridge, 1e-4 * ridge, lambda change: problem.loss(forget, ridge + change)),
    ):
        far, near = loss(2 * step) - loss(-2 * step), loss(step) - loss(-step)
        floor = 30e-12 * found.loss / step
        assert exact == pytest.approx((8 * near - far) / (12 * step), rel=2e-6, abs=floor)


def test_tuning_of_several_steps_is_refused_where_it_means_nothing(rows):
    X, y, _ = rows
    for horizon in (0, -3, True):
        with pytest.raises(ValueError, match="horizon must be a whole number of rows, 1 or more"):
            olsq.tune(X, y, horizon=horizon)
    for horizon in (1.5, "5D"):
        with pytest.raises(ValueError, match="horizon is a length of time, so that every row need"):
            olsq.tune(X, y, horizon=horizon)
    dates = np.datetime64("2024-01-01") + np.arange(N)
    for horizon, times, message in (
        (1.5, dates, "times are dates, but horizon is a length between numbers"),
        ("5D", np.arange(N), "times are numbers, but horizon is a length between dates"),
        ("5D", dates[::-1], "times must not go back"),
        ("5D", dates[1:], "one time for each of"),
        ("900D", dates, "no row is left to score"),
    ):
        with pytest.raises(ValueError, match=message):
            olsq.tune(X, y, horizon=horizon, times=times)
    with pytest.raises(ValueError, match="no row is left to score: a forecast of horizon=299"):
        olsq.tune(X, y, horizon=299)


def times_with_holes(rng):
    """Hours (N,), several at one time and days of nothing."""
    steps = rng.choice([0, 1, 1, 1, 2, 30], N)
    return np.datetime64("2024-01-01") + np.cumsum(steps).astype("m8[h]")


@pytest.mark.full
@pytest.mark.parametrize("method", ["gradient", "mixture"])
def test_tuning_of_a_horizon_in_time(rows, method):
    X, y, _ = rows
    hours = np.datetime64("2024-01-01") + np.arange(N).astype("m8[h]")
    options = {"method": method, "ridge_bounds": (0, 10)}
    in_rows = olsq.tune(X, y, horizon=4, **options)
    for horizon, times in (("4h", hours), (4.0, np.arange(N))):
        in_time = olsq.tune(X, y, horizon=horizon, times=times, **options)
        assert in_time[:3] == in_rows[:3]
        assert in_time.horizon == horizon
    times = times_with_holes(np.random.default_rng(0))
    tuned = olsq.tune(X, y, horizon="5h", times=times, burn_in=20, **options)
    known = {"forget": tuned.forget, "ridge": tuned.ridge, "fit_intercept": True}
    path = olsq.coefficient_path(X, y, horizon="5h", times=times, **known)
    found = olsq.score_forecasts(path, y, burn_in=20)
    if method == "gradient":
        np.testing.assert_allclose(tuned.loss, found.mse, rtol=1e-10)
    else:
        residual = y - tuned.mixture.prediction
        assert np.isfinite(residual[np.isfinite(y) & np.isfinite(X).all(axis=1)]).all()
        assert tuned.mixture.regret <= tuned.mixture.regret_bound


def test_half_lives_in_time(rows):
    X, y, _ = rows
    hours = np.datetime64("2024-01-01") + np.arange(N).astype("m8[h]")
    options = {"ridge": 0.0, "starts": 1}
    y = y + 3 * np.sin(np.arange(N) / 15) * X[:, 0]
    filled = np.nan_to_num(X), np.nan_to_num(y)
    in_rows = olsq.tune(*filled, half_life_bounds=(4, 400), **options)
    for bounds in (("4h", "400h"), tuple(np.array([4, 400], "m8[h]")), ("240min", math.inf)):
        tuned = olsq.tune(*filled, half_life_bounds=bounds, times=hours, **options)
        assert tuned.step == np.timedelta64(1, "h")
        if bounds[1] != math.inf:
            assert tuned.forget == pytest.approx(in_rows.forget, rel=1e-6)
            assert tuned.half_life / tuned.step == pytest.approx(in_rows.half_life, rel=1e-5)
    times = times_with_holes(np.random.default_rng(1))
    tuned = olsq.tune(X, y, half_life_bounds=("4h", "40D"), times=times, **options)
    learned = np.isfinite(X).all(axis=1) & np.isfinite(y)

    def loss(half_life):
        path = olsq.coefficient_path(X, y, half_life=half_life, times=times, fit_intercept=True)
        scored = learned & (np.cumsum(learned) > X.shape[1] + 1)
        return np.mean(path.residual[scored] ** 2)

    assert tuned.loss == pytest.approx(loss(tuned.half_life), rel=1e-9)
    assert all(
        tuned.loss <= loss(tuned.half_life * by) * (1 + 1e-9) for by in (0.8, 0.97, 1.03, 1.3)
    )
    # with a horizon too
    tuned = olsq.tune(
        X, y, half_life_bounds=("4h", "40D"), times=times, horizon="5h", burn_in=20, **options
    )
    path = olsq.coefficient_path(
        X, y, half_life=tuned.half_life, times=times, fit_intercept=True, horizon="5h"
    )
    assert tuned.loss == pytest.approx(olsq.score_forecasts(path, y, burn_in=20).mse, rel=1e-9)
    for bounds, message in (
        (("4h", 40), "both numbers of rows or both lengths of time"),
        (("40D", "4h"), "with low at most high"),
        ("40D", "must be"),
        (("4h", "5h", "6h"), "must be"),
        (("4 months", "5h"), "no fixed length"),
    ):
        with pytest.raises(ValueError, match=message):
            olsq.tune(X, y, half_life_bounds=bounds, times=times)
    with pytest.raises(ValueError, match="every row needs a time: give times="):
        olsq.tune(X, y, half_life_bounds=("4h", "5h"))
    with pytest.raises(ValueError, match="all rows have the same time"):
        olsq.tune(X, y, half_life_bounds=("4h", "5h"), times=times[:1].repeat(N))
    with pytest.raises(ValueError, match="forget counts rows"):
        olsq.tune(X, y, half_life_bounds=("4h", "5h"), times=times, forget=0.9)


@pytest.mark.parametrize("mode", ["discounted", "fixed"])
@pytest.mark.parametrize("timed", ["horizon", "half-life", "both"])
def test_the_gradient_in_time_equals_finite_differences(rows, timed, mode):
    X, y, _ = rows
    complete = np.isfinite(X).all(axis=1) & np.isfinite(y)
    X, y = np.where(complete[:, None], X, 0.0) + complete[:, None], np.where(complete, y, 0.0)
    rng = np.random.default_rng(2)
    hours = np.cumsum(rng.choice([0.0, 1.0, 1.0, 2.0, 9.0], N))
    source = np.searchsorted(hours, hours - 4.0, side="right") - 1
    elapsed = np.zeros(N)
    elapsed[complete] = np.diff(hours[complete], prepend=hours[complete][0]) / 2.0
    problem = ForecastLoss(
        X,
        y[:, None],
        np.where(complete, 1.0 + np.arange(N) % 2, 0.0),
        shape=None,
        ridge_mode=mode,
        fit_intercept=True,
        burn_in=3,
        horizon=4 if timed == "half-life" else int((np.arange(N) - source).max()),
        complete=complete,
        source=None if timed == "half-life" else source,
        elapsed=None if timed == "horizon" else elapsed,
    )
    forget, ridge = 0.96, 0.5 * problem.ridge_scale
    found = problem.slope(forget, ridge)
    for exact, step, loss in (
        (found.forget, 1e-6, lambda change: problem.loss(forget + change, ridge)),
        (found.ridge, 1e-4 * ridge, lambda change: problem.loss(forget, ridge + change)),
    ):
        far, near = loss(2 * step) - loss(-2 * step), loss(step) - loss(-step)
        floor = 30e-12 * found.loss / step
        assert exact == pytest.approx((8 * near - far) / (12 * step), rel=2e-6, abs=floor)


@pytest.mark.full
@pytest.mark.parametrize(
    ("horizon", "said"),
    [
        (1, "one-step-ahead"),
        (24, "24-row-ahead"),
        ("24h", "24h-ahead"),
        (np.timedelta64(1, "D"), "1D-ahead"),
    ],
)
def test_a_tuning_shows_the_horizon_it_was_made_for(horizon, said):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2, 300))
    hours = np.datetime64("2024-01-01") + np.arange(300).astype("m8[h]")
    tuned = olsq.tune(X[:, None], y, ridge=0.0, horizon=horizon, times=hours, starts=1)
    assert f"weighted mean squared {said} error" in repr(tuned)
    assert ("one-step" in repr(tuned)) == (said == "one-step-ahead")


def mixed_by_hand(y, weight, experts, scored, h, y_range):
    """Means of experts (n, K), weighted by their errors of h, 2h, ... rows before, row by row."""
    low, high = y_range
    clipped, target = np.clip(experts, low, high), np.clip(y, low, high)
    eta = 0.5 / ((high - low) ** 2 * weight[scored].max())
    found = np.empty(N)
    for t in range(N):
        past = np.array([s for s in range(t - h, -1, -h) if scored[s]], int)
        losses = weight[past] @ (clipped[past] - target[past, None]) ** 2
        share = np.exp(-eta * (losses - losses.min()))
        found[t] = clipped[t] @ share / share.sum()
    return found


@pytest.mark.full
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("h", [1, 3])
def test_mixtures_of_a_horizon_know_the_errors_of_their_time(rows, h, gaps):
    X, y, _ = rows
    if not gaps:
        X, y = np.nan_to_num(X), np.nan_to_num(y)
    weight = 1.0 + np.arange(N) % 2
    forget, y_range, burn_in = np.array([0.8, 0.95, 1.0]), (-4.0, 4.0), 5
    options = {"forget": forget, "ridge": 0.1, "y_range": y_range, "burn_in": burn_in}
    options |= {"method": "mixture", "sample_weight": weight, "horizon": h}
    mixed = olsq.tune(X, y, rule="average", **options).mixture
    experts = np.zeros((N, forget.size))
    for k, factor in enumerate(forget):
        est = olsq.RecursiveLeastSquares(forget=factor, ridge=0.1)
        for t in range(N):
            if t >= h:
                est.step(X[t - h], y[t - h], sample_weight=weight[t - h])
                experts[t, k] = est.intercept_ + est.coef_ @ X[t]
    complete = np.isfinite(y) & np.isfinite(X).all(axis=1)
    known = np.concatenate([np.zeros(h), np.cumsum(complete)])[:N]
    scored = complete & (known >= burn_in)
    wanted = mixed_by_hand(y, weight, experts, scored, h, y_range)
    np.testing.assert_allclose(mixed.prediction, wanted, rtol=1e-9, atol=1e-9)
    errors = np.clip(y, *y_range)[scored] - mixed.prediction[scored]
    np.testing.assert_allclose(mixed.loss, weight[scored] @ errors**2, rtol=1e-9)
    np.testing.assert_allclose(mixed.regret_bound, h * 2 * 64 * 2 * np.log(3), rtol=1e-12)
    best = olsq.tune(X, y, **options)  # "aggregating"
    for made in (mixed, best.mixture):
        assert made.regret <= made.regret_bound
    assert best.forget == forget[int(np.argmin(best.mixture.expert_loss))]


@pytest.mark.full
def test_by_default_a_forecast_rests_on_as_many_horizons_as_coefficients(rows):
    X, y = np.nan_to_num(rows[0]), np.nan_to_num(rows[1])
    for h, fewest in ((1, 3), (10, 30), (90, 150)):  # at most half of the rows
        for method in ("gradient", "mixture"):
            options = {"method": method, "horizon": h, "forget": 0.99, "ridge": 0.0}
            default, same = olsq.tune(X, y, **options), olsq.tune(X, y, burn_in=fewest, **options)
            assert default.loss == same.loss
        path = olsq.coefficient_path(X, y, horizon=h, fit_intercept=True)
        assert olsq.score_forecasts(path, y).n_scored == N - h - fewest + 1


@pytest.mark.full
def test_the_page_runs_and_shows_what_comes_out():
    page = (Path(__file__).parents[2] / "docs" / "forecasting.md").read_text()
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "forecasting.md", "forecasting.md", 0)
    results = doctest.DocTestRunner().run(test)
    assert results.attempted > 10
    assert not results.failed


# -- row by row ------------------------------------------------------------------------------------

ESTIMATORS = {
    "forgetting": (olsq.RecursiveLeastSquares, {"forget": 0.98, "ridge": 0.1}),
    "half-life in time": (olsq.RecursiveLeastSquares, {"half_life": "20D"}),
    "window": (olsq.RollingLeastSquares, {"window": 20}),
    "window in time": (olsq.RollingLeastSquares, {"window": "30D"}),
    "strategy": (olsq.RecursiveLeastSquares, {"forget": RandomWalk(0.01)}),
}


@pytest.mark.full
@pytest.mark.parametrize("horizon", [1, 5, "5D"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_delayed_targets_forecast_as_paths_do(rows, name, horizon):
    X, y = rows[0].copy(), rows[1]
    X[1, 1] = np.nan  # while nothing is known, with longer horizons
    kind, options = ESTIMATORS[name]
    steps = np.cumsum(np.random.default_rng(1).integers(0, 4, N))
    times = np.datetime64("2026-01-01") + steps
    weight = 1.0 + np.arange(N) % 2
    path = olsq.coefficient_path(
        X, y, sample_weight=weight, times=times, horizon=horizon, fit_intercept=True, **options
    )
    rows_later = olsq.DelayedTargets(kind(**options), horizon=horizon)
    found = np.array(
        [rows_later.step(X[t], y[t], sample_weight=weight[t], time=times[t]) for t in range(N)]
    )
    np.testing.assert_allclose(found[:, 1], path.residual, rtol=1e-8, atol=1e-9)
    known = np.isfinite(y)
    assert np.isnan(found[[1, 70], 0]).all()
    np.testing.assert_allclose((y - found[:, 0])[known], found[known, 1], rtol=1e-12)
    learned = np.isfinite(path.residual[: -len(rows_later)])
    assert rows_later.estimator.n_samples_seen_ == learned.sum()


@pytest.mark.parametrize("horizon", [2, 3])
@pytest.mark.parametrize("fewest", [None, 1, 3])
@pytest.mark.parametrize("window", [4, 4.0, "positions", None])
def test_a_forecast_that_rests_on_no_row_is_0_and_with_min_samples_none(window, fewest, horizon):
    """While nothing has been learned, and where a window has become empty, in every door."""
    rng = np.random.default_rng(0)
    X, n = rng.standard_normal((40, 1)), 40
    y = 2 * X[:, 0] + rng.standard_normal(n)
    y[:2], y[20:28] = np.nan, np.nan
    times = np.arange(n) + np.where(np.arange(n) >= 33, 50.0, 0.0)
    timed = isinstance(window, float)
    options = {} if window is None else {"window": window}
    options |= {"times": times} if timed else {}
    if window == "positions":
        options = {"window": 4, "window_of": window}
    given = {"min_samples": fewest} if window is not None else {}
    expected = np.full(n, np.nan)
    for t in range(n):
        est = olsq.RecursiveLeastSquares(fit_intercept=False)
        rolling = {name: v for name, v in options.items() if name != "times"}
        if window is not None:
            est = olsq.RollingLeastSquares(fit_intercept=False, **rolling, **given)
        known = slice(max(t - horizon + 1, 0))
        if t >= horizon:
            stamps = times[known] if timed else None
            est.partial_fit(X[known], y[known], times=stamps)
        learned = np.isfinite(y[known]).sum() >= (fewest or 1)
        if est._has_estimate() and learned:
            expected[t] = est.predict(X[t : t + 1])[0]
        elif fewest is None:
            expected[t] = 0.0
    usable = np.isfinite(y)
    for by in (None, np.zeros(n)):
        path = olsq.coefficient_path(X, y, horizon=horizon, by=by, min_samples=fewest, **options)
        np.testing.assert_allclose((y - path.residual)[usable], expected[usable], atol=1e-12)
    if window is None and fewest is not None:
        return
    est = olsq.RecursiveLeastSquares(fit_intercept=False)
    if window is not None:
        est = olsq.RollingLeastSquares(fit_intercept=False, **rolling, **given)
    later, found = olsq.DelayedTargets(est, horizon=horizon), np.empty(n)
    for t in range(n):
        found[t], _ = later.step(X[t], y[t], time=times[t] if timed else None)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_targets_that_come_later_are_learned_when_they_come(rows):
    X, y, _ = rows
    est, live = olsq.RecursiveLeastSquares(forget=0.98), olsq.RecursiveLeastSquares(forget=0.98)
    delayed = olsq.DelayedTargets(live)
    arrivals = np.random.default_rng(2).integers(0, 3, N)
    made, given = [], 0
    for t in range(N):
        for _ in range(min(arrivals[t], t - given)):
            prediction, residual = made[given], delayed.learn(y[given])
            np.testing.assert_array_equal(residual, y[given] - prediction)
            est.step(X[given], y[given])
            given += 1
        assert len(delayed) == t - given
        made.append(delayed.predict(X[t]))
        assert made[-1] == (est.predict(X[t : t + 1])[0] if given else 0.0) or t == 70
    np.testing.assert_array_equal(live.coef_, est.coef_)
    again = pickle.loads(pickle.dumps(delayed))
    for one in (delayed, again):
        one.learn(y[given])
    np.testing.assert_array_equal(again.estimator.coef_, live.coef_)


def test_several_targets_and_priors_wait_too():
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((50, 2)), rng.standard_normal((50, 3))
    path = olsq.coefficient_path(X, Y, horizon=4)
    delayed = olsq.DelayedTargets(olsq.RecursiveLeastSquares(fit_intercept=False), 4)
    found = [delayed.step(X[t], Y[t])[1] for t in range(50)]
    np.testing.assert_allclose(found, path.residual, rtol=1e-9, atol=1e-12)
    prior = (np.array([1.0, 2.0]), np.eye(2))
    est = olsq.RecursiveLeastSquares(prior=prior, fit_intercept=False)
    assert olsq.DelayedTargets(est).predict(np.array([1.0, 1.0])) == 3.0


def test_delayed_targets_refuse_what_cannot_be_known():
    x = np.array([1.0, 2.0])
    with pytest.raises(TypeError, match="estimator must be one that learns single rows by step"):
        olsq.DelayedTargets(olsq.FilterBank(3))
    with pytest.raises(ValueError, match="horizon must be a whole number of rows"):
        olsq.DelayedTargets(olsq.RecursiveLeastSquares(), 0)
    live = olsq.DelayedTargets(olsq.RecursiveLeastSquares())
    with pytest.raises(ValueError, match="no row waits for a target"):
        live.learn(1.0)
    live.predict(x)
    assert live.learn(1.0) == 1.0
    live.predict(x)
    with pytest.raises(ValueError, match="y"):
        live.learn(np.array([1.0, 2.0]))  # refused by step, and still waiting
    assert live.learn(1.0) == 0.0
    held = olsq.DelayedTargets(olsq.RecursiveLeastSquares(), 2)
    held.predict(x)
    held.predict(x)
    with pytest.raises(ValueError, match="call learn\\(y\\) for it first, with NaN"):
        held.predict(x)
    timed = olsq.DelayedTargets(olsq.RecursiveLeastSquares(), "5D")
    with pytest.raises(ValueError, match="is a length of time: give time="):
        timed.step(x, 1.0)
    with pytest.raises(ValueError, match="times are numbers, but horizon='5D'"):
        timed.step(x, 1.0, time=3.0)
    timed.step(x, 1.0, time=np.datetime64("2026-01-05"))
    with pytest.raises(ValueError, match="time must not go back"):
        timed.step(x, 1.0, time=np.datetime64("2026-01-04"))
    assert len(timed) == 1
