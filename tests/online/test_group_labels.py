"""Paths by group keep the labels of their rows: in frames, pieces of the path, and figures."""

import copy
import datetime

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import olsq
from olsq.features import Grouped, Lags, OneHot
from olsq.plot import plot_fit, plot_path, plot_residuals

N = 60
LABELS = {
    "text": ["north", "south", None] * 20,
    "integers": [3, 1, 2] * 20,
    "dates": np.arange(3).astype("datetime64[D]").repeat(20),
    "truth values": [True, False] * 30,
}


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 2))
    return X, X @ [1.0, -2.0] + 0.1 * rng.standard_normal(N)


DOORS = {
    "path": lambda X, y, by: olsq.coefficient_path(X, y, by=by, fit_intercept=True),
    "window": lambda X, y, by: olsq.coefficient_path(X, y, by=by, window=9),
    "grouped": lambda X, y, by: olsq.GroupedLeastSquares().partial_fit_path(X, y, by=by),
    "rolling": lambda X, y, by: olsq.GroupedRollingLeastSquares(9).partial_fit_path(X, y, by=by),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("door", DOORS)
def test_the_key_is_the_first_column(door, kind):
    X, y = rows()
    labels = LABELS[kind]
    path = DOORS[door](X, y, labels)
    wanted = pd.Series(labels)
    for name in ("pandas", "polars", "pyarrow"):
        if kind == "dates" and name == "pyarrow":
            continue  # its dates of days are another type
        table = path.to_frame(kind=name)
        columns = table.column_names if name == "pyarrow" else list(table.columns)
        assert columns[0] == "group"
        found = table["group"].to_pandas() if name != "pandas" else table["group"]
        found, series = found.astype(object), wanted.astype(object)
        assert [None if pd.isna(v) else v for v in found] == [
            None if pd.isna(v) else v for v in series
        ]
    one = path.of_group(pd.unique(wanted.dropna())[0] if kind != "dates" else LABELS[kind][0])
    mine = (wanted == wanted.iloc[0]).to_numpy()
    np.testing.assert_array_equal(one.coef, path.coef[mine])
    assert "group" not in one.to_frame()


def test_frames_give_the_column_its_name_and_keep_index_and_times():
    X, y = rows()
    days = pd.date_range("2024-01-01", periods=N, tz="Europe/Paris")
    shop = ["north", "south", "west"] * 20
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "shop": shop}, index=days)
    for by, X_ in (("shop", frame), (frame["shop"], frame[["a", "b"]])):
        for path in (
            olsq.coefficient_path(X_, y, by=by),
            olsq.GroupedLeastSquares().partial_fit_path(X_, y, by=by),
            olsq.GroupedRollingLeastSquares(9).partial_fit_path(X_, y, by=by),
        ):
            table = path.to_frame()
            assert [name for name in table if name != "intercept"][:2] == ["shop", "a"]
            assert next(iter(table)) == "shop"
            assert table.index.equals(days)
            one = path.of_group("west").to_frame()
            assert one.index.equals(days[2::3])
            assert "shop" not in one
    for other in (pl.from_pandas(frame), pa.table(frame.reset_index(drop=True))):
        path = olsq.coefficient_path(other, y, by="shop", times=days)
        table = path.to_frame(kind="polars")
        assert table.columns[:3] == ["time", "shop", "a"]
        assert table["shop"].to_list() == shop
        assert type(path.to_frame()) is type(other)
    Y = np.column_stack([y, -y])
    table = olsq.coefficient_path(frame, Y, by="shop").to_frame()
    assert next(iter(table)) == ("shop", "")
    assert table["shop"].tolist() == shop
    # A series that is called as a regressor is.
    path = olsq.coefficient_path(frame[["a", "b"]], y, by=pd.Series(shop, days, name="a"))
    assert list(path.to_frame())[:3] == ["group", "a", "b"]


def test_a_group_that_is_not_there_is_said():
    X, y = rows()
    with pytest.raises(KeyError, match="east"):
        olsq.coefficient_path(X, y, by=LABELS["text"]).of_group("east")
    with pytest.raises(ValueError, match="made without by="):
        olsq.coefficient_path(X, y).of_group("east")


@pytest.mark.parametrize("groups", [1, 2, 9])
def test_every_group_has_panels_of_its_own(groups):
    X, y = rows()
    by = [f"stock ${i % groups}" for i in range(N)]
    days = np.datetime64("2024-01-01") + np.arange(N)
    path = olsq.coefficient_path(X, y, by=by, times=days)
    for figure in (path.plot(names=["market", "size"]), plot_path(path, names=["market", "size"])):
        assert len(figure.axes) == 2 * groups
        titles = [ax.get_title(loc="left") for ax in figure.axes]
        if groups > 1:
            assert titles[:2] == [r"stock \$0: market", r"stock \$0: size"]
            drawn = figure.axes[3].lines[0].get_ydata()  # the second group's second coefficient
            np.testing.assert_array_equal(drawn, path.coef[1::groups, 1])
        else:
            assert titles == ["market", "size"]
        plt.close(figure)


