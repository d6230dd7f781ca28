"""Bounds that keep a Mesa layer's systems well conditioned: MesaNet, appendix F.5."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olsq import nn
from olsq.nn.gated import RIDGE_FLOOR
from tests.tiers import examples

pytestmark = pytest.mark.usefixtures("one_target")

T, DIM, HEADS, K = 200, 12, 2, 6
CAP = 1 - nn.solved.FORGET_BOUND
STREAMS = {
    "noise": lambda rng: rng.normal(size=(T, DIM)),
    "one token": lambda rng: np.tile(rng.normal(size=DIM), (T, 1)),
    "two tokens": lambda rng: rng.normal(size=(2, DIM))[rng.integers(0, 2, T)],
    "zeros": lambda rng: np.zeros((T, DIM)),
    "huge": lambda rng: 1e6 * rng.normal(size=(T, DIM)),
}


@eqx.filter_jit
def read(mixer, x):
    _, keys, _, arguments, _ = mixer.read(x[None], None, None)
    forget = jnp.exp(arguments["log_forget"])
    return keys[0], forget[0], arguments["weight"][0], arguments["ridge"]


def systems(keys, forget, weight):
    """H_t of (T, K) keys, and the total weight t_eff that its samples have."""
    h, total = np.zeros((K, K)), 0.0
    for k, gamma, beta in zip(keys, forget, weight, strict=True):
        h, total = gamma * h + beta * np.outer(k, k), gamma * total + beta
        yield h, total


@given(
    stream=st.sampled_from(sorted(STREAMS)),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    shift=st.sampled_from([-8.0, 0.0, 8.0]),
    seed=st.integers(0, 9),
)
@settings(max_examples=examples(15), deadline=None)
def test_condition_numbers_are_bounded_by_weight_over_ridge(stream, scale, shift, seed):
    rng = np.random.default_rng(seed)
    mixer = nn.mixer("mesa", DIM, heads=HEADS, key_size=K, key=jax.random.key(seed))
    mixer = eqx.tree_at(
        lambda m: (m.forget.project, m.strength.project),
        mixer,
        replace_fn=lambda d: jax.tree.map(lambda a: scale * a + shift, d),
    )
    mixer = eqx.tree_at(lambda m: m.ridge.raw, mixer, replace_fn=lambda a: a - 3 * scale)
    x = jnp.asarray(STREAMS[stream](rng), jnp.float32)
    keys, forget, weight, ridge = (np.asarray(a, np.float64) for a in read(mixer, x))
    assert np.linalg.norm(keys, axis=-1).max() <= 1 + 1e-6
    assert weight.min() >= 0
    assert weight.max() <= 1
    assert ridge.min() >= RIDGE_FLOOR
    assert np.all(forget <= 1 - CAP * weight**2 + 1e-6)
    for head in range(HEADS):
        found = systems(keys[:, head], forget[:, head], weight[:, head])
        for t, (h, total) in enumerate(found, 1):
            if t % 25:
                continue
            low, *_, high = np.linalg.eigvalsh(h + np.diag(ridge[head]))
            assert high / low <= (ridge[head].max() + total) / ridge[head].min() * (
                1 + 1e-5
            )  # float32 keys
            assert total <= largest_weight(t)


def largest_weight(t):
    """Bound ``x <- (1 - c beta^2) x + beta`` after t steps, beta in [0, 1]: see below."""
    return min(t, np.sqrt((0.5 / CAP) ** 2 + (0.5 / CAP + 1) * t))


def test_the_cap_bounds_the_weight_by_400_for_full_strength_only():
    # The greatest step of x is beta - c beta^2 x at beta = 1 / (2 c x), which adds 1 / (4 c x).
    full = weak = greedy = 0.0
    for t in range(1, 20_001):
        full = (1 - CAP) * full + 1
        weak = (1 - CAP * 0.1**2) * weak + 0.1
        beta = 1 if greedy == 0 else min(1, 1 / (2 * CAP * greedy))
        greedy = (1 - CAP * beta**2) * greedy + beta
        assert max(full, weak, greedy) <= largest_weight(t)
    assert 399 < full < 400
    assert 1500 < weak < 4000
    assert greedy > 0.99 * largest_weight(20_000)
