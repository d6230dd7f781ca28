"""Rows whose targets are known when a forecast of a horizon is made, in one call or over several.

Row t is predicted from the rows up to s, the last one whose target is known by then: ``s = t - h``
for a horizon of h rows, the last row at or before ``time_t - h`` for a length of time.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import is_integer
from olsq.online.paths.arrays import predict_each
from olsq.online.rows.durations import Duration, is_duration, number_duration, parse_duration

NO_ROW = -1
LONGEST = 2**62  # horizons in rows, for NumPy's integers: longer than any data


def check_horizon(horizon: Any) -> int | Duration:
    """Return a number of rows, or a length of time; ValueError for what is neither."""
    if is_duration(horizon):
        return parse_duration(horizon, "horizon")
    if isinstance(horizon, (float, np.floating)):
        return number_duration(horizon, "horizon")
    if not is_integer(horizon, 1):
        raise ValueError(
            "horizon must be a whole number of rows, 1 or more, or a length of time such as '1D', "
            f"got {horizon!r}"
        )
    return min(int(horizon), LONGEST)


def fewest_rows(n_coefs: int, horizon: int, n_rows: int | None = None) -> int:
    """Return how many rows a forecast must rest on to be scored by default, of ``n_rows`` in all.

    k rows in a row determine k coefficients, but not what they predict a horizon later; and rows
    whose horizons overlap count once as evidence.  So k horizons, at most half of the rows.
    """
    wanted = n_coefs * horizon
    return wanted if n_rows is None else max(n_coefs, min(wanted, n_rows // 2))


def known_places(n: int, horizon: int | Duration, times: NDArray | None) -> NDArray[np.int64]:
    """Return for each of n consecutive rows the place of the last one known by then, below 0: none.

    ``times`` (n,) are of rows under a horizon in time; ValueError if they go back.
    """
    if isinstance(horizon, Duration):
        assert times is not None
        if (times[1:] < times[:-1]).any():
            raise ValueError(
                "times must not go back within a group under a horizon in time: sort the rows by "
                "time first"
            )
        return np.searchsorted(times, horizon.expired(times), side="right") - 1
    return np.arange(n) - horizon


def last_known_rows(
    groups: list[NDArray[np.int64]], n: int, horizon: int | Duration, times: NDArray | None
) -> NDArray[np.int64]:
    """Return for every row (n,) the last row of its group whose target is known by then, or -1."""
    source = np.full(n, NO_ROW)
    for rows in groups:
        place = known_places(rows.size, horizon, None if times is None else times[rows])
        source[rows] = np.where(place >= 0, rows[np.maximum(place, 0)], NO_ROW)
    return source


def estimates_of(path: Any) -> NDArray[np.float64]:
    """Return coefficients and intercepts of a real path as values (n, m d + m) to be held."""
    n = len(path.residual)  # which may be 0
    flat = (a.reshape(n, int(np.prod(a.shape[1:]))) for a in (path.coef, path.intercept))
    return np.concatenate([*flat], axis=1)


def predict_from(estimates: NDArray[np.float64], X: NDArray) -> NDArray[np.float64]:
    """Predict rows X (n, d), (n, m), each from its own values of :func:`estimates_of`."""
    n, d = X.shape
    m = estimates.shape[1] // (d + 1)
    coef = estimates[:, : m * d].reshape(n, m, d)
    return predict_each(coef, estimates[:, m * d :], X)


def without_estimate(min_samples: int | None) -> float:
    """Return what coefficients are while there is no estimate: 0, as a first row is predicted, or
    NaN where ``min_samples`` hides them.
    """
    return 0.0 if min_samples is None else np.nan


def or_without(estimates: NDArray, begun: NDArray[np.bool_], without: float) -> NDArray:
    """Replace estimates (n, ...) that are NaN, or of rows not ``begun``, by ``without``."""
    known = begun.reshape(-1, *[1] * (estimates.ndim - 1)) & ~np.isnan(estimates)
    return np.where(known, estimates, without)


class Held(NamedTuple):
    """Values (r, k), and times (r,) or None, of the last rows of a group."""

    values: NDArray[np.float64]
    times: NDArray | None


class HeldRows:
    """Values of the last rows of each group, which forecasts of later rows rest on.

    Holds ``horizon`` rows of each group, or those of so long a time and the one before.

    Parameters
    ----------
    horizon : int or Duration
        As :func:`check_horizon` returns it.
    """

    def __init__(self, horizon: int | Duration) -> None:
        self.horizon = horizon
        self.groups: dict[Any, Held] = {}

    def last(self, label: Any) -> NDArray[np.float64] | None:
        """Return the values (k,) of a group's last row; None before its first one."""
        held = self.groups.get(label)
        return None if held is None else held.values[-1]

    def extend(
        self, groups: Mapping[Any, NDArray[np.int64]], values: NDArray, times: NDArray | None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Add rows with their values (n, k); return the values (n, k) known when each is predicted.

        ``groups`` has the rows of each label, in order.  The mask (n,) has the rows that another
        one is known before; the values of others, and of rows of no group, are NaN.
        """
        known, begun = np.full(values.shape, np.nan), np.zeros(len(values), np.bool_)
        for label, rows in groups.items():
            series, clock = values[rows], None if times is None else times[rows]
            held = self.groups.get(label)
            if held is not None:
                series = np.concatenate([held.values, series])
                if clock is not None:
                    assert held.times is not None
                    clock = np.concatenate([held.times, clock])
            place = known_places(len(series), self.horizon, clock)[len(series) - rows.size :]
            has_source = place >= 0
            begun[rows] = has_source
            known[rows[has_source]] = series[place[has_source]]
            # The next row's forecast rests on the one after the last row's, or (time) on that.
            oldest = max(int(place[-1]) + (clock is None), 0)
            clock = None if clock is None else clock[oldest:].copy()
            self.groups[label] = Held(series[oldest:].copy(), clock)
        return known, begun

    def followed_by(self, later: Self) -> Self:
        """Return what is held after the rows of both; neither changes."""
        both = copy.copy(self)
        both.groups = self.groups.copy()
        for label, held in later.groups.items():
            every = np.arange(len(held.values))
            both.extend({label: every}, held.values, held.times)
        return both
