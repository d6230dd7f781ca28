"""Diagnose a layer that solves a regression: steps, residuals, gates, condition numbers."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from olsq.arrays.brief import brief_repr
from olsq.attention.arguments import repeat_heads
from olsq.nn.parts import at_least_float32
from olsq.sequence.jax import online_lstsq
from olsq.solvers import Solver


class Diagnostics(NamedTuple):
    """Steps, residuals, gates and condition numbers of a Mesa layer at each token of (B, T).

    Attributes
    ----------
    steps : int32 array (B, T, H)
        Iterations or corrections of its solver; 0 for a direct solve.
    residual : array (B, T, H)
        ``|q - (H + Lambda) q*| / |q|``, as the solver left it.
    forget, weight : array (B, T, H)
        Gates gamma and beta.
    ridge : array (H, K)
    positions : int array (P,)
        Tokens whose condition numbers were computed, from 0.
    condition : array (B, P, H)
        ``kappa(H_t + Lambda)`` in the 2-norm.
    """

    steps: Array
    residual: Array
    forget: Array
    weight: Array
    ridge: Array
    positions: np.ndarray
    condition: Array

    __repr__ = brief_repr


def diagnose_regression(
    q: Array,
    k: Array,
    v: Array,
    *,
    log_forget: Array,
    weight: Array,
    ridge: Array,
    solver: Solver | None,
    every: int,
) -> Diagnostics:
    """Diagnose a solver at each token of a regression with a fixed ridge.

    Parameters
    ----------
    q, k, v : array (B, T, H, size)
        Of which q and k may have fewer heads.
    log_forget, weight : array (B, T, H)
    ridge : array (H, K)
    solver : solver of :mod:`olsq` or None
    every : int
        Condition numbers are computed at each ``every``-th token.
    """
    q, k = (repeat_heads(x, v.shape[2]) for x in (q, k))
    keys, values, queries, logs, weights = (
        jnp.moveaxis(x, 2, 1) for x in (k, v, q, log_forget, weight)
    )
    fit = online_lstsq(
        keys, values, queries, log_forget=logs, weight=weights, ridge=ridge, solver=solver
    )
    positions = np.arange(every - 1, k.shape[1], every)
    wide = at_least_float32(keys)
    condition = jax.vmap(lambda t: _condition(wide, logs, weights, ridge, t), out_axes=1)(
        jnp.asarray(positions)
    )
    return Diagnostics(
        jnp.moveaxis(fit.stats.steps, 1, 2),
        jnp.moveaxis(fit.stats.residual, 1, 2),
        jnp.exp(log_forget),
        weight,
        ridge,
        positions,
        condition,
    )


def _condition(keys: Array, log_forget: Array, weight: Array, ridge: Array, t: Array) -> Array:
    """Compute condition numbers (B, H) of ``H_t + Lambda``: keys (B, H, T, K), gates (B, H, T)."""
    logs = jnp.cumsum(log_forget, -1)
    here = jnp.take(logs, t, -1)[..., None]
    past = jnp.arange(keys.shape[2]) <= t
    share = jnp.where(past, jnp.exp(jnp.where(past, here - logs, 0)) * weight, 0)
    gram = jnp.einsum("bht,bhti,bhtj->bhij", share, keys, keys)
    eigenvalues = jnp.linalg.eigvalsh(gram + ridge[:, None, :] * jnp.eye(ridge.shape[-1]))
    return eigenvalues[..., -1] / eigenvalues[..., 0]
