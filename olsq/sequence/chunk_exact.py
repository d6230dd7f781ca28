"""Chunk-exact least squares: every token of a chunk solved with two Cholesky factorisations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence._chunks import Chunks, system_product
from olsq.sequence._factor import (
    Factor,
    apply,
    factorise,
    largest,
    reference_ridge,
    sums_of_logs,
)
from olsq.sequence._iterate import chebyshev, conjugate_gradient, scaled

COVERED = 3.5  # |log f| up to which a token uses its factor; beyond, plain CG is as good
MILD = 0.7  # |log f| up to which one reference and Chebyshev steps serve a whole stream
MOST_STEPS = 12  # Chebyshev steps beyond which conjugate gradient takes over
LIMIT = math.exp(2 * COVERED)
UNROLLED_STEPS = 12
UNROLLED_COUNTS = 3  # Chebyshev steps up to which each count is compiled by itself


class Prepared(NamedTuple):
    """Factors of a stream: one reference, and where a chunk forgets most a second one splits it."""

    first: Factor
    sums: Any  # cumulative log gates (B, n, C); None: all gates 1
    split: Any  # (B, n, 1): first token after the smallest gate; C in mild streams
    harsh: Any  # () bool: conjugate gradient is needed; None: corrections were fixed
    low: Any  # bounds of the spectrum of P M, per token (B, n, C, 1); None: exactly 1
    high: Any


def preconditioner(chunks: Chunks, p: Prepared) -> Callable[[Array], Array]:
    """``r -> P_t r_t`` with each token's own reference, or r where no reference covers a token."""
    if p.sums is None or p.split is None:
        return lambda r: apply(p.first, r)
    begin = jnp.take_along_axis(p.sums, jnp.minimum(p.split, p.sums.shape[-1] - 1), -1)[..., 0]
    centre = (begin + p.sums[..., -1]) / 2
    second = factorise(chunks, p.sums, centre, reference_ridge(chunks), LIMIT)
    after = (jnp.arange(p.sums.shape[-1]) >= p.split)[..., None]
    covered = jnp.abs(jnp.log(jnp.where(after, second.scale, p.first.scale))) <= COVERED

    def inner(r: Array) -> Array:
        y = jnp.where(after, apply(second, r), apply(p.first, r))
        return jnp.where(covered, y, r)

    return inner


