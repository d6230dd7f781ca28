"""Every breaking kind is really drawn, and what fails shrinks to something small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from olsq.testing import KINDS, Stream, gates, regressions, ridges, streams
from olsq.testing.kinds import Breakage, break_stream

SEARCH = settings(max_examples=200, derandomize=True, database=None)
DRAW = settings(SEARCH, phases=[Phase.generate])  # and shrink nothing


def repeats(s):
    rows = {tuple(k) for k in s.keys}
    return len(rows) < len(s.keys) and s.keys.any()


def runs(s):
    return len(s.keys) > 3 and (s.keys[1:] == s.keys[:-1]).all() and s.keys.any()


def collinear(s):
    return s.keys.shape[1] > 1 and np.linalg.matrix_rank(s.keys) == s.keys.shape[1] - 1


BROKEN = {
    "ordinary": lambda s: np.isfinite(s.keys).all() and (s.forget > 0).all(),
    "repeats": repeats,
    "runs": runs,
    "zeros": lambda s: (s.keys == 0).all(1).any() and s.keys.any(),
    "resets": lambda s: (s.forget == 0).any() and (s.forget > 0).any(),
    "tiny": lambda s: (np.abs(s.keys) > 0).any() and np.abs(s.keys[s.keys != 0]).min() < 0.1,
    "huge": lambda s: np.abs(s.keys).max() > 100,
    "collinear": collinear,
    "non-finite": lambda s: not all(np.isfinite(a).all() for a in s[1:4]),
    "dtype mixes": lambda s: len({a.dtype for a in s[1:4]}) > 1,
}


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_breaks_what_it_says(kind):
    stream = find(
        streams([kind], length=(1, 5), features=(1, 2), targets=1), BROKEN[kind], settings=DRAW
    )
    assert stream.kind == kind


def test_a_run_is_from_its_first_token_to_its_last():
    rng, tokens = np.random.default_rng(0), np.isin(np.arange(9), [2, 4, 6])
    stream = Stream("ordinary", *rng.normal(size=(3, 9, 2)), np.ones(9), np.ones(9), np.ones(2))
    broken = break_stream(stream, "runs", Breakage(tokens))
    changed = (broken.keys != stream.keys).all(axis=1)
    assert np.flatnonzero(changed).tolist() == [3, 4, 5, 6]
    assert (broken.keys[2:7] == stream.keys[2]).all()


@pytest.mark.full
def test_all_kinds_are_drawn():
    seen = set()

    @settings(max_examples=120, derandomize=True, database=None)
    @given(streams(length=(1, 3)), regressions(length=(1, 3)))
    def look(stream, regression):
        assert BROKEN[stream.kind] is not None
        seen.update((stream.kind, regression.kind))
        assert stream.keys.shape == stream.queries.shape
        assert regression.sample_weight.any()
        assert len(regression.X) == len(regression.y) == len(regression.forget)

    look()
    assert seen == set(KINDS)


@pytest.mark.full
def test_non_finite_regressions_are_so_where_estimators_look():
    @settings(max_examples=50, derandomize=True, database=None)
    @given(regressions(["non-finite"]))
    def look(r):
        assert not (np.isfinite(r.X).all() and np.isfinite(r.y).all())

    look()


@pytest.mark.slow
def test_what_fails_shrinks_to_a_small_stream():
    stream = find(streams(length=(1, 9)), lambda s: np.abs(s.keys).sum() > 3, settings=SEARCH)
    assert stream.kind == "ordinary"
    assert len(stream.keys) <= 2
    assert np.count_nonzero(stream.keys) <= 2
    assert not stream.values.any()
    assert not stream.queries.any()
    np.testing.assert_array_equal(stream.forget, 1)
    np.testing.assert_array_equal(stream.weight, 1)
    np.testing.assert_array_equal(stream.ridge, 1)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sizes_and_dtypes_are_those_asked_for(dtype):
    kinds = [k for k in KINDS if k != "dtype mixes"]

    @settings(max_examples=30, derandomize=True, database=None)
    @given(streams(kinds, length=5, features=3, targets=2, dtype=dtype))
    def look(s):
        assert [a.shape for a in s[1:]] == [(5, 3), (5, 2), (5, 3), (5,), (5,), (3,)]
        assert {a.dtype for a in s[1:]} == {np.dtype(dtype)}

    look()


@pytest.mark.full
def test_gates_and_ridges():
    @settings(max_examples=100, derandomize=True, database=None)
    @given(gates((2, 5)), gates(4, resets=True), ridges((1, 2), smallest=0.25))
    def look(mild, harsh, ridge):
        assert ((mild > 0) & (mild <= 1)).all()
        assert ((harsh >= 0) & (harsh <= 1)).all()
        assert (ridge >= 0.25).all()

    look()
    assert 0 in find(gates(4, resets=True), lambda g: g.min() == 0, settings=DRAW)


def test_refusals():
    with pytest.raises(ValueError, match="kinds must be some of"):
        find(streams(["odd"]), lambda s: True)
    with pytest.raises(ValueError, match="a size must be at least 1"):
        find(gates((3, 2)), lambda g: True)


def test_streams_can_be_mapped():
    small = streams(length=2, features=1, targets=1)
    lengths = find(st.lists(small, min_size=2, max_size=2), lambda s: True, settings=DRAW)
    assert [len(s.keys) for s in lengths] == [2, 2]
