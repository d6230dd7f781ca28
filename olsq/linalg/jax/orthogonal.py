"""Insert and delete rows and columns in QR factorisations; as :mod:`olsq.linalg.numpy.orthogonal`.

Functions are of one factorisation, and ``k`` may be traced: rotations of rows that have nothing to
do are then by a zero angle.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.linalg.jax.rotations import absorb, eliminate, rotate, rotation


@functools.partial(jax.jit, static_argnames="which")
def qr_insert(Q: Array, R: Array, new: Array, k: Any, which: str) -> tuple[Array, Array]:
    """Insert rows (b, p, n) or columns (b, p, m) before the k-th, for Q (b, m, q), R (b, q, n)."""
    insert = _insert_rows if which == "row" else _insert_columns
    return jax.vmap(lambda Q, R, new: insert(Q, R, new, k))(Q, R, new)


@functools.partial(jax.jit, static_argnames=("p", "which"))
def qr_delete(Q: Array, R: Array, k: Any, p: int, which: str) -> tuple[Array, Array]:
    """Delete rows or columns k, ..., k + p - 1, for Q (b, m, q) and R (b, q, n)."""
    # Where nothing goes, signs may still change.
    delete = _delete_rows if which == "row" and p else _delete_columns
    return jax.vmap(lambda Q, R: delete(Q, R, k, p))(Q, R)


def _insert_rows(Q: Array, R: Array, new: Array, k: Any) -> tuple[Array, Array]:
    (m, q), n, p = Q.shape, R.shape[1], len(new)
    W = jnp.concatenate([R, Q.T, jnp.zeros((q, p), Q.dtype)], 1)
    X = jnp.concatenate([new, jnp.zeros((p, m), Q.dtype), jnp.eye(p, dtype=Q.dtype)], 1)
    # Where R has fewer rows than columns, the remainder of a new row is the next row of R.
    for rows in [X] if q >= n else [X[i : i + 1] for i in range(p)]:
        W, remainder = absorb(W, rows, min(len(W), n))
        if q == m:
            W = jnp.concatenate([W, remainder])
    Q, R = _split_factors(W, n)
    return Q[_order_of_insertion(m, p, k)], R


def _insert_columns(Q: Array, R: Array, new: Array, k: Any) -> tuple[Array, Array]:
    if not len(new):
        return _delete_columns(Q, R, 0, 0)
    for t in range(len(new)):
        (m, q), n = Q.shape, R.shape[1]
        if q == m:
            w = _product(Q.T, new[t])
        else:
            w, v, rho = _complement(Q, new[t])
            Q, R = _with_vector(Q, R, v)
            w = jnp.concatenate([w, rho[None]])
        R = jnp.concatenate([R, w[:, None]], 1)[:, _order_of_insertion(n, 1, k + t)]
        Q, R = _split_factors(_sweep(jnp.concatenate([R, Q.T], 1), k + t, k + t, n), n + 1)
    return Q, R


def _delete_columns(Q: Array, R: Array, k: Any, p: int) -> tuple[Array, Array]:
    (m, q), n = Q.shape, R.shape[1] - p
    W = jnp.concatenate([R[:, _order_of_deletion(n, p, k)], Q.T], 1)
    W = _close_gap(W, min(n, q), p)
    return _split_factors(W if q == m else W[:n], n)


def _delete_rows(Q: Array, R: Array, k: Any, p: int) -> tuple[Array, Array]:
    for _ in range(p):
        (m, q), n = Q.shape, R.shape[1]
        if q < m:
            unit = (jnp.arange(m) == k).astype(Q.dtype)
            Q, R = _with_vector(Q, R, _complement(Q, unit)[1])
        W = _sweep(jnp.concatenate([R, Q.T], 1), n + k, 0, n)[1:]
        order = jnp.concatenate([jnp.arange(n), n + _order_of_deletion(m - 1, 1, k)])
        Q, R = _split_factors(W[:, order], n)
    return Q, R


def _order_of_insertion(n: int, p: int, k: Any) -> Array:
    """Return the order of n old and then p new entries, with the new ones before the k-th."""
    i = jnp.arange(n + p)
    return jnp.where(i < k, i, jnp.where(i < k + p, n + i - k, i - p))


def _order_of_deletion(n: int, p: int, k: Any) -> Array:
    """Return the n entries that remain of n + p without k, ..., k + p - 1."""
    i = jnp.arange(n)
    return i + p * (i >= k)


def _sweep(W: Array, column: Any, top: Any, full: int) -> Array:
    """Set ``column`` of W (q, N) to zero below row ``top``, from below, rotating neighbouring rows.

    R is zero in the rows from ``full`` on, which are rotated together first.
    """
    here = jnp.arange(W.shape[1]) == column
    last = min(full, len(W) - 1)
    if last + 1 < len(W):
        row, below = _rotate_into(W[last], W[last + 1 :], column, top <= last)
        W = jnp.concatenate([W[:last], row[None], below])

    def step(low: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        i, high = inputs
        high, below_row = _rotate_into(high, low[None], column, i >= top)
        return high, below_row[0]

    if last <= 0:
        return W
    first, lower_rows = jax.lax.scan(step, W[last], (jnp.arange(last), W[:last]), reverse=True)
    W = jnp.concatenate([first[None], lower_rows, W[last + 1 :]])
    return jnp.where(here & (jnp.arange(len(W))[:, None] > top), 0, W)


def _rotate_into(row: Array, below: Array, column: Any, active: Any) -> tuple[Array, Array]:
    """Rotate the rows ``below`` into ``row``, whole, so that they vanish in ``column``."""
    pivot = jax.lax.dynamic_index_in_dim(row, column, 0, False)
    sign = jnp.where(pivot < 0, -1, 1).astype(row.dtype)
    b = sign * jax.lax.dynamic_index_in_dim(below, column, 1, False)
    c, q, _ = rotation(sign * pivot, b)
    return rotate(row, below, jnp.where(active, c, 1), jnp.where(active, q, 0))


def _close_gap(W: Array, pivots: int, p: int) -> Array:
    """Make W (q, N), upper except for p subdiagonals, trapezoidal."""
    if pivots == 0 or p == 0:
        return W
    padded = jnp.concatenate([W, jnp.zeros((p, W.shape[1]), W.dtype)])

    def step(window: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        j, enters = inputs
        rows = jnp.concatenate([window, enters[None]])
        row, window = eliminate(rows[0], rows[1:], j)
        return window, row

    inputs = jnp.arange(pivots), padded[p : p + pivots]
    window, rows = jax.lax.scan(step, padded[:p], inputs)
    return jnp.concatenate([rows, window, padded[p + pivots :]])[: len(W)]


def _complement(Q: Array, u: Array) -> tuple[Array, Array, Array]:
    """Compute w, v, rho with ``u = Q w + rho v``: see
    :func:`olsq.linalg.numpy.orthogonal.complement`.
    """
    largest = jax.lax.stop_gradient(jnp.abs(u).max(initial=0))
    largest = jnp.where(largest > 0, largest, 1)
    u = u / largest
    w, v = _project(Q, u)
    more, v = _project(Q, v)
    w = w + more
    length = jax.lax.stop_gradient(jnp.sqrt((v**2).sum()))
    eps = jnp.finfo(Q.dtype).eps
    # below rounding of the projection, the rest of u has no direction
    lost = length <= 2 * len(Q) * eps * jnp.sqrt((jax.lax.stop_gradient(u) ** 2).sum())
    unit = (jnp.arange(len(Q)) == jnp.argmin((Q**2).sum(1))).astype(Q.dtype)
    v = jnp.where(lost, _project(Q, unit)[1], v / jnp.where(lost, 1, length))
    v = _project(Q, v)[1]
    norm = jnp.sqrt((v**2).sum())
    rho = jnp.where(lost, 0, norm * length)
    return w * largest, v / norm, rho * largest


def _project(Q: Array, u: Array) -> tuple[Array, Array]:
    """Compute ``Q^T u``, and the part of u orthogonal to Q."""
    w = _product(Q.T, u)
    return w, u - _product(Q, w)


def _product(A: Array, x: Array) -> Array:
    """Compute ``A x`` in the full precision of the dtype, whatever the device's default is."""
    return jnp.matmul(A, x, precision=jax.lax.Precision.HIGHEST)


def _with_vector(Q: Array, R: Array, v: Array) -> tuple[Array, Array]:
    """Append the column v to Q and a row of zeros to R: the same product."""
    zeros = jnp.zeros((1, R.shape[1]), R.dtype)
    return jnp.concatenate([Q, v[:, None]], 1), jnp.concatenate([R, zeros])


def _split_factors(W: Array, n: int) -> tuple[Array, Array]:
    """Split ``W = [R | Q^T]`` into Q and R, R with n columns and no negative number on its
    diagonal.
    """
    d = min(len(W), n)
    sign = jnp.where(jnp.diagonal(W[:d, :d]) < 0, -1, 1).astype(W.dtype)
    W = jnp.concatenate([sign[:, None] * W[:d], W[d:]])
    return W[:, n:].T, jnp.triu(W[:, :n])
