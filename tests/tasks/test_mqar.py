"""Multi-query associative recall: against a loop, read with a dictionary, and controls."""

from __future__ import annotations

import numpy as np
import pytest

from olsq.tasks import mqar, token_accuracy
from olsq.tasks._recall import _different
from olsq.tasks.tokens import IGNORE

SETTINGS = [
    {},
    {"random_non_queries": False},
    {"vocab": 12, "length": 16, "num_kv_pairs": 2},
    {"vocab": 11, "length": 16, "num_kv_pairs": 4},  # all keys, no room to spare
    {"vocab": 18, "length": 34, "num_kv_pairs": 8, "power_a": 1.0},
]


def slots(data, pairs):
    """The slot of each pair's query, counted from 0, (n, pairs)."""
    place = (data.inputs[:, None, :] == data.inputs[:, : 2 * pairs : 2, None]) & (
        data.targets[:, None, :] != IGNORE
    )
    assert (place.sum(-1) == 1).all()
    return (place.argmax(-1) - 2 * pairs) // 2


@pytest.mark.parametrize("options", SETTINGS)
def test_mqar_against_a_dictionary(options):
    data = mqar(300, 0, **options)
    vocab, length = options.get("vocab", 8192), options.get("length", 64)
    pairs = options.get("num_kv_pairs", 8)
    assert data.inputs.shape == data.targets.shape == (300, length)
    assert data.inputs.dtype == data.targets.dtype == np.int64
    for row, target in zip(data.inputs.tolist(), data.targets.tolist(), strict=True):
        keys, values = row[: 2 * pairs : 2], row[1 : 2 * pairs : 2]
        assert len(set(keys)) == len(set(values)) == pairs
        assert all(0 < key < vocab // 2 for key in keys)
        assert all(vocab // 2 <= value < vocab for value in values)
        assert all(0 <= token < vocab for token in row)
        value_of = dict(zip(keys, values, strict=True))
        asked = [t for t in range(length) if target[t] != IGNORE]
        assert all(t >= 2 * pairs and t % 2 == 0 for t in asked)
        assert {row[t]: target[t] for t in asked} == value_of
        assert len(asked) == pairs
        if options.get("random_non_queries") is False:
            assert set(np.delete(row[2 * pairs :], np.array(asked) - 2 * pairs)) == {0}


def test_other_tokens_are_uniform():
    data = mqar(4000, 1, vocab=20, length=40, num_kv_pairs=4)
    behind = data.inputs[:, 8:][data.targets[:, 8:] == IGNORE]
    np.testing.assert_allclose(np.bincount(behind) / behind.size, 1 / 20, atol=0.003)


def test_keys_and_values_are_uniform_and_independent():
    data = mqar(20_000, 2, vocab=12, length=12, num_kv_pairs=3)
    key, value = data.inputs[:, :6:2] - 1, data.inputs[:, 1:6:2] - 6
    for j in range(3):
        both = np.bincount(key[:, j] * 6 + value[:, j], minlength=30) / 20_000
        np.testing.assert_allclose(both, 1 / 30, atol=0.006)
    ordered = np.bincount(key @ [25, 5, 1], minlength=125)
    assert (ordered > 0).sum() == 60
    np.testing.assert_allclose(ordered[ordered > 0] / 20_000, 1 / 60, atol=0.005)
    every = _different(np.random.default_rng(3), 500, 5, 5)
    np.testing.assert_array_equal(np.sort(every, axis=-1), np.tile(np.arange(5), (500, 1)))


@pytest.mark.parametrize("power_a", [0.01, 1.0, 2.5])
def test_gaps_are_those_of_the_loop(power_a):
    odds = np.arange(1.0, 17.0) ** (power_a - 1)
    odds /= odds.sum()
    rng = np.random.default_rng(5)
    by_hand = np.array([rng.choice(16, size=5, replace=False, p=odds) for _ in range(3000)])
    data = mqar(6000, 6, vocab=64, length=42, num_kv_pairs=5, power_a=power_a)
    slot = slots(data, 5)
    # the first pair has the law itself, the others what it left to them, in this order
    np.testing.assert_allclose(np.bincount(slot[:, 0], minlength=16) / 6000, odds, atol=0.02)
    for j in range(5):
        error = np.hypot(slot[:, j].std() / 6000**0.5, by_hand[:, j].std() / 3000**0.5)
        assert slot[:, j].mean() == pytest.approx(by_hand[:, j].mean(), abs=4 * error)
    if power_a == 0.01:
        assert slot[:, 0].mean() < slot[:, 2].mean() < slot[:, 4].mean()


# --- controls


def test_guessing_is_right_once_in_as_many_pairs():
    data = mqar(4000, 7, vocab=64, length=64)
    rng = np.random.default_rng(8)
    values = data.inputs[:, 1:16:2]
    seen = np.take_along_axis(values, rng.integers(8, size=data.inputs.shape), axis=1)
    assert token_accuracy(seen, data.targets) == pytest.approx(1 / 8, abs=0.006)
    unseen = rng.integers(32, 64, size=data.inputs.shape)
    assert token_accuracy(unseen, data.targets) == pytest.approx(1 / 32, abs=0.004)


def test_bigrams_know_nothing_of_mqar():
    train, data = mqar(4000, 9, vocab=64, length=64), mqar(4000, 10, vocab=64, length=64)
    asked = train.targets != IGNORE
    counts = np.zeros((64, 64))
    np.add.at(counts, (train.inputs[asked], train.targets[asked]), 1)
    guess = counts.argmax(-1)[data.inputs]
    assert token_accuracy(guess, data.targets) == pytest.approx(1 / 32, abs=0.004)


def test_the_token_after_the_first_occurrence_is_right():
    data = mqar(500, 11)
    guess = np.zeros_like(data.inputs)
    for row, out in zip(data.inputs, guess, strict=True):
        for t in range(16, len(row)):
            first = row.tolist().index(row[t])
            out[t] = row[first + 1] if first < 16 else 0
    assert token_accuracy(guess, data.targets) == 1.0


# --- arguments


def test_mqar_seeds():
    one, same = mqar(30, 0), mqar(30, np.random.default_rng(0))
    for field, again in zip(one, same, strict=True):
        np.testing.assert_array_equal(field, again)
    assert not np.array_equal(one.inputs, mqar(30, 1).inputs)
    assert mqar(0, 0).inputs.shape == (0, 64)
    more = mqar(1030, 2, vocab=40)
    np.testing.assert_array_equal(more.targets[:1024], mqar(1024, 2, vocab=40).targets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": -1}, "n must be at least 0"),
        ({"num_kv_pairs": 0}, "num_kv_pairs must be at least 1"),
        ({"vocab": 17}, "vocab must be at least 18"),
        ({"length": 30}, "length must be at least 32"),
        ({"length": 33}, "length must be even"),
        ({"power_a": float("nan")}, "power_a must be finite"),
    ],
)
def test_mqar_arguments_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        mqar(**{"n": 2, "seed": 0, **options})
