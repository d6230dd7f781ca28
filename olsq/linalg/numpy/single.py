"""Insert or delete one row or column of one QR factorisation, without a batch axis.

Rows of ``Qt`` are the columns of Q, so that a rotation of neighbouring rows runs along memory.
Functions return None for empty or invalid input, which the general functions handle or refuse.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.linalg.numpy.rotations import givens, rotate_pair

EPS = float(np.finfo(np.float64).eps)
Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


@kernel(forceinline=True)
def rotate_rows(R, Qt, i, j, column):
    """Rotate rows i and j of both so that R[j, column] vanishes; R is 0 before ``column``."""
    c, s, r = givens(R[i, column], R[j, column])
    if c < 0:  # the rotation by half a turn more: increments need a cosine >= 0
        c, s, r = -c, -s, -r
    rotate_pair(R[i, column:], R[j, column:], c, s, 1.0)
    rotate_pair(Qt[i], Qt[j], c, s, 1.0)
    R[i, column], R[j, column] = r, 0.0


@kernel(forceinline=True)
def make_positive(R, Qt):
    """Flip the signs of rows so that no number on R's diagonal is negative."""
    for i in range(min(R.shape[0], R.shape[1])):
        if R[i, i] < 0:
            for col in range(i, R.shape[1]):
                R[i, col] = -R[i, col]
            for col in range(Qt.shape[1]):
                Qt[i, col] = -Qt[i, col]


@kernel(forceinline=True, strict=True)
def finite(x):
    """Test that all of x is finite, by a count: loops that may end early are not vectorised.

    Numba 0.60 (LLVM 14) takes x * 0 for 0 where order is free: a sum of these finds nothing.
    """
    outside = 0
    for i in range(x.shape[0]):
        for col in range(x.shape[1]):
            outside += 0 if abs(x[i, col]) < math.inf else 1
    return outside == 0


@kernel(forceinline=True)
def project(Qt, count, v, w):
    """Subtract ``Q^T v`` from v, and add it to w; return the length of the remaining v."""
    for i in range(count):
        row = Qt[i]
        total = 0.0
        for col in range(v.shape[0]):
            total += row[col] * v[col]
        for col in range(v.shape[0]):
            v[col] -= total * row[col]
        w[i] += total
    square = 0.0
    for col in range(v.shape[0]):
        square += v[col] * v[col]
    return math.sqrt(square)


@kernel(forceinline=True)
def complement(Qt, count, u, w):
    """Set row ``count`` of Qt to v with ``u = Q w + w[count] v``, orthogonal to the rows before.

    Passes of Gram-Schmidt until one takes little away (Daniel, Gragg, Kaufman & Stewart 1976).
    Where u lies in the span to rounding, ``w[count]`` is 0 and v comes from the unit vector
    furthest from that span. u is scaled by a power of two against overflow, and so is w.
    """
    m, v = u.shape[0], Qt[count]
    largest = 0.0
    for i in range(m):
        largest = max(largest, abs(u[i]))
    scale = 1.0
    if largest > 0:
        scale = 2.0 ** -min(max(math.frexp(largest)[1], -1000), 1000)
    square = 0.0
    for i in range(m):
        v[i] = scale * u[i]
        square += v[i] * v[i]
    for i in range(count + 1):
        w[i] = 0.0
    size = length = math.sqrt(square)
    for _ in range(4):
        before, length = length, project(Qt, count, v, w)
        # A pass that keeps more than half of the length has lost no digits: v is orthogonal.
        if length <= 2 * m * EPS * size or 2 * length > before:
            break
    if length <= 2 * m * EPS * size:
        furthest, least = 0, math.inf
        for col in range(m):
            square = 0.0
            for i in range(count):
                square += Qt[i, col] * Qt[i, col]
            if square < least:
                furthest, least = col, square
        for i in range(m):
            v[i] = 0.0
        v[furthest] = 1.0
        spare = np.zeros(count)
        for _ in range(3):
            length = project(Qt, count, v, spare)
        w[count] = 0.0
    else:
        w[count] = length
    for i in range(m):
        v[i] /= length
    for i in range(count + 1):
        w[i] /= scale


