"""Rows of a path that need care: the states after them are read together.

Reading one takes some 100 microseconds, most of it NumPy's calls; learning one takes one.  States
whose coefficients the basis of the first rows gives are not kept: see :mod:`.careful`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.forms.counting import RANK, absorb_squares, record_counts
from olsq.online.forms.factor.careful import make_start, record_unknown, take_carefully
from olsq.online.forms.factor.counters import is_sound
from olsq.online.forms.factor.kernels import called, inline, rank_of
from olsq.online.forms.rows import Trace

if TYPE_CHECKING:
    from olsq.online.forms.factor.form import FactorForm

ENTRIES = 2**18  # of the factors that are read together
ROWS = 256  # of one stream among them


class Snapshots(NamedTuple):
    """States after n rows: F (n, d, d + m), D (n, d), columns (n, 2, d), spread (n, s, s).

    ``at`` (n,) are the rows of the trace that they belong to, -1 where none is kept.
    """

    F: NDArray[np.float64]
    D: NDArray[np.float64]
    columns: NDArray[np.float64]
    spread: NDArray[np.float64]
    at: NDArray[np.int64]

    @classmethod
    def empty(cls, n: int, m: int, d: int, sandwich: bool) -> Self:
        s = d if sandwich else 0
        shapes = (d, d + m), (d,), (2, d), (s, s)
        F, D, columns, spread = (np.empty((n, *shape)) for shape in shapes)
        return cls(F, D, columns, spread, np.full(n, -1))


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
def check_snapshots(snapshots, d, m):
    """Check the shapes of room for states."""
    factors, pivots, lengths, spreads, at = snapshots
    n = factors.shape[0]
    if factors.shape != (n, d, d + m) or pivots.shape != (n, d) or lengths.shape != (n, 2, d):
        raise ValueError("the shapes of the snapshots do not fit the state")
    if spreads.shape != ((n, d, d) if spreads.shape[1] > 0 else (n, 0, 0)) or at.shape != (n,):
        raise ValueError("the shapes of the snapshots do not fit the state")


@kernel(forceinline=True, makes_arrays=True)
def own_snapshots(snapshots, i, members):
    """Return those of member i, of which each has as many."""
    each = snapshots[0].shape[0] // members
    factors, pivots, lengths, spreads, at = snapshots
    own = slice(i * each, (i + 1) * each)
    return factors[own], pivots[own], lengths[own], spreads[own], at[own]


@called
def keep(state, spread, snapshots, place, t):
    """Copy the state after row t to its place among the snapshots."""
    F, D, columns, _, _ = state
    factors, pivots, lengths, spreads, at = snapshots
    d, width = F.shape
    at[place] = t
    for i in range(d):
        for k in range(width):
            factors[place, i, k] = F[i, k]
        pivots[place, i] = D[i]
        lengths[place, 0, i], lengths[place, 1, i] = columns[0, i], columns[1, i]
    copy_spread(spread, spreads, place)


@inline
def record_unsolved(state, t, share, errors, trace):
    """Write to the trace what is known after row t without a solution: loss, counts and the
    recursive residual.
    """
    _, D, _, tally, loss = state
    for q in range(loss.shape[0]):
        trace[2][t, q], trace[4][t, q] = loss[q], math.sqrt(share) * errors[t, q]
    record_counts(trace[3], t, tally, rank_of(D), 0.0)


@kernel(strict=True, makes_arrays=True)
def learn_with_care(form, rows, span, limits, intercept, errors, trace, after):
    """Absorb rows of a span one by one until the state is sound, or there is no room for it.

    ``form`` = (state, spread); ``after`` = (snapshots, known), and ``known`` says that ``errors``
    (n, m) hold those of the first row.  Returns the first row left, how many coefficients were
    held, and whether that row was left because its errors need the coefficients before it.  The
    trace receives the states after the rows, of those among the snapshots what needs no solution:
    :func:`record_unsolved`.
    """
    (state, spread), (snapshots, known) = form, after
    _, D, columns, tally, loss = state
    X, _, gates, weights = rows
    d, m, held, t, place = D.shape[0], loss.shape[0], 0, span[0], 0
    start, sound, lacking = make_start(d, m, 1 if intercept else 0), False, False
    while t < span[1] and not sound and place < snapshots[0].shape[0]:
        has_errors = known and t == span[0]
        share, outcome = take_carefully(state, rows, t, limits, start, has_errors, errors)
        lacking = outcome < 0
        if lacking:
            break
        held += outcome
        absorb_squares(spread, X, gates, weights, t, t + 1)
        sound = is_sound(D, columns, limits, tally)
        record_unsolved(state, t, share, errors, trace)
        last = t + 1 == span[1]  # which has the bits that the state itself gives
        if last or not record_unknown(state, start, t, trace):
            keep(state, spread, snapshots, place, t)
            place += 1
        t += 1
    return t, held, lacking


def read(snapshots: Snapshots, trace: Trace, like: FactorForm) -> None:
    """Write the solutions of snapshots to their rows of a trace, whose losses and counts are there;
    ``like`` has what the states share.
    """
    places = np.flatnonzero(snapshots.at >= 0)
    for group in group_by_pivots(snapshots.D[places]):
        at, rows = places[group], snapshots.at[places[group]]
        F, D, columns, spread = (array[at] for array in snapshots[:4])
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
