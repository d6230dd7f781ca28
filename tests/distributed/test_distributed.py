"""Fits, paths and predictions over partitions against one machine and a dense solution."""

from __future__ import annotations

import copy
import weakref
from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import olsq
from olsq import distributed

N = 240
CUTS = (0, 1, 60, 0, 39, 90, 50)  # rows of the partitions: empty ones, one of one row


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def stream(seed=0, d=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, d)) + 0.5
    drift = np.linspace(0, 1, N)
    y = X @ np.arange(1.0, d + 1) + 2.0 + drift * X[:, 0] + rng.standard_normal(N)
    weight = rng.uniform(0, 2, N)
    weight[::9] = 0.0
    return X, y, weight


def cut(array, unknown=False):
    """In-memory rows as a Dask array in ``CUTS``; of unknown sizes if asked."""
    blocks = np.split(array, np.cumsum(CUTS)[:-1])
    chunks = ((np.nan,) * len(CUTS) if unknown else CUTS, *((s,) for s in array.shape[1:]))
    name = f"cut-{id(array)}-{unknown}"
    graph = {(name, i, *(0,) * (array.ndim - 1)): block for i, block in enumerate(blocks)}
    return da.Array(graph, name, chunks, meta=array[:0])


def assert_same_fit(found, one, rtol=1e-12):
    for name in ("coef_", "intercept_", "sigma2_", "coef_stderr_"):
        want = np.asarray(getattr(one, name))
        size = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        np.testing.assert_allclose(getattr(found, name), want, rtol=rtol, atol=rtol * size)
    assert found.n_samples_seen_ == one.n_samples_seen_
    np.testing.assert_array_equal(found.rank_, one.rank_)
    np.testing.assert_array_equal(found.determined_, one.determined_)


def assert_same_path(found, one, rtol=1e-11):
    for name, got, want in zip(one._fields, dask.compute(*found), one, strict=True):
        want = np.asarray(want)
        size = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * size, err_msg=name)


FITS = [
    {},
    {"forget": 0.97, "ridge": 0.0, "cov": "sandwich"},
    {"half_life": 30, "method": "sqrt", "ridge": [1.0, 0.0, 1e-8]},
    {"forget": 0.97, "ridge_mode": "fixed", "ridge": 0.5},
    {"ridge_mode": "fixed", "ridge": 0.5, "method": "sqrt"},
    {"prior": (np.full(4, 0.3), np.full(4, 0.05)), "forget": 0.99},
    {"method": "information", "ridge": 1e-3},
]


@pytest.mark.parametrize("parameters", FITS, ids=lambda p: "-".join(p) or "default")
def test_fit_is_that_of_one_machine(parameters):
    X, y, weight = stream()
    X[5::11, 1] = np.nan
    X[1:61] = np.nan  # a whole partition with nothing to learn
    one = olsq.RecursiveLeastSquares(**parameters).fit(X, y, weight)
    found = distributed.fit(cut(X), cut(y), sample_weight=weight, **parameters)
    assert_same_fit(found, one)
    # Both go on alike, and are what was asked for.
    assert found.get_params().keys() == one.get_params().keys()
    more = np.ones((2, 3)), np.zeros(2)
    assert_same_fit(found.partial_fit(*more), one.partial_fit(*more))
    likelihoods = [est.summary().log_likelihood for est in (found, one)]
    assert likelihoods[0] == pytest.approx(likelihoods[1], rel=1e-10)


def test_forgetting_by_row_resets_and_unknown_sizes():
    X, y, _ = stream(1)
    gates = np.full(N, 0.98)
    gates[130] = 0.0
    one = olsq.RecursiveLeastSquares(ridge=1.0).partial_fit(X, y, forget=gates)
    found = distributed.fit(
        cut(X, unknown=True), cut(y, unknown=True), forget=cut(gates, unknown=True), ridge=1.0
    )
    assert_same_fit(found, one)
    wide = da.from_array(X, chunks=(70, 2))  # columns in pieces, y in other partitions
    found = distributed.fit(wide, da.from_array(y, chunks=11), forget=gates, ridge=1.0)
    assert_same_fit(found, one)


