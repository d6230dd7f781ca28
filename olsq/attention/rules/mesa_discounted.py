"""Recursive least squares as attention: the Mesa layer's rule with a ridge that is forgotten."""

from __future__ import annotations

from typing import Any, Literal, overload

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.attention.arguments import check_positive
from olsq.attention.one_token import run_one_token, sequence_rule
from olsq.attention.regression import (
    as_factor,
    check_regression_inputs,
    check_token,
    moments_or_zero,
    remaining_ridge,
    spare_ridge,
)
from olsq.problem import DecodeState, Moments
from olsq.sequence.jax import query, update
from olsq.sequence.jax.inputs import promoted
from olsq.sequence.jax.solve import online_lstsq
from olsq.solvers import Solver


@sequence_rule
def mesa_discounted(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    ridge: ArrayLike | None = None,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
    state: Moments | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Moments[Array]]:
    """Recursive least squares as attention: :func:`mesa` with a ridge forgotten like the data.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.
    ridge : array
        Diagonal of the ridge before the first token, > 0: a number, (K,) or (H, K).  With a state,
        which holds its own, only for the segments after the first, and None without segments.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.  After a gate of exactly 0 there is no ridge left, and no
        unique solution until K tokens came: outputs are NaN until then, and with ``segment_ids``
        until the next segment, which starts with its ridge.
    weight : array, optional
        Sample weights beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite
        or not.
    solver : Solver, optional
        ``olsq.ChunkExact()`` if None; see "Choosing a solver" in the documentation.
    adjoint : {"implicit", "unrolled"}
        See :func:`olsq.online_lstsq`.
    state : Moments, optional
        As returned for the tokens before; an empty past if None.  Its gram holds what is left of
        the ridge.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
    state : Moments

    Raises
    ------
    ValueError
        If shapes, gates, weights, ridge or segment ids do not fit.

    Notes
    -----
    Online Newton's method: ``Phi = Phi + beta (v - Phi k) (H^{-1} k)^T``, where DeltaNet steps
    along k.

    References
    ----------
    von Oswald et al., "MesaNet" (2025), eq. 17 to 24; "Uncovering mesa-optimization algorithms in
    Transformers" (2023), eq. 8.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.mesa_discounted(x, x, x, ridge=1.0, forget=0.5)
    >>> [round(float(y), 3) for y in o[0, :, 0, 0]]
    [0.667, 0.857, 0.933]
    """
    if ridge is not None:
        check_positive("ridge", ridge)
    streams, options, layout = check_regression_inputs(
        q, k, v, forget, log_forget, weight, segment_ids, state
    )
    options = {**options, "state": state, "solver": solver, "adjoint": adjoint}
    if segment_ids is None:
        fit = online_lstsq(*streams, ridge=ridge, ridge_mode="discounted", **options)
        return jnp.moveaxis(fit.value, 1, 2).astype(layout.dtype), fit.state
    # Every segment starts with its own ridge: it is the fixed problem with a ridge per token.
    if ridge is None:
        raise ValueError("ridge is needed with segment_ids: every segment starts with it")
    left, first, gone = remaining_ridge(forget, log_forget, segment_ids, layout)
    keys = streams[0].shape[-1]
    each = jnp.broadcast_to(jnp.asarray(ridge, layout.working), (layout.heads, keys))
    begins, token_ridge, eye = each, each[:, None], jnp.eye(keys, dtype=layout.working)
    if state is not None:  # tokens that continue the state have their ridge in its gram
        begins = spare_ridge(jnp.asarray(state.gram, layout.working))[..., None]
        token_ridge = jnp.where(first[..., None], begins[..., None], token_ridge)
        options["state"] = state._replace(gram=state.gram - begins[..., None] * eye)
    ridges = left[..., None] * token_ridge
    fit = online_lstsq(*streams, ridge=jnp.where(gone[..., None], token_ridge, ridges), **options)
    value = jnp.where(gone[..., None], jnp.nan, fit.value)
    held = jnp.where(gone[..., None], 0, ridges)[:, :, -1] if layout.length else begins
    gram = fit.state.gram + held[..., None] * eye
    return jnp.moveaxis(value, 1, 2).astype(layout.dtype), fit.state._replace(gram=gram)


@overload
def mesa_discounted_step(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    ridge: ArrayLike | None = None,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike = 1.0,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
    state: Moments | None = None,
) -> tuple[Array, Moments[Array]]: ...
@overload
def mesa_discounted_step(
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
def mesa_discounted_step(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    ridge: ArrayLike | None = None,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike = 1.0,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
    state: Moments | DecodeState | None = None,
) -> tuple[Array, Moments[Array] | DecodeState[Array]]:
    """Run :func:`mesa_discounted` on one token; see :func:`mesa_step`.

    Parameters
    ----------
    q, k, v : array (B, H, K), (B, H, K), (B, H, V)
    ridge : array
        A number, (K,) or (H, K), > 0, with the first token only; a state holds it.
    forget, log_forget, weight : array (B, H) or what broadcasts to it, optional
        As for :func:`mesa_discounted`.
    solver : Solver, optional
        As for :func:`mesa_discounted`, with Moments.  None solves exactly.
    adjoint : {"implicit", "unrolled"}
        As for :func:`mesa_discounted`.
    state : Moments or DecodeState, optional

    Returns
    -------
    output : array (B, H, V)
    state : as given

    Raises
    ------
    ValueError
        If shapes do not fit, or the ridge is given with a state or not given without.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 1, 1))
    >>> o, state = olsq.attention.mesa_discounted_step(x, x, x, ridge=1.0)
    >>> o, state = olsq.attention.mesa_discounted_step(x, x, x, state=state)
    >>> round(float(o[0, 0, 0]), 3)
    0.667
    """
    if solver is not None:
        return run_one_token(
            mesa_discounted,
            {"q": q, "k": k, "v": v},
            {"forget": forget, "log_forget": log_forget, "weight": weight},
            ridge=ridge,
            solver=solver,
            adjoint=adjoint,
            state=state,
        )
    q, k, v = check_token(q, k, v)
    if (ridge is None) == (state is None):
        raise ValueError("give ridge with the first token and state with the others")
    if state is None:
        check_positive("ridge", ridge)
        state = moments_or_zero(None, k, v)
        held = jnp.broadcast_to(jnp.asarray(ridge, state.gram.dtype), state.gram.shape[:-1])
        state = state._replace(gram=held[..., None] * jnp.eye(held.shape[-1], dtype=held.dtype))
    now: Any = state
    now = update(now, k, v, forget=as_factor(forget, log_forget), weight=weight)
    return query(now, q).astype(promoted(q, k, v)), now