@kernel()
def insert_row(R, Qt, place):
    """Rotate the last row of R (q + 1, n), new, into the others; False: not finite.

    Qt (q + 1, m + 1) has a place for the new row's entries, which is overwritten.
    """
    q, n = R.shape[0] - 1, R.shape[1]
    if Qt.shape[0] != q + 1 or not 0 <= place < Qt.shape[1]:
        raise ValueError("R and Qt do not fit together")
    for i in range(q + 1):
        Qt[i, place] = 0.0
    for col in range(Qt.shape[1]):
        Qt[q, col] = 0.0
    Qt[q, place] = 1.0
    for i in range(q):
        for col in range(min(i, n)):
            R[i, col] = 0.0
    if not (finite(R) and finite(Qt)):
        return False
    for j in range(min(q, n)):
        if R[q, j] != 0:
            rotate_rows(R, Qt, j, q, j)
    make_positive(R, Qt)
    return True


@kernel()
def insert_column(R, Qt, u, k, full):
    """Complete R (r, n + 1) and Qt after inserting column u (1, m) at place k; False: not finite.

    R has a place for column k. Qt (r, m) has, unless the factorisation is ``full``, one row more
    than there are columns of Q.
    """
    r, n = R.shape[0], R.shape[1] - 1
    m = u.shape[1]
    if Qt.shape != (r, m) or not 0 <= k <= n or u.shape[0] != 1 or (r != m and r != n + 1):
        raise ValueError("R, Qt and the column do not fit together")
    w = np.zeros(r)
    count = r if full else r - 1
    for i in range(r):
        for col in range(n + 1):
            if col == k or col - (col > k) < i:
                R[i, col] = 0.0
    if not full:
        for col in range(n + 1):
            R[count, col] = 0.0
        for col in range(m):
            Qt[count, col] = 0.0
    if not (finite(R) and finite(Qt) and finite(u)):
        return False
    if full:
        for i in range(r):
            for col in range(m):
                w[i] += Qt[i, col] * u[0, col]
    else:
        complement(Qt, count, u[0], w)
    for i in range(r):
        R[i, k] = w[i]
    for i in range(r - 1, k, -1):
        if R[i, k] == 0:
            continue
        # Rows i - 1 and i have nothing before column i - 1 but in column k.
        c, s, length = givens(R[i - 1, k], R[i, k])
        if c < 0:
            c, s, length = -c, -s, -length
        R[i - 1, k], R[i, k] = length, 0.0
        rotate_pair(R[i - 1, i:], R[i, i:], c, s, 1.0)
        rotate_pair(Qt[i - 1], Qt[i], c, s, 1.0)
    make_positive(R, Qt)
    return True


@kernel()
def delete_row(R, Qt, k, full):
    """Rotate row k of Q into the first row, which alone holds it then; False: not finite.

    Without ``full`` the last rows of R (q + 1, n) and Qt (q + 1, m) are overwritten.
    """
    r, n = R.shape
    m = Qt.shape[1]
    if Qt.shape[0] != r or not 0 <= k < m:
        raise ValueError("R and Qt do not fit together")
    if not full:
        for col in range(n):
            R[r - 1, col] = 0.0
        for col in range(m):
            Qt[r - 1, col] = 0.0
    for i in range(r):
        for col in range(min(i, n)):
            R[i, col] = 0.0
    if not (finite(R) and finite(Qt)):
        return False
    if not full:
        unit, w = np.zeros(m), np.zeros(r)
        unit[k] = 1.0
        complement(Qt, r - 1, unit, w)
    for i in range(r - 1, 0, -1):
        if Qt[i, k] == 0:
            continue
        c, s, length = givens(Qt[i - 1, k], Qt[i, k])
        if c < 0:
            c, s, length = -c, -s, -length
        rotate_pair(Qt[i - 1], Qt[i], c, s, 1.0)
        Qt[i - 1, k], Qt[i, k] = length, 0.0
        if i - 1 < n:
            rotate_pair(R[i - 1, i - 1 :], R[i, i - 1 :], c, s, 1.0)
    make_positive(R[1:], Qt[1:])
    return True


