"""Comba: the gated delta rule whose error weighs the memory's prediction, before forgetting."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.attention.arguments import check_inputs, check_weight, is_writable
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.delta import delta_rule
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.states import Memory, mark_lost, open_memory, restore_layout
from olsq.sequence.jax.gates import lost_tokens


@sequence_rule
def comba(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    feedback: ArrayLike | None = None,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """Comba: ``S = S (gamma I - b beta k k^T) + beta v k^T``, a scalar plus low rank.

    A gradient step on ``|v - S k|^2 / 2`` of size beta, in which the memory's own answer counts for
    the share b, and from the memory before forgetting.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  The paper reads with ``q - d k``: give that as q.  The
        rule is stable for ``b beta |k|^2 <= 1 + gamma``: normalise the keys.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  Since the error is of
        the memory before them, a gate of 0 does not forget everything.
    weight : array, optional
        Step sizes beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite or
        not.
    feedback : array, optional
        Share b >= 0 of the memory's answer in the error, broadcast to (B, T, H).  Default 1.
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
        If shapes, gates, weights, feedback or segment ids do not fit.

    Notes
    -----
    Costs what :func:`gated_delta` does.  Differentiable to any order in both modes, also at gates
    of 0.  That the error is of the memory before forgetting follows the kernel of the authors that
    flash-linear-attention has; with normalised keys that kernel also normalises b away, which the
    paper and this rule do not.

    References
    ----------
    Hu et al., "Improving Bilinear RNNs with Closed-loop Control" (2025), arXiv 2506.02475.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.comba(x, x, x, forget=0.5, weight=0.5, feedback=0.5)
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
    )
    read = tokens.k
    share = check_weight("feedback", feedback, layout)
    if share is not None:
        square = share**2 * (read**2).sum(-1)
        fine = jnp.isfinite(share) & is_writable(square, square, tokens.weight)
        tokens = mark_lost(tokens, ~fine)
        read = jnp.where(fine, share, 0)[..., None] * read
    if tokens.start is not None:  # the past of a segment's first token is empty
        read = jnp.where(tokens.start[..., None], 0, read)
    matrix, state_lost = open_memory(state, tokens, layout)
    gates, shift = split_gates(tokens)
    out, memory, overflown = delta_rule(
        tokens.q, read, tokens.k, tokens.v, gates, tokens.weight, matrix, shift=shift, before=True
    )
    lost = lost_tokens(tokens.sample_lost | overflown, tokens.start, state_lost)
    return restore_layout(
        out, Memory(memory), tokens, state_lost, layout, (lost, lost[:, -1:].any(-1))
    )


comba_step = one_token(
    comba,
    "forget",
    "log_forget",
    "weight",
    "feedback",
    example="x, x, x, forget=0.5, weight=0.5, feedback=0.5",
    gives=0.625,
)
