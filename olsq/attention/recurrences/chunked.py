"""Chunked rules in three functions, of which only ``advance`` needs the order of the chunks.

On a CPU each chunk is prepared, passed and read inside one scan, so that its arrays stay in cache.
An accelerator starts a kernel for each operation, so there all chunks of a tile are prepared at
once and read at once, and only ``advance`` remains in the scan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.log_gates import in_shifted_units
from olsq.attention.recurrences.scan import chunk_size, scan_chunks
from olsq.sequence.jax.control import cond, max_over_vmap, scan
from olsq.sequence.jax.pieces import divide_into_tiles
from olsq.sequence.jax.platform import Target, by_platform, chunk_length
from olsq.sequence.jax.tiles import WIDEST

CHUNK = 64  # tokens of a chunk on an accelerator
UNROLLED = 4  # chunks of a step of the scan, whose own counting takes kernels too


class ChunkedRule(NamedTuple):
    """A recurrence over chunks (N, C, ...).

    Attributes
    ----------
    prepare : function of (streams, at_once)
        Returns what ``advance`` and what ``read`` takes, both without the state. ``at_once``:
        for all chunks of a tile.
    advance : function of (state, prepared)
        Returns the state after the chunk, and what ``read`` takes of it.
    read : function of (prepared, state before the chunk, what advance returned)
        Returns the outputs.
    states : function of (state, prepared), optional
        Returns the states before all chunks (n, N, ...) and the last, where that takes fewer
        kernels than a scan of ``advance``, whose second result is then None.
    fails : function of prepared, optional
        Tests whether what was prepared at once is unusable; chunks then follow one another.
    """

    prepare: Callable[[dict[str, Any], bool], tuple[Any, Any]]
    advance: Callable[[Any, Any], tuple[Any, Any]]
    read: Callable[[Any, Any, Any], Any]
    states: Callable[[Any, Any], tuple[Any, Any]] | None = None
    fails: Callable[[Any], Array] | None = None


def run_chunks(
    rule: ChunkedRule,
    state: Array,
    streams: dict[str, Any],
    widest: int,
    *,
    valid: Array | None = None,
    dtype: Any = None,
) -> tuple[Any, Array]:
    """Run a rule: outputs (N, T, ...) and the last state (N, ...).

    ``streams``, ``valid`` and ``dtype`` are those of
    :func:`~olsq.attention.recurrences.scan.scan_chunks`; "gates" are padded with 1. A stream
    "shift" is that of :func:`~olsq.attention.recurrences.log_gates.in_shifted_units`. ``widest``
    is how many numbers the largest array of one chunk of ``CHUNK`` tokens has.
    """
    length = jax.tree.leaves((streams, valid))[0].shape[1]

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        for_advance, for_read = rule.prepare(x, False)
        after, passed = rule.advance(state, for_advance)
        return after, rule.read(for_read, state, passed)

    def tile(state: Any, x: Any) -> tuple[Any, Any]:
        return _run_tile(rule, step, state, x)

    def choose(target: Target) -> tuple[Any, int]:
        if target.cpu or not isinstance(length, int) or length <= CHUNK:
            return step, chunk_size(length, chunk_length(on=target))
        rows = state.shape[0] if isinstance(state.shape[0], int) else 1
        most = max(1, target.tile_bytes // (WIDEST * rows * widest))
        return tile, divide_into_tiles(-(-length // CHUNK), most)[1] * CHUNK

    def run(choice: tuple[Any, int]) -> tuple[Any, Array]:
        one, size = choice
        one = in_shifted_units(one) if "shift" in streams else one
        return scan_chunks(one, state, streams, chunk=size, valid=valid, dtype=dtype)

    return by_platform(choose, run)


def _run_tile(rule: ChunkedRule, step: Any, state: Any, x: dict[str, Any]) -> tuple[Any, Any]:
    """Run a rule on a tile (N, T, ...), all of whose chunks are prepared at once."""
    rows, length = jax.tree.leaves(x)[0].shape[:2]
    count = -(-length // CHUNK)

    def cut(name: str, s: Any) -> Any:
        """Cut (N, T, ...) into chunks (n, N, C, ...)."""
        if s is None:
            return None
        spare = [(0, 0), (0, count * CHUNK - length)] + [(0, 0)] * (s.ndim - 2)
        s = jnp.pad(s, spare, constant_values=float(name == "gates"))
        return jnp.moveaxis(s.reshape(rows, count, CHUNK, *s.shape[2:]), 1, 0)

    def by_chunk(a: Any) -> Any:
        return jax.tree.map(lambda a: a.reshape(count, rows, *a.shape[1:]), a)

    def flat(a: Any) -> Any:
        return jax.tree.map(lambda a: a.reshape(count * rows, *a.shape[2:]), a)

    def join(a: Array) -> Array:
        return jnp.moveaxis(a, 0, 1).reshape(rows, count * CHUNK, *a.shape[3:])[:, :length]

    chunks = {name: cut(name, s) for name, s in x.items()}

    def in_turn() -> tuple[Any, Any]:
        last, out = scan(jax.checkpoint(step, prevent_cse=False), state, chunks)
        return last, jax.tree.map(join, out)

    for_advance, for_read = rule.prepare(flat(chunks), True)

    def at_once() -> tuple[Any, Any]:
        if rule.states is not None:
            before, last = rule.states(state, by_chunk(for_advance))
            passed = None
        else:

            def advance(state: Any, prepared: Any) -> tuple[Any, Any]:
                after, passed = rule.advance(state, prepared)
                return after, (state, passed)

            last, (before, passed) = scan(advance, state, by_chunk(for_advance), unroll=UNROLLED)
        out = rule.read(for_read, flat(before), flat(passed))
        return last, jax.tree.map(lambda a: join(by_chunk(a)), out)

    if rule.fails is None:
        return at_once()
    fails = max_over_vmap(rule.fails(for_advance))
    return cond(fails, jax.checkpoint(in_turn, prevent_cse=False), at_once)


def states_between(state: Array, changes: tuple[Array, Array]) -> tuple[Array, Array]:
    """Compute the states before each chunk, (n, N, ...), and the last: ``s <- factor s + add``."""
    factors, sums = jax.lax.associative_scan(compose, changes, axis=0)
    after = factors * state + sums
    return jnp.concatenate([state[None], after[:-1]]), after[-1]


def compose(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """Compose two changes ``s <- factor s + add`` of a state."""
    return first[0] * second[0], second[0] * first[1] + second[1]