@kernel()
def delete_column(R, Qt, k):
    """Make R (q, n), which lacks the column that was the k-th, triangular; False: not finite."""
    q, n = R.shape
    if Qt.shape[0] != q or not 0 <= k <= n:
        raise ValueError("R and Qt do not fit together")
    for i in range(q):
        for col in range(min(i if i <= k else i - 1, n)):
            R[i, col] = 0.0
    if not (finite(R) and finite(Qt)):
        return False
    for j in range(k, min(q - 1, n)):
        if R[j + 1, j] != 0:
            rotate_rows(R, Qt, j, j + 1, j)
    make_positive(R, Qt)
    return True


def _is_factorisation(Q: NDArray, R: NDArray, k: Any) -> bool:
    """Test whether Q and R are a nonempty factorisation, and k is an int."""
    if not (Q.ndim == R.ndim == 2 and type(k) is int and Q.size and R.size):
        return False
    (m, q), (rows, n) = Q.shape, R.shape
    return q == rows and (q == m or q == n < m)


def qr_insert(Q: NDArray, R: NDArray, u: NDArray, k: int, which: str) -> Pair | None:
    """Insert one float64 vector; None where the general function has to be used."""
    if not _is_factorisation(Q, R, k) or u.ndim != 1:
        return None
    (m, q), n = Q.shape, R.shape[1]
    full, size = q == m, m if which == "row" else n
    k = k + size if k < 0 else k
    if not 0 <= k <= size or u.size != (n if which == "row" else m):
        return None
    if which == "row":
        R1, Qt = np.empty((q + 1, n)), np.empty((q + 1, m + 1))
        R1[:q], R1[q] = R, u
        Qt[:q, :k], Qt[:q, k + 1 :] = Q[:k].T, Q[k:].T
        if not insert_row(R1, Qt, k):
            return None
        return (Qt.T, R1) if full else (Qt[:q].T, R1[:q])
    if which != "col":
        return None
    rows = q if full else q + 1
    R1, Qt = np.empty((rows, n + 1)), np.empty((rows, m))
    R1[:q, :k], R1[:q, k + 1 :], Qt[:q] = R[:, :k], R[:, k:], Q.T
    return (Qt.T, R1) if insert_column(R1, Qt, np.array(u[None], order="C"), k, full) else None


def qr_delete(Q: NDArray, R: NDArray, k: int, which: str) -> Pair | None:
    """Delete one row or column, in float64; None where the general function has to be used."""
    if not _is_factorisation(Q, R, k):
        return None
    (m, q), n = Q.shape, R.shape[1]
    full, size = q == m, m if which == "row" else n
    k = k + size if k < 0 else k
    if not 0 <= k < size or size == 1:
        return None
    if which == "row":
        rows = q if full else q + 1
        R1, Qt = np.empty((rows, n)), np.empty((rows, m))
        R1[:q], Qt[:q] = R, Q.T
        if not delete_row(R1, Qt, k, full):
            return None
        Q1 = np.empty((m - 1, rows - 1), order="F")
        Q1[:k], Q1[k:] = Qt[1:, :k].T, Qt[1:, k + 1 :].T
        return Q1, R1[1:]
    if which != "col":
        return None
    R1, Qt = np.empty((q, n - 1)), np.empty((q, m))
    R1[:, :k], R1[:, k:], Qt[:] = R[:, :k], R[:, k + 1 :], Q.T
    if not delete_column(R1, Qt, k):
        return None
    return (Qt.T, R1) if full else (Qt[: n - 1].T, R1[: n - 1])
