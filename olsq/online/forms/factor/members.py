"""Numba kernels over the streams of a stack, each of which learns its own rows.

``state`` = (factor (n, k, k + m), pivots (n, k), columns (n, 2, k), tally (n, 4), loss (n, m), held
(n,), seen (n,), spread): the streams first; ``spread`` (n k, k) has the rows of all streams' below
one another, or is None where nobody asks for it.  ``rows`` = (X (N, k), Y (N, m), gates, weights),
one stream's after the other's: those of ``members[i]``, no stream twice, are
``position[i]:ends[i]``, and each position moves to the first row that was not taken.  ``turns`` =
(members, position, ends).  ``limits`` = (epsilon of the state, floor of a column's information,
relative rounding error of the data).  ``residual`` (N, m) receives the a-priori errors, ``trace``,
of N rows or None, the states after the rows.  An estimator is a stack of one.
"""

from __future__ import annotations

from olsq.kernels import kernel
from olsq.online.forms.edges import check_trace, wants_sandwich
from olsq.online.forms.factor import careful, learning, path, snapshots


@kernel(forceinline=True)
def check_state(state, needed):
    """Raise ValueError unless the shapes of a stack's arrays fit together.

    ``needed`` says whether there has to be a spread.
    """
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
        raise ValueError("the arrays of a state do not have shapes that fit together")
    check_spreads(spread, pivots, needed)


@kernel(called=True)
def check(state, turns, rows, residual, trace):
    """Raise ValueError unless all shapes fit together and every index is within its array."""
    check_state(state, wants_sandwich(trace))
    n, k = state[1].shape
    m = state[4].shape[1]
    X, Y, gates, weights = rows
    N = X.shape[0]
    if X.shape != (N, k) or Y.shape != (N, m) or gates.shape != (N,) or weights.shape != (N,):
        raise ValueError("the shapes of rows and weights do not fit the state")
    if residual.shape != (N, m):
        raise ValueError("the shape of the residuals does not fit the rows")
    check_trace(trace, N, k, m)
    members, position, ends = turns
    if position.shape != members.shape or ends.shape != members.shape:
        raise ValueError("the places of rows do not have the shape of members")
    for i in range(members.shape[0]):
        if not (0 <= members[i] < n and 0 <= position[i] <= ends[i] <= N):
            raise ValueError("a member, or its rows, are outside of the shape of the arrays")


@kernel(forceinline=True)
def check_spreads(spread, pivots, needed):
    """Check that the spreads, if they are not None, have as many rows as the factors."""
    if spread is None:
        if needed:
            raise ValueError("the trace of a sandwich needs a spread of shape (n k, k)")
        return
    n, k = pivots.shape
    if spread.shape != (n * k, k):
        raise ValueError("the spreads do not have the shape of the factors")


@kernel(forceinline=True, makes_arrays=True)
def form_of(state, f):
    """Return the arrays of stream f: F, D, columns, tally, loss."""
    factor, pivots, columns, tally, loss, _, _, _ = state
    return factor[f], pivots[f], columns[f], tally[f], loss[f]


@kernel(forceinline=True, makes_arrays=True)
def spread_of(spread, f):
    """Return a tuple of the spread of stream f, or None: what is no tuple would be counted."""
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
def learn_carefully(state, turns, rows, limits, intercept, residual, shares):
    """Learn rows of every member until its state is sound.

    ``shares[i]`` receives the share of a member's last row in its recursive residual, or WAITING
    where it stops before a row whose error needs coefficients of minimum norm that are not found
    with vectors: :func:`take_known` takes it.
    """
    _, _, _, _, _, held, seen, spread = state
    members, position, ends = turns
    check(state, turns, rows, residual, None)
    if shares.shape != members.shape:
        raise ValueError("the shape of the shares does not fit the members")
    for i in range(members.shape[0]):
        f, begin = members[i], position[i]
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        t, count, shares[i] = careful.learn_carefully(
            form, squares, rows, (begin, ends[i]), limits, intercept, residual
        )
        held[f] += count
        seen[f] += count_samples(rows[3], begin, t)
        position[i] = t


@kernel(makes_arrays=True)
def take_known(state, turns, rows, limits, intercept, residual):
    """Absorb one row of every member, whose residual is written already."""
    _, _, _, _, _, held, seen, spread = state
    members, position, _ = turns
    check(state, turns, rows, residual, None)
    for i in range(members.shape[0]):
        f, t = members[i], position[i]
        if t == rows[0].shape[0]:
            raise ValueError("a row is outside of the shape of X")
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        held[f] += careful.take_known(form, squares, rows, t, limits, intercept, residual)
        seen[f] += count_samples(rows[3], t, t + 1)
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
