"""Statistics of every row of a path are those of statsmodels' fit of the rows behind it."""

from __future__ import annotations

import copy
import pickle

import dask
import dask.array as da
import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
import statsmodels.datasets
from statsmodels.regression.rolling import RollingOLS

import olsq
import olsq.distributed
import olsq.polars

N, WINDOW = 60, 12
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 3))
Y = np.column_stack([X @ [1.0, 2.0, 3.0] + 5, 40.0 - X[:, 0] ** 2]) + RNG.standard_normal((N, 2))
WEIGHTS, BY = RNG.uniform(0.5, 2.0, N), RNG.integers(0, 3, N)
WEIGHTS[[9, 33]] = 0.0
TIMES = np.sort(RNG.uniform(0.0, N, N))
HOLES = Y.copy()
HOLES[[3, 20, 21, 40], 0] = np.nan
CONSTANT = X.copy()
CONSTANT[10:40, 1] = 2.0


def has_constant(X):
    """Whether a column has one value other than 0 in all rows, which is an intercept."""
    return bool(((X[0] == X).all(axis=0) & (X[0] != 0)).any())


def agrees(path, X, y, inside, weights=None, target=None, intercept=False, learned=None):
    """Compare every row with the fit of the rows ``inside(t)``, where that has enough of them.

    A column that is constant in all rows ``learned(t)`` is an intercept.
    """
    of_target = path if target is None else path.of_target(target)
    lower, upper = of_target.conf_int(0.9)
    compared = 0
    for t in range(len(y)):
        rows = inside(t)
        regressors = np.column_stack([np.ones(len(rows)), X[rows]]) if intercept else X[rows]
        if len(rows) <= regressors.shape[1]:
            continue
        own = np.ones(len(rows)) if weights is None else weights[rows]
        constant = None if learned is None else has_constant(X[learned(t)])
        fit = sm.WLS(y[rows], regressors, weights=own, hasconst=constant).fit()
        slopes, bounds = slice(int(intercept), None), fit.conf_int(0.1)
        for name, got, want in (
            ("r_squared", of_target.r_squared[t], fit.rsquared),
            ("adj_r_squared", of_target.adj_r_squared[t], fit.rsquared_adj),
            ("n_rows", of_target.n_rows[t], fit.nobs),
            ("tvalues", of_target.tvalues[t], fit.tvalues[slopes]),
            ("pvalues", of_target.pvalues[t], fit.pvalues[slopes]),
            ("lower", lower[t], bounds[slopes, 0]),
            ("upper", upper[t], bounds[slopes, 1]),
        ):
            np.testing.assert_allclose(got, want, 1e-9, 1e-12, err_msg=f"{name} of row {t}")
        if rows[-1] == t:
            np.testing.assert_allclose(of_target.in_sample_residual[t], fit.resid[-1], atol=1e-11)
        compared += 1
    assert compared > N // 2


def usable(y):
    return np.flatnonzero(np.isfinite(y))


@pytest.mark.full
@pytest.mark.parametrize("intercept", [False, True])
def test_statistics_are_those_of_the_rows_inside(intercept):
    options = {"fit_intercept": intercept, "window": WINDOW}
    for y in Y.T:
        path = olsq.coefficient_path(X, y, fit_intercept=intercept)
        agrees(path, X, y, lambda t: np.arange(t + 1), intercept=intercept)
    path, weighted = (olsq.coefficient_path(X, Y, **options), np.flatnonzero(WEIGHTS))
    for k, y in enumerate(Y.T):
        agrees(path, X, y, lambda t: np.arange(N)[: t + 1][-WINDOW:], target=k, intercept=intercept)
    path = olsq.coefficient_path(X, Y[:, 0], sample_weight=WEIGHTS, **options)
    inside = lambda t: weighted[weighted <= t][-WINDOW:]  # noqa: E731
    agrees(path, X, Y[:, 0], inside, WEIGHTS, intercept=intercept)


