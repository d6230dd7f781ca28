"""Where in a batch a step of a loop over its tiles is, and what belongs to it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.inputs import Stream
from olsq.sequence.jax.tiles import Tile, group_count, tile_shape


class Grid(NamedTuple):
    """How a batch is cut: groups of streams, and tiles of ``n`` chunks of ``c`` tokens."""

    groups: int
    streams: Any  # of a group
    tiles: int  # of a stream
    n: int
    c: int

    @classmethod
    def of(cls, stream: Stream, chunk: int) -> Grid:
        """The cut of ``stream``."""
        groups, (b, length, d) = group_count(stream, chunk), stream.keys.shape
        streams = b if groups == 1 else b // groups
        return cls(groups, streams, *tile_shape(streams, length, d, chunk))

    @property
    def length(self) -> int:
        """Tokens of a stream with those that pad it."""
        return self.tiles * self.n * self.c

    def place(self, i: Array) -> tuple[Array | int, Array]:
        """Where step i is: its first stream, and the number of its tile."""
        if self.groups == 1:
            return 0, i
        return i // self.tiles * self.streams, i % self.tiles

    def take(self, x: Any, i: Any, each: int | None = None) -> Any:
        """From x (B, tiles * each, ...) what belongs to step i, (streams, each, ...).

        Without ``each``, from x (B, ...) what belongs to the streams of step i.
        """
        first, tile = self.place(i)
        if each is None:
            return x if self.groups == 1 else jax.lax.dynamic_slice_in_dim(x, first, self.streams)
        at = (first, tile * each, *[0] * (x.ndim - 2))
        return jax.lax.dynamic_slice(x, at, (self.streams, each, *x.shape[2:]))

    def put(self, x: Array, part: Array, i: Any, each: int | None = None) -> Array:
        """x with what :meth:`take` takes of it replaced by ``part``."""
        first, tile = self.place(i)
        if each is None:
            if self.groups == 1:
                return part
            return jax.lax.dynamic_update_slice_in_dim(x, part, first, 0)
        return jax.lax.dynamic_update_slice(x, part, (first, tile * each, *[0] * (x.ndim - 2)))

    def room(self, part: Any, each: int | None = None) -> Array:
        """Zeros for the ``part`` of every step."""
        b = self.streams if self.groups == 1 else self.groups * self.streams
        rest = part.shape[1:] if each is None else (self.tiles * each, *part.shape[2:])
        return jnp.zeros((b, *rest), part.dtype)

    def by_chunk(self, x: Any) -> Any:
        """(streams, n c, ...) to (streams, n, c, ...)."""
        return None if x is None else x.reshape(x.shape[0], self.n, self.c, *x.shape[2:])

    def by_token(self, x: Array) -> Array:
        """The reverse of :meth:`by_chunk`."""
        return x.reshape(x.shape[0], self.n * self.c, *x.shape[3:])

    def tile(self, stream: Stream, i: Any) -> tuple[Tile, Any]:
        """The tile of step i, and the ridge that its tokens share."""
        each = self.n * self.c

        def cut(x: Any) -> Any:
            return None if x is None else self.by_chunk(self.take(x, i, each))

        ridge, shared = stream.ridge, None
        if ridge is not None and ridge.shape[1] == 1:
            ridge, shared = None, self.take(ridge, i)[:, :, None]
        return Tile(
            cut(stream.keys),
            cut(stream.values),
            cut(stream.queries),
            cut(stream.forget),
            cut(stream.log_forget),
            cut(stream.weight),
            cut(ridge),
        ), shared


def padded(stream: Stream, grid: Grid, length: int, one: float = 1.0) -> Stream:
    """``stream`` of ``length`` tokens with absent ones up to a whole number of tiles."""
    return padded_to(stream, length, grid.length, one)


def padded_to(stream: Stream, length: int, whole: int, one: float = 1.0) -> Stream:
    """``stream`` of ``length`` tokens with absent ones up to ``whole``.

    Its gates and ridges are ``one`` there: 0 where they are tangents.
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
