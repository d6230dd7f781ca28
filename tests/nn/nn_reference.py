"""The arithmetic of every layer in NumPy: float64, token by token, from its weights alone.

Projections, convolution, features and gates are written out here; the rule is its oracle.
"""

from __future__ import annotations

import numpy as np

from olsq import nn
from olsq.reference import attention as oracle

EPS = 1e-6  # of both norms


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
    streams = {n: dense(getattr(layer, n + "_proj"), x) for n in ("query", "key", "value")}
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
    if row.mixer == "rwkv7":
        return rwkv7(layer, x)
    q, k, v = projected(layer, x)
    timed, fixed = row.gates(layer, x), row.fixed(layer)
    scale = layer.key_size**-0.25 if row.mixer == "mlstm" and not layer.normalise else 1.0
    gates_are_keys = row.mixer == "hgrn2"
    if row.mixer == "gated_delta_product":
        k, v = (y.reshape(*y.shape[:2], layer.steps, -1) for y in (k, v))
        k = np.stack([features(layer, k[:, :, j]) for j in range(layer.steps)], 2)
    elif not gates_are_keys:
        k = scale * features(layer, k)
    q = scale * features(layer, q)
    if getattr(layer, "admit", None) is not None:
        v = v * sigmoid(gate(layer.admit, x)).reshape(v.shape)
    if row.mixer == "mamba3":
        q = rms(layer.query_norm, q) + f64(layer.query_bias)
        k = rms(layer.key_norm, k) + f64(layer.key_bias)
    if row.mixer == "comba":
        q = q - f64(layer.correction)[:, None] * k
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
    if row.mixer == "mamba3":
        o = o + f64(layer.skip)[:, None] * v
    if layer.norm is not None:
        o = rms(layer.norm, o)
    if layer.output_gate is not None:
        o = o * silu(dense(layer.output_gate, x)).reshape(o.shape)
    if getattr(layer, "reading", None) is not None:
        o = o * sigmoid(low_rank(layer.reading, x)).reshape(o.shape)
    return dense(layer.output_proj, o.reshape(len(x), -1))


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
    return dense(layer.output_proj, h * gelu(dense(layer.gate, x)))


def rwkv7(layer, x):
    """RWKV-7, without its shift and the residual of values: removal, writing, bonus and gate."""
    q, k, v = projected(layer, x)
    pre = dense(layer.decay.up, np.tanh(dense(layer.decay.down, x))).reshape(k.shape)
    w = np.exp(-np.exp(-0.5) * sigmoid(pre))
    a = sigmoid(low_rank(layer.rate, x)).reshape(k.shape)
    r = k * f64(layer.removal_scale)
    r = r / np.sqrt((r**2).sum(-1, keepdims=True) + EPS)
    k = k * (1 + (a - 1) * f64(layer.rate_share))
    o = np.stack([
        oracle.rwkv7(q[:, h], k[:, h], v[:, h], removal_key=r[:, h], removal_rate=a[:, h],
                     forget=w[:, h])[0]
        for h in range(layer.heads)
    ], 1)  # fmt: skip
    o = rms(layer.norm, o) + (q * k * f64(layer.bonus)).sum(-1, keepdims=True) * v
    o = o * dense(layer.gate.up, sigmoid(dense(layer.gate.down, x))).reshape(o.shape)
    return dense(layer.output_proj, o.reshape(len(x), -1))


def strength(layer, x):
    return {"weight": sigmoid(gate(layer.strength, x))}


def gated(layer, x):
    """beta, and gamma (1 - (1 - b) beta^2), floored; tanh where it is signed."""
    beta = strength(layer, x)["weight"] if layer.strength is not None else None
    pre = gate(layer.forget, x)
    gamma = np.tanh(pre) if layer.signed else sigmoid(pre)
    gamma = layer.forget_floor + (1 - layer.forget_floor) * gamma
    if layer.forget_bound is not None:
        gamma = gamma * (1 - (1 - layer.forget_bound) * (1 if beta is None else beta**2))
    if beta is None:
        return {"forget": gamma}
    return {"forget": gamma, "weight": beta}


def vector_gated(layer, x):
    each = sigmoid(low_rank(layer.vector, x)) ** (1 / 16)
    return gated(layer, x) | {"forget": each.reshape(len(x), layer.heads, -1)}


def forgetting(layer, x):
    return {"forget": sigmoid(gate(layer.forget, x))}


def directed(layer, x):
    r = dense(layer.direction_proj, x).reshape(len(x), layer.heads, -1)
    return {"direction": turned(r, layer.rope_base) if layer.rope_base else r}


