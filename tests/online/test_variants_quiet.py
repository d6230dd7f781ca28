"""Variants on streams that start quiet, pause, or change their noise."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.testing import interruption

TRUTH = np.array([1.0, 2.0, -1.0])


def stream(start: str, rows: int, intercept: bool, life: int = 1500):
    rng = np.random.default_rng([rows, intercept])
    X = rng.standard_normal((rows + life, 3))
    y = X @ TRUTH + 3.0 * intercept
    noise = 0.1 * rng.standard_normal(len(X))
    if start == "noise-free":
        noise[:rows] = 0.0
    else:
        X[:rows], y[:rows], noise[:rows] = (0.0 if start == "zeros" else 1.5), 0.0, 0.0
    return X, y + noise


@pytest.mark.full
@pytest.mark.parametrize("loss", ["huber", "student"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("start", ["zeros", "constant", "noise-free"])
@pytest.mark.parametrize("rows", [1, 29, 60, 500, 10_000])
def test_robust_learns_after_a_quiet_start(rows, start, intercept, loss):
    """Within twice the error of plain least squares, and it still resists outliers then."""
    X, y = stream(start, rows, intercept)
    options = {"fit_intercept": intercept, "forget": 0.99}
    est = olsq.RobustLeastSquares(loss=loss, **options)
    plain = olsq.RecursiveLeastSquares(**options)
    for e in (est, plain):
        e.partial_fit(X[:rows], y[:rows])
        e.partial_fit(X[rows:], y[rows:])
    assert est.determined_.all()
    assert est.rank_ == 3 + intercept
    assert np.abs(est.coef_ - TRUTH).max() <= 2 * np.abs(plain.coef_ - TRUTH).max() + 0.02
    np.testing.assert_allclose(est.scale_, 0.1, rtol=0.5)
    hit = X[-50:] @ TRUTH + 3.0 * intercept + np.where(np.arange(50) % 5 == 0, 100.0, 0.0)
    est.partial_fit(X[-50:], hit)
    assert (est.weights_[::5] < 0.05).all()
    assert np.abs(est.coef_ - TRUTH).max() < 0.1


@pytest.mark.parametrize(
    ("kind", "size"), [("gap", 960), ("bursts", 300), ("noise rises", 100), ("noise falls", 100)]
)
def test_robust_follows_a_gap_and_noise_that_changes(kind, size):
    s = interruption(kind, size, rows=400)
    est = olsq.RobustLeastSquares(half_life=2.0)
    est.partial_fit(s.X, s.y, times=s.times)
    loaded = olsq.loads(est.to_bytes())
    np.testing.assert_array_equal(loaded.coef_, est.coef_)
    fresh = olsq.RecursiveLeastSquares(half_life=2.0)
    fresh.partial_fit(s.X[s.alive :], s.y[s.alive :], times=s.times[s.alive :])
    noise = 10.0 if kind == "noise rises" else 0.1
    assert np.abs(est.coef_ - fresh.coef_).max() <= noise


def test_robust_rows_that_repeat_do_not_use_up_the_first_places():
    """One by one as at once: the weights together are those of the rows that differ."""
    X, y = stream("zeros", 200, True, 300)
    whole = olsq.RobustLeastSquares().partial_fit(X, y)
    rows = olsq.RobustLeastSquares()
    for t in range(len(X)):
        rows.partial_fit(X[t : t + 1], y[t : t + 1])
    np.testing.assert_allclose(rows.coef_, whole.coef_, rtol=1e-10)


@pytest.mark.parametrize("forget", [0.99, 0.9, 0.5])
def test_kernel_does_not_explode_where_rows_have_been_before(forget):
    """1e8 to 1e19 with a ridge that is forgotten; the truth is at most 1."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.uniform(-3, 0, 300), rng.uniform(2, 5, 2000)])[:, None]
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    est = olsq.KernelLeastSquares(gamma=1.0, threshold=1e-3, forget=forget)
    est.partial_fit(X[:300], y[:300])
    for t in range(300, len(X), 100):
        est.partial_fit(X[t : t + 100], y[t : t + 100])
        assert np.abs(est.predict(np.linspace(-4, 6, 100)[:, None])).max() < 4
    loaded = olsq.loads(est.to_bytes())
    for e in (est, loaded):
        e.partial_fit(X[:250], y[:250])  # back again
    np.testing.assert_array_equal(loaded.dual_coef_, est.dual_coef_)
    here = np.linspace(-2.8, -0.2, 50)[:, None]
    error = np.abs(est.predict(here)[:, None] - np.sin(2 * here)).max()
    assert error < (0.5 if forget < 0.9 else 0.3)


