"""Recall of values that occur earlier in the sequence, with or without noise."""

from __future__ import annotations

import numpy as np

from olsq.tasks._checks import check_integers, check_reals, generator
from olsq.tasks.tokens import IGNORE, Tokens


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
        Ask only for the values of keys that came before.  Otherwise every next token is a
        target, also those that nobody can predict.

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
