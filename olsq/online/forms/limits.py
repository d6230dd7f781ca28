"""Thresholds of the online solvers, by the dtype of the state and of the data.

None has units: they are ratios, so results do not depend on the units of the data.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

DOUBLE = ("float64", "float64")  # dtypes of a form's stored state and of the data it is made from


def state_dtype_name(state_dtype: Any) -> str:
    """Return the name of a ``state_dtype=``; ValueError unless it is float64 or float32."""
    if type(state_dtype) is str and state_dtype in DOUBLE:  # the usual case, row by row
        return "float64"
    with contextlib.suppress(TypeError, ValueError, SyntaxError):
        name = np.dtype(state_dtype).name
        if name in ("float64", "float32") and state_dtype is not None:
            return name
    raise ValueError(f"state_dtype must be 'float64' or 'float32', got {state_dtype!r}")


@dataclass(frozen=True)
class Limits:
    """Bounds within which each form keeps its digits.

    Attributes
    ----------
    eps : machine epsilon of the stored state; every form computes in float64
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


def limits_for(state: DTypeLike, data: DTypeLike = np.float64) -> Limits:
    """Return the limits for a state stored as ``state`` with rows given as ``data``."""
    small = np.dtype(state) != np.float64
    return Limits(
        eps=float(np.finfo(state).eps),
        # A copy of a float32 column in other units agrees with it to half a unit in the last place,
        # a sum of two to some: a few units say nothing about a direction.
        coarse=0.0 if np.dtype(data) == np.float64 else 4 * float(np.finfo(np.float32).eps),
        # float32 states reach rounding at 1e-12; float64 ones keep quotients exact down to 1e-60
        floor=1e-12 if small else 1e-60,
    )
