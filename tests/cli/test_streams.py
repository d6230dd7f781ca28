"""Pipes in and out, signals at any time, very wide tables, and names that are not harmless."""

import gzip
import io
import os
import shlex
import signal
import subprocess
import threading
import time

import polars as pl
import pytest

from olsq.cli.fit import size
from tests.cli.conftest import command, environment, start

TEXT = "x,y\n" + "".join(f"{t % 7},{t % 5}\n" for t in range(50))


def wide(path, columns, rows=4):
    names = ",".join(f"x{j}" for j in range(columns))
    lines = (f"{t % 3}," + ",".join(["1", "2", "4", "7"][t % 4] * columns) for t in range(rows))
    path.write_text(f"y,{names}\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("columns", [20_000, 100_000])
def test_wide_tables_answer_in_seconds(columns, tmp_path, olsq_command, monkeypatch):
    monkeypatch.setattr(size, "free_memory", lambda: 8 << 30)
    path = wide(tmp_path / "wide.csv", columns)
    begun = time.process_time()  # what other processes take does not count
    code, _, err = olsq_command("fit", path, "--target", "y")
    assert code == 2
    assert err.count("\n") == 1
    assert f"{columns + 1:,} coefficients take about" in err
    assert "8.6 GB are free: choose fewer columns" in err
    code, out, _ = olsq_command("fit", path, "--target", "y", "--features", "x1", "--ridge", "1")
    assert code == 0
    assert "x1" in out
    assert time.process_time() - begun < 20  # three seconds; a search for each column takes minutes


def test_many_coefficients_get_a_word(table, olsq_command, monkeypatch):
    monkeypatch.setattr(size, "WORTH_A_WORD", 1)
    code, _, err = olsq_command("fit", table[0], "--target", "y")
    assert code == 0
    assert "4 coefficients take about" in err
    monkeypatch.setattr(size, "free_memory", lambda: None)
    assert olsq_command("fit", table[0], "--target", "y")[0] == 0


def test_free_memory_is_the_containers_where_that_is_less(tmp_path, monkeypatch):
    monkeypatch.setattr(size, "MEMORY_INFO", tmp_path / "meminfo")
    monkeypatch.setattr(size, "CGROUP", tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 4000 kB\n")
    assert size.free_memory() == 4_096_000
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert size.free_memory() == 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert size.free_memory() == 4_096_000


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_named_pipes_and_process_substitution_are_read(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text(TEXT)
    want = olsq_command("fit", tmp_path / "d.csv", "--target", "y")[1]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = start("fit", pipe, "--target", "y")
    pipe.write_text(TEXT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    lines = [line.split() for line in want.splitlines()]
    assert [line.split() for line in out.decode().splitlines()][1:4] == lines[1:4]
    read, write = os.pipe()
    process = start("fit", f"/dev/fd/{read}", "--target", "y", pass_fds=[read])
    os.close(read)
    os.write(write, TEXT.encode())
    os.close(write)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


@pytest.fixture
def fitted(tmp_path, olsq_command):
    """A state and a table whose predictions are more than a pipe holds."""
    (tmp_path / "d.csv").write_text("x,y\n" + TEXT[4:] * 400)
    assert (
        olsq_command("fit", tmp_path / "d.csv", "--target", "y", "--state", tmp_path / "s")[0] == 0
    )
    return tmp_path / "s", tmp_path / "d.csv"


@pytest.mark.full
def test_a_reader_that_has_had_enough_is_no_error(fitted):
    process = start("predict", *fitted)
    assert process.stdout.readline() == b"row,prediction\n"
    process.stdout.close()
    with process:
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", ["predict", "fit"])
def test_a_full_disk_behind_standard_output_is_one_line(arguments, fitted):
    asked = ["predict", *fitted] if arguments == "predict" else ["fit", fitted[1], "--target", "y"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(*asked), env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr == b"olsq: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("seconds", [0.1, 0.4])
def test_a_signal_while_it_starts_is_one_line(seconds, fitted):
    process = start("predict", *fitted)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    if process.returncode != 0:  # a quick machine may be done by then
        # Before the interpreter has come to olsq, the signal is Python's own to answer: with 1
        # while it imports `site` or `runpy`.
        assert process.returncode in (130, -signal.SIGINT) or b"olsq/" not in err
    assert b"Traceback" not in err or b"olsq/cli" not in err


def test_names_cannot_write_to_the_terminal(tmp_path, olsq_command):
    path = tmp_path / "d.csv"
    path.write_text(TEXT.replace("x,", "x\x1b[31m,", 1))
    code, out, err = olsq_command("fit", path, "--target", "y")
    assert (code, err) == (0, "")
    assert "x\\x1b[31m" in out
    assert "\x1b" not in out
    assert "\x1b" not in olsq_command("fit", path, "--target", "z")[2]


def test_hints_for_thousands_and_a_blank_first_line(tmp_path, olsq_command):
    path = tmp_path / "d.csv"
    path.write_text('x,y\n"1,000",2\n2,3\n')
    code, _, err = olsq_command("fit", path, "--target", "y")
    assert code == 2
    assert "holds '1,000' (write no marks between thousands" in err
    path.write_text("\nx,y\n1,2\n")
    code, _, err = olsq_command("fit", path, "--target", "y")
    assert code == 2
    assert "the first line of" in err
    assert "is blank" in err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_a_pipe_cannot_hold_is_named(tmp_path, olsq_command):
    table = pl.DataFrame({"a": [1.0, 2.0, 4.0], "y": [1.0, 2.0, 3.0]})
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    texts = {
        buffer.getvalue(): "is Parquet, which is read from a file, not from a pipe",
        gzip.compress(table.write_csv().encode()): "is compressed with gzip: decompress it",
    }
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for content, message in texts.items():
        writer = threading.Thread(target=pipe.write_bytes, args=[content])
        writer.start()
        code, _, err = olsq_command("fit", pipe, "--target", "y")
        writer.join()
        assert code == 2
        assert message in err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_state_is_read_from_a_pipe(fitted, olsq_command):
    state, data = fitted
    pipe = state.parent / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[state.read_bytes()])
    writer.start()
    found = olsq_command("predict", pipe, data)
    writer.join()
    assert found == olsq_command("predict", state, data)
    assert found[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_the_shell_has_closed(closed, fitted):
    """Their numbers go to no file of the run, and an output that is needed fails in one line."""
    state, data = fitted
    out = data.parent / "o.csv"
    line = shlex.join(command("predict", state, data, "--out", out))
    done = subprocess.run(["sh", "-c", f"{line} {closed}"], capture_output=True, env=environment())
    assert (done.returncode, done.stderr) == (0, b"")
    assert out.read_bytes().startswith(b"row,prediction\n1,")
    line = shlex.join(command("predict", state, "-" if closed == "<&-" else data))
    done = subprocess.run(["sh", "-c", f"{line} {closed}"], capture_output=True, env=environment())
    assert done.returncode == int(closed != "2>&-")
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") == int(closed in ("<&-", ">&-"))


def test_too_little_memory_is_one_line(table, olsq_command, monkeypatch):
    def fail(*_):
        raise MemoryError("Unable to allocate 89.4 GiB")

    monkeypatch.setattr("olsq.cli.fit.fit.FitRun.learn", fail)
    code, _, err = olsq_command("fit", table[0], "--target", "y")
    assert code == 1
    assert err.startswith("olsq: there is not enough memory: Unable to allocate 89.4 GiB; take")


@pytest.mark.full
@pytest.mark.parametrize("group", [[], ["--by", "g"]])
def test_names_in_figures_are_text(group, tmp_path, olsq_command, recwarn):
    """Neither mathematics nor control characters, of which matplotlib warns on the terminal."""
    data, figure = tmp_path / "d.csv", tmp_path / "p.png"
    name = "$\\foo$\x1b[2J\t"
    rows = [f"{i % 4},{i * i % 7},{'ab'[i % 2]}{name}" for i in range(30)]
    data.write_text("\n".join([f"{name},y$^$,g", *rows]))
    exclude = [] if group else ["--exclude", "g"]
    options = ["--target", "y$^$", "--plot", figure, *group, *exclude]
    code, _, err = olsq_command("fit", data, *options)
    assert (code, err) == (0, "")
    assert figure.exists()
    assert not [w for w in recwarn if "Glyph" in str(w.message)]
