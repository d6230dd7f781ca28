"""The grid of groups and tiles that a loop over a batch walks, and the data of each step."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.inputs import Stream
from olsq.sequence.jax.tiles import Tile, group_count, tile_shape


class Grid(NamedTuple):
    """Division of a batch: groups of streams, and tiles of ``n`` chunks of ``c`` tokens."""

    groups: int
    streams: Any  # of a group
    tiles: int  # of a stream
    n: int
    c: int

    @classmethod
    def of(cls, stream: Stream, chunk: int) -> Grid:
        """Choose the grid for ``stream``."""
        groups, (b, length, d) = group_count(stream, chunk), stream.keys.shape
        streams = b if groups == 1 else b // groups
        return cls(groups, streams, *tile_shape(streams, length, d, chunk))

    @property
    def length(self) -> int:
        """Number of tokens of a padded stream."""
        return self.tiles * self.n * self.c

    def locate(self, i: Array) -> tuple[Array | int, Array]:
        """Return the first stream and the tile number of step i."""
        if self.groups == 1:
            return 0, i
        return i // self.tiles * self.streams, i % self.tiles

    def read(self, x: Any, i: Any, each: int | None = None) -> Any:
        """Slice the part of step i, (streams, each, ...), out of x (B, tiles * each, ...).

        Without ``each``, slice the streams of step i out of x (B, ...).
        """
        first, tile = self.locate(i)
        if each is None:
            return x if self.groups == 1 else jax.lax.dynamic_slice_in_dim(x, first, self.streams)
        at = (first, tile * each, *[0] * (x.ndim - 2))
        return jax.lax.dynamic_slice(x, at, (self.streams, each, *x.shape[2:]))

    def write(self, x: Array, part: Array, i: Any, each: int | None = None) -> Array:
        """Replace the slice of x that :meth:`read` returns by ``part``."""
        first, tile = self.locate(i)
        if each is None:
            if self.groups == 1:
                return part
            return jax.lax.dynamic_update_slice_in_dim(x, part, first, 0)
        return jax.lax.dynamic_update_slice(x, part, (first, tile * each, *[0] * (x.ndim - 2)))

    def allocate(self, part: Any, each: int | None = None) -> Array:
        """Allocate zeros for the results ``part`` of all steps."""
        b = self.streams if self.groups == 1 else self.groups * self.streams
        rest = part.shape[1:] if each is None else (self.tiles * each, *part.shape[2:])
        return jnp.zeros((b, *rest), part.dtype)

    def by_chunk(self, x: Any) -> Any:
        """Reshape (streams, n c, ...) to (streams, n, c, ...)."""
        return None if x is None else x.reshape(x.shape[0], self.n, self.c, *x.shape[2:])

    def by_token(self, x: Array) -> Array:
        """Reshape (streams, n, c, ...) to (streams, n c, ...), undoing :meth:`by_chunk`."""
        return x.reshape(x.shape[0], self.n * self.c, *x.shape[3:])

    def tile(self, stream: Stream, i: Any) -> tuple[Tile, Any]:
        """Return the tile of step i, and the ridge that its tokens share."""
        each = self.n * self.c

        def cut(x: Any) -> Any:
            return None if x is None else self.by_chunk(self.read(x, i, each))

        ridge, shared = stream.ridge, None
        if ridge is not None and ridge.shape[1] == 1:
            ridge, shared = None, self.read(ridge, i)[:, :, None]
        return Tile(
            cut(stream.keys),
            cut(stream.values),
            cut(stream.queries),
            cut(stream.forget),
            cut(stream.log_forget),
            cut(stream.weight),
            cut(ridge),
        ), shared


def pad_to_tiles(stream: Stream, grid: Grid, length: int, one: float = 1.0) -> Stream:
    """Pad ``stream`` of ``length`` tokens with absent ones to a whole number of tiles."""
    return pad_tokens(stream, length, grid.length, one)


def pad_tokens(stream: Stream, length: int, whole: int, one: float = 1.0) -> Stream:
    """Pad ``stream`` of ``length`` tokens with absent ones to ``whole`` tokens.

    The padding's gates and ridges are ``one``: 1 for arrays, 0 for tangents.
    """

    def pad(x: Any, fill: float = 0.0) -> Any:
        if x is None or x.shape[1] != length or whole == length:
            return x
        spare = [(0, 0), (0, whole - length)] + [(0, 0)] * (x.ndim - 2)
        return jnp.pad(x, spare, constant_values=fill)

    return stream._replace(
        keys=pad(stream.keys),
        values=pad(stream.values),
        queries=pad(stream.queries),
        forget=pad(stream.forget, one),
        log_forget=pad(stream.log_forget),
        weight=pad(stream.weight),
        ridge=pad(stream.ridge, one),
    )