def test_ill_conditioned_fit_keeps_the_digits_of_qr():
    # cond(X) = 1e10: moments, which square it, have no digit left.
    X, y, _ = stream(2, d=6)
    U, _, V = np.linalg.svd(X, full_matrices=False)
    X = (U * np.logspace(0, -10, 6)) @ V
    y = X @ np.linspace(1, 2, 6) + 1e-12 * y
    want, *_ = np.linalg.lstsq(X, y, rcond=None)
    options = {"ridge": 0.0, "fit_intercept": False, "method": "sqrt"}
    found = distributed.fit(cut(X), cut(y), **options).coef_
    error = np.linalg.norm(found - want) / np.linalg.norm(want)
    assert error < 64 * 1e10 * np.finfo(np.float64).eps * 1e-1  # 1.4e-6; measured 1e-7
    gram = X.T @ X
    squared = np.linalg.lstsq(gram, X.T @ y, rcond=1e-17)[0]
    assert np.linalg.norm(squared - want) > 1e3 * error * np.linalg.norm(want)


@pytest.mark.parametrize("forget", [1.0, 0.98])
def test_dependent_columns_and_scales(forget):
    X, y, _ = stream(3)
    X = np.column_stack([X[:, 0], X[:, 0], X[:, 1] * 1e3, X[:, 0] + X[:, 2] * 1e-3, np.zeros(N)])
    X[:60, 3] = 3 * X[:60, 0]  # dependent in the first partitions only
    one = olsq.RecursiveLeastSquares(forget=forget, ridge=0.0).fit(X, y)
    found = distributed.fit(cut(X), cut(y), forget=forget, ridge=0.0)
    assert one.rank_ == 4
    assert_same_fit(found, one, rtol=1e-10)  # scales and a near dependence of 1e3 each
    np.testing.assert_allclose(found.predict(X), one.predict(X), rtol=1e-10, atol=1e-10)


def test_float32_rows():
    X, y, weight = (a.astype(np.float32) for a in stream(4))
    X = np.column_stack([X, X[:, 0] * np.float32(0.3)])  # dependent up to float32's rounding
    parameters = {"ridge": 0.0, "forget": 0.99}
    one = olsq.RecursiveLeastSquares(**parameters).fit(X, y, weight)
    found = distributed.fit(cut(X), cut(y), sample_weight=cut(weight), **parameters)
    assert found.coef_.dtype == np.float32
    assert found.rank_ == one.rank_ == 4
    np.testing.assert_allclose(found.coef_, one.coef_, rtol=2e-5)


def test_targets_that_miss_different_rows():
    X, y, weight = stream(5)
    Y = np.column_stack([y, y**2, -y])
    Y[::3, 1] = np.nan
    Y[:100, 2] = np.nan
    parameters = {"missing": "skip_target", "forget": 0.99}
    one = olsq.RecursiveLeastSquares(**parameters).fit(X, Y, weight)
    assert_same_fit(distributed.fit(cut(X), cut(Y), sample_weight=weight, **parameters), one)
    path = olsq.coefficient_path(X, Y, sample_weight=weight, **parameters)
    found = distributed.coefficient_path(cut(X), cut(Y), sample_weight=weight, **parameters)
    assert found.coef.shape == (N, 3, 3)
    assert_same_path(found, path)


def test_half_life_in_time_and_windows_of_time():
    X, y, _ = stream(6)
    times = np.cumsum(np.random.default_rng(0).uniform(0, 2, N))
    X[100:140] = np.nan
    one = olsq.RecursiveLeastSquares(half_life=25.0).fit(X, y, times=times)
    found = distributed.fit(cut(X), cut(y), times=cut(times), half_life=25.0)
    assert_same_fit(found, one)
    path = olsq.coefficient_path(X, y, times=times, window=40.0, min_samples=5)
    got = distributed.coefficient_path(cut(X), cut(y), times=times, window=40.0, min_samples=5)
    assert_same_path(got, path)
    with pytest.raises(ValueError, match="times must not go back"):
        distributed.fit(cut(X), cut(y), times=times[::-1].copy(), half_life=25.0)


@pytest.mark.parametrize("parameters", [
    {"forget": 0.97, "fit_intercept": True}, {"forget": 0.97, "ridge": 0.3, "ridge_mode": "fixed"},
    {"window": 45, "ridge": 1e-3, "min_samples": 4}, {"window": 45, "window_of": "positions"},
    {"window": 45, "half_life": 9}, {"window": 45, "forget": 0.95, "window_of": "positions"},
    {"noise_variance": 0.3, "ridge": 2.0}, {"noise_variance": 0.3, "window": 45, "ridge": 2.0},
], ids=lambda p: "-".join(p))  # fmt: skip
def test_path_is_that_of_one_machine(parameters):
    X, y, weight = stream(7)
    X[:70, 0] = np.nan  # the first partitions have nothing to learn
    y[100:120] = np.nan
    one = olsq.coefficient_path(X, y, sample_weight=weight, **parameters)
    found = distributed.coefficient_path(cut(X), cut(y), sample_weight=cut(weight), **parameters)
    assert found.coef.chunks == (CUTS, (3,))
    assert_same_path(found, one)


