"""Every matrix product of a solve asks for full float32: on a GPU the default keeps ten bits.

What runs on a device without one cannot show it, so the program is read instead: all products of
the value and of its gradient, those inside loops, branches and linear solves too.
"""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

import olsq
from olsq.sequence import jax as in_jax

D, T = 4, 24
SOLVERS = {
    "default": None,
    "corrections": olsq.ChunkExact(corrections=1),
    "cg": olsq.ConjugateGradient(4),
    "cg, chunk": olsq.ConjugateGradient(4, preconditioner="chunk"),
    "chebyshev": olsq.Chebyshev(4),
    "neumann": olsq.Neumann(4),
    "recursive": olsq.Recursive(),
    "dense": olsq.Dense(),
    "sharded": olsq.ChunkExact(shards=2),
}


def programs(value):
    """Every program inside a parameter of an equation."""
    if hasattr(value, "eqns"):
        yield value
    elif hasattr(value, "jaxpr"):
        yield value.jaxpr
    elif isinstance(value, dict):
        yield from programs(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from programs(part)


def products(program):
    """The precision that every matrix product of a program asks for."""
    for equation in program.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"]
        if equation.primitive.name.startswith("online_lstsq"):  # whose program is its own affair
            shapes = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.invars]
            inside = jax.make_jaxpr(partial(equation.primitive.impl, **equation.params))(*shapes)
            yield from products(inside.jaxpr)
        for part in equation.params.values():
            for inner in programs(part):
                yield from products(inner)


def check(function, *arguments):
    """All products of a function's value and gradient are in full precision."""
    slope = jax.grad(lambda *x: sum(jnp.sum(y) for y in jax.tree.leaves(function(*x))))
    found = [
        *products(jax.make_jaxpr(function)(*arguments).jaxpr),
        *products(jax.make_jaxpr(slope)(*arguments).jaxpr),
    ]
    assert len(found) > 2
    highest = jax.lax.Precision.HIGHEST
    assert all(precision == (highest, highest) for precision in found), set(found)


UNROLLED = [(name, "unrolled") for name in SOLVERS if name not in ("corrections", "cg, chunk")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "adjoint"), [*((name, "implicit") for name in SOLVERS), *UNROLLED]
)
def test_whole_sequences(name, adjoint):
    mode = "discounted" if name == "recursive" else "fixed"

    def solve(keys):
        fit = in_jax.online_lstsq(
            keys, keys, keys, forget=0.999, ridge=1.0, ridge_mode=mode, solver=SOLVERS[name],
            adjoint=adjoint,
        )  # fmt: skip
        return fit.value, fit.state

    check(solve, jnp.ones((2, T, D)))


def test_decoding():
    x = jnp.ones((2, D))
    moments = olsq.Moments(jnp.ones((2, D, D)), jnp.ones((2, D, D)))

    def decode(key):
        state = in_jax.start_decoding(moments, ridge=1.0)
        state = in_jax.update(state, key, key, forget=0.9)
        return in_jax.query(state, key), in_jax.query(state.moments, key, ridge=1.0)

    check(decode, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("mesa", {}), ("mesa", {"signed": True}), ("mesa_window", {"window": 5}),
        ("mesa_discounted", {}), ("mesa_channel", {}), ("kalman", {}),
    ],
)  # fmt: skip
def test_rules_that_solve(rule, options):
    x = jnp.ones((1, T, 2, D))
    gates = jnp.full((1, T, 2), 0.9)
    given = {} if rule == "mesa_window" else {"forget": gates}
    if rule != "kalman":
        given["ridge"] = 1.0
    given |= options
    check(lambda x: getattr(olsq.attention, rule)(x, x, x, **given)[0], x)
