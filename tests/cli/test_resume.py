"""Stopping anywhere, even by kill -9, and going on ends with the same bytes."""

import itertools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

import olsq
from olsq.cli.sources.csv import CsvSource
from tests.tiers import nightly

from .conftest import csv_text, environment, make_rows, start

OPTIONS = ("--target", "y", "--forget", "0.99", "--chunk-rows", "100", "--checkpoint-every", "0")
PATIENCE = 120.0  # seconds; the first run in a fresh environment compiles the kernels


def outputs(folder, suffix):
    return [
        "--state", folder / "s.olsq", "--out", folder / f"o{suffix}", "--plot", folder / "p.png",
    ]  # fmt: skip


def results(folder, suffix):
    return (folder / "s.olsq").read_bytes(), (folder / f"o{suffix}").read_bytes()


def rows_in(state):
    return olsq.load(state).metadata_["olsq fit"]["position"]["rows"]


def wait_for_rows(process, state, rows):
    """Wait until the checkpoint has at least ``rows`` rows."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if state.exists() and rows_in(state) >= rows:
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    raise AssertionError("no checkpoint in time")


@pytest.fixture(scope="module", params=[".csv", ".parquet"])
def uninterrupted(request, tmp_path_factory):
    """A run from beginning to end: (data file, suffix of --out, its results)."""
    data = tmp_path_factory.mktemp("uninterrupted") / "data.csv"
    folder = data.parent / "whole"
    folder.mkdir()
    data.write_text(csv_text(*make_rows()))
    # In a process of its own, as the runs that it is compared with.
    process = start("fit", data, *OPTIONS, *outputs(folder, request.param))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return data, request.param, results(folder, request.param)


@pytest.fixture
def whole(uninterrupted, tmp_path):
    """The same, and a folder for another run."""
    folder = tmp_path / "parts"
    folder.mkdir()
    return *uninterrupted, folder


def stopped_through_a_pipe(whole, signum, rows=700):
    """Feed part of the data through a pipe that stays open, then send the signal."""
    data, suffix, _, folder = whole
    process = start("fit", "-", *OPTIONS, *outputs(folder, suffix), stdin=-1)
    lines = data.read_bytes().splitlines(keepends=True)
    process.stdin.write(b"".join(lines[: rows + 51]))
    process.stdin.flush()
    wait_for_rows(process, folder / "s.olsq", rows)
    process.send_signal(signum)
    try:
        code = process.wait(PATIENCE)
        return code, process.stdout.read().decode(), process.stderr.read().decode()
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def resume_from_pipe(whole):
    data, suffix, _, folder = whole
    with data.open("rb") as stdin:
        process = start("fit", "-", *OPTIONS, *outputs(folder, suffix), "--resume", stdin=stdin)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out.decode()


QUICK = pytest.mark.parametrize(  # parquet is killed, text is asked to stop
    "uninterrupted", [".csv", pytest.param(".parquet", marks=pytest.mark.slow)], indirect=True
)
LATER = pytest.mark.parametrize(
    "uninterrupted", [pytest.param(".csv", marks=pytest.mark.slow), ".parquet"], indirect=True
)


@pytest.mark.full
@QUICK
@pytest.mark.parametrize(
    "signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_signal_saves_and_tells_how_to_go_on(whole, signum):
    _, suffix, (_, expected), folder = whole
    code, out, err = stopped_through_a_pipe(whole, signum)
    assert code == 128 + signum
    assert out == ""
    assert err.startswith("olsq: stopped after row 700; go on with: olsq fit - ")
    assert err.rstrip().endswith("--resume")
    assert err.count("\n") == 1
    assert not (folder / f"o{suffix}").exists()
    resume_from_pipe(whole)
    assert results(folder, suffix)[1] == expected
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["s.olsq", f"o{suffix}", "p.png"]
    )


@pytest.mark.full
@LATER
def test_kill_in_the_middle_of_a_write(whole):
    _, suffix, (_, expected), folder = whole
    code, _, _ = stopped_through_a_pipe(whole, signal.SIGKILL)
    assert code == -signal.SIGKILL
    (part,) = folder.glob(f".o{suffix}.*.part")
    with part.open("ab") as part:
        part.write(b"801,0.5,half a r")
    resume_from_pipe(whole)
    assert results(folder, suffix)[1] == expected


# Kills at chance places; the one in the middle of a write, above, is in `pytest --all`.
@pytest.mark.parametrize("uninterrupted", nightly([".csv", ".parquet"]), indirect=True)
def test_killed_again_and_again_ends_with_the_same_bytes(whole):
    data, suffix, expected, folder = whole
    pauses = itertools.cycle([0.0, 0.03, 0.11, 0.07, 0.2])
    kills = 0
    for turn in range(60):
        before = rows_in(folder / "s.olsq") if turn and (folder / "s.olsq").exists() else 0
        process = start("fit", data, *OPTIONS, *outputs(folder, suffix), "--resume")
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end and kills < 4:
            if (folder / "s.olsq").exists() and rows_in(folder / "s.olsq") > before:
                time.sleep(next(pauses))
                process.kill()
                kills += process.wait() == -signal.SIGKILL
                break
            time.sleep(0.005)
        _, err = process.communicate(timeout=PATIENCE)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, err
    assert kills, "never caught it alive"
    assert results(folder, suffix) == expected


@pytest.mark.full
def test_finished_run_resumed_changes_nothing(whole, olsq_command):
    data, suffix, expected, _ = whole
    folder = data.parent / "whole"
    code, text, _ = olsq_command("fit", data, *OPTIONS, *outputs(folder, suffix), "--resume")
    assert code == 0
    assert "rows learned" in text
    assert results(folder, suffix) == expected


@pytest.mark.full
def test_rows_appended_later_are_learned_on_resume(whole, olsq_command):
    data, suffix, (_, expected), folder = whole
    lines = data.read_bytes().splitlines(keepends=True)
    grown = data.parent / "grown.csv"
    grown.write_bytes(b"".join(lines[:1001]))
    arguments = ("fit", grown, *OPTIONS, *outputs(folder, suffix), "--resume")
    assert olsq_command(*arguments)[0] == 0
    with grown.open("ab") as file:
        file.write(b"".join(lines[1001:]))
    assert olsq_command(*arguments)[0] == 0
    assert (folder / f"o{suffix}").read_bytes() == expected


@pytest.mark.slow
def test_parquet_input_resumes_too(whole, olsq_command):
    data, suffix, (_, expected), folder = whole
    table = folder / "data.parquet"
    pl.read_csv(data, schema_overrides=dict.fromkeys("abcy", pl.Float64)).write_parquet(table)
    process = start("fit", table, *OPTIONS, *outputs(folder, suffix))
    wait_for_rows(process, folder / "s.olsq", 300)
    process.kill()
    process.communicate()
    os.utime(table, ns=(1, 1))  # looks modified: what was read is read again and compared
    code, _, err = olsq_command("fit", table, *OPTIONS, *outputs(folder, suffix), "--resume")
    assert code == 0, err
    assert (folder / f"o{suffix}").read_bytes() == expected


@pytest.mark.full
def test_signal_between_reading_and_learning_a_chunk(whole, olsq_command, monkeypatch):
    data, suffix, expected, folder = whole
    chunks = CsvSource.chunks

    def interrupted(source):
        for number, chunk in enumerate(chunks(source)):
            if number == 4:
                signal.raise_signal(signal.SIGINT)
            yield chunk

    arguments = ("fit", data, *OPTIONS, *outputs(folder, suffix), "--resume")
    with monkeypatch.context() as patch:
        patch.setattr(CsvSource, "chunks", interrupted)
        code, _, err = olsq_command(*arguments)
    assert code == 130
    assert "stopped after row 400;" in err
    assert rows_in(folder / "s.olsq") == 400
    assert olsq_command(*arguments)[0] == 0
    assert results(folder, suffix) == expected


@pytest.mark.full
def test_interrupt_without_state_says_that_nothing_was_saved(tmp_path):
    X, y = make_rows(300)
    process = start("fit", "-", "--target", "y", "--out", tmp_path / "o.csv", stdin=-1)
    process.stdin.write(csv_text(X, y).encode())
    process.stdin.flush()
    end = time.monotonic() + PATIENCE
    while not list(tmp_path.glob(".o.csv.*.tmp")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    code = process.wait(PATIENCE)
    err = process.stderr.read().decode()
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()
    assert code == 130
    assert "nothing was saved (--state FILE saves)" in err
    assert not list(tmp_path.iterdir())


INTERRUPTED = """
import signal
from olsq.cli import main
from olsq.cli.sources.csv import CsvSource

