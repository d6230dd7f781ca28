"""Read and check the arguments of :func:`olsq.time_varying`, before anything is computed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_flag, shown
from olsq.arrays.reals import real_array
from olsq.drift.kernels import Array, Rows
from olsq.online import RecursiveLeastSquares
from olsq.online.rows.durations import Duration, any_duration, time_between
from olsq.online.rows.frames import Labels, check_same_index, names_or_numbers
from olsq.online.rows.inputs import check_X, check_y, usable_rows
from olsq.online.rows.options import check_weight
from olsq.online.rows.times import (
    Times,
    check_kind,
    named_times,
    read_times,
    read_times_in_any_order,
    times_and_zone,
    times_or_index,
    with_times,
)


class Data(NamedTuple):
    """Rows as given: X (n, d), y (n,), weights (n,) that are 0 where a value is missing (X and y
    are 0 there), the times if there are any, the length of time of a drift, as a duration and as
    the user wrote it, and labels.
    """

    X: Array
    y: Array
    weights: Array
    times: Times | None
    per: Duration | None
    written_per: Any
    labels: Labels

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Mask (n,) of the rows with a positive weight, which are complete."""
        return self.weights > 0

    def take(self, rows: NDArray[np.int64]) -> Data:
        """Return some rows, in order."""
        times = self.times
        if times is not None:
            taken = Times(times.kind, times.values[rows], times.zone)
            times = read_times(taken)  # refuses times that go back
        return Data(
            self.X[rows],
            self.y[rows],
            self.weights[rows],
            times,
            self.per,
            self.written_per,
            self.labels.take(rows),
        )

    def steps(self) -> Array:
        """Return the time (n,) since the row before, in units of ``per``; 1 without times."""
        if self.times is None or self.per is None:
            steps = np.ones(len(self.y))
        else:
            values = self.times.values
            steps = time_between(np.concatenate([values[:1], values[:-1]]), values)
            with np.errstate(over="ignore"):  # refused where it makes variances infinite
                steps /= self.per.length
        steps[:1] = 0.0
        return steps

    @property
    def regressors(self) -> Array:
        """X with a first column of 1 where there is an intercept; 0 in rows that say nothing."""
        if not self.labels.intercept:
            return self.X
        return np.column_stack([self.usable.astype(np.float64), self.X])

    @property
    def names(self) -> list[str]:
        """Names of the coefficients, the intercept first if there is one."""
        names = names_or_numbers(self.labels.features, self.X.shape[1])
        return [*(["intercept"] if self.labels.intercept else []), *names]

    def rows(self, start: Array) -> Rows:
        """Return the rows for the kernels, with what coefficients ``start`` predict taken off."""
        with np.errstate(divide="ignore"):
            noise = 1.0 / self.weights
        regressors = np.ascontiguousarray(np.where(self.usable[:, None], self.regressors, 0.0))
        y = np.where(self.usable, self.y - regressors @ start, 0.0)
        return Rows(regressors, y, noise, self.steps())


def read_data(
    X: Any, y: Any, sample_weight: Any, times: Any, per: Any, fit_intercept: Any, in_order: bool
) -> Data:
    """Return the checked arguments; ``in_order`` says whether all rows are one series."""
    judge = RecursiveLeastSquares()
    rows = check_X(X, judge, None, allow_empty=False).astype(np.float64)
    target = check_y(y, judge, len(rows), None).astype(np.float64)
    check_same_index(X=X, y=y, sample_weight=sample_weight, times=times)
    if target.ndim != 1:
        raise ValueError(
            f"y must be one target (n,), got shape {target.shape}: fit each target by itself, as "
            "each has a drift of its own"
        )
    weights = check_weight(sample_weight, len(rows)).copy()
    usable = usable_rows(rows, target, weights, "skip", judge)
    if usable is not None:
        rows[~usable], target[~usable], weights[~usable] = 0.0, 0.0, 0.0
    times = named_times(times, X, y)
    labels = Labels.of(X, y)._replace(intercept=check_flag("fit_intercept", fit_intercept))
    if times is None and per is None:
        return Data(rows, target, weights, None, None, None, labels)
    labels = with_times(labels, times, in_order=False)  # an index is among the labels already
    if per is None:
        per = "1D" if times_and_zone(times)[0].dtype.kind == "M" else 1.0
    length = any_duration(per, "per")
    times = times_or_index(times, X, y, length, "per", countable=False)
    read = (read_times if in_order else read_times_in_any_order)(times, len(rows))
    check_kind(read.kind, length, "per")
    return Data(rows, target, weights, read, length, per, labels)


def read_drift(drift: Any, k: int) -> Array:
    """Return the drift (k,), NaN where it is to be estimated."""
    if drift is None:
        return np.full(k, np.nan)
    values = real_array(drift, "drift").astype(np.float64)
    if values.ndim > 1 or (values.ndim == 1 and len(values) != k):
        raise ValueError(
            f"drift must be a number or one for each of the {k} coefficients, the intercept's "
            f"first where there is one, got an array of shape {values.shape}"
        )
    if (values < 0).any() or np.isinf(values).any():
        raise ValueError(
            f"drift must be finite and >= 0, or NaN where it is to be estimated, got {shown(drift)}"
        )
    return np.array(np.broadcast_to(values, (k,)))


def read_noise(noise: Any) -> float | None:
    """Return the variance of the noise, or None where it is to be estimated."""
    if noise is None:
        return None
    value = real_array(noise, "noise").astype(np.float64)
    if value.ndim or not 0 < value < np.inf:
        raise ValueError(f"noise must be one number > 0, the noise's variance, got {shown(noise)}")
    return float(value)
