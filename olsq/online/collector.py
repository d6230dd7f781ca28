"""Putting the traces of one call's blocks together into a coefficient path."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.path import CoefficientPath
from olsq.online.rows import Trace
from olsq.online.statistics import noise_variance, standard_errors


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

    def add(self, trace: Trace, block: Any, ridge: NDArray, discounted: bool) -> None:
        decayed = trace.counts[:, 2:3] * ridge if discounted else ridge[None]
        coef = trace.coef.astype(np.float64, copy=False)
        sigma2 = noise_variance(trace.loss, coef, trace.variance, trace.counts, decayed)
        self.filled[block] = True
        self.coef[block] = trace.coef
        self.sigma2[block] = sigma2
        self.stderr[block] = standard_errors(sigma2, trace.variance)
        self.recursive[block] = trace.recursive

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
