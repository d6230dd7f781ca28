"""Bookkeeping of rolling windows: what rows in the ring weigh, squares, bounds on errors, counts.

The arrays are described in :mod:`.kernels`.
"""

from __future__ import annotations

from olsq.online.forms.factor.counters import soundness
from olsq.online.forms.factor.kernels import inline
from olsq.online.forms.factor.limits import EPS
from olsq.online.forms.factor.registers import (
    add_product,
    fill4,
    fma,
    load4,
    store,
    times,
    where_above,
)
from olsq.online.forms.square_root_kernels import (
    COUNT,
    COUNT_SQUARED,
    FAINTEST,
    WEIGHT,
)
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
    factor, plain, signed = fill4(gate), fill4(size), fill4(weight)
    amplifying, epsilon, k = fill4(amplified), fill4(eps), 0
    while k + 4 <= d:
        x = load4(X, r * d + k)
        squares4 = times(x, x)
        kept, own = times(factor, load4(columns, k)), times(plain, squares4)
        most = add_product(where_above(kept, own, kept, own), amplifying, squares4)
        store(errors, k, add_product(times(factor, load4(errors, k)), epsilon, most))
        sums = add_product(kept, signed, squares4)
        store(columns, k, sums)
        store(columns, d + k, sums)
        k += 4
    for j in range(k, d):
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
def tolerance_of(count):
    """Return the bound on e_j / S_j in a window of so many rows."""
    return max(TOLERANCE, PER_ROW * count * EPS)


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
