"""Insert and delete rows and columns in QR factorisations, on ``W = [R | Q^T]``.

An orthogonal map of W's rows changes R and Q together and leaves ``Q R`` as it is.  Economic
factorisations are first completed by one vector where a column of Q is needed that is not there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.linalg.numpy.cholesky import absorb_all
from olsq.linalg.numpy.rotations import (
    eliminate,
    givens,
    rotate_block,
    rotate_pair,
    rotation,
)

EPS = float(np.finfo(np.float64).eps)


@kernel()
def sweep_all(W, column, top, full):
    """Set ``column`` of every W (b, n, N) to zero below row ``top``, from below, rotating
    neighbours.

    Rows of R become rows of a Hessenberg matrix. R is zero in the rows from ``full`` on, which are
    rotated together first.
    """
    n = W.shape[1]
    if not (0 <= column < W.shape[2] and top >= 0 and full >= 0):
        raise ValueError("column, top and full must lie within W")
    q, u = np.empty(n), np.empty(W.shape[2])
    last = min(max(full, top), n - 1)
    for b in range(W.shape[0]):
        rows = W[b]
        if last + 1 < n:
            rotate_into(rows, last, column, q, u)
        for i in range(last, top, -1):
            high, low = rows[i - 1], rows[i]
            c, s, r = givens(high[column], low[column])
            if c < 0:  # the rotation by half a turn more: increments need a cosine >= 0
                c, s, r = -c, -s, -r
            rotate_pair(high, low, c, s, 1.0)
            high[column], low[column] = r, 0.0


@kernel(forceinline=True)
def rotate_into(rows, j, column, q, u):
    """Apply one block rotation to row j and all rows below it, whole, that zeroes ``column`` below
    j.
    """
    below = rows[j + 1 :]
    kept = np.empty((below.shape[0], 1))
    for i in range(below.shape[0]):
        kept[i, 0] = below[i, column]
    pivot = rows[j, column]
    sign = -1.0 if pivot < 0 else 1.0
    for col in range(rows.shape[1]):
        rows[j, col] *= sign
    c, r = rotation(sign * pivot, kept, 0, q)
    rotate_block(rows[j], below, c, q, 0, u)
    rows[j, column] = r
    for i in range(below.shape[0]):
        below[i, column] = 0.0


@kernel()
def close_gap_all(W, first, pivots, p):
    """Make W (b, n, N), upper except for p subdiagonals from row ``first`` on, trapezoidal."""
    n = W.shape[1]
    if not (first >= 0 and pivots <= min(n, W.shape[2]) and p >= 0):
        raise ValueError("first, pivots and p must lie within W")
    q, u = np.empty(p), np.empty(W.shape[2])
    for b in range(W.shape[0]):
        for j in range(first, pivots):
            eliminate(W[b], j, W[b, j + 1 : min(j + p + 1, n)], j, q, u)


def qr_insert(Q: NDArray, R: NDArray, new: NDArray, k: int, which: str) -> tuple[NDArray, NDArray]:
    """Insert rows (b, p, n) or columns (b, p, m) before the k-th, for Q (b, m, q), R (b, q, n)."""
    Q, R, new = (x.astype(np.float64, copy=False) for x in (Q, R, new))
    insert = _insert_rows if which == "row" else _insert_columns
    return insert(Q, R, new, k)


def _insert_rows(Q: NDArray, R: NDArray, new: NDArray, k: int) -> tuple[NDArray, NDArray]:
    (b, m, q), n, p = Q.shape, R.shape[-1], new.shape[1]
    W = np.concatenate([R, Q.swapaxes(1, 2), np.zeros((b, q, p))], -1)
    unit = np.broadcast_to(np.eye(p), (b, p, p))
    X = np.concatenate([new, np.zeros((b, p, m)), unit], -1)
    # Where R has fewer rows than columns, the remainder of a new row is the next row of R.
    for rows in [X] if q >= n else [X[:, i : i + 1].copy() for i in range(p)]:
        absorb_all(W, rows, min(W.shape[1], n))
        if q == m:
            W = np.concatenate([W, rows], 1)
    place = n + np.concatenate([np.arange(k), m + np.arange(p), np.arange(k, m)])
    return _split_factors(W[..., np.concatenate([np.arange(n), place])], n)


def _insert_columns(Q: NDArray, R: NDArray, new: NDArray, k: int) -> tuple[NDArray, NDArray]:
    if not new.shape[1]:
        return qr_delete(Q, R, 0, 0, "col")
    for t in range(new.shape[1]):
        (m, q), n = Q.shape[1:], R.shape[-1]
        if q == m:
            w = _products(Q.swapaxes(1, 2), new[:, t])
        else:
            w, v, rho = complement(Q, new[:, t])
            Q, R = _with_vector(Q, R, v)
            w = np.concatenate([w, rho[:, None]], -1)
        at = k + t
        W = np.concatenate([R[..., :at], w[..., None], R[..., at:], Q.swapaxes(1, 2)], -1)
        sweep_all(W, at, at, n)
        Q, R = _split_factors(W, n + 1)
    return Q, R


def qr_delete(Q: NDArray, R: NDArray, k: int, p: int, which: str) -> tuple[NDArray, NDArray]:
    """Delete rows or columns k, ..., k + p - 1, for Q (b, m, q) and R (b, q, n)."""
    Q, R = (x.astype(np.float64, copy=False) for x in (Q, R))
    if which == "col" or not p:  # where nothing goes, signs may still change
        (m, q), n = Q.shape[1:], R.shape[-1]
        W = np.concatenate([np.delete(R, np.s_[k : k + p], -1), Q.swapaxes(1, 2)], -1)
        close_gap_all(W, k, min(n - p, q), p)
        return _split_factors(W if q == m else W[:, : n - p], n - p)
    for _ in range(p):
        (m, q), n = Q.shape[1:], R.shape[-1]
        if q < m:
            unit = np.zeros((len(Q), m))
            unit[:, k] = 1.0
            Q, R = _with_vector(Q, R, complement(Q, unit)[1])
        W = np.concatenate([R, Q.swapaxes(1, 2)], -1)
        sweep_all(W, n + k, 0, n)
        Q, R = _split_factors(np.delete(W[:, 1:], n + k, -1), n)
    return Q, R


def complement(Q: NDArray, u: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Compute w, v, rho with ``u = Q w + rho v``, v of length 1 and orthogonal to Q (b, m, q), q <
    m.

    Gram-Schmidt, with a second pass as in Daniel, Gragg, Kaufman & Stewart (1976). Where u lies in
    the span of Q to rounding, rho is 0 and v comes from the unit vector furthest from that span.
    """
    _, m, _ = Q.shape
    # Scaled by a power of two, which rounds nothing, so that squares neither overflow nor
    # underflow.
    exponent = np.frexp(np.abs(u).max(-1, keepdims=True, initial=0))[1]
    u = np.ldexp(u, -exponent)
    w, v = _project(Q, u)
    more, v = _project(Q, v)
    w, rho = w + more, np.linalg.norm(v, axis=-1)
    # below rounding of the projection, the rest of u has no direction
    lost = rho <= 2 * m * EPS * np.linalg.norm(u, axis=-1)
    furthest = np.argmin((Q**2).sum(-1), -1)
    unit = np.zeros_like(u)
    unit[np.arange(len(u)), furthest] = 1.0
    v = np.where(lost[:, None], _project(Q, unit)[1], v / np.where(lost, 1, rho)[:, None])
    v = _project(Q, v)[1]
    v /= np.linalg.norm(v, axis=-1, keepdims=True)
    rho = np.where(lost, 0.0, rho)
    return np.ldexp(w, exponent), v, np.ldexp(rho, exponent[:, 0])


