"""Robust standard errors of windows are statsmodels' of the same names, window by window."""

from __future__ import annotations

import dask.array as da
import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm

import olsq
import olsq.distributed
import olsq.polars
from olsq.online.paths.collector import newey_west_lags

N, WINDOW = 60, 20
RNG = np.random.default_rng(1)
X = RNG.standard_normal((N, 2))
NOISE = np.convolve(RNG.standard_normal(N + 2), [1.0, 0.6, 0.3], "valid") * (1 + np.abs(X[:, 0]))
Y = np.column_stack([X @ [1.0, -2.0] + 3.0 + NOISE, X @ [0.5, 1.0] - NOISE**2])
WEIGHTS, BY = RNG.uniform(0.5, 2.0, N), RNG.integers(0, 2, N)
HOLES = Y.copy()
HOLES[[5, 30, 31, 50], 0] = np.nan
KINDS = [("HC0", None), ("hc1", None), ("HC2", None), ("Hc3", None), ("HAC", 3), ("hac", None)]


def theirs(rows, y, kind, lags, weights=None, intercept=True):
    """statsmodels' robust errors and p-values of the fit of some rows."""
    regressors = sm.add_constant(X[rows]) if intercept else X[rows]
    own = np.ones(len(rows)) if weights is None else weights
    chosen = int(np.floor(4 * (len(rows) / 100) ** (2 / 9))) if lags is None else lags
    more = {"cov_kwds": {"maxlags": chosen}} if kind.upper() == "HAC" else {}
    model = sm.WLS(y[rows], regressors, weights=own)
    return model.fit(cov_type=kind.upper(), use_t=True, **more)


def agrees(path, y, inside, kind, lags, weights=None, intercept=True, target=None):
    one = path if target is None else path.of_target(target)
    for t in range(8, N):
        rows = inside(t)
        if len(rows) < 6:
            continue
        fit = theirs(rows, y, kind, lags, None if weights is None else weights[rows], intercept)
        got = one.stderr[t]
        if intercept:
            got = np.append(one.intercept_stderr[t], got)
        np.testing.assert_allclose(got, fit.bse, 1e-9, err_msg=f"row {t}")
        np.testing.assert_allclose(one.pvalues[t], fit.pvalues[int(intercept) :], 1e-7, 1e-300)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "lags"), KINDS)
@pytest.mark.parametrize("intercept", [True, False])
def test_every_window_is_statsmodels(kind, lags, intercept):
    options = {"window": WINDOW, "fit_intercept": intercept, "cov": kind, "maxlags": lags}
    known = np.flatnonzero(np.isfinite(HOLES[:, 0]))
    given = kind, lags

    def last(t):
        return np.arange(N)[: t + 1][-WINDOW:]

    path = olsq.coefficient_path(X, Y, **options)
    for k in (0, 1):
        agrees(path, Y[:, k], last, *given, intercept=intercept, target=k)
    path = olsq.coefficient_path(X, Y[:, 0], sample_weight=WEIGHTS, **options)
    agrees(path, Y[:, 0], last, *given, WEIGHTS, intercept)
    path = olsq.coefficient_path(X, HOLES[:, 0], **options)
    agrees(path, HOLES[:, 0], lambda t: known[known <= t][-WINDOW:], *given, None, intercept)
    path = olsq.coefficient_path(X, HOLES[:, 0], window_of="positions", **options)
    inside = lambda t: known[(known <= t) & (known > t - WINDOW)]  # noqa: E731
    agrees(path, HOLES[:, 0], inside, *given, None, intercept)
    path = olsq.coefficient_path(X, Y[:, 0], by=BY, **options)
    inside = lambda t: np.flatnonzero(BY[: t + 1] == BY[t])[-WINDOW:]  # noqa: E731
    agrees(path, Y[:, 0], inside, *given, None, intercept)


