"""Sums of squares of a window's columns, bounds on their rounding errors, and what they allow.

Formulas of one column are functions of four columns in a register as well as of one number: see
:mod:`.kernels` for what they compute.  Those named ``..._entry`` that test return 0 where all is
well; their sum differs from 0 also where a number is NaN.
"""

from __future__ import annotations

from olsq.online.forms.counting import COUNT
from olsq.online.forms.factor.counters import soundness
from olsq.online.forms.factor.kernels import inline
from olsq.online.forms.factor.limits import EPS
from olsq.online.forms.factor.registers import (
    add_product,
    fill4,
    load4,
    plus,
    store,
    times,
    total,
    where_above,
)
from olsq.online.windows.arrays import BOUND, FILLED, LARGEST_LOSS, SUM
from olsq.online.windows.limits import FAINTEST_COLUMN, FORGOTTEN_LOSS, PER_ROW, TOLERANCE


@inline
def count_entry(size, error, x, gate, weight, sign, amplified, eps):
    """Return a column's sum of squares and bound after a row; ``sign`` is -1 if it leaves."""
    square = times(x, x)
    kept, own = times(gate, size), times(weight, square)
    largest = where_above(kept, own, kept, own)
    error = add_product(times(gate, error), eps, add_product(largest, amplified, square))
    return add_product(kept, sign, own), error


@inline
def stale_entry(size, error, tolerance, faintest, zero):
    """Return 0 where a bound is small beside a column's sum of squares, or both are 0."""
    most = where_above(size, faintest, times(tolerance, size), zero)
    return where_above(most, error, zero, plus(size, error))


@inline
def unsettled_entry(pivot, size, x, gate, weight, share, zero, one):
    """Return 0 where a pivot, faded before a row, is sound or 0 as its whole column is."""
    new = add_product(times(gate, size), weight, times(x, x))
    most = where_above(size, new, size, new)
    excess = where_above(zero, pivot, one, plus(most, pivot))
    return where_above(pivot, times(share, most), zero, excess)


@inline
def rounding_in(window):
    """Return the relative rounding error of a row's squares."""
    return EPS if window.fades.shape[0] == 0 else 4 * EPS  # faded weights are rounded themselves


@inline
def tolerance_in(window):
    """Return the bound on e_j / S_j in a window."""
    return max(TOLERANCE, PER_ROW * window.place[FILLED] * EPS)


@inline
def count_targets(window, four, r, error, amplified):
    """Update squares and bounds of the targets by row r of four."""
    _, Y, gates, weights = four
    squares, gate, weight, eps = window.squares, gates[r], weights[r], rounding_in(window)
    for q in range(Y.shape[1]):
        square = Y[r, q] * Y[r, q]
        largest = max(square, error[q] * error[q])
        before = gate * squares[SUM, q]
        rounding = eps * (max(before, abs(weight) * largest) + amplified * largest)
        squares[BOUND, q] = gate * squares[BOUND, q] + rounding
        squares[SUM, q] = before + weight * square


@inline
def count_columns(columns, window, four, r, amplified):
    """Update squares and bounds of the columns by row r of four, whose weight is negative if it
    leaves; ``amplified`` is the size of what is left of it.
    """
    X, _, gates, weights = four
    d, k, errors, eps = X.shape[1], 0, window.bounds, rounding_in(window)
    gate, weight, sign = gates[r], abs(weights[r]), 1.0 if weights[r] >= 0 else -1.0
    row = fill4(gate), fill4(weight), fill4(sign), fill4(amplified), fill4(eps)
    while k + 4 <= d:
        size, error = count_entry(load4(columns, k), load4(errors, k), load4(X, r * d + k), *row)
        store(errors, k, error)
        store(columns, k, size)
        store(columns, d + k, size)
        k += 4
    for j in range(k, d):
        size, errors[j] = count_entry(
            columns[0, j], errors[j], X[r, j], gate, weight, sign, amplified, eps
        )
        columns[0, j] = columns[1, j] = size


