"""Objective of tuning: the squared loss of forecasts, and its exact gradient.

With e_t the error of row t's prediction, which uses the rows up to ``t - horizon`` and no other
(horizon 1: all rows before it, so that e_t is the a-priori residual),

    L(forget, ridge) = sum_{t > burn-in} w_t sum_j e_tj^2 / (m sum_{t > burn-in} w_t)

With half-lives in time, forget is the factor of one unit of time, and a row's own is its power of
the time that passed.

Data are multiplied by powers of two first, which rounds nothing: then neither the squares nor the
search depend on the units of X, y and the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online import CoefficientPath, RecursiveLeastSquares, coefficient_path
from olsq.online.horizon import with_errors_from
from olsq.online.known_rows import NO_ROW
from olsq.online.rows.durations import gates_after
from olsq.problem import RidgeMode
from olsq.sequence.api import online_lstsq_vjp
from olsq.solvers import ChunkExact, Dense

# Coefficients up to which one factorisation per token, in batches, is faster than one a chunk.
DENSE_UP_TO = 24


class Slope(NamedTuple):
    """The loss, and its derivatives by the forgetting factor and by the ridge."""

    loss: float
    forget: float
    ridge: float


def exponent(values: NDArray) -> int:
    """Return the power of two that brings the largest magnitude into [1/2, 1); 0 for zeros only."""
    return int(np.frexp(np.abs(values).max(initial=0.0))[1])


class ForecastLoss:
    """The loss of rows as a function of forgetting factor and ridge.

    Rows have no missing values, unless ``complete`` (n,) marks those that have none: the others
    (zeros here) are there to be counted by a ``horizon`` of several rows.  With a horizon in time
    ``source`` (n,) is the last row known by each, -1 before the first, and ``horizon`` the most
    rows that it goes back.  ``elapsed`` (n,) are the units of time by which rows forget.

    ``ridge`` is a number in the units of the scaled data; times ``shape`` (d,) it is the penalty,
    and times ``ridge_unit`` it is in the user's units.
    """

    def __init__(
        self,
        X: NDArray,
        Y: NDArray,
        weights: NDArray,
        *,
        shape: NDArray | None,
        ridge_mode: RidgeMode,
        fit_intercept: bool,
        burn_in: int,
        horizon: int = 1,
        complete: NDArray[np.bool_] | None = None,
        source: NDArray[np.int64] | None = None,
        elapsed: NDArray[np.float64] | None = None,
    ) -> None:
        self.horizon, self.complete, self.elapsed = horizon, complete, elapsed
        self._in_time = source is not None
        self.source = np.maximum(np.arange(len(X)) - horizon, NO_ROW) if source is None else source
        x_unit, y_unit, w_unit = exponent(X), exponent(Y), exponent(weights)
        self.X, self.Y = np.ldexp(X, -x_unit), np.ldexp(Y, -y_unit)
        self.weights = np.ldexp(weights, -w_unit)
        self.x_unit, self.weight_unit = x_unit, w_unit
        self.loss_unit, self.ridge_unit = 2 * y_unit, 2 * x_unit + w_unit
        self.ridge_mode: RidgeMode = ridge_mode
        self.fit_intercept = fit_intercept
        shape_unit = 0 if shape is None else exponent(shape)
        self.shape = np.ones(X.shape[1]) if shape is None else np.ldexp(shape, -shape_unit)
        self.ridge_unit -= shape_unit
        informative = np.cumsum(self.weights > 0)
        rows_before = np.where(self.source == NO_ROW, 0, informative[self.source])
        scored = np.where(rows_before >= burn_in, self.weights, 0.0)
        if not scored.any():
            raise ValueError(
                f"no row is left to score: a forecast of horizon={horizon} has to rest on "
                f"{burn_in} rows (burn_in). Give more rows, or a smaller horizon or burn_in"
            )
        self.scored = scored / (Y.shape[1] * scored.sum())
        self.burn_in = burn_in
        self.after_pass: Callable[[], object] = lambda: None  # called after each pass over rows
        self.tried: list[tuple[float, float, float]] = []
        self.losses: dict[tuple[float, float], float] = {}
        if fit_intercept:
            # An intercept without a penalty absorbs any shift, so that the gradient can be computed
            # on centred data: moments of data far from 0 have no digits left for the variation.
            total = self.weights.sum()
            means = (self.weights @ a / total for a in (self.X, self.Y))
            centred, targets = (a - m for a, m in zip((self.X, self.Y), means, strict=True))
            self._keys = np.column_stack([np.ones(len(X)), centred])
            self._values = targets
        else:
            self._keys, self._values = self.X, self.Y

    @property
    def n_coefs(self) -> int:
        """Number of coefficients of one target."""
        return self._keys.shape[1]

    @property
    def ridge_scale(self) -> float:
        """Ridge that weighs as much as one row on average: the mean square over the features."""
        features = self._keys[:, int(self.fit_intercept) :]
        squares = self.weights @ features**2 / np.count_nonzero(self.learned)
        penalised = self.shape > 0
        if not penalised.any():
            return 1.0
        scale = float(np.mean(squares[penalised] / self.shape[penalised]))
        return scale if scale > 0 else 1.0

    def gates(self, forget: float) -> NDArray[np.float64]:
        """Return the forgetting factor (n,) of each row."""
        if self.elapsed is None or forget in (0.0, 1.0):
            return np.where(self.learned, forget, 1.0)
        return gates_after(self.elapsed, -math.log(2) / math.log(forget))

    def estimator(self, forget: float, ridge: float) -> RecursiveLeastSquares:
        """Return the regression to evaluate, for scaled data; in time without forgetting."""
        return RecursiveLeastSquares(
            forget=forget if self.elapsed is None else 1.0,
            ridge=ridge * self.shape,
            ridge_mode=self.ridge_mode,
            fit_intercept=self.fit_intercept,
        )

    @property
    def is_one_row(self) -> bool:
        """True if each row is predicted from the row before it."""
        return self.horizon == 1 and not self._in_time

    @property
    def learned(self) -> NDArray[np.bool_]:
        """Mask (n,) of the rows without a missing value."""
        return np.ones(len(self.X), np.bool_) if self.complete is None else self.complete

    def path(self, forget: float, ridge: float) -> CoefficientPath:
        """Compute the path of the scaled data, with the errors of their forecasts."""
        Y = self.Y if self.complete is None else np.where(self.complete[:, None], self.Y, np.nan)
        path = coefficient_path(
            self.X,
            Y,
            sample_weight=self.weights,
            forget=forget if self.elapsed is None else self.gates(forget),
            ridge=ridge * self.shape,
            ridge_mode=self.ridge_mode,
            fit_intercept=self.fit_intercept,
            horizon=1 if self._in_time else self.horizon,
            statistics=False,
        )
        return with_errors_from(path, self.X, Y, self.source) if self._in_time else path

    def residuals(self, forget: float, ridge: float) -> NDArray[np.float64]:
        """Compute the errors (n, m) of the forecasts of the scaled data."""
        if not self.is_one_row:
            residual = self.path(forget, ridge).residual
            return np.where(np.isnan(residual), 0.0, residual)  # scored by weight 0
        gates = None if self.elapsed is None else self.gates(forget)
        fitted = self.estimator(forget, ridge).partial_fit(
            self.X, self.Y, self.weights, forget=gates
        )
        return fitted.residual_

    def loss(self, forget: float, ridge: float) -> float:
        """Compute the loss in the units of the scaled data, once per point."""
        if (forget, ridge) not in self.losses:
            self.record_loss(forget, ridge, self.residuals(forget, ridge))
        return self.losses[forget, ridge]

    def slope(self, forget: float, ridge: float) -> Slope:
        """Compute the loss and its gradient, by the implicit derivative of every row's solution.

        The loss depends on both parameters through every prediction
        ``k_t^T H_{t-h}^{-1} G_{t-h}^T``: a whole sequence whose queries are the keys of h rows
        later.  Where several forecasts rest on one row, tokens without weight carry the others.
        """
        residuals = self.residuals(forget, ridge)
        loss = self.record_loss(forget, ridge, residuals)
        asked = np.flatnonzero(self.source != NO_ROW)
        if not asked.size:
            return Slope(loss, 0.0, 0.0)
        penalty = ridge * self.shape
        if self.fit_intercept:
            penalty = np.concatenate([[0.0], penalty])
        source = self.source[asked]
        rows = int(source[-1]) + 1
        extra = source[1:] == source[:-1]
        before = np.searchsorted(source[1:][extra], np.arange(rows))
        tokens = np.arange(rows) + before
        queries = source + np.concatenate([[0], np.cumsum(extra)])
        n_tokens = rows + int(extra.sum())

        def placed(values: NDArray, places: NDArray, empty: float = 0.0) -> NDArray:
            if not extra.any() and len(places) == n_tokens:
                return values
            every = np.full((n_tokens, *values.shape[1:]), empty)
            every[places] = values
            return every

        upstream = -2.0 * self.scored[asked, None] * residuals[asked]
        learned, gates = self.learned[:rows], self.gates(forget)[:rows]
        solver = Dense() if self.n_coefs <= DENSE_UP_TO else ChunkExact()
        gradients = online_lstsq_vjp(
            placed(self._keys[:rows], tokens),
            placed(self._values[:rows], tokens),
            placed(self._keys[asked], queries),
            placed(upstream, queries),
            forget=placed(gates, tokens, 1.0),
            weight=placed(self.weights[:rows], tokens),
            ridge=penalty,
            ridge_mode=self.ridge_mode,
            solver=solver,
        )
        by_forget = gradients.forget[tokens]
        if self.elapsed is not None:  # d forget^elapsed / d forget
            by_forget = by_forget * self.elapsed[:rows] * gates / forget
        by_ridge = gradients.ridge if gradients.ridge.ndim == 1 else gradients.ridge.sum(axis=0)
        return Slope(
            loss,
            float(by_forget[learned].sum()),
            float(by_ridge[int(self.fit_intercept) :] @ self.shape),
        )

    def reported(self, loss: Any) -> Any:
        """Convert losses to the user's units."""
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(loss, self.loss_unit)

    def reported_ridge(self, ridge: Any) -> Any:
        """Convert ridges to the user's units (of ``ridge_shape``, where there is one)."""
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(ridge, self.ridge_unit)

    def record_loss(self, forget: float, ridge: float, residuals: NDArray) -> float:
        """Compute the loss of these residuals, and record it as tried."""
        loss = float(self.scored @ np.einsum("tj,tj->t", residuals, residuals))
        self.tried.append((forget, ridge, loss))
        self.losses[forget, ridge] = loss
        self.after_pass()
        return loss
