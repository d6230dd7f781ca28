"""Parallax: local linear attention along a learned direction, without a solve."""

from __future__ import annotations

from jax import Array
from jax.typing import ArrayLike

from olsq.attention.arguments import check_segments, check_streams, per_token
from olsq.attention.local import attend_locally
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.rules.sliding_window import RecentTokens
from olsq.attention.rules.softmax import KeyValues


@sequence_rule
def parallax(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    direction: ArrayLike,
    scale: float | None = None,
    window: int | None = None,
    capacity: int | None = None,
    state: KeyValues | RecentTokens | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, KeyValues | RecentTokens]:
    """Parallax: correct softmax attention along a learned direction.

    With softmax's weights ``p_ti``, the weighted mean ``vbar`` of the values and the direction r::

        o_t = vbar (1 + sum_i p_ti r_t . k_i) - sum_i p_ti (r_t . k_i) v_i

    which is :func:`local_linear` with ``-r`` in place of the solution of its system.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries, keys, values.
    direction : array (B, T, H, K)
        The paper's r, not scaled; 0 gives softmax attention.
    scale : float, optional
        Of the scores; ``K**-0.5`` if None.
    window : int, optional
        Tokens that a query sees, its own included; all if None.
    capacity : int, optional
        Tokens that the returned cache has room for; the stream's length if None.  A ``state`` keeps
        the room that it has.  The cache of a window has room for ``window - 1``, whatever is given.
    state : KeyValues, or RecentTokens with a ``window``, optional
        As returned for the tokens before; an empty past if None.  A KeyValues must have room for T
        more (see :meth:`KeyValues.grown`).
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN where a query sees a non-finite token, or a key too large to
        square, and where its direction is not finite; never before.
    state : KeyValues, or RecentTokens with a ``window``

    Raises
    ------
    ValueError
        If shapes, window or segment ids do not fit, or the cache is full.  Where its length is
        traced, a full cache gives NaN.

    Notes
    -----
    Twice the products of softmax attention.  Memory is O(T) per stream, after a state O(128 M).
    Differentiable to any order.  Where time is split over devices, keys take two ways around the
    ring, one for the means and one for the correction; a window needs its neighbour's tokens only.

    References
    ----------
    "Parallax" (2026), arXiv 2605.29157, algorithm 1.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.arange(3.0)[None, :, None, None]
    >>> o, state = olsq.attention.parallax(0 * x, x, x, direction=-jnp.ones_like(x))
    >>> [round(float(y), 3) for y in o[0, :, 0, 0]]
    [0.0, 0.75, 1.667]
    """
    q, k, v, layout = check_streams(q, k, v, state)
    r = per_token("direction", direction, layout, k.shape[-1])
    return attend_locally(
        q,
        k,
        v,
        layout,
        direction=-r,
        start=check_segments(segment_ids, layout),
        scale=scale,
        window=window,
        capacity=capacity,
        state=state,
    )


parallax_step = one_token(
    parallax, "direction", example="x, x, x, direction=x, capacity=2", gives=1.0
)
