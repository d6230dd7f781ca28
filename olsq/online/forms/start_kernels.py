"""Numba kernels of the first rows of a stream without ridge, while coefficients are undetermined.

The a-priori residual of a row that points in a new direction needs the coefficients of minimum
norm, and so does every row of a path.  They lie in the space of the rows seen so far: ``basis``
(s, s) holds an orthonormal basis of it in its first rows, without the intercept, whose column is
taken out of the rows first.  Theta is any solution of ``R theta = z``, projected on the basis:
O(d^2) per row, where :mod:`olsq.online.forms.minimum_norm`, which works with the coefficients
instead of the rows, is O(d^3).  Rows for which this is not accurate are left to it.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.edges import check_call, check_spread, check_trace
from olsq.online.forms.minimum_norm import FAR
from olsq.online.forms.square_root_kernels import (
    COUNT,
    absorb,
    absorb_squares,
    noise_level,
    record,
)
from olsq.online.forms.triangular_kernels import forward_solve

# What the kernel did with a row: nothing; all; all but its trace; or it was the last row that the
# basis fits.
LEFT, TAKEN, UNTRACED, LAST = 0, 1, 2, 3
# Part of a row, in units of its columns' lengths, that must be outside of the space of the rows
# before it: what is left of less has lost half of its digits.
SMALLEST_PART = 1e-8
# Rows, in units of d, after which dependent columns are no start.
LONGEST_START = 4.0
LARGEST_STEP = 1e-10  # of the last refinement, in relation to the solution
DETERMINED = 2e-4  # share of a direction of the null space from which a coefficient is free
COMBINATIONS = 3  # of such directions


@kernel()
def count_pivots(R):
    """Count the nonzero pivots."""
    rank = 0
    for k in range(R.shape[0]):
        rank += 1 if R[k, k] != 0 else 0
    return rank


@kernel(called=True)
def is_basis_of(basis, count):
    """Test whether the basis has as many rows as directions are known."""
    s = basis.shape[0]
    if not 0 <= count <= s:
        return False
    last, following = count == 0, False
    for k in range(s):
        last = last or basis[count - 1, k] != 0
        following = following or (count < s and basis[count, k] != 0)
    return last and not following


@kernel(called=True)
def take_out(basis, count, q):
    """Subtract from q (s,) its part inside the basis, row by row."""
    for i in range(count):
        row = basis[i]
        total = 0.0
        for k in range(q.shape[0]):
            total += row[k] * q[k]
        for k in range(q.shape[0]):
            q[k] -= total * row[k]


@kernel(called=True)
def shortest_solution(R, z, columns, basis, count, first, theta, scratch):
    """Solve ``R theta_l = z_l`` for theta (m, d) of minimum norm; False if it is not accurate.

    It is not where columns are ``FAR`` times as long as others: the basis rounds in raw units.

    The solution that is 0 at zero pivots is projected on the basis; both are repeated for what is
    left of z, which takes back the rounding errors of a large first solution.
    """
    rest, step, inside = scratch
    d, m = R.shape[0], z.shape[0]
    longest, shortest = 0.0, math.inf  # of the slopes' columns, squared
    for k in range(first, d):
        longest = max(longest, columns[0, k])
        if columns[0, k] > 0:
            shortest = min(shortest, columns[0, k])
    accurate = longest <= FAR * FAR * shortest
    for target in range(m if accurate else 0):
        for k in range(d):
            theta[target, k] = 0.0
            rest[k] = z[target, k]
        before = math.inf
        for _ in range(4):
            for i in range(d - 1, -1, -1):
                if R[i, i] == 0:
                    step[i] = 0.0
                    continue
                total = rest[i]
                for k in range(i + 1, d):
                    total -= R[i, k] * step[k]
                step[i] = total / R[i, i]
            for k in range(d - first):
                inside[k] = 0.0
            for i in range(count):
                total = 0.0
                for k in range(first, d):
                    total += basis[i, k - first] * step[k]
                for k in range(first, d):
                    inside[k - first] += total * basis[i, k - first]
            if first == 1:
                total = rest[0]
                for k in range(1, d):
                    total -= R[0, k] * inside[k - 1]
                step[0] = total / R[0, 0]
            size, change = 0.0, 0.0
            for k in range(d):
                if k >= first:
                    step[k] = inside[k - first]
                theta[target, k] += step[k]
                length = math.sqrt(columns[0, k])
                size = max(size, abs(theta[target, k]) * length)
                change = max(change, abs(step[k]) * length)
            small = change <= 1e-15 * size
            if small or not change < before:
                break
            before = change
            for i in range(d):
                if R[i, i] == 0:
                    continue
                total = z[target, i]
                for k in range(i, d):
                    total -= R[i, k] * theta[target, k]
                rest[i] = total
        accurate = accurate and change <= LARGEST_STEP * size
    return accurate


@kernel(called=True)
def outside_of(R, columns, basis, count, first, weight, x, q):
    """Compute the part q (s,) of a row x (d,) outside of the basis; return its square, or 0.

    0 where too little of the row is left.
    """
    s = q.shape[0]
    for k in range(s):
        q[k] = x[first + k]
        if first == 1:
            q[k] -= x[0] / R[0, 0] * R[0, 1 + k]
    before = math.inf
    for sweep in range(4):
        square = 0.0
        for k in range(s):
            square += q[k] * q[k]
        if sweep > 1 and square > 0.25 * before:
            break
        before = square
        take_out(basis, count, q)
    square, part = 0.0, 0.0
    for k in range(s):
        square += q[k] * q[k]
        length = math.sqrt(columns[0, first + k] + weight * x[first + k] ** 2)
        if length > 0:
            part = max(part, math.sqrt(weight) * abs(q[k]) / length)
    return square if part > SMALLEST_PART and square < math.inf else 0.0


@kernel(called=True)
def nothing_is_determined(R, columns, scratch):
    """Test whether no coefficient is determined, on some directions of the null space.

    The directions beyond the zero pivots are combined with signs that are as good as random, and
    a coefficient that is free takes part in one of the combinations.
    """
    share, step, _ = scratch
    d, bits = R.shape[0], 1
    for k in range(d):
        share[k] = 0.0
    for _ in range(COMBINATIONS):
        square = 0.0
        for i in range(d - 1, -1, -1):
            length = math.sqrt(columns[0, i])
            if R[i, i] == 0:
                bits = (bits * 1103515245 + 12345) % 2147483648
                sign = 1.0 if bits >= 1073741824 else -1.0
                step[i] = sign / length if length > 0 else 0.0
            else:
                total = 0.0
                for k in range(i + 1, d):
                    total -= R[i, k] * step[k]
                step[i] = total / R[i, i]
            square += (step[i] * length) ** 2
        if square == 0:
            return False
        for i in range(d):
            size = abs(step[i]) * math.sqrt(columns[0, i])
            share[i] = max(share[i], size / math.sqrt(square))
    free = True
    for i in range(d):  # a column of zeros is as free as can be
        free = free and (share[i] >= DETERMINED or columns[0, i] == 0)
    return free


@kernel()
def take_row(state, basis, theta, known, row, settings, scratch, residual):
    """Absorb one row; return (what was done, whether theta is known after it, its scale, held).

    ``state`` = (form, spread) and ``row`` = (rows, t), of which row t is taken, as the square-root
    kernels take them.  theta (m, d) are the coefficients before the row, if they are ``known``.
    ``settings`` = (limits, whether there is an intercept, whether theta is wanted after the row).
    The scale is that of the recursive residual.
    """
    form, spread = state
    R, z, columns, tally, _ = form
    (X, Y, gates, weights), t = row
    limits, intercept, path = settings
    p, q, vectors, absorbing = scratch
    noise, x, _, _ = absorbing
    d, m = R.shape[0], z.shape[0]
    gate, weight = gates[t], weights[t]
    rank = count_pivots(R)
    first = 1 if intercept and R[0, 0] != 0 else 0
    begins = intercept and first == 0
    count = rank - first
    if gate == 0 or rank == d or not is_basis_of(basis, count) or (begins and rank > 0):
        return LEFT, known, 0.0, 0
    if tally[COUNT] > LONGEST_START * d:
        return LEFT, known, 0.0, 0
    for k in range(d):
        x[k] = X[t, k]
        noise[k] = abs(x[k])
    new = forward_solve(R, x, p, columns, noise_level(limits, d, tally), noise)
    scale, square = 0.0, 0.0
    if new < 0:
        leverage = 0.0
        for k in range(d):
            leverage += p[k] * p[k]
        scale = math.sqrt(weight * gate / (gate + weight * leverage))
        for target in range(m):
            total = Y[t, target]
            for k in range(d):
                total -= z[target, k] * p[k]
            residual[t, target] = total
    else:
        if begins and not (new == 0 and weight > 0):
            return LEFT, known, 0.0, 0
        if not begins and weight > 0:
            square = outside_of(R, columns, basis, count, first, weight, X[t], q)
            if square == 0:
                return LEFT, known, 0.0, 0
        if not known and not shortest_solution(R, z, columns, basis, count, first, theta, vectors):
            return LEFT, False, 0.0, 0
        for target in range(m):
            total = Y[t, target]
            for k in range(d):
                total -= theta[target, k] * X[t, k]
            residual[t, target] = total
    held = absorb(form, X[t], Y[t], gate, weight, limits, absorbing)
    absorb_squares(spread, X, gates, weights, t, t + 1)
    known = False  # a function of the state alone, so that pieces of any size give the same bits
    after = count_pivots(R)
    grown = 1 if new >= 0 and weight > 0 else 0
    if square > 0 and after == rank + 1:
        for k in range(q.shape[0]):
            basis[count, k] = q[k] / math.sqrt(square)
    if held > 0 or after != rank + grown:
        return LAST, False, scale, held
    if path and after < d:
        count += grown
        first = 1 if intercept else 0
        known = shortest_solution(R, z, columns, basis, count, first, theta, vectors)
        if not known:
            return LAST, False, scale, held
    return TAKEN, known, scale, held


@kernel()
def scratch_for(d, m, intercept):
    """Make the arrays that :func:`take_row` works in."""
    s = d - 1 if intercept else d
    vectors = np.empty(d), np.empty(d), np.empty(d)  # before an intercept, all d are slopes
    absorbing = np.empty(d), np.empty(d), np.empty(m), np.empty((m, d))
    return np.empty(d), np.empty(s), vectors, absorbing


@kernel()
def update(state, basis, rows, span, limits, intercept, residual, trace):
    """Absorb rows from span[0] on up to span[1] while coefficients are undetermined.

    Returns (first row not absorbed, what was done with the one before it, how many coefficients
    were held).  It stops before a row that it must not take, and after one whose trace it cannot
    write or whose basis does not fit any more.
    """
    form, spread = state
    check_call(form, rows, span, residual)
    R, z, columns, tally, loss = form
    start, stop = span
    d, m = R.shape[0], z.shape[0]
    check_trace(trace, rows[0].shape[0], d, m)
    check_spread(spread, d, False)
    path = trace is not None
    s = d - 1 if intercept else d
    if basis.shape != (s, s):
        raise ValueError("the shape of the basis does not fit the state")
    # Not plainly False, a constant for which Numba would compile the step once more.
    theta, known, total_held = np.zeros((m, d)), start < 0, 0
    scratch = scratch_for(d, m, intercept)
    for t in range(start, stop):
        done, known, scale, held = take_row(
            state,
            basis,
            theta,
            known,
            (rows, t),
            (limits, intercept, path),
            scratch,
            residual,
        )
        total_held += held
        if done == LEFT:
            return t, LEFT, total_held
        rank = count_pivots(R)
        if trace is not None:
            _, diags, _, _, recursive, sandwich = trace
            for target in range(m):
                recursive[t, target] = residual[t, target] * scale
            if sandwich.shape[0] > 0 or done == LAST or rank == d or not known:
                return t + 1, done if done == LAST else UNTRACED, total_held
            record(trace, t, theta, loss, tally, rank, 0.0)
            if diags.shape[0] > 0:
                if not nothing_is_determined(R, columns, scratch[2]):
                    return t + 1, UNTRACED, total_held
                for k in range(d):
                    diags[t, k] = math.inf
        if done == LAST or rank == d:
            return t + 1, done, total_held
    return stop, TAKEN, total_held


@kernel()
def read_coefficients(R, z, columns, basis, intercept, theta):
    """Fill theta (m, d) of minimum norm; False if the basis does not fit, or not accurately."""
    d = R.shape[0]
    s = d - 1 if intercept else d
    if (
        R.shape != (d, d)
        or z.shape[1] != d
        or columns.shape != (2, d)
        or basis.shape != (s, s)
        or theta.shape != z.shape
    ):
        raise ValueError("the shapes of factor, targets, basis and coefficients do not fit")
    first = 1 if intercept and R[0, 0] != 0 else 0
    count = count_pivots(R) - first
    if not is_basis_of(basis, count) or (intercept and first == 0):
        return False
    vectors = np.empty(d), np.empty(d), np.empty(s)
    return shortest_solution(R, z, columns, basis, count, first, theta, vectors)


@kernel()
def determines_nothing(R, columns):
    """Test whether R (d, d) and the squared lengths of its columns determine no coefficient."""
    d = R.shape[0]
    if R.shape != (d, d) or columns.shape != (2, d):
        raise ValueError("the shapes of factor and columns do not fit")
    return count_pivots(R) < d and nothing_is_determined(
        R, columns, (np.empty(d), np.empty(d), np.empty(0))
    )
