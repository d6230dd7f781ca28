"""Every kind of input at every entry point: the right numbers, or an error naming the argument."""

from __future__ import annotations

import copy
import datetime
import decimal
import fractions
import functools
import re
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest

import olsq

RLS, ROLLING = olsq.RecursiveLeastSquares, olsq.RollingLeastSquares
N, GONE = 12, 4  # rows; the one with a missing value
X = np.round(np.random.default_rng(1).standard_normal((N, 2)) * 64) / 64
Y = X @ [1.0, -2.0] + np.arange(N) / 8
DATES = np.arange(N).astype("datetime64[D]")


def estimator_calls(kind):
    # Of the last usable rows, also where the data have an index.
    make = functools.partial(kind, **({"window_of": "samples"} if kind is ROLLING else {}))
    fitted = functools.cache(lambda: make().fit(X, Y))  # compiled by a test, not on import
    return {
        "fit": lambda X, y, w: make().fit(X, y, w).coef_,
        "partial_fit": lambda X, y, w: copy.copy(fitted()).partial_fit(X, y, w).coef_,
        "partial_fit_path": lambda X, y, w: make().partial_fit_path(X, y, w).coef,
        "score": lambda X, y, w: fitted().score(X, y) if w is None else None,
        "predict": lambda X, y, w: fitted().predict(X),
    }


CALLS = {f"{k.__name__}.{n}": f for k in (RLS, ROLLING) for n, f in estimator_calls(k).items()}
CALLS["path"] = lambda X, y, w: olsq.coefficient_path(X, y, sample_weight=w).coef
CALLS["rolling path"] = lambda X, y, w: (
    olsq.coefficient_path(X, y, sample_weight=w, window=5, window_of="samples").coef
)


def takes(call, name):
    """Test whether the entry point looks at that argument."""
    reads = {"predict": {"X"}, "score": {"X", "y"}}
    return name in reads.get(call.split(".")[-1], {"X", "y", "sample_weight"})


def begins_anew(call):
    """Test whether the entry point's rows are the first: complex ones make a complex model."""
    return call.split(".")[-1] in {"fit", "partial_fit_path", "path", "rolling path"}


def column_of(array, cell):
    """The array as objects with one cell exchanged."""
    other = array.astype(object)
    other[(GONE, *(0,) * (other.ndim - 1))] = cell
    return other


def as_dates(array):
    return np.zeros(array.shape, "datetime64[s]")


