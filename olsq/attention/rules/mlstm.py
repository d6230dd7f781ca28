"""The matrix memory of xLSTM, with sigmoid or exponential input gates."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import refuse
from olsq.attention.arguments import Tokens, check_inputs, per_token
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.linear import gated_linear
from olsq.attention.recurrences.log_gates import split_gates, split_logs
from olsq.attention.recurrences.running_maxima import (
    finite_or_zero,
    running_maxima,
    scale_gates,
    scale_log_gates,
)
from olsq.attention.rules.linear import divide_or_zero
from olsq.attention.states import check_state, drop_unreadable, empty_memory, restore_layout


class MLSTMState(NamedTuple):
    """State of :func:`mlstm`: memory and normaliser, both times ``exp(-maximum)``.

    Attributes
    ----------
    matrix : array (B, H, V, K)
    normaliser : array (B, H, K)
    maximum : array (B, H)
        The largest log weight so far, forgotten like the tokens; 0 where weights are plain, -inf
        before any token.  Derivatives take it for a constant, on both sides of a state: what it
        hides from ``memory`` and ``normaliser`` where they are made, it hides again where they are
        read, so that those of outputs in the tokens before are right.  A derivative in this field
        itself is 0 and is not one: changed alone, it changes what the others stand for.
    """

    matrix: Array
    normaliser: Array
    maximum: Array

    __repr__ = brief_repr


@sequence_rule
def mlstm(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    log_weight: ArrayLike | None = None,
    state: MLSTMState | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, MLSTMState]:
    """mLSTM: ``S = f S + i v k^T``, ``z = f z + i k``, ``o = S q / max(1, |z^T q|)``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  The paper divides its keys by ``sqrt(K)``: the caller's
        business.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.
    weight : array, optional
        Input gates i >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite or
        not.  The MesaNet paper's sigmoid gates.
    log_weight : array, optional
        Their logs instead, of any size, broadcast to (B, T, H): the exponential gates of the xLSTM
        paper.  Computed with a running maximum, so that they never overflow; -inf leaves a token
        out.
    state : MLSTMState, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on until a gate of 0, never before.
    state : MLSTMState

    Raises
    ------
    ValueError
        If shapes, gates, weights or segment ids do not fit, or both forms of one are given.

    Notes
    -----
    The published stabilised form divides by ``max(exp(-m), |z' . q|)`` of the scaled normaliser,
    which is this one.  Costs what :func:`gla` does.  Differentiable in both modes.

    References
    ----------
    Beck et al., "xLSTM" (2024), eq. 19 to 27; von Oswald et al., "MesaNet" (2025), Table 3.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.mlstm(x, x, x, log_weight=1000 * x[..., 0])
    >>> o[0, :, 0, 0]
    Array([1., 1., 1.], dtype=float32)
    """
    if weight is not None and log_weight is not None:
        raise ValueError("give weight or log_weight, not both: they are the same input gates")
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
    memory = empty_memory(layout, tokens.v.shape[-1], tokens.k.shape[-1]).matrix
    level = jnp.full((layout.batch, layout.heads), -jnp.inf if log_weight is not None else 0.0)
    zero = MLSTMState(memory, memory[:, :, 0], level.astype(layout.working))
    opened, state_lost = check_state(state, zero, layout)
    start = jax.lax.stop_gradient(opened.maximum)
    if log_weight is None:
        start = jnp.where(jnp.isneginf(start), 0, start)  # nothing is remembered yet
        maxima = jnp.broadcast_to(start[:, None], tokens.sample_lost.shape)
        plain = jnp.ones_like(maxima) if tokens.weight is None else tokens.weight
        gates, shift = split_gates(tokens)
        strength = plain * jnp.exp(-maxima)
    else:
        refuse("log_weight", log_weight, lambda w: w == float("inf"), "be less than infinity")
        logs = per_token("log_weight", log_weight, layout)
        tokens, logs = _leave_out(tokens, logs)
        shift = None
        gates = jnp.ones_like(logs) if tokens.forget is None else tokens.forget
        log_gates = jnp.log(gates) if tokens.log_forget is None else tokens.log_forget
        maxima = running_maxima(log_gates, logs, start)
        # Gates are at most 1: a memory of less than exp can hold counts no more next to the 1 in
        # max(1, |z . q|).
        maxima = jnp.where(jnp.exp(maxima) == 0, -jnp.inf, maxima)
        strength = jnp.exp(logs - finite_or_zero(maxima))
        if tokens.log_forget is None:
            gates = scale_gates(gates, maxima, start)
        else:
            gates, shift = split_logs(scale_log_gates(log_gates, maxima, start))
            # What a lost sample weighs is unknown: only a gate of 0 is sure to forget it.
            tokens = tokens._replace(forget=jnp.where(jnp.isneginf(log_gates), 0, 1))
    values = jnp.concatenate([tokens.v, jnp.ones_like(tokens.v[..., :1])], -1)
    held = jnp.concatenate([opened.matrix, opened.normaliser[:, None]], 1)
    out, held = gated_linear(tokens.q, tokens.k, values, gates, strength, held, shift=shift)
    out, tokens = drop_unreadable(out, tokens)
    # max(1, |z.q|) in units of exp(m): everything here is scaled by exp(-m)
    size = jnp.maximum(jnp.exp(-finite_or_zero(maxima)), jnp.abs(out[..., -1]))
    last = maxima[:, -1] if maxima.shape[1] else start
    return restore_layout(
        divide_or_zero(out[..., :-1], size[..., None]),
        MLSTMState(held[:, :-1], held[:, -1], last),
        tokens,
        state_lost,
        layout,
    )


mlstm_step = one_token(
    mlstm,
    "forget",
    "log_forget",
    "weight",
    "log_weight",
    example="x, x, x, log_weight=1000 * x[..., 0]",
    gives=1.0,
)


def _leave_out(tokens: Tokens, logs: Array) -> tuple[Tokens, Array]:
    """Make tokens of log weight -inf absent, finite or not; mark those of NaN or inf as lost."""
    wrong = jnp.isnan(logs) | jnp.isposinf(logs)
    sample_lost = (tokens.sample_lost & ~jnp.isneginf(logs)) | wrong
    return tokens._replace(sample_lost=sample_lost), jnp.where(wrong, -jnp.inf, logs)
