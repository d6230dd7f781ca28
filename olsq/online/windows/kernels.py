"""The recursion of rolling windows: a row enters with its weight and leaves with the negative.

The state is that of :mod:`olsq.online.forms.factor.kernels`.  A row that leaves is absorbed with
the negative of what is left of its weight; what the recursion leaves of that weight is then
``-weight / (1 - leverage)``.  Four rows that enter or leave are absorbed at once, to the bits of
single rows, so that cuts of a stream change no bit.

Rounding errors of rows that have left stay.  For each column j of the regressors, and for each
target, S_j is the sum of weighted squares in the window, and e_j bounds the error of the
information's row and column j, in the same units::

    a row enters    e_j <- gate e_j + eps (max(gate S_j, w x_j^2) + w x_j^2)
    a row leaves    e_j <- e_j + eps (max(S_j, w x_j^2) + a x_j^2),    a = w / (1 - leverage)

The factor is made anew from the rows of the window where an e_j is no longer small beside S_j.
What shrinks is S_j: a huge row that has left, a window that calms down, and a row of a leverage
near one are one case.  Where a pivot is 0 or nearly so, although its column is not 0 throughout,
the factor is made anew after every row that leaves: :func:`take_unsettled`.

Rows fade by gates.  Weights and fading factors in the ring are divided by ``fading[SCALE]``, the
product of the gates since they were last multiplied out, so that a gate costs no pass over the
ring.  A ridge does not fade: what a gate takes of it is put back as rows.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.edges import check_trace
from olsq.online.forms.factor.careful import take_carefully
from olsq.online.forms.factor.counters import four_are_sound, soundness
from olsq.online.forms.factor.edges import check_call
from olsq.online.forms.factor.kernels import absorb_four, absorb_row, called, inline, load_row
from olsq.online.forms.factor.learning import make_scratch
from olsq.online.forms.factor.limits import AFRESH, EPS, SHRUNK
from olsq.online.forms.factor.registers import fma
from olsq.online.forms.factor.solving import gains, solve, variances
from olsq.online.forms.square_root_kernels import (
    COUNT,
    COUNT_SQUARED,
    FAINTEST,
    WEIGHT,
    count_row,
    record,
)
from olsq.online.forms.square_root_kernels import DECAY as GATES
from olsq.online.windows.limits import (
    COARSEST_SCALE,
    FAINTEST_COLUMN,
    FORGOTTEN_LOSS,
    PER_ROW,
    TOLERANCE,
)

FILLED, SLOT, POSITIONS = 0, 1, 2  # place: rows in the ring, the next slot, whether all rows count
DEPARTED, SAMPLES = 0, 1  # counts: rows that left since the factor was made; samples in the window
# squares: sums of squared targets; the largest loss since it was made; the targets' e_j
SUM, LARGEST_LOSS, BOUND = 0, 1, 2
SCALE, DECAY = 0, 1  # fading: see above; the product of all gates


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


@inline
def weight_in(window, slot):
    """Return what is left of the weight of the row in a slot of the ring."""
    _, _, ring_w, ring_fade, _, _, _, _, _, fading = window
    weight = ring_w[slot] * fading[SCALE]
    if ring_fade.shape[0] > 0 and ring_w[slot] > 0:
        weight = max(weight, FAINTEST)
    return weight


@inline
def fade_in(window, slot):
    """Return the product of the gates that the row in a slot has seen, 0 for no sample."""
    _, _, ring_w, ring_fade, _, _, _, _, _, fading = window
    if ring_fade.shape[0] > 0:
        return ring_fade[slot] * fading[SCALE]
    return 1.0 if ring_w[slot] > 0 else 0.0


@inline
def slot_of(window, k):
    """Return the slot of the row k of the window, from the oldest one on."""
    slots, place = window[2].shape[0], window[4]
    return (place[SLOT] - place[FILLED] + k) % slots


@inline
def load_slot(window, slot, four, r):
    """Copy the row of a slot to row r of four rows."""
    ring_X, ring_Y = window[0], window[1]
    X, Y, gates, weights = four
    for k in range(X.shape[1]):
        X[r, k] = ring_X[slot, k]
    for q in range(Y.shape[1]):
        Y[r, q] = ring_Y[slot, q]
    gates[r], weights[r] = 1.0, weight_in(window, slot)


@inline
def tolerance_of(count):
    """Return the bound on e_j / S_j in a window of so many rows."""
    return max(TOLERANCE, PER_ROW * count * EPS)


@inline
def account(state, window, four, r, error, amplified):
    """Update squares and bounds on errors by a row whose weight is negative where it leaves.

    ``amplified`` is the size of what is left of its weight.
    """
    columns = state[2]
    _, _, _, ring_fade, _, _, errors, squares, _, _ = window
    X, Y, gates, weights = four
    gate, weight, d = gates[r], weights[r], X.shape[1]
    size = abs(weight)
    eps = EPS if ring_fade.shape[0] == 0 else 4 * EPS  # faded weights are rounded themselves
    for j in range(d):
        square = X[r, j] * X[r, j]
        before = gate * columns[0, j]
        errors[j] = gate * errors[j] + eps * (max(before, size * square) + amplified * square)
        columns[0, j] = columns[1, j] = before + weight * square
    for q in range(Y.shape[1]):
        square = Y[r, q] * Y[r, q]
        largest = max(square, error[q] * error[q])
        before = gate * squares[SUM, q]
        rounding = eps * (max(before, size * largest) + amplified * largest)
        squares[BOUND, q] = gate * squares[BOUND, q] + rounding
        squares[SUM, q] = before + weight * square


@inline
def count_in(tally, window, gate, weight):
    """Count a row that enters, after forgetting."""
    sample = 1.0 if weight > 0 else 0.0
    tally[COUNT] = gate * tally[COUNT] + sample
    tally[COUNT_SQUARED] = gate * gate * tally[COUNT_SQUARED] + sample
    tally[WEIGHT] = gate * tally[WEIGHT] + weight
    window[8][SAMPLES] += 1 if weight > 0 else 0


@inline
def count_out(tally, window, weight, fade):
    """Count a row that leaves with what is left of its weight."""
    counts = window[8]
    counts[SAMPLES] -= 1 if weight > 0 else 0
    if counts[SAMPLES] == 0:
        tally[COUNT] = tally[COUNT_SQUARED] = tally[WEIGHT] = 0.0
        return
    tally[COUNT] = max(tally[COUNT] - fade, 0.0)
    tally[COUNT_SQUARED] = max(tally[COUNT_SQUARED] - fade * fade, 0.0)
    tally[WEIGHT] = max(tally[WEIGHT] - weight, 0.0)


@inline
def fade_ring(window, gate):
    """Multiply all that is in the ring by a gate above 0."""
    _, _, ring_w, ring_fade, _, _, _, squares, _, fading = window
    if gate == 1 or ring_fade.shape[0] == 0:
        return
    fading[SCALE] *= gate
    fading[DECAY] = max(fading[DECAY] * gate, FAINTEST) if fading[DECAY] > 0 else 0.0
    for q in range(squares.shape[1]):
        squares[LARGEST_LOSS, q] *= gate
    if fading[SCALE] >= COARSEST_SCALE:
        return
    for slot in range(ring_w.shape[0]):
        ring_w[slot], ring_fade[slot] = weight_in(window, slot), fade_in(window, slot)
    fading[SCALE] = 1.0


@inline
def move_on(window, rows, t, leaving):
    """Drop the oldest rows of the ring, put row t into it, and write the number of samples."""
    ring_X, ring_Y, ring_w, ring_fade, place, _, _, _, counts, fading = window
    X, Y, _, weights, _, samples = rows
    place[FILLED] -= leaving
    counts[DEPARTED] += leaving
    if samples.shape[0] > 0:
        samples[t] = counts[SAMPLES]
    if not (weights[t] > 0 or place[POSITIONS] != 0):
        return
    slot = place[SLOT]
    for k in range(X.shape[1]):
        ring_X[slot, k] = X[t, k]
    for q in range(Y.shape[1]):
        ring_Y[slot, q] = Y[t, q]
    ring_w[slot] = weights[t] / fading[SCALE]
    if ring_fade.shape[0] > 0:
        ring_fade[slot] = (1.0 if weights[t] > 0 else 0.0) / fading[SCALE]
    place[SLOT] = (slot + 1) % ring_w.shape[0]
    place[FILLED] += 1


@inline
def is_settled(pivots, r, columns, tally, limits, four, s):
    """Test whether row s of four rows needs no care; ``pivots`` (d, 4) are the faded ones before
    it, in column r.

    A column that is 0 throughout needs none: its pivot stays 0, exactly.
    """
    X, _, gates, weights = four
    d, outside = X.shape[1], 0
    share = 2 * soundness(limits, d, tally[COUNT] + 4)
    for j in range(d):
        size, pivot = columns[0, j], pivots[j, r]
        most = max(size, fma(gates[s], size, weights[s] * X[s, j] * X[s, j]))
        outside += 0 if (pivot > share * most) | ((most == 0) & (pivot == 0)) else 1
    return outside == 0


@inline
def is_sound(state, limits):
    """Test whether no pivot is 0 or rounding noise, except of columns that are 0 throughout."""
    D, columns, tally = state[1], state[2], state[3]
    share, outside = soundness(limits, D.shape[0], tally[COUNT]), 0
    for j in range(D.shape[0]):
        size = columns[0, j]
        outside += 0 if (D[j] > share * size) | ((size == 0) & (D[j] == 0)) else 1
    return outside == 0


@inline
def is_stale(columns, loss, window):
    """Test whether rounding errors are no longer small in the window as it is now."""
    _, _, _, _, place, _, errors, squares, _, _ = window
    d, outside = columns.shape[1], 0
    tolerance = tolerance_of(place[FILLED])
    for j in range(d):
        size = columns[0, j]
        outside += 0 if errors[j] <= tolerance * size else 1
        outside += 1 if 0 < size < FAINTEST_COLUMN else 0
    for q in range(loss.shape[0]):
        outside += 0 if squares[BOUND, q] <= tolerance * squares[SUM, q] else 1
        squares[LARGEST_LOSS, q] = max(squares[LARGEST_LOSS, q], loss[q])
        outside += 0 if loss[q] >= FORGOTTEN_LOSS * squares[LARGEST_LOSS, q] else 1
    return outside > 0


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


@inline
def leaving_with(window, rows, t, filled):
    """Return how many rows leave a ring of so many with row t.

    ``leaving`` (n,) says so; it is empty where the ring is the window.
    """
    _, _, _, weights, leaving, _ = rows
    place = window[4]
    if leaving.shape[0] > 0:
        return leaving[t]
    enters = weights[t] > 0 or place[POSITIONS] != 0
    return 1 if enters and filled == window[2].shape[0] else 0


@inline
def load_arriving(rows, t, four, r):
    """Copy row t of a call to row r of four rows."""
    X, Y, gates, weights, _, _ = rows
    for k in range(X.shape[1]):
        four[0][r, k] = X[t, k]
    for q in range(Y.shape[1]):
        four[1][r, q] = Y[t, q]
    four[2][r], four[3][r] = gates[t], weights[t]


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


# -- states after every row -----------------------------------------------------------------------


@inline
def make_carried(d, m, wide):
    """Return what is carried from row to row: theta (m, d), variances (d,) and their largest
    values, if they are ``wide``, for four rows too, gains, and room.
    """
    masks = np.zeros((3, 4))
    for s in range(3):
        for r in range(s + 1):
            masks[s, r] = 1.0
    w = d if wide else 0
    vectors = np.empty(w), np.empty(w), np.empty((4, w))
    before = np.empty((w, d + m)), np.empty(d)
    return (
        np.empty((m, d)),
        vectors,
        np.empty((d, 4)),
        masks,
        before,
        np.empty((w, w)),
        np.ones((d, 4)),
    )


@called
def read_afresh(state, carried):
    """Compute coefficients and variances of a sound state."""
    F, D, _, _, _ = state
    theta, (variance, largest, _), _, _, (_, pivots), inverse, _ = carried
    solve(F, D, theta)
    if variance.shape[0] == 0:
        return
    for j in range(D.shape[0]):
        pivots[j] = D[j] if D[j] > 0 else math.inf
    variances(F, pivots, inverse, variance)
    for j in range(D.shape[0]):
        variance[j] = variance[j] if D[j] > 0 else math.inf
        largest[j] = variance[j]


@inline
def keep_state(F, D, carried):
    """Keep the factor before four rows, if there are variances."""
    before, pivots = carried[4]
    for j in range(before.shape[0]):
        pivots[j] = D[j]
        for k in range(j, F.shape[1]):
            before[j, k] = F[j, k]


@inline
def carry_variances(state, four, left, history, carried):
    """Compute gains and variances of four rows; True, with the factor as before, where a variance
    has shrunk so much that the difference which it is has lost digits.
    """
    F, D, _, _, _ = state
    _, (variance, largest, steps), K, masks, (F_before, D_before), _, pivots = carried
    d, gates, shrunk = D.shape[0], four[2], 0
    for j in range(d):
        for r in range(4):
            pivot = history[2][j, r]
            pivots[j, r] = pivot if pivot != 0 else 1.0  # of columns that are 0 throughout
    gains(F, (history[0], history[1], pivots), masks, K)
    for k in range(variance.shape[0]):
        v, most = variance[k], largest[k]
        for r in range(4):
            v = v / gates[r] - left[r] * K[k, r] * K[k, r]
            steps[r, k] = v
            most = max(most, v)
            shrunk += 0 if (v > SHRUNK * most) | (most == math.inf) else 1
        largest[k] = most
    if shrunk > 0:
        for j in range(d):
            D[j] = D_before[j]
            for k in range(j, F.shape[1]):
                F[j, k] = F_before[j, k]
    return shrunk > 0


@inline
def carry_coefficients(r, left, errors, carried):
    """Move the coefficients by row r of four."""
    theta, K = carried[0], carried[2]
    for q in range(theta.shape[0]):
        step = left * errors[r, q]
        for k in range(theta.shape[1]):
            theta[q, k] += step * K[k, r]


@inline
def record_carried(trace, t, r, D, loss, tally, carried):
    """Write to the trace what is carried, after row r of four."""
    theta, (variance, _, steps), _, _, _, _, _ = carried
    rank = 0
    for j in range(D.shape[0]):
        rank += 1 if D[j] > 0 else 0
    for k in range(variance.shape[0]):
        trace[1][t, k] = variance[k] = steps[r, k]
    record(trace, t, theta, loss, tally, rank, 0.0)


@called
def record_afresh(state, t, trace, carried):
    """Write a sound state to the trace."""
    _, D, _, tally, loss = state
    variance, _, steps = carried[1]
    read_afresh(state, carried)
    for k in range(variance.shape[0]):
        steps[0, k] = variance[k]
    record_carried(trace, t, 0, D, loss, tally, carried)


# -- the rows of a call ---------------------------------------------------------------------------


@inline
def take_block(state, window, rows, t, n, limits, room, errors, trace, carried):
    """Take n rows, which four rows hold, and the first of which is settled.

    Returns (how many were taken, whether the factor was made anew).  Fewer than n are taken where
    it was, or a later row is not settled.  With a ``trace`` their states are written to it from
    what is ``carried``, unless a variance has shrunk too much: then no row is taken.
    """
    F, D, columns, tally, loss = state
    four, block_errors, _, scratch, history, _, (_, running), _ = room
    gates, weights, left = four[2], four[3], scratch[3]
    m, each = loss.shape[0], 4 // n
    for q in range(m):
        running[q] = loss[q]
    if trace is not None:
        keep_state(F, D, carried)
    absorb_four(F, D, loss, four, 0, scratch, block_errors, history)
    if trace is not None and carry_variances(state, four, left, history, carried):
        for q in range(m):
            loss[q] = running[q]
        return 0, False
    taken, made = n, False
    for r in range(4):
        s, gate = t + r // each, gates[r]
        if r % each == 0:
            if r > 0 and not is_settled(history[2], r, columns, tally, limits, four, r):
                build(state, window, limits, room)
                taken, made = r // each, True
                break
            for q in range(m):
                errors[s, q] = block_errors[r, q]
            fade_ring(window, gate)
            count_in(tally, window, gate, weights[r])
        else:
            count_out(tally, window, -weights[r], fade_in(window, slot_of(window, 0)))
        account(state, window, four, r, block_errors[r], abs(left[r]))
        for q in range(m):
            e = block_errors[r, q]
            running[q] = fma(left[r] * e, e, gate * running[q])
        if trace is not None:
            carry_coefficients(r, left[r], block_errors, carried)
        if (r + 1) % each == 0:
            move_on(window, rows, s, each - 1)
            if trace is not None:
                record_carried(trace, s, r, D, running, tally, carried)
                root = math.sqrt(left[r + 1 - each])
                for q in range(m):
                    trace[4][s, q] = errors[s, q] * root
            if is_stale(columns, running, window):
                build(state, window, limits, room)
                taken, made = r // each + 1, True
                break
    return taken, made


@called
def roll_rows(state, window, rows, span, limits, room, errors):
    """Do :func:`roll`, whose arguments have been checked."""
    columns, loss, t = state[2], state[4], span[0]
    while t < span[1]:
        settled, _ = settle(state, window, rows, t, limits, room)
        if not settled:
            _, outcome = take_unsettled(state, window, rows, t, limits, False, room, errors)
            if outcome < 0:
                break
            t += 1
            continue
        n = rows_at_once(state, window, rows, t, span[1], limits, room)
        if n > 1:
            load_block(window, rows, t, n, room[0])
            n, _ = take_block(state, window, rows, t, n, limits, room, errors, None, None)
        else:
            take_row(state, window, rows, t, room, errors)
            if is_stale(columns, loss, window):
                build(state, window, limits, room)
        t += n
    if window[8][DEPARTED] > 0 and not is_sound(state, limits):
        build(state, window, limits, room)
    return t


@called
def roll_path_rows(state, window, rows, span, limits, room, errors, trace, carried):
    """Do :func:`roll_path`, whose arguments have been checked."""
    D, columns, loss, t = state[1], state[2], state[4], span[0]
    since, single, fresh = -1, span[0], True
    while t < span[1]:
        settled, made = settle(state, window, rows, t, limits, room)
        if made:
            since = -1
            if t > span[0] and is_sound(state, limits):
                record_afresh(state, t - 1, trace, carried)
            fresh = t == span[0] or is_sound(state, limits)
        if not settled:
            break
        n = rows_at_once(state, window, rows, t, span[1], limits, room) if t >= single else 1
        if n > 1:
            if since < 0 or since >= max(64, AFRESH * D.shape[0]):
                read_afresh(state, carried)
                since = 0
            load_block(window, rows, t, n, room[0])
            taken, made = take_block(
                state, window, rows, t, n, limits, room, errors, trace, carried
            )
            if taken == 0:
                single, since = t + n, -1
                continue
            n, since = taken, since + taken
        else:
            root, made = math.sqrt(take_row(state, window, rows, t, room, errors)), True
            for q in range(loss.shape[0]):
                trace[4][t, q] = errors[t, q] * root
            if is_stale(columns, loss, window):
                build(state, window, limits, room)
        t, fresh = t + n, True
        if made:
            since, fresh = -1, is_sound(state, limits)
            if fresh:
                record_afresh(state, t - 1, trace, carried)
            elif window[8][DEPARTED] == 0:
                break
    if window[8][DEPARTED] > 0 and not is_sound(state, limits):
        build(state, window, limits, room)
        since, fresh = -1, t == span[0] or is_sound(state, limits)
        if fresh and t > span[0]:
            record_afresh(state, t - 1, trace, carried)
    if since > 0:  # the last row's coefficients have the bits that the state itself gives
        theta = carried[0]
        solve(state[0], D, theta)
        for q in range(theta.shape[0]):
            for k in range(theta.shape[1]):
                trace[0][t - 1, q, k] = theta[q, k]
    return t, fresh


@kernel(strict=True)
def check_window(state, window, rows, span, errors, trace):
    """Check the shapes of all that the kernels below receive."""
    X, Y, gates, weights, leaving, samples = rows
    check_call(state, (X, Y, gates, weights), span, errors)
    ring_X, ring_Y, ring_w, ring_fade, place, ridge, bounds, squares, counts, fading = window
    d, m, n, slots = X.shape[1], Y.shape[1], X.shape[0], ring_w.shape[0]
    check_trace(trace, n, d, m)
    if (
        slots < 1
        or ring_X.shape != (slots, d)
        or ring_Y.shape != (slots, m)
        or ring_fade.shape not in ((0,), (slots,))
        or ridge.shape != (d,)
        or bounds.shape != (d,)
        or squares.shape != (3, m)
        or counts.shape != (2,)
        or fading.shape != (2,)
    ):
        raise ValueError("the arrays of the ring do not have shapes that fit the state")
    if place.shape != (3,):
        raise ValueError("the ring's place does not have the shape (3,)")
    if not (0 <= place[FILLED] <= slots and 0 <= place[SLOT] < slots):
        raise ValueError("the ring's place is outside of its shape")
    if samples.shape != (0,) and samples.shape != (n,):
        raise ValueError("samples do not have the shape (n,)")
    if leaving.shape == (0,):
        return
    if leaving.shape != (n,):
        raise ValueError("leaving does not have the shape (n,)")
    count = place[FILLED]
    for t in range(span[0], span[1]):
        if not 0 <= leaving[t] <= count:
            raise ValueError("more rows would leave the ring than are in its shape")
        count += (1 if weights[t] > 0 or place[POSITIONS] != 0 else 0) - leaving[t]
        if count > slots:
            raise ValueError("more rows would enter the ring than its shape has slots")


@kernel(strict=True, makes_arrays=True)
def roll(state, window, rows, span, limits, intercept, errors):
    """Take the rows of a span into a window; return the first row not taken.

    ``state`` = (F, D, columns, tally, loss); ``window`` = (ring_X (w, d), ring_Y (w, m), ring_w
    (w,), ring_fade (w,) or (0,), place, ridge (d,), bounds e (d,), squares (3, m), counts,
    fading (2,)); ``rows`` = (X, Y, gates above 0, weights, leaving (n,) or (0,), samples (n,) or
    (0,), which receive the number in the window after each row); ``limits`` as in
    :func:`olsq.online.forms.factor.learning.learn`.  ``intercept`` says whether coefficient 0 is
    one.  A row is not taken whose error needs coefficients of minimum norm that are not found with
    vectors.
    """
    check_window(state, window, rows, span, errors, None)
    room = make_room(state[1].shape[0], state[4].shape[0], intercept)
    return roll_rows(state, window, rows, span, limits, room, errors)


@kernel(strict=True, makes_arrays=True)
def roll_path(state, window, rows, span, limits, errors, trace):
    """Do :func:`roll`, and write the states after the rows to a trace.

    Returns the first row not taken, which coefficients that are not determined have stopped, and
    whether the state after the last one taken was written.  Coefficients and variances are carried
    by gains and computed afresh, as in :func:`olsq.online.forms.factor.path.learn_path`.
    """
    check_window(state, window, rows, span, errors, trace)
    d, m = state[1].shape[0], state[4].shape[0]
    carried = make_carried(d, m, trace[1].shape[0] > 0)
    room = make_room(d, m, False)
    return roll_path_rows(state, window, rows, span, limits, room, errors, trace, carried)


@kernel(strict=True, makes_arrays=True)
def roll_unsettled(state, window, rows, t, limits, intercept, errors):
    """Take row t, whose errors (n, m) are known; return the root of its share and whether the next
    one is settled.
    """
    check_window(state, window, rows, (t, t + 1), errors, None)
    room, n = make_room(state[1].shape[0], state[4].shape[0], intercept), rows[0].shape[0]
    share, _ = take_unsettled(state, window, rows, t, limits, True, room, errors)
    settled = True
    if t + 1 < n:
        settled, _ = settle(state, window, rows, t + 1, limits, room)
    return math.sqrt(share), settled


@kernel(strict=True, makes_arrays=True)
def rebuild(state, window, limits):
    """Make the factor anew from the rows of the window."""
    d, m = state[1].shape[0], state[4].shape[0]
    rows = (
        np.empty((0, d)),
        np.empty((0, m)),
        np.empty(0),
        np.empty(0),
        window[4][:0],
        window[4][:0],
    )
    check_window(state, window, rows, (0, 0), np.empty((0, m)), None)
    build(state, window, limits, make_room(d, m, False))
