"""Rows of a path after which coefficients are undetermined: their states are read together.

Reading one takes some 100 microseconds, most of it NumPy's calls; learning one takes five.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.held_kernels import hide_held
from olsq.online.forms.minimum_norm import inverse_root, sandwich_of, solution, variances
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.square_root_kernels import USED, noise_level, take_alone

ENTRIES = 2**18  # of the factors that are read together
ROWS = 256


def take(
    form: Any, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace, theta: NDArray
) -> tuple[int, NDArray]:
    """Absorb rows from ``start`` on while coefficients of a square-root form are undetermined.

    ``theta`` (m, d) are the coefficients before.  Returns the first row left and the coefficients
    before that one.  It stops after a row that determines all, or leaves nothing.
    """
    (m, d), level = form.z.shape, form.limits.square_root
    stop = min(stop, start + max(1, min(ROWS, ENTRIES // (d * d))))
    R, z = np.empty((stop - start, d, d)), np.empty((stop - start, m, d))
    noise, columns = np.empty(len(R)), np.empty((len(R), *form.columns.shape))
    spread = np.empty((len(R), *form.spread.shape))
    t, undetermined = start, True
    while t < stop and undetermined:
        i, (x, target, gate, weight) = t - start, (a[t] for a in rows)
        share, held = take_alone(form.in_kernels, form.spread, x, target, gate, weight, level)
        form.held += held
        rank = form.rank
        undetermined = 0 < rank < d
        R[i], z[i], columns[i], spread[i] = form.R, form.z, form.columns, form.spread
        noise[i] = noise_level(level, d, form.tally)
        trace.loss[t], trace.counts[t] = form.loss, (*form.tally, rank, 0.0)
        trace.recursive[t] = np.sqrt(share)
        t += 1
    full = rank == d
    read = t - start - int(full)
    known = np.diagonal(R[:read], axis1=1, axis2=2) != 0
    alike: dict[bytes, list[int]] = {}
    for i, pivots in enumerate(known):
        alike.setdefault(pivots.tobytes(), []).append(i)
    for together in alike.values():
        places, pivots = np.array(together), known[together[0]]
        factors, at = R[places], start + places
        trace.coef[at] = solution(factors, z[places], pivots, noise[places], form.intercept)
        if not len(trace.variance):
            continue
        root = inverse_root(factors, pivots)
        variance = variances(factors, root)
        hide_held(variance, columns[places], trace.counts[at, :4], level)
        trace.variance[at] = variance
        if len(trace.sandwich):
            diagonal, trace.counts[at, USED] = sandwich_of(spread[places], root)
            trace.sandwich[at] = np.where(np.isfinite(variance), diagonal, np.inf)
    if full:
        trace.write(t - 1, form)
    before = np.concatenate([theta[None], trace.coef[start : t - 1]])
    residual[start:t] = rows.Y[start:t] - predict(before, rows.X[start:t])
    trace.recursive[start:t] *= residual[start:t]
    return t, trace.coef[t - 1]


def predict(theta: NDArray, X: NDArray) -> NDArray:
    """Predict rows X (n, d) by theta (n, m, d) as (n, m), with the same bits for any n."""
    return np.matmul(theta, X[:, :, None])[:, :, 0]
