"""Sums of log gates between keys and queries, tile by tile.

Logs are only ever added up from a key to its query, never subtracted, so that the rounding error of
a sum is relative to the sum however long the stream is.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from olsq.local.jax.layout import Step


class Fades(NamedTuple):
    """Sums of log gates (P, C) within blocks and between them."""

    upto: Array  # (P, C), from the block's start to each token, its own included
    after: Array  # (P, C), after each token to the block's end
    between: Array  # (P, P): [r, c] over the whole blocks after c and before r
    logs: Array  # (P, C)


def sum_fades(logs: Array) -> Fades:
    """Sum ``logs`` (P, C) within blocks and between them."""
    blocks = len(logs)
    after = jnp.cumsum(logs[:, ::-1], 1)[:, ::-1]
    after = jnp.pad(after[:, 1:], ((0, 0), (0, 1)))
    r, c = jnp.arange(blocks)[:, None], jnp.arange(blocks)
    # entry [r, c] holds block c + 1 where that lies before r; then add up from the diagonal down
    following = jnp.pad(logs.sum(1)[1:], (0, 1))
    between = jnp.where(c + 1 < r, following, 0)
    between = jnp.cumsum(between[:, ::-1], 1)[:, ::-1]
    return Fades(jnp.cumsum(logs, 1), after, between, logs)


def tile_fades(fades: Fades, step: Step) -> Array:
    """Sum the logs after each key up to each query, (tiles, C, C), for a step's tiles."""
    block = step.blocks[step.row]
    far = fades.upto[block][:, :, None] + fades.after[step.column][:, None, :]
    far = far + fades.between[block, step.column][:, None, None]
    own = fades.logs[step.blocks]  # (rows, C)
    size = own.shape[1]
    inside = jnp.where(jnp.tril(jnp.ones((size, size), bool), -1), own[..., None], 0)
    near = jnp.cumsum(inside, 1)[step.row]
    return jnp.where((block == step.column)[:, None, None], near, far)
