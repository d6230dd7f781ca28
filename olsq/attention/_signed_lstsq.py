"""The regression at every token with signed gates: systems that need not be positive definite.

With sigma as in ``_signs``, ``sigma_t H_t`` and ``sigma_t G_t`` are the moments of the same samples
with gates ``|gamma|`` and weights ``sigma_i beta_i``.  Times sigma_t, the system is theirs with a
signed ridge, and the output is read from them as it is::

    o_t = G_t (H_t + Lambda)^-1 q_t = (sigma_t G_t) (sigma_t H_t + sigma_t Lambda)^-1 q_t

So ``olsq.sequence`` does all of it, given those weights and ridges, which its public edge refuses,
and a solver that undoes the sign of a system before it solves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention._signs import magnitudes, running_signs
from olsq.problem import Moments, Solution, check_choice
from olsq.sequence import ConjugateGradient, Dense, online_lstsq
from olsq.sequence._api import _run
from olsq.sequence._chunks import Chunks, system_product
from olsq.sequence._inputs import check
from olsq.sequence._iterate import divide, dot, scaled

UNSOUND = -1  # steps of a token whose system was found not to be positive definite


def signed_lstsq(
    keys: Array, values: Array, queries: Array, *, forget: Any, weight: Any, ridge: Any,
    state: Any, solver: Any, adjoint: Any,
) -> Solution:  # fmt: skip
    """:func:`olsq.online_lstsq` on (B, H, T, dim), with gates (B, H, T) in [-1, 1].

    The value is NaN, and its steps -1, where a system is not positive definite; other tokens and
    gradients do not notice.
    """
    inner = Dense() if solver is None else solver
    if not isinstance(inner, (Dense, ConjugateGradient)) or getattr(inner, "preconditioner", None):
        asked = type(inner).__name__
        asked += ' with preconditioner="chunk"' if isinstance(inner, ConjugateGradient) else ""
        raise ValueError(
            f"solver {asked} needs gates >= 0: with signed=True a system may be indefinite; use "
            "Dense (the default) or ConjugateGradient without a preconditioner"
        )
    check_choice(adjoint, "adjoint", ("implicit", "unrolled"))
    size = None if forget is None else magnitudes(forget)
    if 0 in keys.shape[:-1]:
        return online_lstsq(
            keys, values, queries, forget=size, weight=weight, ridge=ridge, state=state
        )
    stream, batch, dtype = check(keys, values, queries, size, None, weight, ridge, "fixed", state)
    n, length, d = stream.keys.shape
    sigma = jnp.ones((n, length), stream.keys.dtype)
    if forget is not None:
        sigma *= running_signs(forget.reshape(n, length), 1)
    assert stream.ridge is not None
    stream = stream._replace(
        weight=sigma if stream.weight is None else sigma * stream.weight,
        ridge=sigma[..., None] * jnp.broadcast_to(stream.ridge, (n, length, d)),
    )
    # The derivative of an exact solve is the same however it is taken.
    adjoint = "implicit" if isinstance(inner, Dense) else adjoint
    value, final, stats = _run(stream, Definite(inner, adjoint), "unrolled")
    value = jnp.where((stats.steps == UNSOUND)[..., None], jnp.nan, value)
    final = (sigma[:, -1:, None] * x for x in final)
    return Solution(
        value.reshape(*batch, length, -1).astype(dtype),
        Moments(*(x.reshape(*batch, *x.shape[1:]) for x in final)),
        type(stats)(*(x.reshape(*batch, length) for x in stats)),
    )


def upright(chunks: Chunks) -> tuple[Array, Chunks]:
    """Signs (B, n, C, 1) of the systems, by their ridges, and chunks with the systems times them.

    Only what a system is made of: values, and moments after the chunk, are not turned.
    """
    signs = jnp.where(chunks.ridge[..., :1] < 0, -1, 1).astype(chunks.keys.dtype)
    zeta = signs[..., 0] if chunks.zeta is None else signs[..., 0] * chunks.zeta
    return signs, chunks._replace(decay=signs * chunks.decay, zeta=zeta, ridge=signs * chunks.ridge)


def join(x: Array, last: Array) -> Array:
    """(..., d + 1) of (..., d) and (...)."""
    return jnp.concatenate([x, last[..., None].astype(x.dtype)], -1)


@dataclass(frozen=True)
class Definite:
    """A solver of systems times -1 or 1 that are positive definite.

    Where one is not, a query's solution is 0 and its steps ``UNSOUND``: the output is made NaN
    outside, and no NaN meets the gradients of other tokens.  What ``olsq.sequence`` differentiates
    through, with ``adjoint="unrolled"``, is the linear solve here.  Its rule is the same, but the
    steps are the last entry of a solution: ``jax.jacfwd`` of JAX 0.10 fails on auxiliary results.
    """

    inner: Any
    adjoint: str

    modes = ("fixed",)

    @property
    def chunk(self) -> int:
        return self.inner.chunk

    def prepare(self, chunks: Chunks) -> Any:
        return ()

    def unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solutions, and the steps of each."""
        signs, systems = upright(chunks)
        b = signs * b
        if self.adjoint == "unrolled":
            x, steps = self.answer(systems, b, b)
        else:
            kept, query = jax.lax.stop_gradient((systems, b))

            def product(y: Array) -> Array:
                return join(system_product(systems, y[..., :-1]), y[..., -1])

            def solve(_: Any, c: Array) -> Array:
                return join(*self.answer(kept, c[..., :-1], query))

            joined = join(b, jnp.zeros_like(b[..., 0]))
            y = jax.lax.custom_linear_solve(product, joined, solve, symmetric=True)
            x, steps = y[..., :-1], y[..., -1]
        return x, steps.astype(jnp.int32)

    solve = unrolled

    def answer(self, systems: Chunks, b: Array, query: Array) -> tuple[Array, Array]:
        """Solutions and steps for any right-hand sides, the queries among them."""
        if isinstance(self.inner, Dense):
            nothing = (b == 0).all(-1, keepdims=True)  # and so it asks for something
            x, steps = self.inner.solve(systems, (), jnp.where(nothing, 1, b))
            sound = jnp.isfinite(x).all(-1)
            x = jnp.where(nothing | ~sound[..., None], 0, x)
        else:
            diagonal = self.inner.prepare(systems)
            unroll = self.adjoint == "unrolled"
            x, steps = scaled(
                b, lambda b: conjugate_gradient(self.inner, systems, diagonal, b, unroll)
            )
            sound = steps != UNSOUND
            # A derivative may see what its query did not: NaN, since nothing else would tell.
            asked = (b == query).all(-1, keepdims=True)
            x = jnp.where(sound[..., None], x, jnp.where(asked, 0, jnp.nan))
        return x, jnp.where(sound, steps, UNSOUND)


