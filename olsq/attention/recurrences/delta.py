"""``S_t = gamma_t S_{t-1} + u_t w_t^T``, ``u_t = beta_t (v_t - gamma_t S_{t-1} k_t)``, by chunks.

Inside a chunk the errors u solve one unit lower triangular system (the WY, or UT, form of a
product of Householder-like factors), with D and zeta as in ``_linear``::

    (I + B) U = diag(beta) (V - diag(zeta) K S_0^T),   B[t, i] = beta_t D[t, i] k_t . w_i,  i < t
    O = (Q W^T * D) U + diag(zeta) Q S_0^T,            S = zeta_C S_0 + U^T diag(D[C, :]) W

w = k is the delta rule: one gradient step on ``|v - S k|^2 / 2`` a token.  Where the error is
taken before the token's gate, ``v_t - S_{t-1} k_t``, D and zeta of B and of the error are those of
the token before.

A rule may diverge.  From the token on whose error overflows nothing is known any more, and tokens
before it must not notice: such a token is left out, and reported as lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax.linalg import triangular_solve

from olsq.attention.recurrences.chunked import CHUNK, ChunkedRule, run_chunks
from olsq.attention.recurrences.linear import gate_tables
from olsq.attention.recurrences.log_gates import leave_units, shifts_before
from olsq.sequence.jax.control import (
    compile_once,
    cond,
    custom_linear_solve,
    fori_loop,
    max_over_vmap,
    vary_together,
)
from olsq.sequence.jax.gates import fade_read, largest_square
from olsq.sequence.jax.pieces import cut_into_pieces, join_pieces, pieces_of, scan_pieces
from olsq.sequence.jax.platform import in_full_precision

SMALLEST = 8  # blocks up to this width are inverted row by row


@partial(compile_once, static_argnames=("before", "dtype"))
def delta_rule(
    q: Any,
    k: Any,
    written: Any,
    v: Any,
    gates: Any,
    weight: Any,
    memory: Array,
    *,
    shift: Any = None,
    before: bool = False,
    valid: Any = None,
    dtype: Any = None,
) -> tuple[Array, Array, Array]:
    """Run the delta rule: outputs (N, T, V), the last memory (N, V, K), and a mask (N, T) of the
    tokens that were left out because their errors overflow.  ``written`` None: w = k.

    ``gates`` and ``shift`` are those of :func:`~olsq.attention.recurrences.log_gates.split_gates`.
    ``before``: the error is that of the memory before the token's gate has shrunk it. Arrays may be
    :class:`~olsq.attention.arguments.Heads`; ``valid`` and ``dtype`` are then those of
    :func:`~olsq.attention.recurrences.scan.scan_chunks`.
    """
    if before and shift is not None:  # read in the units of the token before
        written = k if written is None else written
        k = k * jnp.exp(shifts_before(shift) - shift)[..., None]
    pieces = 1 if valid is not None else pieces_of(q.shape[1])
    q, k, written, v, gates, weight, shifts = (
        None if x is None else cut_into_pieces(x, pieces)
        for x in (q, k, written, v, gates, weight, shift)
    )
    streams: dict[str, Any] = {"q": q, "k": k, "written": written}
    # Without weights, padding tokens have no effect because their keys are zero.
    streams |= {"gates": None if gates is None else (gates, 1.0), "weight": weight}
    streams["shift"] = shifts
    rule = ChunkedRule(partial(_prepare, before=before), advance, read, fails=has_unsolved)

    def run(v: Any, memory: Array) -> tuple[tuple[Array, Array], Array]:
        widest = widest_array(*memory.shape[1:])
        return run_chunks(rule, memory, {**streams, "v": v}, widest, valid=valid, dtype=dtype)

    out, overflown, last = run_pieces(run, v, memory, pieces)
    return out, leave_units(last, shift), overflown


def widest_array(values: int, keys: int) -> int:
    """Return how many numbers the largest array of a chunk has: a memory, tokens, or a table."""
    return max(values * keys, CHUNK * (values + keys), CHUNK**2)


def run_pieces(
    run: Callable[[Any, Array], tuple[tuple[Array, Array], Array]],
    targets: Any,
    memory: Array,
    pieces: int,
) -> tuple[Array, Array, Array]:
    """Run a delta rule on pieces of time: outputs, mask of left-out tokens, and the last memory.

    ``run(targets, memory)`` runs all pieces side by side, from their memories (pieces N, V, K) and
    what is written, arrays (pieces N, t, V).
    """
    if pieces == 1:
        (out, overflown), last = run(targets, memory)
        return out, overflown, last
    rows, width = memory.shape[1:]
    n = pieces * memory.shape[0]
    # Rows of the memory are independent: rows that start as the identity and are not written end as
    # the transition that the piece applies to a row.
    eye = jnp.broadcast_to(jnp.eye(width, dtype=memory.dtype), (n, width, width))
    begin = jnp.concatenate([jnp.zeros((n, rows, width), memory.dtype), eye], 1)

    def wider(x: Array) -> Array:
        return jnp.concatenate([x, jnp.zeros((*x.shape[:2], width), x.dtype)], -1)

    (_, unknown), end = run(jax.tree.map(wider, targets), begin)
    starts, last = scan_pieces(
        end[:, rows:], end[:, :rows], memory, lambda m, s: s @ m, lambda a, b: a @ b
    )
    (out, overflown), _ = run(targets, starts)
    return join_pieces(out, pieces), join_pieces(overflown | unknown, pieces), last


class Errors(NamedTuple):
    """Arrays from which the errors of a chunk and the next memory are computed.

    ``errors = aim - faded * keys S_0^T``, and where these are not solved yet,
    ``(I + below) u = weight * errors``. None stands for a factor of 1, and for nothing to add.
    """

    aim: Array  # (N, C, V)
    keys: Array  # (N, C, K)
    written: Array  # (N, C, K), faded to the end of the chunk
    decay: Any  # (N, 1, 1 or K), of the whole chunk
    faded: Any = None  # (N, C, 1)
    weight: Any = None  # (N, C, 1)
    added: Any = None  # (N, V, K), to the memory
    below: Any = None  # (N, C, C); None: solved
    lost: Any = None  # (N, C) mask of the tokens that cannot be solved before the memory is known


class Reads(NamedTuple):
    """Arrays from which, with memory and errors, the outputs of a chunk are computed."""

    queries: Array  # (N, C, K)
    scores: Array  # (N, C, C)
    decay: Any = None  # (N, C, 1)
    added: Any = None  # (N, C, V), to the outputs


def _scale(factor: Any, x: Array) -> Array:
    return x if factor is None else factor * x


def _add(x: Array, more: Any) -> Array:
    return x if more is None else x + more


def _prepare(x: Any, at_once: bool, before: bool) -> tuple[Errors, Reads]:
    """Prepare chunks: their gate tables, the products of their keys, and what they write."""
    table, zeta = gate_tables(x["gates"], None, x["k"].shape[1], x["k"].dtype)
    weight = None if x["weight"] is None else x["weight"][..., None]
    decay = None if zeta is None else zeta[..., None]
    w = x["k"] if x["written"] is None else x["written"]
    reach, faded = previous(table, decay) if before else (table, decay)
    below = jnp.tril(reach * jnp.einsum("ntk,nik->nti", x["k"], w), -1)
    scores = table * jnp.einsum("ntk,nik->nti", x["q"], w)
    errors = Errors(
        aim=x["v"],
        keys=x["k"],
        written=w * table[:, -1, :, None],
        decay=None if decay is None else decay[:, -1:],
        faded=faded,
        weight=weight,
        below=_scale(weight, below),
    )
    return solve_ahead(errors) if at_once else errors, Reads(x["q"], scores, decay)


def solve_ahead(errors: Errors) -> Errors:
    """Solve for the aims and the keys: ``u = aim - keys S_0^T`` without knowing the memory."""
    right = jnp.concatenate([errors.aim, _scale(errors.faded, errors.keys)], -1)
    solved, lost = solve_errors(errors.below, _scale(errors.weight, right), at_once=True)
    aim, keys = jnp.split(solved, [errors.aim.shape[-1]], -1)
    return errors._replace(aim=aim, keys=keys, faded=None, weight=None, below=None, lost=lost)


def has_unsolved(errors: Errors) -> Array:
    """Test whether a solution of :func:`solve_ahead` overflows, as that for a memory may not."""
    return errors.lost.any()


def advance(memory: Array, errors: Errors) -> tuple[Array, tuple[Array, Any]]:
    """Compute the memory after a chunk; also its errors, and which overflow if that is known."""
    error = errors.aim - fade_read(errors.faded, jnp.einsum("ntk,nvk->ntv", errors.keys, memory))
    # (I + B) U = diag(beta) (V - diag(zeta) K S_0^T)
    passed = error, None
    if errors.below is not None:
        passed = solve_errors(errors.below, _scale(errors.weight, error))
    # S = zeta_C S_0 + U^T diag(D[C, :]) W
    new = jnp.einsum("niv,nik->nvk", drop_overflowing(*passed)[0], errors.written)
    return _add(_scale(errors.decay, memory) + new, errors.added), passed


def read(reads: Reads, memory: Array, passed: tuple[Array, Any]) -> tuple[Array, Array]:
    """Compute the outputs of chunks from the memory before them; also which tokens overflow."""
    u, overflown = drop_overflowing(*passed)
    # O = (Q W^T * D) U + diag(zeta) Q S_0^T
    out = jnp.einsum("nti,niv->ntv", reads.scores, u)
    out = out + fade_read(reads.decay, jnp.einsum("ntk,nvk->ntv", reads.queries, memory))
    return _add(out, reads.added), overflown


def drop_overflowing(error: Array, overflown: Array | None) -> tuple[Array, Array]:
    """Set errors (N, C, V) that overflow to 0, unless ``overflown`` says that this was done.

    Also returns the mask (N, C) of their tokens. Whatever rests on such a token is lost, so that
    the errors after it need not be computed without it.
    """
    if overflown is not None:
        return error, overflown
    fits = jnp.abs(error) <= largest_square(error.dtype) ** 0.5
    return jnp.where(fits, error, 0), ~fits.all(-1)


def previous(table: Array, decay: Any) -> tuple[Array, Any]:
    """Shift D and zeta (N, C, 1), None where nothing is forgotten, to the token before each."""
    table = jnp.pad(table[:, :-1], ((0, 0), (1, 0), (0, 0)))
    if decay is None:
        return table, None
    return table, jnp.pad(decay[:, :-1], ((0, 0), (1, 0), (0, 0)), constant_values=1)


def solve_errors(below: Array, right: Array, at_once: bool = False) -> tuple[Array, Array]:
    """Solve ``(I + below) u = right`` by rows: u (N, C, V), and which rows (N, C) overflow.

    ``below`` (N, C, C) is strictly lower triangular.  A row that overflows is 0 and counts as
    absent in the rows after it.  Its infinity would be NaN times the zeros above the diagonal of
    the inverse, and so in rows before it.  Derivatives are implicit.
    """
    below, right = vary_together((below, right))
    fixed = jax.lax.stop_gradient(below)
    inverse = unit_inverse(fixed, together=at_once)
    most = largest_square(right.dtype) ** 0.5  # the errors are written as values are

    def product(x: Any) -> Any:
        return x[0] + jnp.einsum("nti,niv->ntv", below, x[0]), x[1]

    def solve(_: Any, x: Any) -> Any:
        u = jnp.einsum("nti,niv->ntv", inverse, x[0])
        overflows = max_over_vmap(~(jnp.abs(u) <= most).all())
        marks = jnp.zeros_like(x[1])
        return cond(overflows, lambda: _solve_by_rows(fixed, x[0], marks, most), lambda: (u, marks))

    def solve_transposed(_: Any, x: Any) -> Any:
        u = jnp.einsum("nti,ntv->niv", inverse, x[0])
        overflows = max_over_vmap(~jnp.isfinite(u).all())
        again = partial(triangular_solve, left_side=True, lower=True, transpose_a=True)
        return cond(overflows, lambda: again(fixed, x[0], unit_diagonal=True), lambda: u), x[1]

    # JAX transposes only solves all of whose right-hand sides have tangents.
    nothing = jnp.where(jnp.zeros(right.shape[:2], bool), right.sum(-1), 0)
    u, marks = custom_linear_solve(product, (right, nothing), solve, solve_transposed)
    if jax.__version_info__ < (0, 7):  # transposes solves only if each result has a cotangent
        u = u + 0 * marks[..., None]
    return u, marks > 0


def _solve_by_rows(below: Array, right: Array, marks: Array, most: float) -> tuple[Array, Array]:
    """Solve as :func:`solve_errors`, row by row; ``marks`` (N, C) are 1 for the rows left out."""

    def row(t: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
        u, marks = x
        new = right[:, t] - jnp.einsum("ni,niv->nv", below[:, t], u)
        fits = (jnp.abs(new) <= most).all(-1)
        marks = marks.at[:, t].set((~fits).astype(marks.dtype))
        return u.at[:, t].set(jnp.where(fits[:, None], new, 0)), marks

    return fori_loop(0, below.shape[1], row, (jnp.zeros_like(right), marks))


@partial(compile_once, static_argnames="together")  # traced once for the blocks of one size
@in_full_precision
def unit_inverse(below: Array, together: bool = False) -> Array:
    """Invert ``I + below``, below (N, C, C) strictly lower triangular, by halving.

    Its products are full float32 whatever the device's default: entries grow from level to level.
    ``together``: all blocks of one size at once. An accelerator then starts fewer kernels; a CPU
    takes twice as long.
    """
    c = below.shape[-1]
    if c <= SMALLEST:
        lanes = jnp.moveaxis(below, 0, -1)  # (C, C, N): all matrices of the batch at once
        eye = jnp.eye(c, dtype=below.dtype)[..., None]
        rows = [jnp.broadcast_to(eye[0], lanes[0].shape)]
        for t in range(1, c):
            inverse_rows = jnp.stack(rows)
            rows.append(eye[t] - (lanes[t, :t, None] * inverse_rows).sum(0))
        return jnp.moveaxis(jnp.stack(rows), -1, 0)
    half = c // 2
    halves = below[:, :half, :half], below[:, half:, half:]
    if together and 2 * half == c:
        first, second = jnp.split(unit_inverse(jnp.concatenate(halves), True), 2)
    else:
        first, second = map(unit_inverse, halves)
    # [[A, 0], [B, C]]^{-1} = [[A^-1, 0], [-C^-1 B A^-1, C^-1]]
    corner = -jnp.einsum("nab,nbc,ncd->nad", second, below[:, half:, :half], first)
    zero = jnp.zeros((below.shape[0], half, c - half), below.dtype)
    upper = jnp.concatenate([first, zero], -1)
    return jnp.concatenate([upper, jnp.concatenate([corner, second], -1)], 1)
