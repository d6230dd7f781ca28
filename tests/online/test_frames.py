"""Frames and series of pandas, Polars and Arrow in; names, index, dates and kind come out again."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import olsq
from olsq.online.rows.frames import Labels, row_index

KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
SERIES = {
    "pandas": lambda values, name: pd.Series(values, name=name),
    "polars": lambda values, name: pl.Series(name, values),
    "pyarrow": lambda values, name: pa.chunked_array([values]),
}
N = 20
rng = np.random.default_rng(0)
X = rng.standard_normal((N, 2))
Y = X @ np.array([[1.0, 3.0], [-2.0, 0.5]]) + 0.1 * rng.standard_normal((N, 2))
DAYS = np.datetime64("2024-01-01") + np.arange(N)
NAMES = ("rates", "oil")


def frame(kind, array=X, names=NAMES):
    return KINDS[kind](dict(zip(names, np.asarray(array).T, strict=True)))


def columns(table):
    """A frame as arrays by name."""
    if isinstance(table, pa.Table):
        return {name: table[name].to_numpy() for name in table.column_names}
    return {name: table[name].to_numpy() for name in table.columns}


def same_arrays(path, other):
    for one, two in zip(path, other, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"window": 5, "min_samples": 3}, {"forget": 0.9}])
@pytest.mark.parametrize("intercept", [False, True])
def test_one_target_goes_out_as_it_came_in(kind, options, intercept):
    options = options | {"fit_intercept": intercept, "window_of": "window" in options and "samples"}
    options["window_of"] = options["window_of"] or None
    path = olsq.coefficient_path(frame(kind), SERIES[kind](Y[:, 0], "y"), **options)
    assert all(type(array) is np.ndarray for array in path)
    plain = olsq.coefficient_path(X, Y[:, 0], **options)
    same_arrays(path, plain)
    table = path.to_frame()
    assert type(table) is type(frame(kind))
    found = columns(table)
    coefs = [*(["intercept"] if intercept else []), *NAMES]
    statistics = ["residual", "recursive_residual", "sigma2"]
    assert list(found) == [*coefs, *statistics, *(f"{name}_stderr" for name in coefs)]
    for k, name in enumerate(NAMES):
        np.testing.assert_array_equal(found[name], plain.coef[:, k])
        np.testing.assert_array_equal(found[f"{name}_stderr"], plain.stderr[:, k])
    for name in [*statistics, *(["intercept", "intercept_stderr"] if intercept else [])]:
        np.testing.assert_array_equal(found[name], getattr(plain, name))


@pytest.mark.parametrize("kind", KINDS)
def test_several_targets_go_out_by_name(kind):
    path = olsq.coefficient_path(frame(kind), frame(kind, Y, ("u", "v")), forget=0.9)
    plain = olsq.coefficient_path(X, Y, forget=0.9)
    same_arrays(path, plain)
    table = path.to_frame()
    if kind == "pandas":
        assert list(table.columns.names) == ["target", None]
        np.testing.assert_array_equal(table["v"]["oil"], plain.coef[:, 1, 1])
        found = {":".join(pair): table[pair].to_numpy() for pair in table.columns}
    else:
        found = columns(table)
    for k, target in enumerate(("u", "v")):
        for j, name in enumerate(NAMES):
            np.testing.assert_array_equal(found[f"{target}:{name}"], plain.coef[:, k, j])
            np.testing.assert_array_equal(found[f"{target}:{name}_stderr"], plain.stderr[:, k, j])
        np.testing.assert_array_equal(found[f"{target}:residual"], plain.residual[:, k])
        one = path.of_target(target)
        same_arrays(one, path.of_target(k))
        assert one.labels.targets == (target,)
        assert list(columns(one.to_frame()))[:2] == list(NAMES)
    assert len(found) == 2 * (2 * 2 + 3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_of_arrays_becomes_any_frame(kind):
    table = olsq.coefficient_path(X, Y[:, 0]).to_frame(kind=kind, names=["a", "b"])
    assert type(table) is type(frame(kind))
    assert list(columns(table))[:3] == ["a", "b", "residual"]
    table = olsq.coefficient_path(X, Y).to_frame(kind=kind)
    want = ("y0", "x0") if kind == "pandas" else "y0:x0"
    assert want in (table.column_names if kind == "pyarrow" else list(table.columns))
    assert type(olsq.coefficient_path(X, Y).to_frame()) is pd.DataFrame


@pytest.mark.parametrize("index", ["dates", "text", "zone", "months", "levels"])
def test_pandas_keeps_its_index(index):
    index = {
        "dates": pd.DatetimeIndex(DAYS, name="day"),
        "zone": pd.DatetimeIndex(DAYS, tz="Asia/Tokyo"),
        "months": pd.period_range("2020-01", periods=N, freq="M"),
        "text": pd.Index([f"row {t}" for t in range(N)]),
        "levels": pd.MultiIndex.from_product([["a", "b"], range(N // 2)]),
    }[index]
    data = pd.DataFrame(X, columns=NAMES, index=index)
    for path in (
        olsq.coefficient_path(data, Y[:, 0]),
        olsq.coefficient_path(data, pd.Series(Y[:, 0], index)),
        olsq.coefficient_path(X, pd.Series(Y[:, 0], index)),
        olsq.RecursiveLeastSquares().partial_fit_path(data, Y),
    ):
        pd.testing.assert_index_equal(path.to_frame().index, index)
        dates = path.labels.dates()
        assert (dates is None) == (not isinstance(index, pd.DatetimeIndex | pd.PeriodIndex))
    assert path.to_frame(kind="polars").height == N


LEARNING = {
    "fit": lambda X, y, **more: olsq.RecursiveLeastSquares().fit(X, y, **more),
    "partial_fit": lambda X, y, **more: olsq.RecursiveLeastSquares().partial_fit(X, y, **more),
    "window": lambda X, y, **more: olsq.RollingLeastSquares(window=5).fit(X, y, **more),
    "path": lambda X, y, **more: olsq.coefficient_path(X, y, forget=0.9, **more),
    "windows": lambda X, y, **more: olsq.coefficient_path(X, y, window=5, **more),
    "by": lambda X, y, **more: olsq.coefficient_path(X, y, by=np.arange(N) % 2, **more),
    "groups": lambda X, y, **more: olsq.GroupedLeastSquares().fit(
        X, y, by=np.arange(N) % 2, **more
    ),
    "tune": lambda X, y, **more: olsq.tune(X, y, forget=1.0, **more),
    "cusum": lambda X, y, **more: olsq.stability.ols_cusum(X, y),
}
OTHERS = {
    "other labels": pd.RangeIndex(1, N + 1),
    "another order": pd.RangeIndex(N - 1, -1, -1),
    "dates": DAYS,
}


@pytest.mark.parametrize("learn", LEARNING.values(), ids=LEARNING)
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_rows_with_other_labels_are_refused(learn, other):
    data = pd.DataFrame(X, columns=NAMES)
    first = f"row 0: 0 and {other[0]}"
    with pytest.raises(ValueError, match=f"X and y have different indexes.*{first}.*align"):
        learn(data, pd.Series(Y[:, 0], other))
    learn(data, Y[:, 0])  # an array has no labels
    learn(X, pd.Series(Y[:, 0], other))
    learn(data, pd.Series(Y[:, 0]))


@pytest.mark.parametrize("learn", ["fit", "partial_fit", "path", "by", "groups", "tune"])
def test_weights_with_other_labels_are_refused(learn):
    data, y = pd.DataFrame(X, columns=NAMES), pd.Series(Y[:, 0])
    weight = pd.Series(np.ones(N), range(1, N + 1))
    with pytest.raises(ValueError, match="X and sample_weight have different indexes"):
        LEARNING[learn](data, y, sample_weight=weight)
    LEARNING[learn](data, y, sample_weight=weight.reset_index(drop=True))


def test_labels_factors_and_times_with_other_indexes_are_refused():
    data, y, other = pd.DataFrame(X, columns=NAMES), pd.Series(Y[:, 0]), range(1, N + 1)
    with pytest.raises(ValueError, match="X and by have different indexes"):
        olsq.coefficient_path(data, y, by=pd.Series(np.arange(N) % 2, other))
    with pytest.raises(ValueError, match="X and by have different indexes"):
        olsq.GroupedLeastSquares().fit(data, y, by=pd.Series(np.arange(N) % 2, other))
    factors = pd.Series(np.full(N, 0.9), other)
    with pytest.raises(ValueError, match="X and forget have different indexes"):
        olsq.coefficient_path(data, y, forget=factors)
    olsq.coefficient_path(data, y, forget=factors.reset_index(drop=True))
    est = olsq.RecursiveLeastSquares(half_life="3D").fit(data, y, times=DAYS)
    before = est.dumps() if hasattr(est, "dumps") else est.coef_.tobytes()
    with pytest.raises(ValueError, match="X and times have different indexes"):
        est.partial_fit(data, y, times=pd.Series(DAYS + pd.Timedelta("999D"), other))
    after = est.dumps() if hasattr(est, "dumps") else est.coef_.tobytes()
    assert before == after
    with pytest.raises(ValueError, match="X and forget have different indexes"):
        olsq.RecursiveLeastSquares().partial_fit(data, y, forget=pd.Series(np.ones(N), other))


def test_prediction_is_not_compared_with_the_rows_learned():
    est = olsq.RecursiveLeastSquares().fit(pd.DataFrame(X, columns=NAMES), pd.Series(Y[:, 0]))
    new = pd.DataFrame(X, columns=NAMES, index=DAYS)
    np.testing.assert_array_equal(est.predict(new), est.predict(new.reset_index(drop=True)))
    assert len(est.predict_interval(new)) == 2
    assert len(est.leverage(new)) == N


def test_indexes_that_differ_are_refused():
    data = pd.DataFrame(X, columns=NAMES, index=DAYS)
    y = pd.Series(Y[:, 0], DAYS[::-1])
    with pytest.raises(ValueError, match="X and y have different indexes"):
        olsq.coefficient_path(data, y)
    est = olsq.RecursiveLeastSquares()
    with pytest.raises(ValueError, match="X and y have different indexes"):
        est.partial_fit_path(data, y)
    assert not hasattr(est, "_engine")
    left, right = data.align(y, join="inner", axis=0)
    assert olsq.coefficient_path(left, right).coef.shape == (N, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_times_come_along(kind):
    when = {
        "pandas": pd.Series(DAYS, name="day"), "polars": pl.Series("day", DAYS),
        "pyarrow": pa.chunked_array([DAYS]),
    }[kind]  # fmt: skip
    name = "time" if kind == "pyarrow" else "day"  # Arrow's columns have no names of their own
    for options in ({"window": "6D"}, {"half_life": "6D"}, {"forget": 0.9}):
        path = olsq.coefficient_path(frame(kind), Y[:, 0], times=when, **options)
        same_arrays(path, olsq.coefficient_path(X, Y[:, 0], times=DAYS, **options))
        table = columns(path.to_frame())
        assert next(iter(table)) == name
        np.testing.assert_array_equal(table[name].astype("datetime64[D]"), DAYS)
    several = olsq.coefficient_path(frame(kind), Y, times=when).to_frame()
    found = several[(name, "")] if kind == "pandas" else columns(several)[name]
    np.testing.assert_array_equal(np.asarray(found).astype("datetime64[D]"), DAYS)
    table = olsq.coefficient_path(X, Y[:, 0], times=DAYS).to_frame()
    assert isinstance(table.index, pd.DatetimeIndex)
    assert table.index.name == "time"
    table = olsq.coefficient_path(X, Y[:, 0], times=np.arange(N) / 2).to_frame()
    np.testing.assert_array_equal(table.index, np.arange(N) / 2)


def test_an_index_of_dates_is_the_times():
    data = pd.DataFrame(X, columns=NAMES, index=DAYS)
    for options in ({"window": "6D"}, {"half_life": "36h"}):
        path = olsq.coefficient_path(data, Y[:, 0], **options)
        same_arrays(path, olsq.coefficient_path(X, Y[:, 0], times=DAYS, **options))
        path = olsq.coefficient_path(X, pd.Series(Y[:, 0], DAYS), **options)
        same_arrays(path, olsq.coefficient_path(X, Y[:, 0], times=DAYS, **options))
    window = olsq.coefficient_path(data, Y[:, 0], window=6)  # rows
    assert window.labels.times is None


def test_names_that_clash_are_refused():
    data = frame("polars", X, ("residual", "b"))
    path = olsq.coefficient_path(data, Y[:, 0])
    with pytest.raises(ValueError, match="column 'residual' twice"):
        path.to_frame()
    assert path.to_frame(names=["a", "b"]).columns[:2] == ["a", "b"]
    with pytest.raises(ValueError, match="one entry for each of 2 coefficients, got 1"):
        path.to_frame(names=["a"])
    with pytest.raises(ValueError, match="kind must be one of"):
        path.to_frame(kind="excel")
    path = olsq.coefficient_path(frame("pandas", X, ("intercept", "b")), Y[:, 0])
    assert "intercept" in path.to_frame()  # a column of that name, and no intercept fitted
    with pytest.raises(ValueError, match="y must have one column of each name, got two named 'y'"):
        olsq.coefficient_path(X, pd.DataFrame(Y, columns=["y", "y"]))
    with pytest.raises(ValueError, match="target must be one of"):
        olsq.coefficient_path(X, Y).of_target("z")
    with pytest.raises(ValueError, match="one target"):
        olsq.coefficient_path(X, Y[:, 0]).of_target(0)


def test_names_of_any_kind_become_text():
    table = olsq.coefficient_path(pd.DataFrame(X), Y[:, 0]).to_frame()
    assert list(table)[:2] == ["0", "1"]
    levels = pd.DataFrame(X, columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]))
    assert list(olsq.coefficient_path(levels, Y[:, 0]).to_frame())[:2] == ["('a', 1)", "('a', 2)"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_estimator_knows_the_names_of_its_first_rows(kind):
    est = olsq.RecursiveLeastSquares().fit(frame(kind), Y[:, 0])
    assert list(est.feature_names_in_) == list(NAMES)
    with pytest.raises(ValueError, match="same order"):
        est.partial_fit(frame(kind, X[:, ::-1], NAMES[::-1]), Y[:, 0])
    table = est.partial_fit_path(X, Y[:, 0]).to_frame(kind=kind)
    assert list(columns(table))[:3] == ["intercept", *NAMES]


@pytest.mark.parametrize("kind", KINDS)
def test_nulls_are_missing_rows(kind):
    data = {"a": [1.0, None, 3.0, 4.0], "b": [1, 2, None, 5]}
    table = pd.DataFrame(data, dtype=object) if kind == "pandas" else KINDS[kind](data)
    path = olsq.coefficient_path(table, SERIES[kind](np.arange(4.0), "y"))
    assert list(np.isnan(path.residual)) == [False, True, True, False]


REFUSED = {
    "a pandas series": (lambda: pd.Series(X[:, 0]), r"Pass X.to_frame\(\)"),
    "a Polars series": (lambda: pl.Series(X[:, 0]), r"Pass X.to_frame\(\)"),
    "an Arrow column": (lambda: pa.chunked_array([X[:, 0]]), "Expected 2D array"),
    "a lazy frame": (lambda: frame("polars").lazy(), r"X must be data.*collect\(\) it first"),
    "Arrow dates": (lambda: pa.table({"a": X[:, 0], "d": DAYS}), "X must be numeric, got dates"),
    "Arrow text": (lambda: pa.table({"a": ["x"] * N}), "X must be numeric, got text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_frames_that_are_no_regressors(case):
    data, match = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=match):
        olsq.coefficient_path(data(), Y[:, 0])


def test_labels_stay_with_copies_and_pickles():
    data = pd.DataFrame(X, columns=NAMES, index=DAYS)
    path = olsq.coefficient_path(data, pd.DataFrame(Y, DAYS, ["u", "v"]))
    for other in (
        copy.copy(path), copy.deepcopy(path), pickle.loads(pickle.dumps(path)),
        path._replace(residual=path.residual),
    ):  # fmt: skip
        pd.testing.assert_frame_equal(other.to_frame(), path.to_frame())
    assert isinstance(path, tuple)
    assert path._fields[0] == "coef"
    coef, *_, stderr, _ = path
    assert coef is path.coef
    assert stderr is path.stderr
    assert olsq.CoefficientPath(*path).labels == Labels()


def test_empty_calls_and_single_rows():
    est = olsq.RecursiveLeastSquares().fit(frame("pandas"), Y[:, 0])
    data = frame("pandas")
    assert est.partial_fit_path(data[:0], Y[:0, 0]).to_frame().shape == (0, 9)
    assert est.partial_fit_path(data[3:4], Y[3:4, 0]).to_frame().index[0] == 3
    assert row_index(frame("polars")) is None


@pytest.mark.full
def test_arrays_need_no_library_of_frames():
    code = """
