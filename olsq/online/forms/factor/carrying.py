"""Coefficients and variances carried over four rows by their gains.

``theta <- theta + a e K`` and ``P_jj <- P_jj / gate - a K_j^2``, with K the gain of a row, a what
is left of its weight and e its a-priori error.  A variance is a difference, and gates divide its
rounding errors too: both are computed afresh from the factor every few rows, and where a variance
has become a small part of the largest since then, divided by the gates.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from olsq.online.forms.factor.kernels import absorb_four, called, copy_row, inline
from olsq.online.forms.factor.limits import AFRESH, FAST, LOST, SHRUNK
from olsq.online.forms.factor.registers import (
    add_product,
    add_scaled,
    fill4,
    fma,
    load4,
    plus,
    store,
    times,
    total,
    transposed,
    where_above,
    zero4,
)
from olsq.online.forms.factor.solving import gains, solve, variances


class Carried(NamedTuple):
    """Coefficients and variances carried from row to row, with the arrays to compute them in.

    theta (m, d); ``variance`` (d,) and the ``largest`` (d,) since they were computed afresh,
    divided by the gates, (0,) where nobody asks for variances.  ``history`` is what
    :func:`.kernels.absorb_four` keeps, K (d, 4) and ``turned`` (4, d) are the gains, ``masks``
    (3, 4) those of :func:`.solving.gains`.  ``F_before``, ``D_before`` (d,) and ``loss_before``
    (m,) hold the factor and the loss before four rows.
    """

    theta: Any
    variance: Any
    largest: Any
    history: Any
    K: Any
    turned: Any
    masks: Any
    F_before: Any
    D_before: Any
    loss_before: Any
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
        history=(np.empty((d, 4)), np.empty((d, 4)), np.empty((d, 4)), np.empty(d)),
        K=np.empty((d, 4)),
        turned=np.empty((4, d)),
        masks=masks,
        F_before=np.empty((w, d + m)),
        D_before=np.empty(d),
        loss_before=np.empty(m),
        inverse=np.empty((w, w)),
    )


@called
def read_afresh(F, D, carried):
    """Compute coefficients and variances of a sound state; inf where a whole column is 0."""
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
def may_be_carried(carried, kept):
    """Test whether variances may be carried over rows whose gates have the product ``kept``."""
    return carried.variance.shape[0] == 0 or kept > LOST


@inline
def is_old(carried, since, kept):
    """Test whether coefficients and variances, ``since`` rows old, are to be computed afresh."""
    d, wide = carried.theta.shape[1], carried.variance.shape[0] > 0
    return since < 0 or since >= max(64, AFRESH * d) or (wide and kept < FAST)


@inline
def may_shrink(variance, rows, t):
    """Test whether one of rows t..t + 3 may shrink a variance to less than ``SHRUNK`` of it.

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
    return not 4 * d * most * SHRUNK <= 1.0


@inline
def keep_factor(F, D, loss, carried):
    """Keep the factor and the loss before four rows."""
    for q in range(loss.shape[0]):
        carried.loss_before[q] = loss[q]
    for j in range(D.shape[0]):
        carried.D_before[j] = D[j]
        copy_row(F, j, carried.F_before, j)


@inline
def restore_factor(F, D, loss, carried):
    """Put the factor and the loss back that were before four rows."""
    for q in range(loss.shape[0]):
        loss[q] = carried.loss_before[q]
    for j in range(D.shape[0]):
        D[j] = carried.D_before[j]
        copy_row(carried.F_before, j, F, j)


@inline
def find_gains(F, carried):
    """Compute the gains of the four rows that were absorbed last."""
    K, turned = carried.K, carried.turned
    gains(F, carried.history, carried.masks, K)
    d, k = K.shape[0], 0
    while k + 4 <= d:
        row0, row1, row2, row3 = transposed(
            load4(K, 4 * k), load4(K, 4 * k + 4), load4(K, 4 * k + 8), load4(K, 4 * k + 12)
        )
        store(turned, k, row0)
        store(turned, d + k, row1)
        store(turned, 2 * d + k, row2)
        store(turned, 3 * d + k, row3)
        k += 4
    for j in range(k, d):
        for r in range(4):
            turned[r, j] = K[j, r]


@inline
def after_row(variance, most, inverse, share, gain):
    """Return a variance after a row, ``variance / gate - a K^2`` with ``share`` = -a, and the
    largest of it and those before, each divided by the gates since.
    """
    variance = add_product(times(share, times(gain, gain)), variance, inverse)
    most = times(most, inverse)
    return variance, where_above(variance, most, variance, most)


@inline
def lost_entry(variance, most, fraction, zero, one, infinite):
    """Return 0 where a variance is still a part of the largest, or both are infinite."""
    lost = where_above(variance, times(fraction, most), zero, one)
    return where_above(infinite, most, lost, zero)


