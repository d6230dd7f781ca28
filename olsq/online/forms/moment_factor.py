"""Triangular factors of moments, singular ones too.

Moments are ``gram = sum w x x^T`` (d, d) and ``cross = sum w y x^T`` (m, d).  Adding them up
squares the condition number: directions with less than rounding of the largest are lost, and what
is left of them is error, which must not pass for information.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.counting import COUNT
from olsq.online.forms.lapack import inverse_of_triangle
from olsq.online.forms.minimum_norm import triangularise

ASSUMED_ROWS = 10_000  # number of rows assumed behind singular moments


def factor(A: NDArray, G: NDArray, eps: float) -> tuple[NDArray, NDArray, float, float]:
    """Factorise ``R^T R = A`` with R (d, d) upper triangular, and solve ``z R = G`` for z (m, d).

    The Cholesky factor where A is nonsingular; else made from its eigenvectors above rounding, and
    row j of R is zero where column j depends on those before it.  ``eps`` is the precision that A
    was accumulated in.  The third result is how far off R's row space may be, 0 where there is
    nothing outside of it: eigenvalues that should have been zero show A's rounding error, but not
    that of a factor which A was made from.  That is taken for the error of ``ASSUMED_ROWS``
    rotations.  The fourth is the least eigenvalue of A with a unit diagonal, over the largest.
    """
    diagonal = np.diagonal(A)
    length = np.sqrt(np.maximum(diagonal, 0.0))
    alive = length > 0
    scale = np.where(alive, length, 1.0)
    with np.errstate(over="ignore"):
        correlation = np.where(np.outer(alive, alive), A / scale / scale[:, None], 0.0)
    values, vectors = np.linalg.eigh(correlation)
    lost = A.shape[0] * eps * values[-1]
    if values[0] > max(lost, 8 * A.shape[0] * float(np.finfo(np.float64).eps)):  # every pivot is
        R = np.ascontiguousarray(np.linalg.cholesky(correlation).T)
        with np.errstate(over="ignore", invalid="ignore"):
            z = (G / scale) @ inverse_of_triangle(R)[0]
            return R * length, z, 0.0, values[0] / values[-1]
    kept = values > lost
    root, V = np.sqrt(values[kept]), vectors[:, kept]
    error = np.abs(values[~kept]).max(initial=0.0)
    noise = (8 * error + lost) / values[kept].min() if kept.any() else 0.0
    noise = min(max(float(noise), 3 * eps * ASSUMED_ROWS**0.5), eps**0.5)
    with np.errstate(over="ignore", invalid="ignore"):
        R, z = triangularise(root[:, None] * V.T, ((G / scale) @ V / root).T, noise)
    return R * length, z, noise, values[0] / max(values[-1], np.finfo(np.float64).tiny)


def tally_of(error: float, tally: NDArray[np.float64]) -> NDArray:
    """Return a copy of the tally for a factor whose row space is off by ``error``.

    A state takes its rounding error for three roundings times the root of its count.
    """
    counted = tally.copy()
    counted[COUNT] = max(counted[COUNT], (error / (3 * float(np.finfo(np.float64).eps))) ** 2)
    return counted
