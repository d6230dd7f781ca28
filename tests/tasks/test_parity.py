"""Parity: against counting, and what can be known without counting."""

from __future__ import annotations

import numpy as np
import pytest

from olsq.tasks import parity, token_accuracy


def test_parity_counts_ones():
    data = parity(50, 0, length=60)
    for bits, target in zip(data.inputs.tolist(), data.targets.tolist(), strict=True):
        assert target == [bits[: t + 1].count(1) % 2 for t in range(60)]


def test_bits_and_targets_are_fair():
    data = parity(5000, 1)
    assert data.inputs.shape == data.targets.shape == (5000, 40)
    for field in data:
        assert field.dtype == np.int64
        assert set(np.unique(field)) == {0, 1}
        np.testing.assert_allclose(field.mean(0), 0.5, atol=0.03)  # standard error 0.007


@pytest.mark.parametrize("window", [1, 4, 10])
def test_the_last_bits_say_nothing(window):
    # the best table from windows of bits to targets, learned and tried where a bit lies before
    codes, targets = [], []
    for seed in (2, 3):
        data = parity(4000, seed)
        views = np.lib.stride_tricks.sliding_window_view(data.inputs, window, axis=1)[:, 1:]
        codes.append(views @ (1 << np.arange(window)))
        targets.append(data.targets[:, window:])
    ones = np.bincount(codes[0].ravel(), weights=targets[0].ravel(), minlength=1 << window)
    table = ones / np.bincount(codes[0].ravel(), minlength=1 << window) > 0.5
    # positions of a sequence are tied to each other: sequences are the sample
    right = (table[codes[1]] == targets[1]).mean(-1)
    assert abs(right.mean() - 0.5) < 4 * right.std() / 4000**0.5
    assert token_accuracy(table[codes[1]].astype(int), targets[1]) == pytest.approx(right.mean())


def test_one_bit_of_state_is_enough():
    data = parity(100, 4, length=256)
    state, states = np.zeros(100, dtype=np.int64), []
    for bit in data.inputs.T:
        state = np.where(bit == 1, 1 - state, state)
        states.append(state)
    assert token_accuracy(np.stack(states, axis=1), data.targets) == 1.0


def test_parity_seeds_and_arguments():
    one, same = parity(3, 0), parity(3, np.random.default_rng(0))
    np.testing.assert_array_equal(one.inputs, same.inputs)
    assert not np.array_equal(one.inputs, parity(3, 1).inputs)
    assert parity(0, 0, length=7).targets.shape == (0, 7)
    with pytest.raises(ValueError, match="n must be at least 0"):
        parity(-1, 0)
    with pytest.raises(ValueError, match="length must be at least 1"):
        parity(1, 0, length=0)
