"""Layers of flash-linear-attention in NumPy: its formulas on its weights, token by token.

Written from the descriptions in its ``fla/layers``; nothing of ours is used.  Queries are divided
by sqrt(K) where its kernels do that.
"""

from __future__ import annotations

import numpy as np

DIM, HEADS, KEY, VALUE, TAPS, RANK, STEPS = 8, 2, 4, 3, 3, 5, 2
EPS = 1e-2  # large, so that a norm's eps that is wrong shows


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0, x)


def rms(x, scale, eps=EPS):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * scale


def unit(x):
    return x / np.sqrt(np.sum(x * x, -1, keepdims=True) + 1e-6)


def linear(x, w, name):
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)


def low_rank(x, w, name):
    return linear(linear(x, w, f"{name}.0"), w, f"{name}.1")


def convolved(x, w, name):
    """Causal, depthwise, the last tap on the current token; x as it is without such weights."""
    if f"{name}.weight" not in w:
        return x
    taps = w[f"{name}.weight"][:, 0]
    width = taps.shape[1]
    padded = np.concatenate([np.zeros((width - 1, x.shape[1])), x])
    y = np.stack([(padded[t : t + width] * taps.T).sum(0) for t in range(len(x))])
    return y + w.get(f"{name}.bias", 0)


def rotated(x, base=10000.0):
    """Rotary positions over two halves, as complex numbers."""
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None, None] * base ** (-np.arange(half) / half)
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], -1)


