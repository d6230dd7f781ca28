"""``w_t = (H_t + Lambda)^{-1} k_t`` for ``H_t = D_t H_{t-1} D_t + beta_t k_t k_t^T``, by chunks.

D_t is diagonal: every key dimension fades at its own rate.  With P_t the product of the gates
from the start of a chunk to t and any diagonal reference P_r, ``F_t = P_r / P_t`` and
``k~_i = F_i k_i``::

    H_t + Lambda = F_t^{-1} (P_r H P_r + sum_{i<=t} beta_i k~_i k~_i^T + Lambda F_t^2) F_t^{-1}

H from before the chunk.  In brackets nothing fades; the ridge is one per token and dimension.  So
the factors of :mod:`olsq.sequence.jax.factor`, made of the keys k~ with Lambda for the ridge, give
an inverse ``F_t (R - sum n n^T) F_t`` for every token whose product with the system has a spectrum
between 1 and the entries of F_t^2: known from the gates alone.  Where all gates are mild it leaves
conjugate gradient a few steps.  Where one is not, little is remembered in its dimension: steps in
units of the ridge come first, and factors, F cut off, only if these promise no end.

Products with the systems divide by no gate.  Keys fade block by block, as the scores do in
:mod:`olsq.attention.recurrences.vector`, so that gates may be tiny, or 0, and derivatives are
those of products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.scan import chunk_size
from olsq.sequence.jax.control import (
    compile_once,
    cond,
    custom_linear_solve,
    max_over_vmap,
    scan,
    vary_together,
    while_loop,
)
from olsq.sequence.jax.factor import Factor, apply_inverses, factorise_roughly, save_factors
from olsq.sequence.jax.iterations import conjugate_gradient
from olsq.sequence.jax.pieces import (
    chunk_count,
    cut_into_pieces,
    divide_into_tiles,
    join_pieces,
    multiply_gates,
    pieces_of,
    scan_pieces,
)
from olsq.sequence.jax.platform import Target, by_platform
from olsq.sequence.jax.solver import Chunks
from olsq.sequence.jax.tiles import WIDEST
from olsq.sequence.jax.triangular import guarded_inverse_cholesky
from olsq.solvers.chunk_exact import FLOOR, ROUNDED

CHUNK = 16  # tokens of a chunk; in a longer one gates are further from its reference
MOST_CHUNKS = 16  # chunks of a tile on a CPU, computed at once
SMALLEST = 8  # blocks up to this length fade pair by pair
CACHED = 2**18  # numbers in the largest array of a tile on a CPU, the pairs: 1 MiB of float32
MILD = 0.7  # |log F^2| up to which factors come first
CUT = 1.0  # |log F| at which F is clipped: beyond, factors only precondition
TRIAL = 24  # steps in units of the ridge before their convergence rate decides on factors


class Faded(NamedTuple):
    """Keys of chunks (M, C, K) as each of their tokens sees them, with the gates in between."""

    pairs: Array  # (M, C/s, s, s, K): key i at token t of the same block, 0 for i > t
    seams: list[tuple[Array, Array]]  # gates from a seam to t, keys at the seam, by level
    reach: Array  # (M, C, K): gates from the start to t
    tail: Array  # (M, C, K): keys at the end


class Systems(NamedTuple):
    """The systems of chunks in factored form, as :func:`system_product` takes them."""

    faded: Faded
    weight: Array  # (M, C)
    gram: Array  # (M, K, K), before the chunk
    ridge: Array  # (M, 1, K)


@compile_once
def solve_keys(
    k: Array, gates: Array, weight: Array | None, ridge: Array, gram: Array, logs: Any = None
) -> tuple[Array, Array]:
    """Solve for every key: w (N, T, K) and the last gram (N, K, K).

    D's diagonals are (N, T, K), with their logs if these are known better; the ridge is (N, K).
    """
    logs = None if logs is None else jax.lax.stop_gradient(logs)
    weight = jnp.ones(k.shape[:2], k.dtype) if weight is None else weight
    if isinstance(k.shape[1], int) and k.shape[1] == 1:
        last_logs = None if logs is None else logs[:, 0]
        return _solve_key(k[:, 0], gates[:, 0], weight, ridge, gram, last_logs)
    pieces = pieces_of(k.shape[1])
    if pieces == 1:
        return _solve_keys(k, gates, weight, ridge, gram, logs)
    k, gates, weight = (cut_into_pieces(x, pieces) for x in (k, gates, weight))
    logs = None if logs is None else cut_into_pieces(logs, pieces)
    ridge = jnp.tile(ridge, (pieces, 1))
    zero = jnp.zeros((k.shape[0], *gram.shape[1:]), gram.dtype)
    add = _solve_keys(k, gates, weight, ridge, zero, logs, only_gram=True)[1]
    fade = multiply_gates(gates)
    change = _change(fade, None if logs is None else logs.sum(1))
    before, last = scan_pieces(1 + change, add, gram)
    return join_pieces(_solve_keys(k, gates, weight, ridge, before, logs)[0], pieces), last


def _change(fade: Array, logs: Array | None) -> Array:
    """Compute ``fade fade^T - 1`` (N, K, K) from fades (N, K), to the digits of their logs.

    The derivative is that of the fades.
    """
    change = fade[:, :, None] * fade[:, None, :] - 1
    if logs is None:
        return change
    value = jnp.expm1(logs[:, :, None] + logs[:, None, :])
    return change + jax.lax.stop_gradient(value - change)


def _solve_key(
    k: Array, gates: Array, weight: Array, ridge: Array, gram: Array, logs: Any
) -> tuple[Array, Array]:
    """Solve for one token (N, K) by the Cholesky factor of its system."""
    gram = gram + gram * _change(gates, logs) + (weight * k)[:, :, None] * k[:, None]
    system = jnp.where(jnp.eye(k.shape[1], dtype=bool), gram + ridge[:, :, None], gram)
    inverse = guarded_inverse_cholesky(jax.lax.stop_gradient(system))

    def solve(_: Any, b: Array) -> Array:
        return jnp.einsum("nji,nj->ni", inverse, jnp.einsum("nij,nj->ni", inverse, b))

    system, k = vary_together((system, k))
    w = custom_linear_solve(lambda x: jnp.einsum("nij,nj->ni", system, x), k, solve, symmetric=True)
    return w[:, None], gram


def _solve_keys(
    k: Array,
    gates: Array,
    weight: Array,
    ridge: Array,
    gram: Array,
    logs: Any,
    only_gram: bool = False,
) -> tuple[Array, Array]:
    """Run :func:`solve_keys` on a whole stream, tile by tile."""
    n, length, width = k.shape
    c = chunk_size(length, CHUNK)
    chunks = chunk_count(length, c)
    streams = n if isinstance(n, int) else 1  # a batch of any size, a symbol

    def tiles_of(target: Target) -> tuple[int, int]:
        numbers = max(1, streams) * c * SMALLEST * width  # of the pairs of one chunk
        if target.cpu:
            most = min(MOST_CHUNKS, CACHED // numbers)
        else:
            most = target.tile_bytes // (WIDEST * numbers)
        return divide_into_tiles(chunks, max(1, most))

    def run(tiles: tuple[int, int]) -> tuple[Array, Array]:
        return _solve_in_tiles(k, gates, weight, ridge, gram, logs, only_gram, tiles, c)

    return by_platform(tiles_of, run)


def _solve_in_tiles(
    k: Array,
    gates: Array,
    weight: Array,
    ridge: Array,
    gram: Array,
    logs: Any,
    only_gram: bool,
    tiles_and_chunks: tuple[int, int],
    c: int,
) -> tuple[Array, Array]:
    """Run :func:`solve_keys` on a whole stream in tiles of some chunks of ``c`` tokens."""
    n, length, width = k.shape
    tiles, chunks = tiles_and_chunks

    def tiled(x: Any, fill: float) -> Any:
        if x is None:
            return None
        pad = [(0, 0), (0, tiles * chunks * c - length)] + [(0, 0)] * (x.ndim - 2)
        x = jnp.pad(x, pad, constant_values=fill)
        return jnp.moveaxis(x.reshape(n, tiles, chunks, c, *x.shape[2:]), 1, 0)

    def step(gram: Array, tile: tuple[Any, ...]) -> tuple[Array, Array | None]:
        k, gates, weight = (x.reshape(n * chunks, *x.shape[2:]) for x in tile[:3])
        logs = None if tile[3] is None else tile[3].reshape(n * chunks, *tile[3].shape[2:])
        faded, total = fade_keys(k, gates)
        # sum_i beta_i k_i k_i^T, with every key faded to the end of its chunk
        add = jnp.einsum("nik,nij->nkj", faded.tail * weight[..., None], faded.tail)
        change = _change(total, None if logs is None else logs.sum(1))
        before, last = _before(gram, change, add, chunks)
        if only_gram:
            return last, None
        every = jnp.broadcast_to(ridge[:, None], (n, chunks, width)).reshape(n * chunks, 1, width)
        w = _solve(Systems(faded, weight, before, every), k, gates)
        return last, w.reshape(n, chunks * c, width)

    again = jax.checkpoint(step, policy=save_factors, prevent_cse=False)
    last, w = scan(again, gram, (tiled(k, 0), tiled(gates, 1), tiled(weight, 0), tiled(logs, 0)))
    if w is None:
        return k, last
    return jnp.moveaxis(w, 0, 1).reshape(n, w.shape[0] * w.shape[2], width)[:, :length], last


def _before(gram: Array, change: Array, add: Array, chunks: int) -> tuple[Array, Array]:
    """Compute grams before each chunk of a tile (N chunks, K, K), and after the last (N, K, K)."""
    n = gram.shape[0]
    by_chunk = [jnp.moveaxis(x.reshape(n, chunks, *x.shape[1:]), 1, 0) for x in (change, add)]

    def step(gram: Array, x: Any) -> tuple[Array, Array]:
        change, add = x
        return gram + gram * change + add, gram

    last, before = scan(step, gram, tuple(by_chunk))
    return jnp.moveaxis(before, 0, 1).reshape(n * chunks, *gram.shape[1:]), last


def fade_keys(k: Array, gates: Array) -> tuple[Faded, Array]:
    """Compute :class:`Faded` from keys and gates (M, C, K) of chunks, and the product of all gates
    (M, K).
    """
    m, c, width = k.shape
    size = c
    while size > SMALLEST and size % 2 == 0:
        size //= 2
    blocks = (m, c // size, size, width)
    a, keys = gates.reshape(blocks), k.reshape(blocks)
    reach = [a[:, :, 0]]
    rows = [jnp.zeros_like(keys)]
    for t in range(size):
        itself = jnp.zeros((size, 1), k.dtype).at[t].set(1)
        rows.append(rows[-1] * a[:, :, t, None] + itself * keys[:, :, t, None])
        if t:
            reach.append(reach[-1] * a[:, :, t])
    pairs, tail, reach = jnp.stack(rows[1:], 2), rows[-1], jnp.stack(reach, 2)
    seams = []
    while size < c:
        left, right = reach[:, 0::2], reach[:, 1::2]
        seams.append((right, tail[:, 0::2]))
        tail = jnp.concatenate([tail[:, 0::2] * right[:, :, -1:], tail[:, 1::2]], 2)
        reach = jnp.concatenate([left, right * left[:, :, -1:]], 2)
        size *= 2
    return Faded(pairs, seams, reach[:, 0], tail[:, 0]), reach[:, 0, -1]


def system_product(systems: Systems, x: Array) -> Array:
    """Compute ``(H_t + Lambda) x_t`` for every token, (M, C, K)."""
    faded, (m, c, width) = systems.faded, x.shape
    size = faded.pairs.shape[2]
    weight = systems.weight
    scores = (x.reshape(m, c // size, size, 1, width) * faded.pairs).sum(-1)
    scores = scores * weight.reshape(m, c // size, 1, size)
    near = (scores[..., None] * faded.pairs).sum(-2).reshape(x.shape)
    for reach, keys in faded.seams:
        size = keys.shape[2]
        halves = (m, c // (2 * size), 2, size)
        read = x.reshape(*halves, width)[:, :, 1] * reach
        scores = jnp.einsum("nbtk,nbik->nbti", read, keys)
        scores = scores * weight.reshape(halves)[:, :, 0, None]
        across = reach * jnp.einsum("nbti,nbik->nbtk", scores, keys)
        near = near + jnp.stack([jnp.zeros_like(across), across], 2).reshape(x.shape)
    far = faded.reach * jnp.einsum("ntk,njk->ntj", faded.reach * x, systems.gram)
    return near + far + systems.ridge * x


def _solve(systems: Systems, k: Array, gates: Array) -> Array:
    """Solve ``(H_t + Lambda)^{-1} k_t`` with implicit derivatives."""
    systems, k, gates = vary_together((systems, k, gates))
    held, keys, factors = jax.lax.stop_gradient((systems, k, gates))

    def solve(_: Any, b: Array) -> Array:
        return solve_by_iteration(held, keys, factors, b)[0]

    return custom_linear_solve(lambda x: system_product(systems, x), k, solve, symmetric=True)


def solve_by_iteration(systems: Systems, k: Array, gates: Array, b: Array) -> tuple[Array, Array]:
    """Run conjugate gradient for any right-hand sides (M, C, K).

    Also returns the steps of each token.
    """
    logs = jnp.log(jnp.maximum(gates, jnp.exp(FLOOR)))
    sums = jnp.cumsum(logs, 1)
    middle = (sums[:, :1] + sums[:, -1:]) / 2
    gap = middle - sums
    mild = ~max_over_vmap((2 * jnp.abs(gap) > MILD).any())
    scale = jnp.exp(jnp.clip(gap, -CUT, CUT))

    def symmetric_factor() -> Factor:
        start = jnp.exp(jnp.maximum(middle, FLOOR))
        gram = jnp.swapaxes(start, 1, 2) * systems.gram * start
        arrays = {"keys": scale * k, "weight": systems.weight, "gram": gram}
        # the arrays that a factorisation reads, each chunk as a stream of its own
        fields: Any = dict.fromkeys(Chunks._fields) | {n: x[:, None] for n, x in arrays.items()}
        return factorise_roughly(Chunks(**fields), None, None, systems.ridge[:, None])

    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(symmetric_factor))

    def phase(carry: Any) -> Any:
        x, steps, _, factored, count = carry
        factor = cond(factored, symmetric_factor, lambda: empty)

        def precondition(r: Array) -> Array:
            return cond(
                factored,
                lambda: scale * apply_inverses(factor, (scale * r)[:, None])[:, 0],
                lambda: r / systems.ridge,
            )

        x, more, done = conjugate_gradient(
            lambda x: system_product(systems, x),
            b,
            start=x,
            precondition=precondition,
            tol=ROUNDED * float(jnp.finfo(b.dtype).eps) / 4,
            max_steps=8 * b.shape[-1] + TRIAL,
            trial=jnp.where(factored, 8 * b.shape[-1], TRIAL),
        )
        return x, steps + more, done[..., 0], jnp.ones_like(factored), count + 1

    def going(carry: Any) -> Array:
        return (carry[4] < 2) & max_over_vmap((~carry[2]).any())

    begin = jnp.zeros_like(b), jnp.zeros(b.shape[:-1], jnp.int32), jnp.zeros(b.shape[:-1], bool)
    x, steps, *_ = while_loop(going, phase, (*begin, mild, jnp.int32(0)))
    return x, steps
