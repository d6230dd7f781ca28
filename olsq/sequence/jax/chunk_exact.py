"""Chunk-exact least squares: every token of a chunk solved with two Cholesky factorisations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.chunks import Chunks, system_product
from olsq.sequence.jax.control import cond, switch
from olsq.sequence.jax.factor import (
    Factor,
    apply,
    factorise,
    max_over_vmap,
    reference_ridge,
    sums_of_logs,
)
from olsq.sequence.jax.iterations import balanced, chebyshev, conjugate_gradient, scaled
from olsq.sequence.jax.solver import JaxSolver
from olsq.solvers import (
    MAX_LOG_SCALE,
    MILD_LOG_SCALE,
    MOST_CORRECTIONS,
    REGULAR,
    ROUNDED,
    ChunkExact,
    correction_error,
)

LIMIT = math.exp(2 * MAX_LOG_SCALE)
UNROLLED_COUNTS = 3  # Chebyshev steps up to which each count is compiled by itself


class ChunkFactors(NamedTuple):
    """Factors of a stream: one reference, and where a chunk forgets most a second one splits it."""

    first: Factor
    sums: Any  # cumulative log gates (B, n, C); None: all gates 1
    split: Any  # (B, n, 1): first token after the smallest gate; C in mild streams
    needs_cg: Any  # () bool: conjugate gradient is needed; None: corrections were fixed
    eig_min: Any  # bounds of the spectrum of P M, per token (B, n, C, 1); None: exactly 1
    eig_max: Any


def preconditioner(chunks: Chunks, p: ChunkFactors) -> Callable[[Array], Array]:
    """``r -> P_t r_t`` with each token's own reference, or a multiple of r where none covers it.

    The multiple has the units of an inverse: it is also the first iterate.
    """
    if p.sums is None or p.split is None:
        return lambda r: apply(p.first, r)
    start = jnp.take_along_axis(p.sums, jnp.minimum(p.split, p.sums.shape[-1] - 1), -1)[..., 0]
    centre = (start + p.sums[..., -1]) / 2
    second = factorise(chunks, p.sums, centre, reference_ridge(chunks), LIMIT, exact=False)
    after = (jnp.arange(p.sums.shape[-1]) >= p.split)[..., None]
    within_scale = jnp.abs(jnp.log(jnp.where(after, second.scale, p.first.scale))) <= MAX_LOG_SCALE
    diagonal = jnp.diagonal(p.first.inverse, axis1=-2, axis2=-1)
    unit = diagonal.min(-1)[..., None, None]
    unit = jnp.where(jnp.isfinite(unit), unit, 1)  # of a stream that is lost

    def inner(r: Array) -> Array:
        y = jnp.where(after, apply(second, r), apply(p.first, r))
        return jnp.where(within_scale, y, unit * r)

    return inner


def _middle(sums: Any) -> Any:
    """The reference in the geometric middle of a chunk's gates, as a log (B, n); None without."""
    return None if sums is None else (sums[..., 0] + sums[..., -1]) / 2


