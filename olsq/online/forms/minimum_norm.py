"""Minimum-norm coefficients, after removing the rounding error of dependent columns.

A column that depends on others does so through a few coefficients.  The rest of them should be zero
and are rounding error, but in the columns' own units they need not be small: next to a column that
is 1e10 times fainter, an error of 1e-16 is a dependence of 1e-6.  The norm is in those units too,
so that the solution of least norm would travel far along that error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.lapack import inverse_of_triangle
from olsq.online.forms.minimum_norm_kernels import minimum_norm
from olsq.online.forms.triangular_kernels import inverse_diagonals


def triangular_inverse(R: NDArray) -> tuple[NDArray, NDArray]:
    """Invert upper triangular R (..., d, d), float64; also return diag of ``(R^T R)^-1``."""
    R = np.ascontiguousarray(R)
    if R.ndim == 2:
        return inverse_of_triangle(R)
    inverse, diagonal = np.zeros_like(R), np.empty(R.shape[:-1])
    inverse_diagonals(R, inverse, diagonal)
    return inverse, diagonal


def solution(
    R: NDArray, z: NDArray, known: NDArray[np.bool_], noise: Any, intercept: bool
) -> NDArray:
    """Solve ``R theta = z`` for theta (..., m, d) of minimum norm (intercept aside).

    R (..., d, d) and z (..., m, d) may be many at once, all with the same pivots ``known`` (d,);
    ``noise`` (...) is the relative rounding error of each.
    """
    (m, d), first = z.shape[-2:], int(intercept and known[0])
    theta = np.empty(z.shape)
    count = z.size // (m * d) if z.size else 0
    noises = np.broadcast_to(np.asarray(noise, np.float64), z.shape[:-2]).reshape(count)
    minimum_norm(
        np.ascontiguousarray(R).reshape(count, d, d), np.ascontiguousarray(z).reshape(count, m, d),
        known, np.ascontiguousarray(noises), first, theta.reshape(count, m, d),
    )  # fmt: skip
    return theta


def inverse_root(R: NDArray, known: NDArray[np.bool_]) -> NDArray:
    """Compute B (..., d, rank) with ``B B^T`` the (pseudo-)inverse of ``R^T R``, by pivots
    ``known``.
    """
    if known.all():
        return triangular_inverse(R)[0]
    Q, L, length = row_space(R, known)
    return Q @ _transposed(triangular_inverse(L)[0]) / length[..., None]


def row_space(R: NDArray, known: NDArray[np.bool_]) -> tuple[NDArray, NDArray, NDArray]:
    """Compute Q (..., d, rank) orthonormal, L and the lengths with ``R_known = (Q L)^T length``."""
    length = np.linalg.norm(R, axis=-2)  # columns to unit length first
    length[length == 0] = 1.0
    Q, L = np.linalg.qr(_transposed(R[..., known, :] / length[..., None, :]))
    return Q, L, length


def variances(R: NDArray, root: NDArray) -> NDArray:
    """Compute the diagonal (..., d) of the inverse information from its root, inf if unknown."""
    variance = (root**2).sum(-1)
    if root.shape[-1] < R.shape[-1]:
        # e_j is estimable iff it lies in the row space of R, on which R^T R B B^T is 1.
        fit = ((_transposed(R) @ (R @ root)) * root).sum(-1)
        variance[np.abs(fit - 1.0) >= 1e-8] = np.inf
    return variance


def _transposed(matrices: NDArray) -> NDArray:
    return np.swapaxes(matrices, -1, -2)


def null_space(vectors: NDArray, error: NDArray) -> NDArray:
    """Return a basis of the space of ``vectors`` (k, r) without entries that are rounding error.

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
