"""Every user error is one line on standard error, names its cause, and has its exit code."""

import bz2
import lzma
import os
import subprocess
import sys

import pytest

from olsq.datasets import us_macro

from .conftest import environment

MACRO = us_macro().path

FILES = {
    "empty.csv": b"",
    "header.csv": b"x,y\n",
    "constant.csv": b"x,y\n1,2\n2,2\n3,2\n",
    "text.csv": b"x,y,z\n1,2,a\n3,abc,b\n5,6,c\n",
    "ragged.csv": b"x,y\n1,2\n3,4,5\n",
    "open-quote.csv": b'x,y\n1,2\n"3,4\n5,6\n',
    "latin1.csv": b"x,y\n\xe9,2\n3,4\n",
    "nothing.csv": b"x,y\n,1\n2,\n",
    "one-column.csv": b"y\n1\n2\n",
    "twice.csv": b"x,x,y\n1,2,3\n",
    "negative.csv": b"x,y,w\n1,2,1\n2,3,-1\n",
    "huge.csv": b"x,y\n1,2\n1e200,3\n",
    "utf16.csv": "x,y\n1,2\n".encode("utf-16"),
    "fake.parquet": b"PAR1 this is not one PAR1",
    "misnamed.parquet": b"x,y\n1,2\n",
    "decimal.csv": b"x;y\n1,5;2\n2,5;3\n",
    "damaged.csv.gz": b"\x1f\x8b\x08\x00 broken",
    "dates.csv": b"day,x,y,c\n2024-01-02,1,2,a\n2024-01-01,2,3,b\n2024-01-03,3,5,a\n",
    "odd-dates.csv": b"day,x,y\nmonday,1,2\ntuesday,2,3\n",
    "late-date.csv": b"day,x,y\n2024-01-02,1,2\nlater,2,3\n",
    "two-ways.csv": b"day,x,y\n01/02/2024,1,2\n02/03/2024,2,3\n",
    "no-level.csv": b"c,y\n,1\n,2\n",
    "lag.csv": b"y_lag1,y\n1,2\n2,3\n",
    "cut.csv.bz2": bz2.compress(b"x,y\n1,2\n" * 99)[:-9],
    "cut.csv.xz": lzma.compress(b"x,y\n1,2\n" * 99)[:-9],
    "foreign.state": b"x" * 100,
}

