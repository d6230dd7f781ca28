"""Mesa: a regression solved at every token by ``olsq.sequence``."""

from __future__ import annotations

from typing import Literal, overload

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.checks import check_flag
from olsq.attention.arguments import check_positive
from olsq.attention.one_token import run_one_token, sequence_rule
from olsq.attention.regression import (
    as_factor,
    check_regression_inputs,
    check_token,
    moments_or_zero,
)
from olsq.attention.signed import signed_lstsq
from olsq.problem import DecodeState, Moments
from olsq.sequence.jax import query, update
from olsq.sequence.jax.inputs import promoted
from olsq.sequence.jax.solve import online_lstsq
from olsq.solvers import Solver


@sequence_rule
def mesa(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    ridge: ArrayLike,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    signed: bool = False,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
    state: Moments | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Moments[Array]]:
    """The Mesa layer's rule: ``o = G (H + Lambda)^{-1} q``, the regression solved at every token.

    ``H = gamma H + beta k k^T``, ``G = gamma G + beta v k^T``, and a ridge that is not forgotten.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.
    ridge : array
        Diagonal of Lambda, > 0: a number, (K,) or (H, K); or (B, T, H, K), one per token.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.
    weight : array, optional
        Sample weights beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite
        or not.
    signed : bool
        ``forget`` may lie in [-1, 1], which lets a head track parity; a log has no sign.  A
        negative gate makes H indefinite: the ridge has to outweigh it (the paper keeps it above
        49).  Where ``H + Lambda`` is not positive definite the output is NaN, at that token only.
    solver : Solver, optional
        ``olsq.ChunkExact()`` if None.  ``olsq.ConjugateGradient(max_steps=0, start="query")`` is
        gated linear attention.  With ``signed`` gates ``olsq.Dense()`` if None, or an
        ``olsq.ConjugateGradient`` without preconditioner, which sees that a system is not positive
        definite only in the directions it takes; others need ``H >= 0`` and are refused.
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
        In the dtype of q, k, v.  NaN from a non-finite token on until a gate of 0, never before.
    state : Moments

    Raises
    ------
    ValueError
        If shapes, gates, weights, ridge, segment ids or the solver do not fit.

    Notes
    -----
    :func:`olsq.online_lstsq` with heads; its stats, costs and derivatives.  The derivatives through
    ``olsq.Dense`` with signed gates are implicit whatever ``adjoint`` says: it is exact.  For wide
    keys ``ConjugateGradient(tol=1e-6)`` costs a fraction of it where the ridge is large, on a CPU
    a sixth at K = 64.

    References
    ----------
    von Oswald et al., "MesaNet" (2025), eq. 4 to 6, and appendix H for signed gates.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.mesa(x, x, x, ridge=1.0)
    >>> [round(float(y), 3) for y in o[0, :, 0, 0]]
    [0.5, 0.667, 0.75]
    """
    check_positive("ridge", ridge)
    streams, options, layout = check_regression_inputs(
        q, k, v, forget, log_forget, weight, segment_ids, state, signed=signed
    )
    if jnp.ndim(ridge) == 4:
        ridge = jnp.moveaxis(jnp.asarray(ridge), 2, 1)
    options = {**options, "ridge": ridge, "state": state, "solver": solver, "adjoint": adjoint}
    fit = (signed_lstsq if signed else online_lstsq)(*streams, **options)
    return jnp.moveaxis(fit.value, 1, 2).astype(layout.dtype), fit.state


@overload
def mesa_step(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    ridge: ArrayLike,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike = 1.0,
    signed: bool = False,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
    state: Moments | None = None,
) -> tuple[Array, Moments[Array]]: ...
@overload
def mesa_step(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike = 1.0,
    state: DecodeState,
) -> tuple[Array, DecodeState[Array]]: ...
@sequence_rule
def mesa_step(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    ridge: ArrayLike | None = None,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike = 1.0,
    signed: bool = False,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
    state: Moments | DecodeState | None = None,
) -> tuple[Array, Moments[Array] | DecodeState[Array]]:
    """Run :func:`mesa` on one token: absorb it, then solve for its query.

    Parameters
    ----------
    q, k, v : array (B, H, K), (B, H, K), (B, H, V)
    ridge : array
        A number, (K,), (H, K) or (B, H, K), > 0; None with a DecodeState, which has its own.
    forget, log_forget, weight : array (B, H) or what broadcasts to it, optional
        As for :func:`mesa`.
    signed : bool
        As for :func:`mesa`; the state is Moments, because a factor needs a definite gram.
    solver : Solver, optional
        As for :func:`mesa`, e.g. the truncated one that a sequence was prefilled with.  None
        solves exactly.
    adjoint : {"implicit", "unrolled"}
        As for :func:`mesa`.
    state : Moments or DecodeState, optional
        ``olsq.sequence.start_decoding(moments, ridge=ridge)`` carries a factor from token to
        token: O(K^2) where Moments cost O(K^3).

    Returns
    -------
    output : array (B, H, V)
    state : as given

    Raises
    ------
    ValueError
        If shapes, the gate, the weight or the ridge do not fit.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 1, 1))
    >>> o, state = olsq.attention.mesa_step(x, x, x, ridge=1.0)
    >>> round(float(o[0, 0, 0]), 3)
    0.5
    """
    if solver is not None or check_flag("signed", signed):
        return run_one_token(
            mesa,
            {"q": q, "k": k, "v": v},
            {"forget": forget, "log_forget": log_forget, "weight": weight},
            ridge=ridge,
            signed=signed,
            solver=solver,
            adjoint=adjoint,
            state=state,
        )
    q, k, v = check_token(q, k, v)
    if isinstance(state, DecodeState):
        decoding = update(state, k, v, forget=as_factor(forget, log_forget, False), weight=weight)
        return query(decoding, q).astype(promoted(q, k, v)), decoding
    if ridge is None:
        raise ValueError("ridge is needed, unless the state is a DecodeState")
    check_positive("ridge", ridge)
    moments = moments_or_zero(state, k, v)
    moments = update(moments, k, v, forget=as_factor(forget, log_forget, False), weight=weight)
    return query(moments, q, ridge=ridge).astype(promoted(q, k, v)), moments
