"""Numba kernels of robust least squares, which weights rows as they pass."""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import COUNT, DECAY, WEIGHT, noise_level
from olsq.online.forms.edges import check_gates
from olsq.online.forms.factor.edges import check_call
from olsq.online.forms.factor.judging import absorb_judged, take_out_parts
from olsq.online.variants.steps import norm

HUBER, STUDENT = 0, 1
FEWEST = 8  # residuals below which there is no scale
REJECTED = 0.25  # a row of less weight is rejected: normal noise has one in 1e7 of them
MOST_RISE = 4.0  # times the median, beyond which residuals of rejected rows are cut off


@kernel(forceinline=True)
def scales_of(recent, count, quartile, out):
    """Write the scale of each target, from the first ``count`` residuals (n, m), into out (m,).

    It is the median of the absolute residuals over ``quartile``.
    """
    sizes, middle = np.empty(count), count // 2
    for target in range(recent.shape[1]):
        for i in range(count):
            sizes[i] = abs(recent[i, target])
        median = smallest(sizes, middle)
        if count % 2 == 0:
            lower = 0.0
            for i in range(middle):
                lower = max(lower, sizes[i])
            median = (lower + median) / 2
        out[target] = median / quartile


# np.median and np.sort take two seconds to compile.
@kernel(called=True)
def smallest(values, k):
    """Return entry k of the sorted values; none before it is larger then (Hoare's selection)."""
    low, high = 0, values.shape[0] - 1
    while low < high:
        pivot, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return values[k]


@kernel(forceinline=True)
def expect(state, rows, t, limits, scratch, errors):
    """Compute :func:`take_out_parts`, with the parts over the roots of the pivots: ``R^-T x``."""
    noise, p = scratch
    predicted, _, sound = take_out_parts(state, rows, t, limits, noise, p, errors)
    for j in range(p.shape[0]):
        if p[j] != 0:
            p[j] /= math.sqrt(state[1][j])
    return predicted, sound


@kernel(forceinline=True)
def ridge_alone(F, D, p, length, left):
    """Test whether most of what is known along ``P x`` is the ridge; ``p = R^-T x``, its length.

    With ``v = P x = R^-1 p`` the information along v is ``v . R^T R v = |p|^2``, of which
    ``left . v^2`` is what forgetting has left of the ridge (k,).
    """
    d = D.shape[0]
    v = np.empty(d)
    share = 0.0
    for i in range(d - 1, -1, -1):
        v[i] = 0.0
        if D[i] > 0:
            total = p[i] / length / math.sqrt(D[i])
            for k in range(i + 1, d):
                total -= F[i, k] * v[k]
            v[i] = total
        part = math.sqrt(left[i]) * v[i]
        share += part * part
    return share > 0.5


@kernel(makes_arrays=True)
def slope_lengths(state, rows, limits, first, out):
    """Fill out (n,) with the lengths of ``R^-T x`` of all rows, without the intercept's part."""
    check_call(state, rows, (0, rows[0].shape[0]), rows[1])
    d, m = state[1].shape[0], state[4].shape[0]
    scratch, errors = (np.empty(d), np.empty(d)), np.empty(m)
    check_gates(out, rows[0].shape[0])
    if not 0 <= first <= d:
        raise ValueError("the number of intercepts does not fit the shape of the state")
    for t in range(rows[0].shape[0]):
        expect(state, rows, t, limits, scratch, errors)
        out[t] = norm(scratch[1][first:])


@kernel(forceinline=True)
def remember(recent, recent_at, standard):
    """Put standardised residuals (m,) into the ring, in the place of the oldest ones."""
    window, place = recent.shape[0], recent_at[1]
    for target in range(standard.shape[0]):
        recent[place, target] = standard[target]
    recent_at[0] = min(recent_at[0] + 1, window)
    recent_at[1] = (place + 1) % window


@kernel(forceinline=True)
def weight_of(residual, scales, loss, parameter):
    """Compute the weight of a row from its standardised residuals (m,); in [0, 1 + m / dof]."""
    m = residual.shape[0]
    square = 0.0
    for target in range(m):
        if residual[target] != 0:  # not 0 / 0: a perfect fit is no outlier
            square += (residual[target] / scales[target]) ** 2
    if loss == STUDENT:
        return (parameter + m) / (parameter + square)
    size = math.sqrt(square / m)
    return 1.0 if size <= parameter else parameter / size


