"""Gates and ridges that several mixers share."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import check_number, shown
from olsq.nn.heads import Gate, HeadMixer
from olsq.nn.kinds import kind
from olsq.nn.parts import LowRank, as_bool, at_least_float32, bounded_exp, split_keys

SLOWEST, FASTEST = 0.001, 0.1  # steps that Mamba's gates start with
# Measured with Mesa over 50 runs: from gates of one half no seed learned noisy recall in 300 steps,
# from 0.99 all did or were about to.  A memory of two tokens gets no gradient from older ones.
FORGET_START = 0.99
RIDGE_FLOOR, RIDGE_START = 0.25, 1.0  # the paper's


class Gated(HeadMixer):
    """Mixer with forget and write gates per head.

    For the options of both see :class:`GatedDelta`.
    """

    forget: Gate
    strength: Gate | None
    speed: Array | None  # (H,)
    forget_bound: float | None = eqx.field(static=True)
    forget_floor: float = eqx.field(static=True)
    signed: bool = eqx.field(static=True, converter=as_bool)
    signs: ClassVar[bool] = False  # whether the rule takes gates below 0

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        forget_bound: float | None = None,
        forget_floor: float = 0.0,
        forget_bias: Any = None,
        forget_speed: bool = False,
        signed: bool = False,
        weighted: bool = True,
        strength_bias: bool = True,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        forget_floor = check_number("forget_floor", forget_floor)
        if forget_bound is not None and not 0 < check_number("forget_bound", forget_bound) <= 1:
            raise ValueError(f"forget_bound must lie in (0, 1], got {forget_bound}")
        if not 0 <= forget_floor < 1:
            raise ValueError(f"forget_floor must lie in [0, 1), got {forget_floor}")
        if signed and not self.signs:
            raise ValueError(
                "signed=True needs a rule that takes gates below 0, which that of "
                f"{type(self).__name__} does not: use GLA, Mamba2, GatedDelta or Mesa"
            )
        if signed and forget_floor:
            raise ValueError(
                f"forget_floor must be 0 with signed=True, got {forget_floor}: signed gates have "
                "no floor"
            )
        if signed and forget_speed:
            raise ValueError("give forget_speed=False with signed=True: signed gates have no speed")
        names = ("forget", "strength", "start", "speed")
        keys = split_keys(jax.random.fold_in(key, 1), names)
        self.speed = jnp.zeros(heads) if forget_speed else None
        if forget_bias is None:
            forget_bias = 0.0 if signed else start_bias()
            if forget_speed:
                # sigmoid(-z)^A = exp(-A softplus(z))
                forget_bias = -step_biases(heads, key=keys["start"])
                self.speed = log_speeds(heads, key=keys["speed"])
        self.forget = Gate(dim, heads, key=keys["forget"], bias=forget_bias)
        started = 0.0 if strength_bias else None
        self.strength = Gate(dim, heads, key=keys["strength"], bias=started) if weighted else None
        self.forget_bound, self.forget_floor, self.signed = forget_bound, forget_floor, signed

    def arguments(self, x: Array) -> dict[str, Any]:
        arguments, shrink = {}, 0.0
        if self.strength is not None:
            arguments["weight"] = jax.nn.sigmoid(self.strength(x))
        if self.forget_bound is not None:
            # gamma <- gamma (1 - (1 - bound) beta^2), which keeps the system well conditioned
            # (MesaNet)
            shrink = -(1 - self.forget_bound) * arguments.get("weight", 1.0) ** 2
        gate, floor = self.forget(x), self.forget_floor
        if self.signed:
            return {**arguments, "forget": jnp.tanh(gate) * (1 + shrink), "signed": True}
        logs = jax.nn.log_sigmoid(gate)
        if self.speed is not None:
            logs = bounded_exp(self.speed) * logs
        if floor:
            # gamma <- floor + (1 - floor) gamma
            logs = jnp.log(floor + (1 - floor) * jnp.exp(logs))
        return {**arguments, "log_forget": logs + jnp.log1p(shrink)}


def start_bias() -> float:
    """Compute the bias with which the sigmoid of a forget gate starts at ``FORGET_START``."""
    return math.log(FORGET_START / (1 - FORGET_START))


def step_biases(count: int, *, key: Array) -> Array:
    """Draw biases with which the steps ``softplus(b)`` of Mamba's gates start, 0.001 to 0.1."""
    low, high = math.log(SLOWEST), math.log(FASTEST)
    steps = jnp.exp(jax.random.uniform(key, (count,), minval=low, maxval=high))
    return jnp.log(jnp.expm1(steps))  # the inverse of softplus


def log_speeds(heads: int, *, key: Array) -> Array:
    """Draw the logs of Mamba-2's A per head, of uniform numbers from 1 to 16."""
    return jnp.log(jax.random.uniform(key, (heads,), minval=1.0, maxval=16.0))


class ChannelDecay(eqx.Module):
    """Logs of gates per key dimension, ``-A softplus(W e + b)`` through a low rank, one A per head.

    Attributes
    ----------
    project : LowRank
        Steps ``softplus(b)`` start between 0.001 and 0.1, as Mamba's.
    speed : array (H,)
        log A, at first that of uniform numbers from 1 to 16.
    """

    project: LowRank
    speed: Array  # (H,)

    def __init__(self, dim: int, heads: int, width: int, rank: int, *, key: Array) -> None:
        keys = split_keys(key, ("project", "start", "speed"))
        bias = step_biases(heads * width, key=keys["start"])
        self.project = LowRank(dim, heads * width, rank, key=keys["project"], bias=bias)
        self.speed = log_speeds(heads, key=keys["speed"])

    def __call__(self, x: Array) -> Array:
        steps = jax.nn.softplus(self.project(at_least_float32(x)))
        heads = self.speed.shape[0]
        steps = steps.reshape(*x.shape[:2], heads, steps.shape[-1] // heads)
        return -bounded_exp(self.speed)[:, None] * steps


class Ridge(eqx.Module):
    """A ridge per head and key dimension, ``floor + softplus(raw)``."""

    raw: Array = eqx.field(metadata=kind("ridge"))  # (H, K)
    floor: float = eqx.field(static=True)

    def __init__(self, heads: int, width: int, *, floor: float, start: float) -> None:
        start = check_number("ridge_start", start)
        if not 0 <= check_number("ridge_floor", floor) < start:
            raise ValueError(
                "ridge_start must exceed ridge_floor >= 0 and be finite, got "
                f"{shown(start)} and {shown(floor)}"
            )
        self.floor = floor
        rise = start - floor
        inverse = rise + math.log(-math.expm1(-rise))  # of softplus
        self.raw = jnp.full((heads, width), inverse, float)

    def __call__(self) -> Array:
        return self.floor + jax.nn.softplus(self.raw)
