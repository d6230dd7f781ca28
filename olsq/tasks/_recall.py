"""Recall of values that occur earlier in the sequence, with or without noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_flag
from olsq.arrays.seeds import generator
from olsq.tasks._checks import check_integers, check_reals
from olsq.tasks.tokens import IGNORE, Tokens

CHUNK = 1024  # sequences at a time: each shuffles both halves of the vocabulary
BLANK = 0


def in_context_recall(
    n: int,
    seed: np.random.Generator | int,
    *,
    vocab: int = 16,
    length: int = 128,
    test: bool = False,
) -> Tokens:
    """Draw sequences of (key, value) pairs in which each key keeps its value.

    Keys are the tokens below ``vocab // 2``, values the others.  A key is uniform and gets a
    uniform value when it comes first; the key of the last pair has come before.

    Parameters
    ----------
    n : int
        Number of sequences.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    vocab : int, default 16
        Tokens there are, at least 2.
    length : int, default 128
        Tokens in the pairs, even and at least 4.  As a target is the next token, T is one less.
    test : bool, default False
        Ask only for the values of keys that came before.  Otherwise every next token is a target,
        also those that cannot be predicted.

    Returns
    -------
    Tokens
        ``inputs`` and ``targets``, int64 (n, length - 1).

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Source: M. Poli et al., "Mechanistic design and scaling of hybrid architectures" (2024), the
    variant with many queries.

    Examples
    --------
    >>> from olsq.tasks.mad import in_context_recall
    >>> from olsq.tasks.tokens import IGNORE
    >>> data = in_context_recall(100, 0, test=True)
    >>> float((data.targets != IGNORE).sum(-1).mean()).__round__()
    56
    """
    return _recall(n, seed, vocab, length, 0, 0.0, test)


def noisy_recall(
    n: int,
    seed: np.random.Generator | int,
    *,
    vocab: int = 32,
    length: int = 128,
    noise_vocab: int = 16,
    noise: float = 0.2,
    test: bool = False,
) -> Tokens:
    """Draw sequences as :func:`in_context_recall` does, with some pairs made noise.

    Parameters
    ----------
    n : int
        Number of sequences.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    vocab : int, default 32
        Tokens there are, the noise included.
    length : int, default 128
        Tokens in the pairs, even and at least 4.  T is one less.
    noise_vocab : int, default 16
        The last tokens of the vocabulary, which are noise; at least 1, and 2 must be left.
    noise : float, default 0.2
        Probability that a pair is two uniform noise tokens, in [0, 1).  Never the last pair,
        nor one more, drawn uniformly from all pairs.
    test : bool, default False
        Ask only for the values of keys that came before.

    Returns
    -------
    Tokens
        ``inputs`` and ``targets``, int64 (n, length - 1).

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Source: as :func:`in_context_recall`.  The pair protected from noise may be the last one, which
    is safe anyway; where all others are noise the published code fails, and here the first pair
    is kept.

    Examples
    --------
    >>> from olsq.tasks.mad import noisy_recall
    >>> data = noisy_recall(100, 0)
    >>> float((data.inputs >= 16).mean()).__round__(1)
    0.2
    """
    check_integers(noise_vocab=(noise_vocab, 1))
    check_reals(noise=(noise, 0.0))
    if noise >= 1.0:
        raise ValueError(f"noise must be in [0, 1), got {noise}")
    return _recall(n, seed, vocab, length, noise_vocab, noise, test)


def _recall(
    n: int,
    seed: np.random.Generator | int,
    vocab: int,
    length: int,
    noise_vocab: int,
    noise: float,
    test: bool,
) -> Tokens:
    check_integers(n=(n, 0), vocab=(vocab, noise_vocab + 2), length=(length, 4))
    check_flag("test", test)
    if length % 2:
        raise ValueError(f"length must be even, got {length}")
    rng = generator(seed)
    pairs = length // 2
    used = vocab - noise_vocab
    n_keys = used // 2
    row = np.arange(n)

    value_of = rng.integers(n_keys, used, size=(n, n_keys))
    key = rng.integers(n_keys, size=(n, pairs))
    is_noise = rng.random((n, pairs)) < noise
    is_noise[:, -1] = False
    is_noise[row, rng.integers(pairs, size=n)] = False
    is_noise[:, 0] &= ~is_noise[:, :-1].all(-1)  # the last key needs an earlier one

    occurred = np.zeros((n, n_keys), dtype=bool)
    probed = np.zeros((n, pairs), dtype=bool)
    for i in range(pairs - 1):
        probed[:, i] = occurred[row, key[:, i]] & ~is_noise[:, i]
        occurred[row, key[:, i]] |= ~is_noise[:, i]
    # the largest of uniform numbers falls on each of the seen keys equally often
    key[:, -1] = np.where(occurred, rng.random((n, n_keys)), -1.0).argmax(-1)
    probed[:, -1] = True

    pair = np.stack([key, np.take_along_axis(value_of, key, axis=1)], axis=-1)
    if noise > 0.0:
        pair[is_noise] = rng.integers(used, vocab, size=(is_noise.sum(), 2))
    answer = np.full_like(pair, IGNORE)
    answer[..., 1] = np.where(probed, pair[..., 1], IGNORE)
    tokens = pair.reshape(n, length)
    targets = answer.reshape(n, length) if test else tokens
    return Tokens(tokens[:, :-1], targets[:, 1:])


def mqar(
    n: int,
    seed: np.random.Generator | int,
    *,
    vocab: int = 8192,
    length: int = 64,
    num_kv_pairs: int = 8,
    power_a: float = 0.01,
    random_non_queries: bool = True,
) -> Tokens:
    """Draw sequences of (key, value) pairs, followed by each key once more, somewhere.

    Keys are different tokens from 1 to ``vocab // 2 - 1``, values different tokens from
    ``vocab // 2`` on.  Behind the pairs, every second position may hold a key; slot i = 1, 2, ...
    is drawn with odds ``i ** (power_a - 1)``, first for the first pair, then for the second
    among the slots left, and so on.

    Parameters
    ----------
    n : int
        Number of sequences.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    vocab : int, default 8192
        Tokens there are, at least ``2 * num_kv_pairs + 2``.
    length : int, default 64
        Tokens T in a sequence, even and at least ``4 * num_kv_pairs``.
    num_kv_pairs : int, default 8
        Pairs, and so queries, in a sequence; at least 1.
    power_a : float, default 0.01
        1 spreads the queries evenly; the smaller, the more of them come soon after the pairs.
    random_non_queries : bool, default True
        Fill the other positions behind the pairs with uniform tokens, keys and values among
        them; otherwise with 0.

    Returns
    -------
    Tokens
        ``inputs`` and ``targets``, int64 (n, length).  Targets are the values, not shifted: each
        is due at the second occurrence of its key.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Source: S. Arora et al., "Zoology: measuring and improving recall in efficient language
    models" (2023), as in its code.  There a filling token may be a key of the same sequence,
    which is then not asked for; that is kept.  The condition ``vocab > length`` of that code is
    not needed and not made.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.tasks import mqar
    >>> from olsq.tasks.tokens import IGNORE
    >>> data = mqar(1, 1, vocab=12, length=12, num_kv_pairs=2, random_non_queries=False)
    >>> data.inputs[0].tolist()
    [3, 10, 4, 11, 3, 0, 0, 0, 0, 0, 4, 0]
    >>> np.nonzero(data.targets[0] != IGNORE)[0], data.targets[0, [4, 10]]
    (array([ 4, 10]), array([10, 11]))
    """
    check_integers(n=(n, 0), num_kv_pairs=(num_kv_pairs, 1))
    check_integers(vocab=(vocab, 2 * num_kv_pairs + 2), length=(length, 4 * num_kv_pairs))
    if length % 2:
        raise ValueError(f"length must be even, got {length}")
    check_reals(power_a=(power_a, -np.inf))
    check_flag("random_non_queries", random_non_queries)
    rng = generator(seed)
    data = Tokens(np.full((n, length), BLANK), np.full((n, length), IGNORE))
    n_keys = vocab // 2 - 1
    behind = 2 * num_kv_pairs
    with np.errstate(over="ignore", under="ignore"):
        odds = np.arange(1, (length - behind) // 2 + 1) ** (power_a - 1.0)
    if not (np.isfinite(odds).all() and odds.min() > 0.0):
        raise ValueError(
            f"power_a must be closer to 1 for a length of {length}, got {power_a}: the odds of the "
            "last slot overflow or vanish"
        )
    for start in range(0, n, CHUNK):
        inputs, targets = data.inputs[start : start + CHUNK], data.targets[start : start + CHUNK]
        rows = len(inputs)
        key = 1 + _different(rng, rows, n_keys, num_kv_pairs)
        value = 1 + n_keys + _different(rng, rows, vocab - 1 - n_keys, num_kv_pairs)
        # of independent exponential clocks the first to ring is a draw with these odds, and the
        # next one is a draw among the others
        clock = rng.standard_exponential((rows, len(odds))) / odds
        place = behind + 2 * clock.argsort(-1)[:, :num_kv_pairs]
        if random_non_queries:
            inputs[:, behind:] = rng.integers(vocab, size=(rows, length - behind))
        inputs[:, :behind:2] = key
        inputs[:, 1:behind:2] = value
        np.put_along_axis(inputs, place, key, axis=-1)
        np.put_along_axis(targets, place, value, axis=-1)
    return data


def _different(rng: np.random.Generator, n: int, choices: int, size: int) -> NDArray:
    """Draw ``size`` different numbers below ``choices``, (n, size): a shuffle stopped early."""
    row = np.arange(n)
    left = np.tile(np.arange(choices), (n, 1))
    for j in range(size):
        pick = rng.integers(j, choices, size=n)
        drawn = left[row, pick]
        left[row, pick] = left[:, j]
        left[:, j] = drawn
    return left[:, :size]
