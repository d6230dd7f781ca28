"""``olsq fit`` equals the estimators, whatever the file's format and however it is cut up."""

import gzip
import io
import sys

import numpy as np
import polars as pl
import pytest

import olsq

from .conftest import csv_text, make_rows


def outputs(path):
    frame = pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
    assert frame.columns[:3] == ["row", "prediction", "residual"]
    return frame["row"].to_numpy(), frame.drop("row").cast(pl.Float64).to_numpy()


MODELS = [
    ((), {}),
    (("--forget", "0.98"), {"forget": 0.98}),
    (("--half-life", "50"), {"half_life": 50.0}),
    (("--window", "100"), {"window": 100}),
    (("--window", "100", "--forget", "0.97"), {"window": 100, "forget": 0.97}),
    (("--ridge", "0"), {"ridge": 0.0}),
    (("--no-intercept", "--method", "sqrt"), {"fit_intercept": False, "method": "sqrt"}),
    (
        ("--ridge-mode", "fixed", "--forget", "0.99", "--ridge", "2"),
        {"ridge_mode": "fixed", "forget": 0.99, "ridge": 2.0},
    ),
]


@pytest.mark.full
@pytest.mark.parametrize(("arguments", "parameters"), MODELS, ids=lambda value: str(value))
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_out_is_the_coefficient_path(arguments, parameters, suffix, table, tmp_path, olsq_command):
    data, X, y = table
    out = tmp_path / f"path{suffix}"
    code, _, err = olsq_command("fit", data, "--target", "y", "--out", out, *arguments)
    assert (code, err) == (0, "")
    row, values = outputs(out)
    kind = olsq.RollingLeastSquares if "window" in parameters else olsq.RecursiveLeastSquares
    path = kind(**parameters).partial_fit_path(X, y)
    np.testing.assert_array_equal(row, np.arange(1, len(y) + 1))
    np.testing.assert_allclose(values[:, 1], path.residual, rtol=1e-10, atol=1e-12)
    coef = path.coef
    if parameters.get("fit_intercept", True):
        coef = np.column_stack([path.intercept, coef])
    # the command's chunks carry coefficients on from rows of their own, which rounds otherwise
    np.testing.assert_allclose(values[:, 2:], coef, rtol=1e-11, atol=1e-13)
    # prediction + residual = y where there is one; where only y is missing there is a prediction.
    used = np.isfinite(path.residual)
    np.testing.assert_allclose(values[used, 0] + values[used, 1], y[used], rtol=1e-12)
    np.testing.assert_array_equal(np.isfinite(values[:, 0]), np.isfinite(X).all(axis=1))


