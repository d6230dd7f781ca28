"""Minimum-norm coefficients: what is rounding error in a dependence is taken out of it first.

A column that depends on others does so through a few coefficients.  The rest of them should be zero
and are rounding error, but in the columns' own units they need not be small: next to a column that
is 1e10 times fainter, an error of 1e-16 is a dependence of 1e-6.  The norm is in those units too,
so that the solution of least norm would travel far along that error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.triangular_kernels import inverse_diagonal


def triangular_inverse(R: NDArray) -> tuple[NDArray, NDArray]:
    """Inverse of an upper triangular R (float64) and the diagonal of ``(R^T R)^-1``."""
    R = np.ascontiguousarray(R)
    inverse, diagonal = np.zeros_like(R), np.empty(R.shape[0])
    inverse_diagonal(R, inverse, diagonal)
    return inverse, diagonal


def without_rounding(R: NDArray, known: NDArray[np.bool_], noise: float) -> NDArray:
    """R (d, d) with the rounding error taken out of its columns without a pivot.

    Column j is ``R_known b`` for a vector b of regression coefficients.  An error of ``noise``
    times the column's length makes errors of ``noise |R_j| |row i of R_known^-1|`` in b_i: what is
    smaller is not told from zero.
    """
    free = ~known
    if not free.any() or not known.any():
        return R
    inverse, _ = triangular_inverse(R[np.ix_(known, known)])
    b = inverse @ R[np.ix_(known, free)]
    with np.errstate(over="ignore"):
        allowed = noise * np.outer(_lengths(inverse), _lengths(R[:, free].T))
    small = np.abs(b) <= allowed
    if not b[small].any():
        return R
    R = R.copy()
    R[np.ix_(known, free)] -= R[np.ix_(known, known)] @ np.where(small, b, 0.0)
    return R


def _lengths(rows: NDArray) -> NDArray:
    """Euclidean norms of rows, whose squares may overflow."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    largest[largest == 0] = 1.0
    return np.linalg.norm(rows / largest[:, None], axis=1) * largest


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
