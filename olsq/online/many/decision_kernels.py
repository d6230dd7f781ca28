"""Numba kernels of a bandit's turn: predict a context for every arm, and learn a row of one arm.

The arms are the filters of a bank; state arrays have the filters first.  Filters in square-root
form are left to the caller.  :mod:`olsq.online.many.kernels` learns many rows at once.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms import covariance_kernels
from olsq.online.forms.covariance_kernels import COVARIANCE, IN_FORM

LANES = 64  # filters factored together: what pays for the compiler's checks of overlapping arrays
SMALLEST, LARGEST = 1e-150, 1e150  # products of entries between these neither vanish nor overflow


@kernel()
def learn_one(state, f, x, y, gates, settings, prediction, residual):
    """Absorb a row x (d,), y (m,) of weight 1 in filter f; False if it has to go the general way.

    ``settings`` = (intercept, settled, limits).  Left to the general way is a row whose squares are
    not within ``settled``, as a non-finite row's are not; one that the covariance form must not
    take; and any row while one of ``gates``, (n,) or (1,) for all filters, is outside of [0, 1].
    ``state`` = (forms, matrix, coefs, columns, tally, loss, clock,
    seen, logs); ``prediction`` and ``residual`` (m,) receive what was predicted, and its error.
    """
    forms, matrix, coefs, columns, tally, loss, clock, seen, logs = state
    intercept, settled, limits = settings
    n = coefs.shape[0]
    if (
        forms.shape != (n,)
        or matrix.shape[0] != n
        or columns.shape[0] != n
        or tally.shape[0] != n
        or loss.shape[0] != n
        or clock.shape != (n, 3)
        or seen.shape != (n,)
        or logs.shape != (n,)
        or (gates.shape != (n,) and gates.shape != (1,))
        or not 0 <= f < n
    ):
        raise ValueError("the arrays of a bank do not have shapes that fit together")
    outside = 0
    for gate in gates:
        outside += 0 if (gate >= 0) & (gate <= 1) else 1
    if outside > 0 or forms[f] != COVARIANCE:
        return False
    gate = gates[f if gates.shape[0] == n else 0]
    form = matrix[f], coefs[f], columns[f], tally[f], loss[f]
    row_settings = gate, intercept, settled
    if not covariance_kernels.take_row(form, x, y, row_settings, limits, residual, prediction):
        return False
    clock[f, IN_FORM] += 1
    seen[f] += 1
    logs[f] *= gate
    return True


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
                total = covariance_kernels.predicted(coefs[target], x, intercept)
                out[s, target] = total if finite else math.nan


@kernel()
def leverage(forms, matrix, filters, X, intercept, begin, end, out):
    """Compute ``x P x`` of every row into out (N,), for filters in covariance form.

    Rows as in :func:`predict`.
    """
    k, first, b = matrix.shape[1], 1 if intercept else 0, max(filters.shape[0], 1)
    each = out.shape[0] // b
    shared = X.shape[0] == 1
    if (
        X.shape[1] + first != k
        or out.shape != (b * each,)
        or not (shared or X.shape[0] == out.shape[0])
    ):
        raise ValueError("the shapes of rows and leverages do not fit the bank")
    x, u, outer = np.ones(k), np.empty(k), np.empty(k * k)
    every = matrix.reshape(matrix.shape[0], k * k)
    finite, safe, ready = True, True, False
    for i in range(begin, end):
        if forms[filters[i]] != COVARIANCE:
            continue
        P, flat = matrix[filters[i]], every[filters[i]]
        for s in range(i * each, (i + 1) * each):
            if not (ready and shared):
                finite, safe, ready = True, True, True
                for j in range(k - first):
                    x[first + j] = X[0 if shared else s, j]
                    size = abs(x[first + j])
                    finite = finite and size < math.inf
                    safe = safe and (size == 0 or (size > SMALLEST and size < LARGEST))
                for a in range(k):
                    for b_ in range(k):
                        outer[a * k + b_] = x[a] * x[b_]
            total = 0.0
            if safe:  # one long sum of products
                for a in range(k * k):
                    total += flat[a] * outer[a]
            else:
                for a in range(k):
                    u[a] = 0.0
                    for b_ in range(k):
                        u[a] += P[a, b_] * x[b_]
                for a in range(k):
                    total += u[a] * x[a]
            out[s] = total if finite else math.nan


@kernel()
def draw(forms, matrix, filters, theta, scale, u, begin, end, out):
    """Draw ``theta + scale L u`` into out (size, b, m, k), for filters in covariance form.

    ``L L^T`` is the filter's P, factorised for ``LANES`` filters at a time.
    theta (b, m, k), scale (b, m) and standard normal u (size, b, m, k).  NaN where P is not
    positive definite.
    """
    size_, b, m, k = out.shape
    if (
        theta.shape != (b, m, k)
        or scale.shape != (b, m)
        or u.shape != out.shape
        or filters.shape != (b,)
        or matrix.shape[1:] != (k, k)
    ):
        raise ValueError("the shapes of draws and coefficients do not fit the bank")
    L, rest = np.zeros((k, k, LANES)), np.zeros((k, LANES))
    column = np.empty((k, LANES))
    pivot, lanes = np.empty(LANES), np.empty(LANES, np.int64)
    for start in range(begin, end, LANES):
        for w in range(LANES):
            lanes[w] = min(start + w, end - 1)
            P = matrix[filters[lanes[w]]]
            for c in range(k):
                for j in range(c, k):
                    L[c, j, w] = P[c, j]
        for c in range(k):
            for w in range(LANES):
                size = L[c, c, w]
                pivot[w] = 1.0 / math.sqrt(size) if size > 0 else math.nan
            for j in range(c, k):
                for w in range(LANES):
                    column[j, w] = L[c, j, w] * pivot[w]
                    L[c, j, w] = column[j, w]
            for r in range(c + 1, k):
                factor, target_row = column[r], L[r]
                for j in range(r, k):
                    for w in range(LANES):
                        target_row[j, w] -= factor[w] * column[j, w]
        for s in range(size_):
            for target in range(m):
                for j in range(k):
                    for w in range(LANES):
                        rest[j, w] = 0.0
                for c in range(k):
                    for w in range(LANES):
                        pivot[w] = u[s, lanes[w], target, c]
                    for j in range(c, k):
                        for w in range(LANES):
                            rest[j, w] += pivot[w] * L[c, j, w]
                for w in range(min(LANES, end - start)):
                    i = start + w
                    if forms[filters[i]] == COVARIANCE:
                        for j in range(k):
                            part = scale[i, target] * rest[j, w]
                            out[s, i, target, j] = theta[i, target, j] + part
