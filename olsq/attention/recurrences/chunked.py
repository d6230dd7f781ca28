"""Chunked rules in three functions, of which only ``advance`` needs the order of the chunks.

On a CPU each chunk is prepared, passed and read inside one scan, so that its arrays stay in cache.
An accelerator starts a kernel for each operation, so there all chunks of a tile are prepared at
once and read at once, and only ``advance`` remains in the scan.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.log_gates import in_shifted_units
from olsq.attention.recurrences.scan import chunk_size, scan_chunks
from olsq.sequence.jax.control import cond, max_over_vmap, scan
from olsq.sequence.jax.gates import fade_read
from olsq.sequence.jax.pieces import divide_into_tiles, join_pieces, scan_pieces
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
        Returns the states before all chunks (N, n, ...) and the last, from what was prepared,
        (N, n, ...), where that takes fewer kernels than a scan of ``advance``, whose second result
        is then None.
    fails : function of prepared, optional
        Tests whether what was prepared at once is unusable; chunks then follow one another. Not
        beside ``states``.
    chunk : int
        Tokens of a chunk on an accelerator.
    on_cpu : int, optional
        Tokens of a chunk on a CPU, by default :func:`~olsq.sequence.jax.platform.chunk_length`.
    group : int
        Chunks that a CPU's backward pass computes again together, from the state before them.
    """

    prepare: Callable[[dict[str, Any], bool], tuple[Any, Any]]
    advance: Callable[[Any, Any], tuple[Any, Any]]
    read: Callable[[Any, Any, Any], Any]
    states: Callable[[Any, Any], tuple[Any, Any]] | None = None
    fails: Callable[[Any], Array] | None = None
    chunk: int = CHUNK
    on_cpu: int | None = None
    group: int = 1

    def step(self, state: Any, x: Any) -> tuple[Any, Any]:
        """Run one chunk: the state after it, and its outputs."""
        for_advance, for_read = self.prepare(x, False)
        after, passed = self.advance(state, for_advance)
        return after, self.read(for_read, state, passed)


