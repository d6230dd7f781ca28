"""The kernel that learns both real rows of a complex row at once, against single real rows."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.online.forms import covariance_kernels, pair_kernels
from olsq.online.forms.covariance import CovarianceForm
from olsq.online.forms.rows import PairedRows, Rows, Trace
from olsq.online.rows import complex_rows

LIMITS = (1e6, 1e8, 1e302)
NAMES = ("P", "theta", "columns", "tally", "loss", "spread", "residual")


def circular(rng, *shape):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)


def stream(n, d, m=1, seed=0, smallest=0.5):
    """Pairs of rows with factors from ``smallest`` to 1 and weights, some of them 0."""
    rng = np.random.default_rng(seed)
    X = circular(rng, n, d)
    Y = X @ circular(rng, d, m) + 0.3 * circular(rng, n, m)
    gates, weights = rng.uniform(smallest, 1.0, n), rng.uniform(0.1, 3.0, n)
    weights[::7] = 0.0
    return X, Y, gates, weights


def pairs_of(X, Y, gates, weights):
    return PairedRows.of(
        complex_rows.embed_rows(X), complex_rows.embed_targets(Y), complex_rows.embed_gates(gates),
        np.repeat(weights, 2),
    )  # fmt: skip


def start(columns, m, spread):
    """The form's arrays before any row, with a ridge of 0.1, and spread."""
    s = columns if spread else 0
    form = (
        np.eye(columns) / 0.1, np.zeros((m, columns)), np.full((2, columns), 0.1),
        np.array([0.0, 0.0, 1.0, 0.0]), np.zeros(m),
    )  # fmt: skip
    return form, np.zeros((s, s))


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize(("d", "m"), [(1, 1), (2, 3), (5, 1), (17, 2)])
def test_a_pair_is_its_two_rows(d, m, spread):
    rows = pairs_of(*stream(80, d, m))
    n = len(rows.X)
    found, want = start(2 * d, m, spread), start(2 * d, m, spread)
    traces = [Trace(*(np.zeros_like(a) for a in Trace.empty(n, m, 2 * d))) for _ in range(2)]
    residuals = np.zeros((n, m)), np.zeros((n, m))
    done, paired = pair_kernels.update_pairs(
        *found, tuple(rows), (0, n), LIMITS, residuals[0], traces[0].arrays
    )
    assert (done, paired) == (n, True)
    done = covariance_kernels.update(
        *want, tuple(rows), (0, n), LIMITS, residuals[1], traces[1].arrays
    )
    assert done == n
    for name, one, other in zip(
        NAMES, [*found[0], found[1], residuals[0]], [*want[0], want[1], residuals[1]], strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11, err_msg=name)
    for name, one, other in zip(Trace._fields, *traces, strict=True):
        np.testing.assert_allclose(one[1::2], other[1::2], rtol=1e-9, atol=1e-11, err_msg=name)
    np.testing.assert_allclose(traces[0].recursive, traces[1].recursive, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(traces[0].counts, traces[1].counts)


@pytest.mark.parametrize("d", [1, 3, 4, 8, 13])
def test_hermitian_to_the_last_bit_after_many_rows(d):
    """A fused multiplication in the update makes it indefinite after some 3,000 rows."""
    X, Y, gates, weights = stream(6_000, d, smallest=0.9)
    rows, state = pairs_of(X, Y, gates, weights), start(2 * d, 1, False)
    n = len(rows.X)
    residual = np.empty((n, 1))
    done, _ = pair_kernels.update_pairs(
        *state, tuple(rows), (0, n), LIMITS, residual, Trace.none(1, 2 * d).arrays
    )
    assert done == n
    P, theta = state[0][:2]
    A, B = P[:d, :d], P[d:, :d]
    for one, other in ((A, A.T), (B, -B.T), (A, P[d:, d:]), (B, -P[:d, d:])):
        np.testing.assert_array_equal(one, other)
    w = weights * np.append(np.cumprod(gates[:0:-1])[::-1], 1.0)
    H = X.conj().T @ (w[:, None] * X)
    np.testing.assert_allclose(A + 1j * B, np.linalg.inv(H), rtol=0, atol=1e-12 * d)
    truth = np.linalg.solve(H, X.conj().T @ (w * Y[:, 0]))
    np.testing.assert_allclose(complex_rows.combine_coefficients(theta)[0], truth, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_embedding_of_a_block(dtype):
    X = circular(np.random.default_rng(0), 7, 3).astype(dtype)
    found = np.empty((14, 6))
    pair_kernels.embed(complex_rows.real_parts(X), found)
    np.testing.assert_array_equal(found, complex_rows.embed_rows(X))
    for n, k in ((13, 6), (14, 5), (16, 6)):
        with pytest.raises(ValueError, match="shape"):
            pair_kernels.embed(complex_rows.real_parts(X), np.empty((n, k)))
    with pytest.raises(ValueError, match="shape"):
        pair_kernels.embed(np.empty((7, 5)), np.empty((14, 4)))


def form_after(rows, n, d):
    """A covariance form that has learnt the first n rows, one at a time."""
    form = CovarianceForm.start(np.full(2 * d, 0.1), 1, False)
    form.update(Rows(*rows), 0, n, np.empty((len(rows.X), 1)), Trace.none(1, 2 * d))
    return form


def test_a_form_within_a_pair_completes_it_first():
    rows = pairs_of(*stream(20, 3))
    for begun in (7, 39):
        form, want = form_after(Rows(*(a[:begun] for a in rows)), begun, 3), form_after(rows, 40, 3)
        residual = np.empty((40, 1))
        assert form.update(rows, begun, 40, residual, Trace.none(1, 6)) == 40
        np.testing.assert_allclose(form.P, want.P, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(form.theta, want.theta, rtol=1e-11, atol=1e-12)


def test_another_covariance_takes_single_rows():
    """One that is not of pairs, as after a row that is not one of a pair."""
    rows = pairs_of(*stream(20, 3))
    form, want = (form_after(rows, 3, 3) for _ in range(2))
    before = form.P.copy()
    state, residual = (form.in_kernels, form.spread), np.empty((40, 1))
    done = pair_kernels.update_pairs(
        *state, tuple(rows), (4, 40), LIMITS, residual, Trace.none(1, 6).arrays
    )
    assert done == (4, False)
    np.testing.assert_array_equal(form.P, before)
    trace = Trace.none(1, 6)
    assert form.update(rows, 4, 40, np.empty((40, 1)), trace) == 40
    assert want.update(Rows(*rows), 4, 40, np.empty((40, 1)), trace) == 40
    np.testing.assert_array_equal(form.P, want.P)
    np.testing.assert_array_equal(form.theta, want.theta)


@pytest.mark.parametrize("why", ["leverage", "gate", "wind-up", "inflation"])
def test_stops_before_a_pair_that_the_form_cannot_take(why):
    X, Y, gates, weights = stream(20, 3)
    form = CovarianceForm.start(np.full(6, 0.1), 1, False)
    if why == "leverage":
        X[10] *= 1e4
    elif why == "gate":
        gates[10] = 1e-5
    elif why == "wind-up":
        form.columns[1, 1] = 1e9
    else:
        form.columns[0, 4] = 1e9
    rows, residual = pairs_of(X, Y, gates, weights), np.full((40, 1), np.nan)
    stopped = 20 if why in ("leverage", "gate") else 0
    assert form.update(rows, 0, 40, residual, Trace.none(1, 6)) == stopped
    assert np.isfinite(residual[:stopped]).all()
    assert np.isnan(residual[stopped:]).all()
    want = form_after(rows, stopped, 3)
    np.testing.assert_allclose(form.P, want.P, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spoiled", ["silent", "collinear", "loud", "reset"])
def test_every_way_out_of_the_form_and_back(spoiled):
    """Against the square-root method, with the residuals of a fit, which has no trace."""
    X, Y, _, _ = stream(3_000, 3)
    gates, some = np.full(3_000, 0.95), slice(1_000, 2_001)
    if spoiled == "silent":
        X[some, 1] = 0.0
    elif spoiled == "collinear":
        X[some, 1] = (1 + 1j) * X[some, 0]
    elif spoiled == "loud":
        X[some] *= 1e5
    else:
        gates[2_000] = 0.0
    one, other = (
        olsq.RecursiveLeastSquares(fit_intercept=False, method=method).partial_fit(
            X, Y[:, 0], forget=gates
        )
        for method in ("covariance", "sqrt")
    )
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-7)
    np.testing.assert_allclose(one.sigma2_, other.sigma2_, rtol=1e-7)
    np.testing.assert_allclose(one.coef_stderr_, other.coef_stderr_, rtol=1e-6)
    settled = np.r_[3:1_000, 2_200:3_000]
    np.testing.assert_allclose(
        one.residual_[settled], other.residual_[settled], rtol=1e-6, atol=1e-8
    )
