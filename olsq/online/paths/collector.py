"""Assemble a coefficient path from per-block traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.counting import COUNT
from olsq.online.forms.rows import PairedRows, Rows, Trace, clip_to, read_only
from olsq.online.forms.statistics import FitArrays, Turns, statistics
from olsq.online.paths import robust_kernels
from olsq.online.paths.arrays import RowStatistics
from olsq.online.paths.goodness import (
    GroupRows,
    RowsInside,
    SumsOfSquares,
    row_statistics,
    sequence,
)
from olsq.online.paths.goodness_kernels import fill_own_residuals, rises_evenly
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows import complex_rows
from olsq.progress import PassProgress


class Degrees:
    """The degrees of freedom (n, 3) of the rows of a path, as ``FitArrays`` has them, by block.

    A block in which they are constant, or rise by the same with every row, takes two rows of them:
    usual without forgetting, and in windows.
    """

    def __init__(self) -> None:
        self._blocks: list[tuple[slice | NDArray, NDArray[np.float64], int]] = []

    def add(self, block: slice | NDArray, degrees: NDArray[np.float64]) -> None:
        """Add the rows of a block."""
        n = len(degrees)
        short = n > 2 and rises_evenly(read_only(degrees))
        self._blocks.append((block, degrees[:2].copy() if short else degrees, n))

    def of_rows(self, n: int) -> NDArray[np.float64]:
        """Return the degrees (n, 3) of n rows; 0 of those in no block."""
        every_row = np.zeros((n, 3))
        for block, degrees, length in self._blocks:
            if len(degrees) < length:
                step = degrees[1] - degrees[0]
                degrees = degrees[0] + np.arange(length)[:, None] * step
            every_row[block] = degrees
        return every_row


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
        self.squares = np.zeros((n if noise is not None else 0, m))
        self.degrees = Degrees()
        self.in_sample = np.full((n if noise is not None else 0, m), np.nan, dtype)
        if noise is not None:
            self.stderr, self.sigma2 = np.empty((n, m, d)), np.tile(noise, (n, 1))
        else:  # one number, whatever the shape
            self.stderr = np.broadcast_to(np.nan, (n, m, d))
            self.sigma2 = np.broadcast_to(np.nan, (n, m))
        self.scratch = Trace.empty(0, m, d)
        # Set by finish: rows that are skipped, the rows whose estimates they have, rows to hide.
        self.carried = self.carried_from = np.empty(0, np.int64)
        self.hidden: NDArray[np.bool_] | None = None

    def begin(self, rows: Any, coef: NDArray, count: Any, *statistics: Any) -> None:
        """Set the estimates of rows that are skipped before the first usable one of their stream.

        ``statistics`` are sigma2, standard errors and ``FitArrays``, unless they are left out.
        """
        self.filled[rows], self.count[rows] = True, count
        self.coef[rows] = clip_to(coef, self.coef.dtype)
        if statistics:
            self.sigma2[rows], self.stderr[rows], fit = statistics
            self.squares[rows] = fit.squares
            self.degrees.add(rows, fit.degrees)

    def trace(self, block: slice | NDArray, n: int) -> Trace:
        """Return a trace for the n rows of a block, in the path's own arrays where possible."""
        _, m, d = self.coef.shape
        if len(self.scratch.loss) < n:  # once: the first block is the longest
            self.scratch = Trace.empty(n, m, d, **self.wants)
        trace = self.scratch.first(n)
        if isinstance(block, slice) and self.coef.dtype == np.float64:
            return trace._replace(coef=self.coef[block], recursive=self.recursive[block])
        return trace

    def add(
        self,
        trace: Trace,
        block: slice | NDArray,
        ridge: NDArray,
        discounted: bool,
        rows: Rows,
        turns: Turns | None = None,
    ) -> None:
        """Add the trace of a block, with the statistics that follow from it.

        ``turns`` are the streams of the rows, if there are several; see :func:`statistics`.
        """
        self.filled[block] = True
        self.count[block] = trace.counts[:, COUNT]
        if trace.coef.base is not self.coef:
            self.coef[block] = clip_to(trace.coef, self.coef.dtype)
            self.recursive[block] = trace.recursive
        if self.noise is None:
            return
        # Copies, unless it is a slice.
        sigma2, stderr, squares = self.sigma2[block], self.stderr[block], self.squares[block]
        fit = FitArrays(squares, np.empty((len(squares), 3)))
        statistics(trace, ridge, discounted, sigma2, stderr, fit, turns)
        self.degrees.add(block, fit.degrees)
        if not isinstance(block, slice):
            self.sigma2[block], self.stderr[block], self.squares[block] = sigma2, stderr, squares
        theta = trace.coef
        if isinstance(rows, PairedRows):
            # The estimate of the whole pair.
            theta = trace.coef[1::2].repeat(2, axis=0)
        residual = self.in_sample[block]
        in_place = isinstance(block, slice) and residual.dtype == np.float64
        residual = residual if in_place else np.empty(rows.Y.shape)
        fill_own_residuals(read_only(theta), rows.X, rows.Y, residual)
        if not in_place:
            self.in_sample[block] = clip_to(residual, self.in_sample.dtype)

    def finish(self, need: int, groups: GroupRows) -> None:
        """Fill skipped rows with the estimate of the row before them in their group.

        NaN where it rests on fewer than ``need`` samples, and in rows of no group.
        """
        if not self.filled.all():
            lengths = groups.ends - groups.begins
            rows = groups.order[sequence(groups.begins, groups.ends)]
            filled = self.filled[rows]
            last = np.maximum.accumulate(np.where(filled, np.arange(rows.size), -1))
            is_known = last >= np.repeat(np.cumsum(lengths) - lengths, lengths)
            carried = is_known & ~filled
            self.carried, self.carried_from = rows[carried], rows[last[carried]]
            outside = np.ones(len(self.count), np.bool_)
            outside[rows] = False
            self.count[outside] = -1
            self.count[self.carried] = self.count[self.carried_from]
        hidden = self.count < need
        self.hidden = hidden if hidden.any() else None
        self._complete(self.coef)
        if self.noise is not None:
            for array in (self.sigma2, self.stderr, self.squares):
                self._complete(array)
            if self.hidden is not None:
                self.in_sample[self.hidden] = np.nan

    def _complete(self, array: NDArray) -> None:
        """Fill the skipped rows of an array of estimates, and hide those of too few rows."""
        array[self.carried] = array[self.carried_from]
        if self.hidden is not None:
            array[self.hidden] = np.nan

    def row_statistics(self, sums: SumsOfSquares | None) -> RowStatistics:
        """Return the statistics of every row, after :meth:`finish`; see the function."""
        assert self.noise is not None
        degrees = self.degrees.of_rows(len(self.squares))
        self._complete(degrees)
        return row_statistics(self.in_sample, FitArrays(self.squares, degrees), sums, self.noise)


