"""Trends as polynomials of time."""

from __future__ import annotations

import contextlib
import datetime
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import as_float, is_number, shown
from olsq.features import times
from olsq.features.base import State
from olsq.features.parameters import bounded_integer
from olsq.features.table import Table
from olsq.features.times import TimedBuilder

MOST_POWERS = 1000


class Trend(TimedBuilder):
    """``u, u^2, ..., u^degree`` with ``u = (t - origin) / scale``.

    Parameters
    ----------
    degree : int, default 1
    scale : number or duration, default 1000
        In rows, in units of a column of numbers, or for time stamps as ``"365D"``.  About the
        length of the stream, or of the memory of the regression, keeps u near 1.
    origin : number or text, default 0
        Where u is 0: a row, a number, or a date such as ``"2020-01-01"`` for time stamps (0 is
        1970; of stamps with a time zone in UTC, unless it says its offset, as in
        ``"2020-01-01T00:00+01:00"``).
    of : column, optional
        Column of X, by name or position, that holds t: numbers or time stamps.  Default: t counts
        the rows, from 0, on through all calls.
    carry : bool, default False
        See :class:`Lags`; it matters where rows are counted.

    Notes
    -----
    How long a stream will be is not known while it runs, so that the features cannot be centred
    and scaled by what comes: origin and scale are fixed, and the same row has the same features
    whatever comes later.  The powers' condition number grows like ``u^degree``: where t goes far
    beyond the scale, forget.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.features import Trend
    >>> trend = Trend(degree=2, scale=10)
    >>> _ = trend.partial_transform(np.zeros((10, 1)))
    >>> trend.partial_transform(np.zeros((2, 1)))
    array([[1.  , 1.  ],
           [1.1 , 1.21]])
    """

    _text = True

    def __init__(
        self,
        degree: int = 1,
        *,
        scale: Any = 1000.0,
        origin: Any = 0,
        of: Any = None,
        carry: bool = False,
    ) -> None:
        self.degree = degree
        self.scale = scale
        self.origin = origin
        self.of = of
        self.carry = carry

    def _check_parameters(self) -> None:
        bounded_integer("degree", self.degree, 1, MOST_POWERS)
        if isinstance(self.scale, str) or isinstance(self.origin, str):
            if self.of is None:
                raise ValueError(
                    "scale or origin is of time stamps and rows are counted: name their column "
                    "with of="
                )
            self._stamp_units()
            return
        for name, value in (("scale", self.scale), ("origin", self.origin)):
            finite = is_number(value) and math.isfinite(as_float(value))
            if not finite or (name == "scale" and value <= 0):
                rule = "positive" if name == "scale" else "finite"
                raise ValueError(f"{name} must be a {rule} number, got {shown(value)}")

    def _stamp_units(self) -> tuple[int, int]:
        """Return origin and scale in nanoseconds."""
        scale = times.duration(self.scale, "scale")
        try:
            text, moment = self.origin, None
            with contextlib.suppress(TypeError, ValueError):  # NumPy reads more, but no offsets
                moment = datetime.datetime.fromisoformat(text)
            if moment is not None and moment.tzinfo is not None:
                text = times.clock_time(moment, local=False)
            origin = np.datetime64(text if text != 0 else 0, "ns")
        except ValueError:
            raise ValueError(
                f"origin of time stamps must be a date such as '2020-01-01', got {self.origin!r}"
            ) from None
        return int(origin.astype(np.int64)), scale

    @property
    def _in_durations(self) -> bool:
        return isinstance(self.scale, str)

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        t, are_stamps, after = self._read_times(state, table)
        if are_stamps:
            origin, scale = self._stamp_units()
            # The difference in integers: float64 would round nanoseconds since 1970 to 256.  Over
            # 146 years, where integers may overflow, it loses nothing that matters.
            rough = t.astype(np.float64) - origin
            passed = np.where(np.abs(rough) < 2.0**62, t - origin, rough)
            u = np.where(times.missing(t, True), np.nan, passed / scale)
        elif isinstance(self.scale, str):
            raise ValueError(
                f"scale={self.scale!r} is a duration, but of={self.of!r} holds numbers: give the "
                "scale in their unit"
            )
        else:
            with np.errstate(over="ignore"):
                u = (t - float(self.origin)) / float(self.scale)
            if np.isinf(u[np.isfinite(t)]).any():
                raise ValueError(f"scale is too small for these times, got {shown(self.scale)}")
        with np.errstate(over="ignore"):  # an infinite feature makes the regression skip the row
            repeated = np.repeat(u[:, None], int(self.degree), axis=1)
            powers: NDArray[Any] = np.cumprod(repeated, axis=1)
        return powers, after

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        return ["trend"] + [f"trend^{k}" for k in range(2, int(self.degree) + 1)]
