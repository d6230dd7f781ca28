"""``GroupedRollingLeastSquares`` is each group's own window, through pieces, files and copies."""

import copy
import datetime
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

import olsq

N = 900
KINDS = {
    "samples": {"window": 25},
    "positions": {"window": 25, "window_of": "positions"},
    "few rows": {"window": 6, "min_samples": 4},
    "time": {"window": 40.0},
    "two targets": {"window": 25, "missing": "skip_target"},
    "weights": {"window": 25},
    "fading": {"window": 25, "half_life": 8, "window_of": "positions"},
    "fading in time": {"window": 40.0, "half_life": 15.0},
    "half-life in time": {"window": 25, "half_life": "15D"},
}
AGAIN = [
    lambda groups: olsq.loads(groups.to_bytes()),
    copy.copy,
    lambda groups: pickle.loads(pickle.dumps(groups)),
]


def rows(kind, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 3))
    Y = X @ rng.standard_normal((3, 2)) + 0.3 * rng.standard_normal((N, 2))
    by = rng.integers(0, 12, N).astype(str).astype(object)
    X[::13, 1], Y[::17, 0], Y[5::19, 1], by[::41] = np.nan, np.nan, np.nan, None
    times = np.cumsum(rng.random(N))
    if kind == "half-life in time":
        times = np.datetime64("2020-01-01") + (86400 * times).astype("timedelta64[s]")
    more = {"times": times} if "time" in kind else {}
    more |= {"sample_weight": rng.integers(0, 3, N) / 2} if kind == "weights" else {}
    return X, Y if kind == "two targets" else Y[:, 0], by, more


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_the_whole_path(kind):
    X, y, by, more = rows(kind)
    options = {"ridge": 0.1, "fit_intercept": True} | KINDS[kind]
    whole = olsq.coefficient_path(X, y, by=by, **options, **more)
    groups, parts = olsq.GroupedRollingLeastSquares(**options), []
    for number, start in enumerate(range(0, N, 200)):
        block = slice(start, start + 200)
        own = {name: values[block] for name, values in more.items()}
        parts.append(groups.partial_fit_path(X[block], y[block], by=by[block], **own))
        np.testing.assert_array_equal(groups.residual_, parts[-1].residual)
        groups = AGAIN[number % len(AGAIN)](groups)
    for name in ("coef", "intercept", "residual", "sigma2", "stderr", "recursive_residual"):
        found = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(found, getattr(whole, name), rtol=1e-9, atol=1e-11)
    # The attributes and predictions are those of each group's own estimator.
    learned = olsq.GroupedRollingLeastSquares(**options).fit(X, y, by=by, **more)
    for place, key in enumerate(learned):
        alone = olsq.RollingLeastSquares(**options)
        mine = by == key
        alone.fit(X[mine], y[mine], **{name: values[mine] for name, values in more.items()})
        for name in ("coef_", "intercept_", "sigma2_", "coef_stderr_", "rank_", "determined_"):
            np.testing.assert_allclose(getattr(learned, name)[place], getattr(alone, name))
        assert learned.n_samples_seen_[place] == alone.n_samples_seen_
        # BLAS adds the products of a row in an order that depends on the number of rows.
        predicted = learned.predict(X[:9], by=[key] * 9)
        np.testing.assert_allclose(predicted, alone.predict(X[:9]), rtol=1e-13, atol=1e-14)
        for one, other in zip(
            learned.predict_interval(X[1:9], 0.9, by=[key] * 8),
            alone.predict_interval(X[1:9], 0.9),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-12)
        np.testing.assert_array_equal(learned[key].coef_, alone.coef_)
    assert np.isnan(learned.predict(X[1:3], by=[None, "new"])).all()


def test_frames_name_groups_and_features():
    X, y, by, _ = rows("samples")
    wanted = olsq.GroupedRollingLeastSquares(25).fit(X, y, by=by)
    columns = {f"x{j}": X[:, j] for j in range(3)} | {"stock": list(by)}
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns)):
        groups = olsq.GroupedRollingLeastSquares(25).fit(frame, y, by="stock")
        np.testing.assert_array_equal(groups.coef_, wanted.coef_)
        assert list(groups.feature_names_in_) == ["x0", "x1", "x2"]
        assert list(groups["3"].feature_names_in_) == ["x0", "x1", "x2"]
        again = olsq.loads(groups.to_bytes(metadata={"rows": N}))
        assert list(again.feature_names_in_) == ["x0", "x1", "x2"]
        assert again.metadata_ == {"rows": N}
        path = again.partial_fit_path(frame[:5], y[:5], by="stock")
        assert path.to_frame().shape[0] == 5


