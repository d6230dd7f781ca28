"""Sequence parallelism: cut time into pieces, one per device, so that no device needs the others'
tokens.

Inside :func:`time_in_pieces` whatever runs along time is done in each piece by itself, and the
pieces are joined by summaries whose size does not depend on how long time is.  Values are those of
the whole to rounding.  Where arrays are split over devices along time, into as many pieces, the
compiler then has nothing to gather but the summaries.

Recurrences whose state cannot be merged take turns and pass the state on (:func:`run_in_turns`).  A
piece cannot start before the one before it has finished, but streams are independent: they go
through the pieces in groups, so that while one piece has the second group, the next has the first.
With G groups and P pieces there are G + P - 1 turns.  A device has work in G of them; in the others
it repeats earlier work, and the result is dropped.  States move on by one device per turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

MOST_OF_UNKNOWN = 4
Tree = TypeVar("Tree")

_pieces: ContextVar[int] = ContextVar("pieces of time", default=1)


@contextlib.contextmanager
def time_in_pieces(count: int) -> Iterator[None]:
    """Trace the code inside on ``count`` pieces of time, where ``count`` divides it evenly."""
    before = _pieces.set(count)
    try:
        yield
    finally:
        _pieces.reset(before)


def count_of_pieces() -> int:
    """Return the number of pieces that :func:`time_in_pieces` has set; 1 outside of it."""
    return _pieces.get()


def pieces_of(length: int, shortest: int = 1) -> int:
    """Return the number of pieces of ``length`` tokens: 1 unless all are equal and at least
    ``shortest``.
    """
    count = count_of_pieces()
    if count == 1 or not isinstance(length, int):  # a symbol of jax.export
        return 1
    return count if length % count == 0 and length // count >= shortest else 1


def chunk_count(length: int, size: int) -> int:
    """Return the number of chunks of ``size`` that ``length`` tokens take: one at least."""
    count = -(-length // size)
    return max(1, count) if isinstance(count, int) else count  # of a symbol, which is positive


def divide_into_tiles(chunks: int, most: int) -> tuple[int, int]:
    """Return the number of tiles, and of chunks per tile, at most ``most``: as even as can be.

    A number that is a symbol is divided into tiles of at most ``MOST_OF_UNKNOWN`` chunks, since a
    short stream pays for a whole tile.
    """
    if not isinstance(chunks, int):
        each = min(most, MOST_OF_UNKNOWN)
        return -(-chunks // each), each
    tiles = -(-chunks // most)
    return tiles, -(-chunks // tiles)


def count_as_number(length: Any, dtype: Any) -> Any:
    """Return a number of tokens to compute with; an array () of ``dtype`` where it is a symbol."""
    return length if isinstance(length, int) else jnp.asarray(length, dtype)


def cut_into_pieces(x: Array, pieces: int) -> Array:
    """Reshape (N, T, ...) to (pieces N, T / pieces, ...), with the axis that is split in front."""
    if pieces == 1:
        return x
    n, length = x.shape[0], x.shape[1] // pieces
    x = jnp.moveaxis(x.reshape(n, pieces, length, *x.shape[2:]), 1, 0)
    return x.reshape(pieces * n, *x.shape[2:])


def join_pieces(x: Array, pieces: int) -> Array:
    """Undo :func:`cut_into_pieces`: (pieces N, T / pieces, ...) to (N, T, ...)."""
    if pieces == 1:
        return x
    n, length = x.shape[0] // pieces, x.shape[1]
    x = jnp.moveaxis(x.reshape(pieces, n, length, *x.shape[2:]), 0, 1)
    return x.reshape(n, pieces * length, *x.shape[3:])


def scan_pieces(
    transition: Array,
    add: Array,
    start: Array,
    apply: Callable[[Array, Array], Array] = jnp.multiply,
    compose: Callable[[Array, Array], Array] = jnp.multiply,
) -> tuple[Array, Array]:
    """Compute the states before each piece, (pieces N, ...), and after the last, (N, ...).

    A piece maps a state s to ``apply(transition, s) + add``: both (pieces N, ...), as
    :func:`cut_into_pieces` returns them, and start (N, ...). ``compose(a, b)`` is transition a
    followed by b. An associative scan over the pieces: log2(pieces) levels, whose arrays are
    states.
    """
    n = start.shape[0]
    by_piece = [x.reshape(-1, n, *x.shape[1:]) for x in (transition, add)]

    def after(a: Any, b: Any) -> Any:
        return compose(a[0], b[0]), apply(b[0], a[1]) + b[1]

    moves, sums = jax.lax.associative_scan(after, tuple(by_piece), axis=0)
    states = apply(moves, start[None]) + sums
    before = jnp.concatenate([start[None], states[:-1]])
    return before.reshape(-1, *start.shape[1:]), states[-1]


def multiply_gates(gates: Array, logs: Array | None = None) -> Array:
    """Multiply gates along time, (N, T, ...) to (N, ...), with the precision of their logs.

    As :func:`~olsq.sequence.jax.gates.gate_products`: derivatives are those of the product, right
    where a gate is 0 too. ``logs`` may resolve more than the gates do; their derivatives are not
    used.
    """
    plain = jax.lax.stop_gradient(gates)
    kept = plain > 0
    logs = jnp.log(jnp.where(kept, plain, 1)) if logs is None else jnp.where(kept, logs, 0)
    rounded = jnp.prod(gates, 1)
    exact = jnp.exp(jax.lax.stop_gradient(logs).sum(1))
    value = jnp.where(kept.all(1), exact, jax.lax.stop_gradient(rounded))
    return rounded + jax.lax.stop_gradient(value - rounded)


def cumulate(
    combine: Callable[[Tree, Tree], Tree],
    x: Tree,
    axis: int,
    known: Callable[..., Tree] | None = None,
) -> Tree:
    """Combine entries along an axis, whose size may be a symbol of ``jax.export``.

    Of a known size ``jax.lax.associative_scan``, or ``known(x, axis=axis)``, which is the same.  A
    symbol gives no number of levels, and entries are combined one after another.
    """
    if isinstance(jax.tree.leaves(x)[0].shape[axis], int):
        if known is not None:
            return known(x, axis=axis)
        return jax.lax.associative_scan(combine, x, axis=axis)
    rows = jax.tree.map(lambda x: jnp.moveaxis(x, axis, 0), x)

    def step(carry: tuple[Any, Tree], row: Tree) -> tuple[tuple[Any, Tree], Tree]:
        started, before = carry
        after = jax.tree.map(partial(jnp.where, started), combine(before, row), row)
        return (jnp.array(True), after), after

    start = jax.tree.map(lambda x: jnp.zeros_like(x[0]), rows)
    _, out = jax.lax.scan(step, (jnp.array(False), start), rows)
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, axis), out)


def running_max(x: Array) -> Array:
    """Compute ``jax.lax.cummax`` of whole numbers >= 0 along time, (N, T), piece by piece."""
    pieces = pieces_of(x.shape[1])
    if pieces == 1:
        return cumulate(jnp.maximum, x, 1, jax.lax.cummax)
    x = x.reshape(x.shape[0], pieces, -1)
    inside = jax.lax.cummax(x, axis=2)
    ends = jax.lax.cummax(inside[:, :, -1], axis=1)
    before = jnp.pad(ends[:, :-1], ((0, 0), (1, 0)))
    return jnp.maximum(inside, before[:, :, None]).reshape(x.shape[0], -1)


def running_sum(x: Array) -> Array:
    """Compute ``jnp.cumsum`` of whole numbers or booleans along time, (N, T), as int32."""
    return scan_time(jnp.add, x.astype(jnp.int32), 0)


def scan_time(combine: Callable[[Tree, Tree], Tree], x: Tree, identity: Any) -> Tree:
    """Run ``jax.lax.associative_scan`` along time on arrays (N, T), piece by piece.

    ``identity`` holds numbers.
    """
    first = jax.tree.leaves(x)[0]
    pieces = pieces_of(first.shape[1])
    if pieces == 1:
        return cumulate(combine, x, 1)
    n, length = first.shape[0], first.shape[1] // pieces
    inside = jax.tree.map(lambda x: x.reshape(n, pieces, length), x)
    inside = jax.lax.associative_scan(combine, inside, axis=2)
    ends = jax.lax.associative_scan(combine, jax.tree.map(lambda x: x[:, :, -1], inside), axis=1)

    def earlier(x: Array, nothing: Any) -> Array:
        return jnp.pad(x[:, :-1], ((0, 0), (1, 0)), constant_values=nothing)[:, :, None]

    combined = combine(jax.tree.map(earlier, ends, identity), inside)
    return jax.tree.map(lambda x: x.reshape(n, pieces * length), combined)


def delay(x: Array, before: Array, steps: int = 1) -> Array:
    """Delay x (N, T, ...) by ``steps`` tokens.

    The first come from the end of ``before`` (N, w, ...).

    Neighbouring pieces exchange ``steps`` tokens, whatever their length.
    """
    if not steps:
        return x
    pieces = pieces_of(x.shape[1], steps)
    n, t = x.shape[:2]
    if pieces == 1:
        return jnp.concatenate([before[:, before.shape[1] - steps :], x], 1)[:, :t]
    y = x.reshape(n, pieces, t // pieces, *x.shape[2:])
    split = y.shape[2] - steps
    ends = y[:, :, split:]
    first = jnp.concatenate([before[:, None, before.shape[1] - steps :], ends[:, :-1]], 1)
    return jnp.concatenate([first, y[:, :, :split]], 2).reshape(x.shape)


def rotate_pieces(x: Tree, pieces: int, steps: int) -> Tree:
    """Pass pieces (pieces N, ...) on around the ring: piece i becomes piece i - steps."""

    def one(x: Array) -> Array:
        by_piece = x.reshape(pieces, -1, *x.shape[1:])
        return jnp.roll(by_piece, steps, 0).reshape(x.shape)

    return jax.tree.map(one, x)


def prepend_window(x: Array, before: Array, pieces: int) -> Array:
    """Prepend to each piece of x (N, T, ...) the w tokens that precede it: (pieces N, w + L, ...).

    ``before`` (N, w, ...) are those before the first.  Each piece gets tails of as many pieces
    before it as w tokens reach into, one for all w up to the length L of a piece.
    """
    cut, (n, width) = cut_into_pieces(x, pieces), before.shape[:2]
    length = cut.shape[1]
    reach = -(-width // length)
    spare = [(0, 0), (reach * length - width, 0)] + [(0, 0)] * (x.ndim - 2)
    first = cut_into_pieces(jnp.pad(before, spare), reach) if reach else before
    index = jnp.repeat(jnp.arange(pieces), n).reshape(-1, *[1] * (x.ndim - 1))
    parts = []
    for back in range(reach, 0, -1):
        size = min(length, width - (back - 1) * length)
        new = rotate_pieces(cut[:, length - size :], pieces, back)
        old = first[(reach - back) * n :, length - size :][: pieces * n]
        old = jnp.pad(old, [(0, pieces * n - old.shape[0])] + [(0, 0)] * (x.ndim - 1))
        parts.append(jnp.where(index < back, old, new))
    return jnp.concatenate([*parts, cut], 1)


def last_tokens(x: Array, before: Array) -> Array:
    """Return the last w of the tokens ``before`` (N, w, ...) followed by x (N, T, ...)."""
    width, length = before.shape[1], x.shape[1]
    pieces = pieces_of(length, width)
    if pieces == 1:
        return jnp.concatenate([before, x], 1)[:, length:]
    each = length // pieces
    by_piece = x.reshape(x.shape[0], pieces, each, *x.shape[2:])
    return by_piece[:, :, each - width :][:, -1]


def run_in_turns(
    run: Callable[[Any, Any, Any], tuple[Array, Any]],
    state: Any,
    streams: Any,
    parameters: Any,
    groups: int,
) -> tuple[Array, Any]:
    """Compute ``run(state, streams, parameters)`` along time: (N, T, V) and the last state.

    Arrays of ``streams`` are (N, T, ...); those of ``state`` and of ``parameters``, the arrays of
    each stream without a time axis, are (N, ...). Stream n is in group n modulo ``groups``, which
    divides N, so that rows that are split over other devices, the major axis of N, stay where they
    are. The backward pass keeps one state per turn and recomputes the rest.
    """
    pieces = pieces_of(jax.tree.leaves(streams)[0].shape[1])
    if pieces == 1:
        return run(state, streams, parameters)
    place = jnp.arange(pieces)

    def grouped(x: Array) -> Array:
        """Reshape (N, ...) to (G, N / G, ...)."""
        return jnp.moveaxis(x.reshape(-1, groups, *x.shape[1:]), 1, 0)

    def by_piece(x: Array) -> Array:
        """Reshape (P N, ...) to (P, N, ...)."""
        return x.reshape(pieces, -1, *x.shape[1:])

    def folded(x: Array) -> Array:
        return x.reshape(-1, *x.shape[2:])

    streams = jax.tree.map(
        lambda x: jax.vmap(grouped)(by_piece(cut_into_pieces(x, pieces))), streams
    )
    state, parameters = jax.tree.map(grouped, (state, parameters))

    def turn(passed: Any, at: Array) -> tuple[Array, Any]:
        """Run one turn: outputs (P, N / G, L, V) and states after, from the states passed on."""
        group = jnp.clip(at - place, 0, groups - 1)
        # Outside its turns a piece runs on from a valid state, so that all values are finite.
        handed = (place > 0) & (at >= place)

        def begin(passed: Array, first: Array) -> Array:
            return jnp.where(handed.reshape(-1, *[1] * first.ndim), passed, first)

        begun = jax.tree.map(begin, passed, jax.tree.map(lambda x: x[group[0]], state))
        inputs = jax.tree.map(lambda x: jax.vmap(lambda x, g: x[g])(x, group), streams)
        belongs = jax.tree.map(lambda x: x[group], parameters)
        out, after = run(*jax.tree.map(folded, (begun, inputs, belongs)))
        return jax.tree.map(by_piece, (out, after))

    def put(stored: Array, part: Array, group: Array) -> Array:
        return jax.vmap(lambda x, y, g: x.at[g].set(y, mode="drop"))(stored, part, group)

    def step(carry: Any, at: Array) -> tuple[Any, None]:
        passed, results = carry
        now = jax.checkpoint(turn, prevent_cse=False)(passed, at)
        group = at - place
        group = jnp.where((group >= 0) & (group < groups), group, groups)
        results = jax.tree.map(lambda x, y: put(x, y, group), results, now)
        return (jax.tree.map(lambda x: jnp.roll(x, 1, 0), now[1]), results), None

    first = jax.tree.map(lambda x: jnp.broadcast_to(x[0], (pieces, *x.shape[1:])), state)
    shapes = jax.eval_shape(turn, first, jnp.int32(0))
    room = jax.tree.map(
        lambda x: jnp.zeros((pieces, groups, *x.shape[1:]), x.dtype), shapes
    )  # of outputs and of states at the pieces' ends
    results = jax.lax.scan(step, (first, room), jnp.arange(groups + pieces - 1))[0][1]

    def ungrouped(x: Array) -> Array:
        return folded(jnp.moveaxis(x, 0, 1))

    out = jax.vmap(ungrouped)(results[0])
    return join_pieces(folded(out), pieces), jax.tree.map(lambda x: ungrouped(x[-1]), results[1])
