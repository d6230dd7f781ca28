"""Longhorn: the delta step taken implicitly, which no write strength can make unstable."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.attention.arguments import check_inputs, check_weight
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.elementwise import elementwise
from olsq.attention.recurrences.vector import vector_gated
from olsq.attention.states import Memory, drop_unwritten, open_memory, restore_layout


@sequence_rule
def longhorn(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """Longhorn: ``S = S * (1 - d (k*k)^T) + (d * v) k^T``, ``d = beta / (1 + beta k.k)``.

    The minimiser of ``|S - S_old|^2 + beta |S k - v|^2`` is ``S_old (I - d k k^T) + d v k^T``;
    this is its diagonal form, in which each entry has a factor of its own.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.
    weight : array, optional
        Step sizes beta >= 0: one per token, broadcast to (B, T, H); or, as four axes, one per value
        channel, broadcast to (B, T, H, V), as in the paper.  Default 1.  0 (in all channels) leaves
        a token out, finite or not.
    state : Memory, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on, never before.
    state : Memory

    Raises
    ------
    ValueError
        If shapes, weights or segment ids do not fit.

    Notes
    -----
    Factors lie in [0, 1] whatever the weights.  With one weight a token the factors are gates per
    key dimension, done by chunks as in :func:`gla`; with one per channel every entry has its own,
    and the recurrence is done token by token.  O(T V K) either way.  Differentiable to any order
    in both modes.

    References
    ----------
    Liu et al., "Longhorn: State Space Models are Amortized Online Learners" (2024), theorem 3.1
    and algorithm 1 (arXiv 2407.14207).

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> olsq.attention.longhorn(x, x, x)[0][0, :, 0, 0]  # d = 1/2
    Array([0.5  , 0.75 , 0.875], dtype=float32)
    """
    tokens, layout = check_inputs(q, k, v, segment_ids=segment_ids, state=state)
    beta = check_weight("weight", weight, layout, tokens.v.shape[-1])
    tokens, beta = drop_unwritten(tokens, beta)
    matrix, state_lost = open_memory(state, tokens, layout)
    # d = beta / (1 + beta k.k): the implicit step, stable for every beta
    squares = tokens.k**2
    norm = squares.sum(-1, keepdims=True)
    if beta is None or beta.ndim == 2:
        d = 1 / (1 + norm) if beta is None else beta[..., None] / (1 + beta[..., None] * norm)
        gates = 1 - d * squares
        if tokens.start is not None:
            gates = jnp.where(tokens.start[..., None], 0, gates)
        out, memory = vector_gated(tokens.q, tokens.k, d * tokens.v, gates, matrix)
    else:
        d = beta / (1 + beta * norm)
        out, memory = elementwise(
            tokens.q,
            tokens.k,
            d * tokens.v,
            decay_factors,
            {"d": d},
            matrix,
            start=tokens.start,
        )
    return restore_layout(out, Memory(memory), tokens, state_lost, layout)


longhorn_step = one_token(longhorn, "weight", example="x, x, x", gives=0.75)


def decay_factors(x: dict[str, Array], _: None) -> Array:
    """Compute the factor of each entry of the memory, (N, K, V)."""
    return 1 - (x["k"] ** 2)[:, :, None] * x["d"][:, None, :]
