"""Tables whose cells would be read wrongly are refused, however they are given to the command."""

import bz2
import csv
import gzip
import io
import lzma
import sys

import numpy as np
import polars as pl
import pytest

import olsq
from olsq.cli.sources.columns import Reading
from olsq.cli.sources.parquet import ParquetSource

from .test_options import compress_zstd

N = 60
PACKED = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": compress_zstd}
WAYS = ["file", "stdin", *PACKED]
# The table's index column, and options with which some columns are not used.
CHOICES = {
    "features": ("", ("--features", "x")),
    "exclude": ("", ("--exclude", "note")),
    "index column": (",", ("--exclude", "note")),
    "categorical": ("", ("--categorical", "note")),
    "by": ("", ("--by", "note")),
}


def lines(index="", n=N, seed=0):
    """The lines of a table x, y, note of n rows, with an index column where it begins with one."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    y = 2 * x + 1 + 0.1 * rng.standard_normal(n)
    head = [f"{index}x,y,note"]
    number = [f"{i}," if index else "" for i in range(n)]
    return head + [f"{i}{a:.4f},{b:.4f},ok" for i, a, b in zip(number, x, y, strict=True)]


def give(way, text, folder, monkeypatch, name="d.csv"):
    """Write text to a file as ``way`` has it, or to standard input; return DATA."""
    data = text if isinstance(text, bytes) else text.encode()
    if way == "stdin":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return "-"
    path = folder / (name + (way if way in PACKED else ""))
    path.write_bytes(PACKED[way](data) if way in PACKED else data)
    return path


def refused(result, *words):
    code, out, err = result
    assert code == 2, err
    assert out == ""
    assert err.startswith("olsq: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


FAULTS = {
    "more": (lambda row: row.replace(",", ",5,", 1), 1),
    "fewer": (lambda row: row.rsplit(",", 1)[0], -1),
    "an empty one more": (lambda row: row + ",", 1),
    "one": (lambda row: "7", None),
    "quotation marks in a cell": (lambda row: row.replace("ok", 'an "o,k" note'), 1),
}


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("choice", CHOICES)
def test_rows_of_other_lengths_are_refused(choice, way, tmp_path, olsq_command, monkeypatch):
    index, options = CHOICES[choice]
    rng = np.random.default_rng(len(choice) + len(way))
    for change, more in FAULTS.values():
        table = lines(index)
        row, width = int(rng.integers(1, N + 1)), table[0].count(",") + 1
        table[row] = change(table[row])
        data = give(way, "\n".join(table) + "\n", tmp_path, monkeypatch)
        result = olsq_command("fit", data, "--target", "y", *options, "--chunk-rows", 16)
        result = (*result[:2], result[2].splitlines(keepends=True)[-1])  # after the index's note
        cells = 1 if more is None else width + more
        refused(result, f"row {row} of ", f" has {cells} cell", f"the header has {width}")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8"])
def test_rows_of_other_lengths_need_not_decode(encoding, tmp_path, olsq_command):
    table = ["namn,x,y", "Hägg,1,2", "Högg,2,3", "Hägg,3,4,5"]
    (tmp_path / "d.csv").write_text("\n".join(table), encoding=encoding)
    result = olsq_command("fit", tmp_path / "d.csv", "--target", "y", "--features", "x")
    refused(result, "row 3 of ", "has 4 cells, the header has 3")


def test_two_files_that_were_glued_are_refused(tmp_path, olsq_command):
    """Without a line end between them the last row of the first holds the second's header."""
    path = tmp_path / "d.csv"
    for table in (lines(), ["x,note,y", *(f"{i},a,{i + i % 3}" for i in range(9))]):
        path.write_text("\n".join(table) + "\n".join(table))
        result = olsq_command("fit", path, "--target", "y", "--features", "x")
        refused(result, f"row {len(table) - 1} of ", "has 5 cells, the header has 3")