HORIZONS = {
    "next partition": {"horizon": 7},
    "beyond several partitions": {"horizon": 120},
    "days": {"horizon": "9D", "times": "dates"},
    "numbers": {"horizon": 40.0, "times": "numbers"},
}


@pytest.mark.full
@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("parameters", [
    {"forget": 0.97, "fit_intercept": True}, {"window": 45, "min_samples": 4},
    {"missing": "skip_target"},
], ids=lambda p: "-".join(p))  # fmt: skip
@pytest.mark.parametrize("horizon", HORIZONS)
def test_forecasts_of_a_horizon_are_those_of_one_machine(horizon, parameters, by):
    X, y, weight = stream(7)
    Y = np.column_stack([y, y[::-1]])
    X[:30, 0] = np.nan
    Y[100:110, 0] = np.nan
    steps = np.cumsum(np.random.default_rng(1).integers(0, 3, N))
    times = {"dates": np.datetime64("2026-01-01") + steps, "numbers": steps.astype(float)}
    options = parameters | HORIZONS[horizon]
    rows = {"sample_weight": weight}
    if "times" in options:
        rows["times"] = times[options.pop("times")]
    if by:
        if horizon == "beyond several partitions":
            options["horizon"] = 60  # of some 80 rows of a group
        rows["by"] = np.arange(N) * 7 % 3
    one = olsq.coefficient_path(X, Y, **rows, **options)
    cut_rows = {name: cut(values) for name, values in rows.items()}
    found = distributed.coefficient_path(cut(X), cut(Y), **cut_rows, **options)
    assert_same_path(found, one, rtol=1e-10)
    graph, wanted = dict(found.residual.__dask_graph__()), found.residual.__dask_keys__()
    twice = dask.get(graph, [wanted, wanted])  # no task changes what another one is given
    np.testing.assert_array_equal(
        np.concatenate([p[0] for p in twice[0]]), found.residual.compute()
    )


@pytest.mark.parametrize("options", [
    {"window": 4}, {"window": 4, "min_samples": 3}, {"window": 4, "window_of": "positions"},
    {"min_samples": 3}, {},
], ids=str)  # fmt: skip
def test_forecasts_that_rest_on_no_row_are_those_of_one_machine(options):
    """The first target is missing, and so are those of a whole partition."""
    X, y, _ = stream(7)
    y[0], y[sum(CUTS[:1]) : sum(CUTS[:2])] = np.nan, np.nan
    one = olsq.coefficient_path(X, y, horizon=3, **options)
    assert_same_path(distributed.coefficient_path(cut(X), cut(y), horizon=3, **options), one)
    assert np.isnan(one.residual[3]) == ("min_samples" in options)


def test_forecasts_of_frames_by_names_of_columns():
    X, y, _ = stream(3)
    days = pd.date_range("2026-01-01", periods=N, name="day")
    frame = pd.DataFrame(X, columns=list("abc"), index=days).assign(y=y, shop=np.arange(N) % 2)
    options = {"by": "shop", "horizon": "6D"}
    one = olsq.coefficient_path(frame.drop(columns="y"), frame["y"], **options)
    for reread in (True, False):
        found = distributed.coefficient_path(
            dd.from_pandas(frame, npartitions=5), "y", reread=reread, **options
        )
        assert_same_path(found, one, rtol=1e-10)
        pd.testing.assert_frame_equal(found.to_frame().compute(), one.to_frame(), check_freq=False)


def test_window_fit_over_several_partitions():
    X, y, _ = stream(8)
    y[-60:-50] = np.nan
    one = olsq.RollingLeastSquares(130).fit(X, y)
    assert_same_fit(distributed.fit(cut(X), cut(y), window=130), one)


@pytest.mark.parametrize("until", [0, 50, 110, 170, N])
def test_windows_know_columns_that_were_constant_in_earlier_partitions(until):
    X, y, weight = stream(8)
    X[:until, 0], X[120:, 1] = 2.0, -3.0  # the second one is constant since some row only
    times = np.arange(float(N))
    for options in ({"window": 20}, {"window": 20, "window_of": "positions"}, {"window": 20.0}):
        more = {"times": times} if isinstance(options["window"], float) else {}
        cuts = {name: cut(values) for name, values in more.items()}
        one = olsq.coefficient_path(X, y, sample_weight=weight, **options, **more)
        path = distributed.coefficient_path(
            cut(X), cut(y), sample_weight=cut(weight), **options, **cuts
        )
        np.testing.assert_allclose(path.r_squared.compute(), one.r_squared, 1e-8, 1e-10)


