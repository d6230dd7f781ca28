"""The systems ``(S_t + ridge_t) x_t = b_t`` of a step's queries: products, preconditioners, solve.

``S_t x = sum_i p_ti ((k_i - kbar_t) . x) k_i`` costs two products of the size of attention scores
for all queries of a step together; no matrix per query is formed (but by the preconditioner "own",
for a few features).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.local.jax.layout import Step
from olsq.sequence.jax.control import custom_linear_solve, scan, while_loop
from olsq.sequence.jax.iterations import divide, dot, scaled
from olsq.sequence.jax.triangular import guarded_inverse_cholesky

Product = Callable[[Array], Array]
ROUNDED = 2.0  # residual, in units of what rounding leaves, at which a solve is done


class Rule(NamedTuple):
    """When to stop, and what to precondition with; static."""

    tol: float | None
    max_steps: int
    preconditioner: str  # "none", "moments", "block", "own"


class Systems(NamedTuple):
    """A step's weights, keys and what the systems are made of; R blocks of queries, J tiles."""

    step: Step
    weights: Array  # (J, B, C): weights p times ``total``
    keys: Array  # (J, C, d)
    mean: Array  # (R, B, d): kbar
    inverse_total: Array  # (R, B, 1)
    ridge: Array  # (R, B, 1)


def to_tiles(x: Array, step: Step) -> Array:
    """Rows (R, B, ...) of each tile's queries, (J, B, ...)."""
    return x[step.row]


def sum_tiles(x: Array, step: Step) -> Array:
    """Sums of (J, B, ...) over the tiles of each block of queries, (R, B, ...)."""
    rows = len(step.blocks)
    if rows == 1:
        return x.sum(0, keepdims=True)
    mine = (step.row == jnp.arange(rows)[:, None]).astype(x.dtype)
    return (mine @ x.reshape(len(x), -1)).reshape(rows, *x.shape[1:])


def centred_weights(systems: Systems, x: Array) -> Array:
    """``p_ti (k_i - kbar_t) . x_t`` times ``total``, (J, B, C)."""
    along = jnp.einsum("jbd,jcd->jbc", to_tiles(x, systems.step), systems.keys)
    return systems.weights * (along - to_tiles(dot(systems.mean, x), systems.step))


def system_product(systems: Systems, x: Array) -> Array:
    """``(S_t + ridge_t) x_t`` of every query, (R, B, d)."""
    read = jnp.einsum("jbc,jcd->jbd", centred_weights(systems, x), systems.keys)
    return sum_tiles(read, systems.step) * systems.inverse_total + systems.ridge * x


def solve_systems(systems: Systems, b: Array, spread: Array, rule: Rule) -> tuple[Array, Array]:
    """Solutions (R, B, d) and steps (R, B); ``spread`` (R, B, 1) is the trace of S.

    Derivatives are implicit: those of x = M^{-1} b, by another solve, of any order and in any mode.
    """
    fixed = jax.lax.stop_gradient((systems, spread))
    precondition = make_preconditioner(fixed[0], rule.preconditioner)

    def solve(product: Product, b: Array) -> tuple[Array, Array]:
        def descend(b: Array) -> tuple[Array, Array]:
            return conjugate_gradient(product, precondition, b, fixed[0].ridge, fixed[1], rule)

        return scaled(b, descend)

    def product(x: Array) -> Array:
        return system_product(systems, x)

    return custom_linear_solve(product, b, solve, symmetric=True, has_aux=True)