@kernel(makes_arrays=True)
def update(state, rows, span, limits, residual, passed, ring, rule):
    """Absorb the rows of a span, each times its weight, which goes to ``passed`` (n,).

    Returns (first row not absorbed, coefficients held), and
    stops before a reset and before a row in a direction that is new.  ``ring`` = (recent (w, m),
    (count, next place, ..), rejected (1,)) has the standardised residuals, and how many rows were
    rejected in a row.  ``rule`` = (the loss, its parameter, the quartile of the noise, the most
    rows rejected in a row, the ridge (k,) that the state began with, the number of intercepts).
    """
    check_call(state, rows, span, residual)
    F, D, _, tally, _ = state
    X, Y, gates, weights = rows
    recent, recent_at, rejected = ring
    kind, parameter, quartile, longest, ridge, first = rule
    d, m = D.shape[0], residual.shape[1]
    window = recent.shape[0]
    check_gates(passed, X.shape[0])
    if recent.shape[1] != m or recent_at.shape != (3,) or not 0 <= recent_at[0] <= window:
        raise ValueError("the ring of residuals does not fit the state")
    if rejected.shape != (1,) or not 0 <= recent_at[1] < window:
        raise ValueError("the ring of residuals does not fit the state")
    if ridge.shape != (d,) or not 0 <= first <= d:
        raise ValueError("the ring of residuals does not fit the state")
    p, x, noise = np.empty(d), np.empty(d), np.empty(d)
    scales, standard, exact = np.empty(m), np.empty(m), np.empty(m)
    held = 0
    for t in range(span[0], span[1]):
        if gates[t] == 0:
            return t, held
        predicted, sound = expect(state, rows, t, limits, (noise, p), residual[t])
        if not predicted:
            return t, held
        level = noise_level(limits, d, tally)
        # Weights have units: the leverage w x.P x is that of a row of this weight, or of the mean
        # weight so far, whichever is larger.  A light row in a new direction is new all the same.
        usual = tally[WEIGHT] / tally[COUNT] if tally[COUNT] > 0 else 0.0
        root_weight = math.sqrt(max(weights[t], usual))
        # |p|^2 is x.P x before forgetting.  The length itself does not leave the range.
        length = norm(p)
        leverage = root_weight * length / math.sqrt(gates[t])  # the root of it
        spread = math.hypot(1.0, leverage)
        fits = True
        for target in range(m):
            standard[target] = residual[t, target] / spread
            for j in range(d):
                x[j] = math.sqrt(D[j]) * F[j, d + target]
            # A residual below the rounding errors of its own computation is 0.
            exact[target] = level * (abs(Y[t, target]) + length * norm(x)) / spread
            if abs(standard[target]) <= exact[target]:
                standard[target] = 0.0
            else:
                fits = False
        if rejected[0] >= longest:  # such rows are usual by now: the scale starts again
            rejected[0] = recent_at[0] = recent_at[1] = 0
        is_rejected = False
        if recent_at[0] >= FEWEST:
            # Residuals along directions that only the ridge knows are the coefficients' own size:
            # no scale of the noise tells whether they are outliers.
            for j in range(d):
                x[j] = max(tally[DECAY], limits[1]) * ridge[j]
            if not (leverage > 1 and ridge_alone(F, D, p, length, x)):
                scales_of(recent, recent_at[0], quartile, scales)
                for target in range(m):
                    scales[target] = max(scales[target], exact[target])
                passed[t] = weight_of(standard, scales, kind, parameter)
                is_rejected = passed[t] < REJECTED
        # What a row along known slopes fits exactly says something of the noise; what a row of
        # zeros, or one like all before it, fits exactly says nothing.  Rows bring 1 per coefficient
        # of (leverage x sum of weights) on average.
        idle = fits and norm(p[first:]) * math.sqrt(tally[WEIGHT]) < 0.5
        factors = gates[t], weights[t] * passed[t]
        held += absorb_judged(state, rows, t, factors, limits, noise, sound)
        # A row that was mostly a new direction has told of its coefficient, not of the noise.  One
        # that was refused has not, and the direction is still as new: without these residuals the
        # scale would never learn that such rows are usual by now.
        told = leverage > 1 and passed[t] >= 0.5
        if weights[t] > 0 and not (told or idle):
            rejected[0] = rejected[0] + 1 if is_rejected else max(rejected[0] - 1, 0)
            for target in range(m if is_rejected else 0):
                most = MOST_RISE * quartile * scales[target]
                standard[target] = max(-most, min(standard[target], most))
            # Faults that may fill half of the ring say nothing of the scale.
            if not (is_rejected and longest > window // 2):
                remember(recent, recent_at, standard)
    return span[1], held
