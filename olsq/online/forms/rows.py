"""Input and output of a form: checked rows, and a trace of the states after them."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

ORTHOGONAL = 0.5  # gates from which pairs stay orthogonal to rounding


def read_only(array: NDArray) -> NDArray:
    """Return a view that cannot be written.

    Numba compiles a kernel anew where an argument may be written and where it may not: a frame's
    columns may not, an array's may.  What kernels only read is given to them in one way.
    """
    if array.flags.writeable:
        array = array.view()
        array.setflags(write=False)
    return array


class Rows(NamedTuple):
    """Checked, finite rows in float64: X (n, d), Y (n, m), contiguous; gates and weights (n,).
    Where the model has an intercept, column 0 of X is 1.  Made by :meth:`of`."""

    X: NDArray[np.float64]
    Y: NDArray[np.float64]
    gates: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, X: NDArray, Y: NDArray, gates: NDArray, weights: NDArray) -> Rows:
        return cls(read_only(X), read_only(Y), read_only(gates), read_only(weights))


class PairedRows(Rows):
    """Rows of which each two, from the first on, are one complex row: see ``rows/complex_rows.py``.

    Both have one weight, and the second one the gate 1.
    """


class Trace(NamedTuple):
    """The states after each row; empty arrays mean that no trace is wanted.

    coef (n, m, d); variance (n, d) the diagonal of the inverse information; loss (n, m);
    counts (n, 6): the tally (see ``counting``), the rank and ``tr(P S)``;
    recursive (n, m): the a-priori residual over its standard deviation in units of the noise,
    ``e_t sqrt(beta gamma / (gamma + beta x.P x))`` (0 where the row determined a new direction);
    sandwich (n, d) the diagonal of ``P S P``.  variance and sandwich may be (0, d): not wanted.
    """

    coef: NDArray[np.float64]
    variance: NDArray[np.float64]
    loss: NDArray[np.float64]
    counts: NDArray[np.float64]
    recursive: NDArray[np.float64]
    sandwich: NDArray[np.float64]

    @classmethod
    def empty(cls, n: int, m: int, d: int, sandwich: bool = False, variance: bool = True) -> Trace:
        return cls(
            np.empty((n, m, d)),
            np.empty((n if variance else 0, d)),
            np.empty((n, m)),
            np.empty((n, 6)),
            np.empty((n, m)),
            np.empty((n if sandwich and variance else 0, d)),
        )

    def first(self, n: int) -> Trace:
        """Slice the arrays to their first n rows."""
        return Trace(*(a[:n] for a in self))

    def write(self, t: Any, form: Any) -> None:
        """Write the state of a form at row t, or of a stack at rows t (b,), all but the recursive
        residual.
        """
        self.coef[t], self.loss[t], used = form.coefficients(), form.loss, 0.0
        if len(self.variance):
            self.variance[t] = form.inverse_diagonal()
        if len(self.sandwich):
            self.sandwich[t], used = form.sandwich()
        self.counts[t, :4], self.counts[t, 4], self.counts[t, 5] = form.tally, form.rank, used

    @staticmethod
    @cache
    def none(m: int, d: int) -> Trace:
        return Trace.empty(0, m, d)

    @property
    def wanted(self) -> bool:
        return self.coef.shape[0] > 0

    @property
    def arrays(self) -> tuple[NDArray, ...] | None:
        """The arrays as kernels take them, a plain tuple; None where no trace is wanted."""
        return tuple(self) if self.wanted else None


def forgotten(loss: NDArray, decay: float) -> NDArray:
    """Return ``decay * loss``; an unknown (infinite) loss is dropped by a decay of 0."""
    return decay * loss if decay > 0 else np.zeros_like(loss)


def split_intercept(values: NDArray, intercept: Any) -> tuple[NDArray, NDArray]:
    """Split values (..., k) into the slopes' (..., d) and the intercept's (...,), 0 without one."""
    if not intercept:
        return values, np.zeros(values.shape[:-1], values.dtype)
    return values[..., 1:], values[..., 0]


def clip_to(values: NDArray, dtype: DTypeLike) -> NDArray:
    """Cast to dtype; what float32 cannot hold becomes its largest number instead of infinity."""
    largest = np.finfo(dtype).max
    return np.maximum(np.minimum(values, largest), -largest).astype(dtype, copy=False)


def pairs_stay_orthogonal(gates: NDArray) -> bool:
    """Test whether learning a pair's first row changes the second's residual by rounding only.

    That needs ``u P v = 0``, which holds to rounding with gates of at least ``ORTHOGONAL``.
    """
    return bool((gates >= ORTHOGONAL).all())