@pytest.mark.full
@pytest.mark.parametrize("intercept", [False, True])
def test_holes_times_and_groups(intercept):
    options, y = {"fit_intercept": intercept}, HOLES[:, 0]
    known = usable(y)

    def last(t, k=0):
        rows = usable(HOLES[:, k])
        return rows[rows <= t][-WINDOW:]

    def of_group(t, window=N):
        return known[(known <= t) & (BY[known] == BY[t])][-window:]

    for path, inside in (
        (olsq.coefficient_path(X, y, window=WINDOW, **options), last),
        (
            olsq.coefficient_path(X, y, window=WINDOW, window_of="positions", **options),
            lambda t: known[(known <= t) & (known > t - WINDOW)],
        ),
        (
            olsq.coefficient_path(X, y, window=14.0, times=TIMES, **options),
            lambda t: known[(known <= t) & (TIMES[known] > TIMES[t] - 14.0)],
        ),
        (olsq.coefficient_path(X, y, by=BY, **options), of_group),
        (
            olsq.coefficient_path(X, y, by=BY, window=WINDOW, **options),
            lambda t: of_group(t, WINDOW),
        ),
    ):
        agrees(path, X, y, inside, intercept=intercept)
        assert (np.isnan(path.in_sample_residual) == np.isnan(y)).all()
    path = olsq.coefficient_path(X, HOLES, window=WINDOW, missing="skip_target", **options)
    for k in (0, 1):
        inside = lambda t, k=k: last(t, k)  # noqa: E731
        agrees(path, X, HOLES[:, k], inside, target=k, intercept=intercept)


@pytest.mark.full
def test_constant_columns_are_intercepts():
    y = Y[:, 0]
    always = CONSTANT.copy()
    always[:, 1] = -3.0
    for data in (CONSTANT, always):
        path = olsq.coefficient_path(data, y, window=WINDOW)
        agrees(
            path, data, y, lambda t: np.arange(t + 1)[-WINDOW:], learned=lambda t: np.arange(t + 1)
        )
        path = olsq.coefficient_path(data, y, by=BY, window=WINDOW)
        group = lambda t: np.flatnonzero(BY[: t + 1] == BY[t])  # noqa: E731
        agrees(path, data, y, lambda t, group=group: group(t)[-WINDOW:], learned=group)
    agrees(olsq.coefficient_path(always, y), always, y, lambda t: np.arange(t + 1))


