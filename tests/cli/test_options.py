"""Options that say what the columns mean and how they are written, against the estimators."""

import bz2
import gzip
import io
import lzma
import os
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import olsq
from olsq.cli.fit.checkpoint import KEY

from .conftest import csv_text, make_rows

CITIES = ["Bern", "Köln", "Rom"]


def compress_zstd(data):
    return pa.compress(data, codec="zstd", asbytes=True)


def read(path):
    """The output as a dict of arrays."""
    frame = pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
    return {name: frame[name].to_numpy() for name in frame.columns}


def rows_with_everything(n=900, seed=1):
    """Dates, a number, a city and two targets, the first of which depends on its past."""
    rng = np.random.default_rng(seed)
    a, b, noise = rng.standard_normal((3, n))
    city = rng.choice(CITIES, n)
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = 2 * a[t] + CITIES.index(city[t]) + 0.5 * y[t - 1] + 0.1 * noise[t]
    a[40], y[60] = np.nan, np.nan
    day = np.datetime64("2015-01-01") + np.arange(n)
    return pl.DataFrame(
        {"day": day, "a": a, "city": city, "y": y, "z": b - a}, nan_to_null=True
    ).with_columns(pl.col("day").cast(pl.Date))


def fit(olsq_command, *arguments):
    code, out, err = olsq_command("fit", *arguments)
    assert (code, err) == (0, ""), err
    return out


def test_excluded_columns_are_no_regressors(table, tmp_path, olsq_command):
    data, _, _ = table
    outs = [tmp_path / "1.csv", tmp_path / "2.csv"]
    fit(olsq_command, data, "--target", "y", "--exclude", "b", "--out", outs[0])
    fit(olsq_command, data, "--target", "y", "--features", "a,c", "--out", outs[1])
    assert outs[0].read_bytes() == outs[1].read_bytes()


