"""Rows of a path that need care: the states after them are read together.

Reading one takes some 100 microseconds, most of it NumPy's calls; learning one takes one.
"""

from __future__ import annotations

import math
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
from olsq.online.forms.factor.kernels import inline
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


@kernel(strict=True, makes_arrays=True)
def learn_with_care(form, rows, span, limits, intercept, errors, trace, snapshots):
    """Absorb rows of a span one by one until the state is sound.

    ``form`` = (state, spread).  Returns the first row left, how many coefficients were held, and
    whether ``errors`` (n, m) lack those of the last row, which need the coefficients before it.
    The state after each row is copied to the snapshots.  What the trace receives is what needs no
    solution: losses and counts, and as recursive residuals what they are in units of the a-priori
    ones.
    """
    state, spread = form
    check_call(state, rows, span, errors)
    F, D, columns, tally, loss = state
    X, _, gates, weights = rows
    d, m, held, t, place, sound = D.shape[0], loss.shape[0], 0, span[0], 0, False
    check_trace(trace, X.shape[0], d, m)
    check_spread(spread, d, wants_sandwich(trace))
    _, _, losses, counts, recursive, _ = trace
    factors, pivots, lengths, spreads = snapshots
    n = factors.shape[0]
    if factors.shape != (n, d, d + m) or pivots.shape != (n, d) or lengths.shape != (n, 2, d):
        raise ValueError("the shapes of the snapshots do not fit the state")
    if spreads.shape != ((n, d, d) if spreads.shape[1] > 0 else (n, 0, 0)):
        raise ValueError("the shapes of the snapshots do not fit the state")
    if span[1] - span[0] > n:
        raise ValueError("the span of rows is longer than the shape of the snapshots")
    start, lacking = make_start(d, m, 1 if intercept else 0), False
    while t < span[1] and not sound and not lacking:
        share, outcome = take_carefully(state, rows, t, limits, start, False, errors)
        if outcome < 0:
            lacking = True
            share, outcome = take_carefully(state, rows, t, limits, start, True, errors)
        held += outcome
        absorb_squares(spread, X, gates, weights, t, t + 1)
        rank = 0
        for k in range(d):
            rank += 1 if D[k] > 0 else 0
        sound = is_sound(D, columns, limits, tally)
        for i in range(d):
            for k in range(d + m):
                factors[place, i, k] = F[i, k]
            pivots[place, i] = D[i]
            lengths[place, 0, i], lengths[place, 1, i] = columns[0, i], columns[1, i]
        for target in range(m):
            losses[t, target], recursive[t, target] = loss[target], math.sqrt(share)
        copy_spread(spread, spreads, place)
        record_counts(counts, t, tally, rank, 0.0)
        place += 1
        t += 1
    return t, held, lacking


def take(form: FactorForm, rows: Rows, start: int, stop: int, errors: NDArray, trace: Trace) -> int:
    """Absorb rows from ``start`` on until the state is sound; return the first row left."""
    m, d = form.loss.shape[0], form.D.shape[0]
    stop = min(stop, start + rows_at_once(d))
    snapshots = Snapshots.empty(stop - start, m, d, form.spread.size > 0)
    before = form.coefficients()
    end, held, lacking = learn_with_care(
        (form.in_kernels, form.spread_in_kernels),
        tuple(rows),
        (start, stop),
        form.limits.square_root,
        form.intercept,
        errors,
        tuple(trace),
        tuple(snapshots),
    )
    form.held += held
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


def write_residuals(
    before: NDArray, rows: Rows, at: NDArray[np.int64], residual: NDArray, trace: Trace
) -> None:
    """Write the residuals of rows ``at`` given the coefficients (r, m, d) before each."""
    residual[at] = errors = rows.Y[at] - predict(before, rows.X[at])
    trace.recursive[at] *= errors


def predict(theta: NDArray, X: NDArray) -> NDArray:
    """Predict rows X (n, d) by theta (n, m, d) as (n, m), with the same bits for any n."""
    return np.matmul(theta, X[:, :, None])[:, :, 0]