KINDS = {
    "HC0": robust_kernels.HC0,
    "HC1": robust_kernels.HC1,
    "HC2": robust_kernels.HC2,
    "HC3": robust_kernels.HC3,
    "hac": robust_kernels.HAC,
}


PIECE_WORK = 2e8  # multiplications between two moments at which a long call can show progress


def newey_west_lags(n: int) -> int:
    """Return Newey and West's (1994) number of lags for n rows, ``floor(4 (n / 100)^(2/9))``."""
    return int(4.0 * (n / 100.0) ** (2.0 / 9.0))


class RobustErrors(NamedTuple):
    """A kind of robust standard errors, in ``KINDS``, and its lags; None for Newey and West's."""

    kind: str
    lags: int | None

    def fill(
        self,
        collector: PathCollector,
        inside: RowsInside,
        Y: NDArray[np.float64],
        X: NDArray[np.float64],
        ridge: NDArray[np.float64],
        skip: int = 0,
    ) -> None:
        """Replace the standard errors of a finished path; the path's rows are those of Y and
        X (n, k) from ``skip`` on.
        """
        order, n = inside.order, inside.order.size
        Y, gates, weights = (
            read_only(np.ascontiguousarray(a[order], np.float64))
            for a in (Y, inside.gates, inside.weights)
        )
        X, oldest = read_only(np.ascontiguousarray(X[order])), np.maximum(inside.oldest, 0)
        of_path = order[skip:] - skip
        stderr, coef = collector.stderr[of_path], collector.coef[of_path].astype(np.float64)
        settings = KINDS[self.kind], -1 if self.lags is None else self.lags
        work = np.cumsum((np.arange(n) - oldest + 1.0)[skip:]) * X.shape[1] ** 2
        pieces = np.arange(1, work[-1] // PIECE_WORK + 1) if work.size else []
        inner = np.searchsorted(work, np.multiply(pieces, PIECE_WORK), side="right")
        bounds = [0, *np.unique(inner[(inner > 0) & (inner < work.size)]).tolist(), work.size]
        with PassProgress("robust standard errors", work.size, "rows") as progress:
            for begin, end in pairwise(bounds):
                # Each row's errors depend on the rows of its window alone.
                first = int(oldest[skip + begin : skip + end].min(initial=n))
                used = slice(first, skip + end)
                robust_kernels.fill_robust_errors(
                    (read_only(np.arange(n)[used]), Y[used], gates[used], weights[used]),
                    X[used],
                    oldest[used] - first,
                    skip + begin - first,
                    read_only(coef[begin:end]),
                    read_only(ridge),
                    settings,
                    stderr[begin:end],
                )
                progress.advance(end - begin)
        collector.stderr[of_path] = stderr


class PathPart(NamedTuple):
    """The finished path of some targets, their a-priori residuals (n, m), and what computes their
    statistics, if there are any.
    """

    collector: PathCollector
    residual: NDArray
    statistics: Callable[[], RowStatistics] | None


def joined(
    parts: Sequence[PathPart], targets: list[NDArray], intercept: bool, one_target: bool
) -> CoefficientPath:
    """Join the paths of groups of targets to one (n, m, ...); (n, ...) of ``one_target``."""
    collectors, residuals, statistics = zip(*parts, strict=True)
    coef, stderr, sigma2, recursive = (
        _by_target([getattr(c, name) for c in collectors], targets)
        for name in ("coef", "stderr", "sigma2", "recursive")
    )
    has_statistics = collectors[0].noise is not None
    without: Any = 0.0
    hides = any(c.hidden is not None for c in collectors)
    if hides and not intercept:  # NaN where samples are too few
        without = np.where(np.isnan(sigma2 if has_statistics else coef[:, :, 0]), np.nan, 0.0)
    constants = _by_target(residuals, targets), recursive, sigma2
    path = CoefficientPath.of_columns((coef, stderr), intercept, *constants, without=without)
    if has_statistics:

        def of_every_target() -> RowStatistics:
            columns = zip(*(part() for part in statistics), strict=True)
            return RowStatistics(*(_by_target(list(column), targets) for column in columns))

        path = path.with_statistics(of_every_target)
    else:
        path = path.bare()
    return path.each(lambda array: array[:, 0]) if one_target else path


def combine_path(path: CoefficientPath, first: int) -> CoefficientPath:
    """Combine the real path of 2n rows into the complex one of n rows."""
    coef = complex_rows.combine_coefficients(path.coef[1::2])
    stderr = complex_rows.combine_errors(path.stderr[1::2])
    residuals = map(complex_rows.combine_rows, (path.residual, path.recursive_residual))
    without = complex_rows.joined(path.intercept[1::2], 0.0 * path.intercept[1::2])
    constants = *residuals, 2.0 * path.sigma2[1::2]
    combined = CoefficientPath.of_columns((coef, stderr), bool(first), *constants, without=without)
    if not path._has_statistics:
        return combined.bare()

    def of_pairs() -> RowStatistics:
        of_parts = path._statistics_or_nan
        later = RowStatistics(*(array[1::2] for array in of_parts))
        return later._replace(
            in_sample_residual=complex_rows.combine_rows(of_parts.in_sample_residual),
            n_rows=later.n_rows / 2,
        )

    return combined.with_statistics(of_pairs)


def _by_target(parts: Sequence[NDArray], targets: list[NDArray]) -> NDArray:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts, axis=1)[:, np.argsort(np.concatenate(targets))]
