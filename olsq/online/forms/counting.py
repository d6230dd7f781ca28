"""Counters of a state beside its factor, its factor of squared weights, and what a trace keeps.

``columns`` (2, d) holds the squared lengths of the regressors (the diagonal of the information) and
their values when the column last saw a nonzero regressor; ``tally`` = [forgotten count of rows, the
same with squared forgetting, product of all gates, forgotten sum of weights]; ``loss`` (m,) the
minimised objective.  ``spread`` is a triangular factor of ``S_t = gamma^2 S_{t-1} + w^2 x x^T``, or
(0, 0) where nobody asks for it.
Values are checked at the public edge; kernels that take rows check their shapes once.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.linalg.numpy.rotations import givens, rotate_pair
from olsq.online.forms.edges import check_spread

COUNT, COUNT_SQUARED, DECAY, WEIGHT = 0, 1, 2, 3
FAINTEST = 2.0**-1000  # the least that gates above 0 leave of anything: its root is a normal number
EPS = float(np.finfo(np.float64).eps)
RANK, USED = 4, 5  # a trace's row of counts goes on with the rank and tr(P S)


@kernel(forceinline=True)
def count_row(tally, gate, weight):
    """Update the counts of forgotten rows and the product of gates."""
    seen = 1.0 if weight > 0 else 0.0
    tally[COUNT] = gate * tally[COUNT] + seen
    tally[COUNT_SQUARED] = gate * gate * tally[COUNT_SQUARED] + seen
    # Never 0 but after a reset: what a merge leaves of older rows is faint, and is there.
    tally[DECAY] = max(gate * tally[DECAY], FAINTEST) if gate > 0 and tally[DECAY] > 0 else 0.0
    tally[WEIGHT] = gate * tally[WEIGHT] + weight


@kernel(strict=True)
def learn_logs(logs, turns, gates, weights):
    """Update the forgotten sums (n,) of the logarithms of the weights by the rows of members.

    ``turns`` = (members, begins, ends): rows ``begins[i]:ends[i]`` are those of ``members[i]``.
    """
    members, begins, ends = turns
    if begins.shape != members.shape or ends.shape != members.shape:
        raise ValueError("the places of rows do not have the shape of members")
    if weights.shape != gates.shape:
        raise ValueError("the weights do not have the shape of the gates")
    for i in range(members.shape[0]):
        f = members[i]
        if not (0 <= f < logs.shape[0] and 0 <= begins[i] <= ends[i] <= gates.shape[0]):
            raise ValueError("a member or its rows are outside of the shape of the arrays")
        total = logs[f]
        for t in range(begins[i], ends[i]):
            total *= gates[t]
            if weights[t] > 0:
                total += math.log(weights[t])
        logs[f] = total


@kernel(called=True)
def absorb_squares(spread, X, gates, weights, start, stop):
    """Rotate rows start..stop, times their weights, into ``spread``; gates forget them squared.

    Givens rotations (Golub & Van Loan 2013, 5.1).  ``spread`` may be None, or (0, 0): that of
    nobody.
    """
    if spread is None:
        return
    d = spread.shape[0]
    if d == 0:
        return
    check_spread(spread, X.shape[1], True)
    n = X.shape[0]
    if gates.shape != (n,) or weights.shape != (n,) or not 0 <= start <= stop <= n:
        raise ValueError("the shapes of rows, gates and weights do not fit together")
    x = np.empty(d)
    for t in range(start, stop):
        for k in range(d):
            x[k] = weights[t] * X[t, k]
        for j in range(d):
            c, s, spread[j, j] = givens(spread[j, j] * gates[t], x[j])
            rotate_pair(spread[j, j + 1 :], x[j + 1 :], c, s, gates[t])


@kernel(forceinline=True)
def record(trace, t, theta, loss, tally, rank, used):
    """Write the state after row t into the trace, except variances."""
    coefs, _, losses, counts, _, _ = trace
    for target in range(theta.shape[0]):
        losses[t, target] = loss[target]
        for k in range(theta.shape[1]):
            coefs[t, target, k] = theta[target, k]
    record_counts(counts, t, tally, rank, used)


@kernel(forceinline=True)
def record_counts(counts, t, tally, rank, used):
    """Write the counts that an estimate rests on after row t."""
    for k in range(tally.shape[0]):
        counts[t, k] = tally[k]
    counts[t, RANK], counts[t, USED] = rank, used


@kernel(forceinline=True)
def noise_level(limits, d, tally):
    """Compute the relative rounding error of a rotated regressor.

    d rotations of the row itself, and R's own error: one rounding a row, which add up like a
    random walk over the rows that count.  On top of it what the row came with.
    """
    return limits[0] * (2 * np.sqrt(d) + 3 * np.sqrt(tally[COUNT])) + limits[2]