def same(found, path):
    """To rounding: rows of a path carry coefficients on, in each chunk from rows of its own."""
    np.testing.assert_allclose(found, path, rtol=1e-10, atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("names", [("--target", "y,z"), ("--target", "y", "--target", "z")])
def test_several_targets_are_the_estimators(names, tmp_path, olsq_command):
    X, y = make_rows(400)
    z = np.where(np.isfinite(X[:, 0]), X[:, 0] ** 2, 1.0)
    text = csv_text(X, y, z).replace("a,b,c,y,w", "a,b,c,y,z")
    (tmp_path / "d.csv").write_text(text)
    out = tmp_path / "o.csv"
    text = fit(
        olsq_command, tmp_path / "d.csv", *names, "--out", out, "--forget", 0.99,
        "--plot", tmp_path / "p.png", "--columns", "prediction,residual,coef,stderr,sigma",
    )  # fmt: skip
    path = olsq.RecursiveLeastSquares(forget=0.99, cov="sandwich").partial_fit_path(
        X, np.column_stack([y, z])
    )
    found = read(out)
    used = np.isfinite(path.residual[:, 0])
    assert used.sum() > 350
    for j, target in enumerate("yz"):
        same(found[f"residual_{target}"], path.residual[:, j])
        same(found[f"intercept_{target}"], path.intercept[:, j])
        np.testing.assert_allclose(
            found[f"sigma_{target}"][used][9:], np.sqrt(path.sigma2[used, j])[9:], rtol=1e-15
        )
        for k, name in enumerate("abc"):
            same(found[f"coef_{target}_{name}"], path.coef[:, j, k])
            np.testing.assert_allclose(
                found[f"stderr_{target}_{name}"][used][9:], path.stderr[used, j, k][9:]
            )
    assert (tmp_path / "p.y.png").exists()
    assert (tmp_path / "p.z.png").exists()
    assert "One-step-ahead errors of z" in text


def test_columns_chooses_what_out_holds(table, tmp_path, olsq_command):
    data, X, y = table
    out = tmp_path / "o.parquet"
    fit(olsq_command, data, "--target", "y", "--out", out, "--columns", "sigma,stderr")
    path = olsq.RecursiveLeastSquares().partial_fit_path(X, y)
    found = read(out)
    assert list(found) == ["row", "stderr_intercept", "stderr_a", "stderr_b", "stderr_c", "sigma"]
    same(found["stderr_b"][50:], path.stderr[50:, 1])
    same(found["stderr_intercept"][50:], path.intercept_stderr[50:])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_further_missing_values(suffix, tmp_path, olsq_command):
    plain, marked = tmp_path / f"1{suffix}", tmp_path / f"2{suffix}"
    frame = pl.DataFrame({"x": [1.0, None, 3.0, 4.5, 5.0], "y": [1.0, 2.0, 4.0, None, 5.5]})
    other = frame.fill_null(-999.0)
    for path, table in ((plain, frame), (marked, other)):
        table.write_csv(path) if suffix == ".csv" else table.write_parquet(path)
    if suffix == ".csv":
        marked.write_text(marked.read_text().replace("4.5,-999.0", "4.5,?"))
    outs = [tmp_path / "o1.csv", tmp_path / "o2.csv"]
    fit(olsq_command, plain, "--target", "y", "--out", outs[0])
    fit(olsq_command, marked, "--target", "y", "--out", outs[1], "--na-values", "?,-999")
    assert outs[0].read_bytes() == outs[1].read_bytes()


def foreign_text(text):
    """The rows as another program might write them: ; and decimal commas."""
    lines = text.replace(",", ";").replace(".", ",").splitlines()
    lines[0] = lines[0].replace("c", "ç")
    return "\n".join(lines) + "\n"


@pytest.mark.full
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8"])
def test_foreign_text_is_read_as_plain_text_is(encoding, table, tmp_path, olsq_command):
    data, _, _ = table
    foreign, outs = tmp_path / "f.csv", [tmp_path / "o1.csv", tmp_path / "o2.csv"]
    foreign.write_bytes(foreign_text(data.read_text()).encode(encoding))
    options = ("--target", "y", "--chunk-rows", 128)
    fit(olsq_command, data, *options, "--out", outs[0])
    fit(
        olsq_command, foreign, *options, "--decimal", ",", "--encoding", encoding, "--out", outs[1],
    )  # fmt: skip
    assert outs[0].read_text().replace("coef_c", "coef_ç") == outs[1].read_text()


@pytest.mark.full
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, compress_zstd])
def test_compressed_files_and_their_resumption(pack, table, tmp_path, olsq_command):
    data, _, _ = table
    text, packed = data.read_bytes(), tmp_path / "d.csv.packed"
    outs = [tmp_path / "o1.csv", tmp_path / "o2.csv"]
    options = ("--target", "y", "--chunk-rows", 100)
    fit(olsq_command, data, *options, "--out", outs[0])
    packed.write_bytes(pack(b"".join(text.splitlines(keepends=True)[:1001])))
    more = (*options, "--out", outs[1], "--state", tmp_path / "s.olsq", "--resume")
    fit_code, _, _ = olsq_command("fit", packed, *more)
    assert fit_code == 0
    packed.write_bytes(pack(text))
    fit(olsq_command, packed, *more)
    assert outs[0].read_bytes() == outs[1].read_bytes()
    packed.write_bytes(pack(text)[:-200])
    code, _, err = olsq_command("fit", packed, *options)
    assert code == 2
    assert "is damaged" in err


def test_levels_are_columns_and_later_ones_share_one(tmp_path, olsq_command):
    frame = rows_with_everything().drop("day", "z")
    frame = frame.with_columns(
        city=pl.when(pl.int_range(pl.len()) > 700).then(pl.lit("Paris")).otherwise("city")
    )
    results = []
    for suffix in (".csv", ".parquet"):
        data, out = tmp_path / f"d{suffix}", tmp_path / f"o-{suffix}.csv"
        frame.write_csv(data) if suffix == ".csv" else frame.write_parquet(data)
        text = fit(
            olsq_command, data, "--target", "y", "--categorical", "city", "--out", out,
            "--chunk-rows", 100,
        )  # fmt: skip
        results.append(out.read_bytes())
    assert results[0] == results[1]
    assert "city=other" in text
    dummies = [(frame["city"] == name).to_numpy() for name in ("Köln", "Rom", "Paris")]
    X = np.column_stack([frame["a"].fill_null(np.nan).to_numpy(), *dummies])
    est = olsq.RecursiveLeastSquares(cov="sandwich")
    y = frame["y"].fill_null(np.nan).to_numpy()
    cuts = [slice(at, at + 100) for at in range(0, 900, 100)]
    parts = [est.partial_fit_path(X[cut], y[cut]) for cut in cuts]
    found = read(out)
    for k, name in enumerate(("a", "city=Köln", "city=Rom", "city=other")):
        same(found[f"coef_{name}"], np.concatenate([part.coef[:, k] for part in parts]))


