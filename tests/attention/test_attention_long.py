"""8,192 tokens in float32: errors do not grow, with gates near 1 or down to 1e-3."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsq import attention
from olsq.reference import attention as oracle
from olsq.reference import attention_solved as solved

pytestmark = pytest.mark.usefixtures("one_target")

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
    "gsa": {"forget": VECTOR},
    "mamba3": {"forget": SCALAR, "weight": SCALAR, "trapezoid": SCALAR, "angle": (1, T, 1, 3)},
    "hgrn2": {"forget": VECTOR},
    "rwkv6": {"forget": VECTOR},
    "mlstm": {"forget": SCALAR, "weight": SCALAR},
    "delta": {"weight": SCALAR},
    "gated_delta": {"forget": SCALAR, "weight": SCALAR},
    "gated_delta signed": {"forget": SCALAR, "weight": SCALAR},
    "longhorn": {"weight": SCALAR},
    "kda": {"forget": VECTOR, "weight": SCALAR},
    "rwkv7": {"forget": VECTOR, "removal_rate": VECTOR},
    "preconditioned_delta vector": {
        "forget": VECTOR,
        "weight": SCALAR,
        "curvature_forget": SCALAR,
    },
    "preconditioned_delta": {"forget": SCALAR, "weight": SCALAR, "curvature_forget": SCALAR},
}


@cache
def compiled(name, signed):
    """A jitted rule: all its gates share the compilation."""
    rule = getattr(attention, name)
    return jax.jit(partial(rule, signed=True) if signed else rule)


@pytest.mark.slow
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
    if name == "rwkv7":  # as the paper does: what is removed is near what is written
        options["removal_rate"] = rng.uniform(0, 1, VECTOR)
        options["removal_key"] = k + 0.1 * rng.normal(size=VECTOR)
        options["removal_key"] /= np.linalg.norm(options["removal_key"], axis=-1, keepdims=True)
    bonus = {"bonus": rng.uniform(0, 1, (1, K))} if name == "rwkv6" else {}
    streams, options, bonus = jax.tree.map(np.float32, (streams, options, bonus))
    got, state = compiled(name, "signed" in row)(*map(jnp.asarray, streams), **options, **bonus)
    one = {n: x[0, :, 0] for n, x in options.items()} | {n: x[0] for n, x in bonus.items()}
    recurrence = getattr(oracle, name, None) or getattr(solved, name)
    want, last = recurrence(*(x[0, :, 0] for x in streams), **one)
    assert got.dtype == jnp.float32
    assert np.abs(got[0, :, 0] - want).max() <= 1e-5 * np.abs(want).max()
    assert np.abs(state[0][0, 0] - last[0]).max() <= 1e-5 * np.abs(last[0]).max()


@pytest.mark.slow
@pytest.mark.parametrize("gates", [harsh, gentle, resetting], ids=lambda g: g.__name__)
def test_scores_fade_over_blocks_of_queries_as_they_do_in_float64(gates):
    """Logs of gates add up to -4,000, which float32 holds to 2e-4: no difference of sums serves."""
    rng, length = np.random.default_rng(6), 1200
    q, k, v = 3 * rng.normal(size=(3, 1, length, 1, 4)).astype(np.float32)
    forget = gates(rng, (1, length, 1)).astype(np.float32)
    first, state = attention.forgetting(
        *(x[:, :700] for x in (q, k, v)), forget=forget[:, :700], capacity=length
    )
    second, _ = attention.forgetting(
        *(x[:, 700:] for x in (q, k, v)), forget=forget[:, 700:], state=state
    )
    got = np.concatenate([first, second], 1)[0, :, 0]
    assert got.dtype == np.float32
    a, b, c = (np.asarray(x[0, :, 0], float) for x in (q, k, v))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.asarray(forget[0, :, 0], float))
        fade = np.cumsum(np.tril(np.broadcast_to(logs[:, None], (length, length)), -1), 0)
    fade = np.where(np.tri(length, dtype=bool), np.where(np.isnan(fade), -np.inf, fade), -np.inf)
    scores = a @ b.T / 2 + fade
    share = np.exp(scores - scores.max(1, keepdims=True))
    want = share @ c / share.sum(1, keepdims=True)
    assert np.abs(got - want).max() <= 3e-6 * np.abs(want).max()