def streams(x, w, c, activation, names=("q", "k", "v")):
    made = [activation(convolved(linear(x, w, f"{n}_proj"), w, f"{n}_conv1d")) for n in names]
    q, k, v = (y.reshape(len(x), c["num_heads"], -1) for y in made)
    if heads := c.get("num_v_heads"):  # "h d -> (h g) d" for g heads of values that share a key
        q, k = (np.repeat(y, heads // c["num_heads"], 1) for y in (q, k))
        v = v.reshape(len(x), heads, -1)
    return q, k, v


def summed(q, k, v, decay):
    """``S = S diag(decay) + v k^T``, ``o = S q / sqrt(K)``; decay (T, H, K) or (T, H, 1)."""
    o = np.zeros_like(v)
    for h in range(q.shape[1]):
        memory = np.zeros((v.shape[-1], k.shape[-1]))
        for t in range(len(q)):
            memory = memory * decay[t, h] + np.outer(v[t, h], k[t, h])
            o[t, h] = memory @ q[t, h] / np.sqrt(q.shape[-1])
    return o


def corrected(q, k, v, beta, decay):
    """Delta rules: k (T, H, n, K), v (T, H, n, V), beta (T, H, n), decay (T, H, K) or (T, H, 1)."""
    o = np.zeros((*q.shape[:2], v.shape[-1]))
    for h in range(q.shape[1]):
        memory = np.zeros((v.shape[-1], k.shape[-1]))
        for t in range(len(q)):
            memory = memory * decay[t, h]
            for key, value, rate in zip(k[t, h], v[t, h], beta[t, h], strict=True):
                memory = memory + rate * np.outer(value - memory @ key, key)
            o[t, h] = memory @ q[t, h] / np.sqrt(q.shape[-1])
    return o


def attended(q, k, v, log_decay=None, window=None):
    t = len(q)
    scores = np.einsum("thk,shk->hts", q, k) / np.sqrt(q.shape[-1])
    if log_decay is not None:
        total = np.cumsum(log_decay, 0).T
        scores = scores + total[:, :, None] - total[:, None, :]
    behind = np.arange(t)[:, None] - np.arange(t)
    seen = (behind >= 0) & (behind < (window or t))
    p = np.where(seen, np.exp(scores), 0)
    return np.einsum("hts,shv->thv", p / p.sum(-1, keepdims=True), v)


def written(o, x, w, norm, gate=silu):
    if norm:
        o = rms(o, w[norm])
    if "g_proj.weight" in w:
        o = o * gate(linear(x, w, "g_proj")).reshape(o.shape)
    return linear(o.reshape(len(x), -1), w, "o_proj")


def same(x):
    return x


def gla(x, w, c):
    q, k, v = streams(x, w, c, silu if "q_conv1d.weight" in w else same)
    decay = sigmoid(low_rank(x, w, "gk_proj")) ** (1 / 16)
    norm = "g_norm_swish_gate" if "g_proj.weight" in w else "g_norm"
    return written(summed(q, k, v, decay.reshape(k.shape)), x, w, f"{norm}.weight")


def retnet(x, w, c):
    q, k, v = streams(x, w, c, same)
    decay = np.broadcast_to(1 - 2.0 ** (-5 - np.arange(q.shape[1])), q.shape[:2])[..., None]
    o = summed(rotated(q), rotated(k), v, decay)
    return written(o, x, w, "g_norm_swish_gate.weight")


def linear_attn(x, w, c):
    q, k, v = streams(x, w, c, same)
    q, k = (np.where(y > 0, y + 1, np.exp(y)) for y in (q, k))
    o = summed(q, k, v, np.ones((*q.shape[:2], 1)))
    if c.get("norm_feature_map"):
        o = o / (q * np.cumsum(k, 0)).sum(-1, keepdims=True) * np.sqrt(q.shape[-1])
    return written(o, x, w, "norm.weight")


def hgrn2(x, w, c):
    q, f, i = streams(x, w, c, same, "qfi")
    o = summed(silu(q), 1 - sigmoid(f), i, sigmoid(f))
    return linear(rms(o.reshape(len(x), -1), w["g_norm.weight"]), w, "o_proj")


def mamba_gate(x, w):
    return np.exp(-np.exp(w["A_log"]) * softplus(linear(x, w, "a_proj") + w["dt_bias"]))[..., None]


def delta_net(x, w, c):
    q, k, v = streams(x, w, c, silu)
    beta = sigmoid(linear(x, w, "b_proj"))[..., None] * (2 if c.get("allow_neg_eigval") else 1)
    decay = np.ones((*q.shape[:2], 1))
    o = corrected(unit(q), unit(k)[:, :, None], v[:, :, None], beta, decay)
    return written(o, x, w, "o_norm.weight")


def gated_deltanet(x, w, c):
    q, k, v = streams(x, w, c, silu)
    beta = sigmoid(linear(x, w, "b_proj"))[..., None] * (2 if c.get("allow_neg_eigval") else 1)
    o = corrected(unit(q), unit(k)[:, :, None], v[:, :, None], beta, mamba_gate(x, w))
    gate = sigmoid if c.get("output_gate_activation") == "sigmoid" else silu
    return written(o, x, w, "o_norm.weight", gate)


def preconditioned(x, w, c, decay, gate):
    """Scale written keys by their curvature, then correct, token by token; read and scaled."""
    q, k, v = streams(x, w, c, silu)
    q, k = unit(q) / np.sqrt(q.shape[-1]), unit(k)
    beta = sigmoid(linear(x, w, "b_proj")) * (2 if c.get("allow_neg_eigval") else 1)
    keep = linear(x, w, gate) + w["dt_bias_atk"]
    keep = np.exp(-np.exp(w["A_log_atk"]) * softplus(keep))
    learn, o = sigmoid(linear(x, w, "b_atk_proj")), np.zeros_like(v)
    for h in range(q.shape[1]):
        memory, a = np.zeros((v.shape[-1], k.shape[-1])), np.zeros(k.shape[-1])
        for t in range(len(x)):
            a = keep[t, h] * a + learn[t, h] * k[t, h] ** 2
            r = np.log(a + 1e-6) - w["log_atk_scale"][h]
            written_key = k[t, h] * 1.5 ** (-r / (1 + np.abs(r)))
            memory = memory * decay[t, h]
            told = beta[t, h] * (v[t, h] - memory @ k[t, h])
            memory = memory + np.outer(told, written_key)
            o[t, h] = memory @ q[t, h]
    return o


def precond_gated_deltanet(x, w, c):
    o = preconditioned(x, w, c, mamba_gate(x, w), "a_atk_proj")
    return written(o, x, w, "o_norm.weight")


def precond_kda(x, w, c):
    pre = (low_rank(x, w, "f_proj") + w["dt_bias"]).reshape(len(x), HEADS, -1)
    decay = np.exp(-np.exp(w["A_log"])[:, None] * softplus(pre))
    o = preconditioned(x, w, c, decay, "a_proj")
    o = rms(o, w["o_norm.weight"]) * sigmoid(low_rank(x, w, "g_proj")).reshape(o.shape)
    return linear(o.reshape(len(x), -1), w, "o_proj")


def gated_deltaproduct(x, w, c):
    q, k, v = streams(x, w, c, silu)
    t, h = q.shape[:2]
    # Channels are (step, head, size) there.
    k, v = (y.reshape(t, STEPS, h, -1).swapaxes(1, 2) for y in (k, v))
    beta = sigmoid(linear(x, w, "b_proj")).reshape(t, STEPS, h).swapaxes(1, 2)
    beta = beta * (2 if c["allow_neg_eigval"] else 1)
    o = corrected(unit(q), unit(k), v, beta, mamba_gate(x, w))
    return written(o, x, w, "o_norm.weight")


def kda(x, w, c):
    q, k, v = streams(x, w, c, silu)
    pre = (low_rank(x, w, "f_proj") + w["dt_bias"]).reshape(k.shape)
    decay = np.exp(-np.exp(w["A_log"])[:, None] * softplus(pre))
    beta = sigmoid(linear(x, w, "b_proj"))[..., None] * (2 if c.get("allow_neg_eigval") else 1)
    o = corrected(unit(q), unit(k)[:, :, None], v[:, :, None], beta, decay)
    o = rms(o, w["o_norm.weight"]) * sigmoid(low_rank(x, w, "g_proj")).reshape(o.shape)
    return linear(o.reshape(len(x), -1), w, "o_proj")


def gdn2(x, w, c):
    """S = S diag(a); S = S - (S (b * k)) k^T + (w * v) k^T, token by token."""
    q, k, v = streams(x, w, c, silu)
    q, k = unit(q), unit(k)
    pre = (low_rank(x, w, "f_proj") + w["dt_bias"]).reshape(k.shape)
    decay = np.exp(-np.exp(w["A_log"])[:, None] * softplus(pre))
    erase = sigmoid(linear(x, w, "b_proj")).reshape(k.shape)
    erase = erase * (2 if c.get("allow_neg_eigval") else 1)
    v = v * sigmoid(linear(x, w, "w_proj")).reshape(v.shape)
    o = np.zeros_like(v)
    for h in range(q.shape[1]):
        memory = np.zeros((v.shape[-1], k.shape[-1]))
        for t in range(len(x)):
            memory = memory * decay[t, h]
            told = v[t, h] - memory @ (erase[t, h] * k[t, h])
            memory = memory + np.outer(told, k[t, h])
            o[t, h] = memory @ q[t, h] / np.sqrt(q.shape[-1])
    o = rms(o, w["o_norm.weight"]) * sigmoid(low_rank(x, w, "g_proj")).reshape(o.shape)
    return linear(o.reshape(len(x), -1), w, "o_proj")


def forgetting_transformer(x, w, c):
    q, k, v = streams(x, w, c, same)
    o = attended(q, k, v, np.log(sigmoid(linear(x, w, "f_proj"))))
    return written(o, x, w, None, sigmoid)


def transformer(x, w, c):
    q, k, v = streams(x, w, c, same)
    base = c.get("rope_theta", 10000.0)
    o = attended(rotated(q, base), rotated(k, base), v, window=c.get("window_size"))
    return written(o, x, w, None)


def parallax(x, w, c):
    """o = vbar (1 + E[r . k]) - E[v (r . k)], r not scaled, no positions."""
    q, k, v = streams(x, w, c, same)
    r = linear(x, w, "r_proj").reshape(q.shape)
    window = c.get("window_size") or len(x)
    o = np.zeros_like(v)
    for t in range(len(x)):
        seen = slice(max(0, t + 1 - window), t + 1)
        for h in range(q.shape[1]):
            p = np.exp(k[seen, h] @ q[t, h] / np.sqrt(q.shape[-1]))
            p = p / p.sum()
            along = p * (k[seen, h] @ r[t, h])
            o[t, h] = p @ v[seen, h] * (1 + along.sum()) - along @ v[seen, h]
    return written(o, x, w, None)


def gsa(x, w, c):
    q, k, v = streams(x, w, c, silu)
    stay = (sigmoid(linear(x, w, "f_proj")) ** (1 / 8)).reshape(len(x), c["num_heads"], -1)
    o = np.zeros_like(v)
    for h in range(c["num_heads"]):
        keys, values = (np.zeros((stay.shape[-1], y.shape[-1])) for y in (k, v))
        for t in range(len(x)):
            a = stay[t, h][:, None]
            keys, values = a * keys + (1 - a) * k[t, h], a * values + (1 - a) * v[t, h]
            p = np.exp(keys @ q[t, h])
            o[t, h] = p @ values / p.sum()
    return linear(rms(silu(o).reshape(len(x), -1), w["g_norm.weight"]), w, "o_proj")


def mamba3(x, w, c):
    """Discretised as exponential-trapezoidal; keys and queries turn by all angles so far."""
    heads, key, inner = len(w["dt_bias"]), len(w["B_norm.weight"]), w["out_proj.weight"].shape[1]
    groups = c["n_groups"]
    ends = np.cumsum([inner, inner, groups * key, groups * key, heads, heads, heads])
    z, v, b, q, dt, a, trap, angle = np.split(linear(x, w, "in_proj"), ends, -1)
    step = softplus(dt + w["dt_bias"])
    alpha = np.exp(-step * np.maximum(softplus(a), 1e-4))
    share = sigmoid(trap)
    theta = np.cumsum(np.pi * np.tanh(angle)[:, None] * step[..., None], 0)  # (T, H, R)

    def ready(y, name):
        y = rms(y.reshape(len(x), groups, key), w[f"{name}_norm.weight"])
        y = np.stack([y[:, h * groups // heads] for h in range(heads)], 1) + w[f"{name}_bias"][:, 0]
        turns = y[..., 0 : 2 * theta.shape[-1] : 2] + 1j * y[..., 1 : 2 * theta.shape[-1] : 2]
        turns = turns * np.exp(1j * theta)
        y[..., 0 : 2 * theta.shape[-1] : 2] = turns.real
        y[..., 1 : 2 * theta.shape[-1] : 2] = turns.imag
        return y

    k, q = ready(b, "B"), ready(q, "C")
    v, z = (y.reshape(len(x), heads, -1) for y in (v, z))
    o = np.zeros_like(v)
    for h in range(heads):
        state, before = np.zeros((v.shape[-1], key)), np.zeros((v.shape[-1], key))
        for t in range(len(x)):
            now = np.outer(v[t, h], k[t, h])
            late = share[t, h] * step[t, h]
            state = alpha[t, h] * (state + (step[t, h] - late) * before) + late * now
            o[t, h], before = state @ q[t, h] + w["D"][h] * v[t, h], now
    if "norm.weight" in w:
        o = rms(o, w["norm.weight"].reshape(heads, -1))
    return linear((o * silu(z)).reshape(len(x), -1), w, "out_proj")


# --- weights by their names


def projections(d, k, v, names="qkv", output=None):
    widths = dict(zip(names, (k, k, v), strict=True))
    shapes = {f"{n}_proj.weight": (width, d) for n, width in widths.items()}
    return shapes | {"o_proj.weight": (d, v if output is None else output)}


def taps(k, v, names="qkv", bias=False):
    widths = dict(zip(names, (k, k, v), strict=True))
    shapes = {f"{n}_conv1d.weight": (width, 1, TAPS) for n, width in widths.items()}
    return shapes | ({f"{n}_conv1d.bias": (x,) for n, x in widths.items()} if bias else {})


K, V = HEADS * KEY, HEADS * VALUE
GATE = {"g_proj.weight": (V, DIM)}
PER_HEAD = {"a_proj.weight": (HEADS, DIM), "A_log": (HEADS,), "dt_bias": (HEADS,)}
STRENGTH = {"b_proj.weight": (HEADS, DIM)}
NORM = {"o_norm.weight": (VALUE,)}
LOW = {"gk_proj.0.weight": (RANK, DIM), "gk_proj.1.weight": (K, RANK), "gk_proj.1.bias": (K,)}
PLAIN = projections(DIM, K, V)
SQUARE = projections(DIM, DIM, DIM)
DIRECTION = {"r_proj.weight": (DIM, DIM)}
PRODUCT = PLAIN | {"k_proj.weight": (STEPS * K, DIM), "v_proj.weight": (STEPS * V, DIM)}
PRODUCT |= {"b_proj.weight": (STEPS * HEADS, DIM)} | taps(K, V) | {
    "k_conv1d.weight": (STEPS * K, 1, TAPS), "v_conv1d.weight": (STEPS * V, 1, TAPS),
}  # fmt: skip
KIMI = {"A_log": (HEADS,), "dt_bias": (K,), "f_proj.0.weight": (VALUE, DIM)}
KIMI |= {"f_proj.1.weight": (K, VALUE), "g_proj.0.weight": (VALUE, DIM)}
KIMI |= {"g_proj.1.weight": (V, VALUE), "g_proj.1.bias": (V,)}
CURVED = {"dt_bias_atk": (HEADS,), "A_log_atk": (HEADS,), "log_atk_scale": (HEADS,)}
CURVED |= {"b_atk_proj.weight": (HEADS, DIM)}
SEPARATE = {"b_proj.weight": (K, DIM), "w_proj.weight": (V, DIM)}
GATES = {"f_proj.weight": (HEADS, DIM), "f_proj.bias": (HEADS,), "g_proj.weight": (DIM, DIM)}
HGRN = projections(DIM, DIM, DIM, "qfi") | taps(DIM, DIM, "qfi") | {"g_norm.weight": (DIM,)}
SIGMOID = {"output_gate_activation": "sigmoid", "allow_neg_eigval": True}


def space(groups, angles):
    rows = 2 * V + 2 * groups * KEY + 3 * HEADS + angles
    shapes = {"in_proj.weight": (rows, DIM), "out_proj.weight": (DIM, V)}
    shapes |= {f"{name}_bias": (HEADS, 1, KEY) for name in "BC"}
    shapes |= {f"{name}_norm.weight": (KEY,) for name in "BC"}
    return shapes | {"dt_bias": (HEADS,), "D": (HEADS,)}


# name: what computes it, shapes of its weights, its configuration
LAYERS = {
    "gla": (gla, PLAIN | LOW | GATE | {"g_norm_swish_gate.weight": (VALUE,)}, {}),
    "gla, convolved": (gla, PLAIN | LOW | taps(K, V, bias=True) | {"g_norm.weight": (VALUE,)}, {}),
    "retnet": (retnet, PLAIN | GATE | {"g_norm_swish_gate.weight": (VALUE,)}, {}),
    "linear_attn": (
        linear_attn, PLAIN | {"norm.weight": (VALUE,)},
        {"feature_map": "elu", "norm_feature_map": False},
    ),
    "linear_attn, divided": (
        linear_attn, PLAIN | {"norm.weight": (VALUE,)},
        {"feature_map": "elu", "norm_feature_map": True},
    ),
    "hgrn2": (
        hgrn2, HGRN, {"expand_ratio": DIM // HEADS},
    ),
    "delta_net": (delta_net, PLAIN | STRENGTH | taps(K, V) | NORM, {"allow_neg_eigval": True}),
    "gated_deltanet": (
        gated_deltanet, PLAIN | PER_HEAD | STRENGTH | taps(K, V, bias=True) | NORM | GATE, SIGMOID
    ),
    "gated_deltanet, shared keys": (
        gated_deltanet,
        projections(DIM, K, 2 * V)
        | {n: (2 * HEADS, *shape[1:]) for n, shape in (PER_HEAD | STRENGTH).items()}
        | taps(K, 2 * V) | NORM | {"g_proj.weight": (2 * V, DIM)},
        {"num_heads": HEADS, "num_v_heads": 2 * HEADS},
    ),
    "gated_deltaproduct": (
        gated_deltaproduct, PRODUCT | PER_HEAD | NORM | GATE, {"allow_neg_eigval": True}
    ),
    "kda": (kda, PLAIN | KIMI | STRENGTH | taps(K, V) | NORM, {"allow_neg_eigval": True}),
    "gdn2": (gdn2, PLAIN | KIMI | SEPARATE | taps(K, V) | NORM, {"allow_neg_eigval": True}),
    "precond_gated_deltanet": (
        precond_gated_deltanet,
        PLAIN | PER_HEAD | STRENGTH | CURVED | {"a_atk_proj.weight": (HEADS, DIM)} | taps(K, V)
        | NORM | GATE, {},
    ),
    "precond_kda": (
        precond_kda,
        PLAIN | KIMI | STRENGTH | CURVED | {"a_proj.weight": (HEADS, DIM)} | taps(K, V) | NORM,
        {"allow_neg_eigval": True},
    ),
    "forgetting_transformer": (
        forgetting_transformer, SQUARE | GATES, {},
    ),
    "transformer": (transformer, SQUARE, {"num_heads": HEADS, "rope_theta": 100.0}),
    "transformer, window": (transformer, SQUARE, {"num_heads": HEADS, "window_size": 3}),
    "parallax": (parallax, SQUARE | DIRECTION, {"num_heads": HEADS}),
    "parallax, window": (parallax, SQUARE | DIRECTION, {"num_heads": HEADS, "window_size": 3}),
    "gsa": (
        gsa,
        projections(DIM, K, DIM) | {"f_proj.weight": (HEADS * 3, DIM), "g_norm.weight": (DIM,)},
        {"num_heads": HEADS, "num_slots": 3},
    ),
    "mamba3": (mamba3, space(2, 1), {"n_groups": 2}),
    "mamba3, normed": (
        mamba3, space(2, 2) | {"norm.weight": (V,)}, {"n_groups": 2, "is_outproj_norm": True}
    ),
}  # fmt: skip


def weights(name, rng):
    shapes = LAYERS[name][1]
    return {n: rng.normal(size=shape) * (0.5 if "proj" in n else 1) for n, shape in shapes.items()}


def output(name, x, w):
    """Compute the output of one stream (T, DIM)."""
    compute, _, config = LAYERS[name]
    return compute(x, w, {"num_heads": HEADS, **config})
