"""Mesa layer of the thesis: its recursions, its memory-free gradient, its Neumann series."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import check_number, check_sizes
from olsq.attention import mesa_discounted
from olsq.icl.weights import AttentionWeights, check_weights, finite, floating, shaped


def mesa_update(tokens: Any, weights: AttentionWeights, *, ridge: Any, forget: Any = None) -> Array:
    """Compute what a mesa layer adds to every token: ``sum_h P_h W_ht q_ht``, W_ht fitted at every
    t.

    ``W_ht`` minimises ``1/2 sum_{i<=t} zeta_ti |v_hi - W k_hi|^2 + zeta_t0 ridge_h/2 |W|^2`` with
    ``zeta_ti`` the product of the gates i + 1 to t.

    Parameters
    ----------
    tokens : array (..., T, D)
    weights : AttentionWeights
    ridge : float or array (H,)
        The thesis' ``1 / lambda_h``, > 0.
    forget : array, optional
        Gates in [0, 1], broadcast to (..., T, H); 1 if None.

    Returns
    -------
    array (..., T, D)

    Raises
    ------
    ValueError
        If shapes, the ridge or the gates do not fit.

    Notes
    -----
    Source: J. von Oswald et al., "Uncovering mesa-optimization algorithms in Transformers" (2023),
    the thesis' eq. 3.6 to 3.10 and 3.12 to 3.15.  Solved by :func:`olsq.attention.mesa_discounted`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import from_products, mesa_update
    >>> out = mesa_update(jnp.ones((3, 1)), from_products(jnp.eye(1), jnp.eye(1)), ridge=1.0)
    >>> [round(float(x), 3) for x in out[:, 0]]
    [0.5, 0.667, 0.75]
    """
    weights = check_weights(weights)
    heads, _, width = weights.key.shape
    tokens = shaped("tokens", tokens, ("T", width))
    batch, t = tokens.shape[:-2], tokens.shape[-2]
    flat = tokens.reshape(-1, t, width)
    q, k, v = (
        jnp.einsum("hkd,btd->bthk", w, flat) for w in (weights.query, weights.key, weights.value)
    )
    if forget is not None:
        forget = jnp.broadcast_to(floating(forget), (*batch, t, heads)).reshape(-1, t, heads)
    ridge = jnp.broadcast_to(floating(ridge), (heads,))[:, None]
    ridge = jnp.broadcast_to(ridge, (heads, k.shape[-1]))
    out, _ = mesa_discounted(q, k, v, ridge=ridge, forget=forget)
    return jnp.einsum("hdv,bthv->btd", weights.projection, out).reshape(tokens.shape)


def next_covariance(covariance: Any, key: Any, forget: Any = 1.0) -> Array:
    """Update R: ``(gamma R^{-1} + k k^T)^{-1}`` without an inverse.

    Parameters
    ----------
    covariance : array (..., d, d)
        R_{t-1}, symmetric.
    key : array (..., d)
        k_t.
    forget : float or array (...)
        gamma_t > 0.

    Returns
    -------
    array (..., d, d)
        R_t.

    Notes
    -----
    Source: the thesis' eq. 3.9 and 3.19.  Its eq. 3.16 prints gamma_t for the step from t to
    t + 1; eq. 3.15 and 3.17 have, and need, gamma_{t+1}: the gate of the key that comes in.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import next_covariance
    >>> next_covariance(0.5 * jnp.eye(1), jnp.ones(1), 0.5)
    Array([[0.5]], dtype=float32)
    """
    r, k, gamma = _step(covariance, key, forget)
    u = jnp.einsum("...ij,...j->...i", r, k)
    # Sherman-Morrison: R' = (R - u u^T / (gamma + k.u)) / gamma, u = R k
    size = gamma + (k * u).sum(-1)
    return (r - _outer(u) / size[..., None, None]) / gamma[..., None, None]


def previous_covariance(covariance: Any, key: Any, forget: Any = 1.0) -> Array:
    """Undo :func:`next_covariance`: R_{t-1} from R_t.

    Parameters
    ----------
    covariance : array (..., d, d)
        R_t, symmetric.
    key, forget
        k_t and gamma_t.

    Returns
    -------
    array (..., d, d)

    Notes
    -----
    Source: the thesis' eq. 3.34, ``gamma (R - R k k^T R / (k^T R k - 1))``, which holds as printed.
    ``1 - k^T R k`` is ``gamma`` over ``gamma + k^T R_{t-1} k``: where the key brought much, digits
    are lost.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import next_covariance, previous_covariance
    >>> after = next_covariance(2 * jnp.eye(1), jnp.ones(1), 0.5)
    >>> round(float(previous_covariance(after, jnp.ones(1), 0.5)[0, 0]), 5)
    2.0
    """
    r, k, gamma = _step(covariance, key, forget)
    u = jnp.einsum("...ij,...j->...i", r, k)
    # backwards: R_{t-1} = gamma (R_t - u u^T / (k.u - 1)), u = R_t k
    size = (k * u).sum(-1) - 1
    return gamma[..., None, None] * (r - _outer(u) / size[..., None, None])


@jax.custom_vjp
def preconditioned_queries(keys: Array, queries: Array, forget: Array, ridge: Array) -> Array:
    """Compute ``R_t q_t`` for every t, with a gradient that stores no R but the last.

    Parameters
    ----------
    keys, queries : array (T, d)
    forget : array (T,)
        Gates > 0.
    ridge : array ()
        The thesis' ``1 / lambda``: ``R_0 = I / ridge``.

    Returns
    -------
    array (T, d)

    Notes
    -----
    Source: the thesis' eq. 3.23 and 3.34 to 3.39.  The backward pass recomputes every R_{t-1} from
    R_t (:func:`previous_covariance`): O(d^2) memory where autodiff of the recursion has O(T d^2).
    It is a faithful copy of the paper's algorithm, errors included: they grow with every key that
    brought much, so use float64 and short sequences; :func:`olsq.attention.mesa` has derivatives
    that do not.  The thesis' eq. 3.27 prints S_t for R_t; eq. 3.38 is right.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import preconditioned_queries
    >>> preconditioned_queries(jnp.ones((2, 1)), jnp.ones((2, 1)), jnp.ones(2), jnp.ones(()))[:, 0]
    Array([0.5      , 0.3333333], dtype=float32)
    """
    return _queries_forward(keys, queries, forget, ridge)[0]


def _queries_forward(keys: Array, queries: Array, forget: Array, ridge: Array) -> tuple:
    def step(r: Array, x: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        k, q, gamma = x
        r = next_covariance(r, k, gamma)
        return r, r @ q

    start = jnp.eye(keys.shape[-1], dtype=keys.dtype) / ridge
    last, out = jax.lax.scan(step, start, (keys, queries, forget))
    return out, (keys, queries, forget, ridge, last)


def _queries_backward(saved: tuple, cotangent: Array) -> tuple[Array, Array, Array, Array]:
    keys, queries, forget, ridge, last = saved

    def step(carry: tuple[Array, Array], x: tuple) -> tuple[tuple[Array, Array], tuple]:
        r, error = carry
        k, q, gamma, out = x
        # cotangent of R_t: from later tokens, and from this output
        error = error + jnp.outer(out, q)
        before = previous_covariance(r, k, gamma)
        _, pull = jax.vjp(next_covariance, before, k, gamma)
        error_before, dk, dgamma = pull(error)
        return (before, error_before), (dk, r.T @ out, dgamma)

    start = (last, jnp.zeros_like(last))
    (_, error), (dk, dq, dgamma) = jax.lax.scan(
        step, start, (keys, queries, forget, cotangent), reverse=True
    )
    return dk, dq, dgamma, -jnp.trace(error) / ridge**2


preconditioned_queries.defvjp(_queries_forward, _queries_backward)


def neumann_scale(keys: Any, ridge: Any) -> Array:
    """Compute ``1 / (largest eigenvalue of sum_t k_t k_t^T + ridge)``: safe at every token.

    Parameters
    ----------
    keys : array (..., T, d)
    ridge : float

    Returns
    -------
    array (...)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import neumann_scale
    >>> neumann_scale(jnp.ones((3, 1)), 1.0)
    Array(0.25, dtype=float32)
    """
    keys = shaped("keys", keys, ("T", "d"))
    ridge = check_number("ridge", ridge, least=0)
    return 1 / (jnp.linalg.norm(keys, ord=2, axis=(-2, -1)) ** 2 + ridge)


def neumann_queries(keys: Any, queries: Any, steps: int, *, ridge: Any, scale: Any) -> Array:
    """Sum the truncated Neumann series of ``(K_t K_t^T + ridge I)^{-1} q_t``, for all t at once.

    ``z <- scale q + z - scale (K_t K_t^T + ridge I) z`` from ``scale q``.

    Parameters
    ----------
    keys, queries : array (..., T, d)
        K_t holds the keys 1 to t.
    steps : int
        The series' last power.
    ridge : float
        The thesis' ``1 / lambda``.
    scale : float or array (...)
        See :func:`neumann_scale`.

    Returns
    -------
    array (steps + 1, ..., T, d)
        Partial sums of 1 to steps + 1 terms.  Their error falls by the largest
        ``|1 - scale (eigenvalue + ridge)|`` a step.

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    Source: the thesis' eq. 3.44 to 3.51; every step is a causal linear attention with keys as
    values.  Eq. 3.49 has ``scale = 1``, with which it diverges on most data; a scale is asked for
    in words.  :class:`olsq.Neumann` is the same series as a solver of :func:`olsq.online_lstsq`,
    with a scale of its own for every token.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from olsq.icl import neumann_queries
    >>> x = jnp.ones((1, 1))
    >>> neumann_queries(x, x, 3, ridge=1.0, scale=0.25)[:, 0, 0]
    Array([0.25   , 0.375  , 0.4375 , 0.46875], dtype=float32)
    """
    keys = shaped("keys", keys, ("T", "d"))
    queries = shaped("queries", queries, keys.shape[-2:])
    check_sizes(0, steps=steps)
    ridge = check_number("ridge", ridge, least=0)
    scale = finite("scale", scale)[..., None, None]

    def step(z: Array, _: None) -> tuple[Array, Array]:
        scores = jnp.tril(jnp.einsum("...tk,...ik->...ti", z, keys))
        z = z + scale * (queries - jnp.einsum("...ti,...ik->...tk", scores, keys) - ridge * z)
        return z, z

    start = scale * queries * jnp.ones_like(keys)
    return jnp.concatenate([start[None], jax.lax.scan(step, start, None, length=steps)[1]])


def _step(covariance: Any, key: Any, forget: Any) -> tuple[Array, Array, Array]:
    k = shaped("key", key, ("d",))
    return shaped("covariance", covariance, (k.shape[-1], k.shape[-1])), k, finite("forget", forget)


def _outer(u: Array) -> Array:
    return u[..., :, None] * u[..., None, :]
