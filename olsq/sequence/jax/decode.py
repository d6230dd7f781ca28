"""Decode one token at a time in JAX: update moments and query the fit with a carried inverse."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from olsq.arrays.checks import (
    check_forget,
    check_moment_shapes,
    check_real,
    check_ridge,
    check_token_shapes,
    check_weight,
)
from olsq.problem import DecodeState, Moments
from olsq.sequence.jax.control import (
    compile_once,
    cond,
    custom_linear_solve,
    vary_together,
)
from olsq.sequence.jax.inputs import check_moments, promoted
from olsq.sequence.jax.iterations import conjugate_gradient
from olsq.sequence.jax.meshes import on_automatic_axes
from olsq.sequence.jax.platform import in_full_precision
from olsq.sequence.jax.programs import one_program
from olsq.sequence.jax.triangular import guarded_inverse_cholesky, inverse_from_factor

# With an inverse refreshed this often a query takes about 2 steps to 1e-4, instead of 19 from a
# Jacobi start.
REFRESH_EVERY = 32  # tokens between factorisations; rank-one updates in between
REFRESH_BELOW = 0.3  # or as soon as the product of the gates since then is below this
# or where a token's leverage k.P k, beside its gate, times the rounding unit is above this: what a
# rank-one update leaves of P along the key is a difference, off by so much of itself.
REFRESH_LOSS = 0.01


AnyState = TypeVar("AnyState", Moments, DecodeState)


@on_automatic_axes
@one_program
@in_full_precision
def start_decoding(state: Moments, *, ridge: ArrayLike | None = None) -> DecodeState[Array]:
    """Run :func:`olsq.sequence.start_decoding` in JAX, for arrays of any kind."""
    moments = _as_moments(state)
    dtype = moments.gram.dtype
    if ridge is not None:
        check_ridge(ridge)
    d = moments.gram.shape[-1]
    ridge = jnp.zeros((), dtype) if ridge is None else jnp.asarray(ridge, dtype)
    ridge = jnp.broadcast_to(ridge, (*moments.gram.shape[:-2], d))
    batch = moments.gram.shape[:-2]
    return DecodeState(
        moments, ridge, _inverse(moments.gram, ridge), jnp.ones(batch, dtype), jnp.int32(0)
    )


@on_automatic_axes
@one_program
@in_full_precision
def update(
    state: AnyState,
    key: ArrayLike,
    value: ArrayLike,
    *,
    forget: ArrayLike = 1.0,
    weight: ArrayLike = 1.0,
) -> AnyState:
    """Run :func:`olsq.update` in JAX, for arrays of any kind."""
    check_forget(forget)
    check_weight(weight)
    check_real("key", key)
    check_real("value", value)
    moments = state.moments if isinstance(state, DecodeState) else _as_moments(state)
    dtype = moments.gram.dtype
    key, value, forget, weight = (jnp.asarray(x, dtype) for x in (key, value, forget, weight))
    d, m = moments.gram.shape[-1], moments.cross.shape[-2]
    check_token_shapes(key.shape, value.shape, d, m)
    fine = jnp.isfinite(key).all(-1) & jnp.isfinite(value).all(-1)
    absent = (~fine & (weight == 0))[..., None]
    key, value = jnp.where(absent, 0, key), jnp.where(absent, 0, value)
    gate, w = forget[..., None, None], weight[..., None, None]
    batch = jnp.broadcast_shapes(key.shape[:-1], value.shape[:-1])
    both = [jnp.broadcast_to(x, (*batch, x.shape[-1])) for x in (key, value)]
    # rows [k; v] k^T: the increments of H and G in one product
    outer = w * _outer(jnp.concatenate(both, -1), key)
    new = Moments(
        gate * zero_if_reset(moments.gram, gate) + outer[..., :d, :],
        gate * zero_if_reset(moments.cross, gate) + outer[..., d:, :],
    )
    if not isinstance(state, DecodeState):
        return new
    return state._replace(moments=new, **_carry_inverse(state, new, key, forget, weight))


@on_automatic_axes
@one_program
@in_full_precision
def query(
    state: Moments | DecodeState,
    query: ArrayLike,
    *,
    ridge: ArrayLike | None = None,
    tol: float | None = None,
) -> Array:
    """Run :func:`olsq.query` in JAX, for arrays of any kind."""
    if isinstance(state, DecodeState):
        if ridge is not None:
            raise ValueError("leave ridge out: the state is a DecodeState, which has its own")
        return solve_query(state, query, tol)[0]
    moments = _as_moments(state)
    q = _as_query(query, moments)
    system, bounded = moments.gram, jnp.zeros((), bool)
    if ridge is not None:
        check_ridge(ridge)
        lam = jnp.broadcast_to(jnp.asarray(ridge, q.dtype), (*system.shape[:-2], q.shape[-1]))
        system = system + lam[..., None] * jnp.eye(q.shape[-1], dtype=q.dtype)
        bounded = (lam > 0).all(-1)
    return _solve_by_factor(system, bounded, moments.cross, q)


@compile_once
def _solve_by_factor(system: Array, bounded: Array, cross: Array, q: Array) -> Array:
    """Compute ``cross system^-1 q`` by a factorisation."""
    inv = guarded_inverse_cholesky(jax.lax.stop_gradient(system), bounded)

    def solve(_, b: Array) -> Array:
        return jnp.einsum("...ji,...j->...i", inv, jnp.einsum("...ij,...j->...i", inv, b))

    batch = jnp.broadcast_shapes(q.shape[:-1], system.shape[:-2])
    q = jnp.broadcast_to(q, (*batch, q.shape[-1]))
    system, q = vary_together((system, q))
    x = custom_linear_solve(
        lambda x: jnp.einsum("...ij,...j->...i", system, x), q, solve, symmetric=True
    )
    return jnp.einsum("...ij,...j->...i", cross, x)


@on_automatic_axes
@one_program
@in_full_precision
def solve_query(
    state: DecodeState, query: ArrayLike, tol: float | None = None
) -> tuple[Array, Array]:
    """Solve one query of a DecodeState.

    Returns the output (..., m) and the number of steps (...).
    """
    q = _as_query(query, state.moments)
    if tol is None:
        tol = 1e-7 if q.dtype == jnp.float32 else 1e-14
    # A traced tolerance may differ between the devices of a mesh, which JAX does not expect of what
    # a linear solve closes over: that case is not compiled by itself.
    answer = _compiled_solve if isinstance(tol, float) else _solve_by_iteration
    return answer(state, q, tol)


def _solve_by_iteration(state: DecodeState, q: Array, tol: Any) -> tuple[Array, Array]:
    """Solve a checked query of a DecodeState by preconditioned conjugate gradient."""
    gram, ridge = state.moments.gram, state.ridge
    batch = jnp.broadcast_shapes(q.shape[:-1], gram.shape[:-2])
    q = jnp.broadcast_to(q, (*batch, q.shape[-1]))
    gram, ridge, inverse, q = vary_together((gram, ridge, jax.lax.stop_gradient(state.inverse), q))

    # In units in which the system has a diagonal near 1, so that the residual of no column hides
    # behind that of another.  Powers of two change no digit.
    diagonal = jax.lax.stop_gradient(jnp.diagonal(gram, axis1=-2, axis2=-1) + ridge)
    positive = (diagonal > 0) & jnp.isfinite(diagonal)
    unit = jnp.exp2(-jnp.round(jnp.log2(jnp.where(positive, diagonal, 1)) / 2))

    def product(x: Array) -> Array:
        x = unit * x
        return unit * (jnp.einsum("...ij,...j->...i", gram, x) + ridge * x)

    def precondition(r: Array) -> Array:
        return jnp.einsum("...ij,...j->...i", inverse, r / unit) / unit

    def solve(product: Any, b: Array) -> tuple[Array, Array]:
        start, most = precondition(b), 4 * b.shape[-1]
        return conjugate_gradient(
            product, b, start=start, precondition=precondition, tol=tol, max_steps=most
        )[:2]

    x, steps = custom_linear_solve(product, unit * q, solve, symmetric=True, has_aux=True)
    return jnp.einsum("...ij,...j->...i", state.moments.cross, unit * x), steps


_compiled_solve = compile_once(_solve_by_iteration, static_argnames="tol")


@on_automatic_axes
@one_program
def merge_moments(first: Moments, second: Moments, *, forget: ArrayLike = 1.0) -> Moments[Array]:
    """Run :func:`olsq.sequence.merge_moments` in JAX, for arrays of any kind."""
    check_forget(forget)
    first, second = _as_moments(first), _as_moments(second)
    gate = jnp.asarray(forget, first.gram.dtype)[..., None, None]
    return Moments(*(gate * zero_if_reset(a, gate) + b for a, b in zip(first, second, strict=True)))


def _outer(a: Array, b: Array) -> Array:
    """Compute ``a b^T``.

    Both of its uses share one array that is longer than b: XLA computes this seven times as fast on
    a CPU as two products that it fuses with the sums they go into.
    """
    return a[..., :, None] * b[..., None, :]


def zero_if_reset(state: Array, gate: Array) -> Array:
    """Drop the non-finite entries of ``state`` where the gate is 0, so that 0 * nan is 0."""
    return jnp.where((gate == 0) & ~jnp.isfinite(state), 0, state)


def _inverse(gram: Array, ridge: Array) -> Array:
    """Compute ``(H + Lambda)^{-1}`` (..., d, d), without a gradient."""
    eye = jnp.eye(gram.shape[-1], dtype=gram.dtype)
    half = guarded_inverse_cholesky(jax.lax.stop_gradient(gram + ridge[..., None] * eye))
    return inverse_from_factor(half)


@compile_once
def _carry_inverse(
    state: DecodeState[Array], new: Moments[Array], key: Array, gate: Array, weight: Array
) -> dict[str, Array]:
    """Refresh the inverse when it is old or the gates have forgotten much, else update it by rank
    one.
    """
    key, gate, weight = jax.lax.stop_gradient((key, gate, weight))
    product = jax.lax.stop_gradient(state.gate_product) * gate
    age = jnp.asarray(state.age) + 1
    # Rank-one updates discount the ridge inside the inverse with the gates, while the system keeps
    # it whole: the further the gates' product falls, the worse the inverse preconditions.
    fresh = (age >= REFRESH_EVERY) | (product < REFRESH_BELOW).any()
    old = jax.lax.stop_gradient(state.inverse)
    u = jnp.einsum("...ij,...j->...i", old, key)
    leverage = weight * (key * u).sum(-1)
    most = REFRESH_LOSS / jnp.finfo(u.dtype).eps
    fresh = fresh | ((leverage > most * gate) | (leverage < 0)).any()

    def rank_one() -> tuple[Array, Array, Array]:
        # P' = (P - h h^T) / gate,  h = u sqrt(w / s),  u = P k,  s = gate + w k.u
        s = gate + leverage
        h = u * jnp.sqrt(weight / s)[..., None]
        cov = (old - h[..., :, None] * h[..., None, :]) / gate[..., None, None]
        return jnp.broadcast_to(cov, new.gram.shape), product, age

    def refresh() -> tuple[Array, Array, Array]:
        # The gates discount the ridge inside the inverse from now on.  Start it so much too
        # large that it is right halfway to the next refresh, if gates stay as they were.
        ahead = jnp.clip(product, REFRESH_BELOW, 1) ** -0.5
        ridge = ahead[..., None] * state.ridge
        return _inverse(new.gram, ridge), jnp.ones_like(product), jnp.zeros_like(age)

    inverse, product, age = cond(fresh, refresh, rank_one)
    return {"inverse": inverse, "gate_product": product, "age": age}


def _as_moments(state: Any) -> Moments[Array]:
    """Check moments and convert them to JAX arrays of one dtype, at least float32."""
    check_moments(state)
    gram, cross = (jnp.asarray(s) for s in state)
    dtype = promoted(gram, cross, jnp.float32)
    check_moment_shapes(gram.shape, cross.shape)
    return Moments(gram.astype(dtype), cross.astype(dtype))


def _as_query(query: Any, moments: Moments) -> Array:
    """Check a query (..., d) and convert it to the dtype of the moments."""
    check_real("query", query)
    q = jnp.asarray(query, moments.gram.dtype)
    if q.shape[-1:] != moments.gram.shape[-1:]:
        raise ValueError(f"query must end in ({moments.gram.shape[-1]},), got {q.shape}")
    return q
