"""Streams that are easy and hard for sequence solvers, and the dense float64 answer."""

from __future__ import annotations

import numpy as np


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def tokens(rng, t, d, vocabulary=2000):
    """Zipf-distributed tokens plus noise: what a language model's keys look like."""
    table = rng.normal(size=(vocabulary, d))
    p = 1 / np.arange(1, vocabulary + 1)
    return unit(table[rng.choice(vocabulary, t, p=p / p.sum())] + 0.1 * rng.normal(size=(t, d)))


def walk(rng, t, d):
    """AR(1) keys with coefficient 0.9."""
    x = rng.normal(size=(t, d))
    for i in range(1, t):
        x[i] = 0.9 * x[i - 1] + np.sqrt(1 - 0.81) * x[i]
    return unit(x)


def runs(rng, t, d):
    """Runs of 200 identical keys."""
    return unit(rng.normal(size=(t // 200 + 1, d)))[np.arange(t) // 200]


def one(rng, t, d):
    """One key for ever."""
    return np.tile(unit(rng.normal(size=(1, d))), (t, 1))


STREAMS = {"tokens": tokens, "AR(1)": walk, "long runs": runs, "one token": one}


def make(stream, heads, t, d, m, seed=0):
    """keys, values, queries (heads, T, ...) in float32."""
    rng = np.random.default_rng(seed)
    k = np.stack([STREAMS[stream](rng, t, d) for _ in range(heads)])
    q = np.stack([STREAMS["tokens"](rng, t, d) for _ in range(heads)])
    return tuple(x.astype(np.float32) for x in (k, rng.normal(size=(heads, t, m)), q))


def exact(k, v, q, gate, ridge, block=512, discounted=False):
    """Float64 outputs of one head, (T, m): one dense solve per token.

    ``discounted``: the ridge is multiplied by all gates so far.
    """
    k, v, q = (x.astype(np.float64) for x in (k, v, q))
    d, m = k.shape[1], v.shape[1]
    gate = float(np.float32(gate))  # the gate that the float32 solvers are given
    state, out = np.zeros((d + m, d)), []
    for i in range(0, len(k), block):
        kv = np.concatenate([k, v], 1)[i : i + block]
        states = np.empty((len(kv), d + m, d))
        for t in range(len(kv)):
            state = gate * state + np.outer(kv[t], k[i + t])
            states[t] = state
        left = gate ** np.arange(i + 1, i + len(kv) + 1) if discounted else np.ones(len(kv))
        ridges = ridge * left[:, None, None] * np.eye(d)
        x = np.linalg.solve(states[:, :d] + ridges, q[i : i + block, :, None])
        out.append((states[:, d:] @ x)[..., 0])
    return np.concatenate(out)


def errors(got, want):
    """Median and maximum over tokens of the relative error of o."""
    rel = np.linalg.norm(got - want, axis=-1) / np.linalg.norm(want, axis=-1)
    return float(np.median(rel)), float(rel.max())
