"""Rows of large models go in blocks, by LAPACK: the same results as one row at a time.

The blocks are switched on for small models here, so that the streams are those that break solvers.
"""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

import olsq
from olsq.linalg.numpy import lapack
from olsq.online.forms import lapack as factors
from olsq.online.forms import square_root_blocks
from tests.online import streams

RLS = olsq.RecursiveLeastSquares
NEVER = 10**9


def switch(monkeypatch, on: bool, rows: int = 8) -> None:
    first = 1 if on else NEVER
    monkeypatch.setattr(square_root_blocks, "BLOCKED_FROM", first)
    monkeypatch.setattr(square_root_blocks, "BLOCK", rows)
    monkeypatch.setattr(square_root_blocks, "FEWEST", 2)


def learn(est, stream, cuts=(0, 25, 26, 48)):
    """The estimator after the stream in several calls, and all residuals."""
    residuals = []
    for start, stop in itertools.pairwise(cuts):
        part = slice(start, stop)
        est.partial_fit(
            stream.X[part], stream.y[part], stream.weights[part], forget=stream.gates[part]
        )
        residuals.append(est.residual_)
    return est, np.concatenate(residuals)


def check_equal(got, want, stream, lost: float) -> None:
    """Same results to ``lost`` rounding errors, of terms in the data's units."""
    (est, residual), (other, truth) = got, want
    size = max(1e-300, np.abs(stream.y[np.isfinite(stream.y)]).max(initial=0.0))
    np.testing.assert_allclose(residual, truth, rtol=0, atol=lost * size)
    X = np.nan_to_num(stream.X)
    np.testing.assert_allclose(est.predict(X), other.predict(X), rtol=0, atol=lost * size)
    assert (est.determined_ == other.determined_).all()
    assert est.rank_ == other.rank_
    assert est.n_samples_seen_ == other.n_samples_seen_
    np.testing.assert_allclose(est.sigma2_, other.sigma2_, rtol=lost, atol=lost * size**2)
    for name in ("tally", "columns"):
        a, b = (getattr(e._engine.form, name) for e in (est, other))
        np.testing.assert_allclose(a, b, rtol=1e-13)
    if est.cov == "sandwich" and lost > 1e-9:  # P S P of a direction that is nearly lost
        return
    known = est.determined_ & (other.sigma2_ > 1e-20 * size**2)
    np.testing.assert_allclose(
        est.coef_stderr_[..., known], other.coef_stderr_[..., known], rtol=1e-6
    )


OPTIONS = [
    {"ridge": 0.3, "fit_intercept": False},
    {"ridge": 0.0, "fit_intercept": True},
    {"ridge": 0.3, "fit_intercept": True, "cov": "sandwich"},
    {"prior": (np.ones(3), np.ones(3)), "fit_intercept": False},
]


@pytest.mark.full
@pytest.mark.parametrize("forgetting", streams.FORGETTING)
@pytest.mark.parametrize("regressors", streams.REGRESSORS)
@pytest.mark.parametrize("method", ["sqrt", "covariance"])
def test_blocks_give_what_rows_give(method, regressors, forgetting, monkeypatch):
    number = list(streams.REGRESSORS).index(regressors) + list(streams.FORGETTING).index(forgetting)
    options = OPTIONS[number % len(OPTIONS)]
    stream = streams.make(regressors, forgetting)
    stream = stream._replace(y=stream.y[:, 0])
    found = []
    for on in (True, False):
        switch(monkeypatch, on)
        found.append(learn(RLS(method=method, **options), stream))
    # QR of a block loses eps kappa^2 times the residual, kappa 1e5 after the gates of 1e-7.
    check_equal(*found, stream, 1e-5 if forgetting == "near resets" else 1e-9)


@pytest.mark.parametrize("method", ["sqrt", "covariance", "information"])
def test_blocks_of_several_targets_with_missing_rows(method, monkeypatch):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((90, 5)) + 3, rng.standard_normal((90, 3))
    y[rng.random(y.shape) < 0.05], X[40, 2] = np.nan, np.inf
    stream = streams.Stream(X, y, np.full(90, 0.97), rng.random(90) + 0.1)
    for missing in ("skip", "skip_target"):
        found = []
        for on in (True, False):
            switch(monkeypatch, on)
            est = RLS(method=method, missing=missing, residuals=method != "information")
            est.partial_fit(X[:50], y[:50], stream.weights[:50], forget=0.97)
            est.partial_fit(X[50:], y[50:], stream.weights[50:], forget=0.97)
            found.append(est)
        for name in ("coef_", "intercept_", "sigma2_", "coef_stderr_"):
            a, b = (getattr(est, name) for est in found)
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("d", [31, 32, 33, 65])
def test_wide_models_agree_with_a_dense_solve(d):
    rng = np.random.default_rng(d)
    n = 3 * d + 140
    X, y = rng.standard_normal((n, d)), rng.standard_normal((n, 2))
    est = RLS(forget=0.999, ridge=0.1, fit_intercept=False)
    errors = []
    for start in range(0, n, 140):
        est.partial_fit(X[start : start + 140], y[start : start + 140])
        errors.append(est.residual_)
    left = 0.999 ** np.arange(n - 1, -1, -1)
    for t in (1, d, n - 1):  # before row t
        weight = left[:t] / left[t - 1]
        gram = (weight[:, None] * X[:t]).T @ X[:t] + 0.1 * 0.999**t * np.eye(d)
        theta = np.linalg.solve(gram, (weight[:, None] * X[:t]).T @ y[:t])
        np.testing.assert_allclose(np.concatenate(errors)[t], y[t] - X[t] @ theta, atol=1e-10)


