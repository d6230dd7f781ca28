"""Rows that come while coefficients are unknown, or nearly: noise, holds, minimum norm.

The a-priori error of a row that points in a new direction is that of the coefficients of minimum
norm, which lie in the space of the rows before it (of their slopes, about the intercept, which is
no part of the norm).  ``basis`` (s, s) holds an orthonormal basis of that space in its first rows.
Any solution of ``U theta = T``, projected on it, is the one of minimum norm: O(d^2).
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import absorb_squares, count_row, noise_level
from olsq.online.forms.edges import check_spread
from olsq.online.forms.factor.counters import count_squares, is_sound
from olsq.online.forms.factor.edges import check_call
from olsq.online.forms.factor.kernels import (
    absorb_carefully,
    absorb_row,
    called,
    clear_row,
    find_noise,
    inline,
    load_row,
)
from olsq.online.forms.factor.limits import EXTENDED_FROM, FAINTEST_GATE, FAR, WILDEST
from olsq.online.forms.factor.solving import solve

SMALLEST_PART = 1e-8  # of a row of U, that must be outside of the span of those before it
LARGEST_STEP = 1e-10  # of the last refinement, in relation to the solution


@called
def extend_basis(basis, count, row):
    """Add the part of ``row`` (s,) outside of the basis to it; return the new number of rows.

    Returns -1 where too little is left of the row, so that rounding would decide on the direction.
    """
    s = row.shape[0]
    size = 0.0
    for k in range(s):
        size += row[k] * row[k]
        basis[count, k] = row[k]
    before = size
    for sweep in range(4):
        for i in range(count):
            inside = 0.0
            for k in range(s):
                inside += basis[i, k] * basis[count, k]
            for k in range(s):
                basis[count, k] -= inside * basis[i, k]
        square = 0.0
        for k in range(s):
            square += basis[count, k] * basis[count, k]
        if sweep > 0 and square > 0.25 * before:
            break
        before = square
    if not SMALLEST_PART * SMALLEST_PART * size < square < math.inf:
        return -1
    for k in range(s):
        basis[count, k] /= math.sqrt(square)
    return count + 1


@called
def row_basis(F, D, first, basis):
    """Fill the basis with the row space of U, without the intercept's; return its size, or -1."""
    count = 0
    for j in range(first, D.shape[0]):
        if D[j] > 0 and count >= 0:
            count = extend_basis(basis, count, F[j, first : D.shape[0]])
    return count


@called
def shortest_solution(F, D, columns, first, basis, count, theta):
    """Compute theta (m, d) of minimum norm; False where this way is not accurate.

    It is not where columns are ``FAR`` times as long as others: the basis rounds in raw units.  The
    projection is repeated for what is left of T, which takes back the errors of a large solution.
    """
    m, d = theta.shape
    longest, shortest = 0.0, math.inf  # of the slopes' columns, squared
    for k in range(first, d):
        longest = max(longest, columns[0, k])
        if columns[0, k] > 0:
            shortest = min(shortest, columns[0, k])
    if count < 0 or longest > FAR * FAR * shortest or (first == 1 and D[0] == 0):
        return False
    rest, step, inside = np.empty(d), np.empty(d), np.empty(d)
    for q in range(m):
        for k in range(d):
            theta[q, k] = 0.0
            rest[k] = F[k, d + q] if D[k] > 0 else 0.0
        before = math.inf
        for _ in range(4):
            for i in range(d - 1, -1, -1):
                v = rest[i]
                for k in range(i + 1, d):
                    v -= F[i, k] * step[k]
                step[i] = v if D[i] > 0 else 0.0
            for k in range(first, d):
                inside[k] = 0.0
            for i in range(count):
                part = 0.0
                for k in range(first, d):
                    part += basis[i, k - first] * step[k]
                for k in range(first, d):
                    inside[k] += part * basis[i, k - first]
            if first == 1:
                v = rest[0]
                for k in range(1, d):
                    v -= F[0, k] * inside[k]
                step[0] = v
            size, change = 0.0, 0.0
            for k in range(d):
                if k >= first:
                    step[k] = inside[k]
                theta[q, k] += step[k]
                length = math.sqrt(columns[0, k])
                size = max(size, abs(theta[q, k]) * length)
                change = max(change, abs(step[k]) * length)
            if change <= 1e-15 * size or not change < before:
                break
            before = change
            for i in range(d):
                if D[i] > 0:
                    v = F[i, d + q] - theta[q, i]
                    for k in range(i + 1, d):
                        v -= F[i, k] * theta[q, k]
                    rest[i] = v
        if not change <= LARGEST_STEP * size:
            return False
    return True


