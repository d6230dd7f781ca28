"""``Grouped`` gives every group the features of its own rows, through blocks, files and frames."""

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import olsq
from olsq.features import (
    ARX,
    FIR,
    NARX,
    Formula,
    Fourier,
    Grouped,
    Lags,
    OneHot,
    RandomFourier,
    Trend,
    Union,
)

N, LABELS = 150, ["a", "b", "c"]
BUILDERS = {
    "lags of y": Lags(2),
    "lags of X": Lags([0, 3], of="u"),
    "FIR": FIR(3, of=["u", "v"]),
    "ARX": ARX(2, 1, of="u"),
    "NARX": NARX(1, 1, of="u"),
    "season": Fourier("7D", order=2, of="time"),
    "season of rows": Fourier(7),
    "trend": Trend(degree=2, scale=10),
    "random": RandomFourier(5, of=["u", "v"]),
    "union": Union([Lags(2), FIR(2, of="u"), Trend()], passthrough=["v"]),
}
FRAMES = {"pandas": lambda f: f, "Polars": pl.from_pandas, "Arrow": pa.table}


def panel(seed=0):
    rng = np.random.default_rng(seed)
    shop = rng.choice(LABELS, N).astype(object)
    shop[::19] = None
    frame = pd.DataFrame(
        {
            "shop": shop, "u": rng.standard_normal(N), "v": rng.standard_normal(N),
            "time": pd.date_range("2024-03-20", periods=N, freq="8h", tz="Europe/Paris"),
        }
    )  # fmt: skip
    return frame, rng.standard_normal(N)


def block_of(frame, start, stop):
    return frame.slice(start, stop - start) if isinstance(frame, pa.Table) else frame[start:stop]


@pytest.mark.full
@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("name", BUILDERS)
def test_each_group_has_the_features_of_its_rows(name, kind):
    frame, y = panel()
    builder, X = BUILDERS[name], FRAMES[kind](frame)
    wanted = None
    for label in LABELS:
        rows = (frame["shop"] == label).to_numpy()
        own = clone(builder).fit_transform(frame[rows].drop(columns="shop"), y[rows])
        wanted = np.full((N, own.shape[1]), np.nan) if wanted is None else wanted
        wanted[rows] = own
    grouped, parts = Grouped(builder, by="shop"), []
    for start, stop in pairwise([0, 0, 1, 40, 40, 41, 100, N, N]):  # some blocks have no rows
        block = block_of(X, start, stop)
        if stop > 1:
            ahead = grouped.peek(block, y[start:stop])
        parts.append(grouped.partial_transform(block, y[start:stop]))
        if stop > 1:
            np.testing.assert_array_equal(ahead, parts[-1])
        grouped = olsq.loads(grouped.to_bytes())
    np.testing.assert_array_equal(np.concatenate(parts), wanted)
    names = clone(builder).fit(frame.drop(columns="shop"), y).get_feature_names_out()
    assert grouped.get_feature_names_out().tolist() == names.tolist()


@pytest.mark.full
@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("name", [*BUILDERS, "levels"])
def test_a_block_of_no_rows_changes_no_history(name, kind):
    frame, y = panel()
    frame = frame if name == "levels" else frame.drop(columns="shop")
    builder, X = BUILDERS.get(name, OneHot("shop")), FRAMES[kind](frame)
    wanted = clone(builder).fit_transform(X, y)
    cut, parts = clone(builder), []
    for start, stop in pairwise([0, 0, 60, 60, N, N]):
        block = block_of(X, start, stop), y[start:stop]
        parts.append(cut.partial_transform(*block))
        cut = olsq.loads(cut.to_bytes())
        if start == stop:
            for part in (parts[-1], cut.peek(*block), cut.transform(*block)):
                assert part.shape == (0, wanted.shape[1])
    np.testing.assert_array_equal(np.concatenate(parts), wanted)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        cut.fit(block_of(X, 0, 0), y[:0])


def test_a_formula_goes_on_after_a_block_of_no_rows():
    frame, _ = panel()
    formula = Formula("u + lag(v) + C(shop)")
    frame["shop"] = frame["shop"].fillna("a")
    wanted, _ = Formula("u + lag(v) + C(shop)").partial_transform(frame)
    parts = [formula.partial_transform(frame[a:b])[0] for a, b in pairwise([0, 70, 70, N])]
    assert len(parts[1]) == 0
    assert list(parts[1]) == list(wanted)
    np.testing.assert_array_equal(np.concatenate(parts), wanted)


