"""Cut streams into tiles of chunks, and compute one tile from the moments before it.

A tile has as many chunks and streams as keep its arrays in a CPU's cache; on other devices, as many
chunks as keep its largest array within ``Target.tile_bytes``. Tiles run in time order
(:mod:`~olsq.sequence.jax.walk`); the chunks of a tile are computed at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.problem import Moments
from olsq.sequence.jax.gates import (
    gate_products,
    lost_tokens,
    norms_below_overflow,
    states_before,
)
from olsq.sequence.jax.inputs import Stream
from olsq.sequence.jax.pieces import divide_into_tiles
from olsq.sequence.jax.platform import target
from olsq.sequence.jax.solver import Chunks, cross_norm, read_out, system_product, system_trace

CACHED = 2**19  # numbers in one array of a tile on a CPU: 2 MiB of float32
WIDEST = 8  # bytes of the largest number
MOST_CHUNKS = 16  # chunks of a tile on a CPU: their moments cost this many products per chunk


class Grid(NamedTuple):
    """Division of a batch: groups of streams, and tiles of ``n`` chunks of ``c`` tokens."""

    groups: int
    streams: Any  # of a group
    tiles: int  # of a stream
    n: int
    c: int

    @classmethod
    def of(cls, stream: Stream, chunk: int, tiles: int | None = None) -> Grid:
        """Choose the grid for ``stream``; ``tiles`` are those of a grid that it has to repeat.

        Groups of streams run one after another, so that the arrays of each stay in cache. There is
        one group where several devices may share the batch, or its size is symbolic.
        """
        (b, length, d), on = stream.keys.shape, target()
        is_known = isinstance(length, int)  # else a symbol of jax.export
        c = min(chunk, -(-length // 8) * 8) if is_known else chunk
        chunks, widest, groups = -(-length // c), max(c, d), 1
        if on.cpu and is_known and isinstance(b, int) and jax.device_count() == 1:
            fits = max(1, CACHED // (length * max(d, chunk)))
            groups = next(n for n in range(-(-b // fits), b + 1) if b % n == 0)
        streams = b if groups == 1 else b // groups
        # the largest arrays of a chunk are its gates or scores (c, c), keys, and moments (d, d)
        count = streams if isinstance(streams, int) else 1
        if on.cpu:
            most = min(MOST_CHUNKS, CACHED // (count * c * widest))
        else:
            most = on.tile_bytes // (WIDEST * count * widest**2)
        if tiles and is_known:
            return cls(groups, streams, tiles, -(-chunks // tiles), c)
        return cls(groups, streams, *divide_into_tiles(chunks, max(1, most)), c)

    @property
    def length(self) -> int:
        """Number of tokens of a padded stream."""
        return self.tiles * self.n * self.c


class Tile(NamedTuple):
    """Samples of one tile, or (B, T, ...) of all of them."""

    keys: Array  # (B, n, C, d)
    values: Array  # (B, n, C, m)
    queries: Array  # (B, n, C, d)
    gates: Any  # (B, n, C); None: all 1
    logs: Any  # (B, n, C); None: all 1
    weight: Any  # (B, n, C); None: all 1
    ridge: Any  # (B, n, C, d) where there is one per token, else None


class TokenSizes(NamedTuple):
    """Norms and steps of each token of a tile, (B, n, C) each; see :class:`olsq.problem.Sizes`."""

    steps: Array
    query: Array
    solution: Array
    left: Array
    trace: Array
    cross: Array


class Carry(NamedTuple):
    """Values passed from tile to tile: finite moments, and whether they were lost to NaN."""

    gram: Array  # (B, d, d)
    cross: Array  # (B, m, d)
    state_lost: Array  # (B,) bool


def pad_tokens(stream: Stream, spare: int) -> tuple[Tile, Array | None]:
    """Append ``spare`` absent tokens, with gates and ridges of 1, to the samples of ``stream``.

    Also returns the ridge that all tokens share.
    """

    def pad(x: Any, fill: float = 0.0) -> Any:
        if x is None or not spare:
            return x
        widths = [(0, 0), (0, spare)] + [(0, 0)] * (x.ndim - 2)
        return jnp.pad(x, widths, constant_values=fill)

    ridge, shared = stream.ridge, None
    if ridge is not None and ridge.shape[1] == 1:
        stream, shared = stream._replace(ridge=None), ridge[:, :, None]
    filled_with_one = "gates", "ridge"
    tile = Tile(*(pad(getattr(stream, n), float(n in filled_with_one)) for n in Tile._fields))
    return tile, shared


def initial_carry(state: Moments) -> Carry:
    """Return the carry before the first tile; a non-finite state counts as lost."""
    gram, cross = state
    state_lost = ~((gram * 0).sum((1, 2)) + (cross * 0).sum((1, 2)) == 0)
    gram, cross = (jnp.where(state_lost[:, None, None], 0, s) for s in state)
    return Carry(gram, cross, state_lost)


def final_moments(carry: Carry) -> Moments[Array]:
    """Return the moments after the last tile, NaN where they were lost."""
    return Moments(*(jnp.where(carry.state_lost[:, None, None], jnp.nan, s) for s in carry[:2]))


def open_tile(tile: Tile, ridge: Any, carry: Carry) -> tuple[Chunks, Carry]:
    """Clean a tile and compute the moments before each of its chunks.

    Also returns the next carry.
    """
    tile, sample_lost = clean(tile)
    b, n, c, _ = tile.keys.shape
    if tile.gates is None:
        table, zeta = jnp.tril(jnp.ones((c, c), tile.keys.dtype)), None
        factor = jnp.ones((b, n), tile.keys.dtype)
        resets = None
    else:
        table, zeta = gate_products(tile.gates, tile.logs)
        factor = zeta[..., -1]
        resets = (tile.gates == 0).reshape(b, -1)
    if tile.weight is not None:
        table = table * tile.weight[..., None, :]
    # H after a chunk = zeta_C H + sum_i D_Ci k_i k_i^T, with D_C the last row of D; G likewise
    tail = jnp.broadcast_to(table[..., -1, :], (b, n, c))[..., None] * tile.keys
    chunk_sums = [jnp.einsum("bnci,bncj->bnij", left, tail) for left in (tile.keys, tile.values)]
    (gram, last_gram), (cross, last_cross) = (
        states_before(factor, add, start) for add, start in zip(chunk_sums, carry[:2], strict=True)
    )
    output_lost = lost_tokens(sample_lost.reshape(b, -1), resets, carry.state_lost)
    chunks = Chunks(
        tile.keys,
        tile.values,
        tile.queries,
        table,
        zeta,
        tile.logs,
        tile.gates,
        tile.weight,
        ridge if tile.ridge is None else tile.ridge,
        gram,
        cross,
        output_lost.reshape(b, n, c),
    )
    return chunks, Carry(last_gram, last_cross, output_lost[:, -1])


def clean(tile: Tile) -> tuple[Tile, Array]:
    """Replace non-finite samples by absent ones; also return where, unless their weight is 0.

    A mask that multiplies would leak them: 0 * nan is nan, at EARLIER tokens of the chunk.
    """
    fine = usable_samples(tile)
    keys, values = (jnp.where(fine[..., None], x, 0) for x in (tile.keys, tile.values))
    sample_lost, weight, gates, logs = ~fine, tile.weight, tile.gates, tile.logs
    if weight is not None:
        sample_lost = (sample_lost & (weight != 0)) | ~jnp.isfinite(weight)
        weight = jnp.where(jnp.isfinite(weight) & fine, weight, 0)
    if gates is not None:
        unknown = jnp.isnan(gates)
        gates, logs = jnp.where(unknown, 1, gates), jnp.where(unknown, 0, logs)
        sample_lost = sample_lost | unknown
    tile = tile._replace(keys=keys, values=values, weight=weight, gates=gates, logs=logs)
    return tile, sample_lost


def usable_samples(tile: Tile) -> Array:
    """Test which samples are finite and do not overflow ``beta k k^T`` or ``beta v k^T``."""
    square = (tile.keys**2).sum(-1)
    size = jnp.maximum(jnp.sqrt(square), 1) * norms_below_overflow(tile.values)
    fine = jnp.isfinite(square) & (size <= 1)
    if tile.weight is None:
        return fine
    weight = jnp.abs(tile.weight)
    return fine & jnp.isfinite(weight * square) & (weight * size <= 1)


def finite_queries(chunks: Chunks) -> Array:
    """Return the queries of a tile, zero where one is not finite."""
    return jnp.where(usable_queries(chunks)[..., None], chunks.queries, 0)


def usable_queries(tile: Tile | Chunks) -> Array:
    """Test which queries are finite, with room for their products."""
    return norms_below_overflow(tile.queries) <= 1


def tile_outputs(
    chunks: Chunks, queries: Array, solution: Array, steps: Array
) -> tuple[Array, TokenSizes]:
    """Compute the outputs (B, n, C, m) of a tile, NaN where the query or the past is not finite.

    ``solution`` is that of the :func:`finite_queries`, after ``steps``. Also returns their sizes.
    """
    defined = usable_queries(chunks)[..., None] & ~chunks.output_lost[..., None]
    value = jnp.where(defined, read_out(chunks, solution), jnp.nan)

    fixed, q, x = jax.lax.stop_gradient((chunks, queries, solution))
    query, size, left = (jnp.linalg.norm(a, axis=-1) for a in (q, x, q - system_product(fixed, x)))
    trace = system_trace(fixed)[..., 0]
    return value, TokenSizes(steps, query, size, left, trace, cross_norm(fixed))