def _project(Q: NDArray, u: NDArray) -> tuple[NDArray, NDArray]:
    """Compute ``Q^T u``, and the part of u orthogonal to Q."""
    w = _products(Q.swapaxes(1, 2), u)
    return w, u - _products(Q, w)


def _products(A: NDArray, x: NDArray) -> NDArray:
    """Compute ``A x`` for every A (b, ., .) and x (b, .)."""
    return (A @ x[..., None])[..., 0]


def _with_vector(Q: NDArray, R: NDArray, v: NDArray) -> tuple[NDArray, NDArray]:
    """Append the column v to Q and a row of zeros to R: the same product."""
    return (
        np.concatenate([Q, v[..., None]], -1),
        np.concatenate([R, np.zeros((len(R), 1, R.shape[-1]))], 1),
    )


def _split_factors(W: NDArray, n: int) -> tuple[NDArray, NDArray]:
    """Split ``W = [R | Q^T]`` into Q and R, R with n columns and no negative number on its
    diagonal.
    """
    d = min(W.shape[1], n)
    sign = np.ones(W.shape[:2])
    sign[:, :d] = np.where(np.diagonal(W[:, :d, :d], axis1=1, axis2=2) < 0, -1.0, 1.0)
    W = W * sign[..., None]
    return np.ascontiguousarray(W[..., n:].swapaxes(1, 2)), np.triu(W[..., :n])
