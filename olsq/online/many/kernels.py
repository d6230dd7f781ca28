"""Numba kernels that read the states of filters of a bank."""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.edges import check_trace, wants_sandwich
from olsq.online.forms.factor import path, solving
from olsq.online.forms.factor.members import check_state, form_of, spread_of


@kernel(strict=True)
def solve_filters(factor, pivots, filters, theta):
    """Solve ``U theta = T`` of some filters for theta (b, m, k), with 0 where nothing is known."""
    b, m, k = theta.shape
    n = pivots.shape[0]
    if factor.shape != (n, k, k + m) or pivots.shape != (n, k) or filters.shape != (b,):
        raise ValueError("the shapes of factors, pivots and coefficients do not fit together")
    for i in range(b):
        f = filters[i]
        if not 0 <= f < n:
            raise ValueError("a filter is outside of the bank")
        solving.solve(factor[f], pivots[f], theta[i])


@kernel(makes_arrays=True)
def record(state, filters, at, limits, trace):
    """Write the states of some filters, whose coefficients are determined, to rows of a trace."""
    factor, pivots, _, _, _, _, _, spread = state
    n, k = pivots.shape
    m = factor.shape[2] - k
    check_state(state, wants_sandwich(trace))
    check_trace(trace, trace[0].shape[0], k, m)
    if at.shape != filters.shape:
        raise ValueError("the shape of the rows does not fit the filters")
    theta, variance, inverse = np.empty((m, k)), np.empty(k), np.empty((k, k))
    if trace[1].shape[0] == 0:
        variance = np.empty(0)
    for i in range(filters.shape[0]):
        f, t = filters[i], at[i]
        if not (0 <= f < n and 0 <= t < trace[0].shape[0]):
            raise ValueError("a filter or a row is outside of the bank or the trace")
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        path.record_row(form, squares, t, limits, theta, variance, inverse, trace)
