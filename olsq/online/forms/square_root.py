"""The square-root form: the triangular factor of the information matrix (QRD-RLS).

Of the two square-root families this is the one on the information side.  It starts from nothing
exactly (R = 0 is the diffuse start), shrinks under wind-up where a covariance factor grows, merges
by stacking, and never squares the condition number.  Every other form falls back on it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms import schema, singular_path, start_kernels
from olsq.online.forms import square_root_blocks as blocks
from olsq.online.forms import square_root_kernels as kernels
from olsq.online.forms.form import Form, copied
from olsq.online.forms.held_kernels import hide_held
from olsq.online.forms.lapack import solve_transposed, solve_triangle
from olsq.online.forms.limits import DOUBLE, limits_for
from olsq.online.forms.minimum_norm import inverse_root, row_space, sandwich_of, solution, variances
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.square_root_kernels import DECAY, noise_level
from olsq.problem import Moments


@dataclass(eq=False)
class SquareRootForm(Form):
    """R (d, d) upper triangular with ``R^T R = H_t + Lambda_t``; z (m, d) with ``R theta = z``.

    Coefficient 0 is the intercept where ``intercept`` is set.  ``columns`` (2, d), ``tally``
    (4,), ``loss`` (m,) and ``spread`` (d, d) or (0, 0) are described with the kernels; ``held``
    counts the times that wind-up protection held a coefficient.  ``basis`` (see
    ``start_kernels.py``) is there while coefficients are undetermined and every row since the start
    was one that it can follow, else None.
    """

    R: NDArray
    z: NDArray
    columns: NDArray[np.float64]
    tally: NDArray[np.float64]
    loss: NDArray[np.float64]
    held: NDArray[np.int64]
    spread: NDArray
    _: KW_ONLY
    intercept: bool
    precision: str = DOUBLE
    basis: NDArray[np.float64] | None = None

    TAKES_BASIS: ClassVar[bool] = True
    name: ClassVar[str] = "sqrt"
    FIELDS: ClassVar[schema.Fields] = schema.SQUARE_ROOT

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
    ) -> SquareRootForm:
        return cls(
            np.diag(np.sqrt(ridge)),
            np.zeros((n_targets, ridge.shape[0])),
            *counters(ridge, n_targets, sandwich),
            intercept=intercept,
            precision=precision,
        )

    # -- learning ---------------------------------------------------------------------------------

    @property
    def in_kernels(self) -> tuple[NDArray, ...]:
        return self.R, self.z, self.columns, self.tally, self.loss

    def update(self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace) -> int:
        """Absorb rows start..stop; write their a-priori residuals and the trace.

        Large models take them in blocks.  One row at a time go: rows on a path, which asks for
        every state; resets, strong forgetting and rows of weight 0; and all rows while the factor
        is singular or close to it.
        """
        if self.R.shape[0] < blocks.BLOCKED_FROM or trace.wanted:
            return self._update_by_rows(rows, start, stop, residual, trace)
        t, most = start, blocks.BLOCK if self.R.shape[0] < blocks.LARGE else 2 * blocks.BLOCK
        while t < stop:
            end = blocks.end_of_block(
                rows.gates, rows.weights, t, stop, most, blocks.SMALLEST_GATE, blocks.WEIGHT_RANGE
            )
            if end - t < blocks.FEWEST:
                end = min(max(end + 1, t + blocks.FEWEST), stop)
                self._update_by_rows(rows, t, end, residual, trace)
            elif not self._absorb_block(rows, t, end, residual):
                self._update_by_rows(rows, t, end, residual, trace)
            t = end
        return stop

    def _absorb_block(self, rows: Rows, start: int, stop: int, residual: NDArray) -> bool:
        """Absorb rows start..stop as one block; False where they have to go one at a time."""
        block = Rows(*(a[start:stop] for a in rows))
        done = blocks.absorb_block(
            self.R,
            self.z,
            self.columns,
            self.tally,
            self.loss,
            block,
            self.limits.square_root,
            residual[start:stop],
            self.R,
        )
        if done:
            blocks.absorb_squares_of_block(self.spread, block)
        return done

    def _update_by_rows(
        self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace
    ) -> int:
        """Run :meth:`update`, one row at a time."""
        t, theta, theta_at = start, None, start
        while t < stop:
            t, held = kernels.update(
                self.in_kernels,
                self.spread_in_kernels,
                tuple(rows),
                (t, stop),
                self.limits.square_root,
                residual,
                trace.arrays,
            )
            if held:  # adding 0 to an array takes as long as a row
                self.held += held
            if t == stop:
                break
            first = t
            t = self._update_undetermined(rows, t, stop, residual, trace)
            if t > first:
                continue
            if trace.wanted and stop - t > 1 and not self.full_rank:
                # Coefficients that this row's trace asks for are the next one's to predict with.
                if theta is None or theta_at != t:
                    theta = self.coefficients()
                t, theta = singular_path.take(self, rows, t, stop, residual, trace, theta)
                theta_at = t
            else:
                self._take_alone(rows, t, residual, trace)
                t += 1
        return stop

    def _update_undetermined(
        self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace
    ) -> int:
        """Run :meth:`update` while coefficients are undetermined; return the first row left."""
        if not self.TAKES_BASIS:
            return start
        if self.basis is None and not self.R.any():
            slopes = self.R.shape[0] - int(self.intercept)
            self.basis = np.zeros((slopes, slopes))
        t = start
        while t < stop and self.basis is not None:
            t, done, held = start_kernels.update(
                (self.in_kernels, self.spread_in_kernels),
                self.basis,
                tuple(rows),
                (t, stop),
                self.limits.square_root,
                self.intercept,
                residual,
                trace.arrays,
            )
            self.held += held
            if done in (start_kernels.LEFT, start_kernels.LAST) or self.full_rank:
                self.basis = None
            if trace.wanted and done in (start_kernels.LAST, start_kernels.UNTRACED):
                trace.write(t - 1, self)
        return t

    def _take_alone(self, rows: Rows, t: int, residual: NDArray, trace: Trace) -> None:
        """Absorb one row that is a reset, a new direction, or on a path while undetermined."""
        before = self.coefficients()[None]
        errors = rows.Y[t] - singular_path.predict(before, rows.X[t : t + 1])[0]
        whole = copied(self) if len(rows.X) == 1 else self  # a call of several works on a copy
        share = whole.take_alone(rows, t)
        attributes, learned = vars(self), vars(whole)
        residual[t] = errors  # and at once, so that an interrupt finds both or neither
        attributes.update(learned)
        if trace.wanted:
            trace.write(t, self)
            trace.recursive[t] = residual[t] * np.sqrt(share)

    def take_alone(self, rows: Rows, t: int) -> float:
        """Absorb row t; return the squared ratio of its recursive residual to its a-priori one."""
        share, held = kernels.take_alone(
            self.in_kernels,
            self.spread_in_kernels,
            *(a[t] for a in rows),
            self.limits.square_root,
        )
        self.held += held
        return share

    def absorb_observations(
        self, X: NDArray, Y: NDArray, errors: NDArray, largest: NDArray, faintest: float
    ) -> None:
        """Absorb rows X (n, d), Y (n, m) of another factor; see the kernel for the others."""
        kernels.absorb_observations(
            self.in_kernels,
            *(np.ascontiguousarray(a) for a in (X, Y, errors)),
            largest.astype(np.float64),
            faintest,
            self.limits.square_root,
        )

    # -- reading ----------------------------------------------------------------------------------

    @property
    def _pivots(self) -> NDArray[np.bool_]:
        """Mask (d,) of the pivots that are not zero."""
        R = self.R if self.R.ndim == 2 else self.R[0]
        return np.diagonal(R) != 0

    @property
    def full_rank(self) -> bool:
        return bool(np.all(self._pivots))

    @property
    def rank(self) -> int:
        return int(np.count_nonzero(self._pivots))

    def coefficients(self) -> NDArray:
        """Return theta (..., m, d) in float64, of minimum norm (intercept aside) where
        undetermined.
        """
        R, z = self.R, self.z
        if self.full_rank:
            return solve_triangle(R, z)
        theta = np.empty(z.shape)
        if self.basis is not None and start_kernels.read_coefficients(
            R, z, self.columns, self.basis, self.intercept, theta
        ):
            return theta
        return solution(R, z, self._pivots, self._noise, self.intercept)

    def determined(self) -> NDArray[np.bool_]:
        """Mask (..., d) of the coefficients that the data (and the ridge) determine uniquely.

        A coefficient that wind-up protection holds at its last value is not: its information is
        within a factor of ten of the level at which it is held.
        """
        return np.isfinite(self.inverse_diagonal())

    @property
    def _noise(self) -> Any:
        return noise_levels(self.limits.square_root, self.R.shape[-1], self.tally)

    def inverse_root(self) -> NDArray:
        """Compute B (..., d, rank) with ``B B^T`` the (pseudo-)inverse information."""
        return inverse_root(self.R, self._pivots)

    def _row_space(self) -> tuple[NDArray, NDArray, NDArray]:
        """Compute Q (..., d, rank) orthonormal, L and the columns' lengths with
        ``R_known = (Q L)^T length``.
        """
        return row_space(self.R, self._pivots)

    def inverse_diagonal(self) -> NDArray:
        R = self.R
        if self.basis is not None and start_kernels.determines_nothing(R, self.columns):
            return np.full(R.shape[0], np.inf)
        variance = np.ascontiguousarray(variances(R, self.inverse_root()))
        stack = variance[None], self.columns[None], self.tally[None]
        if R.ndim > 2:
            stack = variance, self.columns, self.tally
        hide_held(*stack, self.limits.square_root)
        return variance

    def sandwich(self) -> tuple[NDArray, Any]:
        diagonal, used = sandwich_of(self.spread, self.inverse_root())
        return np.where(self.determined(), diagonal, np.inf), used

    def rounding_of_squares(self) -> float:
        return float(noise_levels(self.limits.square_root, self.columns.shape[-1], self.tally)) ** 2

    def explained(self) -> NDArray:
        # Column 0 of R is the intercept's: what it explains alone is the first entry of z.
        return (self.z[..., int(self.intercept) :] ** 2).sum(-1)

    def whitened(self, X: NDArray) -> tuple[NDArray, NDArray[np.bool_]]:
        if self.full_rank:
            R = self.R
            return solve_transposed(R, X), np.ones(X.shape[:-1], np.bool_)
        Q, L, length = self._row_space()
        scaled = X / length[..., None, :]
        inside = scaled @ Q
        outside = np.linalg.norm(scaled - inside @ np.swapaxes(Q, -1, -2), axis=-1)
        tolerance = np.maximum(1e-6, 64 * self._noise)[..., None]
        known = outside <= tolerance * np.linalg.norm(scaled, axis=-1)
        never_seen = (self.R == 0).all(axis=-2, keepdims=True)  # not a question of size
        return solve_triangle(L, inside), known & ~(never_seen & (X != 0)).any(axis=-1)

    def unwhitened(self, W: NDArray) -> NDArray:
        if self.full_rank:
            return solve_triangle(self.R, W)
        Q, L, length = self._row_space()
        return solve_transposed(L, W) @ np.swapaxes(Q, -1, -2) / length[..., None, :]

    def is_held(self, X: NDArray, leverage: NDArray) -> NDArray[np.bool_]:
        """Mask the rows held by wind-up protection, as :func:`kernels.is_held` does for x = e_j."""
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


def noise_levels(
    limits: tuple[float, float, float], d: int, tally: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute :func:`square_root_kernels.noise_level` of tallies (..., 4)."""
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
