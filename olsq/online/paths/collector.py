"""Assemble a coefficient path from per-block traces."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.rows import Trace, clip_to
from olsq.online.forms.square_root_kernels import COUNT
from olsq.online.forms.statistics import statistics, statistics_of
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows import complex_rows


class PathCollector:
    """Collects the path of n rows; a skipped row has the estimate of the row before it.

    ``count`` (n,) is how many samples the estimate rests on.  ``noise`` (m,) are the known noise
    variances, inf where they are to be estimated; None leaves all statistics out.
    """

    def __init__(
        self, shape: tuple[int, int, int], dtype: np.dtype, sandwich: bool, noise: NDArray | None
    ) -> None:
        n, m, d = shape
        self.filled = np.zeros(n, np.bool_)
        self.coef = np.zeros((n, m, d), dtype)
        self.recursive = np.full((n, m), np.nan)
        self.count = np.zeros(n)
        self.wants = {"sandwich": sandwich, "variance": noise is not None}
        self.noise = noise
        self.before: tuple[Any, Any] = noise, np.inf  # of rows that nothing was known in
        if noise is not None:
            self.stderr, self.sigma2 = np.empty((n, m, d)), np.tile(noise, (n, 1))
        else:  # one number, whatever the shape
            self.stderr = np.broadcast_to(np.nan, (n, m, d))
            self.sigma2 = np.broadcast_to(np.nan, (n, m))
        self.scratch = Trace.empty(0, m, d)

    def begin(self, form: Any, ridge: NDArray, discounted: bool, sandwich: bool) -> None:
        """Set the estimate of the rows that are skipped before the call's first usable one."""
        self.coef[:] = clip_to(form.coefficients(), self.coef.dtype)
        self.count[:] = form.tally[COUNT]
        if self.noise is not None:
            self.before = statistics_of(form, ridge, discounted, sandwich, self.noise)

    def trace(self, block: slice | NDArray, n: int) -> Trace:
        """Return a trace for the n rows of a block, in the path's own arrays where possible."""
        _, m, d = self.coef.shape
        if len(self.scratch.loss) < n:  # once: the first block is the longest
            self.scratch = Trace.empty(n, m, d, **self.wants)
        trace = self.scratch.first(n)
        if isinstance(block, slice) and self.coef.dtype == np.float64:
            return trace._replace(coef=self.coef[block], recursive=self.recursive[block])
        return trace

    def add(self, trace: Trace, block: slice | NDArray, ridge: NDArray, discounted: bool) -> None:
        """Add the trace of a block, with the statistics that follow from it."""
        self.filled[block] = True
        self.count[block] = trace.counts[:, COUNT]
        if trace.coef.base is not self.coef:
            self.coef[block] = clip_to(trace.coef, self.coef.dtype)
            self.recursive[block] = trace.recursive
        if self.noise is None:
            return
        sigma2, stderr = self.sigma2[block], self.stderr[block]  # copies, unless it is a slice
        statistics(
            trace.loss,
            trace.coef,
            trace.variance,
            trace.sandwich,
            trace.counts,
            ridge,
            discounted,
            sigma2,
            stderr,
        )
        if not isinstance(block, slice):
            self.sigma2[block], self.stderr[block] = sigma2, stderr

    def finish(self, need: int) -> None:
        """Fill skipped rows with the estimate before them; NaN where it has fewer than ``need``
        rows.
        """
        statistics = self.noise is not None
        estimates = [self.coef, *([self.sigma2, self.stderr] if statistics else [])]
        if not self.filled.all():
            if statistics:
                empty = ~self.filled
                self.sigma2[empty], self.stderr[empty] = self.before
            last = np.maximum.accumulate(np.where(self.filled, np.arange(self.filled.size), -1))
            carried = np.flatnonzero(~self.filled & (last >= 0))
            for array in (*estimates, self.count):
                array[carried] = array[last[carried]]
        if need > 0:
            for array in estimates:
                array[self.count < need] = np.nan


def joined(
    collectors: list[PathCollector], targets: list[NDArray], residual: NDArray, intercept: bool
) -> CoefficientPath:
    """Join the finished collectors of groups of targets to one path (n, m, ...)."""
    coef, stderr, sigma2, recursive = (
        _by_target([getattr(c, name) for c in collectors], targets)
        for name in ("coef", "stderr", "sigma2", "recursive")
    )
    known = collectors[0].noise is not None
    seen = sigma2 if known else coef[:, :, 0]
    hidden = np.where(np.isnan(seen), np.nan, 0.0).astype(coef.dtype)  # not enough samples
    first = 1 if intercept else 0
    path = CoefficientPath(
        coef=coef[:, :, first:],
        intercept=coef[:, :, 0] if intercept else hidden,
        residual=residual,
        recursive_residual=recursive,
        sigma2=sigma2,
        stderr=stderr[:, :, first:],
        intercept_stderr=stderr[:, :, 0] if intercept else hidden.astype(np.float64),
    )
    return path if known else path.bare()


def combine_path(path: CoefficientPath, first: int) -> CoefficientPath:
    """Combine the real path of 2n rows into the complex one of n rows."""
    coef = complex_rows.combine_coefficients(path.coef[1::2])
    stderr = complex_rows.combine_errors(path.stderr[1::2])
    intercept = complex_rows.joined(path.intercept[1::2], 0.0 * path.intercept[1::2])
    found = CoefficientPath(
        coef=coef[..., first:],
        intercept=coef[..., 0] if first else intercept,
        residual=complex_rows.combine_rows(path.residual),
        recursive_residual=complex_rows.combine_rows(path.recursive_residual),
        sigma2=2.0 * path.sigma2[1::2],
        stderr=stderr[..., first:],
        intercept_stderr=stderr[..., 0] if first else path.intercept_stderr[1::2],
    )
    return found if path._has_statistics else found.bare()


def _by_target(parts: list[NDArray], targets: list[NDArray]) -> NDArray:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts, axis=1)[:, np.argsort(np.concatenate(targets))]
