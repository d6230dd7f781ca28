"""The covariance form: the inverse information matrix and the coefficients, the fast form.

Windows and banks use it where it is accurate and leave it where it is not: a row or a state outside
the bounds of :mod:`olsq.online.forms.limits` is taken by the square-root form instead.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.linalg.numpy.lapack import mirror_upper
from olsq.online.forms import covariance_kernels as kernels
from olsq.online.forms import schema
from olsq.online.forms.form import Form
from olsq.online.forms.lapack import dpotrf, dtrtri, inverse_of_triangle
from olsq.online.forms.limits import DOUBLE, limits_for
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.square_root import SquareRootForm, counters, noise_levels
from olsq.problem import Moments

BY_CHOLESKY_FROM = 64  # coefficients from which a change of form tries Cholesky


@dataclass(eq=False)
class CovarianceForm(Form):
    """P (d, d) bitwise symmetric, ``P = (H_t + Lambda_t)^-1``; theta (m, d).

    ``columns``, ``tally``, ``loss``, ``held`` and ``spread`` as in the square-root form.
    """

    P: NDArray[np.float64]
    theta: NDArray[np.float64]
    columns: NDArray[np.float64]
    tally: NDArray[np.float64]
    loss: NDArray[np.float64]
    held: NDArray[np.int64]
    spread: NDArray[np.float64]
    _: KW_ONLY
    intercept: bool
    precision: tuple[str, str] = DOUBLE

    name: ClassVar[str] = "covariance"
    FIELDS: ClassVar[schema.Fields] = schema.COVARIANCE

    def __post_init__(self) -> None:
        self.limits = limits_for(*self.precision)

    @classmethod
    def start(
        cls,
        ridge: NDArray,
        n_targets: int,
        intercept: bool,
        precision: tuple[str, str] = DOUBLE,
        sandwich: bool = False,
    ) -> CovarianceForm:
        """Return the form before any row; every ridge must be positive."""
        with np.errstate(over="ignore"):  # what overflows is not trusted
            P = np.diag(1.0 / ridge)
        return cls(
            P,
            np.zeros((n_targets, ridge.shape[0])),
            *counters(ridge, n_targets, sandwich),
            intercept=intercept,
            precision=precision,
        )

    @property
    def in_kernels(self) -> tuple[NDArray, ...]:
        return self.P, self.theta, self.columns, self.tally, self.loss

    def update(self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace) -> int:
        """Absorb rows from start on; return the first row this form must not take (or stop)."""
        return kernels.update(
            self.in_kernels,
            self.spread_in_kernels,
            tuple(rows),
            (start, stop),
            self.limits.covariance,
            residual,
            trace.arrays,
        )

    def trusted(self, margin: float = 1.0) -> bool:
        """Test whether the state is within the bounds divided by ``margin``."""
        leverage, inflation, variance = self.limits.covariance
        bounds = (leverage, inflation / margin, variance)
        return kernels.trusted(self.P, self.columns, bounds)

    @property
    def rank(self) -> int:
        return self.P.shape[-1]

    @property
    def full_rank(self) -> bool:
        return True

    def coefficients(self) -> NDArray:
        return self.theta.copy()

    def inverse_diagonal(self) -> NDArray:
        return np.diagonal(self.P, axis1=-2, axis2=-1).copy()

    def sandwich(self) -> tuple[NDArray, NDArray]:
        half = self.spread @ self.P
        return (half**2).sum(-2), (half * self.spread).sum((-2, -1))

    def determined(self) -> NDArray[np.bool_]:
        return np.ones(self.P.shape[:-1], np.bool_)

    def rounding_of_squares(self) -> float:
        return float(noise_levels(self.limits.square_root, self.columns.shape[-1], self.tally)) ** 2

    def explained(self) -> NDArray:
        return to_square_root(self).explained()

    def _root(self) -> NDArray:
        """Compute lower triangular B (..., d, d) with ``B B^T = P``; scaled, so that units cost no
        digits.
        """
        scale = np.sqrt(np.diagonal(self.P, axis1=-2, axis2=-1))
        scaled = self.P / scale[..., None, :] / scale[..., :, None]
        return scale[..., :, None] * np.linalg.cholesky(scaled)

    def whitened(self, X: NDArray) -> tuple[NDArray, NDArray[np.bool_]]:
        return X @ self._root(), np.ones(X.shape[:-1], np.bool_)

    def unwhitened(self, W: NDArray) -> NDArray:
        return W @ np.swapaxes(self._root(), -1, -2)

    def solved(self, X: NDArray) -> NDArray:
        return X @ self.P  # P is here: no factor to make

    def leverage(self, X: NDArray) -> NDArray:
        return np.maximum((self.solved(X) * X).sum(-1), 0.0)

    def moments(self, ridge: NDArray, discounted: bool) -> Moments:
        return to_square_root(self).moments(ridge, discounted)


def from_square_root(form: SquareRootForm, margin: float) -> CovarianceForm | None:
    """Convert to covariance form, or return None where that form would not keep its digits.

    The state must be within the bounds divided by ``margin``.
    """
    if not form.full_rank:
        return None
    inverse, _ = inverse_of_triangle(form.R)
    largest = max(inverse.max(), -inverse.min())
    if not largest < np.sqrt(form.limits.variance / inverse.shape[0]):
        return None
    P = inverse @ inverse.T
    mirror_upper(P)  # bitwise symmetric
    del inverse
    new = CovarianceForm(P, form.coefficients(), **form.shared)
    return new if new.trusted(margin) else None


def to_square_root(form: CovarianceForm) -> SquareRootForm:
    """Convert to square-root form: ``R`` with ``R^T R = P^-1``."""
    return SquareRootForm(*square_root_of(form.P, form.theta), **form.shared)


def square_root_of(P: NDArray, theta: NDArray) -> tuple[NDArray, NDArray]:
    """Compute R (..., d, d) and z (..., m, d) from P and theta, for many states at once.

    Large models try Cholesky first, which is as accurate as the spectral decomposition and 5 to 8
    times as fast (d 64 to 1024, one thread; 2026-11-25, AMD EPYC).
    """
    if P.ndim == 2 and P.shape[0] >= BY_CHOLESKY_FROM:
        R = _inverse_root_of(P, np.sqrt(np.diagonal(P)))
        if R is not None:
            return R, theta @ R.T
    R, z = np.empty(P.shape), np.empty(theta.shape)
    several = [a.reshape(-1, *a.shape[-2:]) for a in (P, theta, R, z)]
    kernels.take_roots(*map(np.ascontiguousarray, several[:2]), *several[2:])
    return R, z


def _inverse_root_of(P: NDArray, scale: NDArray) -> NDArray | None:
    """Compute upper triangular R with ``R^T R = P^-1``; None where rounding in P is in the way.

    With rows and columns in reverse, ``P = B B^T`` has B upper triangular, and R is its inverse.
    """
    turned = P[::-1, ::-1] / scale[::-1, None]
    turned /= scale[::-1]
    # Symmetric to rounding, so that LAPACK may take it by columns and work in place.
    L, info = dpotrf(turned.T, lower=True, clean=True, overwrite_a=True)
    if info != 0 or np.diagonal(L).min() < 1e-6:
        return None
    inverse, info = dtrtri(L, lower=True, overwrite_c=True)
    if info != 0:
        return None
    R = np.ascontiguousarray(inverse[::-1, ::-1])
    R /= scale
    return R
