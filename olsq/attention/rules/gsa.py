"""Gated slot attention: a softmax over a fixed number of slots that forget at their own rates."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_number, check_real
from olsq.attention.arguments import check_gates, check_inputs, check_weight, clean_logs, per_token
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.recurrences.vector import row_gated, vector_gated
from olsq.attention.states import check_state, drop_unreadable, drop_unwritten, restore_layout


class SlotMemory(NamedTuple):
    """State of :func:`gsa`: M slots, each with a key and a value.

    Attributes
    ----------
    keys : array (B, H, M, K)
    values : array (B, H, M, V)
    """

    keys: Array
    values: Array

    __repr__ = brief_repr


@sequence_rule
def gsa(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    scale: float = 1.0,
    state: SlotMemory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, SlotMemory]:
    """Gated slot attention: softmax over M slots, whose keys and values are leaky averages.

    Slot m keeps ``k_m = a_m k_m + (1 - a_m) k`` and ``v_m = a_m v_m + (1 - a_m) v``, and a query
    reads ``sum_m softmax_m(scale q . k_m) v_m``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries, keys, values.
    forget, log_forget : array (B, T, H, M)
        Gates a in [0, 1], or their logs, one per slot: their last axis says how many slots there
        are.  A token whose gates are all 0 forgets everything before it.
    weight : array, optional
        Write strengths >= 0: per slot, broadcast to (B, T, H, M), or one per token, broadcast to
        (B, T, H).  Default 1 - a.  0 in all slots leaves a token out, finite or not.
    scale : float
        Of the scores.
    state : SlotMemory, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token until all gates are 0, never before.
    state : SlotMemory

    Raises
    ------
    ValueError
        If shapes, gates, weights or segment ids do not fit.

    Notes
    -----
    Two gated linear memories with a softmax between them: one that keys write to, gated by row, and
    one that is read by the softmax, gated by column.  O(M (K + V)) and O(M C), C <= 64 a chunk; the
    state is M (K + V) numbers per head.  No gate is ever divided by.  Differentiable to any order
    in both modes, also at gates of 0.  Slots start at 0, as in the authors' kernels; the paper's
    scores are not scaled.

    References
    ----------
    Zhang et al., "Gated Slot Attention for Efficient Linear-Time Sequence Modeling" (2024), arXiv
    2409.07146, section 3.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> a = jnp.broadcast_to(jnp.array([0.0, 0.5]), (1, 3, 1, 2))  # the last token; an average
    >>> o, state = olsq.attention.gsa(x, 0 * x, x, forget=a)
    >>> o[0, :, 0, 0]
    Array([0.75  , 0.875 , 0.9375], dtype=float32)
    >>> state.values[0, 0, :, 0]
    Array([1.   , 0.875], dtype=float32)
    """
    gate: Any
    name, gate = ("forget", forget) if log_forget is None else ("log_forget", log_forget)
    if (forget is None) == (log_forget is None):
        raise ValueError("give forget or log_forget, one of the two: they say how many slots")
    check_real(name, gate)
    if jnp.ndim(gate) != 4:
        raise ValueError(
            f"{name} must have a gate for each slot, (batch, time, heads, slots), got shape "
            f"{jnp.shape(gate)}"
        )
    scale = check_number("scale", scale)
    slots = jnp.shape(gate)[-1]
    tokens, layout = check_inputs(q, k, v, segment_ids=segment_ids, state=state)
    n, t = tokens.q.shape[:2]
    gates = check_gates(forget, log_forget, layout, slots)
    strength: Any = check_weight("weight", weight, layout, slots)
    gates = jnp.ones((n, t, slots), layout.working) if gates is None else gates
    unknown = jnp.isnan(gates).any(-1)
    gates = jnp.where(unknown[..., None], 1, gates)
    if weight is None:
        written = _written_share(log_forget, gates, layout, slots, unknown)
    else:
        tokens, strength = drop_unwritten(
            tokens, jnp.ones((n, t), layout.working) if strength is None else strength
        )
        strength = strength if strength.ndim == 3 else strength[..., None]
        written = jnp.broadcast_to(strength, (n, t, slots))
    if tokens.start is not None:
        gates = jnp.where(tokens.start[..., None], 0, gates)
    logs = clean_logs(log_forget, tokens.start, layout, slots)
    tokens = tokens._replace(
        forget=gates, sample_lost=tokens.sample_lost | unknown, log_forget=logs
    )
    gates, shift = split_gates(tokens)
    shape = (layout.batch, layout.heads, slots)
    zero = SlotMemory(*(jnp.zeros((*shape, x.shape[-1]), layout.working) for x in tokens[1:3]))
    opened, state_lost = check_state(state, zero, layout)
    scores, keys = row_gated(tokens.q, tokens.k, written, gates, opened.keys, shift)
    scores, tokens = drop_unreadable(scale * scores, tokens)
    read = jax.nn.softmax(scores, -1)
    held = jnp.swapaxes(opened.values, 1, 2)
    out, values = vector_gated(read, written, tokens.v, gates, held, shift=shift)
    return restore_layout(
        out, SlotMemory(keys, jnp.swapaxes(values, 1, 2)), tokens, state_lost, layout
    )


gsa_step = one_token(
    gsa,
    "forget",
    "log_forget",
    "weight",
    example="x, x, x, forget=a",
    gives=0.891,
    setup="x, a = jnp.ones((1, 1, 1)), jnp.array([[[0.0, 0.5]]])",
)


def _written_share(log_forget: Any, gates: Array, layout: Any, slots: int, unknown: Array) -> Array:
    """Compute ``1 - a`` (N, T, M), to the last digit also where logs are given."""
    if log_forget is None:
        return 1 - gates
    logs = per_token("log_forget", log_forget, layout, slots)
    return -jnp.expm1(jnp.where(unknown[..., None], 0, logs))
