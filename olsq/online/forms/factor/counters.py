"""Counters beside the factor: squares of columns, rows and weights; which rows are sound.

``columns`` (2, d) holds the forgotten sums of squares of the regressors, and what they were when
the regressor was last not 0; ``tally`` the counts named in :mod:`.limits`.
"""

from __future__ import annotations

import math

from olsq.online.forms.counting import COUNT, DECAY, count_row, noise_level
from olsq.online.forms.factor.kernels import inline
from olsq.online.forms.factor.limits import SOUND, SOUND_NOISE
from olsq.online.forms.factor.registers import (
    add_product,
    fill4,
    fma,
    load4,
    plus,
    store,
    times,
    total,
    where_above,
)


@inline
def count_squares(columns, row, gate, weight):
    """Update the squares of the columns by a row (d,)."""
    d, k, gate4, weight4, zero = row.shape[0], 0, fill4(gate), fill4(weight), fill4(0.0)
    while k + 4 <= d:
        x = load4(row, k)
        square = times(times(weight4, x), x)
        size = add_product(square, gate4, load4(columns, k))
        store(columns, k, size)
        store(columns, d + k, where_above(square, zero, size, load4(columns, d + k)))
        k += 4
    for j in range(k, d):
        square = weight * row[j] * row[j]
        size = fma(gate, columns[0, j], square)
        columns[0, j] = size
        if square > 0:
            columns[1, j] = size


@inline
def held_entry(variance, now, excited, pin, floor, one, infinite):
    """Return a variance, or inf where its coefficient is held."""
    size = times(times(times(variance, now), pin), pin)
    variance = where_above(size, one, infinite, variance)
    return where_above(times(floor, excited), now, infinite, variance)


@inline
def hide_held(variance, columns, limits, tally):
    """Set the variances (d,) of coefficients that wind-up protection holds to infinity.

    Their information is within ten times the level where it is held.  Nothing is held without
    forgetting.
    """
    if tally[DECAY] >= 1:
        return
    d, k = variance.shape[0], 0
    tests = 40 * noise_level(limits, d, tally), 100 * limits[1], 1.0, math.inf
    tests4 = fill4(tests[0]), fill4(tests[1]), fill4(1.0), fill4(math.inf)
    while k + 4 <= d:
        now, excited = load4(columns, k), load4(columns, d + k)
        store(variance, k, held_entry(load4(variance, k), now, excited, *tests4))
        k += 4
    for j in range(k, d):
        variance[j] = held_entry(variance[j], columns[0, j], columns[1, j], *tests)


@inline
def soundness(limits, d, count):
    """Return the share of a column's squares above which its pivot needs no test of noise."""
    tolerance = limits[0] * (2 * math.sqrt(d) + 3 * math.sqrt(count)) + limits[2]
    return max(SOUND, SOUND_NOISE * tolerance * tolerance)


@inline
def is_sound(D, columns, limits, tally):
    """Test whether no pivot is 0, or rounding noise compared with its column."""
    d = D.shape[0]
    share, outside = soundness(limits, d, tally[COUNT]), 0
    for j in range(d):
        outside += 0 if D[j] > share * columns[0, j] else 1
    return outside == 0


@inline
def row_is_sound(D, columns, row, gate, weight, limits, tally):
    """Do :func:`four_are_sound` for one row (d,)."""
    d = D.shape[0]
    share, floor = 2 * soundness(limits, d, tally[COUNT] + 4), 2 * limits[1]
    outside = 0
    for j in range(d):
        size = columns[0, j]
        most = max(size, fma(gate, size, weight * row[j] * row[j]))
        least, largest = gate * D[j], max(most, columns[1, j])
        outside += 0 if (least > share * most) & (least > floor * largest) else 1
    return outside == 0


@inline
def four_are_sound(D, columns, rows, t, limits, tally, fresh):
    """Test whether the state is sound before rows t..t + 3 and after them, for certain.

    Pivots only grow, except by forgetting, so that their product with all gates bounds them.  The
    bounds are twice those of a single row, whose outcome this must not contradict: what is not
    certain goes row by row.  ``fresh`` (2, d) receives ``columns`` after the rows.
    """
    X, _, gates, weights = rows
    d = D.shape[0]
    g0, g1, g2, g3 = gates[t], gates[t + 1], gates[t + 2], gates[t + 3]
    kept = g0 * g1 * g2 * g3
    share, floor = 2 * soundness(limits, d, tally[COUNT] + 4), 2 * limits[1]
    zero, one = fill4(0.0), fill4(1.0)
    outside = zero
    k = 0
    while k + 4 <= d:
        size, last = load4(columns, k), load4(columns, d + k)
        largest = where_above(size, last, size, last)
        most = size
        for r in range(4):
            x = load4(X, (t + r) * d + k)
            square = times(times(fill4(weights[t + r]), x), x)
            size = add_product(square, fill4(gates[t + r]), size)
            last = where_above(square, zero, size, last)
            most = where_above(size, most, size, most)
        largest = where_above(most, largest, most, largest)
        store(fresh, k, size)
        store(fresh, d + k, last)
        least = times(fill4(kept), load4(D, k))
        fine = where_above(least, times(fill4(share), most), zero, one)
        outside = plus(outside, fine)
        outside = plus(outside, where_above(least, times(fill4(floor), largest), zero, one))
        k += 4
    wrong = total(outside)
    for j in range(k, d):
        size, last = columns[0, j], columns[1, j]
        largest, most = max(size, last), size
        for r in range(4):
            x = X[t + r, j]
            square = weights[t + r] * x * x
            size = fma(gates[t + r], size, square)
            last = size if square > 0 else last
            most = max(most, size)
        largest = max(most, largest)
        fresh[0, j], fresh[1, j] = size, last
        least = kept * D[j]
        wrong += 0.0 if least > share * most and least > floor * largest else 1.0
    return wrong == 0


@inline
def count_rows(columns, tally, fresh, gates, weights, t):
    """Count four rows, whose columns' squares are ``fresh``."""
    for k in range(columns.shape[1]):
        columns[0, k], columns[1, k] = fresh[0, k], fresh[1, k]
    for r in range(4):
        count_row(tally, gates[t + r], weights[t + r])
