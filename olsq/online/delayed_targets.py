"""Rows one by one, whose targets become known later than their regressors."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np

from olsq.arrays.checks import check_flag
from olsq.arrays.reals import real_array
from olsq.online.calls.checked import check_once
from olsq.online.estimators.base import StreamingRegressor
from olsq.online.known_rows import check_horizon
from olsq.online.rows import complex_rows, inputs
from olsq.online.rows.durations import Duration
from olsq.online.rows.options import check_weight_of_row
from olsq.online.rows.times import Timing, check_kind, read_times

PLAIN = 1e30  # numbers whose squares are below it are far from what any state refuses


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

    _timing: Timing | None = None  # of the estimator's rows up to the last that waits

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

    def predict(
        self,
        x: Any,
        *,
        sample_weight: float | None = None,
        time: Any = None,
        return_std: bool = False,
    ) -> Any:
        """Predict a row, which then waits for its target.

        Parameters
        ----------
        x : array (d,)
        sample_weight : number, optional
            Weight of the row when it is learned.
        time : date or number, optional
            When the row is, for a horizon, window or half-life in time.
        return_std : bool, default False
            Whether to return the standard deviation of the prediction's error too, as
            ``estimator.step`` does.

        Returns
        -------
        prediction : number or array (m,)
            As ``estimator.step`` predicts: 0, or the prior's, while nothing is known.  NaN where x
            has a missing value, and where fewer rows count than ``min_samples`` asks for.
        std : number or array (m,)
            Only with ``return_std``: known when the row comes; inf while the rows learned so far do
            not determine it.

        Raises
        ------
        ValueError, TypeError
            If the row cannot be learned later, a time is missing or goes back, or the target of a
            row one horizon before has not been given; nothing has changed then.
        """
        return_std = return_std is not False and check_flag("return_std", return_std)
        now, timing = self._read(time), self._check_row(x, sample_weight, time)
        X, std = np.atleast_2d(x), None
        if return_std:  # refused before anything is learned where there is none
            self.estimator._deviation_before(X, sample_weight)
        due = self._due(now)
        for row in due:
            if row[-1] is None:
                raise ValueError(
                    f"the target of a row that is horizon={self.horizon!r} old has not been "
                    "given: call learn(y) for it first, with NaN if it is missing"
                )
        for _ in due:
            self._learn_oldest()
        hidden = getattr(self.estimator, "min_samples", None) is not None
        missing = not np.isfinite(complex_rows.complex_array(X, "x")).all()
        prediction: Any = np.nan if hidden or missing else 0.0
        if self.estimator._has_estimate():
            if hidden:
                prediction = np.asarray(self.estimator.predict(X))[0]
            else:
                prediction = self.estimator._predict_or_zero(X)
            prediction = prediction if np.ndim(prediction) else prediction.item()
        if return_std:
            std = self.estimator._deviation_before(X, sample_weight)
            std = np.full(np.shape(prediction), std)
            std = std if std.ndim else std.item()
        options: dict[str, Any] = {"sample_weight": sample_weight}
        if timing is not None:
            options["time"] = time
        self._latest, self._timing = now, timing
        self._waiting.append([copy.copy(x), prediction, options, now, None])
        return (prediction, std) if return_std else prediction

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
        ValueError, TypeError
            If every row has its target, or y is none that can be learned; nothing has changed then.
        """
        row = next((row for row in self._waiting if row[-1] is None), None)
        if row is None:
            raise ValueError("no row waits for a target: predict(x) comes before learn(y)")
        error = self._numbers(y) - row[1]
        row[-1] = copy.copy(y)
        if self._length is None:
            try:
                self._learn_oldest()
            except BaseException:
                row[-1] = None
                raise
        return error

    def step(
        self,
        x: Any,
        y: Any,
        *,
        sample_weight: float | None = None,
        time: Any = None,
        return_std: bool = False,
    ) -> tuple[Any, ...]:
        """Predict a row and give its target, which is learned one horizon later.

        Returns
        -------
        prediction, residual : number or array (m,)
            As of ``coefficient_path(horizon=)``; with ``min_samples`` NaN as of :meth:`predict`,
            also at a horizon of one row.
        std : number or array (m,)
            Only with ``return_std``; see :meth:`predict`.
        """
        self._numbers(y)  # refused before anything changes
        options: dict[str, Any] = {"sample_weight": sample_weight, "time": time}
        prediction: Any = self.predict(x, **options, return_std=return_std)
        if return_std:
            return prediction[0], self.learn(y), prediction[1]
        return prediction, self.learn(y)

    def _check_row(self, x: Any, sample_weight: Any, time: Any) -> Timing | None:
        """Check a row as learning it will; return the times of the estimator's rows up to it.

        Else an error would come when the row is learned, and again in every later call.
        """
        estimator, waiting = self.estimator, self._waiting
        checked = check_once(estimator, keep=False)
        origin = None if checked is None else checked.origin
        if origin is None:
            estimator._check_parameters()
        features = np.size(waiting[0][0]) if origin is None and waiting else None
        features = features if origin is None else origin.n_features
        is_timed = time is not None and estimator._duration(True) is not None
        was_timed = self._timing if waiting else estimator._timing
        if (
            type(x) is np.ndarray
            and x.dtype == np.float64
            and x.shape == (features,)
            and x.dot(x) < PLAIN  # False where a number is missing
            and sample_weight is None
            and not is_timed
            and was_timed is None
            and checked is not None
            and checked.factor is not None
        ):
            return None
        if type(x) is not np.ndarray:
            inputs.check_row_names(x, getattr(estimator, "feature_names_in_", None))
        X = np.atleast_2d(x)
        if X.shape[0] != 1:
            raise ValueError(f"x must be one row, got shape {np.shape(x)}")
        if features is not None:
            inputs.check_size(X.shape, estimator, features, allow_empty=False)
        weight = check_weight_of_row(sample_weight)
        m = 0 if origin is None else origin.n_targets
        y = np.zeros((1, m) if m else 1)
        call = estimator._check_call(X, y, weight, None, checked)
        # The estimator as it will be when it learns the row, as far as times are concerned.
        later = object.__new__(type(estimator))
        later.__dict__.update(estimator.__dict__)
        later._timing = was_timed
        later.n_samples_seen_ = len(waiting) + (0 if origin is None else estimator.n_samples_seen_)
        return later._in_time(call, [time] if is_timed else None, X, y, None, True)[1]

    def _numbers(self, y: Any) -> Any:
        """Check a target as learning it will; return it as a number or an array (m,)."""
        estimator = self.estimator
        origin = estimator.__dict__.get("_origin")
        if origin is None:
            sizes = {np.size(row[-1]) for row in self._waiting if row[-1] is not None}
            if sizes and np.size(y) not in sizes:
                raise ValueError(f"y must have {sizes.pop()} numbers, as before, got {y!r}")
        several = np.size(y) > 1 if origin is None else origin.n_targets > 0
        if not several and type(y) in (float, np.float64) and y * y < PLAIN:
            return y
        Y = np.array(y, ndmin=2 if several else 1, subok=True)
        if Y.shape[0] != 1:
            raise ValueError(f"y must be the target of one row, got shape {np.shape(y)}")
        is_complex = estimator._sees_complex(Y) if origin is None else origin.is_complex
        convert = complex_rows.complex_array if is_complex else real_array
        n_targets = None if origin is None else origin.n_targets
        Y = inputs.check_y(Y, estimator, 1, n_targets, convert)
        X, parts = np.zeros((1, 1)), complex_rows.real_parts(Y) if is_complex else Y
        inputs.rows_to_learn(X, parts, None, estimator.missing, estimator)
        return Y[0] if several else Y.item()

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
