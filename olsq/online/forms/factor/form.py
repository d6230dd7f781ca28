"""The state of one stream, or the readings of a stack of them, as one factor."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.forms import schema
from olsq.online.forms.factor import careful, learning, path, snapshots
from olsq.online.forms.factor.solving import solve, variances
from olsq.online.forms.form import Form
from olsq.online.forms.limits import DOUBLE, limits_for
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.square_root import SquareRootForm, counters, noise_levels
from olsq.problem import Moments

BY_LAPACK_FROM = 128  # coefficients whose variances LAPACK's inverse is the faster for


@kernel(strict=True)
def solve_each(F, D, theta):
    """Solve ``U theta = T`` of states F (b, d, d + m) and D (b, d) for theta (b, m, d)."""
    b, m, d = theta.shape
    if F.shape != (b, d, d + m) or D.shape != (b, d):
        raise ValueError("the shapes of factors, pivots and coefficients do not fit together")
    for i in range(b):
        solve(F[i], D[i], theta[i])


@kernel(strict=True)
def variances_each(F, D, columns, tally, limits, variance):
    """Compute the diagonals (b, d) of M^-1 of states whose pivots are positive; inf where held."""
    b, d = D.shape
    if (
        F.shape[:2] != (b, d)
        or F.shape[2] < d
        or columns.shape != (b, 2, d)
        or tally.shape != (b, 4)
        or variance.shape != (b, d)
    ):
        raise ValueError("the shapes of factors, counters and variances do not fit together")
    inverse = np.empty((d, d))
    for i in range(b):
        variances(F[i], D[i], inverse, variance[i])
        path.hide_held(variance[i], columns[i], limits, tally[i])


def factor_of(R: NDArray, z: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return F (..., d, d + m), ``F_j = [R_j z_j] / R_jj``, and D of R and z (..., m, d)."""
    d, m = R.shape[-1], z.shape[-2]
    pivots = np.diagonal(R, axis1=-2, axis2=-1).astype(np.float64)
    F = np.empty((*pivots.shape, d + m))
    F[..., :d], F[..., d:] = R, np.swapaxes(z, -1, -2)
    F /= np.where(pivots != 0, pivots, 1.0)[..., None]  # in place: large models have no room
    F[pivots == 0] = 0.0
    F[..., range(d), range(d)] = 1.0
    return F, pivots**2


def as_root(form: Any) -> Any:
    """Convert a factor to square-root form; return other forms as they are."""
    return form.root() if isinstance(form, FactorForm) else form


def as_factor(form: Any) -> Any:
    """Convert a state in square-root form to a factor; others are returned."""
    return FactorForm.of_root(form) if type(form) is SquareRootForm else form


