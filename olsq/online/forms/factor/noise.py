"""Rounding noise of a row: which parts of it say nothing, and how it is absorbed without them."""

from __future__ import annotations

import math

import numpy as np

from olsq.online.forms.factor.kernels import (
    called,
    clear_row,
    inner_product,
    subtract_row,
    update_pivot,
    update_row,
    write_errors,
)
from olsq.online.forms.factor.limits import SMALLEST_NOISE


@called
def carried_noise(F, D, squares, noise, level, j):
    """Return the noise of column j at a zero pivot, with what it takes over from columns before.

    Column j is ``sum_i u_i`` times column i: of x_j remains ``x_j - sum_i u_i x_i``, and column j
    has the errors of those, however short it is itself.  ``level`` is the tolerance times the
    root of the row's leverage so far.
    """
    u, variance = np.zeros(j), noise[j] ** 2
    for i in range(j - 1, -1, -1):
        if D[i] > 0:
            rest = F[i, j] - inner_product(F, i, u, i, j)
            u[i] = rest
            variance += (rest * noise[i]) ** 2 + (level * rest) ** 2 * squares[i]
    return math.sqrt(variance)


@called
def find_noise(F, D, squares, w, gate, tolerance, noise):
    """Fill ``noise`` (d,) with the size below which p_j is rounding error; return a new direction.

    What rounding leaves of x_j, once the columns before it are taken out, is in proportion to x_j
    and to what was taken out: ``tolerance (|x_j| + sqrt(sum_{i<j} p_i^2 / D_i squares_j))``.  At a
    pivot of 0 also the errors of the columns that column j is made of count.  Returns the first
    pivot of 0 whose p is above its noise, a direction that no row had before, or -1.  ``w`` is the
    row (d + m,), of which the errors by what is known are left; ``noise`` comes with the row's
    |x_j|.

    A new direction takes all of a row's weight: after it no noise decides anything, and what
    columns take over, at a cost of O(d^2) each, is not asked for.
    """
    d, leverage, new = D.shape[0], 0.0, -1
    for j in range(d):
        p = w[j]
        level = tolerance * math.sqrt(gate * leverage)
        noise[j] = tolerance * noise[j] + level * math.sqrt(squares[j]) + SMALLEST_NOISE
        if D[j] == 0 and new < 0 and abs(p) > noise[j]:
            noise[j] = carried_noise(F, D, squares, noise, level, j)
        if abs(p) <= noise[j]:
            continue
        if D[j] == 0:
            new = j if new < 0 else new
            continue
        leverage += p * p / (gate * D[j])
        subtract_row(F, w, j, p, j)
    return new


@called
def absorb_carefully(F, D, loss, w, gate, weight, noise, error):
    """Do :func:`absorb_row` with every p that is not above its noise taken for 0."""
    left, d = weight, D.shape[0]
    for j in range(d):
        p = w[j] if abs(w[j]) > noise[j] else 0.0
        g, left, share = update_pivot(D, j, gate, left, p)
        if p != 0:
            update_row(F, w, j, p, g, share)
        w[j] = 0.0
        if D[j] == 0:  # unknown, or forgotten altogether
            clear_row(F, j)
    write_errors(w, loss, gate, left, error)
    return left