@inline
def carry_variances(carried, gates, t, left, out, place, by_pairs):
    """Carry the variances over rows t..t + 3 and write them to rows of ``out`` from ``place`` on:
    after each, or ``by_pairs`` after each second one.

    Returns whether one has shrunk so much that it has lost digits.
    """
    variance, largest, turned = carried.variance, carried.largest, carried.turned
    d, k = variance.shape[0], 0
    i0, i1, i2, i3 = 1.0 / gates[t], 1.0 / gates[t + 1], 1.0 / gates[t + 2], 1.0 / gates[t + 3]
    a0, a1, a2, a3 = -left[0], -left[1], -left[2], -left[3]
    i04, i14, i24, i34 = fill4(i0), fill4(i1), fill4(i2), fill4(i3)
    a04, a14, a24, a34 = fill4(a0), fill4(a1), fill4(a2), fill4(a3)
    tests = SHRUNK, 0.0, 1.0, math.inf
    tests4 = fill4(SHRUNK), fill4(0.0), fill4(1.0), fill4(math.inf)
    start, lost = place * d, zero4()
    while k + 4 <= d:
        v0, most = after_row(load4(variance, k), load4(largest, k), i04, a04, load4(turned, k))
        lost = plus(lost, lost_entry(v0, most, *tests4))
        v1, most = after_row(v0, most, i14, a14, load4(turned, d + k))
        lost = plus(lost, lost_entry(v1, most, *tests4))
        v2, most = after_row(v1, most, i24, a24, load4(turned, 2 * d + k))
        lost = plus(lost, lost_entry(v2, most, *tests4))
        v3, most = after_row(v2, most, i34, a34, load4(turned, 3 * d + k))
        lost = plus(lost, lost_entry(v3, most, *tests4))
        store(variance, k, v3)
        store(largest, k, most)
        if by_pairs:
            store(out, start + k, v1)
            store(out, start + d + k, v3)
        else:
            store(out, start + k, v0)
            store(out, start + d + k, v1)
            store(out, start + 2 * d + k, v2)
            store(out, start + 3 * d + k, v3)
        k += 4
    excess = total(lost)
    for j in range(k, d):
        v0, most = after_row(variance[j], largest[j], i0, a0, turned[0, j])
        excess += lost_entry(v0, most, *tests)
        v1, most = after_row(v0, most, i1, a1, turned[1, j])
        excess += lost_entry(v1, most, *tests)
        v2, most = after_row(v1, most, i2, a2, turned[2, j])
        excess += lost_entry(v2, most, *tests)
        v3, most = after_row(v2, most, i3, a3, turned[3, j])
        excess += lost_entry(v3, most, *tests)
        variance[j], largest[j] = v3, most
        if by_pairs:
            out[place, j], out[place + 1, j] = v1, v3
        else:
            out[place, j], out[place + 1, j] = v0, v1
            out[place + 2, j], out[place + 3, j] = v2, v3
    return excess != 0


@inline
def carry_coefficients(carried, left, errors, t, out, place, by_pairs):
    """Carry the coefficients over rows t..t + 3, whose errors are rows of ``errors``, and write
    them to rows of ``out`` (n, m, d) as :func:`carry_variances` does.
    """
    theta, turned = carried.theta, carried.turned
    m, d = theta.shape
    width = m * d
    for q in range(m):
        s0, s1 = left[0] * errors[t, q], left[1] * errors[t + 1, q]
        s2, s3 = left[2] * errors[t + 2, q], left[3] * errors[t + 3, q]
        start, k = place * width + q * d, 0
        while k + 4 <= d:
            v0 = add_scaled(load4(theta, q * d + k), s0, load4(turned, k))
            v1 = add_scaled(v0, s1, load4(turned, d + k))
            v2 = add_scaled(v1, s2, load4(turned, 2 * d + k))
            v3 = add_scaled(v2, s3, load4(turned, 3 * d + k))
            store(theta, q * d + k, v3)
            if by_pairs:
                store(out, start + k, v1)
                store(out, start + width + k, v3)
            else:
                store(out, start + k, v0)
                store(out, start + width + k, v1)
                store(out, start + 2 * width + k, v2)
                store(out, start + 3 * width + k, v3)
            k += 4
        for j in range(k, d):
            v0 = fma(s0, turned[0, j], theta[q, j])
            v1 = fma(s1, turned[1, j], v0)
            v2 = fma(s2, turned[2, j], v1)
            v3 = fma(s3, turned[3, j], v2)
            theta[q, j] = v3
            if by_pairs:
                out[place, q, j], out[place + 1, q, j] = v1, v3
            else:
                out[place, q, j], out[place + 1, q, j] = v0, v1
                out[place + 2, q, j], out[place + 3, q, j] = v2, v3


@inline
def absorb_and_carry(state, rows, t, scratch, errors, carried, out, by_pairs):
    """Absorb rows t..t + 3, and carry coefficients and variances over them.

    ``out`` = (coefficients (n, m, d), variances (n, d), place), in which they are written to rows
    from ``place`` on.  Returns (whether the rows were absorbed, whether what is carried must be
    computed afresh).  They were not, and the factor is what it was, where one row shrinks a
    variance so much that the difference loses digits: rows are to go one by one then.
    """
    F, D, _, _, loss = state
    coefs, variances, place = out
    left, has_variances = scratch[3], carried.variance.shape[0] > 0
    guarded = has_variances and may_shrink(carried.variance, rows, t)
    if guarded:
        keep_factor(F, D, loss, carried)
    absorb_four(F, D, loss, rows, t, scratch, errors, carried.history)
    find_gains(F, carried)
    lost = has_variances and carry_variances(carried, rows[2], t, left, variances, place, by_pairs)
    if lost and guarded:
        restore_factor(F, D, loss, carried)
        return False, True
    carry_coefficients(carried, left, errors, t, coefs, place, by_pairs)
    return True, lost
