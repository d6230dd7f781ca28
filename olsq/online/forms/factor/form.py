"""The state of one stream, or the readings of a stack of them, as one factor."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.forms import schema
from olsq.online.forms.counting import DECAY, noise_level
from olsq.online.forms.factor import members, stack
from olsq.online.forms.factor.counters import hide_held
from olsq.online.forms.factor.solving import solve, variances
from olsq.online.forms.form import Form
from olsq.online.forms.lapack import solve_transposed, solve_triangle
from olsq.online.forms.limits import DOUBLE, limits_for
from olsq.online.forms.minimum_norm import inverse_root, row_space, sandwich_of, solution
from olsq.online.forms.minimum_norm import variances as variances_of
from olsq.online.forms.rows import Rows, Trace
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
        hide_held(variance[i], columns[i], limits, tally[i])


@kernel(strict=True)
def hide_held_each(variance, columns, limits, tally):
    """Set variances (b, d) of coefficients that wind-up protection holds to infinity."""
    b, d = variance.shape
    if columns.shape != (b, 2, d) or tally.shape != (b, 4):
        raise ValueError("the shapes of counters and variances do not fit together")
    for i in range(b):
        hide_held(variance[i], columns[i], limits, tally[i])


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


def noise_levels(
    limits: tuple[float, float, float], d: int, tally: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute :func:`counting.noise_level` of tallies (..., 4)."""
    formula = getattr(noise_level, "py_func", noise_level)  # itself where Numba is switched off
    return formula(limits, d, tally.T)