def test_rows_that_fade_in_windows():
    X, y, weight = stream(8)
    rng = np.random.default_rng(2)
    y[rng.integers(N, size=30)] = np.nan
    weight[rng.integers(N, size=60)] = 0.0
    gates, times = rng.choice([1.0, 0.95, 0.5], N), np.cumsum(rng.uniform(0, 2, N))
    gates[200] = 0.0
    for own in (
        {"window": 50, "forget": gates},
        {"window": 50.0, "forget": gates, "times": times},
        {"window": 50.0, "half_life": 20.0, "times": times},
    ):
        per_row = {"sample_weight": weight} | {k: v for k, v in own.items() if np.ndim(v)}
        options = {name: value for name, value in own.items() if not np.ndim(value)}
        cuts = {name: cut(values) for name, values in per_row.items()}
        one = olsq.coefficient_path(X, y, **options, **per_row)
        assert_same_path(distributed.coefficient_path(cut(X), cut(y), **options, **cuts), one)
        fitted = olsq.RollingLeastSquares(**options).partial_fit(X, y, **per_row)
        assert_same_fit(distributed.fit(cut(X), cut(y), **options, **cuts), fitted)


def test_groups():
    X, y, weight = stream(9)
    rng = np.random.default_rng(1)
    by = rng.choice(np.array(["a", "b", "c", "late"]), N)
    by[(by == "late") & (np.arange(N) < 200)] = "a"
    X[rng.random(N) < 0.1, 0] = np.nan
    options = {"forget": 0.98, "ridge": 0.1}
    one = olsq.GroupedLeastSquares(**options).partial_fit(X, y, weight, by=by)
    found = distributed.fit(cut(X), cut(y), sample_weight=weight, by=cut(by), **options)
    assert found.keys() == one.keys()
    assert_same_fit(found["late"], one["late"])
    np.testing.assert_allclose(found.coef_, one.coef_, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found.n_samples_seen_, one.n_samples_seen_)
    predicted = distributed.predict(found, cut(X), by=cut(by))
    np.testing.assert_allclose(predicted, one.predict(X, by=by), rtol=1e-11)
    for more in ({}, {"window": 20}, {"window": 20, "half_life": 6}):
        options = {"by": by, "ridge": 0.1} | more
        path = olsq.coefficient_path(X, y, **options)
        assert_same_path(distributed.coefficient_path(cut(X), cut(y), **options), path)


@pytest.mark.parametrize("more", [{}, {"window": 9}])
def test_frames_of_paths_by_group_carry_the_key(more):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.standard_normal(60), "y": rng.standard_normal(60)})
    table.insert(0, "shop", np.array(["u", "v"])[np.arange(60) % 2])
    frame = dd.from_pandas(table, npartitions=3)
    path = distributed.coefficient_path(frame[["shop", "a"]], frame["y"], by="shop", **more)
    found = pd.concat([part.compute().to_frame() for part in path.partitions])
    whole = olsq.coefficient_path(table[["shop", "a"]], table["y"], by="shop", **more).to_frame()
    pd.testing.assert_frame_equal(found, whole, check_column_type=False)


def test_groups_with_a_half_life_in_time():
    X, y, weight = stream(9)
    rng = np.random.default_rng(1)
    by, times = rng.choice(np.array(["a", "b", "c"]), N), np.cumsum(rng.uniform(0, 2, N))
    times[N // 2 :] += 9000.0  # a gap of more than 300 half-lives
    X[rng.random(N) < 0.1, 0] = np.nan
    given = {"half_life": 25.0, "ridge": 0.1}
    one = olsq.GroupedLeastSquares(**given).partial_fit(X, y, weight, by=by, times=times)
    found = distributed.fit(
        cut(X), cut(y), sample_weight=weight, by=cut(by), times=cut(times), **given
    )
    for groups in (found, one):  # ready to go on: each group from its own last row
        groups.partial_fit(np.ones((3, 3)), [1.0, 2.0, 3.0], by=list("abc"), times=[9e5] * 3)
    np.testing.assert_allclose(found.coef_, one.coef_, rtol=1e-9, atol=1e-9)
    assert_same_fit(found["b"], one["b"])


def test_frames_by_names_of_columns():
    X, y, weight = stream(10)
    index = pd.date_range("2024-01-01", periods=N)
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=index)
    whole = frame.assign(y=y, w=weight)
    table = dd.from_pandas(whole, npartitions=4)
    one = olsq.RecursiveLeastSquares(half_life="30D").fit(frame, whole["y"], weight)
    found = distributed.fit(table, "y", sample_weight="w", half_life="30D")
    assert_same_fit(found, one)
    assert list(found.feature_names_in_) == ["a", "b", "c"]
    parts = table[["a", "b", "c"]], table["y"]  # collections of their own instead
    assert_same_fit(distributed.fit(*parts, sample_weight=table["w"], half_life="30D"), one)
    path = olsq.coefficient_path(frame, whole["y"], window="60D", fit_intercept=True)
    got = distributed.coefficient_path(*parts, window="60D", fit_intercept=True)
    pd.testing.assert_frame_equal(got.to_frame().compute(), path.to_frame(), check_freq=False)
    np.testing.assert_allclose(distributed.predict(one, parts[0]), one.predict(frame), rtol=1e-13)