@pytest.mark.parametrize("how", ["predict", "continue", "resume"])
def test_later_tables_of_other_lengths_are_refused(how, tmp_path, olsq_command):
    first, new, state = tmp_path / "d.csv", tmp_path / "n.csv", tmp_path / "s.olsq"
    first.write_text("\n".join(lines()) + "\n")
    fitting = ("--target", "y", "--features", "x", "--state", state)
    assert olsq_command("fit", first, *fitting)[0] == 0
    before = state.read_bytes()
    wrong = lines(seed=1)
    wrong[30] = wrong[30].replace(",", ",5,", 1)
    new.write_text("\n".join(wrong) + "\n")
    arguments = {
        "predict": ("predict", state, new),
        "continue": ("fit", new, "--continue", "--state", state),
        "resume": ("fit", first, "--resume", *fitting),
    }[how]
    row = 30
    if how == "resume":
        first.write_text("\n".join(lines() + wrong[1:]) + "\n")
        row += N
    refused(olsq_command(*arguments), f"row {row} of ", "has 4 cells, the header has 3")
    assert state.read_bytes() == before


def random_table(rng):
    """Text of a table and what the csv module reads there: rows with their numbers of cells."""
    separator = rng.choice([",", ";", "\t"])
    end = rng.choice(["\n", "\r\n"])
    texts = [
        "a",
        "",
        "b c",
        f'"p{separator}q"',
        '"two\nlines"',
        '"say ""hi"""',
        'five" and 6" tall',
        '6" tall',
    ]
    rows = []
    for _ in range(int(rng.integers(1, 30))):
        x = rng.standard_normal()
        cells = [f"{x:.3f}", f"{2 * x + rng.standard_normal():.3f}"]
        cells += list(rng.choice(texts, 2))
        kind = rng.integers(12)
        if kind == 0:
            cells += [str(rng.choice(["", "1", '"x"']))] * int(rng.integers(1, 3))
        elif kind == 1:
            cells = cells[: int(rng.integers(1, 4))]
        rows.append("" if kind == 2 else str(separator).join(cells))
    head = str(separator).join(["x", "y", "s", "t"])
    last = "" if rng.random() < 0.5 else end
    return str(end).join([head, *rows]) + last, str(separator)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(40))
def test_cells_are_counted_as_the_csv_module_counts_them(seed, tmp_path, olsq_command):
    rng = np.random.default_rng(seed)
    text, separator = random_table(rng)
    path = tmp_path / "d.csv"
    path.write_bytes(text.encode())
    records = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))[1:]
    wrong = [(row, len(cells)) for row, cells in enumerate(records, 1) if cells and len(cells) != 4]
    out = tmp_path / "o.csv"
    options = ("--target", "y", "--features", "x", "--separator", separator, "--out", out)
    code, _, err = olsq_command("fit", path, *options, "--chunk-rows", int(rng.integers(1, 9)))
    if wrong:
        row, cells = wrong[0]
        assert code == 2
        assert f"row {row} of {path} has {cells} cell" in err
    elif code == 0:  # else too few rows to explain anything
        assert pl.read_csv(out)["row"].to_list() == list(range(1, len(records) + 1))


# -- decimal marks ---------------------------------------------------------------------------------

GERMAN = ["x;y;w;t;day"] + [
    f"{a:.3f};{2 * a + b:.3f};1,5;{i},5;{1 + i % 28:02d}.{1 + i // 28:02d}.2024".replace(
        ".", ",", 2
    )
    for i, (a, b) in enumerate(np.random.default_rng(0).standard_normal((40, 2)))
]


