"""Rows of a path after which coefficients are undetermined: their states are read together.

Reading one takes some 100 microseconds, most of it NumPy's calls; learning one takes one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.forms.edges import check_call, check_spread, check_trace, wants_sandwich
from olsq.online.forms.minimum_norm import group_by_pivots
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.square_root_kernels import RANK, absorb_alone, record_counts
from olsq.online.forms.start_kernels import count_pivots

if TYPE_CHECKING:
    from olsq.online.forms.square_root import SquareRootForm

ENTRIES = 2**18  # of the factors that are read together
ROWS = 256  # of one stream among them


class Snapshots(NamedTuple):
    """States after n rows: R (n, d, d), z (n, m, d), columns (n, 2, d) and spread (n, s, s)."""

    R: NDArray[np.float64]
    z: NDArray[np.float64]
    columns: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def empty(cls, n: int, m: int, d: int, sandwich: bool) -> Self:
        s = d if sandwich else 0
        return cls(*(np.empty((n, *shape)) for shape in ((d, d), (m, d), (2, d), (s, s))))

    def keep(self, place: int, form: SquareRootForm) -> None:
        """Copy the state of a square-root form to its place."""
        for snapshots, array in zip(self, (form.R, form.z, form.columns, form.spread), strict=True):
            snapshots[place] = array


def rows_at_once(d: int, streams: int = 1) -> int:
    """Return how many rows of each stream are read together."""
    return max(1, min(ROWS, ENTRIES // (d * d * streams)))


@kernel(forceinline=True)
def copy_spread(spread, snapshots, place):
    """Copy a spread, which may be None, to its place among the snapshots."""
    if spread is None:
        return
    for i in range(snapshots.shape[1]):
        for k in range(snapshots.shape[2]):
            snapshots[place, i, k] = spread[i, k]


@kernel()
def absorb_undetermined(form, spread, rows, span, limits, trace, snapshots, place):
    """Absorb rows of a span, up to one that determines all coefficients or leaves nothing.

    Returns the first row left and how many coefficients were held.  The state after each row is
    copied to the snapshots from ``place`` on.  What the trace receives is what needs no solution:
    losses and counts, and as recursive residuals what they are in units of the a-priori ones.
    """
    R, z, columns, tally, loss = form
    X, Y, gates, weights = rows
    (m, d), held, t, undetermined = z.shape, 0, span[0], True
    check_call(form, rows, span, Y)
    check_trace(trace, X.shape[0], d, m)
    check_spread(spread, d, wants_sandwich(trace))
    _, _, losses, counts, recursive, _ = trace
    factors, rotated, lengths, spreads = snapshots
    n = factors.shape[0]
    if factors.shape != (n, d, d) or rotated.shape != (n, m, d) or lengths.shape != (n, 2, d):
        raise ValueError("the shapes of the snapshots do not fit the state")
    if spreads.shape != ((n, d, d) if spreads.shape[1] > 0 else (n, 0, 0)):
        raise ValueError("the shapes of the snapshots do not fit the state")
    if not 0 <= place <= n - (span[1] - span[0]):
        raise ValueError("rows start..stop are outside of the shape of the snapshots")
    while t < span[1] and undetermined:
        share, count = absorb_alone(form, spread, X[t], Y[t], gates[t], weights[t], limits)
        held += count
        rank = count_pivots(R)
        undetermined = 0 < rank < d
        for i in range(d):
            for k in range(d):
                factors[place, i, k] = R[i, k]
            lengths[place, 0, i], lengths[place, 1, i] = columns[0, i], columns[1, i]
        for target in range(m):
            losses[t, target], recursive[t, target] = loss[target], math.sqrt(share)
            for k in range(d):
                rotated[place, target, k] = z[target, k]
        copy_spread(spread, spreads, place)
        record_counts(counts, t, tally, rank, 0.0)
        place += 1
        t += 1
    return t, held


def take(
    form: SquareRootForm,
    rows: Rows,
    start: int,
    stop: int,
    residual: NDArray,
    trace: Trace,
    theta: NDArray,
) -> tuple[int, NDArray]:
    """Absorb rows from ``start`` on while coefficients of a square-root form are undetermined.

    ``theta`` (m, d) are the coefficients before.  Returns the first row left and the coefficients
    before that one.
    """
    m, d = form.z.shape
    stop = min(stop, start + rows_at_once(d))
    snapshots = Snapshots.empty(stop - start, m, d, form.spread.size > 0)
    end, held = absorb_undetermined(
        form.in_kernels,
        form.spread_in_kernels,
        tuple(rows),
        (start, stop),
        form.limits.square_root,
        tuple(trace),
        tuple(snapshots),
        0,
    )
    form.held += held
    full = form.full_rank  # then the last row's estimate has the bits that the form itself gives
    places = np.arange(end - start - int(full))
    read(snapshots, places, trace, start + places, form)
    if full:
        trace.write(end - 1, form)
    before = np.concatenate([theta[None], trace.coef[start : end - 1]])
    write_residuals(before, rows, np.arange(start, end), residual, trace)
    return end, trace.coef[end - 1]


def read(
    snapshots: Snapshots,
    places: NDArray[np.int64],
    trace: Trace,
    at: NDArray[np.int64],
    like: SquareRootForm,
) -> None:
    """Write the solutions of snapshots at some ``places`` to the rows ``at`` of a trace, whose
    losses and counts are there; ``like`` has what the forms share.
    """
    for group in group_by_pivots(snapshots.R[places]):
        R, z, columns, spread = (array[places[group]] for array in snapshots)
        rows = at[group]
        tally, loss = trace.counts[rows, :RANK], trace.loss[rows]
        arrays = {"R": R, "z": z, "columns": columns, "tally": tally, "loss": loss}
        trace.write(rows, replace(like, **arrays, spread=spread, basis=None))


def write_residuals(
    before: NDArray, rows: Rows, at: NDArray[np.int64], residual: NDArray, trace: Trace
) -> None:
    """Write the residuals of rows ``at`` given the coefficients (r, m, d) before each."""
    residual[at] = errors = rows.Y[at] - predict(before, rows.X[at])
    trace.recursive[at] *= errors


def predict(theta: NDArray, X: NDArray) -> NDArray:
    """Predict rows X (n, d) by theta (n, m, d) as (n, m), with the same bits for any n."""
    return np.matmul(theta, X[:, :, None])[:, :, 0]