def test_more_groups_than_a_figure_shows_are_refused():
    X, y = rows()
    path = olsq.coefficient_path(X, y, by=np.arange(N) % 10)
    message = r"10 groups, and a figure shows up to 9.*of_group\(0\)"
    for draw in (path.plot, lambda: plot_path(path)):
        with pytest.raises(ValueError, match=message):
            draw()
    for draw in (plot_residuals, plot_fit):
        with pytest.raises(ValueError, match=r"10 groups.*of_group\(0\)"):
            draw(path)
        plt.close(draw(path.of_group(0)))
    figure = path.of_group(3).plot()
    assert len(figure.axes) == 2
    plt.close(figure)


ARROW_LABELS = [["a", "a", None, "b", "b"], [1, 1, None, 2, 2], [True, True, None, False, False]]


@pytest.mark.parametrize("labels", ARROW_LABELS, ids=str)
@pytest.mark.parametrize("dictionary", [False, True])
def test_arrow_labels_with_a_null(labels, dictionary):
    """A null of a dictionary is no label: Arrow itself reads it as the last value."""
    array = pa.array(labels)
    array = array.dictionary_encode() if dictionary else array
    x, y = np.arange(5.0), np.arange(5.0) ** 2
    want = olsq.coefficient_path(x[:, None], y, by=labels).coef[:, 0]
    assert np.isnan(want).tolist() == [False, False, True, False, False]
    for by in (array, pa.chunked_array([array[:1], array[1:]])):
        np.testing.assert_array_equal(olsq.coefficient_path(x[:, None], y, by=by).coef[:, 0], want)
    table = pa.table({"x": x, "label": array})
    np.testing.assert_array_equal(olsq.coefficient_path(table, y, by="label").coef[:, 0], want)
    levels = OneHot("label", max_levels=2).partial_transform(table)
    np.testing.assert_array_equal(levels[:, 0], [1, 1, np.nan, 0, 0])


def test_arrow_numbers_of_a_dictionary_with_a_null():
    numbers = pa.array([1.0, 2.0, None, 4.0])
    for column in (numbers, pa.chunked_array([numbers])):
        encoded = column.dictionary_encode()
        for call in (
            lambda c: olsq.coefficient_path(pa.table({"x": c}), [1.0, 2.0, 3.0, 4.0]),
            lambda c: olsq.coefficient_path(np.ones((4, 1)), c),
        ):
            want = call(column).residual
            assert np.isnan(want).tolist() == [False, False, True, False]
            np.testing.assert_array_equal(call(encoded).residual, want)


BIG = 2**53
COLUMNS = {
    "list": list,
    "masked": lambda ids: np.ma.array([i or 0 for i in ids], mask=[i is None for i in ids]),
    "Int64": lambda ids: pd.Series(ids, dtype="Int64"),
    "index": lambda ids: pd.Index(pd.array(ids, dtype="Int64")),
    "int64[pyarrow]": lambda ids: pd.Series(ids, dtype="int64[pyarrow]"),
    "categorical": lambda ids: pd.Series(pd.Categorical(pd.array(ids, dtype="Int64"))),
    "level": lambda ids: pd.MultiIndex.from_arrays([pd.array(ids, dtype="Int64"), range(len(ids))]),
    "Polars": pl.Series,
    "Arrow": pa.array,
    "chunks": lambda ids: pa.chunked_array([ids[:7], ids[7:]]),
    "dictionary": lambda ids: pa.array(ids).dictionary_encode(),
}


def large_integers(seed, n):
    """Neighbours that float64 does not tell apart, some missing."""
    rng = np.random.default_rng(seed)
    near = [int(rng.integers(BIG, 2**62)) + i for i in range(2)] + [-BIG - 1, -BIG]
    ids = [near[i] if i < 4 else None for i in rng.integers(0, 5, n)]
    return ids if len(set(ids)) == 5 else large_integers(seed + 1000, n)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", COLUMNS)