def test_kernel_keeps_its_ridge_through_a_gap_and_a_reset():
    rng = np.random.default_rng(1)
    X = rng.uniform(-3, 3, (60, 1))
    y = np.sin(X[:, 0])
    est = olsq.KernelLeastSquares(gamma=1.0, half_life=1.0)
    est.partial_fit(X[:40], y[:40], times=np.arange(40.0))
    est.partial_fit(X[40:41], y[40:41], times=[2000.0])
    new, old = est.predict(X[40:41]), est.predict(-X[40:41])
    assert abs(new[0] - y[40]) < 0.01
    assert abs(old[0]) <= 1.0
    reset = olsq.KernelLeastSquares(gamma=1.0).partial_fit(X[:40], y[:40])
    reset.partial_fit(X[40:41], y[40:41], forget=[0.0])
    np.testing.assert_allclose(reset.predict(X), est.predict(X), atol=1e-6)


@pytest.mark.parametrize("loss", ["huber", "student"])
@pytest.mark.parametrize("seed", range(20))
def test_robust_finds_the_plane_on_which_all_rows_lie_but_outliers(seed, loss):
    """Exact fit: whatever the outliers are, the coefficients are those of the other rows."""
    rng = np.random.default_rng(seed)
    n, d, share = 400, int(rng.integers(1, 4)), rng.choice([0.05, 0.1, 0.15, 1 / 12])
    X, truth = 2 * rng.standard_normal((n, d)), 3 * rng.standard_normal(d)
    y = X @ truth + 7
    lost = rng.random(n) < share if seed % 3 else np.arange(n) % 12 == 5
    y[lost] = [0.0, 1e3, y[lost] + 50 * rng.standard_normal(lost.sum())][seed % 3]
    est = olsq.RobustLeastSquares(loss=loss, forget=[1.0, 0.99][seed % 2])
    for start in range(0, n, 100):
        est.partial_fit(X[start : start + 100], y[start : start + 100])
        np.testing.assert_allclose(est.coef_, truth, rtol=1e-9, atol=1e-9)
    assert est.intercept_ == pytest.approx(7, rel=1e-9)
    assert est.scale_ < 1e-11
    assert (est.weights_[lost[300:]] < 1e-9).all()


@pytest.mark.full
@pytest.mark.parametrize("loss", ["huber", "student"])
@pytest.mark.parametrize("fault", [5.0, 0.0, 1e6])
@pytest.mark.parametrize("max_run", [None, 20, 300])
def test_robust_stands_faults_that_last_as_long_as_max_run(max_run, fault, loss):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((900, 2))
    y = X @ [1.0, 2.0] + 3 + 0.1 * rng.standard_normal(900)
    y[500:668] = fault
    est = olsq.RobustLeastSquares(loss=loss, forget=0.998, max_run=max_run)
    est.fit(X[:500], y[:500])
    scale = est.scale_
    for t in range(500, 668):
        est = olsq.loads(est.partial_fit(X[t : t + 1], y[t : t + 1]).to_bytes())
        if t < 500 + (est.max_run or 50):
            assert est.scale_ <= 4.1 * scale
    off = np.abs([*(est.coef_ - [1.0, 2.0]), est.intercept_ - 3.0]).max()
    if max_run == 300:  # Huber's outliers pull, each as much as 1.345 scales
        assert off < (0.05 if loss == "student" else 0.25)
    else:
        assert off > 0.1
    whole = olsq.RobustLeastSquares(loss=loss, forget=0.998, max_run=max_run).fit(X[:668], y[:668])
    np.testing.assert_allclose(whole.coef_, est.coef_, rtol=1e-12)
    if fault == 1e6:
        first = np.flatnonzero(whole.weights_[500:] > 0.25)
        assert first[:1].tolist() == {None: [50], 20: [20], 300: []}[max_run]


def test_max_run_is_a_number_of_rows():
    for wrong in (0, -1, 2.5, "10"):
        with pytest.raises(ValueError, match="max_run must be None or an integer >= 1"):
            olsq.RobustLeastSquares(max_run=wrong).fit(np.eye(3), np.ones(3))
