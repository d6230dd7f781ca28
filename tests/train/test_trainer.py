"""The general trainer: any model, batches, loss and optimiser; a stop leaves no trace."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from olsq.train import (
    BatchLoss,
    CheckpointMismatch,
    Corpus,
    Log,
    Trainer,
    TrainingError,
    averaged,
    make_scan,
    make_step,
    read_checkpoint,
    shuffled,
    with_average,
)
from olsq.train.results import centred_mean
from tests.train.small import same_bits

pytestmark = pytest.mark.usefixtures("one_target")

SLOPE = np.array([2.0, -1.0, 0.5])
ROWS = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)


class Line(eqx.Module):
    slope: jax.Array
    degree: int = 1  # not a weight

    def __call__(self, x):
        return x @ self.slope


def line():
    return Line(jnp.zeros(3))


def noisy_loss(model, x, y, mask, *, key):
    """With dropout of rows, unequal weights of the parts of a batch, and a number to report."""
    mask = mask * jax.random.bernoulli(key, 0.7, mask.shape)
    square = (model(x) - y) ** 2
    total = mask.sum()
    mean = jnp.where(total > 0, (mask * square).sum() / jnp.maximum(total, 1), 0)
    return BatchLoss(mean, total, {"asked": total})


def rows(step):
    rng = np.random.default_rng(step)
    x = rng.normal(size=(8, 3)).astype(np.float32)
    return x, (x @ SLOPE).astype(np.float32), (rng.random(8) < 0.6).astype(np.float32)


def make(directory=None, batches=rows, **options):
    given = {"loss": noisy_loss, "optimizer": optax.adam(0.1), "steps": 11, "average": 0.8}
    return Trainer(
        line(), batches=batches, directory=directory, key=jax.random.key(3),
        evaluation=lambda model: {"loss": float(model.slope.sum()), "first": model.slope[0]},
        evaluate_every=4, accumulate=2, **{**given, **options},
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("batches", [rows, [rows(step) for step in range(11)]])
def test_stopped_and_resumed_is_the_same_run(tmp_path, batches):
    """With momentum, an average, accumulation, dropout and evaluations; from an iterable too."""
    whole = make(tmp_path / "whole").fit()
    first = make(tmp_path / "parts", batches)
    for _ in itertools.islice(first.run(), 5):
        pass
    first.save()
    assert first.step == 6  # one step is always under way
    second = make(tmp_path / "parts", batches)
    assert second.resume()
    assert [record.step for record in second.run()] == [7, 8, 9, 10, 11]
    for name in ("checkpoint.safetensors", "log.csv"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert same_bits([np.asarray(second.averaged.slope)], [np.asarray(whole.averaged.slope)])
    assert not same_bits([np.asarray(whole.averaged.slope)], [np.asarray(whole.model.slope)])
    other = make(tmp_path / "parts", average=0.9)
    with pytest.raises(CheckpointMismatch, match=r"average was 0\.8 and is 0\.9"):
        other.resume()


def test_the_log_has_every_score(tmp_path):
    run = make(tmp_path).fit()
    text = (tmp_path / "log.csv").read_text()
    assert text == run.log.as_csv()
    assert text.splitlines()[0].endswith(",skipped,validation_loss,asked,first")
    assert np.isfinite(run.log["first"]).tolist() == [s in (4, 8, 11) for s in range(1, 12)]
    assert np.isfinite(run.log["asked"]).all()
    again = Log.from_arrays(read_checkpoint(tmp_path / "checkpoint.safetensors").log.to_arrays())
    assert again.as_csv() == text
    with pytest.raises(KeyError, match="no column 'speed'; it has step, loss"):
        run.log["speed"]
    assert run.score()["first"] == float(run.averaged.slope[0])


@pytest.mark.full
def test_numbers_are_fetched_when_the_next_step_has_begun():
    asked, seen = [], []

    def batches(step):
        asked.append(step)
        return rows(step)

    def note(record):
        seen.append((record.step, len(asked)))

    make(batches=batches, callbacks=[note]).fit()
    ahead = dict(seen)
    assert ahead[1] == 2
    assert ahead[2] == 3
    assert ahead[4] == 4  # it was evaluated: nothing is ahead
    asked.clear()
    seen.clear()
    make(batches=batches, ahead=0, callbacks=[note]).fit()
    assert all(step == count for step, count in seen)


def test_what_was_begun_before_an_evaluation_is_reported_before_it():
    order, run = [], make(steps=5)
    run.evaluation = lambda model: order.append("evaluated") or 0.0
    run.callbacks = (lambda record: order.append(record.step),)
    run.fit()
    assert order == [1, 2, 3, "evaluated", 4, "evaluated", 5]


def test_parts_of_a_batch_count_as_much_as_they_ask():
    """Whole batch or parts of it: one mean over all targets, not a mean of means."""

    def loss(model, x, y, mask):
        return BatchLoss(
            (mask * (model(x) - y) ** 2).sum() / jnp.maximum(mask.sum(), 1), mask.sum()
        )

    x, y, _ = rows(0)
    for mask in ([1, 1, 1, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1, 0, 0]):  # 3 and 1, then 0 and 2
        found = []
        for parts in (1, 2):
            step = make_step(loss, optax.sgd(0.1), accumulate=parts)
            model, _, metrics = step(line(), optax.sgd(0.1).init(0.0), x, y, np.array(mask, "f"))
            found.append([*model.slope, metrics.loss, metrics.gradient_norm])
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    with pytest.raises(ValueError, match=r"accumulate must divide the batch of 8 rows .* got 3"):
        make_step(loss, optax.sgd(0.1), accumulate=3)(line(), (), x, y, np.ones(8, "f"))


def running_sum(model, x, state):
    """Squares of what a recurrence reads, with the state in which the next batch goes on."""
    sums = state + jnp.cumsum(model(x), -1)
    return BatchLoss(jnp.mean(sums**2), extra={"state": sums[:, -1:], "largest": sums.max()})


def test_states_go_on_from_batch_to_batch_in_a_loop_and_a_trainer_says_so():
    x = ROWS.reshape(4, 16, 3)
    optimizer = optax.sgd(0.0)
    step, model = make_step(running_sum, optimizer), Line(jnp.asarray(SLOPE, jnp.float32))
    moments, state = optimizer.init(model.slope), jnp.zeros((4, 1))
    for part in (x[:, :10], x[:, 10:]):
        model, moments, metrics = step(model, moments, part, state)
        state = metrics.extra["state"]
    np.testing.assert_allclose(state[:, 0], (x @ SLOPE).sum(1), rtol=1e-4)
    assert metrics.extra["largest"].shape == ()

    given = {"batches": lambda _: (x, jnp.zeros((4, 1))), "optimizer": optimizer, "steps": 1}
    says = r"takes numbers in BatchLoss.extra, got extra\['state'\].*make_step.*metrics.extra"
    for parts in (1, 2):
        with pytest.raises(TypeError, match="a Trainer " + says):
            Trainer(line(), loss=running_sum, accumulate=parts, **given).fit()
    with pytest.raises(TypeError, match="accumulate=2 " + says):  # not the mean of its parts
        make_step(running_sum, optimizer, accumulate=2)(line(), moments, x, jnp.zeros((4, 1)))
    pair = lambda *batch: (running_sum(*batch).mean, 1.0)  # noqa: E731
    with pytest.raises(TypeError, match=r"got a tuple: return .* BatchLoss\(mean, extra="):
        Trainer(line(), loss=pair, **given).fit()


def test_the_average_is_its_definition():
    optimizer, decay = with_average(optax.sgd(0.05), 0.7), 0.7
    model, made = line(), []
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    step = make_step(lambda model, x, y: jnp.mean((model(x) - y) ** 2), optimizer)
    assert same_bits([np.asarray(averaged(model, state).slope)], [np.zeros(3, "f")])
    for number in range(6):
        x, y, _ = rows(number)
        if number == 3:
            y = y * np.nan  # skipped: it counts for nothing
        model, state, metrics = step(model, state, x, y)
        made += [] if metrics.skipped else [np.asarray(model.slope, np.float64)]
    weight = decay ** np.arange(len(made))[::-1]
    assert len(made) == 5
    want = (weight[:, None] * made).sum(0) / weight.sum()
    np.testing.assert_allclose(averaged(model, state).slope, want, rtol=1e-5)
    with pytest.raises(TypeError, match="made by with_average, got tuple"):
        averaged(model, ())
    with pytest.raises(ValueError, match="decay must lie between 0 and 1"):
        with_average(optax.sgd(0.1), 1.0)


def test_a_scan_is_its_steps():
    def draw(key):
        x = jax.random.normal(key, (4, 3))
        return x, x @ jnp.asarray(SLOPE, jnp.float32)

    def loss(model, x, y):
        return jnp.mean((model(x) - y) ** 2)

    optimizer, key = optax.adam(0.1), jax.random.key(5)
    state = optimizer.init(eqx.filter(line(), eqx.is_inexact_array))
    scan = make_scan(loss, optimizer, draw, steps=3)
    model, after, first = scan(line(), state, key, 0)
    model, after, second = scan(model, after, key, 3)
    assert model.degree == 1
    one, losses, step = line(), [], make_step(loss, optimizer)
    for number in range(6):
        one, state, metrics = step(one, state, *draw(jax.random.fold_in(key, number)))
        losses.append(metrics.loss)
    np.testing.assert_allclose([*first.loss, *second.loss], losses, rtol=1e-4)
    np.testing.assert_allclose(model.slope, one.slope, rtol=1e-5)


def test_devices_share_the_rows():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    found = Trainer(
        line(), batches=lambda step: (ROWS, ROWS[:, :2]), steps=2, mesh=mesh,
        loss=lambda model, x, y: jnp.mean(model(x)) + 0 * y.sum(), optimizer=optax.sgd(0.1),
    ).fit()  # fmt: skip
    assert found.model.slope.sharding.mesh.axis_names == ("data",)
    np.testing.assert_allclose(found.model.slope, -0.2 * ROWS.mean(0), rtol=1e-4)


def test_shuffled_rows_are_all_seen_in_every_epoch():
    data = np.arange(10), np.arange(10) * 2
    batches = shuffled(data, 3, seed=1)
    for epoch in range(2):
        seen = np.concatenate([batches(3 * epoch + i)[0] for i in range(3)])
        assert len(set(seen.tolist())) == 9
    x, y = batches(4)
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_array_equal(batches(0)[0], shuffled(data, 3, seed=1)(0)[0])
    assert batches.digest != shuffled((data[0], data[0]), 3).digest
    with pytest.raises(ValueError, match="whole number from 1 to the 10 rows, got 11"):
        shuffled(data, 11)
    with pytest.raises(ValueError, match="same number of rows"):
        shuffled((data[0], data[0][:5]), 2)


def test_what_a_trainer_cannot_be_given():
    with pytest.raises(TypeError, match=r"a function of the step or an iterable .* got int"):
        make(batches=3)
    with pytest.raises(ValueError, match="steps must be an integer >= 1, got 0"):
        make(steps=0)
    with pytest.raises(ValueError, match="ahead must be an integer >= 0"):
        make(ahead=-1)
    with pytest.raises(TrainingError, match="there is no batch for step 3 of 11"):
        make(batches=[rows(0), rows(1)]).fit()


def test_the_digest_of_a_corpus_is_computed_once():
    tokens = np.arange(100)
    corpus = Corpus.split(tokens)
    assert corpus.digest is corpus.digest
    assert corpus.digest == Corpus.split(tokens.astype(np.uint8)).digest
    assert corpus.digest != Corpus.split(tokens, 0.2).digest
    with pytest.raises(ValueError, match="read-only"):
        corpus.train[0] = 1
    tokens[0] = 1  # the caller's own stays writeable


def test_the_average_of_the_curve_does_not_lag():
    line = 3.0 - 0.01 * np.arange(50)
    np.testing.assert_allclose(centred_mean(line, 9), line)
    jump = (np.arange(40) >= 20).astype(float)
    smooth = centred_mean(jump, 10)
    np.testing.assert_allclose(smooth + smooth[::-1], 1)  # half way where it happens
    assert centred_mean(np.zeros(0), 5).shape == (0,)
