"""RWKV-7's time mixing as a layer."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.nn.base import MixerState
from olsq.nn.heads import HeadMixer
from olsq.nn.parts import LowRank, at_least_float32, scale_to_unit, split_keys

RANK = 16
SLOWEST = math.exp(-0.5)  # a factor is exp(-SLOWEST) at least


class RWKV7(HeadMixer):
    """RWKV-7: ``S = S (diag(w) - r (a*r)^T) + v k^T``, ``o = S q``.

    Per key dimension, each through a low rank: ``w = exp(-e^(-1/2) sigmoid(W tanh(W e) + b))`` and
    ``a = sigmoid(W e + b)``.  Of a token's key k', ``r = xi*k' / |xi*k'|`` is removed and
    ``k = k' (1 + (a - 1) alpha)`` written.  What a head reads is normalised, gets the bonus
    ``(q . rho*k) v`` of the token's own key, and is multiplied by a gate ``W sigmoid(W e)``.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`; ``feature_map="identity"`` and
        ``normalise=False`` here, and a gate of its own instead of ``output_gate``.

    Attributes
    ----------
    removal_scale, rate_share, bonus : array (H, K)
        xi, alpha and rho, at first 1, 1 and 0.

    Notes
    -----
    O(V K + C (V + K) + C^2 / 3) per token and head by chunks of C <= 64, with twice the scores of
    :class:`KDA`; O(V K) one by one; the state is V K numbers per head.  Differentiable to any order
    in both modes.  Left out: the paper's token shift, where all mixers here have a short
    convolution; the residual of the first layer's values; and its LayerNorm of each head is an RMS
    norm.

    References
    ----------
    Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution" (2025), section 4.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.RWKV7(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.matrix.shape
    (1, 2, 4, 4)
    """

    decay: LowRank
    rate: LowRank
    gate: LowRank
    removal_scale: Array  # (H, K)
    rate_share: Array  # (H, K)
    bonus: Array  # (H, K)

    rule = staticmethod(attention.rwkv7)
    own_keys = True

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        plain: dict[str, Any] = {"feature_map": "identity", "normalise": False}
        if options.get("output_gate"):
            raise ValueError("leave output_gate out: RWKV7 always has an output gate of its own")
        super().__init__(dim, heads=heads, key=key, **{**plain, **options})
        keys = split_keys(jax.random.fold_in(key, 1), ("decay", "rate", "gate"))
        width = self.mapped_size
        # Slow to fast over the dimensions of all heads.
        start = jnp.linspace(-5.5, 0.5, heads * width)
        self.decay = LowRank(dim, heads * width, RANK, key=keys["decay"], bias=start)
        self.rate = LowRank(dim, heads * width, RANK, key=keys["rate"], bias=0.0)
        self.gate = LowRank(dim, heads * self.value_size, RANK, key=keys["gate"], bias=None)
        self.removal_scale, self.rate_share = (jnp.ones((heads, width)) for _ in range(2))
        self.bonus = jnp.zeros((heads, width))

    def arguments(self, x: Array) -> dict[str, Any]:
        wide = at_least_float32(x)
        speed = jax.nn.sigmoid(self.decay.up(jnp.tanh(self.decay.down(wide))))
        return {
            "log_forget": -SLOWEST * self.split_heads(speed),
            "removal_rate": jax.nn.sigmoid(self.split_heads(self.rate(wide))),
        }

    def mix(
        self, x: Array, state: MixerState | None, segment_ids: Array | None, capacity: int | None
    ) -> tuple[Array, MixerState]:
        recent, memory = (None, None) if state is None else state
        q, k, v, arguments, recent = self.read(x, recent, segment_ids)
        wide = at_least_float32(k)
        arguments["removal_key"] = scale_to_unit(wide * self.removal_scale)
        share = 1 + (arguments["removal_rate"] - 1) * self.rate_share
        k = (wide * share).astype(k.dtype)
        o, memory = self.attend(q, k, v, arguments, state=memory, segment_ids=segment_ids)
        if self.norm is not None:
            o = self.norm(o)
        bonus = (q * k * self.bonus.astype(k.dtype)).sum(-1, keepdims=True) * v
        gate = self.gate.up(jax.nn.sigmoid(self.gate.down(x)))
        o = (o + bonus) * self.split_heads(gate)
        y = self.output_proj(jax.lax.collapse(o, 2).astype(x.dtype))
        return y, MixerState(recent, memory)
