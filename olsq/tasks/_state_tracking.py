"""State tracking beyond any fading memory: parity, and word problems of the permutation groups."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_flag
from olsq.arrays.seeds import generator
from olsq.tasks._checks import check_integers
from olsq.tasks.tokens import Tokens


def parity(n: int, seed: np.random.Generator | int, *, length: int = 40) -> Tokens:
    """Draw random bits; the target at each is whether there was an odd number of ones so far.

    Parameters
    ----------
    n : int
        Number of sequences.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    length : int, default 40
        Bits T in a sequence, at least 1.  The paper trains on 40 and tests on up to 256.

    Returns
    -------
    Tokens
        ``inputs`` and ``targets``, int64 (n, length), 0 and 1.  All positions are asked for, and
        targets are not shifted: the bit at a position counts in its target.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    Any T - 1 of the first T bits say nothing of their parity: guessing is right half of the time
    until every bit is used.  Source: J. von Oswald et al., "MesaNet: sequence modeling by locally
    optimal test-time training" (2025), appendix H.

    Examples
    --------
    >>> from olsq.tasks import parity
    >>> data = parity(1, 0, length=8)
    >>> data.inputs[0].tolist(), data.targets[0].tolist()
    ([1, 1, 1, 0, 0, 0, 0, 0], [1, 0, 1, 1, 1, 1, 1, 1])
    """
    check_integers(n=(n, 0), length=(length, 1))
    bits = generator(seed).integers(2, size=(n, length))
    return Tokens(bits, bits.cumsum(-1) % 2)


MOST_DEGREE = 6  # the table of products of S7 would have 25 million entries


def word_problem(
    n: int,
    seed: np.random.Generator | int,
    *,
    degree: int = 3,
    length: int = 40,
    even: bool = False,
) -> Tokens:
    """Draw random permutations; the target at each is the product of all so far.

    Tokens number the permutations of ``degree`` things in lexicographic order, 0 being the
    identity: ``degree=3`` is S3 with 6 of them, ``degree=5`` is S5 with 120, and with ``even``
    A5 with 60.

    Parameters
    ----------
    n : int
        Number of sequences.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    degree : int, default 3
        Things that are permuted, from 2 to 6.  2 is parity.
    length : int, default 40
        Permutations T in a sequence, at least 1.
    even : bool, default False
        Draw even permutations only: the alternating group, tokens from 0 to ``degree! / 2 - 1``.

    Returns
    -------
    Tokens
        ``inputs`` and ``targets``, int64 (n, length).  All positions are asked for, and targets
        are not shifted: the permutation at a position counts in its target, applied after those
        before it.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range.

    Notes
    -----
    O(n T) after a table of all products.  A product is uniform given all but one of its factors:
    guessing is right ``1 / degree!`` of the time until every one is used.  Up to S4 the groups are
    solvable; the word problem of S5 and A5 is complete for NC1, out of reach of a fixed number of
    layers whose transitions commute, however wide.  Source: W. Merrill, J. Petty and A. Sabharwal,
    "The illusion of state in state-space models" (2024).

    Examples
    --------
    >>> from olsq.tasks import word_problem
    >>> data = word_problem(1, 3, length=6)
    >>> data.inputs[0].tolist(), data.targets[0].tolist()
    ([4, 0, 1, 1, 1, 4], [4, 4, 2, 4, 2, 1])
    """
    check_integers(n=(n, 0), degree=(degree, 2, MOST_DEGREE), length=(length, 1))
    table = _products(degree, check_flag("even", even))
    inputs = generator(seed).integers(len(table), size=(n, length))
    targets = inputs.copy()
    for t in range(1, length):
        targets[:, t] = table[inputs[:, t], targets[:, t - 1]]
    return Tokens(inputs, targets)


def _products(degree: int, even: bool) -> NDArray[np.int64]:
    """Compute ``table[a, b]``, the number of "a after b", (g, g) for a group of g."""
    members = np.array(list(permutations(range(degree))))
    if even:
        above, below = np.triu_indices(degree, 1)
        inversions = (members[:, above] > members[:, below]).sum(-1)
        members = members[inversions % 2 == 0]
    # Numbers in base ``degree`` name permutations; they rise in lexicographic order.
    place = degree ** np.arange(degree)[::-1]
    names = members @ place
    composed = members[:, members] @ place  # (a after b)(i) = a[b[i]]
    return np.searchsorted(names, composed)
