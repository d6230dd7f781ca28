"""Coefficients and variances of a rolling window, carried from row to row by gains."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from olsq.online.forms.counting import record
from olsq.online.forms.factor.kernels import called, inline
from olsq.online.forms.factor.limits import SHRUNK
from olsq.online.forms.factor.registers import fma, load4, store, times
from olsq.online.forms.factor.solving import gains, solve, variances
from olsq.online.windows.ring_kernels import copy_row


class Carried(NamedTuple):
    """Coefficients and variances carried from row to row, with the arrays to compute them in.

    theta (m, d); ``variance`` (d,), the ``largest`` (d,) since they were computed afresh, and those
    after the two rows of a pair (2, d), all three (0,) or (2, 0) where nobody asks for variances;
    gains (d, 4) with their masks, pivots (d, 4) and squares (4,); the factor before four rows.
    """

    theta: Any
    variance: Any
    largest: Any
    after: Any
    gains: Any
    masks: Any
    pivots: Any
    squares: Any
    F_before: Any
    D_before: Any
    inverse: Any


@inline
def make_carried(d, m, wide):
    """Return room for what is carried, with variances if it is ``wide``."""
    masks = np.zeros((3, 4))
    for s in range(3):
        for r in range(s + 1):
            masks[s, r] = 1.0
    w = d if wide else 0
    return Carried(
        theta=np.empty((m, d)),
        variance=np.empty(w),
        largest=np.empty(w),
        after=np.empty((2, w)),
        gains=np.empty((d, 4)),
        masks=masks,
        pivots=np.empty((d, 4)),
        squares=np.empty(4),
        F_before=np.empty((w, d + m)),
        D_before=np.empty(d),
        inverse=np.empty((w, w)),
    )


@called
def read_afresh(state, carried):
    """Compute coefficients and variances of a sound state."""
    F, D, _, _, _ = state
    variance, pivots = carried.variance, carried.D_before
    solve(F, D, carried.theta)
    if variance.shape[0] == 0:
        return
    for j in range(D.shape[0]):
        pivots[j] = D[j] if D[j] > 0 else math.inf
    variances(F, pivots, carried.inverse, variance)
    for j in range(D.shape[0]):
        variance[j] = variance[j] if D[j] > 0 else math.inf
        carried.largest[j] = variance[j]


@inline
def keep_state(F, D, carried):
    """Keep the factor before four rows, if there are variances."""
    for j in range(carried.F_before.shape[0]):
        carried.D_before[j] = D[j]
        copy_row(F, j, carried.F_before, j)


@inline
def carry_variances(state, gates, left, history, carried):
    """Compute gains of a pair of rows and of those that leave with them, and the variances.

    True, with the factor as before, where a variance has shrunk so much that the difference which
    it is has lost digits.
    """
    F, D, _, _, _ = state
    K, pivots, squares = carried.gains, carried.pivots, carried.squares
    for j in range(D.shape[0]):
        for r in range(4):
            pivot = history[2][j, r]
            pivots[j, r] = pivot if pivot != 0 else 1.0  # of columns that are 0 throughout
    gains(F, (history[0], history[1], pivots), carried.masks, K)
    first, second, shares = 1.0 / gates[0], 1.0 / gates[2], load4(left, 0)
    shrunk = 0
    for k in range(carried.variance.shape[0]):
        gain = load4(K, 4 * k)
        store(squares, 0, times(shares, times(gain, gain)))
        v0 = fma(carried.variance[k], first, -squares[0])
        v1 = v0 - squares[1]  # of a row that leaves, whose share is negative
        v2 = fma(v1, second, -squares[2])
        v3 = v2 - squares[3]
        carried.after[0, k], carried.after[1, k] = v1, v3
        most = max(carried.largest[k], max(v1, v3))
        carried.largest[k] = most
        least = SHRUNK * most
        shrunk += 0 if (v0 > least) & (v2 > least) | (most == math.inf) else 1
    if shrunk > 0:
        for j in range(D.shape[0]):
            D[j] = carried.D_before[j]
            copy_row(carried.F_before, j, F, j)
    return shrunk > 0


@inline
def carry_coefficients(r, left, errors, carried):
    """Move the coefficients by row r of four."""
    theta = carried.theta
    for q in range(theta.shape[0]):
        step = left * errors[r, q]
        for k in range(theta.shape[1]):
            theta[q, k] += step * carried.gains[k, r]


@inline
def record_carried(trace, t, i, D, loss, tally, carried):
    """Write to the trace what is carried, after row i of a pair."""
    rank = 0
    for j in range(D.shape[0]):
        rank += 1 if D[j] > 0 else 0
    for k in range(carried.variance.shape[0]):
        trace[1][t, k] = carried.variance[k] = carried.after[i, k]
    record(trace, t, carried.theta, loss, tally, rank, 0.0)


@called
def record_afresh(state, t, trace, carried):
    """Write a sound state to the trace."""
    _, D, _, tally, loss = state
    read_afresh(state, carried)
    for k in range(carried.variance.shape[0]):
        carried.after[0, k] = carried.variance[k]
    record_carried(trace, t, 0, D, loss, tally, carried)
