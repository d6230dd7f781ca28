"""Linear attention and its scalar- or vector-gated descendants: Hebbian memories."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from olsq.attention._inputs import Tokens, close, open_state, read
from olsq.attention._linear import gated_linear
from olsq.attention._memory import Memory, Normalised, empty
from olsq.attention._steps import step_of
from olsq.attention._vector import vector_gated
from olsq.problem import check_choice

FEATURE_MAPS = ("identity", "elu", "dpfp")


def features(x: Array, feature_map: str, nu: int) -> Array:
    """phi(x) over the last axis: "identity", "elu" (``elu(x) + 1``) or "dpfp" (2 K nu wide)."""
    if feature_map == "identity":
        return x
    if feature_map == "elu":
        return jax.nn.elu(x) + 1
    r = jax.nn.relu(jnp.concatenate([x, -x], -1))
    return jnp.concatenate([r * jnp.roll(r, i, -1) for i in range(1, nu + 1)], -1)


def linear(
    q: Any,
    k: Any,
    v: Any,
    *,
    feature_map: Literal["identity", "elu", "dpfp"] = "identity",
    nu: int = 1,
    normalise: bool = False,
    weight: Any = None,
    state: Memory | Normalised | None = None,
    segment_ids: Any = None,
) -> tuple[Array, Memory | Normalised]:
    """Linear attention: ``S += w v phi(k)^T``, ``o = S phi(q)``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries, keys, values.  Queries are not scaled: give ``q * K**-0.5`` for that variant.
    feature_map : {"identity", "elu", "dpfp"}
        phi, of keys and queries: none, ``elu(x) + 1``, or the deterministic parameter-free
        projection ``concat_i r * roll(r, i)`` of ``r = relu([x, -x])``, 2 K nu features.
    nu : int
        Rolls of "dpfp".
    normalise : bool
        Divide by ``phi(q) . sum w phi(k)``; where that is exactly 0 the output is 0.  No epsilon
        is added.
    weight : array, optional
        Write strengths >= 0, broadcast to (B, T, H).  0 leaves a token out, finite or not.
    state : Memory, or Normalised if ``normalise``, optional
    segment_ids : int array (B, T), optional
        Sequences packed into one row: non-decreasing; nothing passes from one to the next.

    Returns
    -------
    output : array (B, T, H, V)
        In the dtype of q, k, v.  NaN from a non-finite token on, never before.
    state

    Raises
    ------
    ValueError
        If shapes, weights or segment ids do not fit, or the feature map is unknown.

    Notes
    -----
    O(T V K) and O(T C (V + K)), C = 64 a chunk.  Differentiable to any order in both modes.

    References
    ----------
    Katharopoulos et al., "Transformers are RNNs" (2020), eq. 10 to 12; Schlag et al., "Linear
    Transformers Are Secretly Fast Weight Programmers" (2021), eq. 37 (DPFP).

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 2))
    >>> o, state = olsq.attention.linear(x, x, x, normalise=True)
    >>> o[0, :, 0, 0]
    Array([1., 1., 1.], dtype=float32)
    """
    check_choice(feature_map, "feature_map", FEATURE_MAPS)
    if not (isinstance(nu, int) and nu >= 1):
        raise ValueError(f"nu must be a positive integer, got {nu!r}")
    tokens, layout = read(q, k, v, weight=weight, segment_ids=segment_ids, state=state)
    phi_q, phi_k = (features(x, feature_map, nu) for x in (tokens.q, tokens.k))
    width, values = phi_k.shape[-1], tokens.v.shape[-1]
    zero: Any = empty(layout, values, width)
    if normalise:
        mass = jnp.zeros((layout.batch, layout.heads, width), layout.working)
        zero = Normalised(zero.memory, mass)
    opened, lost = open_state(state, zero, layout)
    memory, v = opened.memory, tokens.v
    if normalise:
        v = jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
        memory = jnp.concatenate([memory, opened.normaliser[:, None]], 1)
    out, memory = gated_linear(phi_q, phi_k, v, tokens.forget, tokens.weight, memory)
    if normalise:
        out = divide(out[..., :-1], out[..., -1:])
        return close(out, Normalised(memory[:, :-1], memory[:, -1]), tokens, lost, layout)
    return close(out, Memory(memory), tokens, lost, layout)


def divide(a: Array, b: Array) -> Array:
    """a / b, 0 where b is exactly 0; derivatives are finite there too."""
    return jnp.where(b == 0, 0, a / jnp.where(b == 0, 1, b))


def gla(
    q: Any,
    k: Any,
    v: Any,
    *,
    forget: Any = None,
    log_forget: Any = None,
    weight: Any = None,
    state: Memory | None = None,
    segment_ids: Any = None,
) -> tuple[Array, Memory]:
    """Gated linear attention: ``S = gamma S + beta v k^T`` or ``S = S diag(a) + beta v k^T``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs: one per token, broadcast to (B, T, H), as in the MesaNet
        paper; or, as four axes, one per key dimension, broadcast to (B, T, H, K), as in the GLA
        paper.  Default 1.  A gate of 0 forgets everything before its token.
    weight : array, optional
        Write strengths beta >= 0, broadcast to (B, T, H).  0 leaves a token out, finite or not.
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
    O(T V K) and O(T C (V + K)), C = 64 a chunk; vector gates cost about five times as much.  No
    gate is ever divided by.  Differentiable to any order in both modes, also at gates of 0.

    References
    ----------
    Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training" (2024),
    eq. 3; von Oswald et al., "MesaNet" (2025), eq. 2.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> o, state = olsq.attention.gla(x, x, x, forget=0.5)
    >>> o[0, :, 0, 0]
    Array([1.  , 1.5 , 1.75], dtype=float32)
    """
    tokens, layout = read(
        q, k, v, forget=forget, log_forget=log_forget, weight=weight, segment_ids=segment_ids,
        state=state, vector=True,
    )  # fmt: skip
    return hebbian(tokens, layout, state)


def hebbian(tokens: Tokens, layout: Any, state: Any) -> tuple[Array, Memory]:
    """The memory of checked tokens, whichever gates they have."""
    opened, lost = open_state(state, empty(layout, tokens.v.shape[-1], tokens.k.shape[-1]), layout)
    if tokens.forget is not None and tokens.forget.ndim == 3:
        v = tokens.v if tokens.weight is None else tokens.weight[..., None] * tokens.v
        out, memory = vector_gated(tokens.q, tokens.k, v, tokens.forget, opened.memory)
    else:
        out, memory = gated_linear(*tokens[:5], opened.memory)
    return close(out, Memory(memory), tokens, lost, layout)


def mamba2(
    q: Any,
    k: Any,
    v: Any,
    *,
    forget: Any = None,
    log_forget: Any = None,
    state: Memory | None = None,
    segment_ids: Any = None,
) -> tuple[Array, Memory]:
    """The state space of Mamba-2: ``S = gamma S + v k^T``, one gate per token and head.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        The paper's C, B and ``dt x``: multiply the input by its step size yourself, or use
        :func:`gla` with ``weight=dt``.  The skip ``D x`` is the caller's, too.
    forget, log_forget : array, optional
        Gates ``exp(dt A)`` in [0, 1], or ``dt A``, broadcast to (B, T, H).  Default 1.
    state : Memory, optional
    segment_ids : int array (B, T), optional

    Returns
    -------
    output : array (B, T, H, V)
    state : Memory

    Raises
    ------
    ValueError
        If shapes, gates or segment ids do not fit.

    Notes
    -----
    :func:`gla` with weight 1.

    References
    ----------
    Dao and Gu, "Transformers are SSMs" (2024), section 5.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 2, 1, 1))
    >>> olsq.attention.mamba2(x, x, x, forget=0.5)[0][0, :, 0, 0]
    Array([1. , 1.5], dtype=float32)
    """
    tokens, layout = read(
        q, k, v, forget=forget, log_forget=log_forget, segment_ids=segment_ids, state=state
    )
    return hebbian(tokens, layout, state)


def retention(
    q: Any,
    k: Any,
    v: Any,
    *,
    forget: Any = None,
    state: Memory | None = None,
    segment_ids: Any = None,
) -> tuple[Array, Memory]:
    """Retention: ``S = gamma_h S + v k^T``, one fixed gate per head.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries and keys; the paper's rotation (xPos) and scale ``K**-0.5`` are the caller's.
    forget : array (H,), optional
        Default ``1 - 2**-(5 + h)``, the paper's.
    state : Memory, optional
    segment_ids : int array (B, T), optional

    Returns
    -------
    output : array (B, T, H, V)
    state : Memory

    Raises
    ------
    ValueError
        If shapes, gates or segment ids do not fit.

    References
    ----------
    Sun et al., "Retentive Network" (2023), eq. 5 to 8.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 2, 1, 1))
    >>> olsq.attention.retention(x, x, x)[0][0, :, 0, 0]
    Array([1.     , 1.96875], dtype=float32)
    """
    if forget is None:
        forget = 1 - 2.0 ** -(5 + jnp.arange(jnp.shape(q)[2] if jnp.ndim(q) == 4 else 1))
    elif jnp.ndim(forget) > 1:
        raise ValueError(f"forget must be one gate per head, (H,), got {jnp.shape(forget)}")
    tokens, layout = read(q, k, v, forget=forget, segment_ids=segment_ids, state=state)
    return hebbian(tokens, layout, state)


linear_step = step_of(linear, "weight")
gla_step = step_of(gla, "forget", "log_forget", "weight")
mamba2_step = step_of(mamba2, "forget", "log_forget")
retention_step = step_of(retention)
