"""Whole sequences from NumPy arrays: the dense oracle, JAX's answers, and no JAX imported."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest

import olsq
from olsq.reference import sequence as oracle
from tests.sequence.sequence_cases import (
    EPS,
    D,
    M,
    T,
    error,
    exact,
    stack,
    start,
    streams,
    unit,
)
from tests.versions import x64

RNG = np.random.default_rng(4)
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
MODES = pytest.mark.parametrize("mode", ["fixed", "discounted"])
K, Q = unit(RNG.normal(size=(2, 2, 3, 20, D)))
V = RNG.normal(size=(2, 3, 20, M))
UNIQUE = {"resets", "resets in one chunk"}  # discounted: no unique solution after a reset


def everything():
    """All breaking streams of the sequence solvers, in one batch."""
    mild, harsh = streams()
    return {**mild, **harsh}


def call(arrays, mode="fixed", state=None, solve=olsq.online_lstsq, **changes):
    a = {**arrays, **changes}
    kvq = [a.pop(n) for n in ("keys", "values", "queries")]
    if mode == "discounted" and state is not None:
        a.pop("ridge")
    return solve(*kvq, **a, ridge_mode=mode, state=state)


def allowed(dtype, path, base=None):
    """1e-11 or 1e-5, or what conditioning makes of rounding in the precision of the stream."""
    base = base or (1e-11 if dtype == np.float64 else 1e-5)
    return max(base, 30 * np.linalg.cond(path.systems).max() * EPS[dtype])


@pytest.fixture
def double_precision():
    with x64(True):
        yield


@pytest.mark.full
@DTYPES
@MODES
@pytest.mark.parametrize("resumed", [False, True], ids=["new", "state"])
def test_breaking_streams_match_the_oracle(mode, dtype, resumed):
    group = everything()
    arrays = stack(group, dtype)
    state = start(group, dtype, mode) if resumed else None
    fit = call(arrays, mode, state)
    assert isinstance(fit, olsq.Solution)
    assert fit.value.dtype == fit.state.gram.dtype == fit.stats.residual.dtype == dtype
    for i, name in enumerate(group):
        if mode == "discounted" and name in UNIQUE:
            continue
        one = {n: a[i] for n, a in arrays.items()}
        path = exact(one, mode, None if state is None else [s[i] for s in state])
        tol = allowed(dtype, path)
        assert error(fit.value[i], path.value) < tol, name
        assert error(fit.state.gram[i], path.grams[-1]) < 40 * EPS[dtype], name
        assert error(fit.state.cross[i], path.crosses[-1]) < 40 * EPS[dtype], name
        assert fit.stats.residual[i].max() < 10 * tol, name


def long(name, dtype, heads=3, t=700, d=24, m=2):
    """Streams of many chunks: Zipf tokens of 2000, one token, runs of 200, some with resets."""
    rng = np.random.default_rng(6)
    table = rng.normal(size=(2000, d))
    p = 1 / np.arange(1, 2001)
    k = unit(table[rng.choice(2000, (heads, t), p=p / p.sum())] + 0.1 * rng.normal(size=(t, d)))
    if name == "one token":
        k = np.tile(k[:, :1], (1, t, 1))
    if name == "runs":
        k = k[:, np.arange(t) // 200 * 200]
    gates = np.full((heads, t), {"zipf": 0.999, "runs": 0.9999}.get(name, 1.0))
    gates[1, ::97] = 0.0
    gates[2] = 1 - rng.uniform(0, 0.05, t) * (rng.uniform(size=t) < 0.1)
    arrays = {"keys": k, "values": rng.normal(size=(heads, t, m)), "forget": gates}
    arrays |= {"queries": unit(rng.normal(size=(heads, t, d))), "ridge": np.full((heads, d), 0.25)}
    return {n: a.astype(dtype) for n, a in arrays.items()}


@pytest.mark.full
@DTYPES
@pytest.mark.parametrize("name", ["zipf", "one token", "runs"])
def test_streams_of_many_chunks_match_the_oracle(name, dtype):
    arrays = long(name, dtype)
    fit = call(arrays)
    for i in range(3):
        one = {n: a[i] for n, a in arrays.items()}
        path = exact({**one, "weight": 1.0}, "fixed")
        assert error(fit.value[i], path.value) < allowed(dtype, path)
        # what a stream gives does not depend on its neighbours, to the bit
        np.testing.assert_array_equal(call(one).value, fit.value[i])


def spoilt(dtype):
    """Streams with one kind of non-finite input each, and some with a reset after it."""
    group = everything()
    plain = stack({n: group[n] for n in ("plain", "half .9", "zipf .999")}, dtype)
    kinds = [
        ("keys", 9, np.nan),
        ("keys", 9, np.inf),
        ("values", 9, -np.inf),
        ("queries", 9, np.nan),
        ("queries", 9, np.inf),
        ("forget", 9, np.nan),
        ("weight", 9, np.nan),
        ("weight", 9, np.inf),
        ("forget", 9, 0.0),  # and a spoilt sample at the reset itself
        ("weight", 9, 0.0),  # a spoilt sample that does not count
        ("keys", 0, np.nan),
        ("values", T - 1, np.nan),
    ]
    rows = {n: [] for n in plain}
    for kind, (name, at, bad) in enumerate(kinds):
        for reset in (False, True):
            one = {n: a[kind % 3].copy() for n, a in plain.items()}
            one[name][at] = bad
            if bad == 0:
                one["keys"][at], one["values"][at] = np.nan, np.inf
            if reset:
                one["forget"][25] = 0.0
            for n, a in one.items():
                rows[n].append(a)
    return {n: np.stack(a) for n, a in rows.items()}


@pytest.mark.slow
@MODES
def test_non_finite_samples_do_what_they_do_in_jax(double_precision, mode):
    arrays = spoilt(np.float64)
    ours = call(arrays, mode)
    jaxs = call(arrays, mode, solve=olsq.sequence.jax.online_lstsq)
    clear = np.ones((24, T), bool)
    if mode == "discounted":  # just after a reset the fit is unique but ill-conditioned
        since = np.full((24, T), D + 3)
        for t in range(T):
            since[:, t] = np.where(arrays["forget"][:, t] == 0, 1, since[:, t - 1] + 1)
        clear = since > D + 2
    for a, b in zip((ours.value, *ours.state), (jaxs.value, *jaxs.state), strict=True):
        assert type(a) is np.ndarray
        b = np.asarray(b)
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        a, b = (a[clear], b[clear]) if a.shape[1] == T else (a, b)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.nanmax(np.abs(b)))
    single = call(spoilt(np.float32), mode)
    np.testing.assert_array_equal(np.isnan(single.value), np.isnan(ours.value))
    assert np.isnan(ours.value).any(axis=(1, 2)).sum() >= 20
    assert not np.isnan(ours.value[:, :9][np.arange(24) < 20]).any()  # never before


@MODES
def test_without_a_unique_solution_it_is_not_a_number_or_the_smallest(mode):
    k, v, q = K[0, 0], V[0, 0], Q[0, 0]
    gates = np.where(np.arange(20) == 6, 0.0, 0.99)
    fit = olsq.online_lstsq(k, v, q, forget=gates, ridge=0.3, ridge_mode=mode)
    few = (np.arange(20) >= 6) & (np.arange(20) < 6 + D - 1) & (mode == "discounted")
    np.testing.assert_array_equal(np.isnan(fit.value).all(1), few)
    small = olsq.online_lstsq(k, v, q, ridge=0.0, ridge_mode=mode)
    for t in (0, 2, 3, 8):
        coef = np.linalg.lstsq(k[: t + 1], v[: t + 1], rcond=None)[0]
        assert error(small.value[t], q[t] @ coef) < 1e-10


@pytest.mark.parametrize("power", [-100, -27, 27, 60])
@DTYPES
@MODES
def test_outputs_follow_the_scale(mode, dtype, power):
    s = dtype(2.0) ** power
    arrays = stack(streams()[0], dtype)
    one = call(arrays, mode)
    big = {n: arrays[n] * s for n in ("keys", "values", "queries")}
    ridge = arrays["ridge"].astype(np.float64) * np.float64(s) ** 2
    two = call({**arrays, **big, "ridge": ridge}, mode)
    for i in range(len(one.value)):
        path = exact({n: a[i] for n, a in arrays.items()}, mode)
        assert error(two.value[i] / s, one.value[i]) < allowed(dtype, path)


def test_overflow_is_not_a_number_and_never_an_answer():
    huge = call({"keys": K * 1e160, "values": V, "queries": Q, "ridge": 1.0})
    assert np.isnan(huge.value).all()
    assert not np.isfinite(huge.state.gram).all()


@pytest.mark.parametrize(
    "shape", [(), (D,), (3, 1), (2, 3, D), (2, 3, 1, D), (1, 1, 20, D), (2, 3, 20, 1)]
)
def test_ridge_may_be_a_number_per_feature_per_head_or_per_token(shape):
    ridge = RNG.uniform(0.2, 1, shape)
    gates = RNG.uniform(0.9, 1, (3, 1))
    fit = olsq.online_lstsq(K, V, Q, forget=gates, ridge=ridge)
    full = ridge if np.ndim(ridge) == 4 else np.expand_dims(np.broadcast_to(ridge, (2, 3, D)), -2)
    full = np.broadcast_to(full, (2, 3, 20, D))
    for i in np.ndindex(2, 3):
        path = oracle.solve(K[i], V[i], Q[i], forget=gates[i[1]], ridge=full[i])
        assert error(fit.value[i], path.value) < 1e-11


@MODES
def test_lengths_batches_and_widths(mode):
    for length in (0, 1, 2, 15, 16, 17):
        k, v, q = K[..., :length, :], V[..., :length, :], Q[..., :length, :]
        fit = olsq.online_lstsq(k, v, q, forget=0.9, ridge=0.5, ridge_mode=mode)
        assert fit.value.shape == (2, 3, length, M)
        assert fit.stats.steps.shape == fit.stats.residual.shape == (2, 3, length)
        assert fit.stats.steps.dtype == np.int32
        for i in np.ndindex(2, 3):
            path = oracle.solve(k[i], v[i], q[i], forget=0.9, ridge=0.5, ridge_mode=mode)
            assert error(fit.state.gram[i], path.grams[-1]) < 1e-14
            assert length == 0 or error(fit.value[i], path.value) < 1e-12
    none = olsq.online_lstsq(K[:0], V[:0], Q[:0], ridge=0.5, ridge_mode=mode)
    assert none.value.shape == (0, 3, 20, M)
    assert none.state.gram.shape == (0, 3, D, D)
    shared = olsq.online_lstsq(K[0, 0], V, Q, ridge=0.5, ridge_mode=mode)
    spread = olsq.online_lstsq(np.broadcast_to(K[0, 0], K.shape), V, Q, ridge=0.5, ridge_mode=mode)
    np.testing.assert_array_equal(shared.value, spread.value)
    bare = olsq.online_lstsq(K[..., :0], V, Q[..., :0], ridge=0.5, ridge_mode=mode)
    np.testing.assert_array_equal(bare.value, np.zeros_like(V))
    for d, m in ((65, 1), (1, 3), (40, 70)):  # BLAS works in blocks of 64
        k, q = unit(np.random.default_rng(d).normal(size=(2, 90, d)))
        v = np.random.default_rng(m).normal(size=(90, m))
        fit = olsq.online_lstsq(k, v, q, forget=0.98, ridge=0.1, ridge_mode=mode)
        path = oracle.solve(k, v, q, forget=0.98, ridge=0.1, ridge_mode=mode)
        assert error(fit.value, path.value) < 1e-11


def test_arguments_are_left_alone():
    group = everything()
    arrays, state = stack(group), start(group)
    kept = {n: a.copy() for n, a in arrays.items()}, [s.copy() for s in state]
    for a in (*arrays.values(), *state):
        a.setflags(write=False)
    call(arrays, state=state)
    np.testing.assert_equal((arrays, list(state)), kept)


@pytest.mark.slow
@MODES
def test_a_stream_may_be_cut_anywhere_and_go_on_in_jax(double_precision, mode):
    arrays = stack(streams()[0])
    whole = call(arrays, mode)
    cuts = [{n: a if n == "ridge" else a[:, s] for n, a in arrays.items()}
            for s in (slice(17), slice(17, T))]  # fmt: skip
    jaxs = partial(olsq.sequence.jax.online_lstsq, solver=olsq.Dense(chunk=16))  # compiles fastest
    for first, second in ((None, None), (None, jaxs), (jaxs, None)):
        solve = [s or olsq.online_lstsq for s in (first, second)]
        one = call(cuts[0], mode, solve=solve[0])
        two = call(cuts[1], mode, one.state, solve=solve[1])
        # an array of JAX anywhere makes the call JAX's
        assert isinstance(two.value, np.ndarray if first is second else jax.Array)
        joined = np.concatenate([one.value, two.value], axis=1)
        assert error(joined, whole.value) < 1e-9
        for a, b in zip(two.state, whole.state, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
