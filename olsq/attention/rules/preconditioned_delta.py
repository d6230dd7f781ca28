"""The delta rule whose written keys are scaled by their curvature."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_number, refuse
from olsq.attention.arguments import check_gates, check_inputs, check_weight, is_writable, per_token
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.linear import accumulate_gated
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.recurrences.vector_delta import delta_rule_any_gates
from olsq.attention.states import check_state, empty_memory, mark_lost, reset_mask, restore_layout
from olsq.sequence.jax.gates import lost_tokens


class PreconditionedState(NamedTuple):
    """State of :func:`preconditioned_delta`.

    Attributes
    ----------
    matrix : array (B, H, V, K)
    curvature : array (B, H, K)
        Diagonal of the keys' gram, forgotten at its own rate.
    """

    matrix: Array
    curvature: Array

    __repr__ = brief_repr


@sequence_rule
def preconditioned_delta(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    curvature_forget: ArrayLike | None = None,
    curvature_weight: ArrayLike | None = None,
    base: float = 1.5,
    eps: float = 1e-6,
    center: ArrayLike = -0.2,
    state: PreconditionedState | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, PreconditionedState]:
    """Preconditioned (gated) DeltaNet: the written key is scaled by the keys' curvature.

    ``a = c a + d k*k``, ``M = base ** (-s / (1 + |s|))`` with ``s = log(a + eps) - center``, and
    ``S = gamma S (I - beta k (M k)^T) + beta v (M k)^T``: directions that keys have often used are
    written to with smaller steps.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  The published code normalises q and k and scales q.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs: one per token, broadcast to (B, T, H); or, as four axes, one
        per key dimension, broadcast to (B, T, H, K), which is Preconditioned KDA.  Default 1.
        Gates of 0 in all dimensions forget everything before their token.
    weight : array, optional
        Step sizes beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite or
        not.
    curvature_forget, curvature_weight : array, optional
        c in [0, 1] and d >= 0 of the curvature, broadcast to (B, T, H).  Default 1.
    base, eps : float
        The scaling lies between ``1 / base`` and ``base``.
    center : float, or array (H,) or (B, T, H)
        The scaling is 1 at a curvature of ``exp(center)``.  For a plain inverse,
        ``M = 1 / (a + ridge)``, write with :func:`gated_delta` after scaling the keys yourself.
    state : PreconditionedState, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
    state : PreconditionedState

    Raises
    ------
    ValueError
        If shapes, gates, weights, center or segment ids do not fit.

    Notes
    -----
    The squashed scaling is that of the paper's released code.  A weight of 0 leaves a token out of
    the memory and of the curvature.

    References
    ----------
    Tumma et al., "Preconditioned DeltaNet" (2026).

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 2, 1, 1))
    >>> o, state = olsq.attention.preconditioned_delta(x, x, x, weight=0.5)
    >>> state.curvature[0, 0]
    Array([2.], dtype=float32)
    """
    tokens, layout = check_inputs(
        q,
        k,
        v,
        forget=forget,
        log_forget=log_forget,
        weight=weight,
        segment_ids=segment_ids,
        state=state,
        vector=True,
    )
    keys, values = tokens.k.shape[-1], tokens.v.shape[-1]
    zero = empty_memory(layout, values, keys)
    flat = jnp.zeros((layout.batch, layout.heads, keys), layout.working)
    opened, state_lost = check_state(state, PreconditionedState(zero.matrix, flat), layout)
    base = check_number("base", base, above=0)
    eps = check_number("eps", eps, least=0)
    refuse("center", center, lambda c: ~np.isfinite(c), "be finite")
    rate = check_gates(curvature_forget, None, layout, name="curvature_forget")
    learn = check_weight("curvature_weight", curvature_weight, layout)
    learn = jnp.ones(tokens.sample_lost.shape, layout.working) if learn is None else learn
    square = (tokens.k**2).sum(-1)
    unknown = ~(jnp.isfinite(learn) & is_writable(square, square, learn))
    unknown = unknown if rate is None else unknown | jnp.isnan(rate)
    tokens = mark_lost(tokens, unknown)
    learn, rate = (
        jnp.where(unknown, 0, learn),
        None if rate is None else jnp.where(unknown, 1, rate),
    )
    if tokens.weight is not None:
        learn = jnp.where(tokens.weight == 0, 0, learn)
    if tokens.start is not None:
        rate = jnp.where(tokens.start, 0, 1 if rate is None else rate).astype(layout.working)
    squares, curvature = accumulate_gated(tokens.k**2, rate, learn, opened.curvature)
    # M = base^(-s / (1 + |s|)), s = log(a + eps) - center
    s = jnp.log(squares + eps) - per_token("center", center, layout)[..., None]
    scaling = base ** (-s / (1 + jnp.abs(s)))
    gates, shift = split_gates(tokens)
    out, memory, overflown = delta_rule_any_gates(
        tokens.q, tokens.k, scaling * tokens.k, tokens.v, gates, tokens.weight, opened.matrix, shift
    )
    output_lost = None
    if layout.length:
        # After a reset the memory is still written with the scaling, so a lost scaling ends only
        # with a reset of its own.
        never = jnp.zeros_like(tokens.sample_lost)
        scaling_lost = lost_tokens(
            tokens.sample_lost, never if rate is None else rate == 0, state_lost
        )
        sample_lost = tokens.sample_lost | scaling_lost | overflown
        reach = lost_tokens(sample_lost, reset_mask(tokens), state_lost)
        output_lost = reach, reach[:, -1]
    return restore_layout(
        out, PreconditionedState(memory, curvature), tokens, state_lost, layout, output_lost
    )


preconditioned_delta_step = one_token(
    preconditioned_delta,
    "forget",
    "log_forget",
    "weight",
    "curvature_forget",
    "curvature_weight",
    "center",
    example="x, x, x, weight=0.5",
    gives=0.687,
)
