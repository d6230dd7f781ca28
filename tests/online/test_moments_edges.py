"""Estimators made from moments: what moments leave open, singular and extreme ones, refusals."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import olsq
from olsq.reference import regression as oracle
from tests.online import streams
from tests.online.converting import METHODS, MODES, RLS, split_fit, weights_at
from tests.online.judge import check_optimal
from tests.tiers import examples


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("intercept", [True, False])
def test_statistics_are_unknown_until_a_reset(method, intercept):
    X, y, gates, weights = streams.make("white", "gates .95")
    parameters = {"method": method, "ridge_mode": "discounted", "fit_intercept": intercept}
    est, _, _ = split_fit(parameters, X, y[:, 0], gates, weights)
    assert np.isposinf(est.sigma2_)
    assert np.isposinf(est.coef_stderr_).all()
    assert est.determined_.all()
    path = est.partial_fit_path(X[:20], y[:20, 0], forget=np.r_[np.ones(4), 0.0, np.ones(15)])
    assert np.isposinf(path.sigma2[:4]).all()
    plain = RLS(**parameters).fit(X[:1], y[:1, 0])
    anew = plain.partial_fit_path(X[4:20], y[4:20, 0], forget=np.r_[0.0, np.ones(15)])
    np.testing.assert_allclose(est.coef_, plain.coef_, rtol=1e-10)
    np.testing.assert_allclose(est.sigma2_, plain.sigma2_, rtol=1e-9)
    np.testing.assert_allclose(est.coef_stderr_, plain.coef_stderr_, rtol=1e-9)
    np.testing.assert_allclose(path.sigma2[10:], anew.sigma2[6:], rtol=1e-9)
    est.fit(X, y[:, 0])  # and ``fit`` starts from the ridge given, as ever
    np.testing.assert_array_equal(est.coef_, RLS(**parameters).fit(X, y[:, 0]).coef_)


@pytest.mark.parametrize(("method", "ridge_mode"), MODES)
@pytest.mark.parametrize("d", [3, 30])
def test_saved_and_loaded_goes_on_bit_for_bit(tmp_path, method, ridge_mode, d):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, d)), rng.standard_normal(80)
    parameters = {"method": method, "ridge_mode": ridge_mode, "fit_intercept": True}
    est = RLS.from_moments(RLS(**parameters).fit(X, y).moments(), forget=0.98, **parameters)
    est.save(tmp_path / "state.olsq")
    loaded = olsq.load(tmp_path / "state.olsq")
    assert isinstance(loaded, RLS)
    assert loaded.get_params() == est.get_params()
    for e in (est, loaded):
        e.partial_fit(X, y)
    for name, array in est._engine.arrays().items():
        assert array.tobytes() == loaded._engine.arrays()[name].tobytes(), name


def test_a_data_frame_goes_on(recwarn):
    X, y, _, _ = streams.make("white", "gates 1")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    est = RLS.from_moments(
        RLS().fit(frame[:20], y[:20, 0]).moments(), ridge_mode="discounted", fit_intercept=True
    ).partial_fit(frame[20:], y[20:, 0])
    np.testing.assert_allclose(est.coef_, RLS().fit(X, y[:, 0]).coef_, rtol=1e-10)


# -- singular and extreme -----------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["few rows", "zero first", "zero last", "twins", "all zero"])
def test_singular_moments_are_of_minimum_norm_until_determined(kind, dtype, intercept, method):
    rng = np.random.default_rng(5)
    X = (np.round(rng.standard_normal((60, 4)) * 64) / 64).astype(dtype)  # twins: exactly
    cut, stop = 3 if kind == "few rows" else 25, 40
    if kind == "zero first":
        X[:stop, 0] = 0
    elif kind == "zero last":
        X[:stop, 3] = 0
    elif kind == "twins":
        X[:stop, 2] = X[:stop, 0] - X[:stop, 1]
    elif kind == "all zero":
        X[:cut] = 0
    y = (X @ rng.standard_normal((4, 2)) + 0.1 * rng.standard_normal((60, 2))).astype(dtype)
    if kind == "all zero":
        y[:cut] = 0
    est = RLS(method=method, ridge=0.0, fit_intercept=intercept).fit(X[:cut], y[:cut])
    est = RLS.from_moments(
        olsq.Moments(*(s.astype(dtype) for s in est.moments())),
        ridge_mode="discounted", fit_intercept=intercept, method=method,
    )  # fmt: skip
    exact = 3e-10 if dtype == np.float64 else 3e-3
    for begin, end in [(cut, cut), (cut, cut + 1), (cut + 1, stop), (stop, 60)]:
        est.partial_fit(X[begin:end], y[begin:end])
        best, bias, _, rank, _ = oracle.solve(
            X[:end].astype(np.float64), y[:end].astype(np.float64), np.ones(end), np.zeros(4),
            intercept,
        )  # fmt: skip
        assert est.rank_ == rank + intercept
        np.testing.assert_allclose(est.coef_, best, atol=exact)
        np.testing.assert_allclose(est.intercept_, bias if intercept else 0, atol=exact)
        assert est.determined_.all() == (rank == 4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_units_do_not_matter(method, scale):
    X, y, gates, weights = streams.make("ar1", "gates .95")
    parameters = {
        "method": method, "ridge": 0.0, "ridge_mode": "discounted", "fit_intercept": False,
    }  # fmt: skip
    plain, _, _ = split_fit(parameters, X, y, gates, weights)
    both, _, _ = split_fit(parameters, X * scale, y * scale, gates, weights)
    np.testing.assert_allclose(both.coef_, plain.coef_, rtol=1e-9)
    keys, _, _ = split_fit(parameters, X * scale, y, gates, weights)
    np.testing.assert_allclose(keys.coef_ * scale, plain.coef_, rtol=1e-9)
    one, _, _ = split_fit(parameters, X * [1.0, scale, 1.0], y, gates, weights)
    np.testing.assert_allclose(one.coef_ * [1.0, scale, 1.0], plain.coef_, rtol=1e-9)


# -- refusals -----------------------------------------------------------------------------------

GRAM, CROSS = np.array([[2.0, 1.0], [1.0, 2.0]]), np.ones((1, 2))


@pytest.mark.parametrize(
    ("moments", "error", "match"),
    [
        ((GRAM, CROSS), TypeError, r"moments must be olsq\.Moments, got tuple"),
        (olsq.Moments(np.triu(GRAM), CROSS), ValueError, r"moments\.gram must be symm"),
        (olsq.Moments(GRAM - 1.9 * np.eye(2), CROSS), ValueError, r"gram must be positive semi"),
        (olsq.Moments(-GRAM, CROSS), ValueError, r"gram must be positive semi"),
        (olsq.Moments(np.array([[0, 1.0], [1.0, 2]]), CROSS), ValueError, "gram must be"),
        (olsq.Moments(1e300 * np.array([[1, 1.7], [-1.7, 1]]), CROSS), ValueError, "symmetric"),
        (olsq.Moments(GRAM * [[1, np.nan], [np.nan, 1]], CROSS), ValueError, r"\.gram must be fin"),
        (olsq.Moments(GRAM, CROSS * np.inf), ValueError, r"moments\.cross must be finite"),
        (olsq.Moments(GRAM + 0j, CROSS), TypeError, r"moments\.gram must be real.*complex128"),
        (olsq.Moments(GRAM, CROSS.astype(str)), TypeError, r"moments\.cross must be real"),
        (olsq.Moments(GRAM[None], CROSS[None]), ValueError, r"without batch axes, got \(1, 2, 2\)"),
        (olsq.Moments(GRAM[:1], CROSS), ValueError, r"gram must have shape \(d, d\)"),
        (olsq.Moments(2.0, 1.0), ValueError, r"gram must have shape \(d, d\)"),
        (olsq.Moments(np.zeros((0, 0)), np.zeros((1, 0))), ValueError, "gram must have shape"),
        (olsq.Moments(GRAM, CROSS[0]), ValueError, r"cross must have shape \(m, 2\), got \(2,\)"),
        (olsq.Moments(GRAM, CROSS[:, :1]), ValueError, r"cross must have shape \(m, 2\)"),
        (olsq.Moments(GRAM, CROSS[:0]), ValueError, r"cross must have shape \(m, 2\)"),
        (olsq.Moments(GRAM * [[1, 0], [0, 0]], CROSS), ValueError, r"cross must be zero where"),
        (olsq.Moments(GRAM * 1e-300, CROSS * 1e300), ValueError, r"cross is too large"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", METHODS)
def test_what_are_no_moments_is_refused(method, moments, error, match):
    with pytest.raises(error, match=match):
        RLS.from_moments(moments, ridge_mode="discounted", fit_intercept=False, method=method)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"ridge_mode": "none"}, "ridge_mode must be one of"),
        ({"method": "qr"}, "method must be one of"),
        ({"forget": 1.5}, "forget must lie in"),
        ({"half_life": -1}, "half_life must be"),
        ({"ridge": [1.0, 2.0, 3.0]}, r"ridge must be a number or one number per feature \(2\)"),
    ],
)
def test_parameters_are_checked_at_once(parameters, match):
    given = {"ridge_mode": "discounted", "fit_intercept": False} | parameters
    with pytest.raises(ValueError, match=match):
        RLS.from_moments(olsq.Moments(GRAM, CROSS), **given)


def test_an_intercept_needs_its_column():
    one = olsq.Moments(np.ones((1, 1)), np.ones((1, 1)))
    with pytest.raises(ValueError, match=r"give fit_intercept=False"):
        RLS.from_moments(one, ridge_mode="discounted", fit_intercept=True)
    est = RLS.from_moments(one, ridge_mode="discounted", fit_intercept=False)
    np.testing.assert_allclose(est.coef_, [1.0])


def test_not_fitted_has_no_moments():
    for est in (RLS(), olsq.RollingLeastSquares()):
        with pytest.raises(ValueError, match="not fitted"):
            est.moments()


# -- property -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "ridge_mode"), MODES)
@settings(max_examples=examples(40))
@given(
    n=st.integers(2, 14), d=st.integers(1, 4), m=st.integers(1, 2), intercept=st.booleans(),
    ridge=st.sampled_from([0.0, 0.1]), cut=st.integers(1, 13), seed=st.integers(0, 2**32 - 1),
    gate=st.sampled_from([1.0, 0.9, 0.5]), reset=st.integers(-1, 13),
)  # fmt: skip
def test_stopping_anywhere_changes_no_optimum(
    method, ridge_mode, n, d, m, intercept, ridge, cut, seed, gate, reset
):
    """Whatever small integers the rows are, often singular: the objective stays at its minimum."""
    rng = np.random.default_rng(seed)
    X, Y = rng.integers(-2, 3, (n, d)).astype(float), rng.integers(-5, 6, (n, m)).astype(float)
    gates, weights = np.full(n, gate), rng.choice([0.0, 1.0, 2.5], n)
    if 0 <= reset < n:
        gates[reset] = 0.0
    parameters = {
        "method": method, "ridge_mode": ridge_mode, "fit_intercept": intercept, "ridge": ridge,
    }  # fmt: skip
    est, _, _ = split_fit(parameters, X, Y, gates, weights, cut=min(cut, n - 1))
    decay = np.prod(gates) if ridge_mode == "discounted" else 1.0
    check_optimal(
        X, Y, weights_at(gates, weights, n), np.full(d, ridge * decay), intercept,
        np.atleast_2d(est.coef_), np.atleast_1d(est.intercept_), 1e-12,
    )  # fmt: skip


@pytest.mark.parametrize("intercept", [False, True])
def test_moments_of_too_few_rows_determine_nothing(intercept):
    """Rounding errors of their sums must not pass for the rows that are missing."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(3, 12))
        n = int(rng.integers(2, d + intercept))
        X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
        est = olsq.RecursiveLeastSquares(ridge=0.0, method="information", fit_intercept=intercept)
        est.fit(X, y)
        assert not est.determined_.any()
        mean = int(intercept) * X.mean(0)
        want = np.linalg.pinv(X - mean) @ (y - int(intercept) * y.mean())
        np.testing.assert_allclose(est.coef_, want, rtol=0, atol=1e-6 * np.abs(want).max())