@inline
def count_pair(columns, window, four, r, left):
    """Do :func:`count_columns` for row r, which enters, and the next, which leaves; return whether
    a column is stale.
    """
    X, _, gates, weights = four
    d, k, errors, eps = X.shape[1], 0, window.bounds, rounding_in(window)
    enters = gates[r], weights[r], 1.0, abs(left[r]), eps
    leaves = 1.0, -weights[r + 1], -1.0, abs(left[r + 1]), eps
    tests = tolerance_in(window), FAINTEST_COLUMN, 0.0
    enters4 = fill4(gates[r]), fill4(weights[r]), fill4(1.0), fill4(abs(left[r])), fill4(eps)
    leaves4 = fill4(1.0), fill4(-weights[r + 1]), fill4(-1.0), fill4(abs(left[r + 1])), fill4(eps)
    tests4 = fill4(tests[0]), fill4(tests[1]), fill4(0.0)
    outside = fill4(0.0)
    while k + 4 <= d:
        x, z = load4(X, r * d + k), load4(X, (r + 1) * d + k)
        size, error = count_entry(load4(columns, k), load4(errors, k), x, *enters4)
        size, error = count_entry(size, error, z, *leaves4)
        store(errors, k, error)
        store(columns, k, size)
        store(columns, d + k, size)
        outside = plus(outside, stale_entry(size, error, *tests4))
        k += 4
    excess = total(outside)
    for j in range(k, d):
        size, error = count_entry(columns[0, j], errors[j], X[r, j], *enters)
        size, error = count_entry(size, error, X[r + 1, j], *leaves)
        errors[j] = error
        columns[0, j] = columns[1, j] = size
        excess += stale_entry(size, error, *tests)
    return excess != 0


@inline
def has_stale_column(columns, window):
    """Test whether a column's rounding errors are no longer small in the window as it is now."""
    tolerance, excess = tolerance_in(window), 0.0
    for j in range(columns.shape[1]):
        excess += stale_entry(columns[0, j], window.bounds[j], tolerance, FAINTEST_COLUMN, 0.0)
    return excess != 0


@inline
def has_stale_target(window, loss):
    """Do :func:`has_stale_column` for the targets and their losses."""
    squares, tolerance, outside = window.squares, tolerance_in(window), 0
    for q in range(loss.shape[0]):
        outside += 0 if squares[BOUND, q] <= tolerance * squares[SUM, q] else 1
        squares[LARGEST_LOSS, q] = max(squares[LARGEST_LOSS, q], loss[q])
        outside += 0 if loss[q] >= FORGOTTEN_LOSS * squares[LARGEST_LOSS, q] else 1
    return outside > 0


@inline
def is_settled(pivots, factor, state, limits, rows, t):
    """Test whether row t of some rows needs no care; ``factor`` times the pivots (d,) are the
    faded ones before it.

    A column that is 0 throughout needs none: its pivot stays 0, exactly.
    """
    _, _, columns, tally, _ = state
    X, gate, weight = rows[0], rows[2][t], rows[3][t]
    d, k = pivots.shape[0], 0
    share = 2 * soundness(limits, d, tally[COUNT] + 4)
    tests = gate, weight, share, 0.0, 1.0
    tests4 = fill4(gate), fill4(weight), fill4(share), fill4(0.0), fill4(1.0)
    factor4, outside = fill4(factor), fill4(0.0)
    while k + 4 <= d:
        pivot, size = times(factor4, load4(pivots, k)), load4(columns, k)
        entry = unsettled_entry(pivot, size, load4(X, t * d + k), *tests4)
        outside = plus(outside, entry)
        k += 4
    excess = total(outside)
    for j in range(k, d):
        excess += unsettled_entry(factor * pivots[j], columns[0, j], X[t, j], *tests)
    return excess == 0


@inline
def is_sound(state, limits):
    """Test whether no pivot is 0 or rounding noise, except of columns that are 0 throughout."""
    _, D, columns, tally, _ = state
    share, excess = soundness(limits, D.shape[0], tally[COUNT]), 0.0
    for j in range(D.shape[0]):
        excess += unsettled_entry(D[j], columns[0, j], 0.0, 1.0, 0.0, share, 0.0, 1.0)
    return excess == 0