CASES = [
    ("missing.csv --target y", "no such file: missing.csv"),
    (". --target y", ". is a directory"),
    ("empty.csv --target y", "empty.csv is empty"),
    ("header.csv --target y", "header.csv has a header but no rows"),
    ("constant.csv --target y", "target 'y' is constant (2 in all 3 rows)"),
    ("text.csv --target y --features x", "'y' is not numeric: row 2 of text.csv holds 'abc'"),
    ("text.csv --target x", "'y' is not numeric: row 2 of text.csv holds 'abc' (leave it out"),
    ("ragged.csv --target y", "row 2 of ragged.csv has 3 cells, the header has 2"),
    ("open-quote.csv --target y", "quotation mark is left open"),
    ("latin1.csv --target y", "column 'x' is not UTF-8 text: row 1 of latin1.csv holds"),
    ("nothing.csv --target y", "all 2 rows of nothing.csv have a missing value"),
    ("one-column.csv --target y", "no regressors"),
    ("twice.csv --target y", "more than one column named 'x'"),
    ("negative.csv --target y --weight w", "weight column 'w' is negative in row 2"),
    ("huge.csv --target y", "rows 1 to 2: X contains a value of magnitude 1e+200"),
    ("utf16.csv --target y", "utf16.csv is not UTF-8"),
    ("fake.parquet --target y", "fake.parquet is a damaged Parquet file"),
    ("misnamed.parquet --target y", "misnamed.parquet is not a Parquet file"),
    ("decimal.csv --target y", "holds '1,5' (write decimals with a point, or give --decimal ,)"),
    ("damaged.csv.gz --target y", "damaged.csv.gz is damaged"),
    ("MACRO --target cpj", "no column 'cpj' in the data; did you mean 'cpi'"),
    ("MACRO --target zzz", "it has 'year', 'quarter', 'realgdp'"),
    ("MACRO --target cpi --features m1,M1", "no column 'M1' in the data; did you mean 'm1'?"),
    ("MACRO --target cpi --features cpi", "column 'cpi' is used twice"),
    ("MACRO --target cpi --forget 1.5", "--forget must lie between 0 and 1, got 1.5"),
    ("MACRO --target cpi --forget nan", "--forget must lie between 0 and 1, got nan"),
    ("MACRO --target cpi --forget x", "Invalid value for '--forget'"),
    ("MACRO --target cpi --forget .9 --half-life 5", "--forget and --half-life cannot be combined"),
    ("MACRO --target cpi --half-life -1", "--half-life must be a positive number"),
    ("MACRO --target cpi --window 0", "--window must be at least 1 row"),
    ("MACRO --target cpi --window 9 --method sqrt", "--method and --ridge-mode do not apply"),
    ("MACRO --target cpi --ridge -1", "--ridge must be finite and not negative, got -1"),
    ("MACRO --target cpi --ridge-mode odd", "--ridge-mode must be discounted or fixed, got 'odd'"),
    ("MACRO --target cpi --method odd", "--method must be auto or covariance"),
    ("MACRO --target cpi --missing drop", "--missing must be skip or raise, got 'drop'"),
    ("MACRO --target cpi --chunk-rows 0", "--chunk-rows must be at least 1"),
    ("MACRO --target cpi --separator ab", "--separator must be one character"),
    ("MACRO --target cpi --resume", "--resume needs --state"),
    ("MACRO --target cpi --out a.txt", "--out must end in .csv or .parquet, got a.txt"),
    ("MACRO --target cpi --plot a.txt", "--plot must end in .png"),
    ("MACRO --target cpi --out no/a.csv", "there is no directory no"),
    ("MACRO --target cpi --out MACRO", "--out and the data are the same file"),
    ("MACRO --target cpi --out a.csv --state a.csv", "--state and --out are the same file"),
    ("MACRO --target cpi --state foreign.state", "foreign.state exists: add --resume"),
    (
        "MACRO --target cpi --state foreign.state --resume",
        "foreign.state is not an olsq state file",
    ),
    ("cut.csv.bz2 --target y", "cut.csv.bz2 is damaged"),
    ("cut.csv.xz --target y", "cut.csv.xz is damaged"),
    ("MACRO --target cpi,cpi", "column 'cpi' is used twice"),
    ("MACRO --target ,", "--target must name at least one column"),
    ("MACRO --target cpi --features m1,m2,m3", "no columns 'm2', 'm3' in the data"),
    ("MACRO --target cpi --exclude M1", "--exclude: no column 'M1' in the data; did you mean 'm1'"),
    ("MACRO --target cpi --exclude m1 --features m1", "--exclude cannot be combined"),
    ("MACRO --target cpi --half-life 30D", "--half-life 30D is a span of time: give --time"),
    ("MACRO --target cpi --time year --half-life 30D", "is a span between dates, but column 'ye"),
    ("MACRO --target cpi --window 2M", "--window"),
    ("MACRO --target cpi --half-life x", "--half-life must be a number of rows, or a span of"),
    ("MACRO --target cpi --window 90D", "--window 90D is a span of time: give --time"),
    ("MACRO --target cpi --window 2.5", "--window must be a whole number of rows, or a span of"),
    ("MACRO --target cpi --lags -1", "--lags must be a number of rows, 0 or more, got -1"),
    ("lag.csv --target y --lags 1", "two regressors would be named 'y_lag1'"),
    ("MACRO --target cpi --columns coef --out o.csv --columns all", "--columns must be chosen"),
    ("MACRO --target cpi --columns sigma", "--columns needs --out"),
    ("MACRO --target cpi --decimal ;", "--decimal must be . or , got ';'"),
    ("MACRO --target cpi --decimal , --separator ,", "--decimal , needs another --separator"),
    ("MACRO --target cpi --encoding klingon", "--encoding 'klingon' is not known: latin-1"),
    ("MACRO --target cpi --encoding base64", "--encoding 'base64' is not known"),
    ("latin1.csv --target y --encoding utf-16", "is not in the encoding utf-16"),
    ("dates.csv --target y --categorical q", "--categorical: 'q' is not a regressor"),
    ("dates.csv --target y --time day --categorical c=a", "'b', which is not among its levels a"),
    ("dates.csv --target y --categorical c=a|a", "levels must differ and not be empty"),
    ("dates.csv --target y --categorical c,c", "--categorical names 'c' twice"),
    ("no-level.csv --target y --categorical c", "the first 2 rows hold no value; list the levels"),
    ("dates.csv --target y --time dya", "no column 'dya' in the data; did you mean 'day'?"),
    ("dates.csv --target y --time y", "column 'y' is used twice"),
    ("dates.csv --target y --time-format %Y", "--time-format needs --time"),
    (
        "dates.csv --target y --features x --time day",
        "row 2 of dates.csv (2024-01-01) is earlier than the one above it (2024-01-02): sort",
    ),
    ("odd-dates.csv --target y --time day", "cannot read 'monday' in column 'day' as a date"),
    (
        "late-date.csv --target y --time day --time-format %Y-%m-%d",
        "row 2 of late-date.csv holds 'later' in column 'day', which is not a time written as",
    ),
    ("two-ways.csv --target y --time day", "may have the day or the month first"),
    ("MACRO", "--target must name at least one column"),
    ("MACRO --target cpi --nonsense", "No such option"),
]


