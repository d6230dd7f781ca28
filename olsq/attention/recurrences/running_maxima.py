"""Sums of exponentials that fade, in units of their largest term: nothing overflows or vanishes.

``s_t = f_t s_{t-1} + exp(l_t)`` is ``exp(m_t)`` times the sum with gates ``f_t exp(m_{t-1} - m_t)``
and terms ``exp(l_t - m_t)``, for ``m_t = max(log f_t + m_{t-1}, l_t)``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from olsq.sequence.jax.pieces import delay, scan_time


def running_maxima(log_gates: Array, logs: Array, start: Array) -> Array:
    """Compute ``m_t = max(log f_t + m_{t-1}, l_t)`` (N, T) from ``start`` (N,), a constant."""
    log_gates, logs = jax.lax.stop_gradient((log_gates, logs))

    def join(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] + b[0], jnp.maximum(a[1] + b[0], b[1])

    sums, maxima = scan_time(join, (log_gates, logs), (0.0, -jnp.inf))
    return jnp.maximum(maxima, sums + start[:, None])


def finite_or_zero(maxima: Array) -> Array:
    """Return the maxima, 0 where there is no term yet: -inf."""
    return jnp.where(jnp.isneginf(maxima), 0, maxima)


def scale_gates(gates: Array, maxima: Array, start: Array) -> Array:
    """Compute ``f_t exp(m_{t-1} - m_t)`` (N, T), with the derivatives of a product; 0 without
    terms.
    """
    before, now = delay(maxima, start[:, None]), finite_or_zero(maxima)
    plain = jax.lax.stop_gradient(gates)
    # exp(m_{t-1} - m_t) overflows where the gate is tiny; together they are at most 1, except for
    # the rounding of the maxima, which is kept here and so does not add up over the tokens.
    ratio = jnp.exp(jnp.minimum(jnp.log(plain) + (before - now), 1))
    rise = jnp.exp(jnp.minimum(jnp.where(jnp.isneginf(before), -jnp.inf, before - now), 80))
    factor = jnp.where(plain > 0, ratio / jnp.where(plain > 0, plain, 1), rise)
    return gates * jnp.where(jnp.isneginf(maxima), 0, factor)


def scale_log_gates(log_gates: Array, maxima: Array, start: Array) -> Array:
    """Compute the logs of :func:`scale_gates` from those of the gates."""
    before, now = delay(maxima, start[:, None]), finite_or_zero(maxima)
    # m_{t-1} - m_t first: where the gate makes the maximum, it cancels the log except for rounding.
    scaled = log_gates + jnp.where(jnp.isneginf(before), 0, before - now)
    return jnp.where(jnp.isneginf(maxima), -jnp.inf, jnp.minimum(scaled, 1))