@pytest.mark.full
@pytest.mark.parametrize("column", ["x", "y", "w", "t"])
@pytest.mark.parametrize("way", ["file", "stdin", ".gz"])
def test_a_point_is_no_part_of_a_number_with_a_decimal_comma(
    column, way, tmp_path, olsq_command, monkeypatch
):
    place = GERMAN[0].split(";").index(column)
    options = ("--target", "y", "--features", "x", "--weight", "w", "--time", "t", "--decimal", ",")
    good = give(way, "\n".join(GERMAN) + "\n", tmp_path, monkeypatch)
    assert olsq_command("fit", good, *options)[0] == 0
    for cell in ("1.299", "30.5", "1.299,5", "1.2.3"):
        table = GERMAN.copy()
        cells = table[31].split(";")
        cells[place] = cell
        table[31] = ";".join(cells)
        data = give(way, "\n".join(table) + "\n", tmp_path, monkeypatch)
        refused(olsq_command("fit", data, *options), f"'{column}'", "row 31 of ", repr(cell))


def test_dates_may_have_points_beside_decimal_commas(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text("\n".join(GERMAN) + "\n")
    (tmp_path / "e.csv").write_text("\n".join(GERMAN).replace(",", ".").replace(";", ",") + "\n")
    outs = [tmp_path / "1.csv", tmp_path / "2.csv"]
    options = ("--target", "y", "--features", "x", "--time", "day")
    for name, out, more in zip("de", outs, [("--decimal", ","), ()], strict=True):
        code, _, err = olsq_command("fit", tmp_path / f"{name}.csv", *options, *more, "--out", out)
        assert (code, err) == (0, "")
    assert outs[0].read_bytes() == outs[1].read_bytes()


# -- encodings -------------------------------------------------------------------------------------

SWEDISH = ["namn,x,y,text"] + [
    f"{name},{x:.4f},{3 * x if name == 'Hägg' else -x:.4f},Växjö"
    for name, x in zip(
        ["Hägg", "Högg", "a"] * 12, np.random.default_rng(0).standard_normal(36), strict=True
    )
]
USED = {
    "by": ("--by", "namn", "--exclude", "text"),
    "levels": ("--categorical", "namn", "--exclude", "text"),
    "listed levels": ("--categorical", "namn=Hägg|Högg|*", "--exclude", "text"),
    "feature": ("--exclude", "text"),
    "time": ("--time", "namn", "--features", "x"),
    "weight": ("--weight", "namn", "--features", "x"),
}


@pytest.mark.full
@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "cp850", "mac-roman"])
@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("way", ["file", "stdin", ".zst"])
def test_columns_that_are_used_must_decode(
    used, encoding, way, tmp_path, olsq_command, monkeypatch
):
    text = "\n".join(SWEDISH).encode(encoding)
    data = give(way, text, tmp_path, monkeypatch)
    result = olsq_command("fit", data, "--target", "y", *USED[used])
    refused(result, "'namn'", "row 1 of ", "is not UTF-8 text", "--encoding", "cp1252", "latin-1")


def test_columns_that_are_not_used_may_hold_anything(tmp_path, olsq_command):
    outs = [tmp_path / "1.csv", tmp_path / "2.csv"]
    for encoding, out in zip(("cp1252", "utf-8"), outs, strict=True):
        (tmp_path / "d.csv").write_text("\n".join(SWEDISH), encoding=encoding)
        options = ("--target", "y", "--features", "x", "--out", out)
        assert olsq_command("fit", tmp_path / "d.csv", *options)[0] == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_labels_that_differ_in_one_letter_are_two(tmp_path, olsq_command):
    data, state = tmp_path / "d.csv", tmp_path / "s.olsq"
    data.write_text("\n".join(SWEDISH), encoding="cp1252")
    options = ("--target", "y", *USED["by"], "--encoding", "cp1252", "--state", state)
    assert olsq_command("fit", data, *options)[0] == 0
    assert list(olsq.load(state).groups_) == ["Hägg", "Högg", "a"]
    refused(olsq_command("predict", state, data), "is not UTF-8 text")
    code, text, _ = olsq_command("predict", state, data, "--encoding", "cp1252")
    assert code == 0
    assert text.splitlines()[1].startswith("Hägg,1,")
    # The mark that stands for what cannot be decoded is a letter like others.
    data.write_text("\n".join(SWEDISH).replace("a,", "\ufffd,"), encoding="utf-8")
    assert olsq_command("fit", data, "--target", "y", *USED["by"])[0] == 0