@inline
def needs_hold(D, columns, tally, limits):
    """Test whether forgetting has brought a pivot down to rounding noise of its column."""
    d = D.shape[0]
    pin, low = 4 * noise_level(limits, d, tally), 0
    for j in range(d):
        level = max(pin * pin * columns[0, j], limits[1] * columns[1, j])
        low += 1 if 0 < D[j] < level else 0
    return low > 0


@called
def hold(F, D, columns, tally, limits):
    """Hold coefficients that forgetting is about to lose (stabilised forgetting).

    Where D_j has shrunk to the square of four rounding errors of its column, or the column itself
    to ``floor`` of its square at the last excitation, the observation "coefficient j has its
    present value" is added with just enough weight for four times that level.  Its error is 0, so
    that no coefficient moves.  A value that rounding errors have made is forgotten instead.
    Returns how many were held.
    """
    d = D.shape[0]
    m = F.shape[1] - d
    pin, count = 4 * noise_level(limits, d, tally), 0
    theta, w, unused, error = np.empty((m, d)), np.empty(d + m), np.zeros(m), np.empty(m)
    for j in range(d):
        level = max(pin * pin * columns[0, j], limits[1] * columns[1, j])
        if D[j] == 0 or D[j] >= level:
            continue
        solve(F, D, theta)
        wild = False
        for q in range(m):
            wild = wild or not abs(theta[q, j]) < WILDEST
        if wild:
            D[j] = 0.0
            clear_row(F, j)
            continue
        for k in range(d):
            w[k] = 0.0
        w[j] = 1.0
        for q in range(m):
            w[d + q] = theta[q, j]
        absorb_row(F, D, unused, w, 1.0, 4 * level, error)
        columns[0, j] += 4 * level
        count += 1
    return count


@called
def forget_everything(F, D, columns, tally, loss):
    """Reset a state to that before any row, without a ridge."""
    for j in range(D.shape[0]):
        D[j] = 0.0
        clear_row(F, j)
        columns[0, j], columns[1, j] = 0.0, 0.0
    for q in range(loss.shape[0]):
        loss[q] = 0.0
    for k in range(tally.shape[0]):
        tally[k] = 0.0


@inline
def make_start(D, first, gates, span):
    """Return room for the directions of a stream's first rows, if any pivot is or may become 0."""
    wanted = False
    for j in range(D.shape[0]):
        wanted = wanted or D[j] == 0
    for t in range(span[0], span[1]):
        wanted = wanted or gates[t] == 0
    s = D.shape[0] - first if wanted else 0
    return first, np.empty((s, s)), np.full(1, -1)


