"""Every solver against the dense oracle, on every stream: one table, see sequence_cases."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sequence_cases import EPS, IDS, PAIRS, D, M, T, claims, error, exact, stack, start

import olsq
from olsq.reference import sequence as oracle
from olsq.sequence.jax import (
    merge_moments,
    online_lstsq,  # whatever the arrays are
)

both = pytest.mark.parametrize(("row", "mode"), PAIRS, ids=IDS)
NAMES = ("keys", "values", "queries", "forget", "weight", "ridge")


def call(row, mode, dtype, arrays, state=None, adjoint="implicit", **changes):
    a = {**arrays, **changes}
    ridge = None if mode == "discounted" and state is not None else a["ridge"]
    return online_lstsq(
        a["keys"],
        a["values"],
        a["queries"],
        forget=a["forget"],
        weight=a["weight"],
        ridge=ridge,
        ridge_mode=mode,
        state=state,
        solver=row.solver(dtype),
        adjoint=adjoint,
    )


@cache
def run(row, mode, dtype, adjoint="implicit"):
    """Jitted gradient of sum(upstream value) + sum(upstream_state state), and the solution.

    One compilation serves the oracle, causality, scale and transposition checks of a row.
    """

    def loss(arrays, state, upstream, upstream_state):
        sol = call(row, mode, dtype, arrays, olsq.Moments(*state), adjoint)
        parts = [(a * b).sum() for a, b in zip(sol.state, upstream_state, strict=True)]
        return (sol.value * upstream).sum() + sum(parts), sol

    return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))


def inputs(row, mode, dtype, group):
    """Arrays, initial state, and random upstream gradients of value and final state."""
    rng = np.random.default_rng(1)
    arrays, state = stack(group, dtype), start(group, dtype, mode)
    up = rng.normal(size=(len(group), T, M)).astype(dtype)
    return arrays, state, up, [rng.normal(size=s.shape).astype(dtype) for s in state]


def allowed(row, dtype, stream, path, base):
    """Tolerance: base, or what conditioning makes of rounding, or the rate a solver states."""
    kappa = np.linalg.cond(path.systems).max()
    tol = max(base, 30 * kappa * EPS[dtype])
    return max(tol, row.rate(path.systems, stream["ridge"])) if row.rate else tol


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
@pytest.mark.parametrize(
    ("row", "mode", "adjoint"),
    [(*pair, "implicit") for pair in PAIRS] + [(*p, "unrolled") for p in PAIRS if p[0].unrolls],
    ids=IDS + [f"{row.name}-{mode}-unrolled" for row, mode in PAIRS if row.unrolls],
)
def test_solution_and_gradients_match_the_oracle(row, mode, dtype, adjoint):
    tight = dtype == np.float64
    for group in claims(row, mode):
        arrays, state, up, up_state = inputs(row, mode, dtype, group)
        (got, got_state), sol = run(row, mode, dtype, adjoint)(arrays, state, up, up_state)
        assert sol.value.dtype == dtype
        for i, name in enumerate(group):
            one = {n: a[i] for n, a in arrays.items()}
            begin = [s[i] for s in state]
            path = exact(one, mode, begin)
            tol = allowed(row, dtype, one, path, 1e-11 if tight else 1e-5)
            assert error(sol.value[i], path.value) < tol, name
            wrong = np.linalg.norm(sol.value[i] - path.value, axis=1)
            assert (wrong <= sol.stats.value_bound[i] * (1 + 1e-9)).all(), name
            assert error(sol.state.gram[i], path.grams[-1]) < 40 * EPS[dtype], name
            assert error(sol.state.cross[i], path.crosses[-1]) < 40 * EPS[dtype], name
            assert sol.stats.residual[i].max() < 10 * tol, name

            if adjoint == "implicit" and name in row.no_gradients:
                continue
            tol = allowed(row, dtype, one, path, 1e-9 if tight else 3e-5)
            if adjoint == "unrolled" and row.unrolled_error:
                tol = max(tol, row.unrolled_error(dtype))
            ridge = one.pop("ridge") if mode == "fixed" else one.pop("ridge") * np.nan
            want = oracle.gradients(
                one.pop("keys"),
                one.pop("values"),
                one.pop("queries"),
                up[i],
                **one,
                ridge=ridge,
                ridge_mode=mode,
                state=begin,
                upstream_state=[s[i] for s in up_state],
            )
            if mode == "fixed":
                assert error(got["ridge"][i], want["ridge"].sum(0)) < tol, (name, "ridge")
            for n in ("keys", "values", "queries", "forget", "weight"):
                assert error(got[n][i], want[n]) < tol, (name, n)
            grams = np.asarray(got_state[0][i]), want["gram"]
            if adjoint == "unrolled":  # of a symmetric matrix: factorisations read one half of it
                grams = tuple(x + x.T for x in grams)
            assert error(*grams) < tol, (name, "gram")
            assert error(got_state[1][i], want["cross"]) < tol, (name, "cross")


@both
def test_forward_mode_is_the_transpose_of_reverse_mode(row, mode):
    rng = np.random.default_rng(2)
    group = claims(row, mode)[-1]
    arrays, state, up, up_state = inputs(row, mode, np.float64, group)
    for i, name in enumerate(group):
        up[i] *= name not in row.no_gradients
    directions = {n: rng.normal(size=a.shape) for n, a in arrays.items()}
    directions_state = tuple(rng.normal(size=s.shape) for s in state)

    def forward(arrays, state):
        sol = call(row, mode, np.float64, arrays, olsq.Moments(*state))
        return sol.value, sol.state

    _, (value_dot, state_dot) = jax.jit(lambda *a: jax.jvp(forward, a[:2], a[2:]))(
        arrays, tuple(state), directions, directions_state
    )
    (back, back_state), _ = run(row, mode, np.float64)(arrays, state, up, up_state)
    ahead = (value_dot * up).sum() + sum(
        (a * b).sum() for a, b in zip(state_dot, up_state, strict=True)
    )
    behind = sum((back[n] * directions[n]).sum() for n in NAMES) + sum(
        (a * b).sum() for a, b in zip(back_state, directions_state, strict=True)
    )
    assert abs(ahead - behind) < 1e-8 * abs(ahead)


def halves(arrays):
    """The two halves of a group in time."""
    cut = T // 2
    first = {n: a if n == "ridge" else a[:, :cut] for n, a in arrays.items()}
    return first, {n: a if n == "ridge" else a[:, cut:] for n, a in arrays.items()}


@cache
def in_halves(row, mode, of):
    """A claimed group whole, by halves, and its second half from nothing, in float64."""
    group = claims(row, mode)[of]
    arrays, state, up, up_state = inputs(row, mode, np.float64, group)
    whole = run(row, mode, np.float64)(arrays, state, up, up_state)[1]
    first, second = halves(arrays)
    one = call(row, mode, np.float64, first, olsq.Moments(*state))
    two = call(row, mode, np.float64, second, one.state)
    empty = olsq.Moments(*(np.zeros_like(s) for s in state))
    return whole, one, two, call(row, mode, np.float64, second, empty), second["forget"]


@both
def test_a_prefix_is_that_of_the_whole_and_a_state_goes_on(row, mode):
    for of in range(len(claims(row, mode))):
        whole, one, two, _, _ = in_halves(row, mode, of)
        joined = np.concatenate([one.value, two.value], axis=1)
        np.testing.assert_allclose(joined, whole.value, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(two.state.gram, whole.state.gram, rtol=1e-12, atol=1e-12)


@both
def test_pieces_of_a_stream_merge(row, mode):
    for of in range(len(claims(row, mode))):
        whole, one, _, alone, forget = in_halves(row, mode, of)
        merged = merge_moments(one.state, alone.state, forget=np.prod(forget, axis=1))
        np.testing.assert_allclose(merged.gram, whole.state.gram, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(merged.cross, whole.state.cross, rtol=1e-12, atol=1e-12)


@both
def test_vmap_is_the_batch(row, mode):
    of = len(claims(row, mode)) - 1
    one = in_halves(row, mode, of)[1]
    arrays, state, *_ = inputs(row, mode, np.float64, claims(row, mode)[of])
    mapped = jax.vmap(lambda a, s: call(row, mode, np.float64, a, s).value)(
        {n: jnp.asarray(a) for n, a in halves(arrays)[0].items()},
        olsq.Moments(*map(jnp.asarray, state)),
    )
    np.testing.assert_allclose(mapped, one.value, rtol=1e-8, atol=1e-9)


@both
def test_non_finite_futures_leave_the_past_alone(row, mode):
    cut = 21
    group = claims(row, mode)[0]
    arrays, state, up, _ = inputs(row, mode, np.float64, group)
    up *= (np.arange(T) < cut)[:, None]
    zero = [np.zeros_like(s) for s in state]
    spoilt = {n: a.copy() for n, a in arrays.items()}
    for name, bad in {
        "keys": np.nan,
        "values": np.inf,
        "queries": np.nan,
        "forget": np.nan,
        "weight": np.inf,
    }.items():
        spoilt[name][:, cut:] = bad
    grads_clean, clean = run(row, mode, np.float64)(arrays, state, up, zero)
    grads, sol = run(row, mode, np.float64)(spoilt, state, up, zero)
    np.testing.assert_allclose(sol.value[:, :cut], clean.value[:, :cut], rtol=1e-8, atol=1e-9)
    assert np.isnan(sol.value[:, cut:]).all()
    assert np.isnan(sol.state.gram).all()
    if row.walks_back:
        return
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(grads_clean), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7 * np.abs(b).max())


@pytest.mark.parametrize("power", [-27, 27])
@both
def test_values_and_gradients_follow_the_scale(row, mode, power):
    s = np.float32(2.0**power)  # 1.3e8 and its inverse
    group = claims(row, mode)[0]
    arrays, state, up, _ = inputs(row, mode, np.float32, group)
    zero = [np.zeros_like(x) for x in state]
    fun = run(row, mode, np.float32)
    grads, sol = fun(arrays, state, up, zero)
    big = {
        **arrays,
        "keys": arrays["keys"] * s,
        "queries": arrays["queries"] * s,
        "ridge": arrays["ridge"] * s**2,
        "values": arrays["values"] * s,
    }
    big_state = [x * s**2 for x in state]
    grads_big, sol_big = fun(big, big_state, up, zero)
    grads_up = fun(arrays, state, up * s, zero)[0]
    paths = [
        exact({n: a[i] for n, a in arrays.items()}, mode, [x[i] for x in state])
        for i in range(len(group))
    ]
    powers = {"keys": 0, "values": 0, "queries": 0, "forget": 1, "weight": 1, "ridge": -1}
    for i, path in enumerate(paths):
        tol = allowed(row, np.float32, {n: a[i] for n, a in arrays.items()}, path, 1e-5)
        assert error(sol_big.value[i] / s, sol.value[i]) < tol
        for n, p in powers.items():
            if n == "ridge" and mode == "discounted":
                continue
            size = np.abs(grads[0][n][i]).max()
            assert np.abs(grads_up[0][n][i] / s - grads[0][n][i]).max() <= 3 * tol * size, n
            scaled = grads_big[0][n][i] / s**p
            assert np.abs(scaled - grads[0][n][i]).max() <= 3 * tol * size, n


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=["bf16", "f16"])
def test_half_precision_inputs_are_solved_in_float32(dtype):
    group = claims(PAIRS[0][0], "fixed")[0]
    arrays = {
        n: jnp.asarray(a, dtype) if n in ("keys", "values", "queries") else a
        for n, a in stack(group, np.float32).items()
    }
    sol = call(PAIRS[0][0], "fixed", np.float32, arrays)
    assert sol.value.dtype == dtype
    assert sol.state.gram.dtype == jnp.float32
    for i, name in enumerate(group):
        path = exact({n: np.asarray(a[i], np.float64) for n, a in arrays.items()}, "fixed")
        assert error(sol.value[i], path.value) < 2 * float(jnp.finfo(dtype).eps), name


@pytest.mark.parametrize("chunk", [1, 24, 64])
@pytest.mark.parametrize("mode", ["fixed", "discounted"])
def test_the_chunk_does_not_change_the_answer(mode, chunk):
    row = PAIRS[0][0]
    for group in claims(row, mode):
        a = stack(group)
        sol = online_lstsq(
            a["keys"],
            a["values"],
            a["queries"],
            forget=a["forget"],
            weight=a["weight"],
            ridge=a["ridge"],
            ridge_mode=mode,
            solver=olsq.ChunkExact(chunk=chunk),
        )
        for i, stream in enumerate(group.values()):
            path = exact(stream, mode)
            tol = allowed(row, np.float64, stream, path, 1e-11)
            assert error(sol.value[i], path.value) < tol


def test_dimensions_are_as_stated():
    assert D != M
    assert T % 16 != 0
