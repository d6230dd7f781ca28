"""Two real processes with the same files; names that earlier versions took from the user."""

import os
import signal
import time

import pytest

from olsq.files import locked

from .conftest import csv_text, make_rows, start
from .test_resume import PATIENCE


def waiting_run(tmp_path, *options):
    """A run that waits for more rows on standard input, with all its files locked."""
    process = start("fit", "-", "--target", "y", *options, stdin=-1)
    process.stdin.write(csv_text(*make_rows(300)).encode())
    process.stdin.flush()
    end = time.monotonic() + PATIENCE
    ready = [".*.olsq-lock", *([".o.csv.*.tmp"] if "--out" in options else [])]
    while not all(list(tmp_path.glob(name)) for name in ready) or not all(
        path.stat().st_size for path in tmp_path.glob(ready[0])
    ):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    return process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "name"), [("--out", "o.csv"), ("--plot", "p.png"), ("--state", "s.olsq")]
)
def test_the_second_run_is_refused_and_touches_nothing(option, name, tmp_path, olsq_command):
    data, file = tmp_path / "d.csv", tmp_path / name
    data.write_text(csv_text(*make_rows(300)))
    first = waiting_run(tmp_path, option, file)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    code, out, err = olsq_command("fit", data, "--target", "y", option, file)
    assert (code, out) == (2, "")
    assert err.startswith(f"olsq: another run is writing {file} (process {first.pid}, since ")
    assert err.count("\n") == 1
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
    first.send_signal(signal.SIGKILL)
    first.communicate()
    # The lock has gone with its process, though its file has not.
    assert olsq_command("fit", data, "--target", "y", option, file)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["d.csv", name])


def test_names_that_were_once_taken_from_the_user(tmp_path, olsq_command):
    data, out, victim = tmp_path / "o.csv.part", tmp_path / "o.csv", tmp_path / "victim.txt"
    data.write_text(csv_text(*make_rows(300)))
    victim.write_text("precious")
    before = data.read_bytes()
    (tmp_path / "o.parquet.part").symlink_to(victim)
    for file in (out, tmp_path / "o.parquet"):
        (tmp_path / f"{file.name}.writing").write_text("precious")
        state = tmp_path / f"{file.name}.writing.part"
        assert olsq_command("fit", data, "--target", "y", "--out", file, "--state", state)[0] == 0
        assert state.read_bytes().startswith(b"\x89OLSQ")
        assert (tmp_path / f"{file.name}.writing").read_text() == "precious"
    assert data.read_bytes() == before
    assert victim.read_text() == "precious"
    assert out.read_bytes().startswith(b"row,prediction")


@pytest.mark.full
def test_links_are_kept(tmp_path, olsq_command):
    data, there = tmp_path / "d.csv", tmp_path / "there"
    data.write_text(csv_text(*make_rows(300)))
    there.mkdir()
    options = []
    for option, name in (("--out", "o.csv"), ("--plot", "p.png"), ("--state", "s.olsq")):
        (tmp_path / name).symlink_to(there / name)
        options += [option, tmp_path / name]
    assert olsq_command("fit", data, "--target", "y", *options)[0] == 0
    assert all((tmp_path / name).is_symlink() for name in ("o.csv", "p.png", "s.olsq"))
    assert sorted(os.listdir(there)) == ["o.csv", "p.png", "s.olsq"]


def test_a_lock_that_is_the_data(tmp_path, olsq_command):
    data = tmp_path / ".o.csv.olsq-lock"
    data.write_text(csv_text(*make_rows(300)))
    code, _, err = olsq_command("fit", data, "--target", "y", "--out", tmp_path / "o.csv")
    assert code == 2
    assert "the data is the lock file of --out" in err


def test_the_demo_does_not_write_a_figure_that_another_run_writes(tmp_path, olsq_command):
    figure = tmp_path / "p.png"
    with locked(figure):
        code, out, err = olsq_command("demo", "--out", figure)
    assert (code, out) == (2, "")
    assert err.startswith(f"olsq: another run is writing {figure} (process {os.getpid()}, since ")
    assert not figure.exists()
