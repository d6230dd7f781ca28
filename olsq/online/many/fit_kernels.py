"""Numba kernels that fit all rows of each group at once, from moments with one refinement.

Rows stand in columns, X (d, N) and y (N,), a group's own side by side: group i has rows
``begins[i]`` to ``ends[i]``.  Coefficients have the intercept's first where there is one.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel

BLOCK = 512  # rows whose residuals are held at a time
# Part of a regressor's squares that the ones before it must leave unexplained.  Moments lose as
# many digits as this has, 8 of 16; the refinement brings them back.
SMALLEST_PIVOT = 1e-8
SMALLEST, LARGEST = 1e-280, 1e280  # sums of squares whose products neither underflow nor overflow


@kernel(forceinline=True)
def column_product(a, b, root, weighted):
    """Sum a times b, each times ``root`` if rows are weighted."""
    total = 0.0
    if weighted:
        for t in range(a.shape[0]):
            total += (root[t] * a[t]) * (root[t] * b[t])
    else:
        for t in range(a.shape[0]):
            total += a[t] * b[t]
    return total


@kernel(forceinline=True)
def fill_moments(X, y, root, weighted, first, gram, cross):
    """Fill the moments of one group's rows: gram (k, k), its lower half, and cross (k,)."""
    d, n = X.shape
    if first:
        gram[0, 0], cross[0] = float(n), 0.0
        if weighted:
            gram[0, 0] = column_product(root, root, root, False)
            for t in range(n):
                cross[0] += root[t] * (root[t] * y[t])
        else:
            for t in range(n):
                cross[0] += y[t]
        for j in range(d):
            total = 0.0
            if weighted:
                for t in range(n):
                    total += root[t] * (root[t] * X[j, t])
            else:
                for t in range(n):
                    total += X[j, t]
            gram[1 + j, 0] = total
    for j in range(d):
        for i in range(j + 1):
            gram[first + j, first + i] = column_product(X[j], X[i], root, weighted)
        cross[first + j] = column_product(X[j], y, root, weighted)


@kernel(forceinline=True)
def factor_scaled(gram, scale, L):
    """Factor ``gram = S L L^T S`` with the scales S of its columns.

    Returns whether every pivot, which is the part of a column that the ones before it do not
    explain, is large enough.
    """
    k = gram.shape[0]
    for j in range(k):
        if not (SMALLEST < gram[j, j] < LARGEST):  # also NaN
            return False
        scale[j] = math.sqrt(gram[j, j])
    for j in range(k):
        for i in range(j + 1):
            total = gram[j, i] / (scale[j] * scale[i])
            for h in range(i):
                total -= L[j, h] * L[i, h]
            if i < j:
                L[j, i] = total / L[i, i]
            elif total > SMALLEST_PIVOT:
                L[j, j] = math.sqrt(total)
            else:
                return False
    return True


@kernel(forceinline=True)
def solve_scaled(L, scale, b, x):
    """Solve ``S L L^T S x = b``."""
    k = b.shape[0]
    for j in range(k):
        total = b[j] / scale[j]
        for h in range(j):
            total -= L[j, h] * x[h]
        x[j] = total / L[j, j]
    for j in range(k - 1, -1, -1):
        total = x[j]
        for h in range(j + 1, k):
            total -= L[h, j] * x[h]
        x[j] = total / L[j, j]
    for j in range(k):
        x[j] /= scale[j]


@kernel(forceinline=True)
def predict_rows(X, coef, first, start, out):
    """Predict the rows from ``start`` on into ``out``."""
    n = out.shape[0]
    for t in range(n):
        out[t] = coef[0] if first else 0.0
    for j in range(X.shape[0]):
        slope, column = coef[first + j], X[j, start : start + n]
        for t in range(n):
            out[t] += slope * column[t]


