"""RWKV-7: a memory that erases along one key and writes along another."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.checks import refuse
from olsq.attention.arguments import check_inputs, is_writable, per_token
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.recurrences.vector_delta import vector_delta
from olsq.attention.states import Memory, mark_lost, open_memory, restore_layout
from olsq.sequence.jax.gates import lost_tokens


@sequence_rule
def rwkv7(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    removal_key: ArrayLike,
    removal_rate: ArrayLike,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """RWKV-7: ``S = S (diag(w) - r (a*r)^T) + v k^T``, with r the removal key and a its rate.

    With ``k = a*r`` it is a delta rule whose step differs by key dimension: a gradient step on
    ``|v - S r|^2 / 2``, preconditioned by diag(a).

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values; the paper calls queries receptance, and k the
        replacement key.
    removal_key : array (B, T, H, K)
        r: what the memory says about it, before the token's gates apply, is removed.  The paper's
        has length 1.
    removal_rate : array (B, T, H, K) or what broadcasts to it
        The paper's a, in [0, 1]: how much of it, in each key dimension.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs: one per token, broadcast to (B, T, H); or, as four axes, one
        per key dimension, broadcast to (B, T, H, K), as in the paper.  Default 1.  Since the
        removal reads the memory before them, gates of 0 do not forget everything.
    state : Memory, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token to the end of its segment.
    state : Memory

    Raises
    ------
    ValueError
        If shapes, gates, rates or segment ids do not fit.

    Notes
    -----
    One triangular inverse a chunk of C <= 64, and four tables of scores that no gate is divided by:
    O(T (V K + C (V + K) + C^2 / 3)).  Differentiable to any order in both modes, also at gates of
    0.  What the paper makes q, k, v, r, a and w of is the layer's business, as are the bonus of a
    token's own key and the residual of values.

    References
    ----------
    Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution" (2025), arXiv 2503.14456;
    the recurrence as its authors' NumPy version writes it.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.rwkv7(x, x, x, removal_key=x, removal_rate=0.25, forget=0.5)
    >>> o[0, :, 0, 0]
    Array([1.    , 1.25  , 1.3125], dtype=float32)
    """
    tokens, layout = check_inputs(
        q,
        k,
        v,
        forget=forget,
        log_forget=log_forget,
        segment_ids=segment_ids,
        state=state,
        vector=True,
    )
    width = tokens.k.shape[-1]
    refuse("removal_rate", removal_rate, lambda x: (x < 0) | (x > 1), "lie in [0, 1]")
    r = per_token("removal_key", removal_key, layout, width)
    rate = per_token("removal_rate", removal_rate, layout, width)
    square = (r * r).sum(-1)
    fine = is_writable(square, square) & jnp.isfinite(rate).all(-1)
    tokens = mark_lost(tokens, ~fine)
    r, rate = (jnp.where(fine[..., None], x, 0) for x in (r, rate))
    if tokens.start is not None:  # the past of a segment's first token is empty
        r = jnp.where(tokens.start[..., None], 0, r)
    gates, shift = split_gates(tokens)
    gates = jnp.ones_like(tokens.sample_lost, r.dtype) if gates is None else gates
    gates, shift = (
        x if x is None or x.ndim == 3 else jnp.broadcast_to(x[..., None], r.shape)
        for x in (gates, shift)
    )
    matrix, state_lost = open_memory(state, tokens, layout)
    out, memory, overflown = vector_delta(
        tokens.q, r, rate * r, None, gates, matrix, (tokens.k, tokens.v), shift
    )
    lost = lost_tokens(tokens.sample_lost | overflown, tokens.start, state_lost)
    return restore_layout(
        out, Memory(memory), tokens, state_lost, layout, (lost, lost[:, -1:].any(-1))
    )


rwkv7_step = one_token(
    rwkv7,
    "removal_key",
    "removal_rate",
    "forget",
    "log_forget",
    example="x, x, x, removal_key=x, removal_rate=0.25, forget=0.5",
    gives=1.25,
)
