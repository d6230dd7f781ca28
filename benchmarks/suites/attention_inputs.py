"""Arguments of every attention rule at a given size, and the oracle of one head."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

WINDOW = 256
STATIC = {"window": WINDOW}  # what jit must not trace


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def arguments(name, t, heads=8, width=64, seed=0):
    """(arrays, keyword arrays) of a rule, float32: unit keys and queries, gates of .99 to 1."""
    rng = np.random.default_rng(seed)
    q, k = unit(rng.normal(size=(2, 1, t, heads, width)))
    v = rng.normal(size=(1, t, heads, width))
    forget = rng.uniform(0.99, 1, (1, t, heads))
    weight = rng.uniform(0, 1, (1, t, heads))
    vector = rng.uniform(0.9, 1, (1, t, heads, width))
    levels = rng.uniform(0, 1, (1, t, heads, 11))
    gated = {"forget": forget, "weight": weight}
    special = {
        "hgrn2": ((q, v), {"forget": vector}),
        "rwkv6": ((q, k, v), {"forget": vector, "bonus": np.ones((heads, width))}),
        "rwkv7": (
            (q, k, v),
            {"forget": vector, "removal_key": k, "removal_rate": 10 * vector - 9},
        ),
        "gated_delta_product": (
            (q, np.stack([k, np.roll(k, 1, -1)], 3), np.stack([v, v[..., ::-1]], 3)),
            {"forget": forget, "weight": np.stack([weight, 1 - weight], 3)},
        ),
        "mamba": (
            (q, k, v),
            {"step": 0.1 * vector, "rate": np.zeros((heads, width, width))},
        ),
        "rg_lru": (
            (v,),
            {"input_gate": vector, "recurrence_gate": vector, "rate": np.ones((heads, width))},
        ),
        "mlstm": ((q, k, v), {"forget": forget, "log_weight": 3 * weight}),
        "ttt_linear": (
            (q, k, v),
            {"learning_rate": weight / width, "initial": matrix(rng, heads, width, width)},
        ),
        "ttt_mlp": (
            (q, k, v),
            {
                "learning_rate": weight / width,
                "initial": (
                    *matrix(rng, heads, 4 * width, width),
                    *matrix(rng, heads, width, 4 * width),
                ),
            },
        ),
    }
    options = {
        "forgetting": {"forget": forget},
        "kda": {"forget": vector, "weight": weight},
        "gsa": {"forget": vector},
        "local_linear": {"ridge": 0.01},
        "parallax": {"direction": q},
        "mamba3": {**gated, "angle": vector[..., : width // 4]},
        "log_linear_mamba2": {"forget": forget, "level_weight": levels},
        "comba": {**gated, "feedback": 0.5 + weight / 2},
        "momentum_delta": {**gated, "momentum": 0.9 * weight, "step_size": weight},
        "kalman_delta": {"forget": vector, "weight": 10 * weight, "drift": 0.1 * vector},
        "mamba2": {"forget": forget},
        "gla": gated,
        "delta": {"weight": weight},
        "gated_delta": gated,
        "longhorn": {"weight": weight},
        "preconditioned_delta": gated,
        "mesa": {**gated, "ridge": 1.0},
        "mesa_discounted": {**gated, "ridge": 1.0},
        "mesa_channel": {"forget": vector, "weight": weight, "ridge": 1.0},
        "mesa_window": {**gated, "ridge": 1.0},
        "kalman": gated,
        "intention": {"weight": weight, "ridge": 1.0},
    }
    arrays, named = special.get(name, ((q, k, v), options.get(name, {})))
    cast = partial(jnp.asarray, dtype=jnp.float32)
    return jax.tree.map(cast, (arrays, named))


def matrix(rng, heads, rows, columns):
    """Initial weight and bias of one layer of a learner."""
    return rng.normal(size=(heads, rows, columns)) / columns**0.5, np.zeros((heads, rows))


def static(name):
    """Arguments that are not arrays."""
    return STATIC if name in ("sliding_window", "mesa_window") else {}


def runner(name):
    """The rule as a function of (arrays, keyword arrays): outputs only."""
    from olsq.attention.registry import BY_NAME  # commits before it are measured too

    rule, fixed = BY_NAME[name].function, static(name)
    return lambda arrays, named: rule(*arrays, **named, **fixed)[0]


def one_head(name, arrays, named, head=0):
    """Outputs (T, V) of one head by the float64 recurrence."""

    from olsq.reference import attention as recurrences
    from olsq.reference import attention_solved as solved

    def of_head(key, x):
        x = np.asarray(x, np.float64)
        if key in ("rate", "bonus", "initial"):
            return x[head]
        return x if x.ndim == 0 else x[0, :, head]

    options = {n: jax.tree.map(lambda a, n=n: of_head(n, a), x) for n, x in named.items()}
    if name == "retention":
        options["forget"] = 1 - 2.0 ** -(5 + head)
    oracle = getattr(recurrences, name, None) or getattr(solved, name)
    streams = (np.asarray(x, np.float64)[0, :, head] for x in arrays)
    return oracle(*streams, **options, **static(name))[0]
