"""The systems ``(S_t + ridge_t) x_t = b_t`` of a step's queries: products, preconditioners, solve.

``S_t x = sum_i p_ti ((k_i - kbar_t) . x) k_i`` costs two products of the size of attention scores
for all queries of a step together.  A matrix for each query of one step is formed where that is
cheaper than the products: for a few features, and where many steps did not suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from olsq.local.jax.layout import Step
from olsq.sequence.jax.control import (
    cond,
    custom_linear_solve,
    max_over_vmap,
    scan,
    vary_together,
    while_loop,
)
from olsq.sequence.jax.iterations import divide, dot, scaled
from olsq.sequence.jax.triangular import guarded_inverse_cholesky

Product = Callable[[Array], Array]
ROUNDED = 2.0  # residual, in units of what rounding leaves, at which a solve is done


class Rule(NamedTuple):
    """The stopping rule and the preconditioner of a solve; static.

    ``preconditioner`` is a name in :data:`PRECONDITIONERS`, used from the first step on, or None:
    plain conjugate gradient, and where queries of a block are not done after ``trial`` steps their
    own matrices, formed, which end it in one or two.
    """

    tol: float | None
    max_steps: int
    preconditioner: str | None
    trial: int


class Systems(NamedTuple):
    """The weights, keys and means that define a step's systems; R blocks of queries, J tiles."""

    step: Step
    weights: Array  # (J, B, C): weights p times ``total``
    keys: Array  # (J, C, d)
    mean: Array  # (R, B, d): kbar
    inverse_total: Array  # (R, B, 1)
    ridge: Array  # (R, B, 1)


def to_tiles(x: Array, step: Step) -> Array:
    """Gather the rows (R, B, ...) of each tile's queries, (J, B, ...)."""
    return x[step.row]


def sum_tiles(x: Array, step: Step) -> Array:
    """Sum (J, B, ...) over the tiles of each block of queries, (R, B, ...)."""
    rows = len(step.blocks)
    if rows == 1:
        return x.sum(0, keepdims=True)
    mine = (step.row == jnp.arange(rows, dtype=step.row.dtype)[:, None]).astype(x.dtype)
    return (mine @ x.reshape(x.shape[0], -1)).reshape(rows, *x.shape[1:])


def centred_weights(systems: Systems, x: Array) -> Array:
    """Compute ``p_ti (k_i - kbar_t) . x_t`` times ``total``, (J, B, C)."""
    along = jnp.einsum("jbd,jcd->jbc", to_tiles(x, systems.step), systems.keys)
    return systems.weights * (along - to_tiles(dot(systems.mean, x), systems.step))


def system_product(systems: Systems, x: Array) -> Array:
    """Compute ``(S_t + ridge_t) x_t`` of every query, (R, B, d)."""
    read = jnp.einsum("jbc,jcd->jbd", centred_weights(systems, x), systems.keys)
    return sum_tiles(read, systems.step) * systems.inverse_total + systems.ridge * x


def solve_systems(systems: Systems, b: Array, spread: Array, rule: Rule) -> tuple[Array, Array]:
    """Solve for x (R, B, d), with the steps (R, B) taken; ``spread`` (R, B, 1) is the trace of S.

    Derivatives are implicit: those of x = M^{-1} b, by another solve, of any order and in any mode.
    """
    systems, b = vary_together((systems, b))
    fixed, spread = jax.lax.stop_gradient((systems, spread))
    name = rule.preconditioner

    def solve(product: Product, b: Array) -> tuple[Array, Array]:
        def descend(b: Array) -> tuple[Array, Array]:
            problem = Problem(product, b, fixed.ridge, spread, rule.tol)
            if name is not None:
                begun, precondition = start_descent(problem), PRECONDITIONERS[name](fixed)
                return end_descent(problem, begun, precondition, rule.max_steps)[:2]
            begun = start_descent(problem)
            descent = end_descent(problem, begun, plain(fixed), min(rule.trial, rule.max_steps))
            if rule.trial >= rule.max_steps:
                return descent.x, descent.steps
            steps_left = rule.max_steps - rule.trial
            descent = cond(
                max_over_vmap(descent.active.any()),
                lambda descent: end_descent(
                    problem, go_on(problem, descent), exact_inverse(fixed), steps_left
                ),
                lambda descent: descent,
                descent,
            )
            return descent.x, descent.steps

        return scaled(b, descend)

    def product(x: Array) -> Array:
        return system_product(systems, x)

    return custom_linear_solve(product, b, solve, symmetric=True, has_aux=True)


class Problem(NamedTuple):
    """The systems and right-hand sides that an iteration solves."""

    product: Product
    b: Array  # (R, B, d)
    ridge: Array  # (R, B, 1)
    spread: Array  # (R, B, 1), the trace of S
    tol: float | None


class Descent(NamedTuple):
    """The state of an iteration: solutions, steps, residuals."""

    x: Array
    steps: Array  # (R, B), taken so far
    r: Array  # the residual b - M x
    active: Array  # (R, B, 1), for which queries it goes on


