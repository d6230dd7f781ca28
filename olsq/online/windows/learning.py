"""Rows that enter a rolling window and leave it, one by one; the factor made anew."""

from __future__ import annotations

import numpy as np

from olsq.online.forms.factor.careful import take_carefully
from olsq.online.forms.factor.counters import four_are_sound
from olsq.online.forms.factor.kernels import absorb_row, called, inline, load_row
from olsq.online.forms.factor.learning import make_scratch
from olsq.online.forms.factor.limits import EPS
from olsq.online.forms.square_root_kernels import COUNT, COUNT_SQUARED, WEIGHT, count_row
from olsq.online.forms.square_root_kernels import DECAY as GATES
from olsq.online.windows.limits import COARSEST_SCALE
from olsq.online.windows.ring_kernels import (
    BOUND,
    DEPARTED,
    FILLED,
    LARGEST_LOSS,
    POSITIONS,
    SAMPLES,
    SCALE,
    SUM,
    account,
    count_in,
    count_out,
    fade_in,
    fade_ring,
    is_settled,
    leaving_with,
    load_arriving,
    load_slot,
    move_on,
    slot_of,
    weight_in,
)


@inline
def make_room(d, m, intercept):
    """Return what the functions below work in: four rows, their errors, and scratch."""
    first = 1 if intercept else 0
    four = np.empty((4, d)), np.empty((4, m)), np.ones(4), np.empty(4)
    history = np.empty((d, 4)), np.empty((d, 4)), np.ones((d, 4))
    start = first, np.empty((0, 0)), np.full(1, -1)
    vectors = np.empty(d + m), np.empty(m)
    four_errors, fresh = np.empty((4, m)), np.empty((2, d))
    return four, four_errors, np.empty(4), make_scratch(d, m), history, start, vectors, fresh


@called
def build(state, window, limits, room):
    """Make the factor anew from the rows of the window."""
    F, D, columns, tally, loss = state
    _, _, _, ring_fade, place, ridge, bounds, squares, counts, _ = window
    four, errors, _, _, history, start, (w, _), _ = room
    X, Y, _, weights = four
    d, m, count = D.shape[0], loss.shape[0], place[FILLED]
    for j in range(d):
        for k in range(d + m):
            F[j, k] = 0.0
        F[j, j] = 1.0
        D[j] = columns[0, j] = columns[1, j] = ridge[j]
    for q in range(m):
        loss[q] = squares[SUM, q] = 0.0
    tally[COUNT] = tally[COUNT_SQUARED] = tally[WEIGHT] = 0.0
    counts[DEPARTED] = counts[SAMPLES] = 0
    for r in range(count):
        load_slot(window, slot_of(window, r), four, 0)
        counts[SAMPLES] += 1 if weights[0] > 0 else 0
        for q in range(m):
            squares[SUM, q] += weights[0] * Y[0, q] * Y[0, q]
        for j in range(d):
            history[2][j, 0] = D[j]
        if is_settled(history[2], 0, columns, tally, limits, four, 0):
            load_row(w, X, Y, 0)
            absorb_row(F, D, loss, w, 1.0, weights[0], errors[0])
            for j in range(d):
                columns[0, j] += weights[0] * X[0, j] * X[0, j]
            count_row(tally, 1.0, weights[0])
        else:
            take_carefully(state, four, 0, limits, start, True, errors)
    rounding = EPS * (1.0 + 0.125 * count)
    for j in range(d):
        bounds[j], columns[1, j] = rounding * columns[0, j], columns[0, j]
    for q in range(m):
        squares[BOUND, q], squares[LARGEST_LOSS, q] = rounding * squares[SUM, q], loss[q]
    if ring_fade.shape[0] > 0:  # rows count by their fading factors, as forgetting does
        tally[COUNT] = tally[COUNT_SQUARED] = 0.0
        for k in range(count):
            fade = fade_in(window, slot_of(window, k))
            tally[COUNT] += fade
            tally[COUNT_SQUARED] += fade * fade


@called
def restore_ridge(state, window, lost, vectors):
    """Put back the share that a gate has taken of the ridge, as rows of target 0."""
    F, D, columns, _, loss = state
    ridge, bounds = window[5], window[6]
    w, unused = vectors
    d = D.shape[0]
    for j in range(d):
        if ridge[j] == 0:
            continue
        for k in range(w.shape[0]):
            w[k] = 0.0
        w[j] = 1.0
        absorb_row(F, D, loss, w, 1.0, lost * ridge[j], unused)
        columns[0, j] += lost * ridge[j]
        columns[1, j] = columns[0, j]
        bounds[j] += 2 * EPS * columns[0, j]


