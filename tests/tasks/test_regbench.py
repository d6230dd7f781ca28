"""RegBench: automata, sequences, metric and controls, against brute force."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import olsq.tasks
import olsq.train
from olsq.tasks._automata import _draw, canonical
from olsq.tasks.regbench import IGNORE, PAD, random_automata, regbench_splits
from olsq.tasks.regbench_controls import (
    allowed_symbols,
    alphabet_probabilities,
    ngram_probabilities,
    oracle_probabilities,
    regbench_accuracy,
    regbench_distance,
    scored,
)
from olsq.train import token_loss, token_losses

SMALL = {"max_states": 6, "n_letters": 8, "words": (5, 10), "max_word": 12}


def words_of(row, separator):
    """The words of a sequence, each a list of symbols."""
    words = [[]]
    for symbol in row[row != PAD].tolist():
        if symbol == separator:
            words.append([])
        else:
            words[-1].append(symbol)
    return words


def same_language(table_a, table_b, a=0, b=0):
    """Walk both automata together; the languages differ where only one of them can read on."""
    seen, queue = {(a, b)}, [(a, b)]
    while queue:
        a, b = queue.pop()
        if not np.array_equal(table_a[a] >= 0, table_b[b] >= 0):
            return False
        for letter in np.nonzero(table_a[a] >= 0)[0]:
            pair = (int(table_a[a, letter]), int(table_b[b, letter]))
            if pair not in seen:
                seen.add(pair)
                queue.append(pair)
    return True


# --- automata


def test_drawn_automata_have_the_published_ranges():
    table = _draw(3000, np.random.default_rng(0), 12, 18, 3)
    degree = (table >= 0).sum(-1)
    n_states = (degree > 0).sum(-1)
    np.testing.assert_allclose(np.bincount(n_states, minlength=13)[4:] / 3000, 1 / 9, atol=0.025)
    np.testing.assert_allclose(
        np.bincount(degree[degree > 0])[1:] / n_states.sum(), 1 / 3, atol=0.015
    )
    assert ((table >= 0).any(1).sum(-1) <= 18).all()
    for transitions, states in zip(table[:200], n_states[:200], strict=True):
        assert (transitions < states).all()
        for state, row in enumerate(transitions):
            targets = row[row >= 0].tolist()
            assert len(set(targets)) == len(targets)
            assert state not in targets


@pytest.mark.parametrize(("max_states", "n_letters", "max_edges"), [(12, 18, 3), (6, 4, 1)])
def test_canonical_keeps_the_language_and_is_minimal(max_states, n_letters, max_edges):
    raw = _draw(150, np.random.default_rng(1), max_states, n_letters, max_edges)
    small = canonical(raw)
    for before, after in zip(raw, small, strict=True):
        assert same_language(before, after)
        used = int((after >= 0).any(-1).sum())
        assert (after[used:] == -1).all()
        assert not any(same_language(after, after, p, q) for q in range(used) for p in range(q))
    assert ((small >= 0).any(-1).sum(-1) < (raw >= 0).any(-1).sum(-1)).any()
    np.testing.assert_array_equal(canonical(small), small)


def test_canonical_ignores_the_names_of_states():
    rng = np.random.default_rng(2)
    raw = _draw(100, rng, 12, 18, 3)
    name = np.append(0, 1 + rng.permutation(11))  # the start stays the start
    renamed = np.full_like(raw, -1)
    renamed[:, name] = np.where(raw >= 0, name[raw], -1)
    np.testing.assert_array_equal(canonical(renamed), canonical(raw))


def test_states_are_numbered_breadth_first():
    for table in random_automata(50, 3).next_state:
        order, position = [0], 0
        while position < len(order):
            for target in table[order[position]]:
                if target >= 0 and target not in order:
                    order.append(int(target))
            position += 1
        assert order == list(range(len(order)))


def test_automata_are_distinct_or_refused():
    automata = random_automata(60, 4, max_states=4, n_letters=4, max_edges=1)
    assert len(np.unique(automata.next_state, axis=0)) == 60
    with pytest.raises(ValueError, match="different automata"):
        random_automata(20_000, 4, max_states=4, n_letters=4, max_edges=1)


# --- sequences


def test_lengths_are_the_published_ones():
    (data,) = regbench_splits([1000], 0)
    length = (data.inputs != PAD).sum(-1) + 1
    # 14.5 words of 25 letters and 13.5 separators; the standard error is 2.9
    assert abs(length.mean() - 376) < 9
    assert length.max() == data.inputs.shape[1] + 1 <= 949
    counts = [len(words_of(row, 19)) for row in data.inputs]
    assert min(counts) >= 10
    assert max(counts) == 19
    assert data.inputs.max() == 19


def test_longest_sequence_there_can_be():
    (data,) = regbench_splits([1], 0, words=(19, 19), max_word=49)
    assert data.inputs.shape[1] + 1 <= 19 * 49 + 18
    (data,) = regbench_splits([3], 0, words=(4, 4), max_word=1)
    np.testing.assert_array_equal(data.inputs[:, 1::2], 19)
    assert data.inputs.shape == (3, 6)


@pytest.mark.parametrize("options", [{}, SMALL])
def test_sequences_are_read_by_their_automaton(options):
    (data,) = regbench_splits([30], 5, **options)
    separator = data.automata.next_state.shape[-1] + 1
    for row, labels, state, table in zip(
        data.inputs, data.labels, data.state, data.automata.next_state, strict=True
    ):
        length = int((row != PAD).sum())
        here = 0
        for t in range(length):
            here = 0 if row[t] == separator else int(table[here, row[t] - 1])
            assert here >= 0
            assert state[t] == here
            assert labels[t] == IGNORE or table[here, labels[t] - 1] >= 0
        following = np.where(row[1:length] == separator, IGNORE, row[1:length])
        np.testing.assert_array_equal(labels[: length - 1], following)
        assert labels[length - 1] != PAD
        assert (labels[length:] == IGNORE).all()
        assert (row[length:] == PAD).all()
        assert (state[length:] == 0).all()


def test_batches_larger_than_a_chunk():
    (data,) = regbench_splits([1100], 14, **SMALL)
    i, t = np.nonzero(data.labels > 0)
    assert allowed_symbols(data)[i, t, data.labels[i, t]].all()
    late = data._replace(inputs=data.inputs[1020:])
    np.testing.assert_array_equal(ngram_probabilities(late), ngram_probabilities(data)[1020:])


def test_walk_takes_every_edge_equally_often():
    (data,) = regbench_splits([300], 6)
    # rank of the letter taken among those that could be, at states with three edges
    i, t = np.nonzero((data.labels > 0) & (allowed_symbols(data).sum(-1) == 3))
    can_read = allowed_symbols(data)[i, t]
    rank = (can_read.cumsum(-1) - 1)[np.arange(len(i)), data.labels[i, t]]
    np.testing.assert_allclose(np.bincount(rank, minlength=3) / len(i), 1 / 3, atol=0.01)


def test_splits_are_disjoint_and_seeded():
    train, test, none = regbench_splits([80, 20, 0], 7, **SMALL)
    assert (len(train.inputs), len(test.inputs), len(none.inputs)) == (80, 20, 0)
    tables = np.concatenate([train.automata.next_state, test.automata.next_state])
    assert len(np.unique(tables, axis=0)) == 100
    again, _, _ = regbench_splits([80, 20, 0], np.random.default_rng(7), **SMALL)
    np.testing.assert_array_equal(again.inputs, train.inputs)
    other, _, _ = regbench_splits([80, 20, 0], 8, **SMALL)
    assert not np.array_equal(other.automata.next_state, train.automata.next_state)


@pytest.mark.parametrize(
    "options",
    [
        {"max_states": 3},
        {"n_letters": 3},
        {"max_edges": 4},
        {"words": (0, 3)},
        {"words": (4, 3)},
        {"max_word": 0},
        {"sizes": [-1, 2]},
    ],
)
def test_arguments_out_of_range(options):
    with pytest.raises(ValueError, match="must"):
        regbench_splits(**{"sizes": [2], "seed": 0, **options})


# --- metric and controls


def test_metric_is_validity_counted_by_hand():
    (data,) = regbench_splits([20], 9, **SMALL)
    scores = np.random.default_rng(0).normal(size=(*data.inputs.shape, 10))
    right = total = 0
    for row, score, table in zip(data.inputs, scores, data.automata.next_state, strict=True):
        for t in range(int((row != PAD).sum()) - 1):
            if row[t + 1] == 9:
                continue
            total += 1
            state = 0
            for symbol in words_of(row[: t + 1], 9)[-1]:
                state = table[state, symbol - 1]
            guess = int(score[t].argmax())
            right += guess not in (PAD, 9) and table[state, guess - 1] >= 0
    assert scored(data).sum() == total
    assert regbench_accuracy(scores, data) == pytest.approx(right / total, abs=1e-12)
    with pytest.raises(ValueError, match="shape"):
        regbench_accuracy(scores[:, :, :9], data)


@pytest.mark.full
def test_controls_are_ordered():
    (data,) = regbench_splits([250], 10)
    oracle = oracle_probabilities(data)
    assert regbench_accuracy(oracle, data) == 1.0
    assert regbench_distance(oracle, data) == 0.0
    rng = np.random.default_rng(0)
    alphabet = alphabet_probabilities(data)
    chance = regbench_accuracy(np.where(alphabet > 0, rng.random(alphabet.shape), -1.0), data)
    expected = (allowed_symbols(data) * alphabet).sum(-1)[scored(data)].mean()
    assert chance == pytest.approx(expected, abs=0.01)
    accuracy = [regbench_accuracy(ngram_probabilities(data, order=n), data) for n in (1, 2, 3)]
    assert chance < accuracy[0] < accuracy[1] < accuracy[2] < 1.0
    assert 0.91 < accuracy[2] < 0.95  # 0.933 on another seed
    assert regbench_distance(ngram_probabilities(data), data) < regbench_distance(alphabet, data)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_ngram_against_counted_words(order):
    (data,) = regbench_splits([4], 11, **SMALL)
    actual = ngram_probabilities(data, order=order)
    for row, got in zip(data.inputs, actual, strict=True):
        for t in range(int((row != PAD).sum())):
            words = [[9] * (order - 1) + word for word in words_of(row[: t + 1], 9)]
            for k in reversed(range(order)):
                context = words[-1][len(words[-1]) - k :]
                seen = Counter(
                    word[i]
                    for word in words
                    for i in range(order - 1, len(word))
                    if word[i - k : i] == context
                )
                if seen:
                    break
            expected = np.zeros(10)
            for symbol, count in seen.items():
                expected[symbol] = count / seen.total()
            np.testing.assert_allclose(got[t], expected, rtol=1e-6)
        assert (got[row == PAD] == 0).all()


def test_ngram_is_causal():
    (data,) = regbench_splits([10], 12, **SMALL)
    full = ngram_probabilities(data)
    cut = data._replace(inputs=data.inputs[:, :20])
    np.testing.assert_array_equal(ngram_probabilities(cut), full[:, :20])


def test_distance_of_disjoint_distributions_is_one():
    (data,) = regbench_splits([5], 13, **SMALL)
    wrong = np.zeros((*data.inputs.shape, 10))
    wrong[..., -1] = 1.0
    assert regbench_distance(wrong, data) == pytest.approx(1.0)
    assert regbench_accuracy(wrong, data) == 0.0


def test_nothing_scored_is_nan():
    (data,) = regbench_splits([0], 0)
    assert np.isnan(regbench_accuracy(oracle_probabilities(data), data))
    assert np.isnan(regbench_distance(oracle_probabilities(data), data))


def test_order_out_of_range():
    (data,) = regbench_splits([1], 0, **SMALL)
    for order in (0, 5):
        with pytest.raises(ValueError, match="order"):
            ngram_probabilities(data, order=order)
    for unfit in (2.5, True, "2"):
        with pytest.raises(TypeError, match="order must be an integer"):
            ngram_probabilities(data, order=unfit)


def test_automata_are_a_tuple_of_arrays_and_seeded():
    automata, again = random_automata(2, 0), random_automata(2, np.random.default_rng(0))
    assert isinstance(automata, tuple)
    assert [field.shape for field in automata] == [(2, 12, 18), (2,)]
    for field, same in zip(automata, again, strict=True):
        np.testing.assert_array_equal(field, same)


@pytest.mark.full
def test_the_loss_counts_letters_only():
    """Nothing is learned from padding and ends of words with the number that losses leave out."""
    (data,) = regbench_splits([20], 3, **SMALL)
    logits = np.random.default_rng(0).normal(size=(*data.labels.shape, 10)).astype("f")
    asked = data.labels > 0
    want = token_losses(logits[asked], data.labels[asked]).mean()
    assert (~asked).sum() > 100
    assert token_loss(logits, data.labels, ignore=olsq.train.IGNORE) == pytest.approx(want)
    assert olsq.train.IGNORE == olsq.tasks.tokens.IGNORE == IGNORE