DATES = pd.date_range("2024-01-01", periods=3)
LABEL_KINDS = {
    "dates": DATES,
    "dates with a zone": DATES.tz_localize("Europe/Paris"),
    "Python's dates": [day.date() for day in DATES],
    "numbers": [1.5, 2.5, 3.5],
    "tuples": [("a", 1), ("a", 2), ("b", 1)],
}


@pytest.mark.parametrize("kind", LABEL_KINDS)
def test_labels_of_every_kind_survive_files(kind):
    labels = list(LABEL_KINDS[kind])
    frame = pd.DataFrame({"label": [*labels, *labels], "u": np.arange(6.0)})
    grouped = Union([Grouped(Lags(1, of="u"), by="label")])
    grouped.partial_transform(frame[:4])
    found = olsq.loads(grouped.to_bytes()).partial_transform(frame[4:])
    np.testing.assert_array_equal(found[:, 0], [1.0, 2.0])


def test_labels_that_no_file_holds_are_refused():
    grouped = Grouped(Lags(1, of="u"), by="label")
    grouped.fit(pd.DataFrame({"label": [Decimal(1)], "u": [1.0]}))
    with pytest.raises(ValueError, match=r"Grouped cannot be saved: .* not Decimal"):
        grouped.to_bytes()


def test_arrays_name_their_column_by_its_position():
    frame, y = panel()
    code = frame["shop"].map({"a": 5.0, "b": 6.0, "c": 7.0}).astype(float)
    X = np.column_stack([frame["u"], code, frame["v"]])
    found = Grouped(Lags([1], of=[0, 1]), by=1).fit_transform(X, y)
    wanted = Grouped(Lags([1], of=["u", "v"]), by="shop").fit_transform(frame, y)
    np.testing.assert_array_equal(found, wanted)
    mixed = frame[["u", "shop", "v"]].to_numpy()
    found = Grouped(Lags([1], of=[0, 1]), by=1).fit_transform(mixed, y)
    np.testing.assert_array_equal(found, wanted)


def test_a_regression_by_group_on_lags_of_its_own_past():
    """Two stocks with opposite momentum, their rows mixed: lags of the other would hide it."""
    rng = np.random.default_rng(1)
    stock = rng.choice(["up", "down"], 2000)
    y, last = np.zeros(2000), {"up": 0.0, "down": 0.0}
    for t, label in enumerate(stock):
        y[t] = last[label] = (0.8 if label == "up" else -0.8) * last[label] + rng.standard_normal()
    frame = pd.DataFrame({"stock": stock})
    features = Grouped(Lags(1), by="stock").fit_transform(frame, y)
    groups = olsq.GroupedLeastSquares(ridge=0.0).fit(features, y, by=stock)
    assert groups["up"].coef_[0] == pytest.approx(0.8, abs=0.05)
    assert groups["down"].coef_[0] == pytest.approx(-0.8, abs=0.05)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda X, y: Grouped(OneHot("u"), "shop").fit(X, y), "OneHot has the same columns"),
        (lambda X, y: Grouped(Union([OneHot("u")]), "shop").fit(X, y), "OneHot has the same"),
        (lambda X, y: Grouped(Formula("u"), "shop").fit(X, y), "a Formula cannot be in Grouped"),
        (lambda X, y: Grouped("lags", "shop").fit(X, y), "builder must be an object of"),
        (lambda X, y: Grouped(Lags(2), "stock").fit(X, y), "no column 'stock'"),
        (lambda X, y: Grouped(Lags(2), ["u", "v"]).fit(X, y), "must be one column"),
        (lambda X, y: Grouped(Lags(2), "shop").fit(None, y), "requires X"),
        (lambda X, y: Grouped(Lags(2, of="shop"), "shop").fit(X, y), "no column 'shop'"),
        (lambda X, y: Grouped(Lags(2), "shop").fit(X), "requires y"),
    ],
)
def test_what_is_refused(run, message):
    frame, y = panel()
    with pytest.raises(ValueError, match=message):
        run(frame, y)
