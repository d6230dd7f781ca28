"""Thresholds of the online solvers, by the dtype of the rows.

None has units: they are ratios, so results do not depend on the units of the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

DOUBLE = "float64"


@dataclass(frozen=True)
class Limits:
    """Bounds within which each form keeps its digits.

    Attributes
    ----------
    eps : machine epsilon of the state
    coarse : relative size under which what is left of a regressor, once other directions are taken
        out of it, is the rounding error that the data came with; 0 for float64 data
    floor : smallest ratio of a column's information to its level at the last excitation that
        forgetting may leave
    """

    eps: float
    coarse: float
    floor: float

    @property
    def square_root(self) -> tuple[float, float, float]:
        return self.eps, self.floor, self.coarse


def limits_for(rows: DTypeLike) -> Limits:
    """Return the limits for rows that were given in this dtype."""
    return Limits(
        eps=float(np.finfo(np.float64).eps),
        # A copy of a float32 column in other units agrees with it to half a unit in the last place,
        # a sum of two to some: a few units say nothing about a direction.
        coarse=0.0 if np.dtype(rows) == np.float64 else 4 * float(np.finfo(np.float32).eps),
        floor=1e-60,  # quotients are exact down to it
    )
