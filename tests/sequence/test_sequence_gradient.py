"""The gradient written by hand against JAX's own, over several tiles and groups of streams.

That both are right is held by the conformance suite, against dense float64 solves.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq.reference import sequence as oracle
from olsq.sequence import jax as in_jax
from olsq.sequence.jax import tiles
from olsq.sequence.jax.gates import gate_gradient, gate_products
from olsq.sequence.jax.inputs import check
from olsq.sequence.jax.platform import Target, tuned_for
from olsq.sequence.jax.primitive import solve_by_primitive
from olsq.sequence.jax.tiles import Grid
from olsq.sequence.jax.walk import solve_by_jax

pytestmark = pytest.mark.usefixtures("one_target")

B, T, D, M, CHUNK = 4, 150, 3, 2, 8  # 19 chunks are two tiles

MILD = {"low": 0.95, "solver": olsq.ChunkExact(chunk=CHUNK, corrections=2), "by_token": True}
RESETS = {"low": 0.2, "solver": olsq.Dense(chunk=CHUNK), "zeros": True}
DISCOUNTED = {"low": 0.95, "solver": olsq.Dense(chunk=CHUNK), "mode": "discounted"}


def problem(low, mode="fixed", by_token=False, zeros=False, **_):
    """A stream with a state, absent samples, a sample, a query and a whole stream that are lost."""
    rng = np.random.default_rng(3)
    keys, queries = rng.standard_normal((2, B, T, D))
    values, gates = rng.standard_normal((B, T, M)), rng.uniform(low, 1, (B, T))
    weight = rng.uniform(0, 2, (B, T)) * (rng.random((B, T)) < 0.8)
    if zeros:
        gates[rng.random((B, T)) < 0.05] = 0
    keys[0, 70], queries[1, 9], values[2, 140], weight[2, 140] = np.nan, np.nan, np.inf, 1
    half = rng.standard_normal((B, D, D))
    gram, cross = half @ half.swapaxes(1, 2) + np.eye(D), rng.standard_normal((B, M, D))
    ridge = rng.uniform(0.5, 2, (B, T, D) if by_token else (B, 1, D))
    if mode == "discounted":
        ridge = None  # which is in the state: without one, nothing has a solution
    else:
        gram[3] = np.nan
    stream = check(
        keys, values, queries, gates, None, weight, ridge, mode, olsq.Moments(gram, cross)
    )[0]
    return stream._replace(floor=None)


@pytest.mark.slow
@pytest.mark.parametrize("case", [MILD, RESETS, DISCOUNTED], ids=["mild", "resets", "discounted"])
def test_gradient_and_tangent_are_those_of_autodiff(case, monkeypatch):
    monkeypatch.setattr(tiles, "CACHED", 2 * T * CHUNK)  # two streams a group
    stream, solver = problem(**case), case["solver"].jax()
    assert Grid.of(stream, CHUNK).groups == 2
    logs = stream.logs
    rng = np.random.default_rng(4)

    @jax.jit
    def derivatives(stream, moved, along):
        out = []
        for solve in (solve_by_primitive, partial(solve_by_jax, unrolls=False)):

            def finite(stream, solve=solve):
                made = solve(stream._replace(logs=logs), solver)[:2]
                return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), made)

            value, tangent = jax.jvp(finite, (stream,), (moved,))
            out.append((value, tangent, jax.vjp(finite, stream)[1](along)[0]))
        return out

    def like(x):
        return jnp.asarray(rng.standard_normal(x.shape))

    moved = jax.tree.map(like, stream)
    along = like(stream.values), jax.tree.map(like, stream.state)
    by_hand, by_jax = derivatives(stream, moved, along)
    for one, two in zip(jax.tree.leaves(by_hand), jax.tree.leaves(by_jax), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9 * np.abs(two).max())


def primitives(program):
    """Names of all primitives of a program and of those inside it."""
    for equation in program.eqns:
        yield equation.primitive.name
        for part in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


@pytest.mark.full
@pytest.mark.parametrize("way", ["plain", "vmap", "checkpointed scan"])
def test_reverse_mode_runs_the_gradient_by_hand(way):
    def value(x):
        return olsq.online_lstsq(x, x, x, forget=0.9, ridge=1.0).value

    def scanned(x):
        step = jax.checkpoint(lambda x, _: (value(x), None), prevent_cse=False)
        return jax.lax.scan(step, x, None, length=2)[0]

    function = scanned if way == "checkpointed scan" else value
    grad = jax.grad(lambda x: function(x).sum())
    grad = jax.vmap(grad) if way == "vmap" else grad
    names = list(primitives(jax.make_jaxpr(grad)(jnp.ones((2, 9, 2), jnp.float32)).jaxpr))
    assert "online_lstsq_cotangent" in names
    assert "online_lstsq_tangent" not in names


@pytest.mark.slow
@pytest.mark.parametrize("jacobian", [jax.jacrev, jax.jacfwd])
def test_derivatives_of_many_directions_use_the_tiles_of_the_one_solve(jacobian):
    """``vmap`` of a derivative makes a larger batch, which would be cut into smaller tiles."""
    keys = jnp.asarray(np.random.default_rng(0).normal(size=(40, 2)))

    def value(keys):
        fit = in_jax.online_lstsq(
            keys, keys[:, :1], keys, forget=0.9, ridge=1.0, solver=olsq.Dense(chunk=8)
        )
        return fit.value

    with tuned_for(Target(cpu=False, tile_bytes=5 * 8 * 8**2)):  # one stream: all 5 chunks
        found = jax.jit(jacobian(value))(keys)
    with tuned_for(Target(cpu=True)):
        wanted = jax.jit(jacobian(value))(keys)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_weights_have_their_gradient_where_nothing_is_forgotten():
    rng = np.random.default_rng(6)
    keys, values, queries = (rng.normal(size=(12, n)) for n in (D, M, D))
    weight, upstream = rng.uniform(0, 2, 12), rng.normal(size=(12, M))

    def loss(weight):
        fit = in_jax.online_lstsq(
            keys, values, queries, weight=weight, ridge=0.5, solver=olsq.ChunkExact(chunk=CHUNK)
        )
        return (fit.value * upstream).sum()

    want = oracle.gradients(keys, values, queries, upstream, weight=weight, ridge=0.5)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(weight), want["weight"], rtol=1e-8)


def test_gradient_of_gates_by_hand_is_that_of_their_products():
    """Also at gates of 0, more than one of them, and where products underflow."""
    rng = np.random.default_rng(3)
    gates = rng.uniform(0.1, 1, (2, 3, 16))
    gates[0, 1, 4] = gates[1, 2, 0] = gates[1, 2, 9] = 0
    gates[1, 1] = 1e-60

    def products(gates):
        return gate_products(gates, jnp.log(jnp.where(gates == 0, 1, gates)))

    shapes = jax.eval_shape(products, gates)
    given = tuple(rng.normal(size=x.shape) for x in shapes)

    @jax.jit
    def both(gates, given):
        outputs, back = jax.vjp(products, gates)
        return gate_gradient(*outputs, *given), back(given)[0]

    np.testing.assert_allclose(*both(gates, given), rtol=1e-12, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"forget": 0.9, "weight": 0.5}])
def test_the_outputs_are_transposed_as_a_linear_map_of_the_values(options):
    rng = np.random.default_rng(0)
    k, q = rng.normal(size=(2, 20, 3))
    v, up = rng.normal(size=(2, 20, 2))

    def of(v):
        return olsq.online_lstsq(jnp.asarray(k), v, jnp.asarray(q), ridge=0.5, **options).value

    v = jnp.asarray(v)
    (want,) = jax.vjp(of, v)[1](jnp.asarray(up, v.dtype))
    transpose = jax.linear_transpose(of, v)
    (got,) = jax.jit(transpose)(jnp.asarray(up, v.dtype))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    both = jax.vmap(transpose)(jnp.stack([up, -up]).astype(v.dtype))[0]
    np.testing.assert_allclose(both[1], -want, rtol=1e-12)
