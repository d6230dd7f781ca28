"""Delta rules: each token corrects the memory's prediction for its key."""

from __future__ import annotations

from jax import Array
from jax.typing import ArrayLike

from olsq.attention.arguments import check_inputs
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.delta import delta_rule
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.signed import remove_signs
from olsq.attention.states import (
    Memory,
    drop_overflown,
    open_memory,
    propagate_losses,
    restore_layout,
    unfolded_streams,
)


@sequence_rule
def gated_delta(
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
    """Gated DeltaNet: ``S = gamma S (I - beta k k^T) + beta v k^T``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  The rule is stable for ``beta |k|^2 <= 2``: normalise
        the keys.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.
    weight : array, optional
        Step sizes beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite or
        not.  1 with ``|k| = 1`` replaces what the memory said about k.
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
    One triangular inverse a chunk of C <= 64: O(T (V K + C (V + K) + C^2 / 3)).  Differentiable to
    any order in both modes.

    References
    ----------
    Yang et al., "Gated Delta Networks" (2025), eq. 10; Yang et al., "Parallelizing Linear
    Transformers with the Delta Rule over Sequence Length" (2024) for the chunk form.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.gated_delta(x, x, x, weight=0.5)
    >>> o[0, :, 0, 0]
    Array([0.5  , 0.75 , 0.875], dtype=float32)
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
        signed=signed,
    )
    tokens, final_sign = remove_signs(tokens) if signed else (tokens, None)
    matrix, state_lost = open_memory(state, tokens, layout)
    lost = propagate_losses(tokens, state_lost)
    (q, k, v), options = unfolded_streams(tokens, lost[0], layout)
    gates, shift = split_gates(tokens)
    out, memory, overflown = delta_rule(
        q, k, None, v, gates, tokens.weight, matrix, shift=shift, **options
    )
    memory = memory if final_sign is None else memory * final_sign
    out, tokens = drop_overflown(out, tokens, overflown, state_lost, layout)
    return restore_layout(out, Memory(memory), tokens, state_lost, layout)


gated_delta_step = one_token(
    gated_delta, "forget", "log_forget", "weight", example="x, x, x, weight=0.5", gives=0.75
)


@sequence_rule
def delta(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """DeltaNet: ``S = S (I - beta k k^T) + beta v k^T``, one gradient step per token.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  The rule is stable for ``beta |k|^2 <= 2``: normalise
        the keys.
    weight : array, optional
        Step sizes beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite or
        not.  1 with ``|k| = 1`` replaces what the memory said about k.
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
        If shapes, weights or segment ids do not fit.

    Notes
    -----
    :func:`gated_delta` without gates.  The step descends ``|v - S k|^2 / 2`` from the state before
    the token, by beta.  For keys that are not normalised, beta may be
    ``(1 - exp(-b |k|^2)) / |k|^2`` (error-free linear attention: the gradient flow for a time b) or
    ``eta / (|k|^2 + eps)`` (Kaczmarz' step).

    References
    ----------
    Schlag et al., "Linear Transformers Are Secretly Fast Weight Programmers" (2021), eq. 24.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 2, 1, 1))
    >>> olsq.attention.delta(x, x, x, weight=0.5)[0][0, :, 0, 0]
    Array([0.5 , 0.75], dtype=float32)
    """
    return gated_delta(q, k, v, weight=weight, state=state, segment_ids=segment_ids)


delta_step = one_token(delta, "weight", example="x, x, x, weight=0.5", gives=0.75)
