"""Mamba (S6): a state-space model whose step sizes depend on the input."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.checks import refuse
from olsq.attention.arguments import check_inputs, fold_heads, per_head, per_token
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.elementwise import elementwise
from olsq.attention.states import Memory, drop_unwritten, open_memory, restore_layout
from olsq.sequence.jax.gates import squarable


@sequence_rule
def mamba(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    step: ArrayLike,
    rate: ArrayLike,
    skip: ArrayLike | None = None,
    state: Memory | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory]:
    """Mamba's selective state space, S6: ``S = S * exp(-step exp(rate)) + (step v) k^T``.

    Every entry of the memory forgets at its own speed ``exp(rate)``, for the time ``step`` that
    the token gives its value channel.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values: the paper's C, B and x.  Mamba is one head (H = 1) with
        V the inner width and K = 16.
    step : array (B, T, H, V) or what broadcasts to it
        The paper's Delta, >= 0 (after its softplus).  A token with 0 in all channels is left out of
        the memory, finite or not.
    rate : array (H, V, K) or what broadcasts to it
        Log of the speed: the paper's ``A = -exp(rate)``.  Its code starts at log 1 to log K.
    skip : array (H, V), optional
        The paper's D: the output gets ``skip * v``.
    state : Memory, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

    Returns
    -------
    output : array (B, T, H, V)
        ``S q + skip * v``, in the dtype of q, k, v.  NaN from a non-finite token on, never before.
    state : Memory

    Raises
    ------
    ValueError
        If shapes, steps or segment ids do not fit.

    Notes
    -----
    O(T V K) exponentials; nothing of size T V K is kept.  The backward pass makes 64 memories at a
    time again on a CPU, and as many as fit an accelerator, which runs spans of time side by side.
    The input is discretised as in the paper's code, ``step * k`` (Euler), not by the
    exact integral of eq. 4.  Differentiable to any order in both modes.

    References
    ----------
    Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023),
    algorithm 2, eq. 2 and 4.

    Examples
    --------
    >>> import jax.numpy as jnp, olsq
    >>> x = jnp.ones((1, 3, 1, 1))
    >>> half = jnp.log(jnp.log(2.0))  # exp(-exp(half)) = 1/2
    >>> olsq.attention.mamba(x, x, x, step=1.0, rate=half)[0][0, :, 0, 0]
    Array([1.  , 1.5 , 1.75], dtype=float32)
    """
    tokens, layout = check_inputs(q, k, v, segment_ids=segment_ids, state=state)
    values, keys = tokens.v.shape[-1], tokens.k.shape[-1]
    refuse("step", step, lambda s: s < 0, "be >= 0 (it is a time)")
    tokens, times = drop_unwritten(tokens, per_token("step", step, layout, values))
    assert times is not None
    # The speed stays finite, so that a step of 0 keeps the memory whatever the rate.
    most = math.log(jnp.finfo(layout.working).max) - 1
    speed = jnp.exp(jnp.minimum(per_head("rate", rate, layout, values, keys), most))
    speed = jnp.swapaxes(speed, 1, 2)
    direct = None if skip is None else per_head("skip", skip, layout, values)[:, None]
    matrix, state_lost = open_memory(state, tokens, layout)

    out, memory = elementwise(
        tokens.q,
        tokens.k,
        times * tokens.v,
        decay_factors,
        {"step": times},
        matrix,
        parameters=speed,
        start=tokens.start,
    )
    if direct is not None:
        out = out + direct * tokens.v
        # A value that was left out of the memory is still read here, at its own token.
        tokens = tokens._replace(
            query_finite=tokens.query_finite & squarable(fold_heads(jnp.asarray(v)))
        )
    return restore_layout(out, Memory(memory), tokens, state_lost, layout)


mamba_step = one_token(mamba, "step", example="x, x, x, step=1.0, rate=0.0", gives=1.368)


def decay_factors(x: dict[str, Array], speed: Array) -> Array:
    """Compute the factor of each entry of the memory, (N, K, V), with speeds of the same shape."""
    return jnp.exp(-x["step"][:, None, :] * speed)
