"""Gates in [-1, 1]: reduce a rule with signed gates to the same rule with their absolute values.

With ``s_t = sign(gamma_t)``, sign(0) = 1, and ``sigma_t`` the product of s_1 .. s_t, the product of
gates i+1 .. t is ``sigma_t sigma_i`` times that of their absolute values.  So a memory written with
keys ``sigma_i k_i`` and read by queries ``sigma_t q_t``, forgotten by ``|gamma|``, gives the
outputs of the signed one, and ends as it does times ``sigma_T``::

    S_t = gamma_t S_{t-1} + beta_t v_t k_t^T
    sigma_t S_t = |gamma_t| sigma_{t-1} S_{t-1} + beta_t v_t (sigma_t k_t)^T

It holds per key dimension for vector gates. The delta rule is unchanged, because its factor
``1 - beta k k^T`` does not depend on the sign of the key. ``|gamma|`` is written ``s gamma`` with s
a constant: both sides are then the same polynomial in the gates, and every derivative is that of
the signed rule, at a gate of 0 too.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax.numpy as jnp
from jax import Array

Tokens = TypeVar("Tokens", bound=Any)  # a named tuple with q, k, forget and given


def magnitudes(gates: Array) -> Array:
    """Compute ``|gates|``, with derivative 1 and not 0 at a gate of 0; NaN stays NaN."""
    return jnp.where(gates < 0, -1, 1) * gates


def running_signs(gates: Array, axis: int) -> Array:
    """Compute sigma: 1 where an even number of the gates so far is negative, else -1.

    It is exact, and constant for derivatives.
    """
    odd = jnp.cumsum((gates < 0).astype(jnp.int32), axis) % 2
    return (1 - 2 * odd).astype(gates.dtype)


def remove_signs(tokens: Tokens) -> tuple[Tokens, Any]:
    """Rewrite tokens for a rule with ``|gamma|``.

    Also returns the sign to multiply its last memory (N, V, K) by.

    The sign is None where no gate can be negative: there are no gates, or no tokens.
    """
    gates = tokens.forget
    if gates is None or not gates.shape[1]:
        return tokens, None
    sigma = running_signs(gates, 1)
    each = sigma if gates.ndim == 3 else sigma[..., None]
    upright = tokens._replace(
        q=each * tokens.q, k=each * tokens.k, forget=magnitudes(gates), given=None
    )
    return upright, each[:, -1:]
