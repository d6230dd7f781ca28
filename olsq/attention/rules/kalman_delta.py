"""Kalman delta: a Kalman filter of the memory that keeps the diagonal of its covariance."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_flag, refuse
from olsq.attention.arguments import (
    check_gates,
    check_inputs,
    check_positive,
    per_head,
    per_token,
)
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.recurrences.variances import filter_variances
from olsq.attention.recurrences.vector_delta import delta_rule_any_gates
from olsq.attention.states import check_state, empty_memory, mark_lost, restore_layout
from olsq.sequence.jax.gates import largest_square
from olsq.sequence.jax.pieces import delay


class KalmanDeltaState(NamedTuple):
    """State of :func:`kalman_delta` between tokens.

    Attributes
    ----------
    matrix : array (B, H, V, K)
        ``S``; a query reads ``S q``.
    covariance : array (B, H, K), or (B, H, 1) if isotropic
        Variances ``1 / c`` of the columns of S, given the tokens so far.
    """

    matrix: Array
    covariance: Array

    __repr__ = brief_repr


@sequence_rule
def kalman_delta(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    drift: ArrayLike = 0.0,
    information: ArrayLike | None = None,
    initial_precision: ArrayLike = 1.0,
    isotropic: bool = False,
    state: KalmanDeltaState | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, KalmanDeltaState]:
    """Kalman delta: ``S = S diag(a) (I - k g^T) + v g^T``, g the gain of a diagonal Kalman filter.

    With ``z = a*a / c + omega``, the gain is ``g = beta z*k / (1 + beta sum(z*k*k))``, and
    ``c = 1 / z + info beta k*k``: the more the tokens have said about a direction, the smaller the
    steps in it; forgetting and drift make them larger again.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs: one per token, broadcast to (B, T, H); or, as four axes, one
        per key dimension, broadcast to (B, T, H, K), as in the paper.  Default 1.  Gates of 0 in
        all dimensions forget everything before their token.
    weight : array, optional
        Sample weights beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite
        or not.  The paper's noise of an observation is ``r = 1 / beta``.
    drift : array
        Variance omega >= 0 by which a token's memory may differ from that before it: one per token,
        broadcast to (B, T, H); or, as four axes, one per key dimension, broadcast to (B, T, H, K).
    information : float or array (H,), optional
        info > 0, how many times a token counts in the precision.  K if None, as in the paper.  1 is
        the filter's own.
    initial_precision : float or array (H,)
        c > 0 before the first token.
    isotropic : bool
        One variance per head: z has the mean of a*a, which takes one ``drift`` per token, and c
        grows by the mean of ``info beta k*k``.
    state : KalmanDeltaState, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on until gates of 0, never before.
    state : KalmanDeltaState

    Raises
    ------
    ValueError
        If shapes, gates, weights, drift, information, precision or segment ids do not fit.

    Notes
    -----
    The variances do not depend on the values: O(T K) in a scan of their own, token by token on a
    CPU.  On an accelerator an associative scan composes the tokens' maps
    ``z -> (x z + y) / (w z + 1)`` of numbers >= 0, in which nothing cancels.  The rest is
    :func:`kda` that writes with g, at its cost.  Differentiable to any order in both modes.

    ``olsq.RecursiveLeastSquares(forget=olsq.forgetting.RandomWalk(omega))`` keeps the whole
    covariance.  With ``information=1`` and without gates this rule is that filter where keys are
    axes; elsewhere it neglects the covariances between columns.

    Checked against the recurrent references of the authors' code (ngocbh/kalman-delta-networks,
    ``diag_kdn_naive.py`` and ``iso_kdn_naive.py``), which read with queries scaled by ``K**-0.5``.

    References
    ----------
    "Kalman Delta Networks: Uncertainty-aware Associative Memory" (2026), arXiv 2609.07816.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.kalman_delta(x, x, x)  # the mean of 0 and three times 1
    >>> o[0, :, 0, 0], state.covariance[0, 0]
    (Array([0.5      , 0.6666667, 0.75     ], dtype=float32), Array([0.25], dtype=float32))
    """
    check_flag("isotropic", isotropic)
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
    width = tokens.k.shape[-1]
    variances = 1 if isotropic else width
    check_positive("initial_precision", initial_precision)
    first = 1 / per_head("initial_precision", initial_precision, layout)[:, None]
    first = jnp.broadcast_to(first, (first.shape[0], variances))
    shape = layout.batch, layout.heads, variances
    zero = empty_memory(layout, tokens.v.shape[-1], width)
    empty = KalmanDeltaState(zero.matrix, first.reshape(shape))
    opened, state_lost = check_state(state, empty, layout)
    refuse("drift", drift, lambda x: x < 0, "be >= 0")
    vector_drift = None if isotropic or jnp.ndim(drift) < 4 else width
    omega = per_token("drift", drift, layout, vector_drift)
    omega = omega if omega.ndim == 3 else omega[..., None]
    if information is not None:
        check_positive("information", information)
    info = per_head("information", width if information is None else information, layout)

    # Variances before each token's write: z = a*a p + omega;  after it p = z / (1 + gain z)
    gates = check_gates(forget, log_forget, layout, width)  # of segments' first tokens too
    gates = jnp.ones_like(omega) if gates is None else jnp.where(jnp.isnan(gates), 1, gates)
    square = (gates if gates.ndim == 3 else gates[..., None]) ** 2
    gain = tokens.k**2
    if isotropic:
        square, gain = (x.mean(-1, keepdims=True) for x in (square, gain))
    strong = tokens.k  # beta k
    if tokens.weight is not None:
        beta = jnp.where(tokens.sample_lost, 0, tokens.weight)[..., None]
        gain, strong = beta * gain, beta * strong
    gain = info[:, None, None] * gain
    # Within these bounds no product with a variance overflows; sums of 2**20 drifts keep them.
    most = largest_square(layout.working) ** 0.5
    fine = (omega <= most / 2**20).all(-1) & (gain <= most).all(-1)
    omega, gain = (jnp.where(fine[..., None], x, 0) for x in (omega, gain))
    square, omega = (jnp.broadcast_to(x, gain.shape) for x in (square, omega))
    if tokens.start is not None:
        start = tokens.start[..., None]
        omega = jnp.where(start, square * first[:, None] + omega, omega)
        square = jnp.where(start, 0, square)
    covariance = filter_variances(square, omega, gain, opened.covariance)
    before = delay(covariance, opened.covariance[:, None])
    z = square * before + omega
    known = (z <= most).all(-1)
    fine, z = fine & known, jnp.where(known[..., None], z, 0)
    # g = beta z*k / (1 + beta sum(z*k*k))
    written = z * strong / (1 + (z * strong * tokens.k).sum(-1, keepdims=True))
    tokens = mark_lost(tokens, ~fine)
    powers, shift = split_gates(tokens)
    out, memory, overflown = delta_rule_any_gates(
        tokens.q, tokens.k, written, tokens.v, powers, None, opened.matrix, shift
    )
    tokens = mark_lost(tokens, overflown)
    last = covariance[:, -1] if layout.length else opened.covariance
    return restore_layout(out, KalmanDeltaState(memory, last), tokens, state_lost, layout)


kalman_delta_step = one_token(
    kalman_delta, "forget", "log_forget", "weight", "drift", example="x, x, x", gives=0.667
)
