"""Rules with a gate for each key dimension: HGRN-2 and RWKV-6.  (GLA's is in ``linear``.)"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.checks import check_real
from olsq.attention.arguments import (
    Tokens,
    check_gates,
    check_heads,
    check_inputs,
    clean_logs,
    layout_of,
)
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.recurrences.vector import vector_gated
from olsq.attention.states import (
    Memory,
    open_memory,
    reset_mask,
    restore_layout,
)
from olsq.sequence.jax.gates import lost_tokens
from olsq.sequence.jax.pieces import delay


@sequence_rule
def hgrn2(
    q: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """HGRN-2: ``S = S diag(a) + v (1 - a)^T``; what a gate forgets is what it writes with.

    Parameters
    ----------
    q, v : array (B, T, H, K), (B, T, H, V)
        Queries (the paper's output gate; not scaled) and values (its input).
    forget, log_forget : array (B, T, H, K)
        Gates a in [0, 1], or their logs; needed, since 1 - a is the key.
    state : Memory, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
    state : Memory

    Raises
    ------
    ValueError
        If shapes, gates or segment ids do not fit.

    Notes
    -----
    The paper's lower bound of the gates, which grows with depth, is the layer's business.

    References
    ----------
    Qin et al., "HGRN2: Gated Linear RNNs with State Expansion" (2024), eq. 6.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 2, 1, 1))
    >>> olsq.attention.hgrn2(x, x, forget=0.5 * x)[0][0, :, 0, 0]
    Array([0.5 , 0.75], dtype=float32)
    """
    checked, b, t, h = check_heads(q=q, v=v)
    layout = layout_of(tuple(checked.values()), state, b, t, h)
    if (forget is None) == (log_forget is None):
        raise ValueError("give forget or log_forget, one of the two: 1 - forget is the key")
    check_gates(forget, log_forget, layout, checked["q"].shape[-1])
    gates = jnp.asarray(forget if log_forget is None else log_forget, layout.working)
    gates = jnp.broadcast_to(gates, checked["q"].shape)
    key = 1 - gates if log_forget is None else -jnp.expm1(gates)
    same: Any = {"forget" if log_forget is None else "log_forget": gates}
    tokens, _ = (
        check_inputs(  # the layout's dtype is that of q and v: the key is in the working one
            q, key, v, **same, segment_ids=segment_ids, state=state, vector=True
        )
    )
    matrix, state_lost = open_memory(state, tokens, layout)
    gates, shift = split_gates(tokens)
    gates = jnp.ones_like(tokens.k) if gates is None else gates
    out, memory = vector_gated(tokens.q, tokens.k, tokens.v, gates, matrix, shift=shift)
    return restore_layout(out, Memory(memory), tokens, state_lost, layout)


hgrn2_step = one_token(hgrn2, "forget", "log_forget", example="x, x, forget=0.5 * x", gives=0.75)


@sequence_rule
def rwkv6(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    bonus: ArrayLike,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """RWKV-6: ``o = (S + v (bonus * k)^T) q``, then ``S = S diag(w) + v k^T``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values; the paper calls queries receptance.
    bonus : array (H, K)
        The paper's u: weight of the token's own key, which the memory does not hold yet.
    forget, log_forget : array (B, T, H, K), or (B, T, H) or what broadcasts to it, optional
        Gates w in [0, 1], or their logs: per key dimension, or one per token.  Default 1.  They
        apply *after* the read, before the write: a gate of 0 forgets what came before its token for
        all later ones, but not for itself.
    state : Memory, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
    state : Memory

    Raises
    ------
    ValueError
        If shapes, gates or segment ids do not fit.

    References
    ----------
    Peng et al., "Eagle and Finch: RWKV with Matrix-Valued States" (2024), eq. 19 and 20.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> olsq.attention.rwkv6(x, x, x, bonus=jnp.array([[2.0]]), forget=0.5 * x)[0][0, :, 0, 0]
    Array([2. , 3. , 3.5], dtype=float32)
    """
    tokens, layout = check_inputs(q, k, v, segment_ids=segment_ids, state=state)
    width = tokens.k.shape[-1]
    gates = check_gates(forget, log_forget, layout, width)
    gates = jnp.ones_like(tokens.k) if gates is None else gates
    gates = gates if gates.ndim == 3 else jnp.broadcast_to(gates[..., None], tokens.k.shape)
    unknown = jnp.isnan(gates)
    gates = jnp.where(unknown, 1, gates)
    check_real("bonus", bonus)
    bonus = jnp.asarray(bonus, layout.working)
    if bonus.shape != (layout.heads, width):
        raise ValueError(f"bonus must have shape {(layout.heads, width)}, got {bonus.shape}")
    matrix, state_lost = open_memory(state, tokens, layout)
    # The reset of a segment comes before the read: its first query sees an empty memory.
    reads = tokens.q if tokens.start is None else jnp.where(tokens.start[..., None], 0, tokens.q)
    gates = gates if tokens.start is None else jnp.where(tokens.start[..., None], 0, gates)
    logs = clean_logs(log_forget, tokens.start, layout, width)
    if logs is not None and logs.ndim == 2:
        logs = jnp.broadcast_to(logs[..., None], gates.shape)
    tokens = tokens._replace(forget=gates, log_forget=logs)
    held, shift = split_gates(tokens)
    out, memory = vector_gated(reads, tokens.k, tokens.v, held, matrix, shift=shift, before=True)
    bonus_keys = jnp.tile(bonus, (layout.batch, 1))[:, None] * tokens.k
    out = out + (tokens.q * bonus_keys).sum(-1, keepdims=True) * tokens.v
    return restore_layout(
        out,
        Memory(memory),
        tokens,
        state_lost,
        layout,
        _output_lost(tokens, unknown.any(-1), state_lost),
    )


rwkv6_step = one_token(
    rwkv6, "forget", "log_forget", example="x, x, x, bonus=x[0], forget=0.5 * x", gives=2.0
)


def _output_lost(tokens: Tokens, unknown: Array, state_lost: Array) -> Any:
    """Mark the tokens a loss reaches where gates apply after the read: a reset helps later tokens
    only.
    """
    if tokens.sample_lost.shape[1] == 0:
        return None
    after = lost_tokens(tokens.sample_lost | unknown, reset_mask(tokens), state_lost)
    before = delay(after, state_lost[:, None])
    if tokens.start is not None:
        before = before & ~tokens.start
    return before | tokens.sample_lost, after[:, -1]