import sys, numpy as np, olsq
X = np.eye(3)
olsq.coefficient_path(X, [1.0, 2.0, 3.0])
olsq.coefficient_path(X.tolist(), X[0], window="2D", times=np.arange(3).astype("M8[D]"))
print([m for m in ("narwhals", "pandas", "polars", "pyarrow", "matplotlib") if m in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_without_pandas_arrays_become_polars_and_without_both_an_error(monkeypatch):
    path, absent = olsq.coefficient_path(X, Y[:, 0]), {"pandas"}
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in absent else find(name)
    )
    assert type(path.to_frame()) is pl.DataFrame
    absent.add("polars")
    with pytest.raises(ImportError, match="pip install pandas"):
        path.to_frame()


def test_a_plot_has_names_and_dates():
    data = pd.DataFrame(X, columns=NAMES, index=DAYS)
    path = olsq.coefficient_path(data, pd.DataFrame(Y, DAYS, ["u", "v"]), fit_intercept=True)
    with pytest.raises(ValueError, match=r"choose one, target= one of \['u', 'v'\]"):
        path.plot()
    figure = path.plot(target="v")
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["intercept", *NAMES]
    line = figure.axes[0].get_lines()[0]
    assert np.asarray(line.get_xdata()).dtype.kind == "M"
    figure = olsq.coefficient_path(X, Y[:, 0]).plot(names=["a", "b"], x=np.arange(N))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["a", "b"]
    figure = olsq.coefficient_path(X, Y[:, 0]).plot()
    assert figure.axes[-1].get_xlabel() == "row"


# -- predictions and residuals -------------------------------------------------------------------


def both():
    """An estimator that answers in frames, and one that answers in arrays."""
    return [
        olsq.RecursiveLeastSquares(forget=0.99).set_output(predict=choice)
        for choice in ("input", "default")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_go_out_as_the_input_did_if_asked(kind):
    data, y = frame(kind), SERIES[kind](Y[:, 0], "y")
    est, plain = (e.fit(data, y) for e in both())
    assert type(plain.predict(data)) is np.ndarray
    assert type(est.predict(X)) is np.ndarray
    assert type(est.predict(X[:1])) is np.ndarray
    for one, other in (
        (est.predict(data), plain.predict(data)), (est.residual_, plain.residual_),
        *zip(est.predict(data, return_std=True), plain.predict(data, return_std=True), strict=True),
        *zip(est.predict_interval(data), plain.predict_interval(data), strict=True),
    ):  # fmt: skip
        assert type(one) is type(SERIES[kind](Y[:, 0], "y"))
        np.testing.assert_array_equal(np.asarray(one), other)
        assert kind == "pyarrow" or one.name == "y"
    assert est.score(data, y) == plain.score(data, y)
    est, plain = (e.fit(data, frame(kind, Y, ("u", "v"))) for e in both())
    for one, other in ((est.predict(data), plain.predict(data)), (est.residual_, plain.residual_)):
        assert type(one) is type(data)
        np.testing.assert_array_equal(columns(one)["v"], other[:, 1])
    est.partial_fit(X[:1], Y[:1])  # arrays, the general way
    assert type(est.residual_) is np.ndarray


def test_predictions_keep_an_index():
    data = pd.DataFrame(X, columns=NAMES, index=DAYS)
    est = olsq.RollingLeastSquares(6).set_output(predict="input")
    est.fit(data, pd.Series(Y[:, 0], DAYS, name="y"))
    pd.testing.assert_index_equal(est.predict(data[::2]).index, data[::2].index)
    pd.testing.assert_index_equal(est.residual_.index, data.index)
    one = olsq.RecursiveLeastSquares().set_output(predict="input").fit(data, Y[:, 0])
    assert one.predict(data).name is None
    one.partial_fit(X[:1], Y[:1, 0])  # the short way
    assert one.residual_.shape == (1,)
    assert type(one.residual_) is np.ndarray
    assert type(one.step(X[0], 1.0)[0]) is float
    with pytest.raises(ValueError, match="predict"):
        one.set_output(predict="polars")


def test_target_names_are_saved(tmp_path):
    data = pd.DataFrame(X, columns=NAMES)
    for y, names in ((pd.Series(Y[:, 0], name="y"), ["y"]), (pd.DataFrame(Y), ["0", "1"])):
        est = olsq.RecursiveLeastSquares().fit(data, y)
        est.save(tmp_path / "s.olsq")
        again = olsq.load(tmp_path / "s.olsq").set_output(predict="input")
        found = again.predict(data)
        assert [found.name] == names if y.ndim == 1 else list(found) == names
        path = again.partial_fit_path(X, Y[:, 0] if y.ndim == 1 else Y)
        assert list(path.labels.targets) == names


@pytest.mark.full
@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("choice", ["default", "input"])
@pytest.mark.parametrize("make", [olsq.RecursiveLeastSquares, olsq.RollingLeastSquares])
def test_frames_in_scikit_learn(kind, choice, make):
    from sklearn.base import clone
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data, y = frame(kind), SERIES[kind](Y[:, 0], "y")
    est = make().set_output(predict=choice)
    assert clone(est)._frames_out == (choice == "input")
    assert copy.copy(est)._frames_out == (choice == "input")
    want = cross_val_predict(make(), X, Y[:, 0], cv=3)
    np.testing.assert_allclose(cross_val_predict(est, data, y, cv=3), want, rtol=1e-12)
    assert cross_val_score(est, data, y, cv=3).shape == (3,)
    for transform in ("default", kind):
        pipe = make_pipeline(StandardScaler(), est).set_output(transform=transform)
        found = pipe.fit(data, y).predict(data)
        assert (type(found) is not np.ndarray) == (choice == "input" and transform == kind)
        assert cross_val_score(pipe, data, y, cv=3).shape == (3,)
    grid = GridSearchCV(est, {"ridge": [0.1, 1.0]}, cv=3).fit(data, y)
    assert (type(grid.predict(data)) is not np.ndarray) == (choice == "input")
    if choice == "default":
        there_and_back = TransformedTargetRegressor(est, func=np.sinh, inverse_func=np.arcsinh)
        assert there_and_back.fit(data, y).predict(data).shape == (N,)


def test_indexes_that_differ_are_refused_where_rows_are_read_too():
    X = pd.DataFrame({"a": [1.0, 2.0, 4.0, 3.0, 5.0], "b": [0.0, 1.0, 0.5, 2.0, 1.0]})
    y = pd.Series([1.0, 3.0, 2.0, 4.0, 5.0])
    other = y[::-1]
    labels = pd.Series(["n", "s", "n", "s", "n"], index=other.index)
    est = olsq.RecursiveLeastSquares().fit(X, y)
    groups = olsq.GroupedLeastSquares().partial_fit(X, y, by=list(labels))
    for call in (
        lambda: est.score(X, other),
        lambda: est.cov_params("hc0", data=(X, other)),
        lambda: olsq.features.ARX().fit_transform(X, other),
    ):
        with pytest.raises(ValueError, match="X and y have different indexes"):
            call()
    for call in (groups.predict, groups.predict_interval):
        with pytest.raises(ValueError, match="X and by have different indexes"):
            call(X, by=labels)
    assert np.isfinite(groups.predict(X, by=labels.to_numpy())).all()


def target_frames():
    X = pd.DataFrame({"b": [1.0, 2.0, 3.0, 5.0], "a": [1.0, -1.0, 2.0, 0.0]})
    return X, pd.DataFrame({"u": 2 * X["b"], "v": -X["b"]})


def test_targets_in_another_order_are_refused():
    X, Y = target_frames()
    est = olsq.RecursiveLeastSquares(ridge=1e-9, fit_intercept=False).fit(X, Y)
    for own in (est, olsq.loads(est.to_bytes()), copy.copy(est)):
        before = own.to_bytes()
        with pytest.raises(ValueError, match=r"columns of y.*\['u', 'v'\], got \['v', 'u'\]"):
            own.partial_fit(X, Y[["v", "u"]])
        assert own.to_bytes() == before
        for other in (
            Y,
            pl.DataFrame(Y.to_dict("list")),
            Y.to_numpy(),
            Y.set_axis(["p", "q"], axis=1),
        ):
            np.testing.assert_allclose(
                own.partial_fit(X, other).coef_, [[2, 0], [-1, 0]], atol=1e-7
            )
    est.fit(X, Y[["v", "u"]])
    np.testing.assert_allclose(est.coef_, [[-1, 0], [2, 0]], atol=1e-7)


@pytest.mark.parametrize("kind", [olsq.RecursiveLeastSquares, olsq.RobustLeastSquares])
def test_a_step_refuses_a_labelled_row_in_another_order(kind):
    X, Y = target_frames()
    est = kind(ridge=1e-9, fit_intercept=False).partial_fit(X, Y["u"])
    before = est.to_bytes()
    for row in (X.iloc[3][["a", "b"]], X.iloc[3:][["a", "b"]], X.iloc[3].rename({"a": "c"})):
        with pytest.raises(ValueError, match=r"labels|feature names"):
            est.step(row, 10.0)
    assert est.to_bytes() == before
    for row in (X.iloc[3], X.iloc[3:], pd.Series([5.0, 0.0]), [5.0, 0.0], (5.0, 0.0)):
        assert est.step(row, 10.0)[0] == pytest.approx(10.0)


@pytest.mark.parametrize("options", [{}, {"half_life": "2D"}])
def test_levels_of_an_index_are_labels_and_times_by_name(options):
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=8)
    index = pd.MultiIndex.from_product([days, list("ab")], names=["date", "stock"])
    X = pd.DataFrame(rng.standard_normal((16, 2)), index=index, columns=["u", "v"])
    y = pd.Series(rng.standard_normal(16), index=index)
    labels, dates = (index.get_level_values(name) for name in ("stock", "date"))
    named = {"times": "date"} if options else {}
    given = {"times": dates} if options else {}
    arrays = X.to_numpy(), y.to_numpy()
    want = olsq.coefficient_path(*arrays, by=labels, **given, **options)
    got = olsq.coefficient_path(X, y, by="stock", **named, **options)
    np.testing.assert_array_equal(got.coef, want.coef)
    groups = olsq.GroupedLeastSquares(**options).partial_fit(X, y, by="stock", **named)
    other = olsq.GroupedLeastSquares(**options).partial_fit(*arrays, by=labels, **given)
    np.testing.assert_array_equal(groups.coef_, other.coef_)
    predicted = other.predict(arrays[0], by=labels)
    np.testing.assert_array_equal(groups.predict(X, by="stock"), predicted)
    if options:
        one = olsq.RecursiveLeastSquares(**options).fit(X, y, times="date")
        np.testing.assert_array_equal(
            one.coef_, olsq.RecursiveLeastSquares(**options).fit(*arrays, times=dates).coef_
        )
    with pytest.raises(ValueError, match="by='sector' is not a column of X"):
        olsq.coefficient_path(X, y, by="sector")
    with pytest.raises(ValueError, match="times='when' is not a level of the index of X or y"):
        olsq.coefficient_path(X, y, half_life="1D", times="when")
    with pytest.raises(TypeError, match="X is not a data frame"):
        olsq.coefficient_path(*arrays, by="stock")


DTYPES = {
    "timestamp": lambda days: days.astype("timestamp[us][pyarrow]"),
    "zone": lambda days: pd.Index(
        days.tz_localize("Europe/Paris"), dtype=pd.ArrowDtype(pa.timestamp("ns", "Europe/Paris"))
    ),
    "date32": lambda days: pd.Index(pd.Series(days.date, dtype="date32[pyarrow]")),
    "date64": lambda days: pd.Index(pd.Series(days.date, dtype="date64[pyarrow]")),
    "duration": lambda days: pd.Index(days - days[0], dtype=pd.ArrowDtype(pa.duration("s"))),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_index_of_arrows_dates_is_one_of_dates(dtype):
    days = pd.date_range("2024-03-28", periods=20)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    index = DTYPES[dtype](days)
    table = pd.DataFrame(X, columns=["a", "b"], index=index)
    plain = days.tz_localize("Europe/Paris") if dtype == "zone" else days
    plain = days - days[0] if dtype == "duration" else plain
    for options in ({"half_life": "5D"}, {"window": "4D"}):
        path = olsq.coefficient_path(table, y, **options)
        want = olsq.coefficient_path(X, y, times=plain, **options)
        np.testing.assert_array_equal(path.coef, want.coef)
        dates = path.labels.dates()
        assert dates is not None
        assert dates.dtype.kind == ("m" if dtype == "duration" else "M")
        pd.testing.assert_index_equal(path.to_frame().index, index)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_what_is_not_known_is_null_where_libraries_have_nulls(library):
    x, y = np.arange(1.0, 7.0)[:, None], np.arange(6.0) ** 2
    y[3] = np.nan
    for targets in (y, np.column_stack([y, -y])):
        path = olsq.coefficient_path(x, targets, window=3, min_samples=2)
        table = path.to_frame(kind=library, statistics=True)
        table = table if library == "polars" else pl.from_arrow(table)
        numbers = table.select(pl.selectors.float())
        assert not numbers.select(pl.all().is_nan().any()).row(0).count(True)
        assert numbers.null_count().row(0)[0] == 1
        pandas = path.to_frame(kind="pandas", statistics=True)
        np.testing.assert_array_equal(numbers.to_numpy(), pandas.to_numpy())


def test_an_index_can_be_left_out():
    X = pd.DataFrame({"a": np.arange(1.0, 5.0)}, index=list("wxyz"))
    options = {"times": np.arange(4.0), "by": ["n", "n", "s", "s"]}
    path = olsq.coefficient_path(X, [1.0, 2.0, 3.0, 4.0], **options)
    assert list(path.to_frame())[:2] == ["time", "group"]
    bare = path.to_frame(index=False)
    assert next(iter(bare)) == "a"
    assert bare.index.tolist() == [0, 1, 2, 3]
    for kind in ("polars", "pyarrow"):
        table = path.to_frame(kind=kind, index=False)
        assert (table.columns if kind == "polars" else table.column_names)[0] == "a"
    path = olsq.coefficient_path(X.to_numpy(), X["a"].to_numpy(), times=DAYS[:4])
    assert path.to_frame(index=False).index.tolist() == [0, 1, 2, 3]
