"""MAD: each task against its description, read sequence by sequence, and controls."""

from __future__ import annotations

import numpy as np
import pytest

from olsq.tasks import mad
from olsq.tasks.tokens import IGNORE, token_accuracy

TASKS = [setting.draw for setting in mad.BASELINES.values()]
RECALL = [mad.in_context_recall, mad.noisy_recall, mad.fuzzy_recall]


def chance(n_values, count):
    """Accuracy of guessing one of n values, as an approx of three standard errors."""
    p = 1 / n_values
    return pytest.approx(p, abs=3 * np.sqrt(p * (1 - p) / count))


def asked(data):
    return data.targets != IGNORE


# --- all tasks


@pytest.mark.parametrize("task", TASKS)
def test_seeded_by_int_or_generator(task):
    one, two = task(20, 3), task(20, np.random.default_rng(3))
    for field, same in zip(one, two, strict=True):
        np.testing.assert_array_equal(field, same)
        assert field.dtype == np.int64
        assert field.shape == one.inputs.shape
    assert not np.array_equal(one.inputs, task(20, 4).inputs)
    rng = np.random.default_rng(3)
    assert not np.array_equal(task(20, rng).inputs, task(20, rng).inputs)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("options", [{"n": -1}, {"vocab": 1}, {"length": 0}])
def test_mad_arguments_out_of_range(task, options):
    with pytest.raises(ValueError, match="must be at least"):
        task(**{"n": 2, "seed": 0, **options})


@pytest.mark.parametrize("task", TASKS)
def test_no_sequences(task):
    data = task(0, 0)
    assert data.inputs.shape == data.targets.shape == (0, task(1, 0).inputs.shape[1])


@pytest.mark.parametrize("task", TASKS)
def test_tokens_lie_in_the_vocabulary(task):
    data = task(400, 0, vocab=24)
    shown = set(data.inputs.ravel().tolist()) | set(data.targets[asked(data)].tolist())
    assert shown <= set(range(24))
    # of 23 tokens memorisation makes 11 keys and 12 values, one of which stays without a key
    n_without = 1 if task is mad.memorisation else 0
    assert len(shown) == 24 - n_without


@pytest.mark.parametrize("task", RECALL)
def test_training_targets_are_the_next_tokens(task):
    data = task(50, 0)
    np.testing.assert_array_equal(data.targets[:, :-1], data.inputs[:, 1:])
    assert asked(data).all()


def test_odd_lengths():
    for task in (mad.in_context_recall, mad.noisy_recall, mad.memorisation):
        with pytest.raises(ValueError, match="even"):
            task(2, 0, length=31)


# --- recall


@pytest.mark.parametrize(
    ("task", "options"), [(mad.in_context_recall, {}), (mad.noisy_recall, {"noise": 0.6})]
)
def test_recall_against_a_dictionary(task, options):
    data = task(300, 0, test=True, **options)
    assert data.inputs.shape == (300, 127)
    for row, target in zip(data.inputs, data.targets, strict=True):
        expected = np.full(127, IGNORE)
        value_of = {}
        for t in range(0, 126, 2):
            key, value = row[t : t + 2]
            if key >= 16:  # noise
                continue
            assert key < 8 <= value < 16
            if key in value_of:
                assert value == value_of[key]
                expected[t] = value
            value_of[key] = value
        expected[-1] = value_of[row[-1]]
        np.testing.assert_array_equal(target, expected)


def test_recall_draws_are_uniform():
    data = mad.in_context_recall(4000, 1, test=True)
    keys = data.inputs[:, :-1:2]
    np.testing.assert_allclose(np.bincount(keys.ravel()) / keys.size, 1 / 8, atol=0.003)
    np.testing.assert_allclose(np.bincount(data.inputs[:, -1]) / 4000, 1 / 8, atol=0.02)
    np.testing.assert_allclose(np.bincount(data.inputs[:, 1])[8:] / 4000, 1 / 8, atol=0.02)
    # 64 pairs, less the first of each of the distinct keys among 63
    assert asked(data).sum(-1).mean() == pytest.approx(64 - 8 * (1 - (7 / 8) ** 63), abs=0.01)


