"""MAD, fuzzy recall: against a loop that builds sequences pair by pair, and numbers pinned."""

from __future__ import annotations

import numpy as np
import pytest

from olsq.tasks.mad import fuzzy_recall
from olsq.tasks.tokens import IGNORE


def asked(data):
    return data.targets != IGNORE


def fuzzy_by_hand(rng, *, vocab=16, length=128, test=False):
    """Build one sequence pair by pair; return its tokens, what is asked for, and three counts."""
    n_keys = (vocab - 1) // 2
    value_of, came, tokens, target = {}, set(), [], []

    def word(low, high, fewest):
        return tuple(rng.permutation(np.arange(low, high))[: rng.integers(fewest, 4)].tolist())

    def append(key, value):
        tokens.extend(key + value)
        target.extend([IGNORE] * len(key))
        target.extend(value if key in came else [IGNORE] * len(value))
        came.add(key)

    def pair():
        return word(0, n_keys, 3 if test else 1), word(n_keys, vocab - 1, 1)

    key, value = pair()
    size = len(key + value)
    place = rng.integers(length - 2 * size)
    value_of[key] = value
    placed = False
    while len(tokens) < length - size - 6:
        if len(tokens) >= place and not placed:
            append(key, value)
            placed = True
            continue
        k, v = pair()
        append(k, value_of.setdefault(k, v))
        placed |= k == key
    known = key in came
    came.add(key)
    append(key, value)
    pad = length + 1 - len(tokens)
    tokens = np.array([vocab - 1] * pad + tokens)
    target = np.array([IGNORE] * pad + target)
    return tokens[:-1], target[1:], pad, (target != IGNORE).sum(), known


def words_of(row, n_keys, pad):
    """Split a padded sequence into alternating runs of key and value letters."""
    runs = []
    for token in row[row != pad]:
        if not runs or (runs[-1][0] < n_keys) != (token < n_keys):
            runs.append([])
        runs[-1].append(int(token))
    return [tuple(run) for run in runs]


@pytest.mark.parametrize("vocab", [16, 32])
def test_fuzzy_test_targets_against_a_dictionary(vocab):
    data = fuzzy_recall(300, 0, vocab=vocab, test=True)
    n_keys = (vocab - 1) // 2
    for row, target in zip(data.inputs, data.targets, strict=True):
        # the last letter is a target only
        words = words_of(np.append(row, target[-1]), n_keys, vocab - 1)
        expected, came = [], {}
        for i in range(0, len(words), 2):
            key, value = words[i : i + 2]
            assert len(set(key)) == len(key) == 3
            assert len(set(value)) == len(value) <= 3
            assert came.get(key, value) == value
            if key in came or i == len(words) - 2:
                expected += [IGNORE] * 3 + list(value)
            else:
                expected += [IGNORE] * (3 + len(value))
            came[key] = value
        pad = (row == vocab - 1).sum()
        assert (row[:pad] == vocab - 1).all()
        assert pad >= 2
        np.testing.assert_array_equal(target, [IGNORE] * (pad - 1) + expected)


@pytest.mark.full
@pytest.mark.parametrize(("test", "length"), [(False, 128), (True, 128), (False, 20), (True, 20)])
def test_fuzzy_statistics_are_those_of_the_loop(test, length):
    rng = np.random.default_rng(0)
    by_hand = [fuzzy_by_hand(rng, length=length, test=test) for _ in range(1500)]
    data = fuzzy_recall(6000, 1, length=length, test=test)
    assert data.inputs.shape == (6000, length)

    def close(actual, expected):
        error = np.hypot(np.std(actual) / 6000**0.5, np.std(expected) / 1500**0.5)
        assert np.mean(actual) == pytest.approx(np.mean(expected), abs=3.5 * error)

    rows = np.array([tokens for tokens, *_ in by_hand])
    close((data.inputs == 15).sum(-1), [pad for _, _, pad, *_ in by_hand])
    for letter in (0, 6, 7, 14):
        close((data.inputs == letter).mean(-1), (rows == letter).mean(-1))
    for t in (length // 4, length // 2, length - 7, length - 2):
        close(data.inputs[:, t] < 7, rows[:, t] < 7)
    if test:
        close(asked(data).sum(-1), [count for *_, count, _ in by_hand])
        close(last_key_came(data), [known for *_, known in by_hand])


def last_key_came(data, vocab=16):
    n_keys = (vocab - 1) // 2
    came = []
    for row, target in zip(data.inputs, data.targets, strict=True):
        keys = words_of(np.append(row, target[-1]), n_keys, vocab - 1)[::2]
        came.append(keys[-1] in keys[:-1])
    return np.array(came)


@pytest.mark.full
def test_fuzzy_numbers_are_pinned():
    test, train = fuzzy_recall(8000, 0, test=True), fuzzy_recall(8000, 0)
    # means over 40,000 other sequences, and at least three standard errors of 8000
    assert asked(test).sum(-1).mean() == pytest.approx(4.368, abs=0.08)
    for data, mean in ((test, 4.94), (train, 5.33)):
        pad = (data.inputs == 15).sum(-1)
        assert pad.mean() == pytest.approx(mean, abs=0.055)
        assert (pad.min(), pad.max()) == (2, 7)
    # the quirk: a last key that nobody can know
    assert 1 - last_key_came(test).mean() == pytest.approx(0.0236, abs=0.0055)


def test_fuzzy_is_the_same_in_any_chunk():
    data = fuzzy_recall(1030, 5, length=40)
    np.testing.assert_array_equal(data.inputs[:1024], fuzzy_recall(1024, 5, length=40).inputs)
    assert ((data.inputs >= 0) & (data.inputs < 16)).all()


def test_too_many_words():
    with pytest.raises(ValueError, match="words"):
        fuzzy_recall(1, 0, vocab=2048, key_letters=6)
