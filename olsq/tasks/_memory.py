"""Memory tasks: selective copying, compression, and memorisation of a dictionary."""

from __future__ import annotations

import numpy as np

from olsq.arrays.seeds import generator
from olsq.tasks._checks import check_integers
from olsq.tasks.tokens import IGNORE, Tokens


def selective_copying(
    n: int,
    seed: np.random.Generator | int,
    *,
    vocab: int = 16,
    length: int = 256,
    copied: int = 16,
) -> Tokens:
    """Draw tokens scattered among blanks, to be repeated in order.

    The sequence is ``copied`` uniform tokens with blanks among them, the copy token
    (``vocab - 1``) and ``copied`` more blanks (``vocab - 2``), at which the tokens are asked for.

    Parameters
    ----------
    n : int
        Number of sequences.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    vocab : int, default 16
        Tokens there are, the two special ones included; at least 3.
    length : int, default 256
        Tokens T in a sequence, more than ``2 * copied + 1``.
    copied : int, default 16
        Tokens to copy, at least 1.

    Returns
    -------
    Tokens
        ``inputs`` and ``targets``, int64 (n, length).  Targets are not shifted: the answer is due
        at the blank itself.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Source: M. Poli et al. (2024).  As in the published code a blank goes before a token to copy,
    uniformly which, and never after the last one, which so is always next to the copy token.

    Examples
    --------
    >>> from olsq.tasks.mad import selective_copying
    >>> data = selective_copying(1, 0, length=10, copied=2)
    >>> data.inputs[0, -3:].tolist(), bool((data.targets[0, -2:] < 14).all())
    ([15, 14, 14], True)
    """
    check_integers(n=(n, 0), vocab=(vocab, 3), copied=(copied, 1))
    check_integers(length=(length, 2 * copied + 2))
    rng = generator(seed)
    content = rng.integers(vocab - 2, size=(n, copied))
    blanks = length - 2 * copied - 1
    # a blank in gap g is before token g, so it pushes the tokens from g on
    gap = np.sort(rng.integers(copied, size=(n, blanks)), axis=-1)
    pushed = np.zeros((n, copied + 1), dtype=np.int64)
    np.add.at(pushed, (np.arange(n)[:, None], gap), 1)
    position = np.arange(copied) + pushed[:, :-1].cumsum(-1)

    inputs = np.full((n, length), vocab - 2)
    inputs[np.arange(n)[:, None], position] = content
    inputs[:, length - copied - 1] = vocab - 1
    targets = np.full((n, length), IGNORE)
    targets[:, length - copied :] = content
    return Tokens(inputs, targets)


def compression(
    n: int, seed: np.random.Generator | int, *, vocab: int = 16, length: int = 32
) -> Tokens:
    """Draw uniform tokens and the compression token, to be decoded from the last position alone.

    Parameters
    ----------
    n : int
        Number of sequences.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    vocab : int, default 16
        Tokens there are, at least 2; the last is the compression token.
    length : int, default 32
        Tokens T in a sequence, at least 1.

    Returns
    -------
    Tokens
        ``inputs`` and ``targets``, int64 (n, length), equal: the compression token is asked for
        too.  The task is in the read-out, which sees the model's output at the last position
        plus a code for the position asked for.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Source: M. Poli et al. (2024).

    Examples
    --------
    >>> from olsq.tasks.mad import compression
    >>> data = compression(3, 0)
    >>> data.inputs[:, -1].tolist(), bool((data.inputs == data.targets).all())
    ([15, 15, 15], True)
    """
    check_integers(n=(n, 0), vocab=(vocab, 2), length=(length, 1))
    inputs = generator(seed).integers(vocab - 1, size=(n, length))
    inputs[:, -1] = vocab - 1
    return Tokens(inputs, inputs.copy())


def memorisation(
    n: int,
    seed: np.random.Generator | int,
    *,
    vocab: int = 256,
    length: int = 32,
    dictionary: int = 12345,
) -> Tokens:
    """Draw keys whose values are the same in all sequences and never shown.

    Keys are the tokens below ``(vocab - 1) // 2``, values as many of the others, the last
    token excepted: it marks where a value is asked for, after each key.

    Parameters
    ----------
    n : int
        Number of sequences.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    vocab : int, default 256
        Tokens there are, at least 3.
    length : int, default 32
        Tokens T in a sequence, even and at least 2.
    dictionary : int, default 12345
        Seed of the dictionary.  Training and test sequences need the same one.

    Returns
    -------
    Tokens
        ``inputs`` and ``targets``, int64 (n, length): key, mark, key, mark, ..., with the value of
        the key as the target at its mark.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Source: M. Poli et al. (2024).  The baseline trains on 256 sequences.

    Examples
    --------
    >>> from olsq.tasks.mad import memorisation
    >>> data = memorisation(256, 0)
    >>> len(set(zip(data.inputs[:, ::2].ravel(), data.targets[:, 1::2].ravel())))
    127
    """
    check_integers(n=(n, 0), vocab=(vocab, 3), length=(length, 2))
    if length % 2:
        raise ValueError(f"length must be even, got {length}")
    n_keys = (vocab - 1) // 2
    words = generator(dictionary, "dictionary")
    value_of = words.permutation(np.arange(n_keys, vocab - 1))[:n_keys]
    key = generator(seed).integers(n_keys, size=(n, length // 2))
    inputs = np.full((n, length), vocab - 1)
    inputs[:, ::2] = key
    targets = np.full((n, length), IGNORE)
    targets[:, 1::2] = value_of[key]
    return Tokens(inputs, targets)
