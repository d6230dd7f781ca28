"""Robust standard errors of the rolling regressions of many groups, in one compiled loop."""

from __future__ import annotations

import numpy as np

from olsq.online.calls.call import Call, Origin
from olsq.online.paths.collector import RobustErrors
from olsq.online.paths.goodness import GroupRows
from olsq.online.paths.path import CoefficientPath


def with_robust_errors(
    path: CoefficientPath,
    call: Call,
    origin: Origin,
    by_group: GroupRows,
    window: int,
    robust: RobustErrors,
) -> CoefficientPath:
    """Return the path of groups with robust standard errors in the place of its finite ones.

    The groups' usable rows, one group after another, are one sequence in which a window begins no
    earlier than its group.  A skipped row has the errors of the row before it.
    """
    (n, m), k = call.Y.shape, origin.ridge.size
    order = by_group.order
    usable = np.ones(order.size, np.bool_) if call.usable is None else call.usable[order]
    place, group = np.flatnonzero(usable), by_group.groups
    rows = order[place]
    begins = np.searchsorted(group[place], group)  # among usable rows, of every row's group
    oldest = np.maximum(begins[place], np.arange(rows.size) - window + 1)
    X = np.ones((rows.size, k))
    X[:, int(origin.intercept) :] = call.X[rows]
    coef, stderr = (
        np.concatenate([a.reshape(n, m, -1) for a in pair], axis=2)[rows, :, -k:]
        for pair in ((path.intercept, path.coef), (path.intercept_stderr, path.stderr))
    )
    robust.fill_of_rows(call.Y[rows], X, oldest, coef, origin.ridge, stderr)
    last = np.cumsum(usable) - 1  # the usable row at or before each one
    known = np.flatnonzero(last >= begins)  # of the same group
    of_coef = path.stderr.copy()
    of_coef.reshape(n, m, -1)[order[known]] = stderr[last[known], :, int(origin.intercept) :]
    if not origin.intercept:
        return path._replace(stderr=of_coef)
    of_intercept = path.intercept_stderr.copy()
    of_intercept.reshape(n, m)[order[known]] = stderr[last[known], :, 0]
    return path._replace(stderr=of_coef, intercept_stderr=of_intercept)