def test_a_singular_factor_and_a_pause():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    X[:, 3] = X[:, 0] + X[:, 1]
    y = rng.standard_normal(60)
    est = RLS(method="sqrt", ridge=0.0, fit_intercept=False).partial_fit(X, y)
    assert est.rank_ == 3
    np.testing.assert_allclose(est.coef_, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-12)
    gates = np.ones(60)
    gates[30] = 2.0**-1000  # a pause of 1,000 half-lives
    est = RLS(method="sqrt", ridge=1.0, fit_intercept=False)
    est.partial_fit(X[:, :3], y, forget=gates)
    alone = np.linalg.lstsq(X[30:, :3], y[30:], rcond=None)[0]
    np.testing.assert_allclose(est.coef_, alone, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sqrt", "covariance", "information"])
def test_a_call_needs_two_states(method):
    d = 800
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((64, d)), rng.standard_normal(64)
    prior = np.zeros(d), np.full(d, 1e-3)
    est = RLS(method=method, prior=prior, fit_intercept=False, residuals=False)
    est.partial_fit(X, y)
    tracemalloc.start()
    est.partial_fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 1.4 * 8 * d**2  # and the state itself, which was there before


@pytest.mark.parametrize(("d", "b", "p"), [(1, 4, 2), (3, 2, 0), (32, 5, 3), (33, 40, 1)])
def test_rotate_rows_in(d, b, p):
    rng = np.random.default_rng(d)
    R, A = np.triu(rng.standard_normal((d, d))), rng.standard_normal((b, d + p))
    beside = rng.standard_normal((d, p))
    A[:, 0] = 0.0  # a column that no reflection changes
    whole = np.vstack([np.hstack([0.7 * R, beside]), A])
    out = np.zeros((d, d))
    lapack.rotate_rows_in(R, A, beside, 0.7, out)
    rotated = np.vstack([np.hstack([out, beside]), np.hstack([np.zeros((b, d)), A[:, d:]])])
    np.testing.assert_allclose(rotated.T @ rotated, whole.T @ whole, atol=1e-12)
    assert (np.diagonal(out) >= 0).all()
    assert not np.tril(out, -1).any()
    with pytest.raises(ValueError, match="shapes"):
        lapack.rotate_rows_in(R, A, beside, 0.7, np.zeros((d + 1, d)))


@pytest.mark.parametrize("d", [1, 7, 40])
def test_many_targets_are_solved_together(d):
    rng = np.random.default_rng(d)
    R, G = np.triu(rng.standard_normal((d, d))) + 3 * np.eye(d), rng.standard_normal((12, d))
    for m in (1, 12):
        theta = factors.solve_triangle(R, G[:m])
        np.testing.assert_allclose(theta, np.linalg.solve(R, G[:m].T).T, atol=1e-12)
        assert theta.flags.c_contiguous


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sqrt", "covariance", "information"])
def test_files_and_merging_need_few_states(method, tmp_path):
    d, path = 800, tmp_path / "state.olsq"
    X = np.random.default_rng(0).standard_normal((64, d))

    def fitted():
        est = RLS(method=method, ridge=4.0 * d, fit_intercept=False, residuals=False)
        return est.partial_fit(X, X[:, 0])

    est, other = fitted(), fitted()
    small = RLS(method=method).partial_fit(X[:, :2], X[:, 0])
    olsq.merge(small, olsq.loads(small.to_bytes()))  # imports and compiles
    # Beside the estimators that are there: a copy that later rows do not change; the file and the
    # state; copies of both, the result, and room for the factors of an inverse, or for what is left
    # of second's root without its ridge: the factor of its share, the rows and their errors.
    for work, states in (
        (lambda: est.save(path), 1.2), (lambda: olsq.load(path), 2.2),
        (lambda: olsq.merge(est, other), 5.2),
    ):  # fmt: skip
        tracemalloc.start()
        work()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= states * 8 * d**2
    np.testing.assert_array_equal(olsq.load(path).coef_, est.coef_)


def test_a_window_that_fills_learns_its_first_rows_as_a_stream_does():
    """Their directions are carried from row to row: anew for each they cost O(d^4) together."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((70, 130)), rng.standard_normal(70)
    window, stream = olsq.RollingLeastSquares(300).fit(X, y), olsq.RecursiveLeastSquares().fit(X, y)
    np.testing.assert_array_equal(window.residual_, stream.residual_)
    np.testing.assert_array_equal(window.coef_, stream.coef_)