def conjugate_gradient(
    product: Product, precondition: Product, b: Array, ridge: Array, spread: Array, rule: Rule
) -> tuple[Array, Array]:
    """Preconditioned conjugate gradient on all queries of a step, from 0.

    A query stops at ``|r| <= tol |b|``, or with no tolerance where its residual is what rounding
    leaves: products round by about ``eps sum_i p_i |(k_i - kbar) . x| |k_i|``, which is at most
    ``eps sqrt(tr(S) x.Sx)``, and ``x.Sx <= x.b``.  Stopped queries are frozen by a mask, so that
    the iteration does not depend on the scale of keys and ridge; the loop ends with its last query.
    """
    eps = float(jnp.finfo(b.dtype).eps)
    norm = jnp.sqrt(dot(b, b))

    def unsolved(x: Array, left: Array) -> Array:
        products = ridge * jnp.sqrt(dot(x, x)) + jnp.sqrt(spread * jnp.abs(dot(x, b)))
        goal = ROUNDED * eps * (norm + products)
        if rule.tol is not None:
            goal = jnp.maximum(rule.tol * norm, goal)
        return jnp.sqrt(left) > goal

    z = precondition(b)
    x, active = jnp.zeros_like(b), unsolved(jnp.zeros_like(b), dot(b, b))
    steps = jnp.zeros(b.shape[:-1], jnp.int32)
    state = x, b, z, dot(b, z), active, steps, jnp.int32(0)

    def step(state: Any) -> Any:
        x, r, p, rz, active, steps, i = state
        along = product(p)
        alpha = divide(rz, jnp.where(active, dot(p, along), 0))
        x_new, r_new = x + alpha * p, r - alpha * along
        left = dot(r_new, r_new)
        taken = active & (alpha > 0) & jnp.isfinite(left) & jnp.isfinite(dot(x_new, x_new))
        x, r = jnp.where(taken, x_new, x), jnp.where(taken, r_new, r)
        z = precondition(r)
        rz_new = dot(r, z)
        p = jnp.where(taken, z + divide(rz_new, jnp.where(taken, rz, 0)) * p, p)
        steps = steps + active[..., 0].astype(jnp.int32)
        return x, r, p, rz_new, taken & unsolved(x, left), steps, i + 1

    def going(state: Any) -> Array:
        return (state[-1] < rule.max_steps) & state[4].any()

    x, _, _, _, _, steps, _ = while_loop(going, step, state)
    return x, steps


def make_preconditioner(systems: Systems, kind: str) -> Product:
    """An approximate inverse of the systems, symmetric and positive definite.

    * "none": the residual itself;
    * "moments": the factor of a block's unweighted covariance of keys, plus the mean ridge;
    * "block": the same of the covariance weighted by the mean weights of the block's queries;
    * "own": each query's own matrix, formed: exact up to rounding, ``d (d + 1) / 2`` more columns.
    """
    if kind == "none":
        return lambda r: r
    if kind == "own":
        factor = guarded_inverse_cholesky(_own_matrices(systems))
        inverse = jnp.einsum("rbji,rbjk->rbik", factor, factor)
        pattern = "rbik,rbk->rbi"
    else:
        factor = guarded_inverse_cholesky(_shared_matrices(systems, kind))
        inverse = jnp.einsum("rji,rjk->rik", factor, factor)
        pattern = "rik,rbk->rbi"

    def precondition(r: Array) -> Array:
        z = jnp.einsum(pattern, inverse, r)
        return jnp.where(jnp.isfinite(z).all(-1, keepdims=True), z, r)  # no factor: ridge 0

    return precondition


def _shared_matrices(systems: Systems, kind: str) -> Array:
    """One matrix (R, d, d) for each block of queries."""
    step, keys = systems.step, systems.keys
    if kind == "moments":
        shares = (systems.weights > 0).any(1).astype(keys.dtype)  # (J, C)
    else:
        shares = (systems.weights * to_tiles(systems.inverse_total, step)).sum(1)
    total = sum_tiles(shares.sum(-1)[:, None], step)[:, 0]
    total = jnp.where(total > 0, total, 1)
    mean = sum_tiles(jnp.einsum("jc,jcd->jd", shares, keys)[:, None], step)[:, 0] / total[:, None]
    off = keys - mean[step.row][:, None]
    gram = jnp.einsum("jcd,jce->jde", shares[..., None] * off, off)
    gram = sum_tiles(gram, step) / total[:, None, None]
    ridge = systems.ridge.mean(1)  # (R, 1)
    return gram + ridge[..., None] * jnp.eye(keys.shape[-1], dtype=keys.dtype)


def _own_matrices(systems: Systems) -> Array:
    """``S_t + ridge_t`` of every query, (R, B, d, d)."""
    step, keys = systems.step, systems.keys
    d, rows = keys.shape[-1], len(step.blocks)
    low, high = jnp.tril_indices(d)
    # about a centre near the block's means, lest the squares cancel
    centre = systems.mean.mean(1)

    def tile(total: Array, x: Any) -> tuple[Array, None]:
        weights, keys, row = x
        off = keys - centre[row]
        made = weights @ (off[:, low] * off[:, high])
        return total.at[row].add(made), None

    start = jnp.zeros((rows, systems.mean.shape[1], len(low)), keys.dtype)
    packed, _ = scan(tile, start, (systems.weights, keys, step.row))
    packed = packed * systems.inverse_total
    full = jnp.zeros((*packed.shape[:2], d, d), keys.dtype)
    full = full.at[..., low, high].set(packed).at[..., high, low].set(packed)
    off = systems.mean - centre[:, None]
    full = full - off[..., :, None] * off[..., None, :]
    return full + systems.ridge[..., None] * jnp.eye(d, dtype=keys.dtype)
