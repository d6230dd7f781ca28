"""Paths of windows whose columns depend on each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms import singular_path
from olsq.online.forms.rows import Rows, Trace
from olsq.online.windows.row_kernels import FILLED


def take(
    window: Any,
    rows: Rows,
    start: int,
    leaving: tuple[NDArray[np.int64], NDArray[np.int64]],
    residual: NDArray,
    trace: Trace,
) -> int:
    """Take rows of a path from ``start`` on while coefficients are undetermined; return the row
    after them.

    ``window`` is a :class:`RollingWindow` in square-root form, which is made anew with each row;
    the solutions are read together.  ``leaving`` = (how many rows leave with each, the rows with
    which some leave).
    """
    n, like = len(residual), window.form
    (m, d), theta = like.z.shape, like.coefficients()
    most = min(n - start, singular_path.rows_at_once(d))
    snapshots = singular_path.Snapshots.empty(most, m, d, False)
    t, undetermined, in_turn = start, True, True
    while t < start + most and undetermined and in_turn:
        trace.recursive[t] = np.sqrt(window.form.take_alone(rows, t))
        window._store(rows, t, t + 1, leaving[0])
        window.rebuild()
        form = window.form
        undetermined = 0 < form.rank < d
        if undetermined:
            snapshots.keep(t - start, form)
            trace.loss[t], trace.counts[t] = form.loss, (*form.tally, form.rank, 0.0)
        else:
            trace.write(t, form)
        t += 1
        in_turn = window.place[FILLED] >= d and not window._fills_until(t, n, leaving[1])
    at = np.arange(start, t)
    read = at if undetermined else at[:-1]
    singular_path.read(snapshots, read - start, trace, read, like)
    before = np.concatenate([theta[None], trace.coef[start : t - 1]])
    singular_path.write_residuals(before, rows, at, residual, trace)
    return t