def channelled(layer, x):
    """KDA's: gates per key dimension, and beta, or what is erased of each; doubled if asked for."""
    given = {"forget": channel_decay(layer.decay, x, layer.heads)}
    most = 2 if layer.negative_eigenvalues else 1
    if layer.erase is not None:
        erase = sigmoid(gate(layer.erase, x)).reshape(len(x), layer.heads, -1)
        return {**given, "erase": most * erase}
    return {**given, "weight": most * strength(layer, x)["weight"]}


def informed(layer, x):
    """Gates per key dimension, and beta."""
    return {"forget": channel_decay(layer.decay, x, layer.heads), **strength(layer, x)}


def channel_decay(p, x, heads):
    """exp(-A softplus) per key dimension."""
    steps = softplus(low_rank(p.project, x)).reshape(len(x), heads, -1)
    return np.exp(-np.exp(f64(p.speed))[:, None] * steps)


def slotted(layer, x):
    each = sigmoid(gate(layer.forget, x)) ** (1 / 8)
    return {"forget": each.reshape(len(x), layer.heads, layer.slots)}


def levelled(layer, x):
    each = softplus(gate(layer.level, x))
    return {**gated(layer, x), "level_weight": each.reshape(len(x), layer.heads, layer.levels)}


def turning(layer, x):
    step, speed = softplus(gate(layer.step, x)), np.pi * np.tanh(gate(layer.angle, x))
    return {
        "forget": np.exp(-step * np.maximum(softplus(gate(layer.decay, x)), 1e-4)), "weight": step,
        "trapezoid": sigmoid(gate(layer.trapezoid, x)),
        "angle": step[..., None] * speed[:, None],
    }  # fmt: skip


def stepwise(layer, x):
    beta = 2 * sigmoid(gate(layer.rates, x)).reshape(len(x), layer.heads, -1)
    return {**gated(layer, x), "weight": beta}


def corrected(layer, x):
    b = np.broadcast_to(sigmoid(f64(layer.feedback)), (len(x), layer.heads))
    return {**gated(layer, x), "feedback": b}


def curved(layer, x):
    given = gated(layer, x)
    keep = sigmoid(gate(layer.curvature_forget, x))
    if layer.vector is not None:
        given["forget"] = channel_decay(layer.vector, x, layer.heads)
    return {**given, "curvature_forget": keep, "curvature_weight": given["weight"]}


def curved_by_itself(layer, x):
    """Those of GatedDelta or KDA, and gates and strengths of the curvature."""
    own = layer.curvature
    keep = sigmoid(gate(own.forget, x)) ** np.exp(f64(own.speed))
    given = channelled(layer, x) if hasattr(layer, "decay") else gated(layer, x)
    learn = sigmoid(gate(own.strength, x))
    return {**given, "curvature_forget": keep, "curvature_weight": learn}


def filtered(layer, x):
    """KDA's gates, the inverse of the noise, and the drift."""
    drift = (gate if layer.isotropic else low_rank)(layer.drift, x)
    return {
        "forget": channel_decay(layer.decay, x, layer.heads),
        "weight": 1 / (0.01 + softplus(gate(layer.strength, x))),
        "drift": softplus(drift if layer.isotropic else drift.reshape(len(x), layer.heads, -1)),
    }


def started(layer):
    return {"initial_precision": 0.1 + softplus(f64(layer.precision))}


def driven(layer, x):
    """GatedDelta's gates, bounded as the paper's angle theta, and those of the momentum."""
    given, eta = gated(layer, x), 2 * sigmoid(gate(layer.strength, x))
    theta = np.arctan(eta * np.exp(f64(layer.bound)))
    return {
        "forget": given["forget"] * np.cos(theta) ** 2, "weight": eta,
        "momentum": sigmoid(gate(layer.momentum, x)),
        "step_size": sigmoid(gate(layer.step, x)) * np.sin(theta) ** 2,
    }  # fmt: skip


def centred(layer):
    return {"center": f64(layer.curvature.center)}


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
    """The write gate multiplies keys and values: squared, it is their weight."""
    given = gated(layer, x)
    return given | {"weight": given["weight"] ** 2, "mix": sigmoid(gate(layer.mixing, x))}


def ridge(layer):
    floor = 49.0 if getattr(layer, "signed", False) else 0.25
    return {"ridge": floor + softplus(f64(layer.ridge.raw))}


def ridge_of_heads(layer):
    return {"ridge": layer.ridge.floor + softplus(f64(layer.ridge.raw))[:, 0]}


def network(*names):
    def fixed(layer):
        start = dict(zip(names, map(f64, layer.initial), strict=True))
        return start | {"norm_scale": f64(layer.norm_scale), "norm_bias": f64(layer.norm_bias)}

    return fixed


def option(**names):
    return lambda layer: {n: getattr(layer, attribute) for n, attribute in names.items()}
