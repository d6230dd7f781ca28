"""Linear attention with feature maps and a normaliser: a Hebbian memory that forgets nothing."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from olsq.arrays.checks import check_choice, check_flag, check_integer
from olsq.attention.arguments import check_inputs
from olsq.attention.one_token import one_token, sequence_rule
from olsq.attention.recurrences.linear import gated_linear
from olsq.attention.states import (
    Memory,
    Normalised,
    check_state,
    drop_unreadable,
    drop_unwritable,
    empty_memory,
    propagate_losses,
    restore_layout,
    unfolded_streams,
)
from olsq.sequence.jax.gates import squarable

FEATURE_MAPS = ("identity", "elu", "dpfp")


def features(x: Array, feature_map: str, nu: int) -> Array:
    """Compute phi(x) over the last axis: "identity", "elu" (``elu(x) + 1``) or "dpfp" (2 K nu
    wide).
    """
    if feature_map == "identity":
        return x
    if feature_map == "elu":
        return jax.nn.elu(x) + 1
    r = jax.nn.relu(jnp.concatenate([x, -x], -1))
    return jnp.concatenate([r * jnp.roll(r, i, -1) for i in range(1, nu + 1)], -1)


@sequence_rule
def linear(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    feature_map: Literal["identity", "elu", "dpfp"] = "identity",
    nu: int = 1,
    normalise: bool = False,
    weight: ArrayLike | None = None,
    state: Memory | Normalised | None = None,
    segment_ids: ArrayLike | None = None,
) -> tuple[Array, Memory | Normalised]:
    """Linear attention: ``S += w v phi(k)^T``, ``o = S phi(q)``.

    Parameters
    ----------
    q, k, v : array (B, T, H, K), (B, T, H, K), (B, T, H, V)
        Queries (not scaled), keys, values.  Give ``q * K**-0.5`` for that variant.
    feature_map : {"identity", "elu", "dpfp"}
        phi, of keys and queries: none, ``elu(x) + 1``, or the deterministic parameter-free
        projection ``concat_i r * roll(r, i)`` of ``r = relu([x, -x])``, 2 K nu features.
    nu : int
        Rolls of "dpfp".
    normalise : bool
        Divide by ``phi(q) . sum w phi(k)``; where that is exactly 0 the output is 0.  No epsilon is
        added.
    weight : array, optional
        Write strengths >= 0, broadcast to (B, T, H).  Default 1.  0 leaves a token out, finite or
        not.
    state : Memory, or Normalised if ``normalise``, optional
        As returned for the tokens before; an empty past if None.
    segment_ids : int array (B, T), optional
        {segment_ids}

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
    O(T V K) and O(T C (V + K)), C <= 64 a chunk.  Differentiable to any order in both modes.

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
    check_integer("nu", nu, 1, bits=31)
    check_flag("normalise", normalise)
    tokens, layout = check_inputs(q, k, v, weight=weight, segment_ids=segment_ids, state=state)
    if feature_map != "identity":
        q, k = (features(x, feature_map, nu) for x in (tokens.q, tokens.k))
        q, tokens = drop_unreadable(jnp.where(squarable(q)[..., None], q, jnp.nan), tokens)
        tokens, _ = drop_unwritable(tokens._replace(q=q, k=k), tokens.weight)
    width, values = tokens.k.shape[-1], tokens.v.shape[-1]
    zero: Any = empty_memory(layout, values, width)
    if normalise:
        mass = jnp.zeros((layout.batch, layout.heads, width), layout.working)
        zero = Normalised(zero.matrix, mass)
    opened, state_lost = check_state(state, zero, layout)
    memory, v = opened.matrix, tokens.v
    if normalise:
        v = jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
        memory = jnp.concatenate([memory, opened.normaliser[:, None]], 1)
    lost = propagate_losses(tokens, state_lost)
    streams, options = (tokens.q, tokens.k, v), {}
    if feature_map == "identity" and not normalise:
        streams, options = unfolded_streams(tokens, lost[0], layout)
    out, memory = gated_linear(*streams, tokens.forget, tokens.weight, memory, **options)
    if normalise:
        out, tokens = drop_unreadable(out, tokens)
        out = divide_or_zero(out[..., :-1], out[..., -1:])
        return restore_layout(
            out, Normalised(memory[:, :-1], memory[:, -1]), tokens, state_lost, layout, lost
        )
    return restore_layout(out, Memory(memory), tokens, state_lost, layout, lost)


linear_step = one_token(linear, "weight", example="x, x, x, normalise=True", gives=1.0)


def divide_or_zero(a: Array, b: Array) -> Array:
    """Compute a / b, 0 where b is exactly 0; derivatives are finite there too.

    Both are divided by the value of b first: the square in a quotient's derivative may underflow.
    """
    divisor = jnp.where(b == 0, 1, b)
    unit = jax.lax.stop_gradient(divisor)
    return jnp.where(b == 0, 0, (a / unit) / (divisor / unit))
