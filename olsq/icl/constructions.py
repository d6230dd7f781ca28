"""Weights of attention layers that compute gradient descent exactly, token by token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from olsq.arrays.checks import check_flag, check_number, check_sizes
from olsq.icl.weights import AttentionWeights, floating, from_products, matrix, shaped


def regression_tokens(x: Any, y: Any, query: Any, *, w0: Any = None) -> Array:
    """Build the tokens ``(x_i, y_i)`` of a regression and ``(x, -W_0 x)`` of its queries.

    Parameters
    ----------
    x : array (..., N, d)
    y : array (..., N, m)
    query : array (..., Q, d)
    w0 : array (..., m, d), optional
        W_0 of the model to be learned; 0 if None.

    Returns
    -------
    array (..., N + Q, d + m)
        After layers that descend, minus a query's last m entries is its prediction.

    Raises
    ------
    ValueError
        If shapes do not fit.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import regression_tokens
    >>> regression_tokens(jnp.ones((4, 3)), jnp.ones((4, 2)), jnp.ones((1, 3))).shape
    (5, 5)
    """
    x = shaped("x", x, ("N", "d"))
    y = shaped("y", y, (x.shape[-2], "m"))
    query = shaped("query", query, ("Q", x.shape[-1]))
    w0 = jnp.zeros((y.shape[-1], x.shape[-1]), x.dtype) if w0 is None else w0
    return _pack(x, y, query, shaped("w0", w0, (y.shape[-1], x.shape[-1])))


def gd_weights(w0: Any, rate: Any, samples: int) -> AttentionWeights:
    """Build one step of gradient descent on ``1/(2N) sum |W x - y|^2`` as one linear head.

    Parameters
    ----------
    w0 : array (m, d)
        W_0, where the step starts.
    rate : float
        Learning rate.
    samples : int
        N; 1 for the loss without the mean (the autoregressive paper's).

    Returns
    -------
    AttentionWeights
        For tokens ``(x, y)`` of width d + m, keys from the samples only (``context=N``).  The
        same layer K times, or with K rates, is K steps.

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    Source: J. von Oswald et al., "Transformers learn in-context by gradient descent" (2023),
    proposition 1.  With ``w0 = 0`` the query may stay among the keys: its value is 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import attend, gd_weights, regression_tokens
    >>> x = jnp.eye(2)
    >>> tokens = regression_tokens(x, 3 * x[:, :1], x[:1])
    >>> attend(tokens, gd_weights([[0.0, 0.0]], 1.0, samples=2), context=2)[:, 2]
    Array([ 1.5,  0. , -1.5], dtype=float32)
    """
    w0 = matrix("w0", w0)
    check_sizes(1, samples=samples)
    rate = check_number("rate", rate)
    m, d = w0.shape
    inputs, targets = _channels(d, m)
    value = jnp.pad(w0, ((d, 0), (0, m))) - targets
    projection = rate / samples * (inputs + targets)
    return AttentionWeights(*(floating(x)[None] for x in (inputs, inputs, value, projection)))


def gdpp_weights(w0: Any, rate: Any, gamma: Any, samples: int) -> AttentionWeights:
    """Build one step of GD++ as one linear head: :func:`gd_weights` and ``x -= gamma X X^T x``.

    Parameters
    ----------
    w0, rate, samples
        As for :func:`gd_weights`.
    gamma : float

    Returns
    -------
    AttentionWeights

    Notes
    -----
    Source: the thesis' eq. 2.12.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import attend, gdpp_weights, regression_tokens
    >>> x = jnp.eye(2)
    >>> tokens = regression_tokens(x, 3 * x[:, :1], x[:1])
    >>> attend(tokens, gdpp_weights([[0.0, 0.0]], 1.0, 0.25, samples=2), context=2)[2]
    Array([ 0.75,  0.  , -1.5 ], dtype=float32)
    """
    plain = gd_weights(w0, rate, samples)
    gamma = check_number("gamma", gamma)
    m, d = matrix("w0", w0).shape
    inputs, targets = _channels(d, m)
    projection = -gamma * inputs + rate / samples * targets
    return plain._replace(value=plain.value + inputs, projection=floating(projection)[None])


def embed_inputs(tokens: Any, features: Callable[[Array], Any], inputs: int) -> Array:
    """Replace the inputs of tokens ``(x, y)`` by features: ``(m(x), y)``.

    :func:`gd_weights` after it is a gradient step on ``1/(2N) sum |W m(x) - y|^2``: regression
    with the kernel ``m(x)^T m(x')``.

    Parameters
    ----------
    tokens : array (..., N, d + m)
    features : callable
        From (..., N, d) to (..., N, f): an MLP with its skip connection, say.
    inputs : int
        d.

    Returns
    -------
    array (..., N, f + m)

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    Source: J. von Oswald et al., "Transformers learn in-context by gradient descent" (2023),
    proposition 2.  The thesis' eq. 2.23 leaves out the rate and the mean: the prediction from
    ``w0 = 0`` is ``rate/N sum_i y_i m(x_i)^T m(x)``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import embed_inputs
    >>> embed_inputs(jnp.array([[2.0, 7.0]]), lambda x: jnp.concatenate([x, x**2], -1), 1)
    Array([[2., 4., 7.]], dtype=float32)
    """
    tokens = shaped("tokens", tokens, ("N", "d + m"))
    check_sizes(1, inputs=inputs)
    if inputs >= tokens.shape[-1]:
        raise ValueError(
            f"inputs must be less than the tokens' width, got {inputs} of {tokens.shape}"
        )
    new = shaped("features(x)", features(tokens[..., :inputs]), (tokens.shape[-2], "f"))
    return jnp.concatenate([new, tokens[..., inputs:]], -1)


def with_positions(contents: Any) -> Array:
    """Append a one-hot position to every token: (..., N, D) to (..., N, D + N).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import with_positions
    >>> with_positions(jnp.ones((2, 1)))
    Array([[1., 1., 0.],
           [1., 0., 1.]], dtype=float32)
    """
    contents = shaped("contents", contents, ("N", "D"))
    n = contents.shape[-2]
    positions = np.broadcast_to(np.eye(n, dtype=contents.dtype), (*contents.shape[:-1], n))
    return jnp.concatenate([contents, positions], -1)


def merge_weights(
    width: int, length: int, *, sharpness: Any = 1.0, clear: bool = False
) -> AttentionWeights:
    """Build a layer that replaces every token's position by the content of the next token.

    It turns x_1, y_1, x_2, y_2, ... into tokens ``(x_j, y_j)``, on which :func:`gd_weights` works.

    Parameters
    ----------
    width : int
        Width D of a content.
    length : int
        Number N of tokens, at least D; the last has no next one, so make it a blank.
    sharpness : float
        Scale of the scores.  A linear layer is exact at 1; a softmax is within N exp(-sharpness).
    clear : bool
        Use a second head, linear layers only: tokens in odd places (y_1, y_2, ...), which would
        become the pairs ``(y_j, x_{j+1})``, become 0 instead.

    Returns
    -------
    AttentionWeights
        For tokens of :func:`with_positions`; the next content is in entries D to 2 D of the result.

    Raises
    ------
    ValueError
        If the sizes do not fit.

    Notes
    -----
    Source: J. von Oswald et al., "Transformers learn in-context by gradient descent" (2023),
    proposition 3.  Its W_Q and W_V need the shift with ones *above* the diagonal, where the text
    says "lower diagonal": W_Q has to take p_j to p_{j+1}, and W_V back.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import attend, merge_weights, with_positions
    >>> tokens = with_positions(jnp.array([[1.0], [2.0], [3.0], [0.0]]))
    >>> attend(tokens, merge_weights(1, 4))[:3, :2]
    Array([[1., 2.],
           [2., 3.],
           [3., 0.]], dtype=float32)
    """
    check_sizes(1, width=width)
    check_sizes(2, length=length)
    sharpness = check_number("sharpness", sharpness)
    check_flag("clear", clear)
    if length < width:
        raise ValueError(f"length must be at least the width {width}, got {length}")
    if clear and np.any(np.asarray(sharpness) != 1.0):
        raise ValueError("clear needs a linear layer: sharpness must be 1")
    n, none = length, np.zeros((width, width + length))
    at_start = np.zeros((n, width))
    forward = np.eye(n, k=-1)  # p_j to p_{j+1}
    odd = np.diag(np.arange(n) % 2.0)
    reads = forward @ (np.eye(n) - odd) if clear else forward
    kq = sharpness * np.block([[none], [at_start, reads]])
    pv = np.block([[none], [np.eye(n, width), -forward.T]])
    if not clear:
        return from_products(kq, pv)
    itself = np.block([[none], [at_start, odd]])
    return from_products(np.stack([kq, itself]), np.stack([pv, -np.eye(width + n)]))


@jax.jit
def _pack(x: Array, y: Array, query: Array, w0: Array) -> Array:
    samples, queries = (jnp.concatenate(pair, -1) for pair in ((x, y), (query, -query @ w0.mT)))
    return jnp.concatenate([samples, queries], -2)


def _channels(inputs: int, targets: int) -> tuple[NDArray, NDArray]:
    """Return the projections on the first and on the last entries of a token."""
    first = np.diag(np.arange(inputs + targets) < inputs).astype(float)
    return first, np.eye(inputs + targets) - first
