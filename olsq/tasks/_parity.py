"""Parity: the smallest task that needs a state to be tracked."""

from __future__ import annotations

import numpy as np

from olsq.tasks._checks import check_integers, generator
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
