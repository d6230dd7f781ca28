"""scikit-learn's contract, files, and bad input to feature builders."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import olsq
from olsq.features import ARX, FIR, NARX, Fourier, Lags, OneHot, RandomFourier, Trend, Union
from olsq.online.files import format as files

ORDER = "rows are a stream: another order, or a part of it, has other features"
IN_TIME = {
    "check_methods_sample_order_invariance": ORDER,
    "check_methods_subset_invariance": ORDER,
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        (FIR(), {}),
        (FIR(3, delay=1), IN_TIME),
        (Lags(2, of="X"), IN_TIME),
        (ARX(na=0, nb=2), IN_TIME),
        (NARX(na=0, nb=1), IN_TIME),
        (Fourier(), IN_TIME),
        (Trend(), IN_TIME),
        (Fourier(of=0), {}),
        (Trend(of=0), {}),
        (OneHot(), {}),
        (OneHot(unseen="other", drop="first"), {}),
        (RandomFourier(8), {}),
        (Union([FIR(2), Trend()], passthrough=True), IN_TIME),
    ],
    ids=repr,
)
def test_scikit_learns_checks(builder, expected):
    from sklearn.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not inherit from.*", UserWarning)
        found = check_estimator(
            builder, expected_failed_checks=expected, on_fail=None, on_skip=None
        )
    failed = [r["check_name"] for r in found if r["status"] == "failed"]
    assert failed == []
    assert sum(r["status"] == "passed" for r in found) > 35
    assert {r["check_name"] for r in found if r["status"] == "xfail"} == set(expected)


def frame(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"price": rng.standard_normal(n), "sky": rng.choice(["sun", "rain"], n)})
    X["sales"] = np.cumsum(rng.standard_normal(n))
    return X.set_index(pd.date_range("2024", periods=n)), X["sales"].to_numpy()


def test_a_pipeline_predicts_the_rows_that_follow():
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline

    X, y = frame()
    features = Union(
        [Lags(2, of=["sales", "price"]), OneHot("sky", max_levels=3), Fourier(7)], carry=True
    )
    pipe = clone(make_pipeline(features, olsq.RecursiveLeastSquares()))
    pipe.fit(X[:30], y[:30])
    predicted = pipe.predict(X[30:])
    phi = copy.copy(features).partial_transform(X)
    est = olsq.RecursiveLeastSquares().fit(phi[:30], y[:30])
    np.testing.assert_allclose(predicted, est.predict(phi[30:]), rtol=1e-12)
    assert pipe[:-1].get_feature_names_out()[:2].tolist() == ["sales_lag1", "sales_lag2"]
    assert not hasattr(features, "_state")


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_come_out_where_asked(kind):
    from sklearn import config_context

    X, y = frame()
    lags = Lags(2).set_output(transform=kind)
    out = lags.fit_transform(X, y)
    assert list(out.columns) == ["y_lag1", "y_lag2"]
    if kind == "pandas":
        pd.testing.assert_index_equal(out.index, X.index)
    with config_context(transform_output=kind):
        other = Lags(2).fit_transform(X, y)
        assert type(other) is type(out)
        assert isinstance(lags.set_output().peek(X), type(out))  # leaves it as it is
        assert isinstance(lags.set_output(transform="default").peek(X), np.ndarray)
    with pytest.raises(ValueError, match="transform must be one of"):
        lags.set_output(transform="arrow")


def test_names_of_columns_come_from_the_frame_or_the_caller():
    X, _ = frame()
    fir = FIR(2, of=["price", "sales"]).fit(X)
    assert fir.feature_names_in_.tolist() == ["price", "sky", "sales"]
    assert fir.get_feature_names_out().tolist()[0] == "price_lag0"
    with pytest.raises(ValueError, match="input_features is not equal"):
        fir.get_feature_names_out(["a", "b", "c"])
    with pytest.raises(ValueError, match="should match those"):
        fir.partial_transform(X.rename(columns={"price": "cost"}))
    bare = FIR(2).fit(X[["price", "sales"]].to_numpy())
    assert bare.get_feature_names_out(["a", "b"]).tolist()[-1] == "b_lag1"
    with pytest.raises(ValueError, match="length equal to number of features"):
        bare.get_feature_names_out(["a"])
    assert FIR(2, of=1).fit(pd.DataFrame(np.ones((3, 2)))).transform(np.ones((2, 2))).shape == (
        2,
        2,
    )


BAD = [
    (lambda X, y: Lags(0).fit(X, y), "lags must be an integer >= 1"),
    (lambda X, y: Lags([0]).fit(X, y), "every lag must be an integer >= 1"),
    (lambda X, y: Lags([-1], of="price").fit(X), "every lag must be an integer >= 0"),
    (lambda X, y: Lags([1, 1]).fit(X, y), "none twice"),
    (lambda X, y: Lags([]).fit(X, y), "at least one"),
    (lambda X, y: Lags("3").fit(X, y), "a number of lags or a sequence"),
    (lambda X, y: Lags(1.5).fit(X, y), "a number of lags or a sequence"),
    (lambda X, y: Lags(2).fit(X), "y is None"),
    (lambda X, y: Lags(2).fit(None), "y is None|X or y must be given"),
    (lambda X, y: Lags(2, of="cost").fit(X), "X has no column 'cost'"),
    (lambda X, y: Lags(2, of="cost").fit(np.ones((3, 2))), "array without names"),
    (lambda X, y: Lags(2, of=7).fit(X), "columns 0 to 2, no 7"),
    (lambda X, y: Lags(2, of="sky").fit(X), "sky must be numeric, got text"),
    (lambda X, y: Lags(2, of="X").fit(X), "sky must be numeric"),
    (lambda X, y: FIR(0).fit(X), "taps must be"),
    (lambda X, y: FIR(True).fit(X), "taps must be"),
    (lambda X, y: FIR(1, delay=-1).fit(X), "delay must be"),
    (lambda X, y: FIR(1).fit(None, y), "requires X"),
    (lambda X, y: ARX(0, 0).fit(X, y), "both 0"),
    (lambda X, y: ARX(1, 1, of="price").fit(X, y[:-1]), "inconsistent numbers of samples"),
    (lambda X, y: NARX(1, 1, degree=0).fit(X, y), "degree must be"),
    (lambda X, y: Fourier(0).fit(X), "period must be a positive number"),
    (lambda X, y: Fourier("7D").fit(X), "name the column of time stamps"),
    (lambda X, y: Fourier("7 moons", of="sky").fit(X), "unknown unit"),
    (lambda X, y: Fourier("1M", of="sky").fit(X), "no fixed length"),
    (lambda X, y: Fourier(7, of="day").fit(X.assign(day=X.index)), "of time stamps must be text"),
    (lambda X, y: Fourier("7D", of="price").fit(X), "holds numbers"),
    (lambda X, y: Fourier(7, 4).fit(X), "at most half"),
    (lambda X, y: Fourier(7, 1.5).fit(X), "order must be one value or a sequence of them, got 1.5"),
    (lambda X, y: FIR(2, of=1.5).fit(X), "of must be one value or a sequence of them, got 1.5"),
    (lambda X, y: Fourier([7, 5], [1]).fit(X), "one for each of the 2 periods"),
    (lambda X, y: Fourier(7, of=["price", "sales"]).fit(X), "must be one column"),
    (lambda X, y: Trend(0).fit(X), "degree must be"),
    (lambda X, y: Trend(1, scale=0).fit(X), "scale must be a positive number"),
    (lambda X, y: Trend(1, origin=np.nan).fit(X), "origin must be a finite number"),
    (lambda X, y: Trend(1, scale="7D").fit(X), "name their column"),
    (lambda X, y: Trend(1, scale="7D", of="price").fit(X), "holds numbers"),
    (lambda X, y: Trend(1, scale="7D", origin="noon", of="price").fit(X), "must be a date"),
    (lambda X, y: OneHot("sky", levels="sun").fit(X), "levels must be a sequence"),
    (lambda X, y: OneHot("sky", levels=["sun", "sun"]).fit(X), "none twice"),
    (lambda X, y: OneHot(["sky", "price"], levels=["sun"]).fit(X), "each of the 2 columns"),
    (lambda X, y: OneHot(unseen="ignore").fit(X), "unseen must be one of"),
    (lambda X, y: OneHot(max_levels=0).fit(X), "max_levels must be"),
    (lambda X, y: OneHot(drop="last").fit(X), "drop must be one of"),
    (lambda X, y: OneHot().fit([[{"a": 1}]]), "argument must be a string or a number"),
    (lambda X, y: OneHot().fit(X.reset_index()), "not dates"),
    (lambda X, y: OneHot().fit(np.array([[np.inf]])), "infinity"),
    (lambda X, y: Union([]).fit(X), "there are no features"),
    (lambda X, y: Union([Lags(0)]).fit(X, y), "lags must be"),
    (lambda X, y: Union([olsq.RecursiveLeastSquares()]).fit(X, y), "builders must be objects of"),
    (lambda X, y: FIR().fit(X[:0]), "0 sample"),
    (lambda X, y: FIR().fit(np.ones(3)), "Expected 2D array"),
    (lambda X, y: FIR().transform(X), "not fitted"),
    (lambda X, y: FIR().peek(X), "not fitted"),
    (lambda X, y: FIR().save("nowhere"), "not fitted"),
    (lambda X, y: FIR().get_feature_names_out(), "not fitted"),
    (lambda X, y: Lags(1).fit(X, y).transform(X), "carry=True"),
    (lambda X, y: FIR(of="price").fit(X).partial_transform(np.ones((3, 2))), "expecting 3"),
    (lambda X, y: FIR(of=0).fit(np.ones((3, 1))).partial_transform(None, y), "X is None, but"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_input_is_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(*frame())


def test_an_error_changes_nothing():
    X, y = frame()
    builder = Union([Lags(2), FIR(2, of="price"), OneHot("sky")]).fit(X[:9], y[:9])
    before = pickle.dumps(builder.__dict__)
    bad = X[9:].copy()
    bad["price"] = "text"
    for call in (
        lambda: builder.partial_transform(bad, y[9:]),
        lambda: builder.partial_transform(X[9:], y),
        lambda: builder.partial_transform(X[9:]),
        lambda: builder.fit(bad, y[9:]),
    ):
        with pytest.raises(ValueError):
            call()
        assert pickle.dumps(builder.__dict__) == before


def test_parameters_are_frozen_while_history_lasts(tmp_path):
    X, y = frame()
    lags = Lags(2).fit(X, y)
    lags.set_params(lags=3)
    for call in (lambda: lags.partial_transform(X, y), lambda: lags.save(tmp_path / "x")):
        with pytest.raises(ValueError, match="lags is 3 now"):
            call()
    lags.set_params(lags=2, carry=True).partial_transform(X, y)
    assert lags.fit(X, y).set_params(lags=3).fit(X, y).transform(X, y).shape == (40, 3)
    union = Union([Lags(2)]).fit(X, y)
    union.builders[0].set_params(lags=5)
    with pytest.raises(ValueError, match="builders is"):
        union.partial_transform(X, y)


def test_copies_and_pickles_continue():
    X, y = frame()
    builder = Union([Lags(2), OneHot("sky")]).fit(X[:9], y[:9])
    expected = builder.peek(X[9:], y[9:])
    for other in (copy.deepcopy(builder), pickle.loads(pickle.dumps(builder))):
        np.testing.assert_array_equal(other.partial_transform(X[9:], y[9:]), expected)
    np.testing.assert_array_equal(builder.partial_transform(X[9:], y[9:]), expected)


# -- files ----------------------------------------------------------------------------------------


def saved(tmp_path):
    X, y = frame()
    union = Union([Lags(2), FIR(2, of="price"), OneHot("sky"), Fourier(7)], carry=True)
    path = tmp_path / "builder.olsq"
    union.fit(X, y).save(path, metadata={"note": "ä"})
    return path, union


def test_files_hold_everything(tmp_path):
    path, union = saved(tmp_path)
    loaded = olsq.load(path)
    assert loaded.metadata_ == {"note": "ä"}
    assert loaded.carry is True
    assert loaded.feature_names_in_.tolist() == ["price", "sky", "sales"]
    X, y = frame(seed=1)
    np.testing.assert_array_equal(loaded.transform(X), union.transform(X))
    loaded.save(path)
    np.testing.assert_array_equal(olsq.load(path).peek(X, y), union.peek(X, y))
    with pytest.raises(ValueError, match="cannot be saved"):
        union.save(path, metadata={"a": {1, 2}})
    np.testing.assert_array_equal(olsq.load(path).peek(X, y), union.peek(X, y))


def change(header, arrays, where, value):
    at = header
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value


TAMPERED = [
    (("features", "builder"), "RecursiveLeastSquares"),
    (("features", "builder"), "FeatureBuilder"),
    (("features", "builder"), 7),
    (("features", "parameters"), {"lags": 2}),
    (("features", "parameters", "builders"), []),
    (("features", "parameters", "builders", 0, "parameters", "lags"), 3),
    (("features", "parameters", "builders", 0, "parameters", "lags"), "os.system"),
    (("features", "parameters", "builders", 1, "parameters", "taps"), 9),
    (("features", "parameters", "builders", 3, "parameters", "of"), "price"),
    (("state",), []),
    (("state", "columns"), [0]),
    (("state", "columns"), [99]),
    (("state", "parts", 0), {}),
    (("state", "parts", 1, "columns"), [7]),
    (("state", "parts", 1, "columns"), []),
    (("state", "parts", 1, "tail"), [[1.0]]),
    (("state", "parts", 1, "tail", "array"), "state.elsewhere"),
    (("state", "parts", 2, "levels"), [["a", "a"]]),
    (("state", "parts", 2, "levels"), [[None]]),
    (("state", "parts", 2, "levels"), [[f"{i}" for i in range(99)]]),
    (("state", "parts", 2, "levels"), []),
    (("state", "parts", 3, "rows"), -1),
    (("state", "parts", 3, "rows"), 1.5),
    (("n_features",), -1),
    (("n_features",), 2.0),
    (("n_targets",), "no"),
    (("n_targets",), 3),
    (("feature_names",), ["a"]),
    (("metadata",), None),
    (("extra",), 1),
]


@pytest.mark.parametrize(("where", "value"), TAMPERED, ids=repr)
def test_files_that_olsq_did_not_write_are_refused(where, value, tmp_path):
    path, _ = saved(tmp_path)
    header, arrays = files.read(path)
    change(header, arrays, where, value)
    files.write(path, header, arrays)
    with pytest.raises(olsq.StateFileError, match="not a state file that olsq wrote"):
        olsq.load(path)


def test_an_array_too_many_is_refused(tmp_path):
    path, _ = saved(tmp_path)
    header, arrays = files.read(path)
    files.write(path, header, {**arrays, "more": np.zeros(2)})
    with pytest.raises(olsq.StateFileError, match="'more' is not expected"):
        olsq.load(path)


def test_the_pages_blocks_print_what_it_shows(tmp_path, monkeypatch):
    import doctest

    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "features.md").read_text()
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "features.md", "docs/features.md", 0)
    assert len(test.examples) > 15
    failed = []
    doctest.DocTestRunner().run(test, out=failed.append)
    assert failed == []


@pytest.mark.full
def test_without_scikit_learn_and_pandas():
    import subprocess
    import sys

    code = """
import sys, numpy as np, olsq
from olsq.features import *
u = Union([Lags(2), FIR(2), Fourier(7), Trend(), OneHot()])
u.partial_transform(np.ones((5, 1)), np.ones(5))
heavy = "jax", "sklearn", "pandas", "polars", "formulaic", "matplotlib"
print([m for m in heavy if m in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_polars_output_has_names():
    X, _ = frame()
    out = Lags(1, of="price").set_output(transform="polars").fit_transform(pl.from_pandas(X))
    assert out.columns == ["price_lag1"]
