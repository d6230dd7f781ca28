"""Random generators from seeds that users give."""

from __future__ import annotations

from typing import Any

import numpy as np

from olsq.arrays.checks import shown


def generator(seed: Any, name: str = "seed") -> np.random.Generator:
    """Return the random generator of a seed.

    Raises
    ------
    TypeError, ValueError
        If it is neither a Generator nor what ``numpy.random.default_rng`` takes.
    """
    message = f"{name} must be a numpy Generator or an integer of at least 0, got {shown(seed)}"
    if isinstance(seed, (bool, np.bool_)):
        raise TypeError(message)
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise type(error)(message) from None
