"""Factors of many coefficients, by LAPACK's blocked routines where these are quicker."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from olsq.online.forms.triangular_kernels import (
    back_substitute,
    back_substitute_each,
    forward_substitute_each,
    inverse_diagonal,
    inverse_diagonals,
)

dtrmm, dtrsm = get_blas_funcs(("trmm", "trsm"), dtype=np.float64)
dpotrf, dpstrf, dtrtri = get_lapack_funcs(("potrf", "pstrf", "trtri"), dtype=np.float64)

# Compiled loops over rows keep up while the matrix is in the cache.  On one core at 128, 256, 512
# and 1024 coefficients: a factor 83, 550, 8,500 and 78,000 us, LAPACK's 58, 310, 2,100 and 25,000;
# an inverse 96, 550, 6,000 and 74,000 us, LAPACK's 112, 570, 2,900 and 25,000.
LEAST = 256
# Loops solve for one target after the other, and read the factor anew for each: with 8 targets
# BLAS takes 0.5 to 0.8 times as long from d = 32 on, with 128 of them 0.4 (d 16 to 1024, one core).
SEVERAL_TARGETS = 8
# Up to as many coefficients, loops solve for any number of rows in BLAS's time (1 to 8,192 rows).
# BLAS multiplies by the inverse of a pivot on some processors and divides on others; the loops
# give the same bits on all of them, for one factor and for a stack.
FEW_COEFFICIENTS = 8


def inverse_of_triangle(R: NDArray) -> tuple[NDArray, NDArray]:
    """Return the inverse of upper triangular R (..., d, d), float64, and diag of ``(R^T R)^-1``."""
    R = np.ascontiguousarray(R)
    if R.ndim > 2 or R.shape[0] < LEAST:
        inverse, diagonal = np.zeros_like(R), np.empty(R.shape[:-1])
        (inverse_diagonal if R.ndim == 2 else inverse_diagonals)(R, inverse, diagonal)
        return inverse, diagonal
    inverse = dtrtri(R.T, lower=1)[0].T
    return inverse, np.einsum("ij,ij->i", inverse, inverse)


def solve_triangle(R: NDArray, z: NDArray) -> NDArray:
    """Return theta (..., m, d) with ``R theta_l = z_l``, for R (..., d, d) upper triangular."""
    if R.ndim > 2:
        R, z = np.ascontiguousarray(R), np.ascontiguousarray(z)
        theta = np.empty_like(z)
        back_substitute_each(R, z, theta)
        return theta
    if z.shape[0] < SEVERAL_TARGETS:
        theta = np.empty_like(z)
        back_substitute(R, z, theta)
        return theta
    return dtrsm(1.0, R.T, z.T.copy("F"), lower=1, trans_a=1, overwrite_b=1).T


def solve_transposed(R: NDArray, X: NDArray) -> NDArray:
    """Return W (..., n, d) with ``R^T w = x`` for every row, R (..., d, d) as in
    :func:`solve_triangle`.
    """
    d = R.shape[-1]
    if R.ndim > 2 or d <= FEW_COEFFICIENTS:
        W = np.array(X, order="C")
        if d == 0:  # nothing is determined
            return W
        factors = np.ascontiguousarray(R).reshape(R.size // (d * d), d, d)
        forward_substitute_each(factors, W.reshape(len(factors), *W.shape[-2:]))
        return W
    return dtrsm(1.0, R.T, X.T.copy("F"), lower=1, overwrite_b=1).T