@dataclass(frozen=True)
class ChunkExact:
    """Exact solves for every token at the cost of a few products per chunk.  The default solver.

    Exact in the discounted problem and wherever nothing is forgotten.  In the fixed problem with
    forgetting, the chunk's inverse differs from the wanted one by a ridge known from the gates,
    and is corrected: by a few Chebyshev steps while the gates of every chunk stay mild, else by
    preconditioned conjugate gradient to ``tol`` with two references per chunk, so that a reset
    (a gate of 0) inside a chunk costs no accuracy.

    Parameters
    ----------
    chunk : int
        Tokens per chunk.
    corrections : int, optional
        Number of Chebyshev steps in the fixed problem, whatever the gates are.  None chooses
        from the gates for an error of ``tol``.
    tol : float, optional
        Relative error wanted; None is 3e-6 in float32 and 1e-13 in float64.
    max_steps : int
        Most conjugate-gradient steps of a token when the gates are harsh.
    shards : int
        Pieces of the time axis whose boundary moments are computed independently and then
        merged; set it to the number of devices the time axis is sharded over.

    Notes
    -----
    Solves both problems.  After a gate of 0 the discounted one has no ridge left: outputs are NaN
    until d samples came, and exact from the d-th independent one on.
    Cost per token with C = d = m = 64: 49k multiply-adds, 12k more per correction; gated linear
    attention 20k.  Memory: two arrays (d, d) per chunk, and (T, d).
    The gradients are implicit, of any order, forward and reverse; ``adjoint="unrolled"``
    differentiates Chebyshev steps on the true system with the factors held constant.
    Relative error of the outputs in float32: 1e-6 on well-posed streams, at most about
    kappa(H + Lambda) * 6e-8.

    Examples
    --------
    >>> import olsq
    >>> olsq.ChunkExact(chunk=32)
    ChunkExact(chunk=32, corrections=None, tol=None, max_steps=200, shards=1)
    """

    chunk: int = 64
    corrections: int | None = None
    tol: float | None = None
    max_steps: int = 200
    shards: int = 1

    modes = ("fixed", "discounted")

    def __post_init__(self) -> None:
        if self.chunk < 1 or self.shards < 1 or self.max_steps < 1:
            raise ValueError("chunk, shards and max_steps must be at least 1")
        if self.corrections is not None and self.corrections < 0:
            raise ValueError(f"corrections must be >= 0 or None, got {self.corrections}")

    def prepare(self, chunks: Chunks) -> Prepared:
        """Factorise every chunk; nothing here is differentiated."""
        sums, ridge = sums_of_logs(chunks), reference_ridge(chunks)
        if sums is None or self.corrections is not None:
            centre = None if sums is None else (sums[..., 0] + sums[..., -1]) / 2
            factor = factorise(chunks, sums, centre, ridge)
            harsh = None if self.corrections is not None else self._loses_digits(factor)
            return Prepared(factor, None, None, harsh, *self._bounds(chunks, factor, ridge))
        c = sums.shape[-1]
        harsh = ((sums[..., 0] - sums[..., -1]) / 2 > MILD).any()
        steepest = jnp.argmin(jnp.diff(sums, axis=-1, append=jnp.inf), -1) + 1
        split = jnp.where(harsh, steepest, c)[..., None]
        last = jnp.take_along_axis(sums, split - 1, -1)[..., 0]
        first = factorise(chunks, sums, (sums[..., 0] + last) / 2, ridge, LIMIT)
        return Prepared(
            first,
            sums,
            split,
            harsh | self._loses_digits(first),
            *self._bounds(chunks, first, ridge),
        )

    def _loses_digits(self, factor: Factor) -> Array:
        """Whether ``R - sum n n^T`` cancels more digits than ``tol`` leaves: () bool.

        The largest pivot ``1 + k R k`` is how much larger R is than P in some direction.
        """
        eps = jnp.finfo(factor.rows.dtype).eps
        return factor.growth.max() > max(10.0, 2 * self._tolerance(factor.rows.dtype) / eps)

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
        p: Prepared = prepared
        if p.harsh is None:
            return self._corrected(chunks, p, b, self.corrections)
        if p.low is None:
            return jax.lax.cond(
                largest(p.harsh),
                lambda: self._conjugate(chunks, p, b),
                lambda: self._corrected(chunks, p, b, 0),
            )
        steps = largest(self._steps(p, b.dtype))
        # the counts of mild gates without a loop, which costs a tenth of the whole
        few = [lambda n=n: self._corrected(chunks, p, b, n) for n in range(1, UNROLLED_COUNTS + 1)]
        many = [lambda: self._corrected(chunks, p, b, steps), lambda: self._conjugate(chunks, p, b)]
        harsh = largest(p.harsh) | (steps > MOST_STEPS)
        count = jnp.clip(steps, 1, UNROLLED_COUNTS + 1) - 1
        return jax.lax.switch(jnp.where(harsh, UNROLLED_COUNTS + 1, count), few + many)

    def _tolerance(self, dtype: Any) -> float:
        if self.tol is not None:
            return self.tol
        return 3e-6 if dtype == jnp.float32 else 1e-13

    def _steps(self, p: Prepared, dtype: Any) -> Array:
        """Chebyshev steps that the worst bound of the stream needs."""
        kappa = (p.high / p.low).max()
        rho = (jnp.sqrt(kappa) - 1) / (jnp.sqrt(kappa) + 1)
        # kappa^2: the bound is on the energy norm, the tolerance on the outputs
        goal = jnp.log(2 * kappa**2 / self._tolerance(dtype))
        return (jnp.ceil(goal / -jnp.log(jnp.minimum(rho, 0.999))) - 1).astype(jnp.int32)

    def _corrected(self, chunks: Chunks, p: Prepared, b: Array, steps: Any) -> tuple[Array, Array]:
        """Chebyshev on ``x + P (Lambda_t - L / f_t) x = P b``: one apply per step, no products."""
        if p.low is None:
            return apply(p.first, b), jnp.zeros(b.shape[:-1], jnp.int32)
        count = jnp.broadcast_to(jnp.asarray(steps, jnp.int32), b.shape[:-1])
        gap = chunks.ridge - self._own_ridge(chunks, p.first)
        return chebyshev(
            lambda x: x + apply(p.first, gap * x), apply(p.first, b), p.low, p.high, steps
        ), count

    def _own_ridge(self, chunks: Chunks, factor: Factor) -> Array:
        ridge: Any = reference_ridge(chunks)
        return ridge if factor.scale is None else ridge / factor.scale

    def _conjugate(self, chunks: Chunks, p: Prepared, b: Array) -> tuple[Array, Array]:
        def run(b: Array) -> tuple[Array, Array]:
            return conjugate_gradient(
                lambda x: system_product(chunks, x),
                preconditioner(chunks, p),
                b,
                jnp.zeros_like(b),
                tol=self._tolerance(b.dtype) / 4,  # of the residual, not of the outputs
                max_steps=self.max_steps,
                unroll=False,
            )

        return scaled(b, run)

    def unrolled(self, chunks: Chunks, prepared: Any, b: Array) -> tuple[Array, Array]:
        """Chebyshev steps on the true system with the factors as constant preconditioners."""
        p: Prepared = jax.lax.stop_gradient(prepared)
        inner = preconditioner(jax.lax.stop_gradient(chunks), p)
        steps = UNROLLED_STEPS if self.corrections is None else self.corrections + 1
        low, high = (1.0, 1.0) if p.low is None else (p.low, p.high)
        x = chebyshev(
            lambda x: inner(system_product(chunks, x)),
            inner(b),
            jnp.asarray(low, b.dtype),
            jnp.asarray(high, b.dtype),
            steps,
        )
        return x, jnp.full(b.shape[:-1], steps, jnp.int32)
