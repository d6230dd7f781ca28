"""Blocks that repeat are one loop: same numbers, a program that does not grow, files as before."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq import nn
from olsq.nn import depth
from tests.versions import quick

pytestmark = pytest.mark.usefixtures("one_target")

TOKENS = np.array([[3, 1, 4, 1, 5, 2, 6], [5, 3, 5, 0, 7, 1, 0]])
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 2, 2]])


@pytest.fixture
def eager_loops(monkeypatch):
    """Loops of two blocks already, whichever they are: cheap ones are enough to test them with."""
    monkeypatch.setattr(depth, "LEAST", 2)
    monkeypatch.setattr(depth, "LEAST_SOLVING", 2)


def model_of(*mixers, blocks=None, **options):
    sizes = {"dim": 8, "heads": 2, "blocks": blocks or len(mixers), "key": jax.random.key(0)}
    return nn.LanguageModel(8, mixer=mixers, **{**sizes, **options})


def shapes_of(*mixers, **options):
    """A model without its weights, which a plan does not look at."""
    return eqx.filter_eval_shape(model_of, *mixers, **options)


def plan_of(model, length=7, **past):
    found = []

    def look(x, state):
        states = [None] * len(model.backbone.blocks) if state is None else state
        found.extend(depth._plan_loops(model.backbone.blocks, x, states, None))
        return x

    jax.eval_shape(look, jnp.zeros((2, length, 8)), past.get("state"))
    return found


def measured(model, segment_ids):
    """Logits and last states, and the gradient of a sum that depends on all of them."""
    arrays, static = eqx.partition(model, eqx.is_array)

    def loss(arrays):
        logits, after = eqx.combine(arrays, static)(TOKENS, state=None, segment_ids=segment_ids)
        total = sum((jnp.sin(x) ** 2).sum() for x in jax.tree.leaves((logits, after)))
        return total, (logits, after)

    (_, values), gradient = quick(jax.value_and_grad(loss, has_aux=True))(arrays)
    return values, gradient


def one_by_one(monkeypatch):
    monkeypatch.setattr(depth, "_plan_loops", lambda blocks, *_: iter([(0, len(blocks), 1)]))


@pytest.mark.full
@pytest.mark.usefixtures("eager_loops")
@pytest.mark.parametrize(
    ("mixers", "blocks", "plan", "remat"),
    [
        (("linear",), 2, [(0, 1, 2)], "full"),
        pytest.param(
            ("linear", "softmax"), 5, [(0, 2, 2), (4, 1, 1)], "none", marks=pytest.mark.slow
        ),
    ],
)
def test_a_loop_gives_what_blocks_one_by_one_give(monkeypatch, mixers, blocks, plan, remat):
    model = model_of(*mixers, blocks=blocks, remat=remat)
    assert plan_of(model) == plan
    looped = measured(model, SEGMENTS)
    one_by_one(monkeypatch)
    wanted = measured(model, SEGMENTS)
    assert jax.tree.structure(looped) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(looped), jax.tree.leaves(wanted), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=1e-4 * max(1e-3, float(jnp.abs(b).max())))


@pytest.mark.full
@pytest.mark.usefixtures("eager_loops")
def test_a_loop_goes_on_from_the_state_of_each_block():
    model = model_of("linear", blocks=3)
    state = model(TOKENS, state=None)[1]
    arrays, static = eqx.partition(model, eqx.is_array)

    def call(arrays, state):
        return eqx.combine(arrays, static)(TOKENS, state=state)

    assert plan_of(model, state=state) == [(0, 1, 3)]
    looped = quick(call)(arrays, state)
    wanted = model(TOKENS, state=state)  # outside of traces: one by one
    assert jax.tree.structure(looped) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(looped), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("eager_loops")
def test_the_program_does_not_grow_with_depth():
    def products(blocks):
        model = model_of("gla", blocks=blocks)
        return str(jax.make_jaxpr(lambda tokens: model(tokens))(TOKENS)).count("dot_general")

    assert products(2) == products(6)
    assert products(1) <= products(2)


@pytest.mark.usefixtures("eager_loops")
def test_what_differs_is_not_one_loop():
    model = shapes_of("gla", "linear", "gla", "linear", "gla", "gla", "gla", "hawk")
    assert plan_of(model) == [(0, 2, 2), (4, 1, 3), (7, 1, 1)]
    solved = shapes_of("mesa", blocks=3)
    assert plan_of(solved) == [(0, 1, 3)]
    first = solved.backbone.blocks[0].mixer.with_solver(olsq.ConjugateGradient())
    changed = eqx.tree_at(lambda m: m.backbone.blocks[0].mixer, solved, first)
    assert plan_of(changed) == [(0, 1, 1), (1, 1, 2)]
    wider = eqx.tree_at(
        lambda m: m.backbone.blocks[2].mlp.up.weight, solved, jnp.zeros((8, 24), jnp.bfloat16)
    )
    assert plan_of(wider) == [(0, 1, 2), (2, 1, 1)]


@pytest.mark.usefixtures("eager_loops")
def test_single_tokens_and_caches_that_may_grow_go_one_by_one():
    model = model_of("softmax", blocks=2)
    assert plan_of(model, length=1) == [(0, 2, 1)]
    state = jax.eval_shape(lambda: model(TOKENS, state=None, capacity=16)[1])
    assert plan_of(model) == [(0, 1, 2)]
    assert plan_of(model, state=state) == [(0, 2, 1)]


def test_blocks_are_a_loop_only_where_there_are_many():
    assert plan_of(shapes_of("linear", blocks=11)) == [(i, 1, 1) for i in range(11)]
    assert plan_of(shapes_of("linear", blocks=12)) == [(0, 1, 12)]
    assert plan_of(shapes_of("mesa", blocks=5)) == [(i, 1, 1) for i in range(5)]
    assert plan_of(shapes_of("mesa", blocks=6)) == [(0, 1, 6)]
    assert plan_of(shapes_of("linear", "mesa", blocks=10)) == [(i, 1, 1) for i in range(10)]
    assert plan_of(shapes_of("linear", "mesa", blocks=12)) == [(0, 2, 6)]


@pytest.mark.full
def test_outside_of_traces_blocks_run_as_they_are(monkeypatch):
    monkeypatch.setattr(depth, "_run_as_loop", None)
    assert model_of("linear", blocks=2)(TOKENS).shape == (2, 7, 8)


def test_a_block_that_changes_the_dtype_is_not_looped():
    class Widening(eqx.Module):
        mixer: eqx.Module = nn.SwiGLU(8, key=jax.random.key(0))

        def __call__(self, x, state, segment_ids, capacity, key):
            return x.astype(jnp.float32), None

    blocks = (Widening(), Widening())
    nothing, given = (None, None), (None, None, "none", False)
    y = jax.eval_shape(
        lambda x: depth._run_as_loop(blocks, x, nothing, nothing, 1, given)[0],
        jnp.zeros((1, 4, 8), jnp.bfloat16),
    )
    assert y.dtype == jnp.float32
