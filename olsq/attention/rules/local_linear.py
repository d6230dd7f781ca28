"""Local linear attention: a weighted regression at every query, solved exactly."""

from __future__ import annotations

from jax import Array
from jax.typing import ArrayLike

from olsq.attention.arguments import check_positive, check_segments, check_streams, per_token
from olsq.attention.local import attend_locally
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.rules.sliding_window import RecentTokens
from olsq.attention.rules.softmax import KeyValues


@sequence_rule
def local_linear(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    ridge: ArrayLike,
    scale: float | None = None,
    window: int | None = None,
    capacity: int | None = None,
    state: KeyValues | RecentTokens | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, KeyValues | RecentTokens]:
    """Local linear attention: fit a line where softmax attention fits a constant.

    With softmax's weights ``p_ti`` and weighted means ``kbar``, ``vbar``::

        o_t = vbar + C x,    (S + ridge I) x = q - kbar,
        S = sum_i p_ti (k_i - kbar)(k_i - kbar)^T,    C = sum_i p_ti (v_i - vbar)(k_i - kbar)^T

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries, keys, values.
    ridge : array
        Penalty of the slopes, > 0: a number, (H,) or (B, T, H).  A large one gives softmax
        attention.
    scale : float, optional
        Of the scores; ``K**-0.5`` if None.  0 gives ridge regression with an intercept.
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
        In the dtype of q, k, v; solved in float32 or better.  NaN where a query sees a non-finite
        token, or a key too large to square; never before it.
    state : KeyValues, or RecentTokens with a ``window``

    Raises
    ------
    ValueError
        If shapes, ridge, window or segment ids do not fit, or the cache is full.  Where its length
        is traced, a full cache gives NaN.

    Notes
    -----
    One softmax attention, and about one more for each step of conjugate gradient: about 10 for a
    ridge of a hundredth of a squared key, 20 to 40 for a thousandth.  It goes on to rounding;
    :func:`olsq.local_lstsq`, which solves the same problem, has tolerances and error bounds.
    Memory is O(T) per stream, after a state O(128 M).  Differentiable to any order; gradients are
    implicit, one more solve.  Where time is split over devices, each step is one more pass of the
    keys around the ring; a window needs its neighbour's tokens only.

    References
    ----------
    Zuo et al., "Local Linear Attention" (2025), arXiv 2510.01450.

    Examples
    --------
    Values on a line are read without error, where softmax attention reads their mean:

    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.arange(3.0)[None, :, None, None]
    >>> o, state = olsq.attention.local_linear(x, x, 2 * x, ridge=1e-3)
    >>> [round(float(y), 2) for y in o[0, :, 0, 0]]
    [0.0, 2.0, 4.0]
    """
    check_positive("ridge", ridge)
    q, k, v, layout = check_streams(q, k, v, state)
    return attend_locally(
        q,
        k,
        v,
        layout,
        ridge=per_token("ridge", ridge, layout),
        start=check_segments(segment_ids, layout),
        scale=scale,
        window=window,
        capacity=capacity,
        state=state,
    )


local_linear_step = one_token(
    local_linear, "ridge", example="x, x, x, ridge=1.0, capacity=2", gives=1.0
)
