"""What flows into a form (checked rows) and what may flow out of it (a trace of its states)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Rows(NamedTuple):
    """Checked, finite rows: X (n, d), Y (n, m) of the state's dtype, contiguous; gates and
    weights (n,) float64.  Where the model has an intercept, column 0 of X is 1."""

    X: NDArray
    Y: NDArray
    gates: NDArray[np.float64]
    weights: NDArray[np.float64]


class Trace(NamedTuple):
    """The state after each row.  Empty arrays mean that no trace is wanted.

    coef (n, m, d); variance (n, d) the diagonal of the inverse information; loss (n, m);
    counts (n, 4): forgotten row count, the same with squared weights, product of the gates, rank;
    recursive (n, m): the a-priori residual over its standard deviation in units of the noise,
    ``e_t sqrt(beta gamma / (gamma + beta x.P x))`` (0 where the row determined a new direction).
    """

    coef: NDArray
    variance: NDArray
    loss: NDArray[np.float64]
    counts: NDArray[np.float64]
    recursive: NDArray[np.float64]

    @classmethod
    def empty(cls, n: int, m: int, d: int, dtype: DTypeLike = np.float64) -> Trace:
        return cls(
            np.empty((n, m, d), dtype), np.empty((n, d)), np.empty((n, m)),
            np.empty((n, 4)), np.empty((n, m)),
        )  # fmt: skip

    @staticmethod
    @cache
    def none(m: int, d: int, dtype: DTypeLike = np.float64) -> Trace:
        return Trace.empty(0, m, d, dtype)

    @property
    def wanted(self) -> bool:
        return self.coef.shape[0] > 0

    @property
    def arrays(self) -> tuple[NDArray, ...]:
        return tuple(self)  # kernels are compiled for a plain tuple


def forgotten(loss: NDArray, decay: float) -> NDArray:
    """``decay * loss``; nothing of an unknown (infinite) loss is left after a decay of 0."""
    return decay * loss if decay > 0 else np.zeros_like(loss)


def clip_to(values: NDArray, dtype: DTypeLike) -> NDArray:
    """Cast to dtype; what float32 cannot hold becomes its largest number instead of infinity."""
    largest = np.finfo(dtype).max
    return np.clip(values, -largest, largest).astype(dtype)
