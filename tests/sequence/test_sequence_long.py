"""Of a long sequence only the moments before each tile are kept: derivatives solve again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq.sequence.jax import tiles, walk
from olsq.sequence.jax.inputs import check

pytestmark = pytest.mark.usefixtures("one_target")

B, T, D, M = 2, 41, 3, 2  # three tiles of 16 tokens, the last in part


def streams():
    rng = np.random.default_rng(0)
    k, q = rng.normal(size=(2, B, T, D))
    gates = np.where(rng.uniform(size=(B, T)) < 0.05, 0, rng.uniform(0.8, 1, (B, T)))
    gates[1, 30:] = 0.9
    k[1, 35] = np.nan  # lost from here on, over the end of a tile
    ridge = rng.uniform(0.5, 1, (B, T, D))
    state = olsq.Moments(np.tile(np.eye(D), (B, 1, 1)), rng.normal(size=(B, M, D)))
    given = {"forget": gates, "weight": rng.uniform(size=(B, T)), "ridge": ridge}
    return (k, rng.normal(size=(B, T, M)), q), given, state


def wavy(tree):
    return jax.tree.map(lambda x: jnp.sin(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), tree)


@pytest.mark.slow
def test_gradients_of_long_sequences_are_those_of_short_ones(monkeypatch):
    monkeypatch.setattr(tiles, "MOST_CHUNKS", 2)
    arrays, given, state = streams()
    stream, *_ = check(
        *arrays, given["forget"], None, given["weight"], given["ridge"], "fixed", state
    )
    solver = olsq.ChunkExact(chunk=8).jax()

    def found(longest):
        monkeypatch.setattr(walk, "LONG", longest)

        @jax.jit
        def run(stream):
            value, moments, _, kept = walk.forward(stream, solver)
            back = walk.backward(stream, solver, kept, *wavy((value, moments)))
            assert (kept.solution is None) == (longest < T)
            return value, moments, back

        return run(stream)

    for got, want in zip(*map(jax.tree.leaves, map(found, (T - 1, T))), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.full
def test_the_gradient_of_a_long_sequence_solves_again(monkeypatch):
    monkeypatch.setattr(walk, "LONG", 20)
    rng = np.random.default_rng(1)
    k, v, q = rng.normal(size=(3, 37, 2))
    walked = []
    whole = walk.backward
    monkeypatch.setattr(walk, "backward", lambda *x: walked.append(x[2]) or whole(*x))

    @jax.jit
    def loss(k, ridge):
        return jnp.sin(olsq.online_lstsq(k, jnp.asarray(v), q, forget=0.9, ridge=ridge).value).sum()

    k, ridge = jnp.asarray(k), jnp.asarray(0.5)
    by_key, by_ridge = jax.grad(loss, (0, 1))(k, ridge)
    assert walked
    assert all(kept.solution is None for kept in walked)
    step, along = 1e-6, rng.normal(size=k.shape)
    ends = (loss(k + s * step * along, ridge + s * step) for s in (1, -1))
    want = (next(ends) - next(ends)) / (2 * step)
    forward = jax.jvp(loss, (k, ridge), (jnp.asarray(along), jnp.ones_like(ridge)))[1]
    for slope in ((by_key * along).sum() + by_ridge, forward):
        assert abs(slope - want) < 1e-6 * max(1, abs(want))
