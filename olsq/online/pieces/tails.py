"""The last rows of a piece that a rolling window in the next piece still needs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from olsq.online.estimators.rolling import RollingLeastSquares
from olsq.online.pieces.pieces import INSTEAD_OF_PIECES, PieceRows
from olsq.online.rows.complex_rows import refuse_complex_data
from olsq.online.rows.times import of_frames, read_times, times_and_zone


class Tail(NamedTuple):
    """The last rows of a piece, and how many samples it had in all."""

    rows: PieceRows
    samples: int


def joined(first: PieceRows, second: PieceRows) -> PieceRows:
    """Join first's rows and second's."""
    return PieceRows(*(_joined(a, b) for a, b in zip(first, second, strict=True)))


def _joined(first: Any, second: Any) -> Any:
    if first is None:
        return None
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat([first, second])
    return np.concatenate([first, second])


def tail(window: RollingLeastSquares, rows: PieceRows) -> Tail | None:
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
    for _, own in rows.groups:
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