@pytest.mark.parametrize("lags", [0, 1, 7, 29])
@pytest.mark.parametrize("offset", [0.0, 3.0, 1e3, 1e6])
def test_lags_and_columns_that_lose_digits(lags, offset):
    """Lags longer than the rows so far; columns of which an intercept leaves little."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 3)) + offset
    y = rng.standard_normal(90).cumsum()
    path = olsq.coefficient_path(X, y, window=30, fit_intercept=True, cov="HAC", maxlags=lags)
    for t in (5, 12, 40, 89):
        rows = np.column_stack([np.ones(90), X])[max(0, t - 29) : t + 1]
        theta = np.append(path.intercept[t], path.coef[t])
        s = np.linalg.pinv(rows, rcond=1e-14) * (y[max(0, t - 29) : t + 1] - rows @ theta)
        total = (s**2).sum(axis=1)
        for lag in range(1, min(lags, s.shape[1] - 1) + 1):
            total += 2 * (1 - lag / (lags + 1)) * (s[:, lag:] * s[:, :-lag]).sum(axis=1)
        found = np.append(path.intercept_stderr[t], path.stderr[t])
        np.testing.assert_allclose(found, np.sqrt(total), rtol=1e-10 + 1e-15 * offset**1.5)


def test_windows_of_time_and_fading_rows():
    times, forget = np.arange(N) / 2.0, 0.95
    path = olsq.coefficient_path(
        X, Y[:, 0], window=10.0, times=times, forget=forget, fit_intercept=True, cov="HC3"
    )
    for t in range(25, N):
        rows = np.arange(t - WINDOW + 1, t + 1)
        fit = theirs(rows, Y[:, 0], "HC3", None, forget ** (t - rows))
        np.testing.assert_allclose(path.stderr[t], fit.bse[1:], 1e-9)


def test_streams_polars_and_dask_agree():
    options = {"window": WINDOW, "fit_intercept": True}
    whole = olsq.coefficient_path(X, Y[:, 0], cov="HAC", maxlags=4, **options)
    window = olsq.RollingLeastSquares(WINDOW, ridge=0.0)
    calls = [
        window.partial_fit_path(X[a:b], Y[a:b, 0], cov="HAC", maxlags=4)
        for a, b in ((0, 15), (15, 16), (16, 45), (45, N))
    ]
    stderr = np.concatenate([call.stderr for call in calls])
    np.testing.assert_allclose(stderr, whole.stderr, 1e-9)
    own = np.sqrt(np.diagonal(window.cov_params("hac", lags=4)))
    np.testing.assert_allclose(own, np.append(whole.intercept_stderr[-1], whole.stderr[-1]), 1e-9)
    chosen = olsq.coefficient_path(X, Y[:, 0], cov="HAC", **options)
    own = np.sqrt(np.diagonal(window.cov_params("HAC")))
    np.testing.assert_allclose(own[1:], chosen.stderr[-1], 1e-9)
    rows = da.from_array(X, chunks=(25, 2)), da.from_array(Y[:, 0], chunks=25)
    lazy = olsq.distributed.coefficient_path(*rows, cov="HAC", maxlags=4, **options)
    np.testing.assert_allclose(lazy.stderr.compute(), whole.stderr, 1e-9)
    frame = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y[:, 0]})
    rolling = pl.col("y").olsq.rolling("a", "b", output="stderr", cov="HAC", maxlags=4, **options)
    found = frame.select(rolling).unnest("y")
    np.testing.assert_allclose(found["b"], whole.stderr[:, 1], 1e-9)


def test_a_ridge_and_undetermined_columns():
    twice = np.column_stack([X, X[:, 0]])
    path = olsq.coefficient_path(twice, Y[:, 0], window=WINDOW, cov="HC0")
    alone = olsq.coefficient_path(X, Y[:, 0], window=WINDOW, cov="HC0")
    assert np.isinf(path.stderr[4:, [0, 2]]).all()
    np.testing.assert_allclose(path.stderr[4:, 1], alone.stderr[4:, 1], 1e-9)
    window = olsq.RollingLeastSquares(WINDOW, ridge=2.0)
    path = window.partial_fit_path(X, Y[:, 0], cov="HC2")
    own = np.sqrt(np.diagonal(window.cov_params("HC2")))
    np.testing.assert_allclose(path.stderr[-1], own[1:], 1e-9)


def test_lags_that_are_not_given_are_newey_and_wests():
    assert [*map(newey_west_lags, (2, 28, 100, 272, 273, 620, 621))] == [1, 3, 4, 4, 5, 5, 6]
    rng = np.random.default_rng(0)
    keys, y = rng.standard_normal((281, 2)), rng.standard_normal(281)
    own, four, five = (
        olsq.coefficient_path(keys, y, window=280, cov="HAC", maxlags=lags).stderr[-1]
        for lags in (None, 4, 5)
    )
    np.testing.assert_array_equal(own, five)
    assert (own != four).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cov": "HC0"}, "give window="),
        ({"cov": "HAC"}, "cov_params"),
        ({"cov": "HC4", "window": 20}, "must be one of .*nonrobust.*HC3"),
        ({"cov": 3, "window": 20}, "must be one of .*nonrobust.*HC3"),
        ({"cov": "sandwich", "window": 20}, "HC3"),
        ({"cov": "HAC", "maxlags": 20, "window": 20}, "smaller than window"),
        ({"cov": "HAC", "maxlags": -1, "window": 20}, "maxlags"),
        ({"cov": "HAC", "maxlags": 2.5, "window": 20}, "maxlags"),
        ({"cov": "HC1", "maxlags": 2, "window": 20}, "maxlags is for cov='hac'"),
        ({"maxlags": 2, "window": 20}, "maxlags is for cov='HAC'"),
        ({"maxlags": 2}, "maxlags is for cov='HAC' with window="),
        ({"cov": "HAC", "maxlags": 2}, r"need window=, .*; half_life= or forget= may go with it"),
        ({"cov": "hac", "maxlags": 2, "half_life": 9}, r"need window=, .*half_life= or forget="),
    ],
)
def test_what_is_refused(options, message):
    for by in ({}, {"by": BY}):
        with pytest.raises(ValueError, match=message):
            olsq.coefficient_path(X, Y[:, 0], **options, **by)
    nonrobust = olsq.coefficient_path(X, Y[:, 0], window=WINDOW, cov="NonRobust")
    np.testing.assert_array_equal(
        nonrobust.stderr, olsq.coefficient_path(X, Y[:, 0], window=WINDOW).stderr
    )
    with pytest.raises(TypeError, match="complex"):
        olsq.coefficient_path(X + 1j, Y[:, 0] + 0j, window=WINDOW, cov="HC0")
