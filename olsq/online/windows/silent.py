"""Windows in which some columns are 0 throughout: their rows are learned without those columns.

A singular window is made anew with each row, O(n d^2).  What makes most of them singular is a
regressor that is 0 all the time (cooling degrees in winter).  Its coefficient is 0, and the others
are those of a window without it, which is updated as any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.rows import Rows, Trace, read_only
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.forms.square_root_kernels import RANK

FEWEST = 4  # rows that pay for a window of their own, which is made as one of them would be


def take(
    window: Any,
    rows: Rows,
    start: int,
    leaving: NDArray[np.int64],
    residual: NDArray,
    trace: Trace,
) -> int:
    """Take rows from ``start`` on while columns that are 0 in all of the window stay so; return the
    row after them, which is ``start`` where there are no such columns or few such rows.

    ``window`` is a :class:`RollingWindow`, whose form is outdated afterwards; ``leaving`` are the
    numbers of rows that leave with each.
    """
    if len(residual) - start < FEWEST:
        return start
    silent = ~window.ring_X[window._order].any(axis=0)
    if silent.all() or not silent.any():
        return start
    sounds = rows.X[start:, silent].any(axis=1)
    stop = start + int(np.argmax(sounds)) if sounds.any() else len(residual)
    stop -= (stop - start) % 2 if window.paired else 0
    if stop - start < FEWEST:
        return start
    part = slice(start, stop)
    X, Y, gates, weights = (a[part] for a in rows)
    kept = Rows(read_only(np.ascontiguousarray(X[:, ~silent])), Y, gates, weights)
    m, k = Y.shape[1], kept.X.shape[1]
    own = Trace.none(m, k)
    if trace.wanted:
        own = Trace.empty(stop - start, m, k, variance=len(trace.variance) > 0)
    other = _without(window, ~silent)
    other._take(kept, leaving[part], residual[part], own)
    if trace.wanted:
        _write(trace, part, own, silent, window.ridge)
    window.is_outdated = True
    window._store(rows, start, stop, leaving)
    return stop


def _without(window: Any, kept: NDArray[np.bool_]) -> Any:
    """Copy a window with some of its columns; its form has to be made."""
    other = window.copy()
    other.ring_X, other.ridge = other.ring_X[:, kept], other.ridge[kept]
    like, other.factors, other.is_outdated = window.latest_form, None, True
    other.latest_form = SquareRootForm.start(
        other.ridge, window.ring_Y.shape[1], like.intercept, like.precision
    )
    return other


def _write(
    trace: Trace, part: slice, own: Trace, silent: NDArray[np.bool_], ridge: NDArray
) -> None:
    """Write the trace of the other columns; a silent one knows of its ridge alone."""
    trace.coef[part] = 0.0
    trace.coef[part, :, ~silent] = own.coef
    if len(trace.variance):
        with np.errstate(divide="ignore"):
            trace.variance[part] = 1.0 / ridge
        trace.variance[part, ~silent] = own.variance
    trace.loss[part], trace.counts[part] = own.loss, own.counts
    trace.counts[part, RANK] += np.count_nonzero(ridge[silent])
    trace.recursive[part] = own.recursive
