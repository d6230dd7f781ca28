"""Sequences of calls that random calls (``test_random_calls``) found to be wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import olsq

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((12, 2)), RNG.standard_normal(12)
DAYS = np.datetime64("2024-01-01") + np.arange(12)
RLS = olsq.RecursiveLeastSquares


def test_a_missing_target_of_a_first_step_is_a_missing_one():
    est, missing = RLS(), np.array(None)
    assert np.isnan(est.step(X[0], missing)[1])
    assert est.n_samples_seen_ == 0


def test_robust_errors_of_a_complex_window_are_refused_before_its_rows():
    est = olsq.RollingLeastSquares(9).fit(X + 1j * X[::-1], Y)
    before = est.to_bytes()
    with pytest.raises(TypeError, match="circular noise"):
        est.partial_fit_path(X[:2], Y[:2], cov="HC1")
    assert est.to_bytes() == before


def test_groups_of_windows_have_the_present_parameters():
    groups = olsq.GroupedRollingLeastSquares(6, min_samples=1).fit(X, Y, by=["a", "b"] * 6)
    groups.fit(X[:3], Y[:3], by=["a", "b", "b"]).set_params(min_samples=2)
    assert np.isnan(groups.predict(X[:1], by=["a"])).all()
    groups.set_params(forget=0.9).partial_fit(X[:1], Y[:1], by=["b"])
    assert olsq.loads(groups.to_bytes()).forget == 0.9
    groups.set_params(window=5)
    with pytest.raises(ValueError, match="window is 5 now"):
        groups.partial_fit(X[:1], Y[:1], by=["new"])


def test_a_half_life_in_time_that_is_given_up():
    est = RLS(half_life="9D").fit(X, Y, times=DAYS).set_params(half_life=None)
    with pytest.raises(ValueError, match="does not go with the times"):
        est.to_bytes()
    est.partial_fit(X, Y)
    np.testing.assert_array_equal(olsq.loads(est.to_bytes()).coef_, est.coef_)


@pytest.mark.parametrize("changed", [{"forget": 2.0}, {"half_life": -1}, {"noise_variance": 0.0}])
def test_what_cannot_be_loaded_is_not_saved(changed):
    for est in (RLS(), olsq.FilterBank(12), olsq.RollingLeastSquares(5)):
        est.partial_fit(X, Y).set_params(**changed)
        with pytest.raises(ValueError, match=next(iter(changed))):
            est.to_bytes()


def test_parameters_that_a_file_holds_as_lists_may_be_set_again():
    prior = np.zeros(3), np.eye(3)
    est = RLS(prior=prior, forget=pd.Series(np.full(12, 0.9))).partial_fit(X, Y)
    again = olsq.loads(est.to_bytes()).set_params(prior=prior)
    np.testing.assert_array_equal(again.partial_fit(X, Y).coef_, est.partial_fit(X, Y).coef_)


def test_residuals_are_the_callers():
    est = RLS().partial_fit(X, Y)
    before = est.to_bytes()
    est.residual_[:] = 7.0
    assert est.to_bytes() == before


@pytest.mark.parametrize("horizon", [None, 1])
def test_delayed_targets_refuse_at_once(horizon):
    live = olsq.DelayedTargets(RLS(), horizon)
    live.step(X[0], 1.0)
    for x, y, options in (
        (X[0], "x", {}),
        (np.ones(3), 1.0, {}),
        (X[0], 1.0, {"sample_weight": -1.0}),
    ):
        waiting = len(live)
        with pytest.raises((ValueError, TypeError)):
            live.step(x, y, **options)
        assert len(live) == waiting
    live.step(X[1], 2.0)


@pytest.mark.parametrize("kind", [olsq.RollingLeastSquares, olsq.GroupedRollingLeastSquares])
@pytest.mark.parametrize("times", [None, np.arange(12.0)], ids=["rows", "time"])
def test_a_window_of_rows_is_not_one_of_time_of_the_same_number(kind, times):
    more = {} if times is None else {"times": times}
    if kind is olsq.GroupedRollingLeastSquares:
        more["by"] = ["a"] * 12
    right, other = (9, 9.0) if times is None else (9.0, 9)
    est = kind(right).fit(X, Y, **more)
    before = est.to_bytes()
    for wrong in (other, type(other)(9) if times is not None else np.float32(9)):
        est.set_params(window=wrong)
        with pytest.raises(ValueError, match=f"window is .*9.* now, but .* window={right}, on"):
            est.to_bytes()
        with pytest.raises(ValueError, match=r"window is .*9.* now"):
            est.partial_fit(X, Y, **more)
    same = np.int64(9) if times is None else np.float64(9)
    assert est.set_params(window=same).to_bytes() == before
    olsq.loads(before)
    apart = kind(other)
    rows = {name: value for name, value in more.items() if name != "times"}
    apart.fit(X, Y, **rows, **({"times": np.arange(12.0)} if times is None else {}))
    with pytest.raises(ValueError, match="window"):
        olsq.merge(est, apart)
