"""Putting the traces of one call's blocks together into a coefficient path."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.online.path import CoefficientPath
from olsq.online.rows import Trace
from olsq.online.statistics import statistics


class PathCollector:
    """The path of n rows; a skipped row has the estimate of the row before it."""

    def __init__(self, n: int, m: int, d: int, dtype: np.dtype) -> None:
        self.filled = np.zeros(n, np.bool_)
        self.coef = np.zeros((n, m, d), dtype)
        self.stderr = np.full((n, m, d), np.inf)
        self.sigma2 = np.full((n, m), np.inf)
        self.recursive = np.full((n, m), np.nan)

    def begin(self, coef: NDArray, sigma2: NDArray, stderr: NDArray) -> None:
        """What rows skipped before the call's first usable one carry on."""
        self.coef[:], self.sigma2[:], self.stderr[:] = coef, sigma2, stderr

    def trace(self, block: slice | NDArray, n: int) -> Trace:
        """Where a form may write the n rows of a block: in place if the block is a slice."""
        _, m, d = self.coef.shape
        trace = Trace.empty(n, m, d, self.coef.dtype)
        if isinstance(block, slice):
            return trace._replace(coef=self.coef[block], recursive=self.recursive[block])
        return trace

    def add(self, trace: Trace, block: slice | NDArray, ridge: NDArray, discounted: bool) -> None:
        """Take over the trace of a block, and what follows from it."""
        self.filled[block] = True
        if isinstance(block, slice):
            sigma2, stderr = self.sigma2[block], self.stderr[block]
        else:
            self.coef[block], self.recursive[block] = trace.coef, trace.recursive
            sigma2, stderr = np.empty_like(trace.loss), np.empty(trace.coef.shape)
        statistics(
            trace.loss, trace.coef, trace.variance, trace.counts, ridge, discounted, sigma2, stderr
        )
        if not isinstance(block, slice):
            self.sigma2[block], self.stderr[block] = sigma2, stderr

    def path(self, residual: NDArray, intercept: bool, single: bool) -> CoefficientPath:
        if not self.filled.all():
            last = np.maximum.accumulate(np.where(self.filled, np.arange(self.filled.size), -1))
            carried = np.flatnonzero(~self.filled & (last >= 0))
            for array in (self.coef, self.sigma2, self.stderr):
                array[carried] = array[last[carried]]
        zero = np.zeros(self.coef.shape[:2], self.coef.dtype)
        first = 1 if intercept else 0
        path = CoefficientPath(
            coef=self.coef[:, :, first:],
            intercept=self.coef[:, :, 0] if intercept else zero,
            residual=residual,
            recursive_residual=self.recursive,
            sigma2=self.sigma2,
            stderr=self.stderr[:, :, first:],
            intercept_stderr=self.stderr[:, :, 0] if intercept else zero.astype(np.float64),
        )
        return CoefficientPath(*(a[:, 0] for a in path)) if single else path