@pytest.mark.parametrize("way", ["file", "stdin", ".gz"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_byte_order_mark_is_no_part_of_a_name(encoding, way, tmp_path, olsq_command, monkeypatch):
    text = "\ufeff" * (encoding == "utf-16-le") + "\n".join(lines()[:20]) + "\n"
    data = give(way, text.encode(encoding), tmp_path, monkeypatch)
    options = ("--target", "y", "--features", "x", "--encoding", encoding)
    code, out, err = olsq_command("fit", data, *options)
    assert (code, err) == (0, "")
    assert "19 rows learned, none skipped" in out


# -- names in quotation marks ----------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("name", ["a,b", "a=b", 'say "hi"', "a, b", "a,b=c"])
@pytest.mark.parametrize("levels", ["", "=p|*", "=p|q", "=p|q|*"])
def test_quoted_names_take_levels(name, levels, tmp_path, olsq_command):
    quoted = '"' + name.replace('"', '""') + '"'
    rng = np.random.default_rng(0)
    rows = [f"{'pq'[i % 2]},{x:.4f},{x + 5 * (i % 2):.4f}" for i, x in enumerate(rng.random(30))]
    data, state, out = (tmp_path / file for file in ("d.csv", "s.olsq", "o.csv"))
    data.write_text("\n".join([f"{quoted},x,y", *rows[:20]]) + "\n")
    options = ("--target", "y", "--categorical", f"{quoted}{levels}", "--state", state)
    code, _, err = olsq_command("fit", data, *options, "--out", out)
    assert (code, err) == (0, "")
    other = "other" if levels == "=p|*" else "q"
    with out.open(newline="") as file:
        assert f"coef_{name}={other}" in next(csv.reader(file))
    # the state's options are read again
    data.write_text("\n".join([f"{quoted},x,y", *rows[20:]]) + "\n")
    assert olsq_command("fit", data, "--continue", "--state", state)[0] == 0
    assert olsq_command("predict", state, data)[0] == 0
    assert olsq_command("fit", data, "--resume", "--state", state)[0] == 0


@pytest.mark.parametrize("name", ["a,b", " a", 'a "b" ', "a=b"])
@pytest.mark.parametrize(
    "option",
    ["--by", "--weight", "--time", "--target", "--exclude", "--features", "--categorical"],
)
def test_every_option_takes_a_quoted_name(option, name, tmp_path, olsq_command):
    rows = [f"{1 + i},{i % 5},{i % 7}" for i in range(30)]
    quoted = '"' + name.replace('"', '""') + '"'
    (tmp_path / "d.csv").write_text("\n".join([f"{quoted},x,y", *rows]) + "\n")
    target = () if option == "--target" else ("--target", "y")
    code, _, err = olsq_command("fit", tmp_path / "d.csv", *target, option, quoted)
    assert (code, err) == (0, "")


# -- types of Parquet ------------------------------------------------------------------------------

TYPED = {
    "duration": pl.Series([1, 2] * 20).cast(pl.Duration("us")),
    "list": pl.Series([[1], [2]] * 20),
    "struct": pl.Series([{"a": 1}, {"a": 2}] * 20),
    "binary": pl.Series([b"\xff", b"b"] * 20),
}


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("role", ["--by", "--categorical", "--time", "--features", "--weight"])
def test_columns_of_other_types_are_refused(role, kind, tmp_path, olsq_command):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"g": TYPED[kind], "x": rng.random(40), "y": rng.random(40)})
    frame.write_parquet(tmp_path / "d.parquet")
    more = ("--features", "x") if role in ("--by", "--time", "--weight") else ()
    options = ("--target", "y", role, "g", *more, "--out", tmp_path / "o.csv")
    result = olsq_command("fit", tmp_path / "d.parquet", *options)
    refused(result, "d.parquet")
    assert "holds no value" not in result[2]
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.parametrize("kind", [pl.Boolean, pl.Categorical, pl.Time])
def test_times_are_dates_numbers_or_text(kind, tmp_path, olsq_command):
    series = pl.Series(["0", "1"] * 20) if kind is pl.Categorical else pl.Series([0, 1] * 20)
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"g": series.cast(kind), "x": rng.random(40), "y": rng.random(40)})
    frame.write_parquet(tmp_path / "d.parquet")
    options = ("--target", "y", "--time", "g")
    refused(olsq_command("fit", tmp_path / "d.parquet", *options), "--time", "'g'", str(kind()))


