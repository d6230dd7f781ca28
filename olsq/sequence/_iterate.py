"""Iterations over all tokens at once: conjugate gradient and Chebyshev, with their bookkeeping."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

Product = Callable[[Array], Array]


def dot(a: Array, b: Array) -> Array:
    """Inner product over the last axis, kept as an axis of size 1."""
    return (a * b).sum(-1, keepdims=True)


def scaled(b: Array, solve: Callable[[Array], tuple[Array, Array]]) -> tuple[Array, Array]:
    """Solve for b divided by its largest entry, token by token: no overflow, no underflow."""
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(b), axis=-1, keepdims=True))
    size = jnp.where(size > 0, size, 1)
    x, steps = solve(b / size)
    return x * size, steps


def divide(a: Array, b: Array) -> Array:
    """a / b where b > 0 and 0 elsewhere, with gradients that stay finite."""
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1), 0)


def conjugate_gradient(
    product: Product,
    precondition: Product,
    b: Array,
    start: Array,
    *,
    tol: float,
    max_steps: int,
    unroll: bool,
) -> tuple[Array, Array]:
    """Preconditioned conjugate gradient; every token stops at ``|b - M x| <= tol |b|``.

    A stopped token is frozen by a mask, never by an epsilon in a denominator, so that the
    iteration is equivariant to the scale of keys, ridge and b.  ``unroll`` runs exactly
    ``max_steps`` masked steps, which reverse-mode differentiation can walk back through.
    """
    goal = jax.lax.stop_gradient(tol * tol * dot(b, b))
    r = b - product(start)
    z = precondition(r)
    state = (start, r, z, z, dot(r, z), jnp.zeros(b.shape[:-1], jnp.int32), jnp.int32(0))

    def running(r: Array) -> Array:
        return dot(r, r) > goal

    def step(state):
        x, r, z, p, rz, steps, i = state
        active = running(r)
        mp = product(p)
        alpha = jnp.where(active, divide(rz, dot(p, mp)), 0)
        x, r = x + alpha * p, r - alpha * mp
        z = precondition(r)
        rz_new = dot(r, z)
        p = jnp.where(active, z + divide(rz_new, rz) * p, p)
        return x, r, z, p, rz_new, steps + active[..., 0], i + 1

    if unroll:
        state = jax.lax.scan(lambda s, _: (step(s), None), state, None, length=max_steps)[0]
    else:
        state = jax.lax.while_loop(lambda s: (s[-1] < max_steps) & running(s[1]).any(), step, state)
    return state[0], state[5]


def chebyshev(product: Product, b: Array, low: Array, high: Array, steps: Array | int) -> Array:
    """``steps`` steps of Chebyshev iteration after x = b / middle; spectrum in [low, high].

    The bounds hold per token.  With equal bounds it is exact at once.  Error in the energy norm
    at most ``2 rho^(steps + 1)``, ``rho = (sqrt(k) - 1) / (sqrt(k) + 1)``, ``k = high / low``.
    """
    middle, half = (high + low) / 2, (high - low) / 2

    def step(_, state):
        x, change, r, rho = state
        r = r - product(change)
        factor = 1 / (2 * middle - half * rho)
        change = half * factor * rho * change + 2 * factor * r
        return x + change, change, r, half * factor

    state = (b / middle, b / middle, b, half / middle)
    if isinstance(steps, int) and steps <= 4:  # worth fusing; more only costs compile time
        for i in range(steps):
            state = step(i, state)
        return state[0]
    return jax.lax.fori_loop(0, steps, step, state)[0]
