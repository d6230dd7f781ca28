"""The covariance form: the inverse information matrix and the coefficients, the fast form.

It is used where it is accurate and left where it is not: a row or a state outside the bounds of
:mod:`olsq.online.forms.limits` is taken by the square-root form instead (see ``form_switch.py``).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.linalg.numpy.lapack import mirror_upper
from olsq.online.forms import covariance_blocks as blocks
from olsq.online.forms import covariance_kernels as kernels
from olsq.online.forms import covariance_products as products
from olsq.online.forms import pair_kernels, schema, square_root_blocks
from olsq.online.forms.form import Form
from olsq.online.forms.lapack import dpotrf, dtrtri, inverse_of_triangle
from olsq.online.forms.limits import DOUBLE, limits_for
from olsq.online.forms.rows import PairedRows, Rows, Trace
from olsq.online.forms.square_root import SquareRootForm, counters, noise_levels
from olsq.problem import Moments

# Number of coefficients from which blocks of eight rows are used.  They are faster below too, and
# lose a digit to single rows on regressors with a large mean.
BLOCKED_FROM = 24

# Number of columns up to which pairs of rows are taken as one complex row, a pass over P a pair.
PAIRS_UNTIL = 256

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
        if isinstance(rows, PairedRows) and self._takes_pairs(trace):
            start, settled = self._update_by_pairs(rows, start, stop, residual, trace)
            if settled:
                return start
        # blocks do not carry the sandwich along
        if self.P.shape[0] < BLOCKED_FROM or len(trace.sandwich):
            return self._update_by_rows(rows, (start, stop), residual, trace)
        if self.P.shape[0] < products.BLOCKED_FROM or trace.wanted:
            return self._update_by_eights(rows, start, stop, residual, trace)
        t, most = start, products.BLOCK if self.P.shape[0] < products.LARGE else 2 * products.BLOCK
        while t < stop:
            end = square_root_blocks.end_of_block(
                rows.gates,
                rows.weights,
                t,
                stop,
                most,
                kernels.SMALLEST_GATE,
                square_root_blocks.WEIGHT_RANGE,
            )
            if end - t < products.FEWEST or not self._absorb_block(rows, t, end, residual):
                end = min(max(end + 1, t + products.FEWEST), stop)
                done = self._update_by_eights(rows, t, end, residual, trace)
                if done < end:
                    return done
            t = end
        return stop

    def _update_by_rows(
        self, rows: Rows, span: tuple[int, int], residual: NDArray, trace: Trace
    ) -> int:
        return kernels.update(
            self.in_kernels,
            self.spread_in_kernels,
            tuple(rows),
            span,
            self.limits.covariance,
            residual,
            trace.arrays,
        )

    def _takes_pairs(self, trace: Trace) -> bool:
        """Test whether the kernel of pairs is the fastest, and can write this trace."""
        return self.P.shape[0] <= PAIRS_UNTIL and not len(trace.sandwich)

    def _update_by_pairs(
        self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace
    ) -> tuple[int, bool]:
        """Run :meth:`update`, a pair of rows at a time; False where the rest are not taken so.

        That is where P is not the covariance of pairs, of which another form may have held one part
        and not the other.
        """
        t = start
        if t % 2:  # the second row of a pair, within which another form stopped
            t = self._update_by_rows(rows, (t, t + 1), residual, trace)
            if t in (start, stop):
                return t, True
        return pair_kernels.update_pairs(
            self.in_kernels,
            self.spread_in_kernels,
            tuple(rows),
            (t, stop),
            self.limits.covariance,
            residual,
            trace.arrays,
        )

    def _absorb_block(self, rows: Rows, start: int, stop: int, residual: NDArray) -> bool:
        """Absorb rows start..stop as one block; False where fewer at a time have to."""
        block = Rows(*(a[start:stop] for a in rows))
        done = products.absorb_block(
            self.P,
            self.theta,
            self.columns,
            self.tally,
            self.loss,
            block,
            self.limits.covariance,
            residual[start:stop],
        )
        if done:
            square_root_blocks.absorb_squares_of_block(self.spread, block)
        return done

    def _update_by_eights(
        self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace
    ) -> int:
        """Run :meth:`update`, eight rows at a time and the last ones one at a time."""
        form, spread, bounds = self.in_kernels, self.spread_in_kernels, self.limits.covariance
        arrays, record = tuple(rows), trace.arrays
        t = start
        while t < stop:
            t = blocks.update_blocked(form, spread, arrays, (t, stop), bounds, residual, record)
            single_rows_end = min(t + blocks.BLOCK, stop)
            done = self._update_by_rows(rows, (t, single_rows_end), residual, trace)
            if done < single_rows_end:
                return done
            t = done
        return stop

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