def unsolved(problem: Problem, x: Array, left: Array) -> Array:
    """Test whether residuals of squared norm ``left`` (R, B, 1) are larger than they have to be.

    With a tolerance ``|r| <= tol |b|``, and never less than a few times what rounding leaves:
    products round by about ``eps sum_i p_i |(k_i - kbar) . x| |k_i|``, which is at most
    ``eps sqrt(tr(S) x.Sx)``, and ``x.Sx <= x.b``.
    """
    b, eps = problem.b, float(jnp.finfo(x.dtype).eps)
    norm = jnp.sqrt(dot(b, b))
    products = problem.ridge * jnp.sqrt(dot(x, x)) + jnp.sqrt(problem.spread * jnp.abs(dot(x, b)))
    goal = ROUNDED * eps * (norm + products)
    if problem.tol is not None:
        goal = jnp.maximum(problem.tol * norm, goal)
    return jnp.sqrt(left) > goal


def start_descent(problem: Problem) -> Descent:
    """Start the iteration from 0."""
    b = problem.b
    zero, steps = jnp.zeros_like(b), jnp.zeros(b.shape[:-1], jnp.int32)
    return Descent(zero, steps, b, unsolved(problem, zero, dot(b, b)))


def go_on(problem: Problem, descent: Descent) -> Descent:
    """Restart for the queries that are not done, from the residual b - M x computed anew."""
    return descent._replace(r=problem.b - problem.product(descent.x))


def end_descent(problem: Problem, begun: Descent, precondition: Product, max_steps: int) -> Descent:
    """Take at most ``max_steps`` steps of preconditioned conjugate gradient on all queries.

    Queries that are done are frozen by a mask, so that the iteration does not depend on the scale
    of keys and ridge; the loop ends with the last of them.
    """
    x, steps, r, active = begun
    z = precondition(r)
    state = x, r, z, dot(r, z), active, steps, jnp.int32(0)

    def step(state: Any) -> Any:
        x, r, p, rz, active, steps, i = state
        # alpha = r.z / p.Mp, 0 for queries that are done
        along = problem.product(p)
        alpha = divide(rz, jnp.where(active, dot(p, along), 0))
        x_new, r_new = x + alpha * p, r - alpha * along
        left = dot(r_new, r_new)
        taken = active & (alpha > 0) & jnp.isfinite(left) & jnp.isfinite(dot(x_new, x_new))
        x, r = jnp.where(taken, x_new, x), jnp.where(taken, r_new, r)
        z = precondition(r)
        rz_new = dot(r, z)
        # p' = z' + (r'.z' / r.z) p
        p = jnp.where(taken, z + divide(rz_new, jnp.where(taken, rz, 0)) * p, p)
        steps = steps + active[..., 0].astype(jnp.int32)
        return x, r, p, rz_new, taken & unsolved(problem, x, left), steps, i + 1

    def going(state: Any) -> Array:
        return (state[-1] < max_steps) & state[4].any()

    x, r, _, _, active, steps, _ = while_loop(going, step, state)
    return Descent(x, steps, r, active)


def plain(systems: Systems) -> Product:
    """Return the identity: no preconditioner."""
    del systems
    return lambda r: r


def exact_inverse(systems: Systems) -> Product:
    """Return the inverse of each query's own matrix, exact up to rounding.

    Forming them costs as many multiply-adds as ``d / 4`` steps, at half the rate of a step's
    products or less, and inverting them ``d^3`` a query, whatever the number of keys: about as much
    as d steps in all.
    """
    factor = guarded_inverse_cholesky(own_matrices(systems))
    inverse = jnp.einsum("rbji,rbjk->rbik", factor, factor)

    def precondition(r: Array) -> Array:
        z = jnp.einsum("rbik,rbk->rbi", inverse, r)
        return jnp.where(jnp.isfinite(z).all(-1, keepdims=True), z, r)  # no factor: ridge 0

    return precondition


# name -> what makes an approximate inverse, symmetric and positive definite, of a step's systems
PRECONDITIONERS: dict[str, Callable[[Systems], Product]] = {"none": plain, "own": exact_inverse}


def own_matrices(systems: Systems) -> Array:
    """Form ``S_t + ridge_t`` of every query, (R, B, d, d)."""
    step, keys = systems.step, systems.keys
    d, rows = keys.shape[-1], len(step.blocks)
    low, high = np.tril_indices(d)
    # About one of the block's means, lest the squares cancel: the smallest, because a later query
    # may see a key so large that nothing is left of the others' squares about its mean.
    centre = systems.mean[jnp.arange(rows), dot(systems.mean, systems.mean)[..., 0].argmin(1)]

    def tile(total: Array, x: Any) -> tuple[Array, None]:
        weights, keys, row = x
        off = keys - centre[row]
        products = weights @ (off[:, low] * off[:, high])
        return total.at[row].add(products), None

    start = jnp.zeros((rows, systems.mean.shape[1], len(low)), keys.dtype)
    packed, _ = scan(tile, start, (systems.weights, keys, step.row))
    packed = packed * systems.inverse_total
    full = jnp.zeros((*packed.shape[:2], d, d), keys.dtype)
    full = full.at[..., low, high].set(packed).at[..., high, low].set(packed)
    # S = sum p (k - c)(k - c)^T - (kbar - c)(kbar - c)^T for any centre c
    off = systems.mean - centre[:, None]
    full = full - off[..., :, None] * off[..., None, :]
    return full + systems.ridge[..., None] * jnp.eye(d, dtype=keys.dtype)
