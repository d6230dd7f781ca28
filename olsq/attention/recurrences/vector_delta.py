"""``S_t = S_{t-1} diag(a_t) + u_t w_t^T + v_t k_t^T``, ``u_t = x_t - S_{t-1} r_t``, by chunks.

Delta rules with a gate for each key dimension.  The error u is of the memory before the token's
gates; where a rule takes it after them, r is the key times the gates.  Inside a chunk, with scores
that :mod:`olsq.attention.recurrences.vector` makes of products of gates alone, A[t, i] of readers
that see the memory before their token (i < t), Z of those that see it after (i <= t)::

    (I + A_rw) U = X - (R * g) S_0^T - A_rk V,    O = Z_qw U + Z_qk V + (Q * g) S_0^T,

g the gates from the start of the chunk to what is read.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences.chunked import ChunkedRule, run_chunks
from olsq.attention.recurrences.delta import (
    Errors,
    Reads,
    advance,
    delta_rule,
    has_unsolved,
    run_pieces,
    solve_ahead,
)
from olsq.attention.recurrences.delta import read as read_errors
from olsq.attention.recurrences.log_gates import leave_units, shifts_before
from olsq.attention.recurrences.vector import scores_and_reach, widest_array
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.pieces import cut_into_pieces, pieces_of


def delta_rule_any_gates(
    q: Array,
    k: Array,
    written: Array,
    v: Array,
    gates: Any,
    weight: Any,
    memory: Array,
    shift: Any = None,
) -> tuple[Array, Array, Array]:
    """Run the delta rule for gates (N, T), (N, T, K) or None:
    ``u_t = beta_t (v_t - S_{t-1} diag(a_t) k_t)``.

    Returns what :func:`~olsq.attention.recurrences.delta.delta_rule` does.
    ``gates`` and ``shift`` are those of :func:`~olsq.attention.recurrences.log_gates.split_gates`.
    """
    if gates is None or gates.ndim == 2:
        return delta_rule(q, k, written, v, gates, weight, memory, shift=shift)
    beta = 1.0 if weight is None else weight[..., None]
    # diag(a_t) from the units of the token before to the token's own
    faded = gates if shift is None else gates * jnp.exp(shift - shifts_before(shift))
    return vector_delta(q, beta * faded * k, written, beta * v, gates, memory, shift=shift)


@compile_once
def vector_delta(
    q: Array,
    read: Array,
    written: Array,
    target: Array | None,
    gates: Array,
    memory: Array,
    added: tuple[Array, Array] | None = None,
    shift: Any = None,
) -> tuple[Array, Array, Array]:
    """Run the delta rule with vector gates (N, T, K): outputs (N, T, V), last memory (N, V, K), and
    which tokens (N, T) were left out because their errors overflow.

    ``read`` is r, ``written`` w, ``target`` x (0 if None), ``added`` the pair k, v (none if None);
    ``gates`` and ``shift`` are those of :func:`~olsq.attention.recurrences.log_gates.split_gates`.
    """
    if shift is not None:
        scale = jnp.exp(shift)
        q, read, written = scale * q, jnp.exp(shifts_before(shift)) * read, written / scale
        added = None if added is None else (added[0] / scale, added[1])
    pieces = pieces_of(q.shape[1])
    k, v = (None, None) if added is None else added
    q, read, written, gates = (cut_into_pieces(x, pieces) for x in (q, read, written, gates))
    target, k, v = (None if x is None else cut_into_pieces(x, pieces) for x in (target, k, v))
    streams: dict[str, Any] = {"q": q, "read": read, "written": written, "k": k}
    streams["gates"] = (gates, 1.0)
    rule = ChunkedRule(_prepare, advance, read_errors, fails=has_unsolved)

    def run(targets: Any, memory: Array) -> tuple[tuple[Array, Array], Array]:
        target, v = targets
        now = {**streams, "target": target, "v": v}
        return run_chunks(rule, memory, now, widest_array(*memory.shape[1:]))

    out, overflown, last = run_pieces(run, (target, v), memory, pieces)
    return out, leave_units(last, shift), overflown


def _prepare(x: Any, at_once: bool) -> tuple[Errors, Reads]:
    """Prepare chunks: scores of all readers with all keys, and the gates between them."""
    added = x["k"] is not None
    keys = [x["written"], x["k"]] if added else [x["written"]]
    readers = [(x["q"], False), (x["read"], True)]
    (scores, below), (upto, reach), after = scores_and_reach(readers, keys, x["gates"], at_once)
    # (I + A_rw) U = X - (R * g) S_0^T - A_rk V;  O = Z_qw U + Z_qk V + (Q * g) S_0^T
    aim = x["target"]
    if added:
        own = jnp.einsum("nti,niv->ntv", below[1], x["v"])
        aim = -own if aim is None else aim - own
    errors = Errors(
        aim=aim,
        keys=x["read"] * reach,
        written=x["written"] * after,
        decay=(x["gates"][:, 0] * after[:, 0])[:, None],
        added=jnp.einsum("niv,nik->nvk", x["v"], x["k"] * after) if added else None,
        below=below[0],
    )
    own = jnp.einsum("nti,niv->ntv", scores[1], x["v"]) if added else None
    reads = Reads(x["q"] * upto, scores[0], added=own)
    return solve_ahead(errors) if at_once else errors, reads