def test_an_error_leaves_every_group_as_it_was():
    X, y, by, _ = rows("time")
    times = np.arange(N) * 1.0
    groups = olsq.GroupedRollingLeastSquares(40.0).fit(X, y, by=by, times=times)
    before = groups.to_bytes()
    late = np.full(N, 2.0 * N)
    late[-1] = 0.0  # goes back, in one group only
    with pytest.raises(ValueError, match=f"group '{by[-1]}'"):
        groups.partial_fit(X, y, by=by, times=late)
    with pytest.raises(ValueError, match="every row needs a time"):
        groups.partial_fit(X, y, by=by)
    for wrong in (X[:, :2], X[:-1]):
        with pytest.raises(ValueError, match=r"features|inconsistent"):
            groups.partial_fit(wrong, y, by=by, times=late)
    assert groups.to_bytes() == before
    groups.set_params(window=50.0)
    with pytest.raises(ValueError, match="window is"):
        groups.partial_fit(X, y, by=by, times=times + N)
    with pytest.raises(ValueError, match="has no label in row 0"):
        olsq.GroupedRollingLeastSquares(9, missing="raise").fit(X[1:], y[1:], by=[None, *by[2:]])
    clean = np.ones((4, 1)), np.arange(4.0)
    est = olsq.GroupedRollingLeastSquares(3, missing="raise").fit(*clean, by=list("aabb"))
    with pytest.raises(ValueError, match="new label"):
        est.predict([[1.0]], by=["c"])


def test_before_the_first_row_there_is_nothing():
    groups = olsq.GroupedRollingLeastSquares(9)
    assert len(groups) == 0
    assert groups.keys() == []
    for ask in (lambda: groups.coef_, lambda: groups.predict([[1.0]], by=["a"]), groups.to_bytes):
        with pytest.raises(ValueError, match=r"not fitted|not learned"):
            ask()


@pytest.mark.parametrize("damage", ["ends", "keys", "kind", "extra"])
def test_a_file_that_is_not_of_such_groups_is_refused(damage):
    from olsq.online.files import format as files

    X, y, by, _ = rows("samples")
    header, arrays = olsq.GroupedRollingLeastSquares(9).fit(X, y, by=by)._snapshot(None)
    if damage == "ends":
        arrays["ends"] = arrays["ends"][::-1].copy()
    elif damage == "keys":
        header["keys"] = header["keys"][:-1] + header["keys"][:1]
    elif damage == "kind":
        state = olsq.RecursiveLeastSquares().fit(X, y).to_bytes()
        states = np.frombuffer(state, np.int64)
        arrays = {"states": states, "ends": np.array([states.size])}
        header["keys"] = ["a"]
    else:
        header["parameters"] = {}
    with pytest.raises(olsq.StateFileError):
        olsq.loads(files.packed(header, arrays))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_merged_groups_have_learned_the_rows_of_both(kind):
    """Keys of both, of the first and of the second alone; nothing of the two changes."""
    X, y, by, more = rows(kind)
    half = np.arange(N) < N // 2
    by[half & (by == "3")], by[~half & (by == "5")] = "4", "4"
    options = {"ridge": 0.1, "fit_intercept": True} | KINDS[kind]

    def learn(own):
        given = {name: values[own] for name, values in more.items()}
        groups = olsq.GroupedRollingLeastSquares(**options)
        return groups.partial_fit(X[own], y[own], by=by[own], **given)

    whole, first, second = learn(half | True), learn(half), learn(~half)
    before = [groups.to_bytes() for groups in (first, second)]
    both = olsq.merge(first, second)
    assert [groups.to_bytes() for groups in (first, second)] == before
    assert sorted(both) == sorted(whole)
    for key in whole:
        np.testing.assert_allclose(both[key].coef_, whole[key].coef_, rtol=1e-8, atol=1e-10)
        assert both[key].n_samples_seen_ == whole[key].n_samples_seen_
    other = olsq.GroupedRollingLeastSquares(**options | {"ridge": 0.2}).fit(X, y, by=by, **more)
    with pytest.raises(ValueError, match="cannot merge: ridge differs"):
        olsq.merge(first, other)


LENGTHS = [
    "60h",
    "2.5D",
    datetime.timedelta(hours=60),
    np.timedelta64(60, "h"),
    pd.Timedelta("60h"),
]


