"""``pl.col("y").olsq``: the numbers of ``coefficient_path``, wherever the expression stands."""

from __future__ import annotations

import datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import olsq
import olsq.polars
from olsq.polars import regression
from olsq.testing import regressions
from tests.tiers import examples

NAMES = ["a", "b"]


@pytest.fixture(scope="module")
def frame():
    """90 rows of three groups in disorder, with a null target, a NaN and a null regressor."""
    rng = np.random.default_rng(0)
    n = 90
    X = rng.standard_normal((n, 2))
    y = X @ [2.0, -1.0] + 3 + rng.standard_normal(n)
    return pl.DataFrame(
        {
            "g": rng.integers(0, 3, n),
            "a": [None if t == 40 else float(x) for t, x in enumerate(X[:, 0])],
            "b": [float("nan") if t == 20 else float(x) for t, x in enumerate(X[:, 1])],
            "y": [None if t in (11, 60) else float(v) for t, v in enumerate(y)],
            "w": rng.uniform(0.5, 2.0, n),
            "t": [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=i) for i in range(n)],
        }
    )


@pytest.mark.parametrize("output", ["coef", "prediction", "stderr"])
@pytest.mark.parametrize("method", ["expanding", "rls"])
def test_estimates_of_few_rows_are_null(frame, method, output):
    method = getattr(pl.col("y").olsq, method)
    found, every = (
        frame.select(read=method(*NAMES, output=output, **options))["read"]
        for options in ({"min_samples": 5}, {})
    )
    if output != "prediction":
        found, every = found.struct.field("a"), every.struct.field("a")
    hidden = 5 if output == "prediction" else 4
    assert found[:hidden].null_count() == hidden
    assert found[hidden:].equals(every[hidden:], null_equal=True)


def arrays(frame):
    return frame.select(NAMES).to_numpy(), frame["y"].to_numpy()


# method -> its options, those of coefficient_path, whether a fit
METHODS = {
    "ols": ({"fit_intercept": True}, {"fit_intercept": True}),
    "expanding": ({"ridge": 0.5}, {"ridge": 0.5}),
    "rls": ({"forget": 0.95, "fit_intercept": True}, {"forget": 0.95, "fit_intercept": True}),
    "rolling": ({"window": 20, "min_samples": 5}, {"window": 20, "min_samples": 5}),
}
OUTPUTS = ["coef", "prediction", "residual", "stderr"]


def exact(kind, path, X, y, output):
    """Compute from their path the output of a method for the rows of one group."""
    intercept = kind in ("ols", "rls")
    coef = np.column_stack([path.intercept, path.coef]) if intercept else path.coef
    stderr = np.column_stack([path.intercept_stderr, path.stderr]) if intercept else path.stderr
    if kind == "ols":
        coef, stderr = (np.broadcast_to(a[-1], a.shape) for a in (coef, stderr))
        fitted = X @ path.coef[-1] + path.intercept[-1]
        rows = {"prediction": fitted, "residual": y - fitted}
        return (rows | {"coef": coef, "stderr": stderr})[output]
    if output == "prediction":
        before = np.vstack([np.zeros(coef.shape[1]), coef[:-1]])
        if kind == "rolling":
            before[0] = np.nan  # min_samples
        return np.sum(before * (np.column_stack([np.ones(len(X)), X]) if intercept else X), axis=1)
    return {"coef": coef, "stderr": stderr, "residual": path.residual}[output]


def expected(frame, kind, output, by_group):
    X, y = arrays(frame)
    g = frame["g"].to_numpy() if by_group else np.zeros(len(y), int)
    out = None
    for label in np.unique(g):
        rows = g == label
        path = olsq.coefficient_path(X[rows], y[rows], **METHODS[kind][1])
        part = exact(kind, path, X[rows], y[rows], output)
        out = np.full((len(y), *part.shape[1:]), np.nan) if out is None else out
        out[rows] = part
    return out


def expression(kind, output):
    return getattr(pl.col("y").olsq, kind)(*NAMES, output=output, **METHODS[kind][0])


def as_array(series):
    if isinstance(series.dtype, pl.Struct):
        return series.struct.unnest().to_numpy()
    return series.to_numpy()


