"""Recurrences on pieces of time are those of the whole, derivatives too, on hard gates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsq import attention
from olsq.attention.recurrences.delta import delta_rule
from olsq.attention.recurrences.elementwise import diagonal, elementwise
from olsq.attention.recurrences.levels import fenwick
from olsq.attention.recurrences.linear import gated_linear
from olsq.attention.recurrences.momentum import momentum_delta_rule
from olsq.attention.recurrences.variances import filter_variances
from olsq.attention.recurrences.vector import row_gated, vector_gated
from olsq.attention.recurrences.vector_delta import vector_delta
from olsq.attention.recurrences.vector_solve import solve_keys
from olsq.sequence.jax.gates import lost_tokens
from olsq.sequence.jax.pieces import (
    delay,
    multiply_gates,
    pieces_of,
    running_max,
    scan_time,
    time_in_pieces,
)
from tests.versions import quick

pytestmark = pytest.mark.usefixtures("one_target")

N, T, K, V, PIECES = 3, 24, 4, 3, 4


def streams() -> dict:
    """Row 0 has mild gates, row 1 gates of 0 and tiny ones, row 2 a whole piece of 1 - 1e-12."""
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, N, T, K))
    k[2, 5:9] = k[2, 5]  # one key again and again
    k[0, 12:18] = 0
    gates = rng.uniform(0.5, 1, (N, T, K))
    gates[1, [0, 6, 7, 13]] = 0
    gates[1, 15:18] = 1e-30
    gates[2, 6:12] = 1 - 1e-12
    return {
        "q": q, "k": k / np.linalg.norm(k, axis=-1, keepdims=True).clip(1), "gates": gates,
        "v": rng.normal(size=(N, T, V)), "weight": rng.uniform(0, 2, (N, T)),
        "memory": rng.normal(size=(N, V, K)), "rate": rng.uniform(0, 1, (N, K, V)),
    }  # fmt: skip


def at_rates(x, rate):
    """Factors of the memory's entries, a power of the token's gate for each."""
    return x["gates"][:, :, None] ** (x["on"][:, None, None] * rate)


RULES = {
    "scalar": lambda q, k, v, gates, weight, memory, rate: gated_linear(
        q, k, v, gates[..., 0], weight, memory
    ),
    "sum": lambda q, k, v, gates, weight, memory, rate: gated_linear(q, k, v, None, None, memory),
    "vector": lambda q, k, v, gates, weight, memory, rate: vector_gated(q, k, v, gates, memory),
    "vector, before": lambda q, k, v, gates, weight, memory, rate: vector_gated(
        q, k, v, gates, memory, before=True
    ),
    "rows": lambda q, k, v, gates, weight, memory, rate: row_gated(q, k, v, gates[..., :V], memory),
    "levels": lambda q, k, v, gates, weight, memory, rate: fenwick(
        q, k, v, gates[..., 0], jnp.sin(jnp.cumsum(weight, 1)[..., None] * jnp.arange(1, 6)),
        jnp.broadcast_to(jnp.arange(3, 3 + T, dtype="int32"), (N, T)), jnp.full(N, 2, "int32"),
        memory[:, None] * jnp.arange(1.0, 6)[:, None, None],
    ),
    "delta": lambda q, k, v, gates, weight, memory, rate: delta_rule(
        q, k, k, v, gates[..., 0], weight, memory
    ),
    "delta, before": lambda q, k, v, gates, weight, memory, rate: delta_rule(
        q, k, k, v, gates[..., 0], weight, memory, before=True
    ),
    "vector delta": lambda q, k, v, gates, weight, memory, rate: vector_delta(
        q, gates * k, k, v, gates, memory, (q / 4, v)
    ),
    "momentum": lambda q, k, v, gates, weight, memory, rate: momentum_delta_rule(
        q, gates[..., :1] * k, k, v, gates[..., :2], weight / 2, jnp.concatenate([memory] * 2, -1)
    ),
    "variances": lambda q, k, v, gates, weight, memory, rate: (
        filter_variances(gates, k**2, weight[..., None] * q**2, memory[:, 0] ** 2), memory
    ),
    "solved keys": lambda q, k, v, gates, weight, memory, rate: solve_keys(
        k, gates, weight, 0.1 + q[:, 0] ** 2, jnp.einsum("nvk,nvj->nkj", memory, memory)
    ),
    "elementwise": lambda q, k, v, gates, weight, memory, rate: elementwise(
        q, k, v, at_rates, {"gates": gates + 1e-3, "on": jnp.ones((N, T))}, memory, parameters=rate,
        start=jnp.zeros((N, T), bool).at[1, 9].set(True),
    ),
    "diagonal": lambda q, k, v, gates, weight, memory, rate: diagonal(
        gates[..., :V], v, memory[..., 0]
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_pieces_are_the_whole(name):
    given = jax.tree.map(jnp.asarray, streams())

    def both(given):
        results = []
        for pieces in (1, PIECES):
            with time_in_pieces(pieces):
                loss = lambda x: sum(jnp.sin(y).sum() for y in RULES[name](**x))  # noqa: E731
                results.append((RULES[name](**given), jax.grad(loss)(given)))
        return results

    whole, pieces = jax.jit(both)(given)
    for a, b in zip(jax.tree.leaves(pieces), jax.tree.leaves(whole), strict=True):
        assert np.isfinite(b).all()
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11 * (1 + np.abs(b).max()))


def rules() -> dict:
    """Rules that do not sum up a piece, by name, with what they are given by token and besides."""
    rng = np.random.default_rng(2)
    start = rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3))
    return {
        "softmax": (attention.softmax, "qkv", {"capacity": 24}),
        "forgetting": (attention.forgetting, ("q", "k", "v", "forget"), {"capacity": 22}),
        "sliding_window": (attention.sliding_window, "qkv", {"window": 7}),
        "local_linear": (
            attention.local_linear, ("q", "k", "v", "ridge"), {"scale": 2.0, "capacity": 24}
        ),
        "local_linear window": (
            attention.local_linear, ("q", "k", "v", "ridge"), {"scale": 2.0, "window": 7}
        ),
        "parallax": (attention.parallax, ("q", "k", "v", "direction"), {"capacity": 22}),
        "parallax window": (attention.parallax, ("q", "k", "v", "direction"), {"window": 7}),
        "mesa_window": (
            attention.mesa_window, ("q", "k", "v", "forget", "weight"),
            {"window": 4, "ridge": 0.3},
        ),
        "ttt_linear": (
            attention.ttt_linear, ("q", "k", "v", "learning_rate"),
            {"initial": start, "mini_batch": 3, "query_factor": np.array([1, 0.7, 0.5])},
        ),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "softmax", "forgetting", "sliding_window", "local_linear", "parallax", "mesa_window",
    "ttt_linear", pytest.param("local_linear window", marks=pytest.mark.slow),
    pytest.param("parallax window", marks=pytest.mark.slow),
])  # fmt: skip
def test_rules_go_on_from_a_state_in_pieces(name):
    rule, names, options = rules()[name]
    rng = np.random.default_rng(3)

    def draw(t):
        gates = rng.uniform(0.5, 1, (2, t, 2))
        gates[0, [2, 5]], gates[1, 3:6] = 0, 1e-30
        drawn = {n: rng.normal(size=(2, t, 2, 3)) for n in ("q", "k", "v", "direction")}
        rest = {n: rng.uniform(0, 1, (2, t, 2)) for n in ("weight", "learning_rate")}
        rest["ridge"] = 10 ** rng.uniform(-2, 0, (2, t, 2))
        return {n: x for n, x in ({"forget": gates} | drawn | rest).items() if n in names}

    given = draw(10), draw(12)
    segments = np.array([[0] * 5 + [1] * 7, [0] * 12])
    later = {n: x for n, x in options.items() if n != "capacity"}

    def run(given, pieces):
        state = rule(**given[0], **options)[1]
        with time_in_pieces(pieces):
            return rule(**given[1], **later, state=state, segment_ids=segments)

    def whole(given, pieces):
        def loss(given):
            found = run(given, pieces)
            return sum(jnp.sin(x).sum() for x in jax.tree.leaves(found) if x.dtype == float), found

        return jax.value_and_grad(loss, has_aux=True)(given)

    pieces, want = (quick(lambda given, p=p: whole(given, p))(given) for p in (3, 1))
    for a, b in zip(jax.tree.leaves(pieces), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
def test_ring_of_lost_tokens_and_steep_gates():
    """A lost token reaches its segment's end; twice differentiated, forwards over reverse."""
    q, k, v = np.random.default_rng(4).normal(size=(3, 1, 8, 1, 2))
    k[0, 3] = np.nan
    q[0, 6] = np.inf
    gates = np.array([1, 1, 1e-300, 1, 1, 0.5, 1 - 1e-12, 1])[None, :, None]
    ids = np.array([[0] * 5 + [1] * 3])
    whole = attention.forgetting(q, k, v, forget=gates, segment_ids=ids)[0]
    with time_in_pieces(4):
        pieces = attention.forgetting(q, k, v, forget=gates, segment_ids=ids)[0]
    np.testing.assert_allclose(pieces, whole, rtol=1e-13)
    assert np.isnan(pieces[0, :, 0, 0]).tolist() == [False] * 3 + [True] * 2 + [False, True, False]

    def curved(q, pieces):
        with time_in_pieces(pieces):
            return jnp.sin(attention.softmax(q, v, v)[0]).sum()

    q = np.where(np.isfinite(q), q, 1)
    twice = [
        quick(lambda q, p=p: jax.jvp(jax.grad(lambda q: curved(q, p)), (q,), (v,))[1])(q)
        for p in (4, 1)
    ]
    np.testing.assert_allclose(*twice, rtol=1e-10, atol=1e-13)