@pytest.mark.parametrize("second", LENGTHS, ids=repr)
@pytest.mark.parametrize("first", LENGTHS, ids=repr)
def test_a_window_of_time_is_one_length_however_it_is_written(first, second):
    """Groups that were saved, loaded and merged go on, whichever spelling they hold."""
    X, y = np.random.default_rng(3).standard_normal((2, 40))
    X, times = X[:, None], pd.date_range("2024-01-01", periods=40, freq="7h")
    a = olsq.GroupedRollingLeastSquares(first).fit(X[:20], y[:20], by=["a"] * 20, times=times[:20])
    b = olsq.GroupedRollingLeastSquares(second)
    b.fit(X[:20], y[:20], by=["b"] * 20, times=times[:20])
    both = olsq.loads(olsq.merge(olsq.loads(a.to_bytes()), b).to_bytes())
    one = olsq.GroupedRollingLeastSquares("60h")
    one.fit(np.tile(X[:20], (2, 1)), np.tile(y[:20], 2), by=["a"] * 20 + ["b"] * 20,
            times=times[:20].append(times[:20]))  # fmt: skip
    by = list("abcd") * 5
    for groups in (both, olsq.merge(a, b), one):
        groups.partial_fit(X[20:], y[20:], by=by, times=times[20:])
    np.testing.assert_array_equal(both.coef_, one.coef_)
    a.set_params(window=second).partial_fit(X[20:], y[20:], by=by, times=times[20:])
    alone = olsq.RollingLeastSquares(first).fit(X[:20], y[:20], times=times[:20])
    alone.set_params(window=second).partial_fit(X[20:], y[20:], times=times[20:])


@pytest.mark.parametrize("intercept", [True, False])
def test_without_a_label_there_are_no_groups_and_an_answer(intercept):
    """As of ``GroupedLeastSquares``: after rows without any label, and after a file of them."""
    options = {"fit_intercept": intercept}
    X, y = rows("samples")[:2]
    Y = np.column_stack([y, -y])
    by = np.array(["a", "b"])[np.arange(N) % 2]
    for target in (y, Y):
        groups, all_rows = (
            make().partial_fit(X, target, by=[None] * N)
            for make in (
                lambda: olsq.GroupedRollingLeastSquares(9, **options),
                lambda: olsq.GroupedLeastSquares(**options),
            )
        )
        begun = olsq.GroupedRollingLeastSquares(9, **options)
        begun.partial_fit_path(X[:0], target[:0], by=by[:0])
        for est in (begun, groups, olsq.loads(groups.to_bytes()), olsq.merge(groups, groups)):
            for name in ("coef_", "intercept_", "sigma2_", "rank_", "n_samples_seen_"):
                found, like = getattr(est, name), getattr(all_rows, name)
                assert found.shape == like.shape
                assert found.dtype == like.dtype
            assert est.keys() == []
            np.testing.assert_array_equal(est.predict(X, by=by), all_rows.predict(X, by=by))  # NaN
            assert np.isnan(est.predict_interval(X, by=by)[0]).all()
        known = olsq.GroupedRollingLeastSquares(9, **options).fit(X, target, by=by)
        for merged in (olsq.merge(known, groups), olsq.merge(groups, known)):
            np.testing.assert_array_equal(merged.coef_, known.coef_)
        with pytest.raises(ValueError, match="features"):
            groups.partial_fit(X[:, :1], target, by=by)
        np.testing.assert_array_equal(groups.partial_fit(X, target, by=by).coef_, known.coef_)


@pytest.mark.parametrize("options", [{}, {"missing": "skip_target"}, {"fit_intercept": False}])
@pytest.mark.parametrize("make", [olsq.GroupedLeastSquares, olsq.GroupedRollingLeastSquares])
def test_r_squared_is_that_of_the_summaries_of_the_groups(make, options):
    if make is olsq.GroupedRollingLeastSquares:
        options = options | {"window": 15}
    elif "missing" in options:
        options = {}
    rng = np.random.default_rng(5)
    X, keys = rng.standard_normal((90, 2)), rng.integers(0, 4, 90)
    Y = np.stack([X @ [1.0, 2.0] + rng.standard_normal(90), 3 + rng.standard_normal(90)], 1)
    Y[keys == 2], Y[keys == 1, 1] = np.nan, np.nan
    for y in (Y, Y[:, 0]):
        groups = make(**options).partial_fit(X, y, by=keys)
        got = groups.r_squared_.reshape(len(groups), -1)
        for i, key in enumerate(groups.keys()):
            if key == 2 or (key == 1 and y.ndim == 2 and "missing" not in options):
                assert np.isnan(got[i]).all()
                continue
            summary = groups[key].summary()
            np.testing.assert_array_equal(got[i], [fit.r_squared for fit in summary.fits])
            if key != 1:
                assert 0 <= got[i].min() < got[i].max() < 1 or got.shape[1] == 1