def conjugate_gradient(
    solver: ConjugateGradient, chunks: Chunks, diagonal: Any, b: Array, unroll: bool
) -> tuple[Array, Array]:
    """Solutions, and steps, or ``UNSOUND`` where a curvature was not positive, token by token.

    The iteration of ``olsq.sequence`` without a preconditioner.  That one goes on past a direction
    without positive curvature, which comes from rounding there; here it ends the token.
    """
    sound = jnp.ones_like(b[..., :1], bool)
    start = b
    if solver.start == "jacobi":
        known = (diagonal > 0).all(-1, keepdims=True)
        start = jnp.where(known, b / jnp.where(known, diagonal, 1), 0)
        sound = known | (b == 0).all(-1, keepdims=True)
    # Below rounding a residual says nothing, and its curvature may underflow.
    tol = max(solver.tol, float(jnp.finfo(b.dtype).eps))
    goal = jax.lax.stop_gradient(tol * tol * dot(b, b))
    r = b - system_product(chunks, start)
    steps = jnp.zeros(b.shape[:-1], jnp.int32)

    def running(r: Array, sound: Array) -> Array:
        return (dot(r, r) > goal) & sound

    def step(state: Any) -> Any:
        x, r, p, sound, steps, i = state
        active = running(r, sound)
        product = system_product(chunks, p)
        curvature, size = dot(p, product), dot(r, r)
        sound = sound & (~active | (curvature > 0))
        alpha = jnp.where(active, divide(size, curvature), 0)
        x, r = x + alpha * p, r - alpha * product
        p = jnp.where(active, r + divide(dot(r, r), size) * p, p)
        return x, r, p, sound, steps + active[..., 0], i + 1

    state = (start, r, r, sound, steps, jnp.int32(0))
    if unroll:
        state, _ = jax.lax.scan(lambda s, _: (step(s), None), state, None, solver.max_steps)
    else:

        def go_on(s: Any) -> Array:
            return (s[-1] < solver.max_steps) & running(s[1], s[3]).any()

        state = jax.lax.while_loop(go_on, step, state)
    x, _, _, sound, steps, _ = state
    return x, jnp.where(sound[..., 0], steps, UNSOUND)