def test_what_runs_along_time():
    rng = np.random.default_rng(1)
    order = jnp.asarray(rng.permutation(T)[None] * np.ones((2, 1), int))
    lost, reset = (jnp.asarray(rng.random((2, 5, T)) < 0.1).reshape(10, T) for _ in range(2))
    sums = jnp.asarray(rng.normal(size=(2, T))), jnp.asarray(rng.normal(size=(2, T)))
    x, before = jnp.asarray(rng.normal(size=(2, T, 3))), jnp.asarray(rng.normal(size=(2, 4, 3)))
    start = jnp.arange(10) % 2 == 0

    def join(a, b):
        return a[0] + b[0], jnp.maximum(a[1] + b[0], b[1])

    @jax.jit
    def both():
        found = []
        for pieces in (1, PIECES):
            with time_in_pieces(pieces):
                found.append([
                    running_max(order), lost_tokens(lost, reset, start),
                    lost_tokens(lost, None, start), scan_time(join, sums, (0.0, -jnp.inf)),
                    [delay(x, before, i) for i in range(5)],
                ])  # fmt: skip
        return found

    found = both()
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(found[1][4][2], jnp.concatenate([before[:, 2:], x[:, :-2]], 1))


def test_products_of_gates_keep_digits_and_derivatives_at_zero():
    gates = jnp.array([[0.5, 0.0, 0.25], [0.5, 0.5, 0.5], [0.0, 0.0, 1.0]])
    product = jax.jit(multiply_gates)
    np.testing.assert_allclose(product(gates), [0, 0.125, 0], rtol=1e-15)
    slope = jax.jit(jax.grad(lambda g: multiply_gates(g).sum()))(gates)
    want = [[0, 0.125, 0], [0.25, 0.25, 0.25], [0, 0, 0]]
    np.testing.assert_allclose(slope, want, atol=1e-15)
    long = jnp.full((1, 4096), 1 - 1e-4, jnp.float32)
    want = np.exp(4096 * np.log(np.float64(long[0, 0])))
    np.testing.assert_allclose(product(long)[0], want, rtol=1e-6)


def test_times_that_are_not_split():
    with time_in_pieces(4):
        assert [pieces_of(n) for n in (0, 1, 4, 7, 8)] == [1, 1, 4, 1, 4]
        assert pieces_of(8, 3) == 1
        with pytest.raises(ZeroDivisionError), time_in_pieces(2):
            raise ZeroDivisionError
        assert pieces_of(8) == 4
    assert pieces_of(8) == 1
