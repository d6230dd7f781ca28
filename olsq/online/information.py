"""The information form: the moments themselves, factorised when somebody asks.

Updating is one rank-one addition, or one matrix product for many rows; it is the form that serves
``ridge_mode="fixed"`` with forgetting, since the ridge is added only at the solve.  It squares the
condition number: regressors worse than about 1e7 lose all digits here, and the minimum-norm
solution takes over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.online import _moment_kernels as kernels
from olsq.online._square_root_kernels import DECAY, inverse_diagonal
from olsq.online.limits import limits_for
from olsq.online.rows import Rows, Trace

_BLOCK = 512  # rows per matrix product


class InformationForm:
    """H (d, d) and G (m, d) of the data alone (float64), the ridge (d,) and its mode.

    ``squares`` (m,) is the forgotten sum of ``beta y^2``; ``columns``, ``tally``, ``held`` as in
    the other forms.  ``solving`` says whether updates report a-priori residuals.
    """

    name = "information"
    ARRAYS = ("H", "G", "squares", "columns", "tally", "held", "ridge")

    def __init__(
        self,
        H: NDArray,
        G: NDArray,
        squares: NDArray,
        columns: NDArray,
        tally: NDArray,
        held: NDArray,
        ridge: NDArray,
        *,
        intercept: bool,
        discounted: bool,
        solving: bool,
    ) -> None:
        self.H, self.G, self.squares, self.ridge = H, G, squares, ridge
        self.columns, self.tally, self.held = columns, tally, held
        self.intercept, self.discounted = intercept, discounted
        self.solving = solving
        self.floor = limits_for(np.float64, ridge.shape[0]).floor

    @classmethod
    def start(
        cls, ridge: NDArray, n_targets: int, *, intercept: bool, discounted: bool, solving: bool
    ) -> InformationForm:
        d = ridge.shape[0]
        return cls(
            np.zeros((d, d)), np.zeros((n_targets, d)), np.zeros(n_targets), np.zeros((2, d)),
            np.array([0.0, 0.0, 1.0]), np.zeros(1, np.int64), ridge,
            intercept=intercept, discounted=discounted, solving=solving,
        )  # fmt: skip

    def accumulate(self, rows: Rows) -> None:
        """Absorb rows by matrix products, with no solve and no residuals."""
        for start in range(0, rows.X.shape[0], _BLOCK):
            X, Y, gates, weights = (a[start : start + _BLOCK] for a in rows)
            effective = np.empty_like(gates)
            kernels.gates_and_counts(
                self.columns, self.tally, X, gates, weights, self.floor, effective
            )
            after = np.ones_like(effective)  # product of the gates after each row
            after[:-1] = np.cumprod(effective[:0:-1])[::-1]
            decay = after[0] * effective[0]
            root = np.sqrt(weights * after)[:, None]
            scaled_X, scaled_Y = root * X, root * Y
            self.H *= decay
            self.H += scaled_X.T @ scaled_X
            self.G *= decay
            self.G += scaled_Y.T @ scaled_X
            self.squares *= decay
            self.squares += (scaled_Y**2).sum(0)

    def update(self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace) -> int:
        """Absorb rows start..stop with a solve, a residual and a trace entry for each.

        Without ``solving`` and a trace it is :meth:`accumulate`, and residuals are NaN.
        """
        if not (self.solving or trace.wanted):
            self.accumulate(Rows(*(a[start:stop] for a in rows)))
            residual[start:stop] = np.nan
            return stop
        theta = self.coefficients()
        t = start
        while t < stop:
            t, solved = kernels.update_solving(
                self.H, self.G, self.squares, self.columns, self.tally, theta, self.ridge,
                self.discounted, *rows, t, stop, self.floor, residual, trace.arrays,
            )  # fmt: skip
            if not solved:
                theta = self.coefficients()
                if trace.wanted:
                    trace.coef[t - 1] = theta
                    trace.variance[t - 1] = self.inverse_diagonal()
                    trace.loss[t - 1] = self.loss
                    trace.counts[t - 1] = (*self.tally, self.rank)
        return stop

    # -- reading ----------------------------------------------------------------------------------

    @property
    def _decay(self) -> float:
        return float(self.tally[DECAY]) if self.discounted else 1.0

    def _factor(self) -> NDArray | None:
        R = np.empty_like(self.H)
        return R if kernels.factorise(self.H, self.ridge, self._decay, R) else None

    def _spectrum(self) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Eigenvalues, -vectors, column scale and kept mask of the scaled, centred system."""
        A = self.H + self._decay * np.diag(self.ridge)
        if self.intercept and A[0, 0] > 0:
            A = A[1:, 1:] - np.outer(A[1:, 0], A[0, 1:]) / A[0, 0]
        scale = np.sqrt(np.maximum(np.diagonal(A), 0.0))
        # What centring leaves of a constant column is rounding error.
        whole = np.diagonal(self.H)[-scale.size :] + self._decay * self.ridge[-scale.size :]
        scale[scale**2 <= 64 * scale.size * np.finfo(np.float64).eps * whole] = 0.0
        safe = np.where(scale > 0, scale, 1.0)
        values, vectors = np.linalg.eigh(
            np.where(np.outer(scale, scale) > 0, A / np.outer(safe, safe), 0.0)
        )
        kept = values > 32 * A.shape[0] * np.finfo(np.float64).eps * max(values.max(initial=0), 0)
        return values, vectors, safe, kept

    def coefficients(self) -> NDArray:
        """theta (m, d); of minimum norm (intercept aside) where the system is singular."""
        theta = np.zeros_like(self.G)
        R = self._factor()
        if R is not None:
            kernels.solve(R, self.G, theta)
            return theta
        centred = self.intercept and self.H[0, 0] > 0
        first = 1 if centred else 0
        G = self.G[:, first:]
        if centred:
            G = G - np.outer(self.G[:, 0], self.H[0, 1:]) / self.H[0, 0]
        _, vectors, scale, kept = self._spectrum()
        # The row space in the data's own units, so that the norm minimised is the plain one.
        basis, _ = np.linalg.qr(scale[:, None] * vectors[:, kept])
        A = self.H + self._decay * np.diag(self.ridge)
        if centred:
            A = A[1:, 1:] - np.outer(A[1:, 0], A[0, 1:]) / A[0, 0]
        if basis.shape[1]:
            theta[:, first:] = (basis @ np.linalg.solve(basis.T @ A @ basis, basis.T @ G.T)).T
        if centred:
            theta[:, 0] = (self.G[:, 0] - theta[:, 1:] @ self.H[0, 1:]) / self.H[0, 0]
        return theta

    @property
    def loss(self) -> NDArray:
        """The minimised objective (m,), without its 1/2."""
        return np.maximum(self.squares - (self.coefficients() * self.G).sum(1), 0.0)

    @property
    def full_rank(self) -> bool:
        return self._factor() is not None

    @property
    def rank(self) -> int:
        if self.full_rank:
            return self.H.shape[0]
        _, _, scale, kept = self._spectrum()
        return int(kept.sum()) + (self.H.shape[0] - scale.size)

    def inverse_diagonal(self) -> NDArray:
        """Diagonal of the inverse information (d,); inf where a coefficient is undetermined."""
        d = self.H.shape[0]
        out = np.empty(d)
        R = self._factor()
        if R is not None:
            inverse_diagonal(R, np.empty_like(R), out)
            return out
        values, vectors, scale, kept = self._spectrum()
        first = d - scale.size
        inverse = (vectors[:, kept] ** 2 / values[kept]).sum(1) / scale**2
        estimable = np.abs((vectors[:, kept] ** 2).sum(1) - 1.0) < 1e-6
        out[first:] = np.where(estimable, inverse, np.inf)
        if first:
            # The intercept is determined only if the mean is: b = y_mean - x_mean . beta.
            mean = self.H[0, 1:] / self.H[0, 0] / scale
            inside = vectors[:, kept] @ (vectors[:, kept].T @ mean)
            extra = ((vectors[:, kept].T @ mean) ** 2 / values[kept]).sum()
            known = np.abs(inside - mean).max(initial=0.0) < 1e-6 * max(np.abs(mean).max(initial=0), 1)
            out[0] = 1.0 / self.H[0, 0] + extra if known else np.inf
        return out

    def determined(self) -> NDArray[np.bool_]:
        """Which coefficients the data (and the ridge) determine uniquely (d,)."""
        return np.isfinite(self.inverse_diagonal())


def merge(first: InformationForm, second: InformationForm) -> InformationForm:
    """The form that saw first's rows and then second's: ``H = Z_b H_a + H_b``."""
    decay = second.tally[DECAY]
    tally = np.array([decay, decay**2, decay]) * first.tally
    tally[:2] += second.tally[:2]
    return InformationForm(
        decay * first.H + second.H, decay * first.G + second.G,
        decay * first.squares + second.squares, decay * first.columns + second.columns, tally,
        first.held + second.held, first.ridge, intercept=first.intercept,
        discounted=first.discounted, solving=first.solving,
    )  # fmt: skip
