"""The covariance form: the inverse information matrix and the coefficients, the fast form.

It is used where it is accurate and left where it is not: a row or a state outside the bounds of
:mod:`olsq.online.limits` is taken by the square-root form instead (see ``recursion.py``).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from olsq.online import _covariance_kernels as kernels
from olsq.online.limits import limits_for
from olsq.online.rows import Rows, Trace
from olsq.online.square_root import SquareRootForm, counters, triangular_inverse

BLOCKED_FROM = 24  # number of coefficients from which blocks of eight rows pay


@dataclass(eq=False)
class CovarianceForm:
    """P (d, d) bitwise symmetric, ``P = (H_t + Lambda_t)^-1``; theta (m, d).

    ``columns``, ``tally``, ``loss`` and ``held`` as in the square-root form.
    """

    P: NDArray
    theta: NDArray
    columns: NDArray[np.float64]
    tally: NDArray[np.float64]
    loss: NDArray[np.float64]
    held: NDArray[np.int64]
    _: KW_ONLY
    intercept: bool

    name: ClassVar[str] = "covariance"
    ARRAYS: ClassVar[tuple[str, ...]] = ("P", "theta", "columns", "tally", "loss", "held")

    def __post_init__(self) -> None:
        self.limits = limits_for(self.P.dtype)

    @classmethod
    def start(
        cls, ridge: NDArray, n_targets: int, dtype: DTypeLike, intercept: bool
    ) -> CovarianceForm:
        """The form before any row; every ridge must be positive."""
        return cls(
            np.diag(1.0 / ridge).astype(dtype),
            np.zeros((n_targets, ridge.shape[0]), dtype),
            *counters(ridge, n_targets),
            intercept=intercept,
        )

    def update(self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace) -> int:
        """Absorb rows from start on; return the first row this form must not take (or stop)."""
        state = self.P, self.theta, self.columns, self.tally, self.loss
        bounds = self.limits.covariance
        if self.P.shape[0] < BLOCKED_FROM:
            return kernels.update(*state, *rows, start, stop, bounds, residual, trace.arrays)
        t = start
        while t < stop:
            t = kernels.update_blocked(*state, *rows, t, stop, bounds, residual, trace.arrays)
            single = min(t + kernels.BLOCK, stop)
            done = kernels.update(*state, *rows, t, single, bounds, residual, trace.arrays)
            if done < single:
                return done
            t = done
        return stop

    def trusted(self, margin: float = 1.0) -> bool:
        """Whether the state is within the bounds divided by ``margin``."""
        leverage, inflation, variance = self.limits.covariance
        bounds = (leverage, inflation / margin, variance)
        return kernels.trusted(self.P, self.columns, bounds)

    rank = property(lambda self: self.P.shape[0])
    full_rank = True

    def coefficients(self) -> NDArray:
        return self.theta.astype(np.float64)

    def inverse_diagonal(self) -> NDArray:
        return np.diagonal(self.P).astype(np.float64)

    def determined(self) -> NDArray[np.bool_]:
        return np.ones(self.P.shape[0], np.bool_)


def from_square_root(form: SquareRootForm, margin: float = 16.0) -> CovarianceForm | None:
    """The same state in covariance form, or None where that form would not keep its digits.

    The state must be within the bounds divided by ``margin``.
    """
    if not form.full_rank:
        return None
    inverse, _ = triangular_inverse(form.R.astype(np.float64))
    dtype = form.R.dtype
    if not np.abs(inverse).max() < np.sqrt(form.limits.variance / inverse.shape[0]):
        return None
    P = inverse @ inverse.T
    P = np.ascontiguousarray((0.5 * (P + P.T)).astype(dtype))
    theta = np.ascontiguousarray(form.coefficients().astype(dtype))
    new = CovarianceForm(
        P, theta, form.columns, form.tally, form.loss, form.held, intercept=form.intercept
    )
    return new if new.trusted(margin) else None


def to_square_root(form: CovarianceForm) -> SquareRootForm:
    """The same state in square-root form: ``R`` with ``R^T R = P^-1``.

    By the spectral decomposition of the scaled P, whose condition is bounded while the form is
    trusted; rounding in P cannot make it fail.
    """
    P = form.P.astype(np.float64)
    scale = np.sqrt(np.diagonal(P))
    values, vectors = np.linalg.eigh(P / np.outer(scale, scale))
    values = np.maximum(values, values[-1] * np.finfo(form.P.dtype).eps)
    R = np.linalg.qr((vectors / np.sqrt(values)).T / scale, mode="r")
    R = np.triu(R * np.where(np.diagonal(R) < 0, -1.0, 1.0)[:, None])
    dtype = form.P.dtype
    z = form.theta.astype(np.float64) @ R.T
    return SquareRootForm(
        np.ascontiguousarray(R, dtype), np.ascontiguousarray(z, dtype), form.columns, form.tally,
        form.loss, form.held, intercept=form.intercept,
    )  # fmt: skip
