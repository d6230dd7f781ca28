"""The active-set method of :mod:`olsq.online.variants.active_set`, compiled, for ordinary faces.

Columns have unit length.  A face whose free columns, or whose equations on them, depend on each
other nearly is left to the general method, which decides by singular values: kernels return False
then, with nothing promised about ``x``.
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
    triangularise,
)

DEPENDENT = 1024 * float(np.finfo(np.float64).eps)  # times d: pivots of nearly dependent columns
EPS = float(np.finfo(np.float64).eps)
LOWER, FREE, UPPER = -1, 0, 1


@kernel(forceinline=True)
def face(problem, at, x, p, W, N, scratch):
    """Compute the step p from x to the minimum over the free variables; False: not ordinary.

    ``problem`` = (R, z, A, b): of ``|R x - z|`` under ``A x = b``.
    W (d, d + 1) then holds in its rows from the returned pivot on what lies outside of the span of
    the free columns: of every held column (at its own place except the free ones before it, see
    :func:`steepest`) and, last, of the residual.  N (d, q + 2 d) and scratch (4, q + 2 d) may hold
    anything.
    """
    R, z, A, b = problem
    d, q = R.shape[0], b.shape[0]
    free = 0
    for j in range(d):
        p[j] = 0.0
        free += at[j] == FREE
    pivots = free - q
    if free < q:
        return False, 0
    u, off, s, t = scratch[0], scratch[1], scratch[2], scratch[3]
    row = 0
    if q:  # rows of N: a free variable's column of the equations, of R, and its unit vector
        for j in range(d):
            if at[j] == FREE:
                for i in range(q):
                    N[row, i] = A[i, j]
                for i in range(d):
                    N[row, q + i] = R[i, j]
                    N[row, q + d + i] = 1.0 if i == j else 0.0
                row += 1
        if not triangularise(N[:free], q, DEPENDENT * d, u):
            return False, 0
        for i in range(q):
            off[i] = b[i]
            for j in range(d):
                off[i] -= A[i, j] * x[j]
            for r in range(i):
                off[i] -= N[r, i] * s[r]
            s[i] = off[i] / N[i, i]
    column = 0
    for j in range(d):
        if at[j] != FREE:
            continue
        if q == 0:
            for i in range(d):
                W[i, column] = R[i, j]
        column += 1
    for column in range(pivots if q else 0):
        for i in range(d):
            W[i, column] = N[q + column, q + i]
    column = pivots
    for j in range(d):
        if at[j] == FREE:
            continue
        for i in range(d):
            W[i, column] = R[i, j]
        for i in range(q):  # the equations hold on while variable j moves
            t[i] = A[i, j]
            for r in range(i):
                t[i] -= N[r, i] * t[r]
            t[i] /= N[i, i]
            for r in range(d):
                W[r, column] -= N[i, q + r] * t[i]
        column += 1
    for i in range(d):
        total = z[i]
        for j in range(d):
            total -= R[i, j] * x[j]
        for r in range(q):
            total -= N[r, q + i] * s[r]
        W[i, column] = total
    used = W[:, : column + 1]
    if not triangularise(used, pivots, DEPENDENT * d, u):
        return False, 0
    for i in range(pivots - 1, -1, -1):
        total = W[i, column]
        for r in range(i + 1, pivots):
            total -= W[i, r] * s[q + r]
        s[q + i] = total / W[i, i]
    row = 0
    for j in range(d):
        if at[j] == FREE:
            if q == 0:
                p[j] = s[row]
            else:
                for i in range(free):
                    p[j] += N[i, q + d + j] * s[i]
            row += 1
    return True, pivots


@kernel(forceinline=True)
def steepest(W, pivots, at, fixed, lengths, size):
    """Find the held variable off whose bound the objective falls steepest; -1 at the minimum."""
    d = W.shape[0]
    last = 0
    for j in range(d):
        last += at[j] != FREE
    last += pivots
    rest = norm(W[pivots:, last])
    best, chosen, column = 0.0, -1, pivots
    for j in range(d):
        if at[j] == FREE:
            continue
        if not fixed[j]:
            slope, square = 0.0, 0.0
            for i in range(pivots, d):
                slope += W[i, column] * W[i, last]
                square += W[i, column] * W[i, column]
            falls = -at[j] * slope
            error = math.sqrt(square) * size + lengths[column] * rest
            if falls > 64 * d * EPS * error and falls > best:
                best, chosen = falls, j
        column += 1
    return chosen


@kernel()
def settle(R, z, A, b, lower, upper, x, search):
    """Find the minimiser x (d,) from a feasible x; without ``search`` on the face that x is on.

    Once the face is known, two steps from its corner give the answer, whatever way led there: the
    second refines the first.
    """
    d, q = R.shape[0], b.shape[0]
    if R.shape != (d, d) or z.shape != (d,) or x.shape != (d,) or A.shape != (q, d):
        raise ValueError("the shapes of the factor and the equations do not fit together")
    if lower.shape != (d,) or upper.shape != (d,):
        raise ValueError("the bounds do not have the shape of the coefficients")
    rows, equations, values = np.empty((d, d)), np.empty((q, d)), np.empty(q)
    vectors = np.empty((6, d))
    length, low, high, y, p = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    lengths = vectors[5]
    fixed, at = np.empty(d, np.bool_), np.empty(d, np.int64)
    W, N, scratch = np.empty((d, d + 1)), np.empty((d, q + 2 * d)), np.empty((4, q + 2 * d))
    for j in range(d):
        if R[j, j] == 0:  # undetermined, and the minimiser of least norm is asked for
            return False
        length[j] = norm(R[:, j])
        for i in range(d):
            rows[i, j] = R[i, j] / length[j]
        low[j], high[j], y[j] = lower[j] * length[j], upper[j] * length[j], x[j] * length[j]
        fixed[j] = low[j] == high[j]
        at[j] = LOWER if x[j] <= lower[j] else UPPER if x[j] >= upper[j] else FREE
    for i in range(q):
        for j in range(d):
            equations[i, j] = A[i, j] / length[j]
        size = norm(equations[i])
        if size == 0:
            size = 1.0
        for j in range(d):
            equations[i, j] /= size
        values[i] = b[i] / size
    size, polishing = norm(z), 0 if search else 1
    for _ in range(10 * d + 2):
        if polishing == 1:
            for j in range(d):
                y[j] = low[j] if at[j] == LOWER else high[j] if at[j] == UPPER else 0.0
        usual, pivots = face((rows, z, equations, values), at, y, p, W, N, scratch)
        if not usual:
            return False
        if polishing:
            for j in range(d):
                y[j] += p[j]
            polishing += 1
            if polishing > 2:
                break
            continue
        share, blocked = 1.0, -1
        for j in range(d):
            if at[j] != FREE:
                continue
            if y[j] + p[j] > high[j] and (high[j] - y[j]) / p[j] < share:
                share, blocked = (high[j] - y[j]) / p[j], j
            elif y[j] + p[j] < low[j] and (low[j] - y[j]) / p[j] < share:
                share, blocked = (low[j] - y[j]) / p[j], j
        share = max(share, 0.0)
        for j in range(d):
            y[j] += share * p[j]
        if blocked >= 0:
            at[blocked] = UPPER if p[blocked] > 0 else LOWER
            y[blocked] = high[blocked] if p[blocked] > 0 else low[blocked]
            continue
        column = pivots
        for j in range(d):
            if at[j] != FREE:
                lengths[column] = norm(W[:, column])
                column += 1
        leaving = steepest(W, pivots, at, fixed, lengths, size)
        if leaving < 0:
            polishing = 1
        else:
            at[leaving] = FREE
    if polishing <= 2:
        return False
    for j in range(d):
        if at[j] == LOWER:
            x[j] = lower[j]
        elif at[j] == UPPER:
            x[j] = upper[j]
        else:
            x[j] = min(max(y[j] / length[j], lower[j]), upper[j])
    return True


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
    held, slopes = 0, last[:, first:].copy()
    for t in range(start, n):
        learned, count = learn_row(state, rows, t, limits, residual)
        held += count
        if not learned:
            return WAITING, t, held
        fill_root(F, D, R, z)
        own = np.ascontiguousarray(R[first:, first:])
        for r in range(m):
            target = np.ascontiguousarray(z[r, first:])
            if not settle(own, target, A, b, lower, upper, slopes[r], True):
                return ABSORBED, t, held
        fill(R, z, slopes, first, out[t])
    return DONE, n, held
