"""Robust standard errors after every row, from the rows of its window."""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel

HC0, HC1, HC2, HC3, HAC = range(5)
EPS = 2.3e-16
LOST = 0.1  # of a row's length, what is left of it where its orthogonality has lost a digit
DEPENDENT = 1e-12  # of its length, what is left of a column that the others determine


@kernel()
def fill_robust_errors(rows, X, oldest, begin, coef, ridge, settings, stderr):
    """Replace finite standard errors (n, m, k) by those of White or Newey & West.

    ``rows`` as in ``fill_sums_of_squares``, of one group whose positions are the rows of X (N, k)
    and Y (N, m): row ``begin + t`` is behind the t-th estimate, coef (n, m, k).  ridge (k,).
    ``settings`` = (kind, lags); lags below 0 are Newey and West's choice.

    With ``A = Q R`` the weighted rows, and the ridge's below them, and u their residuals, the
    errors are those of ``s_i = R^-1 q_i c_i u_i``: the diagonal of ``sum s_i s_i^T``, and with
    Bartlett's weights of ``sum s_i s_{i-l}^T``, which is the one of ``sum v_i v_i^T / (L + 1)`` for
    the sums v of L + 1 neighbours.
    """
    _, Y, gates, weights = rows
    kind, lags = settings
    N, k = X.shape
    longest = 1
    for p in range(begin, N):
        longest = max(longest, p - max(oldest[p], 0) + 1)
    A, own = np.empty((k, longest + k)), np.empty(longest, np.int64)
    m, most = Y.shape[1], max(lags, default_lags(longest))
    root, leverage = np.empty(longest), np.empty(longest)
    u, series, sums = np.empty((m, longest)), np.empty(longest), np.empty(longest + most)
    R, inverse, known = np.empty((k, k)), np.empty((k, k)), np.empty(k, np.bool_)
    for p in range(begin, N):
        count, fade = 0, 1.0
        for i in range(p, max(oldest[p], 0) - 1, -1):  # the newest first
            if weights[i] > 0 and fade > 0:
                own[count], root[count] = i, math.sqrt(fade * weights[i])
                count += 1
            fade *= gates[i]
        for a in range(k):
            for i in range(count):
                A[a, i] = root[i] * X[own[i], a]
            for b in range(k):
                A[a, count + b] = math.sqrt(ridge[a]) if a == b else 0.0
        for target in range(m):
            for i in range(count):
                u[target, i] = root[i] * Y[own[i], target]
            for a in range(k):
                theta = coef[p - begin, target, a]
                for i in range(count):
                    u[target, i] -= theta * A[a, i]
        rank = orthogonalise(A, count + k, R, known)
        invert(R, known, inverse)
        if kind in (HC2, HC3):
            leverage[:count] = 0.0
            for a in range(k):
                for i in range(count):
                    leverage[i] += A[a, i] ** 2
            for target in range(m):
                for i in range(count):
                    rest = max(1.0 - leverage[i], EPS)
                    u[target, i] /= math.sqrt(rest) if kind == HC2 else rest
        # Column j of R^-1 Q^T is computed where q_j was: it needs q_j and later ones alone.
        for a in range(k):
            for i in range(count):
                A[a, i] *= inverse[a, a]
            for b in range(a + 1, k):
                factor = inverse[a, b]
                for i in range(count):
                    A[a, i] += factor * A[b, i]
        most = 0
        if kind == HAC:
            most = lags if lags >= 0 else default_lags(count)
        for target in range(m):
            for a in range(k):
                if not math.isfinite(stderr[p - begin, target, a]):
                    continue
                sums[: count + most] = 0.0
                for i in range(count):
                    series[i] = A[a, i] * u[target, i]
                for lag in range(most + 1):
                    for i in range(count):
                        sums[i + lag] += series[i]
                total = 0.0
                for i in range(count + most):
                    total += sums[i] ** 2
                total /= most + 1
                if kind == HC1:
                    total = total * count / (count - rank) if count > rank else math.inf
                stderr[p - begin, target, a] = math.sqrt(total)


@kernel(forceinline=True)
def default_lags(count):
    """Return Newey and West's number of lags for so many rows."""
    return int(4.0 * (count / 100.0) ** (2.0 / 9.0))


@kernel(forceinline=True)
def orthogonalise(A, size, R, known):
    """Orthonormalise the rows of A (k, size), R (k, k) upper triangular; return the rank.

    Gram and Schmidt's, twice where a row has lost a digit: the second pass leaves them orthogonal
    to rounding.  A row that the ones before it determine becomes 0.
    """
    k, rank = A.shape[0], 0
    for a in range(k):
        R[a, :] = 0.0
        known[a] = False
    for a in range(k):
        before = 0.0
        for i in range(size):
            before += A[a, i] ** 2
        length = before
        for _ in range(2):
            for b in range(a):
                if not known[b]:
                    continue
                part = 0.0
                for i in range(size):
                    part += A[b, i] * A[a, i]
                for i in range(size):
                    A[a, i] -= part * A[b, i]
                R[b, a] += part
            length = 0.0
            for i in range(size):
                length += A[a, i] ** 2
            if length > LOST**2 * before:
                break
        length = math.sqrt(length)
        known[a] = length > DEPENDENT * math.sqrt(before)
        rank += 1 if known[a] else 0
        R[a, a] = length
        for i in range(size):
            A[a, i] = A[a, i] / length if known[a] else 0.0
    return rank


@kernel(forceinline=True)
def invert(R, known, inverse):
    """Invert R (k, k), upper triangular, except for rows and columns that are not known: zeros."""
    k = R.shape[0]
    for column in range(k):
        for a in range(k - 1, -1, -1):
            total = 1.0 if a == column else 0.0
            for b in range(a + 1, column + 1):
                if known[b]:
                    total -= R[a, b] * inverse[b, column]
            used = known[a] and known[column] and a <= column
            inverse[a, column] = total / R[a, a] if used else 0.0
