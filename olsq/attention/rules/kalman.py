"""Gated KalmaNet's rule: a ridge that follows the size of the memory."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.checks import check_number, refuse
from olsq.arrays.questions import ask
from olsq.attention.arguments import check_inputs, per_token
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.linear import gated_linear
from olsq.attention.recurrences.log_gates import split_gates
from olsq.attention.regression import check_regression_inputs, fold_and_clean, frobenius_norms
from olsq.problem import Moments
from olsq.sequence.jax.platform import in_full_precision
from olsq.sequence.jax.solve import online_lstsq
from olsq.solvers import Chebyshev, Solver


@sequence_rule
@in_full_precision
def kalman(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    ratio: ArrayLike = 0.02,
    mix: ArrayLike | None = None,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
    state: Moments | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Moments[Array]]:
    """Gated KalmaNet's rule: :func:`mesa` with a ridge that follows the size of the memory.

    ``Lambda_t = ratio |H_t|_F`` keeps the condition number below ``1 + 1 / ratio``, and
    ``o = G (mix (H + Lambda)^{-1} q + (1 - mix) q)``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  The published code multiplies normalised keys, and
        values, by their weight: give these, or the weight's square as ``weight``.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.
    weight : array, optional
        Sample weights beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite
        or not.
    ratio : float
        Of the ridge to the Frobenius norm of H, finite and > 0.
    mix : array, optional
        Share of the solution against the plain query, in [0, 1], broadcast to (B, T, H).
    solver : Solver, optional
        30 Chebyshev steps from the bounds ``[Lambda, Lambda + |H|_F]`` if None, the paper's: a
        relative error of about 3e-4 at the default ratio.  ``olsq.ChunkExact()`` is exact.
    adjoint : {"implicit", "unrolled"}
        See :func:`olsq.online_lstsq`.
    state : Moments, optional
        As returned for the tokens before; an empty past if None.  Gram
        (B, H, K, K) and cross (B, H, V, K).
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
    state : Moments

    Raises
    ------
    ValueError
        If shapes, gates, weights, ratio or segment ids do not fit.

    Notes
    -----
    The steps are those of the layer that flash-linear-attention has since published, which also
    reads with ``K**-0.5`` of the query: from ``q`` over the middle of those bounds; and gradients
    are those of the solved problem, the ridge's among them.

    The norms come from one more gated linear attention: ``|H_t|^2 = gamma^2 |H_{t-1}|^2 + 2 beta
    k^T H_t k - beta^2 |k|^4``.

    References
    ----------
    Peng et al., "Gated KalmaNet" (2025), arXiv 2511.21016.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.kalman(x, x, x, ratio=1.0)
    >>> [round(float(y), 3) for y in o[0, :, 0, 0]]
    [0.5, 0.5, 0.5]
    """
    ratio = check_number("ratio", ratio, above=0)
    if mix is not None:
        refuse("mix", mix, lambda x: (x < 0) | (x > 1), "lie in [0, 1]")
    streams, options, layout = check_regression_inputs(
        q, k, v, forget, log_forget, weight, segment_ids, state
    )
    tokens, _ = check_inputs(
        q,
        k,
        v,
        forget=forget,
        log_forget=log_forget,
        weight=weight,
        segment_ids=segment_ids,
        state=state,
    )
    if state is not None:  # it may be stored in half precision
        state = Moments(*(jnp.asarray(x, layout.working) for x in state))
    keys, values = tokens.k.shape[-1], tokens.v.shape[-1]
    n = layout.batch * layout.heads
    gram = (
        jnp.zeros((n, keys, keys), layout.working) if state is None else fold_and_clean(state.gram)
    )
    norms = frobenius_norms(tokens, gram)
    # Without any sample, any ridge gives the same output: 0.
    ridge = jnp.where(norms == 0, 1, ratio * norms).reshape(*streams[0].shape[:3], 1)
    # with a traced ratio the bound is the trace of H, which needs more steps
    ratio_bound = ask(ratio, lambda ratio: 1.001 / float(ratio))
    inner_solver: Any = Chebyshev(30, eigenvalue_ratio=ratio_bound) if solver is None else solver
    streams = [x.astype(layout.working) for x in streams]  # rounded once, after the mix
    lost = tokens.sample_lost.reshape(*streams[0].shape[:3], 1)  # the same samples for both
    streams[0] = jnp.where(lost, jnp.nan, streams[0])
    fit = online_lstsq(
        *streams,
        **options,
        ridge=jnp.broadcast_to(ridge, streams[0].shape),
        state=state,
        solver=inner_solver,
        adjoint=adjoint,
    )
    value = fit.value
    if mix is not None:
        # o = mix G x + (1 - mix) G q: the second term is gated linear attention
        share = per_token("mix", mix, layout).reshape(*value.shape[:3], 1)
        cross = (
            jnp.zeros((n, values, keys), layout.working)
            if state is None
            else fold_and_clean(state.cross)
        )
        gates, shift = split_gates(tokens)
        plain, _ = gated_linear(*tokens[:3], gates, tokens.weight, cross, shift=shift)
        plain = plain.reshape(value.shape)
        # replaced, so that NaN does not enter the gradients of earlier tokens
        known = jnp.isfinite(value + plain).all(-1, keepdims=True) & jnp.isfinite(share)
        share, value, plain = (jnp.where(known, x, 0) for x in (share, value, plain))
        value = jnp.where(known, share * value + (1 - share) * plain, jnp.nan)
    return jnp.moveaxis(value, 1, 2).astype(layout.dtype), fit.state


kalman_step = one_token(
    kalman, "forget", "log_forget", "weight", "mix", example="x, x, x, ratio=1.0", gives=0.5
)
