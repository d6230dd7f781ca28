"""Streams read in the caller's layout, chunk by chunk, are those folded and cleaned before."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsq import attention
from olsq.attention import arguments
from tests.versions import quick

pytestmark = pytest.mark.usefixtures("one_target")

B, T, H, K, V = 2, 70, 2, 4, 3  # two chunks, the last one filled up


def streams(dtype):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(B, T, H, d)) / 2 for d in (K, K, V))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    q[0, 3, 1, 0], k[1, 66, 0, 1], v[0, 20, 1, 2] = np.nan, np.inf, np.nan
    gates, weight = rng.uniform(size=(2, B, T, H))
    gates[0, 40, 1] = 0  # forgets the loss
    arrays = tuple(jnp.asarray(x, dtype) for x in (q, k, v))
    return arrays, {"forget": gates, "weight": weight}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "dtype"), [(attention.gla, jnp.float32), (attention.gated_delta, jnp.bfloat16)]
)
def test_heads_are_folded_on_the_way(rule, dtype, monkeypatch):
    arrays, gates = streams(dtype)
    ids = jnp.repeat(jnp.arange(2), T // 2)[None].repeat(B, 0)

    def value_and_slopes(arrays, **options):
        run = partial(rule, **options, segment_ids=ids[: len(arrays[0])])
        (out, state), back = jax.vjp(lambda *a: run(*a), *arrays)
        ones = jax.tree.map(lambda x: jnp.where(jnp.isnan(x), 0, jnp.ones_like(x)), (out, state))
        return out, state, back(ones)

    found = value_and_slopes(arrays, **gates)
    assert found[0].dtype == dtype
    assert np.isnan(found[0]).any()
    rows = [
        value_and_slopes(
            [x[i : i + 1] for x in arrays], **{n: g[i : i + 1] for n, g in gates.items()}
        )
        for i in range(B)
    ]
    rows = jax.tree.map(lambda *x: jnp.concatenate(x), *rows)
    monkeypatch.setattr(arguments, "one_device", lambda: False)
    before = value_and_slopes(arrays, **gates)
    tol = {"rtol": 2e-2, "atol": 2e-2} if dtype == jnp.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    for other in (rows, before):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(*map(np.float64, (a, b)), **tol), found, other
        )


@pytest.mark.full
@pytest.mark.parametrize(
    ("rule", "device"),
    [
        (attention.gla, "one"),
        (attention.gated_delta, "many"),
        pytest.param(attention.gla, "many", marks=pytest.mark.slow),
        pytest.param(attention.gated_delta, "one", marks=pytest.mark.slow),
    ],
)
def test_two_value_heads_in_turn_share_a_key_head(rule, device, monkeypatch):
    """In the order of grouped attention, with gates of their own; gradients of q and k add up."""
    (q, k, v), gates = streams(jnp.float32)
    four = [jnp.concatenate([x, 1 - x], 2) for x in (v, *map(jnp.asarray, gates.values()))]
    v, gates = four[0], dict(zip(gates, four[1:], strict=True))
    monkeypatch.setattr(arguments, "one_device", lambda: device == "one")

    def value_and_slopes(repeats):
        def run(q, k, v):
            q, k = (jnp.repeat(x, repeats, 2) for x in (q, k))
            return rule(q, k, v, **gates)

        (out, state), back = jax.vjp(run, q, k, v)
        ones = jax.tree.map(lambda x: jnp.where(jnp.isnan(x), 0, jnp.ones_like(x)), (out, state))
        return out, state, back(ones)

    found, want = quick(lambda: (value_and_slopes(1), value_and_slopes(2)))()
    assert found[0].shape == (B, T, 4, V)
    assert found[1].matrix.shape == (B, 4, V, K)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, want)
    for heads in (3, 8):  # neither a divisor of v's heads nor as many
        with pytest.raises(ValueError, match="v may have a multiple of the heads of q and k"):
            rule(*(jnp.ones((1, 2, heads, K)),) * 2, jnp.ones((1, 2, 4, V)))


@pytest.mark.full
def test_truths_are_numbers():
    """No dtype of a sample is subtracted before it is made a number."""
    x = np.ones((1, 2, 1, 2), bool)
    out, _ = attention.gla(x, x, x)
    np.testing.assert_array_equal(out[0, :, 0], [[2, 2], [4, 4]])
