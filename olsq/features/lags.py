"""Lagged values of y and of columns of X, and finite impulse responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.features.base import FeatureBuilder, State
from olsq.features.files import check_columns, check_keys
from olsq.features.look_back import (
    NO_ROW,
    RowTimes,
    Shift,
    check_tolerance,
    read_row_times,
    reads_times,
)
from olsq.features.parameters import bounded_integer, check_lags, list_lengths
from olsq.features.table import Table
from olsq.online.rows.durations import DATES, is_duration
from olsq.online.rows.times import same_clock


class Taps(NamedTuple):
    """Lags of y's columns and of X's columns; ranges, so that many of them take no memory."""

    y: Sequence[int]
    X: Sequence[int]


class LaggedBuilder(FeatureBuilder):
    """Features ``s_{t-l}`` of sources s (columns of X, then of y) and their lags l.

    Lags count rows, or steps in time: ``_shift(lag)``.
    """

    of: Any
    times: Any
    tolerance: Any
    step: Any = None

    def _taps(self) -> Taps:
        """Return the lags that the parameters ask for."""
        raise NotImplementedError

    def _shift(self, lag: Any) -> Shift:
        """Return a lag, not 0, as a length of time."""
        return Shift.read(self.step, "step").times(lag)

    @property
    def _timed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.step is not None

    @property
    def _uses_y(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return bool(self._taps().y)

    def _check_parameters(self) -> None:
        taps = self._taps()
        if not self._timed:
            for name in ("times", "tolerance"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is given, but lags count rows: give {self._LENGTHS} for lags in "
                        "time"
                    )
            return
        self._shifts(taps)
        check_tolerance(self.tolerance)

    _LENGTHS = "step='1h'"

    def _shifts(self, taps: Taps) -> dict[Any, Shift]:
        """Return every lag but 0 as a length of time."""
        return {lag: self._shift(lag) for lag in {*taps.y, *taps.X} if is_duration(lag) or lag != 0}

    def _depth(self) -> int:
        if self._timed:
            return 0
        taps = self._taps()
        return max(_largest(taps.y), _largest(taps.X))

    def _open(self, table: Table) -> State:
        taps = self._taps()
        columns, clock = [], []
        if self.times is not None:
            if table.X is None:
                raise ValueError(f"{type(self).__name__} requires X, whose column times= has times")
            clock = table.find(self.times, self)
            if len(clock) != 1:
                raise ValueError(f"times={self.times!r} must be one column of X")
        if taps.X:
            if table.X is None:
                raise ValueError(f"{type(self).__name__} requires X: its features are made of it")
            columns = table.find(self.of, self)
            if self.of is None or self.of == "X":
                columns = [c for c in columns if c not in clock]
        width = len(columns) + (max(table.targets, 1) if taps.y else 0)
        state = {"columns": columns, "tail": np.full((self._depth(), width), np.nan)}
        if not self._timed:
            return state
        return state | {"clock": clock, "times": None, "shown": None, "zoned": None}

    def _places(self, columns: list[int], targets: int) -> list[tuple[int, int]]:
        """List (source, lag) of every feature: those of y first, all lags of a source together."""
        taps, n_x = self._taps(), len(columns)
        target_lags = [
            (n_x + j, lag) for j in range(max(targets, 1) if taps.y else 0) for lag in taps.y
        ]
        return target_lags + [(j, lag) for j in range(n_x) for lag in taps.X]

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        columns, tail = state["columns"], state["tail"]
        parts = [table.numbers(columns)] if columns else []
        if self._taps().y:
            assert table.y is not None
            parts.append(table.y)
        rows = np.concatenate([tail, np.concatenate(parts, axis=1)])
        places = self._places(columns, table.targets)
        if self._timed:
            return self._build_in_time(state, table, rows, places)
        depth, out = len(tail), np.empty((table.n, len(places)))
        for k, (source, lag) in enumerate(places):
            out[:, k] = rows[depth - lag : depth - lag + table.n, source]
        return out, {"columns": columns, "tail": rows[len(rows) - depth :].copy()}

    def _build_in_time(
        self, state: State, table: Table, rows: NDArray[np.float64], places: list[tuple[int, Any]]
    ) -> tuple[NDArray[np.float64], State]:
        """Build features of the last rows, those before them being the history."""
        own = read_row_times(table.column(state["clock"][0])) if state["clock"] else table.times
        if own is None:
            raise ValueError(
                f"{type(self).__name__} looks back in time and no times were given: pass times=, a "
                "pandas index of dates, or name the column of X with times="
            )
        zoned: Any = same_clock(state["zoned"], own.zoned)
        before = None
        if state["times"] is not None:
            before = RowTimes(state["times"], state["shown"], zoned)
        times, shifts = own.after(before), self._shifts(self._taps())
        tolerance, first = check_tolerance(self.tolerance), len(rows) - table.n
        for length in (*(shift.duration for shift in shifts.values()), tolerance):
            if length is not None and length.kind != times.kind:
                given = "'24h'" if times.kind == DATES else "24.0"
                raise ValueError(f"times are {times.kind}: give lengths of time such as {given}")
        out = np.empty((table.n, len(places)))
        at = {0: np.arange(first, len(rows))}
        for lag, shift in shifts.items():
            at[lag] = times.rows_before(first, shift, tolerance)
        for k, (source, lag) in enumerate(places):
            out[:, k] = np.where(at[lag] == NO_ROW, np.nan, rows[at[lag], source])
        longest = max((shift.duration.length for shift in shifts.values()), default=0)
        kept = slice(times.oldest_needed(longest + (tolerance.length if tolerance else 0)), None)
        history = {"tail": rows[kept].copy(), "times": times.values[kept].copy()}
        return out, state | history | {"shown": times.clock[kept].copy(), "zoned": zoned}

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        sources = [labels[c] for c in state["columns"]]
        sources += [f"y{j}" for j in range(targets)] if targets else ["y"]
        return [f"{sources[s]}_lag{lag}" for s, lag in self._places(state["columns"], targets)]

    def _check_state(self, state: State, width: int, targets: int) -> None:
        timed = {"clock", "times", "shown", "zoned"} if self._timed else set()
        check_keys(state, {"columns", "tail"} | timed)
        check_columns(state["columns"], width)
        taps, tail = self._taps(), state["tail"]
        if bool(taps.X) != bool(state["columns"]):
            raise ValueError("columns and lags of X do not belong together")
        sources = len(state["columns"]) + (max(targets, 1) if taps.y else 0)
        if self._timed:
            self._check_times(state, width, sources)
            return
        fits = isinstance(tail, np.ndarray) and tail.shape == (self._depth(), sources)
        if not fits or tail.dtype != np.float64:
            raise ValueError("the history does not have the shape of its lags")

    def _check_times(self, state: State, width: int, sources: int) -> None:
        """Refuse a history in time that a file cannot have."""
        check_columns(state["clock"], width)
        tail, times, shown = (state[name] for name in ("tail", "times", "shown"))
        if len(state["clock"]) != (self.times is not None) or state["zoned"] not in (None, 0, 1):
            raise ValueError("columns are not the one of the times")
        if (times is None) != (shown is None):
            raise ValueError("the history does not have times for its rows")
        rows = 0 if times is None else len(tail)
        fits = isinstance(tail, np.ndarray) and tail.shape == (rows, sources)
        if not fits or tail.dtype != np.float64:
            raise ValueError("the history does not have the shape of its lags")
        arrays: Any = () if times is None else (times, shown)
        for array in arrays:
            if not isinstance(array, np.ndarray) or array.shape != (rows,):
                raise ValueError("the history does not have times for its rows")
            if array.dtype not in (np.int64, np.float64) or array.dtype != arrays[0].dtype:
                raise ValueError("the history does not have times for its rows")
        if times is not None:
            RowTimes(times, shown, None).after(None)


def _largest(lags: Sequence[int]) -> int:
    """Return the largest lag, 0 of none, without going through a range."""
    if isinstance(lags, range):
        return lags[-1] if lags else 0
    return max(lags, default=0)


class Lags(LaggedBuilder):
    """Values of earlier rows.

    Parameters
    ----------
    lags : int, length of time, or sequence of them, default 1
        How many rows back; a number means 1 up to it.  0, the row itself, only of X.  Or how far
        back in time: ``"24h"``, ``["1h", "24h", "7D"]``.  The value is that of the row exactly so
        long before, and NaN where there is none, however many rows are missing between.  Days and
        weeks are those of the calendar: ``"1D"`` is the same time of the zone's clocks on the day
        before, also where they were changed; ``"24h"`` is 24 hours.
    of : "y", "X", column or sequence of columns, default "y"
        Whose values: y's, all of X's, or those of columns, by name (of a data frame) or position.
    times : column, optional
        The column of X, by name or position, that holds the times, for lags in time: dates, or
        numbers, in whose unit lags are numbers then.  Times do not go back.  Default: what methods
        are given as ``times=``, or else the index of dates of X or y.
    tolerance : length of time, optional
        How much earlier than asked for a row may be: the last one before is taken.
    carry : bool, default False
        Whether ``transform`` takes its rows as those that follow ``fit``'s, as a Pipeline that
        predicts the next rows needs.  Otherwise they are a stream of their own.

    Attributes
    ----------
    n_features_in_, feature_names_in_

    Notes
    -----
    Row t's features are ``s_{t-l}``: NaN in the first rows, and where ``s`` was missing l rows
    before.  O(lags) memory, and no arithmetic: float32 comes out as the same number in float64.

    With ``of="y"`` scikit-learn's contract cannot hold as it stands, since ``transform(X)`` has no
    y: give it (``transform(X, y)``), or lag a column of X that holds the target.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq.features import Lags
    >>> rng = np.random.default_rng(0)
    >>> y = np.zeros(500)
    >>> for t in range(2, 500):
    ...     y[t] = 1.2 * y[t - 1] - 0.5 * y[t - 2] + rng.standard_normal()
    >>> lags, est = Lags(2), olsq.RecursiveLeastSquares()
    >>> for start in range(0, 500, 100):
    ...     block = y[start : start + 100]
    ...     _ = est.partial_fit(lags.partial_transform(None, block), block)
    >>> est.coef_.round(1)
    array([ 1.2, -0.5])
    >>> forecast = est.predict(lags.peek(None))
    """

    _LENGTHS = "lengths of time such as '24h'"

    def __init__(
        self,
        lags: Any = 1,
        *,
        of: Any = "y",
        times: Any = None,
        tolerance: Any = None,
        carry: bool = False,
    ) -> None:
        self.lags = lags
        self.of = of
        self.times = times
        self.tolerance = tolerance
        self.carry = carry

    @property
    def _timed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.times is not None or reads_times(self.lags)

    def _shift(self, lag: Any) -> Shift:
        return Shift.read(lag, "every lag")

    def _taps(self) -> Taps:
        of_y = isinstance(self.of, str) and self.of == "y"
        least = 1 if of_y else 0
        lags = list_lengths(self.lags) if self._timed else check_lags(self.lags, least)
        return Taps(lags, []) if of_y else Taps([], lags)


class FIR(LaggedBuilder):
    """The last values of X: ``x_{t-delay}, ..., x_{t-delay-taps+1}``.

    Parameters
    ----------
    taps : int, default 1
        How many.
    delay : int, default 0
        Rows before the first of them.
    of : column or sequence of columns, optional
        By name or position; default: all.
    step : length of time, optional
        The time between two taps, such as ``"1h"``; default: a row.
    times, tolerance
        With ``step``, as for :class:`Lags`.
    carry : bool, default False
        See :class:`Lags`.

    Notes
    -----
    The regressors of an adaptive filter; an echo canceller's, with the far end's signal as X.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.features import FIR
    >>> fir = FIR(3)
    >>> fir.partial_transform(np.arange(1.0, 4.0)[:, None])
    array([[ 1., nan, nan],
           [ 2.,  1., nan],
           [ 3.,  2.,  1.]])
    >>> fir.get_feature_names_out(["far"]).tolist()
    ['far_lag0', 'far_lag1', 'far_lag2']
    """

    def __init__(
        self,
        taps: int = 1,
        *,
        delay: int = 0,
        of: Any = None,
        step: Any = None,
        times: Any = None,
        tolerance: Any = None,
        carry: bool = False,
    ) -> None:
        self.taps = taps
        self.delay = delay
        self.of = of
        self.step = step
        self.times = times
        self.tolerance = tolerance
        self.carry = carry

    def _taps(self) -> Taps:
        first = bounded_integer("delay", self.delay, 0)
        return Taps([], range(first, first + bounded_integer("taps", self.taps, 1)))
