"""Retention: a linear memory with one fixed gate per head."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.attention.arguments import check_inputs
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.rules.gla import gated_memory
from olsq.attention.states import Memory


@sequence_rule
def retention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """Retention: ``S = gamma_h S + v k^T``, one fixed gate per head.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  The paper's rotation (xPos) and scale ``K**-0.5`` are
        the caller's.
    forget : array (H,), optional
        Default ``1 - 2**-(5 + h)``, the paper's.
    state : Memory, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

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
    tokens, layout = check_inputs(q, k, v, forget=forget, segment_ids=segment_ids, state=state)
    return gated_memory(tokens, layout, state)


retention_step = one_token(retention, example="x, x, x", gives=1.969)
