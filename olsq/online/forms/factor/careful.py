"""Rows that come while coefficients are unknown, or nearly: noise, holds, minimum norm.

The a-priori error of a row that points in a new direction is that of the coefficients of minimum
norm, which lie in the space of the rows before it (of their slopes, about the intercept, which is
no part of the norm).  ``basis`` (s, s + m) holds an orthonormal basis Q of that space in its first
rows, and beside it the targets c with ``theta = Q^T c``.  What is left of a row [x y] outside of
these rows is the next of them, and its error: O(d^2).
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import absorb_squares, count_row, noise_level
from olsq.online.forms.factor.counters import count_squares, is_sound
from olsq.online.forms.factor.kernels import (
    absorb_row,
    called,
    clear_row,
    inline,
    inner_product,
    load_row,
    load_unit,
    subtract_row,
)
from olsq.online.forms.factor.limits import EXTENDED_FROM, FAINTEST_GATE, FAR, UNKNOWN, WILDEST
from olsq.online.forms.factor.noise import absorb_carefully, find_noise
from olsq.online.forms.factor.solving import solve

WAITING = -1.0  # instead of its share, for a row that is not taken before its error is known
SMALLEST_PART = 1e-8  # of a row of U, that must be outside of the span of those before it
MOST_CANCELLED = 1e8  # squares of a solution over those of its part in the basis


@called
def orthogonalise(basis, count, row):
    """Leave in row ``count`` of the basis what of ``row`` (s + m,) is outside of the rows before.

    The last m numbers are targets, of which is left what those rows do not predict (modified
    Gram-Schmidt; Bjorck 1967).  Returns the length of the part outside, or 0 where it is so small
    that rounding would decide on its direction.
    """
    s, before = basis.shape[0], 0.0
    w = basis[count]
    for k in range(w.shape[0]):
        w[k] = row[k]
    size = square = before = inner_product(basis, count, w, 0, s)
    for _ in range(4):
        for i in range(count):
            subtract_row(basis, w, i, inner_product(basis, i, w, 0, s), 0)
        square = inner_product(basis, count, w, 0, s)
        if square > 0.25 * before:
            break
        before = square
    return math.sqrt(square) if SMALLEST_PART**2 * size < square < math.inf else 0.0


@inline
def scale_row(basis, row, length):
    """Divide a row of the basis by its length."""
    for k in range(basis.shape[1]):
        basis[row, k] /= length


@called
def fill_basis(F, D, basis, count):
    """Fill the basis with the known rows of F, from scratch; set the count, -1 if it fails."""
    count[0], first = 0, D.shape[0] - basis.shape[0]
    for j in range(first, D.shape[0]):
        if D[j] == 0:
            continue
        length = orthogonalise(basis, count[0], F[j, first:])
        if length == 0:
            count[0] = -1
            break
        scale_row(basis, count[0], length)
        count[0] += 1
    count[1] = 1


@called
def renew_targets(F, D, basis, count):
    """Compute the targets of the basis from any solution of ``U theta = T``.

    That loses digits where the solution of minimum norm is much smaller: the count is cleared then,
    and the basis is made again from F.
    """
    s, d = basis.shape[0], D.shape[0]
    m = F.shape[1] - d
    theta, count[1] = np.empty((m, d)), 1
    solve(F, D, theta)
    for q in range(m):
        whole, inside = 0.0, 0.0
        for k in range(d - s, d):
            whole += theta[q, k] * theta[q, k]
        for i in range(count[0]):
            target = 0.0
            for k in range(s):
                target += basis[i, k] * theta[q, d - s + k]
            basis[i, s + q] = target
            inside += target * target
        if not whole <= MOST_CANCELLED * inside:
            count[0] = -1


@called
def find_error(F, D, columns, start, w, error):
    """Compute the errors (m,) of a row in a new direction by the coefficients of minimum norm.

    Returns False where this way is not accurate: where columns are ``FAR`` times as long as others,
    the basis rounds in raw units.  The row w (d + m,) is destroyed.
    """
    first, basis, count = start
    d, s = D.shape[0], basis.shape[0]
    longest, shortest, known = 0.0, math.inf, 0  # squares of the slopes' columns; known slopes
    for k in range(first, d):
        known += 1 if D[k] > 0 else 0
        longest = max(longest, columns[0, k])
        if columns[0, k] > 0:
            shortest = min(shortest, columns[0, k])
    if longest > FAR * FAR * shortest or (first == 1 and D[0] == 0 and known > 0):
        return False
    if first == 1:
        one = w[0]
        for k in range(w.shape[0]):
            w[k] -= one * F[0, k] if D[0] > 0 else 0.0
    if s == 0:
        for q in range(error.shape[0]):
            error[q] = w[d + q]
        return True
    if count[0] == known and count[1] == 0:
        renew_targets(F, D, basis, count)
    if count[0] != known:
        fill_basis(F, D, basis, count)
    if count[0] < 0:
        return False
    length = orthogonalise(basis, count[0], w[first:])
    for q in range(error.shape[0]):
        error[q] = basis[count[0], s + q]
    if length == 0:
        count[0] = -1
        return True
    scale_row(basis, count[0], length)
    count[0] += 1
    return True


@called
def may_be_determined(F, columns, start):
    """Test whether the rows may determine a coefficient; False is certain.

    They do where e_j lies in their space.  Its squared distance from it, in units of the columns'
    lengths, is at least that in raw units times the ratio of the column's squares to the largest.
    An intercept may shorten it by the factor d + 1, since no mean is larger than the root mean
    square of its column.
    """
    first, basis, count = start
    s = basis.shape[0]
    inside, longest = np.zeros(s), 0.0  # squares of the part of e_j in the space
    for k in range(first, first + s):
        longest = max(longest, columns[0, k])
    for i in range(count[0]):
        for k in range(s):
            inside[k] += basis[i, k] * basis[i, k]
    least = UNKNOWN * longest * (1 + first * (s + 1))
    for k in range(s):
        size = columns[0, first + k]
        if size > 0 and not (1 - inside[k]) * size > least:
            return True
    if first == 0:
        return False
    mean, outside = F[0, 1 : 1 + s].copy(), 0.0  # an intercept's row has it beside 1
    for i in range(count[0]):
        part = 0.0
        for k in range(s):
            part += basis[i, k] * F[0, 1 + k]
        for k in range(s):
            mean[k] -= part * basis[i, k]
    for k in range(s):
        outside += mean[k] * mean[k]
    return not outside * columns[0, 0] > least


@called
def record_unknown(state, start, t, trace):
    """Write the coefficients of minimum norm, by the basis, and infinite variances to row t of a
    trace.

    Returns False, with nothing written, where the state has to be read in another way: where the
    basis is not its own, or a coefficient may be determined.
    """
    F, D, columns, _, _ = state
    first, basis, count = start
    coefs, diags = trace[0], trace[1]
    d, s, known = D.shape[0], basis.shape[0], 0
    for k in range(first, d):
        known += 1 if D[k] > 0 else 0
    if count[0] != known or trace[5].shape[0] > 0 or (first == 1 and D[0] == 0):
        return False
    if count[1] == 0:
        renew_targets(F, D, basis, count)
    if count[0] < 0 or may_be_determined(F, columns, start):
        return False
    for q in range(coefs.shape[1]):
        coefs[t, q] = 0.0
        for i in range(known):
            for k in range(s):
                coefs[t, q, first + k] += basis[i, s + q] * basis[i, k]
        if first == 1:
            coefs[t, q, 0] = F[0, d + q]
            for k in range(1, d):
                coefs[t, q, 0] -= F[0, k] * coefs[t, q, k]
    if diags.shape[0] > 0:
        for k in range(d):
            diags[t, k] = math.inf
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
        load_unit(w, j)
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
def make_start(d, m, first):
    """Return room for the directions of a stream's first rows."""
    s = d - first
    return first, np.empty((s, s + m)), np.full(2, -1)


