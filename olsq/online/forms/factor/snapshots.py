"""Rows of a path that need care: the states after them are read together.

Reading one takes some 100 microseconds, most of it NumPy's calls; learning one takes one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.forms.counting import RANK, absorb_squares, record_counts
from olsq.online.forms.edges import check_spread, check_trace, wants_sandwich
from olsq.online.forms.factor.careful import make_start, take_carefully
from olsq.online.forms.factor.counters import is_sound
from olsq.online.forms.factor.edges import check_call
from olsq.online.forms.factor.kernels import called, inline, rank_of
from olsq.online.forms.rows import Rows, Trace

if TYPE_CHECKING:
    from olsq.online.forms.factor.form import FactorForm

ENTRIES = 2**18  # of the factors that are read together
ROWS = 256  # of one stream among them


class Snapshots(NamedTuple):
    """States after n rows: F (n, d, d + m), D (n, d), columns (n, 2, d), spread (n, s, s)."""

    F: NDArray[np.float64]
    D: NDArray[np.float64]
    columns: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def empty(cls, n: int, m: int, d: int, sandwich: bool) -> Self:
        s = d if sandwich else 0
        return cls(*(np.empty((n, *shape)) for shape in ((d, d + m), (d,), (2, d), (s, s))))


def rows_at_once(d: int, streams: int = 1) -> int:
    """Return how many rows of each stream are read together."""
    return max(1, min(ROWS, ENTRIES // (d * d * streams)))


@inline
def copy_spread(spread, snapshots, place):
    """Copy a spread, which may be None, to its place among the snapshots."""
    if spread is None:
        return
    for i in range(snapshots.shape[1]):
        for k in range(snapshots.shape[2]):
            snapshots[place, i, k] = spread[i, k]


@kernel(strict=True)
def check_snapshots(snapshots, span, d, m):
    """Check that the states after a span of rows have room."""
    factors, pivots, lengths, spreads = snapshots
    n = factors.shape[0]
    if factors.shape != (n, d, d + m) or pivots.shape != (n, d) or lengths.shape != (n, 2, d):
        raise ValueError("the shapes of the snapshots do not fit the state")
    if spreads.shape != ((n, d, d) if spreads.shape[1] > 0 else (n, 0, 0)):
        raise ValueError("the shapes of the snapshots do not fit the state")
    if span[1] - span[0] > n:
        raise ValueError("the span of rows is longer than the shape of the snapshots")


@called
def keep(state, spread, snapshots, place):
    """Copy a state to its place among the snapshots."""
    F, D, columns, _, _ = state
    factors, pivots, lengths, spreads = snapshots
    d, width = F.shape
    for i in range(d):
        for k in range(width):
            factors[place, i, k] = F[i, k]
        pivots[place, i] = D[i]
        lengths[place, 0, i], lengths[place, 1, i] = columns[0, i], columns[1, i]
    copy_spread(spread, spreads, place)


@inline
def record_unsolved(state, t, share, trace):
    """Write to the trace what is known after row t without a solution: loss, counts, and as
    recursive residual what it is in units of the a-priori one.
    """
    _, D, _, tally, loss = state
    for q in range(loss.shape[0]):
        trace[2][t, q], trace[4][t, q] = loss[q], math.sqrt(share)
    record_counts(trace[3], t, tally, rank_of(D), 0.0)


@kernel(strict=True, makes_arrays=True)
def learn_with_care(form, rows, span, limits, intercept, errors, trace, snapshots):
    """Absorb rows of a span one by one until the state is sound.

    ``form`` = (state, spread).  Returns the first row left, how many coefficients were held, and
    whether ``errors`` (n, m) lack those of the last row, which need the coefficients before it.
    The state after each row is copied to the snapshots, and the trace receives what needs no
    solution: :func:`record_unsolved`.
    """
    state, spread = form
    check_call(state, rows, span, errors)
    _, D, columns, tally, loss = state
    X, _, gates, weights = rows
    d, m, held, t, sound = D.shape[0], loss.shape[0], 0, span[0], False
    check_trace(trace, X.shape[0], d, m)
    check_spread(spread, d, wants_sandwich(trace))
    check_snapshots(snapshots, span, d, m)
    start, lacking = make_start(d, m, 1 if intercept else 0), False
    while t < span[1] and not sound and not lacking:
        share, outcome = take_carefully(state, rows, t, limits, start, False, errors)
        if outcome < 0:
            lacking = True
            share, outcome = take_carefully(state, rows, t, limits, start, True, errors)
        held += outcome
        absorb_squares(spread, X, gates, weights, t, t + 1)
        sound = is_sound(D, columns, limits, tally)
        keep(state, spread, snapshots, t - span[0])
        record_unsolved(state, t, share, trace)
        t += 1
    return t, held, lacking


def take(
    form: FactorForm,
    rows: Rows,
    span: tuple[int, int],
    errors: NDArray,
    trace: Trace,
    absorb: Callable[[tuple[int, int], Snapshots], tuple[int, bool]],
) -> int:
    """Take rows of a span until the state is sound; return the first row left.

    ``absorb(span, snapshots)`` does it, as :func:`learn_with_care`, and returns that row and
    whether the errors of the one before it are lacking.
    """
    m, d, start = form.loss.shape[0], form.D.shape[0], span[0]
    stop = min(span[1], start + rows_at_once(d))
    snapshots = Snapshots.empty(stop - start, m, d, form.spread.size > 0)
    before = form.coefficients()
    end, lacking = absorb((start, stop), snapshots)
    read(snapshots, np.arange(end - start), trace, np.arange(start, end), form)
    if lacking:
        theta = before[None] if end - start == 1 else trace.coef[end - 2 : end - 1]
        errors[end - 1] = rows.Y[end - 1] - predict(theta, rows.X[end - 1 : end])[0]
    trace.recursive[start:end] *= errors[start:end]
    return end


def read(
    snapshots: Snapshots,
    places: NDArray[np.int64],
    trace: Trace,
    at: NDArray[np.int64],
    like: FactorForm,
) -> None:
    """Write the solutions of snapshots at some ``places`` to the rows ``at`` of a trace, whose
    losses and counts are there; ``like`` has what the states share.
    """
    for group in group_by_pivots(snapshots.D[places]):
        F, D, columns, spread = (array[places[group]] for array in snapshots)
        rows = at[group]
        tally, loss = trace.counts[rows, :RANK], trace.loss[rows]
        arrays = {"F": F, "D": D, "columns": columns, "tally": tally, "loss": loss}
        trace.write(rows, replace(like, **arrays, spread=spread))


def group_by_pivots(D: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Group the places of states with pivots D (b, d) that are zero in the same columns."""
    known = D > 0
    if not known.size or (known == known[0]).all():  # as of streams that began together
        return [np.arange(len(D))] if len(D) else []
    _, patterns = np.unique(known, axis=0, return_inverse=True)
    order = np.argsort(patterns.ravel(), kind="stable")
    return np.split(order, np.flatnonzero(np.diff(patterns.ravel()[order])) + 1)


def predict(theta: NDArray, X: NDArray) -> NDArray:
    """Predict rows X (n, d) by theta (n, m, d) as (n, m), with the same bits for any n."""
    return np.matmul(theta, X[:, :, None])[:, :, 0]
