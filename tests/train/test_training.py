"""Batches, the step, skipped steps and the evaluation, on a model small enough to see through."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from olsq.nn.kinds import path_names
from olsq.train import (
    Corpus,
    CorpusTrainer,
    Log,
    TrainingError,
    decay_mask,
    evaluate,
    fit,
    make_step,
    next_token_loss,
)
from olsq.train.optimiser import adamw
from tests.train.small import SmallModel, config, corpus, same_bits, trainer, weights

pytestmark = pytest.mark.usefixtures("one_target")


class Counted(SmallModel):
    """Counts how often it is traced."""

    traces: ClassVar[list] = []

    def __call__(self, tokens):
        self.traces.append(tokens.shape)
        return super().__call__(tokens)


class Poisoned(SmallModel):
    """Not a number whenever a sequence begins with a byte that ``bad`` holds."""

    bad: tuple = eqx.field(static=True, default=())

    def __init__(self, bad):
        super().__init__()
        self.bad = bad

    def __call__(self, tokens):
        first = tokens[:, :1, None]
        poison = jnp.isin(first, np.array(self.bad, np.int32))
        return jnp.where(poison, jnp.nan, super().__call__(tokens))


def test_batch_depends_on_seed_and_step_only():
    a, b = corpus(), corpus()
    shape = {"batch": 3, "length": 8}
    b.batch(seed=5, step=0, **shape)
    np.testing.assert_array_equal(
        a.batch(seed=0, step=7, **shape), b.batch(seed=0, step=7, **shape)
    )
    assert not np.array_equal(a.batch(seed=0, step=7, **shape), a.batch(seed=0, step=8, **shape))
    assert not np.array_equal(a.batch(seed=0, step=7, **shape), a.batch(seed=1, step=7, **shape))


def test_batches_reach_every_token_and_stay_in_the_training_part():
    data = Corpus.split(np.arange(40), validation=0.25)
    seen = {int(x) for step in range(200) for x in
            data.batch(seed=0, step=step, batch=4, length=4).ravel()}  # fmt: skip
    assert seen == set(range(30))


def test_windows_predict_each_validation_token_once():
    data = Corpus.split(np.arange(1000), validation=0.5)
    windows = data.windows(49)
    np.testing.assert_array_equal(windows[:, 1:].ravel(), 501 + np.arange(windows[:, 1:].size))
    chosen = data.windows(49, most=4)
    assert len(chosen) == 4
    assert {tuple(w) for w in chosen} <= {tuple(w) for w in windows}


def test_training_learns_and_leaves_the_given_model_alone():
    model = SmallModel()
    before = [w.copy() for w in weights(model)]
    run = fit(model, corpus(), config(steps=300, lr=1e-2))
    assert same_bits(before, weights(model))
    assert run.log["loss"][0] > 5.0
    assert run.evaluate().loss < 0.3
    assert run.log.skipped == 0


def test_compiled_once():
    Counted.traces.clear()
    trained = trainer(model=Counted(), config={"evaluate_every": 10})
    list(trained.run())
    steps = [shape for shape in Counted.traces if shape == (4, 16)]
    # One to look at the logits' shape, one for the step, one for the evaluation.
    assert len(Counted.traces) == 3
    assert len(steps) == 2


def test_step_is_optax_adamw():
    """Two steps by hand: clipped, decoupled decay on matrices, the schedule's rate."""
    options = config(steps=10, warmup=2, clip=0.1)
    model = SmallModel()
    params, static = eqx.partition(model, eqx.is_inexact_array)
    reference = optax.chain(
        optax.clip_by_global_norm(0.1),
        optax.adamw(options.learning_rate, b1=0.9, b2=0.98, eps=1e-8, weight_decay=0.1,
                    mask=decay_mask),
    )  # fmt: skip
    state = reference.init(params)
    mine, opt = eqx.combine(jax.tree.map(jnp.copy, params), static), adamw(options).init(params)
    step = make_step(next_token_loss, adamw(options), donate=True)
    rate = jax.jit(options.learning_rate)

    def loss(p, tokens):
        logits = eqx.combine(p, static)(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @jax.jit
    def expected(params, state, tokens):
        value, gradient = jax.value_and_grad(loss)(params, tokens)
        updates, state = reference.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value, gradient

    for index in range(3):
        tokens = corpus().batch(seed=0, step=index, batch=4, length=16)
        params, state, value, gradient = expected(params, state, tokens)
        mine, opt, metrics = step(mine, opt, tokens, learning_rate=rate(index))
        np.testing.assert_allclose(metrics.loss, value, rtol=1e-6)
        norm = jnp.linalg.norm(ravel_pytree(gradient)[0])
        np.testing.assert_allclose(metrics.gradient_norm, norm, rtol=1e-5)
    for x, y in zip(weights(mine), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)


def test_accumulation_is_the_same_step():
    whole = fit(SmallModel(), corpus(), config(steps=5))
    parts = fit(SmallModel(), corpus(), config(steps=5, accumulate=2))
    for a, b in zip(weights(whole.model), weights(parts.model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_only_matrices_outside_the_embedding_decay():
    params = eqx.filter(SmallModel(), eqx.is_inexact_array)
    flags = {
        ".".join(path_names(path)): flag
        for path, flag in jax.tree_util.tree_leaves_with_path(decay_mask(params))
    }
    assert {name for name, flag in flags.items() if flag} == {"hidden.weight", "output.weight"}
    assert "norm" in flags
    assert "embedding" in flags


def test_bad_steps_are_skipped_counted_and_leave_no_trace():
    run = trainer(model=Poisoned(bad=(ord("q"),)), ahead=0)
    before = weights(run.model)
    for record in run.run():
        after = weights(run.model)
        finite = np.isfinite(record.loss)
        assert record.skipped == (not finite)
        assert same_bits(before, after) == record.skipped
        before = after
    assert 0 < run.log.skipped < len(run.log)
    assert all(np.isfinite(w).all() for w in weights(run.model))
    assert np.isnan(run.log["loss"]).sum() == run.log.skipped


def test_a_run_without_a_good_step_ends_with_advice():
    run = trainer(model=Poisoned(bad=tuple(range(256))), config={"steps": 200}, ahead=0)
    with pytest.raises(TrainingError, match=r"100 steps in a row.*smaller learning rate"):
        list(run.run())
    assert run.step == 100


def test_evaluation_equals_the_definition():
    model = SmallModel()
    windows = corpus().windows(16)
    found = evaluate(model, windows, batch=4)
    logits = np.asarray(model(jnp.asarray(windows[:, :-1])), np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -np.take_along_axis(log_p, windows[:, 1:, None], -1)[..., 0]
    assert found.losses.dtype == np.float32
    np.testing.assert_allclose(found.losses, loss, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.loss, loss.mean(), rtol=1e-6)
    np.testing.assert_allclose(found.perplexity, np.exp(loss.mean()), rtol=1e-6)
    bins = found.binned(5)
    assert bins.first[0] == 1
    assert bins.last[-1] == 16
    assert (bins.first[1:] == bins.last[:-1] + 1).all()
    width = bins.last - bins.first + 1
    np.testing.assert_allclose((bins.loss * width).sum() / 16, found.loss, rtol=1e-12)


def test_evaluation_is_in_float32_for_bfloat16_logits():
    def coarse(tokens):
        return jnp.tile(jnp.arange(8, dtype=jnp.bfloat16), (*tokens.shape, 1))

    found = evaluate(coarse, np.full((2, 4), 7))
    np.testing.assert_allclose(found.loss, np.log(np.exp(np.arange(8) - 7.0).sum()), rtol=1e-6)


def test_log_is_the_same_after_saving():
    run = trainer(config={"steps": 5, "evaluate_every": 2})
    list(run.run())
    again = Log.from_arrays(run.log.to_arrays())
    assert again.as_csv() == run.log.as_csv()
    assert np.isfinite(run.log["validation_loss"]).tolist() == [False, True, False, True, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be an integer >= 1, got 0"),
        ({"batch": 2.5}, "batch must be an integer"),
        ({"length": -1}, "length must be"),
        ({"lr": 0.0}, "lr must be a positive number"),
        ({"lr": float("nan")}, "lr must be a positive number"),
        ({"clip": -1.0}, "clip must be a positive number"),
        ({"beta2": 1.0}, "beta2 must lie in"),
        ({"weight_decay": -0.1}, "weight_decay must not be negative"),
        ({"warmup": 41}, "warmup must lie between 0 and the 40 steps"),
        ({"seed": -1}, "seed must be"),
        ({"accumulate": 3}, "batch must be a multiple of accumulate, got 4 and 3"),
        ({"evaluate_every": 0}, "evaluate_every must be"),
    ],
)
def test_options_out_of_range(change, message):
    with pytest.raises(ValueError, match=message):
        config(**change)


def test_data_that_cannot_be_trained_on():
    with pytest.raises(ValueError, match="empty"):
        Corpus.split(np.zeros(0, int))
    with pytest.raises(ValueError, match="whole numbers"):
        Corpus.split(np.zeros(5))
    with pytest.raises(ValueError, match="validation must lie"):
        Corpus.split(np.zeros(5, int), validation=1.0)
    with pytest.raises(ValueError, match="training part has 18 tokens: too few"):
        CorpusTrainer(SmallModel(), Corpus.split(np.zeros(20, int)), config(length=32))
    with pytest.raises(ValueError, match="tokens from 0 to 99, the model knows 0 to 49"):
        CorpusTrainer(SmallModel(50), Corpus.split(np.arange(1000) % 100), config())
    with pytest.raises(ValueError, match="must map tokens"):
        CorpusTrainer(lambda tokens: tokens, corpus(), config())
    with pytest.raises(ValueError, match="windows must be"):
        evaluate(SmallModel(), np.zeros((3, 1), int))
