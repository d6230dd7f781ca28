"""Plane and block rotations in JAX: the formulas of :mod:`olsq.linalg.numpy.rotations`.

The derivative rules of the three numbers of a rotation follow from their definition, and are used
in place of the derivatives of the scaled formula, which would divide by zero where b = 0.  With
``c a + q . b = r``, ``r^2 = a^2 + |b|^2``::

    dr = c da + q . db      dc = (da - c dr) / r      dq = (db - q dr) / r

and, for the inverse rotation, ``r^2 = a^2 - |b|^2``, ``c = r / a``, ``q = b / a``::

    dr = (da - q . db) / c      dq = (db - q da) / a      dc = (dr - c da) / a

A pivot of zero has no derivative; these rules read 0 for its c and q.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def _length(x: Array) -> tuple[Array, Array]:
    """Return the largest |x_i| (1 if all are 0) and ``|x / largest|``: neither over- nor
    underflows.
    """
    largest = jnp.abs(x).max(initial=0)
    largest = jnp.where(largest > 0, largest, 1)
    return largest, jnp.sqrt(((x / largest) ** 2).sum())


@jax.custom_jvp
def rotation(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Compute c, q (k,), r that rotate a >= 0 and b (k,) to r >= 0 and 0; (1, 0, 0) for zeros."""
    largest, length = _length(jnp.concatenate([a[None], b]))
    zero = length == 0
    divisor = jnp.where(zero, 1, length)
    c = jnp.where(zero, 1, a / largest / divisor)
    return c, b / largest / divisor, largest * length


@rotation.defjvp
def _rotation_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> Any:
    da, db = tangents
    c, q, r = rotation(*primals)
    dr = c * da + (q * db).sum()
    inverse = jnp.where(r == 0, 0, 1 / jnp.where(r == 0, 1, r))
    return (c, q, r), ((da - c * dr) * inverse, (db - q * dr) * inverse, dr)


@jax.custom_jvp
def inverse_rotation(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Compute c, q (k,), r that rotate r and b (k,) to a and 0.

    ``c`` is NaN unless a > |b| or both are 0.
    """
    largest, length = _length(b)
    norm = largest * length
    zero = (a == 0) & (norm == 0)
    divisor = jnp.where(zero, 1, a)
    # r^2 = (a - |b|) (a + |b|): two roots, so that the product cannot overflow
    r = jnp.where(a > norm, jnp.sqrt(a - norm) * jnp.sqrt(a + norm), jnp.where(zero, 0, jnp.nan))
    return jnp.where(zero, 1, r / divisor), b / divisor, r


@inverse_rotation.defjvp
def _inverse_rotation_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> Any:
    a, _ = primals
    da, db = tangents
    c, q, r = inverse_rotation(*primals)
    inverse = jnp.where(a == 0, 0, 1 / jnp.where(a == 0, 1, a))
    dr = (da - (q * db).sum()) / c
    return (c, q, r), ((dr - c * da) * inverse, (db - q * da) * inverse, dr)


def rotate(row: Array, X: Array, c: Array, q: Array) -> tuple[Array, Array]:
    """Apply the block rotation to row (N,) and X (k, N)."""
    u = (q[:, None] * X).sum(0)
    share = 1 / (1 + c)
    # row' = c row + u with 1 - c = |q|^2 / (1 + c);  X' = X - q (row + u / (1 + c))
    new = row + (u - (q**2).sum() * share * row)
    return new, X - q[:, None] * (row + share * u)


def _lead_with_largest(row: Array, X: Array, column: Any) -> tuple[Array, Array]:
    """Swap ``row`` with the row of X whose entry in ``column`` is largest, if that is larger."""
    if X.shape[0] == 0:
        return row, X
    pivot = jax.lax.dynamic_index_in_dim(row, column, 0, False)
    size = jnp.abs(jax.lax.dynamic_index_in_dim(X, column, 1, False))
    at = jnp.argmax(size)
    swap = size.max() > jnp.abs(pivot)
    here = (jnp.arange(X.shape[0]) == at) & swap  # a mask fuses, a scatter does not
    led = jnp.where(swap, jax.lax.dynamic_index_in_dim(X, at, 0, False), row)
    return led, jnp.where(here[:, None], row, X)


def eliminate(row: Array, X: Array, column: Any) -> tuple[Array, Array]:
    """Rotate the rows X into ``row`` so that their entries in ``column`` vanish; row's is >= 0."""
    row, X = _lead_with_largest(row, X, column)
    pivot = jax.lax.dynamic_index_in_dim(row, column, 0, False)
    sign = jnp.where(pivot < 0, -1, 1).astype(row.dtype)
    b = jax.lax.dynamic_index_in_dim(X, column, 1, False)
    c, q, r = rotation(sign * pivot, b)
    row, X = rotate(sign * row, X, c, q)
    here = jnp.arange(row.shape[0]) == column  # a mask fuses, a scatter does not
    return jnp.where(here, r, row), jnp.where(here, 0, X)


def absorb(W: Array, X: Array, pivots: int) -> tuple[Array, Array]:
    """Rotate the rows X (k, N) into the first ``pivots`` rows of the trapezoidal W (., N)."""

    def step(X: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        j, row = inputs
        row, X = eliminate(row, X, j)
        return X, row

    if pivots == 0:
        return W, X
    X, rows = jax.lax.scan(step, X, (jnp.arange(pivots), W[:pivots]))
    return jnp.concatenate([rows, W[pivots:]]), X


@jax.jit
def plane_rotation(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Compute c, s, r for numbers of one dtype; shapes broadcast."""
    a, b = jnp.broadcast_arrays(a, b)
    sign = jnp.where(a < 0, -1, 1).astype(a.dtype)
    one = jax.vmap(lambda a, b: rotation(a, b[None]))
    c, q, r = one((sign * a).ravel(), b.ravel())
    return sign * c.reshape(a.shape), q.reshape(a.shape), r.reshape(a.shape)
