"""The square-root form: the triangular factor of the information matrix (QRD-RLS).

Of the two square-root families this is the one on the information side.  It starts from nothing
exactly (R = 0 is the diffuse start), shrinks under wind-up where a covariance factor grows, merges
by stacking, and never squares the condition number.  Every other form falls back on it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from olsq.online import _square_root_kernels as kernels
from olsq.online import _triangular_kernels as triangular
from olsq.online._square_root_kernels import DECAY
from olsq.online.limits import limits_for
from olsq.online.rows import Rows, Trace, clip_to, forgotten


@dataclass(eq=False)
class SquareRootForm:
    """R (d, d) upper triangular with ``R^T R = H_t + Lambda_t``; z (m, d) with ``R theta = z``.

    Coefficient 0 is the intercept where ``intercept`` is set.  ``columns`` (2, d), ``tally``
    (3,) and ``loss`` (m,) are described with the kernels; ``held`` counts the times that wind-up
    protection held a coefficient.
    """

    R: NDArray
    z: NDArray
    columns: NDArray[np.float64]
    tally: NDArray[np.float64]
    loss: NDArray[np.float64]
    held: NDArray[np.int64]
    _: KW_ONLY
    intercept: bool

    name: ClassVar[str] = "sqrt"
    ARRAYS: ClassVar[tuple[str, ...]] = ("R", "z", "columns", "tally", "loss", "held")

    def __post_init__(self) -> None:
        self.limits = limits_for(self.R.dtype)

    @classmethod
    def start(
        cls, ridge: NDArray, n_targets: int, dtype: DTypeLike, intercept: bool
    ) -> SquareRootForm:
        return cls(
            np.diag(np.sqrt(ridge)).astype(dtype),
            np.zeros((n_targets, ridge.shape[0]), dtype),
            *counters(ridge, n_targets),
            intercept=intercept,
        )

    # -- learning ---------------------------------------------------------------------------------

    def update(self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace) -> int:
        """Absorb rows start..stop; write their a-priori residuals and the trace."""
        t = start
        while t < stop:
            t, held = kernels.update(
                self.R, self.z, self.columns, self.tally, self.loss, *rows, t, stop,
                self.limits.square_root, residual, trace.arrays,
            )  # fmt: skip
            self.held += held
            if t < stop:
                self._take_alone(rows, t, residual, trace)
                t += 1
        return stop

    def _take_alone(self, rows: Rows, t: int, residual: NDArray, trace: Trace) -> None:
        """Absorb one row that is a reset, a new direction, or traced while undetermined."""
        d, m = self.R.shape[0], self.z.shape[0]
        dtype = self.R.dtype
        x, target, gate, weight = (a[t] for a in rows)
        residual[t] = target - self.coefficients() @ x
        new, p, noise = self._project(x)
        recursive_scale = 0.0
        if gate > 0 and new < 0:
            recursive_scale = np.sqrt(weight * gate / (gate + weight * (p @ p)))
        if gate == 0:
            self.R[:], self.z[:], self.columns[:], self.loss[:], self.tally[:] = 0, 0, 0, 0, 0
            gate = 1.0
            _, _, noise = self._project(x)
        self.held += kernels.absorb(
            self.R, self.z, self.columns, self.tally, self.loss, x, target, gate, weight,
            self.limits.square_root, noise, np.empty(d, dtype), np.empty(m, dtype),
            np.empty((m, d), dtype),
        )  # fmt: skip
        if trace.wanted:
            trace.coef[t] = clip_to(self.coefficients(), trace.coef.dtype)
            trace.variance[t] = self.inverse_diagonal()
            trace.loss[t], trace.counts[t] = self.loss, (*self.tally, self.rank)
            trace.recursive[t] = residual[t] * recursive_scale

    def _project(self, x: NDArray) -> tuple[int, NDArray, NDArray]:
        """First new direction of x or -1, ``p = R^-T x``, and the noise level of each x_j."""
        p, noise = np.empty_like(x), np.abs(x).astype(np.float64)
        level = kernels.noise_level(self.limits.eps, x.size, self.tally)
        return triangular.forward_solve(self.R, x.copy(), p, self.columns, level, noise), p, noise

    def absorb_factor(self, R: NDArray, z: NDArray) -> None:
        """Absorb every row of another factor as if it were an observation."""
        known = np.diagonal(R) != 0
        X = np.ascontiguousarray(R[known], np.float64)
        Y = np.ascontiguousarray(z.T[known], np.float64)
        n, (m, d) = X.shape[0], self.z.shape
        rows = Rows(X, Y, np.ones(n), np.ones(n))
        self.update(rows, 0, n, np.empty((n, m)), Trace.none(m, d))

    def remove_observation(self, j: int, size: float) -> None:
        """Take the observation ``size * theta_j = 0`` out again."""
        d, m = self.R.shape[0], self.z.shape[0]
        row = np.zeros(d)
        row[j] = 1.0
        _, p, _ = self._project(size * row)
        remaining = 1.0 - p @ p
        if remaining < 64 * d * np.finfo(np.float64).eps:
            remaining = 0.0
        kernels.downdate(
            self.R, self.z, self.loss, p, np.empty(d), np.empty(m), np.zeros(m), size, remaining
        )
        self.columns[0] = (self.R**2).sum(0)

    # -- reading ----------------------------------------------------------------------------------

    @property
    def full_rank(self) -> bool:
        return bool(np.all(np.diagonal(self.R) != 0))

    @property
    def rank(self) -> int:
        return int(np.count_nonzero(np.diagonal(self.R)))

    def coefficients(self) -> NDArray:
        """theta (m, d) in float64; of minimum norm (intercept aside) where undetermined."""
        R, z = self.R.astype(np.float64), self.z.astype(np.float64)
        if self.full_rank:
            theta = np.empty_like(z)
            triangular.back_substitute(R, z, theta)
            return theta
        known = np.diagonal(R) != 0
        theta = np.zeros_like(z)
        first = 1 if self.intercept and known[0] else 0
        rows = np.flatnonzero(known[first:]) + first
        if rows.size:
            # R_known theta = z has full row rank: theta = Q (L^-1 z) with R_known^T = Q L^T.
            Q, L = np.linalg.qr(R[rows, first:].T)
            theta[:, first:] = z[:, rows] @ triangular_inverse(L)[0] @ Q.T
        if first:
            theta[:, 0] = (z[:, 0] - theta[:, 1:] @ R[0, 1:]) / R[0, 0]
        return theta

    def determined(self) -> NDArray[np.bool_]:
        """Which coefficients the data (and the ridge) determine uniquely (d,).

        A coefficient that wind-up protection holds at its last value is not: its information is
        within a factor of ten of the level at which it is held.
        """
        variance = self.inverse_diagonal()
        pin = 4 * kernels.noise_level(self.limits.eps, variance.size, self.tally)
        now, excited = self.columns
        known = np.isfinite(variance)
        inflation = np.where(known, variance, 0.0) * now
        held = (inflation * (10 * pin) ** 2 > 1) | (now < 100 * self.limits.floor * excited)
        return known & ~held

    def inverse_diagonal(self) -> NDArray:
        """Diagonal of the inverse information (d,); inf where a coefficient is undetermined."""
        R = self.R.astype(np.float64)
        if self.full_rank:
            return triangular_inverse(R)[1]
        # e_j is estimable iff it lies in the row space of R; columns to unit length first.
        length = np.linalg.norm(R, axis=0)
        length[length == 0] = 1.0
        Q, L = np.linalg.qr((R[np.diagonal(R) != 0] / length).T)
        estimable = np.abs((Q**2).sum(1) - 1.0) < 1e-8
        variance = ((Q @ triangular_inverse(L)[0].T) ** 2).sum(1) / length**2
        return np.where(estimable, variance, np.inf)


def counters(diagonal: NDArray, n_targets: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """``columns``, ``tally``, ``loss`` and ``held`` before any row, of an information matrix with
    this diagonal (d,)."""
    return (
        np.array([diagonal, diagonal], np.float64),
        np.array([0.0, 0.0, 1.0]),
        np.zeros(n_targets),
        np.zeros(1, np.int64),
    )


def triangular_inverse(R: NDArray) -> tuple[NDArray, NDArray]:
    """Inverse of an upper triangular R (float64) and the diagonal of ``(R^T R)^-1``."""
    R = np.ascontiguousarray(R)
    inverse, diagonal = np.zeros_like(R), np.empty(R.shape[0])
    triangular.inverse_diagonal(R, inverse, diagonal)
    return inverse, diagonal


def merge(first: SquareRootForm, second: SquareRootForm, ridge: NDArray) -> SquareRootForm:
    """The form that saw first's rows and then second's; the ridge must be counted once.

    ``H = Z_b H_a + (H_b - Z_b Lambda)`` with Z_b the product of second's gates: the rows of
    second's factor are absorbed like observations, then its copy of the ridge is taken out.
    """
    d, m = first.R.shape[0], first.z.shape[0]
    decay = second.tally[DECAY]
    root = np.sqrt(decay)
    form = SquareRootForm(
        root * first.R.astype(np.float64), root * first.z.astype(np.float64),
        decay * first.columns, first.tally.copy(), forgotten(first.loss, decay) + second.loss,
        first.held + second.held, intercept=first.intercept,
    )  # fmt: skip
    form.absorb_factor(second.R, second.z)
    before = form.columns[0].copy()
    for j in np.flatnonzero(decay * ridge):
        form.remove_observation(int(j), float(np.sqrt(decay * ridge[j])))
    noise = 64 * d * np.finfo(np.float64).eps * np.sqrt(before)
    if (np.abs(np.diagonal(form.R)) <= noise).any():  # leave pivots exactly 0 where nothing is left
        R, z = form.R, form.z
        form.R, form.z = np.zeros((d, d)), np.zeros((m, d))
        form.columns = np.zeros((2, d))
        form.absorb_factor(R, z)
    dtype = first.R.dtype
    form.R, form.z = form.R.astype(dtype), form.z.astype(dtype)
    form.loss = np.maximum(form.loss, 0.0)
    form.limits = first.limits
    form.columns[1] = form.columns[0]
    form.tally = np.array([decay, decay**2, decay]) * first.tally
    form.tally[:2] += second.tally[:2]
    return form