@pytest.mark.full
@pytest.mark.parametrize(
    ("estimator", "window"),
    [
        (olsq.RecursiveLeastSquares(ridge=0.0), N),
        (olsq.RecursiveLeastSquares(ridge=0.0, fit_intercept=False), N),
        (olsq.RollingLeastSquares(WINDOW, ridge=0.0), WINDOW),
        (olsq.RollingLeastSquares(WINDOW, ridge=0.0, fit_intercept=False), WINDOW),
        (olsq.GroupedLeastSquares(ridge=0.0), N),
        (olsq.GroupedLeastSquares(ridge=0.0, fit_intercept=False), N),
        (olsq.GroupedRollingLeastSquares(WINDOW, ridge=0.0), WINDOW),
        (olsq.GroupedRollingLeastSquares(WINDOW, ridge=0.0, fit_intercept=False), WINDOW),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("constant", [0, 40, N])
def test_streams_go_on_from_earlier_calls(estimator, window, constant):
    grouped, y, data = "Grouped" in type(estimator).__name__, HOLES[:, 0], X.copy()
    if estimator.fit_intercept and constant:
        return
    data[:constant, 1] = -3.0
    parts = []
    estimator = copy.copy(estimator)
    for start, stop in ((0, 7), (7, 8), (8, 31), (31, N)):
        by = {"by": BY[start:stop]} if grouped else {}
        parts.append(estimator.partial_fit_path(data[start:stop], y[start:stop], **by))
    arrays = zip(*(part.every_array for part in parts), strict=True)
    path = olsq.CoefficientPath.of_arrays(map(np.concatenate, arrays))
    known = usable(y)

    def inside(t):
        rows = known[known <= t]
        return (rows[BY[rows] == BY[t]] if grouped else rows)[-window:]

    agrees(path, data, y, inside, intercept=estimator.fit_intercept)


def test_rolling_ols_of_macroeconomic_data():
    data = statsmodels.datasets.macrodata.load_pandas().data
    X, y = sm.add_constant(data[["m1", "unemp"]].to_numpy()), data["cpi"].to_numpy()
    theirs = RollingOLS(y, X, window=40).fit(use_t=True)
    path = olsq.coefficient_path(X, y, window=40, min_samples=40)
    np.testing.assert_allclose(path.r_squared, theirs.rsquared, 1e-9)
    np.testing.assert_allclose(path.adj_r_squared, theirs.rsquared_adj, 1e-9)
    np.testing.assert_allclose(path.tvalues, theirs.tvalues, 1e-8)
    np.testing.assert_allclose(path.pvalues, theirs.pvalues, 1e-8, 1e-300)
    lower, upper = path.conf_int()
    np.testing.assert_allclose(np.stack([lower, upper], 1), theirs.conf_int(), 1e-8)


def test_after_forgetting_they_are_the_summarys():
    forget = RNG.uniform(0.8, 1.0, N)
    path = olsq.coefficient_path(X, Y[:, 0], forget=forget, fit_intercept=True)
    estimator = olsq.RecursiveLeastSquares(ridge=0.0)
    for t in range(N):
        estimator.partial_fit(X[t : t + 1], Y[t : t + 1, 0], forget=forget[t : t + 1])
        if t < 6:
            continue
        summary = estimator.summary(level=0.9)
        got = path.r_squared[t], path.adj_r_squared[t], path.n_rows[t]
        want = summary.r_squared, summary.adjusted_r_squared, summary.effective_rows
        np.testing.assert_allclose(got, want, 1e-9)
        np.testing.assert_allclose(path.pvalues[t], summary.pvalue[1:], 1e-8)
        np.testing.assert_allclose(path.conf_int(0.9)[0][t], summary.lower[1:], 1e-9)


@pytest.mark.parametrize("window_of", ["samples", "positions"])
@pytest.mark.parametrize("intercept", [False, True])
def test_rows_that_fade_inside_a_window(intercept, window_of):
    forget, y = RNG.uniform(0.8, 1.0, N), HOLES[:, 0]
    forget[35] = 0.0
    options = {"forget": forget, "window": WINDOW, "window_of": window_of}
    path = olsq.coefficient_path(X, y, fit_intercept=intercept, **options)
    estimator = olsq.RollingLeastSquares(
        WINDOW, ridge=0.0, fit_intercept=intercept, window_of=window_of
    )
    calls = [
        estimator.partial_fit_path(X[a:b], y[a:b], forget=forget[a:b])
        for a, b in ((0, 17), (17, 37), (37, N))
    ]
    np.testing.assert_allclose(np.concatenate([c.r_squared for c in calls]), path.r_squared, 1e-9)
    known = usable(y)
    for t in range(N):
        rows = known[known <= t]
        rows = rows[rows > t - WINDOW] if window_of == "positions" else rows[-WINDOW:]
        fading = known if window_of == "samples" else np.arange(N)
        left = np.array([forget[fading[(fading > i) & (fading <= t)]].prod() for i in rows])
        rows, left = rows[left > 0], left[left > 0]
        if len(rows) < 6:
            continue
        regressors = np.column_stack([np.ones(N), X])[:, 0 if intercept else 1 :][rows]
        fit = sm.WLS(y[rows], regressors, weights=left).fit()
        np.testing.assert_allclose(path.r_squared[t], fit.rsquared, 1e-9, err_msg=f"row {t}")
        assert path.n_rows[t] == len(rows)  # whole rows, however much is left of them


@pytest.mark.full
def test_columns_that_are_constant_since_some_row_are_no_intercepts():
    rng = np.random.default_rng(5)
    reset = {"forget": np.where(np.arange(120) == 75, 0.0, 1.0)}
    for start, n, value in ((70, 30, 2.0), (3, 30, 2.0), (0, 40, -2.0), (0, 120, 3.0), (0, 1, 0.0)):
        rows = rng.standard_normal((120, 2))
        rows[start : start + n, 1] = value
        y = rows @ [1.0, 2.0] + rng.standard_normal(120)
        for options in ({"window": 8}, {}, reset):
            path = olsq.coefficient_path(rows, y, **options)
            for t in range(8, 120):
                first = max(t - 7, 0) if "window" in options else 0
                first = 75 if options is reset and t >= 75 else first
                if t - first < 3:
                    continue
                constant = has_constant(rows[: t + 1])
                fit = sm.OLS(y[first : t + 1], rows[first : t + 1], hasconst=constant).fit()
                np.testing.assert_allclose(path.r_squared[t], fit.rsquared, 1e-8, 1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_calls_of_any_length_know_the_same_constant_columns(seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((40, 2))
    rows[: rng.integers(0, 41), 0] = [2.5, 0.0][seed % 2]
    rows[: rng.integers(0, 41), 1] = -1.0
    y = rng.standard_normal(40)
    y[rng.random(40) < 0.2] = np.nan
    weights = np.where(rng.random(40) < 0.1, 0.0, 1.0)
    for make in (
        lambda: olsq.RecursiveLeastSquares(fit_intercept=False, ridge=0.1),
        lambda: olsq.RollingLeastSquares(7, fit_intercept=False, ridge=0.1),
    ):
        whole = make().partial_fit_path(rows, y, weights)
        est, parts = make(), []
        for part in np.split(np.arange(40), np.sort(rng.integers(1, 40, 3))):
            if part.size:
                parts.append(est.partial_fit_path(rows[part], y[part], weights[part]).r_squared)
                est = olsq.loads(est.to_bytes())
        np.testing.assert_allclose(np.concatenate(parts), whole.r_squared, 1e-8, 1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_groups_and_banks_know_constant_columns(seed):
    rng = np.random.default_rng(seed)
    rows, by, y = rng.standard_normal((60, 2)), rng.integers(0, 3, 60), rng.standard_normal(60)
    for group in range(3):
        first = np.flatnonzero(by == group)[: rng.choice([0, 2, 7, 60])]
        rows[first, group % 2] = 2.5
    y[rng.random(60) < 0.1] = np.nan
    weights = np.where(rng.random(60) < 0.1, 0.0, 1.0)
    whole = olsq.coefficient_path(rows, y, by=by, sample_weight=weights, ridge=0.1)
    parameters = {"fit_intercept": False, "ridge": 0.1}
    groups = olsq.GroupedLeastSquares(**parameters)
    cut, parts = np.sort(rng.integers(1, 60, 4)), []
    for part in np.split(np.arange(60), cut):
        if part.size:
            arguments = rows[part], y[part], weights[part]
            parts.append(groups.partial_fit_path(*arguments, by=by[part]).r_squared)
            groups = olsq.loads(groups.to_bytes())
    np.testing.assert_allclose(np.concatenate(parts), whole.r_squared, 1e-8, 1e-10)
    alone = []
    for key in groups:
        own = by == key
        est = olsq.RecursiveLeastSquares(**parameters).fit(rows[own], y[own], weights[own])
        alone.append(est.summary().r_squared)
    halves = (
        olsq.GroupedLeastSquares(**parameters).fit(rows[h], y[h], weights[h], by=by[h])
        for h in (slice(0, cut[1]), slice(cut[1], 60))
    )
    merged = olsq.merge(*halves)
    bank, places = olsq.FilterBank(3, **parameters), {key: i for i, key in enumerate(groups)}
    for t in np.flatnonzero(weights > 0):
        bank.step(rows[t], y[t], which=places[by[t]])
    in_bank = [bank[i].summary().r_squared for i in range(3)]
    for found in groups.r_squared_, in_bank, [merged[key].summary().r_squared for key in groups]:
        np.testing.assert_allclose(found, alone, 1e-8, 1e-10)


def test_frames_pickles_and_groups_carry_them():
    path = olsq.coefficient_path(X, Y, window=WINDOW, by=BY)
    again = pickle.loads(pickle.dumps(path))
    np.testing.assert_array_equal(again.r_squared, path.r_squared)
    np.testing.assert_array_equal(path.of_group(1).n_rows, path.n_rows[BY == 1])
    table = path.of_target(1).to_frame(kind="polars", statistics=True)
    np.testing.assert_array_equal(table["x2_pvalue"], path.pvalues[:, 1, 2])
    np.testing.assert_array_equal(table["x0_lower"], path.conf_int()[0][:, 1, 0])
    bare = olsq.coefficient_path(X, Y, window=WINDOW, statistics=False)
    assert np.isnan(bare.r_squared).all()
    assert np.isnan(bare.pvalues).all()
    later = olsq.coefficient_path(data := X.copy(), y := Y[:, 0].copy())
    data[:], y[:] = 0.0, 0.0  # what was given may change before they are read
    np.testing.assert_array_equal(later.r_squared, olsq.coefficient_path(X, Y[:, 0]).r_squared)


def test_dask_has_them_lazily():
    whole = olsq.coefficient_path(X, Y[:, 0], window=WINDOW, fit_intercept=True)
    rows = da.from_array(X, chunks=(25, 3)), da.from_array(Y[:, 0], chunks=25)
    path = olsq.distributed.coefficient_path(*rows, window=WINDOW, fit_intercept=True)
    names = "r_squared", "adj_r_squared", "n_rows", "in_sample_residual", "tvalues", "pvalues"
    lazy = [*(getattr(path, name) for name in names), *path.conf_int(0.9)]
    want = [*(getattr(whole, name) for name in names), *whole.conf_int(0.9)]
    for got, expected in zip(dask.compute(*lazy), want, strict=True):
        np.testing.assert_allclose(got, expected, 1e-9, 1e-12)
    table = path.to_frame(statistics=True).compute()
    np.testing.assert_allclose(table["r_squared"], whole.r_squared, 1e-9)


def test_polars_outputs():
    frame = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y[:, 0], "g": BY})
    path = olsq.coefficient_path(X[:, :2], Y[:, 0], window=WINDOW, by=BY, fit_intercept=True)
    y, options = pl.col("y").olsq, {"window": WINDOW, "fit_intercept": True}
    for output in ("r_squared", "adj_r_squared", "n_rows", "in_sample_residual"):
        found = frame.select(y.rolling("a", "b", output=output, **options).over("g"))["y"]
        np.testing.assert_allclose(found.fill_null(np.nan), getattr(path, output), 1e-12)
    found = frame.select(y.rolling("a", "b", output="pvalues", **options).over("g")).unnest("y")
    assert found.columns == ["intercept", "a", "b"]
    np.testing.assert_allclose(found["b"].fill_null(np.nan), path.pvalues[:, 1], 1e-12)
    fits = frame.group_by("g", maintain_order=True).agg(
        r2=y.ols("a", "b", output="r_squared"), bound=y.ols("a", "b", output="upper")
    )
    for g, r2, bound in fits.iter_rows():
        theirs = sm.OLS(Y[g == BY, 0], X[g == BY, :2]).fit()
        np.testing.assert_allclose(r2, theirs.rsquared, 1e-9)
        np.testing.assert_allclose([bound["a"], bound["b"]], theirs.conf_int()[:, 1], 1e-9)


def test_what_does_not_exist():
    path = olsq.coefficient_path(X, Y[:, 0], fit_intercept=True)
    assert np.isnan(path.r_squared[0])  # one row does not vary
    assert path.n_rows[0] == 1
    assert np.isnan(path.adj_r_squared[:4]).all()  # no degrees of freedom
    assert np.isinf(path.conf_int()[1][:4]).all()
    for level in (0.0, 1.0, 95, "high"):
        with pytest.raises((ValueError, TypeError), match="level"):
            path.conf_int(level)
    constant = olsq.coefficient_path(X, np.full(N, 1e9), window=WINDOW, fit_intercept=True)
    assert np.isnan(constant.r_squared).all()
    drifting = olsq.coefficient_path(X, Y[:, 0], forget=olsq.forgetting.RandomWalk(0.1))
    assert np.isnan(drifting.r_squared).all()
    assert np.isfinite(drifting.in_sample_residual).all()
    waves = olsq.coefficient_path(X + 1j, Y[:, 0] + 0j)
    with pytest.raises(ValueError, match="complex"):
        waves.conf_int()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("window", [None, WINDOW])
def test_complex_rows(intercept, window):
    waves = X + 1j * X[::-1]
    signal = waves @ [1.0, 2.0j, 3.0] + Y[:, 0] * (1 + 0.5j)
    path = olsq.coefficient_path(waves, signal, window=window, fit_intercept=intercept)
    for t in range(8, N):
        rows = slice(0 if window is None else max(0, t + 1 - window), t + 1)
        A = np.column_stack([np.ones(N), waves])[rows, 0 if intercept else 1 :]
        residual = signal[rows] - A @ np.linalg.lstsq(A, signal[rows], rcond=None)[0]
        total = signal[rows] - (signal[rows].mean() if intercept else 0.0)
        r2 = 1 - np.linalg.norm(residual) ** 2 / np.linalg.norm(total) ** 2
        n = len(A)
        adjusted = 1 - (1 - r2) * (n - intercept) / (n - A.shape[1])
        got = path.r_squared[t], path.adj_r_squared[t], path.n_rows[t], path.in_sample_residual[t]
        np.testing.assert_allclose(got, [r2, adjusted, n, residual[-1]], 1e-9, 1e-10)
