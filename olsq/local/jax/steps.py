"""Solve the regressions of one stream, a step of blocks at a time; memory O(block x keys).

A step computes its scores once, as attention does, and keeps their exponentials for the
conjugate-gradient steps, which are then two products each.  The backward pass recomputes the
scores, but not the solutions: they are saved.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.local.jax.layout import Layout, Step, merge_blocks, step_blocks, visible
from olsq.local.jax.losses import Cleaned
from olsq.local.jax.systems import (
    Rule,
    Systems,
    centred_weights,
    solve_systems,
    sum_tiles,
    to_tiles,
)
from olsq.sequence.jax.control import scan
from olsq.sequence.jax.pieces import cumulate


class Row(NamedTuple):
    """The results for every query; only ``value`` has derivatives."""

    value: Array  # (..., m)
    has_keys: Array  # whether it sees any key
    steps: Array
    spread: Array  # E|k - kbar|^2
    value_spread: Array  # E|v - vbar|^2
    right: Array  # |q - kbar|
    solution: Array  # |x|
    along: Array  # sqrt(x.Sx)
    left: Array  # |q - kbar - M x|


class Blocks(NamedTuple):
    """One stream cut into blocks, and its gates' sums."""

    read: Array  # (P, C, d + m + 3): keys, values, ones and squares, what weights are applied to
    keys: Array  # (P, C, d)
    queries: Array  # (Q, B, d)
    ridge: Array  # (Q, B, 1)
    scale: Array  # (Q, B, 1)
    log_weight: Array | None  # (P, C)
    order: Array | None  # (Q, B)
    key_order: Array | None  # (P, C)
    fades: Fades | None
    direction: Array | None  # (Q, B, d)
    offset: Array | None  # ()


def solve_blocks(stream: Cleaned, offset: Array | None, layout: Layout, rule: Rule) -> Row:
    """Solve for the rows (T', ...) of one stream: keys (N', d), queries (T', d).

    ``offset`` is as in :func:`olsq.local.jax.layout.visible`.
    """
    by_query = layout.query_blocks, layout.query_size
    by_key = layout.key_blocks, layout.key_size

    def cut(x: Any, blocks: tuple[int, int]) -> Any:
        return None if x is None else x.reshape(*blocks, *x.shape[1:])

    ones = jnp.ones_like(stream.keys[:, :1])
    read = jnp.concatenate([stream.keys, stream.values, ones, stream.squares], -1)
    blocks = Blocks(
        cut(read, by_key),
        cut(stream.keys, by_key),
        cut(stream.queries, by_query),
        cut(stream.ridge[:, None], by_query),
        cut(stream.scale[:, None], by_query),
        cut(stream.log_weight, by_key),
        cut(stream.order, by_query),
        cut(stream.key_order, by_key),
        None if stream.log_forget is None else sum_fades(cut(stream.log_forget, by_query)),
        cut(stream.direction, by_query),
        offset,
    )

    def one(blocks: Blocks, i: Array) -> Row:
        return solve_step(blocks, step_blocks(layout, i), layout, rule)

    # Solutions are kept for the backward pass: finding them again would cost all steps again.
    again = jax.checkpoint(one, policy=_is_solution, prevent_cse=False)
    _, rows = scan(lambda _, i: (None, again(blocks, i)), None, jnp.arange(layout.steps))
    length = layout.query_blocks * layout.query_size
    return jax.tree.map(lambda x: merge_blocks(x, layout, length), rows)


def _is_solution(primitive: Any, *_: Any, **__: Any) -> bool:
    """Test whether the backward pass keeps the output of ``primitive``: that of a linear solve."""
    return primitive.name == "custom_linear_solve"


