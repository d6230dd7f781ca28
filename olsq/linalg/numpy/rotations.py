"""Numba kernels of plane and block rotations, without overflow or underflow on the way.

A block rotation takes the pivot ``a >= 0`` and the k entries b under it to ``r = |(a, b)|`` and 0.
With ``c = a / r`` and ``q = b / r`` it is ::

    row' = c row + q^T X          = row + u - (1 - c) row,         u = q^T X
    X'   = X - q (row + u / (1 + c))

orthogonal for any k: a Givens rotation for k = 1 (Rutishauser's form, by increments, so that a
rounded cosine near 1 does not shrink the row systematically), and smooth where b = 0, which a
Householder reflection is not.  :mod:`olsq.linalg.jax.rotations` has the same formulas.

Increments lose digits where the cosine is small: X' is then c X - s row, made of terms that cancel
to it.  A row far below the one that is rotated into it (a factor after a long gap) has all its
digits there.  So a plane rotation with c < 1/2 is applied as it is written, and a block is led by
its largest row: after the swap c is at least 1 / sqrt(k + 1), and each row keeps its own digits
(Cox & Higham 1998, "Stability of Householder QR factorization for weighted least squares").
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel

# Between these, squares neither overflow (also summed over 2^24 entries) nor lose digits below;
# outside, everything is first multiplied by a power of two, which is exact.
LARGE, SMALL = 2.0**499, 2.0**-485
DOWN, UP = 2.0**-600, 2.0**600


@kernel(forceinline=True)
def givens(a, b):
    """Compute the rotation (c, s, r) with ``c a + s b = r >= 0`` and ``c b = s a``.

    Returns (1, 0, 0) for zeros.

    ``hypot`` is accurate to half a unit, ``sqrt(a a + b b)`` to one: in windows of noise-free rows
    that half unit is the residual, and the square root made them start afresh four times as often.
    Its reciprocal serves both quotients, so it must not overflow.
    """
    if b == 0:
        return (-1.0 if a < 0 else 1.0), 0.0, abs(a)
    scale = 1.0
    largest = max(abs(a), abs(b))
    if not SMALL < largest < LARGE:
        scale = DOWN if largest >= LARGE else UP
    a, b = scale * a, scale * b
    length = math.hypot(a, b)
    return a / length, b / length, length / scale


@kernel(strict=True, forceinline=True)
def length_below(a, X, j):
    """Compute ``(scale, |scale (a, X[:, j])|)``, where scale is a power of two."""
    largest = abs(a)
    for i in range(X.shape[0]):
        largest = max(largest, abs(X[i, j]))
    scale = 1.0
    if largest >= LARGE:
        scale = DOWN
    elif largest <= SMALL:
        scale = UP
    total = (scale * a) * (scale * a)
    for i in range(X.shape[0]):
        total += (scale * X[i, j]) * (scale * X[i, j])
    return scale, math.sqrt(total)


@kernel(strict=True, forceinline=True)
def rotation(a, X, j, q):
    """Compute c and r of the block rotation of (a, X[:, j]), a >= 0, to (r, 0).

    Stores its q in ``q``.
    """
    scale, length = length_below(a, X, j)
    if length == 0:
        for i in range(X.shape[0]):
            q[i] = 0.0
        return 1.0, 0.0
    for i in range(X.shape[0]):
        q[i] = (scale * X[i, j]) / length
    return (scale * a) / length, length / scale


@kernel(strict=True, forceinline=True)
def inverse_rotation(a, X, j, q):
    """Compute c and r of the block rotation of (r, X[:, j]) to (a, 0); store its q in q.

    c < 0 where there is none, because ``a <= |X[:, j]|`` (unless both are 0).
    """
    scale, length = length_below(0.0, X, j)
    norm = length / scale
    if a == 0 and norm == 0:
        for i in range(X.shape[0]):
            q[i] = 0.0
        return 1.0, 0.0
    if not a > norm:
        return -1.0, 0.0
    for i in range(X.shape[0]):
        q[i] = X[i, j] / a
    # r^2 = (a - |b|) (a + |b|): two roots, so that the product cannot overflow
    r = math.sqrt(a - norm) * math.sqrt(a + norm)
    return r / a, r


@kernel(forceinline=True)
def rotate_pair(row, x, c, s, g):
    """Apply ``(row, x) <- (c g row + s x, c x - s g row)``, with ``c >= 0``, without loss of
    digits.
    """
    if c < 0.5:  # by increments, c x would lose digits where it is far below x
        for i in range(row.shape[0]):
            old, new = g * row[i], x[i]
            row[i] = c * old + s * new
            x[i] = c * new - s * old
        return
    # By increments: row' = row + s (x - tau row), x' = x - s (row + tau x), tau = s / (1 + c)
    tau = s / (1.0 + c)
    for i in range(row.shape[0]):
        old, new = g * row[i], x[i]
        row[i] = old + s * (new - tau * old)
        x[i] = new - s * (old + tau * new)


@kernel(forceinline=True)
def inner_rows(q, X, start, u):
    """Compute ``u <- q^T X`` from column ``start`` on; return ``|q|^2``. Four rows share a pass."""
    k = X.shape[0]
    v = u[start:]
    square = 0.0
    for i in range(k):
        square += q[i] * q[i]
    for col in range(v.shape[0]):
        v[col] = 0.0
    whole = k - k % 4
    for i in range(0, whole, 4):
        a, b, c, d = q[i], q[i + 1], q[i + 2], q[i + 3]
        x, y = X[i, start:], X[i + 1, start:]
        z, w = X[i + 2, start:], X[i + 3, start:]
        for col in range(v.shape[0]):
            v[col] += a * x[col] + b * y[col] + c * z[col] + d * w[col]
    for i in range(whole, k):
        a, x = q[i], X[i, start:]
        for col in range(v.shape[0]):
            v[col] += a * x[col]
    return square


@kernel(forceinline=True)
def subtract_outer(X, q, u, start):
    """Update ``X <- X - q u^T`` from column ``start`` on."""
    v = u[start:]
    for i in range(X.shape[0]):
        a, x = q[i], X[i, start:]
        if a != 0:
            for col in range(v.shape[0]):
                x[col] -= a * v[col]


@kernel(forceinline=True)
def rotate_block(row, X, c, q, start, u):
    """Apply a block rotation to ``row`` and the rows X, from column ``start`` on."""
    if X.shape[0] == 1:
        rotate_pair(row[start:], X[0, start:], c, q[0], 1.0)
        return
    shrink = inner_rows(q, X, start, u) / (1.0 + c)  # 1 - c
    share = 1.0 / (1.0 + c)
    tail, v = row[start:], u[start:]
    for col in range(tail.shape[0]):
        # row' = row + u - (1 - c) row;  v = row + u / (1 + c), for X' = X - q v^T
        old = tail[col]
        tail[col] = old + (v[col] - shrink * old)
        v[col] = old + share * v[col]
    subtract_outer(X, q, u, start)


@kernel(forceinline=True)
def lead_with_largest(row, X, column):
    """Swap ``row`` with the row of X whose entry in ``column`` is largest, if that is larger.

    From ``column`` on; the entry that is swapped into ``row`` becomes positive with its row.
    """
    largest, at = abs(row[column]), -1
    # one row is rotated by rotate_pair, which loses no digits in either order
    for i in range(X.shape[0] if X.shape[0] > 1 else 0):
        if abs(X[i, column]) > largest:
            largest, at = abs(X[i, column]), i
    if at >= 0:
        sign = -1.0 if X[at, column] < 0 else 1.0
        for col in range(column, row.shape[0]):
            row[col], X[at, col] = sign * X[at, col], row[col]


@kernel(forceinline=True)
def eliminate(W, j, X, column, q, u):
    """Rotate the rows X into row j of W so that their entries in ``column`` vanish; W's is >= 0."""
    row = W[j]
    if row[column] < 0:
        for col in range(row.shape[0]):
            row[col] = -row[col]
    zero = True
    for i in range(X.shape[0]):
        zero = zero and X[i, column] == 0
    if zero:
        return
    lead_with_largest(row, X, column)
    c, r = rotation(row[column], X, column, q)
    rotate_block(row, X, c, q, column + 1, u)
    row[column] = r
    for i in range(X.shape[0]):
        X[i, column] = 0.0


@kernel()
def givens_all(a, b, out):
    """Compute :func:`givens` of every a (n,), b (n,), into out (3, n)."""
    for i in range(a.shape[0]):
        out[0, i], out[1, i], out[2, i] = givens(a[i], b[i])


def plane_rotation(a: NDArray, b: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Compute c, s, r for numbers that are finite and of one dtype; shapes broadcast."""
    dtype = a.dtype
    a, b = np.broadcast_arrays(a, b)
    out = np.empty((3, a.size))
    givens_all(a.astype(np.float64).ravel(), b.astype(np.float64).ravel(), out)
    c, s, r = out.astype(dtype, copy=False).reshape(3, *a.shape)
    return c, s, r
