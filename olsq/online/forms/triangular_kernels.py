"""Numba kernels that solve with the triangular factor R of the information matrix, ``R^T R``.

A zero pivot R_jj means that nothing is known yet about coefficient j given the ones before it.
"""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel


@kernel(called=True)
def back_substitute(R, z, theta):
    """Solve ``R theta_l = z_l`` for every target, with theta_j = 0 at zero pivots."""
    d, m = R.shape[0], z.shape[0]
    for target in range(m):
        for i in range(d - 1, -1, -1):
            pivot = R[i, i]
            if pivot == 0:
                theta[target, i] = 0
                continue
            total = z[target, i]
            row, known = R[i, i + 1 :], theta[target, i + 1 :]
            for k in range(known.shape[0]):
                total -= row[k] * known[k]
            theta[target, i] = total / pivot


@kernel()
def back_substitute_each(R, z, theta):
    """Solve ``R theta = z`` for R (b, d, d) without zero pivots, z and theta (b, m, d)."""
    b, d, _ = R.shape
    if R.shape != (b, d, d) or z.shape[::2] != (b, d) or theta.shape != z.shape:
        raise ValueError("the shapes of factors, targets and coefficients do not fit together")
    for i in range(b):
        back_substitute(R[i], z[i], theta[i])


@kernel()
def forward_substitute_each(R, W):
    """Solve ``R^T w = x`` in place of the rows x of W (b, n, d), R as in
    :func:`back_substitute_each`.

    All n rows at a time, side by side, so that the inner loops are long.
    """
    b, n, d = W.shape
    if R.shape != (b, d, d):
        raise ValueError("the shapes of factors and rows do not fit together")
    columns = np.empty((d, n))
    for i in range(b):
        for t in range(n):
            for j in range(d):
                columns[j, t] = W[i, t, j]
        for j in range(d):
            for k in range(j):
                factor = R[i, k, j]
                for t in range(n):
                    columns[j, t] -= factor * columns[k, t]
            pivot = R[i, j, j]
            for t in range(n):
                columns[j, t] /= pivot
        for t in range(n):
            for j in range(d):
                W[i, t, j] = columns[j, t]


@kernel(called=True)
def inverse_diagonal(R, inverse, out):
    """Compute the diagonal of ``(R^T R)^-1``: squared row lengths of the triangular inverse.

    All pivots must be nonzero; ``inverse`` (d, d) is scratch.  Rows are combined whole, from the
    last upwards, so that the inner loops run along memory.
    """
    d = R.shape[0]
    for i in range(d - 1, -1, -1):
        row = inverse[i, i:]
        for k in range(row.shape[0]):
            row[k] = 0.0
        for k in range(i + 1, d):
            factor = R[i, k]
            below, part = inverse[k, k:], inverse[i, k:]
            for j in range(below.shape[0]):
                part[j] -= factor * below[j]
        scale = 1 / R[i, i]
        row[0] = 1
        total = 0.0
        for j in range(row.shape[0]):
            row[j] *= scale
            total += row[j] * row[j]
        out[i] = total


@kernel()
def inverse_diagonals(R, inverse, out):
    """Compute :func:`inverse_diagonal` of every R (b, d, d) into inverse (b, d, d), out (b, d)."""
    b, d, _ = R.shape
    if R.shape != (b, d, d) or inverse.shape != R.shape or out.shape != (b, d):
        raise ValueError("inverse and out do not have shapes that fit R")
    for i in range(b):
        inverse_diagonal(R[i], inverse[i], out[i])
