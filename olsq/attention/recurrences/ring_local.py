"""Local regressions with time in pieces, one per device: every product goes around the ring.

The sums over keys are those of :mod:`~olsq.attention.recurrences.ring`: pieces of keys travel, and
rows whose keys are later travel instead.  Means of keys and values take one way around; a product
with the systems ``S_t + ridge_t``, so each step of conjugate gradient, takes one more.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.ring import (
    Past,
    Streams,
    attend_pieces,
    cut_streams,
    piece_pairs,
)
from olsq.local.checks import largest_squares, most_steps
from olsq.local.jax.systems import Problem, end_descent, start_descent
from olsq.sequence.jax.control import custom_linear_solve
from olsq.sequence.jax.gates import squarable
from olsq.sequence.jax.iterations import dot, scaled
from olsq.sequence.jax.pieces import cut_into_pieces, join_pieces, pieces_of
from olsq.sequence.jax.platform import in_full_precision


@in_full_precision
def ring_local(
    q: Array,
    k: Array,
    v: Array,
    reset: Array | None,
    scale: float,
    past: Past | None,
    *,
    ridge: Array | None = None,
    direction: Array | None = None,
) -> Array:
    """Solve local regressions causally: outputs (N, T, V) of keys (N, T, K), values (N, T, V).

    With ``ridge`` (N, T) the exact ones, else those along ``direction`` (N, T, K).  ``reset`` (N,
    T) marks tokens that read nothing before them.  A row that reads a non-finite token, or is one,
    is NaN.
    """
    pieces, d = pieces_of(q.shape[1]), k.shape[-1]
    # a key too large for its products counts as lost: masked, its infinity would still make NaN
    most = largest_squares(k.dtype)[0]
    k = jnp.where(dot(k, k) <= most, k, jnp.nan)
    if past is not None:
        past = past._replace(k=jnp.where(dot(past.k, past.k) <= most, past.k, jnp.nan))
    room, floats, orders, output_lost = cut_streams(q, k, v, reset, None, past)
    floats = {**floats, "v": _readable(floats["k"], floats["v"])}
    if room:
        floats["past"] = {
            **floats["past"],
            "v": _readable(floats["past"]["k"], floats["past"]["v"]),
        }
    packed = attend_pieces(pieces, room, scale, floats, orders)
    mean, value_mean = packed[..., :d], packed[..., d:-3]
    row = {"mean": mean, "log_total": packed[..., -1]}

    def sum_centred(x: Array) -> Array:
        """Compute ``sum p (k - kbar) . x [k, v, 1]`` for the rows of all pieces."""
        total = jnp.zeros_like(packed[..., :-1])
        for meeting in piece_pairs(pieces, room):
            again = jax.checkpoint(functools.partial(meeting, _centred, scale))
            total = sum(again(floats, orders, {**row, "x": x}), total)
        return total

    if direction is not None:
        row_finite = squarable(direction)
        x = cut_into_pieces(jnp.where(row_finite[..., None], direction, 0), pieces)
    else:
        assert ridge is not None
        row_finite = jnp.isfinite(ridge)
        piece_ridge = cut_into_pieces(jnp.where(row_finite, ridge, 1), pieces)[..., None]
        # E|k - kbar|^2, the trace of S, tells how far products round
        spread = jnp.maximum(packed[..., -2:-1] - dot(mean, mean), 0)
        fixed, spread = jax.lax.stop_gradient((piece_ridge, spread))

        def product(x: Array) -> Array:
            return sum_centred(x)[..., :d] + piece_ridge * x

        def solve(product: Any, b: Array) -> Array:
            def descend(b: Array) -> tuple[Array, Array]:
                problem = Problem(product, b, fixed, spread, None)
                begun = start_descent(problem)
                descent = end_descent(problem, begun, lambda r: r, most_steps(None, d))
                return descent.x, descent.steps

            return scaled(b, descend)[0]

        x = custom_linear_solve(product, floats["q"] - mean, solve, symmetric=True)
    along = sum_centred(x)
    # the weights' own sum is rounding only: taken out again, equal values give 0
    out = value_mean + along[..., d:-2] - along[..., -2:-1] * value_mean
    return jnp.where((output_lost | ~row_finite)[..., None], jnp.nan, join_pieces(out, pieces))


def _readable(k: Array, v: Array) -> Array:
    """Concatenate what weights are applied to: keys, values, ones and |k|^2, (N, S, K + V + 2)."""
    square = jax.lax.stop_gradient(dot(k, k))
    return jnp.concatenate([k, v, jnp.ones_like(square), square], -1)


def _centred(scores: Array, read: Array, row: Streams) -> Array:
    """Compute sums over keys with the weights ``p_ti (k_i - kbar_t) . x_t``."""
    share = jnp.exp(scores - row["log_total"][..., None])
    x, mean = row["x"], row["mean"]
    along = jnp.einsum("ntd,nsd->nts", x, read[..., : x.shape[-1]]) - dot(mean, x)
    return jnp.einsum("nts,nsv->ntv", share * along, read)
