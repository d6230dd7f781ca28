"""Mamba-2: a linear memory with one forget gate per head."""

from __future__ import annotations

from jax import Array
from jax.typing import ArrayLike

from olsq.attention.arguments import check_inputs
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.rules.gla import gated_memory
from olsq.attention.states import Memory


@sequence_rule
def mamba2(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    signed: bool = False,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """The state space of Mamba-2: ``S = gamma S + v k^T``, one gate per token and head.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values: the paper's C, B and ``dt x``.  Multiply the input by
        its step size yourself, or use :func:`gla` with ``weight=dt``.  The skip ``D x`` is the
        caller's, too.
    forget, log_forget : array, optional
        Gates in [0, 1], or their logs, broadcast to (B, T, H).  Default 1.  A gate of 0 forgets
        everything before its token.  The paper's ``exp(dt A)``, or ``dt A``.
    signed : bool
        ``forget`` may lie in [-1, 1], which lets a head track parity; a log has no sign.  A
        negative gate also turns the memory round.
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
    tokens, layout = check_inputs(
        q,
        k,
        v,
        forget=forget,
        log_forget=log_forget,
        segment_ids=segment_ids,
        state=state,
        signed=signed,
    )
    return gated_memory(tokens, layout, state, signed)


mamba2_step = one_token(mamba2, "forget", "log_forget", example="x, x, x, forget=0.5", gives=1.5)