def test_listed_levels_without_intercept_keep_the_first(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text("c,y\n" + "a,1\nb,2\nNA,9\nc,4\nd,6\n" * 9)
    out = tmp_path / "o.csv"
    text = fit(
        olsq_command, tmp_path / "d.csv", "--target", "y", "--categorical", "c=b|a|*",
        "--no-intercept", "--ridge", 0, "--out", out,
    )  # fmt: skip
    found = read(out)
    assert list(found)[3:] == ["coef_c=b", "coef_c=a", "coef_c=other"]
    last = [found[f"coef_c={level}"][-1] for level in ("b", "a", "other")]
    assert last == pytest.approx([2, 1, 5])
    assert "36 rows learned, 9 skipped" in text


def lagged(y, lags):
    past = np.concatenate([np.full(lags, np.nan), y])
    return np.column_stack([past[lags - k : lags - k + len(y)] for k in range(1, lags + 1)])


def test_lags_are_the_targets_of_the_rows_before(tmp_path, olsq_command):
    frame = rows_with_everything()
    data, out = tmp_path / "d.parquet", tmp_path / "o.csv"
    frame.write_parquet(data)
    fit(
        olsq_command, data, "--target", "y", "--features", "a", "--lags", 2, "--out", out,
        "--chunk-rows", 1000, "--missing", "skip",
    )  # fmt: skip
    a, y = (frame[name].fill_null(np.nan).to_numpy() for name in "ay")
    path = olsq.RecursiveLeastSquares(cov="sandwich").partial_fit_path(
        np.column_stack([a, lagged(y, 2)])[2:], y[2:]
    )
    found = read(out)
    same(found["coef_y_lag2"][2:], path.coef[:, 2])
    same(found["residual"][2:], path.residual)


FULL = (
    "--target", "y", "--features", "a,city", "--categorical", "city", "--lags", 3, "--time", "day",
    "--columns", "prediction,coef,stderr,sigma", "--chunk-rows", 50,
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        (".csv", ".parquet"),
        (".parquet", ".csv"),
        pytest.param(".csv", ".csv", marks=pytest.mark.slow),
        pytest.param(".parquet", ".parquet", marks=pytest.mark.slow),
    ],
)
def test_everything_at_once_resumes_to_the_same_bytes(kind, suffix, tmp_path, olsq_command):
    frame = rows_with_everything()
    data = tmp_path / f"d{kind}"
    write = pl.DataFrame.write_csv if kind == ".csv" else pl.DataFrame.write_parquet
    results = []
    for place, cuts in (("whole", [900]), ("parts", [200, 650, 900])):
        folder = tmp_path / place
        folder.mkdir()
        files = ("--out", folder / f"o{suffix}", "--plot", folder / "p.png")
        state = folder / "s.olsq"
        for n in cuts:
            write(frame.head(n), data)
            fit_code, _, err = olsq_command(
                "fit", data, *FULL, *files, "--state", state, "--resume"
            )
            assert fit_code == 0, err
        results.append([(folder / f"o{suffix}").read_bytes(), (folder / "p.png").read_bytes()])
        notes = olsq.load(state).metadata_[KEY]
        assert notes["table"]["categories"]["levels"] == {"city": CITIES}
    assert results[0] == results[1]
    first = pl.read_csv(folder / "o.csv", try_parse_dates=True) if suffix == ".csv" else (
        pl.read_parquet(folder / "o.parquet")
    )  # fmt: skip
    assert first.columns[:2] == ["day", "row"]
    assert first["day"].to_list() == frame["day"].to_list()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("%Y-%m-%d", "2015-01-01"),
        ("%d.%m.%Y", "2015-01-01"),
        ("%Y/%m/%d %H:%M", "2015-01-01 00:00:00"),
        ("%Y-%m-%dT%H:%M:%S", "2015-01-01 00:00:00"),
        ("%Y-%m-%d %H:%M:%S%:z", "2015-01-01 00:00:00"),
        ("%m/%d/%Y", "2015-01-01"),
    ],
)
def test_times_as_they_are_often_written(written, shown, tmp_path, olsq_command):
    frame = rows_with_everything(61).select(
        pl.col("day").cast(pl.Datetime("us", "UTC")).dt.strftime(written), "a", "y"
    )
    frame.write_csv(tmp_path / "d.csv")
    out = tmp_path / "o.csv"
    fit(olsq_command, tmp_path / "d.csv", "--target", "y", "--time", "day", "--out", out)
    lines = out.read_text().splitlines()
    assert lines[0].startswith("day,row,prediction")
    assert lines[1].startswith(f"{shown}")
    assert len(lines) == 62


