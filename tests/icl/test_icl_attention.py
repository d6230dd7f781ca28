"""Layers with given weights, against loops over tokens and against the package's own attention."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import olsq
from olsq import icl

pytestmark = pytest.mark.usefixtures("one_target")

RNG = np.random.default_rng(1)
HEADS, KEYS, VALUES, WIDTH, LENGTH = 2, 3, 4, 5, 6
WEIGHTS = icl.AttentionWeights(
    key=RNG.normal(size=(HEADS, KEYS, WIDTH)),
    query=RNG.normal(size=(HEADS, KEYS, WIDTH)),
    value=RNG.normal(size=(HEADS, VALUES, WIDTH)),
    projection=0.1 * RNG.normal(size=(HEADS, WIDTH, VALUES)),
)
TOKENS = RNG.normal(size=(2, LENGTH, WIDTH))


def by_loops(tokens, *, softmax, causal, context):
    out = np.zeros_like(tokens)
    for row in range(LENGTH):
        seen = tokens[:context][: row + 1 if causal else None]
        for h in range(HEADS):
            q = WEIGHTS.query[h] @ tokens[row]
            scores = np.array([(WEIGHTS.key[h] @ e) @ q for e in seen])
            if softmax:
                scores = np.exp(scores - scores.max())
                scores /= scores.sum()
            mixed = sum(s * (WEIGHTS.value[h] @ e) for s, e in zip(scores, seen, strict=True))
            out[row] += WEIGHTS.projection[h] @ mixed
    return out


@pytest.mark.full
@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("context", [None, -1])
def test_update_is_the_sum_over_heads_and_tokens(softmax, causal, context):
    options = {"softmax": softmax, "causal": causal, "context": context}
    ours = icl.attention_update(TOKENS, WEIGHTS, **options)
    assert ours.dtype == np.float64
    for got, tokens in zip(ours, TOKENS, strict=True):
        np.testing.assert_allclose(got, by_loops(tokens, **options), atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("softmax", [False, True])
def test_causal_layers_are_the_attention_of_the_package(softmax):
    q, k, v = (
        np.einsum("hkd,btd->bthk", w, TOKENS) for w in (WEIGHTS.query, WEIGHTS.key, WEIGHTS.value)
    )
    if softmax:
        out, _ = olsq.attention.softmax(q, k, v, scale=1.0)
    else:
        out, _ = olsq.attention.linear(q, k, v)
    expected = np.einsum("hdv,bthv->btd", WEIGHTS.projection, out)
    ours = icl.attention_update(TOKENS, WEIGHTS, softmax=softmax, causal=True)
    np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_only_the_products_matter():
    again = icl.from_products(*icl.products(WEIGHTS))
    ours, theirs = (icl.attention_update(TOKENS, w, softmax=True) for w in (WEIGHTS, again))
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_layers_one_after_the_other():
    trace = icl.run_layers(TOKENS, [WEIGHTS] * 2, causal=True)
    rolled = icl.roll_out(TOKENS, WEIGHTS, 2, causal=True)
    np.testing.assert_allclose(trace, rolled, atol=1e-12)
    once = icl.attend(TOKENS, WEIGHTS, causal=True)
    np.testing.assert_allclose(trace[1], once, atol=1e-12)
    half = icl.roll_out(TOKENS, WEIGHTS, 1, damping=0.5, causal=True)[-1]
    np.testing.assert_allclose(half, (TOKENS + once) / 2, atol=1e-12)


@pytest.mark.slow
def test_clipping_is_between_layers():
    clipped = icl.run_layers(TOKENS, [WEIGHTS] * 2, clip=0.5)
    assert abs(clipped[1]).max() <= 0.5 < abs(clipped[2]).max()


@pytest.mark.full
def test_weights_can_be_trained():
    weights = icl.random_attention(jax.random.key(0), WIDTH, heads=2, key_size=3, scale=0.1)
    assert float(weights.key.std()) == pytest.approx(0.1, rel=0.5)

    @jax.jit
    def slope(weights):
        return jax.grad(lambda w: (icl.attend(TOKENS, w, causal=True) ** 2).sum())(weights)

    assert all(np.isfinite(g).all() and abs(g).max() > 0 for g in slope(weights))


def test_layers_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"tokens must have shape \(\.\.\., N, 5\), got \(6, 4\)"):
        icl.attend(TOKENS[0, :, :4], WEIGHTS)
    with pytest.raises(ValueError, match=r"weights must have key and query \(H, K, D\)"):
        icl.attend(TOKENS, WEIGHTS._replace(value=np.ones((HEADS, VALUES, 2))))
    with pytest.raises(ValueError, match=r"must both have shape \(D, D\) or \(H, D, D\)"):
        icl.from_products(np.eye(2), np.eye(3))
    with pytest.raises(ValueError, match="steps must be an integer >= 0"):
        icl.roll_out(TOKENS, WEIGHTS, -1)
    with pytest.raises(ValueError, match="heads must be an integer >= 1"):
        icl.random_attention(jax.random.key(0), 3, heads=0)
