"""Blocks of whole CSV records, however the bytes arrive."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from olsq.cli.errors import InputError
from olsq.cli.sources import records
from olsq.cli.sources.records import RecordReader


class Dribble:
    """A stream that hands out bytes in pieces of the given sizes, over and over."""

    def __init__(self, data, sizes):
        self._stream, self._sizes, self._turn = io.BytesIO(data), sizes, 0

    def read(self, n):
        self._turn += 1
        return self._stream.read(min(n, self._sizes[self._turn % len(self._sizes)]))


cell = st.text(alphabet='a1,"\n\r é', max_size=6)
table = st.lists(st.lists(cell, min_size=2, max_size=2), max_size=12)


@given(
    rows=table,
    n=st.integers(1, 5),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    ended=st.booleans(),
)
def test_blocks_hold_n_whole_records_and_lose_nothing(rows, n, sizes, ended):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    data = text.getvalue().encode()
    if not ended:
        data = data.removesuffix(b"\n")
    reader, blocks = RecordReader(Dribble(data, sizes)), []
    while (block := reader.take(n))[1]:
        blocks.append(block)
    assert b"".join(block for block, _ in blocks) == data
    assert [count for _, count in blocks[:-1]] == [n] * (len(blocks) - 1)
    parsed = [list(csv.reader(io.StringIO(block.decode(), newline=""))) for block, _ in blocks]
    assert [len(part) for part in parsed] == [count for _, count in blocks]
    assert [row for part in parsed for row in part] == rows


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), limit=st.integers(8, 40))
def test_long_rows_shorten_blocks_the_same_way_however_they_arrive(sizes, limit):
    data = b"".join(b"%d,%s\n" % (k, b"x" * (k % 5)) for k in range(40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK_BYTES", limit)
        patch.setattr(records, "READ_BYTES", 16)
        reader, expected = RecordReader(Dribble(data, sizes)), RecordReader(io.BytesIO(data))
        while (block := expected.take(6))[1]:
            assert len(block[0]) <= limit
            assert reader.take(6) == block
        assert reader.take(6) == (b"", 0)


def test_one_endless_row_is_refused(monkeypatch):
    monkeypatch.setattr(records, "BLOCK_BYTES", 64)
    with pytest.raises(InputError, match="quotation mark left open"):
        RecordReader(io.BytesIO(b"x" * 200 + b"\n1\n")).take(3)


def test_open_quotation_mark_is_refused():
    with pytest.raises(InputError, match="quotation mark is left open"):
        RecordReader(io.BytesIO(b'1,"2\n3,4\n')).take(3)


def test_take_bytes_moves_on():
    reader = RecordReader(io.BytesIO(b"1,2\n3,4\n5,6\n"))
    assert reader.take_bytes(4) == b"1,2\n"
    assert not reader.exhausted()
    assert reader.take(5) == (b"3,4\n5,6\n", 2)
    assert reader.exhausted()
    assert reader.take_bytes(4) == b""
