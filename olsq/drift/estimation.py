"""Estimate the variances of drift by maximum likelihood; a coefficient may turn out constant."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from olsq.drift.kernels import Array, Rows
from olsq.drift.likelihood import Likelihood, evaluate, score

# Of a drift a row, for regressors of mean square 1.  What n rows can tell from 0 is of the size
# 1 / n^2 (Nyblom 1989), so that the least is a thousandth of it; the most leaves the noise six
# digits.
LEAST, MOST = 1e-3, 1e6
GRID = 9  # starting values, of all coefficients alike
GAIN = 1e-6  # in the log likelihood, for which a constant coefficient drifts after all
ROUNDING = 1e-7  # of the log likelihood of 1e5 rows, generously


def most_likely_drift(rows: Rows, drift: Array, noise: float | None) -> Array:
    """Return ``drift`` (k,) with its NaN entries at their maximum-likelihood values."""
    free = np.isnan(drift)
    if not free.any():
        return drift
    usable = np.isfinite(rows.noise)
    scale = np.sqrt(np.mean(rows.X[usable] ** 2, axis=0))
    pace = rows.steps.sum() / max(len(rows.steps) - 1, 1)
    units = scale**2 * pace
    unit_rows = rows._replace(X=rows.X / scale, steps=rows.steps / pace)
    best = _Search(unit_rows, noise, free, int(usable.sum())).run(np.where(free, 0, drift) * units)
    return np.where(free, best / units, drift)


class _Search:
    """Maximisation over the logarithms of the free drifts, with those that end at 0 taken out."""

    def __init__(self, rows: Rows, noise: float | None, free: NDArray[np.bool_], n: int) -> None:
        self.rows, self.noise, self.free = rows, noise, free
        self.least = LEAST / n**2
        self.grid = np.geomspace(1e3 * self.least, 10.0, GRID)

    def run(self, drift: Array) -> Array:
        """Return the drift (k,) of the largest likelihood, from a start with the free ones at 0."""
        drift, gain = self._best_of_grid(drift, self.free)
        moving = self.free & (drift > 0)
        for _ in range(3 * len(drift)):
            drift = self._climb(drift, moving)
            drift = self._stop_at_zero(drift, moving)
            moving &= drift > 0
            # A drift of 0 is a maximum where the likelihood falls from there on.
            rising = self.free & ~moving & (score(self.rows, self._at(drift)) > 0)
            for j in np.flatnonzero(rising):
                drift, gain = self._best_of_grid(drift, np.arange(len(drift)) == j)
                if gain > GAIN:
                    moving[j] = True
                    break
            else:
                return drift
        return drift

    def _at(self, drift: Array) -> Likelihood:
        return evaluate(self.rows, drift, self.noise)

    def _best_of_grid(self, drift: Array, which: NDArray[np.bool_]) -> tuple[Array, float]:
        """Return the drift with some entries at the best value of the grid, and what it gains."""
        before = best = self._at(drift).value
        for value in self.grid:
            other = np.where(which, value, drift)
            likelihood = self._at(other).value
            if likelihood > best + GAIN:
                best, better = likelihood, other
        return (better, best - before) if best > before else (drift, 0.0)

    def _climb(self, drift: Array, moving: NDArray[np.bool_]) -> Array:
        if not moving.any():
            return drift
        from scipy.optimize import minimize

        def loss(logs: Array) -> tuple[float, Array]:
            here = drift.copy()
            here[moving] = np.exp(logs)
            at = self._at(here)
            return -at.value, -(score(self.rows, at) * here)[moving]

        result = minimize(
            loss,
            np.log(drift[moving]),
            jac=True,
            method="L-BFGS-B",
            bounds=[(math.log(self.least), math.log(MOST))] * int(moving.sum()),
            options={"maxiter": 500, "ftol": 1e-14, "gtol": 1e-5},
        )
        drift = drift.copy()
        drift[moving] = np.exp(result.x)
        return drift

    def _stop_at_zero(self, drift: Array, moving: NDArray[np.bool_]) -> Array:
        """Set drifts to 0 that ended near the least one, where the likelihood is no smaller."""
        small = np.flatnonzero(moving & (drift <= 100 * self.least))
        for some in [small, *small[np.argsort(drift[small]), None]] if small.size else []:
            other = drift.copy()
            other[some] = 0.0
            if self._at(other).value >= self._at(drift).value - ROUNDING:
                drift = other
        return drift