def test_lazy_and_of_as_many_tasks_as_partitions():
    sizes = []
    for parts in (32, 64):
        X = da.ones((parts * 4, 2), chunks=(4, 2))
        delayed = distributed.fit(X, X[:, 0], compute=False)
        path = distributed.coefficient_path(X, X[:, 0])
        sizes.append([len(dict(c.__dask_graph__())) for c in (delayed, path.coef)])
    small, large = np.array(sizes)
    assert (large <= 2 * small + 16).all()
    assert (large <= 10 * 64).all()
    assert delayed.compute().n_samples_seen_ == 256


def test_a_task_that_runs_twice_finds_what_it_found():
    # What makes a lost worker harmless: no task changes a state that another may be given.
    X, y, _ = stream(11)
    path = distributed.coefficient_path(cut(X), cut(y), forget=0.9)
    graph = dict(path.coef.__dask_graph__())
    wanted = path.coef.__dask_keys__()
    first = dask.get(graph, [wanted, wanted])[0]
    state = distributed.fit(cut(X), cut(y), compute=False)
    assert state.compute().coef_.tobytes() == state.compute().coef_.tobytes()
    whole = np.concatenate([np.concatenate(part) for part in first])
    np.testing.assert_array_equal(whole, path.coef.compute())


def test_refusals_name_what_is_wrong():
    X, y, weight = stream(12)
    a, b = cut(X), cut(y)
    refused = [
        (TypeError, "X must be a Dask array", lambda: distributed.fit(X, y)),
        (ValueError, "two axes", lambda: distributed.fit(b, b)),
        (ValueError, "y must be given", lambda: distributed.fit(a, None)),
        (ValueError, "one entry for each", lambda: distributed.fit(a, b[:-1])),
        (TypeError, "how many rows", lambda: distributed.fit(cut(X, unknown=True), y)),
        (ValueError, "partitions", lambda: distributed.fit(
            cut(X, unknown=True), cut(y, unknown=True).blocks[1:])),
        (TypeError, "not a data frame", lambda: distributed.fit(a, "y")),
        (TypeError, "'nonsense' is not a parameter", lambda: distributed.fit(a, b, nonsense=1)),
        (ValueError, "cannot be combined", lambda: distributed.fit(
            a, b, window=5, half_life=3, forget=0.9)),
        (ValueError, "forget", lambda: distributed.fit(a, b, forget=1.5)),
        (ValueError, "cannot combine by and window", lambda: distributed.fit(a, b, by=y, window=5)),
        (ValueError, "window_of needs window",
            lambda: distributed.coefficient_path(a, b, window_of="positions")),
        (ValueError, "min_samples must be a positive whole number",
            lambda: distributed.coefficient_path(a, b, min_samples=0)),
        (ValueError, "leave statistics out",
            lambda: distributed.coefficient_path(a, b, statistics=False)),
        (TypeError, "'nonsense' is not a parameter of coefficient_path",
            lambda: distributed.coefficient_path(a, b, nonsense=1)),
        (ValueError, "y must be given", lambda: distributed.coefficient_path(a, None)),
        (ValueError, "horizon must be a whole number of rows",
            lambda: distributed.coefficient_path(a, b, horizon=0)),
        (ValueError, "is longer than the data",
            lambda: distributed.coefficient_path(a, b, horizon=len(a))),
        (ValueError, "horizon='5D' is a length of time, so that every row needs a time",
            lambda: distributed.coefficient_path(a, b, horizon="5D")),
        (ValueError, "times are numbers, but horizon='5D' is a length between dates",
            lambda: distributed.coefficient_path(
                a, b, horizon="5D", times=da.arange(len(a), chunks=a.chunks[0])
            ).residual.compute()),
        (ValueError, "cov='sandwich' is for forgetting",
            lambda: distributed.coefficient_path(a, b, window=5, cov="sandwich")),
        (ValueError, "missing value", lambda: distributed.fit(a, b * np.nan)),
        (ValueError, "sample_weight of 0", lambda: distributed.fit(a, b, sample_weight=0 * weight)),
        (ValueError, "contains NaN", lambda: distributed.fit(a, b * np.nan, missing="raise")),
        (ValueError, "features", lambda: distributed.predict(distributed.fit(a, b), a[:, :2])),
    ]  # fmt: skip
    for kind, message, call in refused:
        with pytest.raises(kind, match=message):
            call()