def by_agg(frame, e):
    """``group_by().agg()``, put back into the order of the rows."""
    found = frame.with_row_index("i").group_by("g").agg("i", z=e)
    lists = ["i", "z"] if isinstance(found["z"].dtype, pl.List) else ["i"]
    return found.explode(lists).sort("i")["z"]


CONTEXTS = {
    "select": (False, lambda f, e: f.select(z=e)["z"]),
    "with_columns": (False, lambda f, e: f.with_columns(z=e)["z"]),
    "over": (True, lambda f, e: f.with_columns(z=e.over("g"))["z"]),
    "agg": (True, by_agg),
    "lazy": (True, lambda f, e: f.lazy().with_columns(z=e.over("g")).collect()["z"]),
    "streaming": (False, lambda f, e: f.lazy().select(z=e).collect(engine="streaming")["z"]),
    "streaming over": (
        True, lambda f, e: f.lazy().with_columns(z=e.over("g")).collect(engine="streaming")["z"],
    ),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("kind", METHODS)
def test_every_method_output_and_context_is_the_path(kind, output, context, frame):
    grouped, run = CONTEXTS[context]
    found = as_array(run(frame, expression(kind, output)))
    want = expected(frame, kind, output, grouped)
    if kind == "ols" and output in ("coef", "stderr") and len(found) == 1:
        want = want[-1:]  # one row, as Polars' own aggregations
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


def close(found, path):
    np.testing.assert_allclose(found, path, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("output", ["coef", "residual", "stderr"])
@pytest.mark.parametrize("kind", ["expanding", "rls", "rolling"])
def test_digits_are_those_of_coefficient_path(kind, output, frame):
    X, y = arrays(frame)
    g = frame["g"].to_numpy()
    for by, grouped in ((None, False), (g, True)):
        path = olsq.coefficient_path(X, y, by=by, **METHODS[kind][1])
        e = expression(kind, output)
        found = as_array(frame.select(z=e.over("g") if grouped else e)["z"])
        right = exact(kind, path, X, y, output)  # a path with statistics carries on otherwise
        close(found, right)


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("output", OUTPUTS)
def test_schemas_are_known_before_rows_are(kind, output, frame):
    e = expression(kind, output)
    for query in (
        frame.lazy().select(z=e), frame.lazy().with_columns(z=e.over("g")),
        frame.lazy().group_by("g").agg(z=e),
    ):  # fmt: skip
        assert query.collect_schema() == query.collect().schema


def test_missing_rows_are_null_and_the_others_go_on(frame):
    e = pl.col("y").olsq.rls(*NAMES, forget=0.95, output="prediction")
    r = pl.col("y").olsq.rls(*NAMES, forget=0.95, output="residual")
    found = frame.select(p=e, r=r)
    assert not found.select(pl.all().is_nan().any()).row(0)[0]
    assert found["p"].is_null().arg_true().to_list() == [20, 40]  # a regressor is missing
    assert found["r"].is_null().arg_true().to_list() == [11, 20, 40, 60]


def test_names_come_from_regressors_and_the_target(frame):
    e = pl.col("y").olsq.ols("a", pl.col("b").alias("slope"), fit_intercept=True)
    found = frame.select(e)
    assert found.columns == ["y"]
    assert [f.name for f in found["y"].dtype.fields] == ["intercept", "a", "slope"]
    assert frame.select(e.alias("fit")).unnest("fit").columns == ["intercept", "a", "slope"]
    one = frame.select(pl.col("y").olsq.ols(NAMES))
    assert one.equals(frame.select(pl.col("y").olsq.ols(*NAMES)))


def test_regressors_may_be_expressions(frame):
    lag = pl.col("y").shift(1).alias("lag")
    mean = pl.col("a").mean().alias("mean")
    one = pl.lit(1.0).alias("one")
    e = pl.col("y").olsq.rls(lag, mean, one, forget=0.9)
    found = as_array(frame.select(z=e.over("g"))["z"])
    g = frame["g"].to_numpy()
    for label in range(3):
        part = frame.filter(pl.col("g") == label)
        X = part.select(lag, mean, one).to_numpy()
        path = olsq.coefficient_path(X, part["y"].to_numpy(), forget=0.9)
        np.testing.assert_allclose(found[g == label], path.coef, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["ols", "rls", "rolling"])
def test_weights(kind, frame):
    X, y = arrays(frame)
    path = olsq.coefficient_path(X, y, sample_weight=frame["w"].to_numpy(), **METHODS[kind][1])
    e = getattr(pl.col("y").olsq, kind)
    for output in ("coef", "stderr"):
        found = as_array(
            frame.with_columns(
                z=e(*NAMES, sample_weight="w", output=output, **METHODS[kind][0])
            )["z"]
        )  # fmt: skip
        np.testing.assert_allclose(found, exact(kind, path, X, y, output), rtol=1e-9)


def test_half_lives_and_windows_in_time(frame):
    X, y = arrays(frame)
    times, g = frame["t"], frame["g"].to_numpy()
    olsq_y = pl.col("y").olsq
    for e, options in (
        (olsq_y.rls(*NAMES, half_life="12h", times="t"), {"half_life": "12h"}),
        (olsq_y.rolling(*NAMES, window=datetime.timedelta(hours=30), times=pl.col("t")),
         {"window": "30h"}),
        (olsq_y.rolling(*NAMES, window="30h", half_life="12h", times="t"),
         {"window": "30h", "half_life": "12h"}),
        (olsq_y.rolling(*NAMES, window=20, half_life="12h", times="t"),
         {"window": 20, "half_life": "12h"}),
        (olsq_y.rolling(*NAMES, window=20, half_life=6.0), {"window": 20, "half_life": 6.0}),
    ):  # fmt: skip
        alone = olsq.coefficient_path(X, y, times=times, **options)
        close(as_array(frame.select(z=e)["z"]), alone.coef)
        groups = olsq.coefficient_path(X, y, times=times, by=g, **options)
        close(as_array(frame.select(z=e.over("g"))["z"]), groups.coef)


def test_forgetting_by_row_strategies_and_order(frame):
    X, y = arrays(frame)
    factors = np.where(np.arange(90) % 30 == 0, 0.5, 0.99)
    e = pl.col("y").olsq.rls(*NAMES, forget=pl.when(pl.int_range(90) % 30 == 0).then(0.5).otherwise(
        0.99))  # fmt: skip
    path = olsq.coefficient_path(X, y, forget=factors)
    close(as_array(frame.select(z=e)["z"]), path.coef)
    e = pl.col("y").olsq.rolling(*NAMES, window=20, forget=pl.lit(pl.Series(factors)))
    path = olsq.coefficient_path(X, y, forget=factors, window=20)
    close(as_array(frame.select(z=e)["z"]), path.coef)
    strategy = olsq.forgetting.Directional(0.95)
    e = pl.col("y").olsq.rls(*NAMES, forget=strategy, ridge=1.0)
    path = olsq.coefficient_path(X, y, forget=strategy, ridge=1.0)
    close(as_array(frame.select(z=e)["z"]), path.coef)
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    e = pl.col("y").olsq.expanding(*NAMES, output="residual")
    ordered = shuffled.with_columns(z=e.over("g", order_by="t")).sort("t")
    assert ordered["z"].equals(frame.with_columns(z=e.over("g"))["z"])


@pytest.mark.full
@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("output", OUTPUTS)
def test_nothing_to_learn_from(kind, output, frame):
    e = expression(kind, output)
    struct = output in ("coef", "stderr")
    empty = frame.clear()
    rows = 1 if kind == "ols" and struct else 0
    found = empty.select(z=e)
    assert len(found) == rows
    assert found.schema == frame.select(z=e).schema
    assert len(empty.with_columns(z=e.over("g"))) == len(empty.group_by("g").agg(e)) == 0
    lost = frame.with_columns(y=pl.lit(None))  # a column of nulls only, without a type
    lost = lost.with_columns(a=pl.lit(None, pl.Float64))
    assert np.isnan(as_array(lost.select(z=e)["z"]).astype(float)).all()
    one = frame.with_columns(y=pl.when(pl.col("g") == 1).then(None).otherwise("y"))
    whole = as_array(frame.with_columns(z=e.over("g"))["z"])
    part = as_array(one.with_columns(z=e.over("g"))["z"])
    g = frame["g"].to_numpy()
    np.testing.assert_allclose(part[g != 1], whole[g != 1])
    if output != "prediction" or kind == "ols":
        assert np.isnan(part[g == 1]).all()


@pytest.mark.full
@pytest.mark.parametrize(("kind", "weight"), [("ols", 0.0), *((kind, np.nan) for kind in METHODS)])
@pytest.mark.parametrize("output", regression.OUTPUTS)
def test_no_row_has_a_weight(kind, output, weight, frame):
    """Where no row counts nothing is known, in the whole frame or in one group."""
    e = getattr(pl.col("y").olsq, kind)(
        *NAMES, sample_weight="w", output=output, **METHODS[kind][0]
    )
    lost = frame.with_columns(w=pl.lit(weight))
    one = frame.with_columns(w=pl.when(pl.col("g") == 1).then(weight).otherwise("w"))
    for table in (lost.select(z=e), one.select("g", z=e.over("g")).filter(pl.col("g") == 1)):
        values = as_array(table["z"]).astype(float)
        if output == "n_rows" and weight == 0:
            assert (values == 0).all()
        else:
            assert np.isnan(values).all()


@pytest.mark.parametrize("kind", METHODS)
def test_groups_that_a_filter_empties(kind, frame):
    keep = pl.col("g") > 0
    regressors = [pl.col(name).filter(keep) for name in NAMES]
    call = getattr(pl.col("y").filter(keep).olsq, kind)
    e = call(*regressors, output="residual", **METHODS[kind][0])
    found = frame.group_by("g", maintain_order=True).agg(z=e)
    whole = frame.group_by("g", maintain_order=True).agg(z=expression(kind, "residual"))
    for g, z in found.rows():
        assert z == ([] if g == 0 else dict(whole.rows())[g])
    fits = frame.group_by("g").agg(pl.col("y").filter(keep).olsq.ols(*regressors))
    assert dict(fits.rows())[0] == {"a": None, "b": None}


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt8, pl.Float32, pl.Boolean, pl.Decimal(10, 2)])
def test_other_columns_of_numbers_are_float64(dtype):
    rng = np.random.default_rng(1)
    whole = pl.DataFrame({"a": rng.integers(0, 2, 30), "y": rng.integers(0, 100, 30)})
    found = whole.cast({"a": dtype}).select(z=pl.col("y").olsq.rls("a", forget=0.9))
    X, y = whole["a"].to_numpy()[:, None].astype(float), whole["y"].to_numpy().astype(float)
    path = olsq.coefficient_path(X, y, forget=0.9)
    np.testing.assert_array_equal(as_array(found["z"]), path.coef)
    assert found["z"].dtype == pl.Struct({"a": pl.Float64})


