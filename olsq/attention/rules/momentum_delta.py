"""Momentum DeltaNet: the gated delta rule whose writes go through a momentum."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import refuse
from olsq.attention.arguments import (
    check_inputs,
    is_writable,
    per_token,
)
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.momentum import momentum_delta_rule
from olsq.attention.states import check_state, empty_memory, mark_lost, restore_layout
from olsq.sequence.jax.gates import lost_tokens


class MomentumState(NamedTuple):
    """State of :func:`momentum_delta` between tokens.

    Attributes
    ----------
    matrix : array (B, H, V, K)
        ``S``; a query reads ``S q``.
    velocity : array (B, H, V, K)
        ``M``, the decaying sum of the writes.
    """

    matrix: Array
    velocity: Array

    __repr__ = brief_repr


@sequence_rule
def momentum_delta(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    momentum: ArrayLike = 0.9,
    step_size: ArrayLike = 1.0,
    read: ArrayLike | None = None,
    state: MomentumState | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, MomentumState]:
    """Momentum DeltaNet: ``M = mu M + eta (v - S p) k^T``, then ``S = alpha S + beta M``.

    Gradient descent with momentum on ``|v - S k|^2 / 2``: the error of a token moves the memory at
    this token and, with a share that decays by mu, at those after it.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  Normalise the keys.
    forget, log_forget : array, optional
        Gates alpha in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  Since momentum
        passes them, a gate of 0 does not forget everything.
    weight : array, optional
        Write strengths eta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite
        or not.  S still moves along the momentum then.
    momentum : array
        Momentum mu in [0, 1], broadcast to (B, T, H).  With 0 the rule is :func:`gated_delta` with
        steps of ``eta beta``.
    step_size : array
        Step sizes beta >= 0 along the momentum, broadcast to (B, T, H).
    read : array (B, T, H, K) or what broadcasts to it, optional
        p, with which the error reads the memory before its gate.  ``alpha k`` if None, as in the
        published layer: the error of the memory after its gate.
    state : MomentumState, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token to the end of its segment.
    state : MomentumState

    Raises
    ------
    ValueError
        If shapes, gates, weights, step sizes or segment ids do not fit.

    Notes
    -----
    The rule is linear in S and M together, so that a chunk of C <= 64 tokens takes one triangular
    inverse as for :func:`gated_delta`, with twice the memory, and one more product of C x C tables:
    O(T (V K + C (V + K) + C^2)).  Differentiable to any order in both modes, also at gates of 0.

    Undamped momentum oscillates and may diverge.  The published layer keeps
    ``alpha <= 1 / (1 + s)`` and ``beta <= s / (1 + s)`` with one s per token.

    Checked against the recurrent reference of the authors' code (HuuYuLong/MomentumDeltaNet,
    ``naive.py``): it keeps ``-M`` where this function keeps M, takes ``p = alpha k`` with
    normalised keys by default, and reads with queries scaled by ``K**-0.5``.

    References
    ----------
    Huang et al., "MDN: Parallelizing Stepwise Momentum for Delta Linear Attention" (2026), arXiv
    2605.05838, section 3.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.momentum_delta(x, x, x, weight=0.5, momentum=0.5)
    >>> o[0, :, 0, 0]
    Array([0.5 , 1.  , 1.25], dtype=float32)
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
    keys = tokens.k.shape[-1]
    zero = empty_memory(layout, tokens.v.shape[-1], keys).matrix
    opened, state_lost = check_state(state, MomentumState(zero, zero), layout)
    refuse("momentum", momentum, lambda x: (x < 0) | (x > 1), "lie in [0, 1]")
    refuse("step_size", step_size, lambda x: x < 0, "be >= 0")
    mu, beta = per_token("momentum", momentum, layout), per_token("step_size", step_size, layout)
    fine = ~jnp.isnan(mu) & is_writable(beta**2, beta**2)
    mu, beta = jnp.where(fine, mu, 0), jnp.where(fine, beta, 0)
    alpha = jnp.ones_like(mu) if tokens.forget is None else tokens.forget
    if read is None:
        p = alpha[..., None] * tokens.k
    else:
        p = per_token("read", read, layout, keys)
        square = (p**2).sum(-1)
        fine = fine & is_writable(square, square, tokens.weight)
        p = jnp.where(fine[..., None], p, 0)
    if tokens.start is not None:  # the past of a segment's first token is empty
        p = jnp.where(tokens.start[..., None], 0, p)
        mu = jnp.where(tokens.start, 0, mu)
    written = tokens.k if tokens.weight is None else tokens.weight[..., None] * tokens.k
    tokens = mark_lost(tokens, ~fine)
    out, memory, overflown = momentum_delta_rule(
        tokens.q,
        p,
        written,
        tokens.v,
        jnp.stack([alpha, mu], -1),
        beta,
        jnp.concatenate(opened, -1),
    )
    lost = lost_tokens(tokens.sample_lost | overflown, tokens.start, state_lost)
    return restore_layout(
        out,
        MomentumState(*jnp.split(memory, 2, -1)),
        tokens,
        state_lost,
        layout,
        (lost, lost[:, -1:].any(-1)),
    )


momentum_delta_step = one_token(
    momentum_delta,
    "forget",
    "log_forget",
    "weight",
    "momentum",
    "step_size",
    "read",
    example="x, x, x, weight=0.5, momentum=0.5",
    gives=1.0,
)
