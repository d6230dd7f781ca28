"""A row in two steps: what the state expects of it, and, once that has been judged, learning it."""

from __future__ import annotations

import numpy as np

from olsq.online.forms.counting import count_row, noise_level
from olsq.online.forms.factor.careful import hold, needs_hold
from olsq.online.forms.factor.counters import count_squares, is_sound
from olsq.online.forms.factor.kernels import absorb_row, called, inline, load_row, subtract_row
from olsq.online.forms.factor.noise import absorb_carefully, find_noise


@called
def take_out_parts(state, rows, t, limits, noise, p, errors):
    """Compute what each column takes out of row t, p (d,), and the a-priori errors (m,) left of it.

    Fills ``noise`` (d,) with the size below which parts are rounding errors, taken for 0, and
    returns whether the row is in no new direction, its leverage ``x.P x = sum p_j^2 / D_j``, and
    whether the state is sound, so that no part needs that test.
    """
    F, D, columns, tally, _ = state
    X, Y, _, _ = rows
    d, width = F.shape
    w, leverage, predicted = np.empty(width), 0.0, True
    sound = is_sound(D, columns, limits, tally)
    for k in range(d):
        noise[k] = 0.0 if sound else abs(X[t, k])
    if not sound:
        load_row(w, X, Y, t)
        new = find_noise(F, D, columns[0], w, 1.0, noise_level(limits, d, tally), noise)
        predicted = new < 0
    load_row(w, X, Y, t)
    for j in range(d):
        part = w[j] if abs(w[j]) > noise[j] and D[j] > 0 else 0.0
        p[j] = part
        if part != 0:
            leverage += part * part / D[j]
            subtract_row(F, w, j, part, j)
    for q in range(width - d):
        errors[q] = w[d + q]
    return predicted, leverage, sound


@inline
def absorb_with(state, w, gate, weight, noise, sound, error):
    """Absorb the row w (d + m,), which is destroyed, given its noise; return what is left of its
    weight.
    """
    F, D, _, _, loss = state
    if sound:
        return absorb_row(F, D, loss, w, gate, weight, error)
    return absorb_carefully(F, D, loss, w, gate, weight, noise, error)


@called
def absorb_judged(state, rows, t, factors, limits, noise, sound):
    """Absorb row t with ``factors`` = (gate > 0, weight) after :func:`take_out_parts`; return how
    many coefficients were held.
    """
    F, D, columns, tally, loss = state
    w, error, (gate, weight) = np.empty(F.shape[1]), np.empty(loss.shape[0]), factors
    load_row(w, rows[0], rows[1], t)
    absorb_with(state, w, gate, weight, noise, sound, error)
    count_squares(columns, rows[0][t], gate, weight)
    count_row(tally, gate, weight)
    if gate < 1 and needs_hold(D, columns, tally, limits):
        return hold(F, D, columns, tally, limits)
    return 0
