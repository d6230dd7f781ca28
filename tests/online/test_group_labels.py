"""Paths by group keep the labels of their rows: in frames, pieces of the path, and figures."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import olsq
from olsq.features import OneHot
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