def test_ways_of_forgetting_are_refused():
    X, y = da.ones((10, 2), chunks=(5, 2)), da.ones(10, chunks=5)
    for door in (olsq.distributed.fit, olsq.distributed.coefficient_path):
        with pytest.raises(ValueError, match=r"forget=Directional\(\.\.\.\) cannot be merged"):
            door(X, y, forget=olsq.forgetting.Directional(0.9))


def random_rows(i):
    """Three regressors and a target."""
    return np.random.default_rng(i).standard_normal((20, 4))


@pytest.mark.parametrize("how", [{"forget": 0.98}, {"window": 30}], ids=lambda p: "-".join(p))
def test_a_path_holds_a_partition_at_a_time(how):
    alive, counts = set(), []

    def made(i):
        rows = random_rows(i)
        alive.add(token := object())
        counts.append(len(alive))
        weakref.finalize(rows, alive.remove, token)  # views keep the rows alive, copies do not
        return rows

    make = dask.delayed(made)
    whole = da.concatenate([da.from_delayed(make(i), (20, 4), float) for i in range(24)])
    rows = np.concatenate([random_rows(i) for i in range(24)])
    one = olsq.coefficient_path(rows[:, :3], rows[:, 3], **how)
    for reread in (True, False):
        counts.clear()
        path = distributed.coefficient_path(whole[:, :3], whole[:, 3], reread=reread, **how)
        got = path.coef.compute()
        np.testing.assert_allclose(got, one.coef, rtol=1e-12, atol=1e-13, equal_nan=True)
        # Nothing comes after the last partition, so that its state is not asked for.
        assert len(counts) == (47 if reread else 24)
        assert max(counts) <= 2 if reread else max(counts) > 8
    counts.clear()
    first = distributed.coefficient_path(whole[:, :3], whole[:, 3], **how).coef[:5].compute()
    assert (len(counts), len(first)) == (1, 5)
    kept = whole.persist()
    counts.clear()
    again = distributed.coefficient_path(kept[:, :3], kept[:, 3], **how).coef.compute()
    np.testing.assert_array_equal(again, got)
    assert not counts


def test_rereading_what_partitions_share_and_tables():
    calls = []

    def read(i):
        calls.append(i)
        return random_rows(i)

    shared = dask.delayed(read)(0)  # both partitions are parts of it
    X = da.concatenate([da.from_delayed(shared[:10], (10, 4), float),
                        da.from_delayed(shared[10:], (10, 4), float)])  # fmt: skip
    got = distributed.coefficient_path(X[:, :3], X[:, 3]).coef.compute()
    want = olsq.coefficient_path(random_rows(0)[:, :3], random_rows(0)[:, 3]).coef
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13, equal_nan=True)
    assert calls == [0]

    def frame(i):
        calls.append(i)
        return pd.DataFrame(random_rows(i), columns=list("abcy"))

    table = dd.from_map(frame, range(3))
    calls.clear()
    got = distributed.coefficient_path(table, "y").coef.compute()
    rows = np.concatenate([random_rows(i) for i in range(3)])
    want = olsq.coefficient_path(rows[:, :3], rows[:, 3]).coef
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13, equal_nan=True)
    assert sorted(calls) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("targets", ["y", ["y", "z"]])
def test_partitions_that_a_filter_has_emptied_are_predicted(targets):
    table = pd.DataFrame({"a": np.arange(12.0), "y": np.arange(12.0) * 2, "z": np.ones(12)})
    whole = dd.from_pandas(table, npartitions=3)
    est = olsq.distributed.fit(whole[["a"]], whole[targets], ridge=0.0)
    kept = whole[whole.a > 4.5]  # nothing of the first partition
    got = olsq.distributed.predict(est, kept[["a"]]).compute()
    np.testing.assert_array_equal(got, est.predict(table[table.a > 4.5][["a"]]))


