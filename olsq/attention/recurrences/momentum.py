"""``M_t = mu_t M_{t-1} + u_t k_t^T``, ``S_t = alpha_t S_{t-1} + beta_t M_t``, by chunks.

The errors are ``u_t = v_t - S_{t-1} p_t``.  With A and C the tables of products of alpha and of mu
as in :mod:`linear`, and zeta, theta those from the chunk's start, a write of token i reaches S_t by
G[t, i], and the momentum before the chunk by b_t::

    G = A diag(beta) C,    b = A diag(beta) theta,
    S_t = zeta_t S_0 + b_t M_0 + sum_i G[t, i] u_i k_i^T,
    M_t = theta_t M_0 + sum_i C[t, i] u_i k_i^T

So a chunk is the delta rule's system for a memory [S, M] of 2 K columns, with G, zeta and b of the
token before in the errors.  No gate is divided by.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.attention.recurrences import delta
from olsq.attention.recurrences.chunked import ChunkedRule, run_chunks
from olsq.attention.recurrences.linear import gate_tables
from olsq.sequence.jax.control import compile_once
from olsq.sequence.jax.pieces import cut_into_pieces, pieces_of


@compile_once
def momentum_delta_rule(
    q: Array,
    read: Array,
    written: Array,
    v: Array,
    gates: Array,
    step_sizes: Array,
    memory: Array,
) -> tuple[Array, Array, Array]:
    """Run the delta rule with momentum: outputs (N, T, V), the last memory (N, V, 2 K), and a mask
    (N, T) of the tokens that were left out because their errors overflow.

    ``read`` is p and ``written`` k, both (N, T, K); ``gates`` (N, T, 2) are alpha and mu,
    ``step_sizes`` (N, T) beta, and ``memory`` has S and M side by side.
    """
    pieces = pieces_of(q.shape[1])
    q, read, written, v, gates, step_sizes = (
        cut_into_pieces(x, pieces) for x in (q, read, written, v, gates, step_sizes)
    )

    streams: dict[str, Any] = {"q": q, "read": read, "k": written}
    streams |= {"gates": (gates, 1.0), "step": step_sizes}
    rule = ChunkedRule(_prepare, _advance, delta.read, fails=lambda x: delta.has_unsolved(x[0]))

    def run(v: Array, memory: Array) -> tuple[tuple[Array, Array], Array]:
        return run_chunks(rule, memory, {**streams, "v": v}, delta.widest_array(*memory.shape[1:]))

    out, overflown, last = delta.run_pieces(run, v, memory, pieces)
    return out, last, overflown


def _prepare(x: Any, at_once: bool) -> tuple[tuple[delta.Errors, Array], delta.Reads]:
    """Prepare chunks; what the momentum before a chunk adds to S at its end, (N,), comes along."""
    q, p, k = x["q"], x["read"], x["k"]
    size = k.shape[1]
    keep, zeta = gate_tables(x["gates"][..., 0], None, size, k.dtype)
    carry, theta = gate_tables(x["gates"][..., 1], None, size, k.dtype)
    # [G, b] = A diag(beta) [C, theta]
    moved = x["step"][..., None] * jnp.concatenate([carry, theta[..., None]], -1)
    moved = jnp.einsum("ntj,nji->nti", keep, moved, precision="highest")
    reach, drift = moved[..., :size], moved[..., size:]
    zeta, theta = zeta[..., None], theta[..., None]
    before, zeta_before = delta.previous(reach, zeta)
    drift_before = delta.previous(drift, None)[0]
    below = jnp.tril(before * jnp.einsum("ntk,nik->nti", p, k), -1)
    scores = reach * jnp.einsum("ntk,nik->nti", q, k)
    last = (
        jnp.broadcast_to(zeta[:, -1:], k[:, :1].shape),
        jnp.broadcast_to(theta[:, -1:], k[:, :1].shape),
    )
    errors = delta.Errors(
        aim=x["v"],
        keys=jnp.concatenate([zeta_before * p, drift_before * p], -1),
        written=jnp.concatenate([reach[:, -1, :, None] * k, carry[:, -1, :, None] * k], -1),
        decay=jnp.concatenate(last, -1),
        below=below,
    )
    reads = delta.Reads(jnp.concatenate([zeta * q, drift * q], -1), scores)
    return (delta.solve_ahead(errors) if at_once else errors, drift[:, -1, 0]), reads


def _advance(memory: Array, prepared: tuple[delta.Errors, Array]) -> tuple[Array, Any]:
    """Compute S and M after a chunk: S also moves along the momentum before it."""
    errors, drift = prepared
    after, passed = delta.advance(memory, errors)
    momentum = jnp.split(memory, 2, -1)[1]
    moved = drift[:, None, None] * momentum
    return after + jnp.concatenate([moved, jnp.zeros_like(moved)], -1), passed
