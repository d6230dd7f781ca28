"""Formulas over blocks: lags reach over edges, transforms learn once, levels stay."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import olsq
from olsq.features import Formula
from tests.tiers import examples

T = 30
WHOLE = "y ~ lag(y, 2) + lag(lag(x)) + np.log(z) + C(g):x"


def frame(seed=0):
    rng = np.random.default_rng(seed)
    data = {
        "y": rng.standard_normal(T),
        "x": rng.integers(0, 9, T),
        "z": rng.uniform(1, 2, T),
        "g": np.resize(["a", "b", "c"], T),
    }
    return pd.DataFrame(data, index=pd.date_range("2024", periods=T))


@given(cuts=st.lists(st.integers(3, T), max_size=6))
@settings(max_examples=examples(20), deadline=None)
def test_any_cut_gives_formulaics_matrix(cuts):
    import formulaic

    data = frame()
    theirs = formulaic.model_matrix(WHOLE, data, na_action="ignore")
    formula = Formula(WHOLE)
    parts = []
    for first, last in itertools.pairwise(sorted({0, T, *cuts})):
        block = data[first:last]
        if first:
            seen = formula.peek(block.drop(columns="y"))
            known = np.array([0])  # of later rows y's lags are not known
            own = formula.partial_transform(block)
            np.testing.assert_array_equal(seen.to_numpy()[known], own[0].to_numpy()[known])
        else:
            own = formula.partial_transform(block)
        parts.append(own)
    X = pd.concat([part[0] for part in parts])
    y = pd.concat([part[1] for part in parts])
    np.testing.assert_array_equal(X.to_numpy(), np.asarray(theirs.rhs, float))
    np.testing.assert_array_equal(y, theirs.lhs["y"])
    pd.testing.assert_index_equal(X.index, data.index)
    assert formula.feature_names_ == list(theirs.rhs.columns)
    assert formula.target_names_ == ["y"]
    assert formula.history_ == 2


def test_transforms_learn_on_the_first_block_alone():
    data = frame()
    data.iloc[3, 1] = 100
    formula = Formula("center(x) + bs(z, df=4, lower_bound=1, upper_bound=2) - 1")
    first, none = formula.partial_transform(data[:15])
    assert none is None
    later = formula.partial_transform(data[15:])[0]
    assert abs(first["center(x)"].mean()) < 1e-12
    np.testing.assert_allclose(later["center(x)"], data["x"][15:] - data["x"][:15].mean())
    again = Formula("center(x) + bs(z, df=4, lower_bound=1, upper_bound=2) - 1")
    again.partial_transform(data[:15])
    changed = data.copy()
    changed.iloc[20:, 1] = 0
    np.testing.assert_array_equal(again.partial_transform(changed[15:20])[0], later[:5])


def test_missing_values_neither_drop_rows_nor_spoil_what_is_learned():
    data = frame()
    data["x"] = data["x"].astype(float)
    data.iloc[4, 1] = np.nan
    X, _ = Formula("y ~ center(x) + lag(x)").partial_transform(data)
    assert len(X) == T
    assert np.flatnonzero(X["center(x)"].isna()).tolist() == [4]
    assert np.flatnonzero(X["lag(x)"].isna()).tolist() == [0, 5]
    kept = data["x"].drop(data.index[4])
    assert X["center(x)"].iloc[0] == pytest.approx(data["x"].iloc[0] - kept.mean())


def test_levels_that_come_later_are_missing():
    data = frame()
    formula = Formula("y ~ C(g) + g:x")
    formula.partial_transform(data[:10])
    later = data[10:13].copy()
    later["g"] = ["a", "new", "b"]
    X, _ = formula.partial_transform(later)
    gone = X.isna()
    assert gone.iloc[1, 1:].all()
    assert not gone.iloc[[0, 2]].any().any()
    assert not gone["Intercept"].any()


@pytest.mark.parametrize("kind", ["polars", "arrow"])
def test_frames_of_other_libraries(kind):
    data = frame().reset_index(drop=True)
    expected, target = Formula(WHOLE).partial_transform(data)
    table = pl.from_pandas(data) if kind == "polars" else pa.Table.from_pandas(data)
    X, y = Formula(WHOLE).partial_transform(table)
    assert isinstance(X, pl.DataFrame if kind == "polars" else pd.DataFrame)
    assert isinstance(y, pl.Series if kind == "polars" else pd.Series)
    assert list(X.columns) == list(expected.columns)
    np.testing.assert_array_equal(X.to_numpy(), expected.to_numpy())
    np.testing.assert_array_equal(y.to_numpy(), target.to_numpy())
    est = olsq.RecursiveLeastSquares(fit_intercept=False).fit(X, y)
    assert est.n_samples_seen_ == T - 2


def test_names_in_backquotes():
    data = frame().rename(columns={"x": "unit price"})
    formula = Formula("y ~ lag(`unit price`, 2) + `unit price`")
    X = formula.partial_transform(data)[0]
    np.testing.assert_array_equal(X.iloc[2:, 1], data["unit price"][:-2])
    assert formula.history_ == 2


def test_several_targets_and_given_history():
    data = frame()
    X, Y = Formula("y + z ~ x.shift(3) + x", history=3).partial_transform(data)
    assert list(Y.columns) == ["y", "z"]
    formula = Formula("y + z ~ x.shift(3) + x", history=3)
    parts = [formula.partial_transform(data[:7])[0], formula.partial_transform(data[7:])[0]]
    np.testing.assert_array_equal(pd.concat(parts), X)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ lag(x, -1)", "looks ahead"),
        ("y ~ lag(x, k=-1)", "looks ahead"),
        ("y ~ lag(x, n)", "must be a number of rows"),
        ("y ~ cost", r"needs columns \['cost'\]"),
        ("y ~ center(cost)", "name 'cost' is not defined"),
        ("y | z ~ x", "join several targets"),
    ],
)
def test_bad_formulas_are_named(formula, message):
    with pytest.raises(ValueError, match=message):
        Formula(formula).partial_transform(frame())


def test_bad_calls_are_named():
    data = frame()
    with pytest.raises(ValueError, match="has seen no rows"):
        Formula("y ~ x").peek(data)
    with pytest.raises(ValueError, match="history must be"):
        Formula("y ~ x", history=-1).partial_transform(data)
    with pytest.raises(ValueError, match="no row without a missing value"):
        Formula("y ~ x").partial_transform(data.assign(y=np.nan))
    formula = Formula("y ~ x")
    formula.partial_transform(data)
    with pytest.raises(ValueError, match="data has no columns"):
        formula.partial_transform(data[["y"]])


def test_the_streamed_regression_is_statsmodels_of_all_rows():
    import statsmodels.formula.api as smf

    data = frame()
    formula, est = Formula("y ~ z + C(g)"), olsq.RecursiveLeastSquares(fit_intercept=False, ridge=0)
    for first, last in ((0, 8), (8, 9), (9, T)):
        est.partial_fit(*formula.partial_transform(data[first:last]))
    theirs = smf.ols("y ~ z + C(g)", data).fit().params
    ours = dict(zip(est.feature_names_in_, est.coef_, strict=True))
    assert ours == pytest.approx(theirs.to_dict(), rel=1e-9)


MISSING = pd.DataFrame(
    {
        "y": np.arange(6.0), "x": [1.0, np.nan, 3.0, 4.0, 5.0, 6.0],
        "g": list("ababab"), "the g": list("ababab"), "été": list("ababab"),
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "more", "gone"),
    [
        ("lag(g)", {"g": ["z", "a", "b"]}, [True, *[False] * 6, True, False]),
        ("C(lag(g, 2))", {"g": [None, "a", "b"]}, [True, True, *[False] * 6, True]),
        ("`the g`", {"the g": ["c", None, "a"]}, [*[False] * 6, True, True, False]),
        ("C(`the g`)", {"the g": ["c", None, "a"]}, [*[False] * 6, True, True, False]),
        ("été", {"été": ["c", None, "a"]}, [*[False] * 6, True, True, False]),
        ("I(x > 2)", {"x": [1.0, np.nan, 2.0]}, [False, True, *[False] * 5, True, False]),
        ("x:C(g)", {"g": ["c", "a", "b"]}, [False, True, *[False] * 4, True, False, False]),
        ("x.fillna(0)", {}, [False] * 9),
    ],
)
def test_rows_without_a_value_are_nan_wherever_it_is_used(formula, more, gone):
    made, rows = Formula(f"y ~ {formula}"), MISSING.iloc[:3].assign(x=1.0)
    first = made.partial_transform(MISSING)[0].to_numpy()
    then = made.partial_transform(rows.assign(**more))[0].to_numpy()
    assert np.isnan(np.concatenate([first, then])).any(axis=1).tolist() == gone


def test_a_transform_that_would_learn_from_missing_values_is_refused():
    for code in ("center(lag(x))", "scale(lag(x, 2))"):
        made = Formula(f"y ~ {code}")
        with pytest.raises(ValueError, match=r"learns from missing values.*lag\(center\(x\)\)"):
            made.partial_transform(MISSING)
        assert not hasattr(made, "feature_names_")
    found = Formula("y ~ lag(center(x)) - 1").partial_transform(MISSING.assign(x=np.arange(6.0)))[0]
    np.testing.assert_allclose(found.to_numpy()[:, 0], [np.nan, -2.5, -1.5, -0.5, 0.5, 1.5])


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 + 0.1, 1.0, -2.5])
@pytest.mark.parametrize("transform", ["scale", "center", "standardize"])
def test_a_column_that_does_not_vary_is_0_about_its_mean(transform, value):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"y": rng.standard_normal(T), "k": np.full(T, value)})
    data.loc[T // 2 :, "k"] = np.nextafter(value, np.inf)
    formula = Formula(f"y ~ {transform}(k) - 1")
    X, _ = formula.partial_transform(data)
    assert (np.abs(X.to_numpy()) <= np.spacing(abs(value))).all()
    later, _ = formula.partial_transform(data.assign(k=value + 3.0))
    np.testing.assert_allclose(later, 3.0, rtol=1e-9)


@pytest.mark.parametrize("value", [0.1, 1.0])
def test_polynomials_of_too_few_values_are_refused(value):
    data = pd.DataFrame({"y": np.arange(T), "k": np.full(T, value), "b": np.resize([0.0, 1.0], T)})
    for code in ("poly(k)", "poly(b, 2)"):
        with pytest.raises(ValueError, match="different values to learn from"):
            Formula(f"y ~ {code}").partial_transform(data)
    X, _ = Formula("y ~ poly(b) + poly(k, raw=True)").partial_transform(data)
    assert np.isfinite(X.to_numpy()).all()


LARGE = [2**53, 2**53 + 1, None, 2**53 + 2, 2**53 + 1, 2**53]


@pytest.mark.full
@pytest.mark.parametrize("formula", ["y ~ C(id)", "y ~ C(id) + lag(y)", "y ~ C(lag(id))"])
@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "no nulls", "unsigned"])
def test_labels_beyond_float64_keep_their_last_digit(kind, formula):
    pa = pytest.importorskip("pyarrow")
    ids = [2**53 + i % 3 for i in range(6)] if kind == "no nulls" else LARGE
    columns = {"id": ids, "y": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
    whole = pd.array(ids, "UInt64" if kind == "unsigned" else "Int64")
    frame = {
        "polars": pl.DataFrame(columns),
        "arrow": pa.table(columns),
        "no nulls": pd.DataFrame(columns),
    }.get(kind, pd.DataFrame(columns | {"id": whole}))
    small = [None if i is None else i - 2**53 for i in ids]  # the same labels, which float64 holds
    same = pl.DataFrame(columns | {"id": [None if i is None else str(i) for i in small]})
    ours, theirs = Formula(formula), Formula(formula)
    for cut in (slice(0, 6), slice(0, 2), slice(2, 6)):
        piece = frame.slice(cut.start, cut.stop - cut.start) if kind == "arrow" else frame[cut]
        X, _ = ours.partial_transform(piece)
        want, _ = theirs.partial_transform(same[cut])
        np.testing.assert_array_equal(np.asarray(X, float), np.asarray(want, float))
    assert any(str(2**53 + 1) in name for name in ours.feature_names_)


def test_large_labels_may_follow_small_ones():
    """They are none that were learned, and become none by rounding."""
    formula = Formula("y ~ C(id) + lag(y)")
    formula.partial_transform(pd.DataFrame({"id": [1, 2, 2**53], "y": [1.0, 2.0, 3.0]}))
    X, _ = formula.partial_transform(pd.DataFrame({"id": [2**53 + 1, 2**53], "y": [1.0, 2.0]}))
    np.testing.assert_array_equal(np.isnan(X.iloc[:, 1]), [True, False])


FIRST_EMPTY = {
    "numbers": ("y ~ lag(y, 2) + lag(lag(x)) + np.log(z)", True),
    "transforms": ("y ~ center(x) + scale(z) + poly(x, 3) + bs(z, df=5)", True),
    "interactions": ("np.log(z) + y ~ x:z - 1", True),
    "no targets": ("x + lag(z)", True),
    "levels": (WHOLE, False),
    "levels of text": ("y ~ lag(y) + g", False),
    "levels of numbers": ("y ~ C(x)", False),
    "levels of targets": ("C(g) ~ x + z", True),
}
LIBRARIES = {"pandas": lambda f: f, "Polars": pl.from_pandas, "Arrow": pa.Table.from_pandas}


@pytest.mark.full
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", FIRST_EMPTY)
def test_a_first_block_without_rows_teaches_nothing(name, library):
    text, known = FIRST_EMPTY[name]
    data = LIBRARIES[library](frame().reset_index(drop=True))
    whole, formula = Formula(text).partial_transform(data), Formula(text)
    parts = [formula.partial_transform(data[a:b]) for a, b in ((0, 0), (0, 0), (0, T))]
    for sides in parts[:2]:
        for side, wanted in zip(sides, whole, strict=True):
            assert side is None if wanted is None else len(side) == 0
        if known:
            assert list(sides[0].columns) == list(whole[0].columns)
        else:
            assert sides[0].shape[1] == 0
    for got, wanted in zip(parts[2], whole, strict=True):
        if wanted is not None:
            np.testing.assert_array_equal(got.to_numpy(), wanted.to_numpy())
    last = formula.partial_transform(data[T:])[0]
    assert last.shape == (0, whole[0].shape[1])
    assert list(last.columns) == list(whole[0].columns)


def test_an_estimator_takes_a_first_block_without_rows():
    data, text = frame(), "y ~ lag(y) + center(x)"
    est, whole = (olsq.RecursiveLeastSquares(fit_intercept=False) for _ in range(2))
    formula = Formula(text)
    for edges in ((0, 0), (0, 9), (9, T)):
        est.partial_fit(*formula.partial_transform(data[slice(*edges)]))
    first = Formula(text)
    for edges in ((0, 9), (9, T)):
        whole.partial_fit(*first.partial_transform(data[slice(*edges)]))
    np.testing.assert_array_equal(est.coef_, whole.coef_)
    assert list(est.feature_names_in_) == ["Intercept", "lag(y)", "center(x)"]
    with pytest.raises(ValueError, match=r"absent"):
        Formula("y ~ absent").partial_transform(data[:0])
    with pytest.raises(ValueError, match="negative one looks ahead"):
        Formula("y ~ lag(x, -1)").partial_transform(data[:0])
