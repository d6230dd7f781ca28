"""Tests of constant coefficients against random walks: likelihood ratio and Nyblom's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2
from scipy.stats._hypotests import _cdf_cvm_inf

import olsq
from olsq.datasets import nile, us_macro
from olsq.drift.likelihood import evaluate
from olsq.stability import nyblom
from olsq.stability.hansen import bridge_tail


def constant(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 1))
    return X, 1.0 + 2.0 * X[:, 0] + rng.standard_normal(n)


def test_the_statistic_is_twice_the_gain():
    level = olsq.time_varying(np.ones((100, 1)), nile()["volume"], fit_intercept=False)
    test = level.likelihood_ratio()
    calm = olsq.time_varying(np.ones((100, 1)), nile()["volume"], drift=0.0, fit_intercept=False)
    gain = level.log_likelihood - calm.log_likelihood
    assert test.statistic == pytest.approx(2 * gain)
    assert test.p_value == pytest.approx(0.5 * chi2.sf(test.statistic, 1))
    assert (test.n_drifts, test.draws) == (1, 0)


@pytest.mark.full
def test_constant_coefficients_are_seldom_rejected():
    """A drift of 0 in about two of three samples; the mixture's p-values are too large."""
    at_zero, rejected = [], 0
    for seed in range(150):
        X, y = constant(seed=seed)
        fit = olsq.time_varying(X, y)
        at_zero += [*(fit.drift == 0)]
        rejected += fit.likelihood_ratio().p_value < 0.1
    assert 0.58 < np.mean(at_zero) < 0.76
    assert 1 <= rejected <= 15


def test_drawn_p_values_are_those_of_a_fit_to_each_draw():
    X, y = constant(40, seed=3)
    fit = olsq.time_varying(X, y + np.linspace(0, 3, 40), sample_weight=np.linspace(1, 2, 40))
    test = fit.likelihood_ratio(draws=99, random_state=1)
    assert (test.draws, test.n_drifts) == (99, 2)
    rng = np.random.default_rng(1)
    larger = 0
    for _ in range(99):
        rng.standard_normal((40, 2))
        drawn = rng.standard_normal(40) / np.sqrt(np.linspace(1, 2, 40))
        other = olsq.time_varying(X, drawn, sample_weight=np.linspace(1, 2, 40))
        larger += other.likelihood_ratio().statistic >= test.statistic
    assert test.p_value == pytest.approx((1 + larger) / 100)
    assert test.p_value < 0.05
    repeated = fit.likelihood_ratio(draws=99, random_state=1)
    assert repeated == test


def test_draws_walk_where_a_drift_was_given():
    """The intercept's drift is known: draws have it, or all of them would be called constant."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 1))
    y = np.cumsum(rng.standard_normal(100)) + 2.0 * X[:, 0] + rng.standard_normal(100)
    fit = olsq.time_varying(X, y, drift=[1.0, np.nan])
    test = fit.likelihood_ratio(draws=19, random_state=0)
    calm = evaluate(fit._rows, np.array([1.0, 0.0])).value
    assert test.statistic == pytest.approx(2 * (fit.log_likelihood - calm), abs=1e-9)
    assert test.p_value > 0.05


def test_likelihood_ratio_names_what_is_wrong():
    fit = olsq.time_varying(*constant(), drift=0.1)
    with pytest.raises(ValueError, match="tests drifts that were estimated, and all were given"):
        fit.likelihood_ratio()
    for draws in (-1, 2.5, True):
        with pytest.raises(ValueError, match="draws must be an integer >= 0"):
            olsq.time_varying(*constant()).likelihood_ratio(draws=draws)


@pytest.mark.parametrize("intercept", [False, True])
def test_nyblom_is_the_sum_it_says(intercept):
    data = us_macro()
    X, y = np.column_stack([data["m1"], data["unemp"]]), data["cpi"].copy()
    y[[3, 100]] = np.nan
    test = nyblom(X, y, fit_intercept=intercept)
    keep = np.isfinite(y)
    Z = np.column_stack([np.ones(203), X])[:, 1 - intercept :][keep]
    e = y[keep] - Z @ np.linalg.lstsq(Z, y[keep], rcond=None)[0]
    f = Z * e[:, None]
    inverse, S, total, each = np.linalg.inv(f.T @ f), np.zeros(Z.shape[1]), 0.0, 0.0
    for row in f:
        S = S + row
        total += S @ inverse @ S / len(f)
        each += S**2 / len(f)
    assert test.statistic == pytest.approx(total, rel=1e-8)
    np.testing.assert_allclose(test.by_coefficient, each / (f**2).sum(0), rtol=1e-8)
    assert test.p_value == bridge_tail(test.statistic, Z.shape[1])


def test_tails_are_cramer_von_mises_for_one_and_hansens_table_for_more():
    for x in (0.05, 0.2, 0.461, 1.0, 2.0):
        assert bridge_tail(x, 1) == pytest.approx(1 - _cdf_cvm_inf(x), abs=1e-10)
    # Hansen 1992, table 1: simulated values at 10, 5 and 1 %
    table = {2: (0.610, 0.749, 1.07), 3: (0.846, 1.01, 1.35), 4: (1.07, 1.24, 1.60)}
    table |= {5: (1.28, 1.47, 1.88), 10: (2.29, 2.54, 3.05)}
    for k, values in table.items():
        for x, level in zip(values, (0.10, 0.05, 0.01), strict=True):
            assert bridge_tail(x, k) == pytest.approx(level, rel=0.11)
    assert bridge_tail(50.0, 3) < 1e-9
    assert bridge_tail(1e-3, 3) == pytest.approx(1.0)


@pytest.mark.full
def test_nyblom_rejects_constant_coefficients_as_often_as_it_says():
    p = [nyblom(*constant(60, seed), fit_intercept=True).p_value for seed in range(300)]
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.09
    walk = np.cumsum(0.3 * np.random.default_rng(0).standard_normal(200))
    X, y = constant(200)
    assert nyblom(X, y + walk * X[:, 0], fit_intercept=True).p_values[1] < 0.01


def test_nyblom_names_what_is_wrong():
    X, y = constant()
    with pytest.raises(ValueError, match="X must have independent columns"):
        nyblom(np.column_stack([X, X]), y)
    with pytest.raises(ValueError, match="more than 1 complete rows"):
        nyblom(X[:1], y[:1])
    with pytest.raises(ValueError, match="y is fitted exactly"):
        nyblom(X, 2 * X[:, 0])
