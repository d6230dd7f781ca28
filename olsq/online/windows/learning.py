"""Rows that enter a rolling window and leave it; the factor made anew."""

from __future__ import annotations

import numpy as np

from olsq.online.forms.counting import COUNT, COUNT_SQUARED, WEIGHT, count_row
from olsq.online.forms.counting import DECAY as GATES
from olsq.online.forms.factor.careful import make_start, take_carefully
from olsq.online.forms.factor.kernels import (
    absorb_row,
    absorb_unit,
    called,
    inline,
    load_row,
    load_unit,
)
from olsq.online.forms.factor.learning import make_scratch
from olsq.online.forms.factor.limits import EPS
from olsq.online.windows.arrays import (
    BOUND,
    DEPARTED,
    FILLED,
    LARGEST_LOSS,
    SAMPLES,
    SCALE,
    SUM,
    Room,
)
from olsq.online.windows.bounds import count_columns, count_targets, is_settled, rounding_in
from olsq.online.windows.limits import COARSEST_SCALE
from olsq.online.windows.ring_kernels import (
    count_in,
    count_out,
    fade_in,
    fade_ring,
    leaving_with,
    load_arriving,
    load_slot,
    move_on,
    slot_of,
    takes_slot,
    weight_in,
)


@inline
def make_room(d, m, intercept):
    """Return what the functions below work in."""
    return Room(
        four=(np.empty((4, d)), np.empty((4, m)), np.ones(4), np.empty(4)),
        errors=np.empty((4, m)),
        scratch=make_scratch(d, m),
        history=(None, None, None, np.empty(d)),
        start=make_start(d, m, 1 if intercept else 0),
        row=np.empty(d + m),
        of_targets=np.empty(m),
    )


@called
def build(state, window, limits, room):
    """Make the factor anew from the rows of the window."""
    F, D, columns, tally, loss = state
    ridge, bounds, squares, counts = window.ridge, window.bounds, window.squares, window.counts
    four, errors, w = room.four, room.errors, room.row
    X, Y, _, weights = four
    d, m, count = D.shape[0], loss.shape[0], window.place[FILLED]
    room.start[2][0] = -1  # a basis of the state that goes
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
        if is_settled(D, 1.0, state, limits, four, 0):
            load_row(w, X, Y, 0)
            absorb_row(F, D, loss, w, 1.0, weights[0], errors[0])
            for j in range(d):
                columns[0, j] += weights[0] * X[0, j] * X[0, j]
            count_row(tally, 1.0, weights[0])
        else:
            take_carefully(state, four, 0, limits, room.start, True, errors)
    rounding = EPS * (1.0 + 0.125 * count)
    for j in range(d):
        bounds[j], columns[1, j] = rounding * columns[0, j], columns[0, j]
    for q in range(m):
        squares[BOUND, q], squares[LARGEST_LOSS, q] = rounding * squares[SUM, q], loss[q]
    if window.fades.shape[0] > 0:  # rows count by their fading factors, as forgetting does
        tally[COUNT] = tally[COUNT_SQUARED] = 0.0
        for k in range(count):
            fade = fade_in(window, slot_of(window, k))
            tally[COUNT] += fade
            tally[COUNT_SQUARED] += fade * fade


@called
def restore_ridge(state, window, lost, w, errors):
    """Put back the share that a gate has taken of the ridge, as rows of target 0."""
    F, D, columns, _, loss = state
    ridge, bounds = window.ridge, window.bounds
    for j in range(D.shape[0]):
        if ridge[j] == 0:
            continue
        load_unit(w, j)
        absorb_unit(F, D, loss, w, j, lost * ridge[j], errors)
        columns[0, j] += lost * ridge[j]
        columns[1, j] = columns[0, j]
        bounds[j] += 2 * EPS * columns[0, j]


