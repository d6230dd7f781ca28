"""Mixers that correct their memory towards each token: delta rules and test-time training."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.nn._mixer import Gate, HeadMixer
from olsq.nn._parts import check_sizes, split_keys
from olsq.nn.solved import Gated


class Stepped(HeadMixer):
    """A step size per head, ``beta = sigmoid(W e + b)``."""

    strength: Gate

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        self.strength = Gate(dim, heads, key=jax.random.fold_in(key, 1))

    def arguments(self, x: Array) -> dict[str, Any]:
        return {"weight": jax.nn.sigmoid(self.strength(x))}


class Delta(Stepped):
    """DeltaNet: one gradient step a token."""

    rule = staticmethod(attention.delta)


class GatedDelta(Gated):
    """Gated DeltaNet: forget, then one gradient step a token."""

    rule = staticmethod(attention.gated_delta)


class Longhorn(Stepped):
    """Longhorn: an implicit step a token, in its diagonal form."""

    rule = staticmethod(attention.longhorn)


class PreconditionedDelta(Gated):
    """Preconditioned Gated DeltaNet: directions often used get smaller steps."""

    curvature_forget: Gate
    rule = staticmethod(attention.preconditioned_delta)

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        key = jax.random.fold_in(key, 2)
        self.curvature_forget = Gate(dim, heads, key=key, bias=3.0)

    def arguments(self, x: Array) -> dict[str, Any]:
        given = super().arguments(x)
        keep = jax.nn.sigmoid(self.curvature_forget(x))
        return {**given, "curvature_forget": keep, "curvature_weight": given["weight"]}


class TTTLinear(HeadMixer):
    """TTT-Linear: the memory is a linear map with a norm, trained by mini-batches of tokens.

    ``base_rate`` times a sigmoid is a token's learning rate, per head.
    """

    rate: Gate
    initial: tuple[Array, ...]
    norm_scale: Array  # (H, V)
    norm_bias: Array
    base_rate: float = eqx.field(static=True)
    mini_batch: int = eqx.field(static=True)

    rule = staticmethod(attention.ttt_linear)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        base_rate: float = 1.0,
        mini_batch: int = 16,
        key: Array,
        **options: Any,
    ) -> None:
        check_sizes(mini_batch=mini_batch)
        super().__init__(dim, heads=heads, key=key, **options)
        if self.mapped_size != self.value_size:
            raise ValueError(
                f"the memory adds its input to its output: keys ({self.mapped_size}) and values "
                f"({self.value_size}) must have one size"
            )
        keys = split_keys(jax.random.fold_in(key, 1), ("rate", "initial"))
        self.rate = Gate(dim, heads, key=keys["rate"])
        self.initial = self.start(keys["initial"])
        self.norm_scale = jnp.ones((heads, self.value_size))
        self.norm_bias = jnp.zeros((heads, self.value_size))
        self.base_rate, self.mini_batch = base_rate, mini_batch

    def start(self, key: Array) -> tuple[Array, ...]:
        """Weights and biases where learning starts, normal with standard deviation .02."""
        h, v = self.heads, self.value_size
        return 0.02 * jax.random.normal(key, (h, v, v)), jnp.zeros((h, v))

    def arguments(self, x: Array) -> dict[str, Any]:
        return {
            "learning_rate": self.base_rate * jax.nn.sigmoid(self.rate(x)) / self.mapped_size,
            "initial": self.initial, "mini_batch": self.mini_batch,
            "norm_scale": self.norm_scale, "norm_bias": self.norm_bias,
        }  # fmt: skip


class TTTMLP(TTTLinear):
    """TTT-MLP: the memory is a network of one hidden layer, four times as wide."""

    rule = staticmethod(attention.ttt_mlp)

    def __init__(
        self, dim: int, *, heads: int, base_rate: float = 0.1, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, base_rate=base_rate, key=key, **options)

    def start(self, key: Array) -> tuple[Array, ...]:
        h, v = self.heads, self.value_size
        first, second = jax.random.split(key)
        return (
            0.02 * jax.random.normal(first, (h, 4 * v, v)), jnp.zeros((h, 4 * v)),
            0.02 * jax.random.normal(second, (h, v, 4 * v)), jnp.zeros((h, v)),
        )  # fmt: skip
