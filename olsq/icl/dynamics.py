"""Causal attention layers that learn the dynamics of a sequence while reading it."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from olsq.arrays.checks import check_flags, check_number, check_sizes
from olsq.icl.constructions import with_positions
from olsq.icl.weights import AttentionWeights, from_products, matrix, shaped


def previous(states: Any) -> Array:
    """Shift the states by one step, with ``s_0 = 0`` first: (..., T, d)."""
    states = shaped("states", states, ("T", "d"))
    return jnp.concatenate([jnp.zeros_like(states[..., :1, :]), states[..., :-1, :]], -2)


def dynamics_tokens(
    states: Any, *, w0: Any = None, targets: bool = False, positions: bool = False
) -> Array:
    """Build the tokens ``(-W_0 s_t, s_t, s_{t-1})`` of a sequence, with ``s_0 = 0``.

    Parameters
    ----------
    states : array (..., T, d)
    w0 : array (..., d, d), optional
        The model before any data; 0 if None.
    targets : bool
        ``(-W_0 s_t, s_t, s_t, s_{t-1})``: a copy of the state for layers to change.
    positions : bool
        Append a one-hot position (T entries).

    Returns
    -------
    array (..., T, C d), or (..., T, C d + T) with ``positions``
        C = 3, or 4 with ``targets``.

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    Source: J. von Oswald et al., "Uncovering mesa-optimization algorithms in Transformers" (2023);
    the thesis' sections 3.3 and 3.7.3.2.

    Examples
    --------
    >>> from olsq.icl import dynamics_tokens
    >>> dynamics_tokens([[1.0], [2.0], [3.0]])
    Array([[0., 1., 0.],
           [0., 2., 1.],
           [0., 3., 2.]], dtype=float32)
    """
    check_flags(targets=targets, positions=positions)
    states = shaped("states", states, ("T", "d"))
    d = states.shape[-1]
    start = jnp.zeros_like(states) if w0 is None else -states @ shaped("w0", w0, (d, d)).mT
    tokens = _pack(start, states, targets)
    return with_positions(tokens) if positions else tokens


def mesa_gd_weights(w0: Any, rate: Any) -> AttentionWeights:
    """Build one step of gradient descent on ``1/2 sum_{i<t} |s_{i+1} - W s_i|^2``, at every t.

    Parameters
    ----------
    w0 : array (d, d)
        W_0, where every step starts.
    rate : float

    Returns
    -------
    AttentionWeights
        One causal linear head for :func:`dynamics_tokens`; minus the first channel of its output
        is the prediction of s_{t+1}.

    Raises
    ------
    ValueError
        If w0 is not square.

    Notes
    -----
    Source: J. von Oswald et al., "Uncovering mesa-optimization algorithms in Transformers" (2023),
    the thesis' eq. 3.5.

    Examples
    --------
    >>> from olsq.icl import attend, dynamics_tokens, mesa_gd_weights
    >>> tokens = dynamics_tokens([[1.0], [2.0], [4.0]])
    >>> -attend(tokens, mesa_gd_weights([[0.0]], 0.1), causal=True)[:, 0]
    Array([-0. ,  0.4,  4. ], dtype=float32)
    """
    w0 = _square(w0)
    rate = check_number("rate", rate)
    d = len(w0)
    pv = jnp.pad(w0, ((0, 2 * d), (2 * d, 0))) + _blocks(3, d, {(0, 1): -1.0})
    return from_products(_blocks(3, d, {(2, 1): 1.0}), rate * pv)


def online_gd_weights(w0: Any, rate: Any) -> AttentionWeights:
    """Build a layer for stacking that takes a gradient step and updates the targets, as causal
    layers can.

    Parameters
    ----------
    w0, rate
        As for :func:`mesa_gd_weights`.

    Returns
    -------
    AttentionWeights
        Two causal linear heads for ``dynamics_tokens(..., targets=True)``; minus the first channel
        is the prediction.

    Raises
    ------
    ValueError
        If w0 is not square.

    Notes
    -----
    Source: the thesis' section 3.7.3.2.  Head 1 predicts from s_t, head 2 moves the target s_t
    by what was predicted from s_{t-1}.

    More than one layer is *not* batch gradient descent: target i moves by the gradient of token i,
    not of token t.  The limit of many layers, if the rate times every ``|s_i|^2`` is below 2, is
    online gradient descent with a step of its own for each sample,
    ``W += (s_{i+1} - W s_i) s_i^T / |s_i|^2`` (normalised least mean squares), because it leaves no
    error on any target.  The sum in the thesis prints the target and the last input with index
    t - 1; they have index t' and t' - 1.

    Examples
    --------
    >>> from olsq.icl import dynamics_tokens, online_gd_weights, run_layers
    >>> tokens = dynamics_tokens([[1.0], [2.0], [4.0]], targets=True)
    >>> out = -run_layers(tokens, [online_gd_weights([[0.0]], 0.1)] * 2, causal=True)
    >>> [round(float(x), 3) for x in out[1:, 2, 0]]
    [4.0, 6.32]
    """
    w0 = _square(w0)
    rate = check_number("rate", rate)
    d = len(w0)

    kq = [_blocks(4, d, {(3, query): 1.0}) for query in (2, 3)]
    pv = [
        jnp.pad(w0, ((row * d, (3 - row) * d), (3 * d, 0))) + _blocks(4, d, {(row, 1): -1.0})
        for row in (0, 1)
    ]
    return from_products(np.stack(kq), rate * jnp.stack(pv))


def neumann_weights(dim: int, length: int, *, ridge: Any, scale: Any) -> AttentionWeights:
    """Build a layer that takes one step towards ``(S_{t-1} S_{t-1}^T + ridge I)^{-1} s_t``, at
    every t.

    ``z_t += scale (s_t - (S_{t-1} S_{t-1}^T + ridge I) z_t)`` in the second channel.

    Parameters
    ----------
    dim, length : int
        d and T.
    ridge : float
        The thesis' ``1 / lambda``.
    scale : float
        See :func:`neumann_scale`; every eigenvalue of ``scale (S S^T + ridge I)`` below 2
        converges.

    Returns
    -------
    AttentionWeights
        Two causal linear heads for ``dynamics_tokens(..., targets=True, positions=True)``.

    Raises
    ------
    ValueError
        If the sizes are not positive.

    Notes
    -----
    Source: the thesis' eq. 3.57, which has ``scale = 1`` and names the need for another one in
    words.  Its weights are the first head; "simple scaled additions" of a token's own channels,
    for which it gives none, are the second, which finds its own token by its position.

    Examples
    --------
    >>> from olsq.icl import dynamics_tokens, neumann_weights, run_layers
    >>> tokens = dynamics_tokens([[1.0], [3.0]], targets=True, positions=True)
    >>> layer = neumann_weights(1, 2, ridge=0.5, scale=0.5)
    >>> [round(float(z), 3) for z in run_layers(tokens, [layer] * 9, causal=True)[-1, :, 1]]
    [1.925, 2.0]
    """
    check_sizes(1, dim=dim, length=length)
    ridge = check_number("ridge", ridge, least=0)
    scale = check_number("scale", scale)
    width = 4 * dim + length
    gram = _blocks(4, dim, {(3, 1): 1.0}, width)
    place = np.diag(np.arange(width) >= 4 * dim).astype(float)
    subtract, copy, shrink = (_blocks(4, dim, {(1, c): 1.0}, width) for c in (3, 2, 1))
    moves = np.stack([-subtract, copy]) - ridge * np.stack([0 * shrink, shrink])
    return from_products(np.stack([gram, place]), scale * moves)


def preconditioned_weights(dim: int, length: int) -> AttentionWeights:
    """Build the layer after :func:`neumann_weights`: one gradient step, from the input in channel
    2.

    Parameters
    ----------
    dim, length : int
        d and T.

    Returns
    -------
    AttentionWeights
        One causal linear head.  It adds ``-S_t S_{t-1}^T z_t`` to the first channel: minus the
        ridge regression's prediction of s_{t+1}, if z_t has converged.

    Raises
    ------
    ValueError
        If the sizes are not positive.

    Notes
    -----
    Source: the thesis' section 3.3, "multi-layer mesa-optimizers": with the preconditioner
    converged, one step from ``W_0 = 0`` with rate 1 is the solution.

    Examples
    --------
    >>> from olsq.icl import attend, dynamics_tokens, preconditioned_weights
    >>> tokens = dynamics_tokens([[1.0], [2.0]], targets=True, positions=True)
    >>> attend(tokens, preconditioned_weights(1, 2), causal=True)[:, 0]
    Array([ 0., -4.], dtype=float32)
    """
    check_sizes(1, dim=dim, length=length)
    width = 4 * dim + length
    kq = _blocks(4, dim, {(3, 1): 1.0}, width)
    return from_products(kq, _blocks(4, dim, {(0, 2): -1.0}, width))


@partial(jax.jit, static_argnames="targets")
def _pack(start: Array, states: Array, targets: bool) -> Array:
    return jnp.concatenate([start, *[states] * (2 if targets else 1), previous(states)], -1)


def _blocks(
    channels: int, dim: int, entries: dict[tuple[int, int], float], width: int | None = None
) -> NDArray:
    """Build a matrix of multiples of the identity at the given channels.

    ``width`` pads it with 0.
    """
    size = channels * dim if width is None else width
    out = np.zeros((size, size))
    for (row, column), factor in entries.items():
        rows, columns = slice(row * dim, (row + 1) * dim), slice(column * dim, (column + 1) * dim)
        out[rows, columns] = factor * np.eye(dim)
    return out


def _square(w0: Any) -> Array:
    w0 = matrix("w0", w0)
    if w0.shape[0] != w0.shape[1]:
        raise ValueError(f"w0 must be square, got {w0.shape}")
    return w0
