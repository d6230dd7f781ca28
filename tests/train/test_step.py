"""The loss of tokens and the step that users, experiments and the trainer share."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from olsq.tasks.tokens import IGNORE
from olsq.train import BatchLoss, make_step, token_loss, token_losses
from tests.train.small import SmallModel, same_bits, weights
from tests.versions import in_one_program, x64

pytestmark = pytest.mark.usefixtures("one_target")

RNG = np.random.default_rng(0)
LOGITS = 5 * RNG.normal(size=(3, 4, 7))
TARGETS = RNG.integers(0, 7, (3, 4))
ASKED = RNG.random((3, 4)) < 0.6
TOKENS = RNG.integers(0, 256, (4, 9)).astype(np.int32)


def definition(logits, targets):
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None], -1)[..., 0]


def test_losses_equal_the_definition():
    want = definition(LOGITS, TARGETS)
    logits, loss = LOGITS.astype("f"), in_one_program(token_loss)
    found = in_one_program(token_losses)(logits, TARGETS)
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(loss(logits, TARGETS), want.mean(), rtol=1e-6)
    masked = np.where(ASKED, TARGETS, IGNORE)
    found = loss(logits, masked, ignore=IGNORE)
    np.testing.assert_allclose(found, want[ASKED].mean(), rtol=1e-6)
    assert loss(logits, np.full((3, 4), IGNORE), ignore=IGNORE) == 0


@pytest.mark.parametrize("wrong", [-1, -7, -8, 7, 8, IGNORE])
def test_targets_outside_the_vocabulary_are_refused(wrong):
    """None stands for a token counted from the end; in a compiled step they have no loss."""
    targets = TARGETS.copy()
    targets[1, 2] = wrong
    for loss in (token_loss, token_losses):
        with pytest.raises(ValueError, match=rf"targets must lie in \[0, 7\).*{wrong}.*\[1, 2\]"):
            loss(LOGITS.astype("f"), targets)
        found = np.asarray(jax.jit(loss)(LOGITS.astype("f"), targets))
        assert np.isnan(found).sum() == 1
    counted = np.ones((3, 4))
    counted[1, 2] = 0
    want = definition(LOGITS, TARGETS)[counted > 0].mean()
    compiled = jax.jit(token_loss, static_argnames="ignore")
    for take in (token_loss, compiled):
        for given in ({"mask": counted}, {"ignore": wrong}):
            np.testing.assert_allclose(take(LOGITS.astype("f"), targets, **given), want, rtol=1e-6)


@pytest.mark.full
def test_losses_are_in_float32_or_better():
    assert token_losses(jnp.asarray(LOGITS, jnp.bfloat16), TARGETS).dtype == jnp.float32
    with x64(True):
        found = token_losses(LOGITS, TARGETS)
        assert found.dtype == jnp.float64
        np.testing.assert_allclose(found, definition(LOGITS, TARGETS), rtol=1e-12)


def test_targets_that_ask_for_nothing_have_no_gradient():
    masked = np.where(ASKED, TARGETS, IGNORE)
    slope = jax.jit(jax.grad(lambda x: token_loss(x, masked, ignore=IGNORE)))(LOGITS.astype("f"))
    np.testing.assert_array_equal(np.any(np.asarray(slope) != 0, -1), ASKED)


def loss_of(model, inputs, targets):
    return token_loss(model(inputs), targets)


def stepped(optimizer, loss=loss_of, *, given=None, **options):
    model = SmallModel()
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    step = make_step(loss, optimizer, **options)
    for _ in range(3):
        model, state, metrics = step(model, state, TOKENS[:, :-1], TOKENS[:, 1:], **(given or {}))
    return model, state, metrics


@pytest.mark.full  # one with decay and a schedule: test_training
def test_a_step_is_the_optimiser_s():
    optimizer = optax.adam(1e-2)
    params, static = eqx.partition(SmallModel(), eqx.is_inexact_array)
    state = optimizer.init(params)

    @jax.jit
    def by_hand(params, state):
        value, slope = jax.value_and_grad(
            lambda p: loss_of(eqx.combine(p, static), TOKENS[:, :-1], TOKENS[:, 1:])
        )(params)
        updates, state = optimizer.update(slope, state, params)
        return optax.apply_updates(params, updates), state, value, slope

    for _ in range(3):
        params, state, value, slope = by_hand(params, state)
    model, _, metrics = stepped(optimizer)
    for a, b in zip(weights(model), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(metrics.loss, value, rtol=1e-5)
    np.testing.assert_allclose(
        metrics.gradient_norm, jnp.linalg.norm(ravel_pytree(slope)[0]), rtol=1e-4
    )
    assert not metrics.skipped


@pytest.mark.full
@pytest.mark.parametrize("options", [{"accumulate": 2}, {"accumulate": 4}, {"donate": True}])
def test_saving_memory_changes_nothing_else(options):
    want, _, _ = stepped(optax.sgd(0.1))
    found, _, metrics = stepped(optax.sgd(0.1), **options)
    for a, b in zip(weights(found), weights(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert metrics.loss.shape == ()


def mean_of(scores, targets):
    return token_loss(scores, targets, ignore=IGNORE)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "loss",
    [
        mean_of,
        lambda scores, targets: token_loss(scores, targets * 0, mask=targets != IGNORE),
        lambda scores, targets: 2 * mean_of(scores, targets) + 0.25,
        lambda scores, targets: BatchLoss(
            mean_of(scores, targets), extra={"rows": len(targets) - jnp.sum(targets == IGNORE)}
        ),
    ],
    ids=["ignore", "mask", "another term", "BatchLoss"],
)
def test_parts_weigh_the_targets_that_count(loss, dtype):
    """Three, one and no targets in a part: one mean over all, whatever the loss returns."""
    rows = jnp.asarray(LOGITS.reshape(-1, 7)[:8], dtype)
    targets = np.full(8, IGNORE)
    targets[[0, 1, 2, 5]] = [0, 1, 2, 3]
    optimizer = optax.sgd(0.1, momentum=0.9)
    found = []
    for parts in (1, 2, 4):
        step = make_step(lambda w, x, y: loss(w * x, y), optimizer, accumulate=parts)
        model = jnp.ones(7, dtype)
        model, state, metrics = step(model, optimizer.init(model), rows, targets)
        assert model.dtype == state[0].trace.dtype == dtype
        assert metrics.gradient_norm.dtype == metrics.loss.dtype == jnp.float32
        found.append([*model.astype("f"), metrics.loss, metrics.gradient_norm])
    tolerance = {"float32": 1e-6}.get(dtype, 4 * float(jnp.finfo(dtype).eps))
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "loss",
    [
        lambda scores, targets: mean_of(scores, targets) + mean_of(2 * scores, targets),
        lambda scores, targets: jax.vmap(mean_of)(scores, targets).mean(),
        jax.jit(mean_of),
    ],
    ids=["two means", "vmap", "jit"],
)
def test_parts_whose_targets_cannot_be_counted_are_refused(loss):
    rows, targets = jnp.asarray(LOGITS[..., None, :], "f").reshape(-1, 1, 7), TARGETS.reshape(-1, 1)

    def step(parts, loss=loss):
        taken = make_step(lambda w, x, y: loss(w * x, y), optax.sgd(0.1), accumulate=parts)
        return taken(jnp.ones(7), optax.sgd(0.1).init(0.0), rows, targets)[2].loss

    with pytest.raises(ValueError, match=r"return olsq.train.BatchLoss\(mean, number_of_targets\)"):
        step(4)
    as_told = step(4, lambda scores, y: BatchLoss(loss(scores, y), y.size))
    np.testing.assert_allclose(as_told, step(1), rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize(
    "bad",
    [
        lambda model, x, y: loss_of(model, x, y) + jnp.inf,
        lambda model, x, y: jnp.sqrt(0 * loss_of(model, x, y)),  # 0, with an infinite slope
    ],
)
def test_a_step_that_is_not_finite_changes_nothing(bad):
    optimizer = optax.adam(1e-2)
    model, state, metrics = stepped(optimizer, bad)
    assert metrics.skipped
    assert same_bits(weights(model), weights(SmallModel()))
    assert all(not np.any(x) for x in jax.tree.leaves(state))


@pytest.mark.full
def test_the_optimiser_is_given_the_keywords():
    def update(updates, state, params=None, *, size, **_):
        return jax.tree.map(lambda u: -size * u, updates), state

    ours = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    found, want = stepped(ours, given={"size": 0.1})[0], stepped(optax.sgd(0.1))[0]
    for a, b in zip(weights(found), weights(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    stepped(optax.sgd(0.1), given={"size": 0.1})  # one that takes none is not given any
