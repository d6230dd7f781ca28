"""Rolling windows of large models go in blocks, by BLAS: the results of single rows.

The blocks are switched on for small models here, so that the streams are those that break solvers.
"""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.online.windows import products
from olsq.online.windows import window as rolling_window
from tests.online import streams

CASES = ["rows", "weights", "places", "time", "complex"]


def switch(monkeypatch, on: bool) -> list[int]:
    """Return a list that receives the length of every block that was taken."""
    monkeypatch.setattr(rolling_window, "BLOCKED_FROM", 1)
    monkeypatch.setattr(products, "PRODUCTS_FROM", 1 if on else 10**9)
    monkeypatch.setattr(products, "BLOCK", 8)
    monkeypatch.setattr(products, "PANEL", 5)
    monkeypatch.setattr(products, "FEWEST", 2)
    taken, absorb = [], products.absorb_block

    def counted(form, monitor, sizes, turns, *args):
        done = absorb(form, monitor, sizes, turns, *args)
        taken.extend([turns.ends.size] * done)
        return done

    monkeypatch.setattr(products, "absorb_block", counted)
    return taken


def fitted(case: str, X, y, weights):
    """Return an estimator after three calls, and all residuals."""
    options = {"window": 20, "ridge": 0.3}
    times, given = None, None
    if case == "time":
        options["window"] = 20.0
        rng = np.random.default_rng(0)
        times = np.cumsum(rng.choice([0.0, 0.5, 1.0, 2.5], len(X)))
    elif case == "complex":
        X, y = X + 1j * np.roll(X, 3, 0), y + 1j * y[::-1]
    elif case != "rows":
        given = weights
    if case == "places":
        options["window_of"] = "positions"
    est, residual = olsq.RollingLeastSquares(**options), []
    for part in (slice(0, 33), slice(33, 35), slice(35, None)):
        est.partial_fit(
            X[part], y[part], None if given is None else given[part],
            times=None if times is None else times[part],
        )  # fmt: skip
        residual.append(est.residual_)
    return est, np.concatenate(residual)


@pytest.mark.parametrize("regressors", streams.REGRESSORS)
@pytest.mark.parametrize("case", CASES)
def test_blocks_give_what_rows_give(case, regressors, monkeypatch):
    stream = streams.make(regressors, "gates 1")
    X, y = (np.concatenate([a] * 2) for a in stream[:2])
    rng = np.random.default_rng(1)
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], len(X), p=[0.03, 0.2, 0.5, 0.27])
    found = []
    for on in (True, False):
        with monkeypatch.context() as patch:
            taken = switch(patch, on)
            found.append(fitted(case, X, y, weights))
            if on and regressors == "white":
                assert len(taken) > 3
            assert on or not taken
    (est, residual), (other, truth) = found
    size = np.abs(y).max()
    np.testing.assert_allclose(residual, truth, rtol=0, atol=1e-8 * size)
    ours, theirs = est.predict(X + 0 * est.coef_[0]), other.predict(X + 0 * other.coef_[0])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8 * size)
    np.testing.assert_allclose(est.sigma2_, other.sigma2_, rtol=1e-7, atol=1e-12 * size**2)
    np.testing.assert_allclose(est.coef_stderr_, other.coef_stderr_, rtol=1e-6, atol=1e-12 * size)
    for a, b in zip(est._engine.arrays().items(), other._engine.arrays().items(), strict=False):
        if a[0] in ("ring_X", "ring_Y", "ring_w", "place"):
            np.testing.assert_array_equal(a[1], b[1])


@pytest.mark.parametrize("d", [15, 16, 33])
def test_blocks_agree_with_a_dense_solve_of_every_window(d, monkeypatch):
    taken = switch(monkeypatch, True)
    monkeypatch.setattr(products, "BLOCK", 24)
    rng, window = np.random.default_rng(d), 4 * d
    X, y = rng.standard_normal((8 * d, d)), rng.standard_normal((8 * d, 2))
    est = olsq.RollingLeastSquares(window, ridge=0.1, fit_intercept=False).partial_fit(X, y)
    assert sum(taken) > 3 * d
    for t in range(window + 3, 8 * d, 17):
        A, b = X[t - window : t], y[t - window : t]
        theta = np.linalg.solve(A.T @ A + 0.1 * np.eye(d), A.T @ b)
        np.testing.assert_allclose(est.residual_[t], y[t] - X[t] @ theta, atol=1e-11)
    P = est._engine.form.P
    assert (P == P.T).all()


def test_an_outlier_and_its_leaving_are_left_to_rows(monkeypatch):
    taken = switch(monkeypatch, True)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 3)), rng.standard_normal(120)
    X[60] *= 1e6
    est = olsq.RollingLeastSquares(20, ridge=0.1, fit_intercept=False).partial_fit(X, y)
    assert taken
    A, b = X[-20:], y[-20:]
    theta = np.linalg.solve(A.T @ A + 0.1 * np.eye(3), A.T @ b)
    np.testing.assert_allclose(est.coef_, theta, atol=1e-11)
