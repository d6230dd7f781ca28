"""The one table of mixers: how each is made, what it counts, and its arithmetic in NumPy.

``reference`` is the layer on one stream in float64, token by token, from the layer's weights alone:
projections, convolution, features and gates are written out here, and the rule is its oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsq import nn
from olsq.reference import attention as oracle
from olsq.reference import attention_solved as solved

DIM, HEADS, B = 12, 2, 2
EPS = 1e-6  # of both norms
ROOM = 40  # tokens in a cache that grows


@pytest.fixture(autouse=True)
def compiled_quickly():
    """Compiling is most of these tests' time: compile quickly rather than for speed."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def quick(f):
    """``jax.jit``, compiled in a third of the time."""
    return jax.jit(f, compiler_options={"xla_cpu_use_fusion_emitters": False})


def f64(x):
    return np.asarray(x, np.float64)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.log1p(np.exp(x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def dense(p, x):
    y = x @ f64(p.weight)
    return y if p.bias is None else y + f64(p.bias)


def low_rank(p, x):
    return dense(p.up, dense(p.down, x))


def gate(p, x):
    return dense(p.project, x)


def rms(p, x):
    return f64(p.scale) * x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS)


def convolved(kernel, x):
    """y_t = sum_i kernel_i x_{t-i}, nothing before the first token."""
    y = np.zeros_like(x)
    for t in range(len(x)):
        for i in range(min(t + 1, len(kernel))):
            y[t] += f64(kernel[i]) * x[t - i]
    return y


def turned(x, base=10000.0):
    """Rotary positions: channels (i, i + K/2) as complex numbers times exp(j t base^(-2i/K))."""
    half = x.shape[-1] // 2
    z = x[..., :half] + 1j * x[..., half:]
    t, i = np.arange(len(x))[:, None, None], np.arange(half)
    z = z * np.exp(1j * t * base ** (-2 * i / (2 * half)))
    return np.concatenate([z.real, z.imag], -1)


def features(layer, x):
    if layer.feature_map == "silu":
        x = silu(x)
    else:
        x = np.array([[oracle.phi(h, layer.feature_map, layer.nu) for h in row] for row in x])
    if layer.normalise:
        x = x / np.sqrt((x**2).sum(-1, keepdims=True) + EPS)
    return x


def projected(layer, x):
    """Queries, keys and values (T, H, size) before the features."""
    streams = {n: dense(getattr(layer, n), x) for n in ("query", "key", "value")}
    if isinstance(layer.convolution, nn.ShortConvolution):
        taken = 0
        for n in layer.convolved:
            stop = taken + streams[n].shape[1]
            streams[n] = convolved(layer.convolution.kernel[:, taken:stop], streams[n])
            if layer.convolution.bias is not None:
                streams[n] += f64(layer.convolution.bias[taken:stop])
            taken = stop
    elif layer.convolution is not None:
        streams["key"] = np.concatenate([np.zeros_like(streams["key"][:1]), streams["key"][:-1]])
    return [s.reshape(len(x), layer.heads, -1) for s in streams.values()]


def reference(row, layer, x):
    """Outputs (T, dim) of one stream (T, dim)."""
    if row.mixer == "hawk":
        return hawk(layer, x)
    q, k, v = projected(layer, x)
    timed, fixed = row.gates(layer, x), row.fixed(layer)
    scale = layer.key_size**-0.25 if row.mixer == "mlstm" and not layer.normalise else 1.0
    gates_are_keys = row.mixer == "hgrn2"
    q, k = scale * features(layer, q), k if gates_are_keys else scale * features(layer, k)
    if getattr(layer, "rope_base", None):
        q, k = turned(q, layer.rope_base), turned(k, layer.rope_base)
    heads = []
    for h in range(layer.heads):
        given = {n: a[:, h] for n, a in timed.items()} | {n: a[h] for n, a in fixed.items()}
        if row.packed:
            given["initial"] = tuple(given.pop(n) for n in row.packed)
        arrays = {"q": q[:, h], "v": v[:, h]}
        arrays |= {"forget": sigmoid(k[:, h])} if gates_are_keys else {"k": k[:, h]}
        heads.append(row.oracle(**arrays, **given, **row.own(layer))[0])
    o = np.stack(heads, 1)
    if layer.norm is not None:
        o = rms(layer.norm, o)
    if layer.output_gate is not None:
        o = o * silu(dense(layer.output_gate, x)).reshape(o.shape)
    return dense(layer.output, o.reshape(len(x), -1))


def hawk(layer, x):
    """Griffin, fig. 2: a GeLU branch times a convolution and an RG-LRU with gates by blocks."""
    u = convolved(layer.convolution.kernel, dense(layer.branch, x)).reshape(len(x), layer.heads, -1)
    heads = []
    for h in range(layer.heads):
        i = sigmoid(u[:, h] @ f64(layer.input_gate[h]) + f64(layer.input_bias[h]))
        r = sigmoid(u[:, h] @ f64(layer.recurrence_gate[h]) + f64(layer.recurrence_bias[h]))
        out, _ = oracle.rg_lru(u[:, h], input_gate=i, recurrence_gate=r, rate=f64(layer.rate[h]))
        heads.append(out)
    h = np.concatenate(heads, -1)
    return dense(layer.output, h * gelu(dense(layer.gate, x)))


def strength(layer, x):
    return {"weight": sigmoid(gate(layer.strength, x))}


def gated(layer, x):
    """beta, and gamma (1 - (1 - b) beta^2), floored; tanh where it is signed."""
    beta = strength(layer, x)["weight"] if layer.strength is not None else None
    pre = gate(layer.forget, x)
    gamma = np.tanh(pre) if layer.signed else sigmoid(pre)
    gamma = layer.forget_floor + (1 - layer.forget_floor) * gamma
    if beta is None:
        return {"forget": gamma}
    if layer.forget_bound is not None:
        gamma = gamma * (1 - (1 - layer.forget_bound) * beta**2)
    return {"forget": gamma, "weight": beta}


def vector_gated(layer, x):
    each = sigmoid(low_rank(layer.vector, x)) ** (1 / 16)
    return gated(layer, x) | {"forget": each.reshape(len(x), layer.heads, -1)}


def curved(layer, x):
    given = gated(layer, x)
    keep = sigmoid(gate(layer.curvature_forget, x))
    return {**given, "curvature_forget": keep, "curvature_weight": given["weight"]}


def capped(x):
    return 15 * np.tanh(x / 15)


def exponential(layer, x):
    pre, forget = gate(layer.strength, x), gate(layer.forget, x)
    return {"forget": sigmoid(capped(forget)), "log_weight": capped(pre)}


def decays(layer, x):
    speed = low_rank(layer.decay, x).reshape(len(x), layer.heads, -1)
    return {"forget": np.exp(-np.exp(speed))}


def steps(layer, x):
    return {"step": softplus(low_rank(layer.step, x)).reshape(len(x), layer.heads, -1)}


def rates(layer, x):
    return {"learning_rate": layer.base_rate * sigmoid(gate(layer.rate, x)) / layer.key_size}


def mixed(layer, x):
    return gated(layer, x) | {"mix": sigmoid(gate(layer.mixing, x))}


def ridge(layer):
    floor = 49.0 if getattr(layer, "signed", False) else 0.25
    return {"ridge": floor + softplus(f64(layer.ridge.raw))}


def network(*names):
    def fixed(layer):
        start = dict(zip(names, map(f64, layer.initial), strict=True))
        return start | {"norm_scale": f64(layer.norm_scale), "norm_bias": f64(layer.norm_bias)}

    return fixed


def option(**names):
    return lambda layer: {n: getattr(layer, attribute) for n, attribute in names.items()}


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
    Row("linear", oracle.linear, counted()),
    Row("retention", oracle.retention, counted(),
        fixed=lambda layer: {"forget": [1 - 2.0 ** -(5 + h) for h in range(layer.heads)]}),
    Row("mamba2", oracle.mamba2, counted(1), gated),
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
    Row("longhorn", oracle.longhorn, counted(1), strength),
    Row("preconditioned_delta", oracle.preconditioned_delta, counted(3), curved),
    Row("hawk", oracle.rg_lru, of_hawk),
    Row("ttt_linear", solved.ttt_linear,
        counted(1, lambda d, h, k, v: h * (v * v + v) + 2 * h * v), rates, network(*LINEAR), EACH,
        LINEAR, BATCH),
    Row("ttt_mlp", solved.ttt_mlp,
        counted(1, lambda d, h, k, v: h * (8 * v * v + 5 * v) + 2 * h * v), rates, network(*MLP),
        EACH, MLP, BATCH),
    Row("mesa", solved.mesa, counted(2, of_ridge), gated, ridge),
    Row("mesa_discounted", solved.mesa_discounted, counted(2, of_ridge), gated, ridge),
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
    Row("mesa", solved.mesa, counted(2, of_ridge), gated, ridge, name="mesa floor",
        options={"forget_floor": 0.7, "forget_bound": None, "output_norm": False}),
    Row("gla", oracle.gla, counted(2), vector_gated, name="gla vector",
        options={"vector_gates": True, "forget_bias": 1.0}),
    Row("linear", oracle.linear, counted(), own=option(normalise="normaliser"),
        name="linear elu", options={"feature_map": "elu", "normalise": False, "normaliser": True}),
    Row("linear", oracle.linear, counted(), name="linear dpfp shifted",
        options={"feature_map": "dpfp", "nu": 2, "key_shift": True}),
    Row("delta", oracle.delta, counted(1), strength, name="delta wide values",
        options={"convolve_values": True, "key_size": 4, "value_size": 7}),
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
