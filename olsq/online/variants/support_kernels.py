"""The elastic net of :mod:`olsq.online.variants.coordinate_descent`, compiled, for what is usual.

Supports whose columns depend on each other nearly are left to the general method: kernels say so
with a gap of -1.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import WEIGHT, noise_level
from olsq.online.forms.minimum_norm import clean_dependent_columns
from olsq.online.variants.coordinate_descent import SWEEPS, descend
from olsq.online.variants.steps import (
    ABSORBED,
    DONE,
    WAITING,
    fill,
    fill_root,
    learn_row,
    norm,
    triangularise,
)

EPS = float(np.finfo(np.float64).eps)


@kernel(forceinline=True)
def over_signs(R, z, l1, l2, x, present, W, u):
    """Minimise as ``minimum_over_signs``, in place; False where the support's columns are
    dependent.

    W (2 d, d + 1) is scratch.
    """
    d = R.shape[0]
    support, goal, pull = np.empty(d, np.int64), np.empty(d), np.empty(d)
    for _ in range(d + 1):
        k = 0
        for j in range(d):
            if (l1[j] > 0 and x[j] != 0) or (l1[j] == 0 and present[j]):
                support[k] = j
                k += 1
        if k == 0:
            return True
        rows = W[: d + k, : k + 1]
        for c in range(k):
            j = support[c]
            for i in range(d):
                rows[i, c] = R[i, j]
            for i in range(k):
                rows[d + i, c] = math.sqrt(l2[j]) if i == c else 0.0
        for i in range(d):
            rows[i, k] = z[i]
        for i in range(k):
            rows[d + i, k] = 0.0
        if not triangularise(rows, k, 8 * (d + k) * EPS, u):
            return False
        for i in range(k):
            j = support[i]
            total = l1[j] if x[j] > 0 else -l1[j] if x[j] < 0 else 0.0
            for r in range(i):
                total -= rows[r, i] * pull[r]
            pull[i] = total / rows[i, i]
        for i in range(k - 1, -1, -1):
            total = rows[i, k] - pull[i]
            for r in range(i + 1, k):
                total -= rows[i, r] * goal[r]
            goal[i] = total / rows[i, i]
        share, stop = 1.0, -1
        for i in range(k):
            old, new = x[support[i]], goal[i]
            if l1[support[i]] > 0 and (new <= 0 if old > 0 else new >= 0):
                part = old / (old - new)
                if stop < 0 or part < share:
                    share, stop = part, i
        for i in range(k):
            j = support[i]
            x[j] = goal[i] if stop < 0 else x[j] + share * (goal[i] - x[j])
        if stop < 0:
            return True
        x[support[stop]] = 0.0
    return False


@kernel(forceinline=True)
def gap_of(R, z, l1, l2, x, rest):
    """Compute ``duality_gap``; ``rest`` (d,) receives the residual."""
    d = R.shape[0]
    squares, penalty, inner = 0.0, 0.0, 0.0
    for i in range(d):
        rest[i] = z[i]
        for j in range(i, d):
            rest[i] -= R[i, j] * x[j]
        squares += rest[i] * rest[i]
        inner += rest[i] * z[i]
    worst = 1.0
    for j in range(d):
        slope = -l2[j] * x[j]
        for i in range(j + 1):
            slope += R[i, j] * rest[i]
        if l1[j] > 0:
            worst = max(worst, abs(slope) / l1[j])
        squares += l2[j] * x[j] * x[j]
        penalty += l1[j] * abs(x[j])
    share = 1.0 / worst
    return max(0.5 * (1.0 + share * share) * squares + penalty - share * inner, 0.0)


@kernel()
def settle(R, z, l1, l2, x, max_sweeps):
    """Find the minimiser from x, into x; return its duality gap (-1: not ordinary) and the sweeps.

    R (d, d) is upper triangular, l1 (d,) and l2 (d,) the penalties.
    """
    d = R.shape[0]
    if R.shape != (d, d) or z.shape != (d,) or x.shape != (d,):
        raise ValueError("the shapes of the factor and the coefficients do not fit together")
    if l1.shape != (d,) or l2.shape != (d,):
        raise ValueError("the penalties do not have the shape of the coefficients")
    length, rows, y = np.empty(d), np.zeros((d, d)), np.empty(d)
    first, second, present = np.empty(d), np.empty(d), np.empty(d, np.bool_)
    W, u, rest = np.empty((2 * d, d + 1)), np.empty(d + 1), np.empty(d)
    for j in range(d):
        length[j] = norm(R[: j + 1, j])
        present[j] = length[j] > 0
        if not present[j]:
            length[j] = 1.0
        for i in range(j + 1):
            rows[i, j] = R[i, j] / length[j]
        first[j], second[j] = l1[j] / length[j], l2[j] / length[j] / length[j]
        y[j] = x[j] * length[j] if present[j] else 0.0
    rounding, sweeps = 64 * d * EPS * norm(z), 0
    gram, cross = np.empty((0, d)), np.empty(0)
    while True:
        if not over_signs(rows, z, first, second, y, present, W, u):
            return -1.0, sweeps
        gap = gap_of(rows, z, first, second, y, rest)
        optimal = True
        for j in range(d):
            if y[j] == 0:
                slope = 0.0
                for i in range(j + 1):
                    slope += rows[i, j] * rest[i]
                optimal = optimal and abs(slope) <= first[j] + rounding
        if optimal or sweeps >= max_sweeps:
            for j in range(d):
                x[j] = y[j] / length[j]
            return gap, sweeps
        if gram.shape[0] == 0:
            gram, cross = rows.T @ rows, rows.T @ z
        count = min(SWEEPS, max_sweeps - sweeps)
        descend(gram, cross, first, second, y, count)
        sweeps += count


@kernel(makes_arrays=True)
def walk(state, rows, start, limits, residual, problem, out):
    """Learn rows from ``start`` on and solve after each; return (how it ended, row, times held).

    ``problem`` = (l1, l2, standardize, tol, max_sweeps, first, slopes): ``slopes`` (m, d) are the
    last solution, and the next; ``out`` (n, m, k) takes all of them, with the intercept's first if
    ``first`` is 1.  Penalties are per unit of weight.
    """
    F, D, _, tally, loss = state[0]
    l1, l2, standardize, tol, max_sweeps, first, slopes = problem
    n, k, m, d = rows[0].shape[0], D.shape[0], loss.shape[0], D.shape[0] - first
    R, z = np.empty((k, k)), np.empty((m, k))
    if slopes.shape != (m, d) or out.shape != (n, m, k):
        raise ValueError("the shapes of the solutions and the state do not fit together")
    size, square, held = np.empty(d), np.empty(d), 0
    for t in range(start, n):
        learned, count = learn_row(state, rows, t, limits, residual)
        held += count
        if not learned:
            return WAITING, t, held
        fill_root(F, D, R, z)
        weight = tally[WEIGHT]
        clean_dependent_columns(R, noise_level(limits, k, tally))
        own = np.ascontiguousarray(R[first:, first:])
        for j in range(d):
            unit = 1.0
            if standardize:
                unit = norm(own[: j + 1, j]) / math.sqrt(weight)
            size[j], square[j] = weight * l1 * unit, weight * l2 * unit * unit
        for r in range(m):
            target = np.ascontiguousarray(z[r, first:])
            length = norm(target)
            if not (weight > 0 and length > 0):
                return ABSORBED, t, held
            gap, _ = settle(own, target, size, square, slopes[r], max_sweeps)
            if gap < 0 or gap > max(tol, 64 * d * EPS) * (length * length + loss[r]):
                return ABSORBED, t, held
        fill(R, z, slopes, first, out[t])
    return DONE, n, held
