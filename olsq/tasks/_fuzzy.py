"""Recall task whose keys and values are words of several letters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_flag
from olsq.arrays.seeds import generator
from olsq.tasks._checks import check_integers
from olsq.tasks.tokens import IGNORE, Tokens

CHUNK = 1024  # sequences at a time: all pairs that might be needed are drawn at once


def fuzzy_recall(
    n: int,
    seed: np.random.Generator | int,
    *,
    vocab: int = 16,
    length: int = 128,
    key_letters: int = 3,
    value_letters: int = 3,
    test: bool = False,
) -> Tokens:
    """Draw sequences of (key, value) pairs of words, in which each key keeps its value.

    A key is an ordered sample without repetition of 1 to ``key_letters`` tokens below
    ``(vocab - 1) // 2``; a value one of 1 to ``value_letters`` of the other tokens, the last
    token excepted: it pads on the left.  Lengths are uniform, and so are words of a length.
    The last pair, drawn before the others, is also put in at a random place.

    Parameters
    ----------
    n : int
        Number of sequences.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    vocab : int, default 16
        Tokens there are, at least ``2 * max(key_letters, value_letters) + 1``.
    length : int, default 128
        Tokens T in a sequence, more than ``2 * (key_letters + value_letters)``.
    key_letters, value_letters : int, default 3
        Most letters of a word, at least 1.
    test : bool, default False
        Ask only for the values of keys that came before, and draw only keys of the greatest
        length.  Otherwise every next token is a target, the padding too.

    Returns
    -------
    Tokens
        ``inputs`` and ``targets``, int64 (n, length).

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Source: M. Poli et al. (2024), the variant with many queries.  As in the published code the
    sequence may end before the random place of the last pair is reached.  Then that pair comes
    only once and cannot be known, but is asked for like the others: at the defaults in 2.4 per
    cent of test sequences.

    Examples
    --------
    >>> from olsq.tasks.mad import fuzzy_recall
    >>> data = fuzzy_recall(3, 0, length=40)
    >>> data.inputs.shape, data.inputs[:, 0].tolist()
    ((3, 40), [15, 15, 15])
    """
    check_integers(n=(n, 0), key_letters=(key_letters, 1), value_letters=(value_letters, 1))
    check_integers(
        vocab=(vocab, 2 * max(key_letters, value_letters) + 1),
        length=(length, 2 * (key_letters + value_letters) + 1),
    )
    check_flag("test", test)
    if vocab**key_letters >= 2**63:
        raise ValueError(
            f"key_letters must be so few that there are fewer than 2**63 words, got {key_letters} "
            f"in a vocabulary of {vocab}"
        )
    rng = generator(seed)
    data = Tokens(np.empty((n, length), dtype=np.int64), np.empty((n, length), dtype=np.int64))
    for start in range(0, n, CHUNK):
        rows = slice(start, min(start + CHUNK, n))
        tokens, asked = _draw(
            rows.stop - start, rng, vocab, length, key_letters, value_letters, test
        )
        data.inputs[rows] = tokens[:, :-1]
        data.targets[rows] = np.where(asked | (not test), tokens, IGNORE)[:, 1:]
    return data


def _draw(
    n: int,
    rng: np.random.Generator,
    vocab: int,
    length: int,
    key_letters: int,
    value_letters: int,
    test: bool,
) -> tuple[NDArray, NDArray]:
    """Draw tokens (n, length + 1); also mark those that are values of keys that came before."""
    n_keys = (vocab - 1) // 2
    fewest = (key_letters if test else 1) + 1
    pairs = length // fewest + 1  # column 0 is the pair to ask for in the end
    key = _words(rng, (n, pairs), n_keys, key_letters if test else 1, key_letters)
    value = _words(rng, (n, pairs), vocab - 1 - n_keys, 1, value_letters)
    value[value >= 0] += n_keys

    # with the last pair in column 0, a key drawn equal to its key takes its value
    first = _first_occurrence(key)
    value = np.take_along_axis(value, first[..., None], axis=1)
    size = (key >= 0).sum(-1) + (value >= 0).sum(-1)
    probe = size[:, 0]
    place = rng.integers(length - 2 * probe)

    # it replaces the first pair at or after its place, unless its key was drawn before
    at = _starts(size) >= place[:, None]
    i = 1 + at[:, 1:].argmax(-1)
    came = (first == 0) & (np.arange(pairs) > 0) & (np.arange(pairs) < i[:, None])
    row = np.nonzero(at[:, 1:].any(-1) & ~came.any(-1))[0]
    key[row, i[row]], value[row, i[row]] = key[row, 0], value[row, 0]
    size[row, i[row]] = probe[row]
    used = _starts(size) < (length - probe - key_letters - value_letters)[:, None]

    # and it is the last pair, whether or not there was room for it before
    key, value = np.roll(key, -1, axis=1), np.roll(value, -1, axis=1)
    used = np.roll(used, -1, axis=1)
    used[:, -1] = True
    probed = _first_occurrence(key) < np.arange(pairs)
    probed[:, -1] = True

    word = np.concatenate([key, value], axis=-1)
    is_letter = (word >= 0) & used[..., None]
    is_value = np.arange(word.shape[-1]) >= key_letters
    asked_letter = np.broadcast_to(probed[..., None] & is_value, word.shape)
    filled = is_letter.sum((-2, -1))
    is_token = np.arange(length + 1) >= length + 1 - filled[:, None]
    tokens = np.full((n, length + 1), vocab - 1)
    tokens[is_token] = word[is_letter]
    asked = np.zeros((n, length + 1), dtype=bool)
    asked[is_token] = asked_letter[is_letter]
    return tokens, asked


def _words(
    rng: np.random.Generator, shape: tuple[int, int], letters: int, fewest: int, most: int
) -> NDArray:
    """Draw words without repeated letters, (n, pairs, most), with -1 after their last letter."""
    word = np.empty((*shape, most), dtype=np.int64)
    for j in range(most):
        # the letters left are numbered: each earlier letter, in order, moves those above it up
        letter = rng.integers(letters - j, size=shape)
        for earlier in np.moveaxis(np.sort(word[..., :j], axis=-1), -1, 0):
            letter += letter >= earlier
        word[..., j] = letter
    size = rng.integers(fewest, most, size=shape, endpoint=True)
    word[np.arange(most) >= size[..., None]] = -1
    return word


def _first_occurrence(key: NDArray) -> NDArray:
    """Return the column in which each key first occurs in its row, (n, pairs)."""
    n, pairs, _ = key.shape
    base = int(key.max(initial=0)) + 2
    code = np.zeros((n, pairs), dtype=np.int64)
    for letter in np.moveaxis(key, -1, 0):
        code = code * base + letter + 1
    order = code.argsort(axis=-1, kind="stable")
    ordered = np.take_along_axis(code, order, axis=-1)
    is_new = np.ones((n, pairs), dtype=bool)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    # the stable order puts the first of equal keys at the head of its run
    head = np.maximum.accumulate(np.where(is_new, np.arange(pairs), 0), axis=-1)
    first = np.empty((n, pairs), dtype=np.int64)
    np.put_along_axis(first, order, np.take_along_axis(order, head, axis=-1), axis=-1)
    return first


def _starts(size: NDArray) -> NDArray:
    """Return where each pair except that of column 0 starts, (n, pairs)."""
    start = size.cumsum(-1) - size - size[:, :1]
    start[:, 0] = -1
    return start
