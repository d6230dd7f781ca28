"""``olsq predict`` says what the saved estimator says, or which column stands in the way."""

import numpy as np
import polars as pl
import pytest

import olsq

from .conftest import csv_text, make_rows
from .test_options import CITIES, FULL, rows_with_everything


@pytest.fixture
def state(table, tmp_path, olsq_command):
    """The state of a regression of y on a, b and c."""
    path = tmp_path / "s.olsq"
    assert olsq_command("fit", table[0], "--target", "y", "--state", path)[0] == 0
    return path


def test_predictions_are_the_estimators(state, tmp_path, olsq_command):
    X, _ = make_rows(300, seed=5)
    frame = pl.DataFrame(X, schema=["a", "b", "c"]).fill_nan(None)
    # Other columns, another order, no target.
    frame = frame.select("c", pl.lit("text").alias("note"), "a", "b")
    est = olsq.load(state)
    before = state.read_bytes()
    known = np.isfinite(X).all(axis=1)
    for suffix, write in ((".csv", frame.write_csv), (".parquet", frame.write_parquet)):
        data, out = tmp_path / f"new{suffix}", tmp_path / f"pred{suffix}"
        write(data)
        code, text, err = olsq_command("predict", state, data, "--out", out, "--level", 0.9)
        assert (code, text, err) == (0, "", "")
        found = pl.read_csv(out) if suffix == ".csv" else pl.read_parquet(out)
        assert found.columns == ["row", "prediction", "lower", "upper"]
        values = found.drop("row").cast(pl.Float64).to_numpy()
        assert np.isnan(values[~known]).all()
        np.testing.assert_array_equal(values[known, 0], est.predict(X[known]))
        for j, bound in enumerate(est.predict_interval(X[known], 0.9)):
            np.testing.assert_allclose(values[known, 1 + j], bound, rtol=1e-12)
    assert state.read_bytes() == before
    code, text, _ = olsq_command("predict", state, tmp_path / "new.csv")
    assert code == 0
    assert text.splitlines()[0] == "row,prediction"
    assert len(text.splitlines()) == 301


def test_categories_lags_and_dates_go_on_where_the_rows_ended(tmp_path, olsq_command):
    frame, n = rows_with_everything(), 700
    learned, new, state = tmp_path / "d.csv", tmp_path / "new.csv", tmp_path / "s.olsq"
    options = [word for word in FULL if "coef" not in str(word) and word != "--columns"]
    frame.head(n).write_csv(learned)
    assert olsq_command("fit", learned, *options, "--state", state)[0] == 0
    est = olsq.load(state)
    a, y = (frame[name].to_numpy() for name in "ay")
    city = np.array([CITIES.index(name) for name in frame["city"]])

    def expected(t, past):
        dummies = [float(city[t] == k) for k in (1, 2)] + [0.0]
        return est.predict([[a[t], *dummies, *past[::-1][:3]]])[0]

    # With the targets: each row is predicted from what was true before.
    frame[n:].write_csv(new)
    out = tmp_path / "o.csv"
    assert olsq_command("predict", state, new, "--time", "day", "--out", out)[0] == 0
    found = pl.read_csv(out, try_parse_dates=True)
    assert found["day"].to_list() == frame["day"][n:].to_list()
    for t in (n, n + 1, n + 150):
        assert found["prediction"][t - n] == pytest.approx(expected(t, y[t - 3 : t]), rel=1e-12)
    # Without: from predictions.
    frame[n:].drop("y").write_csv(new)
    assert olsq_command("predict", state, new, "--out", out)[0] == 0
    past = list(y[n - 3 : n])
    for prediction, t in zip(pl.read_csv(out)["prediction"], range(n, n + 50), strict=False):
        past.append(expected(t, past))
        assert prediction == pytest.approx(past[-1], rel=1e-9)


