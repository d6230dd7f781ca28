"""No command writes a file that the table of files.md does not have."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from .conftest import REPOSITORY, csv_text, environment, make_rows

DIGITS = "[0-9a-f]{16}"
# Of Python, Numba and matplotlib.
CACHES = re.compile(
    r"/dev/(null|tty|shm/.*)|.*/__pycache__(/.*)?|.*/cache(/.*)?|.*\.py[co]?\.\d+|/proc/.*|"
    + re.escape(os.environ.get("NUMBA_CACHE_DIR", "/__pycache__"))
    + "(/.*)?"
)


def table():
    """Names of the files in the table, with their temporary files and locks, as one expression."""
    part = (REPOSITORY / "tests/cli/files.md").read_text(encoding="utf-8")
    assert "`.NAME.<hex>.tmp`" in part
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")]
    names = {name for row in rows[1:] for name in re.findall("`(.+?)`", row[0])}
    names -= {"--out", "--state", "--plot", "demo", "y"}
    for path in [Path(name) for name in names if not Path(name).name.startswith(".")]:
        names.add(str(path.with_name(f".{path.name}.<hex>.tmp")))
        names.add(str(path.with_name(f".{path.name}.olsq-lock")))
    return re.compile("|".join(re.escape(n).replace("<hex>", DIGITS) for n in names))


NAMES = table()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the inputs of all commands, and one for caches."""
    folder = tmp_path_factory.mktemp("written")
    X, y = make_rows(1500)
    (folder / "d.csv").write_text(csv_text(X, y))
    pl.read_csv(folder / "d.csv").write_parquet(folder / "d.parquet")
    for name in ("cache", "home", "temporary", "out"):
        (folder / name).mkdir()
    return folder


def settings(folder):
    """An environment whose folders of the user and for temporary files are the test's own."""
    return environment() | {
        "HOME": str(folder / "home"), "TMPDIR": str(folder / "temporary"),
        "XDG_CACHE_HOME": str(folder / "cache"), "MPLCONFIGDIR": str(folder / "cache"),
    }  # fmt: skip


def started(folder, *arguments, **options):
    recorder = REPOSITORY / "tests/cli/recorded.py"
    return subprocess.Popen(
        [sys.executable, recorder, folder / "log", *arguments], cwd=folder / "out",
        env=settings(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def check_recorded(folder):
    """All paths that were recorded, and all files that lie there, are in the table."""
    out = folder / "out"
    lines = (folder / "log").read_text().splitlines()
    paths = {line.split("\t")[1] for line in lines} - {str(folder / "log")}
    own = {path for path in paths if not CACHES.fullmatch(path)}
    assert own  # the recording works
    outside = [path for path in own if not path.startswith(f"{out}/")]
    assert outside == []
    names = {os.path.relpath(path, out) for path in own}
    # What is not opened by Python is found where it lies.
    names |= {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    assert [name for name in sorted(names) if not NAMES.fullmatch(name)] == []
    assert [p for p in (folder / "temporary").rglob("*") if p.is_file()] == []
    assert [p for p in (folder / "home").rglob("*") if p.is_file()] == []
    return names


def run(folder, *arguments):
    (folder / "log").unlink(missing_ok=True)
    process = started(folder, *arguments)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return check_recorded(folder)


STATE = ("--state", "s.olsq", "--checkpoint-every", "0")


@pytest.mark.full
def test_fit_and_predict(folder):
    files = ("--out", "o.csv", "--plot", "p.png")
    names = run(folder, "fit", "../d.csv", "--target", "y", *files, "--chunk-rows", "500", *STATE)
    assert {"o.csv", "s.olsq", "p.png", ".o.csv.olsq-lock", ".s.olsq.olsq-lock"} <= names
    assert any(re.fullmatch(rf"\.o\.csv\.{DIGITS}\.part", name) for name in names)
    names = run(folder, "predict", "s.olsq", "../d.csv", "--out", "o.parquet")
    assert {"o.parquet", ".o.parquet.olsq-lock"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("state", [(), STATE], ids=["", "state"])
def test_fit_parquet_to_parquet(folder, state):
    (folder / "out/s.olsq").unlink(missing_ok=True)
    options = ("--out", "o.parquet", "--chunk-rows", "500", *state)
    assert "o.parquet" in run(folder, "fit", "../d.parquet", "--target", "y", *options)


@pytest.mark.slow
def test_a_killed_run(folder):
    """The table also lists the files that a killed run leaves."""
    (folder / "out/s.olsq").unlink(missing_ok=True)
    (folder / "log").unlink(missing_ok=True)
    options = ("--out", "o.parquet", "--chunk-rows", "100", *STATE)
    process = started(folder, "fit", "-", "--target", "y", *options, stdin=subprocess.PIPE)
    process.stdin.write((folder / "d.csv").read_bytes())
    process.stdin.flush()
    end = time.monotonic() + 120
    while not list((folder / "out").glob(".o.parquet.*.part")):
        assert time.monotonic() < end
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert ".o.parquet.olsq-lock" in check_recorded(folder)


@pytest.mark.slow
def test_demo(folder):
    assert "p.png" in run(folder, "demo", "--out", "p.png")
