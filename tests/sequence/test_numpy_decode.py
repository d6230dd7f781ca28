"""One token of one NumPy stream goes a short way: it ends where the general way does."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.sequence import DecodeState, start_decoding
from olsq.sequence.numpy import decode

D, M = 5, 2


def leaves(state):
    if isinstance(state, DecodeState):
        return [*state.moments, *state[1:]]
    return list(state)


def generally(state, key, value, gate, weight):
    """The same update by the general way, which arrays as gates take."""
    return olsq.update(state, key, value, forget=np.array(gate), weight=np.array(weight))


@pytest.mark.full
@pytest.mark.parametrize("carried", [True, False], ids=["carried", "moments"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_both_ways_agree_token_by_token(dtype, carried):
    rng = np.random.default_rng(0)
    state = olsq.Moments(np.eye(D, dtype=dtype), np.zeros((M, D), dtype))
    short = general = start_decoding(state, ridge=0.5) if carried else state
    for t in range(80):  # past two refreshes by age, and those after gates of .2
        k, v, q = (rng.normal(size=n).astype(dtype) for n in (D, M, D))
        gate, weight = (0.2, 1.0) if t % 17 == 3 else (0.97, float(t % 5 != 0))
        before = [np.copy(x) for x in leaves(short)]
        short, old = olsq.update(short, k, v, forget=gate, weight=weight), short
        general = generally(general, k, v, gate, weight)
        for kept, x in zip(before, leaves(old), strict=True):
            np.testing.assert_array_equal(kept, x)  # states are values: the old one is as it was
        for a, b in zip(leaves(short), leaves(general), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=1e-10 if dtype == np.float64 else 1e-4, atol=1e-6)
        if carried:
            ways = olsq.query(short, q), olsq.query(short, q[None])[0]
            np.testing.assert_allclose(*ways, rtol=1e-10 if dtype == np.float64 else 1e-4)
            want = np.linalg.solve(short.moments.gram + 0.5 * np.eye(D), q) @ short.moments.cross.T
            np.testing.assert_allclose(ways[0], want, atol=1e-9 if dtype == np.float64 else 1e-4)


@pytest.mark.parametrize("carried", [True, False], ids=["carried", "moments"])
def test_lost_states_and_absent_samples(carried):
    lost = olsq.Moments(np.full((D, D), np.nan), np.full((M, D), np.nan))
    sound = olsq.Moments(np.eye(D), np.ones((M, D)))
    k, v, nan = np.ones(D), np.ones(M), np.full(D, np.nan)
    for state, key, gate, weight in [(lost, k, 0.0, 1.0), (sound, nan, 0.9, 0.0)]:
        state = start_decoding(state, ridge=1.0) if carried else state
        short = olsq.update(state, key, v, forget=gate, weight=weight)
        general = generally(state, key, v, gate, weight)
        assert all(np.isfinite(x).all() for x in leaves(short))
        for a, b in zip(leaves(short), leaves(general), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_what_is_unusual_goes_the_general_way(monkeypatch):
    taken = []
    monkeypatch.setattr(decode, "_checked", lambda check, x, most: taken.append(x) or np.asarray(x))
    state = olsq.Moments(np.eye(D), np.zeros((M, D)))
    k, v = np.ones(D), np.ones(M)
    olsq.update(state, k, v, forget=0.9)
    assert not taken
    wide = olsq.Moments(np.asfortranarray(np.tri(D)), np.zeros((M, D)))
    for case in (
        (state, k.tolist(), v), (state, k.astype(np.float32), v), (state, np.ones(2 * D)[::2], v),
        (state, k[None], v), (state, k, v[None]), (wide, k, v),
        (olsq.Moments(np.eye(D)[None], np.zeros((1, M, D))), k, v),
    ):  # fmt: skip
        taken.clear()
        olsq.update(*case, forget=0.9)
        assert taken


@pytest.mark.parametrize("bad", [{"forget": 1.5}, {"forget": -0.1}, {"weight": -1.0}])
def test_the_short_way_refuses_too(bad):
    state = olsq.Moments(np.eye(D), np.zeros((M, D)))
    with pytest.raises(ValueError, match=next(iter(bad))):
        olsq.update(state, np.ones(D), np.ones(M), **bad)
    for key, value in (np.ones(D + 1), np.ones(M)), (np.ones(D), np.ones(M + 1)):
        with pytest.raises(ValueError, match=r"key and value must end in \(5,\) and \(2,\)"):
            olsq.update(state, key, value)
    with pytest.raises(ValueError, match=r"query must end in \(5,\)"):
        olsq.query(start_decoding(state, ridge=1.0), np.ones(D + 1))


def test_decoding_starts_from_copies():
    """The caller may go on to use his arrays for something else."""
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(30, 3))
    gram, cross, ridge = keys.T @ keys, rng.normal(size=(2, 3)), np.full(3, 0.5)
    state = olsq.sequence.start_decoding(olsq.Moments(gram, cross), ridge=ridge)
    want = olsq.query(state, keys[0]).copy()
    for x in (gram, cross, ridge):
        x[:] = 7
    np.testing.assert_array_equal(olsq.query(state, keys[0]), want)
    assert not any(np.shares_memory(x, gram) for x in (*state.moments, state.inverse))
