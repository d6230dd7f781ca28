"""Weights of a self-attention layer, the products that determine it, and checks of arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_number, check_real, check_sizes, refuse
from olsq.arrays.unshared import unshared


def floating(value: Any) -> Array:
    """Convert ``value`` to a floating-point array; integers become the default float."""
    array = jnp.asarray(unshared(value))
    return array.astype(jnp.result_type(array, 1.0))


def shaped(name: str, value: Any, shape: tuple[int | str, ...], *, leading: bool = True) -> Array:
    """Convert ``value`` as floating, or raise ValueError unless its last axes are ``shape``.

    A letter in ``shape`` allows any size, and stands for the axis in the message.  ``leading`` says
    whether other axes may come before.
    """
    check_real(name, value)
    array = floating(value)
    end = array.shape[max(array.ndim - len(shape), 0) :] if leading else array.shape
    fits = len(end) == len(shape) and all(
        isinstance(want, str) or want == size for want, size in zip(shape, end, strict=True)
    )
    if not fits:
        described = ", ".join(str(size) for size in shape)
        described = f"..., {described}" if leading else described + "," * (len(shape) == 1)
        raise ValueError(f"{name} must have shape ({described}), got {array.shape}")
    return array


def finite(name: str, value: Any) -> Array:
    """Convert a number or an array as floating, or raise ValueError unless all are finite."""
    refuse(name, value, lambda x: ~np.isfinite(x), "be finite")
    return floating(float(value) if isinstance(value, int) else value)


def matrix(name: str, value: Any) -> Array:
    """Convert ``value`` to a floating matrix, or raise ValueError."""
    check_real(name, value)
    array = floating(value)
    if array.ndim != 2:
        raise ValueError(f"{name} must be a matrix, got shape {array.shape}")
    return array


class AttentionWeights(NamedTuple):
    """Weights of one layer with H heads on tokens of width D.

    Attributes
    ----------
    key, query : array (H, K, D)
        W_K and W_Q.
    value : array (H, V, D)
        W_V.
    projection : array (H, D, V)
        P.

    Notes
    -----
    Only the products W_K^T W_Q and P W_V matter to a layer: see :func:`products`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import AttentionWeights, products
    >>> eye = jnp.eye(2)[None]
    >>> products(AttentionWeights(eye, 2 * eye, 3 * eye, eye)).key_query[0, 0, 0]
    Array(2., dtype=float32)
    """

    key: Any
    query: Any
    value: Any
    projection: Any

    __repr__ = brief_repr


class Products(NamedTuple):
    """The two matrices of every head that a layer depends on.

    Attributes
    ----------
    key_query : array (H, D, D)
        W_K^T W_Q; its rows belong to the token attended to, its columns to the one that attends.
    projected_value : array (H, D, D)
        P W_V; its rows are what is written, its columns what is read.
    """

    key_query: Any
    projected_value: Any

    __repr__ = brief_repr


def products(weights: AttentionWeights) -> Products:
    """Compute W_K^T W_Q and P W_V of every head, each (H, D, D).

    Raises
    ------
    ValueError
        If shapes do not fit.
    """
    weights = check_weights(weights)
    return Products(
        jnp.einsum("hkd,hke->hde", weights.key, weights.query),
        jnp.einsum("hdv,hve->hde", weights.projection, weights.value),
    )


def from_products(key_query: Any, projected_value: Any) -> AttentionWeights:
    """Build weights with given products: ``W_K = P = I``, ``W_Q`` and ``W_V`` the products
    themselves.

    Parameters
    ----------
    key_query, projected_value : array (D, D) or (H, D, D)

    Returns
    -------
    AttentionWeights
        With K = V = D.

    Raises
    ------
    ValueError
        If the two are not square and of the same shape.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import from_products
    >>> from_products(jnp.eye(3), jnp.eye(3)).query.shape
    (1, 3, 3)
    """
    kq, pv = floating(key_query), floating(projected_value)
    if kq.ndim == 2 and pv.ndim == 2:
        kq, pv = kq[None], pv[None]
    if kq.ndim != 3 or kq.shape[1] != kq.shape[2] or kq.shape != pv.shape:
        raise ValueError(
            "key_query and projected_value must both have shape (D, D) or (H, D, D), "
            f"got {kq.shape} and {pv.shape}"
        )
    eye = jnp.asarray(np.broadcast_to(np.eye(kq.shape[-1], dtype=kq.dtype), kq.shape))
    return AttentionWeights(key=eye, query=kq, value=pv, projection=eye)


def random_attention(
    key: Any, dim: int, *, heads: int = 1, key_size: int | None = None, scale: float = 2e-3
) -> AttentionWeights:
    """Draw weights from N(0, scale^2), to train.

    Parameters
    ----------
    key : JAX random key
    dim : int
        Width D of a token.
    heads : int
    key_size : int, optional
        K and V; D if None.
    scale : float
        Standard deviation.

    Examples
    --------
    >>> import jax
    >>> from olsq.icl import random_attention
    >>> random_attention(jax.random.key(0), 11, heads=2, key_size=5).projection.shape
    (2, 11, 5)
    """
    size = dim if key_size is None else key_size
    check_sizes(1, dim=dim, heads=heads, key_size=size)
    scale = check_number("scale", scale)
    keys = jax.random.split(key, 4)
    reads, writes = (heads, size, dim), (heads, dim, size)
    shapes = (reads, reads, reads, writes)
    draws = (jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True))
    return AttentionWeights(*(scale * x for x in draws))


def check_weights(weights: AttentionWeights) -> AttentionWeights:
    """Convert the weights to arrays; ValueError if their shapes do not fit."""
    key, query, value, projection = (floating(x) for x in weights)
    fits = all(x.ndim == 3 for x in (key, query, value, projection))
    if fits:
        (h, k, d), (_, v, _) = key.shape, value.shape
        fits = query.shape == (h, k, d) and value.shape == (h, v, d)
        fits = fits and projection.shape == (h, d, v)
    if not fits:
        raise ValueError(
            "weights must have key and query (H, K, D), value (H, V, D) and projection (H, D, V), "
            f"got {key.shape}, {query.shape}, {value.shape} and {projection.shape}"
        )
    return AttentionWeights(key, query, value, projection)