@inline
def take_row(state, window, rows, t, room, errors):
    """Take a settled row, which is row 0 of the four, into the window; return what is left of its
    weight.
    """
    F, D, _, tally, loss = state
    four, row_errors, _, _, _, _, (w, _), _ = room
    X, Y, gates, weights = four
    leaving, share = leaving_with(window, rows, t, window[4][FILLED]), 0.0
    for k in range(leaving + 1):
        fade = 0.0
        if k > 0:
            slot = slot_of(window, k - 1)
            load_slot(window, slot, four, 0)
            weights[0], fade = -weights[0], fade_in(window, slot)
        load_row(w, X, Y, 0)
        left = absorb_row(F, D, loss, w, gates[0], weights[0], row_errors[0])
        if k == 0:
            fade_ring(window, gates[0])
            count_in(tally, window, gates[0], weights[0])
        else:
            count_out(tally, window, -weights[0], fade)
        account(state, window, four, 0, row_errors[0], abs(left))
        if k > 0:
            continue
        share = left
        for q in range(loss.shape[0]):
            errors[t, q] = row_errors[0, q]
        if gates[0] < 1:
            restore_ridge(state, window, 1.0 - gates[0], room[6])
    move_on(window, rows, t, leaving)
    return share


@called
def take_unsettled(state, window, rows, t, limits, known, room, errors):
    """Take a row with the care that undetermined coefficients need; return (share, outcome) of
    :func:`olsq.online.forms.factor.careful.take_carefully`.

    The row's noise is that of rows that have only entered: the factor must have been made since
    one left.
    """
    columns, tally = state[2], state[3]
    _, _, _, _, place, _, bounds, squares, counts, _ = window
    X, Y, gates, weights, _, _ = rows
    four, row_errors, _, _, _, start, _, _ = room
    gate, weight = gates[t], weights[t]
    for q in range(Y.shape[1]):
        row_errors[0, q] = errors[t, q]
    start[2][0] = -1
    load_arriving(rows, t, four, 0)
    share, outcome = take_carefully(state, four, 0, limits, start, known, row_errors)
    if outcome < 0:
        return share, outcome
    for q in range(Y.shape[1]):
        errors[t, q] = row_errors[0, q]
    tally[GATES] = 1.0  # a ridge does not fade, and no coefficient is held
    fade_ring(window, gate)
    leaving = leaving_with(window, rows, t, place[FILLED])
    for k in range(leaving):
        counts[SAMPLES] -= 1 if weight_in(window, slot_of(window, k)) > 0 else 0
    counts[SAMPLES] += 1 if weight > 0 else 0
    move_on(window, rows, t, leaving)
    for j in range(X.shape[1]):
        columns[1, j] = columns[0, j]
        bounds[j] += EPS * (columns[0, j] + weight * X[t, j] * X[t, j])
    for q in range(Y.shape[1]):
        square = weight * Y[t, q] * Y[t, q]
        squares[SUM, q] += square
        squares[BOUND, q] += EPS * (squares[SUM, q] + square)
    if leaving > 0 or gate < 1:
        build(state, window, limits, room)
    return share, outcome


@inline
def fit_into_four(window, rows, t, n):
    """Test whether rows t.. are n with each of which 4 / n - 1 leave, without a gate that is more
    than a factor.
    """
    _, _, _, _, place, ridge, _, _, _, fading = window
    _, _, gates, weights, _, _ = rows
    each, filled, scale, fades = 4 // n - 1, place[FILLED], fading[SCALE], False
    fits = filled >= n * each
    for s in range(t, t + n):
        leaving = leaving_with(window, rows, s, filled)
        fits = fits and leaving == each
        filled += (1 if weights[s] > 0 or place[POSITIONS] != 0 else 0) - leaving
        scale *= gates[s]
        fades = fades or gates[s] != 1
    if fades:
        for j in range(ridge.shape[0]):
            fits = fits and ridge[j] == 0
    return fits and scale >= COARSEST_SCALE


@inline
def rows_at_once(state, window, rows, t, stop, limits, room):
    """Return how many rows enter with four that enter or leave: 2, 4 or, if none do, 1.

    Four that enter must be settled for certain: a later one that is not would be taken with care
    by the factor that it finds, which is made anew only where rows have left.
    """
    _, D, columns, tally, _ = state
    X, Y, gates, weights, _, _ = rows
    most = 1
    for n in range(2, 5, 2):
        if most == 1 and t + n <= stop and fit_into_four(window, rows, t, n):
            most = n
    if most == 4:
        own = X, Y, gates, weights
        most = 4 if four_are_sound(D, columns, own, t, limits, tally, room[7]) else 1
    return most


@inline
def load_block(window, rows, t, n, four):
    """Fill four rows with n of a call, each followed by the one that leaves with it, if n is 2."""
    weights, each, fading = four[3], 4 // n, window[9]
    scale = fading[SCALE]
    for r in range(4):
        if r % each == 0:
            load_arriving(rows, t + r // each, four, r)
            fading[SCALE] *= four[2][r]
        else:
            load_slot(window, slot_of(window, r // each), four, r)
            weights[r] = -weights[r]
    fading[SCALE] = scale


@inline
def settle(state, window, rows, t, limits, room):
    """Test whether row t is settled, with the factor made anew if it must be.

    Returns (whether it is, whether the factor was made).  The row becomes row 0 of the four.
    """
    D, columns, tally = state[1], state[2], state[3]
    four, _, _, _, history, _, _, _ = room
    made = settled = False
    for _ in range(2):
        load_arriving(rows, t, four, 0)
        for j in range(D.shape[0]):
            history[2][j, 0] = rows[2][t] * D[j]
        settled = is_settled(history[2], 0, columns, tally, limits, four, 0)
        if settled or window[8][DEPARTED] == 0:
            break
        build(state, window, limits, room)
        made = True
    return settled, made
