"""Write the states after the rows of a rolling window to a trace."""

from __future__ import annotations

from olsq.online.forms.counting import record, record_counts
from olsq.online.forms.factor.carrying import read_afresh
from olsq.online.forms.factor.kernels import called, inline, rank_of


@inline
def record_pair_row(trace, t, rank, loss, tally):
    """Write to the trace what is known after row t besides coefficients and variances."""
    for q in range(loss.shape[0]):
        trace[2][t, q] = loss[q]
    record_counts(trace[3], t, tally, rank, 0.0)


@called
def record_afresh(state, t, trace, carried):
    """Write a sound state to the trace."""
    F, D, _, tally, loss = state
    read_afresh(F, D, carried)
    for k in range(carried.variance.shape[0]):
        trace[1][t, k] = carried.variance[k]
    record(trace, t, carried.theta, loss, tally, rank_of(D), 0.0)
