"""Delta rules: each token corrects what the memory already says about its key."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from olsq.attention.arguments import check_gates, check_weight, close, open_state, read, resets
from olsq.attention.recurrences.delta import delta_rule
from olsq.attention.recurrences.linear import gated_linear
from olsq.attention.states import Memory, empty
from olsq.attention.steps import step_of
from olsq.sequence.jax.gates import lost_tokens
from olsq.sequence.jax.signs import unsigned


class PreconditionedState(NamedTuple):
    """State of :func:`preconditioned_delta`.

    Attributes
    ----------
    memory : array (B, H, V, K)
    curvature : array (B, H, K)
        Diagonal of the keys' gram, forgotten at its own rate.
    """

    memory: Any
    curvature: Any


def gated_delta(
    q: Any,
    k: Any,
    v: Any,
    *,
    forget: Any = None,
    log_forget: Any = None,
    weight: Any = None,
    signed: bool = False,
    state: Memory | None = None,
    segment_ids: Any = None,
) -> tuple[Array, Memory]:
    """Gated DeltaNet: ``S = gamma S (I - beta k k^T) + beta v k^T``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  The rule is stable for ``beta |k|^2 <= 2``: normalise
        the keys.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.
    weight : array, optional
        Step sizes beta >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite or
        not; 1 with ``|k| = 1`` replaces what the memory said about k.
    signed : bool
        ``forget`` may lie in [-1, 1]: a negative gate also turns the memory round, which lets a
        head track parity.  Given as ``forget``; a log has no sign.
    state : Memory, optional
    segment_ids : int array (B, T), optional
        Sequences packed into one row: non-decreasing; nothing passes from one to the next.

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on until a gate of 0, never before.
    state : Memory

    Raises
    ------
    ValueError
        If shapes, gates, weights or segment ids do not fit.

    Notes
    -----
    One triangular inverse a chunk of C = 64: O(T (V K + C (V + K) + C^2 / 3)).  Differentiable to
    any order in both modes.

    References
    ----------
    Yang et al., "Gated Delta Networks" (2025), eq. 10; Yang et al., "Parallelizing Linear
    Transformers with the Delta Rule over Sequence Length" (2024) for the chunk form.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.gated_delta(x, x, x, weight=0.5)
    >>> o[0, :, 0, 0]
    Array([0.5  , 0.75 , 0.875], dtype=float32)
    """
    tokens, layout = read(
        q, k, v, forget=forget, log_forget=log_forget, weight=weight, segment_ids=segment_ids,
        state=state, signed=signed,
    )  # fmt: skip
    tokens, turned = unsigned(tokens) if signed else (tokens, None)
    opened, lost = open_state(state, empty(layout, tokens.v.shape[-1], tokens.k.shape[-1]), layout)
    out, memory = delta_rule(
        tokens.q, tokens.k, tokens.k, tokens.v, tokens.forget, tokens.weight, opened.memory
    )
    memory = memory if turned is None else memory * turned
    return close(out, Memory(memory), tokens, lost, layout)


def delta(
    q: Any,
    k: Any,
    v: Any,
    *,
    weight: Any = None,
    state: Memory | None = None,
    segment_ids: Any = None,
) -> tuple[Array, Memory]:
    """DeltaNet: ``S = S (I - beta k k^T) + beta v k^T``, one gradient step a token.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
    weight : array, optional
        Step sizes beta >= 0, broadcast to (B, T, H).
    state : Memory, optional
    segment_ids : int array (B, T), optional

    Returns
    -------
    output : array (B, T, H, V)
    state : Memory

    Raises
    ------
    ValueError
        If shapes, weights or segment ids do not fit.

    Notes
    -----
    :func:`gated_delta` without gates.  The step descends ``|v - S k|^2 / 2`` from the state before
    the token, by beta.

    References
    ----------
    Schlag et al., "Linear Transformers Are Secretly Fast Weight Programmers" (2021), eq. 24.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 2, 1, 1))
    >>> olsq.attention.delta(x, x, x, weight=0.5)[0][0, :, 0, 0]
    Array([0.5 , 0.75], dtype=float32)
    """
    return gated_delta(q, k, v, weight=weight, state=state, segment_ids=segment_ids)


def preconditioned_delta(
    q: Any,
    k: Any,
    v: Any,
    *,
    forget: Any = None,
    log_forget: Any = None,
    weight: Any = None,
    curvature_forget: Any = None,
    curvature_weight: Any = None,
    base: float = 1.5,
    center: float = -0.2,
    eps: float = 1e-6,
    state: PreconditionedState | None = None,
    segment_ids: Any = None,
) -> tuple[Array, PreconditionedState]:
    """Preconditioned (gated) DeltaNet: the written key is scaled by the keys' curvature.

    ``a = c a + d k*k``, ``M = base ** (-s / (1 + |s|))`` with ``s = log(a + eps) - center``, and
    ``S = gamma S (I - beta k (M k)^T) + beta v (M k)^T``: directions that keys have often used are
    written to with smaller steps.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        As for :func:`gated_delta`; the published code normalises q and k and scales q.
    forget, log_forget, weight : array, optional
        Of the memory, as for :func:`gated_delta`.
    curvature_forget, curvature_weight : array, optional
        c in [0, 1] and d >= 0 of the curvature, broadcast to (B, T, H).  Default 1.
    base, center, eps : float
        The scaling lies between ``1 / base`` and ``base``, and is 1 at a curvature of
        ``exp(center)``.  For a plain inverse, ``M = 1 / (a + ridge)``, write with
        :func:`gated_delta` after scaling the keys yourself.
    state : PreconditionedState, optional
    segment_ids : int array (B, T), optional

    Returns
    -------
    output : array (B, T, H, V)
    state : PreconditionedState

    Raises
    ------
    ValueError
        If shapes, gates, weights or segment ids do not fit.

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
    tokens, layout = read(
        q, k, v, forget=forget, log_forget=log_forget, weight=weight, segment_ids=segment_ids,
        state=state,
    )  # fmt: skip
    keys, values = tokens.k.shape[-1], tokens.v.shape[-1]
    zero = empty(layout, values, keys)
    flat = jnp.zeros((layout.batch, layout.heads, keys), layout.working)
    opened, lost = open_state(state, PreconditionedState(zero.memory, flat), layout)
    rate = check_gates(curvature_forget, None, layout, name="curvature_forget")
    learn = check_weight("curvature_weight", curvature_weight, layout)
    learn = jnp.ones(tokens.bad.shape, layout.working) if learn is None else learn
    unknown = ~jnp.isfinite(learn) if rate is None else ~jnp.isfinite(learn) | jnp.isnan(rate)
    tokens = tokens._replace(bad=tokens.bad | unknown)
    learn, rate = (
        jnp.where(unknown, 0, learn),
        None if rate is None else jnp.where(unknown, 1, rate),
    )
    if tokens.weight is not None:
        learn = jnp.where(tokens.weight == 0, 0, learn)
    if tokens.start is not None:
        rate = jnp.where(tokens.start, 0, 1 if rate is None else rate).astype(layout.working)
    squares, curvature = accumulate(tokens.k**2, rate, learn, opened.curvature)
    s = jnp.log(squares + eps) - center
    scaling = base ** (-s / (1 + jnp.abs(s)))
    out, memory = delta_rule(
        tokens.q, tokens.k, scaling * tokens.k, tokens.v, tokens.forget, tokens.weight,
        opened.memory,
    )  # fmt: skip
    spoilt = None
    if layout.length:
        # A memory that is reset is still written to by the curvature: that has to be reset first.
        never = jnp.zeros_like(tokens.bad)
        scaling_lost = lost_tokens(tokens.bad, never if rate is None else rate == 0, lost)
        reach = lost_tokens(tokens.bad | scaling_lost, resets(tokens), lost)
        spoilt = reach, reach[:, -1]
    return close(out, PreconditionedState(memory, curvature), tokens, lost, layout, spoilt)


def accumulate(x: Array, gates: Any, weight: Any, start: Array) -> tuple[Array, Array]:
    """``a_t = c_t a_{t-1} + d_t x_t`` for every t, (N, T, K), and the last, (N, K)."""
    one = jnp.ones_like(x[..., :1])
    out, last = gated_linear(one, one, x, gates, weight, start[..., None])
    return out, last[..., 0]


gated_delta_step = step_of(gated_delta, "forget", "log_forget", "weight")
delta_step = step_of(delta, "weight")
preconditioned_delta_step = step_of(
    preconditioned_delta, "forget", "log_forget", "weight", "curvature_forget", "curvature_weight"
)
