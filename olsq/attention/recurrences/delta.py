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

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax.linalg import triangular_solve

from olsq.attention.recurrences.linear import gate_tables
from olsq.attention.recurrences.log_gates import in_shifted_units, leave_units, shifts_before
from olsq.attention.recurrences.scan import scan_chunks
from olsq.sequence.jax.control import (
    compile_once,
    cond,
    custom_linear_solve,
    fori_loop,
    max_over_vmap,
    vary_together,
)
from olsq.sequence.jax.gates import largest_square
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
    if pieces == 1:
        (out, overflown), last = _delta_rule(
            q, k, written, v, gates, weight, memory, shift, before, valid, dtype
        )
        return out, leave_units(last, shift), overflown
    written = k if written is None else written
    q, k, written, v = (cut_into_pieces(x, pieces) for x in (q, k, written, v))
    gates, weight, shifts = (
        None if x is None else cut_into_pieces(x, pieces) for x in (gates, weight, shift)
    )
    n, values, width = len(q), *memory.shape[1:]
    # Rows of the memory are independent: rows that start as the identity and are not written end as
    # the transition that the piece applies to a row.
    eye = jnp.broadcast_to(jnp.eye(width, dtype=memory.dtype), (n, width, width))
    begin = jnp.concatenate([jnp.zeros((n, values, width), memory.dtype), eye], 1)
    wide = jnp.concatenate([v, jnp.zeros((*v.shape[:2], width), v.dtype)], -1)
    (_, unknown), end = _delta_rule(q, k, written, wide, gates, weight, begin, shifts, before)
    starts, last = scan_pieces(
        end[:, values:], end[:, :values], memory, lambda m, s: s @ m, lambda a, b: a @ b
    )
    (out, overflown), _ = _delta_rule(q, k, written, v, gates, weight, starts, shifts, before)
    out, overflown = (join_pieces(x, pieces) for x in (out, overflown | unknown))
    return out, leave_units(last, shift), overflown


def _delta_rule(
    q: Any,
    k: Any,
    written: Any,
    v: Any,
    gates: Any,
    weight: Any,
    memory: Array,
    shift: Any,
    before: bool,
    valid: Any = None,
    dtype: Any = None,
) -> tuple[tuple[Array, Array], Array]:
    """Run :func:`delta_rule` on a whole stream, not in pieces, in the units of the shifts."""

    @in_shifted_units
    def step(memory: Array, x: Any) -> tuple[Array, tuple[Array, Array]]:
        table, zeta = gate_tables(x["gates"], None, x["k"].shape[1], memory.dtype)
        weight = 1.0 if x["weight"] is None else x["weight"][..., None]
        decay = 1.0 if zeta is None else zeta[..., None]
        w = x["k"] if x["written"] is None else x["written"]
        reach, faded = _previous(table, decay) if before else (table, decay)
        below = jnp.tril(reach * jnp.einsum("ntk,nik->nti", x["k"], w), -1)
        error = x["v"] - faded * jnp.einsum("ntk,nvk->ntv", x["k"], memory)
        # (I + B) U = diag(beta) (V - diag(zeta) K S_0^T)
        u, overflown = solve_errors(weight * below, weight * error)
        # O = (Q W^T * D) U + diag(zeta) Q S_0^T;  S = zeta_C S_0 + U^T diag(D[C, :]) W
        scores = table * jnp.einsum("ntk,nik->nti", x["q"], w)
        out = jnp.einsum("nti,niv->ntv", scores, u)
        out = out + decay * jnp.einsum("ntk,nvk->ntv", x["q"], memory)
        kept = memory if zeta is None else zeta[:, -1, None, None] * memory
        kept = kept + jnp.einsum("niv,nik->nvk", u, w * table[:, -1, :, None])
        return kept, (out, overflown)

    streams: dict[str, Any] = {"q": q, "k": k, "written": written, "v": v}
    gates = None if gates is None else (gates, 1.0)
    # Without weights, padding tokens have no effect because their keys are zero.
    streams |= {"gates": gates, "weight": weight, "shift": shift}
    return scan_chunks(step, memory, streams, valid=valid, dtype=dtype)


def _previous(table: Array, decay: Any) -> tuple[Array, Any]:
    """Shift D and zeta (N, C, 1), or 1 where nothing is forgotten, to the token before each."""
    table = jnp.pad(table[:, :-1], ((0, 0), (1, 0), (0, 0)))
    if isinstance(decay, float):
        return table, decay
    return table, jnp.pad(decay[:, :-1], ((0, 0), (1, 0), (0, 0)), constant_values=1)


def solve_errors(below: Array, right: Array) -> tuple[Array, Array]:
    """Solve ``(I + below) u = right`` by rows: u (N, C, V), and which rows (N, C) overflow.

    ``below`` (N, C, C) is strictly lower triangular.  A row that overflows is 0 and counts as
    absent in the rows after it.  Its infinity would be NaN times the zeros above the diagonal of
    the inverse, and so in rows before it.  Derivatives are implicit.
    """
    below, right = vary_together((below, right))
    fixed = jax.lax.stop_gradient(below)
    inverse = unit_inverse(fixed)
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


@compile_once  # traced once for the blocks of one size
@in_full_precision
def unit_inverse(below: Array) -> Array:
    """Invert ``I + below``, below (N, C, C) strictly lower triangular, by halving.

    Its products are full float32 whatever the device's default: entries grow from level to level.
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
    first, second = unit_inverse(below[:, :half, :half]), unit_inverse(below[:, half:, half:])
    # [[A, 0], [B, C]]^{-1} = [[A^-1, 0], [-C^-1 B A^-1, C^-1]]
    corner = -jnp.einsum("nab,nbc,ncd->nad", second, below[:, half:, :half], first)
    zero = jnp.zeros((below.shape[0], half, c - half), below.dtype)
    upper = jnp.concatenate([first, zero], -1)
    return jnp.concatenate([upper, jnp.concatenate([corner, second], -1)], 1)
