"""Iterations on all tokens at once: conjugate gradient and Chebyshev, and their stopping rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVarTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.control import fori_loop, scan, while_loop

UNSOUND = -1  # steps of a token whose system was found not to be positive definite
Product = Callable[[Array], Array]
Rest = TypeVarTuple("Rest")


def dot(a: Array, b: Array) -> Array:
    """Compute the inner product over the last axis, kept as an axis of size 1."""
    return (a * b).sum(-1, keepdims=True)


def largest_entry(b: Array) -> Array:
    """Return the largest absolute entry of the last axis, kept as an axis of size 1; 1 where all
    are 0.
    """
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(b), axis=-1, keepdims=True))
    return jnp.where(size > 0, size, 1)


def scaled(b: Array, solve: Callable[[Array], tuple[Array, *Rest]]) -> tuple[Array, *Rest]:
    """Solve for b divided by its largest entry, token by token, so that nothing overflows or
    underflows.

    ``solve`` returns the solution first, then results that do not scale with b.
    """
    size = largest_entry(b)
    solution = solve(b / size)
    return solution[0] * size, *solution[1:]


@jax.custom_jvp
def divide(a: Array, b: Array) -> Array:
    """Compute a / b where b > 0 and 0 elsewhere, with gradients that stay finite."""
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1), 0)


@divide.defjvp
def _divide_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """Compute the tangent ``(da - ratio db) / b``: linear in the tangents, so it transposes."""
    # JAX's own rule divides by b squared, which underflows to 0 once a residual is rounding.
    (a, b), (da, db) = primals, tangents
    ratio = divide(a, b)
    return ratio, divide(da - ratio * db, b)


def any_token(mask: Array) -> Array:
    """Test whether ``mask`` (..., C, 1) holds for any token: chunk by chunk, then in all.

    XLA makes a tree of one reduction over all tokens, whose loops it unrolls.
    """
    return jnp.atleast_2d(mask).any((-2, -1)).sum() > 0


class Rows:
    """Arrays of tokens (..., k) as matrices, one row a token, and back.

    On a CPU iterations on matrices compile faster: XLA unrolls loops over the few tokens of a chunk
    wherever an operation has one number for each.
    """

    def __init__(self, shape: tuple[Any, ...]) -> None:
        self.tokens = shape[:-1]

    def flatten(self, x: Array) -> Array:
        """Return ``x`` (..., k), or what broadcasts to it, as a matrix (tokens, k)."""
        return jnp.broadcast_to(x, (*self.tokens, x.shape[-1])).reshape(-1, x.shape[-1])

    def restore(self, x: Array) -> Array:
        """Return a matrix (tokens, k) as (..., k)."""
        return x.reshape(*self.tokens, x.shape[-1])

    def by_row(self, function: Product) -> Product:
        """Return ``function`` of arrays (..., k) as a function of matrices."""
        return lambda x: self.flatten(function(self.restore(x)))


def balanced(precondition: Product, b: Array) -> Product:
    """Rescale ``precondition`` to the units of b, token by token: a multiple, which iterates do not
    notice.

    An inverse of 1e20 is squared in the iteration, which float32 cannot hold. Where the
    preconditioner itself overflows, or maps b to zero, it is left out.
    """
    unit = jnp.abs(precondition(b)).max(-1, keepdims=True)
    sound = jnp.isfinite(unit) & (unit > 0)
    unit = jnp.where(sound, unit, 1)
    return lambda r: jnp.where(sound, precondition(r) / unit, r)


def conjugate_gradient(
    product: Product,
    b: Array,
    *,
    start: Array | None = None,
    precondition: Product | None = None,
    tol: float,
    max_steps: Any,
    unroll: bool = False,
    sound: Array | None = None,
    trial: Array | None = None,
    units: Array | float = 1,
) -> tuple[Array, Array, Array]:
    """Run preconditioned conjugate gradient; every token stops at ``|b - M x| <= tol |b|``.

    Returns the iterates, the steps of each token, and whether it got there, (..., 1).  ``start``
    None is 0, which saves a product.  All is divided by the largest entry of b, token by token, so
    that nothing overflows or underflows; ``precondition`` is :func:`balanced`.  A residual is
    preconditioned only if a step follows.

    A stopped token is frozen by a mask, never by an epsilon in a denominator, so that the iteration
    is equivariant to the scale of keys, ridge and b. A step that would overflow is not taken and
    ends its token: its present iterate is finite, and the residual gives its accuracy.

    A direction without positive curvature comes from rounding, and is passed over.  Where systems
    may be indefinite give ``sound`` (..., 1), True where nothing is known against one: such a
    direction then ends its token, and the steps of a token that is not sound are ``UNSOUND``.

    ``units`` are those of b and M x by entry, where the residual is to be measured in others than
    the iteration takes it in.

    With ``trial`` all stop when, after so many steps, the rate of one promises no end within
    ``3 trial`` more.
    """

    rows = Rows(b.shape)
    b, product = rows.flatten(b), rows.by_row(product)
    weights = units if isinstance(units, int | float) else rows.flatten(units)
    sound = None if sound is None else rows.flatten(sound)

    def measure(r):
        return dot(r * weights, r * weights)

    size = largest_entry(b)
    b = b / size
    goal = jax.lax.stop_gradient(tol * tol * measure(b))
    x, r = jnp.zeros_like(b), b
    if start is not None:
        x = rows.flatten(start) / size
        r = b - product(x)
    if precondition is not None:
        precondition = balanced(rows.by_row(precondition), b)
    left = first_left = measure(r)
    active = left > goal if sound is None else (left > goal) & sound
    steps = jnp.zeros(b.shape[:1], jnp.int32)
    rz = jnp.zeros_like(left)  # of the step before the first, whose direction is 0
    state = (x, r, jnp.zeros_like(b), rz, active, left, steps, sound, jnp.int32(0))

    def step(state):
        x, r, p, rz, active, left, steps, sound, i = state
        # z = P r;  p = z + (r.z / the one before) p;  alpha = r.z / p.Mp;  x += alpha p;
        # r -= alpha M p
        z = r if precondition is None else precondition(r)
        rz_new = dot(r, z)
        p = jnp.where(active, z + divide(rz_new, jnp.where(active, rz, 0)) * p, p)
        mp = product(p)
        curvature = dot(p, mp)
        # masked inside: the derivative of a / b at a stopped token may overflow, and 0 * inf
        # No epsilon in a denominator: 1e-5 there, as in a public implementation, stalls at a
        # residual of 1e-3 and makes gradients of small outputs wrong.
        alpha = divide(rz_new, jnp.where(active, curvature, 0))
        x_new, r_new = x + alpha * p, r - alpha * mp
        new_left, length = measure(r_new), dot(x_new, x_new)
        taken = active & jnp.isfinite(new_left) & jnp.isfinite(length)
        if sound is not None:
            sound = sound & (~active | (curvature > 0))
            taken = taken & sound
        x, r = jnp.where(taken, x_new, x), jnp.where(taken, r_new, r)
        steps = steps + active[..., 0].astype(jnp.int32)
        left = jnp.where(taken, new_left, left)
        return x, r, p, rz_new, taken & (left > goal), left, steps, sound, i + 1

    def going(state):
        active, left, i = state[4], state[5], state[-1]
        go_on = (i < max_steps) & any_token(rows.restore(active))
        if trial is None:
            return go_on
        gained, needed = jnp.log(first_left / left), jnp.log(first_left / goal)
        # the steps still needed at the present rate of convergence
        steps_left = i.astype(b.dtype) * (needed / jnp.maximum(gained, 1e-3) - 1)
        return go_on & ~((i >= trial) & any_token(rows.restore(active & (steps_left > 3 * trial))))

    if unroll:
        state = scan(lambda s, _: (step(s), None), state, None, length=max_steps)[0]
    else:
        state = while_loop(going, step, state)
    x, left, steps, sound = state[0], state[5], state[6], state[7]
    steps = steps if sound is None else jnp.where(sound[..., 0], steps, UNSOUND)
    done = rows.restore(~(left > goal))
    return rows.restore(x * size), steps.reshape(rows.tokens), done


def chebyshev(product: Product, b: Array, low: Array, high: Array, steps: Array | int) -> Array:
    """Run ``steps`` Chebyshev steps after x = b / middle, for a spectrum in [low, high].

    The bounds hold per token.  With equal bounds it is exact at once.  Error in the energy norm at
    most ``2 rho^(steps + 1)``, ``rho = (sqrt(k) - 1) / (sqrt(k) + 1)``, ``k = high / low``.
    """
    rows = Rows(b.shape)
    b, low, high = map(rows.flatten, (b, low, high))
    middle, half, product = (high + low) / 2, (high - low) / 2, rows.by_row(product)

    def step(_, state):
        x, change, r, rho = state
        r = r - product(change)
        factor = 1 / (2 * middle - half * rho)
        change = half * factor * rho * change + 2 * factor * r
        return x + change, change, r, half * factor

    state = (b / middle, b / middle, b, half / middle)
    # few steps are faster unrolled; more only cost compile time
    if isinstance(steps, int) and steps <= 4:
        for i in range(steps):
            state = step(i, state)
    else:
        state = fori_loop(0, steps, step, state)
    return rows.restore(state[0])
