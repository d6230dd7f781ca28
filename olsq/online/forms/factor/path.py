"""The loop over the rows of a stream whose states after every row are asked for."""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import (
    absorb_squares,
    count_row,
    record,
    record_counts,
)
from olsq.online.forms.factor.carrying import (
    absorb_and_carry,
    is_old,
    make_carried,
    may_be_carried,
    read_afresh,
)
from olsq.online.forms.factor.counters import (
    count_squares,
    four_are_sound,
    hide_held,
    row_is_sound,
)
from olsq.online.forms.factor.kernels import called, inline, rank_of
from olsq.online.forms.factor.learning import absorb_sound_row, make_scratch
from olsq.online.forms.factor.registers import fma
from olsq.online.forms.factor.solving import sandwich_diagonal, solve, variances


@inline
def is_determined(D):
    """Test whether every pivot is positive."""
    return rank_of(D) == D.shape[0]


@called
def record_row(state, spread, t, limits, theta, variance, inverse, trace):
    """Write the state after row t to the trace; theta and variances are computed afresh."""
    F, D, columns, tally, loss = state
    d, used = D.shape[0], 0.0
    solve(F, D, theta)
    if variance.shape[0] > 0:
        variances(F, D, inverse, variance)
        for k in range(d):
            trace[1][t, k] = variance[k]
        if trace[5].shape[0] > 0:
            for i in range(d):
                for k in range(i, d):
                    inverse[i, k] /= math.sqrt(D[k])
            used = sandwich_diagonal(spread, inverse, trace[5][t])
        hide_held(trace[1][t], columns, limits, tally)
    record(trace, t, theta, loss, tally, d, used)


@inline
def kept_of_four(gates, t):
    """Return the product of the gates of rows t..t + 3."""
    return gates[t] * gates[t + 1] * gates[t + 2] * gates[t + 3]


@kernel(strict=True)
def learn_path(state, spread, rows, span, limits, errors, trace):
    """Do :func:`.learning.learn_sound`, and write the states after the rows to a trace.

    Coefficients and variances are carried over four rows, see :mod:`.carrying`.
    """
    F, D, columns, tally, loss = state
    X, _, gates, weights = rows
    d, m = D.shape[0], loss.shape[0]
    coefs, diags, losses, counts, recursive, sandwich = trace
    carries = sandwich.shape[0] == 0
    has_variances = diags.shape[0] > 0
    scratch, fresh = make_scratch(d, m), np.empty((2, d))
    carried = make_carried(d, m, has_variances)
    theta, variance, inverse = carried.theta, carried.variance, carried.inverse
    running, w, left = np.empty(m), np.empty(d + m), scratch[3]
    t, since, single = span[0], -1, span[0]
    while t < span[1]:
        if (
            carries
            and single <= t
            and t + 4 <= span[1]
            and may_be_carried(carried, kept_of_four(gates, t))
            and four_are_sound(D, columns, rows, t, limits, tally, fresh)
        ):
            if is_old(carried, since, kept_of_four(gates, t)):
                read_afresh(F, D, carried)
                since = 0
            for q in range(m):
                running[q] = loss[q]
            absorbed, lost = absorb_and_carry(
                state, rows, t, scratch, errors, carried, (coefs, diags, t), False
            )
            if not absorbed:
                single, since = t + 4, -1
                continue
            for s in range(t, t + 4):
                count_squares(columns, X[s], gates[s], weights[s])
                count_row(tally, gates[s], weights[s])
                share = left[s - t]
                root = math.sqrt(share)
                for q in range(m):
                    e = errors[s, q]
                    running[q] = fma(share * e, e, gates[s] * running[q])
                    losses[s, q] = running[q]
                    recursive[s, q] = e * root
                if has_variances:
                    hide_held(diags[s], columns, limits, tally)
                record_counts(counts, s, tally, d, 0.0)
            absorb_squares(spread, X, gates, weights, t, t + 4)
            since = -1 if lost else since + 4
            t += 4
            continue
        if not row_is_sound(D, columns, X[t], gates[t], weights[t], limits, tally):
            break
        share = absorb_sound_row(state, rows, t, w, errors)
        absorb_squares(spread, X, gates, weights, t, t + 1)
        for q in range(m):
            recursive[t, q] = errors[t, q] * math.sqrt(share)
        record_row(state, spread, t, limits, theta, variance, inverse, trace)
        since = -1
        t += 1
    if since > 0:  # the last row's coefficients have the bits that the state itself gives
        solve(F, D, theta)
        for q in range(m):
            for k in range(d):
                coefs[t - 1, q, k] = theta[q, k]
    return t