def test_one_row_and_constant_groups():
    row = pl.DataFrame({"a": [2.0], "b": [0.0], "y": [4.0]})
    e = pl.col("y").olsq
    assert row.select(e.expanding(*NAMES))["y"].to_list() == [{"a": 2.0, "b": 0.0}]
    assert row.select(e.ols("a", output="stderr"))["y"].to_list() == [{"a": np.inf}]
    assert row.select(e.rolling("a", window=3, output="prediction"))["y"].to_list() == [0.0]
    same = pl.DataFrame({"g": [0, 0, 1, 1], "a": [1.0, 1.0, 2.0, 2.0], "y": [3.0, 5.0, 4.0, 4.0]})
    fit = same.group_by("g", maintain_order=True).agg(e.ols("a", fit_intercept=True))["y"]
    for group, (a, mean) in zip(fit.to_list(), ((1.0, 4.0), (2.0, 4.0)), strict=True):
        assert group["intercept"] + a * group["a"] == pytest.approx(mean)  # the smallest that fits


@given(
    regressions(length=(1, 30), features=(1, 3), targets=1), st.data(),
    st.sampled_from(["ols", "rls", "rolling"]),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_streams_that_break_learners(stream, data, kind):
    """Groups of a hard stream are what the package says of each of them."""
    n, d = stream.X.shape
    names = [f"x{j}" for j in range(d)]
    groups = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    y = stream.y[:, 0].astype(float)
    table = pl.DataFrame(
        {name: stream.X[:, j].astype(float) for j, name in enumerate(names)}
        | {"y": y, "g": groups, "w": stream.sample_weight.astype(float)}
    )
    options = {"ridge": stream.ridge, "sample_weight": "w"}
    more = {"ols": {}, "rls": {"forget": 0.9}, "rolling": {"window": 7}}[kind]
    e = getattr(pl.col("y").olsq, kind)(*names, **options, **more)
    found = as_array(table.with_columns(z=e.over("g"))["z"])
    X = table.select(names).to_numpy()
    for g in np.unique(groups):
        rows = groups == g
        usable = np.isfinite(X[rows]).all(axis=1) & np.isfinite(y[rows])
        weights = table["w"].to_numpy()[rows]
        if not (usable & (weights > 0)).any():
            continue
        path = olsq.coefficient_path(
            X[rows], y[rows], ridge=stream.ridge, sample_weight=weights, **more
        )
        want = np.broadcast_to(path.coef[-1], path.coef.shape) if kind == "ols" else path.coef
        scale = np.abs(want[np.isfinite(want)]).max(initial=1e-300)
        np.testing.assert_allclose(found[rows], want, rtol=1e-6, atol=1e-6 * scale)


ERRORS = [
    (lambda e: e.ols(), ValueError, "at least one regressor"),
    (lambda e: e.ols("a", "a"), ValueError, "two regressors are named 'a'"),
    (lambda e: e.ols(3), TypeError, "regressors must be columns' names or expressions, got 3"),
    (lambda e: e.ols(pl.Series([1.0])), TypeError, "got a Series"),
    (lambda e: e.ols(pl.col("a", "b")), ValueError, "regressor 0 must be one column"),
    (lambda e: e.ols("a", pl.selectors.float()), ValueError, "regressor 1 must be one column"),
    (lambda e: e.ols("a", pl.col("^b.*$")), ValueError, "regressor 1 must be one column"),
    (lambda e: e.ols("intercept", fit_intercept=True), ValueError, "named 'intercept'"),
    (lambda e: e.ols("a", output="beta"), ValueError, "output must be one of"),
    (lambda e: e.ols("a", missing="drop"), ValueError, "missing must be one of"),
    (lambda e: e.ols("a", ridge=-1.0), ValueError, "ridge"),
    (lambda e: e.ols("a", "b", ridge=[1.0, 2.0, 3.0]), ValueError, "ridge"),
    (lambda e: e.ols("a", sample_weight=2.0), TypeError, "sample_weight must be columns'"),
    (lambda e: e.rls("a", forget=1.5), ValueError, r"forget must lie in \[0, 1\]"),
    (lambda e: e.rls("a", forget=[0.9, 0.8]), ValueError, "factors of rows are a column"),
    (lambda e: e.rls("a", forget=0.9, half_life=3), ValueError, "half_life"),
    (lambda e: e.rls("a", half_life="30D"), ValueError, "every row needs a time"),
    (lambda e: e.rls("a", method="qr"), ValueError, "method must be one of"),
    (lambda e: e.rolling("a", window=0), ValueError, "window must be a positive"),
    (lambda e: e.rolling("a", window=None), ValueError, "window must be a number"),
    (lambda e: e.rolling("a", window="90D"), ValueError, "every row needs a time"),
    (lambda e: e.rolling("a", window=9, half_life="9D"), ValueError, "every row needs a time"),
    (lambda e: e.rolling("a", window=9, forget=0.9, half_life=3), ValueError, "half_life"),
]


@pytest.mark.parametrize(("build", "kind", "text"), ERRORS)
def test_arguments_are_refused_when_the_expression_is_made(build, kind, text):
    with pytest.raises(kind, match=text):
        build(pl.col("y").olsq)


def test_a_target_is_one_column():
    with pytest.raises(ValueError, match="the target must be one column"):
        pl.col("y", "a").olsq.ols("b")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda e: e.ols("s"), "regressor 's' must be numeric, got String: cast it"),
        (lambda e: e.ols("t"), "regressor 't' must be numeric, got Datetime"),
        (lambda e: pl.col("s").olsq.ols("a"), "the target 's' must be numeric, got String"),
        (lambda e: e.ols(pl.col("a").head(7)), "regressor 'a' has 7 rows where the target has 90"),
        (lambda e: e.ols("a", sample_weight=-pl.col("w")), "sample_weight must be finite and >= 0"),
        (lambda e: e.rls("a", sample_weight="s"), "sample_weight must be numeric, got String"),
        (lambda e: e.ols("a", missing="raise"), "contains NaN"),
        (lambda e: e.rls("a", half_life="1h", times=pl.col("t").reverse()), "times must not go"),
        (lambda e: e.rls("a", half_life="1h", times=pl.int_range(90)), "times are numbers"),
        (lambda e: e.ols("nowhere"), "nowhere"),
    ],
)
def test_data_are_refused_when_the_query_runs(build, text, frame):
    query = frame.lazy().with_columns(s=pl.lit("1")).select(build(pl.col("y").olsq))
    with pytest.raises(Exception, match=text) as caught:
        query.collect()
    assert isinstance(caught.value, (TypeError, ValueError, pl.exceptions.PolarsError))


