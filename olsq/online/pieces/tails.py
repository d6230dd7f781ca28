"""The last rows of a piece that a rolling window in the next piece still needs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.estimators.rolling import RollingLeastSquares
from olsq.online.many.labels import group_rows
from olsq.online.pieces.pieces import INSTEAD_OF_PIECES
from olsq.online.rows.complex_rows import refuse_complex_data
from olsq.online.rows.times import of_frames, read_times, times_and_zone


class Rows(NamedTuple):
    """Rows as given: arrays, or pandas' frames and series; None for absent arguments."""

    X: Any
    y: Any
    sample_weight: Any = None
    forget: Any = None
    times: Any = None
    by: Any = None

    @property
    def n(self) -> int:
        """Number of the rows."""
        return len(self.X)

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Select some of the rows."""
        return self._make(None if part is None else _take(part, rows) for part in self)


class Tail(NamedTuple):
    """The last rows of a piece, and how many samples it had in all."""

    rows: Rows
    samples: int


def _take(part: Any, rows: NDArray[np.int64]) -> Any:
    return part.iloc[rows] if hasattr(part, "iloc") else part[rows]


def joined(first: Rows, second: Rows) -> Rows:
    """Join first's rows and second's."""
    return Rows(*(_joined(a, b) for a, b in zip(first, second, strict=True)))


def _joined(first: Any, second: Any) -> Any:
    if first is None:
        return None
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat([first, second])
    return np.concatenate([first, second])


def tail(window: RollingLeastSquares, rows: Rows) -> Tail | None:
    """Return the rows that are still in a window at the end; None if there are no rows.

    Raises as ``partial_fit`` does.  O(n d), to check the rows.
    """
    n = rows.n
    if n == 0:
        return None
    window._check_parameters()
    refuse_complex_data("a piece of a stream", INSTEAD_OF_PIECES, X=rows.X, y=rows.y)
    call = window._check_call(rows.X, rows.y, rows.sample_weight, rows.forget, None)
    duration, times = window._window_in_time(), None
    if window._duration(False) is not None:
        given = of_frames(rows.X, rows.y) if rows.times is None else rows.times
        if given is None:  # which is refused there
            window._in_time(call, None, rows.X, rows.y, None, False)
        times = times_and_zone(given)[0]
    usable = np.ones((n, 1), np.bool_) if call.usable is None else call.usable.reshape(n, -1)
    usable = usable & (call.weights > 0)[:, None]
    keep = np.zeros(n, np.bool_)
    for own in _groups(rows.by, n):
        if duration is not None and times is not None:
            values = read_times(times[own]).values
            keep[own[values > duration.expired(values[-1])]] = True
        elif window.window_of == "positions":
            keep[own[-window.window :]] = True
        else:
            for target in usable.T:
                last = np.flatnonzero(target[own])[-window.window :]
                if window._fades or rows.forget is not None:  # also rows that only fade others
                    last = slice(last[0] if last.size == window.window else 0, None)
                keep[own[last]] = True
    return Tail(rows.take(np.flatnonzero(keep)), call.n_samples)


def _groups(by: Any, n: int) -> list[NDArray[np.int64]]:
    """List the rows of every group, in order; rows without a label are in none."""
    if by is None:
        return [np.arange(n)]
    return [own for _, own in groups(by, n)]


def groups(by: Any, n: int) -> list[tuple[Any, NDArray[np.int64]]]:
    """List every label with its rows, in order of appearance; rows without a label are left out."""
    return list(group_rows(by, n).items())


def merged(window: RollingLeastSquares, first: Tail | None, second: Tail | None) -> Tail | None:
    """Merge the tails of first's rows and second's; second's times may not begin before."""
    if first is None or second is None:
        return second if first is None else first
    if not second.rows.n:
        return Tail(first.rows, first.samples + second.samples)
    both = joined(first.rows, second.rows)
    found = tail(window, both)
    assert found is not None
    return Tail(found.rows, first.samples + second.samples)


def estimator_of(window: RollingLeastSquares, last: Tail) -> RollingLeastSquares:
    """Fit the window to the rows of its tail."""
    rows = last.rows
    if rows.forget is None:
        window.fit(rows.X, rows.y, rows.sample_weight, times=rows.times)
    else:
        window.partial_fit(rows.X, rows.y, rows.sample_weight, forget=rows.forget, times=rows.times)
    window.n_samples_seen_ = last.samples
    return window


def any_usable(window: RollingLeastSquares, rows: Rows) -> bool:
    """Test whether any row can be learned."""
    call = window._check_call(rows.X, rows.y, rows.sample_weight, rows.forget, None)
    return call.usable is None or bool(call.usable.any())


def check(window: RollingLeastSquares) -> None:
    """Raise ValueError or TypeError for parameters that no row is needed to refuse."""
    window._check_parameters()
