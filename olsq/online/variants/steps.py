"""Helpers of the compiled solutions: norms, small triangles, and how a walk over rows ends."""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.linalg.numpy.rotations import LARGE, SMALL
from olsq.online.forms.counting import absorb_squares
from olsq.online.forms.edges import check_spread
from olsq.online.forms.factor.careful import learn_carefully
from olsq.online.forms.factor.counters import row_is_sound
from olsq.online.forms.factor.edges import check_call
from olsq.online.forms.factor.learning import absorb_sound_row

# A walk learned and solved all rows; it waits before a row that a kernel does not learn; it learned
# a row whose solution is left to the estimator.
DONE, WAITING, ABSORBED = 0, 1, 2


@kernel(forceinline=True, makes_arrays=True)
def learn_row(state, rows, t, limits, errors):
    """Learn row t; return whether it was learned, and how many coefficients were held.

    ``state`` = (F, D, columns, tally, loss), spread, and whether there is an intercept.
    """
    own, spread, intercept = state
    check_call(own, rows, (t, t + 1), errors)
    check_spread(spread, own[1].shape[0], False)
    X, _, gates, weights = rows
    if row_is_sound(own[1], own[2], X[t], gates[t], weights[t], limits, own[3]):
        absorb_sound_row(own, rows, t, np.empty(own[0].shape[1]), errors)
        absorb_squares(spread, X, gates, weights, t, t + 1)
        return True, 0
    end, held, _ = learn_carefully(own, spread, rows, (t, t + 1), limits, intercept, errors)
    return end > t, held


@kernel(forceinline=True)
def fill_root(F, D, R, z):
    """Write the triangular factor ``R = D^1/2 U`` (d, d) and ``z = R theta`` (m, d) of a state."""
    d = D.shape[0]
    for i in range(d):
        root = math.sqrt(D[i])
        for k in range(d):
            R[i, k] = root * F[i, k]
        for q in range(z.shape[0]):
            z[q, i] = root * F[i, d + q]


@kernel(forceinline=True)
def norm(x):
    """Compute ``|x|``, scaled where squares would leave the range."""
    largest = 0.0
    for i in range(x.shape[0]):
        largest = max(largest, abs(x[i]))
    if largest == 0:
        return 0.0
    scale = 1.0 if SMALL < largest < LARGE else 1.0 / largest
    total = 0.0
    for i in range(x.shape[0]):
        total += (scale * x[i]) * (scale * x[i])
    return math.sqrt(total) / scale


@kernel(forceinline=True)
def reflect(W, j, u):
    """Reflect the rows of W from row j on until column j has its length in that row and no others.

    Householder's reflection (Golub & Van Loan 2013, 5.1), of columns of moderate length, whose
    squares need no scaling.  u is scratch, as long as a row.
    """
    n, columns = W.shape
    pivot, square = W[j, j], 0.0
    for i in range(j + 1, n):
        square += W[i, j] * W[i, j]
    if square > 0:
        length = -math.copysign(math.sqrt(pivot * pivot + square), pivot)
        lead = pivot - length
        share = -1.0 / (length * lead)
        for c in range(j + 1, columns):
            u[c] = lead * W[j, c]
        for i in range(j + 1, n):
            for c in range(j + 1, columns):
                u[c] += W[i, j] * W[i, c]
        for c in range(j + 1, columns):
            u[c] *= share
            W[j, c] -= lead * u[c]
        for i in range(j + 1, n):
            for c in range(j + 1, columns):
                W[i, c] -= W[i, j] * u[c]
            W[i, j] = 0.0
        W[j, j] = length


@kernel(forceinline=True)
def triangularise(W, pivots, least, u):
    """Reflect the rows of W until its first columns are triangular; False where a pivot <= least.

    u is scratch, as long as a row.
    """
    for j in range(min(pivots, W.shape[0])):
        reflect(W, j, u)
        if abs(W[j, j]) <= least:
            return False
    return pivots <= W.shape[0]


@kernel(forceinline=True)
def fill(R, z, slopes, first, out):
    """Write the coefficients (m, k) of slopes (m, d), with the intercept that belongs to them."""
    for target in range(z.shape[0]):
        if first:
            rest = z[target, 0]
            for j in range(slopes.shape[1]):
                rest -= R[0, j + 1] * slopes[target, j]
            out[target, 0] = rest / R[0, 0] if R[0, 0] != 0 else 0.0
        for j in range(slopes.shape[1]):
            out[target, first + j] = slopes[target, j]
