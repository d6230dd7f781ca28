"""Minimum-norm coefficients: what is rounding error in a dependence is taken out of it first.

A column that depends on others does so through a few coefficients.  The rest of them should be zero
and are rounding error, but in the columns' own units they need not be small: next to a column that
is 1e10 times fainter, an error of 1e-16 is a dependence of 1e-6.  The norm is in those units too,
so that the solution of least norm would travel far along that error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.triangular_kernels import inverse_diagonal, inverse_diagonals


def triangular_inverse(R: NDArray) -> tuple[NDArray, NDArray]:
    """Inverse of upper triangular R (..., d, d), float64, and the diagonal of ``(R^T R)^-1``."""
    R = np.ascontiguousarray(R)
    inverse, diagonal = np.zeros_like(R), np.empty(R.shape[:-1])
    if R.ndim == 2:
        inverse_diagonal(R, inverse, diagonal)
    else:
        inverse_diagonals(R, inverse, diagonal)
    return inverse, diagonal


def solution(
    R: NDArray, z: NDArray, known: NDArray[np.bool_], noise: Any, intercept: bool
) -> NDArray:
    """theta (..., m, d) with ``R theta = z``, of minimum norm (intercept aside).

    R (..., d, d) and z (..., m, d) may be many at once, all with the same pivots ``known`` (d,);
    ``noise`` (...) is the relative rounding error of each.
    """
    R = without_rounding(R, known, noise)
    theta = np.zeros_like(z)
    first = 1 if intercept and known[0] else 0
    rows = np.flatnonzero(known[first:]) + first
    if rows.size:
        # R_known theta = z has full row rank: theta = Q (L^-1 z) with R_known^T = Q L^T.
        known_rows = R[..., rows, first:]
        Q, L = np.linalg.qr(_transposed(known_rows))
        solve = triangular_inverse(L)[0] @ _transposed(Q)
        theta[..., first:] = z[..., rows] @ solve
        # One refinement, since mixed units cost digits in Q.
        rest = z[..., rows] - theta[..., first:] @ _transposed(known_rows)
        theta[..., first:] += rest @ solve
    if first:
        others = (theta[..., 1:] @ R[..., 0, 1:, None])[..., 0]
        theta[..., 0] = (z[..., 0] - others) / R[..., 0, :1]
    return theta


def inverse_root(R: NDArray, known: NDArray[np.bool_]) -> NDArray:
    """B (..., d, rank) with ``B B^T`` the (pseudo-)inverse of ``R^T R``, with pivots ``known``."""
    if known.all():
        return triangular_inverse(R)[0]
    Q, L, length = row_space(R, known)
    return Q @ _transposed(triangular_inverse(L)[0]) / length[..., None]


def row_space(R: NDArray, known: NDArray[np.bool_]) -> tuple[NDArray, NDArray, NDArray]:
    """Q (..., d, rank) orthonormal, L and the columns' lengths: ``R_known = (Q L)^T length``."""
    length = np.linalg.norm(R, axis=-2)  # columns to unit length first
    length[length == 0] = 1.0
    Q, L = np.linalg.qr(_transposed(R[..., known, :] / length[..., None, :]))
    return Q, L, length


def variances(R: NDArray, root: NDArray) -> NDArray:
    """Diagonal (..., d) of the inverse information, given its root; inf where undetermined."""
    variance = (root**2).sum(-1)
    if root.shape[-1] < R.shape[-1]:
        # e_j is estimable iff it lies in the row space of R, on which R^T R B B^T is 1.
        fit = ((_transposed(R) @ (R @ root)) * root).sum(-1)
        variance[np.abs(fit - 1.0) >= 1e-8] = np.inf
    return variance


def without_rounding(R: NDArray, known: NDArray[np.bool_], noise: Any) -> NDArray:
    """R (..., d, d) with the rounding error taken out of its columns without a pivot.

    Column j is ``R_known b`` for a vector b of regression coefficients.  An error of ``noise``
    times the column's length makes errors of ``noise |R_j| |row i of R_known^-1|`` in b_i: what is
    smaller is not told from zero.
    """
    pivots, free = np.flatnonzero(known)[:, None], np.flatnonzero(~known)
    if not free.size or not pivots.size:
        return R
    inverse, _ = triangular_inverse(R[..., pivots, pivots.T])
    b = inverse @ R[..., pivots, free]
    columns = _lengths(_transposed(R[..., free]))[..., None, :]
    with np.errstate(over="ignore"):
        allowed = np.asarray(noise)[..., None, None] * (_lengths(inverse)[..., None] * columns)
    small = np.abs(b) <= allowed
    if not b[small].any():
        return R
    R = R.copy()
    R[..., pivots, free] -= R[..., pivots, pivots.T] @ np.where(small, b, 0.0)
    return R


def _transposed(matrices: NDArray) -> NDArray:
    return np.swapaxes(matrices, -1, -2)


def _lengths(rows: NDArray) -> NDArray:
    """Euclidean norms of rows, whose squares may overflow."""
    largest = np.abs(rows).max(axis=-1, initial=0.0)
    largest[largest == 0] = 1.0
    return np.linalg.norm(rows / largest[..., None], axis=-1) * largest


def null_space(vectors: NDArray, error: NDArray) -> NDArray:
    """The same space as that of ``vectors`` (k, r), without entries that are rounding error.

    Columns are combined so that each has a 1 where the others have 0; then an entry in row i that
    is at most ``error[i]`` is set to 0.
    """
    N = vectors.copy()
    pivots: list[int] = []
    for c in range(N.shape[1]):
        size = np.abs(N[:, c])
        size[pivots] = 0.0
        i = int(np.argmax(size))
        N[:, c] /= N[i, c]
        for other in range(N.shape[1]):
            if other != c:
                N[:, other] -= N[i, other] * N[:, c]
        pivots.append(i)
    small = np.abs(N) <= error[:, None]
    small[pivots] = False
    N[small] = 0.0
    return N