def solve_step(blocks: Blocks, step: Step, layout: Layout, rule: Rule) -> Row:
    """Solve for the rows (R, B, ...) of one step."""
    q, ridge = blocks.queries[step.blocks], blocks.ridge[step.blocks]
    d, m = q.shape[-1], blocks.read.shape[-1] - q.shape[-1] - 3
    # gathers out of range would be clamped and give another block's keys: columns are in range
    read, keys = blocks.read[step.column], blocks.keys[step.column]
    weights = tile_weights(blocks, keys, q, step, layout)
    sums = sum_tiles(jnp.einsum("jbc,jce->jbe", weights, read), step)
    total = sums[..., d + m : d + m + 1]
    has_keys = total > 0
    inverse_total = 1 / jnp.where(has_keys, total, 1)
    means = sums * inverse_total
    mean, value_mean = means[..., :d], means[..., d : d + m]
    squares = jax.lax.stop_gradient(means[..., d + m + 1 :])
    spread, value_spread = (
        jnp.maximum(squares[..., i] - _square(x), 0) for i, x in enumerate((mean, value_mean))
    )
    systems = Systems(step, weights, keys, mean, inverse_total, ridge)
    b = jnp.where(has_keys, q - mean, 0)
    if blocks.direction is None:
        x, steps = solve_systems(systems, b, spread[..., None], rule)
    else:
        x, steps = blocks.direction[step.blocks], jnp.zeros(b.shape[:-1], jnp.int32)

    # sum p ((k - kbar).x) (k - kbar), and the same with v - vbar: the weights' own sum, which is
    # rounding only, is taken out again, so that equal keys or values give 0
    along = sum_tiles(jnp.einsum("jbc,jce->jbe", centred_weights(systems, x), read), step)
    along = along * inverse_total
    rounding = along[..., d + m : d + m + 1]
    value = value_mean + along[..., d : d + m] - rounding * value_mean
    left = b - (along[..., :d] - rounding * mean) - ridge * x
    right, solution, residual_norm = (jnp.sqrt(_square(y)) for y in (b, x, left))
    curvature = jax.lax.stop_gradient((x * (b - left - ridge * x)).sum(-1))
    curvature = jnp.sqrt(jnp.maximum(curvature, 0))
    return Row(
        value,
        has_keys[..., 0],
        steps,
        spread,
        value_spread,
        right,
        solution,
        curvature,
        residual_norm,
    )


def _square(x: Array) -> Array:
    """Return squared norms over the last axis, without derivatives."""
    x = jax.lax.stop_gradient(x)
    return (x * x).sum(-1)


def tile_weights(blocks: Blocks, keys: Array, q: Array, step: Step, layout: Layout) -> Array:
    """Compute weights (J, B, C) of every query on the keys of its tiles, the largest of a query 1.

    0 where a query does not see a key.
    """
    rows = len(step.blocks)
    scaled = to_tiles(q * blocks.scale[step.blocks], step)
    scores = jnp.einsum("jbd,jcd->jbc", scaled, keys)
    if blocks.log_weight is not None:
        scores = scores + blocks.log_weight[step.column][:, None]
    if blocks.fades is not None:
        scores = scores + tile_fades(blocks.fades, step)
    mask = visible(layout, step, blocks.offset)
    if blocks.order is not None and blocks.key_order is not None:
        order = to_tiles(blocks.order[step.blocks], step)
        same = order[..., None] == blocks.key_order[step.column][:, None]
        mask = same if mask is None else mask & same
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    # softmax shift: each query's largest exponent over all of its tiles, so that exp cannot
    # overflow
    most = jax.lax.stop_gradient(scores).max(-1)  # (J, B)
    mine = step.row == jnp.arange(rows, dtype=step.row.dtype)[:, None]
    most = jnp.where(mine[..., None], most, -jnp.inf).max(1)
    most = jnp.where(jnp.isfinite(most), most, 0)  # a query that sees no key
    return jnp.exp(scores - to_tiles(most, step)[..., None])


class Fades(NamedTuple):
    """Sums of log gates (P, C) within blocks and between them.

    Logs are only ever added up from a key to its query, never subtracted, so that the rounding
    error of a sum is relative to the sum however long the stream is.
    """

    upto: Array  # (P, C), from the block's start to each token, its own included
    after: Array  # (P, C), after each token to the block's end
    between: Array  # (P, P): [r, c] over the whole blocks after c and before r
    logs: Array  # (P, C)


def sum_fades(logs: Array) -> Fades:
    """Sum ``logs`` (P, C) within blocks and between them."""
    blocks = logs.shape[0]
    after = jnp.cumsum(logs[:, ::-1], 1)[:, ::-1]
    after = jnp.pad(after[:, 1:], ((0, 0), (0, 1)))
    r, c = jnp.arange(blocks)[:, None], jnp.arange(blocks)
    # entry [r, c] holds block c + 1 where that lies before r; then add up from the diagonal down
    following = jnp.pad(logs.sum(1)[1:], (0, 1))
    between = jnp.where(c + 1 < r, following, 0)
    between = cumulate(jnp.add, between[:, ::-1], 1, jnp.cumsum)[:, ::-1]
    return Fades(jnp.cumsum(logs, 1), after, between, logs)


def tile_fades(fades: Fades, step: Step) -> Array:
    """Sum the logs after each key up to each query, (tiles, C, C), for a step's tiles."""
    block = step.blocks[step.row]
    far = fades.upto[block][:, :, None] + fades.after[step.column][:, None, :]
    far = far + fades.between[block, step.column][:, None, None]
    block_logs = fades.logs[step.blocks]  # (rows, C)
    size = block_logs.shape[1]
    inside = jnp.where(jnp.tril(jnp.ones((size, size), bool), -1), block_logs[..., None], 0)
    near = jnp.cumsum(inside, 1)[step.row]
    return jnp.where((block == step.column)[:, None, None], near, far)
