"""Groups of windows, learned together, have the bits of each one's ``RollingLeastSquares``."""

import numpy as np
import pandas as pd
import pytest

import olsq
from olsq.online.calls.history import values_of_target
from olsq.online.paths.arrays import RowStatistics
from olsq.online.paths.path import CoefficientPath

ATTRIBUTES = "coef_", "intercept_", "sigma2_", "coef_stderr_", "rank_", "determined_"
STATE = "F", "D", "columns", "tally", "loss"
NAMES = *CoefficientPath._fields, *RowStatistics._fields
BOUNDS = "bounds", "squares", "counts", "fading"


def draw(seed):
    """Draw options, rows, labels and arguments of calls, with gaps, huge rows and resets."""
    rng = np.random.default_rng(seed)
    n, d, m = int(rng.integers(80, 300)), int(rng.integers(1, 6)), int(rng.integers(1, 3))
    X = rng.standard_normal((n, d)).astype(rng.choice([np.float64, np.float32]))
    X[rng.random(n) < 0.02] *= 1e6
    if rng.random() < 0.3:
        X[:, 0] = 2.5  # an intercept, though nobody says so
    if rng.random() < 0.3:
        X[n // 3 : n // 2, -1] = 0.0  # not determined for a while
    Y = X @ rng.standard_normal((d, m)) + 0.3 * rng.standard_normal((n, m))
    X[rng.random(n) < 0.05, -1] = np.nan
    Y[rng.random((n, m)) < 0.05] = np.nan
    by = rng.choice(np.array(["a", "b", "c", "d", "e"]), n, p=[0.6, 0.2, 0.1, 0.05, 0.05])
    options = {
        "window": int(rng.integers(1, 40)),
        "fit_intercept": bool(rng.random() < 0.5),
        "ridge": float(rng.choice([0.0, 0.1])),
        "min_samples": [None, 1][int(rng.integers(2))],
    }
    calls = {}
    if rng.random() < 0.5:
        times = np.cumsum(rng.exponential(1.0, n))
        options["window"], calls["times"] = float(rng.choice([3.0, 30.0])), times
        if rng.random() < 0.5:
            options["window"], calls["times"] = (
                "20D",
                pd.Timestamp("2024-01-01", tz="UTC")
                + (pd.to_timedelta((86400 * times).astype(int), "s")),
            )
    elif rng.random() < 0.5:
        options["window_of"] = "positions"
    fading = rng.choice(["none", "half-life", "rows", "resets"])
    if fading == "half-life" and options["window"] == "20D":
        options["half_life"] = "8D"
    elif fading == "half-life":
        options["half_life"] = 8.0 if isinstance(options["window"], float) else 8
    elif fading in ("rows", "resets"):
        factors = rng.choice([1.0, 0.9, 0.5], n)
        calls["forget"] = (
            np.where(rng.random(n) < 0.02, 0.0, factors) if fading == "resets" else factors
        )
    if rng.random() < 0.5:
        calls["sample_weight"] = rng.choice([0.0, 0.5, 3.0], n)
    return options, X, Y if m > 1 else Y[:, 0], by, calls, rng


def pieces(n, rng):
    start = 0
    while start < n:
        stop = min(n, start + int(rng.choice([1, 3, 20, 100])))
        yield slice(start, stop)
        start = stop


def assert_same_bits(groups, alone, key):
    own, place = groups[key], groups.keys().index(key)
    for name in ATTRIBUTES if alone._has_estimate() else ():
        for found in (getattr(groups, name)[place], getattr(own, name)):
            np.testing.assert_array_equal(found, getattr(alone, name))
    window, wanted = own._engine.engine, alone._engine.engine
    for name in STATE:
        np.testing.assert_array_equal(getattr(window.form, name), getattr(wanted.form, name))
    for name in BOUNDS:
        np.testing.assert_array_equal(getattr(window, name), getattr(wanted, name))
    for one, other in zip(window.rows(), wanted.rows(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert groups.n_samples_seen_[place] == alone.n_samples_seen_
    if groups.fit_intercept is False and alone._constant_values is not None:
        for target in range(alone._origin.columns):
            how = target, alone.n_features_in_
            of_group = values_of_target(own._constant_values, *how)
            np.testing.assert_array_equal(of_group, values_of_target(alone._constant_values, *how))


def arrays_of(path):
    return path.every_array


def assert_close(got, want, name):
    """Compare to the rounding of what is carried; where one is NaN or infinite the other is."""
    size = np.abs(want[np.isfinite(want)]).max(initial=1e-4 if "r_squared" in name else 1e-300)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7 * size, err_msg=name)


@pytest.mark.parametrize("seed", range(40))
def test_groups_have_the_bits_of_their_own_windows(seed):
    """Whatever rows, options and cuts; an estimator of one group goes on as the group does."""
    options, X, y, by, calls, rng = draw(seed)
    groups = olsq.GroupedRollingLeastSquares(**options)
    windows, residual = {}, np.full(y.shape, np.nan)
    for rows in pieces(len(X), rng):
        groups.partial_fit(X[rows], y[rows], by=by[rows], **{k: a[rows] for k, a in calls.items()})
        residual[rows] = groups.residual_
        for key in np.unique(by[rows]).tolist():
            mine = rows.start + np.flatnonzero(by[rows] == key)
            alone = windows.setdefault(key, olsq.RollingLeastSquares(**options))
            alone.partial_fit(X[mine], y[mine], **{k: a[mine] for k, a in calls.items()})
            np.testing.assert_array_equal(residual[mine], alone.residual_)
    for key, alone in windows.items():
        assert_same_bits(groups, alone, key)


@pytest.mark.parametrize("seed", [*range(100, 140), 1005, 1037, 1078])
def test_paths_of_groups_are_those_of_their_own_windows(seed):
    """In pieces, with all that a path holds; and of the whole table in one call."""
    options, X, y, by, calls, rng = draw(seed)
    if y.ndim == 2 and seed % 2:
        options["missing"] = "skip_target"
    groups, windows, parts = olsq.GroupedRollingLeastSquares(**options), {}, []
    own = {key: [] for key in np.unique(by).tolist()}
    for rows in pieces(len(X), rng):
        given = {k: a[rows] for k, a in calls.items()}
        parts.append(groups.partial_fit_path(X[rows], y[rows], by=by[rows], **given))
        for key in np.unique(by[rows]).tolist():
            mine = rows.start + np.flatnonzero(by[rows] == key)
            alone = windows.setdefault(key, olsq.RollingLeastSquares(**options))
            given = {k: a[mine] for k, a in calls.items()}
            own[key].append(alone.partial_fit_path(X[mine], y[mine], **given))
    whole = [np.concatenate(arrays) for arrays in zip(*map(arrays_of, parts), strict=True)]
    if np.isfinite(whole[NAMES.index("residual")]).any():
        everything = olsq.coefficient_path(X, y, by=by, **options, **calls)
        for name, got, want in zip(NAMES, everything.every_array, whole, strict=True):
            assert_close(got, want, name)
    for key, paths in own.items():
        alone = [np.concatenate(arrays) for arrays in zip(*map(arrays_of, paths), strict=True)]
        for name, got, want in zip(NAMES, whole, alone, strict=True):
            assert_close(got[by == key], want, name)


@pytest.mark.parametrize("window", [12, 9.0])
def test_targets_that_miss_rows_of_their_own(window):
    rng = np.random.default_rng(1)
    X, by = rng.standard_normal((400, 2)), rng.integers(0, 5, 400)
    Y = X @ rng.standard_normal((2, 3)) + rng.standard_normal((400, 3))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    Y[:, 2] = np.where(by == 4, np.nan, Y[:, 2])  # a target that a group never sees
    options = {"window": window, "missing": "skip_target", "noise_variance": [1.0, 2.0, 3.0]}
    times = {"times": np.arange(400) / 4} if isinstance(window, float) else {}
    groups = olsq.GroupedRollingLeastSquares(**options).fit(X, Y, by=by, **times)
    for place, key in enumerate(groups):
        mine = by == key
        alone = olsq.RollingLeastSquares(**options)
        alone.fit(X[mine], Y[mine], **{name: a[mine] for name, a in times.items()})
        for name in ATTRIBUTES if alone._has_estimate() else ():
            np.testing.assert_array_equal(getattr(groups, name)[place], getattr(alone, name))
        found = groups.predict(X[:5], by=[key] * 5)
        np.testing.assert_allclose(found, alone.predict(X[:5]), rtol=1e-13)
        assert groups.n_samples_seen_[place] == alone.n_samples_seen_


def test_memory_is_that_of_the_rows_in_the_windows():
    """Groups of few rows hold few, however long the window; gaps left by rings that grew close."""
    X, y = np.ones((64, 3)), np.arange(64.0)
    groups = olsq.GroupedRollingLeastSquares(10**9, fit_intercept=False)
    for call in range(40):
        groups.partial_fit(X, y, by=[f"{call}, {group}" for group in range(64)])
        groups.partial_fit(X, y, by=["long"] * 64)
    assert len(groups) == 40 * 64 + 1
    (stack,) = groups._windows.stacks
    rows = int(stack.place[:, 0].sum())
    assert rows == 2 * 40 * 64
    smallest_rings = 16 * len(groups)
    assert len(stack.weights) < 3 * (rows + smallest_rings)


def test_time_that_passed_lets_rows_leave_and_rings_grow():
    """A burst of rows in one group, then none; the others' rings stay as they were."""
    rng = np.random.default_rng(0)
    groups = olsq.GroupedRollingLeastSquares("1h", fit_intercept=False)
    start = np.datetime64("2024-01-01T00:00:00")
    X, y = rng.standard_normal((2000, 2)), rng.standard_normal(2000)
    by = np.where(np.arange(2000) % 10 == 0, "quiet", "busy")
    for rows in pieces(2000, rng):
        groups.partial_fit(X[rows], y[rows], by=by[rows], times=start + np.arange(2000)[rows])
    (stack,) = groups._windows.stacks
    assert stack.slots[: len(groups)].tolist() == [256, 2048]
    late = start + np.timedelta64(1, "D") + np.arange(2)
    groups.partial_fit(X[:2], y[:2], by=["busy", "busy"], times=late)
    alone = olsq.RollingLeastSquares("1h", fit_intercept=False).fit(X[:2], y[:2], times=late)
    np.testing.assert_allclose(groups.coef_[1], alone.coef_, rtol=1e-12)
    assert stack.place[:2, 0].tolist() == [200, 2]


def test_a_half_life_in_time_that_is_set_later_counts_alike_after_loading():
    rng = np.random.default_rng(0)
    X, y, keys = rng.standard_normal((6, 2)), rng.standard_normal(6), ["a", "b"] * 3
    hours = np.datetime64("2024-01-01", "ns") + np.arange(12) * np.timedelta64(12, "h")
    live = olsq.GroupedRollingLeastSquares(window="9D").partial_fit(X, y, by=keys, times=hours[:6])
    loaded = olsq.loads(live.to_bytes())
    for groups in (live, loaded):
        groups.set_params(half_life=np.timedelta64(3, "D"))
    assert live.to_bytes() == loaded.to_bytes()
    for groups in (live, loaded):
        groups.partial_fit(X, y, by=keys, times=hours[6:])
    np.testing.assert_array_equal(live.coef_, loaded.coef_)


def test_a_state_without_a_group_knows_that_its_times_have_no_zone():
    times = np.array(["2024-01-01"], "datetime64[ns]")
    groups = olsq.GroupedRollingLeastSquares(window="9D")
    groups.partial_fit([[1.0]], [1.0], by=[None], times=times)
    assert olsq.loads(groups.to_bytes()).to_bytes() == groups.to_bytes()