def test_prediction_of_a_row_without_target_uses_what_was_learned_before(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text("x,y\n0,1\n1,3\n5,\n2,5.5\n")
    out = tmp_path / "o.csv"
    olsq_command("fit", tmp_path / "d.csv", "--target", "y", "--ridge", "0", "--out", out)
    _, values = outputs(out)
    assert values[2, 0] == pytest.approx(11.0)
    assert np.isnan(values[2, 1])


def test_every_format_gives_the_same_output(table, tmp_path, olsq_command, monkeypatch):
    data, X, y = table
    names = ["a", "b", "c", "y"]
    frame = pl.DataFrame(np.column_stack([X, y]), schema=names).fill_nan(None)
    text = data.read_text()
    compressed, windows, quoted = (tmp_path / name for name in ("d.csv.gz", "w.csv", "q.csv"))
    compressed.write_bytes(gzip.compress(text.encode()))
    windows.write_bytes(b"\xef\xbb\xbf" + text.replace(",", ";").replace("\n", "\r\n").encode())
    quoted.write_bytes(
        b'"a","note, with\nline ends","b","c","y"\r\n'
        + b"".join(
            (f'{a or "NA"},"say ""hi"",\n row {n}", {b} ,"{c}",{v}' + "\n").encode()
            for n, (a, b, c, v) in enumerate(row.split(",") for row in text.splitlines()[1:])
        )
    )
    parquet, groups = tmp_path / "d.parquet", tmp_path / "g.parquet"
    frame.write_parquet(parquet)
    frame.cast({"a": pl.Float64}).write_parquet(groups, row_group_size=170)
    results = []
    for place in (data, compressed, windows, quoted, parquet, groups, "-"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        out = tmp_path / "o.csv"
        code, _, err = olsq_command(
            "fit", place, "--target", "y", "--features", "a,b,c", "--out", out, "--chunk-rows", 300
        )
        assert (code, err) == (0, ""), place
        results.append(out.read_bytes())
    assert len(set(results)) == 1


def test_chunk_size_changes_nothing_but_rounding(tmp_path, olsq_command):
    data = tmp_path / "short.csv"
    data.write_text(csv_text(*make_rows(300)))
    found = []
    for rows in (1, 7, 5000):
        out = tmp_path / f"{rows}.csv"
        olsq_command(
            "fit", data, "--target", "y", "--forget", 0.99, "--out", out, "--chunk-rows", rows
        )
        found.append(outputs(out)[1])
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-7, atol=1e-9)


def test_weights_equal_the_estimator(tmp_path, olsq_command):
    X, y = make_rows(500)
    weight = np.random.default_rng(3).exponential(size=500)
    weight[::50] = np.nan
    (tmp_path / "d.csv").write_text(csv_text(X, y, weight))
    out = tmp_path / "o.parquet"
    code, text, _ = olsq_command(
        "fit", tmp_path / "d.csv", "--target", "y", "--weight", "w", "--out", out
    )
    assert code == 0
    kept = np.isfinite(weight)
    path = olsq.RecursiveLeastSquares().partial_fit_path(
        X[kept], y[kept], sample_weight=weight[kept]
    )
    _, values = outputs(out)
    np.testing.assert_allclose(values[kept, 1], path.residual, rtol=1e-9)
    assert f"{np.isfinite(path.residual).sum()} rows learned" in text


@pytest.mark.full
def test_rows_before_the_first_usable_one_pass_through(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text("x,y\n" + ",1\n" * 5 + "1,2\n2,4\n3,7\n")
    out = tmp_path / "o.csv"
    state = tmp_path / "s.olsq"
    code, text, _ = olsq_command(
        "fit", tmp_path / "d.csv", "--target", "y", "--out", out, "--chunk-rows", 2,
        "--plot", tmp_path / "p.png", "--state", state, "--checkpoint-every", 0,
    )  # fmt: skip
    assert code == 0
    assert "3 rows learned, 5 skipped" in text
    row, values = outputs(out)
    assert row[-1] == 8
    assert np.isnan(values[:5]).all(axis=0)[0]
    assert np.isfinite(values[5:]).all()


def test_blank_lines_spaces_and_a_last_line_without_end(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_bytes(b"x,y\r\n 1 , 2\r\n\r\n2,3.5 \r\n3,  \r\n4,7")
    out = tmp_path / "o.csv"
    code, text, _ = olsq_command("fit", tmp_path / "d.csv", "--target", "y", "--out", out)
    assert code == 0
    assert "3 rows learned, 2 skipped" in text
    assert outputs(out)[0].tolist() == [1, 2, 3, 4, 5]


def test_infinite_cells_are_missing(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text("x,y\n1,2\ninf,3\n2,-inf\n3,5\n4,7\n")
    code, text, _ = olsq_command("fit", tmp_path / "d.csv", "--target", "y")
    assert code == 0
    assert "3 rows learned, 2 skipped" in text


def test_summary_says_how_well_and_what_is_undetermined(tmp_path, olsq_command):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 400)).cumsum(axis=1)
    rows = "".join(f"{a},{2 * a},{2 * a + 0.1 * b}\n" for a, b in zip(x, y, strict=True))
    (tmp_path / "d.csv").write_text("x,twice,y\n" + rows)
    code, text, _ = olsq_command("fit", tmp_path / "d.csv", "--target", "y", "--ridge", 0)
    assert code == 0
    assert "400 rows learned, none skipped" in text
    assert "Not determined by these data: x, twice" in text
    target = 2 * x + 0.1 * y
    errors = {line.split("  ")[0].strip(): line.split() for line in text.splitlines()}
    last = np.sqrt(np.mean(np.diff(target)[2:] ** 2))
    assert float(errors["last value"][3]) == pytest.approx(last, rel=1e-3)
    mean = np.cumsum(target) / np.arange(1, 401)
    worst = np.sqrt(np.mean((target[3:] - mean[2:-1]) ** 2))
    assert float(errors["mean so far"][4]) == pytest.approx(worst, rel=1e-3)


def test_part_file_until_done_then_only_the_result(table, tmp_path, olsq_command):
    data, _, _ = table
    out = tmp_path / "o.parquet"
    out.write_text("an older result")
    olsq_command("fit", data, "--target", "y", "--out", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "o.parquet"]
    assert pl.read_parquet(out).height == 2000
    olsq_command("fit", data, "--target", "nope", "--out", out)
    assert pl.read_parquet(out).height == 2000


def test_parquet_integers_booleans_and_text_columns(tmp_path, olsq_command):
    path = tmp_path / "d.parquet"
    pl.DataFrame(
        {"n": [1, 2, 3, 4], "b": [True, False, True, True], "s": list("abcd"), "y": [1.0, 2, 4, 9]},
        schema_overrides={"n": pl.Int16, "y": pl.Float32},
    ).write_parquet(path)
    code, _, _ = olsq_command("fit", path, "--target", "y", "--features", "n,b")
    assert code == 0
    code, _, err = olsq_command("fit", path, "--target", "y")
    assert code == 2
    assert "column 's' is not numeric" in err


def test_figure_is_written(table, tmp_path, olsq_command):
    data, _, _ = table
    figure = tmp_path / "fit.png"
    code, text, _ = olsq_command("fit", data, "--target", "y", "--plot", figure)
    assert code == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert figure.name in text.replace("\n", "")
