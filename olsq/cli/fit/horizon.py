"""Forecasts of a horizon in ``olsq fit``, chunk after chunk, with what was known at their time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.cli.fit.checkpoint import pack, unpack
from olsq.cli.fit.estimators import Estimator, Groups
from olsq.cli.fit.options import FitOptions
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

# Columns of the values that are held of every row: rows of its group so far and those learned,
# then for each target the first one, the last one and the sum of all less the first.
PLACE, LEARNED, FIRST, LAST, SHIFTED = range(5)


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
        cls, estimator: Estimator, X: NDArray, m: int, codes: NDArray | None, labels: Any
    ) -> RowsBefore:
        """Predict the first row of each group before the estimator learns the chunk.

        ``codes`` and ``labels(codes)`` are those of the groups, None without any.
        """
        codes = np.zeros(len(X), np.int64) if codes is None else codes
        order = np.argsort(codes, kind="stable")
        same = codes[order[1:]] == codes[order[:-1]]
        previous, predicted = np.full(len(X), -1), np.full((len(X), m), np.nan)
        previous[order[1:][same]] = order[:-1][same]
        first = np.flatnonzero((previous < 0) & (codes >= 0))
        unknown = isinstance(estimator, RollingLeastSquares) and not estimator._has_estimate()
        if estimator.__sklearn_is_fitted__() and first.size and not unknown:
            by = {"by": labels(codes[first])} if isinstance(estimator, Groups) else {}
            predicted[first] = estimator.predict(X[first], **by).reshape(-1, m)
        return cls(previous, predicted)

    def predict(self, path: CoefficientPath, X: NDArray) -> NDArray[np.float64]:
        """Predict all rows (n, m), each by the coefficients after the row before."""
        ahead = predict_from(estimates_of(path)[self.previous], X)
        return np.where(self.previous[:, None] < 0, self.predicted, ahead)


class Known(NamedTuple):
    """Basis of the forecasts of one target, by row (n,): the mean and the last target known.

    ``scored`` marks the rows whose errors count.
    """

    scored: NDArray[np.bool_]
    mean: NDArray[np.float64]
    last: NDArray[np.float64]


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
    """

    def __init__(self, horizon: Any, level: float, n_coefs: int) -> None:
        length = check_horizon(horizon)
        self._level, self._n_coefs = level, n_coefs
        self._held = {"estimates": HeldRows(length), "errors": HeldRows(length)}

    def forecast(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.float64],
        path: CoefficientPath,
        used: NDArray[np.bool_],
        groups: dict[int, NDArray[np.int64]],
        times: NDArray[np.int64] | None,
    ) -> ChunkForecasts:
        """Forecast the rows X (n, d) of a chunk, whose targets y (n, m) are learned where ``used``.

        ``path`` is the chunk's, ``groups`` has the rows of each label; ``times`` (n,) are
        nanoseconds, for a span of time.
        """
        n, m = y.shape
        rows = self._count_rows(y, used, groups)
        values = np.column_stack([rows, estimates_of(path)])
        at_origin, _ = self._held["estimates"].extend(groups, values, times)
        counts, of_targets = at_origin[:, :FIRST], at_origin[:, FIRST : 2 + 3 * m].reshape(n, m, 3)
        fitted = predict_from(at_origin[:, 2 + 3 * m :], X)
        # Before anything is known coefficients are 0, where there is a row to learn.
        begun = counts[:, LEARNED] > 0
        fitted[~begun] = np.where(used[~begun], 0.0, np.nan)[:, None]
        residual = np.where(used[:, None], y - fitted, np.nan)

        with np.errstate(divide="ignore", invalid="ignore"):
            overlap = rows[:, PLACE] - counts[:, PLACE]
            scored = used & (counts[:, LEARNED] >= fewest_rows(self._n_coefs, 1) * overlap)
            mean = of_targets[:, :, 0] + of_targets[:, :, 2] / counts[:, LEARNED, None]
            squares, _ = self._held["errors"].extend(
                groups, self._add_squares(residual, scored, groups), times
            )
            freedom = squares[:, m] / overlap
            spread = np.sqrt(squares[:, :m] / squares[:, m:])
            reach = t_quantile(freedom, self._level)[:, None] * spread
        reach[~np.isfinite(reach)] = np.nan
        return ChunkForecasts(
            fitted,
            residual,
            [Known(scored, mean[:, j], of_targets[:, j, 1]) for j in range(m)],
            [(fitted[:, j] - reach[:, j], fitted[:, j] + reach[:, j]) for j in range(m)],
        )

    def _count_rows(
        self, y: NDArray, used: NDArray[np.bool_], groups: dict[int, NDArray[np.int64]]
    ) -> NDArray[np.float64]:
        """Return counts of rows, and first, last and summed targets (n, 2 + 3 m) of each group."""
        n, m = y.shape
        counts, targets = np.zeros((n, FIRST)), np.full((n, m, 3), np.nan)
        for label, rows in groups.items():
            before = self._held["estimates"].last(label)
            if before is None:
                before = np.zeros(2 + 3 * m)
            first, last, shifted = before[FIRST : 2 + 3 * m].reshape(m, 3).T
            learned = np.flatnonzero(used[rows])
            counts[rows, PLACE] = before[PLACE] + 1 + np.arange(rows.size)
            counts[rows, LEARNED] = before[LEARNED] + np.cumsum(used[rows])
            if before[LEARNED] == 0 and learned.size:
                first = y[rows[learned[0]]]
            # relative to the group's first target, so that a large level costs no digits
            deviations = np.where(used[rows, None], y[rows] - first, 0.0)
            at = np.maximum.accumulate(np.where(used[rows], np.arange(rows.size), -1))
            targets[rows, :, 0] = first
            targets[rows, :, 1] = np.where(at[:, None] >= 0, y[rows[np.maximum(at, 0)]], last)
            targets[rows, :, 2] = shifted + np.cumsum(deviations, axis=0)
        return np.column_stack([counts, targets.reshape(n, 3 * m)])

    def _add_squares(
        self, residual: NDArray, scored: NDArray[np.bool_], groups: dict[int, NDArray[np.int64]]
    ) -> NDArray[np.float64]:
        """Return sums of squared errors so far, and how many they are (n, m + 1), of each group."""
        n, m = residual.shape
        values = np.zeros((n, m + 1))
        values[:, :m] = np.where(scored[:, None], residual**2, 0.0)
        values[:, m] = scored
        for label, rows in groups.items():
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
