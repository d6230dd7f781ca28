"""Gated linear attention: a linear memory with a forget gate for each key channel."""

from __future__ import annotations

from typing import Any

from jax import Array
from jax.typing import ArrayLike

from olsq.attention.arguments import Tokens, check_inputs
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.linear import gated_linear
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.recurrences.vector import vector_gated
from olsq.attention.signed import remove_signs
from olsq.attention.states import (
    Memory,
    open_memory,
    propagate_losses,
    restore_layout,
    unfolded_streams,
)


@sequence_rule
def gla(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    signed: bool = False,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """Gated linear attention: ``S = gamma S + beta v k^T`` or ``S = S diag(a) + beta v k^T``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs: one per token, broadcast to (B, T, H), as in the MesaNet
        paper; or, as four axes, one per key dimension, broadcast to (B, T, H, K), as in the GLA
        paper.  Default 1.  A gate of 0 forgets everything before its token.
    weight : array, optional
        Write strengths beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite
        or not.
    signed : bool
        ``forget`` may lie in [-1, 1], which lets a head track parity; a log has no sign.  A
        negative gate also turns the memory round.
    state : Memory, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on until a gate of 0, never before.
    state : Memory

    Raises
    ------
    ValueError
        If shapes, gates, weights or segment ids do not fit.

    Notes
    -----
    O(T V K) and O(T C (V + K)), C <= 64 a chunk; vector gates cost about five times as much.  No
    gate is ever divided by.  Differentiable to any order in both modes, also at gates of 0.

    References
    ----------
    Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training" (2024),
    eq. 3; von Oswald et al., "MesaNet" (2025), eq. 2, and appendix H for signed gates.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.gla(x, x, x, forget=0.5)
    >>> o[0, :, 0, 0]
    Array([1.  , 1.5 , 1.75], dtype=float32)
    >>> once = jnp.array([1.0, 0, 0])[:, None]  # written once, turned round by every -1
    >>> flips = jnp.array([1.0, -1, -1])[:, None]
    >>> o, state = olsq.attention.gla(x, x, x, forget=flips, weight=once, signed=True)
    >>> o[0, :, 0, 0]
    Array([ 1., -1.,  1.], dtype=float32)
    """
    tokens, layout = check_inputs(
        q,
        k,
        v,
        forget=forget,
        log_forget=log_forget,
        weight=weight,
        segment_ids=segment_ids,
        state=state,
        vector=True,
        signed=signed,
    )
    return gated_memory(tokens, layout, state, signed)


gla_step = one_token(
    gla, "forget", "log_forget", "weight", example="x, x, x, forget=0.5", gives=1.5
)


def gated_memory(
    tokens: Tokens, layout: Any, state: Any, signed: bool = False
) -> tuple[Array, Memory]:
    """Run the linear memory on checked tokens, with scalar or vector gates."""
    tokens, final_sign = remove_signs(tokens) if signed else (tokens, None)
    matrix, state_lost = open_memory(state, tokens, layout)
    lost = propagate_losses(tokens, state_lost)
    gates, shift = split_gates(tokens)
    if gates is not None and gates.ndim == 3:
        v = tokens.v if tokens.weight is None else tokens.weight[..., None] * tokens.v
        out, memory = vector_gated(tokens.q, tokens.k, v, gates, matrix, shift=shift)
    else:
        streams, options = unfolded_streams(tokens, lost[0], layout)
        out, memory = gated_linear(*streams, gates, tokens.weight, matrix, shift=shift, **options)
    memory = memory if final_sign is None else memory * final_sign
    return restore_layout(out, Memory(memory), tokens, state_lost, layout, lost)