@dataclass(frozen=True)
class JaxChunkExact(JaxSolver):
    """:class:`olsq.ChunkExact` in JAX."""

    options: ChunkExact

    def prepare(self, chunks: Chunks) -> ChunkFactors:
        """Factorise every chunk; nothing here is differentiated."""
        sums, ridge = sums_of_logs(chunks), reference_ridge(chunks)
        if sums is None or self.options.corrections is not None:
            factor = factorise(chunks, sums, _middle(sums), ridge)
            needs_cg = None if self.options.corrections is not None else self._loses_digits(factor)
            return ChunkFactors(factor, None, None, needs_cg, *self._bounds(chunks, factor, ridge))
        c = sums.shape[-1]
        needs_cg = ((sums[..., 0] - sums[..., -1]) / 2 > MILD_LOG_SCALE).any()
        steepest = jnp.argmin(jnp.diff(sums, axis=-1, append=jnp.inf), -1) + 1
        split = jnp.where(needs_cg, steepest, c)[..., None]
        last = jnp.take_along_axis(sums, split - 1, -1)[..., 0]
        first = factorise(chunks, sums, (sums[..., 0] + last) / 2, ridge, LIMIT)
        return ChunkFactors(
            first,
            sums,
            split,
            needs_cg | self._loses_digits(first),
            *self._bounds(chunks, first, ridge),
        )

    def _loses_digits(self, factor: Factor) -> Array:
        """Whether ``R - sum n n^T`` cancels more digits than ``tol`` leaves: () bool.

        The largest pivot ``1 + k R k`` is how much larger R is than P in some direction.
        """
        limit = REGULAR
        if self.options.tol is not None:
            limit = max(limit, 2 * self.options.tol / jnp.finfo(factor.rows.dtype).eps)
        return ~(factor.growth.max() <= limit)

    def _bounds(self, chunks: Chunks, factor: Factor, ridge: Any) -> tuple[Any, Any]:
        """Spectrum of P_t M_t from the ridges alone; (None, None) where it is exactly 1."""
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
        """Solve (H_t + Lambda_t) x_t = b_t for every token; also the corrections of each."""
        p: ChunkFactors = prepared
        if p.needs_cg is None:
            return self._corrected(chunks, p, b, self.options.corrections)
        if p.eig_min is None:
            return cond(
                max_over_vmap(p.needs_cg),
                lambda: self._conjugate(chunks, p, b),
                lambda: self._corrected(chunks, p, b, 0),
            )
        steps = max_over_vmap(self._steps(p, b.dtype))
        # the counts of mild gates without a loop, which costs a tenth of the whole
        few = [lambda n=n: self._corrected(chunks, p, b, n) for n in range(1, UNROLLED_COUNTS + 1)]
        many = [lambda: self._corrected(chunks, p, b, steps), lambda: self._conjugate(chunks, p, b)]
        needs_cg = max_over_vmap(p.needs_cg) | (steps > MOST_CORRECTIONS)
        count = jnp.clip(steps, 1, UNROLLED_COUNTS + 1) - 1
        return switch(jnp.where(needs_cg, UNROLLED_COUNTS + 1, count), few + many)

    def _tolerance(self, dtype: Any) -> float:
        return (
            ROUNDED * float(jnp.finfo(dtype).eps) if self.options.tol is None else self.options.tol
        )

    def _steps(self, p: ChunkFactors, dtype: Any) -> Array:
        """Chebyshev steps that the worst bound of the stream needs."""
        kappa = (p.eig_max / p.eig_min).max()
        left = correction_error(kappa, jnp.arange(MOST_CORRECTIONS + 1))
        # more than the most: too many, as of a kappa that is no number
        return (~(left <= self._tolerance(dtype))).sum(dtype=jnp.int32)

    def _corrected(
        self, chunks: Chunks, p: ChunkFactors, b: Array, steps: Any
    ) -> tuple[Array, Array]:
        """Chebyshev on ``x + P (Lambda_t - L / f_t) x = P b``: one apply per step, no products."""
        if p.eig_min is None:
            return apply(p.first, b), jnp.zeros(b.shape[:-1], jnp.int32)
        count = jnp.broadcast_to(jnp.asarray(steps, jnp.int32), b.shape[:-1])
        gap = chunks.ridge - self._own_ridge(chunks, p.first)
        return chebyshev(
            lambda x: x + apply(p.first, gap * x), apply(p.first, b), p.eig_min, p.eig_max, steps
        ), count

    def _own_ridge(self, chunks: Chunks, factor: Factor) -> Array:
        ridge: Any = reference_ridge(chunks)
        return ridge if factor.scale is None else ridge / factor.scale

    def _conjugate(self, chunks: Chunks, p: ChunkFactors, b: Array) -> tuple[Array, Array]:
        inner = preconditioner(chunks, p)

        def run(b: Array) -> tuple[Array, Array]:
            return conjugate_gradient(
                lambda x: system_product(chunks, x),
                balanced(inner, b),
                b,
                jnp.zeros_like(b),
                tol=self._tolerance(b.dtype) / 4,  # of the residual, not of the outputs
                max_steps=self.options.max_steps,
                unroll=False,
            )

        return scaled(b, run)
