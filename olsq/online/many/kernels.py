"""Numba kernels over the filters of a bank, each of which learns its own rows.

State arrays have the filters first (see ``many/state.py``); the last one, ``spread`` (n k, k), has
the rows of all filters' below one another, or is None where nobody asks for it.  ``rows`` =
(X (N, k), Y (N, m), gates, weights) as the factor's kernels take them, one filter's after the
other's: those of ``members[i]``, no filter twice, are ``position[i]:ends[i]``.  ``turns`` =
(members, position, ends).  ``limits`` are those of the factor.  ``residual`` (N, m) and ``trace``,
of N rows or None, are as with the factor's kernels.
"""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.edges import check_trace
from olsq.online.forms.factor import careful, learning, path, snapshots, solving


@kernel(forceinline=True)
def check_state(state):
    """Raise ValueError unless the shapes of a bank's arrays fit together."""
    factor, pivots, columns, tally, loss, held, seen, spread = state
    n, k = pivots.shape
    m = loss.shape[1]
    if (
        factor.shape != (n, k, k + m)
        or columns.shape != (n, 2, k)
        or tally.shape != (n, 4)
        or loss.shape[0] != n
        or held.shape != (n,)
        or seen.shape != (n,)
    ):
        raise ValueError("the arrays of a bank do not have shapes that fit together")
    check_spreads(spread, pivots)


@kernel(called=True)
def check(state, turns, rows, residual, trace):
    """Raise ValueError unless all shapes fit together and every index is within its array."""
    check_state(state)
    n, k = state[1].shape
    m = state[4].shape[1]
    X, Y, gates, weights = rows
    N = X.shape[0]
    if X.shape != (N, k) or Y.shape != (N, m) or gates.shape != (N,) or weights.shape != (N,):
        raise ValueError("the shapes of rows and weights do not fit the bank")
    if residual.shape != (N, m):
        raise ValueError("the shape of the residuals does not fit the rows")
    check_trace(trace, N, k, m)
    members, position, ends = turns
    if position.shape != members.shape or ends.shape != members.shape:
        raise ValueError("the places of rows do not have the shape of members")
    for i in range(members.shape[0]):
        if not (0 <= members[i] < n and 0 <= position[i] <= ends[i] <= N):
            raise ValueError("a member, or where its rows are, is outside of the bank")


@kernel(forceinline=True)
def check_spreads(spread, pivots):
    """Check that the spreads, if they are not None, have as many rows as the factors."""
    if spread is None:
        return
    n, k = pivots.shape
    if spread.shape != (n * k, k):
        raise ValueError("the spreads of a bank do not have the shape of its filters")


@kernel(forceinline=True, makes_arrays=True)
def form_of(state, f):
    """Return the arrays of filter f as the factor's kernels take them."""
    factor, pivots, columns, tally, loss, _, _, _ = state
    return factor[f], pivots[f], columns[f], tally[f], loss[f]


@kernel(forceinline=True, makes_arrays=True)
def spread_of(spread, f):
    """Return a tuple of the spread of filter f, or None: what is no tuple would be counted."""
    if spread is None:
        return (spread,)
    k = spread.shape[1]
    return (spread[f * k : (f + 1) * k],)


@kernel(forceinline=True)
def count_samples(weights, start, stop):
    """Count the rows of a span that have a weight."""
    count = 0
    for t in range(start, stop):
        count += 1 if weights[t] > 0 else 0
    return count


@kernel(makes_arrays=True)
def learn(state, turns, rows, limits, residual):
    """Learn the rows of every member in turn, up to one that needs care."""
    _, pivots, _, _, loss, _, seen, spread = state
    members, position, ends = turns
    check(state, turns, rows, residual, None)
    room = learning.make_room(pivots.shape[1], loss.shape[1])
    for i in range(members.shape[0]):
        f, begin = members[i], position[i]
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        t = learning.learn_sound(form, squares, rows, (begin, ends[i]), limits, room, residual)
        seen[f] += count_samples(rows[3], begin, t)
        position[i] = t


@kernel(makes_arrays=True)
def learn_path(state, turns, rows, limits, residual, trace):
    """Do :func:`learn` and write the state after every row to the trace."""
    _, _, _, _, _, _, seen, spread = state
    members, position, ends = turns
    check(state, turns, rows, residual, trace)
    for i in range(members.shape[0]):
        f, begin = members[i], position[i]
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        t = path.learn_path(form, squares, rows, (begin, ends[i]), limits, residual, trace)
        seen[f] += count_samples(rows[3], begin, t)
        position[i] = t


@kernel(makes_arrays=True)
def learn_carefully(state, turns, rows, limits, intercept, residual, done):
    """Learn rows of every member until its state is sound.

    ``done[i]`` is False where a member stops before a row whose error needs coefficients of minimum
    norm that are not found with vectors: :func:`take_known` takes it.
    """
    _, _, _, _, _, held, seen, spread = state
    members, position, ends = turns
    check(state, turns, rows, residual, None)
    if done.shape != members.shape:
        raise ValueError("the shape of done does not fit the members")
    for i in range(members.shape[0]):
        f, begin = members[i], position[i]
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        t, count, all_done = careful.learn_carefully(
            form, squares, rows, (begin, ends[i]), limits, intercept, residual
        )
        done[i] = all_done
        held[f] += count
        seen[f] += count_samples(rows[3], begin, t)
        position[i] = t


@kernel(makes_arrays=True)
def take_known(state, turns, rows, limits, intercept, residual):
    """Absorb one row of every member, whose residual is written already."""
    _, _, _, _, _, held, seen, spread = state
    members, position, _ = turns
    check(state, turns, rows, residual, None)
    X, Y, gates, weights = rows
    for i in range(members.shape[0]):
        f, t = members[i], position[i]
        if t == X.shape[0]:
            raise ValueError("a row is outside of the shape of X")
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        row = X[t : t + 1], Y[t : t + 1], gates[t : t + 1], weights[t : t + 1]
        _, count = careful.take_known(form, squares, row, limits, intercept, residual[t : t + 1])
        held[f] += count
        seen[f] += count_samples(weights, t, t + 1)
        position[i] = t + 1


@kernel(makes_arrays=True)
def learn_path_carefully(state, turns, rows, limits, intercept, residual, trace, after):
    """Do :func:`olsq.online.forms.factor.snapshots.learn_with_care` for every member.

    ``after`` = (snapshots, known): snapshots are equally many for each member, one's after the
    other's; ``known[i]`` says whether the residual of its first row is known, and receives whether
    that of the first row left is to be computed from the coefficients before it.
    """
    states, known = after
    _, _, _, _, _, held, seen, spread = state
    members, position, ends = turns
    check(state, turns, rows, residual, trace)
    if known.shape != members.shape:
        raise ValueError("the shape of known does not fit the members")
    snapshots.check_snapshots(states, state[1].shape[1], residual.shape[1])
    for i in range(members.shape[0]):
        f, begin = members[i], position[i]
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        own, span = snapshots.own_snapshots(states, i, members.shape[0]), (begin, ends[i])
        t, count, known[i] = snapshots.learn_with_care(
            (form, squares), rows, span, limits, intercept, residual, trace, (own, known[i])
        )
        held[f] += count
        seen[f] += count_samples(rows[3], begin, t)
        position[i] = t


# -- reading --------------------------------------------------------------------------------------


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
    check_state(state)
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
