"""Total least squares for one target, compiled: singular vectors by one-sided Jacobi rotations.

Columns are rotated in pairs until all are orthogonal (Hestenes 1958; Golub & Van Loan 2013, 8.6.3):
their lengths are the singular values, and the rotations the right singular vectors.  A solution
depends on the factor alone, not on the row before.

A solution exists and is unique if two conditions hold (Van Huffel & Vandewalle 1991, ch. 3):
the last two singular values of ``[X y]`` differ, so that there is one smallest singular vector,
and that vector has a part in y.  Rounding errors of size E turn the vector by E over that
difference, so that a part that is not larger cannot be told from 0.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import noise_level
from olsq.online.variants.steps import ABSORBED, DONE, WAITING, fill_root, learn_row, norm

EPS = float(np.finfo(np.float64).eps)
MOST_SWEEPS = 40
MOST_ROUNDING = 8.0  # a solution whose gap is not this many rounding errors is not told from none


@kernel(forceinline=True)
def orthogonalise(A, V):
    """Rotate the rows of A (p, n), and V's with them, until A's are orthogonal; False: not yet.

    A holds the columns of the matrix as its rows, which lie side by side in memory.
    """
    p, n, v = A.shape[0], A.shape[1], V.shape[1]
    whole = 0.0
    for i in range(p):
        whole += norm(A[i])
    for _ in range(MOST_SWEEPS):
        still = True
        for i in range(p - 1):
            for j in range(i + 1, p):
                a, b, g = 0.0, 0.0, 0.0
                for r in range(n):
                    a += A[i, r] * A[i, r]
                    b += A[j, r] * A[j, r]
                    g += A[i, r] * A[j, r]
                # A column of rounding errors alone has no direction to be turned to.
                smaller = math.sqrt(min(a, b))
                if abs(g) <= 2 * EPS * math.sqrt(a) * math.sqrt(b) or smaller <= 0.01 * EPS * whole:
                    continue
                still = False
                zeta = (b - a) / (2 * g)
                t = 1.0 / (abs(zeta) + math.sqrt(1.0 + zeta * zeta))
                if zeta < 0:
                    t = -t
                c = 1.0 / math.sqrt(1.0 + t * t)
                s = c * t
                for r in range(n):
                    x, y = A[i, r], A[j, r]
                    A[i, r], A[j, r] = c * x - s * y, s * x + c * y
                for r in range(v):
                    x, y = V[i, r], V[j, r]
                    V[i, r], V[j, r] = c * x - s * y, s * x + c * y
        if still:
            return True
    return False


@kernel()
def solve(S, ratio, noise, theta):
    """Solve for theta (k,) from a factor S (k + 1, k + 1) of ``[X y]``; NaN where it is not unique.

    Returns (whether this is a usual case, gap).  The first of ``ratio`` (k,), and only these, may
    be 0.
    """
    k = ratio.shape[0]
    if S.shape != (k + 1, k + 1) or theta.shape != (k,):
        raise ValueError("the shapes of the factor and the coefficients do not fit together")
    q = 0
    while q < k and ratio[q] == 0:
        q += 1
    for j in range(q, k):
        if ratio[j] == 0:
            return False, 0.0
    for j in range(k):
        theta[j] = math.nan
    for j in range(q):
        if abs(S[j, j]) <= 8 * noise * norm(S[: j + 1, j]):
            return True, 0.0
    p = k - q
    scale = 0.0
    for i in range(q, k + 1):
        for j in range(i, k + 1):
            scale = max(scale, abs(S[i, j]))
    if p == 0 or scale == 0:
        return False, 0.0
    A, V = np.zeros((p + 1, p + 1)), np.zeros((p + 1, p + 1))
    whole = 0.0
    for j in range(p + 1):
        error = scale * (ratio[q + j] if j < p else 1.0)
        V[j, j] = 1.0
        for i in range(j + 1):
            A[j, i] = S[q + i, q + j] / error
        # Rounding is relative to whole columns, with the part that exact columns took out of them.
        length = norm(S[: q + j + 1, q + j]) / error
        whole += length * length
    if not orthogonalise(A, V):
        return False, 0.0
    least, second, largest, place = math.inf, math.inf, 0.0, 0
    for j in range(p + 1):
        value = norm(A[j])
        largest = max(largest, value)
        if value < least:
            second, least, place = least, value, j
        else:
            second = min(second, value)
    if largest == 0:
        return True, 0.0
    last = V[place, p]
    gap = (second - least) / largest * abs(last)
    rounding = (noise + p * EPS) * math.sqrt(whole) / largest
    if not gap > MOST_ROUNDING * rounding:
        return True, gap
    for j in range(p):
        theta[q + j] = -V[place, j] / last / ratio[q + j]
    for i in range(q - 1, -1, -1):
        total = S[i, k]
        for j in range(i + 1, k):
            total -= S[i, j] * theta[j]
        theta[i] = total / S[i, i]
    return True, gap


@kernel(makes_arrays=True)
def walk(state, rows, start, limits, residual, ratio, out):
    """Learn rows ``[x y]`` from ``start`` on and solve after each; return (how it ended, row,
    held).

    ``ratio`` (k,) is each column's error in units of y's; ``out`` (n, 1, k) takes the solutions.
    """
    F, D, tally = state[0][0], state[0][1], state[0][3]
    k, n = ratio.shape[0], rows[0].shape[0]
    S, unused = np.empty((k + 1, k + 1)), np.empty((0, k + 1))
    if D.shape != (k + 1,) or out.shape != (n, 1, k):
        raise ValueError("the shapes of the solutions and the state do not fit together")
    held = 0
    for t in range(start, n):
        learned, count = learn_row(state, rows, t, limits, residual)
        held += count
        if not learned:
            return WAITING, t, held
        fill_root(F, D, S, unused)
        usual, _ = solve(S, ratio, noise_level(limits, k + 1, tally), out[t, 0])
        if not usual:
            return ABSORBED, t, held
    return DONE, n, held