def test_last_key_is_uniform_over_the_keys_that_came():
    data = mad.in_context_recall(6000, 2, length=8)
    keys, last = data.inputs[:, 0:6:2], data.inputs[:, 6]
    twice = (keys[:, 0] == keys[:, 1]) & (keys[:, 0] != keys[:, 2])
    assert (keys == last[:, None]).any(-1).all()
    assert (last == keys[:, 0])[twice].mean() == chance(2, twice.sum())


@pytest.mark.parametrize("noise", [0.2, 0.8])
def test_noise_is_as_frequent_as_asked(noise):
    data = mad.noisy_recall(4000, 0, noise=noise)
    is_noise = data.inputs >= 16
    np.testing.assert_array_equal(is_noise[:, :-1:2], is_noise[:, 1::2])
    assert not is_noise[:, -1].any()
    # of 64 pairs one is protected; of the other 63 the last is never noise
    share = is_noise[:, :-1].mean()
    assert share == pytest.approx(noise * (1 - 1 / 64), abs=0.003)
    symbols = data.inputs[is_noise]
    np.testing.assert_allclose(np.bincount(symbols)[16:] / symbols.size, 1 / 16, atol=0.003)


def test_some_pair_is_always_genuine():
    data = mad.noisy_recall(2000, 0, length=4, noise=0.99, test=True)
    assert (data.inputs < 16).all()
    np.testing.assert_array_equal(data.inputs[:, 0], data.inputs[:, 2])


def test_noise_must_leave_something():
    for options in ({"noise": 1.0}, {"noise": -0.1}, {"noise_vocab": 0}, {"vocab": 17}):
        with pytest.raises(ValueError, match="must"):
            mad.noisy_recall(2, 0, **options)


# --- settings


def test_settings_are_those_of_the_benchmark():
    count = {task: len(mad.settings(task)) for task in mad.BASELINES}
    assert count == {
        "in_context_recall": 11,
        "noisy_recall": 14,
        "fuzzy_recall": 11,
        "selective_copying": 13,
        "compression": 11,
        "memorisation": 6,
    }
    assert sum(count.values()) == 66
    with pytest.raises(ValueError, match="task must be one of"):
        mad.settings("copying")


def test_settings_change_one_thing_at_a_time():
    for task, baseline in mad.BASELINES.items():
        first, *others = mad.settings(task)
        assert first == baseline
        assert len({str(setting) for setting in others}) == len(others)
        for setting in others:
            name, value = setting.change.split("=")
            old = {**baseline.options, "n_train": baseline.n_train}
            new = {**setting.options, "n_train": setting.n_train}
            assert {key for key in new if new[key] != old[key]} == {name}
            assert new[name] == float(value)
            assert setting.classes == setting.options["vocab"]
            assert setting.task == task


def test_every_setting_can_be_drawn():
    for task in mad.BASELINES:
        for setting in mad.settings(task):
            train, test = mad.split(setting._replace(n_train=3), 0, n_test=2)
            shift = 1 if task in ("in_context_recall", "noisy_recall") else 0
            assert train.inputs.shape == (3, setting.options["length"] - shift)
            assert test.targets.shape == (2, train.inputs.shape[1])
            assert max(train.inputs.max(), test.targets.max()) < setting.classes


def test_baselines_are_the_defaults():
    for setting in mad.BASELINES.values():
        for field, same in zip(
            setting.draw(5, 0), setting.draw(5, 0, **setting.options), strict=True
        ):
            np.testing.assert_array_equal(field, same)


def test_training_and_test_sequences():
    for task, setting in mad.BASELINES.items():
        setting = setting._replace(n_train=200)
        train, test = mad.split(setting, 0, n_test=300)
        assert (len(train.inputs), len(test.inputs)) == (200, 300)
        assert not set(map(bytes, train.inputs)) & set(map(bytes, test.inputs))
        assert asked(train).all() == (task.endswith("recall") or task == "compression")
        assert asked(test).all() == (task == "compression")
        again = mad.split(setting, np.random.default_rng(0), n_test=300)
        np.testing.assert_array_equal(again[1].inputs, test.inputs)
    train, test = mad.split(mad.BASELINES["memorisation"], 0)
    assert (len(train.inputs), len(test.inputs)) == (256, 1280)
    dictionaries = [
        set(zip(data.inputs[:, ::2].ravel(), data.targets[:, 1::2].ravel(), strict=True))
        for data in (train, test, mad.split(mad.BASELINES["memorisation"], 1)[0])
    ]
    assert dictionaries[0] == dictionaries[1] == dictionaries[2]


