"""Least squares under linear equations and bounds, by a primal active-set method on a factor.

Minimises ``|R x - z|`` subject to ``A x = b`` and ``lower <= x <= upper``.  Each step solves the
problem on the face of the free variables, after eliminating the equations (Lawson & Hanson 1974,
ch. 21 to 23; Nocedal & Wright 2006, 16.5), so the condition number is that of R.

Variables that lie on a bound need not be held there: at degenerate corners, where bounds and
equations depend on each other, some are free, so that the free ones can follow the equations.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.variants.steps import (
    ABSORBED,
    DONE,
    WAITING,
    fill,
    fill_root,
    learn_row,
    norm,
    reflect,
)

EPS = float(np.finfo(np.float64).eps)
# Times d and a column's length: what is left of one that depends on others; what is left of one
# that others come before, if they have more left.
ROUNDING, NEARLY = 64 * EPS, 1024 * EPS
CLOSE = 1e-9  # how far, relative to x, the search may end from the minimum over its face
LOWER, FREE, UPPER = -1, 0, 1
# The minimiser is unique; it is one of several; the search did not end.
UNIQUE, SEVERAL, LOST = 0, 1, 2
SEARCH, POLISH, REFINE = 0, 1, 2


@kernel(forceinline=True)
def swap(W, order, i, j):
    """Swap columns i and j of W, which ``order`` names."""
    if i != j:
        order[i], order[j] = order[j], order[i]
        for r in range(W.shape[0]):
            W[r, i], W[r, j] = W[r, j], W[r, i]


@kernel(forceinline=True)
def face(problem, at, x, p, W, order, u, stage):
    """Compute the step p from x to the minimum over the free variables.

    ``problem`` = (R, z, A, b, sizes, fixed, singular), with the lengths of A's columns.
    W (q + d, d + 1) receives ``[A b; R z]`` for a step from x, with free columns first
    (``order``), reduced to a triangle.  Returns the numbers of free variables, of equations and of
    further columns with a pivot.  Where R is singular the largest column comes first: of many
    minima one that is near.
    """
    R, z, A, b, sizes, _, singular = problem
    d, q, free = R.shape[0], b.shape[0], 0
    for j in range(d):
        p[j] = 0.0
        if at[j] == FREE:
            order[free] = j
            free += 1
    c = free
    for j in range(d):
        if at[j] != FREE:
            order[c] = j
            c += 1
    for c in range(d):
        for i in range(q):
            W[i, c] = A[i, order[c]]
        for i in range(d):
            W[q + i, c] = R[i, order[c]]
    for i in range(q):
        total = b[i]
        for j in range(d):
            total -= A[i, j] * x[j]
        # In a search equations hold: their rounding errors would only lead into bounds.
        W[i, d] = 0.0 if stage == SEARCH else total
    for i in range(d):
        total = z[i]
        for j in range(d):
            total -= R[i, j] * x[j]
        W[q + i, d] = total
    rank, pivots = 0, 0
    while rank < q:
        most, row, column = 0.0, -1, -1
        for c in range(rank, free):
            for i in range(rank, q):
                left = abs(W[i, c])
                if left > ROUNDING * d * sizes[order[c]] and left > most:
                    most, row, column = left, i, c
        if column < 0:
            break
        swap(W, order, rank, column)
        for c in range(d + 1):
            W[rank, c], W[row, c] = W[row, c], W[rank, c]
        for i in range(rank + 1, q + d):
            share = W[i, rank] / W[rank, rank]
            for c in range(rank, d + 1):
                W[i, c] -= share * W[rank, c]
        rank += 1
    below, column, searched = W[q:, rank:], 0, False
    while rank + pivots < free:
        swap(W, order, rank + pivots, rank + column)
        reflect(below, pivots, u)
        length = max(1.0, norm(below[:pivots, pivots])) if rank else 1.0
        least = ROUNDING if searched else NEARLY
        if abs(below[pivots, pivots]) > least * d * length and (searched or not singular):
            pivots += 1
            column, searched = pivots, False
            continue
        if searched:
            break
        most, searched = -1.0, True
        for c in range(pivots, free - rank):
            left = norm(below[pivots:, c]) / max(1.0, norm(below[:, c]))
            if left > most:
                most, column = left, c
    for c in range(rank + pivots - 1, -1, -1):
        row = c if c < rank else q + c - rank
        total = W[row, d]
        for r in range(c + 1, rank + pivots):
            total -= W[row, r] * p[order[r]]
        p[order[c]] = total / W[row, c]
    return free, rank, pivots


@kernel(forceinline=True)
def rounding_of(A, p, lost):
    """Fill ``lost`` (d,) with how far rounding errors of ``A p`` can move each p_j, times the
    square of the length of column j of A.
    """
    for j in range(p.shape[0]):
        lost[j] = 0.0
    for i in range(A.shape[0]):
        total = 0.0
        for j in range(p.shape[0]):
            total += abs(A[i, j] * p[j])
        for j in range(p.shape[0]):
            lost[j] += 8 * EPS * total * abs(A[i, j])


@kernel(forceinline=True)
def leaving(problem, at, W, order, free, pivots, first):
    """Find the held variable off whose bound the objective falls steepest; -1 at the minimum.

    ``first`` takes the one of lowest index (Bland's rule: no cycles).  The slope along variable j
    is that of what its column has outside of the span of the free ones, below the pivots in W.
    """
    z, q, fixed = problem[1], problem[3].shape[0], problem[5]
    d = z.shape[0]
    size, remainder = norm(z), norm(W[q + pivots :, d])
    best, steepest = 0.0, -1
    for c in range(free, d):
        j = order[c]
        if fixed[j]:
            continue
        slope, square = 0.0, 0.0
        for i in range(q + pivots, q + d):
            slope += W[i, c] * W[i, d]
            square += W[i, c] * W[i, c]
        falls = -at[j] * slope
        length = max(1.0, norm(W[q:, c])) if q else 1.0
        error = math.sqrt(square) * size + length * remainder
        better = steepest < 0 or (j < steepest if first else falls > best)
        if better and falls > ROUNDING * d * error:
            best, steepest = falls, j
    return steepest


@kernel(forceinline=True)
def scale(R, A, b, rows, equations, values, length):
    """Fill ``rows`` and ``equations`` with R and A for columns of unit length, these with rows of
    unit length, too; return whether a pivot of R is 0.
    """
    d, q, singular = R.shape[0], b.shape[0], False
    for j in range(d):
        singular = singular or R[j, j] == 0
        length[j] = norm(R[:, j])
        if length[j] == 0:
            length[j] = 1.0
        for i in range(d):
            rows[i, j] = R[i, j] / length[j]
    for i in range(q):
        for j in range(d):
            equations[i, j] = A[i, j] / length[j]
        size = norm(equations[i])
        if size == 0:
            size = 1.0
        for j in range(d):
            equations[i, j] /= size
        values[i] = b[i] / size
    return singular


@kernel(forceinline=True)
def step_to_bound(y, p, low, high, slack, at, pivots):
    """Step from y along p, and hold the free variable that meets a bound first, if one does.

    Returns whether one is held.  Within ``slack`` of a bound is on it.
    """
    share, blocked = 1.0, -1
    for j in range(y.shape[0]):
        if at[j] != FREE or pivots == 0:
            continue
        if y[j] + p[j] > high[j] + slack[j] and (high[j] - y[j]) / p[j] < share:
            share, blocked = (high[j] - y[j]) / p[j], j
        elif y[j] + p[j] < low[j] - slack[j] and (low[j] - y[j]) / p[j] < share:
            share, blocked = (low[j] - y[j]) / p[j], j
    share = max(share, 0.0)
    for j in range(y.shape[0]):
        y[j] += share * p[j]
        if y[j] <= low[j] + slack[j]:
            y[j] = low[j]
        elif y[j] >= high[j] - slack[j]:
            y[j] = high[j]
    if blocked >= 0:
        at[blocked] = UPPER if p[blocked] > 0 else LOWER
        y[blocked] = high[blocked] if p[blocked] > 0 else low[blocked]
    return blocked >= 0


@kernel()
def settle(R, z, A, b, lower, upper, x, minimum):
    """Find a minimiser x (d,) from a feasible x; return whether it is UNIQUE, or the search LOST.

    Once the face is known, two steps from its corner give the answer, whatever way led there: the
    second refines the first.  Where there are SEVERAL minimisers the answer of these steps,
    ``minimum`` (d,), may lie beyond bounds; x is then the point where the search ended.
    """
    d, q = R.shape[0], b.shape[0]
    if R.shape != (d, d) or z.shape != (d,) or x.shape != (d,) or A.shape != (q, d):
        raise ValueError("the shapes of the factor and the equations do not fit together")
    if lower.shape != (d,) or upper.shape != (d,) or minimum.shape != (d,):
        raise ValueError("the bounds do not have the shape of the coefficients")
    rows, equations, values = np.empty((d, d)), np.empty((q, d)), np.empty(q)
    vectors = np.empty((9, d))
    length, low, high, y, p = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    sizes, slack, lost, last = vectors[5], vectors[6], vectors[7], vectors[8]
    fixed, at, order = np.empty(d, np.bool_), np.empty(d, np.int64), np.empty(d, np.int64)
    W, u, ended = np.empty((q + d, d + 1)), np.empty(d + 1), LOST
    singular = scale(R, A, b, rows, equations, values, length)
    for j in range(d):
        sizes[j] = norm(equations[:, j])
        low[j], high[j], y[j] = lower[j] * length[j], upper[j] * length[j], x[j] * length[j]
        fixed[j] = low[j] == high[j]
        at[j] = LOWER if x[j] <= lower[j] else UPPER if x[j] >= upper[j] else FREE
    stage, again, problem = SEARCH, False, (rows, z, equations, values, sizes, fixed, singular)
    for step in range(40 * d + 10):
        if stage == POLISH:
            for j in range(d):
                last[j] = y[j]
                y[j] = low[j] if at[j] == LOWER else high[j] if at[j] == UPPER else 0.0
        free, rank, pivots = face(problem, at, y, p, W, order, u, stage)
        if stage == POLISH:
            for j in range(d):
                y[j] += p[j]
            stage = REFINE
            continue
        if stage == REFINE:
            moved = 0.0
            for j in range(d):
                y[j] += p[j]
                moved = max(moved, abs(y[j] - last[j]))
            if free > rank + pivots or again or moved <= CLOSE * norm(y):
                ended = SEVERAL if singular or free > rank + pivots else UNIQUE
                break
            for j in range(d):
                at[j] = LOWER if y[j] <= low[j] else UPPER if y[j] >= high[j] else FREE
                y[j] = min(max(y[j], low[j]), high[j])
            stage, again = SEARCH, True
            continue
        rounding_of(rows, p, slack)
        rounding_of(equations, p, lost)
        for c in range(rank):  # told by equations
            slack[order[c]] += lost[order[c]] / sizes[order[c]] ** 2
        for j in range(d):
            slack[j] = d * (slack[j] + 8 * EPS * abs(y[j]))
        if step_to_bound(y, p, low, high, slack, at, pivots):
            continue
        freed = leaving(problem, at, W, order, free, pivots, step > 10 * d)
        if freed >= 0:
            at[freed] = FREE
            continue
        stage = POLISH
        for j in range(d):
            at[j] = LOWER if y[j] == low[j] else UPPER if y[j] == high[j] else FREE
    if ended == LOST:
        return LOST
    for j in range(d):
        minimum[j] = y[j] / length[j]
        if at[j] == LOWER:
            x[j] = lower[j]
        elif at[j] == UPPER:
            x[j] = upper[j]
        else:
            x[j] = last[j] / length[j] if ended == SEVERAL else minimum[j]
            x[j] = min(max(x[j], lower[j]), upper[j])
    return ended


@kernel(makes_arrays=True)
def walk(state, rows, start, limits, residual, problem, out):
    """Learn rows from ``start`` on and solve after each; return (how it ended, row, times held).

    ``problem`` = (A, b, lower, upper, first, last): ``last`` (m, k) is the solution before, or a
    point within the constraints; ``out`` (n, m, k) takes the solutions.  ``first`` is 1 where an
    intercept stands first in both.
    """
    F, D = state[0][0], state[0][1]
    A, b, lower, upper, first, last = problem
    n, k, m, d = rows[0].shape[0], D.shape[0], state[0][4].shape[0], D.shape[0] - first
    R, z = np.empty((k, k)), np.empty((m, k))
    if last.shape != (m, k) or out.shape != (n, m, k) or A.shape != (b.shape[0], d):
        raise ValueError("the shapes of solutions, equations and the state do not fit together")
    if lower.shape != (d,) or upper.shape != (d,):
        raise ValueError("the bounds do not have the shape of the coefficients")
    held, slopes, minimum = 0, last[:, first:].copy(), np.empty(d)
    for t in range(start, n):
        learned, count = learn_row(state, rows, t, limits, residual)
        held += count
        if not learned:
            return WAITING, t, held
        fill_root(F, D, R, z)
        own = np.ascontiguousarray(R[first:, first:])
        for r in range(m):
            target = np.ascontiguousarray(z[r, first:])
            if settle(own, target, A, b, lower, upper, slopes[r], minimum) != UNIQUE:
                return ABSORBED, t, held
        fill(R, z, slopes, first, out[t])
    return DONE, n, held
