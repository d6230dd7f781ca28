"""Coefficients and variances of a rolling window, carried from row to row by gains."""

from __future__ import annotations

import math

import numpy as np

from olsq.online.forms.factor.kernels import called, inline
from olsq.online.forms.factor.limits import SHRUNK
from olsq.online.forms.factor.solving import gains, solve, variances
from olsq.online.forms.square_root_kernels import (
    record,
)


@inline
def make_carried(d, m, wide):
    """Return what is carried from row to row: theta (m, d), variances (d,) and their largest
    values, if they are ``wide``, for four rows too, gains, and room.
    """
    masks = np.zeros((3, 4))
    for s in range(3):
        for r in range(s + 1):
            masks[s, r] = 1.0
    w = d if wide else 0
    vectors = np.empty(w), np.empty(w), np.empty((4, w))
    before = np.empty((w, d + m)), np.empty(d)
    return (
        np.empty((m, d)),
        vectors,
        np.empty((d, 4)),
        masks,
        before,
        np.empty((w, w)),
        np.ones((d, 4)),
    )


@called
def read_afresh(state, carried):
    """Compute coefficients and variances of a sound state."""
    F, D, _, _, _ = state
    theta, (variance, largest, _), _, _, (_, pivots), inverse, _ = carried
    solve(F, D, theta)
    if variance.shape[0] == 0:
        return
    for j in range(D.shape[0]):
        pivots[j] = D[j] if D[j] > 0 else math.inf
    variances(F, pivots, inverse, variance)
    for j in range(D.shape[0]):
        variance[j] = variance[j] if D[j] > 0 else math.inf
        largest[j] = variance[j]


@inline
def keep_state(F, D, carried):
    """Keep the factor before four rows, if there are variances."""
    before, pivots = carried[4]
    for j in range(before.shape[0]):
        pivots[j] = D[j]
        for k in range(j, F.shape[1]):
            before[j, k] = F[j, k]


@inline
def carry_variances(state, four, left, history, carried):
    """Compute gains and variances of four rows; True, with the factor as before, where a variance
    has shrunk so much that the difference which it is has lost digits.
    """
    F, D, _, _, _ = state
    _, (variance, largest, steps), K, masks, (F_before, D_before), _, pivots = carried
    d, gates, shrunk = D.shape[0], four[2], 0
    for j in range(d):
        for r in range(4):
            pivot = history[2][j, r]
            pivots[j, r] = pivot if pivot != 0 else 1.0  # of columns that are 0 throughout
    gains(F, (history[0], history[1], pivots), masks, K)
    for k in range(variance.shape[0]):
        v, most = variance[k], largest[k]
        for r in range(4):
            v = v / gates[r] - left[r] * K[k, r] * K[k, r]
            steps[r, k] = v
            most = max(most, v)
            shrunk += 0 if (v > SHRUNK * most) | (most == math.inf) else 1
        largest[k] = most
    if shrunk > 0:
        for j in range(d):
            D[j] = D_before[j]
            for k in range(j, F.shape[1]):
                F[j, k] = F_before[j, k]
    return shrunk > 0


@inline
def carry_coefficients(r, left, errors, carried):
    """Move the coefficients by row r of four."""
    theta, K = carried[0], carried[2]
    for q in range(theta.shape[0]):
        step = left * errors[r, q]
        for k in range(theta.shape[1]):
            theta[q, k] += step * K[k, r]


@inline
def record_carried(trace, t, r, D, loss, tally, carried):
    """Write to the trace what is carried, after row r of four."""
    theta, (variance, _, steps), _, _, _, _, _ = carried
    rank = 0
    for j in range(D.shape[0]):
        rank += 1 if D[j] > 0 else 0
    for k in range(variance.shape[0]):
        trace[1][t, k] = variance[k] = steps[r, k]
    record(trace, t, theta, loss, tally, rank, 0.0)


@called
def record_afresh(state, t, trace, carried):
    """Write a sound state to the trace."""
    _, D, _, tally, loss = state
    variance, _, steps = carried[1]
    read_afresh(state, carried)
    for k in range(variance.shape[0]):
        steps[0, k] = variance[k]
    record_carried(trace, t, 0, D, loss, tally, carried)