@called
def take_carefully(state, rows, t, limits, start, known, errors):
    """Absorb row t, whatever it and the state are; return (share, outcome).

    The share, ``w gamma / (gamma + w x.P x)``, is that of the row's recursive residual: its root
    times the a-priori one.  It is 0 where the row is a reset or its direction new, for which
    ``errors`` need the coefficients of minimum norm.  The outcome is how many coefficients were
    held, or -1 where these could not be computed here: nothing has changed then.  ``known`` says
    that ``errors`` holds the row's already.  ``start`` = (1 with an intercept else 0, basis
    (s, s + m), (number of its rows, or -1 where they are not those of the state, and whether its
    targets are)).
    """
    F, D, columns, tally, loss = state
    X, Y, gates, weights = rows
    count = start[2]
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
        if d < EXTENDED_FROM:
            count[0] = -1  # made afresh for every row, so that cuts of a stream change no bit
        load_row(w, X, Y, t)
        if not find_error(F, D, columns, start, w, errors[t]):
            return 0.0, -1
    elif not known:
        for q in range(m):
            errors[t, q] = w[d + q]
    reset = gate == 0
    load_row(w, X, Y, t)
    if reset:
        forget_everything(F, D, columns, tally, loss)
        gate, count[0] = 1.0, -1
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
    if new < 0:
        count[1] = 0  # other targets, of the same directions
    elif known or D[new] == 0:
        count[0] = -1
    held = 0
    if gate < 1 and needs_hold(D, columns, tally, limits):
        held, count[0] = hold(F, D, columns, tally, limits), -1
    return 0.0 if reset or new >= 0 else left, held


@kernel(strict=True, makes_arrays=True)
def learn_carefully(state, spread, rows, span, limits, intercept, errors):
    """Absorb rows until the state is sound; return (first row left, number held, share).

    One by one, those that :func:`.learning.learn_sound` leaves; ``intercept`` says whether
    coefficient 0 is one.  The share is that of the last row, as in :func:`take_carefully`.  It is
    WAITING before a row whose error needs coefficients of minimum norm that are not found with
    vectors: the caller computes it.
    """
    first = 1 if intercept else 0
    start = make_start(state[1].shape[0], state[4].shape[0], first)
    held, t, share = 0, span[0], 0.0
    while t < span[1]:
        share, outcome = take_carefully(state, rows, t, limits, start, False, errors)
        if outcome < 0:
            share = WAITING
            break
        held += outcome
        t += 1
        if is_sound(state[1], state[2], limits, state[3]):
            break
    absorb_squares(spread, rows[0], rows[2], rows[3], span[0], t)
    return t, held, share


@kernel(strict=True, makes_arrays=True)
def take_known(state, spread, rows, t, limits, intercept, errors):
    """Absorb row t, whose a-priori errors are known; return the number of coefficients held."""
    start = 1 if intercept else 0, np.empty((0, 0)), np.full(2, -1)
    _, held = take_carefully(state, rows, t, limits, start, True, errors)
    absorb_squares(spread, rows[0], rows[2], rows[3], t, t + 1)
    return held
