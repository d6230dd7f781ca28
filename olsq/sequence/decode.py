"""One token at a time: update the moments, query the fit, with a factor carried along."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from olsq.problem import Moments
from olsq.sequence._inputs import refuse
from olsq.sequence._iterate import conjugate_gradient, scaled
from olsq.sequence._triangular import inverse_cholesky, inverse_spd

REFRESH_EVERY = 32  # tokens between factorisations; rank-one updates in between
REFRESH_BELOW = 0.3  # or as soon as the gates since then multiply to less than this


class DecodeState(NamedTuple):
    """Moments with a carried inverse, for decoding one token after another.

    Attributes
    ----------
    moments : Moments
        The state proper: gram (..., d, d), cross (..., m, d).
    ridge : array (..., d)
        The fixed problem's ridge; zeros in the discounted problem, whose gram holds it.
    inverse : array (..., d, d)
        Preconditioner: the inverse system at the last refresh, updated by rank one since.
    reach : array (...)
        Product of the gates since the last refresh.
    age : int32 array ()
        Tokens since the last refresh.
    """

    moments: Moments
    ridge: Any
    inverse: Any
    reach: Any
    age: Any


AnyState = TypeVar("AnyState", Moments, DecodeState)


def start_decoding(state: Moments, *, ridge: Any = None) -> DecodeState:
    """Factorise ``state`` once, so that :func:`update` and :func:`query` need not.

    Parameters
    ----------
    state : Moments
        JAX or NumPy, e.g. ``Solution.state`` of a prefill.
    ridge : number or array (..., d), optional
        The ridge of the fixed problem.  None: the gram holds it (the discounted problem).

    Returns
    -------
    DecodeState

    Notes
    -----
    Cost O(d^3).  Values and gradients of later queries do not depend on the carried inverse
    beyond the tolerance of the solve, so it carries no gradient.
    """
    moments = _as_moments(state)
    dtype = moments.gram.dtype
    if ridge is not None:
        refuse("ridge", ridge, lambda r: r < 0, "be >= 0")
    d = moments.gram.shape[-1]
    ridge = jnp.zeros((), dtype) if ridge is None else jnp.asarray(ridge, dtype)
    ridge = jnp.broadcast_to(ridge, (*moments.gram.shape[:-2], d))
    batch = moments.gram.shape[:-2]
    return DecodeState(
        moments, ridge, _inverse(moments.gram, ridge), jnp.ones(batch, dtype), jnp.int32(0)
    )


def update(
    state: AnyState, key: Any, value: Any, *, forget: Any = 1.0, weight: Any = 1.0
) -> AnyState:
    """Take in one token: ``H <- forget H + weight k k^T``, ``G <- forget G + weight v k^T``.

    Parameters
    ----------
    state : Moments or DecodeState
    key, value : array (..., d) and (..., m)
    forget, weight : number or array (...)
        Gate in [0, 1] (0 drops the past, even a non-finite one) and sample weight >= 0 (0 leaves
        the sample out, even a non-finite one).

    Returns
    -------
    Moments or DecodeState, as given

    Raises
    ------
    ValueError
        If a visible ``forget`` or ``weight`` is out of range, or shapes differ.

    Notes
    -----
    O(d^2), and O(d^3) every 32 tokens for a DecodeState.  Differentiable to any order.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> state = olsq.Moments(jnp.zeros((2, 2)), jnp.zeros((1, 2)))
    >>> state = olsq.update(state, jnp.array([1.0, 0.0]), jnp.array([3.0]))
    >>> round(float(olsq.query(state, jnp.array([1.0, 1.0]), ridge=0.5)[0]), 3)
    2.0
    """
    refuse("forget", forget, lambda g: (g < 0) | (g > 1), "lie in [0, 1]")
    refuse("weight", weight, lambda w: w < 0, "be >= 0")
    moments = state.moments if isinstance(state, DecodeState) else _as_moments(state)
    dtype = moments.gram.dtype
    key, value, forget, weight = (jnp.asarray(x, dtype) for x in (key, value, forget, weight))
    d, m = moments.gram.shape[-1], moments.cross.shape[-2]
    if key.shape[-1:] != (d,) or value.shape[-1:] != (m,):
        raise ValueError(
            f"key and value must end in ({d},) and ({m},) for this state, got {key.shape} and "
            f"{value.shape}"
        )
    fine = jnp.isfinite(key).all(-1) & jnp.isfinite(value).all(-1)
    absent = (~fine & (weight == 0))[..., None]
    key, value = jnp.where(absent, 0, key), jnp.where(absent, 0, value)
    gate, w = forget[..., None, None], weight[..., None, None]
    outer = key[..., :, None] * key[..., None, :]
    new = Moments(
        gate * _kept(moments.gram, gate) + w * outer,
        gate * _kept(moments.cross, gate) + w * value[..., :, None] * key[..., None, :],
    )
    if not isinstance(state, DecodeState):
        return new
    return state._replace(moments=new, **_carry_inverse(state, new, key, forget, weight))


def query(
    state: Moments | DecodeState, query: Any, *, ridge: Any = None, tol: float | None = None
) -> Array:
    """Evaluate the fit at one query: ``o = G (H + Lambda)^{-1} q``.

    Parameters
    ----------
    state : Moments or DecodeState
    query : array (..., d)
    ridge : number or array (..., d), optional
        The ridge of the fixed problem, for Moments.  A DecodeState has its own.
    tol : float, optional
        Relative residual of a DecodeState's solve; None: 1e-7 in float32, 1e-14 in float64.

    Returns
    -------
    array (..., m)

    Raises
    ------
    ValueError
        If ``ridge`` is given with a DecodeState, or widths differ.

    Notes
    -----
    From Moments: a Cholesky factorisation, O(d^3).  From a DecodeState: one to three O(d^2) steps
    of conjugate gradient preconditioned by the carried inverse.  Differentiable to any order.
    """
    if isinstance(state, DecodeState):
        if ridge is not None:
            raise ValueError("ridge is part of a DecodeState; leave it out here")
        return solve_query(state, query, tol)[0]
    moments = _as_moments(state)
    q = _as_query(query, moments)
    system = moments.gram
    if ridge is not None:
        refuse("ridge", ridge, lambda r: r < 0, "be >= 0")
        lam = jnp.broadcast_to(jnp.asarray(ridge, q.dtype), (*system.shape[:-2], q.shape[-1]))
        system = system + lam[..., None] * jnp.eye(q.shape[-1], dtype=q.dtype)
    inv = inverse_cholesky(jax.lax.stop_gradient(system))

    def solve(_, b: Array) -> Array:
        return jnp.einsum("...ji,...j->...i", inv, jnp.einsum("...ij,...j->...i", inv, b))

    batch = jnp.broadcast_shapes(q.shape[:-1], system.shape[:-2])
    q = jnp.broadcast_to(q, (*batch, q.shape[-1]))
    x = jax.lax.custom_linear_solve(
        lambda x: jnp.einsum("...ij,...j->...i", system, x), q, solve, symmetric=True
    )
    return jnp.einsum("...ij,...j->...i", moments.cross, x)


def solve_query(state: DecodeState, query: Any, tol: float | None = None) -> tuple[Array, Array]:
    """:func:`query` of a DecodeState, with the number of steps it took, (..., m) and (...)."""
    q = _as_query(query, state.moments)
    if tol is None:
        tol = 1e-7 if q.dtype == jnp.float32 else 1e-14
    gram, ridge = state.moments.gram, state.ridge
    batch = jnp.broadcast_shapes(q.shape[:-1], gram.shape[:-2])
    q = jnp.broadcast_to(q, (*batch, q.shape[-1]))
    inverse = jax.lax.stop_gradient(state.inverse)

    def product(x: Array) -> Array:
        return jnp.einsum("...ij,...j->...i", gram, x) + ridge * x

    def precondition(r: Array) -> Array:
        return jnp.einsum("...ij,...j->...i", inverse, r)

    def solve(product: Any, b: Array) -> tuple[Array, Array]:
        return scaled(
            b,
            lambda b: conjugate_gradient(
                product,
                precondition,
                b,
                precondition(b),
                tol=tol,
                max_steps=4 * b.shape[-1],
                unroll=False,
            ),
        )

    x, steps = jax.lax.custom_linear_solve(product, q, solve, symmetric=True, has_aux=True)
    return jnp.einsum("...ij,...j->...i", state.moments.cross, x), steps


def merge_moments(first: Moments, second: Moments, *, forget: Any = 1.0) -> Moments:
    """Moments of two consecutive pieces of a stream: ``forget * first + second``.

    Parameters
    ----------
    first, second : Moments
        ``second`` started from zero, after ``first``; only ``first`` may hold a ridge.
    forget : number or array (...)
        Product of all gates of the second piece.

    Returns
    -------
    Moments

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> one = olsq.Moments(jnp.eye(2), jnp.ones((1, 2)))
    >>> olsq.sequence.merge_moments(one, one, forget=0.5).cross
    Array([[1.5, 1.5]], dtype=float32)
    """
    refuse("forget", forget, lambda g: (g < 0) | (g > 1), "lie in [0, 1]")
    first, second = _as_moments(first), _as_moments(second)
    gate = jnp.asarray(forget, first.gram.dtype)[..., None, None]
    return Moments(*(gate * _kept(a, gate) + b for a, b in zip(first, second, strict=True)))


def _kept(state: Array, gate: Array) -> Array:
    """``state`` with non-finite entries dropped where the gate is 0, so that 0 * nan is 0."""
    return jnp.where((gate == 0) & ~jnp.isfinite(state), 0, state)


def _inverse(gram: Array, ridge: Array) -> Array:
    eye = jnp.eye(gram.shape[-1], dtype=gram.dtype)
    return inverse_spd(jax.lax.stop_gradient(gram + ridge[..., None] * eye))


def _carry_inverse(
    state: DecodeState, new: Moments, key: Array, gate: Array, weight: Array
) -> dict[str, Array]:
    """Refresh the inverse when it is old or the gates have forgotten much, else rank one."""
    key, gate, weight = jax.lax.stop_gradient((key, gate, weight))
    reach = jax.lax.stop_gradient(state.reach) * gate
    age = state.age + 1
    fresh = (age >= REFRESH_EVERY) | (reach < REFRESH_BELOW).any()
    old = jax.lax.stop_gradient(state.inverse)

    def rank_one() -> tuple[Array, Array, Array]:
        u = jnp.einsum("...ij,...j->...i", old, key)
        s = gate + weight * (key * u).sum(-1)
        h = u * jnp.sqrt(weight / s)[..., None]
        cov = (old - h[..., :, None] * h[..., None, :]) / gate[..., None, None]
        return jnp.broadcast_to(cov, new.gram.shape), reach, age

    def refresh() -> tuple[Array, Array, Array]:
        # The gates discount the ridge inside the inverse from now on.  Start it so much too
        # large that it is right halfway to the next refresh, if gates stay as they were.
        ahead = jnp.clip(reach, REFRESH_BELOW, 1) ** -0.5
        ridge = ahead[..., None] * state.ridge
        return _inverse(new.gram, ridge), jnp.ones_like(reach), jnp.zeros_like(age)

    inverse, reach, age = jax.lax.cond(fresh, refresh, rank_one)
    return {"inverse": inverse, "reach": reach, "age": age}


def _as_moments(state: Any) -> Moments:
    gram, cross = (jnp.asarray(s) for s in state)
    dtype = jnp.promote_types(jnp.result_type(gram, cross), jnp.float32)
    if gram.shape[-1:] != gram.shape[-2:-1] or cross.shape[-1:] != gram.shape[-1:]:
        raise ValueError(
            f"state must be Moments(gram (..., d, d), cross (..., m, d)), got {gram.shape} and "
            f"{cross.shape}"
        )
    return Moments(gram.astype(dtype), cross.astype(dtype))


def _as_query(query: Any, moments: Moments) -> Array:
    q = jnp.asarray(query, moments.gram.dtype)
    if q.shape[-1:] != moments.gram.shape[-1:]:
        raise ValueError(f"query must end in ({moments.gram.shape[-1]},), got {q.shape}")
    return q
