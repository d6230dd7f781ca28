"""Log-linear attention: Mamba-2 with a memory for each level of a Fenwick tree over the past."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_real
from olsq.attention.arguments import check_inputs, per_token
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.levels import fenwick
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.states import check_state, restore_layout
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.pieces import running_max


class LogLinearState(NamedTuple):
    """State of :func:`log_linear_mamba2`: L memories, and the position in the tree.

    Attributes
    ----------
    matrix : array (B, H, L, V, K)
        Memory of each level, as the last token read it: of that token, and of blocks of 1, 2, 4,
        ... tokens before it.  Blocks that the last token's position does not have are 0.
    position : int32 array (B, H)
        Tokens so far, of the running segment.
    """

    matrix: Array
    position: Array

    __repr__ = brief_repr


@sequence_rule
def log_linear_mamba2(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    level_weight: ArrayLike,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    state: LogLinearState | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, LogLinearState]:
    """Log-linear Mamba-2: ``o = sum_l lambda_l S_l q`` over memories of ever larger blocks.

    The past of a token is cut as a Fenwick tree does it: the token itself (level 0), then blocks of
    2^(l - 1) tokens (level l), one for each binary digit 1 of its position, small ones nearest.
    Each block has a memory ``S_l = gamma S_l + v k^T`` of its tokens; when two blocks become one,
    their memories are added.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values: the paper's C, B and ``dt x``, as in :func:`mamba2`.
    level_weight : array (B, T, H, L)
        Weights lambda of the levels that a token reads, of any sign.  Its last axis says how many
        there are: L levels hold ``2^(L - 1)`` tokens apart as the paper does; of longer streams all
        blocks of ``2^(L - 2)`` tokens and more share the last level.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.
    state : LogLinearState, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on until a gate of 0, never before,
        and where a weight of a level is not finite.
    state : LogLinearState

    Raises
    ------
    ValueError
        If shapes, gates or segment ids do not fit.

    Notes
    -----
    O(L V K) and O(C (K + V + L)) per token, C = 64 a chunk, and O(L V K) one by one: with L = 1 +
    log2(T) that is O(T log T) for a sequence, and O(log T) numbers to decode with.  A chunk may
    begin anywhere in the tree, so segments, states and pieces of time need no alignment.  L = 1, or
    weights of 1, is :func:`mamba2`.  Differentiable to any order in both modes, also at gates of 0.
    The last level's taking in all older blocks, where the paper has as many levels as it needs, is
    this package's.

    References
    ----------
    Guo et al., "Log-Linear Attention" (2025), arXiv 2506.04761, section 3.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 5, 1, 1))
    >>> at_once = jnp.broadcast_to(jnp.array([0.0, 1.0, 1.0, 1.0]), (1, 5, 1, 4))
    >>> block_of_2 = jnp.broadcast_to(jnp.array([0.0, 0.0, 1.0, 0.0]), (1, 5, 1, 4))
    >>> olsq.attention.log_linear_mamba2(x, x, x, level_weight=at_once)[0][0, :, 0, 0]
    Array([0., 1., 2., 3., 4.], dtype=float32)
    >>> olsq.attention.log_linear_mamba2(x, x, x, level_weight=block_of_2)[0][0, :, 0, 0]
    Array([0., 0., 2., 2., 0.], dtype=float32)
    """
    tokens, layout = check_inputs(
        q, k, v, forget=forget, log_forget=log_forget, segment_ids=segment_ids, state=state
    )
    check_real("level_weight", level_weight)
    if jnp.ndim(level_weight) != 4 or not jnp.shape(level_weight)[-1]:
        raise ValueError(
            "level_weight must have a weight for each level, (batch, time, heads, levels), got "
            f"shape {jnp.shape(level_weight)}"
        )
    levels = jnp.shape(level_weight)[-1]
    weights = per_token("level_weight", level_weight, layout, levels)
    most = jnp.maximum(jnp.abs(weights).max(-1, keepdims=True), 1)
    readable = squarable(most * tokens.q)
    tokens = tokens._replace(
        q=jnp.where(readable[..., None], tokens.q, 0), query_finite=tokens.query_finite & readable
    )
    weights = jnp.where(readable[..., None], weights, 0)
    shape = (layout.batch, layout.heads)
    size = (tokens.v.shape[-1], tokens.k.shape[-1])
    zero = LogLinearState(
        jnp.zeros((*shape, levels, *size), layout.working), jnp.zeros(shape, jnp.int32)
    )
    opened, state_lost = check_state(state, zero, layout)
    at = _positions(opened.position, tokens.start, *tokens.q.shape[:2])
    before = jnp.maximum(opened.position - 1, 0)
    gates, shift = split_gates(tokens)
    out, memory = fenwick(
        tokens.q, tokens.k, tokens.v, gates, weights, at, before, opened.matrix, shift
    )
    count = at[:, -1] + 1 if layout.length else opened.position
    return restore_layout(out, LogLinearState(memory, count), tokens, state_lost, layout)


log_linear_mamba2_step = one_token(
    log_linear_mamba2,
    "level_weight",
    "forget",
    "log_forget",
    example="x, x, x, level_weight=near",
    gives=1.5,
    setup="x, near = jnp.ones((1, 1, 1)), jnp.array([[[1.0, 0.5]]])",
)


def _positions(first: Array, start: Array | None, n: int, t: int) -> Array:
    """Number the tokens (N, T) int32 from ``first`` (N,) on, and from 0 in each later segment."""
    order = jnp.arange(t, dtype=jnp.int32)
    at = jnp.broadcast_to(first[:, None] + order, (n, t))
    if start is None:
        return at
    begin = running_max(jnp.where(start, order + 1, 0).astype(jnp.int32))
    return jnp.where(begin > 0, order + 1 - begin, at)
