"""Updates and downdates of the Cholesky factors of many matrices by any number of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.linalg.numpy.rotations import (
    eliminate,
    givens,
    inner_rows,
    inverse_rotation,
    rotate_pair,
    rotation,
    subtract_outer,
)


@kernel(forceinline=True)
def absorb(W, X, pivots, q, u):
    """Rotate the rows X (k, N) into the first ``pivots`` rows of the trapezoidal W (., N)."""
    for j in range(pivots):
        if X.shape[0] == 1 and W[j, j] >= 0:  # plane rotations give the same in half the time
            if X[0, j] != 0:
                c, s, W[j, j] = givens(W[j, j], X[0, j])
                rotate_pair(W[j, j + 1 :], X[0, j + 1 :], c, s, 1.0)
                X[0, j] = 0.0
        else:
            eliminate(W, j, X, j, q, u)


@kernel(forceinline=True)
def clear_below(W, pivots):
    """Set the entries below the diagonal in the pivot columns to zero: they hold unread values."""
    for i in range(W.shape[0]):
        for j in range(min(i, pivots)):
            W[i, j] = 0.0


@kernel()
def absorb_all(W, X, pivots):
    """Run :func:`absorb` for every W (b, n, N) and X (b, k, N)."""
    if W.shape[0] != X.shape[0] or W.shape[2] != X.shape[2]:
        raise ValueError("W and X do not have shapes that fit together")
    if pivots > min(W.shape[1], W.shape[2]):
        raise ValueError("there are more pivots than rows or columns")
    q, u = np.empty(X.shape[1]), np.empty(X.shape[2])
    for b in range(W.shape[0]):
        clear_below(W[b], pivots)
        absorb(W[b], X[b], pivots, q, u)


@kernel(forceinline=True)
def settle_zero_pivots(R, x, q):
    """Move a row with a zero pivot and a nonzero rest into the rows below.

    ``R^T R`` is unchanged.
    """
    d = R.shape[0]
    for j in range(d):
        if R[j, j] != 0:
            continue
        for col in range(j, d):
            x[0, col] = R[j, col]
            R[j, col] = 0.0
        for i in range(j + 1, d):
            if R[i, i] < 0:
                for col in range(i, d):
                    R[i, col] = -R[i, col]
            c, r = rotation(R[i, i], x, i, q)
            rotate_pair(R[i, i + 1 :], x[0, i + 1 :], c, q[0], 1.0)
            R[i, i] = r


@kernel(forceinline=True)
def downdate_rows(R, X, q, u):
    """Remove the rows X (k, d) from R (d, d); return the first pivot that was lost, or -1.

    The row is solved from the rotation that would put X back (``row = c row' + u``), and X is
    updated by that same rotation, not by the hyperbolic one: the mixed form.
    """
    d = R.shape[0]
    for j in range(d):
        row = R[j]
        if row[j] < 0:
            for col in range(j, d):
                row[col] = -row[col]
        c, r = inverse_rotation(row[j], X, j, q)
        if c < 0:
            return j
        inner_rows(q, X, j + 1, u)
        inverse, share = 1.0 / c, 1.0 / (1.0 + c)
        tail, v = row[j + 1 :], u[j + 1 :]
        for col in range(tail.shape[0]):
            tail[col] = (tail[col] - v[col]) * inverse
            v[col] = tail[col] + share * v[col]
        subtract_outer(X, q, u, j + 1)
        row[j] = r
    return -1


@kernel()
def downdate_all(R, X, lost):
    """Run :func:`downdate_rows` for every R (b, d, d), X (b, k, d); lost (b,) gets lost pivots."""
    n, d, _ = R.shape
    if R.shape != (n, d, d) or X.shape != (n, X.shape[1], d) or lost.shape != (n,):
        raise ValueError("R, X and lost do not have shapes that fit together")
    q, u, x = np.empty(max(X.shape[1], 1)), np.empty(d), np.empty((1, d))
    for b in range(n):
        clear_below(R[b], d)
        settle_zero_pivots(R[b], x, q)
        lost[b] = downdate_rows(R[b], X[b], q, u)


def cholesky_update(R: NDArray, X: NDArray) -> NDArray:
    """Compute the factor of ``R^T R + X^T X``: R (b, d, d) upper triangular, X (b, k, d), both
    finite.
    """
    R, X = _copies(R, X)
    absorb_all(R, X, R.shape[-1])
    return R


def cholesky_downdate(R: NDArray, X: NDArray) -> NDArray:
    """Compute the factor of ``R^T R - X^T X``; LinAlgError where that is not positive definite."""
    R, X = _copies(R, X)
    lost = np.empty(len(R), np.int64)
    downdate_all(R, X, lost)
    if (lost >= 0).any():
        where = np.flatnonzero(lost >= 0)
        several = f" in {len(where)} of {len(lost)} matrices, the first at [{where[0]}]"
        raise np.linalg.LinAlgError(
            "the downdated matrix is not positive definite to rounding"
            + (several if len(lost) > 1 else "")
            + f": pivot {lost[where[0]]} is lost. x removes all the information of the "
            "factor in some direction; factorise the remaining rows afresh, or add a ridge"
        )
    return R


def _copies(R: NDArray, X: NDArray) -> tuple[NDArray, NDArray]:
    """Copy both to float64 arrays that kernels may write to."""
    return np.array(R, np.float64, order="C"), np.array(X, np.float64, order="C")
