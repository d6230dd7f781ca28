"""Mixers whose memory is a gated sum of ``v k^T``: linear attention and its relatives."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.nn._mixer import Gate, HeadMixer
from olsq.nn._parts import LowRank, at_least_float32, split_keys
from olsq.nn.solved import Gated

RANK = 16  # of projections to a gate per key dimension
GATE_CAP = 15.0  # of xLSTM's gates, softly


class LinearAttention(HeadMixer):
    """Linear attention without gates; ``normaliser`` divides by the sum of the weights."""

    normaliser: bool = eqx.field(static=True)
    rule = staticmethod(attention.linear)

    def __init__(
        self, dim: int, *, heads: int, normaliser: bool = False, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        self.normaliser = normaliser

    def arguments(self, x: Array) -> dict[str, Any]:
        return {"normalise": self.normaliser}


class Retention(HeadMixer):
    """A fixed factor per head, ``1 - 2^-(5 + h)`` (Sun et al. 2023)."""

    rule = staticmethod(attention.retention)

    def arguments(self, x: Array) -> dict[str, Any]:
        return {"forget": 1 - 2.0 ** -(5 + jnp.arange(self.heads))}


class GLA(Gated):
    """Gated linear attention with a scalar gate per head, as in the MesaNet paper.

    ``vector_gates`` has one per key dimension instead, ``sigmoid(W e + b)^(1/16)`` through rank 16,
    as in Yang et al. (2024).
    """

    vector: LowRank | None
    rule = staticmethod(attention.gla)

    def __init__(
        self, dim: int, *, heads: int, vector_gates: bool = False, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        self.vector = None
        if vector_gates:
            if self.signed:
                raise ValueError("signed gates are scalars: not with vector_gates")
            outputs, key = heads * self.mapped_size, jax.random.fold_in(key, 2)
            self.vector = LowRank(dim, outputs, RANK, key=key, bias=0.0)

    def arguments(self, x: Array) -> dict[str, Any]:
        given = super().arguments(x)
        if self.vector is not None:
            gates = jax.nn.log_sigmoid(self.vector(at_least_float32(x))) / 16
            given["log_forget"] = self.split_heads(gates)
        return given


class Mamba2(Gated):
    """Mamba-2 as the MesaNet paper compares it: a forget gate, and no write gate."""

    rule = staticmethod(attention.mamba2)

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, weighted=False, key=key, **options)


class HGRN2(HeadMixer):
    """HGRN-2: the key projection is the forget gate of each dimension, and ``1 - gate`` the key."""

    rule = staticmethod(attention.hgrn2)

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, key=key, **{"normalise": False, **options})

    def attend(
        self, q: Array, k: Array, v: Array, arguments: dict[str, Any], **given: Any
    ) -> tuple[Array, Any]:
        return attention.hgrn2(q, v, log_forget=k, **given)

    def read(self, x: Array, recent: Any, segment_ids: Array | None) -> tuple[Any, ...]:
        streams, recent = self.project(x, recent, segment_ids)
        q, k, v = (self.split_heads(streams[name]) for name in ("query", "key", "value"))
        gates = jax.nn.log_sigmoid(at_least_float32(k))
        return self.features(q), gates, v, {}, recent


class RWKV6(HeadMixer):
    """RWKV-6: a data-dependent factor per key dimension, and a bonus for the token itself."""

    bonus: Array  # (H, K)
    decay: LowRank
    rule = staticmethod(attention.rwkv6)

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        width = self.mapped_size
        self.bonus = jnp.ones((heads, width))
        # Slow to fast over the dimensions of a head: factors exp(-e^b), b from -6 to -1.
        start = jnp.tile(jnp.linspace(-6, -1, width), heads)
        key = jax.random.fold_in(key, 1)
        self.decay = LowRank(dim, heads * width, RANK, key=key, bias=start)

    def arguments(self, x: Array) -> dict[str, Any]:
        speed = jnp.clip(self.decay(at_least_float32(x)), -15.0, 5.0)
        return {"log_forget": -jnp.exp(self.split_heads(speed)), "bonus": self.bonus}


class MLSTM(HeadMixer):
    """mLSTM with the exponential input gates and the forget biases of the xLSTM papers.

    Keys are divided by ``sqrt(K)`` and not normalised; gates are capped softly at 15.
    """

    forget: Gate
    strength: Gate
    rule = staticmethod(attention.mlstm)

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, key=key, **{"normalise": False, **options})
        keys = split_keys(jax.random.fold_in(key, 1), ("forget", "strength"))
        self.forget = Gate(dim, heads, key=keys["forget"], bias=jnp.linspace(3.0, 6.0, heads))
        self.strength = Gate(dim, heads, key=keys["strength"], bias=-1.0)

    def features(self, x: Array) -> Array:
        x = super().features(x)
        return x if self.normalise else x * self.mapped_size**-0.25

    def arguments(self, x: Array) -> dict[str, Any]:
        forget, strength = (
            GATE_CAP * jnp.tanh(gate(x) / GATE_CAP) for gate in (self.forget, self.strength)
        )
        return {"log_forget": jax.nn.log_sigmoid(forget), "log_weight": strength}
