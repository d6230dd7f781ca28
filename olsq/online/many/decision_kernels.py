"""Numba kernels of a bandit's turn: predict a context for every arm, and learn a row of one arm.

The arms are the filters of a bank; state arrays have the filters first.
:mod:`olsq.online.many.kernels` learns many rows at once.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import DECAY, noise_level
from olsq.online.forms.factor import one_row
from olsq.online.forms.factor.counters import hide_held
from olsq.online.forms.factor.path import is_determined
from olsq.online.forms.factor.solving import variances
from olsq.online.paths.goodness_kernels import value_after


@kernel(makes_arrays=True)
def learn_one(state, f, x, y, gates, settings, prediction, residual):
    """Absorb a row x (d,), y (m,) of weight 1 in filter f; False if it has to go the general way.

    ``settings`` = (intercept, settled, limits).  Left to the general way is a row whose squares are
    not within ``settled``, as a non-finite row's are not; one that needs care; and any row while
    one of ``gates``, (n,) or (1,) for all filters, is outside of [0, 1].  ``state`` = (factor,
    pivots, columns, tally, loss, seen, logs, values); ``prediction`` and ``residual`` (m,) receive
    what was predicted, and its error.
    """
    factor, pivots, columns, tally, loss, seen, logs, values = state
    intercept, settled, limits = settings
    n, m = loss.shape
    if (
        factor.shape[0] != n
        or pivots.shape[0] != n
        or columns.shape[0] != n
        or tally.shape[0] != n
        or seen.shape != (n,)
        or logs.shape != (n,)
        or values.shape not in ((n, 0), (n, x.shape[0]))
        or (gates.shape != (n,) and gates.shape != (1,))
        or residual.shape != (m,)
        or not 0 <= f < n
    ):
        raise ValueError("the arrays of a bank do not have shapes that fit together")
    outside = 0
    for gate in gates:
        outside += 0 if (gate >= 0) & (gate <= 1) else 1
    if outside > 0:
        return False
    gate = gates[f if gates.shape[0] == n else 0]
    form, errors = (factor[f], pivots[f], columns[f], tally[f], loss[f]), residual.reshape(1, m)
    row = x.reshape(1, x.shape[0])
    row_settings = gate, 1.0, intercept, settled
    if not one_row.learn_one((form, None), row, y, row_settings, limits, errors, prediction):
        return False
    seen[f] += 1
    logs[f] *= gate
    for k in range(values.shape[1]):
        values[f, k] = value_after(values[f, k], x[k])
    return True


@kernel(forceinline=True)
def predicted(coefs, x, intercept):
    """Compute ``x . coef``, with the intercept first among the coefficients where there is one."""
    first = 1 if intercept else 0
    total = coefs[0] if intercept else 0.0
    for j in range(x.shape[0]):
        total += coefs[first + j] * x[j]
    return total


@kernel()
def predict(theta, filters, X, intercept, begin, end, out):
    """Predict every row into out (N, m), ``x . coef + intercept``; NaN where x has a missing value.

    theta (n, m, k) has the coefficients of all filters, of which ``filters`` (b,) are asked: entry
    i about as many rows of X (N, d) as the others, one entry's after the other's, or all entries
    about the one row of X (1, d).
    """
    m, k = theta.shape[1], theta.shape[2]
    first, b = 1 if intercept else 0, max(filters.shape[0], 1)
    each = out.shape[0] // b
    shared = X.shape[0] == 1
    if (
        X.shape[1] + first != k
        or out.shape != (b * each, m)
        or not (shared or X.shape[0] == out.shape[0])
    ):
        raise ValueError("the shapes of rows and predictions do not fit the coefficients")
    finite, ready = True, False
    for i in range(begin, end):
        coefs = theta[filters[i]]
        for s in range(i * each, (i + 1) * each):
            x = X[0 if shared else s]
            if not (ready and shared):  # a context that all share is looked at once
                finite, ready = True, True
                for j in range(k - first):
                    finite = finite and math.isfinite(x[j])
            for target in range(m):
                total = predicted(coefs[target], x, intercept)
                out[s, target] = total if finite else math.nan


@kernel()
def leverage(bank, filters, limits, X, intercept, out):
    """Compute ``x P x`` of every row into out (N,), of filters whose coefficients are determined.

    ``bank`` = (factor, pivots, columns, tally) of all filters.  Rows as in :func:`predict`.  inf
    along a coefficient that wind-up protection holds.
    """
    factor, pivots, columns, tally = bank
    n, k = pivots.shape
    first, b = 1 if intercept else 0, max(filters.shape[0], 1)
    each = out.shape[0] // b
    shared = X.shape[0] == 1
    if (
        X.shape[1] + first != k
        or out.shape != (b * each,)
        or not (shared or X.shape[0] == out.shape[0])
        or factor.shape[:2] != (n, k)
        or factor.shape[2] < k
        or columns.shape != (n, 2, k)
        or tally.shape != (n, 4)
    ):
        raise ValueError("the shapes of rows and leverages do not fit the bank")
    x, w = np.ones(k), np.empty(k)
    for i in range(filters.shape[0]):
        if not 0 <= filters[i] < n:
            raise ValueError("a filter is outside of the bank")
        if not is_determined(pivots[filters[i]]):
            continue
        F, D, lengths, counts = (
            factor[filters[i]],
            pivots[filters[i]],
            columns[filters[i]],
            tally[filters[i]],
        )
        forgets, pin = counts[DECAY] < 1, 40 * noise_level(limits, k, counts)
        for s in range(i * each, (i + 1) * each):
            finite, faint, alone, total = True, False, 0.0, 0.0
            for j in range(k - first):
                x[first + j] = X[0 if shared else s, j]
                finite = finite and math.isfinite(x[first + j])
            for j in range(k):
                w[j] = x[j]
                if forgets and x[j] != 0:
                    alone += x[j] / lengths[0, j] * x[j]
                    faint = faint or lengths[0, j] < 100 * limits[1] * lengths[1, j]
            for j in range(k):
                p = w[j]
                total += p / D[j] * p
                for c in range(j + 1, k):
                    w[c] -= p * F[j, c]
            if forgets and (faint or not total * pin * pin <= alone):
                total = math.inf
            out[s] = total if finite else math.nan


@kernel(makes_arrays=True)
def draw(bank, filters, limits, theta, scale, u, out):
    """Draw ``theta + scale U^-1 D^-1/2 u`` into out (size, b, m, k), where that is determined.

    ``bank`` as in :func:`leverage`; theta (b, m, k), scale (b, m) and standard normal u (size, b,
    m, k).  NaN where wind-up protection holds a coefficient.
    """
    factor, pivots, columns, tally = bank
    size, b, m, k = out.shape
    n = pivots.shape[0]
    if (
        theta.shape != (b, m, k)
        or scale.shape != (b, m)
        or u.shape != out.shape
        or filters.shape != (b,)
        or factor.shape != (n, k, k + m)
        or pivots.shape[1] != k
        or columns.shape != (n, 2, k)
        or tally.shape != (n, 4)
    ):
        raise ValueError("the shapes of draws and coefficients do not fit the bank")
    root, v = np.empty(k), np.empty(k)
    variance, inverse = np.empty(k), np.empty((k, k))
    for i in range(b):
        f = filters[i]
        if not 0 <= f < n:
            raise ValueError("a filter is outside of the bank")
        if not is_determined(pivots[f]):
            continue
        F, unknown = factor[f], 0
        if tally[f, DECAY] < 1:
            variances(F, pivots[f], inverse, variance)
            hide_held(variance, columns[f], limits, tally[f])
            for j in range(k):
                unknown += 0 if math.isfinite(variance[j]) else 1
        for j in range(k):
            root[j] = 1.0 / math.sqrt(pivots[f, j]) if unknown == 0 else math.nan
        for s in range(size):
            for target in range(m):
                for j in range(k - 1, -1, -1):
                    total = root[j] * u[s, i, target, j]
                    for c in range(j + 1, k):
                        total -= F[j, c] * v[c]
                    v[j] = total
                    out[s, i, target, j] = theta[i, target, j] + scale[i, target] * total
