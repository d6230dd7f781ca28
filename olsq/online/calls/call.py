"""The checked rows of one call of ``fit`` or ``partial_fit``, and the blocks they are cut into.

Blocks are brought to float64 one after another, so that a long call needs no copy of the
data.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.pair_kernels import embed
from olsq.online.forms.rows import PairedRows, Rows, read_only
from olsq.online.rows import inputs
from olsq.online.rows.complex_rows import real_parts
from olsq.online.rows.durations import elapsed_times, half_life_gates, span_after

BLOCK_ENTRIES = 131072  # regressors prepared at a time: what fits a core's cache
PATH_ENTRIES = 32768  # the same with coefficients and variances after every row beside them
# Rows of large models meet a state that no cache holds, and pass over it once a block.
LARGE, LARGE_ROWS = 256, 512

Block = slice | NDArray[np.int64]


class Origin(NamedTuple):
    """Properties of a state that the first rows and the parameters fix for its lifetime."""

    n_features: int
    n_targets: int  # 0 for a one-dimensional y
    dtype: np.dtype  # of what comes out
    in_time: bool  # of states of 0.2.0 whose first rows had an index: windows count positions
    ridge: NDArray  # (k,), with the intercept's zero first where there is one
    names: NDArray | None  # of the features
    intercept: bool
    discounted: bool
    sandwich: bool
    made_with: dict[str, Any]  # the parameters behind the state, whatever set_params says since
    targets: tuple[str, ...] | None = None  # their names
    # The rows are complex, each a pair of real ones (see rows/complex_rows.py): dtype is that of
    # one part, ridge has 2k numbers, and the intercept's columns are among those of the pairs.
    is_complex: bool = False
    complex_intercept: bool = False

    @property
    def first(self) -> int:
        """The place of the first coefficient, behind the intercept if there is one."""
        return int(self.intercept or self.complex_intercept)

    @property
    def columns(self) -> int:
        """Number of targets m of the state, at least one."""
        return max(self.n_targets, 1)


class Call(NamedTuple):
    """Checked rows of one call, before the state has absorbed them."""

    X: NDArray  # (n, d); of complex rows (n / 2, d), with their column of ones
    Y: NDArray  # (n, m)
    gates: NDArray[np.float64]  # (n,)
    weights: NDArray[np.float64]  # (n,)
    usable: NDArray[np.bool_] | None  # (n,), or (n, m) by target; None: all
    one_target: bool  # y was one-dimensional
    names: NDArray | None
    targets: tuple[str, ...] | None = None  # names
    times: NDArray | None = None  # (n,), of a stream whose window or half-life is one of time
    half_life: float | None = None  # in the unit of times
    unit: float | None = None  # of time in which coefficients drift; gates are times elapsed then
    complex_features: int = 0  # d of complex rows, whose pairs the others are of; 0 for real ones

    @property
    def factors(self) -> NDArray[np.float64]:
        """The forgetting factors (n,) of the rows; ones where gates are times elapsed."""
        return self.gates if self.unit is None else np.ones(self.gates.shape)

    @property
    def nothing_usable(self) -> bool:
        """True if every row must be skipped."""
        return self.usable is not None and not self.usable.any()

    @property
    def n_samples(self) -> int:
        """Number of rows with a positive weight and a usable target."""
        learned = self.weights > 0
        if self.usable is not None:
            learned = learned & (self.usable if self.usable.ndim == 1 else self.usable.any(axis=1))
        return int(np.count_nonzero(learned)) // (2 if self.complex_features else 1)

    def of(self, targets: NDArray[np.int64]) -> Call:
        """Select some of the targets, which miss the same rows."""
        every, usable = len(targets) == self.Y.shape[1], self.usable
        if every and (usable is None or usable.ndim == 1):
            return self
        if usable is not None and usable.ndim == 2:
            usable = usable[:, targets[0]]
        return self._replace(Y=self.Y if every else self.Y[:, targets], usable=usable)


def forgetting_in_time(call: Call, engine: Any) -> Call:
    """Convert a half-life, or a unit of drift, in time into one gate per row.

    They count from the last row that the engine has learned, and the engine's span goes on.
    Coefficients drift in rows that cannot be learned, too, so that drift counts from any last row.
    """
    if call.times is None:
        return call
    span = np.empty(0, call.times.dtype)
    span = span if getattr(engine, "span", None) is None else engine.span
    usable = call.usable if call.unit is None else None
    if call.half_life is not None:
        gates = half_life_gates(call.times, usable, span, call.half_life)
    elif call.unit is None:  # a window, in which rows that cannot be learned do not forget
        gates = call.gates
        return call if call.usable is None else call._replace(gates=np.where(call.usable, gates, 1))
    else:
        gates = elapsed_times(call.times, usable, span) / call.unit
    engine.span = span_after(call.times, usable, span)
    return call._replace(gates=gates)


def blocks(
    n: int, usable: NDArray[np.bool_] | None, k: int, want_path: bool, first: int = 0
) -> Iterator[Block]:
    """Split the usable rows of a call into blocks that fit the cache: slices, or indices under a
    mask.  ``first`` is the length of the first one, where it is to be another.
    """
    # Whole blocks of eight rows, of which the recursion takes four at a time.
    size = max(64, (PATH_ENTRIES if want_path else BLOCK_ENTRIES) // k // 8 * 8)
    if k >= LARGE and not want_path:
        size = max(size, LARGE_ROWS)
    for start, stop in pairwise([0, *range(first or size, n, size), n] if n else []):
        if usable is None or usable[start:stop].all():
            yield slice(start, stop)
        elif usable[start:stop].any():
            yield start + np.flatnonzero(usable[start:stop])


def embedded(X: NDArray) -> NDArray[np.float64]:
    """Compute the pairs (2n, 2k) of complex rows X (n, k)."""
    parts = real_parts(X)
    pairs = np.empty((2 * len(parts), parts.shape[1]))
    embed(read_only(parts), pairs)
    return pairs


def prepare(call: Call, block: Block, usable: NDArray[np.bool_] | None, intercept: bool) -> Rows:
    """Prepare the rows of a block: float64, with the intercept's column of ones.

    Those that are not ``usable`` (n,) become rows of zeros and weight 0.
    """
    targets, weights = call.Y[block], call.weights[block]
    if call.complex_features:
        # Embedded block by block, so that it stays in the cache: pairs take twice the memory.
        if isinstance(block, slice):
            pairs = slice(block.start // 2, block.stop // 2)
        else:
            pairs = block[::2] // 2
        features = embedded(call.X[pairs])
    else:
        features = call.X[block]
    if usable is not None:
        ok = usable[block]
        features, targets = (np.where(ok[:, None], a, 0.0) for a in (features, targets))
        weights = np.where(ok, weights, 0.0)
    rows = inputs.with_ones(features, intercept)
    kind = PairedRows if call.complex_features else Rows
    return kind.of(rows, np.ascontiguousarray(targets, np.float64), call.gates[block], weights)
