"""Kimi Delta Attention: the gated delta rule with a gate for each key dimension."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays import checks
from olsq.attention.arguments import check_inputs, is_writable, per_token
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.recurrences.vector_delta import delta_rule_any_gates
from olsq.attention.states import Memory, mark_lost, open_memory, restore_layout


@sequence_rule
def kda(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    erase: ArrayLike | None = None,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """Kimi Delta Attention: ``S = S diag(a) (I - beta k k^T) + beta v k^T``.

    A gradient step on ``|v - S k|^2 / 2`` of size beta, after every key dimension has forgotten at
    its own rate.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  The rule is stable for ``beta |k|^2 <= 2``: normalise
        the keys.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs: one per token, broadcast to (B, T, H), which is
        :func:`gated_delta`; or, as four axes, one per key dimension, broadcast to (B, T, H, K), as
        in the paper.  Default 1.  Gates of 0 in all dimensions forget everything before their
        token.
    weight : array, optional
        Step sizes beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite or
        not.  1 with ``|k| = 1`` replaces what the memory said about k.
    erase : array (B, T, H, K) or what broadcasts to it, optional
        b >= 0, which makes the rule that of Gated DeltaNet-2,
        ``S = S diag(a) (I - beta (b*k) k^T) + beta v k^T``: how much of what the memory says each
        key dimension takes away.  Default 1.  Its write gates, one per value channel, multiply v
        before the rule.
    state : Memory, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on until gates of 0, never before.
    state : Memory

    Raises
    ------
    ValueError
        If shapes, gates, weights or segment ids do not fit.

    Notes
    -----
    One triangular inverse a chunk of C <= 64, and two tables of scores that no gate is divided by:
    O(T (V K + C (V + K) + C^2 / 3)).  Differentiable to any order in both modes, also at gates of
    0.  The published code scales queries by ``K**-0.5``.

    References
    ----------
    Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture" (2025), arXiv
    2510.26692, section 3; "Gated DeltaNet-2: Decoupling Erase and Write in Linear Attention" (2026)
    for ``erase``, as the layer of that name in flash-linear-attention states it.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.kda(x, x, x, forget=0.5 * x, weight=0.5)
    >>> o[0, :, 0, 0]
    Array([0.5    , 0.625  , 0.65625], dtype=float32)
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
    )
    width = tokens.k.shape[-1]
    read = tokens.k
    if erase is not None:
        checks.check_weight(erase, name="erase", of="channel")
        gates = per_token("erase", erase, layout, width)
        square = ((gates * read) ** 2).sum(-1)
        fine = jnp.isfinite(gates).all(-1) & is_writable(square, square, tokens.weight)
        tokens = mark_lost(tokens, ~fine)
        read = jnp.where(fine[..., None], gates, 0) * read
    matrix, state_lost = open_memory(state, tokens, layout)
    gates, shift = split_gates(tokens)
    out, memory, overflown = delta_rule_any_gates(
        tokens.q, read, tokens.k, tokens.v, gates, tokens.weight, matrix, shift
    )
    tokens = mark_lost(tokens, overflown)
    return restore_layout(out, Memory(memory), tokens, state_lost, layout)


kda_step = one_token(
    kda,
    "forget",
    "log_forget",
    "weight",
    "erase",
    example="x, x, x, forget=0.5 * x, weight=0.5",
    gives=0.625,
)
