"""Gates in [-1, 1]: reduce rules and regressions to ones with the absolute values of the gates.

With ``s_t = sign(gamma_t)``, sign(0) = 1, and ``sigma_t`` the product of s_1 .. s_t, the product of
gates i+1 .. t is ``sigma_t sigma_i`` times that of their absolute values.  So a memory written with
keys ``sigma_i k_i`` and read by queries ``sigma_t q_t``, forgotten by ``|gamma|``, gives the
outputs of the signed one, and ends as it does times ``sigma_T``::

    S_t = gamma_t S_{t-1} + beta_t v_t k_t^T
    sigma_t S_t = |gamma_t| sigma_{t-1} S_{t-1} + beta_t v_t (sigma_t k_t)^T

It holds per key dimension for vector gates. The delta rule is unchanged, because its factor
``1 - beta k k^T`` does not depend on the sign of the key. ``|gamma|`` is written ``s gamma`` with s
a constant: both sides are then one polynomial in the gates, and every derivative is that of
the signed rule, at a gate of 0 too.

A regression's ``sigma_t H_t`` and ``sigma_t G_t`` are the moments of the same samples with gates
``|gamma|`` and weights ``sigma_i beta_i``, a system that may be indefinite.  Times sigma_t,
it is theirs with a signed ridge, and the output is read from them as it is::

    o_t = G_t (H_t + Lambda)^-1 q_t = (sigma_t G_t) (sigma_t H_t + sigma_t Lambda)^-1 q_t

So ``olsq.sequence`` does all of it, given those weights and ridges, which its public edge refuses,
and a solver that undoes the sign of a system before it solves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import check_choice
from olsq.problem import Moments, Solution
from olsq.sequence.jax.control import custom_linear_solve
from olsq.sequence.jax.inputs import check
from olsq.sequence.jax.iterations import UNSOUND, conjugate_gradient
from olsq.sequence.jax.pieces import cumulate
from olsq.sequence.jax.platform import given_target
from olsq.sequence.jax.solve import certify, online_lstsq, restore_batch, solve_stream
from olsq.sequence.jax.solver import Chunks, JaxSolver, system_diagonal, system_product
from olsq.solvers import ConjugateGradient, Dense, Solver

Tokens = TypeVar("Tokens", bound=Any)  # a named tuple with q, k, forget and given


def magnitudes(gates: Array) -> Array:
    """Compute ``|gates|``, with derivative 1 and not 0 at a gate of 0; NaN stays NaN."""
    return jnp.where(gates < 0, -1, 1) * gates


def running_signs(gates: Array, axis: int) -> Array:
    """Compute sigma: 1 where an even number of the gates so far is negative, else -1.

    It is exact, and constant for derivatives.
    """
    odd = cumulate(jnp.add, (gates < 0).astype(jnp.int32), axis, jnp.cumsum) % 2
    return (1 - 2 * odd).astype(gates.dtype)


def remove_signs(tokens: Tokens) -> tuple[Tokens, Any]:
    """Rewrite tokens for a rule with ``|gamma|``.

    Also returns the sign to multiply its last memory (N, V, K) by.

    The sign is None where no gate can be negative: there are no gates, or no tokens.
    """
    gates = tokens.forget
    if gates is None or not gates.shape[1]:
        return tokens, None
    sigma = running_signs(gates, 1)
    each = sigma if gates.ndim == 3 else sigma[..., None]
    upright = tokens._replace(
        q=each * tokens.q, k=each * tokens.k, forget=magnitudes(gates), by_head=None
    )
    return upright, each[:, -1:]


def signed_lstsq(
    keys: Array,
    values: Array,
    queries: Array,
    *,
    forget: Any,
    weight: Any,
    ridge: Any,
    state: Any,
    solver: Any,
    adjoint: Any,
) -> Solution[Array]:
    """Solve :func:`olsq.online_lstsq` on (B, H, T, dim) with gates (B, H, T) in [-1, 1].

    The value is NaN, and its steps -1, where a system is not positive definite; other tokens and
    gradients are not affected.
    """
    inner = Dense() if solver is None else solver
    if not isinstance(inner, (Dense, ConjugateGradient)) or getattr(inner, "preconditioner", None):
        described = type(inner).__name__
        described += ' with preconditioner="chunk"' if isinstance(inner, ConjugateGradient) else ""
        raise ValueError(
            f"solver {described} needs gates >= 0: with signed=True a system may be indefinite; "
            "use Dense (the default) or ConjugateGradient without a preconditioner"
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
    unrolls = adjoint == "unrolled" and not isinstance(inner, Dense)
    value, final, sizes = solve_stream(stream, Signed(inner, unrolls), True, on=given_target())
    value = jnp.where((sizes.steps == UNSOUND)[..., None], jnp.nan, value)
    # Samples of negative weight may take all of the ridge away: nothing bounds these systems.
    no_floor = stream._replace(ridge=jnp.zeros((1, 1, d), stream.keys.dtype))
    stats = certify(no_floor, value, sizes, dtype)
    final = Moments(*(sigma[:, -1:, None] * x for x in final))
    return restore_batch(value, final, stats, batch, dtype)


def make_positive(chunks: Chunks) -> tuple[Array, Chunks]:
    """Make systems positive by the sign (B, n, C, 1) of their ridges; return signs and chunks.

    Only the systems are multiplied: values, and moments after the chunk, stay as they are.
    """
    signs = jnp.where(chunks.ridge[..., :1] < 0, -1, 1).astype(chunks.keys.dtype)
    zeta = signs[..., 0] if chunks.zeta is None else signs[..., 0] * chunks.zeta
    return signs, chunks._replace(decay=signs * chunks.decay, zeta=zeta, ridge=signs * chunks.ridge)


def append_entry(x: Array, last: Array) -> Array:
    """Append the entry ``last`` (...) to x (..., d), giving (..., d + 1)."""
    return jnp.concatenate([x, last[..., None].astype(x.dtype)], -1)


@dataclass(frozen=True)
class Signed(Solver):
    """Solver wrapped for systems that may be indefinite."""

    inner: Solver
    unrolls: bool

    ridge_modes: ClassVar[tuple[str, ...]] = ("fixed",)

    @property
    def chunk(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.chunk

    def sized(self, chunk: int) -> Signed:
        return Signed(self.inner.sized(chunk), self.unrolls)

    def jax(self) -> JaxSolver:
        return SignedSystems(self)


@dataclass(frozen=True)
class SignedSystems(JaxSolver):
    """JAX form of a solver for systems that are positive definite up to their sign.

    Where a system is neither, a query's solution is 0 and its steps are ``UNSOUND``: the caller
    makes the output NaN, and no NaN enters the gradients of other tokens. ``olsq.sequence``
    differentiates through the linear solve here, as it does through unrolled steps. The rule is
    that of the implicit solve, but the steps are the last entry of a solution, because
    ``jax.jacfwd`` of JAX 0.10 fails on auxiliary results.
    """

    options: Signed

    def prepare(self, chunks: Chunks) -> Any:
        return ()

    def solve_unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve for every token; also return the steps of each."""
        signs, systems = make_positive(chunks)
        b = signs * b
        if self.options.unrolls:
            x, steps = self.solve_signed(systems, b, b)
        else:
            kept, query = jax.lax.stop_gradient((systems, b))

            def product(y: Array) -> Array:
                return append_entry(system_product(systems, y[..., :-1]), y[..., -1])

            def solve(_: Any, c: Array) -> Array:
                return append_entry(*self.solve_signed(kept, c[..., :-1], query))

            joined = append_entry(b, jnp.zeros_like(b[..., 0]))
            y = custom_linear_solve(product, joined, solve, symmetric=True)
            x, steps = y[..., :-1], y[..., -1]
        return x, steps.astype(jnp.int32)

    solve = solve_unrolled

    def solve_signed(self, systems: Chunks, b: Array, query: Array) -> tuple[Array, Array]:
        """Solve for any right-hand sides, with their steps.

        ``query`` are the right-hand sides of the forward pass.
        """
        if isinstance(self.options.inner, Dense):
            # replaced by ones, so that the solve still tests whether the system is definite
            nothing = (b == 0).all(-1, keepdims=True)
            x, steps = self.options.inner.jax().solve(systems, (), jnp.where(nothing, 1, b))
            sound = jnp.isfinite(x).all(-1)
            x = jnp.where(nothing | ~sound[..., None], 0, x)
        else:
            x, steps = self._solve_by_conjugate_gradient(systems, b)
            sound = steps != UNSOUND
            # A derivative's right-hand side may meet an indefinite direction that its query did
            # not: NaN, since nothing else would report it.
            forward = (b == query).all(-1, keepdims=True)
            x = jnp.where(sound[..., None], x, jnp.where(forward, jnp.zeros_like(x), jnp.nan))
        return x, jnp.where(sound, steps, UNSOUND)

    def _solve_by_conjugate_gradient(self, systems: Chunks, b: Array) -> tuple[Array, Array]:
        """Run conjugate gradient, ending a token at a direction without positive curvature."""
        options: Any = self.options.inner
        start, sound = b, jnp.ones_like(b[..., :1], bool)
        if options.start == "jacobi":
            diagonal = system_diagonal(systems)
            positive = (diagonal > 0).all(-1, keepdims=True)
            start = jnp.where(positive, b / jnp.where(positive, diagonal, 1), 0)
            sound = positive | (b == 0).all(-1, keepdims=True)
        return conjugate_gradient(
            partial(system_product, systems),
            b,
            start=start,
            # A residual below rounding carries no information, and its curvature may underflow.
            tol=max(options.tol, float(jnp.finfo(b.dtype).eps)),
            max_steps=options.max_steps,
            unroll=self.options.unrolls,
            sound=sound,
        )[:2]
