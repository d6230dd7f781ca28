"""The adapter to Flax NNX computes and trains as the module that it adapts."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import olsq
import olsq.nn

pytestmark = pytest.mark.usefixtures("one_target")

flax = importlib.import_module("olsq.nn.flax")

TOKENS = jnp.array([[3, 1, 4, 1, 5, 2]])


def small(mixer=("gla", "softmax"), **options):
    return olsq.nn.LanguageModel(
        7, dim=8, blocks=2, heads=2, mixer=mixer, key=jax.random.key(0), **options
    )


def loss(model, tokens):
    logits = model(tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def same(a, b, **tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **{"rtol": 0, **tolerance})


def test_names_are_those_of_the_module():
    model = small()
    adapted = flax.to_nnx(model)
    names = {".".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(adapted))}
    assert names == set(olsq.nn.files.named_arrays(model))
    assert "backbone.blocks.1.mixer.query_proj.weight" in names
    weight = adapted.backbone.blocks[1].mixer.query_proj.weight
    assert isinstance(weight, nnx.Param)
    np.testing.assert_array_equal(weight[...], model.backbone.blocks[1].mixer.query_proj.weight)


@pytest.mark.parametrize("mixer", ["ttt_mlp", "hawk", "mamba2"])
def test_every_kind_of_layer_comes_back(mixer):
    layer = olsq.nn.mixer(mixer, 8, heads=2, key=jax.random.key(1))
    adapted = flax.to_nnx(layer)
    again = flax.to_equinox(adapted)
    assert jax.tree.structure(again) == jax.tree.structure(layer)
    same(again, layer)
    graph, state = nnx.split(adapted)
    same(flax.to_equinox(nnx.merge(graph, state)), layer)


def test_layer_with_a_state():
    layer = olsq.nn.GLA(8, heads=2, key=jax.random.key(2))
    x = jax.random.normal(jax.random.key(3), (1, 4, 8))
    adapted = flax.to_nnx(layer)
    want, after = eqx.filter_jit(lambda m, x: m(x, state=None))(layer, x)
    got, state = nnx.jit(lambda m, x: m(x, state=None))(adapted, x)
    same((got, state), (want, after), rtol=1e-6)


def test_options_are_kept_and_tell_compiled_functions_apart():
    layer = olsq.nn.Mesa(8, heads=2, key=jax.random.key(2))
    cheap = flax.to_nnx(olsq.nn.with_solver(layer, olsq.ConjugateGradient(max_steps=2)))
    assert nnx.split(cheap)[0] != nnx.split(flax.to_nnx(layer))[0]
    assert flax.to_equinox(cheap).solver == olsq.ConjugateGradient(max_steps=2)


@pytest.mark.full
def test_trains_as_equinox_does():
    model, tx = small(), optax.adamw(1e-2)
    adapted = flax.to_nnx(model)
    opt_state, optimizer = tx.init(model), nnx.Optimizer(adapted, tx, wrt=nnx.Param)

    @eqx.filter_jit
    def step(model, opt_state):
        value, grads = eqx.filter_value_and_grad(loss)(model, TOKENS)
        updates, opt_state = tx.update(grads, opt_state, model)
        return eqx.apply_updates(model, updates), opt_state, value, grads

    @nnx.jit
    def train(adapted, optimizer):
        value, grads = nnx.value_and_grad(loss)(adapted, TOKENS)
        optimizer.update(adapted, grads)
        return value, grads

    losses = []
    for step_number in range(3):
        model, opt_state, want, wanted = step(model, opt_state)
        got, grads = train(adapted, optimizer)
        losses.append(float(got))
        same(got, want, rtol=1e-6)
        flat = {".".join(map(str, at)): x[...] for at, x in nnx.to_flat_state(grads)}
        for name, gradient in olsq.nn.files.named_arrays(wanted).items():
            # Adam divides by |g|: it turns the rounding of a small gradient into a step
            atol = 1e-5 if step_number else 1e-6
            np.testing.assert_allclose(flat[name], gradient, atol=atol)
    assert losses[0] > losses[2]  # the second step overshoots at this rate
    same(flax.to_equinox(adapted), model, atol=1e-5)


@pytest.mark.full
def test_split_changes_and_merge():
    adapted = flax.to_nnx(small())
    graph, state = nnx.split(adapted)
    doubled = nnx.merge(graph, jax.tree.map(lambda x: 2 * x, state))
    run = eqx.filter_jit(lambda m, tokens: m(tokens))
    want = run(jax.tree.map(lambda x: 2 * x, small()), TOKENS)
    np.testing.assert_array_equal(run(flax.to_equinox(doubled), TOKENS), want)
    np.testing.assert_allclose(nnx.jit(lambda m, t: m(t))(doubled, TOKENS), want, rtol=1e-6)


def test_others_are_refused():
    with pytest.raises(TypeError, match="to_nnx returned, got a Linear"):
        flax.to_equinox(nnx.Linear(2, 2, rngs=nnx.Rngs(0)))
    with pytest.raises(TypeError, match="JAX arrays, got ShapeDtypeStruct"):
        flax.to_nnx(eqx.filter_eval_shape(small))


def test_without_flax(monkeypatch):
    monkeypatch.setitem(sys.modules, "flax", None)
    monkeypatch.delitem(sys.modules, "olsq.nn.flax")
    with pytest.raises(ImportError, match="pip install -U flax"):
        importlib.import_module("olsq.nn.flax")


@pytest.mark.slow
def test_blocks_of_the_page_run():
    page = (Path(__file__).parents[2] / "docs" / "layers-interop.md").read_text()
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "layers-interop", "layers-interop.md", 0)
    assert len(test.examples) > 20
    failed = []
    doctest.DocTestRunner().run(test, out=failed.append)
    assert failed == []
