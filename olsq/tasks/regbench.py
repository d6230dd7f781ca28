"""RegBench: in-context learning of random regular languages (Akyurek et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.seeds import generator
from olsq.tasks._automata import CHUNK, Automata, random_automata
from olsq.tasks._checks import check_integers
from olsq.tasks.tokens import IGNORE

__all__ = ["IGNORE", "PAD", "Automata", "RegBench", "random_automata", "regbench_splits"]

PAD = 0  # letters are 1 ... L, the separator is L + 1


class RegBench(NamedTuple):
    """One sequence of words from each of n automata; L letters, T positions.

    Symbols: 0 is padding, 1 to L are letters, L + 1 separates words.

    Attributes
    ----------
    inputs : array (n, T), int32
        Symbols; padded at the end.
    labels : array (n, T), int32
        The next symbol, or -100 (``IGNORE``) where nothing is to be learned: padding, and the
        separators, because the end of a word cannot be predicted.
    state : array (n, T), int8
        State of the automaton after reading the symbol: 0, the start, after a separator and in
        padding.  What a model has to find out; for the controls and for probing.
    automata : Automata
        The automata, ``next_state`` (n, states, L).

    Examples
    --------
    >>> from olsq.tasks.regbench import regbench_splits
    >>> (data,) = regbench_splits([5], 0, words=(2, 3), max_word=4)
    >>> data.inputs.shape == data.labels.shape == data.state.shape
    True
    """

    inputs: NDArray
    labels: NDArray
    state: NDArray
    automata: Automata

    __repr__ = brief_repr


def regbench_splits(
    sizes: Sequence[int],
    seed: np.random.Generator | int,
    *,
    max_states: int = 12,
    n_letters: int = 18,
    max_edges: int = 3,
    words: tuple[int, int] = (10, 19),
    max_word: int = 49,
) -> tuple[RegBench, ...]:
    """Draw splits whose automata are all different, with one sequence for each automaton.

    A sequence is a uniform number of words with separators between them.  A word is a random walk
    from the start state over 1 to ``max_word`` edges; the number is uniform, and so is the choice
    among the edges out of a state.

    Parameters
    ----------
    sizes : sequence of int
        Number of sequences in each split, for example ``[train, validation, test]``.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    max_states, n_letters, max_edges : int
        See :func:`random_automata`.
    words : pair of int, default (10, 19)
        Fewest and most words in a sequence.
    max_word : int, default 49
        Most letters in a word; the fewest is 1.

    Returns
    -------
    tuple of RegBench
        One for each size, each padded to its own longest sequence.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range, or there are not so many different automata.

    Notes
    -----
    With the defaults a sequence has 376 symbols on average and at most 949.  Linear cost in the
    number of symbols.  Source: E. Akyurek, B. Wang, Y. Kim, J. Andreas, "In-context language
    learning: architectures and algorithms" (2024), with the ranges of its code.

    Examples
    --------
    >>> from olsq.tasks.regbench import regbench_splits
    >>> train, test = regbench_splits([100, 20], 0)
    >>> len(train.inputs), len(test.inputs), int(train.inputs.max())
    (100, 20, 19)
    """
    if not isinstance(sizes, Iterable):
        raise TypeError(f"sizes must be a sequence of integers, one for each split, got {sizes!r}")
    for size in sizes:
        check_integers(sizes=(size, 0))
    if not (isinstance(words, Sequence) and len(words) == 2):
        raise TypeError(f"words must be a pair of integers (fewest, most), got {words!r}")
    for number in words:
        check_integers(words=(number, 1))
    if words[0] > words[1]:
        raise ValueError(f"words must be (fewest, most) with fewest <= most, got {words}")
    check_integers(max_word=(max_word, 1))
    rng = generator(seed)
    automata = random_automata(
        sum(sizes), rng, max_states=max_states, n_letters=n_letters, max_edges=max_edges
    )
    ends = np.cumsum(np.asarray(sizes, dtype=np.int64))
    return tuple(
        _sequences(Automata(*(field[end - size : end] for field in automata)), rng, words, max_word)
        for size, end in zip(sizes, ends, strict=True)
    )


def _sequences(
    automata: Automata, rng: np.random.Generator, words: tuple[int, int], max_word: int
) -> RegBench:
    n, _, n_letters = automata.next_state.shape
    n_words = rng.integers(*words, size=(n, 1), endpoint=True)
    is_word = np.arange(words[1]) < n_words
    word_length = rng.integers(1, max_word, size=is_word.shape, endpoint=True) * is_word
    length = word_length.sum(-1) + n_words[:, 0] - 1
    longest = int(length.max(initial=1))
    symbols = np.full((n, longest), PAD, dtype=np.int32)
    state = np.zeros((n, longest), dtype=np.int8)
    for start in range(0, n, CHUNK):
        rows = slice(start, start + CHUNK)
        letters, states = _walk(automata.next_state[rows], rng, words[1], max_word)
        place = np.arange(max_word + 1)
        inside = place < word_length[rows, :, None]
        after = place == word_length[rows, :, None]  # one place more, for the separator
        after &= (np.arange(words[1]) < n_words[rows] - 1)[..., None]
        filled = np.arange(longest) < length[rows, None]
        # both masks run through a row from left to right, so the flat orders agree
        symbols[rows][filled] = np.where(inside, letters, n_letters + 1)[inside | after]
        state[rows][filled] = np.where(inside, states, 0)[inside | after]
    labels = symbols[:, 1:].copy()
    labels[(labels == PAD) | (labels == n_letters + 1)] = IGNORE
    last = np.arange(longest - 1) < length[:, None] - 1  # the last symbol is only a label
    inputs = np.where(last, symbols[:, :-1], np.int32(PAD))
    return RegBench(inputs, labels, np.where(last, state[:, :-1], np.int8(0)), automata)


def _walk(
    next_state: NDArray, rng: np.random.Generator, n_words: int, n_steps: int
) -> tuple[NDArray, NDArray]:
    """Return the symbols of random walks and the states after them, (n, words, steps + 1)."""
    n = len(next_state)
    can_read = next_state >= 0
    degree = can_read.sum(-1)
    ranked = (~can_read).argsort(-1, kind="stable")  # the letters that can be read come first
    each = np.arange(n)[:, None]
    here = np.zeros((n, n_words), dtype=np.int8)
    letters = np.zeros((n, n_words, n_steps + 1), dtype=np.int32)  # up to the number of letters
    states = np.zeros((n, n_words, n_steps + 1), dtype=np.int8)
    for step in range(n_steps):
        letter = ranked[each, here, rng.integers(degree[each, here])]
        here = next_state[each, here, letter]
        letters[..., step] = letter + 1
        states[..., step] = here
    return letters, states
