"""Intention: the regression of a whole context, read by every query; not causal."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.questions import ask
from olsq.attention.arguments import (
    check_heads,
    check_positive,
    check_segments,
    check_weight,
    fold_heads,
    is_writable,
    layout_of,
    repeat_heads,
)
from olsq.attention.regression import check_moments, fold_and_clean
from olsq.problem import Moments
from olsq.sequence.jax import query
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.meshes import takes_arrays
from olsq.sequence.jax.pieces import running_sum
from olsq.sequence.jax.platform import in_full_precision


@takes_arrays
def intention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    ridge: ArrayLike,
    weight: ArrayLike | None = None,
    state: Moments | None = None,
    segment_ids: ArrayLike | None = None,
    segments: int | None = None,
) -> tuple[Array, Moments[Array]]:
    """Intention: ``o_t = G (H + Lambda)^{-1} q_t`` with the moments of *all* tokens.

    Parameters
    ----------
    q : array (B, S, H, K)
        Queries; without ``segment_ids`` their number may differ from the keys'.
    k, v : array (B, T, H, K), (B, T, H, V)
        Keys and values.
    ridge : array
        Diagonal of Lambda, > 0: a number, (K,) or (H, K).
    weight : array, optional
        Sample weights >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite or
        not.
    state : Moments, optional
        As returned for the tokens before; an empty past if None.  Gram
        (B, H, K, K) and cross (B, H, V, K); with segments, context of the first.
    segment_ids : int array (B, T), optional
        Sequences packed into one row: non-decreasing; each is its own context, and S is T then.
        The first token goes on with the segment of ``state``, unless the ids are (B, T + 1) and
        begin with that of the token before.
    segments : int, optional
        The most segments of a row; needed where ``segment_ids`` is traced.

    Returns
    -------
    output : array (B, S, H, V)
        NaN everywhere in a context with a token that is not finite.
    state : Moments
        Of all tokens, or of the last segment.

    Raises
    ------
    ValueError
        If shapes, weights, ridge or segment ids do not fit.

    Notes
    -----
    One factorisation a context: O(T K (K + V) + K^3).  The last row of :func:`mesa` without gates
    is the last row of this.  There is no one-token form: a query sees the future.

    References
    ----------
    Garnelo and Czarnecki, "Exploring the Space of Key-Value-Query Models with Intention" (2023),
    eq. 3.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.intention(x, x, x, ridge=1.0)
    >>> o[0, :, 0, 0]
    Array([0.75, 0.75, 0.75], dtype=float32)
    """
    check_positive("ridge", ridge)
    checked, b, t, h = check_heads(k=k, v=v)
    asked, queries_b, s, _ = check_heads(q=q)
    asked["q"] = repeat_heads(asked["q"], h)
    if (queries_b, asked["q"].shape[2]) != (b, h) or asked["q"].shape[-1] != checked["k"].shape[-1]:
        raise ValueError(
            f"q {asked['q'].shape} must have the batch, heads and width of k {(b, t, h)}"
        )
    check_moments(state, checked["k"], checked["v"])
    layout = layout_of((asked["q"], *checked.values()), state, b, t, h)
    first = check_segments(segment_ids, layout)
    order = jnp.zeros((b * h, t), jnp.int32) if first is None else running_sum(first)
    count = 1 if first is None else _most_segments(segment_ids, segments)
    if first is not None and s != t:
        raise ValueError(f"q must be as long as k with segment_ids, got {s} and {t}")
    k, v = (fold_heads(x.astype(layout.working)) for x in checked.values())
    weight = check_weight("weight", weight, layout)
    weight = jnp.ones(order.shape, layout.working) if weight is None else weight
    fits = is_writable((k**2).sum(-1), (v**2).sum(-1), weight)
    sample_lost = ~fits & (weight != 0) | ~jnp.isfinite(weight)
    left_out = (~fits | ~jnp.isfinite(weight))[..., None]
    k, v = (jnp.where(left_out, 0, x) for x in (k, v))
    written = jnp.where(left_out, 0, weight[..., None]) * k
    queries = fold_heads(asked["q"].astype(layout.working))
    lam = jnp.broadcast_to(jnp.asarray(ridge, layout.working), (h, k.shape[-1]))
    lam = jnp.tile(lam, (b, 1))
    start = None if state is None else Moments(*(fold_and_clean(jnp.asarray(x)) for x in state))
    state_lost = jnp.zeros((b * h,), bool)
    if state is not None:
        state_lost = jnp.isnan(state.gram).any((2, 3)) | jnp.isnan(state.cross).any((2, 3))
        state_lost = state_lost.reshape(-1)

    @in_full_precision
    def context(index: Array) -> tuple[Array, Moments[Array], Array]:
        """Solve context ``index``: outputs of all queries, its moments, whether these are lost."""
        inside = order == index
        context_keys = jnp.where(inside[..., None], written, 0)
        gram, cross = (jnp.einsum("nti,ntj->nij", x, context_keys) for x in (k, v))
        output_lost = (sample_lost & inside).any(1)
        if start is not None:
            begins = jnp.where(index == 0, 1, 0)
            gram, cross = gram + begins * start.gram, cross + begins * start.cross
            output_lost = output_lost | (state_lost & (index == 0))
        moments = Moments(gram, cross)
        clear = jnp.where(squarable(queries)[..., None], queries, 0)
        out = query(Moments(gram[:, None], cross[:, None]), clear, ridge=lam[:, None])
        return jnp.where(output_lost[:, None, None], jnp.nan, out), moments, output_lost

    value, moments, output_lost = context(jnp.int32(0))
    for index in range(1, count):
        out, later, lost_too = context(jnp.int32(index))
        value = jnp.where((order == index)[..., None], out, value)
        here = order[:, -1] == index
        moments = Moments(
            *(jnp.where(here[:, None, None], x, y) for x, y in zip(later, moments, strict=True))
        )
        output_lost = jnp.where(here, lost_too, output_lost)
    value = jnp.where(squarable(queries)[..., None], value, jnp.nan)
    value = jnp.moveaxis(value.reshape(b, h, s, value.shape[-1]), 1, 2).astype(layout.dtype)
    final = [jnp.where(output_lost[:, None, None], jnp.nan, x) for x in moments]
    return value, Moments(*(x.reshape(b, h, *x.shape[1:]) for x in final))


def _most_segments(segment_ids: Any, segments: int | None) -> int:
    if segments is not None:
        return segments
    count = ask(segment_ids, lambda ids: 1 + int((np.diff(ids, axis=1) != 0).sum(1).max(initial=0)))
    if count is None:
        raise ValueError("segments is needed where segment_ids is traced: the most of any row")
    return count