@kernel()
def fit_groups(
    X, y, root, begins, ends, ridge, intercept, begin, end, coef, variance, squares, solved
):
    """Fit groups begin..end: coef and variance (groups, k), squares and solved (groups,).

    ``root`` (N,) holds the square roots of the weights, or (0,) where all are 1.  ``variance``
    receives the diagonal of the inverse of the moments, ``squares`` the weighted squares of the
    residuals.  A group that moments do not determine to full precision is left unsolved.
    """
    d, N = X.shape
    first = 1 if intercept else 0
    k = first + d
    weighted = root.shape[0] > 0
    if y.shape[0] != N or (weighted and root.shape[0] != N) or ridge.shape[0] != k:
        raise ValueError("the shapes of rows, weights and ridge do not fit")
    groups = begins.shape[0]
    if (
        ends.shape[0] != groups
        or coef.shape != (groups, k)
        or variance.shape != (groups, k)
        or squares.shape[0] != groups
        or solved.shape[0] != groups
        or end > groups
        or begin < 0
    ):
        raise ValueError("the shapes of the results do not fit the groups")
    gram, L = np.zeros((k, k)), np.zeros((k, k))
    cross, scale, step, unit = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    fitted = np.empty(BLOCK)
    for g in range(begin, end):
        start, stop = begins[g], ends[g]
        solved[g] = False
        if not 0 <= start < stop <= N:
            continue
        own_root = root[start:stop] if weighted else root
        own_y = y[start:stop]
        fill_moments(X[:, start:stop], own_y, own_root, weighted, first, gram, cross)
        for j in range(k):
            gram[j, j] += ridge[j]
        size = column_product(own_y, own_y, own_root, weighted)
        if not (SMALLEST < size < LARGEST) or not factor_scaled(gram, scale, L):
            continue
        theta = coef[g]
        solve_scaled(L, scale, cross, theta)
        # One refinement: the gradient of the squares, from residuals.
        for j in range(k):
            cross[j] = -ridge[j] * theta[j]
        total = 0.0
        for at in range(start, stop, BLOCK):
            n = min(BLOCK, stop - at)
            left = fitted[:n]
            predict_rows(X, theta, first, at, left)
            for t in range(n):
                left[t] = y[at + t] - left[t]
                if weighted:
                    left[t] *= root[at + t]
                total += left[t] * left[t]
            if weighted:
                for t in range(n):
                    left[t] *= root[at + t]
            if first:
                for t in range(n):
                    cross[0] += left[t]
            for j in range(d):
                cross[first + j] += column_product(X[j, at : at + n], left, root, False)
        solve_scaled(L, scale, cross, step)
        for j in range(k):
            # The squares and the penalty together fall by step . gradient.
            total -= step[j] * cross[j]
            total += ridge[j] * theta[j] ** 2
            theta[j] += step[j]
            total -= ridge[j] * theta[j] ** 2
        squares[g] = max(total, 0.0)
        for j in range(k):
            for i in range(k):
                unit[i] = 1.0 if i == j else 0.0
            solve_scaled(L, scale, unit, step)
            variance[g, j] = step[j]
        solved[g] = True


@kernel()
def predict_groups(X, begins, ends, coef, intercept, begin, end, out):
    """Predict the rows of groups begin..end by their own coefficients; NaN where not finite."""
    first = 1 if intercept else 0
    d, N = X.shape
    if out.shape[0] != N or coef.shape != (begins.shape[0], first + d) or begin < 0:
        raise ValueError("the shapes of rows and coefficients do not fit")
    if ends.shape[0] != begins.shape[0] or end > begins.shape[0]:
        raise ValueError("begins and ends do not fit")
    for g in range(begin, end):
        start, stop = begins[g], ends[g]
        if not 0 <= start <= stop <= N:
            raise ValueError("a group is outside of the rows")
        for at in range(start, stop, BLOCK):
            part = out[at : min(at + BLOCK, stop)]
            predict_rows(X, coef[g], first, at, part)
            for t in range(part.shape[0]):
                if not math.isfinite(part[t]):
                    part[t] = math.nan
