"""One token at a time equals the whole sequence, with about two steps per token."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sequence_cases import D, M, T, error, exact, streams

import olsq
from olsq.problem import DecodeState
from olsq.sequence.jax import online_lstsq, solve_query, start_decoding

pytestmark = pytest.mark.usefixtures("one_target")


@pytest.mark.slow
@pytest.mark.parametrize("carried", [True, False], ids=["carried factor", "moments"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
def test_prefill_then_decode_is_prefill_of_everything(dtype, carried):
    group = {**streams()[0], **streams()[1]}
    half = T // 2

    @jax.jit
    def decode(state, ridge, tokens):
        def step(state, token):
            k, v, q, g, w = token
            state = olsq.update(state, k, v, forget=g, weight=w)
            return state, olsq.query(state, q, ridge=None if carried else ridge)

        state = start_decoding(state, ridge=ridge) if carried else state
        return jax.lax.scan(step, state, tokens)

    for name, s in group.items():
        a = {n: jnp.asarray(x, dtype) for n, x in s.items()}
        first = {n: x if n == "ridge" else x[:half] for n, x in a.items()}
        state = online_lstsq(
            first["keys"],
            first["values"],
            first["queries"],
            forget=first["forget"],
            weight=first["weight"],
            ridge=first["ridge"],
        ).state
        tokens = tuple(a[n][half:] for n in ("keys", "values", "queries", "forget", "weight"))
        state, value = decode(state, a["ridge"], tokens)
        path = exact({n: np.asarray(x, np.float64) for n, x in a.items()}, "fixed")
        kappa = np.linalg.cond(path.systems).max()
        tol = (
            max(1e-11, 30 * kappa * 1.1e-16)
            if dtype == np.float64
            else max(1e-5, 30 * kappa * 6e-8)
        )
        assert error(value, path.value[half:]) < tol, name
        final = state.moments if carried else state
        assert error(final.gram, path.grams[-1]) < 100 * np.finfo(dtype).eps, name


@pytest.mark.full
def test_one_token_costs_about_two_steps():
    rng = np.random.default_rng(0)
    d, n = 16, 100
    keys = rng.normal(size=(n, d))
    state = start_decoding(olsq.Moments(np.eye(d) * 50, rng.normal(size=(2, d))), ridge=0.25)

    @jax.jit
    def step(state, key):
        state = olsq.update(state, key, key[:2], forget=0.999)
        return state, solve_query(state, key, tol=1e-6)[1]

    _, steps = jax.lax.scan(step, state, jnp.asarray(keys))
    assert steps.mean() < 2.5


def test_batches_resets_and_absent_samples():
    rng = np.random.default_rng(1)
    moments = olsq.Moments(np.full((2, 3, D, D), np.nan), np.full((2, 3, M, D), np.nan))
    k, v, q = rng.normal(size=(2, 3, D)), rng.normal(size=(2, 3, M)), rng.normal(size=(2, 3, D))
    state = olsq.update(moments, k, v, forget=0.0)
    for s in (state, start_decoding(state, ridge=0.5)):
        s = olsq.update(s, np.full_like(k, np.inf), v, weight=0.0)
        value = olsq.query(s, q, **({} if isinstance(s, DecodeState) else {"ridge": 0.5}))
        for i in np.ndindex(2, 3):
            want = np.outer(v[i], k[i]) @ np.linalg.solve(
                np.outer(k[i], k[i]) + 0.5 * np.eye(D), q[i]
            )
            assert error(value[i], want) < 1e-12


@pytest.mark.full
@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_a_carried_factor_does_not_notice_the_scale_of_keys(scale):
    rng = np.random.default_rng(2)
    d, n = 8, 40
    keys, queries = rng.normal(size=(2, n, d))
    ridge = scale**2
    zero = jnp.zeros((d, d), jnp.float32)
    state = start_decoding(olsq.Moments(zero, zero), ridge=ridge)

    @jax.jit
    def step(state, token):
        k, q = token
        state = olsq.update(state, scale * k, k, forget=0.9)
        return state, solve_query(state, q)

    tokens = jnp.asarray(keys, jnp.float32), jnp.asarray(queries, jnp.float32)
    _, (value, steps) = jax.lax.scan(step, state, tokens)
    H = np.zeros((d, d))
    for t in range(n):
        H = 0.9 * H + np.outer(keys[t], keys[t])
        want = H @ np.linalg.solve(H + np.eye(d), queries[t]) / scale
        assert error(value[t], want) < 1e-4
    assert steps.max() < 4 * d


def test_discounted_decoding_and_conversion_both_ways():
    s = streams()[0]["walk .99"]
    path = exact(s, "discounted")
    state = olsq.Moments(np.diag(s["ridge"]), np.zeros((M, D)))  # NumPy in
    for t in range(5):
        state = olsq.update(
            state, s["keys"][t], s["values"][t], forget=s["forget"][t], weight=s["weight"][t]
        )
    assert error(olsq.query(state, s["queries"][4]), path.value[4]) < 1e-11
    back = olsq.Moments(*(np.asarray(x) for x in state))  # NumPy out
    assert error(back.gram, path.grams[5]) < 1e-14
    assert error(back.cross, path.crosses[5]) < 1e-14


@pytest.mark.slow
def test_gradients_through_decoding():
    s = streams()[1]["resets"]

    def decoded(keys, gates, carried):
        state = olsq.Moments(jnp.zeros((D, D)), jnp.zeros((M, D)))
        if carried:
            state = start_decoding(state, ridge=s["ridge"])

        def step(state, token):
            k, v, q, g = token
            state = olsq.update(state, k, v, forget=g)
            out = olsq.query(state, q, **({} if carried else {"ridge": s["ridge"]}))
            return state, out

        tokens = keys, jnp.asarray(s["values"]), jnp.asarray(s["queries"]), gates
        return jax.lax.scan(step, state, tokens)[1]

    def whole(keys, gates):
        return online_lstsq(keys, s["values"], s["queries"], forget=gates, ridge=s["ridge"]).value

    args = jnp.asarray(s["keys"]), jnp.asarray(s["forget"])
    want = jax.grad(lambda *a: jnp.sin(whole(*a)).sum(), argnums=(0, 1))(*args)
    for carried in (True, False):
        got = jax.grad(lambda *a, c=carried: jnp.sin(decoded(*a, c)).sum(), argnums=(0, 1))(*args)
        for a, b in zip(got, want, strict=True):
            assert error(a, b) < 1e-9


def test_errors():
    state = olsq.Moments(np.eye(D), np.ones((M, D)))
    with pytest.raises(ValueError, match="forget must lie in"):
        olsq.update(state, np.ones(D), np.ones(M), forget=1.5)
    with pytest.raises(ValueError, match="weight must be"):
        olsq.update(state, np.ones(D), np.ones(M), weight=-1.0)
    with pytest.raises(ValueError, match="key and value must end in"):
        olsq.update(state, np.ones(D + 1), np.ones(M))
    with pytest.raises(ValueError, match="query must end in"):
        olsq.query(state, np.ones(D + 1))
    with pytest.raises(ValueError, match="leave ridge out: the state is a DecodeState"):
        olsq.query(start_decoding(state, ridge=1.0), np.ones(D), ridge=1.0)
    for tol in (np.nan, np.inf, -1.0):  # a solve would stop at its first iterate
        with pytest.raises(ValueError, match="tol must be in"):
            olsq.query(start_decoding(state, ridge=1.0), np.ones(D), tol=tol)
    with pytest.raises(ValueError, match="state must be Moments"):
        olsq.query((np.ones((D, 2)), np.ones((M, D))), np.ones(D))


@pytest.mark.full
@pytest.mark.parametrize("carried", [True, False])
def test_a_token_outside_of_jit_compiles_nothing_anew(carried):
    """A loop or branch whose body is a closure would be compiled at every call, and kept."""
    count = [0]

    def compiled(event, _, **__):
        count[0] += event.endswith("backend_compile_duration")

    state = olsq.Moments(jnp.eye(3), jnp.zeros((2, 3)))
    ridge = {"ridge": 0.5}
    if carried:
        state, ridge = olsq.sequence.start_decoding(state, ridge=0.5), {}
    key, value = jnp.arange(3.0), jnp.arange(2.0)
    jax.monitoring.register_event_duration_secs_listener(compiled)
    for turn in range(2):
        before = count[0]
        state = olsq.update(state, key, value, forget=0.9)
        jax.block_until_ready(olsq.query(state, key, **ridge))
        assert turn == 0 or count[0] == before
    assert count[0] > 0
