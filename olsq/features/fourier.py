"""Seasonal terms as sines and cosines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.features import times
from olsq.features.base import State
from olsq.features.parameters import as_list, bounded_integer
from olsq.features.table import Table
from olsq.features.times import TimedBuilder

MOST_HARMONICS = 10_000  # of all periods together; those of a year of hours are 4,383


class Fourier(TimedBuilder):
    """Seasons: ``sin(2 pi k t / period)`` and ``cos(2 pi k t / period)`` for k from 1 to order.

    Parameters
    ----------
    period : number, duration or sequence of them, default 12
        In rows, in units of a column of numbers, or for time stamps as ``"7D"``, ``"24h"``,
        ``"365.25D"`` (W, D, h, min, s, ms, us, ns).
    order : int or sequence of int, default 1
        Harmonics, one number or one for each period.
    of : column, optional
        Column of X, by name or position, that holds t: numbers or time stamps.  Default: t counts
        the rows, from 0, on through all calls.
    carry : bool, default False
        See :class:`Lags`; it matters where rows are counted.

    Notes
    -----
    t is reduced modulo the period before anything is rounded, so that row 1e12 is as exact as row
    1.  Time stamps count from 1970, missing ones are NaN; those with a time zone are read as its
    clocks show them, so that a daily season stays where it is in summer (for seasons of the sun or
    of a machine that keep UTC convert the column to UTC).  A frequency that two periods share is
    there once, and with rows counted harmonics beyond half a cycle a row are refused; at
    exactly half the sine, which is zero in every row, is left out.

    References
    ----------
    Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter" (1989), section
    2.3.4.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.features import Fourier
    >>> season = Fourier(period=4, order=2)
    >>> season.partial_transform(np.zeros((3, 1))).round(12) + 0.0
    array([[ 0.,  1.,  1.],
           [ 1.,  0., -1.],
           [ 0., -1.,  1.]])
    >>> season.get_feature_names_out().tolist()
    ['sin1/4', 'cos1/4', 'cos2/4']
    """

    _text = True
    _local = True

    def __init__(
        self, period: Any = 12, order: Any = 1, *, of: Any = None, carry: bool = False
    ) -> None:
        self.period = period
        self.order = order
        self.of = of
        self.carry = carry

    def _check_parameters(self) -> None:
        self._waves()

    def _waves(self) -> list[tuple[Any, int, bool]]:
        """List (period, harmonic, whether it has a sine) of every frequency."""
        periods = as_list("period", self.period, (str, int, float, np.number))
        if isinstance(self.order, (int, np.integer)):
            orders = [self.order] * len(periods)
        else:
            orders = as_list("order", self.order, ())
        if not periods or len(orders) != len(periods):
            raise ValueError(
                f"order must be one number or one for each of the {len(periods)} periods, got "
                f"{self.order!r}"
            )
        waves: list[tuple[Any, int, bool]] = []
        frequencies = np.empty(0)  # of the periods before
        for period, order in zip(periods, orders, strict=True):
            times.check_period(period)
            if isinstance(period, str) and self.of is None:
                raise ValueError(
                    f"period={period!r} is a duration and rows are counted: name the column of "
                    "time stamps with of="
                )
            length = times.duration(period, "period") if isinstance(period, str) else float(period)
            count = bounded_integer("order", order, 1, MOST_HARMONICS - len(waves))
            if self.of is None and 2 * count > length:
                raise ValueError(
                    f"order={order} of period={period!r}: rows show at most half the period's "
                    f"harmonics, {int(length // 2)}"
                )
            harmonics = np.arange(1, count + 1) / length
            # Those that an earlier period has too, to rounding, are left out.
            first = np.searchsorted(frequencies, harmonics * (1 - 1e-12))
            last = np.searchsorted(frequencies, harmonics * (1 + 1e-12), side="right")
            new = first == last
            for k in (np.flatnonzero(new) + 1).tolist():
                waves.append((period, k, not (self.of is None and 2 * k == length)))
            frequencies = np.sort(np.concatenate([frequencies, harmonics]))
        return waves

    @property
    def _in_durations(self) -> bool:
        return any(isinstance(period, str) for period, _, _ in self._waves())

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        t, are_stamps, after = self._read_times(state, table)
        parts, phase = [], {}
        for period, k, sine in self._waves():
            if isinstance(period, str) and not are_stamps:
                raise ValueError(
                    f"period={period!r} is a duration, but of={self.of!r} holds numbers: give the "
                    "period in their unit"
                )
            if period not in phase:
                # k times the phase is reduced again, so that the cosine's argument stays below 2 pi
                phase[period] = times.phases(t, are_stamps, period)
            angle = 2 * np.pi * np.mod(k * phase[period], 1.0)
            parts += ([np.sin(angle)] if sine else []) + [np.cos(angle)]
        return np.stack(parts, axis=1), after

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        names = []
        for period, k, sine in self._waves():
            size = period if isinstance(period, str) else f"{period:g}"
            names += ([f"sin{k}/{size}"] if sine else []) + [f"cos{k}/{size}"]
        return names
