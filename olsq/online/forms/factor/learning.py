"""The loop over the rows of a stream whose coefficients are well determined."""

from __future__ import annotations

import numpy as np

from olsq.online.forms.counting import absorb_squares, count_row
from olsq.online.forms.factor.counters import (
    count_rows,
    count_squares,
    four_are_sound,
    row_is_sound,
)
from olsq.online.forms.factor.kernels import (
    absorb_four,
    absorb_row,
    called,
    inline,
    load_row,
)


@inline
def make_scratch(d, m):
    """Return room for four rows."""
    return np.empty((4, d + m)), np.empty(16), np.empty(16), np.empty(4), np.empty(40)


@inline
def absorb_sound_row(state, rows, t, w, errors):
    """Absorb row t of a state that stays sound; return what is left of its weight."""
    F, D, columns, tally, loss = state
    X, Y, gates, weights = rows
    load_row(w, X, Y, t)
    left = absorb_row(F, D, loss, w, gates[t], weights[t], errors[t])
    count_squares(columns, X[t], gates[t], weights[t])
    count_row(tally, gates[t], weights[t])
    return left


@inline
def make_room(d, m):
    """Return what :func:`learn_sound` works in."""
    return make_scratch(d, m), np.empty((2, d)), np.empty(d + m)


@called
def learn_sound(state, spread, rows, span, limits, room, errors):
    """Absorb rows of a span up to one that needs care; return the first row not absorbed.

    ``state`` = (F, D, columns, tally, loss), ``spread`` (d, d) or None is a factor of the squared
    weights; the others are those of :mod:`.members`.  Care is what :mod:`.careful` does where a
    pivot is 0 or rounding noise.
    """
    F, D, columns, tally, loss = state
    X, _, gates, weights = rows
    scratch, fresh, w = room
    t = span[0]
    while t < span[1]:
        if t + 4 <= span[1] and four_are_sound(D, columns, rows, t, limits, tally, fresh):
            absorb_four(F, D, loss, rows, t, scratch, errors, None)
            count_rows(columns, tally, fresh, gates, weights, t)
            t += 4
            continue
        if not row_is_sound(D, columns, X[t], gates[t], weights[t], limits, tally):
            break
        absorb_sound_row(state, rows, t, w, errors)
        t += 1
    absorb_squares(spread, X, gates, weights, span[0], t)
    return t
