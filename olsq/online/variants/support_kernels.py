"""The elastic net on a triangular factor: signs by coordinate descent, values by factorisation.

Minimises ``|R x - z|^2 / 2 + sum_j l1_j |x_j| + sum_j l2_j x_j^2 / 2``.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import WEIGHT, noise_level
from olsq.online.forms.minimum_norm import clean_dependent_columns
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
SWEEPS = 10  # between two computations of the duality gap


@kernel()
def descend(gram, cross, l1, l2, x, sweeps):
    """Run coordinate descent on ``x . gram x / 2 - cross . x`` plus the penalty, in place."""
    d = x.shape[0]
    if gram.shape != (d, d) or cross.shape != (d,) or l1.shape != (d,) or l2.shape != (d,):
        raise ValueError("the shapes of moments, penalties and coefficients do not fit together")
    rest = cross.copy()  # minus the gradient of the squares
    for i in range(d):
        if x[i] != 0:
            row = gram[i]
            for k in range(d):
                rest[k] -= x[i] * row[k]
    for _ in range(sweeps):
        for j in range(d):
            row = gram[j]
            curvature = row[j] + l2[j]
            if curvature <= 0:
                continue
            toward = rest[j] + row[j] * x[j]
            size = abs(toward) - l1[j]
            new = 0.0
            if size > 0:
                new = size / curvature if toward > 0 else -size / curvature
            change = new - x[j]
            if change != 0:
                x[j] = new
                for k in range(d):
                    rest[k] -= change * row[k]


@kernel(forceinline=True)
def way_of_dependence(T, k, least, way):
    """Write the way (k,) on which ``T x`` stays what it is; return the place of the column that
    depends on those before it, the first whose pivot is not above ``least``.
    """
    c = 0
    while abs(T[c, c]) > least:
        c += 1
    for i in range(c, k):
        way[i] = 1.0 if i == c else 0.0
    for i in range(c - 1, -1, -1):
        total = -T[i, c]
        for r in range(i + 1, c):
            total -= T[i, r] * way[r]
        way[i] = total / T[i, i]
    return c


@kernel(forceinline=True)
def over_signs(R, z, l1, l2, x, present, W, u):
    """Minimise over the points with x's signs or zeros, in place, passing no sign change.

    Where a coefficient would change its sign on the straight way there, it stays 0, and the way
    goes on from that point without it (the line search of Lee et al. 2007).  Where columns depend
    on each other the way is along their dependence, on which the squares stay what they are; one
    of them is left out where nothing is penalised.  W (2 d, d + 1) is scratch.
    """
    d = R.shape[0]
    support, goal, pull = np.empty(d, np.int64), np.empty(d), np.empty(d)
    kept = present.copy()
    for _ in range(d + 1):
        k = 0
        for j in range(d):
            if (l1[j] > 0 and x[j] != 0) or (l1[j] == 0 and kept[j]):
                support[k] = j
                k += 1
        if k == 0:
            return
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
        least = 8 * (d + k) * EPS
        if triangularise(rows, k, least, u):
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
            share = 1.0
        else:
            last, slope, share = way_of_dependence(rows, k, least, pull), 0.0, math.inf
            for i in range(k):
                j = support[i]
                slope += pull[i] * (l1[j] if x[j] > 0 else -l1[j])
            for i in range(k):
                goal[i] = x[support[i]] + (-pull[i] if slope > 0 else pull[i])
            if l1[support[last]] == 0:
                x[support[last]], kept[support[last]] = 0.0, False
                continue
        stop = -1
        for i in range(k):
            old, new = x[support[i]], goal[i]
            towards_zero = (old - new) * old > 0 if share > 1 else old * new <= 0
            if l1[support[i]] > 0 and towards_zero:
                part = old / (old - new)
                if stop < 0 or part < share:
                    share, stop = part, i
        for i in range(k):
            j = support[i]
            x[j] = goal[i] if stop < 0 else x[j] + share * (goal[i] - x[j])
        if stop < 0:
            return
        x[support[stop]] = 0.0


@kernel(forceinline=True)
def gap_of(R, z, l1, l2, x, rest):
    """Bound how far the objective at x is above its minimum; ``rest`` (d,) receives the residual.

    The dual point is the residual of the problem with ``sqrt(l2)`` as further rows, shrunk until
    it is feasible (Kim et al. 2007).
    """
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
    """Find the minimiser from x, into x; return its duality gap and the sweeps.

    R (d, d) is upper triangular, l1 (d,) and l2 (d,) the penalties.  The minimum over the signs of
    the start is tried first.  Where the optimality conditions fail, sweeps of coordinate descent
    change the signs, and the minimum over these is next.  The objective falls from one set of signs
    to another, so it ends; after ``max_sweeps`` with the best there is.
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
        over_signs(rows, z, first, second, y, present, W, u)
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
        weight, whole = tally[WEIGHT], R.copy()
        clean_dependent_columns(whole, noise_level(limits, k, tally))
        own = np.ascontiguousarray(whole[first:, first:])
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
            if gap > max(tol, 64 * d * EPS) * (length * length + loss[r]):
                return ABSORBED, t, held
        fill(R, z, slopes, first, out[t])
    return DONE, n, held