def test_integers_are_labels_to_their_last_digit(kind, seed):
    """No integer goes through float64, where a column has missing entries or not."""
    ids = large_integers(seed, N)
    X, y = rows(seed)
    text = olsq.coefficient_path(X, y, by=[None if i is None else str(i) for i in ids])
    column = COLUMNS[kind](ids)
    if kind == "level":
        X = pd.DataFrame(X, index=column.set_names(["id", "row"]))
        column = "id"
    path = olsq.coefficient_path(X, y, by=column)
    np.testing.assert_array_equal(path.coef, text.coef)
    name = "group" if kind != "level" else "id"
    for library in ("pandas", "polars", "pyarrow"):
        shown = path.to_frame(kind=library)[name]
        shown = shown.to_pylist() if library == "pyarrow" else shown.to_list()
        assert [None if i is pd.NA else i for i in shown] == ids
    keys = [i for i in dict.fromkeys(ids) if i is not None]
    groups = olsq.GroupedLeastSquares(fit_intercept=False).fit(X, y, by=column)
    assert groups.keys() == keys
    assert all(len(path.of_group(key).coef) == ids.count(key) for key in keys)
    last = {i: path.coef[max(t for t, j in enumerate(ids) if j == i)] for i in keys}
    wanted = [np.full(2, np.nan) if i is None else last[i] for i in ids]
    some = groups.predict(X, by=column)
    np.testing.assert_allclose(some, (np.array(wanted) * np.asarray(X)).sum(axis=1), 1e-10)
    assert olsq.fama_macbeth(X, y, by=column, fit_intercept=False).groups == sorted(keys)
    assert list(olsq.time_varying(X, y, by=column, drift=0.0, noise=1.0)) == keys
    assert olsq.loads(groups.to_bytes()).keys() == keys


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "lists", "masked"])
def test_features_know_integers_to_their_last_digit(library):
    ids = large_integers(5, N)
    frame = pd.DataFrame({"id": pd.Series(ids, dtype="Int64"), "x": np.arange(float(N))})
    convert = {"pandas": lambda f: f, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}
    convert["lists"] = lambda f: [list(row) for row in zip(ids, f["x"], strict=True)]
    masked = np.ma.array([[i or 0, 0] for i in ids], mask=[[i is None, False] for i in ids])
    masked[:, 1] = np.arange(N)
    convert["masked"] = lambda f: masked
    last, before = {None: np.nan}, []
    for t, i in enumerate(ids):
        before.append(last.get(i, np.nan))
        last[i] = t if i is not None else np.nan
    X, named = convert[library](frame), library not in ("lists", "masked")
    lags = Grouped(Lags(1, of="x" if named else 0), by="id" if named else 0).fit_transform(X)
    np.testing.assert_array_equal(lags[:, 0], before)
    levels = OneHot("id" if named else 0, max_levels=4).fit(X).get_feature_names_out().tolist()
    named = "id" if named else "x0"
    assert levels == [f"{named}={i}" for i in dict.fromkeys(ids) if i is not None]


DATES = {
    "date": lambda days: days.tolist(),
    "datetime": lambda days: days.astype("datetime64[us]").tolist(),
    "days": lambda days: days,
    "nanoseconds": lambda days: days.astype("datetime64[ns]"),
    "Timestamp": lambda days: list(pd.to_datetime(days)),
    "periods": lambda days: pd.PeriodIndex(days, freq="D"),
    "pandas": lambda days: pd.Series(pd.to_datetime(days)),
    "Polars": pl.Series,
    "Arrow": pa.array,
}


@pytest.mark.full
@pytest.mark.parametrize("second", DATES)
@pytest.mark.parametrize("first", DATES)
def test_a_day_is_one_label_in_every_library(first, second):
    X, y = rows()
    days = np.datetime64("2024-02-28") + np.arange(N) % 3
    some, others = DATES[first](days), DATES[second](days)
    groups = olsq.GroupedLeastSquares().fit(X, y, by=some)
    keys = groups.keys()
    other = olsq.GroupedLeastSquares().fit(X, y, by=others)
    for both in (olsq.merge(groups, other), copy.copy(groups).partial_fit(X, y, by=others)):
        assert both.keys() == keys
        assert both.n_samples_seen_.tolist() == [2 * N // 3] * 3
    np.testing.assert_array_equal(groups.predict(X, by=others), groups.predict(X, by=some))
    windows = olsq.GroupedRollingLeastSquares(5).fit(X, y, by=some)
    for both in (
        olsq.merge(windows, olsq.GroupedRollingLeastSquares(5).fit(X, y, by=others)),
        copy.copy(windows).partial_fit(X, y, by=others),
    ):
        assert both.keys() == windows.keys() == keys
    path = olsq.coefficient_path(X, y, by=some)
    for key in other.keys():  # noqa: SIM118
        assert key in groups
        assert key in windows
        assert groups[key].n_samples_seen_ == windows[key].n_samples_seen_ == N // 3
        assert len(path.of_group(key).coef) == N // 3
    assert datetime.date(2024, 2, 1) not in groups
    mixed = [list(some)[i] if i % 2 else list(others)[i] for i in range(N)]
    if not isinstance(mixed[0], pa.Scalar) and not isinstance(mixed[1], pa.Scalar):
        assert len(olsq.GroupedLeastSquares().fit(X, y, by=mixed)) == 3
