"""The loop over the rows of a stream whose states after every row are asked for."""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import (
    absorb_squares,
    count_row,
    is_held,
    record,
    record_counts,
    sandwich_diagonal,
)
from olsq.online.forms.edges import check_spread, check_trace, wants_sandwich
from olsq.online.forms.factor.counters import count_squares, four_are_sound, row_is_sound
from olsq.online.forms.factor.edges import check_call
from olsq.online.forms.factor.kernels import absorb_four, called, inline
from olsq.online.forms.factor.learning import absorb_sound_row, make_scratch
from olsq.online.forms.factor.limits import AFRESH, FAST, LOST, SHRUNK
from olsq.online.forms.factor.registers import add_product, fma, load4, times, total, zero4
from olsq.online.forms.factor.solving import gains, solve, variances


@inline
def is_determined(D):
    """Test whether every pivot is positive."""
    unknown = 0
    for j in range(D.shape[0]):
        unknown += 0 if D[j] > 0 else 1
    return unknown == 0


@inline
def hide_held(variance, columns, limits, tally):
    """Set the variances (d,) of coefficients that wind-up protection holds to infinity."""
    d = variance.shape[0]
    for k in range(d):
        if is_held(variance[k], columns[0, k], columns[1, k], limits, d, tally):
            variance[k] = math.inf


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
def may_shrink(variance, rows, t, factor):
    """Test whether one of rows t..t + 3 may shrink a variance to less than a ``factor`` of it.

    A row shrinks none to less than ``1 / (1 + weight x.P x)``, and ``x.P x <= d sum P_jj x_j^2``.
    """
    X, _, gates, weights = rows
    d, kept, most = variance.shape[0], 1.0, 0.0
    for r in range(4):
        kept *= gates[t + r]
        lanes, k = zero4(), 0
        while k + 4 <= d:
            x = load4(X, (t + r) * d + k)
            lanes = add_product(lanes, times(x, x), load4(variance, k))
            k += 4
        leverage = total(lanes)
        for j in range(k, d):
            leverage += variance[j] * X[t + r, j] * X[t + r, j]
        most = max(most, weights[t + r] * leverage / kept)
    return not 4 * d * most * factor <= 1.0


@inline
def kept_of_four(gates, t):
    """Return the product of the factors of rows t..t + 3."""
    return gates[t] * gates[t + 1] * gates[t + 2] * gates[t + 3]


@kernel(strict=True)
def learn_path(state, spread, rows, span, limits, errors, trace):
    """Do :func:`.learning.learn`, and write the states after the rows to a trace.

    Coefficients and variances are carried by ``theta += a e K`` and ``P_jj <- P_jj / gate - a
    K_j^2``, with K the gains.  The variance is a difference, whose rounding errors are divided by
    the gates too: both are computed afresh from the factor every few rows, and when a variance has
    become a small part of what it was, or of what was ``rounded``.
    """
    check_call(state, rows, span, errors)
    F, D, columns, tally, loss = state
    X, _, gates, weights = rows
    d, m, n = D.shape[0], loss.shape[0], X.shape[0]
    check_trace(trace, n, d, m)
    check_spread(spread, d, wants_sandwich(trace))
    coefs, diags, losses, counts, recursive, sandwich = trace
    carries = sandwich.shape[0] == 0
    wide = d if diags.shape[0] > 0 else 0
    scratch, fresh = make_scratch(d, m), np.empty((2, d))
    history = np.empty((d, 4)), np.empty((d, 4)), np.empty((d, 4))
    K, theta, inverse = np.empty((d, 4)), np.empty((m, d)), np.empty((wide, wide))
    variance, before, afresh = np.empty(wide), np.empty(wide), np.empty(wide)
    rounded = np.empty(wide)
    F_before, D_before, loss_before = np.empty((0, d + m)), np.empty(d), np.empty(m)
    masks = np.zeros((3, 4))
    for s in range(3):
        for r in range(s + 1):
            masks[s, r] = 1.0
    w, t, since, single = np.empty(d + m), span[0], -1, span[0]
    while t < span[1]:
        if (
            carries
            and single <= t
            and t + 4 <= span[1]
            and (wide == 0 or kept_of_four(gates, t) > LOST)
            and four_are_sound(D, columns, rows, t, limits, tally, fresh)
        ):
            forgets_fast = wide > 0 and kept_of_four(gates, t) < FAST
            if since < 0 or since >= max(64, AFRESH * d) or forgets_fast:
                solve(F, D, theta)
                if wide > 0:
                    variances(F, D, inverse, variance)
                    for k in range(d):
                        rounded[k] = afresh[k] = variance[k]
                since = 0
            guarded = wide > 0 and may_shrink(variance, rows, t, SHRUNK)
            if guarded:  # the rows again, one by one, if they do
                if F_before.shape[0] == 0:
                    F_before = np.empty(F.shape)
                for j in range(d):
                    D_before[j] = D[j]
                    for k in range(j, d + m):
                        F_before[j, k] = F[j, k]
            for k in range(wide):
                before[k] = variance[k]  # the largest of the four
            for q in range(m):
                loss_before[q] = loss[q]
            absorb_four(F, D, loss, rows, t, scratch, errors, history)
            gains(F, history, masks, K)
            stale = False
            if wide > 0:
                shrunk = 0
                for r in range(4):
                    left, gate = scratch[3][r], gates[t + r]
                    for k in range(d):
                        v = variance[k] / gate - left * K[k, r] * K[k, r]
                        rounded[k] = (rounded[k] + variance[k]) / gate
                        before[k] = max(before[k], variance[k] / gate)
                        variance[k] = v
                        diags[t + r, k] = v
                        stale = stale or not v > max(SHRUNK * afresh[k], LOST * rounded[k])
                        shrunk += 0 if not guarded or v > SHRUNK * before[k] else 1
                if shrunk > 0:
                    for j in range(d):
                        D[j] = D_before[j]
                        for k in range(j, d + m):
                            F[j, k] = F_before[j, k]
                    for q in range(m):
                        loss[q] = loss_before[q]
                    single, since = t + 4, -1
                    continue
            for r in range(4):
                left = scratch[3][r]
                count_squares(columns, X[t + r], gates[t + r], weights[t + r])
                count_row(tally, gates[t + r], weights[t + r])
                root = math.sqrt(left)
                for q in range(m):
                    e = errors[t + r, q]
                    loss_before[q] = fma(left * e, e, gates[t + r] * loss_before[q])
                    losses[t + r, q] = loss_before[q]
                    recursive[t + r, q] = e * root
                    step = left * e
                    for k in range(d):
                        v = theta[q, k] + step * K[k, r]
                        theta[q, k] = v
                        coefs[t + r, q, k] = v
                if wide > 0:
                    hide_held(diags[t + r], columns, limits, tally)
                record_counts(counts, t + r, tally, d, 0.0)
            absorb_squares(spread, X, gates, weights, t, t + 4)
            since = -1 if stale else since + 4
            t += 4
            continue
        if not row_is_sound(D, columns, X[t], gates[t], weights[t], limits, tally):
            break
        left = absorb_sound_row(state, rows, t, w, errors)
        absorb_squares(spread, X, gates, weights, t, t + 1)
        for q in range(m):
            recursive[t, q] = errors[t, q] * math.sqrt(left)
        record_row(state, spread, t, limits, theta, variance, inverse, trace)
        since = -1
        t += 1
    if since > 0:  # the last row's coefficients have the bits that the state itself gives
        solve(F, D, theta)
        for q in range(m):
            for k in range(d):
                coefs[t - 1, q, k] = theta[q, k]
    return t
