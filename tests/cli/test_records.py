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

    def readinto(self, buffer):
        self._turn += 1
        return self._stream.readinto(buffer[: self._sizes[self._turn % len(self._sizes)]])


def take(reader, n, most_chunks=1):
    """The next block as bytes and the number of its records, which end where it says."""
    block, ends = reader.take(n, most_chunks)
    block = bytes(block)
    assert [block[end - 1 : end] for end in ends[:-1]] == [b"\n"] * (len(ends) - 1)
    assert (int(ends[-1]) if len(ends) else 0) == len(block)
    return block, len(ends)


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
    while (block := take(reader, n))[1]:
        blocks.append(block)
    assert b"".join(block for block, _ in blocks) == data
    assert [count for _, count in blocks[:-1]] == [n] * (len(blocks) - 1)
    parsed = [list(csv.reader(io.StringIO(block.decode(), newline=""))) for block, _ in blocks]
    assert [len(part) for part in parsed] == [count for _, count in blocks]
    assert [row for part in parsed for row in part] == rows


@given(
    n_records=st.integers(1, 40), n=st.integers(1, 5), most=st.integers(1, 6),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
)  # fmt: skip
def test_several_chunks_at_a_time_cut_where_single_ones_do(n_records, n, most, sizes):
    data = b"".join(b"%d,%s\n" % (k, b"x" * (k % 5)) for k in range(n_records))
    reader, counts, taken = RecordReader(Dribble(data, sizes)), [], b""
    while (block := take(reader, n, most))[1]:
        taken += block[0]
        counts.append(block[1])
    assert taken == data
    assert all(count % n == 0 and count <= n * most for count in counts[:-1])


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), limit=st.integers(8, 40))
def test_long_rows_shorten_blocks_the_same_way_however_they_arrive(sizes, limit):
    data = b"".join(b"%d,%s\n" % (k, b"x" * (k % 5)) for k in range(40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK_BYTES", limit)
        patch.setattr(records, "READ_BYTES", 16)
        reader, expected = RecordReader(Dribble(data, sizes)), RecordReader(io.BytesIO(data))
        while (block := take(expected, 6))[1]:
            assert len(block[0]) <= limit
            assert take(reader, 6) == block
        assert take(reader, 6) == (b"", 0)


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
    assert take(reader, 5) == (b"3,4\n5,6\n", 2)
    assert reader.exhausted()
    assert reader.take_bytes(4) == b""
