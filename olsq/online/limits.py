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
    rounding : relative rounding error that one row leaves in the triangular factor; over n rows
        it adds up like a random walk, to ``rounding sqrt(n)``.  What is left of a regressor below
        that, once the directions already seen are taken out, says nothing
    floor : smallest ratio of a column's information to its level at the last excitation that
        forgetting may leave
    leverage, inflation, variance : largest leverage of a row, variance inflation factor and P_jj
        the covariance form accepts; beyond them it hands over to the square-root form
    """

    rounding: float
    floor: float
    leverage: float
    inflation: float
    variance: float

    @property
    def square_root(self) -> tuple[float, float]:
        return self.rounding, self.floor

    @property
    def covariance(self) -> tuple[float, float, float]:
        return self.leverage, self.inflation, self.variance


def limits_for(dtype: DTypeLike, n_coefficients: int) -> Limits:
    """The limits for a state of this dtype and size."""
    eps = float(np.finfo(dtype).eps)
    double = np.dtype(dtype) == np.float64
    return Limits(
        rounding=4 * eps * n_coefficients**0.5,
        floor=1e-60 if double else 1e-12,
        leverage=1e6 if double else 1e3,
        inflation=1e8 if double else 1e3,
        variance=1e302 if double else 1e30,
    )
