"""8,192 tokens in float32: errors do not grow, with gates near 1 or down to 1e-3."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsq import attention
from olsq.reference import attention as oracle

T, K, V = 8192, 6, 4

VECTOR, SCALAR = (1, T, 1, K), (1, T, 1)


def harsh(rng, shape):
    return 10 ** rng.uniform(-3, 0, shape)


def gentle(rng, shape):
    return 1 - 10 ** rng.uniform(-6, -2, shape)


def resetting(rng, shape):
    return np.where(rng.uniform(size=shape) < 0.01, 0.0, rng.uniform(0.9, 1, shape))


RULES = {
    "gla": {"forget": SCALAR, "weight": SCALAR},
    "gla vector": {"forget": VECTOR, "weight": SCALAR},
    "gla signed": {"forget": SCALAR, "weight": SCALAR},
    "gla vector signed": {"forget": VECTOR, "weight": SCALAR},
    "hgrn2": {"forget": VECTOR},
    "rwkv6": {"forget": VECTOR},
    "mlstm": {"forget": SCALAR, "weight": SCALAR},
    "delta": {"weight": SCALAR},
    "gated_delta": {"forget": SCALAR, "weight": SCALAR},
    "gated_delta signed": {"forget": SCALAR, "weight": SCALAR},
    "longhorn": {"weight": SCALAR},
    "preconditioned_delta": {"forget": SCALAR, "weight": SCALAR, "curvature_forget": SCALAR},
}


@pytest.mark.parametrize("gates", [harsh, gentle, resetting], ids=lambda g: g.__name__)
@pytest.mark.parametrize("row", RULES)
def test_float32_stays_close_over_8192_tokens(row, gates):
    rng = np.random.default_rng(5)
    q, k = rng.normal(size=(2, *VECTOR))
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    v = rng.normal(size=(1, T, 1, V))
    if row == "mlstm":  # a normaliser without cancellation
        q, k = np.abs(q), np.abs(k)
    name = row.split()[0]
    streams = (q, v) if name == "hgrn2" else (q, k, v)
    options = {n: gates(rng, s) for n, s in RULES[row].items() if n != "weight"}
    if "signed" in row:
        options["forget"] *= rng.choice([-1, 1], options["forget"].shape)
    if "weight" in RULES[row]:
        options["weight"] = rng.uniform(0.1, 1, SCALAR)
    bonus = {"bonus": rng.uniform(0, 1, (1, K))} if name == "rwkv6" else {}
    streams, options, bonus = jax.tree.map(np.float32, (streams, options, bonus))
    static = {"signed": True} if "signed" in row else {}
    rule = jax.jit(partial(getattr(attention, name), **static))
    got, state = rule(*map(jnp.asarray, streams), **options, **bonus)
    one = {n: x[0, :, 0] for n, x in options.items()} | {n: x[0] for n, x in bonus.items()}
    want, last = getattr(oracle, name)(*(x[0, :, 0] for x in streams), **one)
    assert got.dtype == jnp.float32
    assert np.abs(got[0, :, 0] - want).max() <= 1e-5 * np.abs(want).max()
    assert np.abs(state[0][0, 0] - last[0]).max() <= 1e-5 * np.abs(last[0]).max()