def test_time_may_be_a_number_and_have_gaps(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text("t,x,y\n0.5,1,2\n,2,3\n1.5,3,5\n1.5,4,6\n7,5,8\n")
    out, plot = tmp_path / "o.csv", tmp_path / "p.png"
    fit(
        olsq_command, tmp_path / "d.csv", "--target", "y", "--time", "t", "--out", out,
        "--plot", plot,
    )  # fmt: skip
    assert [line.split(",")[0] for line in out.read_text().splitlines()[1:]] == [
        "0.5", "", "1.5", "1.5", "7.0",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_index_column_is_named_and_left_out(name, tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text(f"{name},x,y\n0,1,2\n1,2,3\n2,3,5\n3,5,6\n")
    out = tmp_path / "o.csv"
    code, _, err = olsq_command("fit", tmp_path / "d.csv", "--target", "y", "--out", out)
    assert code == 0
    assert err == (
        f"olsq: column 1 is left out: its name is {name!r}, as of an index (--features takes it, "
        "--exclude keeps this quiet)\n"
    )
    assert list(read(out)) == ["row", "prediction", "residual", "intercept", "coef_x"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_full_disk_says_how_to_go_on(table, tmp_path, olsq_command, monkeypatch):
    data, _, _ = table
    out, state = tmp_path / "o.csv", tmp_path / "s.olsq"
    head = b"".join(data.read_bytes().splitlines(keepends=True)[:1001])
    whole = data.read_bytes()
    data.write_bytes(head)
    arguments = ("fit", data, "--target", "y", "--chunk-rows", 100, "--out", out, "--state", state)
    assert olsq_command(*arguments)[0] == 0
    data.write_bytes(whole)
    monkeypatch.setattr(sys, "argv", ["olsq", "fit", "data.csv", "--resume"])
    with monkeypatch.context() as patch:
        from olsq.cli.fit.output import Output

        def full(self, *arguments):
            raise OSError(28, "No space left on device", str(self.path))

        patch.setattr(Output, "append", full)
        code, _, err = olsq_command(*arguments, "--resume")
    assert code == 1
    assert "No space left on device" in err
    assert "holds what was learned up to row 1,000" in err
    assert err.rstrip().endswith("then go on with: olsq fit data.csv --resume")
    assert olsq_command(*arguments, "--resume")[0] == 0
    assert len(out.read_text().splitlines()) == 2001


def test_encodings_through_a_pipe(table, tmp_path, olsq_command, monkeypatch):
    data, _, _ = table
    outs = [tmp_path / "o1.csv", tmp_path / "o2.csv"]
    fit(olsq_command, data, "--target", "y", "--out", outs[0])
    text = data.read_text()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode("utf-16"))))
    fit(
        olsq_command, "-", "--target", "y", "--encoding", "utf-16", "--out", outs[1],
    )  # fmt: skip
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_names_that_hold_commas_go_into_quotation_marks(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text('"price, EUR",x,"a,b"\n1,2,3\n2,3,4\n4,5,5\n')
    out = tmp_path / "o.csv"
    fit(
        olsq_command, tmp_path / "d.csv", "--target", '"price, EUR"', "--features", 'x,"a,b"',
        "--out", out,
    )  # fmt: skip
    assert list(read(out))[-2:] == ["coef_x", "coef_a,b"]


@pytest.mark.parametrize("span", ["--half-life", "--window"])
def test_memories_in_time(span, tmp_path, olsq_command):
    """Rows of irregular days, in chunks, resumed in the middle: what the library gives at once."""
    frame = rows_with_everything(400).select("day", "a", "y")
    kept = np.random.default_rng(0).random(400) < 0.6
    frame = frame.filter(pl.Series(kept))
    (tmp_path / "d.csv").write_text(frame.write_csv())
    out, state = tmp_path / "o.parquet", tmp_path / "s.olsq"
    fit(
        olsq_command, tmp_path / "d.csv", "--target", "y", "--time", "day", span, "30D",
        "--chunk-rows", 37, "--out", out, "--state", state,
    )  # fmt: skip
    name = span[2:].replace("-", "_")
    path = olsq.coefficient_path(
        frame["a"].to_numpy()[:, None], frame["y"].to_numpy(), times=frame["day"].to_numpy(),
        fit_intercept=True, **{name: "30D"},
    )  # fmt: skip
    found = pl.read_parquet(out)
    known = np.isfinite(path.residual)
    np.testing.assert_allclose(found["coef_a"].to_numpy()[known], path.coef[known, 0], rtol=1e-9)
    holed = frame.with_columns(
        pl.when(pl.int_range(pl.len()) == 50).then(None).otherwise("day").alias("day")
    )
    holed.write_csv(tmp_path / "h.csv")
    code, _, err = olsq_command(
        "fit", tmp_path / "h.csv", "--target", "y", "--time", "day", span, "30D"
    )
    assert code != 0
    assert "has no time" in err


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ((), {}),
        (("--forget", 0.97), {"forget": 0.97, "cov": "sandwich"}),
        (("--window", 40), {}),
        (("--noise-variance", 0.09), {"noise_variance": 0.09}),
    ],
)
def test_intervals_are_those_before_the_row_was_learned(
    options, parameters, tmp_path, olsq_command
):
    X, y = make_rows(150)
    data, outs = tmp_path / "d.csv", [tmp_path / "1.csv", tmp_path / "2.parquet"]
    data.write_text(csv_text(X, y))
    common = ("--target", "y", "--ridge", 0, *options, "--columns", "interval,prediction,residual")
    fit(olsq_command, data, *common, "--level", 0.9, "--out", outs[0])
    found = read(outs[0])
    assert list(found) == ["row", "prediction", "lower", "upper", "residual"]
    kind = olsq.RollingLeastSquares if "--window" in options else olsq.RecursiveLeastSquares
    est = kind(ridge=0, **({"window": 40} if "--window" in options else parameters))
    used = np.isfinite(X).all(axis=1) & np.isfinite(y)
    covered = []
    for t in range(150):
        if t > 12 and used[t]:
            lower, upper = est.predict_interval(X[t : t + 1], 0.9)
            if "cov" in parameters:  # P is not the sandwich's, and this row has forgotten too
                wide = np.sqrt(1 + est.leverage(X[t : t + 1]) / 0.97) * np.sqrt(est.sigma2_)
                own = est.predict(X[t : t + 1], return_std=True)[1]
                middle = (lower + upper) / 2
                lower, upper = (middle + side * (upper - middle) * wide / own for side in (-1, 1))
            assert found["lower"][t] == pytest.approx(lower[0], rel=1e-7)
            assert found["upper"][t] == pytest.approx(upper[0], rel=1e-7)
            covered.append(found["lower"][t] < y[t] < found["upper"][t])
        elif not used[t]:
            assert np.isnan(found["upper"][t])
        if used[t]:
            est.partial_fit(X[t : t + 1], y[t : t + 1])
    assert 0.75 < np.mean(covered) < 0.97
    # The chunks make no difference, nor a stop between them.
    state = ("--state", tmp_path / "s.olsq", "--chunk-rows", 25)
    text = data.read_text().splitlines(keepends=True)
    data.write_text("".join(text[:51]))
    fit(olsq_command, data, *common, "--level", 0.9, "--out", outs[1], *state)
    data.write_text("".join(text))
    fit(olsq_command, data, *common, "--level", 0.9, "--out", outs[1], *state, "--resume")
    again = read(outs[1])
    for name in ("lower", "upper"):
        np.testing.assert_allclose(again[name], found[name], rtol=1e-9, atol=1e-9)


def test_intervals_by_group_are_each_groups_own(tmp_path, olsq_command):
    X, y = make_rows(200)
    shop = np.random.default_rng(0).choice(["north", "south"], 200)
    frame = pl.DataFrame({"shop": shop, "a": X[:, 0], "y": y}, nan_to_null=True)
    for name in ("all", "south"):
        chosen = frame if name == "all" else frame.filter(pl.col("shop") == "south")
        chosen.write_csv(tmp_path / f"{name}.csv")
        more = ("--by", "shop") if name == "all" else ("--exclude", "shop")
        fit(
            olsq_command, tmp_path / f"{name}.csv", "--target", "y", *more, "--half-life", 30,
            "--columns", "interval", "--out", tmp_path / f"{name}.parquet", "--chunk-rows", 64,
        )  # fmt: skip
    whole, alone = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("all", "south"))
    for name in ("lower", "upper"):
        found = whole.filter(pl.col("shop") == "south")[name].to_numpy()
        np.testing.assert_allclose(found, alone[name].to_numpy(), rtol=1e-8)
    assert np.isfinite(alone["lower"].to_numpy()).sum() > 80
