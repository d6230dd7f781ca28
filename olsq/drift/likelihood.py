"""Diffuse log likelihood of drifting coefficients: derivatives, smoother, most likely drift."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.drift.kernels import (
    Adjoint,
    Array,
    History,
    Innovations,
    Rows,
    State,
    filter_rows,
    score_rows,
    smooth_rows,
)

BLOCK = 256  # rows whose states are kept at a time on the way back


class Likelihood(NamedTuple):
    """The log likelihood at one drift, and what the way back needs.

    value; s2, the variance of the noise; start (k,), the estimate of theta_0, and spread (k, k),
    with ``spread spread^T`` its covariance in units of s2; the innovations before they know it.
    """

    value: float
    s2: float
    start: Array
    spread: Array
    innovations: Innovations


def evaluate(rows: Rows, drift: Array, noise: float | None = None) -> Likelihood:
    """Compute the diffuse log likelihood; the noise's variance is its best where None is given.

    The part of the start is a least-squares problem: its factor comes from a QR decomposition of
    the standardised innovations, whose error grows with the condition of X, not with its square.
    """
    n, k = rows.X.shape
    innovations = Innovations(np.empty(n), np.empty((n, k)), np.empty(n), np.empty((n, k)))
    filter_rows(rows, drift, _before_rows(k), (0, n), innovations, _no_history(k))
    usable = np.isfinite(rows.noise)
    variance = innovations.variance[usable]
    both = np.column_stack([innovations.start[usable], innovations.error[usable]])
    if not (np.isfinite(variance).all() and np.isfinite(both).all()):
        raise ValueError(
            "drift is too large for these rows, or per too short: the variance of an error "
            "overflows. Give a smaller drift, or rescale X"
        )
    factor: Array = np.asarray(np.linalg.qr(both / np.sqrt(variance)[:, None], mode="r"))
    R, z, loss = factor[:k, :k], factor[:k, k], float(factor[k:, k] @ factor[k:, k])
    left = int(usable.sum()) - k
    s2 = loss / left if noise is None else noise
    inverse = _inverse(R)
    with np.errstate(divide="ignore"):
        logs = 2 * np.log(np.abs(np.diagonal(R))).sum() + np.log(variance).sum()
        value = -0.5 * (left * np.log(2 * math.pi * s2) + logs + (loss / s2 if s2 > 0 else left))
    return Likelihood(float(value), s2, inverse @ z, inverse, innovations)


def score(rows: Rows, at: Likelihood) -> Array:
    """Compute the derivatives of the log likelihood by the variances of Q; O(n k^2)."""
    k = len(at.start)
    derivatives = np.zeros(k)
    score_rows(rows, _given_start(at), at.s2, _after_rows(k), derivatives)
    return derivatives


def smooth(rows: Rows, drift: Array, at: Likelihood) -> tuple[Array, Array]:
    """Compute the coefficients (n, k) given all rows, and their variances (n, k) in units of s2.

    Only the states at the start of each block are kept: those of one block are recomputed.
    """
    n, k = rows.X.shape
    given_start, adjoint = _given_start(at), _after_rows(k)
    scratch = Innovations(*(np.empty_like(array) for array in at.innovations))
    state, kept = _before_rows(k), []
    for first in range(0, n, BLOCK):
        kept.append(State(*(array.copy() for array in state)))
        filter_rows(rows, drift, state, (first, min(first + BLOCK, n)), scratch, _no_history(k))
    history = History(np.empty((BLOCK, k)), np.empty((BLOCK, k, k)), np.empty((BLOCK, k, k)))
    smoothed = np.empty((n, k)), np.empty((n, k))
    for block in range(len(kept) - 1, -1, -1):
        span = block * BLOCK, min((block + 1) * BLOCK, n)
        filter_rows(rows, drift, kept[block], span, scratch, history)
        smooth_rows(rows, given_start, history, span, adjoint, (at.start, at.spread), smoothed)
    return smoothed


def _given_start(at: Likelihood) -> Innovations:
    """Return the innovations at the estimated start, with the start's part times ``spread``."""
    error, start, variance, gain = at.innovations
    return Innovations(error - start @ at.start, start @ at.spread, variance, gain)


def _before_rows(k: int) -> State:
    return State(np.zeros(k), np.eye(k), np.zeros((k, k)))


def _after_rows(k: int) -> Adjoint:
    return Adjoint(np.zeros(k), np.zeros((k, k)), np.zeros((k, k)))


def _no_history(k: int) -> History:
    return History(np.empty((0, k)), np.empty((0, k, k)), np.empty((0, k, k)))


def _inverse(R: Array) -> Array:
    from scipy.linalg import solve_triangular

    return solve_triangular(R, np.eye(len(R)))


# Of a drift a row, for regressors of mean square 1.  What n rows can tell from 0 is of the size
# 1 / n^2 (Nyblom 1989), so that the least is a thousandth of it; the most leaves the noise six
# digits.
LEAST, MOST = 1e-3, 1e6
GRID = 9  # starting values, of all coefficients alike
GAIN = 1e-6  # in the log likelihood, for which a constant coefficient drifts after all
ROUNDING = 1e-7  # of the log likelihood of 1e5 rows, generously


def most_likely_drift(
    rows: Rows, drift: Array, noise: float | None, after_pass: Callable[[], None] = lambda: None
) -> Array:
    """Return ``drift`` (k,) with its NaN entries at their maximum-likelihood values.

    ``after_pass`` is called after every evaluation of the likelihood.
    """
    free = np.isnan(drift)
    if not free.any():
        return drift
    usable = np.isfinite(rows.noise)
    scale = np.sqrt(np.mean(rows.X[usable] ** 2, axis=0))
    pace = rows.steps.sum() / max(len(rows.steps) - 1, 1)
    units = scale**2 * pace
    unit_rows = rows._replace(X=rows.X / scale, steps=rows.steps / pace)
    search = _Search(unit_rows, noise, free, int(usable.sum()), after_pass)
    best = search.run(np.where(free, 0, drift) * units)
    return np.where(free, best / units, drift)


class _Search:
    """Maximisation over the logarithms of the free drifts, with those that end at 0 taken out."""

    def __init__(
        self,
        rows: Rows,
        noise: float | None,
        free: NDArray[np.bool_],
        n: int,
        after_pass: Callable[[], None],
    ) -> None:
        self.rows, self.noise, self.free, self.after_pass = rows, noise, free, after_pass
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
        likelihood = evaluate(self.rows, drift, self.noise)
        self.after_pass()
        return likelihood

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