def counters(diagonal: NDArray, n_targets: int, sandwich: bool = False) -> tuple[NDArray, ...]:
    """Return ``columns``, ``tally``, ``loss``, ``held`` and ``spread`` before any row, for an
    information matrix with this diagonal (d,).
    """
    d = diagonal.size if sandwich else 0
    return (
        np.array([diagonal, diagonal], np.float64),
        np.array([0.0, 0.0, 1.0, 0.0]),
        np.zeros(n_targets),
        np.zeros(1, np.int64),
        np.zeros((d, d)),
    )


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

    @property
    def R(self) -> NDArray[np.float64]:
        """The triangular factor ``D^1/2 U`` (..., d, d) of the information, made afresh."""
        return np.sqrt(self.D)[..., None] * self.F[..., : self.D.shape[-1]]

    @property
    def z(self) -> NDArray[np.float64]:
        """The rotated targets ``(D^1/2 T)^T`` (..., m, d), made afresh: ``R theta = z``."""
        z = np.sqrt(self.D)[..., None] * self.F[..., self.D.shape[-1] :]
        return np.ascontiguousarray(np.swapaxes(z, -1, -2))

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
        turns = stack.alone(start, stop)
        if trace.wanted:
            stack.learn_path(self._alone, turns, rows, residual, trace)
        else:
            stack.learn(self._alone, turns, rows, residual)
        return stop

    def take_undetermined(self, rows: Rows, t: int, residual: NDArray) -> float:
        """Absorb row t while coefficients are undetermined, and write its a-priori residual; return
        its share in the recursive residual.
        """
        shares = stack.take_carefully(self._alone, stack.alone(t, t + 1), rows, residual)
        return shares.item()

    def take_known(self, rows: Rows, t: int, residual: NDArray) -> None:
        """Absorb row t, whose a-priori residual is written already."""
        how = self.limits.square_root, self.intercept, residual
        members.take_known(self._alone.arrays, stack.alone(t, t + 1), tuple(rows), *how)

    @property
    def _alone(self) -> stack.Stack:
        """The state as a stack of one."""
        F, D, columns, tally, loss = self.in_kernels
        views = F[None], D[None], columns[None], tally[None], loss[None]
        seen = np.zeros(1, np.int64)  # samples, which an estimator counts by itself
        return stack.Stack(
            (*views, self.held, seen, self.spread_in_kernels),
            self.limits.square_root,
            self.intercept,
            lambda _: self.coefficients()[None],
            lambda: self,
        )

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

    @property
    def _noise(self) -> Any:
        return noise_levels(self.limits.square_root, self.D.shape[-1], self.tally)

    def coefficients(self) -> NDArray[np.float64]:
        """Return theta (..., m, d), of minimum norm (intercept aside) where undetermined."""
        if not self.full_rank:
            return solution(self.R, self.z, self._known, self._noise, self.intercept)
        m, d, b = self.loss.shape[-1], self.D.shape[-1], math.prod(self.D.shape[:-1])
        theta = np.empty((*self.D.shape[:-1], m, d))
        solve_each(
            np.ascontiguousarray(self.F).reshape(b, d, d + m),
            np.ascontiguousarray(self.D).reshape(b, d),
            theta.reshape(b, m, d),
        )
        return theta

    def determined(self) -> NDArray[np.bool_]:
        """Mask (..., d) of the coefficients that the data (and the ridge) determine uniquely.

        A coefficient that wind-up protection holds at its last value is not: its information is
        within a factor of ten of the level at which it is held.
        """
        return np.isfinite(self.inverse_diagonal())

    def inverse_root(self) -> NDArray[np.float64]:
        """Compute B (..., d, rank) with ``B B^T`` the (pseudo-)inverse information."""
        return inverse_root(self.R, self._known)

    def inverse_diagonal(self) -> NDArray[np.float64]:
        d = self.D.shape[-1]
        columns = np.ascontiguousarray(self.columns).reshape(-1, 2, d)
        tally = np.ascontiguousarray(self.tally).reshape(-1, 4)
        limits = self.limits.square_root
        if d >= BY_LAPACK_FROM or not self.full_rank:
            R = self.R
            variance = np.ascontiguousarray(variances_of(R, inverse_root(R, self._known)))
            hide_held_each(variance.reshape(-1, d), columns, limits, tally)
            return variance
        variance = np.empty(self.D.shape)
        F = np.ascontiguousarray(self.F).reshape(-1, d, self.F.shape[-1])
        D = np.ascontiguousarray(self.D).reshape(-1, d)
        variances_each(F, D, columns, tally, limits, variance.reshape(-1, d))
        return variance

    def sandwich(self) -> tuple[NDArray[np.float64], Any]:
        diagonal, used = sandwich_of(self.spread, self.inverse_root())
        return np.where(self.determined(), diagonal, np.inf), used

    def rounding_of_squares(self) -> float:
        return float(self._noise) ** 2

    def explained(self) -> NDArray[np.float64]:
        # Column 0 of R is the intercept's: what it explains alone is the first entry of z.
        return (self.z[..., int(self.intercept) :] ** 2).sum(-1)

    def whitened(self, X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        R = self.R
        if self.full_rank:
            return solve_transposed(R, X), np.ones(X.shape[:-1], np.bool_)
        Q, L, length = row_space(R, self._known)
        scaled = X / length[..., None, :]
        inside = scaled @ Q
        outside = np.linalg.norm(scaled - inside @ np.swapaxes(Q, -1, -2), axis=-1)
        tolerance = np.maximum(1e-6, 64 * self._noise)[..., None]
        known = outside <= tolerance * np.linalg.norm(scaled, axis=-1)
        never_seen = (R == 0).all(axis=-2, keepdims=True)  # not a question of size
        return solve_triangle(L, inside), known & ~(never_seen & (X != 0)).any(axis=-1)

    def unwhitened(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.full_rank:
            return solve_triangle(self.R, W)
        Q, L, length = row_space(self.R, self._known)
        return solve_transposed(L, W) @ np.swapaxes(Q, -1, -2) / length[..., None, :]

    def is_held(self, X: NDArray[np.float64], leverage: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Mask the rows held by wind-up protection, as ``hide_held`` does for x = e_j."""
        forgets = self.tally[..., DECAY, None] < 1
        if not forgets.any():
            return super().is_held(X, leverage)
        now, excited = self.columns[..., :1, :], self.columns[..., 1:, :]
        pin = 40 * self._noise[..., None]
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            alone = np.where(X != 0, (X / np.sqrt(now)) ** 2, 0.0)
        faint = ((X != 0) & (now < 100 * self.limits.floor * excited)).any(axis=-1)
        return forgets & (faint | ~(leverage * pin * pin <= alone.sum(-1)))

    def moments(self, ridge: NDArray, discounted: bool) -> Moments:
        R, z = self.R, self.z
        return Moments(R.T @ R, z @ R)