# --- selective copying, compression, memorisation


@pytest.mark.parametrize(("length", "copied"), [(256, 16), (256, 96), (10, 4), (4, 1)])
def test_selective_copying(length, copied):
    data = mad.selective_copying(500, 0, length=length, copied=copied)
    before, after = data.inputs[:, : -copied - 1], data.inputs[:, -copied:]
    assert (data.inputs[:, -copied - 1] == 15).all()
    assert (after == 14).all()
    assert ((before == 14).sum(-1) == length - 2 * copied - 1).all()
    assert (before[:, -1] < 14).all()
    assert not asked(data)[:, :-copied].any()
    np.testing.assert_array_equal(
        before[before < 14].reshape(500, copied), data.targets[:, -copied:]
    )


def test_blanks_are_spread_evenly():
    data = mad.selective_copying(4000, 0)
    assert ((data.inputs[:, :239] == 14).sum(-1) == 223).all()
    # token i has 223 (i + 1) / 16 blanks before it on average
    position = np.nonzero(data.inputs[:, :239] < 14)[1].reshape(4000, 16)
    np.testing.assert_allclose(
        position.mean(0), np.arange(16) + 223 * np.arange(1, 17) / 16, atol=0.6
    )
    gap = np.diff(position, axis=1, prepend=-1) - 1
    assert gap.var() == pytest.approx(223 / 16 * 15 / 16, rel=0.03)  # multinomial


def test_compression_is_its_own_target():
    data = mad.compression(2000, 0)
    np.testing.assert_array_equal(data.inputs, data.targets)
    assert (data.inputs[:, -1] == 15).all()
    counts = np.bincount(data.inputs[:, :-1].ravel(), minlength=16) / (2000 * 31)
    np.testing.assert_allclose(counts, [1 / 15] * 15 + [0], atol=0.004)


def test_memorisation_has_one_dictionary():
    train, test = mad.memorisation(256, 0), mad.memorisation(1280, 1)
    value_of = dict(zip(train.inputs[:, ::2].ravel(), train.targets[:, 1::2].ravel(), strict=True))
    assert sorted(value_of) == list(range(127))
    values = sorted(value_of.values())
    assert len(set(values)) == 127
    assert values[0] >= 127
    assert values[-1] < 255
    for data in (train, test):
        assert (data.inputs[:, 1::2] == 255).all()
        assert not asked(data)[:, ::2].any()
        expected = np.vectorize(value_of.get)(data.inputs[:, ::2])
        np.testing.assert_array_equal(data.targets[:, 1::2], expected)
    other = mad.memorisation(256, 0, dictionary=1)
    np.testing.assert_array_equal(other.inputs, train.inputs)
    assert not np.array_equal(other.targets, train.targets)


# --- controls


@pytest.mark.parametrize("task", [mad.in_context_recall, mad.noisy_recall])
def test_bigrams_know_nothing_of_recall(task):
    train, data = task(2000, 0), task(1000, 1, test=True)
    counts = np.zeros((32, 32))
    np.add.at(counts, (train.inputs.ravel(), train.targets.ravel()), 1)
    guess = counts.argmax(-1)[data.inputs]
    # the values of a sequence go together: count sequences and keys, not positions
    for average in ("micro", "macro"):
        assert token_accuracy(guess, data.targets, average=average) == pytest.approx(
            1 / 8, abs=0.01
        )


def test_guessing():
    rng = np.random.default_rng(9)
    for data, low, high in (
        (mad.in_context_recall(500, 0, test=True), 8, 16),
        (mad.fuzzy_recall(500, 0, test=True), 7, 15),
        (mad.selective_copying(500, 0), 0, 14),
        (mad.memorisation(500, 0), 127, 255),
    ):
        guess = rng.integers(low, high, size=data.inputs.shape)
        count = asked(data).sum()
        assert token_accuracy(guess, data.targets) == chance(high - low, count)
