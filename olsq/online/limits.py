"""The thresholds of the online solvers, in one place, by dtype.

None has units: they are ratios, so results do not depend on the units of the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike


@dataclass(frozen=True)
class Limits:
    """Bounds within which each form keeps its digits.

    Attributes
    ----------
    eps : machine epsilon
    floor : smallest ratio of a column's information to its level at the last excitation that
        forgetting may leave
    leverage, inflation, variance : largest leverage of a row, variance inflation factor and P_jj
        the covariance form accepts; beyond them it hands over to the square-root form
    """

    eps: float
    floor: float
    leverage: float
    inflation: float
    variance: float

    @property
    def square_root(self) -> tuple[float, float]:
        return self.eps, self.floor

    @property
    def covariance(self) -> tuple[float, float, float]:
        return self.leverage, self.inflation, self.variance


def limits_for(dtype: DTypeLike) -> Limits:
    """The limits for a state of this dtype."""
    eps = float(np.finfo(dtype).eps)
    double = np.dtype(dtype) == np.float64
    return Limits(
        eps=eps,
        floor=1e-60 if double else 1e-12,
        leverage=1e6 if double else 1e3,
        inflation=1e8 if double else 1e3,
        variance=1e302 if double else 1e30,
    )
