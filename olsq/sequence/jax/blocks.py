"""Derivatives of long sequences: keep the moments at the ends of blocks and recompute the rest.

The loops of :mod:`~olsq.sequence.jax.walk` keep three numbers for each number of a key: solutions
and the two factors. Past ``LONG`` tokens that would be more memory than the arrays themselves. So a
long sequence is cut into blocks of ``BLOCK`` tokens, and only the moments before each are kept. A
derivative runs a block forwards again, keeping everything, and then treats it as a short sequence.
That costs one more forward pass, and memory for one block; moments are ``d (d + m)`` numbers every
``BLOCK`` tokens.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.problem import Moments
from olsq.sequence.jax import walk
from olsq.sequence.jax.grid import pad_tokens
from olsq.sequence.jax.inputs import Stream
from olsq.sequence.jax.solver import JaxSolver
from olsq.sequence.jax.tiles import TokenSizes
from olsq.sequence.jax.walk import Cotangents, Kept

BLOCK = 2**14  # tokens of a block
LONG = 2**16  # tokens up to which all factors are kept for the derivative

TIMED = ("keys", "values", "queries", "forget", "log_forget", "weight")


def forward(
    stream: Stream, solver: JaxSolver, keep: bool
) -> tuple[Array, Moments[Array], TokenSizes, Any]:
    """Solve a stream as :func:`olsq.sequence.jax.walk.forward`, in blocks if it is long and
    derivatives follow.
    """
    length = stream.keys.shape[1]
    if not keep or length <= LONG:
        return walk.forward(stream, solver, keep)
    whole = pad_to_blocks(stream, length)

    def step(state: Any, i: Array) -> Any:
        moments, tokens = state
        value, after, sizes, _ = walk.forward(cut_block(whole, i, moments), solver, False)
        return (after, replace_block(tokens, (value, sizes), i)), moments

    shapes = jax.eval_shape(
        lambda s: walk.forward(cut_block(s, 0, s.state), solver, False)[0:3:2], whole
    )
    rooms = jax.tree.map(lambda x: allocate(x, whole.keys.shape[1]), shapes)
    (last, tokens), befores = jax.lax.scan(step, (stream.state, rooms), block_indices(whole))
    value, sizes = jax.tree.map(lambda x: x[:, :length], tokens)
    gram, cross = (jnp.moveaxis(x, 0, 1) for x in befores)  # NaN where they were lost
    return value, last, sizes, Kept(None, (), gram, cross, None)


def tangent(
    stream: Stream, solver: JaxSolver, kept: Kept, moved: Stream
) -> tuple[Array, Moments[Array]]:
    """Compute tangents as :func:`olsq.sequence.jax.walk.tangent` from what :func:`forward` kept."""
    if kept.solution is not None:
        return walk.tangent(stream, solver, kept, moved)
    length = stream.keys.shape[1]
    whole, moved = pad_to_blocks(stream, length), pad_to_blocks(moved, length, 0.0)
    start = Moments(
        *(
            jnp.zeros_like(s) if d is None else d
            for s, d in zip(stream.state, moved.state, strict=True)
        )
    )

    def step(state: Any, i: Array) -> Any:
        d_before, made = state
        part = cut_block(whole, i, Moments(kept.gram[:, i], kept.cross[:, i]))
        again = walk.forward(part, solver, True)[3]
        d_value, d_after = walk.tangent(part, solver, again, cut_block(moved, i, d_before))
        return (d_after, replace_block(made, d_value, i)), None

    (end, made), _ = jax.lax.scan(step, (start, jnp.zeros_like(whole.values)), block_indices(whole))
    return made[:, :length], end


def backward(
    stream: Stream, solver: JaxSolver, kept: Kept, d_value: Array, d_moments: Moments[Array]
) -> Cotangents:
    """Compute cotangents as :func:`olsq.sequence.jax.walk.backward` from what ``forward`` kept."""
    if kept.solution is not None:
        return walk.backward(stream, solver, kept, d_value, d_moments)
    length = stream.keys.shape[1]
    whole = pad_to_blocks(stream, length)
    d_value = jnp.pad(d_value, [(0, 0), (0, whole.keys.shape[1] - length), (0, 0)])
    ridge = stream.ridge
    shared = ridge is not None and ridge.shape[1] == 1

    def step(state: Any, i: Array) -> Any:
        d_end, d_ridge, made = state
        part = cut_block(whole, i, Moments(kept.gram[:, i], kept.cross[:, i]))
        again = walk.forward(part, solver, True)[3]
        do = jax.lax.dynamic_slice_in_dim(d_value, i * BLOCK, BLOCK, 1)
        found = walk.backward(part, solver, again, do, d_end)
        if shared:
            d_ridge = d_ridge + found.ridge
        made = replace_block(made, {n: getattr(found, n) for n in made}, i)
        return (Moments(found.gram, found.cross), d_ridge, made), None

    names = ["keys", "values", "queries", "forget", "weight", *([] if shared else ["ridge"])]
    rooms = {n: getattr(whole, n) for n in names}
    rooms = {n: jnp.zeros_like(x) for n, x in rooms.items() if x is not None}
    state: Any = (d_moments, jnp.zeros_like(ridge) if ridge is not None and shared else (), rooms)
    (d_start, d_ridge, made), _ = jax.lax.scan(step, state, block_indices(whole), reverse=True)
    made = {n: x[:, :length] for n, x in made.items()}
    found: dict[str, Any] = {n: made.get(n) for n in names} | ({"ridge": d_ridge} if shared else {})
    return Cotangents(**found, gram=d_start.gram, cross=d_start.cross)


def pad_to_blocks(stream: Stream, length: int, one: float = 1.0) -> Stream:
    """Pad ``stream`` with absent tokens to a whole number of blocks; see ``grid.pad_tokens``."""
    return pad_tokens(stream, length, -(-length // BLOCK) * BLOCK, one)


def block_indices(stream: Stream) -> Array:
    """Return the indices of the blocks of a padded stream."""
    return jnp.arange(stream.keys.shape[1] // BLOCK)


def cut_block(stream: Stream, i: Any, state: Any) -> Stream:
    """Cut block i out of ``stream``, starting from ``state``."""

    def cut(x: Any) -> Any:
        return None if x is None else jax.lax.dynamic_slice_in_dim(x, i * BLOCK, BLOCK, 1)

    ridge = stream.ridge
    parts = {n: cut(getattr(stream, n)) for n in TIMED}
    if ridge is not None and ridge.shape[1] != 1:
        ridge = cut(ridge)
    return stream._replace(**parts, ridge=ridge, state=state)


def replace_block(whole: Any, parts: Any, i: Array) -> Any:
    """Replace block i of ``whole`` (B, T, ...) by ``parts``."""

    def one(x: Array, part: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(x, part, i * BLOCK, 1)

    return jax.tree.map(one, whole, parts)


def allocate(part: Any, length: int) -> Array:
    """Allocate zeros (B, length, ...) for the results ``part`` of every block."""
    return jnp.zeros((part.shape[0], length, *part.shape[2:]), part.dtype)
