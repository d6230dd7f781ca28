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
    new_direction : relative size under which what is left of a regressor, after the directions
        already seen are taken out, counts as rounding noise
    pin : smallest ratio of a pivot R_jj to its column's length that forgetting may leave
    floor : smallest ratio of the information to its level at the last excitation that forgetting
        may leave
    leverage, inflation, variance : largest leverage of a row, variance inflation factor and P_jj
        the covariance form accepts; beyond them it hands over to the square-root form
    """

    new_direction: float
    pin: float
    floor: float
    leverage: float
    inflation: float
    variance: float

    @property
    def square_root(self) -> tuple[float, float, float]:
        return self.new_direction, self.pin, self.floor

    @property
    def covariance(self) -> tuple[float, float, float]:
        return self.leverage, self.inflation, self.variance


def limits_for(dtype: DTypeLike, n_coefficients: int) -> Limits:
    """The limits for a state of this dtype and size."""
    eps = float(np.finfo(dtype).eps)
    double = np.dtype(dtype) == np.float64
    return Limits(
        new_direction=max(32, 4 * n_coefficients) * eps,
        pin=64 * eps * n_coefficients**0.5,
        floor=1e-60 if double else 1e-12,
        leverage=1e6 if double else 1e3,
        inflation=1e8 if double else 1e3,
        variance=1e280 if double else 1e30,
    )
