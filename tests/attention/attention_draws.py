"""Streams and parameters for the table of attention rules.

A batch holds four kinds of stream, so that one compilation meets all of them: plain ones, gates of
exactly 0 and 1, absent tokens and zero keys, and gates down to 1e-3.
"""

from __future__ import annotations

import numpy as np

T, H, K, V = 130, 2, 3, 2  # two chunks and two tokens; K != V
SLOTS, LEVELS = 5, 9
KINDS = ("plain", "hard gates", "absent tokens", "small gates")
B = len(KINDS)
LOST, RESET, ABSENT = 20, 40, 3  # a token to spoil, the gate of 0 after it, every which is absent
WIDTH = 4  # of keys and values where they must agree
PRIOR = 5  # tokens behind the initial state


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def qkv(rng, t):
    k = unit(rng.normal(size=(B, t, H, K)))
    k[2, ::4] = 0
    v = rng.normal(size=(B, t, H, V))
    return {"q": rng.normal(size=(B, t, H, K)), "k": k, "v": v}


def gates(rng, t, *dims):
    g = rng.uniform(0.6, 1, (B, t, H, *dims))
    g[1] = rng.choice([0, 1, 1, 0.9], g[1].shape)
    g[1, LOST - 1 : RESET] = 1
    g[1, RESET : RESET + 1] = 0
    g[2] = 0.99
    g[3] = 10 ** rng.uniform(-3, 0, g[3].shape)
    return g


def signed(f):
    """Gates of random sign; some of those of 0 are -0."""

    def draw(rng, t):
        g = f(rng, t)
        return g * rng.choice([-1.0, 1.0], g.shape)

    return draw


def weights(rng, t, *dims):
    w = rng.uniform(0.2, 1, (B, t, H, *dims))
    w[2, 1::ABSENT] = 0
    return w


def log(x):
    with np.errstate(divide="ignore"):
        return np.log(x)


def drawing(base=qkv, **more):
    """A draw: ``base``, and what each of ``more`` makes of (rng, t)."""

    def draw(rng, t):
        return {**base(rng, t), **{n: f(rng, t) for n, f in more.items()}}

    return draw


def vector_gates(rng, t):
    return gates(rng, t, K)


def logs(f, scale=1.0):
    return lambda rng, t: scale * log(f(rng, t))


def large_logs(rng, t):
    """Log weights from -10 to 10: the running maximum moves in steps."""
    return log(weights(rng, t)) + rng.uniform(-10, 10, (B, t, H))


def mostly_positive(rng, t):
    """Keys and queries whose products add up: the normaliser has no cancellation to lose digits."""
    a = qkv(rng, t)
    return {"q": np.abs(a["q"]), "k": np.abs(a["k"]), "v": a["v"]}


def mild(rng, t):
    return rng.uniform(0.9, 1, (B, t, H))


def several(rng, t):
    """Two keys and values a token; of some tokens the first, of others both are zero."""
    k = unit(rng.normal(size=(B, t, H, 2, K)))
    k[2, ::4] = 0
    k[2, 1::8, :, 0] = 0
    v = rng.normal(size=(B, t, H, 2, V))
    return {"q": rng.normal(size=(B, t, H, K)), "k": k, "v": v}


def two_weights(rng, t):
    w = weights(rng, t, 2)
    w[3, :, :, 1] *= 2  # reflections, and beyond a projection
    return w


def removals(rng, t):
    k = unit(rng.normal(size=(B, t, H, K)))
    k[2, ::4] = 0
    k[3, 1::2] = k[3, 0:1]  # one key over and over
    return k


def vector_shares(rng, t):
    a = rng.uniform(size=(B, t, H, K))
    a[1, ::3] = 1
    a[2, ::5] = 0
    return a


def one_width(rng, t):
    """Values as wide as keys, wide enough for a layer normalisation to leave something."""
    return {n: rng.normal(size=(B, t, H, WIDTH)) for n in "qkv"}


def rates(rng, t):
    return 0.1 * weights(rng, t)


def channel_weights(rng, t):
    return weights(rng, t, V)


def level_weights(rng, t):
    return rng.normal(size=(B, t, H, LEVELS))


def angles(rng, t):
    a = rng.normal(size=(B, t, H, 1))
    a[3] *= 100  # many times around
    return a


def momenta(rng, t):
    """Momentum below 0.9, some of it 0 or 1; with steps below 1 nothing grows for long."""
    m = rng.uniform(0, 0.9, (B, t, H))
    m[1] = rng.choice([0, 1, 0.5], m[1].shape, p=[0.3, 0.1, 0.6])
    return m


def slot_gates(rng, t):
    return gates(rng, t, SLOTS)


def slot_weights(rng, t):
    """Strengths per slot; of some tokens some are 0, of others all."""
    w = weights(rng, t, SLOTS)
    w[0, ::2, :, 1] = 0
    return w


def shares(rng, t):
    return rng.uniform(size=(B, t, H))


def steps(rng, t):
    s = weights(rng, t, V)
    s[3] *= 20  # and so factors down to exp(-20 * exp(rate))
    return s


def sigmoids(rng, t):
    """Gates of the RG-LRU; those of 0 leave the hidden state as it is."""
    g = rng.uniform(0.1, 1, (B, t, H, V))
    g[1] = rng.choice([0, 1, 0.5], g[1].shape)
    g[3] = 10 ** rng.uniform(-3, 0, g[3].shape)
    return g


def inputs_only(rng, t):
    return {"x": rng.normal(size=(B, t, H, V))}


def network(rng):
    """Initial weights of a learner, and its layer normalisation."""
    return {
        "w1": rng.normal(size=(H, 2 * WIDTH, WIDTH)) / WIDTH**0.5,
        "b1": rng.normal(size=(H, 2 * WIDTH)) / WIDTH**0.5,
        "w2": rng.normal(size=(H, WIDTH, 2 * WIDTH)) / WIDTH**0.5,
        "b2": rng.normal(size=(H, WIDTH)) / WIDTH**0.5,
        **layer(rng),
    }


def layer(rng):
    return {
        "norm_scale": rng.uniform(0.5, 1, (H, WIDTH)),
        "norm_bias": 0.1 * rng.normal(size=(H, WIDTH)),
    }


def matrix(rng):
    """Initial weight and bias of a linear learner, and its layer normalisation."""
    return {"w": rng.normal(size=(H, WIDTH, WIDTH)), "b": rng.normal(size=(H, WIDTH)), **layer(rng)}


def matrix_and_factor(rng):
    """The same with the factor of a query at each of 4 places; one reads nothing new."""
    factor = rng.uniform(0.2, 1.2, (H, 4))
    factor[0, 1] = 0.0
    return {**matrix(rng), "query_factor": factor}


def ridge(rng):
    return {"ridge": rng.uniform(0.3, 1, (H, K))}


def head_ridge(rng):
    return {"ridge": rng.uniform(0.3, 1, H)}


def token_ridges(rng, t):
    return 10 ** rng.uniform(-1, 0, (B, t, H))


def directions(rng, t):
    return rng.normal(size=(B, t, H, K))


def large_ridge(rng):
    """Large enough for the streams of :func:`signed` gates to stay positive definite."""
    return {"ridge": rng.uniform(4, 6, (H, K))}


def queries_and_values(rng, t):
    a = qkv(rng, t)
    return {"q": a["q"], "v": a["v"]}
