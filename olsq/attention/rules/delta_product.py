"""Gated DeltaProduct: several delta steps per token."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays import checks
from olsq.arrays.checks import check_real
from olsq.attention.arguments import (
    Layout,
    Tokens,
    check_gates,
    check_heads,
    check_segments,
    clean_logs,
    fold_heads,
    is_writable,
    layout_of,
    per_token,
    repeat_heads,
    with_resets,
)
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.delta import delta_rule
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.states import Memory, drop_unwritten, mark_lost, open_memory, restore_layout
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.inputs import all_ones


@sequence_rule
def gated_delta_product(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """Gated DeltaProduct: forget once, then n delta steps per token.

    ``S = gamma S``, and for each of the token's n pairs
    ``S = S (I - beta_j k_j k_j^T) + beta_j v_j k_j^T``: n gradient steps, one after the other, on
    ``|v_j - S k_j|^2 / 2``.  The transition is a product of n reflections at ``beta_j = 2``, which
    lets a head track permutations of n + 1 things.

    Parameters
    ----------
    q : array (B, T, H, K)
        Queries (not scaled).
    k, v : array (B, T, H, n, K), (B, T, H, n, V)
        Keys and values, n of each a token, in the order of their steps.  The rule is stable for
        ``beta |k|^2 <= 2``: normalise the keys.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.
    weight : array (B, T, H, n) or (n,), optional
        Step sizes beta >= 0.  Default 1.  0 leaves a step out, finite or not.
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
    :func:`gated_delta` on n T steps, read at every n-th: n times its cost.  Differentiable to any
    order in both modes, also at gates of 0.

    References
    ----------
    Siems et al., "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products"
    (2025), arXiv 2502.10297, section 3.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> q = jnp.ones((1, 2, 1, 1))
    >>> k = jnp.ones((1, 2, 1, 2, 1))  # two steps per token
    >>> o, state = olsq.attention.gated_delta_product(q, k, k, weight=0.5)
    >>> o[0, :, 0, 0]
    Array([0.75  , 0.9375], dtype=float32)
    """
    tokens, layout, count = _check_steps(q, k, v, forget, log_forget, weight, segment_ids, state)
    matrix, state_lost = open_memory(state, tokens, layout)
    gates, shift = split_gates(tokens)
    out, memory, overflown = delta_rule(
        tokens.q, tokens.k, tokens.k, tokens.v, gates, tokens.weight, matrix, shift=shift
    )
    tokens = mark_lost(tokens, overflown)
    steps = layout._replace(length=count * layout.length)
    value, memory = restore_layout(out, Memory(memory), tokens, state_lost, steps)
    return value[:, count - 1 :: count], memory


gated_delta_product_step = one_token(
    gated_delta_product,
    "forget",
    "log_forget",
    "weight",
    example="x, y, y, weight=0.5",
    gives=0.938,
    setup="x, y = jnp.ones((1, 1, 1)), jnp.ones((1, 1, 2, 1))",
)


def _check_steps(
    q: Any, k: Any, v: Any, forget: Any, log_forget: Any, weight: Any, segment_ids: Any, state: Any
) -> tuple[Tokens, Layout, int]:
    """Lay the steps of all tokens in a row, (N, T n, ...); return them, the tokens' layout, and n.

    A token's gate and the start of a segment belong to its first step, its query to its last.
    """
    q, k, v, layout, count = _check_streams(q, k, v, state)
    gates = check_gates(forget, log_forget, layout)
    checks.check_weight(weight, of="step")
    if weight is not None:
        strengths = per_token("weight", weight, layout, count)
        weight = None if all_ones(weight) else strengths
    start = check_segments(segment_ids, layout)
    n, t, _ = q.shape

    def in_a_row(x: Array) -> Array:
        return x.reshape(n, t * count, *x.shape[3:])

    def at_first(x: Array, otherwise: Any) -> Array:
        padding = jnp.full((n, t, count - 1), otherwise, x.dtype)
        return in_a_row(jnp.concatenate([x[..., None], padding], 2))

    query_finite = squarable(q)
    q = jnp.where(query_finite[..., None], q, 0)[:, :, None]
    q = jnp.concatenate([jnp.zeros((n, t, count - 1, q.shape[-1]), q.dtype), q], 2)
    sample_finite = is_writable((k * k).sum(-1), (v * v).sum(-1))
    k, v = (in_a_row(jnp.where(sample_finite[..., None], x, 0)) for x in (k, v))
    tokens = Tokens(
        in_a_row(q),
        k,
        v,
        None,
        None,
        None,
        in_a_row(~sample_finite),
        jnp.repeat(query_finite, count, 1),
    )
    tokens, weight = drop_unwritten(tokens, None if weight is None else in_a_row(weight))
    if gates is not None:
        unknown = jnp.isnan(gates)
        tokens = tokens._replace(sample_lost=tokens.sample_lost | at_first(unknown, False))
        gates = jnp.where(unknown, 1, gates)
    gates = with_resets(gates, start, layout.working)
    gates = None if gates is None else at_first(gates, 1)
    logs = clean_logs(log_forget, start, layout)
    logs = None if logs is None else at_first(logs, 0)
    return tokens._replace(forget=gates, weight=weight, log_forget=logs), layout, count


def _check_streams(q: Any, k: Any, v: Any, state: Any) -> tuple[Array, Array, Array, Layout, int]:
    """Check queries (N, T, K), keys and values (N, T, n, dim); return them, the layout, and n."""
    for name, x in (("k", k), ("v", v)):
        check_real(name, x)
        if jnp.ndim(x) != 5:
            raise ValueError(
                f"{name} must have shape (batch, time, heads, steps, dim), got {jnp.shape(x)}; one "
                f"step per token is {name}[:, :, :, None]"
            )
    k, v = jnp.asarray(k), jnp.asarray(v)
    k = repeat_heads(k, v.shape[2])
    checked, b, t, h = check_heads(q=q, k=k[:, :, :, 0], v=v[:, :, :, 0])
    q, count = checked["q"], k.shape[3]
    if v.shape[3] != count:
        raise ValueError(f"steps of k and v must agree, got k {k.shape} and v {v.shape}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q must have the width of k, got q {q.shape} and k {k.shape}")
    layout = layout_of((q, k, v), state, b, t, h)
    q, k, v = (fold_heads(x.astype(layout.working)) for x in (q, k, v))
    return q, k, v, layout, count
