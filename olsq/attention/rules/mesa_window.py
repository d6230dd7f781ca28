"""Mesa over a sliding window: samples older than the window are dropped."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_integer
from olsq.attention.arguments import Layout, check_inputs, check_positive, per_head
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.recurrences.window import map_windows, window_mask
from olsq.attention.states import fold_state
from olsq.problem import Moments
from olsq.sequence.jax import query
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.gates import gate_products, squarable
from olsq.sequence.jax.pieces import last_tokens, pieces_of, running_sum
from olsq.sequence.jax.platform import in_full_precision

ROWS = 32  # queries solved at once


class RecentSamples(NamedTuple):
    """State of :func:`mesa_window`: the last ``window - 1`` tokens.

    Attributes
    ----------
    keys : array (B, H, window - 1, K)
    values : array (B, H, window - 1, V)
    forget : array (B, H, window - 1)
    weight : array (B, H, window - 1)
        0 where there was no token.
    """

    keys: Array
    values: Array
    forget: Array
    weight: Array

    __repr__ = brief_repr


@sequence_rule
@in_full_precision
def mesa_window(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    window: int,
    ridge: ArrayLike,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    state: RecentSamples | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, RecentSamples]:
    """:func:`mesa` over the last ``window`` tokens, a token's own included.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.
    window : int
        Tokens that a query sees, its own included.
    ridge : array
        Diagonal of Lambda, > 0: a number, (K,) or (H, K).
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.
    weight : array, optional
        Sample weights beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite
        or not.
    state : RecentSamples, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        NaN where a non-finite token is in the window and no gate of 0 since.
    state : RecentSamples

    Raises
    ------
    ValueError
        If shapes, the window, gates, weights, ridge or segment ids do not fit.

    Notes
    -----
    Nothing is ever subtracted: the moments of a token are those of the samples that it shares with
    a block of 32 others plus those on either side, so that they stay positive definite.  One
    factorisation per token: O(T (K^3 + (window + 64) K^2)), memory O(32 K^2) per stream.
    Differentiable to any order in both modes.

    References
    ----------
    Behrouz et al., "Atlas: Learning to Optimally Memorize the Context at Test Time" (2025), the
    Omega rule solved to optimality, see von Oswald et al., "MesaNet" (2025), section 2.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.mesa_window(x, x, x, window=2, ridge=1.0)
    >>> [round(float(y), 3) for y in o[0, :, 0, 0]]
    [0.5, 0.667, 0.667]
    """
    check_integer("window", window, 1, bits=31)
    before = window - 1
    check_positive("ridge", ridge)
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
    n, t, keys = tokens.k.shape
    lam = per_head("ridge", ridge, layout, keys)
    recent = fold_state(state, _empty(layout, before, keys, tokens.v.shape[-1]), layout)
    ones = jnp.ones((n, t), layout.working)
    gates = ones if tokens.forget is None else tokens.forget
    weights = ones if tokens.weight is None else tokens.weight
    # A lost token is kept as NaN: it leaves the window later.
    raw = [jnp.where(tokens.sample_lost[..., None], jnp.nan, x) for x in (tokens.k, tokens.v)]
    now = (*raw, gates, weights)

    powers, shift = split_gates(tokens)
    shift = jnp.zeros_like(ones) if shift is None else shift

    def readable(samples: Any, resets: Array, shift: Array) -> tuple[Array, ...]:
        k, v, gates, weight = samples
        sample_lost = ~(squarable(k) & squarable(v))
        k, v = (jnp.where(sample_lost[..., None], 0, x) for x in (k, v))
        return k, v, gates, weight, shift, sample_lost, resets

    # Resets are counted from the stream's beginning, those before it downwards.
    since = jnp.cumsum((recent.forget == 0)[:, ::-1], 1, jnp.int32)[:, ::-1]
    earlier = jnp.pad(since, ((0, 0), (0, 1)))[:, 1:]

    split = (*raw, ones if powers is None else powers, weights)
    parts = (
        readable(recent, -earlier, jnp.zeros_like(recent.forget)),
        readable(split, running_sum(gates == 0), shift),
    )
    out = _solve_windows(tokens.q, *parts, lam, window=window)
    out = jnp.where(tokens.query_finite[..., None], out, jnp.nan)
    value = jnp.moveaxis(out.reshape(layout.batch, layout.heads, t, out.shape[-1]), 1, 2)
    kept = map(last_tokens, now, recent)
    kept = (x.reshape(layout.batch, layout.heads, *x.shape[1:]) for x in kept)
    return value.astype(layout.dtype), RecentSamples(*kept)


mesa_window_step = one_token(
    mesa_window,
    "forget",
    "log_forget",
    "weight",
    example="x, x, x, window=2, ridge=1.0",
    gives=0.667,
)


@partial(compile_once, static_argnames="window")
def _solve_windows(queries: Array, older: Any, tokens: Any, ridge: Array, *, window: int) -> Array:
    """Solve queries (N, T, K) from tokens (N, T, ...) and the window - 1 tokens before them."""
    before, pieces = window - 1, pieces_of(queries.shape[1])

    def block(queries: Array, parts: Any) -> Array:
        k, v, gates, weight, shift, sample_lost, resets = parts
        size = queries.shape[1]
        in_window = window_mask(size, window)
        # Products of gates: after each earlier token to the block's start, then inside the block.
        later = jnp.cumprod(gates[:, 1:before][:, ::-1], 1)[:, ::-1]
        later = jnp.concatenate([later, jnp.ones_like(gates[:, :1])], 1)[:, :before]
        block_gates = gates[:, before:]
        table, zeta = gate_products(
            block_gates, jnp.log(jnp.where(block_gates == 0, 1, block_gates))
        )
        # From the units of each token to those of the row that reads it.
        scale = jnp.exp(shift)
        later, zeta = later / scale[:, :before], zeta * scale[:, before:]
        table = table * (scale[:, before:, None] / scale[:, None, before:])
        share = jnp.concatenate([zeta[..., None] * later[:, None], table], -1)
        share = jnp.where(in_window, share * weight[:, None], 0)
        gram = _gram(k, share, weight, later, zeta, size, before)
        moments = Moments(gram, jnp.eye(gram.shape[-1], dtype=gram.dtype))
        ridges = jnp.tile(ridge, (pieces, 1))  # of every piece of time
        solution = query(moments, queries, ridge=ridges[:, None])
        scores = jnp.einsum("ntk,nik->nti", solution, k) * share
        out = jnp.einsum("nti,niv->ntv", scores, v)
        visible = in_window & (resets[:, None] == resets[:, before:, None])
        return jnp.where((visible & sample_lost[:, None]).any(-1)[..., None], jnp.nan, out)

    return map_windows(block, queries, older, tokens, window, min(ROWS, max(8, window)))


def _gram(
    k: Array, share: Array, weight: Array, later: Array, zeta: Array, size: int, before: int
) -> Array:
    """Compute grams (N, C, K, K): tokens that all rows see are summed once, others row by row."""
    common = slice(size - 1, before)  # before the block, and in the window of its last row
    if common.start >= common.stop:
        return jnp.einsum("nti,nia,nib->ntab", share, k, k)
    core = k[:, common] * (weight[:, :before] * later)[:, common, None]
    core = jnp.einsum("nia,nib->nab", k[:, common], core)
    sides = jnp.concatenate([k[:, : size - 1], k[:, before:]], 1)
    shares = jnp.concatenate([share[..., : size - 1], share[..., before:]], -1)
    return zeta[..., None, None] * core[:, None] + jnp.einsum(
        "nti,nia,nib->ntab", shares, sides, sides
    )


def _empty(layout: Layout, before: int, keys: int, values: int) -> RecentSamples:
    shape = (layout.batch, layout.heads, before)
    zeros, ones = jnp.zeros(shape, layout.working), jnp.ones(shape, layout.working)
    return RecentSamples(
        jnp.zeros((*shape, keys), layout.working),
        jnp.zeros((*shape, values), layout.working),
        ones,
        zeros,
    )