def test_several_expressions_in_one_query(frame):
    e = pl.col("y").olsq
    each = {f"z{i}": e.rls(*NAMES, forget=1 - i / 20, output="residual").over("g")
            for i in range(6)}  # fmt: skip
    together = frame.lazy().with_columns(**each).collect()
    for name, one in each.items():
        assert together[name].equals(frame.with_columns(one.alias(name))[name])


def test_a_frame_of_several_pieces(frame):
    pieces = pl.concat([frame[:30], frame[30:31], frame[31:]], rechunk=False)
    assert pieces.n_chunks() == 3
    for kind in METHODS:
        e = expression(kind, "residual")
        assert pieces.select(e).equals(frame.select(e))


@pytest.mark.parametrize("way", ["rls", "expanding", "rolling"])
def test_a_group_without_a_complete_row_predicts_nothing_beside_others(way):
    frame = pl.DataFrame({
        "g": ["u", "u", "v", "v"], "a": [1.0, 2.0, 1.0, 2.0], "y": [2.0, 4.0, None, None],
    })  # fmt: skip
    options = {"window": 3} if way == "rolling" else {}
    of = getattr(pl.col("y").olsq, way)("a", output="prediction", **options).over("g").alias("p")
    assert frame.with_columns(of)["p"].to_list()[2:] == [None, None]
    assert frame.filter(pl.col("g") == "v").with_columns(of)["p"].to_list() == [None, None]


