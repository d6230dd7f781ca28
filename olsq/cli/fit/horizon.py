"""Forecasts of a horizon in ``olsq fit``, chunk after chunk, with what was known at their time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.cli.fit.checkpoint import pack, unpack
from olsq.cli.fit.estimators import Estimator
from olsq.cli.fit.options import FitOptions
from olsq.cli.fit.scores import LEARNED, ROWS, TARGETS, Known
from olsq.cli.sources.grouping import GroupedRows
from olsq.online import CoefficientPath, RollingLeastSquares
from olsq.online.forms.student import t_quantile
from olsq.online.known_rows import (
    Held,
    HeldRows,
    check_horizon,
    estimates_of,
    fewest_rows,
    predict_from,
)


def skipped_rows_change(options: FitOptions) -> bool:
    """Test whether rows that cannot be learned move a window, and with it what predicts a row."""
    moves = isinstance(options.window, str) or options.window_of == "positions"
    return moves and not options.forecasts


class RowsBefore(NamedTuple):
    """The row before each row of a chunk in its group, for predictions of rows that move a window.

    ``previous`` (n,) is that row, -1 where it is in an earlier chunk; ``predicted`` (n, m) are the
    predictions of those rows, by the coefficients after the earlier chunk.
    """

    previous: NDArray[np.int64]
    predicted: NDArray[np.float64]

    @classmethod
    def of(
        cls, estimator: Estimator, X: NDArray, m: int, groups: GroupedRows, labels: Any
    ) -> RowsBefore:
        """Predict the first row of each group before the estimator learns the chunk.

        ``labels(codes)`` are those of the groups, None without any.
        """
        previous, predicted = np.full(len(X), -1), np.full((len(X), m), np.nan)
        previous[groups.rows] = groups.shift(groups.rows, np.array(-1))
        first = groups.rows[groups.begins]
        unknown = isinstance(estimator, RollingLeastSquares) and not estimator._has_estimate()
        if estimator.__sklearn_is_fitted__() and first.size and not unknown:
            by = {"by": labels(groups.codes[groups.begins])} if labels is not None else {}
            predicted[first] = estimator.predict(X[first], **by).reshape(-1, m)
        return cls(previous, predicted)

    def predict(self, path: CoefficientPath, X: NDArray) -> NDArray[np.float64]:
        """Predict all rows (n, m), each by the coefficients after the row before."""
        ahead = predict_from(estimates_of(path)[self.previous], X)
        return np.where(self.previous[:, None] < 0, self.predicted, ahead)


class ChunkForecasts(NamedTuple):
    """Forecasts of a chunk's rows: ``fitted`` and ``residual`` (n, m), NaN where there is none.

    ``bases`` and ``bounds`` are one for each target.
    """

    fitted: NDArray[np.float64]
    residual: NDArray[np.float64]
    bases: list[Known]
    bounds: list[tuple[NDArray[np.float64], NDArray[np.float64]]]


class Forecaster:
    """Predicts rows with the coefficients known one horizon before, and remembers these.

    The intervals are those of :func:`olsq.score_forecasts`: of the mean square of the errors known
    by then, whose degrees of freedom are the horizons among them.

    Parameters
    ----------
    horizon : int or str
        Rows, or a span of time.
    level : float
        Of the intervals.
    n_coefs : int
        Coefficients of a target, with the intercept.
    min_samples : int, optional
        Rows that a forecast must rest on; without it those that rest on none are 0.
    """

    def __init__(
        self, horizon: Any, level: float, n_coefs: int, min_samples: int | None = None
    ) -> None:
        length = check_horizon(horizon)
        self._level, self._n_coefs, self._min_samples = level, n_coefs, min_samples
        self._held = {"estimates": HeldRows(length), "errors": HeldRows(length)}

    def forecast(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.float64],
        path: CoefficientPath,
        used: NDArray[np.bool_],
        after: NDArray[np.float64],
        groups: GroupedRows,
        times: NDArray[np.int64] | None,
    ) -> ChunkForecasts:
        """Forecast the rows X (n, d) of a chunk, whose targets y (n, m) are learned where ``used``.

        ``path`` is the chunk's, ``after`` what :meth:`Baselines.advance` knows after each row;
        ``times`` (n,) are nanoseconds, for a span of time.
        """
        m, by_code = y.shape[1], groups.by_code()
        values = np.column_stack([after, estimates_of(path)])
        at_origin, _ = self._held["estimates"].extend(by_code, values, times)
        origin, estimates = np.split(at_origin, [after.shape[1]], axis=1)
        fitted = predict_from(estimates, X)
        # Before anything is known, and while no row is in the window, coefficients are 0, where
        # there is a row to learn.
        known = origin[:, LEARNED] >= (self._min_samples or 1)
        known &= ~np.isnan(estimates).any(axis=1)
        zero = used & (self._min_samples is None)
        fitted[~known] = np.where(zero[~known], 0.0, np.nan)[:, None]
        residual = np.where(used[:, None], y - fitted, np.nan)

        with np.errstate(divide="ignore", invalid="ignore"):
            overlap = after[:, ROWS] - origin[:, ROWS]
            scored = used & (known | zero)
            scored &= origin[:, LEARNED] >= fewest_rows(self._n_coefs, 1) * overlap
            errors = self._sum_squares(residual, scored, groups)
            squares, _ = self._held["errors"].extend(by_code, errors, times)
            freedom = squares[:, m] / overlap
            spread = np.sqrt(squares[:, :m] / squares[:, m:])
            reach = t_quantile(freedom, self._level)[:, None] * spread
        reach[~np.isfinite(reach)] = np.nan
        return ChunkForecasts(
            fitted,
            residual,
            Known.of(origin[:, TARGETS:], origin[:, LEARNED], scored),
            [(fitted[:, j] - reach[:, j], fitted[:, j] + reach[:, j]) for j in range(m)],
        )

    def _sum_squares(
        self, residual: NDArray, scored: NDArray[np.bool_], groups: GroupedRows
    ) -> NDArray[np.float64]:
        """Return sums of squared errors so far, and how many they are (n, m + 1), of each group."""
        squares = np.where(scored[:, None], residual**2, 0.0)
        values = np.column_stack([squares, scored.astype(np.float64)])
        for label, rows in groups.by_code().items():
            before = self._held["errors"].last(label)
            values[rows] = np.cumsum(values[rows], axis=0) + (0.0 if before is None else before)
        return values

    def as_dict(self) -> dict[str, Any]:
        """Return what is held of every group for the checkpoint."""
        return {
            name: {
                str(label): [
                    len(rows.values),
                    pack(rows.values),
                    None if rows.times is None else rows.times.tolist(),
                ]
                for label, rows in held.groups.items()
            }
            for name, held in self._held.items()
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the values saved by :meth:`as_dict`."""
        for name, held in self._held.items():
            for label, (n, values, times) in saved[name].items():
                times = None if times is None else np.array(times, np.int64)
                held.groups[int(label)] = Held(unpack(values).reshape(n, -1), times)