def chunks(source):
    exec("signal.raise_signal(signal.SIGINT)")
    yield

CsvSource.chunks = chunks
main(["fit", "data.csv", "--target", "y"])
"""


def test_interrupt_within_an_exec_ends_with_its_exit_code(tmp_path):
    """CPython marks such an interrupt as not caught, and ``python -m`` ended by the signal."""
    (tmp_path / "data.csv").write_text(csv_text(*make_rows(300)))
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, env=environment(), capture_output=True
    )
    assert done.returncode == 130, done.stderr
    assert b"stopped after row 0" in done.stderr


def test_a_state_keeps_the_ridge_it_began_with(tmp_path, olsq_command):
    """Version 0.2.0 had a ridge of 1e-3 by default; its states go on with it."""
    table = pl.DataFrame({"a": [1e-3, 2e-3, 5e-3, 4e-3] * 5, "y": [1.0, 0.0, 3.0, 2.0] * 5})
    table[:10].write_csv(tmp_path / "first.csv")
    table.write_csv(tmp_path / "all.csv")
    options = ("--target", "y", "--state", tmp_path / "s.olsq")
    first = olsq_command("fit", tmp_path / "first.csv", *options, "--ridge", "1e-3")
    resumed = olsq_command("fit", tmp_path / "all.csv", *options, "--resume")
    assert (first[0], resumed[0]) == (0, 0), resumed
    whole = olsq.RecursiveLeastSquares(ridge=1e-3).fit(table[["a"]].to_numpy(), table["y"])
    again = olsq.load(tmp_path / "s.olsq")
    assert again.ridge == 1e-3
    np.testing.assert_allclose(again.coef_, whole.coef_, rtol=1e-12)


class TestRefusals:
    @pytest.fixture
    def stopped(self, tmp_path, table, olsq_command):
        """A state that has seen the first 1000 rows of data.csv."""
        data, _, _ = table
        lines = data.read_bytes().splitlines(keepends=True)
        data.write_bytes(b"".join(lines[:1001]))
        state = tmp_path / "s.olsq"
        arguments = ["fit", data, *OPTIONS, "--state", state, "--out", tmp_path / "o.csv"]
        assert olsq_command(*arguments)[0] == 0
        data.write_bytes(b"".join(lines))
        return data, arguments

    def refused(self, olsq_command, arguments, message):
        code, out, err = olsq_command(*arguments, "--resume")
        assert code == 2
        assert out == ""
        assert err.count("\n") == 1
        assert message in err

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (("--forget", "0.98"), "--forget was 0.99 and is 0.98"),
            (("--ridge", "1"), "--ridge was 0.0 and is 1.0"),
            (("--features", "a,b"), "--features was not given and is a,b"),
            (("--no-intercept",), "--no-intercept was not given and is given"),
            (("--chunk-rows", "50"), "--chunk-rows was 100 and is 50"),
            (("--target", "a"), "--target was y and is y,a"),
            (("--plot", "p.png"), "--plot was not given and is given"),
        ],
    )
    def test_other_options(self, change, message, stopped, olsq_command):
        self.refused(olsq_command, [*stopped[1], *change], f"cannot resume: {message}")

    def test_a_changed_cell(self, stopped, olsq_command):
        data, arguments = stopped
        text = data.read_bytes()
        place = text.index(b"\n") + 3
        data.write_bytes(
            text[:place] + (b"7" if text[place] != ord("7") else b"8") + text[place + 1 :]
        )
        self.refused(olsq_command, arguments, "the first 1,000 rows of")

    def test_other_columns(self, stopped, olsq_command):
        data, arguments = stopped
        data.write_bytes(data.read_bytes().replace(b"a,b,c,y", b"a,b,d,y", 1))
        self.refused(olsq_command, arguments, "the columns of")

    def test_a_shorter_file(self, stopped, olsq_command):
        data, arguments = stopped
        data.write_bytes(data.read_bytes()[:5000])
        self.refused(olsq_command, arguments, "the first 1,000 rows of")

    def test_last_row_that_grew(self, stopped, olsq_command):
        data, arguments = stopped
        state, out = arguments[-3], arguments[-1]
        state.unlink()
        out.unlink()
        text = data.read_bytes()
        end = text.index(b"\n", 9000)
        data.write_bytes(text[: end - 2])
        assert olsq_command(*arguments)[0] == 0
        data.write_bytes(text)
        self.refused(olsq_command, arguments, "are not those the state was made from")

    def test_changed_output(self, stopped, olsq_command, tmp_path):
        out = tmp_path / "o.csv"
        content = out.read_bytes()
        out.write_bytes(b"x" + content[1:])
        self.refused(olsq_command, stopped[1], "is not the file the state describes")
        assert out.read_bytes() == b"x" + content[1:]
        out.unlink()
        self.refused(olsq_command, stopped[1], "o.csv is missing")

    def test_damaged_state(self, stopped, olsq_command, tmp_path):
        state = tmp_path / "s.olsq"
        content = state.read_bytes()
        state.write_bytes(content[:-100])
        self.refused(olsq_command, stopped[1], "s.olsq is truncated or damaged")

    def test_state_of_another_program(self, stopped, olsq_command, tmp_path):
        estimator = olsq.RecursiveLeastSquares().partial_fit(np.eye(2), [1.0, 2.0])
        estimator.save(tmp_path / "s.olsq")
        self.refused(olsq_command, stopped[1], "was not written by olsq fit")
        for notes in (3, [], {}, {"version": 1}):
            estimator.save(tmp_path / "s.olsq", metadata={"olsq fit": notes})
            self.refused(olsq_command, stopped[1], "not the notes that olsq fit writes")

    def test_without_resume_an_existing_state_is_not_overwritten(self, stopped, olsq_command):
        code, _, err = olsq_command(*stopped[1])
        assert code == 2
        assert "exists: add --resume to go on in the same table, --continue to" in err
