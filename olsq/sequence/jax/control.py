"""JAX's loops and branches for carries that start as constants, also inside ``shard_map``.

``jax.shard_map`` types every array by the mesh axes it varies over.  A loop's carry has to begin
with the type that the step leaves it with, and branches have to agree; but ``jnp.zeros`` varies
over nothing.  These are ``jax.lax``'s functions, with a cast before.

The types are found by running the step once on the present values, and passed on through a mask
that is never set: ``where(never, ...)``, where ``never`` is computed from the arrays whose type is
needed. This avoids JAX's own functions for reading types, which changed their names three times in
two years. The extra run of the step, and the masks, are dead code, which XLA removes. Outside of
``shard_map`` none of this is done.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.pieces import count_of_pieces
from olsq.sequence.jax.platform import given_target


def compile_once(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile ``function`` once per shape where it is called outside of ``jax.jit``.

    Outside of ``jax.jit``, JAX recompiles a loop or branch at every call whose step or branch is a
    closure made in that call, and also its derivatives if it was compiled with ``inline=True``.
    Inside a larger program, XLA inlines the function. The number of pieces that time is in and the
    target that was set are not arguments of the program, so each has a program of its own.
    """

    @functools.cache
    def compiled(*_: Any) -> Callable[..., Any]:
        # an object of its own, because programs are remembered by the function that they are of
        return jax.jit(functools.update_wrapper(functools.partial(function), function), **options)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        return compiled(count_of_pieces(), given_target())(*args, **named)

    return call


def in_shard_map() -> bool:
    """Test whether the call is traced inside ``shard_map``."""
    mesh = getattr(jax.sharding, "get_abstract_mesh", lambda: None)()
    return bool(getattr(mesh, "manual_axes", ()))


def varying_like(x: Any, *like: Any) -> Any:
    """Return ``x``, typed as varying over every mesh axis that it or an array of ``like`` varies
    over.
    """
    nevers = [(y != y).any() & False for y in jax.lax.stop_gradient(like)]
    never = functools.reduce(operator.or_, nevers)
    return jnp.where(never, jnp.zeros_like(x), x)


def vary_together(arrays: Any) -> Any:
    """Make all ``arrays`` of a nest vary over the same mesh axes.

    Needed for what a linear map closes over: JAX casts the constants of ``custom_linear_solve`` to
    the axes of the right-hand side, and does not expect the map to have done so.
    """
    if not in_shard_map():
        return arrays
    leaves = jax.tree.leaves(arrays)
    return jax.tree.map(lambda x: varying_like(x, *leaves), arrays)


def vary_alike(x: Any, *trees: Any) -> Any:
    """Return ``x`` with every leaf varying like the same leaf of each of ``trees``."""
    for other in trees:
        x = jax.tree.map(varying_like, x, other)
    return x


def settle_types(step: Callable[[Any], Any], carry: Any) -> Any:
    """Give ``carry`` the types that ``step`` returns, so that a loop can carry it."""
    if not in_shard_map():
        return carry
    for _ in range(2):  # a leaf may vary like one that itself came to vary
        carry = vary_alike(carry, step(jax.lax.stop_gradient(carry)))
    return carry


def scan(step: Callable[[Any, Any], Any], carry: Any, xs: Any, **options: Any) -> tuple[Any, Any]:
    """Run :func:`jax.lax.scan`, with the carry's types settled inside ``shard_map``."""
    if in_shard_map() and all(x.shape[0] for x in jax.tree.leaves(xs)):
        first = jax.lax.stop_gradient(jax.tree.map(lambda x: x[0], xs))
        carry = settle_types(lambda carry: step(carry, first)[0], carry)
    return jax.lax.scan(step, carry, xs, **options)


def while_loop(going: Callable[[Any], Array], step: Callable[[Any], Any], carry: Any) -> Any:
    """Run :func:`jax.lax.while_loop`, with the carry's types settled inside ``shard_map``."""
    return jax.lax.while_loop(going, step, settle_types(step, carry))


def fori_loop(low: Any, high: Any, step: Callable[[Any, Any], Any], carry: Any) -> Any:
    """Run :func:`jax.lax.fori_loop`, with the carry's types settled inside ``shard_map``."""
    carry = settle_types(lambda carry: step(jnp.int32(0), carry), carry)
    return jax.lax.fori_loop(low, high, step, carry)


@jax.custom_batching.custom_vmap
def max_over_vmap(x: Array) -> Array:
    """Return x; under ``vmap``, its maximum over the batch, so that a branch stays one branch.

    A condition that differs between the elements of a batch makes JAX run both branches.
    """
    return x


@max_over_vmap.def_vmap
def _max_over_batch(axis_size: int, in_batched: list[bool], x: Array) -> tuple[Array, bool]:
    """Take the maximum over the batch axis that ``vmap`` adds; the result has no batch axis."""
    return max_over_vmap(x.max(0)), False


def cond(true: Any, yes: Callable[..., Any], no: Callable[..., Any], *operands: Any) -> Any:
    """Run :func:`jax.lax.cond`, with results of one type inside ``shard_map``."""
    branches = yes, no
    if in_shard_map():
        held = jax.lax.stop_gradient(operands)
        results = jax.lax.stop_gradient([branch(*held) for branch in branches])
        branches = [lambda *x, f=f: vary_alike(f(*x), *results) for f in branches]
    return jax.lax.cond(true, *branches, *operands)


def custom_linear_solve(
    product: Any, b: Any, solve: Any, transpose_solve: Any = None, **options: Any
) -> Any:
    """Run :func:`jax.lax.custom_linear_solve`, whose results must all vary over the same axes."""

    def cast(solve: Any) -> Any:
        return lambda product, b: vary_together((b, solve(product, b)))[1]

    if in_shard_map():
        solve = cast(solve)
        transpose_solve = None if transpose_solve is None else cast(transpose_solve)
    return jax.lax.custom_linear_solve(product, b, solve, transpose_solve, **options)
