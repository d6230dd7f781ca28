"""Bookkeeping of rolling windows: rows in the ring and what they weigh, which leave, counts.

The arrays are described in :mod:`.kernels`.
"""

from __future__ import annotations

from olsq.online.forms.counting import (
    COUNT,
    COUNT_SQUARED,
    FAINTEST,
    WEIGHT,
)
from olsq.online.forms.factor.kernels import copy_row, inline
from olsq.online.windows.arrays import (
    DECAY,
    DEPARTED,
    FILLED,
    LARGEST_LOSS,
    POSITIONS,
    SAMPLES,
    SCALE,
    SLOT,
)
from olsq.online.windows.limits import COARSEST_SCALE


@inline
def weight_in(window, slot):
    """Return what is left of the weight of the row in a slot of the ring."""
    own = window.weights[slot]
    weight = own * window.fading[SCALE]
    if window.fades.shape[0] > 0 and own > 0:
        weight = max(weight, FAINTEST)
    return weight


@inline
def fade_in(window, slot):
    """Return the product of the gates that the row in a slot has seen, 0 for no sample."""
    if window.fades.shape[0] > 0:
        return window.fades[slot] * window.fading[SCALE]
    return 1.0 if window.weights[slot] > 0 else 0.0


@inline
def slot_of(window, k):
    """Return the slot of the row k of the window, from the oldest one on."""
    slot = window.place[SLOT] - window.place[FILLED] + k
    return slot + window.weights.shape[0] if slot < 0 else slot


@inline
def load_slot(window, slot, four, r):
    """Copy the row of a slot to row r of four rows."""
    X, Y, gates, weights = four
    copy_row(window.X, slot, X, r)
    for q in range(Y.shape[1]):
        Y[r, q] = window.Y[slot, q]
    gates[r], weights[r] = 1.0, weight_in(window, slot)


@inline
def load_arriving(rows, t, four, r):
    """Copy row t of a call to row r of four rows."""
    X, Y, gates, weights = four
    copy_row(rows.X, t, X, r)
    for q in range(Y.shape[1]):
        Y[r, q] = rows.Y[t, q]
    gates[r], weights[r] = rows.gates[t], rows.weights[t]


@inline
def takes_slot(window, rows, t):
    """Test whether row t of a call takes a place in the ring."""
    return rows.weights[t] > 0 or window.place[POSITIONS] != 0


@inline
def leaving_with(window, rows, t):
    """Return how many rows leave the ring with row t: all with one whose gate is 0."""
    if rows.gates[t] == 0:
        return window.place[FILLED]
    if rows.leaving.shape[0] > 0:
        return rows.leaving[t]
    full = window.place[FILLED] == window.weights.shape[0]
    return 1 if full and takes_slot(window, rows, t) else 0


@inline
def count_in(tally, window, gate, weight):
    """Count a row that enters, after forgetting."""
    sample = 1.0 if weight > 0 else 0.0
    tally[COUNT] = gate * tally[COUNT] + sample
    tally[COUNT_SQUARED] = gate * gate * tally[COUNT_SQUARED] + sample
    tally[WEIGHT] = gate * tally[WEIGHT] + weight
    window.counts[SAMPLES] += 1 if weight > 0 else 0


@inline
def count_out(tally, window, weight, fade):
    """Count a row that leaves with what is left of its weight."""
    counts = window.counts
    counts[SAMPLES] -= 1 if weight > 0 else 0
    if counts[SAMPLES] == 0:
        tally[COUNT] = tally[COUNT_SQUARED] = tally[WEIGHT] = 0.0
        return
    tally[COUNT] = max(tally[COUNT] - fade, 0.0)
    tally[COUNT_SQUARED] = max(tally[COUNT_SQUARED] - fade * fade, 0.0)
    tally[WEIGHT] = max(tally[WEIGHT] - weight, 0.0)


@inline
def fade_ring(window, gate):
    """Multiply all that is in the ring by a gate, which empties it where it is 0."""
    fading, fades = window.fading, window.fades
    if gate == 1 or fades.shape[0] == 0:
        return
    if gate == 0:
        fading[SCALE], fading[DECAY] = 1.0, 0.0
        return
    fading[SCALE] *= gate
    fading[DECAY] = max(fading[DECAY] * gate, FAINTEST) if fading[DECAY] > 0 else 0.0
    for q in range(window.squares.shape[1]):
        window.squares[LARGEST_LOSS, q] *= gate
    if fading[SCALE] >= COARSEST_SCALE:
        return
    for slot in range(fades.shape[0]):
        window.weights[slot], fades[slot] = weight_in(window, slot), fade_in(window, slot)
    fading[SCALE] = 1.0


@inline
def move_on(window, rows, t, leaving):
    """Drop the oldest rows of the ring, put row t into it, and write the number of samples."""
    place, scale = window.place, window.fading[SCALE]
    place[FILLED] -= leaving
    window.counts[DEPARTED] += leaving
    if rows.samples.shape[0] > 0:
        rows.samples[t] = window.counts[SAMPLES]
    if not takes_slot(window, rows, t):
        return
    slot = place[SLOT]
    copy_row(rows.X, t, window.X, slot)
    for q in range(rows.Y.shape[1]):
        window.Y[slot, q] = rows.Y[t, q]
    window.weights[slot] = rows.weights[t] / scale
    if window.fades.shape[0] > 0:
        window.fades[slot] = (1.0 if rows.weights[t] > 0 else 0.0) / scale
    place[SLOT] = slot + 1 if slot + 1 < window.weights.shape[0] else 0
    place[FILLED] += 1
