"""The word problem against compositions of Python tuples, and against parity."""

from itertools import permutations

import numpy as np
import pytest

from olsq.tasks import parity, word_problem


@pytest.mark.parametrize(("degree", "even"), [(3, False), (4, True), (5, False)])
def test_targets_are_products_of_all_so_far(degree, even):
    members = list(permutations(range(degree)))
    if even:
        members = [p for p in members if np.linalg.det(np.eye(degree)[list(p)]) > 0]
    data = word_problem(20, 7, degree=degree, length=15, even=even)
    assert data.inputs.min() >= 0
    assert data.inputs.max() < len(members)
    for word, targets in zip(data.inputs, data.targets, strict=True):
        product = tuple(range(degree))
        for letter, target in zip(word, targets, strict=True):
            product = tuple(members[letter][i] for i in product)
            assert members[target] == product


def test_two_things_are_parity():
    word, bits = word_problem(30, 5, degree=2, length=50), parity(30, 5, length=50)
    np.testing.assert_array_equal(word.inputs, bits.inputs)
    np.testing.assert_array_equal(word.targets, bits.targets)


def test_letters_and_products_are_uniform():
    data = word_problem(6000, 2, length=4)
    for drawn in (data.inputs[:, 2], data.targets[:, 3]):
        share = np.bincount(drawn, minlength=6) / 6000
        np.testing.assert_allclose(share, 1 / 6, atol=5 * np.sqrt(5 / 36 / 6000))


def test_arguments():
    with pytest.raises(ValueError, match="degree must be at most 6, got 7"):
        word_problem(1, 0, degree=7)
    assert word_problem(0, 0, length=5).targets.shape == (0, 5)