def run_chunks(
    rule: ChunkedRule,
    state: Any,
    streams: dict[str, Any],
    widest: int,
    *,
    valid: Array | None = None,
    dtype: Any = None,
) -> tuple[Any, Any]:
    """Run a rule: outputs (N, T, ...) and the last state, arrays (N, ...).

    ``streams``, ``valid`` and ``dtype`` are those of
    :func:`~olsq.attention.recurrences.scan.scan_chunks`. A stream "shift" is that of
    :func:`~olsq.attention.recurrences.log_gates.in_shifted_units`. ``widest`` is how many numbers
    the largest array of one chunk of an accelerator has.
    """
    length = jax.tree.leaves((streams, valid))[0].shape[1]
    count = jax.tree.leaves(state)[0].shape[0]
    fills = {name: s[1] if type(s) is tuple else 0.0 for name, s in streams.items()}

    def choose(target: Target) -> tuple[bool, int, int]:
        """Choose whether chunks are prepared at once, and the tokens of a chunk and of a tile."""
        if target.cpu or not isinstance(length, int) or length <= rule.chunk:
            size = rule.on_cpu or chunk_length(on=target)
            return False, size, chunk_size(length, rule.group * size)
        rows = max(1, count) if isinstance(count, int) else 1
        most = max(1, target.tile_bytes // (WIDEST * rows * widest))
        chunks = divide_into_tiles(-(-length // rule.chunk), most)[1]
        return True, rule.chunk, chunks * rule.chunk

    def run(choice: tuple[bool, int, int]) -> tuple[Any, Any]:
        at_once, size, tokens = choice
        step = rule.step
        if at_once or rule.group > 1:
            step = partial(_run_tile, rule, fills, size, at_once)
        step = in_shifted_units(step) if "shift" in streams else step
        return scan_chunks(step, state, streams, chunk=tokens, valid=valid, dtype=dtype)

    return by_platform(choose, run)


def _run_tile(
    rule: ChunkedRule, fills: dict[str, float], size: int, at_once: bool, state: Any, x: Any
) -> tuple[Any, Any]:
    """Run a rule on a tile (N, T, ...) of chunks of ``size`` tokens, prepared ``at_once`` or not.

    Chunks that a scan goes through are in front, (n, N, C, ...); else streams are, and no array is
    transposed.
    """
    rows, length = jax.tree.leaves(x)[0].shape[:2]
    count = -(-length // size)
    in_front = rule.states is None
    shape = (count, rows) if in_front else (rows, count)

    def cut(name: str, s: Any) -> Any:
        if s is None:
            return None
        spare = [(0, 0), (0, count * size - length)] + [(0, 0)] * (s.ndim - 2)
        s = jnp.pad(s, spare, constant_values=fills[name])
        s = s.reshape(rows, count, size, *s.shape[2:])
        return jnp.moveaxis(s, 1, 0) if in_front else s

    def by_chunk(a: Any) -> Any:
        return jax.tree.map(lambda a: a.reshape(*shape, *a.shape[1:]), a)

    def flat(a: Any) -> Any:
        return jax.tree.map(lambda a: a.reshape(count * rows, *a.shape[2:]), a)

    def join(a: Array) -> Array:
        a = jnp.moveaxis(a, 0, 1) if in_front else a
        return a.reshape(rows, count * size, *a.shape[3:])[:, :length]

    chunks = {name: cut(name, s) for name, s in x.items()}

    def in_turn() -> tuple[Any, Any]:
        last, out = scan(jax.checkpoint(rule.step, prevent_cse=False), state, chunks)
        return last, jax.tree.map(join, out)

    if not at_once:
        return in_turn()
    for_advance, for_read = rule.prepare(flat(chunks), True)

    def together() -> tuple[Any, Any]:
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
        return together()
    fails = max_over_vmap(rule.fails(for_advance))
    return cond(fails, jax.checkpoint(in_turn, prevent_cse=False), together)


def run_linear_pieces(
    run: Callable[[Array], tuple[Array, Array]],
    transition: Callable[[], Array],
    memory: Array,
    pieces: int,
    **how: Any,
) -> tuple[Array, Array]:
    """Run a linear recurrence on pieces of time: outputs (N, T, V) and the last memory (N, ...).

    ``run(memory)`` runs all pieces side by side, from their memories (pieces N, ...), and
    ``transition()`` is what each does to the memory before it. That and ``how`` are those of
    :func:`~olsq.sequence.jax.pieces.scan_pieces`.
    """
    if pieces == 1:
        return run(memory)
    zero = jnp.zeros((pieces * memory.shape[0], *memory.shape[1:]), memory.dtype)
    before, last = scan_pieces(transition(), run(zero)[1], memory, **how)
    return join_pieces(run(before)[0], pieces), last


def fade_and_add(memory: Array, change: tuple[Any, Array]) -> tuple[Array, None]:
    """Compute ``factor * memory + add``; a factor of None is 1."""
    factor, add = change
    return (memory if factor is None else memory * factor) + add, None


def add_past(reads: Any, memory: Array, _: None) -> Array:
    """Add what the queries (N, C, K) read from the memory before, (N, V, K), to the chunk's own."""
    queries, own, scale = reads
    past = jnp.einsum("ntk,nvk->ntv", queries, memory)
    return own + fade_read(scale, past)


def states_between(state: Array, changes: tuple[Array, Array]) -> tuple[Array, Array]:
    """Compute the states before each chunk, (N, n, ...), and the last: ``s <- factor s + add``."""
    factors, sums = jax.lax.associative_scan(compose, changes, axis=1)
    after = factors * state[:, None] + sums
    return jnp.concatenate([state[:, None], after[:, :-1]], 1), after[:, -1]


def compose(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """Compose two changes ``s <- factor s + add`` of a state."""
    return first[0] * second[0], second[0] * first[1] + second[1]
