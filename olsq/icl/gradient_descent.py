"""Baselines of the constructions: gradient descent, GD++, and the spectrum of GD++."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import check_number
from olsq.icl.weights import finite, floating, shaped


def descend(x: Any, y: Any, query: Any, *, rates: Any, gammas: Any = None, w0: Any = None) -> Array:
    """Predict with a linear model after every step of gradient descent, or of GD++.

    A step changes data, not weights: ``y_j += rate/N sum_i (W_0 x_i - y_i) x_i^T x_j`` on samples
    and on queries, which start at ``-W_0 x``.  With W_0 fixed that is gradient descent on
    ``1/(2N) sum |W x - y|^2`` from W_0.  GD++ also transforms every input,
    ``x_j -= gamma sum_i x_i x_i^T x_j``, with the inputs of before the step on the right of both.

    Parameters
    ----------
    x : array (..., N, d)
    y : array (..., N, m)
    query : array (..., Q, d)
    rates : array (K,)
        Learning rate of each of K steps.
    gammas : array (K,) or a number, optional
        Of each transformation; 0, which is plain gradient descent, if None.
    w0 : array (..., m, d), optional
        W_0; 0 if None.  GD++ with another one does what the layers do, which is no longer the
        descent of one loss.

    Returns
    -------
    array (K + 1, ..., Q, m)
        Predictions for the queries, the first from W_0.

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    Source: J. von Oswald et al., "Transformers learn in-context by gradient descent" (2023), the
    thesis' eq. 2.2 to 2.4 and 2.12.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import descend
    >>> x = jnp.eye(2)
    >>> descend(x, 3 * x[:, :1], x[:1], rates=[1.0, 1.0, 1.0])[1:, 0, 0]
    Array([1.5  , 2.25 , 2.625], dtype=float32)
    """
    x = shaped("x", x, ("N", "d"))
    samples, d = x.shape[-2:]
    y = shaped("y", y, (samples, "m"))
    query = shaped("query", query, ("Q", d))
    rates = finite("rates", rates)
    if rates.ndim != 1:
        raise ValueError(f"rates must have shape (K,), got {rates.shape}")
    gammas = jnp.zeros_like(rates) if gammas is None else finite("gammas", gammas)
    if gammas.shape not in ((), rates.shape):
        raise ValueError(f"gammas must be a number or have shape {rates.shape}, got {gammas.shape}")
    gammas = jnp.broadcast_to(gammas, rates.shape)
    w0 = jnp.zeros((y.shape[-1], d), x.dtype) if w0 is None else shaped("w0", w0, (y.shape[-1], d))
    remaining = -query @ w0.mT
    predictions = [-remaining]
    for rate, gamma in zip(rates, gammas, strict=True):
        error = x @ w0.mT - y
        slope = jnp.einsum("...nm,...nd->...dm", error, x) * (rate / samples)
        remaining, y = remaining + query @ slope, y + x @ slope
        hessian = jnp.einsum("...nd,...ne->...de", x, x)
        x, query = x - gamma * x @ hessian, query - gamma * query @ hessian
        predictions.append(-remaining)
    return jnp.stack(predictions)


def best_rate(x: Any, y: Any, query: Any, target: Any) -> Array:
    """Compute the rate whose single step from ``W_0 = 0`` predicts the targets best, over all
    tasks.

    The loss is quadratic in the rate: no search is needed.

    Parameters
    ----------
    x, y, query
        As for :func:`descend`, with any leading axes.
    target : array (..., Q, m)
        The values that the queries should give.

    Returns
    -------
    array ()

    Raises
    ------
    ValueError
        If shapes do not fit.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import best_rate
    >>> x = jnp.eye(2)[None]
    >>> best_rate(x, 3 * x, x, 3 * x)
    Array(2., dtype=float32)
    """
    one = descend(x, y, query, rates=jnp.ones(1))[1]
    target = floating(target)
    if target.shape != one.shape:
        raise ValueError(f"target must have shape {one.shape}, got {target.shape}")
    return (one * target).sum() / (one * one).sum()


def gdpp_hessian(x: Any, gamma: Any) -> Array:
    """Compute the Hessian ``(I - gamma H) H (I - gamma H)`` of the loss after a GD++
    transformation.

    Parameters
    ----------
    x : array (..., N, d)
        Inputs; ``H = sum_i x_i x_i^T``.
    gamma : float

    Returns
    -------
    array (..., d, d)

    Notes
    -----
    Source: the thesis' eq. 2.16; its eigenvectors are those of H and its eigenvalues
    :func:`gdpp_spectrum` of H's.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import gdpp_hessian
    >>> gdpp_hessian(jnp.eye(2), 0.5)[0, 0]
    Array(0.25, dtype=float32)
    """
    x = shaped("x", x, ("N", "d"))
    gamma = check_number("gamma", gamma)
    moved = x - gamma * x @ jnp.einsum("...nd,...ne->...de", x, x)
    return jnp.einsum("...nd,...ne->...de", moved, moved)


def gdpp_spectrum(eigenvalues: Any, gamma: Any) -> Array:
    """Map eigenvalues of the Hessian as GD++ does: ``l - 2 gamma l^2 + gamma^2 l^3``.

    Parameters
    ----------
    eigenvalues : array
    gamma : float or array that broadcasts

    Returns
    -------
    array

    Notes
    -----
    Source: the thesis' eq. 2.21.  It is ``l (1 - gamma l)^2``: zero at 0 and, twice, at
    ``1 / gamma`` (:func:`gdpp_roots`), with a local maximum between them (:func:`gdpp_peak`).
    That is the largest value as long as the spectrum ends before ``4 / (3 gamma)``, where the cubic
    is back at it; the thesis takes it for granted.

    Examples
    --------
    >>> from olsq.icl import gdpp_spectrum
    >>> gdpp_spectrum([1.0, 2.0, 4.0], 0.25)
    Array([0.5625, 0.5   , 0.    ], dtype=float32)
    """
    eigenvalues, gamma = floating(eigenvalues), finite("gamma", gamma)
    return eigenvalues * (1 - gamma * eigenvalues) ** 2


def gdpp_peak(gamma: Any) -> tuple[Array, Array]:
    """Return the eigenvalue ``1/(3 gamma)`` that GD++ makes largest, and its image
    ``4/(27 gamma)``.

    Examples
    --------
    >>> from olsq.icl import gdpp_peak
    >>> [round(float(x), 4) for x in gdpp_peak(0.1)]
    [3.3333, 1.4815]
    """
    gamma = floating(gamma)
    return 1 / (3 * gamma), 4 / (27 * gamma)


def gdpp_roots(gamma: Any) -> tuple[Array, Array]:
    """Return the eigenvalues 0 and ``1/gamma`` that GD++ maps to 0.

    Examples
    --------
    >>> from olsq.icl import gdpp_roots
    >>> [float(x) for x in gdpp_roots(0.5)]
    [0.0, 2.0]
    """
    gamma = floating(gamma)
    return jnp.zeros_like(gamma), 1 / gamma


def gdpp_condition(eigenvalues: Any, gamma: Any) -> Array:
    """Compute the condition number of the Hessian after a GD++ transformation.

    Parameters
    ----------
    eigenvalues : array (..., d)
        Of the Hessian.
    gamma : float, or array (...)

    Returns
    -------
    array (...)

    Notes
    -----
    Source: the thesis' figure 2.7; 0 gives the condition number of before.

    Examples
    --------
    >>> from olsq.icl import gdpp_condition
    >>> [float(gdpp_condition([1.0, 3.0], gamma)) for gamma in (0.0, 0.25)]
    [3.0, 3.0]
    """
    moved = gdpp_spectrum(eigenvalues, finite("gamma", gamma)[..., None])
    return moved.max(-1) / moved.min(-1)
