"""Variances of a diagonal Kalman filter: ``z_t = a_t p_{t-1} + w_t``, ``p = z / (1 + g z)``.

A token's map is ``p -> (A p + B) / (C p + 1)`` with numbers >= 0, and so is what several tokens do
together, once it is divided by its last number.  Nothing cancels in it, and nothing is divided by
less than 1.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.scan import scan_tokens
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.pieces import pieces_of, scan_time
from olsq.sequence.jax.platform import Target, by_platform

Map = tuple[Array, Array, Array]  # A, B and C


@compile_once
def filter_variances(shrink: Array, drift: Array, gain: Array, start: Array) -> Array:
    """Compute all p (N, T, K) from a, w and g, arrays (N, T, K) that are >= 0, and p_0 (N, K).

    A CPU goes token by token; an accelerator, and time in pieces, compose the tokens' maps.
    """
    length = shrink.shape[1]
    pieces = pieces_of(length)

    def token(p: Array, x: dict[str, Array]) -> tuple[Array, Array]:
        z = x["shrink"] * p + x["drift"]
        p = z / (1 + x["gain"] * z)
        return p, p

    def choose(target: Target) -> bool:
        return pieces > 1 or (not target.cpu and isinstance(length, int) and length > 1)

    def run(at_once: bool) -> Array:
        streams: dict[str, Any] = {"shrink": (shrink, 1.0), "drift": drift, "gain": gain}
        if not at_once:
            return scan_tokens(token, start, streams)[0]
        return _compose_all(shrink, drift, gain, start)

    return by_platform(choose, run)


def _compose_all(shrink: Array, drift: Array, gain: Array, start: Array) -> Array:
    """Compute all p by an associative scan of the tokens' maps."""
    n, length, width = shrink.shape
    scale = 1 + gain * drift

    def by_row(x: Array) -> Array:
        return jnp.swapaxes(x / scale, 1, 2).reshape(n * width, length)

    maps = by_row(shrink), by_row(drift), by_row(gain * shrink)
    a, b, c = scan_time(_compose, maps, (1.0, 0.0, 0.0))
    p = start.reshape(-1, 1)
    return jnp.swapaxes(((a * p + b) / (c * p + 1)).reshape(n, width, length), 1, 2)


def _compose(first: Map, second: Map) -> Map:
    (a, b, c), (d, e, f) = first, second
    scale = 1 + f * b
    return (d * a + e * c) / scale, (d * b + e) / scale, (f * a + c) / scale
