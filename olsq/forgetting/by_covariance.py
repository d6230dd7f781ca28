"""Forgetting bounded by the covariance's trace, or given by a model of the drift."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import shown
from olsq.forgetting.base import (
    Forgetting,
    per_coefficient,
    read_factor,
    read_length,
    read_number,
    read_numbers,
    sum_of_weights,
)
from olsq.forgetting.entries import BOUNDED, FACTOR, TRACE, WALK


@dataclass(frozen=True)
class BoundedTrace(Forgetting):
    """Exponential forgetting that stops where the covariance's trace reaches a bound.

    ``Rbar_t = factor_t R_{t-1}`` with ``factor_t = min(1, max(factor, tr P_{t-1} / trace))``, so
    that ``tr Pbar_t <= trace`` once it has come below it.

    Parameters
    ----------
    factor : float
        In (0, 1]; near 0 it is the constant-trace algorithm.
    trace : float
        The bound on ``tr P``, the sum of the coefficients' variances (the intercept's too) in units
        of the noise's variance.  It depends on the regressors' units: scale them alike.

    Notes
    -----
    Steady-state window: ``1 / (1 - factor)`` rows where that keeps the trace below the bound, else
    ``tr(S^-1) / trace`` rows, with S the mean of ``w x x^T``.  A quiet stretch stops all forgetting
    when the trace is reached; where one direction stays quiet, the others are not forgotten any
    more either.  Until the trace has come below the bound nothing is forgotten.  Exact weighted
    least squares for the factors so far.  Does not merge.

    References: Goodwin & Sin 1984, ch. 6 (constant trace); Astrom & Wittenmark 1995, ch. 11; the
    bound on P of Salgado, Goodwin & Middleton 1988.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> est = olsq.RecursiveLeastSquares(
    ...     forget=olsq.forgetting.BoundedTrace(0.9, trace=2.0), ridge=1.0, fit_intercept=False)
    >>> _ = est.fit(np.eye(2), [1.0, 2.0]).partial_fit(np.zeros((500, 2)), np.zeros(500))
    >>> round(float(np.linalg.inv(est.moments().gram).trace()), 6), est.coef_
    (2.0, array([0.5       , 1.05263158]))
    """

    factor: float
    trace: float
    code: ClassVar[int] = BOUNDED

    def __post_init__(self) -> None:
        rule = "be positive and finite"
        self._set(
            factor=read_factor(self.factor),
            trace=read_number(self.trace, "trace", 0.0, 1e300, rule),
        )

    @property
    def window(self) -> float:
        return round(sum_of_weights(self.factor), 9)

    def options(self) -> NDArray[np.float64]:
        options = super().options()
        options[FACTOR], options[TRACE] = self.factor, self.trace
        return options


@dataclass(frozen=True)
class RandomWalk(Forgetting):
    """The Kalman filter of coefficients that drift, each row by noise of known size.

    ``theta_t = theta_{t-1} + noise`` of covariance ``sigma2 Q``, so ``Pbar_t = P_{t-1} + Q``.

    Parameters
    ----------
    drift : float, sequence (k,) or matrix (k, k)
        Q, the covariance of a row's step in units of the noise's variance: a number for every
        coefficient, variances, or a symmetric positive semidefinite matrix.  k counts the
        intercept, first, where there is one.  A coefficient of drift 0 is constant.
    per : str, timedelta or float, optional
        The length of time in which coefficients drift by Q, for rows at irregular times: before
        row t they drift by ``Q (time_t - time_{t-1}) / per``, since the row before it (not before
        the first).  As text, "1h" or "1D", or a timedelta, where times are dates; a number
        in their unit, where they are numbers.  Rows must have times then: ``partial_fit(X, y,
        times=...)``, or an index of dates.  Default: they drift by Q before every row.

    Notes
    -----
    Steady-state window for one regressor of mean square v: ``1 / 2 + sqrt(1 / 4 + 1 / (Q v))`` rows
    (the inverse of ``1 - 1 / (1 + Pbar v)``); ``window`` takes the largest variance of Q and
    v = 1, and is inf with ``per``: it depends on the stream's times.
    Exactly the posterior of the state-space model with the ridge or ``prior`` as its start, or
    nothing known of it without either; :func:`olsq.time_varying` estimates Q. A quiet direction's
    variance grows by Q a row, not without bounds but without exponential: nothing winds up.
    ``sigma2_`` is the model's, the mean of ``w e^2 / s``. ``leverage`` and ``predict_interval`` are
    of the next row: of ``P + Q``; with ``per`` of a row at the time of the last one. In a row of
    weight 0, or one that is skipped because a value is missing, coefficients drift and nothing is
    learned. A row whose prediction overflows counts as one of weight 0, and its residual is NaN.
    O(r d^2) time per row, with r the rank of Q (O(d^3) if all drift): each direction of Q is
    rotated into a factor of P's inverse. (On P itself Q is an addition, in O(d^2); collinear
    regressors and diffuse starts lose two to three digits more there.) Does not merge.

    References: Kalman 1960; Ljung & Gunnarsson 1990 (tracking as a Kalman filter); Harvey 1989.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> walk = olsq.forgetting.RandomWalk(0.5)
    >>> est = olsq.RecursiveLeastSquares(forget=walk, ridge=1.0, fit_intercept=False)
    >>> _ = est.fit(np.ones((100, 1)), np.ones(100))  # Pbar solves Pbar^2 - Q Pbar - Q = 0
    >>> est.leverage(np.ones((1, 1))), walk.window
    (array([1.]), 2.0)
    >>> walk = olsq.forgetting.RandomWalk(0.5, per="1h")
    >>> est = olsq.RecursiveLeastSquares(forget=walk, ridge=1.0, fit_intercept=False)
    >>> days = np.array(["2026-01-01", "2026-01-02"], "datetime64[D]")
    >>> est.fit(np.ones((2, 1)), [0.0, 3.0], times=days).coef_.round(2)
    array([2.78])
    """

    drift: Any
    per: Any = None
    code: ClassVar[int] = WALK
    TIMED: ClassVar[str] = "per"

    def __post_init__(self) -> None:
        drift = read_numbers(self.drift, "drift")
        array = np.asarray(drift)
        if array.ndim == 2:
            _factorise_drift(array)
        elif not (array >= 0).all():
            raise ValueError(f"drift must be >= 0, got {shown(self.drift)}")
        self._set(drift=drift, per=None if self.per is None else read_length(self.per, "per"))

    @property
    def window(self) -> float:
        if self.per is not None:
            return math.inf
        array = np.asarray(self.drift)
        largest = float((np.diagonal(array) if array.ndim == 2 else array).max())
        return math.inf if largest == 0 else 0.5 + math.sqrt(0.25 + 1.0 / largest)

    def vectors(self, n_coefficients: int) -> NDArray[np.float64]:
        array, k = np.asarray(self.drift), n_coefficients
        if array.ndim == 2:
            if array.shape != (k, k):
                raise ValueError(
                    f"drift must be ({k}, {k}), for {k} coefficients with the intercept, got "
                    f"{array.shape}"
                )
            return _factorise_drift(array)
        variances = per_coefficient(self.drift, "drift", k)
        return np.ascontiguousarray(np.diag(np.sqrt(variances))[variances > 0])


def _factorise_drift(drift: NDArray[np.float64]) -> NDArray[np.float64]:
    """Factorise ``drift`` into vectors (r, k) whose outer products sum to it."""
    wrong = drift.shape[0] != drift.shape[1]
    # scaled to a unit diagonal first, so that the tolerances below do not depend on units
    scale = np.sqrt(np.maximum(np.diagonal(drift), 0.0))
    if not wrong:
        units = np.where(scale > 0, scale, 1.0)
        scaled = drift / np.outer(units, units)
        wrong = bool((np.abs(scaled - scaled.T) > 1e-8).any())
        if not wrong:
            values, vectors = np.linalg.eigh(0.5 * (scaled + scaled.T))
            wrong = bool((values < -1e-10).any())
    if wrong:
        raise ValueError("drift must be a symmetric, positive semidefinite matrix")
    # eigenvalues of rounding alone would cost a rotation of every row
    nonzero = values > 1e-14 * max(values[-1], 1e-300)
    return np.ascontiguousarray((vectors[:, nonzero] * np.sqrt(values[nonzero])).T * units)
