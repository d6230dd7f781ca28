"""Properties of the streaming estimators under hypothesis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import olsq
from olsq.reference import regression as oracle
from tests.online.judge import check_optimal

ENTRIES = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-100, 100, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-3),
)


@st.composite
def problems(draw):
    n, d, m = draw(st.integers(1, 14)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    X = draw(arrays(np.float64, (n, d), elements=ENTRIES))
    Y = draw(arrays(np.float64, (n, m), elements=ENTRIES))
    gates = draw(arrays(np.float64, n, elements=st.sampled_from([1.0, 0.98, 0.6, 0.01, 0.0])))
    weights = draw(arrays(np.float64, n, elements=st.sampled_from([1.0, 0.0, 2.5, 0.01])))
    ridge = draw(st.sampled_from([0.0, 1e-4, 0.5]))
    return X, Y, gates, weights, ridge, draw(st.booleans())


METHODS = [("covariance", "discounted"), ("sqrt", "discounted"), ("information", "discounted"),
           ("information", "fixed")]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("method", "ridge_mode"), METHODS)
@given(problem=problems())
def test_every_estimate_is_optimal(method, ridge_mode, problem):
    X, Y, gates, weights, ridge, intercept = problem
    est = olsq.RecursiveLeastSquares(
        ridge=ridge, ridge_mode=ridge_mode, fit_intercept=intercept, method=method
    )
    path = est.partial_fit_path(X, Y, weights, forget=gates)
    assert all(np.isfinite(a).all() for a in (path.coef, path.intercept, path.residual))
    t = X.shape[0] - 1
    decay = np.prod(gates) if ridge_mode == "discounted" else 1.0
    check_optimal(
        X, Y, oracle.row_weights(gates, weights, t, None), np.full(X.shape[1], ridge * decay),
        intercept, path.coef[t], path.intercept[t], 1e-12 if method == "information" else 1e-14,
    )  # fmt: skip
    np.testing.assert_array_equal(est.coef_, path.coef[t])


@given(problem=problems(), window=st.integers(1, 6))
def test_every_window_is_optimal(problem, window):
    X, Y, _, weights, ridge, intercept = problem
    path = olsq.coefficient_path(
        X, Y, sample_weight=weights, ridge=ridge, window=window, fit_intercept=intercept,
        window_of="positions",
    )  # fmt: skip
    for t in range(X.shape[0]):
        if not weights[max(0, t + 1 - window) : t + 1].any():  # no sample, no estimate
            assert np.isnan(path.coef[t]).all()
            continue
        check_optimal(
            X[: t + 1], Y[: t + 1], oracle.row_weights(np.ones(t + 1), weights, t, window),
            np.full(X.shape[1], ridge), intercept, path.coef[t], path.intercept[t], 1e-13,
        )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("method", "ridge_mode"), METHODS)
@given(problem=problems(), cut=st.integers(1, 13))
def test_merging_equals_seeing_both(method, ridge_mode, problem, cut):
    X, Y, gates, weights, ridge, intercept = problem
    if not 0 < cut < X.shape[0]:
        return

    def fed(start, stop):
        est = olsq.RecursiveLeastSquares(
            ridge=ridge, ridge_mode=ridge_mode, fit_intercept=intercept, method=method
        )
        part = slice(start, stop)
        return est.partial_fit(X[part], Y[part], weights[part], forget=gates[part])

    n = X.shape[0]
    merged = olsq.merge(fed(0, cut), fed(cut, n))
    decay = np.prod(gates) if ridge_mode == "discounted" else 1.0
    check_optimal(
        X, Y, oracle.row_weights(gates, weights, n - 1, None), np.full(X.shape[1], ridge * decay),
        intercept, merged.coef_, merged.intercept_, 1e-11 if method == "information" else 1e-13,
    )  # fmt: skip


@given(problem=problems(), bad=st.integers(0, 13), value=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_a_non_finite_row_is_as_if_it_never_came(problem, bad, value):
    X, Y, gates, weights, ridge, intercept = problem
    bad %= X.shape[0]
    dirty = X.copy()
    dirty[bad, 0] = value
    keep = np.arange(X.shape[0]) != bad
    if not keep.any():
        return

    def path(X, Y, gates, weights):
        est = olsq.RecursiveLeastSquares(ridge=ridge, fit_intercept=intercept, method="sqrt")
        est.partial_fit(np.ones((1, X.shape[1])), np.ones((1, Y.shape[1])))
        return est.partial_fit_path(X, Y, weights, forget=gates), est

    with_bad, skipped = path(dirty, Y, gates, weights)
    without, clean = path(X[keep], Y[keep], gates[keep], weights[keep])
    np.testing.assert_array_equal(with_bad.coef[keep], without.coef)
    np.testing.assert_array_equal(skipped.coef_, clean.coef_)
    assert np.isnan(with_bad.residual[bad]).all()
    assert np.isfinite(with_bad.residual[keep]).all()
    assert skipped.n_samples_seen_ == clean.n_samples_seen_
