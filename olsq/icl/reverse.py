"""Reverse-engineering of trained layers: a number per block, and models built from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_sizes
from olsq.icl.dynamics import previous
from olsq.icl.weights import AttentionWeights, floating, from_products, products, shaped


class Blocks(NamedTuple):
    """A layer of H heads on tokens of C channels, each block a multiple of the identity (RevAlg-d).

    Attributes
    ----------
    key_query : array (H, C, C)
        Of W_K^T W_Q: row is the channel attended to, column the one that attends.
    projected_value : array (H, C, C)
        Of P W_V: row is the channel written, column the one read.
    """

    key_query: Any
    projected_value: Any

    __repr__ = brief_repr


def extract_blocks(weights: AttentionWeights, dim: int) -> Blocks:
    """Compute the mean diagonal of every d by d block of a layer's two products.

    Parameters
    ----------
    weights : AttentionWeights
        On tokens of width ``D = C d``.
    dim : int
        d.

    Returns
    -------
    Blocks

    Raises
    ------
    ValueError
        If d does not divide D.

    Notes
    -----
    Source: J. von Oswald et al., "Uncovering mesa-optimization algorithms in Transformers" (2023),
    the thesis' section 3.7.3.1.  Section 3.5.1 counts 16 parameters a head; its code has 16 for
    each of the two products, as here with C = 4.

    Examples
    --------
    >>> from olsq.icl import extract_blocks, mesa_gd_weights
    >>> extract_blocks(mesa_gd_weights([[0.0, 0.0], [0.0, 0.0]], 0.1), 2).projected_value[0, 0]
    Array([ 0. , -0.1,  0. ], dtype=float32)
    """
    pair = products(weights)
    check_sizes(1, dim=dim)
    heads, width, _ = pair.key_query.shape
    if width % dim:
        raise ValueError(f"dim must divide the tokens' width {width}, got {dim}")
    c = width // dim

    def means(x: Array) -> Array:
        return jnp.einsum("hidjd->hij", x.reshape(heads, c, dim, c, dim)) / dim

    return Blocks(means(pair.key_query), means(pair.projected_value))


def from_blocks(blocks: Blocks, dim: int) -> AttentionWeights:
    """Build the layer whose products have the given multiples of the identity as blocks.

    Parameters
    ----------
    blocks : Blocks
    dim : int
        d.

    Returns
    -------
    AttentionWeights
        For tokens of width C d.  RevAlg-d is :func:`olsq.icl.run_layers` with one for each layer.

    Raises
    ------
    ValueError
        If shapes do not fit.

    Examples
    --------
    >>> from olsq.icl import extract_blocks, from_blocks, mesa_gd_weights
    >>> layer = mesa_gd_weights([[0.0, 0.0], [0.0, 0.0]], 0.1)
    >>> bool((from_blocks(extract_blocks(layer, 2), 2).value == layer.value).all())
    True
    """
    check_sizes(1, dim=dim)
    pair = (shaped(name, getattr(blocks, name), ("H", "C", "C")) for name in blocks._fields)
    return from_products(*(jnp.kron(x, jnp.eye(dim, dtype=x.dtype)) for x in pair))


def revalg1_coefficients(blocks: Blocks) -> Array:
    """Compute the eight numbers that a single layer on ``(0, s_t, s_{t-1})`` depends on.

    Parameters
    ----------
    blocks : Blocks
        Of a layer whose last two channels are s_t and s_{t-1}, and which writes in the first.

    Returns
    -------
    array (2, 4)
        ``lambda_A`` (of ``s_t``) and ``lambda_B`` (of ``s_{t-1}``); see :func:`revalg1`.

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    Source: the thesis' eq. 3.52 to 3.55.  The first channel has to be 0.  ``phi_M`` prints the
    indices of W_K^T W_Q the other way round than eq. 3.53 defines them: its coefficient
    ``d_{M2}`` of ``... s_{t'-1}^T s`` has the *row* of s_{t-1} and the column of M, as in eq. 3.5.

    Examples
    --------
    >>> from olsq.icl import extract_blocks, mesa_gd_weights, revalg1_coefficients
    >>> revalg1_coefficients(extract_blocks(mesa_gd_weights([[0.5]], 0.1), 1))[0, 2:]
    Array([-0.1 ,  0.05], dtype=float32)
    """
    kq = shaped("key_query", blocks.key_query, ("H", "C", "C"))
    pv = shaped("projected_value", blocks.projected_value, ("H", "C", "C"))
    # h: head, k: channel of the key, q: channel of the query, v: channel of the value
    terms = jnp.einsum("hkq,hv->qkv", kq[:, -2:, -2:], pv[:, 0, -2:])
    return terms.reshape(2, 4)


def revalg1_terms(states: Any) -> Array:
    """Compute the terms that the eight coefficients of :func:`revalg1` multiply.

    Parameters
    ----------
    states : array (..., T, d)
        ``s_0 = 0`` comes before them.

    Returns
    -------
    array (..., T, 2, 4, d)
        ``sum_{i<=t} M_i s`` for s of s_t, s_{t-1} and M_i of ``s_i s_i^T``, ``s_{i-1} s_i^T``,
        ``s_i s_{i-1}^T``, ``s_{i-1} s_{i-1}^T``.

    Examples
    --------
    >>> from olsq.icl import revalg1_terms
    >>> revalg1_terms([[1.0], [2.0]])[1, :, :, 0]
    Array([[10.,  4.,  4.,  2.],
           [ 5.,  2.,  2.,  1.]], dtype=float32)
    """
    states = shaped("states", states, ("T", "d"))
    return _terms(states)


def revalg1(states: Any, coefficients: Any) -> Array:
    """Compute the reverse-engineered layer's update of the first channel:
    ``A_t s_t + B_t s_{t-1}``.

    ``A_t = sum_{i<=t} a_1 s_i s_i^T + a_2 s_{i-1} s_i^T + a_3 s_i s_{i-1}^T + a_4 s_{i-1}
    s_{i-1}^T``, and B_t likewise.

    Parameters
    ----------
    states : array (..., T, d)
    coefficients : array (2, 4)
        a and b.

    Returns
    -------
    array (..., T, d)
        The prediction of s_{t+1}, or minus it where the model is read out with a minus as in
        eq. 3.5 (the table of the thesis has ``a_3 = -0.033``).

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    Source: RevAlg-1, the thesis' eq. 3.55.  ``a_3 = rate`` and ``a_4 = -rate c`` alone are a
    gradient step from ``W_0 = c I`` (eq. 3.56), without the ``c s_t`` of the start.

    Examples
    --------
    >>> from olsq.icl import revalg1
    >>> revalg1([[1.0], [2.0]], [[0, 0, 0.1, 0], [0, 0, 0, 0]])[:, 0]
    Array([0. , 0.4], dtype=float32)
    """
    coefficients = floating(coefficients)
    if coefficients.shape != (2, 4):
        raise ValueError(f"coefficients must have shape (2, 4), got {coefficients.shape}")
    return jnp.einsum("...qcd,qc->...d", revalg1_terms(states), coefficients)


def fit_revalg1(states: Any, targets: Any, *, keep: Any = None) -> Array:
    """Fit the coefficients of :func:`revalg1` to the targets by least squares.

    Parameters
    ----------
    states : array (..., T, d)
    targets : array (..., T, d)
        s_2 to s_{T+1}.
    keep : bool array (2, 4), optional
        Coefficients to fit; the others are 0.  Default: all.

    Returns
    -------
    array (2, 4)

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    No single linear layer with multiples of the identity can do better on the same data.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.icl import fit_revalg1
    >>> from olsq.tasks import linear_dynamics
    >>> data = linear_dynamics(200, 0, dim=4, length=10)
    >>> one = np.array([[0, 0, 1, 0], [0, 0, 0, 0]], bool)
    >>> bool(fit_revalg1(data.inputs, data.labels, keep=one)[0, 2] > 0.1)
    True
    """
    terms = revalg1_terms(states)
    targets = shaped("targets", targets, (*terms.shape[:-3], terms.shape[-1]))
    keep = jnp.ones((2, 4), bool) if keep is None else jnp.asarray(keep, bool)
    if keep.shape != (2, 4):
        raise ValueError(f"keep must have shape (2, 4), got {keep.shape}")
    columns = jnp.moveaxis(terms, -1, -3).reshape(-1, 8)[:, keep.ravel()]
    q, r = jnp.linalg.qr(columns)  # lstsq's SVD of a tall matrix is ten times slower
    fitted = jnp.linalg.lstsq(r, q.T @ targets.reshape(-1))[0]
    return jnp.zeros(8, fitted.dtype).at[jnp.flatnonzero(keep.ravel())].set(fitted).reshape(2, 4)


@jax.jit
def _terms(states: Array) -> Array:
    pair = jnp.stack([states, previous(states)], -2)
    scores = jnp.einsum("...iad,...tqd->...tqia", pair, pair)
    times = jnp.arange(states.shape[-2])
    scores = jnp.where((times[:, None] >= times)[:, None, :, None], scores, 0)
    out = jnp.einsum("...tqia,...ivd->...tqavd", scores, pair)
    return out.reshape(*out.shape[:-3], 4, out.shape[-1])