@inline
def take_row(state, window, rows, t, room, errors):
    """Take row t, row 0 of the four and settled, into the window; return what is left of its
    weight.
    """
    F, D, columns, tally, loss = state
    four, w, row_errors = room.four, room.row, room.errors[0]
    X, Y, gates, weights = four
    leaving, share = leaving_with(window, rows, t), 0.0
    for k in range(leaving + 1):
        fade = 0.0
        if k > 0:
            slot = slot_of(window, k - 1)
            load_slot(window, slot, four, 0)
            weights[0], fade = -weights[0], fade_in(window, slot)
        load_row(w, X, Y, 0)
        left = absorb_row(F, D, loss, w, gates[0], weights[0], row_errors)
        if k == 0:
            fade_ring(window, gates[0])
            count_in(tally, window, gates[0], weights[0])
        else:
            count_out(tally, window, -weights[0], fade)
        count_columns(columns, window, four, 0, abs(left))
        count_targets(window, four, 0, row_errors, abs(left))
        if k > 0:
            continue
        share = left
        for q in range(loss.shape[0]):
            errors[t, q] = row_errors[q]
        if gates[0] < 1:
            restore_ridge(state, window, 1.0 - gates[0], w, room.of_targets)
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
    counts, squares = window.counts, window.squares
    gate, weight = rows.gates[t], rows.weights[t]
    for q in range(squares.shape[1]):
        room.errors[0, q] = errors[t, q]
    load_arriving(rows, t, room.four, 0)
    share, outcome = take_carefully(state, room.four, 0, limits, room.start, known, room.errors)
    if outcome < 0:
        return share, outcome
    for q in range(squares.shape[1]):
        errors[t, q] = room.errors[0, q]
    tally[GATES] = 1.0  # a ridge does not fade
    fade_ring(window, gate)
    leaving = leaving_with(window, rows, t)
    for k in range(leaving):
        counts[SAMPLES] -= 1 if weight_in(window, slot_of(window, k)) > 0 else 0
    counts[SAMPLES] += 1 if weight > 0 else 0
    move_on(window, rows, t, leaving)
    eps, ridge = rounding_in(window), 0.0
    for j in range(columns.shape[1]):
        columns[1, j] = columns[0, j]
        rounding = eps * (columns[0, j] + weight * rows.X[t, j] * rows.X[t, j])
        window.bounds[j] = gate * window.bounds[j] + rounding
        ridge += window.ridge[j]
    for q in range(squares.shape[1]):
        square = weight * rows.Y[t, q] * rows.Y[t, q]
        squares[SUM, q] = gate * squares[SUM, q] + square
        squares[BOUND, q] = gate * squares[BOUND, q] + eps * (squares[SUM, q] + square)
    if leaving > 0 or outcome > 0 or (gate < 1 and ridge > 0):  # in windows nothing is held
        build(state, window, limits, room)
    return share, outcome


@inline
def is_pair_of_swaps(window, rows, t):
    """Test whether rows t and t + 1 replace one row each, without a gate that is more than a
    factor.
    """
    scale, fades = window.fading[SCALE] * rows.gates[t] * rows.gates[t + 1], False
    swaps = window.place[FILLED] >= 2 and scale >= COARSEST_SCALE
    for s in range(t, t + 2):
        swaps = swaps and leaving_with(window, rows, s) == 1 and takes_slot(window, rows, s)
        fades = fades or rows.gates[s] != 1
    if fades:
        for j in range(window.ridge.shape[0]):
            swaps = swaps and window.ridge[j] == 0
    return swaps


@inline
def load_swaps(window, rows, t, four):
    """Fill the four, whose row 0 is row t, with row t + 1 and the two that leave with them."""
    _, _, gates, weights = four
    fading = window.fading
    scale = fading[SCALE]
    load_arriving(rows, t + 1, four, 2)
    for r in range(0, 4, 2):
        fading[SCALE] *= gates[r]  # what leaves has faded by then
        load_slot(window, slot_of(window, r // 2), four, r + 1)
        weights[r + 1] = -weights[r + 1]
    fading[SCALE] = scale


@inline
def settle(state, window, rows, t, limits, room):
    """Test whether row t is settled, with the factor made anew if it must be.

    Returns (whether it is, whether the factor was made).  The row becomes row 0 of the four.  One
    whose gate is 0 never is: its error is that of the coefficients before it.
    """
    made = settled = False
    for _ in range(2):
        load_arriving(rows, t, room.four, 0)
        gate = rows.gates[t]
        settled = gate > 0 and is_settled(state[1], gate, state, limits, room.four, 0)
        if settled or window.counts[DEPARTED] == 0:
            break
        build(state, window, limits, room)
        made = True
    if settled:
        room.start[2][0] = -1  # a basis that this row may not lie in
    return settled, made
