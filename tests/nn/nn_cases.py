"""The one table of mixers: how each is made, what it counts, and which arithmetic is its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from nn_reference import (
    centred,
    channelled,
    corrected,
    curved,
    curved_by_itself,
    decays,
    directed,
    driven,
    exponential,
    f64,
    filtered,
    forgetting,
    gated,
    informed,
    levelled,
    mixed,
    network,
    option,
    rates,
    ridge,
    ridge_of_heads,
    slotted,
    started,
    steps,
    stepwise,
    strength,
    turning,
    vector_gated,
)

from olsq import nn
from olsq.reference import attention as oracle
from olsq.reference import attention_solved as solved
from tests.versions import quick

DIM, HEADS, B = 12, 2, 2
ROOM = 40  # tokens in a cache that grows


def heads_of(d, h, k, v, *, norm=True, convolution=True):
    """Projections there and back, four taps on queries and keys, a norm."""
    return 2 * d * h * k + 2 * d * h * v + 4 * 2 * h * k * convolution + h * v * norm


def counted(gates=0, more=lambda d, h, k, v: 0, **shared):
    return lambda d, h, k, v: (
        heads_of(d, h, k, v, **shared) + gates * (d * h + h) + more(d, h, k, v)
    )


def of_ridge(d, h, k, v):
    return h * k


def through(outputs, d, rank=16):
    return d * rank + rank * outputs + outputs


def of_hawk(d, h, k, v):
    w = h * round(1.25 * d / h)
    return 3 * d * w + 4 * w + 2 * (w * w // h + w) + w


def plain(d, h, k, v):
    return heads_of(d, h, k, v, norm=False, convolution=False)


def nothing(layer, x=None):
    return {}


@dataclass(frozen=True, eq=False)
class Row:
    """One mixer: a new mixer is one more row."""

    mixer: str
    oracle: Callable[..., Any]  # one stream of one head
    count: Callable[[int, int, int, int], int]  # weights, of dim, heads, key and value size
    gates: Callable[..., dict[str, np.ndarray]] = nothing  # (T, H, ...), of layer and input
    fixed: Callable[..., dict[str, np.ndarray]] = nothing  # (H, ...), of the layer
    own: Callable[..., dict[str, Any]] = nothing  # options of the oracle, of the layer
    packed: tuple[str, ...] = ()  # arrays that the oracle takes as one tuple, ``initial``
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __str__(self):
        return self.name or self.mixer

    @property
    def causal(self):
        return nn.MIXERS[self.mixer].causal


WINDOW: dict[str, Any] = {"window": 5}
BATCH: dict[str, Any] = {"mini_batch": 4}
FEW = option(window="window")
EACH = option(mini_batch="mini_batch")
LINEAR, MLP = ("w", "b"), ("w1", "b1", "w2", "b2")

ROWS = [
    Row("softmax", solved.softmax, plain),
    Row("sliding_window", solved.sliding_window, plain, own=FEW, options=WINDOW),
    Row("forgetting", solved.forgetting, lambda d, h, k, v: plain(d, h, k, v) + d * h + h,
        forgetting),
    Row("local_linear", solved.local_linear, lambda d, h, k, v: plain(d, h, k, v) + h,
        fixed=ridge_of_heads),
    Row("parallax", solved.parallax, lambda d, h, k, v: plain(d, h, k, v) + d * h * k, directed),
    Row("gsa", solved.gsa, counted(0, lambda d, h, k, v: d * h * k), slotted),
    Row("linear", oracle.linear, counted()),
    Row("retention", oracle.retention, counted(),
        fixed=lambda layer: {"forget": [1 - 2.0 ** -(5 + h) for h in range(layer.heads)]}),
    Row("mamba2", oracle.mamba2, counted(1), gated),
    Row("log_linear_mamba2", oracle.log_linear_mamba2,
        counted(1, lambda d, h, k, v: 12 * (d * h + h)), levelled),
    Row("mamba3", oracle.mamba3, lambda d, h, k, v: heads_of(d, h, k, v, convolution=False)
        + 3 * d * h + h + d * (k // 4) + 2 * k + 2 * h * k + h + d * h * v, turning),
    Row("gla", oracle.gla, counted(2), gated),
    Row("hgrn2", oracle.hgrn2, counted()),
    Row("rwkv6", oracle.rwkv6, counted(0, lambda d, h, k, v: h * k + through(h * k, d)), decays,
        lambda layer: {"bonus": f64(layer.bonus)}),
    Row("mamba", oracle.mamba,
        counted(0, lambda d, h, k, v: through(h * v, d) + h * v * k + h * v), steps,
        lambda layer: {"rate": f64(layer.rate), "skip": f64(layer.skip)}),
    Row("mlstm", oracle.mlstm, counted(2), exponential),
    Row("delta", oracle.delta, counted(1), strength),
    Row("gated_delta", oracle.gated_delta, counted(2), gated),
    Row("gated_delta_product", oracle.gated_delta_product,
        counted(3, lambda d, h, k, v: d * h * (k + v) + 4 * h * k), stepwise),
    Row("kda", oracle.kda,
        counted(1, lambda d, h, k, v: through(h * k, d, v) + h + through(h * v, d, v)),
        channelled),
    Row("gated_delta2", oracle.kda,
        counted(0, lambda d, h, k, v: through(h * k, d, v) + h + through(h * v, d, v)
        + (d + 1) * h * (k + v)), channelled),
    Row("comba", oracle.comba, counted(2, lambda d, h, k, v: 2 * h), corrected),
    Row("rwkv7", oracle.rwkv7, counted(0, lambda d, h, k, v: 2 * through(h * k, d)
        + through(h * v, d) - h * v + 3 * h * k)),
    Row("longhorn", oracle.longhorn, counted(1), strength),
    Row("preconditioned_delta", oracle.preconditioned_delta, counted(3), curved),
    Row("preconditioned_gated_delta", oracle.preconditioned_delta,
        counted(4, lambda d, h, k, v: 2 * h), curved_by_itself, centred),
    Row("preconditioned_kda", oracle.preconditioned_delta,
        counted(3, lambda d, h, k, v: through(h * k, d, v) + h + through(h * v, d, v) + 2 * h),
        curved_by_itself, centred),
    Row("momentum_delta", oracle.momentum_delta, counted(4, lambda d, h, k, v: h), driven),
    Row("kalman_delta", solved.kalman_delta, counted(1, lambda d, h, k, v: 2 * through(h * k, d, v)
        + through(h * v, d, v) + 2 * h), filtered, started),
    Row("hawk", oracle.rg_lru, of_hawk),
    Row("ttt_linear", solved.ttt_linear,
        counted(1, lambda d, h, k, v: h * (v * v + v) + 2 * h * v), rates, network(*LINEAR), EACH,
        LINEAR, BATCH),
    Row("ttt_mlp", solved.ttt_mlp,
        counted(1, lambda d, h, k, v: h * (8 * v * v + 5 * v) + 2 * h * v), rates, network(*MLP),
        EACH, MLP, BATCH),
    Row("mesa", solved.mesa, counted(2, of_ridge), gated, ridge),
    Row("mesa_discounted", solved.mesa_discounted, counted(2, of_ridge), gated, ridge),
    Row("mesa_channel", solved.mesa_channel,
        counted(1, lambda d, h, k, v: through(h * k, d, v) + h + h * k), informed, ridge),
    Row("mesa_window", solved.mesa_window, counted(2, of_ridge), gated, ridge, FEW,
        options=WINDOW),
    Row("kalman", solved.kalman, counted(3), mixed, own=option(ratio="ratio"),
        options={"ratio": 0.2}),
    Row("intention", solved.intention, counted(1, of_ridge), strength, ridge,
        options={"segments": 3}),
]  # fmt: skip

# The same layers with other options: their arithmetic only.
VARIANTS = [
    Row("mesa", solved.mesa, counted(2, of_ridge), gated, ridge, name="mesa signed",
        options={"signed": True}),
    Row("mesa", solved.mesa, counted(1, of_ridge), gated, ridge, name="mesa without a write gate",
        options={"weighted": False}),
    Row("mesa", solved.mesa, counted(2, of_ridge), gated, ridge, name="mesa floor",
        options={"forget_floor": 0.7, "forget_bound": None, "output_norm": False}),
    Row("gla", oracle.gla, counted(2), vector_gated, name="gla vector",
        options={"vector_gates": True, "forget_bias": 1.0}),
    Row("linear", oracle.linear, counted(), own=option(normalise="normaliser"),
        name="linear elu", options={"feature_map": "elu", "normalise": False, "normaliser": True}),
    Row("linear", oracle.linear, counted(), name="linear dpfp shifted",
        options={"feature_map": "dpfp", "nu": 2, "key_shift": True}),
    Row("kda", oracle.kda, counted(), channelled, name="kda separate gates",
        options={"separate_gates": True, "negative_eigenvalues": True}),
    Row("preconditioned_delta", oracle.preconditioned_delta, counted(), curved,
        name="preconditioned kda", options={"vector_gates": True}),
    Row("kalman_delta", solved.kalman_delta, counted(), filtered, started,
        option(isotropic="isotropic"), name="kalman_delta isotropic",
        options={"isotropic": True, "output_gate": False}),
    Row("delta", oracle.delta, counted(1), strength, name="delta wide values",
        options={"convolve_values": True, "key_size": 4, "value_size": 7}),
    Row("local_linear", solved.local_linear, counted(), fixed=ridge_of_heads,
        own=option(window="window", scale="scale"), name="local_linear of unit keys in a window",
        options={"window": 5, "scale": 3.0, "normalise": True, "ridge_start": 0.1}),
    Row("parallax", solved.parallax, counted(), directed, own=option(window="window"),
        name="parallax without positions", options={"rope_base": None, "window": 5}),
    Row("softmax", solved.softmax, counted(), name="softmax without positions",
        options={"rope_base": None, "convolution": True, "output_norm": True}),
]  # fmt: skip


class Case:
    """A mixer with all weights moved off their starting values, compiled once per shape."""

    def __init__(self, row):
        layer = nn.mixer(row.mixer, DIM, heads=HEADS, key=jax.random.key(1), **row.options)
        arrays, static = eqx.partition(layer, eqx.is_array)
        leaves, shape = jax.tree.flatten(arrays)
        rng = np.random.default_rng(2)
        moved = [x + jnp.asarray(0.1 * rng.normal(size=x.shape), x.dtype) for x in leaves]
        self.arrays, self.static = jax.tree.unflatten(shape, moved), static
        self.traces = 0
        self.run = quick(self.traced)

    @property
    def layer(self):
        return eqx.combine(self.arrays, self.static)

    def traced(self, arrays, x, state, ids):
        self.traces += 1
        layer = eqx.combine(arrays, self.static)
        return layer(x, state=state, segment_ids=ids, capacity=ROOM)

    def __call__(self, x, state=None, ids=None):
        return self.run(self.arrays, x, state, ids)


case = cache(Case)


def draw(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def error(got, want):
    """Largest error relative to the largest entry."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape, (got.shape, want.shape)
    assert np.isfinite(got).all()
    return np.abs(got - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-300)
