"""Rows one by one, whose targets become known later than their regressors."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np

from olsq.online.estimators.base import StreamingRegressor
from olsq.online.known_rows import check_horizon
from olsq.online.rows.durations import Duration
from olsq.online.rows.times import check_kind, read_times


class DelayedTargets:
    """An estimator with the rows that wait for their targets: forecasts of a horizon, row by row.

    Every row is predicted by what the estimator has learned when the row comes, waits, and is
    learned once its target is known: when it is given, or one ``horizon`` later in a backtest that
    has the targets from the start.  So no forecast can know too much.

    Parameters
    ----------
    estimator : RecursiveLeastSquares, RollingLeastSquares or another one with ``step``
        Learns the rows; use it freely in between (``estimator.coef_`` and so on).
    horizon : int, float, str or timedelta, optional
        After how many rows, or how long ("1D"; a float between times that are numbers), a target
        is known, however early it is given.  Default: as soon as it is given.

    Examples
    --------
    In production targets come when they come, in the order of the rows:

    >>> import numpy as np, olsq
    >>> live = olsq.DelayedTargets(olsq.RecursiveLeastSquares(fit_intercept=False))
    >>> live.predict(np.array([1.0])), live.predict(np.array([2.0]))
    (0.0, 0.0)
    >>> live.learn(3.0)  # the first row's target; returns the error of its forecast
    3.0
    >>> live.predict(np.array([2.0])), len(live)
    (6.0, 2)

    A backtest has all targets, and ``horizon`` holds them back:

    >>> test = olsq.DelayedTargets(olsq.RecursiveLeastSquares(fit_intercept=False), horizon=2)
    >>> [test.step(np.array([1.0]), y)[0] for y in (3.0, 3.0, 3.0)]
    [0.0, 0.0, 3.0]
    """

    def __init__(self, estimator: StreamingRegressor, horizon: Any = None) -> None:
        if not isinstance(estimator, StreamingRegressor):
            raise TypeError(
                "estimator must be one that learns single rows by step, such as "
                f"RecursiveLeastSquares, got {type(estimator).__name__}"
            )
        self.estimator, self.horizon = estimator, horizon
        self._length = None if horizon is None else check_horizon(horizon)
        # Rows in order: regressors, prediction, options of step, time, target (None: not given).
        self._waiting: deque[list[Any]] = deque()
        self._latest: Any = None

    def __len__(self) -> int:
        """Return how many rows wait to be learned."""
        return len(self._waiting)

    def predict(self, x: Any, *, sample_weight: float | None = None, time: Any = None) -> Any:
        """Predict a row, which then waits for its target.

        Parameters
        ----------
        x : array (d,)
        sample_weight : number, optional
            Weight of the row when it is learned.
        time : date or number, optional
            When the row is, for a horizon, window or half-life in time.

        Returns
        -------
        number or array (m,)
            As ``estimator.step`` predicts: 0, or the prior's, while nothing is known.

        Raises
        ------
        ValueError
            If a time is missing or goes back, or the target of a row one horizon before has not
            been given; nothing has changed then.
        """
        now = self._read(time)
        due = self._due(now)
        for row in due:
            if row[-1] is None:
                raise ValueError(
                    f"the target of a row that is horizon={self.horizon!r} old has not been "
                    "given: call learn(y) for it first, with NaN if it is missing"
                )
        for _ in due:
            self._learn_oldest()
        prediction: Any = 0.0
        if self.estimator._has_estimate():
            prediction = self.estimator.predict(np.atleast_2d(x))[0]
            prediction = prediction if np.ndim(prediction) else prediction.item()
        options: dict[str, Any] = {"sample_weight": sample_weight}
        if time is not None and self.estimator._duration(True) is not None:
            options["time"] = time
        self._latest = now
        self._waiting.append([copy.copy(x), prediction, options, now, None])
        return prediction

    def learn(self, y: Any) -> Any:
        """Give the target of the oldest row that has none; return the error of its forecast.

        Parameters
        ----------
        y : number or array (m,)
            NaN if it will never be known: the row is then skipped.

        Returns
        -------
        number or array (m,)
            ``y - prediction``.

        Raises
        ------
        ValueError
            If every row has its target.
        """
        row = next((row for row in self._waiting if row[-1] is None), None)
        if row is None:
            raise ValueError("no row waits for a target: predict(x) comes before learn(y)")
        row[-1] = copy.copy(y)
        if self._length is None:
            try:
                self._learn_oldest()
            except BaseException:
                row[-1] = None
                raise
        return y - row[1]

    def step(
        self, x: Any, y: Any, *, sample_weight: float | None = None, time: Any = None
    ) -> tuple[Any, Any]:
        """Predict a row and give its target, which is learned one horizon later.

        Returns
        -------
        prediction, residual : number or array (m,)
            As of ``coefficient_path(horizon=)``.
        """
        prediction = self.predict(x, sample_weight=sample_weight, time=time)
        return prediction, self.learn(y)

    def _read(self, time: Any) -> Any:
        """Return a row's time as a number, None under a horizon that counts rows."""
        if not isinstance(self._length, Duration):
            return None
        if time is None:
            raise ValueError(f"horizon={self.horizon!r} is a length of time: give time=")
        read = read_times([time])
        check_kind(read.kind, self._length, f"horizon={self.horizon!r}")
        now = read.values[0]
        if self._latest is not None and now < self._latest:
            raise ValueError(f"time must not go back, got {time!r}: sort the rows by time first")
        return now

    def _due(self, now: Any) -> list[list[Any]]:
        """Return the waiting rows whose targets are known when the next row is predicted."""
        if self._length is None:
            return []
        if isinstance(self._length, Duration):
            latest = self._length.expired(np.array([now]))[0]
            return [row for row in self._waiting if row[3] <= latest]
        return list(self._waiting)[: max(len(self._waiting) - self._length + 1, 0)]

    def _learn_oldest(self) -> None:
        x, _, options, _, y = self._waiting[0]
        self.estimator.step(x, y, **options)
        self._waiting.popleft()
