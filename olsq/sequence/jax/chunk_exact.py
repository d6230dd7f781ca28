"""Chunk-exact least squares: solve every token of a chunk with two Cholesky factorisations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.control import cond, max_over_vmap
from olsq.sequence.jax.factor import (
    Factor,
    apply_inverses,
    factorise,
    factorise_roughly,
    reference_ridge,
    sums_of_logs,
)
from olsq.sequence.jax.iterations import any_token, chebyshev, conjugate_gradient
from olsq.sequence.jax.solver import Chunks, JaxSolver, system_product
from olsq.solvers.chunk_exact import (
    MAX_LOG_SCALE,
    MILD_LOG_SCALE,
    MOST_CORRECTIONS,
    REGULAR,
    ROUNDED,
    ChunkExact,
    correction_error,
)

CORRECTIONS = "corrections"  # names a loop for those who count what a program does
LIMIT = math.exp(2 * MAX_LOG_SCALE)
# Under harsh gates conjugate gradient alone needs a handful of steps; starting with factors and
# preconditioned steps took 4 to 7 times as long.
TRIAL = 24  # steps without factors before their convergence rate decides whether to compute factors
NEAR = 2.0  # |log f| up to which a factor saves more steps than it costs
SERVED = 0.97  # share of tokens within NEAR above which TRIAL steps decide about factors
MOST_UNITS = 1e9  # largest ratio of units: its square times the data still fits float32


class ChunkFactors(NamedTuple):
    """Factors of a tile with one reference per chunk; not used where its gates are harsh."""

    first: Factor
    sums: Any  # cumulative log gates (B, n, C); None: all gates 1
    harsh: Any  # () bool: a chunk forgets too much for one reference; None: none can
    needs_cg: Any  # () bool: conjugate gradient is needed; None: corrections were fixed
    eig_min: Any  # bounds of the spectrum of P M, per token (B, n, C, 1); None: exactly 1
    eig_max: Any


class References(NamedTuple):
    """Reference points of a chunk, as logs: one on each side of its smallest gate."""

    after: Array  # (B, n, C) bool: tokens that the second serves
    centres: tuple[Array, Array]  # (B, n) each

    def within(self, sums: Array, limit: float) -> Array:
        """Return a mask (B, n, C) of the tokens within ``limit`` of their reference."""
        first, second = self.centres
        centre = jnp.where(self.after, second[..., None], first[..., None])
        return jnp.abs(centre - sums) <= limit


def references(sums: Array, harsh: Any) -> References:
    """Choose the references of every chunk: one in the middle (the first) where gates are not
    harsh.
    """
    c = sums.shape[-1]
    # The first token after the smallest gate; `append` keeps the last position from being chosen.
    steepest = jnp.argmin(jnp.diff(sums, axis=-1, append=jnp.inf), -1) + 1
    split = jnp.where(harsh, steepest, c)[..., None]
    last = jnp.take_along_axis(sums, split - 1, -1)[..., 0]
    start = jnp.take_along_axis(sums, jnp.minimum(split, c - 1), -1)[..., 0]
    centres = (sums[..., 0] + last) / 2, (start + sums[..., -1]) / 2
    return References(jnp.arange(c) >= split, centres)


def preconditioner(chunks: Chunks, p: ChunkFactors) -> Callable[[Array], Array]:
    """Return ``r -> P_t r_t`` with each token's own reference, or a multiple of r where none covers
    it.
    """
    if p.harsh is None:
        return lambda r: apply_inverses(p.first, r)
    where, ridge = references(p.sums, p.harsh), reference_ridge(chunks)
    at = partial(factorise_roughly, chunks, p.sums, ridge=ridge, limit=LIMIT)
    both = cond(
        p.harsh,
        partial(jax.vmap(at), jnp.stack(where.centres)),
        lambda: jax.tree.map(lambda x: jnp.broadcast_to(x, (2, *x.shape)), p.first),
    )
    after, within_scale = where.after[..., None], where.within(p.sums, MAX_LOG_SCALE)[..., None]
    diagonal = jnp.diagonal(both.inverse[0], axis1=-2, axis2=-1)
    unit = diagonal.min(-1)[..., None, None]
    unit = jnp.where(jnp.isfinite(unit), unit, 1)  # of a stream that is lost

    def inner(r: Array) -> Array:
        first, second = jax.vmap(apply_inverses)(both, jnp.stack([r, r]))
        return jnp.where(within_scale, jnp.where(after, second, first), unit * r)

    return inner


def solve_preconditioned_by_ridge(
    chunks: Chunks, b: Array, **options: Any
) -> tuple[Array, Array, Array]:
    """Run conjugate gradient preconditioned by the ridge: iterates, steps, whether each converged.

    Divided by its ridge, a system is 1 plus a sum of few samples, so that conjugate gradient takes
    about as many steps as there are samples. Divided by its diagonal, it is not.
    """

    if chunks.ridge is None:
        return conjugate_gradient(partial(system_product, chunks), b, **options)
    ridge = jnp.where(chunks.ridge > 0, chunks.ridge, 1)
    if ridge.shape[2] > 1:  # one a token
        options["precondition"] = lambda r: r / ridge
        return conjugate_gradient(partial(system_product, chunks), b, **options)
    # Scaling the keys once, instead of the residuals at every step, saves a tenth of the time.
    units = jnp.minimum(jnp.sqrt(ridge / ridge.min(-1, keepdims=True)), MOST_UNITS)
    chunks = chunks._replace(
        keys=chunks.keys / units,
        gram=chunks.gram / units / jnp.swapaxes(units, -1, -2),
        ridge=chunks.ridge / units / units,
    )
    product = partial(system_product, chunks)
    y, steps, done = conjugate_gradient(product, b / units, units=units, **options)
    return y / units, steps, done


@dataclass(frozen=True)
class JaxChunkExact(JaxSolver):
    """JAX form of :class:`olsq.ChunkExact`."""

    options: ChunkExact

    def prepare(self, chunks: Chunks) -> ChunkFactors:
        """Factorise every chunk; nothing here is differentiated."""
        sums: Any = sums_of_logs(chunks)
        ridge = reference_ridge(chunks)
        harsh = self._is_harsh(sums)
        # the geometric middle of a chunk's gates, as a log (B, n)
        middle = None if sums is None else (sums[..., 0] + sums[..., -1]) / 2
        if harsh is None:
            factor = factorise(chunks, sums, middle, ridge)
        else:
            factor = cond(
                harsh,
                lambda: self.like_prepared(chunks).first,
                partial(factorise, chunks, sums, middle, ridge, LIMIT),
            )
        return self._add_bounds(chunks, factor, sums, harsh)

    def like_prepared(self, chunks: Chunks) -> ChunkFactors:
        """Return arrays of the shapes of R, N, f and growth, and nothing else."""
        scale = None if chunks.zeta is None else chunks.zeta[..., None]
        first = Factor(chunks.gram, chunks.keys, scale, chunks.gram[..., 0, 0])
        return ChunkFactors(first, None, None, None, None, None)

    def _is_harsh(self, sums: Any) -> Any:
        """Test whether a chunk forgets too much for one reference: () bool, or None where it cannot
        matter.
        """
        if sums is None or self.options.corrections is not None:
            return None
        return max_over_vmap(((sums[..., 0] - sums[..., -1]) / 2 > MILD_LOG_SCALE).any())

    def _add_bounds(self, chunks: Chunks, factor: Factor, sums: Any, harsh: Any) -> ChunkFactors:
        """Add the bounds that follow from gates and ridges to the factors."""
        needs_cg = None if self.options.corrections is not None else self._loses_digits(factor)
        if harsh is not None:
            needs_cg = harsh | needs_cg
        bounds = self._spectrum_bounds(chunks, factor, reference_ridge(chunks))
        return ChunkFactors(factor, sums, harsh, needs_cg, *bounds)

    def saved(self, prepared: Any) -> Any:
        """Return the factors: R, N, f where there are gates, and the growth."""
        return tuple(jax.tree.leaves(prepared.first))

    def restored(self, chunks: Chunks, saved: Any) -> ChunkFactors:
        """Rebuild the result of :meth:`prepare` without its factorisations."""
        sums = sums_of_logs(chunks)
        inverse, rows, *scale, growth = saved
        factor = Factor(inverse, rows, scale[0] if scale else None, growth)
        return self._add_bounds(chunks, factor, sums, self._is_harsh(sums))

    def _loses_digits(self, factor: Factor) -> Array:
        """Test whether ``R - sum n n^T`` cancels more digits than ``tol`` leaves: () bool.

        The largest pivot ``1 + k R k`` is how much larger R is than P in some direction.
        """
        limit = REGULAR
        if self.options.tol is not None:
            limit = max(limit, 2 * self.options.tol / jnp.finfo(factor.rows.dtype).eps)
        return ~(factor.growth.max() <= limit)

    def _spectrum_bounds(self, chunks: Chunks, factor: Factor, ridge: Any) -> tuple[Any, Any]:
        """Bound the spectrum of P_t M_t from gates and ridges alone.

        Returns (None, None) where it is exactly 1.
        """
        if chunks.ridge is None or (factor.scale is None and chunks.ridge.shape[2] == 1):
            return None, None
        ratio = jnp.where(ridge > 0, chunks.ridge / jnp.where(ridge > 0, ridge, 1), 1)
        if factor.scale is not None:
            ratio = ratio * factor.scale
        return (
            jnp.minimum(ratio.min(-1, keepdims=True), 1),
            jnp.maximum(ratio.max(-1, keepdims=True), 1),
        )

    def solve(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token; also return the corrections of each."""
        p: ChunkFactors = prepared
        if p.needs_cg is None:
            return self._solve_by_corrections(chunks, p, b, self.options.corrections)
        needs_cg, steps = max_over_vmap(p.needs_cg), 0
        if p.eig_min is not None:
            steps = max_over_vmap(self._count_corrections(p, b.dtype))
            needs_cg = needs_cg | (steps > MOST_CORRECTIONS)
        return cond(
            needs_cg,
            partial(self._solve_by_conjugate_gradient, chunks, p, b),
            partial(self._solve_by_corrections, chunks, p, b, steps),
        )

    def _tolerance(self, dtype: Any) -> float:
        """Return the relative error to reach: the option, or ``ROUNDED`` eps of the dtype."""
        tol = self.options.tol
        return ROUNDED * float(jnp.finfo(dtype).eps) if tol is None else tol

    def _count_corrections(self, p: ChunkFactors, dtype: Any) -> Array:
        """Count the Chebyshev steps that the worst bound of the stream needs, at least one."""
        # Error of m Chebyshev steps <= 2 rho^(m+1), rho = (sqrt(kappa)-1) / (sqrt(kappa)+1).
        kappa = (p.eig_max / p.eig_min).max()
        left = correction_error(kappa, jnp.arange(MOST_CORRECTIONS + 1, dtype=kappa.dtype))
        # a NaN kappa counts as too many steps
        return jnp.maximum((~(left <= self._tolerance(dtype))).sum(dtype=jnp.int32), 1)

    def _solve_by_corrections(
        self, chunks: Chunks, p: ChunkFactors, b: Array, steps: Any
    ) -> tuple[Array, Array]:
        """Run Chebyshev on ``x + P (Lambda_t - L / f_t) x = P b``: one apply per step, no inner
        products.
        """
        if p.eig_min is None:
            return apply_inverses(p.first, b), jnp.zeros(b.shape[:-1], jnp.int32)
        count = jnp.broadcast_to(jnp.asarray(steps, jnp.int32), b.shape[:-1])
        # P_t inverts H_t + L / f_t, so that with gap_t = Lambda_t - L / f_t, (B, n, C or 1, d), x_t
        # solves (1 + P_t gap_t) x_t = P_t b_t, whose spectrum the gates bound.
        factorised: Any = reference_ridge(chunks)
        factorised = factorised if p.first.scale is None else factorised / p.first.scale
        gap = chunks.ridge - factorised
        with jax.named_scope(CORRECTIONS):
            x = chebyshev(
                lambda x: x + apply_inverses(p.first, gap * x),
                apply_inverses(p.first, b),
                p.eig_min,
                p.eig_max,
                steps,
            )
        return x, count

    def _solve_by_conjugate_gradient(
        self, chunks: Chunks, p: ChunkFactors, b: Array
    ) -> tuple[Array, Array]:
        """Run conjugate gradient: without factors where gates are harsh, then with them.

        Systems of fast forgetting take few steps: factors would cost more than the steps they save.
        """
        tol = self._tolerance(b.dtype) / 4  # of the residual

        def by_factors(start: Array | None) -> tuple[Array, Array]:
            return conjugate_gradient(
                partial(system_product, chunks),
                b,
                start=start,
                precondition=preconditioner(chunks, p),
                tol=tol,
                max_steps=self.options.max_steps,
            )[:2]

        if p.harsh is None:
            return by_factors(None)
        d = b.shape[-1]
        most = jnp.where(p.harsh, self.options.max_steps + 8 * d, 0)
        near = references(p.sums, p.harsh).within(p.sums, NEAR).mean() > SERVED
        x, steps, done = solve_preconditioned_by_ridge(
            chunks, b, max_steps=most, trial=jnp.where(near, TRIAL, 4 * d), tol=tol
        )
        unfinished = max_over_vmap(any_token(~done))
        x, more = cond(unfinished, by_factors, lambda x: (x, jnp.zeros_like(steps)), x)
        return x, jnp.where(done[..., 0], steps, steps + more)
