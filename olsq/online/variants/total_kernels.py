"""Total least squares, compiled: singular vectors by one-sided Jacobi rotations.

Columns are rotated in pairs until all are orthogonal (Hestenes 1958; Golub & Van Loan 2013, 8.6.3):
their lengths are the singular values, and the rotations the right singular vectors.  A solution
depends on the factor alone, not on the row before.

With V_2 the last m right singular vectors of the columns that have errors, V_12 its rows of X and
V_22 those of Y, the coefficients are ``-V_12 V_22^-1``.  They exist and are unique if and only if
V_2 is (the singular values beside it differ) and V_22 is regular (Van Huffel & Vandewalle 1991,
ch. 3).  Errors of size E turn V_2 by ``E / (sigma_p - sigma_p+1)``, which the inverse of V_22
amplifies: the coefficients' relative error is about ``E / (sigma_1 gap)``.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import noise_level
from olsq.online.variants.steps import DONE, WAITING, fill_root, learn_row, norm, triangularise

EPS = float(np.finfo(np.float64).eps)
MOST_SWEEPS = 40
SOLVED, EXACT_DEPEND, SEVERAL, NONE = range(4)  # what a solution is, or why there is none
MOST_ROUNDING = 8.0  # a solution whose gap is not this many rounding errors is not told from none


@kernel(called=True)
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


@kernel(forceinline=True)
def exact_first(S, ratio, scale, order):
    """Return the triangle of S / scale with the columns of errors 0 first; ``order`` (k,) is theirs
    and, from the returned number on, that of the others.
    """
    k, q, moved = ratio.shape[0], 0, False
    for j in range(k):
        if ratio[j] == 0:
            moved = moved or q < j
            order[q] = j
            q += 1
    p = q
    for j in range(k):
        if ratio[j] != 0:
            order[p] = j
            p += 1
    T = np.empty(S.shape)
    for j in range(T.shape[0]):
        for i in range(T.shape[0]):
            T[i, j] = S[i, order[j] if j < k else j] / scale
    if moved:
        triangularise(T, T.shape[0], -1.0, np.empty(T.shape[0]))
    return T, q


@kernel(forceinline=True)
def smallest(values, p, V):
    """Sort the last singular values in place, the smallest last, and V's rows with them; return the
    largest.  Places from p on are right, and the one before.
    """
    n = values.shape[0]
    for end in range(n - 1, max(p - 2, -1), -1):
        least = end
        for j in range(end):
            if values[j] < values[least]:
                least = j
        values[end], values[least] = values[least], values[end]
        for c in range(n):
            V[end, c], V[least, c] = V[least, c], V[end, c]
    largest = 0.0
    for j in range(n):
        largest = max(largest, values[j])
    return largest


@kernel()
def solve(S, ratio, noise, theta):
    """Solve for theta (m, k) from a factor S (k + m, k + m) of ``[X Y]``; NaN where it is not
    unique.

    ``ratio`` (k,) is each column's error in units of Y's, 0 for exact ones; ``noise`` the relative
    rounding error of S's columns.  Returns the gap and one of the words above.
    """
    m, k = theta.shape
    if S.shape != (k + m, k + m) or ratio.shape != (k,):
        raise ValueError("the shapes of the factor and the coefficients do not fit together")
    theta[:] = math.nan
    scale = 0.0
    for i in range(k + m):
        for j in range(i, k + m):
            scale = max(scale, abs(S[i, j]))
    order = np.empty(k, np.int64)
    T, q = exact_first(S, ratio, scale if scale > 0 else 1.0, order)
    for j in range(q):
        if abs(T[j, j]) <= MOST_ROUNDING * noise * norm(T[: j + 1, j]):
            return 0.0, EXACT_DEPEND
    p, gap = k - q, 1.0
    if p:
        A, V = np.zeros((p + m, p + m)), np.zeros((p + m, p + m))
        whole = 0.0
        for j in range(p + m):
            error = ratio[order[q + j]] if j < p else 1.0
            V[j, j] = 1.0
            for i in range(j + 1):
                A[j, i] = T[q + i, q + j] / error
            # Rounding is relative to whole columns, with what exact columns took out of them.
            length = norm(T[: q + j + 1, q + j]) / error
            whole += length * length
        orthogonalised, values = orthogonalise(A, V), np.empty(p + m)
        for j in range(p + m):
            values[j] = norm(A[j])
        largest = smallest(values, p, V)
        if largest == 0 or not orthogonalised:
            return 0.0, SEVERAL
        apart, part = (values[p - 1] - values[p]) / largest, math.inf
        B = V[p:, p:].copy()
        orthogonalised = orthogonalise(B, np.empty((m, 0)))
        for r in range(m):
            part = min(part, norm(B[r]))
        gap = apart * part
        rounding = (noise + p * EPS) * math.sqrt(whole) / largest
        if not gap > MOST_ROUNDING * rounding:
            return gap, NONE if apart > MOST_ROUNDING * rounding else SEVERAL
        # V_22^T theta^T = -V_12^T: rows of V are the columns of V_2
        W = np.empty((m, m + p))
        for i in range(m):
            for j in range(m):
                W[i, j] = V[p + i, p + j]
            for j in range(p):
                W[i, m + j] = -V[p + i, j]
        triangularise(W, m, -1.0, np.empty(m + p))
        for j in range(p):
            for i in range(m - 1, -1, -1):
                total = W[i, m + j]
                for r in range(i + 1, m):
                    total -= W[i, r] * theta[r, order[q + j]] * ratio[order[q + j]]
                theta[i, order[q + j]] = total / W[i, i] / ratio[order[q + j]]
    for target in range(m):
        for i in range(q - 1, -1, -1):
            total = T[i, k + target]
            for j in range(i + 1, k):
                total -= T[i, j] * theta[target, order[j]]
            theta[target, order[i]] = total / T[i, i]
    return gap, SOLVED


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
        solve(S, ratio, noise_level(limits, k + 1, tally), out[t])
    return DONE, n, held
