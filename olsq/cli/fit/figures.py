"""Figures at the end of ``olsq fit``, from paths of any length kept in constant memory.

Consecutive rows share a bucket.  When all buckets are full, neighbours merge and every bucket
holds twice as many rows from then on; so the result depends on the rows only, not on the chunks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.cli.errors import label
from olsq.cli.fit.checkpoint import pack, unpack
from olsq.cli.fit.estimators import Groups
from olsq.cli.fit.options import FitOptions
from olsq.cli.fit.report import coefficients_of, has_estimate
from olsq.cli.sources.times import TimeColumn
from olsq.plot.drawing import Curves, save_figure
from olsq.stability.recursive import cusum_line

BUCKETS = 1024  # about one for each pixel of a figure's width
# Columns of the table besides the coefficients and their standard errors.
LOW, HIGH, SQUARE, COUNT, PLACE, CUMULATED, TESTED = range(7)
N_FIXED = 7
SAMPLES = 8  # errors kept of every bucket
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing (Knuth, volume 3, section 6.4)


class Trace:
    """Buckets of coefficients, standard errors, extreme errors and cumulated residuals.

    Parameters
    ----------
    names : sequence of str
        Names of the coefficients, in order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._stride = 1
        self._filled = 0  # buckets begun
        self._table = np.full((BUCKETS, N_FIXED + 2 * len(self.names)), np.nan)
        self._errors, self._rows = _empty_samples()
        # cumulated recursive residual, its sum of squares and count
        self._sums = np.zeros(3)

    def update(
        self,
        start: int,
        coef: NDArray[np.float64],
        stderr: NDArray[np.float64],
        residual: NDArray[np.float64],
        recursive: NDArray[np.float64],
        time: NDArray[np.float64] | None = None,
    ) -> None:
        """Add rows ``start``...; ``recursive`` is NaN where there is no recursive residual.

        ``time`` (n,) are the horizontal positions, by default the numbers of the rows.
        """
        place = np.arange(start + 1.0, start + 1.0 + len(residual)) if time is None else time
        tested = np.isfinite(recursive) & (recursive != 0)
        values = np.where(tested, recursive, 0.0)
        table = np.column_stack(
            [
                residual,
                residual,
                residual**2,
                np.isfinite(residual).astype(float),
                place,
                self._sums[0] + np.cumsum(values),
                self._sums[2] + np.cumsum(tested, dtype=float),
                coef,
                stderr,
            ]
        )
        self._sums += values.sum(), np.square(values).sum(), tested.sum()
        rows = np.arange(start, start + len(residual))
        while len(table):
            if start // self._stride >= BUCKETS:
                self._double_stride()
                continue
            # Rows up to the end of the last bucket at the present stride.
            n = min(len(table), BUCKETS * self._stride - start)
            bucket = (start + np.arange(n)) // self._stride
            self._merge(table[:n], bucket)
            self._sample(residual[:n], rows[:n], bucket)
            table, residual, rows, start = table[n:], residual[n:], rows[n:], start + n

    def _sample(self, errors: NDArray, rows: NDArray, bucket: NDArray) -> None:
        """Keep the errors of every bucket whose rows have the smallest hashes.

        That is a random sample of them, whatever the chunks, and the sample of two buckets merged
        is the best of both samples.
        """
        begun = int(bucket[0])
        finite = np.isfinite(errors)
        errors = np.concatenate([self._errors[begun], errors[finite]])
        rows = np.concatenate([self._rows[begun], rows[finite]])
        bucket = np.concatenate([np.full(SAMPLES, begun), bucket[finite]])
        there = rows >= 0
        errors, rows, bucket = errors[there], rows[there], bucket[there]
        hashes = (rows.astype(np.uint64) * MULTIPLIER) >> np.uint64(32)
        # One key for bucket and hash sorts three times as fast as two.
        order = np.argsort((bucket.astype(np.uint64) << np.uint64(32)) | hashes)
        bucket = bucket[order]
        first = np.flatnonzero(np.concatenate([[True], bucket[1:] != bucket[:-1]]))
        rank = np.arange(len(bucket)) - np.repeat(first, np.diff(np.append(first, len(bucket))))
        kept = rank < SAMPLES
        self._errors[bucket[kept], rank[kept]] = errors[order][kept]
        self._rows[bucket[kept], rank[kept]] = rows[order][kept]

    def _merge(self, rows: NDArray[np.float64], bucket: NDArray[np.int64]) -> None:
        """Merge rows (or buckets) into the buckets that they belong to, in order."""
        first = np.flatnonzero(np.concatenate([[True], bucket[1:] != bucket[:-1]]))
        target = bucket[first]
        last = np.append(first[1:], len(rows)) - 1
        merged = rows[last]
        merged[:, LOW] = np.fmin.reduceat(rows[:, LOW], first)
        merged[:, HIGH] = np.fmax.reduceat(rows[:, HIGH], first)
        counts = rows[:, COUNT]
        merged[:, COUNT] = np.add.reduceat(counts, first)
        merged[:, SQUARE] = np.add.reduceat(np.where(counts > 0, rows[:, SQUARE], 0.0), first)
        if target[0] < self._filled:  # the first of them continues an unfinished bucket
            old, new = self._table[target[0]], merged[0]
            new[LOW], new[HIGH] = np.fmin(old[LOW], new[LOW]), np.fmax(old[HIGH], new[HIGH])
            new[COUNT] += old[COUNT]
            new[SQUARE] += old[SQUARE]
        self._table[target] = merged
        self._filled = int(target[-1]) + 1

    def _double_stride(self) -> None:
        rows = self._table[: self._filled].copy()
        pairs = np.arange(len(rows)) // 2
        errors, places = self._errors.ravel(), self._rows.ravel()
        self._errors, self._rows = _empty_samples()
        self._stride *= 2
        self._filled = 0
        self._table[:] = np.nan
        self._merge(rows, pairs)
        bucket = np.arange(BUCKETS * SAMPLES) // (2 * SAMPLES)
        self._sample(np.where(places >= 0, errors, np.nan), places, bucket)

    def curves(self, *, bounds: bool) -> Curves:
        """Return the curves of the figure; ``bounds`` adds the CUSUM and its 5 % lines."""
        table = self._table[: self._filled]
        k = len(self.names)
        total, square, n = (float(part) for part in self._sums)
        value = bound = None
        if bounds and n > 1 and square > 0:
            deviation = math.sqrt(max(square - total**2 / n, 0.0) / (n - 1)) or 1.0
            tested = table[:, TESTED].astype(int)
            value = np.where(tested > 0, table[:, CUMULATED] / deviation, np.nan)
            bound = np.where(tested > 0, cusum_line(tested, n), np.nan)
        counts = table[:, COUNT]
        mean_square = np.where(counts > 0, table[:, SQUARE], np.nan) / np.maximum(counts, 1)
        return Curves(
            table[:, PLACE],
            table[:, N_FIXED : N_FIXED + k],
            table[:, N_FIXED + k :],
            self.names,
            table[:, LOW],
            table[:, HIGH],
            mean_square,
            value,
            bound,
            self._errors[: self._filled],
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the names for the checkpoint."""
        return {
            "stride": self._stride,
            "filled": self._filled,
            "table": pack(self._table[: self._filled]),
            "sums": pack(self._sums),
            "errors": pack(self._errors[: self._filled]),
            "rows": pack(self._rows[: self._filled].astype(float)),
        }

    @classmethod
    def from_dict(cls, names: Sequence[str], saved: dict[str, Any]) -> Trace:
        """Rebuild the trace from the dictionary made by :meth:`as_dict`."""
        trace = cls(names)
        trace._stride, trace._filled = saved["stride"], saved["filled"]
        width = trace._table.shape[1]
        trace._table[: trace._filled] = unpack(saved["table"]).reshape(-1, width)
        trace._sums = unpack(saved["sums"]).copy()
        trace._errors[: trace._filled] = unpack(saved["errors"]).reshape(-1, SAMPLES)
        trace._rows[: trace._filled] = unpack(saved["rows"]).reshape(-1, SAMPLES)
        return trace


def _empty_samples() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return empty samples of all buckets: errors, and the rows they belong to (-1: none)."""
    return np.full((BUCKETS, SAMPLES), np.nan), np.full((BUCKETS, SAMPLES), -1)


def draw_by_group(
    groups: Groups,
    features: Sequence[str],
    target: int,
    options: FitOptions,
    path: Path,
) -> None:
    """Draw the coefficients of all groups for one target."""
    from olsq.plot.groups import draw_groups

    names, coef, stderr = coefficients_of(groups, features, target)
    learned = has_estimate(groups, coef)
    labels = [label(str(key)) for key, there in zip(groups.keys(), learned, strict=True) if there]
    figure = draw_groups(
        labels,
        coef[learned],
        stderr[learned],
        [label(name) for name in names],
        title=label(f"{options.targets[target]} by {options.by}   ({options.describe()})"),
    )
    save_figure(figure, path, dpi=150)


def draw(
    trace: Trace, options: FitOptions, target: str, time: TimeColumn | None, path: Path
) -> None:
    """Draw the figure of one target; the CUSUM only where its lines are valid."""
    from olsq.plot.drawing import draw_fit

    # the CUSUM's lines assume that all rows count the same
    constant = options.window is None and options.half_life is None
    constant &= options.forget in (None, 1.0) and options.weight is None
    curves = trace.curves(bounds=constant)
    x = curves.x.astype(int) if time is None else time.positions(curves.x)
    figure = draw_fit(
        curves._replace(x=x, names=[label(name) for name in curves.names]),
        title=label(f"{target}   ({options.describe()})"),
        xlabel="row" if time is None else label(time.axis_name),
        ahead=options.ahead,
    )
    save_figure(figure, path, dpi=150)