def test_fields_with_a_prefix_are_unnested_beside_the_columns_of_their_names():
    frame = pl.DataFrame({"a": [1.0, 1.0, 2.0], "y": [4.0, 2.0, 0.0], "g": ["u", "u", "v"]})
    every = pl.col("y").olsq.expanding("a").name.prefix_fields("beta_").alias("fit")
    assert frame.with_columns(every).unnest("fit")["beta_a"].round(9).to_list() == [4.0, 3.0, 1.0]
    each = pl.col("y").olsq.ols("a").name.prefix_fields("beta_")
    table = frame.group_by("g", maintain_order=True).agg(each, pl.col("a").last()).unnest("y")
    assert table.columns == ["g", "beta_a", "a"]
    assert table["beta_a"].round(9).to_list() == [3.0, 0.0]


@pytest.mark.parametrize("fewest", [None, 1, 2])
def test_a_prediction_that_rests_on_no_row_is_0_and_with_min_samples_null(fewest):
    """In windows that have no row yet, or none any more, as residuals have it."""
    rng = np.random.default_rng(0)
    y = rng.standard_normal(24)
    y[[0, 1, 8, 9, 10, 11, 12]] = np.nan
    frame = pl.DataFrame({"a": rng.standard_normal(24), "y": y, "g": [1, 2] * 12}).fill_nan(None)
    for groups in (False, True):
        for of in ({}, {"window_of": "positions"}):
            whole = pl.col("y").olsq
            prediction, residual, coef = (
                whole.rolling("a", window=3, min_samples=fewest, output=output, **of)
                for output in ("prediction", "residual", "coef")
            )
            if groups:
                prediction, residual, coef = (e.over("g") for e in (prediction, residual, coef))
            table = frame.with_columns(p=prediction, r=residual, b=coef.struct.field("a"))
            before = table["b"].shift(1 + groups)
            unknown = before.is_null()
            expected = (before * table["a"]).fill_null(0.0 if fewest is None else np.nan)
            np.testing.assert_allclose(table["p"].fill_null(np.nan), expected, atol=1e-12)
            assert unknown.sum() > 1 + groups
            if fewest is None:
                gap = (table["y"] - table["p"] - table["r"]).drop_nulls().abs().max()
                assert gap < 1e-12