@called
def take_carefully(state, rows, t, limits, start, known, errors):
    """Absorb row t, whatever it and the state are; return (share, outcome).

    The share, ``w gamma / (gamma + w x.P x)``, is that of the row's recursive residual: its root
    times the a-priori one.  It is 0 where the row is a reset or its direction new, for which
    ``errors`` need the coefficients of minimum norm.  The outcome is how many coefficients were
    held, or -1 where these could not be computed here: nothing has changed then.  ``known`` says
    that ``errors`` holds the row's already.  ``start`` = (1 with an intercept else 0, basis (s, s)
    or (0, 0), number (1,) of its rows, or -1 where they are not those of the state).
    """
    F, D, columns, tally, loss = state
    X, Y, gates, weights = rows
    first, basis, count = start
    d, m = D.shape[0], loss.shape[0]
    gate, weight, error = gates[t], weights[t], np.empty(m)
    gate = max(gate, FAINTEST_GATE) if gate > 0 else gate
    w, noise = np.empty(d + m), np.empty(d)
    load_row(w, X, Y, t)
    for k in range(d):
        noise[k] = abs(w[k])
    kept = gate if gate > 0 else 1.0
    new = find_noise(F, D, columns[0], w, kept, noise_level(limits, d, tally), noise)
    if new >= 0 and not known:
        empty = True
        for j in range(d):
            empty = empty and D[j] == 0
        theta = np.zeros((m, d))
        if not empty:
            if basis.shape[0] != d - first:
                basis = np.empty((d - first, d - first))
                count[0] = -1
            if d < EXTENDED_FROM:  # afresh, so that cuts of a stream change no bit
                count[0] = -1
            if count[0] < 0:
                count[0] = row_basis(F, D, first, basis)
            if not shortest_solution(F, D, columns, first, basis, count[0], theta):
                return 0.0, -1
        for q in range(m):
            v = Y[t, q]
            for k in range(d):
                v -= X[t, k] * theta[q, k]
            errors[t, q] = v
    elif not known:
        for q in range(m):
            errors[t, q] = w[d + q]
    reset = gate == 0
    load_row(w, X, Y, t)
    if reset:
        forget_everything(F, D, columns, tally, loss)
        gate, count[0] = 1.0, 0
        for k in range(d):
            noise[k] = abs(w[k])
        new = find_noise(F, D, columns[0], w, gate, noise_level(limits, d, tally), noise)
        load_row(w, X, Y, t)
    if not reset and is_sound(D, columns, limits, tally):
        left = absorb_row(F, D, loss, w, gate, weight, error)
    else:
        left = absorb_carefully(F, D, loss, w, gate, weight, noise, error)
    count_squares(columns, X[t], gate, weight)
    count_row(tally, 1.0 if reset else gates[t], weight)
    if new >= first and D[new] > 0 and count[0] >= 0 and 0 < basis.shape[0] == d - first:
        count[0] = extend_basis(basis, count[0], F[new, first:d])
    else:
        count[0] = -1 if new >= first else count[0]
    held = 0
    if gate < 1 and needs_hold(D, columns, tally, limits):
        held = hold(F, D, columns, tally, limits)
    return 0.0 if reset or new >= 0 else left, held


@kernel(strict=True, makes_arrays=True)
def learn_carefully(state, spread, rows, span, limits, intercept, errors):
    """Absorb rows until the state is sound; return (first row left, number held, done).

    One by one, those that :func:`.learning.learn` leaves; ``intercept`` says whether coefficient 0
    is one.  ``done`` is False before a row whose error needs coefficients of minimum norm that are
    not found with vectors: the caller computes it.
    """
    check_call(state, rows, span, errors)
    check_spread(spread, state[1].shape[0], False)
    first = 1 if intercept else 0
    start, held, t, done = make_start(state[1], first, rows[2], span), 0, span[0], True
    while t < span[1]:
        _, outcome = take_carefully(state, rows, t, limits, start, False, errors)
        if outcome < 0:
            done = False
            break
        held += outcome
        t += 1
        if is_sound(state[1], state[2], limits, state[3]):
            break
    absorb_squares(spread, rows[0], rows[2], rows[3], span[0], t)
    return t, held, done


@kernel(strict=True, makes_arrays=True)
def take_known(state, spread, rows, limits, intercept, errors):
    """Absorb one row, whose a-priori errors (1, m) are known; return (share, number held)."""
    check_call(state, rows, (0, 1), errors)
    check_spread(spread, state[1].shape[0], False)
    start = 1 if intercept else 0, np.empty((0, 0)), np.full(1, -1)
    share, held = take_carefully(state, rows, 0, limits, start, True, errors)
    absorb_squares(spread, rows[0], rows[2], rows[3], 0, 1)
    return share, held