REFUSED = {
    "dates": as_dates,
    "NaT": lambda a: np.full(a.shape, "NaT", "datetime64[ns]"),
    "durations": lambda a: np.zeros(a.shape, "timedelta64[s]"),
    "one date": lambda a: column_of(a, datetime.date(2020, 1, 1)),
    "one NaT": lambda a: column_of(a, pd.NaT),
    "one timestamp": lambda a: column_of(a, np.datetime64("2020-01-01")),
    "one duration": lambda a: column_of(a, datetime.timedelta(1)),
    "list of dates": lambda a: as_dates(a).tolist(),
    "pandas dates": lambda a: pd.DataFrame(as_dates(a)) if a.ndim == 2 else pd.Series(DATES),
    "pandas dates with a zone": lambda a: (
        pd.DataFrame({"a": pd.to_datetime(DATES, utc=True), "b": 1.0})
        if a.ndim == 2
        else pd.Series(pd.to_datetime(DATES, utc=True))
    ),
    "mixed pandas dates": lambda a: (
        pd.DataFrame({"a": DATES, "b": 1}) if a.ndim == 2 else pd.Series([pd.NaT, *range(1, N)])
    ),
    "polars dates": lambda a: (
        pl.DataFrame({"a": DATES, "b": np.arange(N)}) if a.ndim == 2 else pl.Series(DATES)
    ),
    "numeric text": lambda a: a.astype(str),
    "numeric bytes": lambda a: a.astype("S"),
    "list of text": lambda a: a.astype(str).tolist(),
    "one text": lambda a: column_of(a, "1.5"),
    "one bytes": lambda a: column_of(a, b"1.5"),
    "pandas text": lambda a: (pd.DataFrame if a.ndim == 2 else pd.Series)(a.astype(str)),
    "polars text": lambda a: (pl.DataFrame if a.ndim == 2 else pl.Series)(a.astype(str)),
    "complex": lambda a: a + 0j,
    "one complex": lambda a: column_of(a, 1j),
    "one NumPy complex": lambda a: column_of(a, np.complex64(1)),
    "list of complex": lambda a: (a + 1j).tolist(),
    "records": lambda a: np.zeros(a.shape, [("a", float), ("b", float)]),
    "raw bytes": lambda a: np.zeros(a.shape, "V8"),
    "a dictionary inside": lambda a: column_of(a, {}),
    "columns of one name": lambda a: pd.DataFrame(
        a if a.ndim == 2 else np.stack([a, a], 1), columns=["a", "a"]
    ),
    "ragged": lambda a: [[1.0], [1.0, 2.0]] * (N // 2),
    "masked text": lambda a: np.ma.array(a.astype(str), mask=a > 9),
    "masked complex": lambda a: np.ma.array(a + 1j, mask=a > 9),
    "a huge integer": lambda a: column_of(a, 10**400),
}

READ = {
    "integers": lambda a: (a * 64).astype(np.int64),
    "small integers": lambda a: np.sign(a).astype(np.int8),
    "booleans": lambda a: a > 0,
    "half precision": lambda a: a.astype(np.float16),
    "long double": lambda a: a.astype(np.longdouble),
    "other byte order": lambda a: a.astype(">f8"),
    "other byte order, single": lambda a: a.astype(">f4").astype(">f8"),
    "lists": lambda a: a.tolist(),
    "tuples": lambda a: tuple(a.tolist()),
    "objects": lambda a: a.astype(object),
    "decimals": lambda a: np.vectorize(decimal.Decimal, otypes=[object])(a),
    "fractions": lambda a: np.vectorize(fractions.Fraction, otypes=[object])(a),
    "columns": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "read-only": lambda a: np.frombuffer(a.tobytes()).reshape(a.shape),
    "pandas": lambda a: (pd.DataFrame if a.ndim == 2 else pd.Series)(a),
    "pandas integers": lambda a: (pd.DataFrame if a.ndim == 2 else pd.Series)(
        (a * 64).astype(int)
    ).astype("Int64"),
    "pandas booleans": lambda a: (pd.DataFrame if a.ndim == 2 else pd.Series)(a > 0).astype(
        "boolean"
    ),
    "pandas sparse": lambda a: (pd.DataFrame if a.ndim == 2 else pd.Series)(a).astype(
        pd.SparseDtype(float, 0.0)
    ),
    "polars": lambda a: (pl.DataFrame if a.ndim == 2 else pl.Series)(a),
    "masked nowhere": lambda a: np.ma.array(a, mask=False),
}


def with_cell(array, value):
    other = array.copy()
    other[(GONE, *(0,) * (other.ndim - 1))] = value
    return other


def pandas_of(array, dtype):
    table = (pd.DataFrame if array.ndim == 2 else pd.Series)(array).astype(dtype)
    table.iloc[(GONE, *(0,) * (array.ndim - 1))] = pd.NA
    return table


MISSING = {
    "masked": lambda a: np.ma.array(with_cell(a, 77.0), mask=with_cell(np.zeros(a.shape), 1)),
    "masked nonsense": lambda a: np.ma.array(
        with_cell(a, 1e300), mask=with_cell(np.zeros(a.shape), 1)
    ),
    "masked integers": lambda a: np.ma.array(
        (a * 64).astype(int), mask=with_cell(np.zeros(a.shape), 1)
    ),
    "masked objects": lambda a: np.ma.array(
        column_of(a, "not seen"), mask=with_cell(np.zeros(a.shape, bool), True)
    ),
    "None": lambda a: column_of(a, None),
    "list with None": lambda a: column_of(a, None).tolist(),
    "pandas NA": lambda a: column_of(a, pd.NA),
    "pandas Float64": lambda a: pandas_of(a, "Float64"),
    "pandas Float32": lambda a: pandas_of(a, "Float32"),
    "pandas Int64": lambda a: pandas_of((a * 64).astype(int), "Int64"),
    "pandas boolean": lambda a: pandas_of(a > 0, "boolean"),
    "pandas object": lambda a: pandas_of(a, object),
    "polars null": lambda a: (
        pl.DataFrame({"a": with_cell(a, np.nan)[:, 0], "b": a[:, 1]}).fill_nan(None)
        if a.ndim == 2
        else pl.Series(with_cell(a, np.nan)).fill_nan(None)
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", REFUSED)
def test_refused(kind, call):
    for name, array in (("X", X), ("y", Y), ("sample_weight", np.abs(Y) + 1)):
        if not takes(call, name):
            continue
        arguments = {"X": X, "y": Y, "w": None}
        arguments["w" if name == "sample_weight" else name] = REFUSED[kind](array)
        if "complex" in kind.lower() and name != "sample_weight" and begins_anew(call):
            found = CALLS[call](**arguments)  # a model of complex coefficients
            assert np.iscomplexobj(found)
            assert np.isfinite(found[-1]).all()
            continue
        with pytest.raises(
            (ValueError, TypeError), match=rf"^{name} (must|has|contains)"
        ) as caught:
            CALLS[call](**arguments)
        # A value is shown as 1.5, not as np.float64(1.5); a hint may name np.timedelta64.
        assert not re.search(r"np\.(str|bytes|int|float|bool)", str(caught.value))


def numbers(array):
    """Convert an input of some kind to plain float64."""
    return np.array(pd.DataFrame(array).astype(float)).reshape(np.shape(array))


@pytest.mark.full
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", READ)
def test_read(kind, call):
    make = READ[kind]
    plain = {"integers": X * 64, "small integers": np.sign(X), "booleans": (X > 0) * 1.0}
    plain |= {"pandas integers": X * 64, "pandas booleans": plain["booleans"]}
    want = CALLS[call](plain.get(kind, X), numbers(make(Y)), None)
    got = CALLS[call](make(X), make(Y), None)
    # Only the memory's layout may differ, and with it the order of a product's sums.
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
    weights = np.abs(X[:, 0]) + 1
    if takes(call, "sample_weight"):
        want = CALLS[call](X, Y, numbers(make(weights)))
        np.testing.assert_array_equal(CALLS[call](X, Y, make(weights)), want)


@pytest.mark.full
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", MISSING)
def test_missing(kind, call):
    make = MISSING[kind]
    scale = {"masked integers": 64, "pandas Int64": 64}.get(kind, 1)
    plain = (X > 0) * 1.0 if kind == "pandas boolean" else X * scale
    plain = plain.astype(np.float32 if kind == "pandas Float32" else np.float64)
    want = CALLS[call](with_cell(plain, np.nan), Y, None)
    np.testing.assert_allclose(CALLS[call](make(X), Y, None), want, rtol=1e-13, atol=1e-13)

    def numbers_of(values):
        """Return the numbers that the kind makes of one value a row."""
        if kind == "pandas boolean":
            return with_cell((values > 0) * 1.0, np.nan)
        return with_cell(np.trunc(values * scale) if scale > 1 else values, np.nan)

    if takes(call, "y"):
        want = CALLS[call](X, numbers_of(Y), None)
        np.testing.assert_array_equal(CALLS[call](X, make(Y), None), want)
    if takes(call, "sample_weight"):
        weights = np.abs(Y) + 1
        want = CALLS[call](X, Y, numbers_of(weights))
        np.testing.assert_array_equal(CALLS[call](X, Y, make(weights)), want)


@pytest.mark.parametrize("kind", [k for k in REFUSED if k != "ragged"])
def test_refused_in_forget_and_ridge(kind):
    make = REFUSED[kind]
    gates, ridge = np.full(N, 0.9), make(np.ones(N))[:2]
    for name, call in {
        "forget": lambda: RLS(forget=make(gates)).fit(X, Y),
        "forget ": lambda: RLS().fit(X, Y).partial_fit(X, Y, forget=make(gates)),
        "forget  ": lambda: olsq.coefficient_path(X, Y, forget=make(gates)),
        "ridge": lambda: RLS(ridge=ridge).fit(X[:, :2], Y),
        "ridge ": lambda: ROLLING(ridge=ridge).fit(X, Y),
    }.items():
        if name.startswith("ridge") and kind in {k for k in REFUSED if "one " in k or "a " in k}:
            continue  # the odd cell is beyond the two that a ridge has
        with pytest.raises((ValueError, TypeError), match=rf"^{name.strip()} must"):
            call()


@pytest.mark.parametrize(
    "value", ["0.9", b"1", 0.9 + 0j, np.datetime64("2020"), np.ma.masked, None]
)
def test_refused_numbers(value):
    for name, call in {
        "forget": lambda: RLS(forget=value).fit(X, Y),
        "ridge": lambda: RLS(ridge=value).fit(X, Y),
        "ridge ": lambda: ROLLING(ridge=value).fit(X, Y),
        "half_life": lambda: value is None or RLS(half_life=value).fit(X, Y),
        "moments": lambda: olsq.merge(*[olsq.Moments(np.eye(2), np.eye(2))] * 2, forget=value),
    }.items():
        if value is None and name in ("half_life", "moments"):
            continue
        match = "^forget" if name == "moments" else f"^{name.strip()} must"
        with pytest.raises((ValueError, TypeError), match=match):
            call()
    if value is not None:
        with pytest.raises(ValueError, match=r"forget|gradually"):
            ROLLING().fit(X, Y).partial_fit(X, Y, forget=value)


@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
@pytest.mark.parametrize(
    "ridge", [0.0, 5e-324, 1e-310, 1e-45, 1e-30, 1e30, 1e34, 1e38, 1e300, 1e308]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_ridge_is_used_or_refused(method, ridge, dtype):
    est = RLS(ridge=ridge, method=method)
    try:
        est.fit(X.astype(dtype), Y.astype(dtype))
    except ValueError as error:
        assert str(error).startswith("ridge must be at most")  # noqa: PT017
        assert ridge > (1e33 if dtype == np.float32 else 1e303)
        return
    assert np.isfinite(est.coef_).all()
    assert np.isfinite(est.partial_fit(X.astype(dtype), Y.astype(dtype)).predict(X)).all()
    if ridge >= 1e30:
        assert np.abs(est.coef_).max() < 1e-25


@pytest.mark.parametrize(
    "make", [RLS, ROLLING, lambda: RLS(method="sqrt"), lambda: RLS(method="information")]
)
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100, 1e150])
@pytest.mark.parametrize("weight", [1e-300, 1e-100, 1e100, 1e200, 1e300, 1e308])
def test_a_weight_that_overflows_with_its_row_is_refused(make, scale, weight):
    weights = np.ones(N)
    weights[5] = weight
    est = make()
    largest = np.sqrt(weight) * max(np.abs(X[5]).max() * scale, np.abs(Y[5]) * scale, 1)
    if largest > 1e152:
        with pytest.raises(ValueError, match=r"^sample_weight of row 5"):
            est.fit(X * scale, Y * scale, weights)
        assert not hasattr(est, "_engine")
    else:
        est.fit(X * scale, Y * scale, weights)
        assert np.isfinite(est.coef_).all()
        assert np.isfinite(est.predict(X * scale)).all()


@pytest.mark.parametrize("make", [RLS, ROLLING, lambda: RLS(method="information")])
def test_a_shallow_copy_has_a_state_of_its_own(make):
    est = make().fit(X, Y)
    est.metadata_["a"] = 1
    other = copy.copy(est)
    coef = est.coef_
    other.partial_fit(X[:1], [50.0])  # one row goes into the state itself
    other.metadata_["a"] = 2
    np.testing.assert_array_equal(est.coef_, coef)
    assert est.n_samples_seen_ == N
    assert est.metadata_ == {"a": 1}
    assert not np.array_equal(other.coef_, coef)
    assert copy.copy(make()).get_params() == make().get_params()


@pytest.mark.parametrize("order", ["C", "F"])
def test_one_missing_value_costs_no_copy_of_the_data(order):
    many = np.asarray(np.random.default_rng(0).standard_normal((200_000, 8)), order=order)
    y = many.sum(1)
    many[100, 3] = np.nan
    est = RLS().fit(many[:2000], y[:2000])
    tracemalloc.start()
    est.partial_fit(many, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Residuals, gates, weights and masks are (n,); the data are (n, 8).
    assert peak < 0.6 * many.nbytes


@pytest.mark.parametrize("kind", [RLS, ROLLING])
def test_score_leaves_rows_with_a_missing_value_out(kind):
    est = kind().fit(X, Y + X[:, 0] ** 2)
    want = est.score(np.delete(X, GONE, 0), np.delete(Y, GONE), np.delete(np.abs(Y) + 1, GONE))
    for here, there in ((with_cell(X, np.nan), Y), (X, with_cell(Y, np.inf))):
        assert est.score(here, there, np.abs(Y) + 1) == pytest.approx(want, rel=1e-13)
        with pytest.raises(ValueError, match="first in row 4"):
            kind(missing="raise").fit(X, Y).score(here, there)
    with pytest.raises(ValueError, match="no row is left to score"):
        est.score(X * np.nan, Y)


def test_score_of_a_target_that_does_not_vary_is_all_or_nothing():
    """Nothing is explained of it, or nothing is left: R^2 has no denominator."""
    est = RLS(fit_intercept=False, ridge=0.0).fit([[1.0]], [2.0])
    assert est.score([[1.0], [1.0]], [2.0, 2.0]) == 1.0
    assert est.score([[1.0], [1.0]], [3.0, 3.0]) == 0.0