def test_a_path_of_one_row_is_that_row():
    X, y = np.array([[2.0]]), np.array([6.0])
    for options in ({}, {"window": 3}, {"by": da.from_array(np.array(["a"]), chunks=1)}):
        path = distributed.coefficient_path(da.from_array(X), da.from_array(y), **options)
        assert path.coef.compute().tolist() == [[3.0]]
    with pytest.raises(ValueError, match="longer than the data"):
        distributed.coefficient_path(da.from_array(X), da.from_array(y), horizon=2)


def test_keys_without_a_usable_row_stay():
    X, y, _ = stream()
    by = np.array(list("abcd"))[np.arange(N) % 4]
    X[by == "b", 0], y[by == "d"] = np.nan, np.nan
    one = olsq.GroupedLeastSquares().partial_fit(X, y, by=by)
    found = distributed.fit(cut(X), cut(y), by=cut(by))
    assert found.keys() == one.keys() == ["a", "b", "c", "d"]
    np.testing.assert_allclose(found.coef_, one.coef_, rtol=1e-11)
    np.testing.assert_array_equal(found.n_samples_seen_, one.n_samples_seen_)
    predicted = found.predict(X, by=by)
    np.testing.assert_array_equal(np.isnan(predicted), np.isnan(one.predict(X, by=by) + y))
    np.testing.assert_allclose(predicted, one.predict(X, by=by) + 0 * y, rtol=1e-11)


@pytest.mark.parametrize("options", [{}, {"window": 9}, {"window": 9, "fit_intercept": True}])
def test_partitions_without_a_label(options):
    """And a label only on rows with a missing value; in the first partitions, and later."""
    X, y, _ = stream(12)
    by = (np.arange(N) % 2).astype(float)
    by[:45], by[150:200] = np.nan, np.nan
    by[20:25], X[20:25] = 1, np.nan
    one = olsq.coefficient_path(X, y, by=by, **options)
    assert_same_path(distributed.coefficient_path(cut(X), cut(y), by=cut(by), **options), one)
    with pytest.raises(ValueError, match="by has no label in any row"):
        olsq.coefficient_path(X, y, by=np.full(N, np.nan), **options)


@pytest.mark.full
@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize(
    "parameters",
    [
        {"forget": 0.9},
        {"missing": "skip_target"},
        {"method": "information", "missing": "skip_target", "ridge": 0.1},
        {"horizon": 7},
    ],
    ids=lambda p: "-".join(p),
)
def test_rows_before_enough_samples_read_nan(parameters, by):
    X, y, weight = stream(7)
    Y = np.column_stack([y, y[::-1]])
    X[:30, 0] = np.nan  # the first partitions have nothing to learn
    Y[:110, 1] = np.nan
    Y[200:230, 0] = np.nan
    rows = {"sample_weight": weight} | ({"by": np.arange(N) * 7 % 3} if by else {})
    options = parameters | {"min_samples": 20 if by else 60}
    one = olsq.coefficient_path(X, Y, **rows, **options)
    assert np.isnan(one.coef).any()
    assert np.isfinite(one.coef).any()
    cut_rows = {name: cut(values) for name, values in rows.items()}
    found = distributed.coefficient_path(cut(X), cut(Y), **cut_rows, **options)
    assert_same_path(found, one, rtol=1e-10)
    np.testing.assert_allclose(found.n_rows.compute(), one.n_rows, rtol=1e-10)


TIMED = {
    "half-life": {"half_life": 10.0},
    "fixed ridge": {"half_life": 10.0, "ridge_mode": "fixed", "ridge": 0.5},
    "by target": {"half_life": 10.0, "missing": "skip_target"},
    "window": {"window": 15.0},
    "window that fades": {"window": 15.0, "half_life": 5.0},
    "groups": {"half_life": 10.0, "by": np.arange(60) % 3},
    "groups one after another": {"half_life": 10.0, "by": np.repeat([0, 1, 2], 20)},
}


def learn_one(est, Y, **row):
    return copy.deepcopy(est).partial_fit([[1.0, 1.0]], Y, **row)


def merge_after(later, est):
    return olsq.merge(est, later)


