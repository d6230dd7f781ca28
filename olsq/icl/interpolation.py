"""Layers between a trained one and a construction."""

from __future__ import annotations

from typing import Any

import numpy as np

from olsq.arrays.checks import check_flag, check_number, refuse
from olsq.icl.weights import AttentionWeights, Products, from_products, products


def rescale(weights: AttentionWeights, reference: AttentionWeights) -> Products:
    """Compute a layer's products, with W_K^T W_Q scaled to a reference's and P W_V inversely.

    Parameters
    ----------
    weights : AttentionWeights
    reference : AttentionWeights
        With the same heads and tokens, its W_K^T W_Q not 0.

    Returns
    -------
    Products
        ``W_K^T W_Q / beta`` and ``P W_V beta``: the same layer.  beta is, for each head, the
        coefficient of the reference's W_K^T W_Q in the layer's.

    Raises
    ------
    ValueError
        If shapes do not fit, or a beta is 0.

    Notes
    -----
    Source: the thesis' section 2.6.3, where beta is the mean of the diagonal of W_K^T W_Q over the
    inputs.  With :func:`olsq.icl.gd_weights` as the reference, this is that number.
    """
    ours, theirs = products(weights), products(reference)
    if ours.key_query.shape != theirs.key_query.shape:
        raise ValueError(
            "weights and reference must have the same heads and width, "
            f"got {ours.key_query.shape} and {theirs.key_query.shape}"
        )
    overlap = (ours.key_query * theirs.key_query).sum((-2, -1), keepdims=True)
    beta = overlap / (theirs.key_query**2).sum((-2, -1), keepdims=True)
    refuse("beta", beta, lambda b: (b == 0) | np.isnan(b), "not be 0")
    return Products(ours.key_query / beta, ours.projected_value * beta)


def interpolate(
    weights: AttentionWeights,
    reference: AttentionWeights,
    fraction: Any = 0.5,
    *,
    correct: bool = True,
) -> AttentionWeights:
    """Interpolate between a trained layer and a construction, in the space of their products.

    Parameters
    ----------
    weights : AttentionWeights
        Trained.
    reference : AttentionWeights
        Constructed.
    fraction : float
        0 is the trained layer, 1 the reference.
    correct : bool
        :func:`rescale` the trained one first.  Not needed for what :func:`extract_blocks` found.

    Returns
    -------
    AttentionWeights

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    Source: the thesis' section 2.6.3.  Heads are taken in the order in which they come.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import from_products, interpolate
    >>> one = jnp.ones((1, 1))
    >>> trained, reference = from_products(2 * one, 3 * one), from_products(one, 4 * one)
    >>> interpolate(trained, reference).value[0, 0, 0]
    Array(5., dtype=float32)
    """
    fraction = check_number("fraction", fraction)
    ours = rescale(weights, reference) if check_flag("correct", correct) else products(weights)
    theirs = products(reference)
    if ours.key_query.shape != theirs.key_query.shape:
        raise ValueError("weights and reference must have the same heads and width")
    pairs = zip(ours, theirs, strict=True)
    return from_products(*((1 - fraction) * a + fraction * b for a, b in pairs))
