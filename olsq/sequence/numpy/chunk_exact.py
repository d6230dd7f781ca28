"""Chunk-exact least squares, one chunk of every stream at a time.

The default solver has Numba kernels of its own for values (:mod:`.stream`). This form serves fixed
corrections, a user's tolerance, preconditioners and derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.chunks import Chunk, system_product
from olsq.sequence.numpy.factor import Factor, apply_inverses, factorise, reference_ridge
from olsq.sequence.numpy.iterations import (
    balanced,
    chebyshev,
    preconditioned_conjugate_gradient,
    scaled,
)
from olsq.sequence.numpy.solver import NumpySolver
from olsq.solvers import ChunkExact
from olsq.solvers.thresholds import (
    MAX_LOG_SCALE,
    MILD_LOG_SCALE,
    MOST_CORRECTIONS,
    REGULAR,
    ROUNDED,
    correction_error,
)


class ChunkFactors(NamedTuple):
    """Factors of a chunk: one reference, and a second where the gates forget most."""

    first: Factor
    second: Factor | None
    after: NDArray | None  # (B, C, 1) bool: tokens that the second serves
    exact: bool  # P is the inverse wanted, to rounding
    eig_min: NDArray | None  # bounds of the spectrum of P M, (B, C, 1); None: exactly 1
    eig_max: NDArray | None


def preconditioner(p: ChunkFactors) -> Callable[[NDArray], NDArray]:
    """Return ``r -> P_t r_t`` with each token's own reference, or a multiple of r where none covers
    it.

    The multiple has the units of an inverse: it is also the first iterate.
    """
    second, after = p.second, p.after
    if second is None or after is None:
        return lambda r: apply_inverses(p.first, r)
    scale = np.where(after, np.asarray(second.scale), np.asarray(p.first.scale))
    within_scale = np.abs(np.log(scale)) <= MAX_LOG_SCALE
    unit = np.diagonal(p.first.inverse, axis1=1, axis2=2).min(-1)[:, None, None]
    unit = np.where(np.isfinite(unit), unit, 1)  # a lost stream has no finite inverse

    def inner(r: NDArray) -> NDArray:
        y = np.where(after, apply_inverses(second, r), apply_inverses(p.first, r))
        return np.where(within_scale, y, unit * r)

    return inner


@dataclass(frozen=True)
class NumpyChunkExact(NumpySolver):
    """NumPy form of :class:`olsq.ChunkExact`."""

    options: ChunkExact

    def prepare(self, chunk: Chunk) -> ChunkFactors:
        """Factorise every chunk."""
        sums, ridge = chunk.logs, reference_ridge(chunk)
        fixed = self.options.corrections is not None
        if sums is None or fixed:
            centre = None if sums is None else (sums[:, 0] + sums[:, -1]) / 2
            first = factorise(chunk, centre, ridge)
            low, high = self._spectrum_bounds(chunk, first, ridge)
            return ChunkFactors(
                first, None, None, low is None and self._keeps_digits(first), low, high
            )
        b, c = sums.shape
        split = np.full(b, c)
        if ((sums[:, 0] - sums[:, -1]) / 2 > MILD_LOG_SCALE).any():
            # The first token after the smallest gate; `append` keeps the last position from being
            # chosen.
            split = np.argmin(np.diff(sums, axis=1, append=np.inf), 1) + 1
        every, limit = np.arange(b), math.exp(2 * MAX_LOG_SCALE)
        first = factorise(chunk, (sums[:, 0] + sums[every, split - 1]) / 2, ridge, limit)
        second = after = None
        if (split < c).any():
            start = sums[every, np.minimum(split, c - 1)]
            second = factorise(chunk, (start + sums[:, -1]) / 2, ridge, limit)
            after = (np.arange(c) >= split[:, None])[..., None]
        low, high = self._spectrum_bounds(chunk, first, ridge)
        exact = low is None and second is None and self._keeps_digits(first)
        return ChunkFactors(first, second, after, exact, low, high)

    def _keeps_digits(self, factor: Factor) -> bool:
        """Test whether ``R - sum n n^T`` keeps the digits that the tolerance asks for."""
        limit = REGULAR
        if self.options.tol is not None:
            limit = max(limit, 2 * self.options.tol / float(np.finfo(factor.rows.dtype).eps))
        return bool(factor.growth.max(initial=0) <= limit)

    def _spectrum_bounds(self, chunk: Chunk, factor: Factor, ridge: Any) -> tuple[Any, Any]:
        """Bound the spectrum of P_t M_t from gates and ridges alone.

        Returns (None, None) where it is exactly 1.
        """
        if chunk.ridge is None or (factor.scale is None and chunk.ridge.shape[1] == 1):
            return None, None
        ratio = np.where(ridge > 0, chunk.ridge / np.where(ridge > 0, ridge, 1), 1)
        if factor.scale is not None:
            ratio = ratio * factor.scale
        return (
            np.minimum(ratio.min(-1, keepdims=True), 1),
            np.maximum(ratio.max(-1, keepdims=True), 1),
        )

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token; also return the corrections of each."""
        p: ChunkFactors = prepared
        if self.options.corrections is not None:
            return self._solve_by_corrections(chunk, p, b, self.options.corrections)
        if p.exact:
            return apply_inverses(p.first, b), np.zeros(b.shape[:-1], np.int32)
        tol = self.options.tol
        tol = ROUNDED * float(np.finfo(b.dtype).eps) if tol is None else tol
        if p.second is None and self._keeps_digits(p.first):
            steps = self._count_corrections(p, tol)
            if steps <= MOST_CORRECTIONS:
                return self._solve_by_corrections(chunk, p, b, steps)
        inner = preconditioner(p)

        def run(b: NDArray) -> tuple[NDArray, NDArray]:
            return preconditioned_conjugate_gradient(
                lambda x: system_product(chunk, x),
                balanced(inner, b),
                b,
                tol=tol / 4,  # of the residual, not of the outputs
                max_steps=self.options.max_steps,
            )

        return scaled(b, run)

    def _count_corrections(self, p: ChunkFactors, tol: float) -> int:
        """Count the corrections that the worst bound needs.

        More than ``MOST_CORRECTIONS`` are too many.
        """
        if p.eig_min is None or p.eig_max is None:
            return 0
        kappa, steps = float((p.eig_max / p.eig_min).max(initial=1)), 0
        while steps <= MOST_CORRECTIONS and not correction_error(kappa, steps) <= tol:
            steps += 1
        return steps

    def _solve_by_corrections(
        self, chunk: Chunk, p: ChunkFactors, b: NDArray, steps: int
    ) -> tuple[NDArray, NDArray]:
        """Run Chebyshev on ``x + P (Lambda_t - L / f_t) x = P b``: one apply per step, no inner
        products.
        """
        if p.eig_min is None or p.eig_max is None:
            return apply_inverses(p.first, b), np.zeros(b.shape[:-1], np.int32)
        own: Any = reference_ridge(chunk)
        gap = chunk.ridge - (own if p.first.scale is None else own / p.first.scale)
        x = chebyshev(
            lambda x: x + apply_inverses(p.first, gap * x),
            apply_inverses(p.first, b),
            p.eig_min,
            p.eig_max,
            steps,
        )
        return x, np.full(b.shape[:-1], steps, np.int32)
