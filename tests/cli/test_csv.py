"""Rows and cells of CSV are those of the csv module, however the bytes arrive."""

import csv
import io
import os
import re
import sys
import threading

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import olsq
from olsq.cli import progress
from olsq.cli.errors import InputError
from olsq.cli.sources import csv as csv_source
from olsq.cli.sources import streams
from olsq.cli.sources.columns import Reading
from olsq.cli.sources.csv import CsvSource
from olsq.cli.sources.opening import open_source
from olsq.cli.sources.source import default_chunk_rows

READING = Reading(targets=("a",), features=("b",))


class Dribble(io.RawIOBase):
    """A stream that hands out bytes in pieces of the given sizes, over and over."""

    def __init__(self, data, sizes):
        self._stream, self._sizes, self._turn = io.BytesIO(data), sizes, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        self._turn += 1
        return self._stream.readinto(buffer[: self._sizes[self._turn % len(self._sizes)]])


def read_rows(data, sizes, start=0, reading=READING):
    """Cells of standard input that gives bytes in pieces, after some rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Dribble(data, sizes))))
        frames = list(CsvSource(None, reading).read_cells(start))
    return pl.concat(frames).rows() if frames else []


cell = st.text(alphabet='a1,"\n é', max_size=6)
table = st.lists(st.tuples(cell, cell), max_size=12)


@pytest.mark.full
@given(
    rows=table,
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    ended=st.booleans(),
    start=st.integers(0, 5),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_cells_are_those_that_were_written(rows, sizes, ended, start, quoting):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=quoting).writerows([("b", "a"), *rows])
    data = text.getvalue().encode()
    if not ended:
        data = data.removesuffix(b"\n")
    assert read_rows(data, sizes, min(start, len(rows))) == rows[start:]


@pytest.mark.parametrize("skipped", [0, 1, 2])
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("from_file", [True, False])
def test_rows_are_skipped_up_to_a_last_line_without_an_end(skipped, ended, from_file, tmp_path):
    data = b"b,a\n1,2\n3,4" + b"\n" * ended
    if from_file:
        (tmp_path / "d.csv").write_bytes(data)
        source = CsvSource(tmp_path / "d.csv", READING)
        found = pl.concat(list(source.read_cells(skipped))).rows()
        source.close()
    else:
        found = read_rows(data, [4, 3], skipped)
    assert found == [("1", "2"), ("3", "4")][skipped:]


@pytest.mark.parametrize("seed", range(20))
def test_marks_inside_cells_are_letters(seed):
    """A quotation mark means something at the beginning of a cell only."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(['6" tall', 'a"', '"q, ""r"""', '"two\nlines"', "", 'x""y'], (30, 2))
    text = "b,a\n" + "\n".join(map(",".join, cells)) + "\n"
    expected = [tuple(row) for row in csv.reader(io.StringIO(text, newline=""))][1:]
    sizes = [int(size) for size in rng.integers(1, 40, 3)]
    assert read_rows(text.encode(), [len(text)]) == expected
    if not cells[0, 0].count('"') % 2:
        assert len(read_rows(text.encode(), [*sizes, 1 << 20])) == len(expected)


@pytest.mark.parametrize("column", ["first", "last", "unused"])
@pytest.mark.parametrize("row", [1, 5, 9])
@pytest.mark.parametrize("ended", [True, False])
def test_an_open_quotation_mark_is_refused(column, row, ended):
    lines = ["a,b,c", *["1,2,x"] * 9]
    lines[row] = {"first": '"1,2,x', "last": '1,2,"x', "unused": '1,2,"x'}[column]
    reading = READING if column != "last" else Reading(targets=("a",), features=("b", "c"))
    data = ("\n".join(lines) + "\n" * ended).encode()
    with pytest.raises(InputError, match="a quotation mark is left open"):
        read_rows(data, [len(data)], reading=reading)


@pytest.mark.parametrize("name", ['6" pipe', '"two\nlines"', '"a ""b"", c"', 'x "y"'])
def test_names_are_those_of_the_csv_module(name, tmp_path):
    text = f"b,{name},a\n1,2,3\n4,5,6\n"
    (tmp_path / "d.csv").write_text(text)
    with CsvSource(tmp_path / "d.csv", READING) as source:
        assert source.header == next(csv.reader(io.StringIO(text, newline="")))
        assert sum(len(chunk.y) for chunk in source.chunks()) == 2
    (tmp_path / "d.csv").write_text('b,"name,a\n' + "1,2,3\n" * 50_000)
    with pytest.raises(InputError, match="leaves a quotation mark open"):
        CsvSource(tmp_path / "d.csv", READING)


@pytest.mark.parametrize("name", ["a;b;c", "a|b|c|d", "1\t2\t3", 'x "";;;"" y'])
def test_separators_in_quoted_names_separate_nothing(name, tmp_path):
    (tmp_path / "d.csv").write_text(f'b,"{name}",a\n1,2,3\n')
    with CsvSource(tmp_path / "d.csv", READING) as source:
        assert source.separator == ","
        assert source.header == ["b", name.replace('""', '"'), "a"]


@pytest.mark.parametrize("row", [b'"' + b"x,\n" * 100, b"x" * 300])
def test_one_endless_row_is_refused(row, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_source, "BLOCK_BYTES", 64)
    monkeypatch.setattr(csv_source, "LONGEST_ROW", 200)
    monkeypatch.setattr(streams, "LONGEST_LINE", 200)
    (tmp_path / "d.csv").write_bytes(b"a,b\n1,2\n" + row + b"\n1,2\n" * 20)
    refused = pytest.raises(InputError, match="left open, or a row is longer than")
    with CsvSource(tmp_path / "d.csv", READING) as source, refused:
        list(source.chunks())


@pytest.mark.parametrize("block", [1, 7, 64])
def test_rows_may_be_longer_than_blocks(block, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_source, "BLOCK_BYTES", block)
    long = '"' + "x\n" * 100 + '"'
    (tmp_path / "d.csv").write_text(f"b,a\n1,2\n{long},3\n4,5")
    with CsvSource(tmp_path / "d.csv", READING) as source:
        source._block_bytes = block
        found = pl.concat(list(source.read_cells(0))).rows()
    assert found == [("1", "2"), ("x\n" * 100, "3"), ("4", "5")]


def test_blank_lines_are_rows_without_values():
    assert read_rows(b"a,b\n1,2\n\n3,4\n\n", [100]) == [("2", "1"), ("", ""), ("4", "3"), ("", "")]
    assert read_rows(b"a,b\n1,2\n\n3,4\n\n", [100], start=2) == [("4", "3"), ("", "")]


def test_rows_of_a_pipe_that_stays_open_come_at_once(monkeypatch):
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
        os.write(write, b"a,b\n1,2\n3,4\n5,6\n")
        with CsvSource(None, READING) as source:
            cells = source.read_cells(0)
            assert next(cells).rows() == [("2", "1"), ("4", "3"), ("6", "5")]
            threading.Timer(0.2, os.write, (write, b"7,8\n")).start()
            assert next(cells).rows() == [("8", "7")]
            os.write(write, b"9,10,11\n")  # refused before another row comes
            with pytest.raises(InputError, match="row 5 of standard input has 3 cells"):
                next(cells)
    os.close(write)


@pytest.mark.full
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("seed", range(5))
def test_resuming_counts_rows(end, seed, tmp_path):
    """Blank lines and quoted line ends before the place do not move it."""
    rng = np.random.default_rng(seed)
    kinds = ["1.5,2,x", '"2",3,"two\nlines"', "", '3,"4",6" by 7" tall']
    text = end.join(["a,b,c", *rng.choice(kinds, 200)]) + end
    (tmp_path / "d.csv").write_bytes(text.encode())
    reading = Reading(targets=("a",), features=("b",), chunk_rows=7)
    with CsvSource(tmp_path / "d.csv", reading) as whole:
        chunks = list(whole.chunks())
    for trusted in (True, False):
        with CsvSource(tmp_path / "d.csv", reading) as source:
            first = source.chunks()
            for _ in range(5):
                next(first)
            position = source.position()
        with CsvSource(tmp_path / "d.csv", reading) as source:
            assert source.skip_to(position, trusted=trusted)
            rest = list(source.chunks())
            assert source.position() == whole.position()
        assert len(rest) == len(chunks) - 5
        for one, other in zip(rest, chunks[5:], strict=True):
            np.testing.assert_array_equal(one.X, other.X)
            assert one.start == other.start


def rows_in_groups(path, groups, n=40_000):
    rng = np.random.default_rng(0)
    frame = {"g": np.arange(n) % groups, "x": rng.random(n), "y": rng.random(n)}
    frame = pl.DataFrame(frame).with_columns(z=pl.col("x") + 1)
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return path


@pytest.mark.full
@pytest.mark.parametrize("end", [".csv", ".parquet"])
@pytest.mark.parametrize(("groups", "rows"), [(5, 16_384), (200, 16_384), (600, 65_536)])
def test_chunks_of_many_groups_are_larger(groups, rows, end, tmp_path):
    path = rows_in_groups(tmp_path / f"d{end}", groups, 70_000)
    reading = Reading(targets=("y",), by="g")
    with open_source(str(path), reading) as source:
        assert source.chunk_rows == 16_384
        sizes = [len(chunk.y) for chunk in source.chunks()]
        assert (sizes[0], sum(sizes)) == (rows, 70_000)
        position = source.position()
    with open_source(str(path), reading) as again:
        again.chunk_rows = rows
        assert again.skip_to(position, trusted=False)
    with open_source(str(path), Reading(targets=("y",), by="g", chunk_rows=9000)) as source:
        assert len(next(source.chunks()).y) == 9000


def test_chunks_hold_no_more_than_memory_does():
    assert default_chunk_rows(3) == default_chunk_rows(3, 100) == 16_384
    assert default_chunk_rows(4, 1500) == 131_072
    assert default_chunk_rows(4, 10**7) == 262_144
    assert default_chunk_rows(1000, 10**7) == 4096
    assert default_chunk_rows(10**6, 10**7) == 64


def test_a_log_has_a_line_now_and_then(tmp_path, olsq_command, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    path = rows_in_groups(tmp_path / "d.csv", 5)
    state = tmp_path / "s.olsq"
    options = ("--target", "y", "--exclude", "z", "--chunk-rows", 10_000, "--state", state)
    code, _, err = olsq_command("fit", path, *options)
    assert code == 0
    lines = err.splitlines()
    assert len(lines) == 3
    assert re.fullmatch(r"olsq: 30,000 rows, \d+% of the input read, [\d,]+ rows/s", lines[1])
    _, _, err = olsq_command("predict", state, path, "--out", tmp_path / "p.csv")
    assert "olsq: 40,000 rows, 100% of the input read" in err


def test_states_of_earlier_versions_resume_where_nothing_has_changed(tmp_path, olsq_command):
    """Their position was one in the bytes of the file."""
    path, state = rows_in_groups(tmp_path / "d.csv", 5, 500), tmp_path / "s.olsq"
    options = ("--target", "y", "--exclude", "z", "--state", state)
    assert olsq_command("fit", path, *options)[0] == 0
    estimator = olsq.load(state)
    notes = estimator.metadata_
    notes["olsq fit"]["position"] |= {"bytes": path.stat().st_size, "crc": 1}
    estimator.save(state, metadata=notes)
    code, out, _ = olsq_command("fit", path, *options, "--resume")
    assert code == 0
    assert "500 rows learned" in out
    estimator.save(state, metadata=notes)
    path.write_text(path.read_text() + "1,2,3,4\n")
    code, _, err = olsq_command("fit", path, *options, "--resume")
    assert code == 2
    assert "an earlier version of olsq wrote" in err
    assert "--continue learns new rows" in err