@pytest.mark.full
@pytest.mark.parametrize("lost", [(50, 60), (40, 60), (20, 40), (0, 20)])
@pytest.mark.parametrize("kind", TIMED)
def test_the_last_time_is_that_of_the_last_row_usable_or_not(kind, lost):
    rng = np.random.default_rng(0)
    X, Y, times = rng.standard_normal((60, 2)), rng.standard_normal((60, 2)), np.arange(60.0)
    X[slice(*lost)] = np.nan
    options = dict(TIMED[kind])
    by = {"by": options.pop("by")} if "by" in options else {}
    estimator = olsq.RollingLeastSquares if "window" in options else olsq.RecursiveLeastSquares
    estimator = olsq.GroupedLeastSquares if by else estimator

    def learn(rows):
        at = {name: values[rows] for name, values in by.items()}
        return estimator(**options).partial_fit(X[rows], Y[rows], times=times[rows], **at)

    one, cuts = learn(slice(None)), {name: da.from_array(v, chunks=20) for name, v in by.items()}
    arrays = [da.from_array(a, chunks=(20, 2)) for a in (X, Y)]
    found = distributed.fit(*arrays, times=da.from_array(times, chunks=20), **cuts, **options)
    for at in (lost[0] - 5.0, lost[1] - 5.0, 58.0, 59.0, 61.0):
        later = {"by": [2]} if by else {}
        outcomes = []
        for fitted in (one, found):
            more = estimator(**options).partial_fit(X[39:40] * 0 + 1, Y[:1], times=[at], **later)
            for go_on in (
                partial(learn_one, Y=Y[:1], times=[at], **later),
                partial(merge_after, more),
            ):
                try:
                    outcomes.append(np.asarray(go_on(fitted).coef_))
                except ValueError as error:
                    outcomes.append(str(error))
        for want, got in zip(outcomes[:2], outcomes[2:], strict=True):
            if isinstance(want, str):
                assert got == want
            else:
                np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_times_that_go_back_across_a_partition_without_a_usable_row():
    X, y, times = np.ones((30, 1)), np.ones(30), np.arange(30.0)
    X[10:20], times[20:] = np.nan, np.arange(12.0, 22.0)
    rows = [da.from_array(a, chunks=(10, *a.shape[1:])) for a in (X, y, times)]
    for door in (distributed.fit, distributed.coefficient_path):
        with pytest.raises(ValueError, match=r"times must not go back|before first ends"):
            dask.compute(door(*rows[:2], times=rows[2], half_life=5.0))


def test_a_window_in_which_no_row_is_usable():
    X, y, _ = stream(8)
    X[-60:] = np.nan
    for options in ({"window": 40, "window_of": "positions"}, {"window": 40.0}):
        times = {} if "window_of" in options else {"times": np.arange(float(N))}
        one = olsq.RollingLeastSquares(**options).partial_fit(X, y, **times)
        found = distributed.fit(cut(X), cut(y), **{k: cut(v) for k, v in times.items()}, **options)
        assert found.n_samples_seen_ == one.n_samples_seen_
        for est in (found, one):
            with pytest.raises(NotFittedError, match="0 of min_samples=1 rows"):
                _ = est.coef_
        later = {"times": [N]} if times else {}
        assert_same_fit(*(e.partial_fit([[1.0, 2, 3]], [1.0], **later) for e in (found, one)))


@pytest.mark.full
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"half_life": 9.0}, {"window": 9.0}, {"horizon": 3.0}],
    ids=lambda p: "-".join(p),
)
@pytest.mark.parametrize("by", [{}, {"by": "shop"}], ids=["one", "groups"])
def test_columns_are_known_before_anything_is_computed(by, options, index):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((24, 3)), columns=["a", "y", "z"])
    table = table.assign(shop=np.arange(24) % 2, day=np.arange(24.0))
    frame = dd.from_pandas(table, npartitions=3)
    unused = [] if by else ["shop"]
    found = distributed.coefficient_path(
        frame.drop(columns=unused), ["y", "z"], times="day", **by, **options
    ).to_frame(index=index)
    labels = {"by": table["shop"]} if by else {}
    one = olsq.coefficient_path(
        table[["a"]], table[["y", "z"]], times=table["day"], **labels, **options
    ).to_frame(index=index)
    assert list(found.columns) == list(found.compute().columns) == list(one.columns)
    arrays = {name: da.from_array(table[name].to_numpy(), chunks=8) for name in table}
    labels = {"by": arrays["shop"]} if by else {}
    found = distributed.coefficient_path(
        arrays["a"][:, None], arrays["y"], times=arrays["day"], **labels, **options
    ).to_frame(index=index, names=["slope"])
    labels = {"by": table["shop"].to_numpy()} if by else {}
    one = olsq.coefficient_path(
        table[["a"]].to_numpy(), table["y"].to_numpy(), times=table["day"].to_numpy(),
        **labels, **options,
    ).to_frame(index=index, names=["slope"])  # fmt: skip
    assert list(found.columns) == list(one.columns)
    computed = found.compute()
    if not index:
        computed = computed.reset_index(drop=True)
    pd.testing.assert_frame_equal(computed, one, rtol=1e-9)