def test_several_targets_and_a_state_from_python(tmp_path, olsq_command):
    import pandas as pd

    X, y = make_rows(200)
    X, y = np.nan_to_num(X), np.nan_to_num(y)
    est = olsq.RecursiveLeastSquares().fit(
        pd.DataFrame(X, columns=list("abc")), np.column_stack([y, -y])
    )
    est.save(tmp_path / "s.olsq")
    (tmp_path / "d.csv").write_text(csv_text(X, y))
    out = tmp_path / "o.csv"
    assert olsq_command("predict", tmp_path / "s.olsq", tmp_path / "d.csv", "--out", out)[0] == 0
    found = pl.read_csv(out)
    assert found.columns == ["row", "prediction_y0", "prediction_y1"]
    np.testing.assert_array_equal(found["prediction_y1"].to_numpy(), est.predict(X)[:, 1])


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n", (), "no column 'c' in the data; it has 'a', 'b'"),
        ("b,d\n1,2\n", (), "no columns 'a', 'c' in the data"),
        ("a,b,c\n1,2,x\n", (), "column 'c' is not numeric: row 1"),
        ("a,b,c\n", (), "has a header but no rows"),
        ("a,b,c\n1,2,3\n", ("--level", "2"), "--level must lie between 0 and 1, got 2"),
        ("a,b,c\n1,2,3\n", ("--out", "o.txt"), "--out must end in .csv or .parquet, got o.txt"),
        ("a,b,c\n1,2,3\n", ("--out", "no/o.csv"), "there is no directory no"),
        ("a,b,c\n1,2,3\n", ("--time", "t"), "no column 't' in the data"),
        ("a,b,c\n1,2,3\n", ("--decimal", "x"), "--decimal must be . or , got 'x'"),
    ],
)
def test_one_line_and_nothing_left_behind(text, options, message, state, tmp_path, olsq_command):
    new = tmp_path / "new.csv"
    new.write_text(text)
    out = () if "--out" in options else ("--out", tmp_path / "o.csv")
    before = sorted(tmp_path.iterdir())
    code, shown, err = olsq_command("predict", state, new, *options, *out)
    assert (code, shown) == (2, "")
    assert err.startswith("olsq: ")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_what_an_estimator_refuses_is_one_line_with_the_rows(
    state, tmp_path, olsq_command, monkeypatch
):
    def refuse(*_, **__):
        raise ValueError("X is wrong: do this\nand more of it")

    monkeypatch.setattr(olsq.RecursiveLeastSquares, "predict", refuse)
    (tmp_path / "new.csv").write_text("a,b,c\n1,2,3\n4,5,6\n")
    code, shown, err = olsq_command("predict", state, tmp_path / "new.csv")
    assert (code, shown, err) == (2, "row,prediction\n", "olsq: rows 1 to 2: X is wrong: do this\n")


def test_states_that_cannot_predict(tmp_path, olsq_command):
    data, state = tmp_path / "d.csv", tmp_path / "s.olsq"
    data.write_text("a,b\n1,2\n")
    for message in ("no such file", "is not an olsq state file", "has no names of regressors"):
        if "olsq" in message:
            state.write_bytes(b"x" * 100)
        elif "regressors" in message:
            olsq.RecursiveLeastSquares().partial_fit(np.eye(2), [1.0, 2.0]).save(state)
        code, _, err = olsq_command("predict", state, data)
        assert code == 2
        assert message in err
    code, _, err = olsq_command("predict", state, data, "--out", state.with_suffix(".csv"))
    assert not state.with_suffix(".csv").exists()


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_a_table_without_any_column_of_the_state(end, tmp_path, olsq_command):
    """Of a regression on lags alone: a time, or an empty target, says how many rows there are."""
    state, new = tmp_path / "s.olsq", tmp_path / f"n.{end}"
    pl.DataFrame({"t": range(30), "y": np.arange(30) % 4.0}).write_csv(tmp_path / "d.csv")
    options = ("--target", "y", "--time", "t", "--lags", 4, "--exclude", "t")
    assert olsq_command("fit", tmp_path / "d.csv", *options, "--state", state)[0] == 0
    later = pl.DataFrame({"t": [30, 31]})
    for frame, more, code in (
        (later, (), 2),
        (later, ("--time", "t"), 0),
        (later.with_columns(y=pl.lit(None, pl.Float64)), (), 0),
    ):
        frame.write_csv(new) if end == "csv" else frame.write_parquet(new)
        found, text, err = olsq_command("predict", state, new, *more)
        assert found == code
        if code:
            assert "no column 'y' in the data: an empty one says how many rows" in err
        else:
            values = [float(line.split(",")[-1]) for line in text.splitlines()[1:]]
            np.testing.assert_allclose(values, [2, 3], atol=1e-9)
