"""Moments out of an estimator and into one: going on from them equals never having stopped.

The judge is the dense oracle over all rows, before and after the conversion.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq.reference import regression as oracle
from tests.online import streams
from tests.online.converting import (
    CUT,
    EPS,
    MODES,
    RLS,
    STEADY,
    N,
    check_against_oracle,
    split_fit,
    weights_at,
)  # fmt: skip
from tests.online.judge import tolerance
from tests.versions import in_one_program, x64

SLOW = pytest.mark.slow
online_lstsq = in_one_program(olsq.sequence.jax.online_lstsq)


@pytest.mark.full
@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("method", "ridge_mode"), MODES + STEADY)
@pytest.mark.parametrize("forgetting", ["gates vary", "resets"])
def test_going_on_equals_never_having_stopped(
    forgetting, method, ridge_mode, intercept, dtype, targets
):
    X, y, gates, weights = streams.make("ar1", forgetting, m=targets)
    if (method, ridge_mode) in STEADY:
        gates = np.ones(N)
    X, y = X.astype(dtype), (y if targets > 1 else y[:, 0]).astype(dtype)
    parameters = {
        "method": method, "ridge_mode": ridge_mode, "fit_intercept": intercept, "ridge": 0.3,
    }  # fmt: skip
    est, first, at_once = split_fit(parameters, X, y, gates, weights, dtype=dtype)
    plain = RLS(**parameters).partial_fit(X, y, weights, forget=gates)
    condition = check_against_oracle(est, X, y, gates, weights, 0.3, N, dtype)
    allowed = tolerance("information", EPS[dtype], condition, 1.0) * float(np.abs(y).max())
    assert allowed < 0.2
    for got, want in [(at_once, (first.coef_, first.intercept_)),
                      ((est.coef_, est.intercept_), (plain.coef_, plain.intercept_))]:  # fmt: skip
        assert got[0].shape == want[0].shape
        assert np.shape(got[1]) == np.shape(want[1])
        np.testing.assert_allclose(got[0], want[0], atol=allowed)
        np.testing.assert_allclose(got[1], want[1], atol=allowed)
    assert est.coef_.dtype == dtype
    assert est.residual_.shape == y[CUT:].shape
    assert est.rank_ == plain.rank_
    assert est.n_samples_seen_ == N - CUT
    for a, b in zip(est.moments(), plain.moments(), strict=True):
        assert a.dtype == np.float64
        np.testing.assert_allclose(a, b, rtol=0, atol=2e3 * EPS[dtype] * np.abs(b).max())


@pytest.mark.parametrize(("method", "ridge_mode"), MODES)
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
def test_every_stream(regressors, method, ridge_mode):
    X, y, gates, weights = streams.make(regressors, "gates .95")
    parameters = {"method": method, "ridge_mode": ridge_mode, "ridge": 0.01, "fit_intercept": True}
    est, _, _ = split_fit(parameters, X, y, gates, weights)
    check_against_oracle(est, X, y, gates, weights, 0.01, N, np.float64)
    assert np.isfinite(est.coef_).all()


@pytest.mark.parametrize(("method", "ridge_mode"), MODES)
def test_many_regressors(method, ridge_mode):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 30)), rng.standard_normal((400, 2))
    gates, weights = np.full(400, 0.98), np.ones(400)
    parameters = {"method": method, "ridge_mode": ridge_mode, "ridge": 0.1, "fit_intercept": True}
    est, _, _ = split_fit(parameters, X, y, gates, weights, cut=200)
    plain = RLS(**parameters).partial_fit(X, y, forget=gates)
    np.testing.assert_allclose(est.coef_, plain.coef_, atol=1e-12)
    assert est._engine.form.name == ("fixed ridge" if ridge_mode == "fixed" else "factor")


# -- with the JAX side --------------------------------------------------------------------------


@pytest.fixture
def double():
    with x64(True):
        yield


# To JAX an intercept is a column of ones among the keys.
INTERCEPT = pytest.mark.parametrize("intercept", [True, pytest.param(False, marks=SLOW)])


def as_keys(X, intercept):
    return np.hstack([np.ones((len(X), 1)), X]) if intercept else X


def as_ridge(ridge, d, intercept):
    return np.r_[np.zeros(int(intercept)), np.full(d, ridge)]


@pytest.mark.full
@INTERCEPT
@pytest.mark.parametrize(("method", "ridge_mode"), MODES)
def test_both_sides_have_the_same_moments(double, method, ridge_mode, intercept):
    X, y, gates, weights = streams.make("white", "gates vary", m=2)
    est = RLS(
        method=method, ridge_mode=ridge_mode, fit_intercept=intercept, ridge=0.3
    ).partial_fit(X, y, weights, forget=gates)  # fmt: skip
    keys, ridge = as_keys(X, intercept), as_ridge(0.3, X.shape[1], intercept)
    whole = online_lstsq(
        keys, y, keys, forget=gates, weight=weights, ridge=ridge, ridge_mode=ridge_mode
    )
    for ours, theirs in zip(est.moments(), whole.state, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12 * np.abs(theirs).max())
    fixed = {"ridge": ridge} if ridge_mode == "fixed" else {}
    at = np.random.default_rng(1).standard_normal((5, X.shape[1]))
    for x, query in zip(at, as_keys(at, intercept), strict=True):
        answer = olsq.query(est.moments(), query, **fixed)
        np.testing.assert_allclose(answer, est.predict(x[None])[0], rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=SLOW)])
@INTERCEPT
@pytest.mark.parametrize(("method", "ridge_mode"), MODES)
def test_going_on_from_a_jax_solution_and_back(double, method, ridge_mode, intercept, dtype):
    X, y, gates, weights = streams.make("white", "gates .95", m=2)
    X, y = X.astype(dtype), y.astype(dtype)
    keys, ridge = as_keys(X, intercept).astype(dtype), as_ridge(0.3, X.shape[1], intercept)

    def lstsq(part, **given):
        return online_lstsq(
            keys[part], y[part], keys[part], forget=gates[part], weight=weights[part],
            ridge_mode=ridge_mode, **given,
        )  # fmt: skip

    part, rest = slice(CUT), slice(CUT, N)
    est = RLS.from_moments(
        lstsq(part, ridge=ridge).state,
        ridge_mode=ridge_mode, fit_intercept=intercept, method=method, ridge=0.3,
    ).partial_fit(X[rest], y[rest], weights[rest], forget=gates[rest])  # fmt: skip
    check_against_oracle(est, X, y, gates, weights, 0.3, N, dtype)
    assert est.coef_.dtype == dtype
    # and the other way round: JAX goes on from an estimator
    first = RLS(method=method, ridge_mode=ridge_mode, fit_intercept=intercept, ridge=0.3)
    first.partial_fit(X[part], y[part], weights[part], forget=gates[part])
    given = {"ridge": ridge} if ridge_mode == "fixed" else {}
    whole = lstsq(rest, state=first.moments(), **given)
    np.testing.assert_allclose(
        whole.value[-1], est.predict(X[-1:])[0], atol=1e5 * EPS[dtype] * np.abs(y).max()
    )


def test_rolling_moments_are_those_of_the_window(double):
    X, y, _, weights = streams.make("white", "gates vary")
    for stop in (5, 20, 21, N):
        est = olsq.RollingLeastSquares(window=20, ridge=0.3)
        est.partial_fit(X[:stop], y[:stop, 0], weights[:stop])
        inside = slice(max(0, stop - 20), stop)
        keys, w = as_keys(X[inside], True), weights[inside]
        gram = (w * keys.T) @ keys + np.diag(as_ridge(0.3, 3, True))
        moments = est.moments()
        np.testing.assert_allclose(moments.gram, gram, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(moments.cross, (w * y[inside].T) @ keys, rtol=1e-11, atol=1e-11)
        answer = olsq.query(moments, as_keys(X[:1], True)[0])
        np.testing.assert_allclose(answer[0], est.predict(X[:1])[0], rtol=1e-10)
    young = olsq.RollingLeastSquares(window=20, min_samples=10).partial_fit(X[:5], y[:5, 0])
    with pytest.raises(ValueError, match="no estimate yet"):
        young.moments()


# -- merging ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_kind", ["numpy", "jax"])
@pytest.mark.parametrize("second_kind", ["numpy", "jax"])
def test_merging_moments(double, first_kind, second_kind):
    X, y, gates, _ = streams.make("white", "gates .95")

    def part(rows, kind, ridge):
        est = RLS(method="information", ridge=ridge, fit_intercept=False)
        est.partial_fit(X[rows], y[rows], forget=gates[rows])
        return olsq.Moments(*map({"numpy": np.asarray, "jax": jnp.asarray}[kind], est.moments()))

    merged = olsq.merge(
        part(slice(CUT), first_kind, 0.3), part(slice(CUT, N), second_kind, 0.0),
        forget=np.prod(gates[CUT:]),
    )  # fmt: skip
    assert isinstance(merged.gram, np.ndarray) == ((first_kind, second_kind) == ("numpy", "numpy"))
    est = RLS.from_moments(merged, ridge_mode="discounted", fit_intercept=False)
    best, _, _, _, _ = oracle.solve(
        X, y, weights_at(gates, np.ones(N), N), np.full(3, 0.3) * np.prod(gates), False
    )
    np.testing.assert_allclose(np.atleast_2d(est.coef_), best, rtol=1e-11)


def test_merging_numpy_moments():
    one = olsq.Moments(np.eye(2), np.ones((1, 2)))
    lost = olsq.Moments(np.full((2, 2), np.nan), np.full((1, 2), np.inf))
    np.testing.assert_array_equal(olsq.merge(lost, one, forget=0).gram, np.eye(2))
    assert np.isnan(olsq.merge(lost, one).gram).all()
    single = olsq.Moments(*(a.astype(np.float32) for a in one))
    assert olsq.merge(single, single, forget=0.5).gram.dtype == np.float32
    assert olsq.merge(single, one).gram.dtype == np.float64
    batch = olsq.Moments(np.stack([np.eye(2)] * 3), np.ones((3, 1, 2)))
    gates = np.array([0.0, 0.5, 1.0])
    np.testing.assert_array_equal(olsq.merge(batch, batch, forget=gates).gram[:, 0, 0], 1 + gates)
    with pytest.raises(ValueError, match=r"cannot merge: cross has shape \(1, 2\)"):
        olsq.merge(one, olsq.Moments(np.eye(2), np.ones((2, 2))))
    with pytest.raises(ValueError, match="forget must lie in"):
        olsq.merge(one, one, forget=1.5)


@pytest.mark.parametrize(("method", "ridge_mode"), MODES)
def test_merging_estimators_of_which_one_began_from_moments(method, ridge_mode):
    X, y, gates, weights = streams.make("white", "gates .95", m=2)
    parameters = {"method": method, "ridge_mode": ridge_mode, "fit_intercept": True, "ridge": 0.3}
    first, _, _ = split_fit(parameters, X[:40], y[:40], gates[:40], weights[:40])
    second = RLS(**parameters).partial_fit(X[40:], y[40:], weights[40:], forget=gates[40:])
    merged = olsq.merge(first, second)
    check_against_oracle(merged, X, y, gates, weights, 0.3, N, np.float64)
    assert np.isinf(merged.sigma2_).all()
    with pytest.raises(ValueError, match=r"began from moments.*merge both as moments"):
        olsq.merge(second, first)
    # unless it forgot them: then all it has forgotten is known
    anew = X[:20], y[:20]
    first.partial_fit(*anew, forget=np.r_[0.0, np.ones(19)])
    afterwards = olsq.merge(second, first)
    plain = RLS(**parameters).partial_fit(*anew, forget=np.r_[0.0, np.ones(19)])
    np.testing.assert_allclose(afterwards.coef_, plain.coef_, rtol=1e-10)