def test_text_of_tools_that_store_bytes_is_text(tmp_path, olsq_command):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"g": ["u", "ü"] * 20, "x": rng.random(40), "y": rng.random(40)})
    outs = []
    for name, table in (
        ("text", frame),
        ("bytes", frame.with_columns(pl.col("g").cast(pl.Binary))),
    ):
        table.write_parquet(tmp_path / f"{name}.parquet")
        outs.append(tmp_path / f"{name}.csv")
        options = ("--target", "y", "--by", "g", "--out", outs[-1])
        assert olsq_command("fit", tmp_path / f"{name}.parquet", *options)[0] == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.parametrize("rows", [1, 7, 40, 100])
def test_parquet_is_read_from_any_row_group(rows, tmp_path):
    """Also columns whose names begin alike, as of nested ones."""
    n = 100
    frame = pl.DataFrame({"a.b": np.arange(n) + 0.5, "a": np.arange(n) * 1.0, "y": np.ones(n)})
    frame.write_parquet(tmp_path / "d.parquet", row_group_size=rows)
    reading = Reading(targets=("y",), features=("a",), chunk_rows=3)
    for start in (0, 1, 39, 40, 41, 99, 100):
        with ParquetSource(tmp_path / "d.parquet", reading) as source:
            found = [frame["a"].to_list() for frame in source.read_cells(start)]
        assert [x for part in found for x in part] == list(range(start, n))


# -- options that no table fits --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--columns", "", "--out", "o.csv"), "--columns must be chosen from prediction, "),
        (("--horizon", 10**20), "--horizon must be at most 1,000,000,000,000,000, got 1"),
        (("--window", 10**22), "--window must be at most 1,000,000,000,000,000, got 1"),
        (("--lags", 10**11), "100,000,000,002 coefficients take about"),
        (("--lags", 70), "have a missing value or fewer than 70 before them"),
        (("--time", "row", "--out", "o.csv"), "two columns of --out would be named 'row'"),
        (("--by", "row", "--out", "o.csv"), "two columns of --out would be named 'row'"),
        (("--exclude", "row,x,note"), "no regressors: no column is left besides 'y'"),
    ],
)
def test_what_no_table_fits(options, message, tmp_path, olsq_command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{line}" for i, line in enumerate(lines()[1:])]
    (tmp_path / "d.csv").write_text("\n".join(["row,x,y,note", *rows]))
    more = () if "--exclude" in options else ("--features", "x")
    refused(olsq_command("fit", "d.csv", "--target", "y", *more, *options), message)
    assert not (tmp_path / "o.csv").exists()


def test_endings_of_files_may_be_capitals(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text("\n".join(lines()))
    for name in ("o.CSV", "o.Parquet"):
        options = ("--target", "y", "--features", "x", "--out", tmp_path / name)
        assert olsq_command("fit", tmp_path / "d.csv", *options)[0] == 0
    one, other = pl.read_csv(tmp_path / "o.CSV"), pl.read_parquet(tmp_path / "o.Parquet")
    np.testing.assert_allclose(one.to_numpy(), other.to_numpy())