@pytest.fixture
def directory(tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize(("arguments", "message"), CASES, ids=[case[0] for case in CASES])
def test_one_line_and_exit_code_2(arguments, message, directory, olsq_command):
    before = sorted(path.name for path in directory.iterdir())
    words = [str(MACRO) if word == "MACRO" else word for word in arguments.split()]
    code, out, err = olsq_command("fit", *words)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.startswith("olsq: ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in directory.iterdir()) == before


def test_failing_run_leaves_no_output(directory, olsq_command):
    for name in ("constant.csv", "text.csv"):
        code, _, _ = olsq_command("fit", name, "--target", "y", "--features", "x", "--out", "o.csv")
        assert code == 2
        assert not list(directory.glob("o.csv*"))


@pytest.mark.parametrize("option", ["--out", "--plot", "--state"])
def test_unwritable_directory(option, directory, olsq_command, monkeypatch):
    # Root may write anywhere, so what the system says is replaced.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    name = {"--out": "o.csv", "--plot": "o.png", "--state": "o.olsq"}[option]
    code, _, err = olsq_command("fit", MACRO, "--target", "cpi", option, name)
    assert code == 2
    assert f"cannot write {name}: permission denied" in err


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs a directory nobody can write to")
def test_directory_that_refuses_files(directory, olsq_command):
    code, _, err = olsq_command("fit", MACRO, "--target", "cpi", "--out", "/proc/o.csv")
    assert code == 2
    assert err.startswith("olsq: cannot write /proc/o.csv: ")


@pytest.mark.parametrize("option", ["--out", "--plot", "--state"])
def test_output_that_is_a_directory(option, directory, olsq_command):
    taken = directory / {"--out": "d.csv", "--plot": "d.png", "--state": "d.olsq"}[option]
    taken.mkdir()
    code, _, err = olsq_command("fit", MACRO, "--target", "cpi", option, taken)
    assert code == 2
    assert "it is a directory" in err


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_disk_full_is_a_runtime_failure(suffix, directory):
    """A limit on the size of files is what a full disk is to a program, Polars' too."""
    rows = "".join(f"{i % 7},{i % 11}\n" for i in range(2000))
    (directory / "long.csv").write_text("x,y\n" + rows)
    code = (
        "import resource, sys\nfrom olsq.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\nmain(sys.argv[1:])"
    )
    before = sorted(path.name for path in directory.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", code, "fit", "long.csv", "--target", "y", "--out", f"o{suffix}"],
        env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    reason = f"File too large: o{suffix}; nothing was saved (--state FILE saves)"
    assert done.stderr == f"olsq: {reason}\n"
    assert sorted(path.name for path in directory.iterdir()) == before


def test_missing_raise_names_row_and_column(directory, olsq_command):
    (directory / "gap.csv").write_text("x,y\n1,2\n2,\n3,4\n")
    code, _, err = olsq_command("fit", "gap.csv", "--target", "y", "--missing", "raise")
    assert code == 2
    assert "row 2 has no value in column 'y'" in err


def test_help_and_version(olsq_command):
    code, out, _ = olsq_command("--version")
    assert code == 0
    assert out.startswith("olsq ")
    for arguments in ((), ("--help",), ("fit", "--help"), ("demo", "--help")):
        code, out, _ = olsq_command(*arguments)
        assert code == 0
        assert "Usage: olsq" in out
        assert "Exit codes" in out