@dataclass(eq=False)
class FactorForm(Form):
    """F = [U T] (d, d + m) with U unit upper triangular, and D (d,): see :mod:`.kernels`.

    ``U^T D U = H_t + Lambda_t`` and ``U theta = T``.  Coefficient 0 is the intercept where
    ``intercept`` is set.  A pivot D_j of 0 means that nothing is known of coefficient j given the
    ones before it.
    """

    F: NDArray[np.float64]
    D: NDArray[np.float64]
    columns: NDArray[np.float64]
    tally: NDArray[np.float64]
    loss: NDArray[np.float64]
    held: NDArray[np.int64]
    spread: NDArray[np.float64]
    _: KW_ONLY
    intercept: bool
    precision: str = DOUBLE

    name: ClassVar[str] = "factor"
    FIELDS: ClassVar[schema.Fields] = schema.FACTOR

    def __post_init__(self) -> None:
        self.limits = limits_for(self.precision)

    @classmethod
    def start(
        cls,
        ridge: NDArray,
        n_targets: int,
        intercept: bool,
        precision: str = DOUBLE,
        sandwich: bool = False,
    ) -> FactorForm:
        d = ridge.shape[0]
        return cls(
            np.eye(d, d + n_targets),
            ridge.astype(np.float64),
            *counters(ridge, n_targets, sandwich),
            intercept=intercept,
            precision=precision,
        )

    @classmethod
    def of_root(cls, form: SquareRootForm) -> FactorForm:
        """Convert from the triangular factor R and z."""
        F, D = factor_of(form.R, form.z)
        return cls(F, D, **form.shared)

    def root(self) -> SquareRootForm:
        """Convert to the triangular factor ``R = D^1/2 U`` and ``z = (D^1/2 T)^T``."""
        d = self.D.shape[-1]
        root = np.sqrt(self.D)[..., None]
        z = np.ascontiguousarray(np.swapaxes(root * self.F[..., d:], -1, -2))
        return SquareRootForm(root * self.F[..., :d], z, **self.shared)

    def keep_targets(self, targets: NDArray[np.int64]) -> None:
        super().keep_targets(targets)
        d = self.D.shape[0]
        self.F = np.hstack([self.F[:, :d], self.F[:, d + targets]])

    # -- learning ---------------------------------------------------------------------------------

    @property
    def in_kernels(self) -> tuple[NDArray, ...]:
        return self.F, self.D, self.columns, self.tally, self.loss

    def update(self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace) -> int:
        """Absorb rows start..stop; write their a-priori residuals and the trace."""
        if not trace.wanted:
            return self._update(rows, start, stop, residual)
        t, arrays = start, tuple(trace)
        while t < stop:
            t = path.learn_path(
                self.in_kernels,
                self.spread_in_kernels,
                tuple(rows),
                (t, stop),
                self.limits.square_root,
                residual,
                arrays,
            )
            if t < stop:
                t = snapshots.take(self, rows, t, stop, residual, trace)
        return stop

    def _update(self, rows: Rows, start: int, stop: int, residual: NDArray) -> int:
        t, arrays, state, limits = start, tuple(rows), self.in_kernels, self.limits.square_root
        spread = self.spread_in_kernels
        while t < stop:
            t = learning.learn(state, spread, arrays, (t, stop), limits, residual)
            if t == stop:
                break
            t, held, done = careful.learn_carefully(
                state, spread, arrays, (t, stop), limits, self.intercept, residual
            )
            if held:  # adding 0 to an array takes as long as a row
                self.held += held
            if not done:
                self._take_new_direction(rows, t, residual)
                t += 1
        return stop

    def _take_new_direction(self, rows: Rows, t: int, residual: NDArray) -> None:
        """Absorb a row whose error needs coefficients of minimum norm of columns of many sizes."""
        residual[t] = rows.Y[t] - self.coefficients() @ rows.X[t]
        row = tuple(a[t : t + 1] for a in rows)
        _, held = careful.take_known(
            self.in_kernels,
            self.spread_in_kernels,
            row,
            self.limits.square_root,
            self.intercept,
            residual[t : t + 1],
        )
        self.held += held

    # -- reading ----------------------------------------------------------------------------------

    @property
    def _known(self) -> NDArray[np.bool_]:
        """Mask (d,) of the pivots that are not zero."""
        return (self.D if self.D.ndim == 1 else self.D[0]) > 0

    @property
    def full_rank(self) -> bool:
        return bool(self._known.all())

    @property
    def rank(self) -> int:
        return int(np.count_nonzero(self._known))

    def coefficients(self) -> NDArray[np.float64]:
        if not self.full_rank:
            return self.root().coefficients()
        m, d = self.loss.shape[-1], self.D.shape[-1]
        theta = np.empty((*self.D.shape[:-1], m, d))
        solve_each(
            np.ascontiguousarray(self.F).reshape(-1, d, d + m),
            np.ascontiguousarray(self.D).reshape(-1, d),
            theta.reshape(-1, m, d),
        )
        return theta

    def determined(self) -> NDArray[np.bool_]:
        return np.isfinite(self.inverse_diagonal())

    def inverse_diagonal(self) -> NDArray[np.float64]:
        d = self.D.shape[-1]
        if d >= BY_LAPACK_FROM or not self.full_rank:
            return self.root().inverse_diagonal()
        variance = np.empty(self.D.shape)
        variances_each(
            np.ascontiguousarray(self.F).reshape(-1, d, self.F.shape[-1]),
            np.ascontiguousarray(self.D).reshape(-1, d),
            np.ascontiguousarray(self.columns).reshape(-1, 2, d),
            np.ascontiguousarray(self.tally).reshape(-1, 4),
            self.limits.square_root,
            variance.reshape(-1, d),
        )
        return variance

    def sandwich(self) -> tuple[NDArray[np.float64], Any]:
        return self.root().sandwich()

    def rounding_of_squares(self) -> float:
        return float(noise_levels(self.limits.square_root, self.D.shape[-1], self.tally)) ** 2

    def explained(self) -> NDArray[np.float64]:
        return self.root().explained()

    def whitened(self, X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        return self.root().whitened(X)

    def unwhitened(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.root().unwhitened(W)

    def is_held(self, X: NDArray[np.float64], leverage: NDArray[np.float64]) -> NDArray[np.bool_]:
        return self.root().is_held(X, leverage)

    def moments(self, ridge: NDArray, discounted: bool) -> Moments:
        return self.root().moments(ridge, discounted)
